/* SPDX-License-Identifier: MIT */
/*
 * Goal: convolutions of the sizes that nets have, beyond the small ones of test_kernels.c: wide
 * images, blocks of channels and odd ends of them, few channels on either side, for one thread and
 * two, with weights that the state of another row count and thread count packed. Method: against
 * the f64 reference, within kernel_tolerance(). Our own also bit by bit against a chain of
 * multiply-adds for each number, or for each of minimal filtering's positions, which is what they
 * are on every instruction set.
 */
#include "harness.h"
#include "kernels/winograd.h"
#include "net/cpu/cpu.h"

#include <string.h>

struct sizes {
    int64_t rows, in, out, height, width, kernel, stride_y, stride_x, padding, groups;
    int64_t gap_y, gap_x;
};

static const struct sizes nets[] = {
    {2, 3, 16, 33, 21, 3, 1, 1, 1, 1},
    {2, 16, 16, 20, 48, 3, 1, 1, 1, 1},
    {1, 16, 32, 17, 50, 3, 1, 1, 1, 1},
    {3, 32, 8, 9, 40, 3, 1, 1, 1, 1},
    {2, 8, 8, 24, 24, 3, 1, 1, 1, 1},
    {2, 48, 3, 12, 12, 3, 1, 1, 1, 1},
    {2, 12, 40, 12, 12, 5, 1, 1, 2, 1},
    {4, 64, 80, 3, 3, 3, 1, 1, 1, 1},
    {2, 24, 24, 15, 15, 3, 2, 2, 1, 1},
    {2, 32, 16, 13, 13, 1, 1, 1, 0, 1},
    {3, 32, 16, 13, 13, 1, 2, 2, 0, 1},
    {2, 16, 1, 31, 31, 1, 1, 1, 0, 1},
    {2, 32, 48, 10, 10, 3, 1, 1, 1, 2},
    {2, 40, 40, 14, 14, 3, 1, 1, 1, 40},
    {1, 6, 9, 24, 24, 3, 1, 1, 1, 3},
    {2, 16, 16, 11, 11, 3, 1, 1, 0, 1},
    {2, 16, 8, 11, 11, 3, 1, 1, 2, 1},
    {2, 12, 5, 10, 10, 2, 1, 1, 3, 1},
    {3, 2, 16, 34, 40, 1, 2, 1, 0, 1},
    {3, 1, 40, 10, 2, 3, 1, 2, 1, 1},
    {2, 20, 40, 16, 18, 1, 3, 2, 0, 1},
    {9, 70, 130, 6, 5, 3, 1, 1, 1, 1},
    {2, 130, 70, 9, 8, 3, 2, 3, 1, 1},
    {2, 96, 33, 8, 7, 2, 3, 2, 1, 1},
    {2, 136, 200, 5, 4, 3, 1, 1, 1, 2},
    {3, 70, 70, 9, 11, 3, 2, 3, 1, 70},
    {2, 5, 15, 9, 11, 3, 2, 1, 1, 5},
    {1, 17, 17, 5, 5, 1, 2, 2, 1, 17},
    {1, 40, 24, 30, 70, 5, 2, 1, 2, 1},
    /* filtered: odd sides and channels, more than a block's, all paddings */
    {2, 64, 64, 12, 12, 3, 1, 1, 1, 1},
    {1, 48, 33, 9, 11, 3, 1, 1, 0, 1},
    {3, 32, 40, 6, 9, 3, 1, 1, 2, 1},
    {1, 150, 70, 7, 8, 3, 1, 1, 1, 1},
    {1, 70, 150, 8, 7, 3, 1, 1, 1, 1},
    {1, 32, 24, 6, 5, 3, 1, 1, 4, 1},
    {1, 366, 360, 4, 4, 3, 1, 1, 1, 1}, /* few tiles, whose kernels are not kept packed */
    {2, 272, 250, 4, 4, 3, 1, 1, 1, 1},
    {1, 250, 272, 6, 6, 3, 1, 1, 0, 1}, /* only back */
    /* dilated: steps that do and do not share a divisor with the stride */
    {2, 3, 16, 33, 21, 3, 1, 1, 2, 1, 1, 1},
    {2, 16, 24, 20, 31, 3, 1, 1, 1, 1, 2, 0},
    {1, 16, 24, 20, 31, 3, 1, 1, 1, 1, 0, 2},
    {2, 24, 40, 15, 17, 3, 2, 2, 2, 1, 1, 1},
    {1, 10, 9, 25, 22, 3, 4, 3, 3, 1, 1, 2},
    {1, 6, 33, 24, 26, 4, 4, 6, 5, 1, 5, 3},
    {3, 70, 130, 9, 8, 3, 1, 1, 4, 1, 3, 3},
    {2, 136, 72, 7, 14, 3, 2, 2, 2, 2, 1, 2},
    {2, 40, 40, 14, 15, 3, 1, 1, 2, 40, 1, 1},
    {2, 33, 33, 17, 16, 3, 2, 4, 3, 33, 2, 1},
    {2, 20, 12, 12, 12, 2, 3, 3, 0, 4, 5, 8},
};

static const enum weir__op_code ops[] = {WEIR__OP_conv2d, WEIR__OP_conv2d_grad_input,
                                         WEIR__OP_conv2d_grad_weight};

static int64_t outputs_of(const struct sizes *sizes, int64_t in, int64_t stride, int64_t gap) {
    return (in + 2 * sizes->padding - sizes->kernel - (sizes->kernel - 1) * gap) / stride + 1;
}

static struct weir__op_shape shape_of(const struct sizes *sizes, enum weir__op_code op) {
    struct weir__plane stride = {sizes->stride_y, sizes->stride_x};
    struct weir__plane out = {outputs_of(sizes, sizes->height, stride.height, sizes->gap_y),
                              outputs_of(sizes, sizes->width, stride.width, sizes->gap_x)};
    return (struct weir__op_shape){.op = op,
                                   .threads = 1,
                                   .rows = sizes->rows,
                                   .rows_max = sizes->rows + 1,
                                   .in = sizes->in,
                                   .out = sizes->out,
                                   .window = {.in = {sizes->height, sizes->width},
                                              .out = out,
                                              .kernel = {sizes->kernel, sizes->kernel},
                                              .stride = stride,
                                              .padding = {sizes->padding, sizes->padding},
                                              .gap = {sizes->gap_y, sizes->gap_x},
                                              .groups = sizes->groups}};
}

/** Near what is wanted, and the same bits by several threads, wherever operands lie. */
static void compare_backend(const struct kernel_case *given, enum kernel_backend backend,
                            const struct kernel_results *wanted) {
    struct kernel_case test = *given;
    struct kernel_results got, again;
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    kernel_expect_near(&got, wanted, kernel_tolerance(wanted), kernel_backend_name(backend));
    for (uint32_t threads = 1; threads <= 4; threads++) {
        test.shape.threads = threads;
        EXPECT_STATUS(kernel_run(&test, backend, 64, &again), WEIR_OK);
        kernel_expect_same(&again, &got, "several threads");
        kernel_results_clean_up(&again);
    }
    kernel_results_clean_up(&got);
}

/* ---- one chain for each number ---- */

/** What a chain goes over: where the operands' numbers are, and how products are added. */
struct chains {
    const struct kernel_case *test;
    bool fused, filtered;
};

/** a * b + sum, rounded once. fmaf is not asked: where a run-time library makes it of doubles, it
 * rounds twice. The product is exact; what its sum loses makes that odd, so that it is no tie. */
static float multiply_add(float a, float b, float sum) {
    double product = (double)a * b, whole = product + sum, back = whole - product;
    double lost = (product - (whole - back)) + (sum - back);
    uint64_t bits;
    memcpy(&bits, &whole, sizeof bits);
    if (lost != 0 && bits % 2 == 0) bits = (lost > 0) == (whole > 0) ? bits + 1 : bits - 1;
    memcpy(&whole, &bits, sizeof bits);
    return (float)whole;
}

static float add_product(bool fused, float a, float b, float sum) {
    return fused ? multiply_add(a, b, sum) : sum + a * b;
}

static float add(const struct chains *chains, double a, double b, float sum) {
    return add_product(chains->fused, (float)a, (float)b, sum);
}

/** By the output's pixel and a tap: the input's pixel; -1: none. */
static int64_t input_pixel(const struct weir__window *window, int64_t row, int64_t out_pixel,
                           int64_t tap) {
    int64_t tap_y = tap / window->kernel.width, tap_x = tap % window->kernel.width;
    int64_t y = out_pixel / window->out.width * window->stride.height - window->padding.height;
    int64_t x = out_pixel % window->out.width * window->stride.width - window->padding.width;
    y += tap_y * (window->gap.height + 1);
    x += tap_x * (window->gap.width + 1);
    if (y < 0 || y >= window->in.height || x < 0 || x >= window->in.width) return -1;
    return (row * window->in.height + y) * window->in.width + x;
}

static int64_t pixels_of(struct weir__plane plane) {
    return plane.height * plane.width;
}

/** Adds what one pair of pixels gives, for all channels. */
static void add_pair(const struct chains *chains, int64_t in_pixel, int64_t out_pixel, int64_t tap,
                     float *sums) {
    const struct weir__op_shape *shape = &chains->test->shape;
    int64_t taps = pixels_of(shape->window.kernel);
    int64_t in = shape->in / shape->window.groups, out = shape->out / shape->window.groups;
    const double *first = chains->test->in[0], *second = chains->test->in[1];
    for (int64_t o = 0; o < shape->out; o++)
        for (int64_t i = 0; i < in; i++) {
            int64_t x = in_pixel * shape->in + o / out * in + i;
            int64_t y = out_pixel * shape->out + o, w = (o * in + i) * taps + tap;
            if (shape->op == WEIR__OP_conv2d)
                sums[y] = add(chains, first[x], second[w], sums[y]);
            else if (shape->op == WEIR__OP_conv2d_grad_input)
                sums[x] = add(chains, first[y], second[w], sums[x]);
            else
                sums[w] = add(chains, first[x], second[y], sums[w]);
        }
}

/** Rows and pixels ascend, and so do taps forward; back they descend. */
static void make_sums(const struct chains *chains, float *sums) {
    const struct weir__op_shape *shape = &chains->test->shape;
    int64_t taps = pixels_of(shape->window.kernel), pixels = pixels_of(shape->window.out);
    bool back = shape->op == WEIR__OP_conv2d_grad_input;
    for (int64_t k = 0; k < taps; k++)
        for (int64_t row = 0; row < shape->rows; row++)
            for (int64_t pixel = 0; pixel < pixels; pixel++) {
                int64_t tap = back ? taps - 1 - k : k;
                int64_t in = input_pixel(&shape->window, row, pixel, tap);
                if (in >= 0) add_pair(chains, in, row * pixels + pixel, tap, sums);
            }
}

/** How many of the results are not the chains'. */
static int64_t differing(const struct chains *chains, const struct kernel_results *got) {
    const struct kernel_case *test = chains->test;
    bool has_bias = test->shape.op == WEIR__OP_conv2d && test->shape.has_bias;
    struct weir__op_shape product;
    bool goes_on = weir__conv_as_product(&test->shape, &product);
    bool adds = test->shape.op == WEIR__OP_conv2d_grad_weight && !test->overwrite;
    int64_t count = test->operands.out[0].count, differ = 0;
    float *sums = weir__acquire(test_allocator(), (size_t)count, sizeof *sums);
    for (int64_t i = 0; i < count; i++)
        sums[i] = has_bias          ? (float)test->in[2][i % test->shape.out]
                  : adds && goes_on ? (float)test->old[0][i]
                                    : 0;
    if (chains->filtered)
        winograd_sums(test, add_product, chains->fused, sums);
    else
        make_sums(chains, sums);
    for (int64_t i = 0; i < count; i++) {
        float wanted = adds && !goes_on ? (float)test->old[0][i] + sums[i] : sums[i];
        if (chains->filtered && has_bias) wanted += (float)test->in[2][i % test->shape.out];
        if (wanted != (float)got->out[0][i]) differ++;
    }
    weir__release(test_allocator(), sums, (size_t)count, sizeof *sums);
    return differ;
}

/** As our kernels' header says: where it saves work. */
static bool is_filtered(const struct weir__op_shape *shape) {
    const struct weir__window *w = &shape->window;
    bool three = w->kernel.height == 3 && w->kernel.width == 3 && w->groups == 1;
    bool dense = w->stride.height == 1 && w->stride.width == 1;
    bool together = w->gap.height == 0 && w->gap.width == 0;
    bool sides = w->in.height >= 4 && w->in.width >= 4 && w->out.height >= 4 && w->out.width >= 4;
    int64_t tiles = (w->out.height + 1) / 2 * ((w->out.width + 1) / 2);
    bool pairs = shape->in * shape->out >= 512 && shape->in * shape->out < (tiles + 1) * 524288;
    return three && dense && together && sides && pairs && shape->in >= 16 && shape->out >= 16;
}

/** Fused where the processor can: which is not asked here. */
static void expect_chains(const struct kernel_case *test) {
    struct kernel_results got;
    bool filtered = is_filtered(&test->shape);
    EXPECT_STATUS(kernel_run(test, KERNEL_VECTOR, 0, &got), WEIR_OK);
    int64_t fused = differing(&(struct chains){test, true, filtered}, &got);
    int64_t apart = fused == 0 ? 0 : differing(&(struct chains){test, false, filtered}, &got);
    if (fused > 0 && apart > 0)
        TEST_FAIL("%s, %lld to %lld channels: %lld numbers are not the chains'",
                  weir__op_name(test->shape.op), (long long)test->shape.in,
                  (long long)test->shape.out, (long long)fused);
    kernel_results_clean_up(&got);
}

static size_t packed_bytes(int64_t in, int64_t out, int64_t side, int64_t rows) {
    const struct sizes sizes = {1, in, out, side, side, 3, 1, 1, 1, 1};
    struct weir__op_shape shape = shape_of(&sizes, WEIR__OP_conv2d);
    size_t bytes = 0;
    shape.dtype = WEIR_F32;
    shape.rows_max = rows;
    EXPECT_STATUS(kernel_of(WEIR__OP_conv2d, KERNEL_VECTOR)->measure_pack(&shape, &bytes), WEIR_OK);
    return bytes;
}

static void expect_chains_of(const struct sizes *sizes, enum weir__op_code op, bool has_bias,
                             bool overwrite) {
    struct weir__op_shape shape = shape_of(sizes, op);
    struct kernel_case test;
    shape.has_bias = has_bias;
    kernel_case_init(&test, &shape);
    test.overwrite = overwrite;
    expect_chains(&test);
    kernel_case_clean_up(&test);
}

static void test_each_number_is_one_chain(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(nets); i++)
        for (size_t o = 0; o < WEIR__COUNT_OF(ops) && !test_has_failed(); o++)
            expect_chains_of(&nets[i], ops[o], (i + o) % 2 == 0, i % 2 == 0);
}

/** More than caches are worth: they are packed past them. */
static void test_kernels_of_very_many_channels_are_packed_alike(void) {
    const struct sizes many = {1, 746, 715, 8, 8, 3, 1, 1, 1, 1};
    EXPECT(packed_bytes(746, 715, 8, 1) > 32 << 20);
    expect_chains_of(&many, WEIR__OP_conv2d, true, true);
    expect_chains_of(&many, WEIR__OP_conv2d_grad_input, false, true);
}

/* ---- any backend ---- */

static void compare(const struct sizes *sizes, enum weir__op_code op, bool has_bias) {
    struct weir__op_shape shape = shape_of(sizes, op);
    struct kernel_case test;
    struct kernel_results wanted;
    shape.has_bias = has_bias;
    kernel_case_init(&test, &shape);
    test.overwrite = has_bias;
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
    compare_backend(&test, KERNEL_FAST, &wanted);
    compare_backend(&test, KERNEL_VECTOR, &wanted);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

static void test_results_are_near_the_reference_whatever_the_threads(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(nets); i++)
        for (size_t o = 0; o < WEIR__COUNT_OF(ops) && !test_has_failed(); o++)
            compare(&nets[i], ops[o], (i + o) % 2 == 0);
}

static void check_packed(const struct sizes *sizes, enum weir__op_code op,
                         enum kernel_backend backend) {
    const struct weir__kernel *kernel = kernel_of(op, backend);
    struct weir__op_shape shape = shape_of(sizes, op);
    size_t bytes, wanted;
    if (kernel->measure_pack == NULL) return;
    shape.dtype = WEIR_F32;
    shape.rows_max = 9;
    CHECK_OK(kernel->measure_pack(&shape, &wanted));
    for (int64_t rows = 1; rows <= 9; rows += 4)
        for (uint32_t threads = 1; threads <= 3; threads++) {
            shape.rows = rows;
            shape.threads = threads;
            CHECK_OK(kernel->measure_pack(&shape, &bytes));
            EXPECT_EQ_UINT(bytes, wanted);
        }
}

/** Whatever has the largest row count, and whatever its number of threads. */
static void test_packed_weights_depend_on_the_largest_row_count_only(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(nets); i++)
        for (size_t o = 0; o < WEIR__COUNT_OF(ops); o++) {
            check_packed(&nets[i], ops[o], KERNEL_FAST);
            check_packed(&nets[i], ops[o], KERNEL_VECTOR);
        }
}

/** 16 numbers of a pair of channels instead of 9, where images have tiles enough for them. */
static void test_kernels_of_very_many_channels_want_larger_images(void) {
    EXPECT_EQ_UINT(packed_bytes(1600, 1600, 4, 9) / 1600 / 1600, 16 * sizeof(float));
    EXPECT_EQ_UINT(packed_bytes(1632, 1632, 4, 9) / 1632 / 1632, 9 * sizeof(float));
    EXPECT_EQ_UINT(packed_bytes(1632, 1632, 6, 9) / 1632 / 1632, 16 * sizeof(float));
}

static void test_many_kernels_of_few_tiles_are_not_kept_packed(void) {
    EXPECT_EQ_UINT(packed_bytes(512, 512, 4, 3), 0);
    EXPECT_EQ_UINT(packed_bytes(512, 512, 4, 4), 16 * sizeof(float) * 512 * 512);
    EXPECT_EQ_UINT(packed_bytes(512, 512, 8, 1), 16 * sizeof(float) * 512 * 512);
    EXPECT_EQ_UINT(packed_bytes(256, 256, 4, 1), 16 * sizeof(float) * 256 * 256);
}

WEIR_TEST_SUITE(kernel_conv, TEST(results_are_near_the_reference_whatever_the_threads),
                TEST(each_number_is_one_chain),
                TEST(kernels_of_very_many_channels_are_packed_alike),
                TEST(packed_weights_depend_on_the_largest_row_count_only),
                TEST(kernels_of_very_many_channels_want_larger_images),
                TEST(many_kernels_of_few_tiles_are_not_kept_packed))

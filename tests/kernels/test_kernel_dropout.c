/* SPDX-License-Identifier: MIT */
/*
 * Goal: dropout's masks are what net/kernel.h says, in every op that has one, and fused ops give
 * the bits of their parts. Method: a scalar recomputation from weir__philox_words, bit for bit; the
 * parts run one after the other.
 */
#include "harness.h"
#include "cuda/kernel_gpu.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

static const enum kernel_backend backends[] = {KERNEL_F64, KERNEL_F32, KERNEL_FAST};
#define FOR_BACKENDS(b) for (size_t b = 0; b < WEIR__COUNT_OF(backends); b++)

static struct weir__op_shape dropout_shape(enum weir__op_code op, int64_t rows, int64_t width) {
    return (struct weir__op_shape){
        .op = op, .rows = rows, .tokens = 1, .width = width, .p = 0.3, .random_op = 5u << 8 | 2};
}

/** The element, in PyTorch's order, of number `at` of a row. */
static int64_t element_at(const struct weir__op_shape *shape, int64_t at) {
    if (shape->channels == 0) return at;
    return at % shape->channels * (shape->width / shape->channels) + at / shape->channels;
}

/** The rule of kernel.h, one element at a time. */
static bool kept(const struct kernel_case *test, int64_t row, int64_t element) {
    uint32_t words[4];
    weir__philox_words(test->seed, test->mini_batch, test->shape.random_op,
                       (uint32_t)(test->row_first + row), (uint32_t)(element / 4), words);
    return (words[element % 4] >> 8) * 0x1p-24 >= test->shape.p;
}

/** A kept number, times the scale of the dtype. */
static double scaled(const struct kernel_case *test, enum kernel_backend backend, double x) {
    double scale = 1 / (1 - test->shape.p);
    return backend == KERNEL_F64 ? x * scale : (double)((float)x * (float)scale);
}

static void check_dropout(enum kernel_backend backend, int64_t rows, int64_t width,
                          int64_t channels) {
    struct weir__op_shape shape = dropout_shape(WEIR__OP_dropout, rows, width);
    shape.channels = channels;
    struct kernel_case test;
    struct kernel_results got;
    kernel_case_init(&test, &shape);
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    for (int64_t i = 0; i < rows * width; i++) {
        bool keep = kept(&test, i / width, element_at(&shape, i % width));
        double wanted = keep ? scaled(&test, backend, test.in[0][i]) : 0;
        if (!EXPECT(got.out[0][i] == wanted)) break;
    }
    kernel_results_clean_up(&got);
    kernel_case_clean_up(&test);
}

static void test_dropout_masks_are_the_random_words(void) {
    static const int64_t widths[] = {1, 3, 4, 16, 63, 64, 65, 100, 257};
    FOR_BACKENDS(b)
    for (size_t i = 0; i < WEIR__COUNT_OF(widths); i++) check_dropout(backends[b], 3, widths[i], 0);
}

static void test_dropout_of_images_counts_in_pytorchs_order(void) {
    static const int64_t channels[] = {1, 2, 3, 16, 17, 40}, pixels[] = {1, 2, 7, 16, 35};
    FOR_BACKENDS(b)
    for (size_t i = 0; i < WEIR__COUNT_OF(channels); i++)
        for (size_t j = 0; j < WEIR__COUNT_OF(pixels); j++)
            check_dropout(backends[b], 3, channels[i] * pixels[j], channels[i]);
}

/** p that equals an element's random number keeps it; the next larger one drops it. */
static void test_dropout_keeps_what_equals_p(void) {
    enum { WIDTH = 70 };
    FOR_BACKENDS(b)
    for (int64_t element = 0; element < WIDTH; element += 9)
        for (int above = 0; above < 2; above++) {
            struct weir__op_shape shape = dropout_shape(WEIR__OP_dropout, 1, WIDTH);
            struct kernel_case test;
            struct kernel_results got;
            uint32_t words[4];
            kernel_case_init(&test, &shape);
            weir__philox_words(test.seed, test.mini_batch, shape.random_op,
                               (uint32_t)test.row_first, (uint32_t)(element / 4), words);
            double number = (words[element % 4] >> 8) * 0x1p-24;
            test.shape.p = above ? nextafter(number, 1) : number;
            test.in[0][element] = 1;
            EXPECT_STATUS(kernel_run(&test, backends[b], 0, &got), WEIR_OK);
            EXPECT((got.out[0][element] != 0) == !above);
            kernel_results_clean_up(&got);
            kernel_case_clean_up(&test);
        }
}

static void test_dropout_add_has_its_parts_bits(void) {
    FOR_BACKENDS(b)
    for (int64_t width = 1; width < 150; width += 7) {
        struct weir__op_shape whole = dropout_shape(WEIR__OP_dropout_add, 2, width);
        struct weir__op_shape first = dropout_shape(WEIR__OP_dropout, 2, width);
        struct weir__op_shape second = dropout_shape(WEIR__OP_add, 2, width);
        if (width % 3 == 0) whole.channels = first.channels = 3;
        struct kernel_case fused, dropped, added;
        struct kernel_results got, part, wanted;
        kernel_case_init(&fused, &whole);
        kernel_case_init(&dropped, &first);
        kernel_case_init(&added, &second);
        dropped.seed = fused.seed, dropped.mini_batch = fused.mini_batch;
        dropped.row_first = fused.row_first;
        dropped.infer = fused.infer = width % 2 == 0;
        size_t bytes = (size_t)(2 * width) * sizeof(double);
        memcpy(dropped.in[0], fused.in[0], bytes);
        EXPECT_STATUS(kernel_run(&fused, backends[b], 0, &got), WEIR_OK);
        EXPECT_STATUS(kernel_run(&dropped, backends[b], 0, &part), WEIR_OK);
        memcpy(added.in[0], fused.in[1], bytes);
        memcpy(added.in[1], part.out[0], bytes);
        EXPECT_STATUS(kernel_run(&added, backends[b], 0, &wanted), WEIR_OK);
        EXPECT_EQ_BYTES(got.out[0], wanted.out[0], bytes);
        kernel_results_clean_up(&got);
        kernel_results_clean_up(&part);
        kernel_results_clean_up(&wanted);
        kernel_case_clean_up(&fused);
        kernel_case_clean_up(&dropped);
        kernel_case_clean_up(&added);
    }
}

/** What `op` makes of these operands, in `shape`. */
static void run_part(struct weir__op_shape shape, enum weir__op_code op,
                     enum kernel_backend backend, const struct kernel_case *like, const double *a,
                     const double *b, struct kernel_case *test, struct kernel_results *results) {
    shape.op = op;
    kernel_case_init(test, &shape);
    test->seed = like->seed, test->mini_batch = like->mini_batch;
    test->row_first = like->row_first, test->infer = like->infer;
    const double *from[] = {a, b};
    for (int i = 0; i < 2; i++)
        if (from[i] != NULL)
            memcpy(test->in[i], from[i], (size_t)test->operands.in[i].count * sizeof(double));
    EXPECT_STATUS(kernel_run(test, backend, 0, results), WEIR_OK);
}

/** Of the sum of x and the bias, the op `part`: the fused op's bits, with `other` where the part
 * takes one. */
static void check_biased(struct weir__op_shape shape, enum kernel_backend backend, int x_input,
                         enum weir__op_code part, int other, bool other_first) {
    struct kernel_case fused, added, second;
    struct kernel_results got, sums, wanted;
    kernel_case_init(&fused, &shape);
    fused.infer = test_random_below(3) == 0;
    int64_t count = shape.rows * shape.width;
    double *bias = weir__acquire(test_allocator(), (size_t)count, sizeof(double));
    for (int64_t i = 0; i < count; i++) bias[i] = fused.in[x_input + 1][i % shape.out];
    run_part(shape, WEIR__OP_add, backend, &fused, fused.in[x_input], bias, &added, &sums);
    const double *more = other < 0 ? NULL : fused.in[other];
    run_part(shape, part, backend, &fused, other_first ? more : sums.out[0],
             other_first ? sums.out[0] : more, &second, &wanted);
    EXPECT_STATUS(kernel_run(&fused, backend, 0, &got), WEIR_OK);
    EXPECT_EQ_BYTES(got.out[0], wanted.out[0], (size_t)count * sizeof(double));
    weir__release(test_allocator(), bias, (size_t)count, sizeof(double));
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&sums);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&fused);
    kernel_case_clean_up(&added);
    kernel_case_clean_up(&second);
}

static void test_ops_with_a_bias_have_their_parts_bits(void) {
    static const enum kernel_backend with_cuda[] = {KERNEL_F64, KERNEL_F32, KERNEL_CUDA};
    size_t count = WEIR__COUNT_OF(with_cuda) - (kernel_gpu_is_there() ? 0 : 1);
    for (size_t b = 0; b < count; b++)
        for (int i = 0; i < 6; i++) {
            enum kernel_backend backend = with_cuda[b];
            check_biased(kernel_any_shape(WEIR__OP_bias_gelu), backend, 0, WEIR__OP_gelu, -1,
                         false);
            check_biased(kernel_any_shape(WEIR__OP_bias_gelu_grad), backend, 1, WEIR__OP_gelu_grad,
                         0, true);
            check_biased(kernel_any_shape(WEIR__OP_bias_dropout_add), backend, 0,
                         WEIR__OP_dropout_add, 2, false);
        }
}

/** A row's mask depends on its place in the mini-batch, not on the micro-batch that it is in. */
static void test_dropout_does_not_depend_on_chunks(void) {
    enum { ROWS = 5, WIDTH = 37 };
    FOR_BACKENDS(b) {
        struct weir__op_shape shape = dropout_shape(WEIR__OP_dropout, ROWS, WIDTH);
        struct kernel_case whole;
        struct kernel_results wanted;
        kernel_case_init(&whole, &shape);
        EXPECT_STATUS(kernel_run(&whole, backends[b], 0, &wanted), WEIR_OK);
        for (int64_t row = 0; row < ROWS; row++) {
            struct weir__op_shape small = dropout_shape(WEIR__OP_dropout, 1, WIDTH);
            struct kernel_case part;
            struct kernel_results got;
            kernel_case_init(&part, &small);
            part.seed = whole.seed, part.mini_batch = whole.mini_batch;
            part.row_first = whole.row_first + row;
            memcpy(part.in[0], whole.in[0] + row * WIDTH, WIDTH * sizeof(double));
            EXPECT_STATUS(kernel_run(&part, backends[b], 0, &got), WEIR_OK);
            EXPECT_EQ_BYTES(got.out[0], wanted.out[0] + row * WIDTH, WIDTH * sizeof(double));
            kernel_results_clean_up(&got);
            kernel_case_clean_up(&part);
        }
        kernel_results_clean_up(&wanted);
        kernel_case_clean_up(&whole);
    }
}

static void test_dropout_is_the_identity_in_inference(void) {
    FOR_BACKENDS(b) {
        struct weir__op_shape shape = dropout_shape(WEIR__OP_dropout, 3, 21);
        struct kernel_case test;
        struct kernel_results got;
        kernel_case_init(&test, &shape);
        test.infer = true;
        EXPECT_STATUS(kernel_run(&test, backends[b], 0, &got), WEIR_OK);
        EXPECT_EQ_BYTES(got.out[0], test.in[0], 3 * 21 * sizeof(double));
        kernel_results_clean_up(&got);
        kernel_case_clean_up(&test);
    }
}

/* ---- whole channels ---- */

static void check_dropout2d(enum kernel_backend backend, int64_t pixels, int64_t channels) {
    struct weir__op_shape shape = dropout_shape(WEIR__OP_dropout2d, 3, channels);
    struct kernel_case test;
    struct kernel_results got;
    shape.tokens = pixels;
    kernel_case_init(&test, &shape);
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    for (int64_t i = 0; i < 3 * pixels * channels; i++) {
        bool keep = kept(&test, i / channels / pixels, i % channels);
        double wanted = keep ? scaled(&test, backend, test.in[0][i]) : 0;
        if (!EXPECT(got.out[0][i] == wanted)) break;
    }
    kernel_results_clean_up(&got);
    kernel_case_clean_up(&test);
}

static void test_dropout2d_drops_whole_channels(void) {
    static const int64_t channels[] = {1, 3, 16, 17, 63, 64, 65, 130}, pixels[] = {1, 2, 35};
    FOR_BACKENDS(b)
    for (size_t i = 0; i < WEIR__COUNT_OF(channels); i++)
        for (size_t j = 0; j < WEIR__COUNT_OF(pixels); j++)
            check_dropout2d(backends[b], pixels[j], channels[i]);
}

static void test_dropout2d_is_the_identity_in_inference(void) {
    FOR_BACKENDS(b) {
        struct weir__op_shape shape = dropout_shape(WEIR__OP_dropout2d, 3, 21);
        struct kernel_case test;
        struct kernel_results got;
        shape.tokens = 5;
        kernel_case_init(&test, &shape);
        test.infer = true;
        EXPECT_STATUS(kernel_run(&test, backends[b], 0, &got), WEIR_OK);
        EXPECT_EQ_BYTES(got.out[0], test.in[0], 3 * 5 * 21 * sizeof(double));
        kernel_results_clean_up(&got);
        kernel_case_clean_up(&test);
    }
}

/* ---- the parts of instance_norm_act ---- */

/** A step of a chain of ops. */
struct part {
    struct kernel_case test;
    struct kernel_results results;
};

/** Runs an op of the whole's shape, or of its elements, on `ins`. */
static void part_init(struct part *part, const struct kernel_case *whole,
                      enum kernel_backend backend, enum weir__op_code op,
                      const double *const *ins) {
    struct weir__op_shape shape = whole->shape;
    shape.op = op;
    if (op == WEIR__OP_leaky_relu || op == WEIR__OP_leaky_relu_grad) {
        shape.width *= shape.tokens;
        shape.tokens = 1;
    }
    kernel_case_empty(&part->test, &shape);
    part->test.seed = whole->seed;
    part->test.mini_batch = whole->mini_batch;
    part->test.row_first = whole->row_first;
    part->test.infer = whole->infer;
    for (int i = 0; i < KERNEL_INS; i++)
        if (part->test.operands.in[i].count > 0)
            memcpy(part->test.in[i], ins[i],
                   (size_t)part->test.operands.in[i].count * sizeof(double));
    EXPECT_STATUS(kernel_run(&part->test, backend, 0, &part->results), WEIR_OK);
}

static void part_clean_up(struct part *part) {
    kernel_results_clean_up(&part->results);
    kernel_case_clean_up(&part->test);
}

static void expect_part(const struct part *part, int part_output,
                        const struct kernel_results *whole, int output) {
    EXPECT_EQ_BYTES(whole->out[output], part->results.out[part_output],
                    (size_t)part->test.operands.out[part_output].count * sizeof(double));
}

static void check_act(enum kernel_backend backend, bool infer) {
    struct weir__op_shape shape = kernel_any_shape(WEIR__OP_instance_norm_act);
    struct kernel_case test;
    struct kernel_results got;
    struct part dropped, normal, leaked;
    shape.has_bias = false;
    kernel_case_init(&test, &shape);
    test.infer = infer;
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    part_init(&dropped, &test, backend, WEIR__OP_dropout2d, (const double *[]){test.in[0]});
    part_init(&normal, &test, backend, WEIR__OP_instance_norm,
              (const double *[]){dropped.results.out[0]});
    part_init(&leaked, &test, backend, WEIR__OP_leaky_relu,
              (const double *[]){normal.results.out[0]});
    expect_part(&leaked, 0, &got, 0);
    expect_part(&normal, 1, &got, 1);
    expect_part(&normal, 2, &got, 2);
    part_clean_up(&dropped);
    part_clean_up(&normal);
    part_clean_up(&leaked);
    kernel_results_clean_up(&got);
    kernel_case_clean_up(&test);
}

static void check_act_gradient(enum kernel_backend backend, bool infer) {
    struct weir__op_shape shape = kernel_any_shape(WEIR__OP_instance_norm_act_grad);
    struct kernel_case test;
    struct kernel_results got;
    struct part leaked, dropped, normal, dx;
    shape.has_bias = false;
    kernel_case_init(&test, &shape);
    test.infer = infer;
    const double *dy = test.in[0], *y = test.in[1], *x = test.in[2];
    const double *mean = test.in[3], *rstd = test.in[4];
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    part_init(&leaked, &test, backend, WEIR__OP_leaky_relu_grad, (const double *[]){dy, y});
    part_init(&dropped, &test, backend, WEIR__OP_dropout2d, (const double *[]){x});
    part_init(&normal, &test, backend, WEIR__OP_instance_norm_grad_input,
              (const double *[]){leaked.results.out[0], dropped.results.out[0], mean, rstd});
    part_init(&dx, &test, backend, WEIR__OP_dropout2d, (const double *[]){normal.results.out[0]});
    expect_part(&dx, 0, &got, 0);
    part_clean_up(&leaked);
    part_clean_up(&dropped);
    part_clean_up(&normal);
    part_clean_up(&dx);
    kernel_results_clean_up(&got);
    kernel_case_clean_up(&test);
}

static void test_instance_norm_act_has_its_parts_bits(void) {
    FOR_BACKENDS(b)
    for (int i = 0; i < 40 && !test_has_failed(); i++) check_act(backends[b], i % 5 == 0);
}

static void test_instance_norm_act_grad_has_its_parts_bits(void) {
    FOR_BACKENDS(b)
    for (int i = 0; i < 40 && !test_has_failed(); i++) check_act_gradient(backends[b], i % 5 == 0);
}

WEIR_TEST_SUITE(kernel_dropout, TEST(dropout_masks_are_the_random_words),
                TEST(dropout_of_images_counts_in_pytorchs_order), TEST(dropout_keeps_what_equals_p),
                TEST(dropout_add_has_its_parts_bits), TEST(ops_with_a_bias_have_their_parts_bits),
                TEST(dropout_does_not_depend_on_chunks), TEST(dropout_is_the_identity_in_inference),
                TEST(dropout2d_drops_whole_channels), TEST(dropout2d_is_the_identity_in_inference),
                TEST(instance_norm_act_has_its_parts_bits),
                TEST(instance_norm_act_grad_has_its_parts_bits))

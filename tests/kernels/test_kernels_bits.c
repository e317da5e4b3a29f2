/* SPDX-License-Identifier: MIT */
/*
 * Goal: CUDA rows whose every rounding is an addition, a product or a quotient of F32, and those
 * that round nothing, give the CPU reference's bits: masks, maxima, moves, sums in a window's
 * order. Method: emulated, against the f32 reference, with zeros of both signs, infinities, NaN and
 * subnormal numbers among the inputs. Masks also in BF16, in large rows, and in pieces.
 */
#include "harness.h"
#include "cuda/kernel_gpu.h"
#include "kernels/kernels.h"
#include "net/cuda/cuda.h"

#include <math.h>
#include <string.h>

#define NO_DRIVER "the fake CUDA driver was not built"

static const enum weir__op_code exact[] = {
    WEIR__OP_relu,          WEIR__OP_relu_grad,
    WEIR__OP_leaky_relu,    WEIR__OP_leaky_relu_grad,
    WEIR__OP_scale,         WEIR__OP_tanh_grad,
    WEIR__OP_sigmoid_grad,  WEIR__OP_add,
    WEIR__OP_dropout,       WEIR__OP_dropout_add,
    WEIR__OP_dropout2d,     WEIR__OP_transpose,
    WEIR__OP_max_pool2d,    WEIR__OP_max_pool2d_grad,
    WEIR__OP_avg_pool2d,    WEIR__OP_avg_pool2d_grad,
    WEIR__OP_upsample,      WEIR__OP_upsample_grad,
    WEIR__OP_concat,        WEIR__OP_concat_grad_a,
    WEIR__OP_concat_grad_b, WEIR__OP_bias_dropout_add,
};

/** Some of an operand's numbers become those at the ends of what F32 has. */
static void make_special(double *numbers, int64_t count) {
    const double special[] = {0, -0.0, INFINITY, -INFINITY, NAN, 0x1p-149, -0x1p-149};
    for (int64_t i = 0; i < count; i++)
        if (test_random_below(16) == 0)
            numbers[i] = special[test_random_below(WEIR__COUNT_OF(special))];
}

static bool same(double a, double b) {
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static void expect_same_bits(const struct kernel_results *got,
                             const struct kernel_results *wanted) {
    const struct kernel_case *test = got->test;
    for (int64_t i = 0; i < test->operands.out[0].count; i++) {
        if (same(got->out[0][i], wanted->out[0][i])) continue;
        TEST_FAIL("%s, %lld rows of %lld x %lld: number %lld is %.9g, not %.9g",
                  weir__op_name(test->shape.op), (long long)test->shape.rows,
                  (long long)test->shape.tokens, (long long)test->shape.width, (long long)i,
                  got->out[0][i], wanted->out[0][i]);
        return;
    }
}

static void compare(const struct kernel_case *test) {
    struct kernel_results got, wanted;
    EXPECT_STATUS(kernel_run(test, KERNEL_F32, 0, &wanted), WEIR_OK);
    EXPECT_STATUS(kernel_run(test, KERNEL_CUDA, 0, &got), WEIR_OK);
    expect_same_bits(&got, &wanted);
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
}

static void test_what_rounds_alike_has_the_references_bits(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (size_t o = 0; o < WEIR__COUNT_OF(exact); o++)
        for (int i = 0; i < 12 && !test_has_failed(); i++) {
            struct weir__op_shape shape = kernel_any_shape(exact[o]);
            struct kernel_case test;
            kernel_case_init(&test, &shape);
            test.infer = test_random_below(8) == 0;
            for (int k = 0; k < KERNEL_INS && i % 2 == 1; k++)
                if (test.in[k] != NULL) make_special(test.in[k], test.operands.in[k].count);
            compare(&test);
            kernel_case_clean_up(&test);
        }
}

/** Rows that many blocks share, a seed and a mini-batch of more than 32 bits, the last rows that a
 * counter has. */
static void test_masks_of_large_rows_are_the_references(void) {
    static const struct weir__op_shape shapes[] = {
        {.op = WEIR__OP_dropout, .rows = 2, .width = 9000},
        {.op = WEIR__OP_dropout_add, .rows = 3, .width = 5003},
        {.op = WEIR__OP_dropout, .rows = 2, .width = 300 * 31, .channels = 300},
        {.op = WEIR__OP_dropout_add, .rows = 2, .width = 3 * 2311, .channels = 3},
        {.op = WEIR__OP_dropout2d, .rows = 2, .tokens = 37, .width = 2100},
        {.op = WEIR__OP_bias_dropout_add, .rows = 2, .tokens = 11, .out = 1100, .width = 11 * 1100},
        {.op = WEIR__OP_bias_dropout_add, .rows = 1, .tokens = 3, .out = 1101, .width = 3 * 1101},
    };
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (size_t i = 0; i < WEIR__COUNT_OF(shapes) && !test_has_failed(); i++) {
        struct weir__op_shape shape = shapes[i];
        struct kernel_case test;
        shape.p = 0.5;
        shape.random_op = UINT32_MAX - 1;
        kernel_case_init(&test, &shape);
        test.mini_batch = test_random_u64();
        test.row_first = UINT32_MAX - 2;
        compare(&test);
        kernel_case_clean_up(&test);
    }
}

/** Of the kernel's numbers, more than a byte counts; many images; parts of 16 bytes. */
static void test_large_windows_have_the_references_winners(void) {
    static const struct weir__op_shape shapes[] = {
        {.op = WEIR__OP_max_pool2d_grad, .rows = 2, .width = 3},
        {.op = WEIR__OP_max_pool2d_grad, .rows = 1, .width = 16},
    };
    static const struct weir__window window = {
        .in = {19, 20}, .out = {2, 4}, .kernel = {18, 17}, .stride = {1, 1}, .groups = 1};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (size_t i = 0; i < WEIR__COUNT_OF(shapes) && !test_has_failed(); i++) {
        struct weir__op_shape shape = shapes[i];
        struct kernel_case test;
        shape.window = window;
        kernel_case_init(&test, &shape);
        compare(&test);
        kernel_case_clean_up(&test);
    }
}

/** As a kernel divides. */
static uint32_t divided(uint32_t n, uint32_t by) {
    struct weir__cuda_divisor divisor = weir__cuda_divisor(by);
    EXPECT_EQ_UINT(divisor.by, by);
    return ((uint32_t)((uint64_t)n * divisor.multiplier >> 32) + n) >> divisor.shift;
}

static void test_divisors_divide(void) {
    static const uint32_t edges[] = {1, 2, 3, 7, 1u << 30, INT32_MAX - 1, INT32_MAX};
    for (size_t i = 0; i < WEIR__COUNT_OF(edges); i++)
        for (size_t k = 0; k < WEIR__COUNT_OF(edges); k++)
            EXPECT_EQ_UINT(divided(edges[i], edges[k]), edges[i] / edges[k]);
    EXPECT_EQ_UINT(divided(INT32_MAX, 1u << 31), 0);
    for (int i = 0; i < 20000 && !test_has_failed(); i++) {
        uint32_t by = 1 + (uint32_t)test_random_below(UINT64_C(1) << (1 + i % 31));
        uint32_t quotient = (uint32_t)test_random_below(INT32_MAX / by + 1);
        uint32_t n = quotient * by; /* a multiple, and what is just below the next */
        EXPECT_EQ_UINT(divided(n, by), quotient);
        if (by - 1 <= INT32_MAX - n) EXPECT_EQ_UINT(divided(n + by - 1, by), quotient);
    }
}

/** A kernel counts an image's numbers in 31 bits: the rest is refused. */
static void test_images_too_large_to_count_are_refused(void) {
    static const struct weir__plane large = {1 << 16, 1 << 15}, small = {2, 2};
    static const enum weir__op_code ops[] = {WEIR__OP_max_pool2d, WEIR__OP_max_pool2d_grad,
                                             WEIR__OP_upsample_grad, WEIR__OP_concat,
                                             WEIR__OP_concat_grad_a};
    for (size_t i = 0; i < WEIR__COUNT_OF(ops); i++) {
        struct weir_error error = {0};
        const struct weir__op_shape shape = {
            .op = ops[i],
            .dtype = WEIR_F32,
            .rows = 1,
            .width = 1,
            .in = 1,
            .window = {.in = large, .out = small, .kernel = small, .stride = small}};
        const struct weir__op_call call = {.shape = &shape, .error = &error};
        EXPECT_STATUS(weir__backend_cuda.kernel(ops[i], WEIR_F32)->run(&call), WEIR_ERR_ARGUMENT);
        CHECK_CONTAINS(error.message, "not of 65536 x 32768 pixels");
    }
}

/** Relative to the largest number, however small: probabilities of long rows are. */
static void expect_close(const struct kernel_results *got, const struct kernel_results *wanted,
                         double tolerance) {
    double bound = tolerance * kernel_largest(wanted, 0, 0);
    for (int64_t i = 0; i < got->test->operands.out[0].count; i++)
        if (!EXPECT_NEAR(got->out[0][i], wanted->out[0][i], bound)) break;
}

/** Warps' rows and blocks', held in registers and read again; columns in several parts. */
static void test_long_rows_and_columns_are_near_f64(void) {
    static const struct weir__op_shape shapes[] = {
        {.op = WEIR__OP_softmax, .rows = 3, .tokens = 1, .width = 700},
        {.op = WEIR__OP_softmax, .rows = 2, .tokens = 1, .width = 1040},
        {.op = WEIR__OP_softmax, .rows = 2, .tokens = 1, .width = 9003},
        {.op = WEIR__OP_softmax_grad, .rows = 3, .tokens = 1, .width = 800},
        {.op = WEIR__OP_softmax_grad, .rows = 2, .tokens = 1, .width = 9200},
        {.op = WEIR__OP_bias_grad, .rows = 3, .tokens = 701, .out = 24},
        {.op = WEIR__OP_bias_grad, .rows = 1, .tokens = 90, .out = 2051},
    };
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (size_t i = 0; i < WEIR__COUNT_OF(shapes) && !test_has_failed(); i++)
        for (int wide = 0; wide < 2; wide++) {
            struct kernel_case test;
            struct kernel_results got, wanted;
            kernel_case_init(&test, &shapes[i]);
            if (wide == 0) kernel_case_narrow(&test);
            test.overwrite = test_random_below(2) == 0;
            EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
            EXPECT_STATUS(kernel_run(&test, wide ? KERNEL_CUDA : KERNEL_CUDA_BF16, 0, &got),
                          WEIR_OK);
            expect_close(&got, &wanted, kernel_tolerance(&wanted) + (wide ? 0 : 0x1p-8));
            kernel_results_clean_up(&got);
            kernel_results_clean_up(&wanted);
            kernel_case_clean_up(&test);
        }
}

/** A NaN, or infinities of both signs' exponentials, as the reference has them. */
static void test_softmax_of_what_is_not_finite(void) {
    static const double rows[][3] = {
        {NAN, 0, 1}, {-INFINITY, 0, 0}, {0, 1000, -1000}, {-INFINITY, -INFINITY, -INFINITY}};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    const struct weir__op_shape shape = {
        .op = WEIR__OP_softmax, .rows = WEIR__COUNT_OF(rows), .tokens = 1, .width = 3};
    struct kernel_case test;
    struct kernel_results got;
    kernel_case_init(&test, &shape);
    memcpy(test.in[0], rows, sizeof rows);
    EXPECT_STATUS(kernel_run(&test, KERNEL_CUDA, 0, &got), WEIR_OK);
    for (int k = 0; k < 3; k++) EXPECT(isnan(got.out[0][k]) && isnan(got.out[0][9 + k]));
    static const double wanted[] = {0, 0.5, 0.5, 0, 1, 0};
    EXPECT_EQ_BYTES(&got.out[0][3], wanted, sizeof wanted);
    kernel_results_clean_up(&got);
    kernel_case_clean_up(&test);
}

static void test_bf16_drops_what_f32_drops(void) {
    static const enum weir__op_code ops[] = {WEIR__OP_dropout, WEIR__OP_dropout2d};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (int i = 0; i < 24 && !test_has_failed(); i++) {
        struct weir__op_shape shape = kernel_any_shape(ops[i % 2]);
        struct kernel_case test;
        struct kernel_results got, wanted;
        kernel_case_init(&test, &shape);
        int64_t count = test.operands.in[0].count;
        for (int64_t k = 0; k < count; k++) test.in[0][k] = 1;
        EXPECT_STATUS(kernel_run(&test, KERNEL_F32, 0, &wanted), WEIR_OK);
        EXPECT_STATUS(kernel_run(&test, KERNEL_CUDA_BF16, 0, &got), WEIR_OK);
        for (int64_t k = 0; k < count; k++)
            if (!EXPECT((got.out[0][k] == 0) == (wanted.out[0][k] == 0))) break;
        kernel_results_clean_up(&got);
        kernel_results_clean_up(&wanted);
        kernel_case_clean_up(&test);
    }
}

/** A number that equals p is kept; p just above it drops it. */
static void test_what_equals_p_is_kept(void) {
    enum { WIDTH = 70 };
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (int64_t element = 0; element < WIDTH; element += 23)
        for (int above = 0; above < 2; above++) {
            struct weir__op_shape shape = {.op = WEIR__OP_dropout, .rows = 1, .width = WIDTH};
            struct kernel_case test;
            uint32_t words[4];
            kernel_case_init(&test, &shape);
            weir__philox_words(test.seed, test.mini_batch, 0, (uint32_t)test.row_first,
                               (uint32_t)(element / 4), words);
            double number = (words[element % 4] >> 8) * 0x1p-24;
            test.shape.p = above ? nextafter(number, 1) : number;
            compare(&test);
            kernel_case_clean_up(&test);
        }
}

/** No exponential overflows on its way: where the result is finite, it is. */
static void test_large_numbers_overflow_nothing(void) {
    static const double x[] = {-1000, 1000, -95, 95, 0, -88, 88, 3e38, -3e38};
    static const enum weir__op_code ops[] = {WEIR__OP_sigmoid,   WEIR__OP_tanh,
                                             WEIR__OP_silu,      WEIR__OP_gelu,
                                             WEIR__OP_silu_grad, WEIR__OP_gelu_grad};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (size_t o = 0; o < WEIR__COUNT_OF(ops); o++) {
        struct weir__op_shape shape = {.op = ops[o], .rows = 1, .width = WEIR__COUNT_OF(x)};
        struct kernel_case test;
        struct kernel_results got, wanted;
        kernel_case_init(&test, &shape);
        memcpy(test.in[0], x, sizeof x);
        if (test.operands.in[1].count > 0) { /* a gradient: dy is 0 */
            memcpy(test.in[1], x, sizeof x);
            memset(test.in[0], 0, sizeof x);
        }
        EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
        EXPECT_STATUS(kernel_run(&test, KERNEL_CUDA, 0, &got), WEIR_OK);
        for (size_t i = 0; i < WEIR__COUNT_OF(x); i++)
            EXPECT_NEAR(got.out[0][i], wanted.out[0][i], 0x1p-20 * fabs(wanted.out[0][i]) + 1e-37);
        kernel_results_clean_up(&got);
        kernel_results_clean_up(&wanted);
        kernel_case_clean_up(&test);
    }
}

WEIR_TEST_SUITE(kernels_bits, TEST(what_rounds_alike_has_the_references_bits),
                TEST(masks_of_large_rows_are_the_references),
                TEST(large_windows_have_the_references_winners), TEST(divisors_divide),
                TEST(images_too_large_to_count_are_refused),
                TEST(long_rows_and_columns_are_near_f64), TEST(softmax_of_what_is_not_finite),
                TEST(bf16_drops_what_f32_drops), TEST(what_equals_p_is_kept),
                TEST(large_numbers_overflow_nothing))

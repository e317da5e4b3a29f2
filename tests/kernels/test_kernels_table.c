/* SPDX-License-Identifier: MIT */
/*
 * Goal: on a GPU, where an index out of range cannot be reported, it harms nothing and shows: what
 * it would give is NaN, and everything else is as it were without it; ignored targets weigh
 * nothing. Method: cases with such indices on the kernels' emulation; kernel_gpu sees what is
 * written elsewhere, and a far index read would crash.
 */
#include "harness.h"
#include "cuda/kernel_gpu.h"
#include "kernels/kernels.h"

#include <math.h>

#define NO_DRIVER "the fake CUDA driver was not built"
enum { ROWS = 40, WIDTH = 20, TABLE = 6 };

static const int64_t outside[] = {TABLE, -1, INT64_MIN, INT64_MAX, (int64_t)1 << 40};
enum { OUTSIDE = WEIR__COUNT_OF(outside) };

static struct weir__op_shape shape_of(enum weir__op_code op) {
    bool loss = op == WEIR__OP_cross_entropy || op == WEIR__OP_cross_entropy_grad;
    return (struct weir__op_shape){.op = op,
                                   .rows = ROWS,
                                   .tokens = 1,
                                   .threads = 1,
                                   .in = TABLE,
                                   .out = WIDTH,
                                   .width = loss ? TABLE : WIDTH,
                                   .ignore_index = -100};
}

/* Every seventh index is outside. */
static bool is_outside(int64_t m) {
    return m % 7 == 3;
}

static void put_outside(struct kernel_case *test, int input) {
    for (int64_t m = 0; m < ROWS; m++)
        if (is_outside(m)) test->index[input][m] = outside[m / 7 % OUTSIDE];
}

/* Rows of `width` numbers: NaN where `bad`, `wanted` elsewhere. */
static void expect_rows(const double *got, const double *wanted, int64_t rows, int64_t width,
                        bool (*bad)(int64_t row)) {
    for (int64_t r = 0; r < rows && !test_has_failed(); r++)
        for (int64_t i = 0; i < width; i++) {
            double number = got[r * width + i];
            if (bad(r))
                EXPECT(isnan(number));
            else
                EXPECT_NEAR(number, wanted[r * width + i], 1e-4);
        }
}

static bool is_first(int64_t row) {
    return row == 0;
}

/* Runs `op` with all indices inside, which is wanted, and with some outside. */
static void run_both(enum weir__op_code op, int input, struct kernel_case *test,
                     struct kernel_results *wanted, struct kernel_results *got) {
    struct weir__op_shape shape = shape_of(op);
    kernel_case_init(test, &shape);
    test->overwrite = true;
    EXPECT_STATUS(kernel_run(test, KERNEL_F64, 0, wanted), WEIR_OK);
    put_outside(test, input);
    EXPECT_STATUS(kernel_run(test, KERNEL_CUDA, 0, got), WEIR_OK);
}

static void clean_up(struct kernel_case *test, struct kernel_results *wanted,
                     struct kernel_results *got) {
    kernel_results_clean_up(wanted);
    kernel_results_clean_up(got);
    kernel_case_clean_up(test);
}

static void test_a_token_outside_gives_nan(void) {
    struct kernel_case test;
    struct kernel_results wanted, got;
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    run_both(WEIR__OP_embedding, 0, &test, &wanted, &got);
    expect_rows(got.out[0], wanted.out[0], ROWS, WIDTH, is_outside);
    clean_up(&test, &wanted, &got);
}

/* Wanted is the gradient without these tokens: their dy is 0. */
static void test_a_tokens_gradient_outside_gives_nan(void) {
    struct kernel_case test;
    struct kernel_results wanted, got;
    struct weir__op_shape shape = shape_of(WEIR__OP_embedding_grad);
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    kernel_case_init(&test, &shape);
    test.overwrite = true;
    for (int64_t m = 0; m < ROWS; m++)
        for (int64_t i = 0; is_outside(m) && i < WIDTH; i++) test.in[1][m * WIDTH + i] = 0;
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
    put_outside(&test, 0);
    EXPECT_STATUS(kernel_run(&test, KERNEL_CUDA, 0, &got), WEIR_OK);
    expect_rows(got.out[0], wanted.out[0], TABLE, WIDTH, is_first);
    clean_up(&test, &wanted, &got);
}

static void test_a_target_outside_gives_nan(void) {
    struct kernel_case test;
    struct kernel_results wanted, got;
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    run_both(WEIR__OP_cross_entropy, 1, &test, &wanted, &got);
    EXPECT(isnan(got.out[0][0]));
    for (int64_t m = 0; m < ROWS; m++) EXPECT_NEAR(got.out[1][m], wanted.out[1][m], 1e-5);
    clean_up(&test, &wanted, &got);
    run_both(WEIR__OP_cross_entropy_grad, 1, &test, &wanted, &got);
    expect_rows(got.out[0], wanted.out[0], ROWS, TABLE, is_outside);
    clean_up(&test, &wanted, &got);
}

static void check_ignored(enum weir__op_code op) {
    struct kernel_case test;
    struct kernel_results got;
    struct weir__op_shape shape = shape_of(op);
    kernel_case_init(&test, &shape);
    for (int64_t m = 0; m < ROWS; m++) test.index[1][m] = shape.ignore_index;
    test.loss_weight = 0;
    EXPECT_STATUS(kernel_run(&test, KERNEL_CUDA, 0, &got), WEIR_OK);
    int64_t count = op == WEIR__OP_cross_entropy ? 1 : ROWS * TABLE;
    for (int64_t i = 0; i < count; i++) EXPECT_NEAR(got.out[0][i], 0, 0);
    kernel_results_clean_up(&got);
    kernel_case_clean_up(&test);
}

static void test_ignored_targets_weigh_nothing(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    check_ignored(WEIR__OP_cross_entropy);
    check_ignored(WEIR__OP_cross_entropy_grad);
}

WEIR_TEST_SUITE(kernels_table, TEST(a_token_outside_gives_nan),
                TEST(a_tokens_gradient_outside_gives_nan), TEST(a_target_outside_gives_nan),
                TEST(ignored_targets_weigh_nothing))

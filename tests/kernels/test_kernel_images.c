/* SPDX-License-Identifier: MIT */
/*
 * Goal: what random numbers rarely show of ops on images: ties and NaN of a max pool, padding that
 * counts or not, windows of an adaptive pool, convolutions whose windows lie in the padding, planes
 * of two sizes joined. Method: small images by hand; whole numbers, so that results are exact.
 */
#include "harness.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

static const enum kernel_backend backends[] = {KERNEL_F64, KERNEL_F32, KERNEL_FAST};
#define FOR_BACKENDS(b) for (size_t b = 0; b < WEIR__COUNT_OF(backends); b++)

static bool same(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

/** Runs an op of two operands at most and holds its first output against `wanted`. */
static void expect_image(const struct weir__op_shape *shape, const double *a, const double *b,
                         const double *wanted) {
    FOR_BACKENDS(k) {
        struct kernel_case test;
        struct kernel_results got;
        kernel_case_empty(&test, shape);
        memcpy(test.in[0], a, (size_t)test.operands.in[0].count * sizeof *a);
        if (b != NULL) memcpy(test.in[1], b, (size_t)test.operands.in[1].count * sizeof *b);
        EXPECT_STATUS(kernel_run(&test, backends[k], 0, &got), WEIR_OK);
        for (int64_t i = 0; i < test.operands.out[0].count; i++)
            if (!EXPECT(same(got.out[0][i], wanted[i])))
                TEST_FAIL("%s, %s: number %lld is %g, not %g", weir__op_name(shape->op),
                          kernel_backend_name(backends[k]), (long long)i, got.out[0][i], wanted[i]);
        kernel_results_clean_up(&got);
        kernel_case_clean_up(&test);
    }
}

/* ---- max pool ---- */

/** One window of 1 x 3 over 1 x 3 pixels. */
static struct weir__op_shape window_of_three(enum weir__op_code op) {
    return (struct weir__op_shape){
        .op = op,
        .rows = 1,
        .width = 1,
        .window = {.in = {1, 3}, .out = {1, 1}, .kernel = {1, 3}, .stride = {1, 1}}};
}

static void expect_winner(double x0, double x1, double x2, double largest, int winner) {
    struct weir__op_shape forward = window_of_three(WEIR__OP_max_pool2d);
    struct weir__op_shape backward = window_of_three(WEIR__OP_max_pool2d_grad);
    const double x[] = {x0, x1, x2}, dy[] = {7};
    double dx[] = {0, 0, 0};
    dx[winner] = 7;
    expect_image(&forward, x, NULL, &largest);
    expect_image(&backward, dy, x, dx);
}

static void test_max_pool_takes_the_first_largest_and_the_last_nan(void) {
    expect_winner(2, 5, 5, 5, 1);
    expect_winner(5, 5, 2, 5, 0);
    expect_winner(-3, -2, -1, -1, 2);
    expect_winner(-INFINITY, -INFINITY, -INFINITY, -INFINITY, 0);
    expect_winner(INFINITY, 3, INFINITY, INFINITY, 0);
    expect_winner(1, NAN, 9, NAN, 1);
    expect_winner(NAN, 9, NAN, NAN, 2);
    expect_winner(NAN, INFINITY, 1, NAN, 0);
}

/** Windows that overlap: a pixel gets the gradient of each that it wins. */
static void test_max_pool_adds_the_gradients_of_overlapping_windows(void) {
    struct weir__op_shape shape = {
        .op = WEIR__OP_max_pool2d_grad,
        .rows = 1,
        .width = 1,
        .window = {
            .in = {1, 4}, .out = {1, 4}, .kernel = {1, 3}, .stride = {1, 1}, .padding = {0, 1}}};
    const double x[] = {-4, -1, -3, -2}, dy[] = {1, 10, 100, 1000};
    const double dx[] = {0, 111, 0, 1000};
    expect_image(&shape, dy, x, dx);
}

/* ---- mean pool ---- */

static void test_mean_pool_counts_padding_only_when_asked(void) {
    struct weir__op_shape shape = {
        .op = WEIR__OP_avg_pool2d,
        .rows = 1,
        .width = 1,
        .window = {
            .in = {2, 2}, .out = {2, 2}, .kernel = {2, 2}, .stride = {2, 2}, .padding = {1, 1}}};
    const double x[] = {4, 8, 12, 16}, quarters[] = {1, 2, 3, 4};
    expect_image(&shape, x, NULL, x);
    shape.window.count_padding = true;
    expect_image(&shape, x, NULL, quarters);
    shape.op = WEIR__OP_avg_pool2d_grad;
    expect_image(&shape, x, NULL, quarters);
}

static void test_adaptive_pools_windows_overlap_where_sizes_do_not_divide(void) {
    struct weir__op_shape shape = {
        .op = WEIR__OP_avg_pool2d,
        .rows = 1,
        .width = 1,
        .window = {.in = {1, 5}, .out = {1, 3}, .adaptive = true, .count_padding = true}};
    const double x[] = {2, 4, 6, 8, 10}; /* 0 … 1, 1 … 3, 3 … 4 */
    const double y[] = {3, 6, 9}, dy[] = {2, 3, 4}, dx[] = {1, 2, 1, 3, 2};
    expect_image(&shape, x, NULL, y);
    shape.op = WEIR__OP_avg_pool2d_grad;
    expect_image(&shape, dy, NULL, dx);
}

/* ---- convolution ---- */

static void test_convolution_pads_with_zeros(void) {
    struct weir__op_shape shape = {.op = WEIR__OP_conv2d,
                                   .rows = 1,
                                   .in = 1,
                                   .out = 1,
                                   .window = {.in = {1, 2},
                                              .out = {1, 6},
                                              .kernel = {1, 3},
                                              .stride = {1, 1},
                                              .padding = {0, 3},
                                              .groups = 1}};
    const double x[] = {1, 10}, weight[] = {2, 3, 4};
    const double y[] = {0, 4, 43, 32, 20, 0}; /* the outer windows see padding only */
    expect_image(&shape, x, weight, y);
}

/** Channel c of a group's outputs sees that group's inputs only. */
static void test_groups_of_a_convolution_do_not_mix(void) {
    struct weir__op_shape shape = {
        .op = WEIR__OP_conv2d,
        .rows = 2,
        .in = 4,
        .out = 4,
        .window = {.in = {1, 1}, .out = {1, 1}, .kernel = {1, 1}, .stride = {1, 1}, .groups = 2}};
    const double x[] = {1, 10, 100, 1000, 2, 20, 200, 2000}, weight[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const double y[] = {21, 43, 6500, 8700, 42, 86, 13000, 17400};
    expect_image(&shape, x, weight, y);
    shape.op = WEIR__OP_conv2d_grad_input; /* weights of a group transposed */
    const double dx[] = {31, 42, 7500, 8600, 62, 84, 15000, 17200};
    expect_image(&shape, x, weight, dx);
}

/* ---- joining, turning ---- */

static void test_concat_puts_the_smaller_plane_in_the_upper_left(void) {
    struct weir__op_shape shape = {.op = WEIR__OP_concat,
                                   .rows = 1,
                                   .in = 2,
                                   .out = 1,
                                   .window = {.in = {1, 2}, .out = {2, 3}}};
    const double a[] = {1, 2, 3, 4}, b[] = {10, 20, 30, 40, 50, 60};
    const double y[] = {1, 2, 10, 3, 4, 20, 0, 0, 30, 0, 0, 40, 0, 0, 50, 0, 0, 60};
    expect_image(&shape, a, b, y);
    shape.op = WEIR__OP_concat_grad_a;
    expect_image(&shape, y, NULL, a);
    shape.op = WEIR__OP_concat_grad_b;
    expect_image(&shape, y, NULL, b);
}

static void test_transposing_twice_gives_the_image_back(void) {
    struct weir__op_shape shape = {
        .op = WEIR__OP_transpose, .rows = 1, .tokens = 1, .in = 2, .out = 3};
    const double pixels_last[] = {1, 2, 3, 10, 20, 30}, channels_last[] = {1, 10, 2, 20, 3, 30};
    expect_image(&shape, pixels_last, NULL, channels_last);
    shape.in = 3, shape.out = 2;
    expect_image(&shape, channels_last, NULL, pixels_last);
}

WEIR_TEST_SUITE(kernel_images, TEST(max_pool_takes_the_first_largest_and_the_last_nan),
                TEST(max_pool_adds_the_gradients_of_overlapping_windows),
                TEST(mean_pool_counts_padding_only_when_asked),
                TEST(adaptive_pools_windows_overlap_where_sizes_do_not_divide),
                TEST(convolution_pads_with_zeros), TEST(groups_of_a_convolution_do_not_mix),
                TEST(concat_puts_the_smaller_plane_in_the_upper_left),
                TEST(transposing_twice_gives_the_image_back))

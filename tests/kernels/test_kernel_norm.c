/* SPDX-License-Identifier: MIT */
/*
 * Goal: instance norm stays exact on large planes, wherever the mean lies, for any number of
 * channels; layer norm has rows of one number exactly, and rows whose squares overflow as any
 * other. Method: the vector kernels against the f64 reference, on planes of many tiles and ragged
 * ends; bounds are those of a mean that is a float. Layer norm of every back end against what a row
 * times a power of two must give.
 */
#include "harness.h"
#include "cuda/kernel_gpu.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

static const struct {
    int64_t pixels, channels;
} planes[] = {{192 * 192, 2}, {96 * 96, 16}, {61 * 67, 3},  {70 * 70, 5},   {50 * 50, 24},
              {65 * 65, 48},  {30 * 30, 65}, {17 * 17, 33}, {12 * 12, 128}, {3 * 3, 200}};

static struct weir__op_shape norm_shape(enum weir__op_code op, size_t plane) {
    return (struct weir__op_shape){.op = op,
                                   .rows = 2,
                                   .tokens = planes[plane].pixels,
                                   .width = planes[plane].channels,
                                   .eps = 1e-5,
                                   .slope = 0.01};
}

/** Moves all numbers of an input; they stay floats. */
static void move_by(struct kernel_case *test, int input, double distance) {
    for (int64_t i = 0; i < test->operands.in[input].count; i++)
        test->in[input][i] = (float)(test->in[input][i] + distance);
}

static void expect_within(const struct kernel_results *got, const struct kernel_results *wanted,
                          int output, double bound) {
    double worst = 0;
    int64_t count = got->test->operands.out[output].count;
    for (int64_t i = 0; i < count; i++)
        worst = fmax(worst, fabs(got->out[output][i] - wanted->out[output][i]));
    if (!EXPECT(worst <= bound))
        TEST_FAIL("%s, %lld pixels, %lld channels: output %d is off by %.3g, at most %.3g",
                  weir__op_name(got->test->shape.op), (long long)got->test->shape.tokens,
                  (long long)got->test->shape.width, output, worst, bound);
}

/** Numbers lie up to REACH from `distance`, with a deviation of 1.155. Bounds are in half ulps of
 * 1, 2^-24.
 *
 * The mean is its base and what is summed as distances from that. The base is the mean of the first
 * numbers of a place, of which there are at most 64 (64 lanes are walked at once, so that one in 64
 * of a plane's is there at least): so it is off by up to 4 deviations of such a mean, and by REACH
 * at most. Distances of that size are rounded 4 times on the way (between bases, of the place's
 * mean, in 1 / count and its product), and in a sum over up to 64 places, where errors of random
 * sign add up as its root. Adding the base rounds once more, at the size of the mean.
 *
 * y has the mean's error, the one of x - mean, which is below 2 REACH, and relative to itself
 * rstd's and one more. */
enum { REACH = 2, PLACES_MOST = 64 };

static double mean_of_first(double count) {
    return fmin(REACH, 4 * 1.155 / sqrt(count));
}

static double bound_mean(double pixels, double distance) {
    double first = fmin(fmax(pixels / PLACES_MOST, 1), 64), places = fmin(pixels, PLACES_MOST);
    return distance + mean_of_first(pixels) + mean_of_first(first) * (4 + sqrt(places));
}

static void check_forward(size_t plane, double distance) {
    struct weir__op_shape shape = norm_shape(WEIR__OP_instance_norm, plane);
    struct kernel_case test;
    struct kernel_results got, wanted;
    kernel_case_init(&test, &shape);
    move_by(&test, 0, distance);
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
    EXPECT_STATUS(kernel_run(&test, KERNEL_VECTOR, 0, &got), WEIR_OK);
    double steepness = kernel_largest(&wanted, 2, 1), largest = kernel_largest(&wanted, 0, 1);
    double mean = bound_mean((double)shape.tokens, distance), rstd = 8 + distance / 100;
    expect_within(&got, &wanted, 0, 0x1p-24 * (steepness * (mean + REACH) + largest * (rstd + 1)));
    expect_within(&got, &wanted, 1, 0x1p-24 * mean);
    expect_within(&got, &wanted, 2, 0x1p-24 * steepness * rstd);
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

static void test_large_planes_far_from_0_keep_their_digits(void) {
    static const double distances[] = {0, 10, 1000};
    for (size_t i = 0; i < WEIR__COUNT_OF(planes); i++)
        for (size_t d = 0; d < WEIR__COUNT_OF(distances) && !test_has_failed(); d++)
            check_forward(i, distances[d]);
}

enum { CORNER = 100 };

/** The first pixels lie elsewhere: what is taken for a mean at first is far from it. */
static void check_corner(size_t plane) {
    struct weir__op_shape shape = norm_shape(WEIR__OP_instance_norm, plane);
    struct kernel_case test;
    struct kernel_results got, wanted;
    int64_t row = shape.tokens * shape.width;
    kernel_case_init(&test, &shape);
    for (int64_t i = 0; i < 2 * row; i++)
        if (i % row < CORNER * shape.width) test.in[0][i] += 1000;
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
    EXPECT_STATUS(kernel_run(&test, KERNEL_VECTOR, 0, &got), WEIR_OK);
    expect_within(&got, &wanted, 0, 0x1p-24 * (16 + 8 * kernel_largest(&wanted, 0, 1)));
    expect_within(&got, &wanted, 2, 0x1p-24 * 8 * kernel_largest(&wanted, 2, 0));
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

static void test_a_bright_corner_costs_no_digits(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(planes) && !test_has_failed(); i++)
        if (planes[i].pixels > 2 * CORNER) check_corner(i);
}

enum { DY = 3 };

/** Gradients of one sign, whose sums grow with the plane. */
static void check_backward(enum weir__op_code op, size_t plane) {
    struct weir__op_shape shape = norm_shape(op, plane);
    struct kernel_case test;
    struct kernel_results got, wanted;
    kernel_case_init(&test, &shape);
    move_by(&test, 0, DY);
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
    EXPECT_STATUS(kernel_run(&test, KERNEL_VECTOR, 0, &got), WEIR_OK);
    if (op == WEIR__OP_instance_norm_grad_weight) {
        /* x - mean rounds the same way for all x of like size: errors add up as the terms do. */
        double terms = 2 * DY * (double)shape.tokens;
        expect_within(&got, &wanted, 0, 0x1p-24 * (64 + terms));
        expect_within(&got, &wanted, 1, 0x1p-24 * (16 + 8 * terms));
    } else {
        expect_within(&got, &wanted, 0, 0x1p-24 * 16 * kernel_largest(&wanted, 0, 1));
    }
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

static void test_gradients_of_large_planes_keep_their_digits(void) {
    static const enum weir__op_code ops[] = {WEIR__OP_instance_norm_grad_input,
                                             WEIR__OP_instance_norm_act_grad,
                                             WEIR__OP_instance_norm_grad_weight};
    for (size_t k = 0; k < WEIR__COUNT_OF(ops); k++)
        for (size_t i = 0; i < WEIR__COUNT_OF(planes) && !test_has_failed(); i++)
            check_backward(ops[k], i);
}

/* ---- layer norm ---- */

static const enum kernel_backend backends[] = {KERNEL_F64,  KERNEL_F32,       KERNEL_VECTOR,
                                               KERNEL_CUDA, KERNEL_CUDA_BF16, KERNEL_LEVEL_3_BF16};
#define FOR_BACKENDS(b)                                                                            \
    for (size_t b = 0; b < WEIR__COUNT_OF(backends); b++)                                          \
        if (kernel_runs_here(backends[b]))

static struct weir__op_shape row_shape(enum weir__op_code op, int64_t width, double eps) {
    return (struct weir__op_shape){
        .op = op, .rows = 2, .tokens = 1, .threads = 1, .width = width, .eps = eps};
}

static void check_constant_row(enum kernel_backend backend, int64_t width, double number) {
    struct weir__op_shape shape = row_shape(WEIR__OP_layer_norm, width, 1e-5);
    struct kernel_case test;
    struct kernel_results got;
    kernel_case_init(&test, &shape);
    for (int64_t i = 0; i < width; i++) test.in[0][i] = number;
    if (kernel_is_bf16(backend)) kernel_case_narrow(&test);
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    if (!EXPECT(got.out[1][0] == test.in[0][0]))
        TEST_FAIL("%s: the mean of %lld times %.9g is %.9g", kernel_backend_name(backend),
                  (long long)width, number, got.out[1][0]);
    for (int64_t i = 0; i < width && !kernel_is_bf16(backend); i++)
        EXPECT(got.out[0][i] == test.in[2][i]);
    kernel_results_clean_up(&got);
    kernel_case_clean_up(&test);
}

static void test_a_row_of_one_number_is_its_mean(void) {
    static const int64_t widths[] = {1, 3, 7, 40, 768, 1000, 1025, 4097};
    FOR_BACKENDS(b)
    for (size_t w = 0; w < WEIR__COUNT_OF(widths) && !test_has_failed(); w++) {
        check_constant_row(backends[b], widths[w], (double)1000.1f);
        check_constant_row(backends[b], widths[w], (double)-0.3f);
        check_constant_row(backends[b], widths[w], (double)16777213.0f);
        check_constant_row(backends[b], widths[w], (double)0x1p53f); /* as one that is scaled */
    }
    if (!kernel_gpu_is_there()) SKIP("the fake CUDA driver was not built");
}

/** Layer norm of x * scale, and its gradient by x: what they are of x, the gradient / scale. */
static void check_scaled(enum kernel_backend backend, int64_t width, double scale) {
    struct weir__op_shape forward = row_shape(WEIR__OP_layer_norm, width, 0);
    struct weir__op_shape backward = row_shape(WEIR__OP_layer_norm_grad_input, width, 0);
    struct kernel_case test, gradient;
    struct kernel_results near, far, near_dx, far_dx;
    kernel_case_init(&test, &forward);
    kernel_case_init(&gradient, &backward);
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &near), WEIR_OK);
    memcpy(gradient.in[1], test.in[0], (size_t)(2 * width) * sizeof(double));
    for (int i = 0; i < 2; i++) memcpy(gradient.in[2 + i], near.out[1 + i], 2 * sizeof(double));
    EXPECT_STATUS(kernel_run(&gradient, KERNEL_F64, 0, &near_dx), WEIR_OK);
    for (int64_t i = 0; i < 2 * width; i++) test.in[0][i] = gradient.in[1][i] *= scale;
    EXPECT_STATUS(kernel_run(&test, backend, 0, &far), WEIR_OK);
    for (int i = 0; i < 2; i++) memcpy(gradient.in[2 + i], far.out[1 + i], 2 * sizeof(double));
    EXPECT_STATUS(kernel_run(&gradient, backend, 0, &far_dx), WEIR_OK);
    for (int64_t i = 0; i < 2 * width; i++) far_dx.out[0][i] *= scale;
    for (int i = 0; i < 2; i++) far.out[1][i] /= scale, far.out[2][i] *= scale;
    double tolerance = kernel_tolerance(&near);
    kernel_expect_near(&far, &near, tolerance, kernel_backend_name(backend));
    kernel_expect_near(&far_dx, &near_dx, 4 * tolerance, kernel_backend_name(backend));
    kernel_results_clean_up(&near);
    kernel_results_clean_up(&far);
    kernel_results_clean_up(&near_dx);
    kernel_results_clean_up(&far_dx);
    kernel_case_clean_up(&test);
    kernel_case_clean_up(&gradient);
}

static void test_rows_whose_squares_overflow_are_scaled(void) {
    static const int64_t widths[] = {4, 37, 768, 1200};
    FOR_BACKENDS(b)
    for (size_t w = 0; w < WEIR__COUNT_OF(widths); w++)
        if (!kernel_is_bf16(backends[b]) && !test_has_failed())
            check_scaled(backends[b], widths[w], backends[b] == KERNEL_F64 ? 0x1p900 : 0x1p100);
    if (!kernel_gpu_is_there()) SKIP("the fake CUDA driver was not built");
}

/** One number beyond all others takes the whole deviation; one without a size takes all numbers. */
static void check_outlier(enum kernel_backend backend, double outlier) {
    struct weir__op_shape shape = row_shape(WEIR__OP_layer_norm, 4, 1e-5);
    struct kernel_case test;
    struct kernel_results got;
    kernel_case_empty(&test, &shape);
    for (int64_t i = 0; i < 4; i++) {
        test.in[0][i] = i == 0 ? outlier : (double)i;
        test.in[1][i] = 1;
    }
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    double unit = kernel_is_bf16(backend) ? 0x1p-8 : 0x1p-22;
    for (int64_t i = 0; i < 4 && isfinite(outlier); i++)
        EXPECT_NEAR(got.out[0][i], i == 0 ? sqrt(3) : -sqrt(1 / 3.0), 2 * unit);
    for (int64_t i = 0; i < 4 && !isfinite(outlier); i++) EXPECT(isnan(got.out[0][i]));
    kernel_results_clean_up(&got);
    kernel_case_clean_up(&test);
}

static void test_one_number_beyond_all_others_is_no_constant(void) {
    FOR_BACKENDS(b) {
        check_outlier(backends[b], 1e30);
        check_outlier(backends[b], INFINITY);
        check_outlier(backends[b], NAN);
    }
    if (!kernel_gpu_is_there()) SKIP("the fake CUDA driver was not built");
}

WEIR_TEST_SUITE(kernel_norm, TEST(large_planes_far_from_0_keep_their_digits),
                TEST(a_bright_corner_costs_no_digits),
                TEST(gradients_of_large_planes_keep_their_digits),
                TEST(a_row_of_one_number_is_its_mean), TEST(rows_whose_squares_overflow_are_scaled),
                TEST(one_number_beyond_all_others_is_no_constant))

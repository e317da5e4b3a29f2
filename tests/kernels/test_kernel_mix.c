/* SPDX-License-Identifier: MIT */
/*
 * Goal: block attention residuals do what their formula says where that is plain: a query of zeros
 * averages the sources, a lone source is what comes out, and its gradient what comes in; any number
 * of sources up to the most; and rows whose squares overflow mix as any others. Method: every back
 * end against what must come out, to the bit where rounding leaves it.
 */
#include "cuda/kernel_gpu.h"
#include "harness.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum kernel_backend backends[] = {KERNEL_F64,     KERNEL_F32,    KERNEL_LEVEL_1,
                                               KERNEL_LEVEL_2, KERNEL_VECTOR, KERNEL_CUDA};

#define FOR_BACKENDS(b)                                                                            \
    for (size_t b = 0; b < WEIR__COUNT_OF(backends) && !test_has_failed(); b++)                    \
        if (kernel_runs_here(backends[b]))

static struct weir__op_shape mix_shape(enum weir__op_code op, int64_t sources, int64_t width) {
    return (struct weir__op_shape){
        .op = op, .rows = 2, .tokens = 3, .width = width, .sources = sources, .eps = 1e-6};
}

static void expect_row(const struct kernel_results *got, int output, const double *wanted,
                       double tolerance) {
    for (int64_t i = 0; i < got->test->operands.out[output].count && !test_has_failed(); i++)
        if (!(fabs(got->out[output][i] - wanted[i]) <= tolerance * fabs(wanted[i])))
            TEST_FAIL("output %d, number %lld is %.9g, not %.9g", output, (long long)i,
                      got->out[output][i], wanted[i]);
}

static void test_a_query_of_zeros_averages_the_sources(void) {
    struct weir__op_shape shape = mix_shape(WEIR__OP_residual_mix, 4, 37);
    FOR_BACKENDS(b) {
        struct kernel_case test;
        struct kernel_results got;
        double means[2 * 3 * 37], quarters[2 * 3 * 4];
        kernel_case_init(&test, &shape);
        memset(test.in[1], 0, 37 * sizeof(double));
        for (int64_t i = 0; i < 2 * 3 * 37; i++)
            means[i] = (test.in[2][i] + test.in[3][i] + test.in[4][i] + test.in[5][i]) / 4;
        for (int64_t i = 0; i < 2 * 3 * 4; i++) quarters[i] = 0.25;
        EXPECT_STATUS(kernel_run(&test, backends[b], 0, &got), WEIR_OK);
        expect_row(&got, 1, quarters, 0);
        for (int64_t i = 0; i < 2 * 3 * 37; i++)
            EXPECT_NEAR(got.out[0][i], means[i], 4 * 0x1p-24 * 8);
        kernel_results_clean_up(&got);
        kernel_case_clean_up(&test);
    }
}

static void test_a_lone_source_passes_through_and_so_does_its_gradient(void) {
    struct weir__op_shape shape = mix_shape(WEIR__OP_residual_mix, 1, 70);
    struct weir__op_shape back = mix_shape(WEIR__OP_residual_mix_grad, 1, 70);
    FOR_BACKENDS(b) {
        struct kernel_case test;
        struct kernel_results got;
        double sums[2 * 3 * 70], none[2 * 3 * 70] = {0};
        kernel_case_init(&test, &shape);
        EXPECT_STATUS(kernel_run(&test, backends[b], 0, &got), WEIR_OK);
        expect_row(&got, 0, test.in[2], 0);
        kernel_results_clean_up(&got);
        kernel_case_clean_up(&test);
        kernel_case_init(&test, &back);
        for (int64_t i = 0; i < 2 * 3 * 70; i++) {
            sums[i] = test.in[0][i] + test.in[6][i];
            if (backends[b] != KERNEL_F64) sums[i] = (float)sums[i];
        }
        EXPECT_STATUS(kernel_run(&test, backends[b], 0, &got), WEIR_OK);
        expect_row(&got, 0, none, 0);
        expect_row(&got, 1, sums, 0);
        kernel_results_clean_up(&got);
        kernel_case_clean_up(&test);
    }
}

/* Scaled by a power of two, with it epsilon's root, nothing changes but the scale. */
static void test_sources_whose_squares_overflow_mix_as_others(void) {
    struct weir__op_shape shape = mix_shape(WEIR__OP_residual_mix, 3, 40);
    FOR_BACKENDS(b) {
        struct kernel_case test;
        struct kernel_results small, large;
        shape.eps = 0;
        kernel_case_init(&test, &shape);
        for (int64_t i = 0; i < 40; i++) test.in[1][i] /= 16;
        EXPECT_STATUS(kernel_run(&test, backends[b], 0, &small), WEIR_OK);
        for (int s = 0; s < 3; s++)
            for (int64_t i = 0; i < test.operands.in[2 + s].count; i++)
                test.in[2 + s][i] = ldexp(test.in[2 + s][i], 80);
        EXPECT_STATUS(kernel_run(&test, backends[b], 0, &large), WEIR_OK);
        for (int64_t i = 0; i < test.operands.out[0].count; i++)
            EXPECT_NEAR(ldexp(large.out[0][i], -80), small.out[0][i], 0x1p-16);
        kernel_results_clean_up(&small);
        kernel_results_clean_up(&large);
        kernel_case_clean_up(&test);
    }
}

/* ---- many sources: more operands than a kernel_case has ---- */

enum { MANY = WEIR__SOURCES_MAX, WIDTH = 5, TOKENS = 2 };

static void call_many(const struct weir__backend *backend, float *const rows[MANY], float *y,
                      float *shares) {
    float weight[WIDTH], query[WIDTH], rstds[TOKENS * MANY], workspace[64];
    const void *in[2 + MANY] = {weight, query};
    void *out[] = {y, shares, rstds};
    struct weir__op_shape shape = mix_shape(WEIR__OP_residual_mix, MANY, WIDTH);
    shape.rows = TOKENS;
    shape.tokens = 1;
    shape.threads = 1;
    shape.dtype = WEIR_F32;
    for (int i = 0; i < WIDTH; i++) weight[i] = 1 + 0.1f * (float)i, query[i] = 0.3f;
    for (int s = 0; s < MANY; s++) in[2 + s] = rows[s];
    struct weir__op_call call = {.shape = &shape, .in = in, .out = out, .workspace = workspace};
    EXPECT_STATUS(backend->kernel(WEIR__OP_residual_mix, WEIR_F32)->run(&call), WEIR_OK);
}

static void test_as_many_sources_as_there_may_be(void) {
    static float sources[MANY][TOKENS * WIDTH];
    float *rows[MANY], y[2][TOKENS * WIDTH], shares[2][TOKENS * MANY];
    for (int s = 0; s < MANY; s++) {
        rows[s] = sources[s];
        for (int i = 0; i < TOKENS * WIDTH; i++)
            sources[s][i] = (float)(4 * test_random_unit() - 2);
    }
    call_many(&weir__backend_reference, rows, y[0], shares[0]);
    call_many(kernel_fast(), rows, y[1], shares[1]);
    for (int i = 0; i < TOKENS * WIDTH; i++) EXPECT_NEAR(y[1][i], y[0][i], 0x1p-18);
    for (int m = 0; m < TOKENS; m++) {
        double sum = 0;
        for (int s = 0; s < MANY; s++) sum += (double)shares[1][m * MANY + s];
        EXPECT_NEAR(sum, 1, 0x1p-20);
    }
}

WEIR_TEST_SUITE(kernel_mix, TEST(a_query_of_zeros_averages_the_sources),
                TEST(a_lone_source_passes_through_and_so_does_its_gradient),
                TEST(sources_whose_squares_overflow_mix_as_others),
                TEST(as_many_sources_as_there_may_be))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: losses keep their digits where logits are large or infinite, on every back end. Method: a
 * number added to all logits, which both store exactly, must leave the gradient alone; infinite
 * logits against the limits of the formulas, which for finite results are PyTorch's.
 */
#include "harness.h"
#include "cuda/kernel_gpu.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

static const enum kernel_backend backends[] = {KERNEL_F64,  KERNEL_F32,       KERNEL_VECTOR,
                                               KERNEL_CUDA, KERNEL_CUDA_BF16, KERNEL_LEVEL_3_BF16};
#define FOR_BACKENDS(b) for (size_t b = 0; b < WEIR__COUNT_OF(backends); b++)

/** A number that leaves logits of at most 4 with their two bits behind the point. */
static double offset_of(enum kernel_backend backend) {
    return backend == KERNEL_F64 ? 0x1p40 : kernel_is_bf16(backend) ? 0x1p4 : 0x1p20;
}

/** The loss, and the gradient, of logits that are all moved by `offset`. */
static double moved(const struct kernel_case *base, enum kernel_backend backend, double offset,
                    double *dlogits) {
    struct weir__op_shape shape = base->shape;
    struct kernel_case forward, backward;
    struct kernel_results loss, gradient;
    int64_t numbers = shape.rows * shape.width;
    kernel_case_empty(&forward, &shape);
    shape.op = WEIR__OP_cross_entropy_grad;
    kernel_case_empty(&backward, &shape);
    for (int64_t i = 0; i < numbers; i++)
        forward.in[0][i] = backward.in[0][i] = base->in[0][i] + offset;
    size_t bytes = (size_t)shape.rows * sizeof(int64_t);
    memcpy(forward.index[1], base->index[1], bytes);
    memcpy(backward.index[1], base->index[1], bytes);
    EXPECT_STATUS(kernel_run(&forward, backend, 0, &loss), WEIR_OK);
    for (int i = 0; i < 2; i++)
        memcpy(backward.in[2 + i], loss.out[1 + i], (size_t)shape.rows * sizeof(double));
    EXPECT_STATUS(kernel_run(&backward, backend, 0, &gradient), WEIR_OK);
    double sum = loss.out[0][0];
    memcpy(dlogits, gradient.out[0], (size_t)numbers * sizeof(double));
    kernel_results_clean_up(&gradient);
    kernel_results_clean_up(&loss);
    kernel_case_clean_up(&backward);
    kernel_case_clean_up(&forward);
    return sum;
}

enum { ROWS = 3, WIDTH_MOST = 1100 };

/**
 * What 2^x log2(e) - c is rounded to may differ: a few units in the last place of a probability,
 * which is the gradient itself or, of a target, what 1 is taken from.
 */
static void check_offset(enum kernel_backend backend, int64_t width) {
    static double near[ROWS * WIDTH_MOST], far[ROWS * WIDTH_MOST];
    const struct weir__op_shape shape = {.op = WEIR__OP_cross_entropy,
                                         .rows = ROWS,
                                         .tokens = 1,
                                         .width = width,
                                         .ignore_index = -100};
    double epsilon = backend == KERNEL_F64 ? 0x1p-52 : kernel_is_bf16(backend) ? 0x1p-8 : 0x1p-23;
    struct kernel_case base;
    kernel_case_init(&base, &shape);
    base.index[1][0] = 2;
    for (int64_t i = 0; i < ROWS * width; i++) base.in[0][i] = round(base.in[0][i] * 8) / 4;
    double offset = offset_of(backend), loss = moved(&base, backend, 0, near);
    EXPECT_NEAR(moved(&base, backend, offset, far), loss, 8 * epsilon * (1 + fabs(loss)));
    EXPECT(near[2] < 0 && near[0] > 0);
    for (int64_t i = 0; i < ROWS * width && !test_has_failed(); i++) {
        bool target = base.index[1][i / width] == i % width;
        double probability = fabs(near[i] + target);
        if (!EXPECT(fabs(far[i] - near[i]) <= 8 * epsilon * (fabs(near[i]) + probability)))
            TEST_FAIL("%s: number %lld of rows of %lld is %.9g, and %.9g when moved by %g",
                      kernel_backend_name(backend), (long long)i, (long long)width, near[i], far[i],
                      offset);
    }
    kernel_case_clean_up(&base);
}

static void test_an_offset_of_all_logits_leaves_the_gradient(void) {
    static const int64_t widths[] = {5, 64, 1000, WIDTH_MOST};
    FOR_BACKENDS(b)
    for (size_t w = 0; w < WEIR__COUNT_OF(widths); w++)
        if (kernel_runs_here(backends[b])) check_offset(backends[b], widths[w]);
    if (!kernel_gpu_is_there()) SKIP("the fake CUDA driver was not built");
}

/** The loss of one logit, and its gradient. */
static double entropy(enum kernel_backend backend, double logit, double target, double *slope) {
    double y[2];
    for (int i = 0; i < 2; i++) {
        struct weir__op_shape shape = {.op = i == 0 ? WEIR__OP_bce_with_logits
                                                    : WEIR__OP_bce_with_logits_grad,
                                       .rows = 1,
                                       .tokens = 1,
                                       .width = 1};
        struct kernel_case test;
        struct kernel_results got;
        kernel_case_empty(&test, &shape);
        test.in[0][0] = logit;
        test.in[1][0] = target;
        test.loss_weight = 1;
        EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
        y[i] = got.out[0][0];
        kernel_results_clean_up(&got);
        kernel_case_clean_up(&test);
    }
    *slope = y[1];
    return y[0];
}

static void test_infinite_logits_have_their_limits(void) {
    static const struct {
        double logit, target, loss, slope;
    } cases[] = {{INFINITY, 1, 0, 0},
                 {-INFINITY, 0, 0, 0},
                 {INFINITY, 0, INFINITY, 1},
                 {-INFINITY, 1, INFINITY, -1},
                 {INFINITY, 0.5, INFINITY, 0.5},
                 {-INFINITY, 0.5, INFINITY, -0.5},
                 {10240, 1, 0, 0},
                 {-10240, 1, 10240, -1},
                 {10240, 0.5, 5120, 0.5},
                 {-10240, 0, 0, 0}};
    FOR_BACKENDS(b)
    for (size_t i = 0; i < WEIR__COUNT_OF(cases) && kernel_runs_here(backends[b]); i++) {
        double slope, loss = entropy(backends[b], cases[i].logit, cases[i].target, &slope);
        if (!EXPECT(loss == cases[i].loss && slope == cases[i].slope))
            TEST_FAIL("%s: bce_with_logits(%g, %g) is %g with slope %g",
                      kernel_backend_name(backends[b]), cases[i].logit, cases[i].target, loss,
                      slope);
        loss = entropy(backends[b], NAN, cases[i].target, &slope);
        EXPECT(isnan(loss) && isnan(slope));
    }
    if (!kernel_gpu_is_there()) SKIP("the fake CUDA driver was not built");
}

WEIR_TEST_SUITE(kernel_losses, TEST(an_offset_of_all_logits_leaves_the_gradient),
                TEST(infinite_logits_have_their_limits))

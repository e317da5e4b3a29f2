/* SPDX-License-Identifier: MIT */
/*
 * Goal: every CUDA row computes what net/kernel.h says, at any size, in f32 and bf16. Method: the
 * kernels' emulation, driven through the fake driver, against the f64 reference over ragged sizes,
 * within kernel_tolerance() and kernel_tolerance_bf16(); bits against bits: other addresses, other
 * orders of threads.
 */
#include "harness.h"
#include "cuda/kernel_gpu.h"
#include "kernels/kernels.h"
#include "net/cuda/cuda.h"

#include <math.h>
#include <stdlib.h>

#define FOR_ROWS(op)                                                                               \
    for (enum weir__op_code op = 0; op < WEIR__OP_COUNT; op++)                                     \
        if (!kernel_is_the_users(op) && weir__backend_cuda.kernel(op, WEIR_F32) != NULL)

#define NO_DRIVER "the fake CUDA driver was not built"
enum { CASES = 12 };

static void compare_shape(const struct weir__op_shape *shape, enum kernel_backend backend) {
    struct kernel_case test;
    struct kernel_results got, wanted;
    kernel_case_init(&test, shape);
    if (backend == KERNEL_CUDA_BF16) kernel_case_narrow(&test);
    test.overwrite = test_random_below(2) == 0;
    test.infer = test_random_below(8) == 0;
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    double tolerance =
        backend == KERNEL_CUDA_BF16 ? kernel_tolerance_bf16(&wanted) : kernel_tolerance(&wanted);
    kernel_expect_near(&got, &wanted, tolerance, kernel_backend_name(backend));
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

/** Rows are whole: nets with packed ones are refused on GPUs. */
static struct weir__op_shape any_shape(enum weir__op_code op) {
    struct weir__op_shape shape = kernel_any_shape(op);
    shape.packed = false;
    return shape;
}

static void compare(enum weir__op_code op, enum kernel_backend backend) {
    struct weir__op_shape shape = any_shape(op);
    compare_shape(&shape, backend);
}

/** Ops that are CPUs' alone: nets with them are refused on GPUs, or keep the parts of what is fused
 * on CPUs. */
static bool is_cpus(enum weir__op_code op) {
    static const enum weir__op_code alone[] = {
        WEIR__OP_linear_add,           WEIR__OP_linear_grad_input_add,
        WEIR__OP_batch_norm_act,       WEIR__OP_batch_norm_act_sums,
        WEIR__OP_linear_cross_entropy, WEIR__OP_linear_cross_entropy_grad};
    for (size_t i = 0; i < WEIR__COUNT_OF(alone); i++)
        if (alone[i] == op) return true;
    return false;
}

/* The tests below go by the rows, so they pass over an op that was forgotten. */
static void test_every_op_has_a_row(void) {
    for (enum weir__op_code op = 0; op < WEIR__OP_COUNT; op++) {
        if (kernel_is_the_users(op)) continue;
        if (is_cpus(op)) {
            EXPECT(weir__backend_cuda.kernel(op, WEIR_F32) == NULL);
            continue;
        }
        bool both = weir__backend_cuda.kernel(op, WEIR_F32) != NULL &&
                    weir__backend_cuda.kernel(op, WEIR_BF16) != NULL;
        if (!EXPECT(both)) TEST_FAIL("%s", weir__op_name(op));
    }
}

static void test_f32_is_near_f64(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    FOR_ROWS(op)
    for (int i = 0; i < CASES && !test_has_failed(); i++) compare(op, KERNEL_CUDA);
}

static void test_bf16_is_near_f64(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    FOR_ROWS(op)
    for (int i = 0; i < CASES && !test_has_failed(); i++) compare(op, KERNEL_CUDA_BF16);
}

/* A net's window: an odd square one, padded by half of it. */
static struct weir__op_shape convolution(enum weir__op_code op, struct weir__plane in,
                                         int64_t channels, int64_t side, int64_t stride) {
    struct weir__plane out = {(in.height - 1) / stride + 1, (in.width - 1) / stride + 1};
    return (struct weir__op_shape){.op = op,
                                   .rows = 3,
                                   .rows_max = 3,
                                   .in = channels,
                                   .out = 6,
                                   .window = {.in = in,
                                              .out = out,
                                              .kernel = {side, side},
                                              .stride = {stride, stride},
                                              .padding = {side / 2, side / 2},
                                              .groups = 1}};
}

/* By what they are multiples of, libraries have engines of their own. */
static int64_t any_channels(void) {
    static const int64_t numbers[] = {1, 2, 3, 4, 5, 6, 8, 12, 16, 24};
    return numbers[test_random_below(sizeof numbers / sizeof *numbers)];
}

/* Of few channels and pixels, for which libraries have engines of their own too. */
static void test_convolutions_of_small_nets_are_near_f64(void) {
    enum { SMALL_CASES = 60 };
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (int i = 0; i < SMALL_CASES && !test_has_failed(); i++) {
        const struct weir__plane plane = {1 + (int64_t)test_random_below(9),
                                          1 + (int64_t)test_random_below(9)};
        int64_t channels = any_channels(), rows = 1 + test_random_below(9);
        int64_t out = any_channels(), side = test_random_below(2) == 0 ? 3 : 1;
        int64_t stride = 1 + (int64_t)test_random_below(2);
        int64_t groups = channels % 2 == 0 && test_random_below(4) == 0 ? 2 : 1;
        for (enum weir__op_code op = WEIR__OP_conv2d; op <= WEIR__OP_conv2d_grad_weight; op++) {
            struct weir__op_shape shape = convolution(op, plane, channels, side, stride);
            shape.rows = rows, shape.rows_max = rows + i % 2;
            shape.out = out * groups, shape.window.groups = groups;
            if (i == 0) shape = convolution(op, (struct weir__plane){7, 4}, 2, 3, 2);
            compare_shape(&shape, KERNEL_CUDA_BF16);
            compare_shape(&shape, KERNEL_CUDA);
        }
    }
}

/* Every run has another order of threads and blocks. */
static void test_addresses_and_orders_change_no_bit(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    FOR_ROWS(op)
    for (int i = 0; i < 4 && !test_has_failed(); i++) {
        struct weir__op_shape shape = any_shape(op);
        enum kernel_backend backend = i % 2 == 0 ? KERNEL_CUDA : KERNEL_CUDA_BF16;
        struct kernel_case test;
        struct kernel_results a, b;
        kernel_case_init(&test, &shape);
        test.overwrite = i < 2;
        EXPECT_STATUS(kernel_run(&test, backend, 0, &a), WEIR_OK);
        EXPECT_STATUS(kernel_run(&test, backend, 64 * (size_t)(1 + i), &b), WEIR_OK);
        kernel_expect_same(&b, &a, kernel_backend_name(backend));
        kernel_results_clean_up(&a);
        kernel_results_clean_up(&b);
        kernel_case_clean_up(&test);
    }
}

/* What a kernel reads was given to it, or written by it before: every buffer has an allocation of
 * its own, which nothing has filled. */
static void test_buffers_apart_and_raw_change_no_bit(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    FOR_ROWS(op)
    for (int i = 0; i < 4 && !test_has_failed(); i++) {
        struct weir__op_shape shape = any_shape(op);
        enum kernel_backend backend = i % 2 == 0 ? KERNEL_CUDA : KERNEL_CUDA_BF16;
        struct kernel_case test;
        struct kernel_results together, apart;
        kernel_case_init(&test, &shape);
        test.overwrite = i < 2;
        EXPECT_STATUS(kernel_run(&test, backend, 0, &together), WEIR_OK);
        CHECK(setenv("WEIR_TEST_APART", "1", 1) == 0);
        EXPECT_STATUS(kernel_run(&test, backend, 0, &apart), WEIR_OK);
        unsetenv("WEIR_TEST_APART");
        kernel_expect_same(&apart, &together, kernel_backend_name(backend));
        kernel_results_clean_up(&together);
        kernel_results_clean_up(&apart);
        kernel_case_clean_up(&test);
    }
}

WEIR_TEST_SUITE(kernels_net, TEST(every_op_has_a_row), TEST(f32_is_near_f64),
                TEST(bf16_is_near_f64), TEST(convolutions_of_small_nets_are_near_f64),
                TEST(addresses_and_orders_change_no_bit), TEST(buffers_apart_and_raw_change_no_bit))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: convolutions of the sizes that nets have, beyond the small ones of test_kernels.c: wide
 * images, blocks of channels and odd ends of them, few channels on either side, for one thread and
 * two, with weights that the state of another row count and thread count packed. Method: against
 * the f64 reference, within kernel_tolerance().
 */
#include "harness.h"
#include "kernels/kernels.h"

struct sizes {
    int64_t rows, in, out, height, width, kernel, stride_y, stride_x, padding, groups;
};

static const struct sizes nets[] = {
    {2, 3, 16, 33, 21, 3, 1, 1, 1, 1},  {2, 16, 16, 20, 48, 3, 1, 1, 1, 1},
    {1, 16, 32, 17, 50, 3, 1, 1, 1, 1}, {3, 32, 8, 9, 40, 3, 1, 1, 1, 1},
    {2, 8, 8, 24, 24, 3, 1, 1, 1, 1},   {2, 48, 3, 12, 12, 3, 1, 1, 1, 1},
    {2, 12, 40, 12, 12, 5, 1, 1, 2, 1}, {4, 64, 80, 3, 3, 3, 1, 1, 1, 1},
    {2, 24, 24, 15, 15, 3, 2, 2, 1, 1}, {2, 32, 16, 13, 13, 1, 1, 1, 0, 1},
    {3, 32, 16, 13, 13, 1, 2, 2, 0, 1}, {2, 16, 1, 31, 31, 1, 1, 1, 0, 1},
    {2, 32, 48, 10, 10, 3, 1, 1, 1, 2}, {2, 40, 40, 14, 14, 3, 1, 1, 1, 40},
    {1, 6, 9, 24, 24, 3, 1, 1, 1, 3},   {2, 16, 16, 11, 11, 3, 1, 1, 0, 1},
    {2, 16, 8, 11, 11, 3, 1, 1, 2, 1},  {2, 12, 5, 10, 10, 2, 1, 1, 3, 1},
    {3, 2, 16, 34, 40, 1, 2, 1, 0, 1},  {3, 1, 40, 10, 2, 3, 1, 2, 1, 1},
    {2, 20, 40, 16, 18, 1, 3, 2, 0, 1},
};

static const enum weir__op_code ops[] = {WEIR__OP_conv2d, WEIR__OP_conv2d_grad_input,
                                         WEIR__OP_conv2d_grad_weight};

static int64_t outputs_of(const struct sizes *sizes, int64_t in, int64_t stride) {
    return (in + 2 * sizes->padding - sizes->kernel) / stride + 1;
}

static struct weir__op_shape shape_of(const struct sizes *sizes, enum weir__op_code op) {
    struct weir__plane stride = {sizes->stride_y, sizes->stride_x};
    struct weir__plane out = {outputs_of(sizes, sizes->height, stride.height),
                              outputs_of(sizes, sizes->width, stride.width)};
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
                                              .groups = sizes->groups}};
}

/** Against the reference, and the same bits by several threads, wherever operands lie. */
static void compare(const struct sizes *sizes, enum weir__op_code op, bool has_bias) {
    struct weir__op_shape shape = shape_of(sizes, op);
    struct kernel_case test;
    struct kernel_results got, again, wanted;
    shape.has_bias = has_bias;
    kernel_case_init(&test, &shape);
    test.overwrite = has_bias;
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
    EXPECT_STATUS(kernel_run(&test, KERNEL_FAST, 0, &got), WEIR_OK);
    kernel_expect_near(&got, &wanted, kernel_tolerance(&wanted), "convolution");
    for (uint32_t threads = 1; threads <= 4; threads++) {
        test.shape.threads = threads;
        EXPECT_STATUS(kernel_run(&test, KERNEL_FAST, 64, &again), WEIR_OK);
        kernel_expect_same(&again, &got, "several threads");
        kernel_results_clean_up(&again);
    }
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

static void test_results_are_near_the_reference_whatever_the_threads(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(nets); i++)
        for (size_t o = 0; o < WEIR__COUNT_OF(ops) && !test_has_failed(); o++)
            compare(&nets[i], ops[o], (i + o) % 2 == 0);
}

/** Whatever has the largest row count, and whatever its number of threads. */
static void test_packed_weights_depend_on_the_largest_row_count_only(void) {
    if (weir__onednn_version()[0] == 0) SKIP("built without oneDNN");
    for (size_t i = 0; i < WEIR__COUNT_OF(nets); i++)
        for (size_t o = 0; o < WEIR__COUNT_OF(ops); o++) {
            const struct weir__kernel *kernel = kernel_fast()->kernel(ops[o], WEIR_F32);
            struct weir__op_shape shape = shape_of(&nets[i], ops[o]);
            size_t bytes, wanted;
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
}

static void test_planning_leaves_the_callers_threads(void) {
    uint32_t former = weir__kernel_threads(3);
    if (former == 0 || weir__onednn_version()[0] == 0) SKIP("built without oneDNN");
    for (size_t o = 0; o < WEIR__COUNT_OF(ops); o++) {
        const struct weir__kernel *kernel = kernel_fast()->kernel(ops[o], WEIR_F32);
        struct weir__op_shape shape = shape_of(&nets[1], ops[o]);
        void *state = NULL;
        size_t bytes;
        shape.threads = 2;
        EXPECT_STATUS(kernel->measure(&shape, &bytes), WEIR_OK);
        EXPECT_EQ_UINT(weir__kernel_threads(0), 3);
        EXPECT_STATUS(kernel->measure_pack(&shape, &bytes), WEIR_OK);
        EXPECT_EQ_UINT(weir__kernel_threads(0), 3);
        EXPECT_STATUS(kernel->prepare(&shape, NULL, &state), WEIR_OK);
        EXPECT_EQ_UINT(weir__kernel_threads(0), 3);
        kernel->release(state);
    }
    weir__kernel_threads(former);
}

WEIR_TEST_SUITE(kernel_conv, TEST(results_are_near_the_reference_whatever_the_threads),
                TEST(packed_weights_depend_on_the_largest_row_count_only),
                TEST(planning_leaves_the_callers_threads))

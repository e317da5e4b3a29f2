/* SPDX-License-Identifier: MIT */
/*
 * Goal: CUDA rows compute what net/kernel.h says at sizes that kernels_net's random ones do not
 * reach: where a launch changes its shape, or a thread comes round again. Method: as there, with
 * shapes that are written down.
 */
#include "harness.h"
#include "cuda/kernel_gpu.h"
#include "kernels/kernels.h"

#define NO_DRIVER "the fake CUDA driver was not built"

static void check_backend(const struct weir__op_shape *shape, enum kernel_backend backend) {
    struct kernel_case test;
    struct kernel_results got, wanted;
    kernel_case_init(&test, shape);
    if (backend == KERNEL_CUDA_BF16) kernel_case_narrow(&test);
    test.overwrite = test_random_below(2) == 0;
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    double tolerance =
        backend == KERNEL_CUDA_BF16 ? kernel_tolerance_bf16(&wanted) : kernel_tolerance(&wanted);
    kernel_expect_near(&got, &wanted, tolerance, kernel_backend_name(backend));
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

static void check(const struct weir__op_shape *shape) {
    check_backend(shape, KERNEL_CUDA);
    if (!test_has_failed()) check_backend(shape, KERNEL_CUDA_BF16);
}

/* A warp keeps 1024 numbers of a row, a block 8192. */
static void test_layer_norm_of_long_rows(void) {
    static const int64_t widths[] = {768, 1024, 1025, 1032, 2048, 8200, 10001};
    static const enum weir__op_code ops[] = {WEIR__OP_layer_norm,
                                             WEIR__OP_layer_norm_grad_input,
                                             WEIR__OP_layer_norm_grad_weight,
                                             WEIR__OP_add_layer_norm,
                                             WEIR__OP_add_layer_norm_grad_input,
                                             WEIR__OP_rms_norm,
                                             WEIR__OP_rms_norm_grad_input,
                                             WEIR__OP_rms_norm_grad_weight,
                                             WEIR__OP_residual_mix,
                                             WEIR__OP_residual_mix_grad,
                                             WEIR__OP_residual_mix_grad_weight};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (size_t w = 0; w < WEIR__COUNT_OF(widths); w++)
        for (size_t o = 0; o < WEIR__COUNT_OF(ops) && !test_has_failed(); o++)
            check(&(struct weir__op_shape){.op = ops[o],
                                           .rows = 3,
                                           .tokens = 1,
                                           .threads = 1,
                                           .width = widths[w],
                                           .sources = 3,
                                           .eps = 1e-5});
}

/* Parts of 32 rows, 256 at most. */
static void test_layer_norm_of_many_rows(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    check(&(struct weir__op_shape){.op = WEIR__OP_layer_norm_grad_weight,
                                   .rows = 8203,
                                   .tokens = 1,
                                   .threads = 1,
                                   .width = 5,
                                   .eps = 1e-5});
}

/* Rows of logits that no warp takes; those of odd length begin anywhere. */
static void test_cross_entropy_of_many_classes(void) {
    static const int64_t widths[] = {1024, 1025, 4104, 9001, 10003};
    static const enum weir__op_code ops[] = {WEIR__OP_cross_entropy, WEIR__OP_cross_entropy_grad};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (size_t w = 0; w < WEIR__COUNT_OF(widths); w++)
        for (size_t o = 0; o < WEIR__COUNT_OF(ops) && !test_has_failed(); o++)
            check(&(struct weir__op_shape){.op = ops[o],
                                           .rows = 9,
                                           .tokens = 1,
                                           .threads = 1,
                                           .width = widths[w],
                                           .sources = 3,
                                           .ignore_index = -100});
}

/* Rows of a table with more tokens than a list is ordered, or looked for at once; and all of them.
 */
static void test_embedding_grad_of_busy_rows(void) {
    static const int64_t tables[] = {1, 3, 25};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (size_t t = 0; t < WEIR__COUNT_OF(tables) && !test_has_failed(); t++)
        check(&(struct weir__op_shape){.op = WEIR__OP_embedding_grad,
                                       .rows = 70,
                                       .tokens = 10,
                                       .threads = 1,
                                       .in = tables[t],
                                       .out = 272,
                                       .width = 272});
}

/* A block sums up 4096 numbers, the last launch 2048 blocks at once. */
static void test_losses_of_many_numbers(void) {
    static const enum weir__op_code ops[] = {
        WEIR__OP_mse, WEIR__OP_mse_grad, WEIR__OP_bce_with_logits, WEIR__OP_bce_with_logits_grad};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (size_t o = 0; o < WEIR__COUNT_OF(ops) && !test_has_failed(); o++)
        check(&(struct weir__op_shape){
            .op = ops[o], .rows = 3, .tokens = 1, .threads = 1, .width = 4099});
}

/* More rows than one block adds up at once. */
static void test_cross_entropy_of_many_rows(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    check(&(struct weir__op_shape){.op = WEIR__OP_cross_entropy,
                                   .rows = 2500,
                                   .tokens = 1,
                                   .threads = 1,
                                   .width = 3,
                                   .ignore_index = -100});
}

/* Several parts of a plane, fewer threads than pixels, and more channels than a block has. */
static void test_instance_norm_of_many_pixels(void) {
    static const int64_t pixels[] = {4200, 1100, 130}, channels[] = {5, 64, 300};
    static const enum weir__op_code ops[] = {
        WEIR__OP_instance_norm, WEIR__OP_instance_norm_grad_input,
        WEIR__OP_instance_norm_grad_weight, WEIR__OP_instance_norm_act,
        WEIR__OP_instance_norm_act_grad};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (size_t o = 0; o < WEIR__COUNT_OF(ops); o++)
        for (size_t p = 0; p < WEIR__COUNT_OF(pixels) && !test_has_failed(); p++)
            check(&(struct weir__op_shape){.op = ops[o],
                                           .rows = 2,
                                           .tokens = pixels[p],
                                           .threads = 1,
                                           .width = channels[p],
                                           .has_bias = true,
                                           .eps = 1e-5,
                                           .slope = 0.01,
                                           .p = 0.25,
                                           .random_op = 77});
}

/* Means beside which deviations are so small that plain sums of floats, of 24 bits, know nothing of
 * them: 10^10 times in squares. Sums of 48 bits keep four digits. */
static void test_instance_norm_keeps_small_deviations(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (int64_t channels = 7; channels <= 8; channels++) {
        const struct weir__op_shape shape = {.op = WEIR__OP_instance_norm,
                                             .rows = 1,
                                             .tokens = 3001,
                                             .threads = 1,
                                             .width = channels,
                                             .eps = 1e-12};
        struct kernel_case test;
        struct kernel_results got, wanted;
        kernel_case_init(&test, &shape);
        for (int64_t i = 0; i < shape.tokens * channels; i++) {
            double mean = 1000.0 * (double)(i % channels + 1);
            test.in[0][i] = (float)(mean * (1 + 2e-5 * (test_random_unit() - 0.5)));
        }
        EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
        EXPECT_STATUS(kernel_run(&test, KERNEL_CUDA, 0, &got), WEIR_OK);
        for (int64_t c = 0; c < channels; c++) {
            EXPECT_NEAR(got.out[1][c] / wanted.out[1][c], 1, 0x1p-23);
            EXPECT_NEAR(got.out[2][c] / wanted.out[2][c], 1, 1e-3);
        }
        kernel_results_clean_up(&got);
        kernel_results_clean_up(&wanted);
        kernel_case_clean_up(&test);
    }
}

WEIR_TEST_SUITE(kernels_wide, TEST(layer_norm_of_long_rows), TEST(layer_norm_of_many_rows),
                TEST(cross_entropy_of_many_classes), TEST(embedding_grad_of_busy_rows),
                TEST(losses_of_many_numbers), TEST(cross_entropy_of_many_rows),
                TEST(instance_norm_of_many_pixels), TEST(instance_norm_keeps_small_deviations))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: attention with a cache is attention over the whole sequence, however its tokens come: all
 * at once, one by one, mixed with other sequences'. Method: the same tokens through `attention`,
 * and the same calls cut differently. On CUDA as everywhere else.
 */
#include "harness.h"
#include "cuda/kernel_gpu.h"
#include "kernels/kernels.h"

#include <string.h>

static const enum kernel_backend backends[] = {KERNEL_F64, KERNEL_F32, KERNEL_VECTOR, KERNEL_FAST,
                                               KERNEL_LEVEL_3_BF16};
#define FOR_BACKENDS(b) for (size_t b = 0; b < WEIR__COUNT_OF(backends); b++)
static const enum kernel_backend on_cuda[] = {KERNEL_CUDA, KERNEL_CUDA_BF16};
#define FOR_CUDA(b) for (size_t b = 0; b < WEIR__COUNT_OF(on_cuda); b++)

static void make_case(struct kernel_case *test, const struct weir__op_shape *shape,
                      enum kernel_backend backend) {
    kernel_case_init(test, shape);
    if (kernel_is_bf16(backend)) kernel_case_narrow(test);
}

/** Tokens 0 … of sequence 1 in one call. */
static void check_prompt(enum kernel_backend backend) {
    struct weir__op_shape shape = kernel_any_shape(WEIR__OP_attention_cached), whole = shape;
    struct kernel_case test, plain;
    struct kernel_results got, wanted;
    whole.op = WEIR__OP_attention;
    whole.tokens = shape.rows;
    whole.rows = 1;
    make_case(&test, &shape, backend);
    kernel_case_init(&plain, &whole);
    memcpy(plain.in[0], test.in[0], (size_t)test.operands.in[0].count * sizeof(double));
    for (int64_t r = 0; r < shape.rows; r++) test.sequence[r] = 1, test.place[r] = (uint32_t)r;
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    EXPECT_STATUS(kernel_run(&plain, KERNEL_F64, 0, &wanted), WEIR_OK);
    double tolerance = backend == KERNEL_F64 ? 0 : kernel_tolerance(&wanted);
    if (kernel_is_bf16(backend)) tolerance += 0x1p-8;
    double largest = kernel_largest(&wanted, 0, 1);
    for (int64_t i = 0; i < test.operands.out[0].count; i++)
        if (!EXPECT_NEAR(got.out[0][i], wanted.out[0][i], tolerance * largest)) break;
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
    kernel_case_clean_up(&plain);
}

static void test_a_prompt_gives_what_attention_gives(void) {
    FOR_BACKENDS(b)
    for (int i = 0; i < 30 && !test_has_failed(); i++) check_prompt(backends[b]);
}

/** Runs row `row` of a case alone, and hands the cache on to the next row's call. */
static void run_alone(const struct kernel_case *test, enum kernel_backend backend, int64_t row,
                      double *cache, double *y) {
    struct weir__op_shape shape = test->shape;
    struct kernel_case alone;
    struct kernel_results got;
    size_t width = (size_t)shape.width;
    shape.rows = 1;
    kernel_case_empty(&alone, &shape);
    alone.row_first = test->row_first + row;
    alone.sequence[0] = test->sequence[row];
    alone.place[0] = test->place[row];
    size_t cached = (size_t)alone.operands.out[1].count;
    memcpy(alone.in[0], test->in[0] + (size_t)row * 3 * width, 3 * width * sizeof(double));
    memcpy(alone.old[1], cache, cached * sizeof(double));
    EXPECT_STATUS(kernel_run(&alone, backend, 0, &got), WEIR_OK);
    memcpy(cache, got.out[1], cached * sizeof(double));
    memcpy(y + (size_t)row * width, got.out[0], width * sizeof(double));
    kernel_results_clean_up(&got);
    kernel_case_clean_up(&alone);
}

static void check_one_by_one(enum kernel_backend backend) {
    struct weir__op_shape shape = kernel_any_shape(WEIR__OP_attention_cached);
    struct kernel_case test;
    struct kernel_results wanted, got;
    make_case(&test, &shape, backend);
    kernel_results_init(&got, &test);
    EXPECT_STATUS(kernel_run(&test, backend, 0, &wanted), WEIR_OK);
    size_t cached = (size_t)test.operands.out[1].count;
    for (size_t i = 0; i < cached; i++)
        got.out[1][i] = backend == KERNEL_F64 ? test.old[1][i] : (double)(float)test.old[1][i];
    for (int64_t r = 0; r < shape.rows; r++) run_alone(&test, backend, r, got.out[1], got.out[0]);
    kernel_expect_same(&got, &wanted, kernel_backend_name(backend));
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

static void test_tokens_one_by_one_give_the_same_bits(void) {
    FOR_BACKENDS(b)
    for (int i = 0; i < 20 && !test_has_failed(); i++) check_one_by_one(backends[b]);
}

/** What a sequence's later places and other sequences hold does not matter. */
static void check_own_past(enum kernel_backend backend) {
    struct weir__op_shape shape = kernel_any_shape(WEIR__OP_attention_cached);
    struct kernel_case test;
    struct kernel_results wanted, got;
    make_case(&test, &shape, backend);
    for (int64_t r = 0; r < shape.rows; r++) test.sequence[r] = 1, test.place[r] = (uint32_t)r;
    EXPECT_STATUS(kernel_run(&test, backend, 0, &wanted), WEIR_OK);
    for (int64_t j = 0; j < test.operands.out[1].count; j++) test.old[1][j] = 1e30;
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    EXPECT_EQ_BYTES(got.out[0], wanted.out[0], (size_t)test.operands.out[0].count * sizeof(double));
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

static void test_only_a_sequences_own_past_counts(void) {
    FOR_BACKENDS(b)
    for (int i = 0; i < 20 && !test_has_failed(); i++) check_own_past(backends[b]);
}

static void test_cuda_does_the_same(void) {
    if (!kernel_gpu_is_there()) SKIP("the fake CUDA driver was not built");
    FOR_CUDA(b)
    for (int i = 0; i < 5 && !test_has_failed(); i++) {
        check_prompt(on_cuda[b]);
        check_one_by_one(on_cuda[b]);
        check_own_past(on_cuda[b]);
    }
}

/** More rows than a launch takes, and more places than a block has: up to three parts of 256. */
static void check_many_rows(const struct weir__op_shape *like, enum kernel_backend backend) {
    static const float frequencies[] = {1, 0.3F, 0.02F, 1e-4F};
    struct weir__op_shape shape = *like;
    struct kernel_case test;
    struct kernel_results wanted, got;
    shape.rows = shape.rows_max = 300;
    shape.tokens = shape.threads = 1;
    shape.table = 600;
    shape.frequencies = frequencies;
    make_case(&test, &shape, backend);
    for (int64_t r = 0; r < shape.rows; r++)
        test.sequence[r] = 1, test.place[r] = (uint32_t)(2 * r);
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    double unit = kernel_is_bf16(backend) ? 0x1p-8 : 0;
    kernel_expect_near(&got, &wanted, kernel_tolerance(&wanted) + unit,
                       kernel_backend_name(backend));
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

static void test_cuda_takes_any_number_of_rows(void) {
    static const struct weir__op_shape shapes[] = {
        {.op = WEIR__OP_attention_cached, .heads = 1, .width = 8},
        {.op = WEIR__OP_position_cached, .width = 8},
        {.op = WEIR__OP_grouped_attention_cached, .heads = 2, .kv_heads = 1, .width = 16},
        {.op = WEIR__OP_grouped_attention_cached,
         .heads = 2,
         .kv_heads = 1,
         .width = 8,
         .reach = 257},
        {.op = WEIR__OP_grouped_attention_cached,
         .heads = 1,
         .kv_heads = 1,
         .width = 3,
         .reach = 256},
        {.op = WEIR__OP_rope_cached, .heads = 2, .width = 16},
    };
    if (!kernel_gpu_is_there()) SKIP("the fake CUDA driver was not built");
    FOR_CUDA(b)
    for (size_t i = 0; i < WEIR__COUNT_OF(shapes) && !test_has_failed(); i++)
        check_many_rows(&shapes[i], on_cuda[b]);
}

WEIR_TEST_SUITE(kernel_cached, TEST(a_prompt_gives_what_attention_gives),
                TEST(tokens_one_by_one_give_the_same_bits), TEST(only_a_sequences_own_past_counts),
                TEST(cuda_does_the_same), TEST(cuda_takes_any_number_of_rows))

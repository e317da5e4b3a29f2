/* SPDX-License-Identifier: MIT */
/*
 * Goal: attention on CUDA at its edges: every size of heads that has a kernel of its own, heads
 * that share keys, windows, sequences of one token and of several tiles, scores that exp cannot
 * take, numbers that are none. Method: as in test_kernels_net.c, on shapes chosen for it; in BF16
 * by our kernels as well where a library has attention (on the fake driver, for threes of heads).
 */
#include "harness.h"
#include "cuda/kernel_gpu.h"
#include "kernels/kernels.h"
#include "net/cuda/cuda.h"

#include <math.h>
#include <string.h>

#define NO_DRIVER "the fake CUDA driver was not built"
enum { HEADS = 3 };

struct way {
    enum kernel_backend backend;
    bool own;
    const char *name;
};
static const struct way ways[] = {{KERNEL_CUDA, false, "CUDA f32"},
                                  {KERNEL_CUDA_BF16, false, "CUDA bf16"},
                                  {KERNEL_CUDA_BF16, true, "CUDA bf16, ours"}};
#define FOR_WAYS(w)                                                                                \
    for (const struct way *w = ways; w < ways + WEIR__COUNT_OF(ways) && !test_has_failed(); w++)

static struct weir__op_shape shape_of(enum weir__op_code op, int64_t rows, int64_t tokens,
                                      int64_t heads, int64_t size) {
    return (struct weir__op_shape){.op = op,
                                   .rows = rows,
                                   .rows_max = rows,
                                   .tokens = tokens,
                                   .heads = heads,
                                   .width = heads * size,
                                   .threads = 1};
}

static void run(struct kernel_case *test, const struct way *way, struct kernel_results *got) {
    test->own = way->own;
    EXPECT_STATUS(kernel_run(test, way->backend, 0, got), WEIR_OK);
}

static void compare(const struct weir__op_shape *shape, const struct way *way) {
    struct kernel_case test;
    struct kernel_results got, wanted;
    kernel_case_init(&test, shape);
    if (way->backend == KERNEL_CUDA_BF16) kernel_case_narrow(&test);
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
    run(&test, way, &got);
    double tolerance = way->backend == KERNEL_CUDA_BF16 ? kernel_tolerance_bf16(&wanted)
                                                        : kernel_tolerance(&wanted);
    kernel_expect_near(&got, &wanted, tolerance, way->name);
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

static void test_heads_of_any_size(void) {
    static const int64_t sizes[] = {64, 100, 128, 129, 200, 256};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    FOR_WAYS(way)
    for (size_t i = 0; i < WEIR__COUNT_OF(sizes) && !test_has_failed(); i++) {
        int64_t tokens = 60 + (int64_t)test_random_below(12);
        struct weir__op_shape shape = shape_of(WEIR__OP_attention, 1, tokens, HEADS, sizes[i]);
        shape.sees_all = test_random_below(2) == 0;
        compare(&shape, way);
        shape.op = WEIR__OP_attention_grad;
        compare(&shape, way);
    }
}

static void test_heads_that_are_too_wide_are_refused(void) {
    static const enum weir__op_code ops[] = {WEIR__OP_attention, WEIR__OP_attention_grad,
                                             WEIR__OP_grouped_attention, WEIR__OP_rope,
                                             WEIR__OP_grouped_attention_cached};
    for (size_t i = 0; i < WEIR__COUNT_OF(ops); i++) {
        const struct weir__kernel *kernel = weir__backend_cuda.kernel(ops[i], WEIR_F32);
        struct weir__op_shape shape = shape_of(ops[i], 1, 4, 2, 256);
        size_t workspace = 0;
        EXPECT_STATUS(kernel->measure(&shape, &workspace), WEIR_OK);
        shape.width = 2 * (ops[i] == WEIR__OP_rope ? 258 : 257); /* its sizes are even */
        EXPECT_STATUS(kernel->measure(&shape, &workspace), WEIR_ERR_UNSUPPORTED);
    }
}

static void test_a_long_sequence(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    FOR_WAYS(way) {
        struct weir__op_shape shape = shape_of(WEIR__OP_attention, 1, 300, HEADS, 64);
        compare(&shape, way);
        shape.sees_all = true;
        compare(&shape, way);
        shape.op = WEIR__OP_attention_grad;
        compare(&shape, way);
        shape.sees_all = false;
        compare(&shape, way);
    }
}

/* ---- heads that share keys, and windows ---- */

static struct weir__op_shape grouped_of(enum weir__op_code op, int64_t tokens, int64_t kv_heads,
                                        int64_t group, int64_t size) {
    struct weir__op_shape shape = shape_of(op, 1, tokens, kv_heads * group, size);
    shape.kv_heads = kv_heads;
    return shape;
}

/** Of several tiles, before, at and behind the ends of which a window may begin. */
static void test_heads_share_keys_within_windows(void) {
    static const int64_t sizes[] = {64, 128, 24, 40, 129, 20}, reaches[] = {0, 1, 31, 64, 65, 129};
    static const int64_t groups[] = {1, 3, 2, 4, 2, 3};
    static const struct way own[] = {{KERNEL_CUDA, false, "CUDA f32"},
                                     {KERNEL_CUDA_BF16, false, "CUDA bf16"}};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (size_t i = 0; i < WEIR__COUNT_OF(sizes); i++)
        for (size_t r = i % 2; r < WEIR__COUNT_OF(reaches) && !test_has_failed(); r += 2) {
            struct weir__op_shape shape =
                grouped_of(WEIR__OP_grouped_attention, 130 + (int64_t)test_random_below(70),
                           1 + (int64_t)i % 2, groups[i], sizes[i]);
            shape.reach = reaches[r];
            compare(&shape, &own[r / 2 % 2]);
            shape.op = WEIR__OP_grouped_attention_grad;
            compare(&shape, &own[r / 2 % 2]);
        }
}

/** (R, T, parts, C), as `attention` has its operands, becomes `parts` operands, as grouped. */
static void part_operand(double *const *to, const double *from, int64_t tokens, int64_t width) {
    for (int64_t t = 0; t < tokens; t++)
        for (int i = 0; i < 3; i++)
            memcpy(to[i] + t * width, from + (3 * t + i) * width, (size_t)width * sizeof(double));
}

/** What `attention` gives where heads have keys of their own, bit for bit, a window of all keys
 * too. */
static void check_as_attention(const struct way *way, bool backward) {
    int64_t tokens = 131, width = HEADS * 40;
    struct weir__op_shape whole =
        shape_of(backward ? WEIR__OP_attention_grad : WEIR__OP_attention, 1, tokens, HEADS, 40);
    struct weir__op_shape parted =
        grouped_of(backward ? WEIR__OP_grouped_attention_grad : WEIR__OP_grouped_attention, tokens,
                   HEADS, 1, 40);
    struct kernel_case test, grouped;
    struct kernel_results wanted, got, expected;
    parted.reach = (int64_t)test_random_below(2) * tokens;
    kernel_case_init(&test, &whole);
    kernel_case_empty(&grouped, &parted);
    part_operand(grouped.in + backward, test.in[backward], tokens, width);
    if (backward) {
        memcpy(grouped.in[0], test.in[0], (size_t)(tokens * width) * sizeof(double));
        memcpy(grouped.in[4], test.in[2], (size_t)(tokens * width) * sizeof(double));
        memcpy(grouped.in[5], test.in[3], (size_t)(tokens * HEADS) * sizeof(double));
    }
    run(&test, way, &wanted);
    run(&grouped, way, &got);
    kernel_results_init(&expected, &grouped);
    if (backward)
        part_operand(expected.out, wanted.out[0], tokens, width);
    else
        for (int i = 0; i < 2; i++)
            memcpy(expected.out[i], wanted.out[i],
                   (size_t)grouped.operands.out[i].count * sizeof(double));
    kernel_expect_same(&got, &expected, way->name);
    kernel_results_clean_up(&expected);
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&grouped);
    kernel_case_clean_up(&test);
}

static void test_heads_with_keys_of_their_own_have_attentions_bits(void) {
    static const struct way own[] = {{KERNEL_CUDA, true, "CUDA f32"},
                                     {KERNEL_CUDA_BF16, true, "CUDA bf16, ours"}};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (int i = 0; i < 4 && !test_has_failed(); i++) check_as_attention(&own[i / 2], i % 2 == 1);
}

/** A single token's share is 1: y is v, bit for bit. */
static void test_one_token_sees_itself(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    FOR_WAYS(way) {
        struct weir__op_shape shape = shape_of(WEIR__OP_attention, 3, 1, HEADS, 64);
        struct kernel_case test;
        struct kernel_results got;
        kernel_case_init(&test, &shape);
        kernel_case_narrow(&test);
        run(&test, way, &got);
        for (int64_t r = 0; r < shape.rows; r++)
            EXPECT_EQ_BYTES(got.out[0] + r * shape.width, test.in[0] + (3 * r + 2) * shape.width,
                            (size_t)shape.width * sizeof(double));
        kernel_results_clean_up(&got);
        kernel_case_clean_up(&test);
        shape.op = WEIR__OP_attention_grad;
        compare(&shape, way);
    }
}

/** Scores of some ten thousands, first small ones and then large ones, too: exp of one overflows,
 * and so does that of a difference to the largest of the first tile. */
static void test_large_scores_do_not_overflow(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    FOR_WAYS(way) {
        struct weir__op_shape shape = shape_of(WEIR__OP_attention, 1, 150, HEADS, 64);
        struct kernel_case test;
        struct kernel_results got, wanted;
        kernel_case_init(&test, &shape);
        for (int64_t t = 0; t < shape.tokens; t++)
            for (int64_t i = 0; i < 2 * shape.width; i++)
                test.in[0][t * 3 * shape.width + i] *= t < 64 ? 1 : 200;
        kernel_case_narrow(&test);
        EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
        run(&test, way, &got);
        double largest = kernel_largest(&wanted, 1, 1), tolerance = kernel_tolerance(&wanted);
        EXPECT(largest > 1e4);
        for (int64_t t = 0; t < HEADS * shape.tokens; t++)
            if (!EXPECT_NEAR(got.out[1][t], wanted.out[1][t], tolerance * largest)) break;
        for (int64_t i = 0; i < shape.tokens * shape.width; i++)
            if (!EXPECT(fabs(got.out[0][i]) <= 2.02)) break;
        kernel_results_clean_up(&got);
        kernel_results_clean_up(&wanted);
        kernel_case_clean_up(&test);
    }
}

/** And nothing else does. */
static void test_what_is_no_number_in_q_shows_in_lse(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    FOR_WAYS(way) {
        struct weir__op_shape shape = shape_of(WEIR__OP_attention, 2, 70, HEADS, 64);
        struct kernel_case test;
        struct kernel_results got;
        int64_t row = (int64_t)test_random_below(2), head = (int64_t)test_random_below(HEADS);
        int64_t token = (int64_t)test_random_below(70), at = (int64_t)test_random_below(64);
        int64_t found = (row * HEADS + head) * 70 + token;
        kernel_case_init(&test, &shape);
        test.in[0][(row * 70 + token) * 3 * shape.width + head * 64 + at] = NAN;
        run(&test, way, &got);
        for (int64_t i = 0; i < test.operands.out[1].count; i++)
            if (!EXPECT_EQ_INT(isnan(got.out[1][i]), i == found)) break;
        for (int64_t i = 0; i < test.operands.out[0].count; i++)
            if (!EXPECT_EQ_INT(isnan(got.out[0][i]), i / 64 == (row * 70 + token) * HEADS + head))
                break;
        kernel_results_clean_up(&got);
        kernel_case_clean_up(&test);
    }
}

/** A case's row alone; its inputs are laid out by rows, all of them. */
static void check_alone(const struct kernel_case *test, const struct kernel_results *wanted,
                        const struct way *way, int64_t row) {
    struct weir__op_shape shape = test->shape;
    struct kernel_case alone;
    struct kernel_results got;
    shape.rows = 1;
    kernel_case_empty(&alone, &shape);
    for (int i = 0; i < KERNEL_INS; i++) {
        int64_t count = alone.operands.in[i].count;
        if (count > 0)
            memcpy(alone.in[i], test->in[i] + row * count, (size_t)count * sizeof(double));
    }
    run(&alone, way, &got);
    for (int i = 0; i < KERNEL_OUTS; i++) {
        int64_t count = alone.operands.out[i].count;
        if (count > 0)
            EXPECT_EQ_BYTES(got.out[i], wanted->out[i] + row * count,
                            (size_t)count * sizeof(double));
    }
    kernel_results_clean_up(&got);
    kernel_case_clean_up(&alone);
}

static void test_rows_know_nothing_of_each_other(void) {
    static const enum weir__op_code ops[] = {WEIR__OP_attention, WEIR__OP_attention_grad,
                                             WEIR__OP_grouped_attention,
                                             WEIR__OP_grouped_attention_grad};
    static const int64_t sizes[] = {5, 64};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    FOR_WAYS(way)
    for (size_t i = 0; i < 2 * WEIR__COUNT_OF(ops); i++) {
        struct weir__op_shape shape = shape_of(ops[i / 2], 3, 66, HEADS, sizes[i % 2]);
        if (i >= 4) shape.kv_heads = 1, shape.reach = 40;
        struct kernel_case test;
        struct kernel_results wanted;
        kernel_case_init(&test, &shape);
        run(&test, way, &wanted);
        for (int64_t row = 0; row < shape.rows; row++) check_alone(&test, &wanted, way, row);
        kernel_results_clean_up(&wanted);
        kernel_case_clean_up(&test);
    }
}

WEIR_TEST_SUITE(kernels_attention, TEST(heads_of_any_size),
                TEST(heads_that_are_too_wide_are_refused), TEST(a_long_sequence),
                TEST(heads_share_keys_within_windows),
                TEST(heads_with_keys_of_their_own_have_attentions_bits),
                TEST(one_token_sees_itself), TEST(large_scores_do_not_overflow),
                TEST(what_is_no_number_in_q_shows_in_lse), TEST(rows_know_nothing_of_each_other))

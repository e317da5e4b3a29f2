/* SPDX-License-Identifier: MIT */
/*
 * Goal: every CPU kernel computes what net/kernel.h says, at any size. Method: the f64 reference is
 * held against central differences of itself (gradients against forwards); every f32 kernel against
 * the f64 reference over ragged sizes, within kernel_tolerance(); and bits against bits: other
 * addresses, other places of a row, the same call again. PyTorch's numbers are in
 * test_golden_ops.c.
 */
#include "harness.h"
#include "kernels/kernels.h"
#include "net/cpu/cpu.h"

#include <math.h>
#include <string.h>

/** Runs through all ops that backends have. */
#define FOR_OPS(op)                                                                                \
    for (enum weir__op_code op = 0; op < WEIR__OP_COUNT; op++)                                     \
        if (!kernel_is_the_users(op))

/* ---- against the f64 reference ---- */

static void compare_with_reference(enum weir__op_code op, enum kernel_backend backend) {
    struct weir__op_shape shape = kernel_any_shape(op);
    struct kernel_case test;
    struct kernel_results got, wanted;
    kernel_case_init(&test, &shape);
    test.overwrite = test_random_below(2) == 0;
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    kernel_expect_near(&got, &wanted, kernel_tolerance(&wanted), kernel_backend_name(backend));
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

static void compare_all(enum kernel_backend backend) {
    FOR_OPS(op)
    for (int i = 0; i < 40 && !test_has_failed(); i++) compare_with_reference(op, backend);
}

static void test_reference_f32_is_near_f64(void) {
    compare_all(KERNEL_F32);
}

static void test_vector_kernels_are_near_f64(void) {
    compare_all(KERNEL_VECTOR);
}

static void test_lower_levels_are_near_f64(void) {
    compare_all(KERNEL_LEVEL_1);
    compare_all(KERNEL_LEVEL_2);
}

static void test_fast_kernels_are_near_f64(void) {
    compare_all(KERNEL_FAST);
}

/* ---- bits ---- */

static void test_addresses_and_repetition_change_no_bit(void) {
    FOR_OPS(op)
    for (int i = 0; i < 12 && !test_has_failed(); i++) {
        struct weir__op_shape shape = kernel_any_shape(op);
        struct kernel_case test;
        struct kernel_results a, b;
        kernel_case_init(&test, &shape);
        test.overwrite = i % 2 == 0;
        enum kernel_backend backend = i % 3 == 0 ? KERNEL_VECTOR : KERNEL_FAST;
        EXPECT_STATUS(kernel_run(&test, backend, 0, &a), WEIR_OK);
        EXPECT_STATUS(kernel_run(&test, backend, 64 * (size_t)(1 + i), &b), WEIR_OK);
        kernel_expect_same(&b, &a, "64-byte shift");
        kernel_results_clean_up(&a);
        kernel_results_clean_up(&b);
        kernel_case_clean_up(&test);
    }
}

/** Rotates the micro-batch by one row: operands that have one part per row. */
static void rotate(struct kernel_case *test) {
    int64_t rows = test->shape.rows;
    for (int i = 0; i < KERNEL_INS; i++) {
        int64_t part = test->operands.in[i].count / rows;
        if (test->operands.in[i].shared || test->in[i] == NULL) continue;
        for (int64_t j = 0; j < part; j++) {
            double last = test->in[i][(rows - 1) * part + j];
            for (int64_t r = rows - 1; r > 0; r--)
                test->in[i][r * part + j] = test->in[i][(r - 1) * part + j];
            test->in[i][j] = last;
        }
    }
}

/** Whether a row's results depend on nothing but its own numbers and parameters. */
static bool rows_stand_alone(const struct kernel_case *test) {
    for (int i = 0; i < KERNEL_INS; i++)
        if (test->index[i] != NULL || test->operands.in[i].wide) return false;
    return !test->operands.out[1].wide && test->place == NULL && !test->operands.accumulates &&
           test->operands.out[0].kind != OPERAND_LOSS;
}

static void expect_rotated(const struct kernel_results *a, const struct kernel_results *b) {
    int64_t rows = a->test->shape.rows;
    for (int i = 0; i < KERNEL_OUTS; i++) {
        int64_t count = a->test->operands.out[i].count, part = count / rows;
        for (int64_t j = 0; j < count; j++)
            CHECK_EQ_BYTES(&b->out[i][(j + part) % count], &a->out[i][j], sizeof(double));
    }
}

static void compare_rotated(const struct kernel_case *given, enum kernel_backend backend) {
    struct kernel_results a, b;
    struct kernel_case test = *given;
    EXPECT_STATUS(kernel_run(&test, backend, 0, &a), WEIR_OK);
    rotate(&test);
    EXPECT_STATUS(kernel_run(&test, backend, 0, &b), WEIR_OK);
    expect_rotated(&a, &b);
    kernel_results_clean_up(&a);
    kernel_results_clean_up(&b);
}

static void test_a_rows_bits_do_not_depend_on_its_place(void) {
    int compared = 0;
    FOR_OPS(op)
    for (int i = 0; i < 10 && !test_has_failed(); i++) {
        struct weir__op_shape shape = kernel_any_shape(op);
        struct kernel_case test;
        shape.p = 0; /* masks depend on the place */
        kernel_case_init(&test, &shape);
        if (rows_stand_alone(&test)) {
            compare_rotated(&test, i % 2 == 0 ? KERNEL_VECTOR : KERNEL_FAST);
            compared++;
        }
        kernel_case_clean_up(&test);
    }
    EXPECT(test_has_failed() || compared > 300);
}

/** Whether vector kernels' sums go on from what is there. */
static bool is_chain(const struct weir__op_shape *shape) {
    struct weir__op_shape product;
    return shape->op == WEIR__OP_linear_grad_weight || shape->op == WEIR__OP_bias_grad ||
           shape->op == WEIR__OP_linear_cross_entropy_grad ||
           (shape->op == WEIR__OP_conv2d_grad_weight && weir__conv_as_product(shape, &product));
}

/** "The new sum is made first, then added once." */
static void test_accumulating_adds_the_finished_sum(void) {
    FOR_OPS(op)
    for (int i = 0; i < 20 && !test_has_failed(); i++) {
        struct weir__op_shape shape = kernel_any_shape(op);
        struct kernel_case test;
        struct kernel_results set, added;
        kernel_case_init(&test, &shape);
        enum kernel_backend backend = i % 2 == 0 ? KERNEL_VECTOR : KERNEL_FAST;
        if (test.operands.accumulates && !is_chain(&shape)) {
            EXPECT_STATUS(kernel_run(&test, backend, 0, &set), WEIR_OK);
            test.overwrite = false;
            EXPECT_STATUS(kernel_run(&test, backend, 0, &added), WEIR_OK);
            for (int o = test.operands.written; o < KERNEL_OUTS; o++)
                for (int64_t j = 0; j < test.operands.out[o].count; j++)
                    set.out[o][j] = (float)test.old[o][j] + (float)set.out[o][j];
            kernel_expect_same(&added, &set, kernel_backend_name(backend));
            kernel_results_clean_up(&set);
            kernel_results_clean_up(&added);
        }
        kernel_case_clean_up(&test);
    }
}

/** Copies `rows` rows of the whole's inputs, from `first` on. */
static void take_rows(struct kernel_case *part, const struct kernel_case *whole, int64_t first) {
    for (int i = 0; i < KERNEL_INS; i++) {
        int64_t count = part->operands.in[i].count, all = whole->operands.in[i].count;
        int64_t from = count == all ? 0 : all / whole->shape.rows * first;
        if (part->in[i] != NULL)
            memcpy(part->in[i], whole->in[i] + from, (size_t)count * sizeof(double));
        if (part->index[i] != NULL)
            memcpy(part->index[i], whole->index[i] + from, (size_t)count * sizeof(int64_t));
    }
    part->loss_weight = whole->loss_weight;
}

/** A micro-batch of all rows against two, one after the other. */
static void compare_parts(const struct kernel_case *whole, enum kernel_backend backend) {
    const int64_t rows = whole->shape.rows,
                  cut = 1 + (int64_t)test_random_below((uint64_t)rows - 1);
    struct weir__op_shape shapes[] = {whole->shape, whole->shape};
    struct kernel_case parts[2];
    struct kernel_results wanted, got[2];
    EXPECT_STATUS(kernel_run(whole, backend, 0, &wanted), WEIR_OK);
    for (int p = 0; p < 2; p++) {
        shapes[p].rows = p == 0 ? cut : rows - cut;
        kernel_case_empty(&parts[p], &shapes[p]);
        take_rows(&parts[p], whole, p == 0 ? 0 : cut);
        parts[p].overwrite = p == 0;
        for (int o = 0; p == 1 && o < KERNEL_OUTS; o++)
            if (parts[p].old[o] != NULL && o >= whole->operands.written)
                memcpy(parts[p].old[o], got[0].out[o],
                       (size_t)whole->operands.out[o].count * sizeof(double));
        EXPECT_STATUS(kernel_run(&parts[p], backend, 0, &got[p]), WEIR_OK);
    }
    for (int o = whole->operands.written; o < KERNEL_OUTS; o++)
        if (wanted.out[o] != NULL)
            EXPECT_EQ_BYTES(got[1].out[o], wanted.out[o],
                            (size_t)whole->operands.out[o].count * sizeof(double));
    kernel_results_clean_up(&wanted);
    for (int p = 0; p < 2; p++) {
        kernel_results_clean_up(&got[p]);
        kernel_case_clean_up(&parts[p]);
    }
}

static void test_chains_go_on_from_micro_batch_to_micro_batch(void) {
    FOR_OPS(op)
    for (int i = 0; i < 20 && !test_has_failed(); i++) {
        struct weir__op_shape shape = kernel_any_shape(op);
        struct kernel_case test;
        if (!is_chain(&shape) || shape.rows < 2) continue;
        kernel_case_init(&test, &shape);
        compare_parts(&test, i % 2 == 0 ? KERNEL_VECTOR : KERNEL_LEVEL_1);
        kernel_case_clean_up(&test);
    }
}

WEIR_TEST_SUITE(kernels, TEST(reference_f32_is_near_f64), TEST(vector_kernels_are_near_f64),
                TEST(lower_levels_are_near_f64), TEST(fast_kernels_are_near_f64),
                TEST(addresses_and_repetition_change_no_bit),
                TEST(a_rows_bits_do_not_depend_on_its_place),
                TEST(accumulating_adds_the_finished_sum),
                TEST(chains_go_on_from_micro_batch_to_micro_batch))

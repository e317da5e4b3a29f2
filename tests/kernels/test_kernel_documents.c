/* SPDX-License-Identifier: MIT */
/*
 * Goal: documents of a packed row are computed as each in a row of its own, number for number, by
 * every back end; and wrong ones are refused. Method: attention, its gradient and rotary positions
 * of random packed rows, against the same of each document alone: a query's place in its block, and
 * what else the block holds, must not be in its bits.
 */
#include "harness.h"
#include "kernels/kernels.h"

#include <string.h>

enum { CASES = 12 };

static const enum kernel_backend backends[] = {KERNEL_F64,          KERNEL_F32,
                                               KERNEL_LEVEL_1,      KERNEL_LEVEL_2,
                                               KERNEL_VECTOR,       KERNEL_LEVEL_1_BF16,
                                               KERNEL_LEVEL_2_BF16, KERNEL_LEVEL_4_BF16};

/** A document of a micro-batch: `count` tokens of `row`, from `first` on. */
struct document {
    int64_t row, first, count;
};

/** The document's part of an operand, which is by tokens, or by heads and then tokens. */
static void take(const struct weir__op_shape *shape, const struct document *document,
                 const struct operand *operand, bool by_heads, const double *from, double *to) {
    int64_t tokens = shape->tokens, lists = by_heads ? shape->heads : 1;
    int64_t width = operand->count / (shape->rows * tokens * lists);
    size_t bytes = (size_t)(document->count * width) * sizeof *to;
    for (int64_t l = 0; l < lists; l++) {
        int64_t at = (document->row * lists + l) * tokens + document->first;
        memcpy(to + l * document->count * width, from + at * width, bytes);
    }
}

/** Logarithms of sums stand by heads. */
static bool is_by_heads(enum weir__op_code op, bool output, int i) {
    return output ? op == WEIR__OP_grouped_attention && i == 1
                  : op == WEIR__OP_grouped_attention_grad && i == 5;
}

static void compare_document(const struct kernel_case *test, const struct kernel_results *whole,
                             enum kernel_backend backend, const struct document *document) {
    struct weir__op_shape shape = test->shape;
    struct kernel_case alone;
    struct kernel_results got, wanted;
    shape.rows = shape.rows_max = 1;
    shape.tokens = document->count;
    shape.packed = false;
    kernel_case_empty(&alone, &shape);
    for (int i = 0; i < KERNEL_INS; i++)
        if (alone.in[i] != NULL)
            take(&test->shape, document, &test->operands.in[i],
                 is_by_heads(shape.op, false, i), test->in[i], alone.in[i]);
    EXPECT_STATUS(kernel_run(&alone, backend, 0, &wanted), WEIR_OK);
    kernel_results_init(&got, &alone);
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (got.out[i] != NULL)
            take(&test->shape, document, &test->operands.out[i], is_by_heads(shape.op, true, i),
                 whole->out[i], got.out[i]);
    kernel_expect_same(&got, &wanted, kernel_backend_name(backend));
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&alone);
}

/** Which input documents are. */
static const int64_t *documents_of(const struct kernel_case *test) {
    int i = 0;
    while (test->index[i] == NULL) i++;
    return test->index[i];
}

static void compare(enum weir__op_code op, enum kernel_backend backend) {
    struct weir__op_shape shape = kernel_any_shape(op);
    struct kernel_case test;
    struct kernel_results whole;
    shape.packed = true;
    kernel_case_init(&test, &shape);
    if (kernel_is_bf16(backend)) kernel_case_narrow(&test);
    EXPECT_STATUS(kernel_run(&test, backend, 0, &whole), WEIR_OK);
    for (int64_t r = 0; r < shape.rows; r++) {
        const int64_t *firsts = documents_of(&test) + (2 * r + 1) * shape.tokens;
        for (int64_t t = 0, end; t < shape.tokens && !test_has_failed(); t = end) {
            for (end = t + 1; end < shape.tokens && firsts[end] == t;) end++;
            const struct document document = {r, t, end - t};
            compare_document(&test, &whole, backend, &document);
        }
    }
    kernel_results_clean_up(&whole);
    kernel_case_clean_up(&test);
}

static void test_documents_are_computed_as_rows_of_their_own(void) {
    static const enum weir__op_code ops[] = {
        WEIR__OP_grouped_attention, WEIR__OP_grouped_attention_grad, WEIR__OP_rope,
        WEIR__OP_rope_grad};
    for (size_t o = 0; o < WEIR__COUNT_OF(ops); o++)
        for (size_t b = 0; b < WEIR__COUNT_OF(backends); b++)
            for (int i = 0; i < CASES && !test_has_failed(); i++) compare(ops[o], backends[b]);
}

/** Of 5 tokens; wrong at the last. */
static const int64_t wrong[][5] = {{1}, {-1}, {0, 0, 0, 4, 4}, {0, 1, 0}, {0, 0, 2, 2, 5}};

static void expect_refusal(enum kernel_backend backend, const int64_t firsts[5]) {
    struct weir__op_shape shape = {.op = WEIR__OP_embedding,
                                   .rows = 2,
                                   .tokens = 5,
                                   .in = 7,
                                   .out = 3,
                                   .width = 3,
                                   .packed = true};
    struct weir_error error = {0};
    struct kernel_case test;
    struct kernel_results got;
    kernel_case_init(&test, &shape);
    test.error = &error;
    memcpy(test.index[0] + 15, firsts, 5 * sizeof firsts[0]);
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_ERR_ARGUMENT);
    EXPECT_CONTAINS(error.message, "of the micro-batch's row 1 begins at token");
    kernel_results_clean_up(&got);
    kernel_case_clean_up(&test);
}

static void test_documents_that_cannot_be_are_refused(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(wrong); i++) {
        expect_refusal(KERNEL_F64, wrong[i]);
        expect_refusal(KERNEL_VECTOR, wrong[i]);
    }
}

WEIR_TEST_SUITE(kernel_documents, TEST(documents_are_computed_as_rows_of_their_own),
                TEST(documents_that_cannot_be_are_refused))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: products and embeddings read weights that are stored as BF16 and give the bits that the
 * same weights give as floats, from no byte beyond them. Method: every level, at ragged sizes, in
 * buffers that are exactly as long as what they hold and begin anywhere that numbers may.
 */
#include "base/base.h"
#include "harness.h"
#include "device/device.h"
#include "net/backend.h"
#include "net/cpu/level.h"

#include <string.h>

/* Around a tile's columns, a vector, a part of the depth and a block; few rows and many. */
static const int64_t sizes[] = {1, 2, 15, 16, 17, 31, 33, 64, 100, 257, 400, 530};
static const int64_t row_counts[] = {1, 3, 9, 40};

struct stored_case {
    struct weir__op_shape shape;
    int64_t ins, outs, weights; /* numbers */
    uint16_t *halves;
    float *floats;
    void *in; /* at the shape's dtype; of an embedding indices */
};

static void *buffer(int64_t count, size_t each) {
    void *data = weir__acquire(test_allocator(), (size_t)count, each);
    EXPECT(data != NULL);
    return data;
}

static size_t in_bytes(const struct stored_case *test) {
    bool indices = test->shape.op == WEIR__OP_embedding;
    return indices ? sizeof(int64_t) : weir_dtype_bytes(test->shape.dtype);
}

/* A random bf16 of any sign, below 4. */
static uint16_t any_half(void) {
    return (uint16_t)(test_random_below(0x4080) | test_random_below(2) << 15);
}

static void fill(struct stored_case *test) {
    test->halves = buffer(test->weights, 2);
    test->floats = buffer(test->weights, 4);
    test->in = buffer(test->ins, in_bytes(test));
    for (int64_t i = 0; i < test->weights; i++) {
        test->halves[i] = any_half();
        uint32_t bits = (uint32_t)test->halves[i] << 16;
        memcpy(&test->floats[i], &bits, sizeof bits);
    }
    for (int64_t i = 0; i < test->ins; i++) {
        uint32_t bits = (uint32_t)any_half() << 16;
        if (test->shape.op == WEIR__OP_embedding)
            ((int64_t *)test->in)[i] = (int64_t)test_random_below((uint64_t)test->shape.in);
        else if (test->shape.dtype == WEIR_BF16)
            ((uint16_t *)test->in)[i] = (uint16_t)(bits >> 16);
        else
            memcpy((float *)test->in + i, &bits, sizeof bits);
    }
}

static void *run(const struct stored_case *test, const struct weir__kernel *kernel, bool narrow) {
    struct weir__op_shape shape = test->shape;
    size_t workspace = 0, number = weir_dtype_bytes(shape.dtype);
    shape.stored = narrow ? WEIR_BF16 : WEIR_F32;
    EXPECT_STATUS(weir__kernel_workspace(kernel, &shape, &workspace), WEIR_OK);
    void *out = buffer(test->outs, number), *scratch = buffer((int64_t)workspace + 1, 1);
    memset(out, 0, (size_t)test->outs * number); /* what is added to, in place */
    const void *weights = narrow ? (const void *)test->halves : test->floats;
    struct weir_stream stream = {.team = NULL};
    const struct weir__op_call call = {.shape = &shape,
                                       .in = (const void *[]){test->in, weights, out},
                                       .out = &out,
                                       .workspace = scratch,
                                       .stream = &stream};
    EXPECT_STATUS(kernel->run(&call), WEIR_OK);
    weir__release(test_allocator(), scratch, workspace + 1, 1);
    return out;
}

static void compare(struct stored_case *test, const struct weir__level *level) {
    const struct weir__kernel *kernel = level->backend->kernel(test->shape.op, test->shape.dtype);
    size_t number = weir_dtype_bytes(test->shape.dtype);
    EXPECT(level->backend->reads_bf16);
    fill(test);
    void *wide = run(test, kernel, false), *narrow = run(test, kernel, true);
    if (memcmp(wide, narrow, (size_t)test->outs * number) != 0)
        TEST_FAIL("%s of %d x %d by %d rows at %s, %s: other bits", weir__op_name(test->shape.op),
                  (int)test->shape.in, (int)test->shape.out, (int)test->shape.rows, level->name,
                  weir_dtype_name(test->shape.dtype));
    weir__release(test_allocator(), wide, (size_t)test->outs, number);
    weir__release(test_allocator(), narrow, (size_t)test->outs, number);
    weir__release(test_allocator(), test->halves, (size_t)test->weights, 2);
    weir__release(test_allocator(), test->floats, (size_t)test->weights, 4);
    weir__release(test_allocator(), test->in, (size_t)test->ins, in_bytes(test));
}

static struct stored_case any_case(enum weir__op_code op, enum weir_dtype dtype) {
    struct weir__op_shape shape = {.op = op, .dtype = dtype, .threads = 1, .tokens = 1};
    shape.in = shape.table = sizes[test_random_below(WEIR__COUNT_OF(sizes))];
    shape.out = shape.width = sizes[test_random_below(WEIR__COUNT_OF(sizes))];
    shape.rows = shape.rows_max = row_counts[test_random_below(WEIR__COUNT_OF(row_counts))];
    shape.weight_in_out = test_random_below(2) == 0;
    bool back = op == WEIR__OP_linear_grad_input || op == WEIR__OP_linear_grad_input_add,
         picks = op == WEIR__OP_embedding;
    return (struct stored_case){.shape = shape,
                                .ins = shape.rows * (picks  ? 1
                                                     : back ? shape.out
                                                            : shape.in),
                                .outs = shape.rows * (back ? shape.in : shape.out),
                                .weights = shape.in * shape.out};
}

static void test_all_levels_give_the_bits_of_floats(void) {
    static const enum weir__op_code ops[] = {WEIR__OP_linear, WEIR__OP_linear_grad_input,
                                             WEIR__OP_linear_add, WEIR__OP_linear_grad_input_add,
                                             WEIR__OP_embedding};
    enum { OPS = WEIR__COUNT_OF(ops) };
    const struct weir__level *level;
    for (uint32_t i = 0; (level = weir__level_at(i)) != NULL; i++)
        for (uint32_t k = 0; weir__level_runs(level) && k < 80 * OPS && !test_has_failed(); k++) {
            struct stored_case test = any_case(ops[k % OPS], k % 2 == 0 ? WEIR_F32 : WEIR_BF16);
            compare(&test, level);
        }
}

/* ---- a product's loss ---- */

struct head_results {
    double loss, loss_alone; /* with its gradient, and without */
    void *dx;
};

static void run_head_op(const struct stored_case *test, const struct weir__level *level,
                        enum weir__op_code op, bool narrow, const void *const *in,
                        void *const *out) {
    struct weir__op_shape shape = test->shape;
    struct weir_stream stream = {.team = NULL};
    size_t workspace = 0;
    shape.op = op;
    shape.stored = narrow ? WEIR_BF16 : WEIR_F32;
    shape.frozen = true;
    const struct weir__kernel *kernel = level->backend->kernel(op, shape.dtype);
    EXPECT_STATUS(weir__kernel_workspace(kernel, &shape, &workspace), WEIR_OK);
    void *scratch = buffer((int64_t)workspace + 1, 1);
    const struct weir__op_call call = {.shape = &shape,
                                       .in = in,
                                       .out = out,
                                       .workspace = scratch,
                                       .loss_weight = 7,
                                       .stream = &stream};
    EXPECT_STATUS(kernel->run(&call), WEIR_OK);
    weir__release(test_allocator(), scratch, workspace + 1, 1);
}

static void run_head(const struct stored_case *test, const struct weir__level *level, bool narrow,
                     const int64_t *target, struct head_results *results) {
    const void *weights = narrow ? (const void *)test->halves : test->floats;
    const void *const in[] = {test->in, weights, target};
    results->dx = buffer(test->ins, weir_dtype_bytes(test->shape.dtype));
    run_head_op(test, level, WEIR__OP_linear_cross_entropy, narrow, in,
                (void *[]){&results->loss_alone});
    run_head_op(test, level, WEIR__OP_linear_cross_entropy_grad, narrow, in,
                (void *[]){&results->loss, results->dx});
}

static void release_head(const struct stored_case *test, struct head_results *results) {
    weir__release(test_allocator(), results->dx, (size_t)test->ins,
                  weir_dtype_bytes(test->shape.dtype));
}

static void compare_head(struct stored_case *test, const struct weir__level *level) {
    struct head_results wide, narrow;
    int64_t rows = test->shape.rows, *target = buffer(rows, sizeof *target);
    fill(test);
    for (int64_t m = 0; m < rows; m++)
        target[m] = (int64_t)test_random_below((uint64_t)test->shape.out);
    run_head(test, level, false, target, &wide);
    run_head(test, level, true, target, &narrow);
    EXPECT_EQ_BYTES(&narrow.loss, &wide.loss, sizeof wide.loss);
    EXPECT_EQ_BYTES(&narrow.loss_alone, &wide.loss, sizeof wide.loss);
    EXPECT_EQ_BYTES(narrow.dx, wide.dx, (size_t)test->ins * weir_dtype_bytes(test->shape.dtype));
    release_head(test, &wide);
    release_head(test, &narrow);
    weir__release(test_allocator(), target, (size_t)rows, sizeof *target);
    weir__release(test_allocator(), test->halves, (size_t)test->weights, 2);
    weir__release(test_allocator(), test->floats, (size_t)test->weights, 4);
    weir__release(test_allocator(), test->in, (size_t)test->ins, in_bytes(test));
}

static void test_a_products_loss_gives_the_bits_of_floats(void) {
    const struct weir__level *level;
    for (uint32_t i = 0; (level = weir__level_at(i)) != NULL; i++)
        for (uint32_t k = 0; weir__level_runs(level) && k < 60 && !test_has_failed(); k++) {
            struct stored_case test = any_case(WEIR__OP_linear, k % 2 == 0 ? WEIR_F32 : WEIR_BF16);
            if (k % 3 == 0) test.shape.rows = test.shape.rows_max = 600; /* slices */
            test.ins = test.shape.rows * test.shape.in;
            test.shape.ignore_index = -100;
            compare_head(&test, level);
        }
}

WEIR_TEST_SUITE(kernels_stored, TEST(all_levels_give_the_bits_of_floats),
                TEST(a_products_loss_gives_the_bits_of_floats))

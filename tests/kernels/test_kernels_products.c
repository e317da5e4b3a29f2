/* SPDX-License-Identifier: MIT */
/*
 * Goal: a product that is added to something gives the bits of the product and then the sum,
 * whether the result takes the addend's place or not, from no byte beyond its operands, the
 * addend being left alone. Method: every level, f32 and bf16, at ragged sizes and depths of several
 * parts, one thread and two, with a bias and without.
 */
#include "base/base.h"
#include "base/team.h"
#include "harness.h"
#include "device/device.h"
#include "net/backend.h"
#include "net/cpu/level.h"

#include <string.h>

/* Around a tile's columns, a vector, a part of the depth and a block; few rows and many. */
static const int64_t sizes[] = {1, 7, 16, 17, 32, 100, 257, 400, 530};
static const int64_t row_counts[] = {1, 9, 40, 101, 530};

struct product_case {
    const struct weir__level *level;
    struct weir_stream *stream;
    struct weir__op_shape shape;
    size_t each; /* bytes of a number */
    int64_t ins, outs, weights;
    void *in, *addend;
    float *weight, *bias;
};

static void *buffer(int64_t count, size_t each) {
    void *data = weir__acquire(test_allocator(), (size_t)count, each);
    EXPECT(data != NULL);
    return data;
}

static float any_number(void) {
    return (float)((double)test_random_below(1 << 20) / (1 << 19) - 1);
}

static float *any_floats(int64_t count) {
    float *numbers = buffer(count, sizeof *numbers);
    for (int64_t i = 0; i < count; i++) numbers[i] = any_number();
    return numbers;
}

/* Of the shape's dtype. */
static void *any_numbers(const struct product_case *test, int64_t count) {
    void *numbers = buffer(count, test->each);
    for (int64_t i = 0; i < count; i++) {
        float number = any_number();
        uint32_t bits;
        memcpy(&bits, &number, sizeof bits);
        if (test->each == sizeof number)
            ((float *)numbers)[i] = number;
        else
            ((uint16_t *)numbers)[i] = (uint16_t)(bits >> 16);
    }
    return numbers;
}

static int64_t pick(const int64_t *from, size_t count) {
    return from[test_random_below(count)];
}

static void init(struct product_case *test, enum weir__op_code op, enum weir_dtype dtype) {
    bool forward = op == WEIR__OP_linear_add;
    struct weir__op_shape shape = {.op = op, .dtype = dtype, .tokens = 1};
    shape.threads = 1 + (uint32_t)test_random_below(2);
    shape.in = pick(sizes, WEIR__COUNT_OF(sizes));
    shape.out = pick(sizes, WEIR__COUNT_OF(sizes));
    shape.rows = shape.rows_max = pick(row_counts, WEIR__COUNT_OF(row_counts));
    shape.weight_in_out = test_random_below(2) == 0;
    shape.has_bias = forward && test_random_below(2) == 0;
    test->shape = shape;
    test->each = weir_dtype_bytes(dtype);
    test->ins = shape.rows * (forward ? shape.in : shape.out);
    test->outs = shape.rows * (forward ? shape.out : shape.in);
    test->weights = shape.in * shape.out;
    test->in = any_numbers(test, test->ins);
    test->addend = any_numbers(test, test->outs);
    test->weight = any_floats(test->weights);
    test->bias = any_floats(shape.out);
}

static void clean_up(struct product_case *test) {
    weir__release(test_allocator(), test->in, (size_t)test->ins, test->each);
    weir__release(test_allocator(), test->addend, (size_t)test->outs, test->each);
    weir__release(test_allocator(), test->weight, (size_t)test->weights, sizeof(float));
    weir__release(test_allocator(), test->bias, (size_t)test->shape.out, sizeof(float));
}

static void run(const struct product_case *test, enum weir__op_code op, const void *const *in,
                void *out) {
    struct weir__op_shape shape = test->shape;
    size_t workspace = 0;
    shape.op = op;
    shape.width = test->outs / shape.rows;
    const struct weir__kernel *kernel = test->level->backend->kernel(op, shape.dtype);
    EXPECT_STATUS(weir__kernel_workspace(kernel, &shape, &workspace), WEIR_OK);
    void *scratch = buffer(workspace > 0 ? (int64_t)workspace : 1, 1);
    const struct weir__op_call call = {
        .shape = &shape, .in = in, .out = &out, .workspace = scratch, .stream = test->stream};
    EXPECT_STATUS(kernel->run(&call), WEIR_OK);
    weir__release(test_allocator(), scratch, workspace > 0 ? workspace : 1, 1);
}

static void expect_same(const struct product_case *test, const void *got, const void *wanted,
                        const char *where) {
    if (memcmp(got, wanted, (size_t)test->outs * test->each) != 0)
        TEST_FAIL("%s of %d x %d by %d rows, %s, %d threads, %s at %s: other bits",
                  weir__op_name(test->shape.op), (int)test->shape.in, (int)test->shape.out,
                  (int)test->shape.rows, weir_dtype_name(test->shape.dtype),
                  (int)test->shape.threads, where, test->level->name);
}

static void compare(const struct product_case *test) {
    bool forward = test->shape.op == WEIR__OP_linear_add;
    const size_t bytes = (size_t)test->outs * test->each;
    void *product = buffer(test->outs, test->each), *wanted = buffer(test->outs, test->each);
    void *got = buffer(test->outs, test->each), *before = buffer(test->outs, test->each);
    memcpy(before, test->addend, bytes);
    run(test, forward ? WEIR__OP_linear : WEIR__OP_linear_grad_input,
        (const void *[]){test->in, test->weight, test->bias}, product);
    run(test, WEIR__OP_add, (const void *[]){test->addend, product}, wanted);
    run(test, test->shape.op, (const void *[]){test->in, test->weight, test->addend, test->bias},
        got);
    expect_same(test, got, wanted, "apart");
    EXPECT_EQ_BYTES(test->addend, before, bytes);
    run(test, test->shape.op, (const void *[]){test->in, test->weight, test->addend, test->bias},
        test->addend);
    expect_same(test, test->addend, wanted, "in place");
    void *const all[] = {product, wanted, got, before};
    for (size_t i = 0; i < WEIR__COUNT_OF(all); i++)
        weir__release(test_allocator(), all[i], (size_t)test->outs, test->each);
}

static void test_what_is_added_to_a_product_gives_the_bits_of_both(void) {
    struct weir_stream stream = {.team = NULL};
    struct product_case test = {.stream = &stream};
    EXPECT_STATUS(weir__team_new(test_allocator(), 2, true, &stream.team), WEIR_OK);
    for (uint32_t i = 0; (test.level = weir__level_at(i)) != NULL; i++)
        for (uint32_t k = 0; weir__level_runs(test.level) && k < 120 && !test_has_failed(); k++) {
            init(&test, k % 2 == 0 ? WEIR__OP_linear_add : WEIR__OP_linear_grad_input_add,
                 k % 4 < 2 ? WEIR_F32 : WEIR_BF16);
            compare(&test);
            clean_up(&test);
        }
    weir__team_destroy(stream.team);
}

WEIR_TEST_SUITE(kernels_products, TEST(what_is_added_to_a_product_gives_the_bits_of_both))

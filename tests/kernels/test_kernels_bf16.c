/* SPDX-License-Identifier: MIT */
/*
 * Goal: a level's kernels in BF16 compute as in f32, on numbers that BF16 has, and round once, what
 * they store. Method: every op on random shapes at every level against the f64 reference of the
 * same rounded inputs: outputs that stay f32 within kernel_tolerance(), the others within half a
 * unit of BF16 more, number by number; levels, teams, addresses and fused ops bit by bit.
 */
#include "harness.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

enum { CASES = 30 };
static const enum kernel_backend levels[] = {KERNEL_LEVEL_1_BF16, KERNEL_LEVEL_2_BF16,
                                             KERNEL_LEVEL_3_BF16, KERNEL_LEVEL_4_BF16};
enum { LEVELS = WEIR__COUNT_OF(levels) };

/** Runs through the ops that levels have in BF16. */
#define FOR_OPS(op)                                                                                \
    for (enum weir__op_code op = 0; op < WEIR__OP_COUNT; op++)                                     \
        if (!kernel_is_the_users(op) && !kernel_lacks_vector(op))

static void case_init(struct kernel_case *test, const struct weir__op_shape *shape) {
    kernel_case_init(test, shape);
    kernel_case_narrow(test);
    test->overwrite = test_random_below(2) == 0;
}

/* ---- against the f64 reference ---- */

/** Fused ops round what their parts would store: test_kernels_fused.c. */
static bool is_fused(enum weir__op_code op) {
    return op == WEIR__OP_dropout_add || op == WEIR__OP_instance_norm_act ||
           op == WEIR__OP_instance_norm_act_grad || op == WEIR__OP_batch_norm_act ||
           op == WEIR__OP_linear_cross_entropy || op == WEIR__OP_linear_cross_entropy_grad ||
           op == WEIR__OP_linear_add || op == WEIR__OP_linear_grad_input_add;
}

/** Half a unit in the last place of a BF16 about as large. */
static double half_unit(double number) {
    int exponent;
    frexp(number, &exponent);
    return ldexp(1, exponent - 9);
}

static void expect_rounded_once(const struct kernel_results *got,
                                const struct kernel_results *wanted, const char *what) {
    const struct operands *operands = &got->test->operands;
    struct kernel_results rounded = *wanted;
    for (int o = 0; o < KERNEL_OUTS; o++) {
        bool stored = operands->out[o].kind == OPERAND_REAL && !operands->out[o].single;
        if (!stored) continue;
        rounded.out[o] = got->out[o]; /* compared here */
        double bound = kernel_tolerance(wanted) * kernel_magnitude(wanted, o);
        for (int64_t i = 0; i < operands->out[o].count && !test_has_failed(); i++) {
            double a = got->out[o][i], b = wanted->out[o][i];
            if (!(fabs(a - b) <= bound + half_unit(fmax(fabs(a), fabs(b)))))
                TEST_FAIL("%s: %s: output %d, number %lld is %.9g, not %.9g", what,
                          weir__op_name(got->test->shape.op), o, (long long)i, a, b);
        }
    }
    kernel_expect_near(got, &rounded, kernel_tolerance(wanted), what);
}

static void compare(const struct weir__op_shape *shape, enum kernel_backend backend) {
    struct kernel_case test;
    struct kernel_results got, wanted;
    case_init(&test, shape);
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    expect_rounded_once(&got, &wanted, kernel_backend_name(backend));
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

static void test_every_op_rounds_once(void) {
    for (size_t l = 0; l < LEVELS; l++) FOR_OPS(op)
    for (int i = 0; i < CASES && !is_fused(op) && !test_has_failed(); i++) {
        const struct weir__op_shape shape = kernel_any_shape(op);
        compare(&shape, levels[l]);
    }
}

/* ---- a product's weights ---- */

/** The same from weights that only f32 has and from these rounded. */
static void test_weights_are_rounded_before_products(void) {
    enum { WEIGHT = 1 };
    FOR_OPS(op)
    for (int i = 0; i < CASES && !test_has_failed(); i++) {
        struct weir__op_shape shape = kernel_any_shape(op);
        struct kernel_case test;
        struct kernel_results exact, rounded;
        case_init(&test, &shape);
        if (test.operands.in[WEIGHT].packed) {
            enum kernel_backend backend = levels[i % LEVELS];
            EXPECT_STATUS(kernel_run(&test, backend, 0, &rounded), WEIR_OK);
            for (int64_t k = 0; k < test.operands.in[WEIGHT].count; k++)
                test.in[WEIGHT][k] *= 1 + 0x1p-11 * (test_random_unit() - 0.5);
            EXPECT_STATUS(kernel_run(&test, backend, 0, &exact), WEIR_OK);
            kernel_expect_same(&exact, &rounded, kernel_backend_name(backend));
            kernel_results_clean_up(&exact);
            kernel_results_clean_up(&rounded);
        }
        kernel_case_clean_up(&test);
    }
}

/* ---- bits ---- */

/** Another run of the same case: at `backend`, by `threads`, `shift` bytes further on. */
static void expect_same(const struct kernel_case *given, const struct kernel_results *wanted,
                        enum kernel_backend backend, uint32_t threads, size_t shift) {
    struct kernel_case test = *given;
    struct kernel_results got;
    test.shape.threads = threads;
    EXPECT_STATUS(kernel_run(&test, backend, shift, &got), WEIR_OK);
    kernel_expect_same(&got, wanted, kernel_backend_name(backend));
    kernel_results_clean_up(&got);
}

/** Whether levels say that they give the same bits. */
static bool are_alike(enum kernel_backend a, enum kernel_backend b) {
    return strcmp(kernel_level(a)->bits_bf16, kernel_level(b)->bits_bf16) == 0;
}

static void test_levels_teams_and_addresses_change_no_bit(void) {
    FOR_OPS(op)
    for (int i = 0; i < CASES && !test_has_failed(); i++) {
        struct weir__op_shape shape = kernel_any_shape(op);
        enum kernel_backend level = levels[i % LEVELS];
        struct kernel_case test;
        struct kernel_results wanted;
        case_init(&test, &shape);
        EXPECT_STATUS(kernel_run(&test, level, 0, &wanted), WEIR_OK);
        expect_same(&test, &wanted, level, 3, 64 * (size_t)i);
        for (size_t l = 0; l < LEVELS; l++)
            if (are_alike(levels[l], level)) expect_same(&test, &wanted, levels[l], 1, 0);
        kernel_results_clean_up(&wanted);
        kernel_case_clean_up(&test);
    }
}

/** Shapes whose work is worth a team. */
static void test_a_teams_shares_are_not_in_the_bits(void) {
    static const struct weir__op_shape attention = {
        .op = WEIR__OP_attention, .rows = 2, .tokens = 131, .heads = 3, .width = 99, .threads = 1};
    static const struct weir__op_shape columns = {
        .op = WEIR__OP_bias_grad, .rows = 3, .tokens = 300, .out = 333, .width = 333, .threads = 1};
    static const struct weir__op_shape image = {.op = WEIR__OP_conv2d,
                                                .rows = 3,
                                                .in = 21,
                                                .out = 33,
                                                .has_bias = true,
                                                .threads = 1,
                                                .window = {.in = {17, 15},
                                                           .out = {17, 15},
                                                           .kernel = {3, 3},
                                                           .stride = {1, 1},
                                                           .padding = {1, 1},
                                                           .groups = 1}};
    static const struct {
        const struct weir__op_shape *shape;
        enum weir__op_code op;
    } large[] = {{&attention, WEIR__OP_attention},
                 {&attention, WEIR__OP_attention_grad},
                 {&columns, WEIR__OP_bias_grad},
                 {&columns, WEIR__OP_layer_norm_grad_weight},
                 {&image, WEIR__OP_conv2d},
                 {&image, WEIR__OP_conv2d_grad_input},
                 {&image, WEIR__OP_conv2d_grad_weight}};
    for (size_t i = 0; i < WEIR__COUNT_OF(large) && !test_has_failed(); i++) {
        struct weir__op_shape shape = *large[i].shape;
        struct kernel_case test;
        struct kernel_results alone;
        shape.op = large[i].op;
        case_init(&test, &shape);
        EXPECT_STATUS(kernel_run(&test, KERNEL_LEVEL_3_BF16, 0, &alone), WEIR_OK);
        for (uint32_t threads = 2; threads <= 5; threads++)
            expect_same(&test, &alone, KERNEL_LEVEL_3_BF16, threads, 64);
        kernel_results_clean_up(&alone);
        kernel_case_clean_up(&test);
        compare(&shape, KERNEL_LEVEL_3_BF16);
    }
}

WEIR_TEST_SUITE(kernels_bf16, TEST(every_op_rounds_once), TEST(weights_are_rounded_before_products),
                TEST(levels_teams_and_addresses_change_no_bit),
                TEST(a_teams_shares_are_not_in_the_bits))

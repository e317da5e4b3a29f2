/* SPDX-License-Identifier: MIT */
/*
 * Goal: every gradient kernel is the derivative of its forward kernel. Method: central differences
 * in f64. L = sum of dy * y (or the loss); each number of an input is moved by 2^-17 both ways; the
 * truncation error is of order 2^-34 and rounding adds about 2^-53 / 2^-17, so 2^-26 is a bound
 * with room, times the larger of 1 and the gradient's largest number.
 */
#include "harness.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

#define STEP 0x1p-17
#define TOLERANCE 0x1p-26

/** Where an input of a gradient op comes from. */
/* SUM: of batch norm's; SUM0 is residual_mix's pull. */
enum source { NONE, DY, IN0, IN1, IN2, IN3, IN4, OUT0, OUT1, OUT2, OUT3, SUM0, SUM1 };

/** Output `output` of op `gradient` is L's gradient by input `by` of op `forward`. */
struct pair {
    enum weir__op_code forward, gradient;
    int by, output;
    enum source sources[KERNEL_INS];
};

#define PAIR(forward, gradient, by, output, ...)                                                   \
    {                                                                                              \
        WEIR__OP_##forward, WEIR__OP_##gradient, by, output, {                                     \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct pair pairs[] = {
    PAIR(linear, linear_grad_input, 0, 0, DY, IN1),
    PAIR(linear, linear_grad_weight, 1, 0, IN0, DY),
    PAIR(linear, bias_grad, 2, 0, DY),
    PAIR(linear_add, linear_grad_input_add, 0, 0, DY, IN1, NONE),
    PAIR(linear_add, linear_grad_weight, 1, 0, IN0, DY),
    PAIR(linear_add, bias_grad, 3, 0, DY),
    PAIR(embedding, embedding_grad, 1, 0, IN0, DY),
    PAIR(position_add, position_grad, 1, 0, DY),
    PAIR(position_add, scale, 0, 0, DY),
    PAIR(layer_norm, layer_norm_grad_input, 0, 0, DY, IN0, OUT1, OUT2, IN1),
    PAIR(layer_norm, layer_norm_grad_weight, 1, 0, DY, IN0, OUT1, OUT2),
    PAIR(layer_norm, layer_norm_grad_weight, 2, 1, DY, IN0, OUT1, OUT2),
    PAIR(add_layer_norm, add_layer_norm_grad_input, 1, 0, DY, NONE, OUT3, OUT1, OUT2, IN2),
    PAIR(rms_norm, rms_norm_grad_input, 0, 0, DY, IN0, OUT1, IN1),
    PAIR(rms_norm, rms_norm_grad_weight, 1, 0, DY, IN0, OUT1),
    PAIR(residual_mix, residual_mix_grad, 2, 1, DY, OUT1, OUT2, IN0, IN1, IN2, IN3, IN4),
    PAIR(residual_mix, residual_mix_grad, 3, 2, DY, OUT1, OUT2, IN0, IN1, IN2, IN3, IN4),
    PAIR(residual_mix, residual_mix_grad, 4, 3, DY, OUT1, OUT2, IN0, IN1, IN2, IN3, IN4),
    PAIR(residual_mix, residual_mix_grad_weight, 0, 0, SUM0, IN0, IN1),
    PAIR(residual_mix, residual_mix_grad_weight, 1, 1, SUM0, IN0, IN1),
    PAIR(attention, attention_grad, 0, 0, DY, IN0, OUT0, OUT1),
    PAIR(grouped_attention, grouped_attention_grad, 0, 0, DY, IN0, IN1, IN2, OUT0, OUT1, IN3),
    PAIR(grouped_attention, grouped_attention_grad, 1, 1, DY, IN0, IN1, IN2, OUT0, OUT1, IN3),
    PAIR(grouped_attention, grouped_attention_grad, 2, 2, DY, IN0, IN1, IN2, OUT0, OUT1, IN3),
    PAIR(rope, rope_grad, 0, 0, DY, IN1),
    PAIR(swiglu, swiglu_grad, 0, 0, DY, IN0, IN1),
    PAIR(swiglu, swiglu_grad, 1, 1, DY, IN0, IN1),
    PAIR(softmax, softmax_grad, 0, 0, DY, OUT0),
    PAIR(gelu, gelu_grad, 0, 0, DY, IN0),
    PAIR(relu, relu_grad, 0, 0, DY, IN0),
    PAIR(relu, relu_grad, 0, 0, DY, OUT0),
    PAIR(leaky_relu, leaky_relu_grad, 0, 0, DY, OUT0),
    PAIR(scale, scale, 0, 0, DY),
    PAIR(silu, silu_grad, 0, 0, DY, IN0),
    PAIR(sigmoid, sigmoid_grad, 0, 0, DY, OUT0),
    PAIR(tanh, tanh_grad, 0, 0, DY, OUT0),
    PAIR(dropout, dropout, 0, 0, DY),
    PAIR(dropout_add, dropout, 0, 0, DY),
    PAIR(dropout_add, scale, 1, 0, DY),
    PAIR(dropout2d, dropout2d, 0, 0, DY),
    PAIR(bias_add, scale, 0, 0, DY),
    PAIR(bias_gelu, bias_gelu_grad, 0, 0, DY, IN0, IN1),
    PAIR(bias_dropout_add, dropout, 0, 0, DY),
    PAIR(bias_dropout_add, scale, 2, 0, DY),
    PAIR(add, scale, 1, 0, DY),
    PAIR(multiply, multiply, 0, 0, DY, IN1),
    PAIR(multiply, multiply, 1, 0, DY, IN0),
    PAIR(transpose, transpose, 0, 0, DY),
    PAIR(conv2d, conv2d_grad_input, 0, 0, DY, IN1),
    PAIR(conv2d, conv2d_grad_weight, 1, 0, IN0, DY),
    PAIR(conv2d, bias_grad, 2, 0, DY),
    PAIR(conv2d_grad_input, conv2d, 0, 0, DY, IN1),
    PAIR(conv2d_grad_input, conv2d_grad_weight, 1, 0, DY, IN0),
    PAIR(instance_norm, instance_norm_grad_input, 0, 0, DY, IN0, OUT1, OUT2, IN1),
    PAIR(instance_norm, instance_norm_grad_weight, 1, 0, DY, IN0, OUT1, OUT2),
    PAIR(instance_norm, instance_norm_grad_weight, 2, 1, DY, IN0, OUT1, OUT2),
    PAIR(instance_norm_act, instance_norm_act_grad, 0, 0, DY, OUT0, IN0, OUT1, OUT2),
    PAIR(batch_norm, batch_norm_grad_input, 0, 0, DY, IN0, OUT1, OUT2, SUM0, SUM1, IN1),
    PAIR(batch_norm, batch_norm_grad_weight, 1, 0, SUM0, SUM1),
    PAIR(batch_norm, batch_norm_grad_weight, 2, 1, SUM0, SUM1),
    PAIR(max_pool2d, max_pool2d_grad, 0, 0, DY, IN0),
    PAIR(avg_pool2d, avg_pool2d_grad, 0, 0, DY),
    PAIR(upsample, upsample_grad, 0, 0, DY),
    PAIR(concat, concat_grad_a, 0, 0, DY),
    PAIR(concat, concat_grad_b, 1, 0, DY),
    PAIR(cross_entropy, cross_entropy_grad, 0, 0, IN0, IN1, OUT1, OUT2),
    PAIR(linear_cross_entropy, linear_cross_entropy_grad, 0, 1, IN0, IN1, IN2, IN3),
    PAIR(linear_cross_entropy, linear_cross_entropy_grad, 1, 2, IN0, IN1, IN2, IN3),
    PAIR(linear_cross_entropy, linear_cross_entropy_grad, 3, 3, IN0, IN1, IN2, IN3),
    PAIR(mse, mse_grad, 0, 0, IN0, IN1),
    PAIR(bce_with_logits, bce_with_logits_grad, 0, 0, IN0, IN1),
};

static void choose_window(struct weir__op_shape *shape, int variant) {
    struct weir__window *window = &shape->window;
    *window = (struct weir__window){.groups = 1 + variant,
                                    .in = {5, 4},
                                    .kernel = {3, 2},
                                    .stride = {2, 1},
                                    .padding = {1, 1},
                                    .out = {3, 5},
                                    .count_padding = variant == 1};
    if (shape->op == WEIR__OP_conv2d || shape->op == WEIR__OP_conv2d_grad_input) {
        shape->in = 4, shape->out = 6;
        window->gap.width = variant;
        window->out.width -= variant;
    }
    if (shape->op == WEIR__OP_avg_pool2d && variant == 1)
        *window = (struct weir__window){.in = {5, 4}, .out = {3, 6}, .adaptive = true};
    if (shape->op == WEIR__OP_upsample)
        *window = (struct weir__window){
            .in = {3, 2}, .stride = {2, 1 + variant}, .out = {6, 2 + 2 * variant}};
    if (shape->op == WEIR__OP_concat) window->out = (struct weir__plane){5 + variant, 4 + variant};
}

/** Of a sum dy is the gradient itself: no op makes it, here one that scales by 1. */
static bool is_handed_on(const struct pair *pair) {
    return pair->gradient == WEIR__OP_scale && pair->forward != WEIR__OP_scale;
}

static struct weir__op_shape shape_of(const struct pair *pair, int variant) {
    struct weir__op_shape shape = {.op = pair->forward,
                                   .rows = 3,
                                   .tokens = 5,
                                   .in = 7,
                                   .out = 4,
                                   .width = 6,
                                   .heads = 2,
                                   .sources = 3,
                                   .table = 6,
                                   .threads = 1,
                                   .ignore_index = -100,
                                   .eps = 1e-3,
                                   .p = 0.25,
                                   .slope = 0.2,
                                   .random_op = 77,
                                   .has_bias = true,
                                   .weight_in_out = variant == 1,
                                   .gelu_tanh = variant == 1,
                                   .sees_all = variant == 1};
    choose_window(&shape, variant);
    if (pair->forward == WEIR__OP_grouped_attention || pair->forward == WEIR__OP_rope) {
        static const float frequencies[] = {0.9f, 0.1f};
        shape.frequencies = frequencies;
        shape.heads = 4, shape.kv_heads = 2 - variant, shape.width = 16;
        shape.reach = variant == 1 ? 3 : 0, shape.sees_all = false;
        shape.packed = variant == 1;
    }
    if (pair->forward == WEIR__OP_embedding) {
        shape.width = shape.out;
        shape.packed = variant == 1;
    }
    if (pair->forward == WEIR__OP_linear_cross_entropy) shape.width = shape.out;
    if (pair->forward == WEIR__OP_conv2d_grad_input) shape.has_bias = false;
    if (pair->gradient == WEIR__OP_rms_norm_grad_input) shape.has_bias = variant == 0;
    if (pair->forward == WEIR__OP_instance_norm) shape.has_bias = variant == 0;
    if (pair->gradient == WEIR__OP_batch_norm_grad_input) shape.has_bias = variant == 0;
    if (pair->forward == WEIR__OP_dropout && variant == 1) shape.channels = 3;
    if (is_handed_on(pair)) shape.width = variant == 1 ? 1 : 11;
    if (strncmp(weir__op_name(pair->forward), "bias_", 5) == 0)
        shape.width = shape.tokens * shape.out;
    return shape;
}

/** Of the gradient op, where members mean something else there. */
static struct weir__op_shape gradient_shape_of(const struct pair *pair,
                                               const struct weir__op_shape *forward) {
    struct weir__op_shape shape = *forward;
    shape.op = pair->gradient;
    if (is_handed_on(pair)) shape.slope = 1;
    if (is_handed_on(pair) && pair->forward == WEIR__OP_position_add) shape.width *= shape.tokens;
    if (pair->gradient == WEIR__OP_bias_grad && pair->forward == WEIR__OP_conv2d)
        shape.tokens = shape.window.out.height * shape.window.out.width;
    if (pair->gradient == WEIR__OP_transpose) shape.in = forward->out, shape.out = forward->in;
    return shape;
}

/** L of the forward case; NaN if it fails. */
static double objective(const struct kernel_case *forward, const double *dy) {
    struct kernel_results results;
    double sum = 0;
    if (kernel_run(forward, KERNEL_F64, 0, &results) != WEIR_OK) sum = NAN;
    bool loss = forward->operands.out[0].kind == OPERAND_LOSS;
    for (int64_t i = 0; i < forward->operands.out[0].count; i++)
        sum += loss ? results.out[0][i] : dy[i] * results.out[0][i];
    kernel_results_clean_up(&results);
    return sum;
}

/** What batch_norm_sums makes of the forward case, or residual_mix_grad. */
static void take_sums(const struct kernel_case *forward, const double *dy,
                      const struct kernel_results *results, struct kernel_case *sums,
                      struct kernel_results *made) {
    struct weir__op_shape shape = forward->shape;
    double *const *in = forward->in, *const *out = results->out;
    const double *of_batch[] = {dy, in[0], out[1], out[2]};
    const double *of_mix[] = {dy, out[1], out[2], in[0], in[1], in[2], in[3], in[4]};
    bool batch = shape.op == WEIR__OP_batch_norm;
    const double *const *from = batch ? of_batch : of_mix;
    shape.op = batch ? WEIR__OP_batch_norm_sums : WEIR__OP_residual_mix_grad;
    kernel_case_empty(sums, &shape);
    for (int i = 0; i < (batch ? 4 : 8); i++)
        memcpy(sums->in[i], from[i], (size_t)sums->operands.in[i].count * sizeof(double));
    EXPECT_STATUS(kernel_run(sums, KERNEL_F64, 0, made), WEIR_OK);
}

/** Copies what the gradient op takes. */
static void fill_gradient(struct kernel_case *gradient, const struct pair *pair,
                          const struct kernel_case *forward, const double *dy,
                          const struct kernel_results *results) {
    bool chained = pair->forward == WEIR__OP_batch_norm || pair->forward == WEIR__OP_residual_mix;
    struct kernel_case sums;
    struct kernel_results made;
    if (chained) take_sums(forward, dy, results, &sums, &made);
    for (int i = 0; i < KERNEL_INS; i++) {
        enum source source = pair->sources[i];
        size_t count = (size_t)gradient->operands.in[i].count;
        if (source == NONE || count == 0) continue;
        if (gradient->index[i] != NULL) {
            memcpy(gradient->index[i], forward->index[source - IN0], count * sizeof(int64_t));
            continue;
        }
        const double *from = source == DY    ? dy
                             : source < OUT0 ? forward->in[source - IN0]
                             : source < SUM0 ? results->out[source - OUT0]
                                             : made.out[source - SUM0];
        memcpy(gradient->in[i], from, count * sizeof(double));
    }
    gradient->seed = forward->seed;
    gradient->mini_batch = forward->mini_batch;
    gradient->row_first = forward->row_first;
    gradient->loss_weight = forward->loss_weight;
    if (!chained) return;
    kernel_results_clean_up(&made);
    kernel_case_clean_up(&sums);
}

static void compare(const struct pair *pair, struct kernel_case *forward, const double *dy,
                    const struct kernel_results *got) {
    double *x = forward->in[pair->by];
    double largest = kernel_largest(got, pair->output, 1);
    for (int64_t i = 0; i < forward->operands.in[pair->by].count; i++) {
        double old = x[i];
        x[i] = old + STEP;
        double above = objective(forward, dy);
        x[i] = old - STEP;
        double below = objective(forward, dy);
        x[i] = old;
        double wanted = (above - below) / (2 * STEP);
        if (!EXPECT_NEAR(got->out[pair->output][i], wanted, TOLERANCE * largest)) {
            TEST_FAIL("%s, number %lld", weir__op_name(pair->gradient), (long long)i);
            return;
        }
    }
}

/** A ReLU's kink is no place for a difference. */
static void keep_from_zero(struct kernel_case *test) {
    for (int64_t i = 0; i < test->operands.in[0].count; i++)
        if (fabs(test->in[0][i]) < 0.01) test->in[0][i] = 0.5;
}

/** Nor are two equal numbers of a max pool: all differ by 1/32 at least. */
static void keep_apart(struct kernel_case *test) {
    double *x = test->in[0];
    int64_t count = test->operands.in[0].count;
    for (int64_t i = 0; i < count; i++) {
        int64_t j = (int64_t)test_random_below((uint64_t)i + 1);
        x[i] = x[j];
        x[j] = (double)(i - count / 2) / 32;
    }
}

static bool is_near_zero(double y) {
    return y != 0 && fabs(y) < 1e-3; /* a dropped channel is 0 wherever x moves */
}

/** Nor the kink behind a norm: tries other numbers until the outputs are clear of it. */
static void keep_outputs_from_zero(struct kernel_case *test) {
    for (int tries = 0; tries < 200; tries++) {
        struct kernel_results results;
        int near = 0;
        EXPECT_STATUS(kernel_run(test, KERNEL_F64, 0, &results), WEIR_OK);
        for (int64_t i = 0; i < test->operands.out[0].count; i++)
            near += is_near_zero(results.out[0][i]);
        kernel_results_clean_up(&results);
        if (near == 0) return;
        for (int64_t i = 0; i < test->operands.in[0].count; i++)
            test->in[0][i] = 4 * test_random_unit() - 2;
    }
    TEST_FAIL("no numbers far from the kink");
}

static void keep_smooth(struct kernel_case *test) {
    switch (test->shape.op) {
    case WEIR__OP_relu:
    case WEIR__OP_leaky_relu: keep_from_zero(test); break;
    case WEIR__OP_max_pool2d: keep_apart(test); break;
    case WEIR__OP_instance_norm_act: keep_outputs_from_zero(test); break;
    default: break;
    }
}

static void check_pair(const struct pair *pair, int variant) {
    struct weir__op_shape shape = shape_of(pair, variant);
    struct weir__op_shape gradient_shape = gradient_shape_of(pair, &shape);
    struct kernel_case forward, gradient;
    struct kernel_results results, got;
    kernel_case_init(&forward, &shape);
    kernel_case_empty(&gradient, &gradient_shape);
    keep_smooth(&forward);
    int64_t count = forward.operands.out[0].count;
    double *dy = weir__acquire(test_allocator(), (size_t)count, sizeof(double));
    for (int64_t i = 0; i < count; i++) dy[i] = 2 * test_random_unit() - 1;
    EXPECT_STATUS(kernel_run(&forward, KERNEL_F64, 0, &results), WEIR_OK);
    fill_gradient(&gradient, pair, &forward, dy, &results);
    EXPECT_STATUS(kernel_run(&gradient, KERNEL_F64, 0, &got), WEIR_OK);
    compare(pair, &forward, dy, &got);
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&results);
    weir__release(test_allocator(), dy, (size_t)count, sizeof(double));
    kernel_case_clean_up(&gradient);
    kernel_case_clean_up(&forward);
}

static void test_gradients_are_derivatives(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(pairs); i++)
        for (int variant = 0; variant < 2; variant++) check_pair(&pairs[i], variant);
}

/** A gradient op that no pair names is tested by nothing here. */
static void test_every_gradient_op_is_in_a_pair(void) {
    for (enum weir__op_code op = 0; op < WEIR__OP_COUNT; op++) {
        if (kernel_is_the_users(op) || strstr(weir__op_name(op), "_grad") == NULL) continue;
        bool found = false;
        for (size_t i = 0; i < WEIR__COUNT_OF(pairs); i++) found = found || pairs[i].gradient == op;
        if (!EXPECT(found)) TEST_FAIL("%s", weir__op_name(op));
    }
}

WEIR_TEST_SUITE(kernel_gradients, TEST(gradients_are_derivatives),
                TEST(every_gradient_op_is_in_a_pair))

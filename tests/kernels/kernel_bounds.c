/* SPDX-License-Identifier: MIT */
/* How far a kernel's numbers may be off: by what an op sums, and what its rounding is divided by.
 */
#include "kernels/kernels.h"

#include <math.h>

/** The input of a norm's gradient that holds 1 / deviation; -1 for other ops. */
static int rstd_input(enum weir__op_code op) {
    switch (op) {
    case WEIR__OP_rms_norm_grad_input:
    case WEIR__OP_rms_norm_grad_weight:
    case WEIR__OP_residual_mix_grad: return 2;
    case WEIR__OP_layer_norm_grad_input:
    case WEIR__OP_layer_norm_grad_weight:
    case WEIR__OP_instance_norm_grad_input:
    case WEIR__OP_instance_norm_grad_weight: return 3;
    case WEIR__OP_add_layer_norm_grad_input:
    case WEIR__OP_instance_norm_act_grad: return 4;
    default: return -1;
    }
}

/** The largest 1 / deviation of such variances, at least 1. */
static double steepest(const double *variance, int64_t count, double eps) {
    double largest = 1;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, 1 / sqrt(variance[i] + eps));
    return largest;
}

static double largest_rstd(const struct kernel_case *test) {
    double largest = 1;
    enum weir__op_code op = test->shape.op;
    if (op == WEIR__OP_batch_norm_sums || op == WEIR__OP_batch_norm_grad_input)
        return steepest(test->in[3], test->operands.in[3].count, test->shape.eps);
    if (op == WEIR__OP_batch_norm_act_sums)
        return steepest(test->in[4], test->operands.in[4].count, test->shape.eps);
    int input = rstd_input(test->shape.op);
    for (int64_t i = 0; input >= 0 && i < test->operands.in[input].count; i++)
        largest = fmax(largest, test->in[input][i]);
    return largest;
}

static int64_t pixels(struct weir__plane plane) {
    return plane.height * plane.width;
}

/** Numbers in the longest sum over a window. */
static double window_length(const struct weir__op_shape *shape) {
    const struct weir__window *window = &shape->window;
    double kernel = (double)pixels(window->kernel);
    double groups = (double)(window->groups > 0 ? window->groups : 1);
    switch (shape->op) {
    case WEIR__OP_conv2d: return kernel * (double)shape->in / groups;
    case WEIR__OP_conv2d_grad_input: return kernel * (double)shape->out / groups;
    case WEIR__OP_conv2d_grad_weight: return (double)(shape->rows * pixels(window->out));
    case WEIR__OP_upsample_grad: return (double)pixels(window->stride);
    case WEIR__OP_avg_pool2d: return window->adaptive ? (double)pixels(window->in) : kernel;
    case WEIR__OP_avg_pool2d_grad: return window->adaptive ? (double)pixels(window->out) : kernel;
    case WEIR__OP_max_pool2d_grad: return kernel;
    default: return 1;
    }
}

/** Numbers in the longest sum that an op makes in its dtype. */
static double sum_length(const struct weir__op_shape *shape) {
    switch (shape->op) {
    case WEIR__OP_linear:
    case WEIR__OP_linear_add: return (double)shape->in;
    case WEIR__OP_linear_grad_input_add:
    case WEIR__OP_linear_grad_input: return (double)shape->out;
    case WEIR__OP_linear_cross_entropy: return (double)(shape->in + shape->out);
    case WEIR__OP_linear_cross_entropy_grad: /* of logits, and over them or over tokens */
        return (double)(shape->in + shape->out + shape->rows * shape->tokens);
    case WEIR__OP_linear_grad_weight:
    case WEIR__OP_bias_grad:
    case WEIR__OP_embedding_grad:
    case WEIR__OP_position_grad:
    case WEIR__OP_layer_norm_grad_weight:
    case WEIR__OP_rms_norm_grad_weight:
    case WEIR__OP_residual_mix_grad_weight:
    case WEIR__OP_batch_norm:
    case WEIR__OP_batch_norm_sums:
    case WEIR__OP_batch_norm_act:
    case WEIR__OP_batch_norm_act_sums:
    case WEIR__OP_batch_norm_grad_input:
    case WEIR__OP_instance_norm_grad_weight: return (double)(shape->rows * shape->tokens);
    case WEIR__OP_attention:
    case WEIR__OP_attention_grad:
    case WEIR__OP_grouped_attention: return (double)(shape->tokens + shape->width / shape->heads);
    case WEIR__OP_grouped_attention_grad: /* all heads of a group add to a key's */
        return (double)(shape->tokens * shape->heads / shape->kv_heads +
                        shape->width / shape->heads);
    case WEIR__OP_grouped_attention_cached:
    case WEIR__OP_attention_cached: return (double)(shape->table + shape->width / shape->heads);
    case WEIR__OP_layer_norm:
    case WEIR__OP_layer_norm_grad_input:
    case WEIR__OP_add_layer_norm:
    case WEIR__OP_add_layer_norm_grad_input:
    case WEIR__OP_rms_norm:
    case WEIR__OP_rms_norm_grad_input:
    case WEIR__OP_residual_mix:
    case WEIR__OP_residual_mix_grad:
    case WEIR__OP_softmax:
    case WEIR__OP_softmax_grad:
    case WEIR__OP_cross_entropy: return (double)shape->width;
    case WEIR__OP_instance_norm:
    case WEIR__OP_instance_norm_grad_input:
    case WEIR__OP_instance_norm_act:
    case WEIR__OP_instance_norm_act_grad: return (double)shape->tokens;
    default: return window_length(shape);
    }
}

/** Terms may cancel: what counts is how large sums become on the way, for random signs the root of
 * the length, else their terms (about 1); in a norm's gradient terms are up to 2 * 2 /
 * deviation. */
static double least_magnitude(const struct kernel_case *test) {
    switch (test->shape.op) {
    case WEIR__OP_layer_norm_grad_input:
    case WEIR__OP_add_layer_norm_grad_input:
    case WEIR__OP_rms_norm_grad_input:
    case WEIR__OP_batch_norm_grad_input:
    case WEIR__OP_instance_norm_grad_input:
    case WEIR__OP_instance_norm_act_grad: return 4 * largest_rstd(test);
    case WEIR__OP_grouped_attention_grad: /* of a key, over the heads that share it */
        return sqrt((double)(test->shape.heads / test->shape.kv_heads));
    /* Shares have errors of logits, which are up to some weight * query's length, 2 root width. */
    case WEIR__OP_residual_mix_grad: return 2 * sum_length(&test->shape) * largest_rstd(test);
    case WEIR__OP_linear:
    case WEIR__OP_linear_add:
    case WEIR__OP_linear_grad_input:
    case WEIR__OP_linear_grad_input_add:
    case WEIR__OP_linear_grad_weight:
    case WEIR__OP_linear_cross_entropy_grad:
    case WEIR__OP_bias_grad:
    case WEIR__OP_embedding_grad:
    case WEIR__OP_position_grad:
    case WEIR__OP_layer_norm:
    case WEIR__OP_layer_norm_grad_weight:
    case WEIR__OP_rms_norm:
    case WEIR__OP_rms_norm_grad_weight:
    case WEIR__OP_residual_mix_grad_weight:
    case WEIR__OP_add_layer_norm:
    case WEIR__OP_instance_norm:
    case WEIR__OP_instance_norm_act:
    case WEIR__OP_instance_norm_grad_weight:
    case WEIR__OP_batch_norm:
    case WEIR__OP_batch_norm_sums:
    case WEIR__OP_batch_norm_act:
    case WEIR__OP_batch_norm_act_sums:
    case WEIR__OP_conv2d:
    case WEIR__OP_conv2d_grad_input:
    case WEIR__OP_conv2d_grad_weight: return sqrt(sum_length(&test->shape));
    default: return 1;
    }
}

/** The largest magnitude of what the op added to an output, 0 where it adds to none. */
static double largest_added(const struct kernel_results *wanted, int output) {
    const struct kernel_case *test = wanted->test;
    double largest = 0;
    bool adds = test->operands.accumulates && output >= test->operands.written;
    if (!adds || test->overwrite || test->old[output] == NULL) return 0;
    for (int64_t i = 0; i < test->operands.out[output].count; i++)
        largest = fmax(largest, fabs(wanted->out[output][i] - test->old[output][i]));
    return largest;
}

double kernel_magnitude(const struct kernel_results *wanted, int output) {
    double least = fmax(least_magnitude(wanted->test), largest_added(wanted, output));
    return kernel_largest(wanted, output, least);
}

/** The largest 1 / deviation of a norm, at least 1. */
static double steepness(const struct kernel_results *wanted) {
    enum weir__op_code op = wanted->test->shape.op;
    bool forward = op == WEIR__OP_layer_norm || op == WEIR__OP_add_layer_norm ||
                   op == WEIR__OP_instance_norm || op == WEIR__OP_instance_norm_act;
    if (op == WEIR__OP_rms_norm) return kernel_largest(wanted, 1, 1);
    if (op == WEIR__OP_residual_mix)
        return 2 * kernel_largest(wanted, 2, 1) * sqrt(sum_length(&wanted->test->shape));
    if (op == WEIR__OP_batch_norm || op == WEIR__OP_batch_norm_act)
        return steepest(wanted->out[2], wanted->test->operands.out[2].count,
                        wanted->test->shape.eps);
    if (op == WEIR__OP_linear_cross_entropy || op == WEIR__OP_linear_cross_entropy_grad)
        return sqrt((double)wanted->test->shape.in); /* logits, whose errors exponentials keep */
    return forward ? kernel_largest(wanted, 2, 1) : largest_rstd(wanted->test);
}

double kernel_tolerance(const struct kernel_results *wanted) {
    double length = sum_length(&wanted->test->shape);
    return 0x1p-24 * (16 + 4 * sqrt(length)) * steepness(wanted);
}

/** The largest number that dropout2d leaves of input `input`. */
static double largest_dropped(const struct kernel_case *test, int input) {
    double largest = 1;
    for (int64_t i = 0; i < test->operands.in[input].count; i++)
        largest = fmax(largest, fabs(test->in[input][i]));
    return largest / (1 - test->shape.p);
}

/** Units of the result for what a part before or after a norm would store rounded. Before: a number
 * v that is off by |v| / 2^8 moves the normalised one by up to |v| / deviation of these units; a
 * gradient has that twice as a factor. */
static double units_beside_norm(const struct kernel_results *wanted) {
    enum { SUM = 3, NORM_X = 0, GRAD_X = 2 };
    double before, steep = steepness(wanted);
    switch (wanted->test->shape.op) {
    case WEIR__OP_add_layer_norm: return 1 + steep * kernel_largest(wanted, SUM, 1);
    case WEIR__OP_add_layer_norm_grad_input: return 1 + steep;
    case WEIR__OP_instance_norm_act: return 1 + steep * largest_dropped(wanted->test, NORM_X);
    case WEIR__OP_instance_norm_act_grad:
        before = steep * largest_dropped(wanted->test, GRAD_X);
        return 1 + 2 * before + before * before * 0x1p-8;
    default: return 1;
    }
}

double kernel_tolerance_bf16(const struct kernel_results *wanted) {
    const struct weir__op_shape *shape = &wanted->test->shape;
    double units = shape->op == WEIR__OP_conv2d && shape->has_bias ? 2 : 1;
    if (shape->op == WEIR__OP_attention || shape->op == WEIR__OP_grouped_attention) units = 2;
    if (shape->op == WEIR__OP_attention_grad) units = 3;
    if (shape->op == WEIR__OP_grouped_attention_grad) units = 3;
    units *= units_beside_norm(wanted);
    return kernel_tolerance(wanted) + units * 0x1p-8;
}

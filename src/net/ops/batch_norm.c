/* SPDX-License-Identifier: MIT */
/*
 * Batch norm over the rows and pixels of a micro-batch. Its mean and variance are kept in double,
 * and belong to no row. Backward is in parts: two sums per channel, which are all that the weight
 * part reads; the input's gradient; and what the micro-batch adds to the moments that move the
 * running numbers. That one stands in the weight part, which is done once per micro-batch whatever
 * is recomputed: so nothing is counted twice, and what becomes of a step's gradients becomes of its
 * moments.
 */
#include "net/moments.h"
#include "net/ops/rules.h"
#include "weir_models.h"

#include <stdio.h>

/** In the network's pool, as long as the network: parameters keep their names. */
static const char *named(struct weir_builder *builder, const char *prefix, const char *name) {
    char text[128];
    snprintf(text, sizeof text, "%s%s", prefix, name);
    const char *kept = weir__pool_text(builder->graph->pool, text);
    if (kept == NULL) weir_builder_fail(builder, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    return kept;
}

struct norm_values {
    struct weir_value *weight, *bias, *mean, *variance;
};

static bool add_affine(struct weir_builder *builder, const char *prefix, int64_t channels,
                       bool zero_init, struct norm_values *values) {
    static const struct weir_init one = {WEIR_INIT_ONE, 0}, zero = {WEIR_INIT_ZERO, 0};
    const char *weight = named(builder, prefix, "weight"), *bias = named(builder, prefix, "bias");
    if (weight == NULL || bias == NULL) return false;
    values->weight = weir_parameter(builder, weight, 1, &channels, zero_init ? zero : one);
    values->bias = weir_parameter(builder, bias, 1, &channels, zero);
    return values->bias != NULL;
}

static bool add_statistics(struct weir_builder *builder, const char *prefix, int64_t channels,
                           const struct weir_batch_norm_options *options,
                           struct norm_values *values) {
    static const struct weir_init one = {WEIR_INIT_ONE, 0}, zero = {WEIR_INIT_ZERO, 0};
    enum weir_dtype exact = weir__exact_dtype(builder->dtype);
    const char *mean = named(builder, prefix, "running_mean");
    const char *variance = named(builder, prefix, "running_var");
    const char *batches = named(builder, prefix, "num_batches_tracked");
    struct weir__running *running = weir__pool_take(builder->graph->pool, 1, sizeof *running);
    if (mean == NULL || variance == NULL || batches == NULL) return false;
    if (running == NULL) {
        weir_builder_fail(builder, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
        return false;
    }
    running->momentum = options->momentum;
    running->cumulative = options->cumulative;
    running->plain = !options->deferred;
    values->mean = weir__statistic(builder, mean, exact, 1, &channels, zero, running);
    values->variance = weir__statistic(builder, variance, exact, 1, &channels, one, running);
    struct weir_value *count = weir__statistic(builder, batches, WEIR_I64, 0, NULL, zero, running);
    if (count == NULL) return false;
    running->mean = values->mean->index;
    running->variance = values->variance->index;
    running->batches = count->index;
    return true;
}

/** Of no row, and in double. */
static struct weir_value *channel_numbers(struct weir_builder *builder, struct weir__node *node) {
    struct weir_value *value = weir__output(builder, node, 1, &node->shape.width);
    if (value == NULL) return NULL;
    value->dtype = WEIR_F64;
    value->batched = false;
    return value;
}

struct weir_value *weir_batch_norm2d(struct weir_builder *builder, struct weir_value *x,
                                     const char *prefix,
                                     const struct weir_batch_norm_options *options) {
    struct norm_values values = {0};
    if (!weir__expects_image(builder, "batch_norm2d", x)) return NULL;
    int64_t channels = x->shape[0];
    if (options->affine && !add_affine(builder, prefix, channels, options->zero_init, &values))
        return NULL;
    if (options->track_running_stats &&
        !add_statistics(builder, prefix, channels, options, &values))
        return NULL;
    x = weir__channels_last(builder, x);
    struct weir__node *node = WEIR__EMIT(builder, batch_norm, x, values.weight, values.bias,
                                         values.mean, values.variance);
    if (node == NULL) return NULL;
    node->shape.tokens = x->shape[1] * x->shape[2];
    node->shape.width = channels;
    node->shape.eps = options->eps;
    node->shape.has_bias = options->affine;
    node->shape.tracks = options->track_running_stats;
    node->shape.plain = !options->deferred;
    node->shape.momentum = options->cumulative ? -1 : options->momentum;
    struct weir_value *y = weir__output_like(builder, node, x);
    channel_numbers(builder, node);
    return channel_numbers(builder, node) == NULL ? NULL : y;
}

/* ---- backward ---- */

static void add_moments(struct weir_builder *builder, const struct weir__node *node) {
    if (!weir__wants_grad(node->in[3])) return;
    struct weir__node *moments = WEIR__EMIT_LIKE(builder, batch_norm_statistics, node, node->out[1],
                                                 node->out[2], node->in[3]);
    weir__output_moments(builder, moments, node->in[3], weir__moment_numbers(node->shape.width));
}

static bool learns(const struct weir__node *node) {
    return weir__wants_grad(node->in[1]) || weir__wants_grad(node->in[2]);
}

static bool is_differentiated(const struct weir__node *node) {
    return learns(node) || weir__wants_grad(node->in[0]);
}

/** From `dy`, what has come to the norm, and the node of its sums. */
static void contribute(struct weir_builder *builder, const struct weir__node *node,
                       struct weir_value *dy, struct weir__node *sums) {
    if (sums == NULL) return;
    struct weir_value *x = node->in[0], *weight = node->in[1];
    struct weir_value *sum = channel_numbers(builder, sums);
    struct weir_value *product = channel_numbers(builder, sums);
    if (weir__wants_grad(x)) {
        struct weir__node *dx =
            WEIR__EMIT_LIKE(builder, batch_norm_grad_input, node, dy, x, node->out[1], node->out[2],
                            sum, product, weight);
        weir__contribute(builder, x, weir__output_like(builder, dx, x));
    }
    if (!learns(node)) return;
    struct weir__node *dw = WEIR__EMIT_LIKE(builder, batch_norm_grad_weight, node, sum, product);
    weir__output_accumulator(builder, dw, weight);
    weir__output_accumulator(builder, dw, node->in[2]);
}

static void contribute_plain(struct weir_builder *builder, const struct weir__node *node,
                             struct weir_value *dy) {
    if (!is_differentiated(node)) return;
    contribute(builder, node, dy,
               WEIR__EMIT_LIKE(builder, batch_norm_sums, node, dy, node->in[0], node->out[1],
                               node->out[2]));
}

static void gradient(struct weir_builder *builder, const struct weir__node *node,
                     struct weir_value *dy) {
    add_moments(builder, node);
    contribute_plain(builder, node, dy);
}

/** A sum's gradient is its terms'; the ReLU's is made with the norm's sums. */
static void act_gradient(struct weir_builder *builder, const struct weir__node *node,
                         struct weir_value *dy) {
    struct weir__node *sums = NULL;
    struct weir_value *y = node->out[0];
    add_moments(builder, node);
    if (node->shape.activates) {
        sums = WEIR__EMIT_LIKE(builder, batch_norm_act_sums, node, dy, y, node->in[0], node->out[1],
                               node->out[2]);
        dy = weir__output_like(builder, sums, y);
    }
    if (node->shape.adds) weir__contribute(builder, node->in[5], dy);
    if (node->shape.activates)
        contribute(builder, node, dy, sums);
    else
        contribute_plain(builder, node, dy);
}

static double cost(const struct weir__node *node) {
    return 8.0 * (double)node->shape.tokens * (double)node->shape.width;
}

static double act_cost(const struct weir__node *node) {
    double numbers = (double)node->shape.tokens * (double)node->shape.width;
    return cost(node) + numbers * (double)(node->shape.adds + node->shape.activates);
}

const struct weir__op_rule weir__rule_batch_norm = {.gradient = gradient, .cost = cost};
/* Bits 0 and 5: x and the addend. */
const struct weir__op_rule weir__rule_batch_norm_act = {
    .gradient = act_gradient, .cost = act_cost, .in_place = 1 | 1 << 5};

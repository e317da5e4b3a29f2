/* SPDX-License-Identifier: MIT */
/* LayerNorm and RMSNorm over the last dimension. Mean and 1 / deviation are kept, one number per
 * token each; the normalised values are made again from x in the backward pass. */
#include "net/ops/rules.h"

#include <float.h>

struct weir_value *weir_layer_norm(struct weir_builder *builder, struct weir_value *x,
                                   struct weir_value *weight, struct weir_value *bias, double eps) {
    if (!weir__expects_features(builder, "layer_norm", x)) return NULL;
    x = weir__plain(builder, x);
    assert(weight->rank == 1 && weight->shape[0] == weir__value_width(x));
    struct weir__node *node = WEIR__EMIT(builder, layer_norm, x, weight, bias);
    if (node == NULL) return NULL;
    node->shape.tokens = weir__value_tokens(x);
    node->shape.width = weir__value_width(x);
    node->shape.eps = eps;
    struct weir_value *y = weir__output_like(builder, node, x);
    weir__output_exact(builder, node, 1, &node->shape.tokens);
    weir__output_exact(builder, node, 1, &node->shape.tokens);
    return y;
}

/* The gradient of x by its norm, which is added to what later readers of x gave: in one pass where
 * the back end fuses sums. */
static void contribute_input(struct weir_builder *builder, const struct weir__node *node,
                             struct weir_value *dy, struct weir_value *x,
                             struct weir_value *weight) {
    struct weir_value *mean = node->out[1], *rstd = node->out[2];
    if (builder->graph->fuses_sums && x->grad != NULL) {
        struct weir__node *sum = WEIR__EMIT_LIKE(builder, add_layer_norm_grad_input, node, dy,
                                                 x->grad, x, mean, rstd, weight);
        x->grad = weir__output_like(builder, sum, x);
        return;
    }
    struct weir__node *dx =
        WEIR__EMIT_LIKE(builder, layer_norm_grad_input, node, dy, x, mean, rstd, weight);
    weir__contribute(builder, x, weir__output_like(builder, dx, x));
}

static void contribute_weight(struct weir_builder *builder, const struct weir__node *node,
                              struct weir_value *dy, struct weir_value *x,
                              struct weir_value *weight, struct weir_value *bias) {
    if (!weir__wants_grad(weight) && !weir__wants_grad(bias)) return;
    struct weir__node *dw =
        WEIR__EMIT_LIKE(builder, layer_norm_grad_weight, node, dy, x, node->out[1], node->out[2]);
    weir__output_accumulator(builder, dw, weight);
    weir__output_accumulator(builder, dw, bias);
}

static void gradient(struct weir_builder *builder, const struct weir__node *node,
                     struct weir_value *dy) {
    struct weir_value *x = node->in[0], *weight = node->in[1], *bias = node->in[2];
    if (weir__wants_grad(x)) contribute_input(builder, node, dy, x, weight);
    contribute_weight(builder, node, dy, x, weight, bias);
}

/* The sum's gradient is whole once the norm's part of it is there: the norm is its first reader. */
static void add_gradient(struct weir_builder *builder, const struct weir__node *node,
                         struct weir_value *dy) {
    struct weir_value *sum = node->out[3], *weight = node->in[2], *bias = node->in[3];
    if (weir__wants_grad(sum)) contribute_input(builder, node, dy, sum, weight);
    contribute_weight(builder, node, dy, sum, weight, bias);
    if (!weir__wants_grad(sum)) return;
    weir__contribute(builder, node->in[0], sum->grad);
    weir__contribute(builder, node->in[1], sum->grad);
}

static double cost(const struct weir__node *node) {
    return 8.0 * (double)node->shape.tokens * (double)node->shape.width;
}

const struct weir__op_rule weir__rule_layer_norm = {.gradient = gradient, .cost = cost};
const struct weir__op_rule weir__rule_add_layer_norm = {.gradient = add_gradient, .cost = cost};

/* ---- RMSNorm ---- */

struct weir_value *weir_rms_norm(struct weir_builder *builder, struct weir_value *x,
                                 struct weir_value *weight, double eps) {
    if (!weir__expects_features(builder, "rms_norm", x)) return NULL;
    x = weir__plain(builder, x);
    struct weir__node *node = WEIR__EMIT(builder, rms_norm, x, weight);
    if (node == NULL) return NULL;
    assert(weight == NULL || (weight->rank == 1 && weight->shape[0] == weir__value_width(x)));
    double least = weir__exact_dtype(x->dtype) == WEIR_F64 ? DBL_EPSILON : FLT_EPSILON;
    node->shape.tokens = weir__value_tokens(x);
    node->shape.width = weir__value_width(x);
    node->shape.eps = eps < 0 ? least : eps;
    node->shape.has_bias = weight != NULL;
    struct weir_value *y = weir__output_like(builder, node, x);
    weir__output_exact(builder, node, 1, &node->shape.tokens);
    return y;
}

static void rms_gradient(struct weir_builder *builder, const struct weir__node *node,
                         struct weir_value *dy) {
    struct weir_value *x = node->in[0], *weight = node->in[1], *rstd = node->out[1];
    assert(node->shape.has_bias == (weight != NULL) && rstd != NULL);
    if (weir__wants_grad(x)) {
        struct weir__node *dx =
            WEIR__EMIT_LIKE(builder, rms_norm_grad_input, node, dy, x, rstd, weight);
        weir__contribute(builder, x, weir__output_like(builder, dx, x));
    }
    if (!weir__wants_grad(weight)) return;
    struct weir__node *dw = WEIR__EMIT_LIKE(builder, rms_norm_grad_weight, node, dy, x, rstd);
    weir__output_accumulator(builder, dw, weight);
}

const struct weir__op_rule weir__rule_rms_norm = {.gradient = rms_gradient, .cost = cost};

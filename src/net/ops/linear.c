/* SPDX-License-Identifier: MIT */
/* y = x W + b over the last dimension; the weight as PyTorch's Linear has it, [out, in], or as
 * GPT-2's Conv1D, [in, out]. */
#include "net/ops/rules.h"

#include <string.h>

struct weir_value *weir_linear(struct weir_builder *builder, struct weir_value *x,
                               struct weir_value *weight, struct weir_value *bias,
                               bool weight_in_out) {
    char text[96];
    if (!weir__expects_features(builder, "linear", x)) return NULL;
    assert(weight->rank == 2);
    int64_t in = weight->shape[weight_in_out ? 0 : 1], out = weight->shape[weight_in_out ? 1 : 0];
    if (weir__value_width(x) != in)
        return weir_builder_fail(builder, WEIR_ERR_SHAPE,
                                 "linear takes %lld features, but its input is %s", (long long)in,
                                 weir__value_text(x, text));
    x = weir__plain(builder, x);
    struct weir__node *node = WEIR__EMIT(builder, linear, x, weight, bias);
    if (node == NULL) return NULL;
    node->shape.tokens = weir__value_tokens(x);
    node->shape.in = in;
    node->shape.out = out;
    node->shape.has_bias = bias != NULL;
    node->shape.weight_in_out = weight_in_out;
    int64_t shape[WEIR_RANK_MAX];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] = out;
    return weir__adapted(builder, x, weight, weir__output(builder, node, x->rank, shape));
}

/* The product's part of x's gradient is added to what later readers of x gave: in one pass where
 * the back end adds to products. */
static void contribute_input(struct weir_builder *builder, const struct weir__node *node,
                             struct weir_value *dy) {
    struct weir_value *x = node->in[0], *weight = node->in[1];
    if (builder->graph->adds_to_products && x->grad != NULL) {
        struct weir__node *sum =
            WEIR__EMIT_LIKE(builder, linear_grad_input_add, node, dy, weight, x->grad);
        x->grad = weir__output_like(builder, sum, x);
        return;
    }
    struct weir__node *dx = WEIR__EMIT_LIKE(builder, linear_grad_input, node, dy, weight);
    weir__contribute(builder, x, weir__output_like(builder, dx, x));
}

static void contribute_all(struct weir_builder *builder, const struct weir__node *node,
                           struct weir_value *bias, struct weir_value *dy) {
    struct weir_value *x = node->in[0], *weight = node->in[1];
    if (weir__wants_grad(x)) contribute_input(builder, node, dy);
    if (weir__wants_grad(weight)) {
        struct weir__node *dw = WEIR__EMIT_LIKE(builder, linear_grad_weight, node, x, dy);
        weir__output_accumulator(builder, dw, weight);
    }
    if (weir__wants_grad(bias)) {
        struct weir__node *db = WEIR__EMIT_LIKE(builder, bias_grad, node, dy);
        weir__output_accumulator(builder, db, bias);
    }
}

static void gradient(struct weir_builder *builder, const struct weir__node *node,
                     struct weir_value *dy) {
    contribute_all(builder, node, node->in[2], dy);
}

/* In the order of its parts: the sum's other operand first. */
static void add_gradient(struct weir_builder *builder, const struct weir__node *node,
                         struct weir_value *dy) {
    weir__contribute(builder, node->in[2], dy);
    contribute_all(builder, node, node->shape.has_bias ? node->in[3] : NULL, dy);
}

static double cost(const struct weir__node *node) {
    const struct weir__op_shape *shape = &node->shape;
    return 2.0 * (double)shape->tokens * (double)shape->in * (double)shape->out;
}

static double add_cost(const struct weir__node *node) {
    return cost(node) + (double)node->shape.tokens * (double)node->shape.out;
}

const struct weir__op_rule weir__rule_linear = {.gradient = gradient, .cost = cost};
const struct weir__op_rule weir__rule_linear_add = {
    .gradient = add_gradient, .cost = add_cost, .in_place = 1 << 2};

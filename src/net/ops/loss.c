/* SPDX-License-Identifier: MIT */
/* Losses: one double per micro-batch, which is its share of the mini-batch's weighted mean. */
#include "net/ops/rules.h"

static bool target_fits(const struct weir_value *logits, const struct weir_value *target) {
    if (target->dtype != WEIR_I64 || target->rank + 1 != logits->rank) return false;
    for (uint32_t d = 0; d < target->rank; d++)
        if (target->shape[d] != logits->shape[d]) return false;
    return true;
}

struct weir_value *weir__cross_entropy(struct weir_builder *builder, struct weir_value *logits,
                                       struct weir_value *target, int64_t ignore_index) {
    char output[96], label[96];
    if (!weir__expects_features(builder, "cross_entropy", logits)) return NULL;
    if (!target_fits(logits, target))
        return weir_builder_fail(
            builder, WEIR_ERR_SHAPE,
            "cross_entropy takes an i64 target with the output's shape less its last dimension, "
            "but the output is %s and the target %s",
            weir__value_text(logits, output), weir__value_text(target, label));
    struct weir__node *node = WEIR__EMIT(builder, cross_entropy, logits, target);
    if (node == NULL) return NULL;
    node->shape.tokens = weir__value_tokens(logits);
    node->shape.width = weir__value_width(logits);
    node->shape.ignore_index = ignore_index;
    struct weir_value *loss = weir__output_number(builder, node);
    weir__output_exact(builder, node, 1, &node->shape.tokens);
    weir__output_exact(builder, node, 1, &node->shape.tokens);
    return loss;
}

static void cross_entropy_gradient(struct weir_builder *builder, const struct weir__node *node,
                                   struct weir_value *dy) {
    assert(dy == NULL);
    struct weir_value *logits = node->in[0];
    if (!weir__wants_grad(logits)) return;
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, cross_entropy_grad, node, logits,
                                              node->in[1], node->out[1], node->out[2]);
    weir__contribute(builder, logits, weir__output_like(builder, grad, logits));
}

static double cross_entropy_cost(const struct weir__node *node) {
    return 4.0 * (double)node->shape.tokens * (double)node->shape.width;
}

/* ---- with its product, which fusion alone emits ---- */

/** One node makes the loss and all gradients, so that where a backward is whole the logits are made
 * once. */
static void linear_cross_entropy_gradient(struct weir_builder *builder,
                                          const struct weir__node *node, struct weir_value *dy) {
    assert(dy == NULL && node->shape.width == node->shape.out);
    struct weir_value *x = node->in[0], *weight = node->in[1];
    struct weir_value *bias = node->shape.has_bias ? node->in[3] : NULL;
    if (!weir__wants_grad(x)) return; /* nor does the weight, then */
    struct weir__node *grad =
        WEIR__EMIT_LIKE(builder, linear_cross_entropy_grad, node, x, weight, node->in[2], bias);
    if (grad == NULL) return;
    grad->shape.frozen = !weir__wants_grad(weight);
    builder->graph->backward_loss = weir__output_number(builder, grad);
    weir__contribute(builder, x, weir__output_like(builder, grad, x));
    if (grad->shape.frozen) return;
    weir__output_accumulator(builder, grad, weight);
    if (bias != NULL) weir__output_accumulator(builder, grad, bias);
}

static double head_cost(const struct weir__node *node) {
    const struct weir__op_shape *shape = &node->shape;
    return 2.0 * (double)shape->tokens * (double)shape->in * (double)shape->out;
}

static double linear_cross_entropy_cost(const struct weir__node *node) {
    return head_cost(node) + cross_entropy_cost(node);
}

static double linear_cross_entropy_grad_cost(const struct weir__node *node) {
    return (node->shape.frozen ? 2 : 3) * head_cost(node) + 2 * cross_entropy_cost(node);
}

/** A loss on elements: the target is like the output. */
static struct weir_value *elementwise(struct weir_builder *builder, enum weir__op_code op,
                                      const char *name, struct weir_value *output,
                                      struct weir_value *target) {
    char text[96], label[96];
    if (!weir__expects_float(builder, name, output)) return NULL;
    if (!weir__value_same_shape(output, target))
        return weir_builder_fail(builder, WEIR_ERR_SHAPE,
                                 "%s takes a target like the output, but the output is %s "
                                 "and the target %s",
                                 name, weir__value_text(output, text),
                                 weir__value_text(target, label));
    struct weir__node *node = weir__emit(builder, op, 2, (struct weir_value *[]){output, target});
    if (node == NULL) return NULL;
    node->shape.width = weir__value_count(output);
    return weir__output_number(builder, node);
}

struct weir_value *weir__mse(struct weir_builder *builder, struct weir_value *output,
                             struct weir_value *target) {
    return elementwise(builder, WEIR__OP_mse, "mse", output, target);
}

struct weir_value *weir__bce_with_logits(struct weir_builder *builder, struct weir_value *output,
                                         struct weir_value *target) {
    return elementwise(builder, WEIR__OP_bce_with_logits, "bce_with_logits", output, target);
}

static void mse_gradient(struct weir_builder *builder, const struct weir__node *node,
                         struct weir_value *dy) {
    assert(dy == NULL);
    struct weir_value *output = node->in[0];
    if (!weir__wants_grad(output)) return;
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, mse_grad, node, output, node->in[1]);
    weir__contribute(builder, output, weir__output_like(builder, grad, output));
}

static void bce_gradient(struct weir_builder *builder, const struct weir__node *node,
                         struct weir_value *dy) {
    assert(dy == NULL);
    struct weir_value *output = node->in[0];
    if (!weir__wants_grad(output)) return;
    struct weir__node *grad =
        WEIR__EMIT_LIKE(builder, bce_with_logits_grad, node, output, node->in[1]);
    weir__contribute(builder, output, weir__output_like(builder, grad, output));
}

static double bce_cost(const struct weir__node *node) {
    return 8.0 * (double)node->shape.width;
}

static double mse_cost(const struct weir__node *node) {
    return 3.0 * (double)node->shape.width;
}

const struct weir__op_rule weir__rule_cross_entropy = {.gradient = cross_entropy_gradient,
                                                       .cost = cross_entropy_cost};
const struct weir__op_rule weir__rule_linear_cross_entropy = {
    .gradient = linear_cross_entropy_gradient, .cost = linear_cross_entropy_cost};
const struct weir__op_rule weir__rule_linear_cross_entropy_grad = {
    .cost = linear_cross_entropy_grad_cost};
const struct weir__op_rule weir__rule_mse = {.gradient = mse_gradient, .cost = mse_cost};
const struct weir__op_rule weir__rule_bce_with_logits = {.gradient = bce_gradient,
                                                         .cost = bce_cost};

/* SPDX-License-Identifier: MIT */
/* Ops on single elements: activations, dropout, sums. */
#include "net/compile.h"
#include "net/ops/rules.h"

#include <stdio.h>

static double cost_of(const struct weir__node *node, double per_element) {
    return per_element * (double)node->shape.width;
}

/* ---- activations ---- */

struct weir_value *weir_gelu(struct weir_builder *builder, struct weir_value *x,
                             bool approximate_tanh) {
    if (!weir__expects_float(builder, "gelu", x)) return NULL;
    struct weir__node *node = WEIR__EMIT(builder, gelu, x);
    if (node == NULL) return NULL;
    node->shape.width = weir__value_count(x);
    node->shape.gelu_tanh = approximate_tanh;
    return weir__output_like(builder, node, x);
}

static void gelu_gradient(struct weir_builder *builder, const struct weir__node *node,
                          struct weir_value *dy) {
    struct weir_value *x = node->in[0];
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, gelu_grad, node, dy, x);
    weir__contribute(builder, x, weir__output_like(builder, grad, x));
}

static double gelu_cost(const struct weir__node *node) {
    return cost_of(node, 12);
}

struct weir_value *weir_relu(struct weir_builder *builder, struct weir_value *x) {
    if (!weir__expects_float(builder, "relu", x)) return NULL;
    struct weir__node *node = WEIR__EMIT(builder, relu, x);
    if (node == NULL) return NULL;
    node->shape.width = weir__value_count(x);
    return weir__output_like(builder, node, x);
}

/* From y, not x: y is mostly kept anyway, as the next product's input. */
static void relu_gradient(struct weir_builder *builder, const struct weir__node *node,
                          struct weir_value *dy) {
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, relu_grad, node, dy, node->out[0]);
    weir__contribute(builder, node->in[0], weir__output_like(builder, grad, node->in[0]));
}

static double one_cost(const struct weir__node *node) {
    return cost_of(node, 1);
}

/* ---- dropout ---- */

/** Notes the dropout for weir_net_masks; gives its number for the random counter. */
static uint32_t note_dropout(struct weir_builder *builder, const struct weir_value *x, double p) {
    struct weir__network *network = builder->network;
    void *list = network->dropouts;
    if (!weir__pool_grow(&network->pool, &list, network->dropout_count, &network->dropout_capacity,
                         sizeof network->dropouts[0])) {
        weir__builder_fail(builder, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
        return 0;
    }
    network->dropouts = list;
    struct weir__dropout *dropout = &network->dropouts[network->dropout_count++];
    uint32_t k = builder->dropout_count++;
    *dropout = (struct weir__dropout){.layer = builder->layer_index,
                                      .random_op = builder->layer_index << 8 | k,
                                      .p = p,
                                      .tensor = weir__value_tensor(x)};
    const char *identity = builder->layer->identity;
    if (builder->layer->type->composite)
        snprintf(dropout->name, sizeof dropout->name, "%s.%u", identity, k);
    else
        snprintf(dropout->name, sizeof dropout->name, "%s", identity);
    return dropout->random_op;
}

struct weir_value *weir_dropout(struct weir_builder *builder, struct weir_value *x, double p) {
    if (!weir__expects_float(builder, "dropout", x)) return NULL;
    assert(p >= 0 && p < 1 && builder->layer != NULL && builder->dropout_count < 256);
    uint32_t random_op = note_dropout(builder, x, p);
    /* Nothing is dropped and the scale is 1: the same bits without touching them. */
    if (p == 0) return x;
    struct weir__node *node = WEIR__EMIT(builder, dropout, x);
    if (node == NULL) return NULL;
    node->shape.width = weir__value_count(x);
    node->shape.p = p;
    node->shape.random_op = random_op;
    return weir__output_like(builder, node, x);
}

static struct weir_value *dropped(struct weir_builder *builder, const struct weir__node *node,
                                  struct weir_value *dy) {
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, dropout, node, dy);
    return weir__output_like(builder, grad, node->in[0]);
}

static void dropout_gradient(struct weir_builder *builder, const struct weir__node *node,
                             struct weir_value *dy) {
    weir__contribute(builder, node->in[0], dropped(builder, node, dy));
}

/* In the order of its parts: the sum's other operand first. */
static void dropout_add_gradient(struct weir_builder *builder, const struct weir__node *node,
                                 struct weir_value *dy) {
    weir__contribute(builder, node->in[1], dy);
    if (weir__wants_grad(node->in[0]))
        weir__contribute(builder, node->in[0], dropped(builder, node, dy));
}

static double dropout_cost(const struct weir__node *node) {
    return cost_of(node, 10);
}

/* ---- sums ---- */

struct weir_value *weir_sum(struct weir_builder *builder, struct weir_value *a,
                            struct weir_value *b) {
    char text_a[96], text_b[96];
    if (!weir__expects_float(builder, "add", a)) return NULL;
    if (!weir__value_same_shape(a, b))
        return weir__builder_fail(builder, WEIR_ERR_SHAPE, "add takes equal shapes, not %s and %s",
                                  weir__value_text(a, text_a), weir__value_text(b, text_b));
    struct weir__node *node = WEIR__EMIT(builder, add, a, b);
    if (node == NULL) return NULL;
    node->shape.width = weir__value_count(a);
    return weir__output_like(builder, node, a);
}

static void add_gradient(struct weir_builder *builder, const struct weir__node *node,
                         struct weir_value *dy) {
    weir__contribute(builder, node->in[0], dy);
    weir__contribute(builder, node->in[1], dy);
}

const struct weir__op_rule weir__rule_gelu = {.gradient = gelu_gradient, .cost = gelu_cost};
const struct weir__op_rule weir__rule_relu = {
    .gradient = relu_gradient, .cost = one_cost, .in_place = 1};
const struct weir__op_rule weir__rule_dropout = {
    .gradient = dropout_gradient, .cost = dropout_cost, .in_place = 1};
const struct weir__op_rule weir__rule_dropout_add = {.gradient = dropout_add_gradient,
                                                     .cost = dropout_cost};
const struct weir__op_rule weir__rule_add = {
    .gradient = add_gradient, .cost = one_cost, .in_place = 3};

/* SPDX-License-Identifier: MIT */
/* Ops on single elements: activations, dropout, sums. */
#include "net/model/network.h"
#include "net/ops/rules.h"

#include <stdio.h>

static double cost_of(const struct weir__node *node, double per_element) {
    return per_element * (double)node->shape.width;
}

/* ---- activations ---- */

/** An op on each element by itself. */
static struct weir__node *emit_each(struct weir_builder *builder, enum weir__op_code op,
                                    const char *name, struct weir_value *x) {
    if (!weir__expects_float(builder, name, x)) return NULL;
    struct weir__node *node = weir__emit(builder, op, 1, &x);
    if (node != NULL) node->shape.width = weir__value_count(x);
    return node;
}

#define EACH(builder, name, x) emit_each(builder, WEIR__OP_##name, #name, x)

/** The gradient from dy and `from`, which is the op's input or output. */
static void contribute_each(struct weir_builder *builder, enum weir__op_code op,
                            const struct weir__node *node, struct weir_value *dy,
                            struct weir_value *from) {
    struct weir__node *grad =
        weir__emit_like(builder, op, node, 2, (struct weir_value *[]){dy, from});
    weir__contribute(builder, node->in[0], weir__output_like(builder, grad, node->in[0]));
}

struct weir_value *weir_gelu(struct weir_builder *builder, struct weir_value *x,
                             bool approximate_tanh) {
    struct weir__node *node = EACH(builder, gelu, x);
    if (node != NULL) node->shape.gelu_tanh = approximate_tanh;
    return node == NULL ? NULL : weir__output_like(builder, node, x);
}

struct weir_value *weir_relu(struct weir_builder *builder, struct weir_value *x) {
    struct weir__node *node = EACH(builder, relu, x);
    return node == NULL ? NULL : weir__output_like(builder, node, x);
}

struct weir_value *weir_leaky_relu(struct weir_builder *builder, struct weir_value *x,
                                   double negative_slope) {
    struct weir__node *node = EACH(builder, leaky_relu, x);
    if (node != NULL) node->shape.slope = negative_slope;
    return node == NULL ? NULL : weir__output_like(builder, node, x);
}

struct weir_value *weir_silu(struct weir_builder *builder, struct weir_value *x) {
    struct weir__node *node = EACH(builder, silu, x);
    return node == NULL ? NULL : weir__output_like(builder, node, x);
}

struct weir_value *weir_sigmoid(struct weir_builder *builder, struct weir_value *x) {
    struct weir__node *node = EACH(builder, sigmoid, x);
    return node == NULL ? NULL : weir__output_like(builder, node, x);
}

struct weir_value *weir_tanh(struct weir_builder *builder, struct weir_value *x) {
    struct weir__node *node = EACH(builder, tanh, x);
    return node == NULL ? NULL : weir__output_like(builder, node, x);
}

struct weir_value *weir__scale(struct weir_builder *builder, struct weir_value *x, double factor) {
    struct weir__node *node = EACH(builder, scale, x);
    if (node != NULL) node->shape.slope = factor;
    return node == NULL ? NULL : weir__output_like(builder, node, x);
}

static void scale_gradient(struct weir_builder *builder, const struct weir__node *node,
                           struct weir_value *dy) {
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, scale, node, dy);
    weir__contribute(builder, node->in[0], weir__output_like(builder, grad, node->in[0]));
}

static void gelu_gradient(struct weir_builder *builder, const struct weir__node *node,
                          struct weir_value *dy) {
    contribute_each(builder, WEIR__OP_gelu_grad, node, dy, node->in[0]);
}

static void silu_gradient(struct weir_builder *builder, const struct weir__node *node,
                          struct weir_value *dy) {
    contribute_each(builder, WEIR__OP_silu_grad, node, dy, node->in[0]);
}

/* From y, not x: y is mostly kept anyway, as the next product's input. */
static void relu_gradient(struct weir_builder *builder, const struct weir__node *node,
                          struct weir_value *dy) {
    contribute_each(builder, WEIR__OP_relu_grad, node, dy, node->out[0]);
}

static void leaky_relu_gradient(struct weir_builder *builder, const struct weir__node *node,
                                struct weir_value *dy) {
    contribute_each(builder, WEIR__OP_leaky_relu_grad, node, dy, node->out[0]);
}

static void sigmoid_gradient(struct weir_builder *builder, const struct weir__node *node,
                             struct weir_value *dy) {
    contribute_each(builder, WEIR__OP_sigmoid_grad, node, dy, node->out[0]);
}

static void tanh_gradient(struct weir_builder *builder, const struct weir__node *node,
                          struct weir_value *dy) {
    contribute_each(builder, WEIR__OP_tanh_grad, node, dy, node->out[0]);
}

static double gelu_cost(const struct weir__node *node) {
    return cost_of(node, 12);
}

static double sigmoid_cost(const struct weir__node *node) {
    return cost_of(node, 4);
}

static double one_cost(const struct weir__node *node) {
    return cost_of(node, 1);
}

/* ---- dropout ---- */

/** Notes the dropout for weir_net_masks; gives its number for the random counter. */
static uint32_t note_dropout(struct weir_builder *builder, const struct weir_value *x, double p,
                             int64_t pixels) {
    struct weir__network *network = builder->network;
    void *list = network->dropouts;
    if (!weir__pool_grow(&network->pool, &list, network->dropout_count, &network->dropout_capacity,
                         sizeof network->dropouts[0])) {
        weir_builder_fail(builder, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
        return 0;
    }
    network->dropouts = list;
    struct weir__dropout_site *dropout = &network->dropouts[network->dropout_count++];
    uint32_t k = builder->dropout_count++;
    *dropout = (struct weir__dropout_site){.layer = builder->layer_index,
                                           .random_op = builder->layer_index << 8 | k,
                                           .p = p,
                                           .pixels = pixels,
                                           .tensor = weir_value_tensor(x)};
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
    uint32_t random_op = note_dropout(builder, x, p, 1);
    /* Nothing is dropped and the scale is 1: the same bits without touching them. */
    if (p == 0) return x;
    struct weir__node *node = WEIR__EMIT(builder, dropout, x);
    if (node == NULL) return NULL;
    node->shape.width = weir__value_count(x);
    node->shape.channels = x->channels_last ? x->shape[0] : 0;
    node->shape.p = p;
    node->shape.random_op = random_op;
    return weir__output_like(builder, node, x);
}

struct weir_value *weir_dropout2d(struct weir_builder *builder, struct weir_value *x, double p) {
    if (!weir__expects_image(builder, "dropout2d", x)) return NULL;
    assert(p >= 0 && p < 1 && builder->layer != NULL && builder->dropout_count < 256);
    int64_t channels = x->shape[0], pixels = x->shape[1] * x->shape[2];
    uint32_t random_op = note_dropout(builder, x, p, pixels);
    if (p == 0) return x;
    x = weir__channels_last(builder, x);
    struct weir__node *node = WEIR__EMIT(builder, dropout2d, x);
    if (node == NULL) return NULL;
    node->shape.tokens = pixels;
    node->shape.width = channels;
    node->shape.p = p;
    node->shape.random_op = random_op;
    return weir__output_like(builder, node, x);
}

static struct weir_value *dropped(struct weir_builder *builder, const struct weir__node *node,
                                  struct weir_value *dy) {
    /* Its own gradient; a fused node's is its dropout's. */
    enum weir__op_code op = node->op == WEIR__OP_dropout2d ? node->op : WEIR__OP_dropout;
    struct weir__node *grad = weir__emit_like(builder, op, node, 1, &dy);
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

/* ---- with the bias of the product before ---- */

/** The bias's gradient: column sums of that of what it was added to. */
static void contribute_bias(struct weir_builder *builder, const struct weir__node *node,
                            struct weir_value *dx) {
    if (!weir__wants_grad(node->in[1])) return;
    struct weir__node *db = WEIR__EMIT_LIKE(builder, bias_grad, node, dx);
    weir__output_accumulator(builder, db, node->in[1]);
}

static void bias_add_gradient(struct weir_builder *builder, const struct weir__node *node,
                              struct weir_value *dy) {
    contribute_bias(builder, node, dy);
    weir__contribute(builder, node->in[0], dy);
}

static void bias_gelu_gradient(struct weir_builder *builder, const struct weir__node *node,
                               struct weir_value *dy) {
    struct weir__node *grad =
        WEIR__EMIT_LIKE(builder, bias_gelu_grad, node, dy, node->in[0], node->in[1]);
    struct weir_value *dx = weir__output_like(builder, grad, node->in[0]);
    contribute_bias(builder, node, dx);
    weir__contribute(builder, node->in[0], dx);
}

static void bias_dropout_add_gradient(struct weir_builder *builder, const struct weir__node *node,
                                      struct weir_value *dy) {
    weir__contribute(builder, node->in[2], dy);
    if (!weir__wants_grad(node->in[0])) return;
    struct weir_value *dx = dropped(builder, node, dy);
    contribute_bias(builder, node, dx);
    weir__contribute(builder, node->in[0], dx);
}

/* ---- sums, products ---- */

struct weir_value *weir__narrow(struct weir_builder *builder, struct weir_value *x) {
    if (x == NULL || !weir_dtype_is_float(x->dtype) || x->dtype == builder->dtype) return x;
    struct weir__node *node = weir__emit(builder, WEIR__OP_narrow, 1, &x);
    if (node == NULL) return NULL;
    node->shape.width = weir__value_count(x);
    return weir__output_like(builder, node, x);
}

static void narrow_gradient(struct weir_builder *builder, const struct weir__node *node,
                            struct weir_value *dy) {
    struct weir_value *x = node->in[0];
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, widen, node, dy);
    struct weir_value *dx = weir__output_exact(builder, grad, x->rank, x->shape);
    if (dx == NULL) return;
    dx->channels_last = x->channels_last;
    weir__contribute(builder, x, dx);
}

const struct weir__op_rule weir__rule_narrow = {.gradient = narrow_gradient};

/** An op on each element of a and the same one of b. */
static struct weir_value *emit_pair(struct weir_builder *builder, enum weir__op_code op,
                                    const char *name, struct weir_value *a, struct weir_value *b) {
    char text_a[96], text_b[96];
    if (!weir__expects_float(builder, name, a) || !weir__expects_float(builder, name, b))
        return NULL;
    if (!weir__value_same_shape(a, b)) {
        weir__builder_note(builder, WEIR_ERR_SHAPE, "%s takes equal shapes, not %s and %s", name,
                           weir__value_text(a, text_a), weir__value_text(b, text_b));
        return a;
    }
    b = weir__ordered_like(builder, b, a);
    struct weir__node *node = weir__emit(builder, op, 2, (struct weir_value *[]){a, b});
    if (node == NULL) return NULL;
    node->shape.width = weir__value_count(a);
    return weir__output_like(builder, node, a);
}

struct weir_value *weir_sum(struct weir_builder *builder, struct weir_value *a,
                            struct weir_value *b) {
    return emit_pair(builder, WEIR__OP_add, "add", a, b);
}

struct weir_value *weir_product(struct weir_builder *builder, struct weir_value *a,
                                struct weir_value *b) {
    return emit_pair(builder, WEIR__OP_multiply, "multiply", a, b);
}

struct weir_value *weir__swiglu(struct weir_builder *builder, struct weir_value *gate,
                                struct weir_value *up) {
    return emit_pair(builder, WEIR__OP_swiglu, "swiglu", gate, up);
}

static void swiglu_gradient(struct weir_builder *builder, const struct weir__node *node,
                            struct weir_value *dy) {
    struct weir__node *grad =
        WEIR__EMIT_LIKE(builder, swiglu_grad, node, dy, node->in[0], node->in[1]);
    for (uint32_t i = 0; i < 2; i++) {
        struct weir_value *dx = weir__output_like(builder, grad, node->in[i]);
        if (weir__wants_grad(node->in[i])) weir__contribute(builder, node->in[i], dx);
    }
}

static void add_gradient(struct weir_builder *builder, const struct weir__node *node,
                         struct weir_value *dy) {
    weir__contribute(builder, node->in[0], dy);
    weir__contribute(builder, node->in[1], dy);
}

static void multiply_gradient(struct weir_builder *builder, const struct weir__node *node,
                              struct weir_value *dy) {
    assert(node->in_count == 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct weir_value *x = node->in[i];
        if (!weir__wants_grad(x)) continue;
        struct weir__node *grad = WEIR__EMIT_LIKE(builder, multiply, node, dy, node->in[1 - i]);
        weir__contribute(builder, x, weir__output_like(builder, grad, x));
    }
}

const struct weir__op_rule weir__rule_gelu = {.gradient = gelu_gradient, .cost = gelu_cost};
const struct weir__op_rule weir__rule_relu = {
    .gradient = relu_gradient, .cost = one_cost, .in_place = 1};
const struct weir__op_rule weir__rule_leaky_relu = {
    .gradient = leaky_relu_gradient, .cost = one_cost, .in_place = 1};
const struct weir__op_rule weir__rule_silu = {.gradient = silu_gradient, .cost = sigmoid_cost};
const struct weir__op_rule weir__rule_scale = {
    .gradient = scale_gradient, .cost = one_cost, .in_place = 1};
const struct weir__op_rule weir__rule_swiglu = {.gradient = swiglu_gradient, .cost = sigmoid_cost};
const struct weir__op_rule weir__rule_sigmoid = {
    .gradient = sigmoid_gradient, .cost = sigmoid_cost, .in_place = 1};
const struct weir__op_rule weir__rule_tanh = {
    .gradient = tanh_gradient, .cost = sigmoid_cost, .in_place = 1};
const struct weir__op_rule weir__rule_dropout2d = {
    .gradient = dropout_gradient, .cost = one_cost, .in_place = 1};
const struct weir__op_rule weir__rule_dropout = {
    .gradient = dropout_gradient, .cost = dropout_cost, .in_place = 1};
const struct weir__op_rule weir__rule_dropout_add = {.gradient = dropout_add_gradient,
                                                     .cost = dropout_cost};
const struct weir__op_rule weir__rule_bias_add = {
    .gradient = bias_add_gradient, .cost = one_cost, .in_place = 1};
const struct weir__op_rule weir__rule_bias_gelu = {.gradient = bias_gelu_gradient,
                                                   .cost = gelu_cost};
const struct weir__op_rule weir__rule_bias_dropout_add = {.gradient = bias_dropout_add_gradient,
                                                          .cost = dropout_cost};
const struct weir__op_rule weir__rule_add = {
    .gradient = add_gradient, .cost = one_cost, .in_place = 3};
const struct weir__op_rule weir__rule_multiply = {
    .gradient = multiply_gradient, .cost = one_cost, .in_place = 3};

/* SPDX-License-Identifier: MIT */
/* Softmax over one dimension, which is brought to the end of memory for it. */
#include "net/ops/rules.h"

/** x with dimensions `dim` and the last exchanged in memory, as a plain value. */
static struct weir_value *exchanged(struct weir_builder *builder, struct weir_value *x,
                                    uint32_t dim) {
    int64_t before = 1, size = x->shape[dim], behind = 1;
    for (uint32_t d = 0; d < dim; d++) before *= x->shape[d];
    for (uint32_t d = dim + 1; d < x->rank; d++) behind *= x->shape[d];
    struct weir__node *node = WEIR__EMIT(builder, transpose, x);
    if (node == NULL) return NULL;
    node->shape.tokens = before;
    node->shape.in = size;
    node->shape.out = behind;
    return weir__output(builder, node, 3, (int64_t[]){before, behind, size});
}

/** The reverse, with the shape of `like`. */
static struct weir_value *restored(struct weir_builder *builder, struct weir_value *y,
                                   const struct weir_value *like) {
    struct weir__node *node = WEIR__EMIT(builder, transpose, y);
    if (node == NULL) return NULL;
    node->shape.tokens = y->shape[0];
    node->shape.in = y->shape[1];
    node->shape.out = y->shape[2];
    return weir__output(builder, node, like->rank, like->shape);
}

static struct weir_value *over_last(struct weir_builder *builder, struct weir_value *x,
                                    int64_t size) {
    struct weir__node *node = WEIR__EMIT(builder, softmax, x);
    if (node == NULL) return NULL;
    node->shape.tokens = weir__value_count(x) / size;
    node->shape.width = size;
    return weir__output_like(builder, node, x);
}

struct weir_value *weir_softmax(struct weir_builder *builder, struct weir_value *x, uint32_t dim) {
    if (!weir__expects_features(builder, "softmax", x)) return NULL;
    if (dim >= x->rank)
        return weir_builder_fail(builder, WEIR_ERR_SHAPE,
                                 "softmax over dimension %u of a row that has %u", dim, x->rank);
    if (x->channels_last && dim == 0) return over_last(builder, x, x->shape[0]);
    x = weir__plain(builder, x);
    if (x == NULL) return NULL;
    if (dim + 1 == x->rank) return over_last(builder, x, x->shape[dim]);
    struct weir_value *y = exchanged(builder, x, dim);
    if (y == NULL) return NULL;
    return restored(builder, over_last(builder, y, x->shape[dim]), x);
}

static void gradient(struct weir_builder *builder, const struct weir__node *node,
                     struct weir_value *dy) {
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, softmax_grad, node, dy, node->out[0]);
    weir__contribute(builder, node->in[0], weir__output_like(builder, grad, node->in[0]));
}

static double cost(const struct weir__node *node) {
    return 5.0 * (double)node->shape.tokens * (double)node->shape.width;
}

/* ---- the order of an image ---- */

static void transpose_gradient(struct weir_builder *builder, const struct weir__node *node,
                               struct weir_value *dy) {
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, transpose, node, dy);
    if (grad == NULL) return;
    grad->shape.in = node->shape.out;
    grad->shape.out = node->shape.in;
    weir__contribute(builder, node->in[0], weir__output_like(builder, grad, node->in[0]));
}

const struct weir__op_rule weir__rule_softmax = {.gradient = gradient, .cost = cost};
const struct weir__op_rule weir__rule_transpose = {.gradient = transpose_gradient};

/* SPDX-License-Identifier: MIT */
/* Values and nodes: lists of pointers, because passes hold on to both while the lists grow. */
#include "net/model/graph.h"

#include <string.h>

struct weir_value *weir__value_root(struct weir_value *value) {
    assert(value != NULL);
    while (value->producer != NULL && value->producer->op == WEIR__OP_ALIAS)
        value = value->producer->in[0];
    return value;
}

int64_t weir__value_tokens(const struct weir_value *value) {
    assert(value->rank <= WEIR_RANK_MAX);
    int64_t tokens = 1;
    for (uint32_t d = 0; d + 1 < value->rank; d++) tokens *= value->shape[d];
    return tokens;
}

int64_t weir__value_width(const struct weir_value *value) {
    return value->rank == 0 ? 1 : value->shape[value->rank - 1];
}

int64_t weir__value_count(const struct weir_value *value) {
    return weir__value_tokens(value) * weir__value_width(value);
}

struct weir_tensor weir_value_tensor(const struct weir_value *value) {
    assert(value->rank <= WEIR_RANK_MAX);
    struct weir_tensor tensor = {.dtype = value->dtype, .rank = value->rank};
    memcpy(tensor.shape, value->shape, sizeof tensor.shape);
    tensor.differentiable = value->requires_grad;
    return tensor;
}

int weir__value_bytes(const struct weir_value *value, int64_t rows, size_t *bytes) {
    struct weir_tensor tensor = weir_value_tensor(value);
    return weir__tensor_bytes(&tensor, value->batched ? rows : 1, bytes);
}

bool weir__value_same_shape(const struct weir_value *a, const struct weir_value *b) {
    if (a->dtype != b->dtype || a->rank != b->rank || a->batched != b->batched) return false;
    return memcmp(a->shape, b->shape, a->rank * sizeof a->shape[0]) == 0;
}

enum weir_dtype weir__exact_dtype(enum weir_dtype dtype) {
    return dtype == WEIR_BF16 ? WEIR_F32 : dtype;
}

struct weir_value *weir__graph_value(struct weir__graph *graph, enum weir__value_source source,
                                     uint32_t index, const struct weir_tensor *tensor) {
    assert(tensor->rank <= WEIR_RANK_MAX);
    void *list = graph->values;
    if (!weir__pool_grow(graph->pool, &list, graph->value_count, &graph->value_capacity,
                         sizeof graph->values[0]))
        return NULL;
    graph->values = list;
    assert(graph->value_count < graph->value_capacity);
    struct weir_value *value = weir__pool_take(graph->pool, 1, sizeof *value);
    if (value == NULL) return NULL;
    value->id = graph->value_count;
    value->source = source;
    value->index = index;
    value->dtype = tensor->dtype;
    value->rank = tensor->rank;
    memcpy(value->shape, tensor->shape, tensor->rank * sizeof value->shape[0]);
    value->requires_grad = tensor->differentiable;
    value->batched = true;
    value->accumulator = WEIR__NONE;
    graph->values[graph->value_count++] = value;
    return value;
}

enum { FEW_OPERANDS = 7, FEW_RESULTS = 4 };

/** A node has more results than FEW_RESULTS only where it has more operands than that. */
static bool take_operands(struct weir__pool *pool, struct weir__node *node, uint32_t in_count) {
    assert(in_count <= WEIR__NODE_IN_MAX);
    node->in_capacity = in_count < FEW_OPERANDS ? FEW_OPERANDS : in_count;
    node->out_capacity = in_count < FEW_RESULTS ? FEW_RESULTS : in_count;
    node->in = weir__pool_take(pool, node->in_capacity, sizeof node->in[0]);
    node->out = weir__pool_take(pool, node->out_capacity, sizeof node->out[0]);
    return node->in != NULL && node->out != NULL;
}

struct weir__node *weir__graph_node(struct weir__graph *graph, enum weir__op_code op,
                                    uint32_t layer, uint32_t in_count) {
    assert((unsigned)op <= WEIR__OP_ALIAS);
    void *list = graph->nodes;
    if (!weir__pool_grow(graph->pool, &list, graph->node_count, &graph->node_capacity,
                         sizeof graph->nodes[0]))
        return NULL;
    graph->nodes = list;
    assert(graph->node_count < graph->node_capacity);
    struct weir__node *node = weir__pool_take(graph->pool, 1, sizeof *node);
    if (node == NULL || !take_operands(graph->pool, node, in_count)) return NULL;
    node->id = graph->node_count;
    node->op = op;
    node->shape.op = op;
    node->layer = layer;
    graph->nodes[graph->node_count++] = node;
    return node;
}

struct weir__node *weir__graph_head(const struct weir__graph *graph) {
    const struct weir__node *loss = graph->loss == NULL ? NULL : graph->loss->producer;
    if (loss == NULL || loss->op != WEIR__OP_linear_cross_entropy) return NULL;
    assert(graph->output->producer != NULL && graph->output->producer->op == WEIR__OP_linear);
    return graph->output->producer;
}

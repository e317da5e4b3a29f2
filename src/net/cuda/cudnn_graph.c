/* SPDX-License-Identifier: MIT */
/* Operation graphs, and what many have: tensors, operations on single numbers. */
#include "net/cuda/cudnn.h"

enum { ALIGNMENT = 16, VIRTUAL_IDS = 1000 };

void weir__cudnn_forget(const struct weir__cudnn *cudnn, void *descriptor) {
    if (descriptor != NULL) (void)cudnn->descriptor_destroy(descriptor);
}

void *weir__cudnn_make(struct weir__cudnn_graph *graph, enum weir__cudnn_kind kind) {
    void *made = NULL;
    assert(graph->made_count < WEIR__CUDNN_MADE_MAX);
    if (graph->result == 0) graph->result = graph->cudnn->descriptor_create((int)kind, &made);
    if (graph->result != 0) return NULL;
    graph->made[graph->made_count++] = made;
    return made;
}

void weir__cudnn_set(struct weir__cudnn_graph *graph, void *descriptor,
                     enum weir__cudnn_attribute attribute, enum weir__cudnn_type type,
                     int64_t count, const void *elements) {
    assert(graph->result != 0 || (count >= 1 && elements != NULL));
    if (graph->result == 0)
        graph->result = graph->cudnn->set(descriptor, (int)attribute, (int)type, count, elements);
}

void weir__cudnn_finish(struct weir__cudnn_graph *graph, void *descriptor) {
    if (graph->result == 0) graph->result = graph->cudnn->finalize(descriptor);
}

void weir__cudnn_finish_operation(struct weir__cudnn_graph *graph, void *operation) {
    assert(graph->operation_count < WEIR__CUDNN_OPERATIONS_MAX);
    weir__cudnn_finish(graph, operation);
    if (graph->result == 0) graph->operations[graph->operation_count++] = operation;
}

void *weir__cudnn_tensor(struct weir__cudnn_graph *graph, const struct weir__cudnn_tensor *tensor) {
    const bool yes = true;
    int64_t alignment = ALIGNMENT, id = tensor->id;
    void *made = weir__cudnn_make(graph, WEIR__CUDNN_TENSOR);
    if (tensor->place == WEIR__CUDNN_VIRTUAL) id = VIRTUAL_IDS + graph->made_count;
#define SET(attribute, kind, count, elements)                                                      \
    weir__cudnn_set(graph, made, WEIR__CUDNN_TENSOR_##attribute, WEIR__CUDNN_TYPE_##kind, count,   \
                    elements)
    SET(DATA_TYPE, DATA_TYPE, 1, &tensor->type);
    SET(DIMENSIONS, INT64, 4, tensor->dimensions);
    SET(STRIDES, INT64, 4, tensor->strides);
    SET(UNIQUE_ID, INT64, 1, &id);
    SET(BYTE_ALIGNMENT, INT64, 1, &alignment);
    if (tensor->place == WEIR__CUDNN_VIRTUAL) SET(IS_VIRTUAL, BOOLEAN, 1, &yes);
    if (tensor->place == WEIR__CUDNN_BY_VALUE) SET(IS_BY_VALUE, BOOLEAN, 1, &yes);
#undef SET
    weir__cudnn_finish(graph, made);
    return made;
}

static void *describe_pointwise(struct weir__cudnn_graph *graph,
                                const struct weir__cudnn_pointwise *pointwise) {
    void *made = weir__cudnn_make(graph, WEIR__CUDNN_POINTWISE);
    weir__cudnn_set(graph, made, WEIR__CUDNN_POINTWISE_MODE, WEIR__CUDNN_TYPE_POINTWISE_MODE, 1,
                    &pointwise->mode);
    weir__cudnn_set(graph, made, WEIR__CUDNN_POINTWISE_MATH_PREC, WEIR__CUDNN_TYPE_DATA_TYPE, 1,
                    &pointwise->type);
    if (pointwise->axis > 0)
        weir__cudnn_set(graph, made, WEIR__CUDNN_POINTWISE_AXIS, WEIR__CUDNN_TYPE_INT64, 1,
                        &pointwise->axis);
    weir__cudnn_finish(graph, made);
    return made;
}

void weir__cudnn_pointwise(struct weir__cudnn_graph *graph,
                           const struct weir__cudnn_pointwise *pointwise) {
    void *described = describe_pointwise(graph, pointwise);
    void *operation = weir__cudnn_make(graph, WEIR__CUDNN_OPERATION_POINTWISE);
#define SET(attribute, element)                                                                    \
    weir__cudnn_set(graph, operation, WEIR__CUDNN_OPERATION_POINTWISE_##attribute,                 \
                    WEIR__CUDNN_TYPE_DESCRIPTOR, 1, element)
    SET(DESC, &described);
    SET(X, &pointwise->x);
    if (pointwise->b != NULL) SET(B, &pointwise->b);
    if (pointwise->t != NULL) SET(T, &pointwise->t);
    SET(Y, &pointwise->y);
#undef SET
    weir__cudnn_finish_operation(graph, operation);
}

int weir__cudnn_graph_end(struct weir__cudnn_graph *graph, void *handle) {
    assert(graph->operation_count >= 1 || graph->result != 0);
    void *made = weir__cudnn_make(graph, WEIR__CUDNN_OPERATIONGRAPH);
    weir__cudnn_set(graph, made, WEIR__CUDNN_OPERATIONGRAPH_OPS, WEIR__CUDNN_TYPE_DESCRIPTOR,
                    graph->operation_count, graph->operations);
    if (graph->cudnn->described == NULL)
        weir__cudnn_set(graph, made, WEIR__CUDNN_OPERATIONGRAPH_HANDLE, WEIR__CUDNN_TYPE_HANDLE, 1,
                        &handle);
    weir__cudnn_finish(graph, made);
    if (graph->result == 0) graph->graph = made;
    return graph->result;
}

void weir__cudnn_graph_clean_up(struct weir__cudnn_graph *graph) {
    while (graph->made_count > 0)
        weir__cudnn_forget(graph->cudnn, graph->made[--graph->made_count]);
    *graph = (struct weir__cudnn_graph){.cudnn = graph->cudnn};
}

/* SPDX-License-Identifier: MIT */
/* A convolution as cuDNN's graph of one operation. Dimensions are told in the order N, C, H, W
 * whatever lies where; the strides say that channels are last. */
#include "net/cuda/cudnn.h"

enum { ALIGNMENT = 16 };

static int type_of(enum weir_dtype dtype) {
    return dtype == WEIR_BF16 ? WEIR__CUDNN_DATA_BFLOAT16 : WEIR__CUDNN_DATA_FLOAT;
}

void weir__cudnn_forget(const struct weir__cudnn *cudnn, void *descriptor) {
    if (descriptor != NULL) (void)cudnn->descriptor_destroy(descriptor);
}

/** (count, height, width, channels) in memory. */
struct shape {
    int64_t id, count, channels;
    struct weir__plane plane;
    enum weir_dtype dtype;
};

static int tensor_new(const struct weir__cudnn *cudnn, const struct shape *shape, void **tensor) {
    int64_t height = shape->plane.height, width = shape->plane.width, channels = shape->channels;
    const int64_t dimensions[] = {shape->count, channels, height, width};
    const int64_t strides[] = {height * width * channels, 1, width * channels, channels};
    int64_t alignment = ALIGNMENT;
    int type = type_of(shape->dtype);
    int result = cudnn->descriptor_create(WEIR__CUDNN_TENSOR, tensor);
#define SET(attribute, kind, count, elements)                                                      \
    if (result == 0)                                                                               \
    result = cudnn->set(*tensor, WEIR__CUDNN_TENSOR_##attribute, WEIR__CUDNN_TYPE_##kind, count,   \
                        elements)
    SET(DATA_TYPE, DATA_TYPE, 1, &type);
    SET(DIMENSIONS, INT64, 4, dimensions);
    SET(STRIDES, INT64, 4, strides);
    SET(UNIQUE_ID, INT64, 1, &shape->id);
    SET(BYTE_ALIGNMENT, INT64, 1, &alignment);
#undef SET
    return result == 0 ? cudnn->finalize(*tensor) : result;
}

static int convolution_new(const struct weir__cudnn *cudnn, const struct weir__window *window,
                           void **convolution) {
    const int64_t dilations[] = {1, 1};
    const int64_t strides[] = {window->stride.height, window->stride.width};
    const int64_t paddings[] = {window->padding.height, window->padding.width};
    int64_t spatial = 2;
    int type = WEIR__CUDNN_DATA_FLOAT, mode = WEIR__CUDNN_CROSS_CORRELATION;
    int result = cudnn->descriptor_create(WEIR__CUDNN_CONVOLUTION, convolution);
#define SET(attribute, kind, count, elements)                                                      \
    if (result == 0)                                                                               \
    result = cudnn->set(*convolution, WEIR__CUDNN_CONVOLUTION_##attribute,                         \
                        WEIR__CUDNN_TYPE_##kind, count, elements)
    SET(COMP_TYPE, DATA_TYPE, 1, &type);
    SET(CONV_MODE, CONVOLUTION_MODE, 1, &mode);
    SET(SPATIAL_DIMS, INT64, 1, &spatial);
    SET(DILATIONS, INT64, 2, dilations);
    SET(FILTER_STRIDES, INT64, 2, strides);
    SET(PRE_PADDINGS, INT64, 2, paddings);
    SET(POST_PADDINGS, INT64, 2, paddings);
#undef SET
    return result == 0 ? cudnn->finalize(*convolution) : result;
}

/** What an operation's attributes are called. */
struct names {
    int kind, alpha, beta, convolution, x, weight, y;
};

static const struct names operations[] = {
    [WEIR__CUDA_CONVOLVE] = {WEIR__CUDNN_OPERATION_FORWARD, WEIR__CUDNN_FORWARD_ALPHA,
                             WEIR__CUDNN_FORWARD_BETA, WEIR__CUDNN_FORWARD_CONV_DESC,
                             WEIR__CUDNN_FORWARD_X, WEIR__CUDNN_FORWARD_W, WEIR__CUDNN_FORWARD_Y},
    [WEIR__CUDA_CONVOLVE_GRAD_INPUT] = {WEIR__CUDNN_OPERATION_BACKWARD_DATA,
                                        WEIR__CUDNN_BWD_DATA_ALPHA, WEIR__CUDNN_BWD_DATA_BETA,
                                        WEIR__CUDNN_BWD_DATA_CONV_DESC, WEIR__CUDNN_BWD_DATA_DX,
                                        WEIR__CUDNN_BWD_DATA_W, WEIR__CUDNN_BWD_DATA_DY},
    [WEIR__CUDA_CONVOLVE_GRAD_WEIGHT] = {WEIR__CUDNN_OPERATION_BACKWARD_FILTER,
                                         WEIR__CUDNN_BWD_FILTER_ALPHA, WEIR__CUDNN_BWD_FILTER_BETA,
                                         WEIR__CUDNN_BWD_FILTER_CONV_DESC, WEIR__CUDNN_BWD_FILTER_X,
                                         WEIR__CUDNN_BWD_FILTER_DW, WEIR__CUDNN_BWD_FILTER_DY},
};

static int operation_new(const struct weir__cudnn *cudnn, enum weir__cuda_convolution_kind kind,
                         struct weir__cudnn_graph *graph) {
    const struct names *names = &operations[kind];
    const float alpha = 1, beta = 0;
    int result = cudnn->descriptor_create(names->kind, &graph->operation);
    void *operation = graph->operation;
#define SET(attribute, type, element)                                                              \
    if (result == 0)                                                                               \
    result = cudnn->set(operation, names->attribute, WEIR__CUDNN_TYPE_##type, 1, element)
    SET(convolution, DESCRIPTOR, &graph->convolution);
    SET(x, DESCRIPTOR, &graph->x);
    SET(weight, DESCRIPTOR, &graph->weight);
    SET(y, DESCRIPTOR, &graph->y);
    SET(alpha, FLOAT, &alpha);
    SET(beta, FLOAT, &beta);
#undef SET
    return result == 0 ? cudnn->finalize(operation) : result;
}

static int graph_new(const struct weir__cudnn *cudnn, void *handle,
                     struct weir__cudnn_graph *graph) {
    int result = cudnn->descriptor_create(WEIR__CUDNN_OPERATIONGRAPH, &graph->graph);
    if (result == 0)
        result = cudnn->set(graph->graph, WEIR__CUDNN_OPERATIONGRAPH_OPS,
                            WEIR__CUDNN_TYPE_DESCRIPTOR, 1, &graph->operation);
    if (result == 0)
        result = cudnn->set(graph->graph, WEIR__CUDNN_OPERATIONGRAPH_HANDLE,
                            WEIR__CUDNN_TYPE_HANDLE, 1, &handle);
    return result == 0 ? cudnn->finalize(graph->graph) : result;
}

int weir__cudnn_graph_init(const struct weir__cudnn *cudnn, void *handle,
                           const struct weir__cuda_convolution *convolution, int64_t rows,
                           struct weir__cudnn_graph *graph) {
    const struct weir__window *window = &convolution->window;
    const struct shape x = {WEIR__CUDNN_ID_X, rows, convolution->in, window->in,
                            convolution->image};
    const struct shape y = {WEIR__CUDNN_ID_Y, rows, convolution->out, window->out,
                            convolution->image};
    const struct shape weight = {WEIR__CUDNN_ID_WEIGHT, convolution->out,
                                 convolution->in / window->groups, window->kernel,
                                 convolution->weight};
    int result = tensor_new(cudnn, &x, &graph->x);
    if (result == 0) result = tensor_new(cudnn, &weight, &graph->weight);
    if (result == 0) result = tensor_new(cudnn, &y, &graph->y);
    if (result == 0) result = convolution_new(cudnn, window, &graph->convolution);
    if (result == 0) result = operation_new(cudnn, convolution->kind, graph);
    if (result == 0) result = graph_new(cudnn, handle, graph);
    return result;
}

void weir__cudnn_graph_clean_up(const struct weir__cudnn *cudnn, struct weir__cudnn_graph *graph) {
    weir__cudnn_forget(cudnn, graph->graph);
    weir__cudnn_forget(cudnn, graph->operation);
    weir__cudnn_forget(cudnn, graph->convolution);
    weir__cudnn_forget(cudnn, graph->y);
    weir__cudnn_forget(cudnn, graph->weight);
    weir__cudnn_forget(cudnn, graph->x);
    *graph = (struct weir__cudnn_graph){NULL};
}

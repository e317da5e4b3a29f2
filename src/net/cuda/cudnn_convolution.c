/* SPDX-License-Identifier: MIT */
/*
 * A convolution as cuDNN's graph. Dimensions are told in the order N, C, H, W whatever lies where;
 * the strides say that channels are last.
 *
 * One operation; or two, between which the sums stay in F32: the second adds a bias, or only
 * stores them as F32 where images are BF16, for which the single operation lacks engines on most
 * GPUs. Such pairs are compiled when the plan is made, which takes NVRTC beside cuDNN. Of gradients
 * of weights they are right only where both numbers of channels are multiples of 8: on an H200
 * cuDNN 9.19's engines for multiples of 4 and of 2 gave wrong taps, 3 of 3 and 2 of 10 times.
 */
#include "net/cuda/cudnn.h"

enum { CHANNELS_STEP = 8 };

static int type_of(enum weir_dtype dtype) {
    return dtype == WEIR_BF16 ? WEIR__CUDNN_DATA_BFLOAT16 : WEIR__CUDNN_DATA_FLOAT;
}

/** (count, height, width, channels) in memory; id 0: virtual, F32. */
static void *image_new(struct weir__cudnn_graph *graph, int64_t id, int64_t count, int64_t channels,
                       struct weir__plane plane, enum weir_dtype dtype) {
    int64_t height = plane.height, width = plane.width;
    const struct weir__cudnn_tensor tensor = {
        .place = id == 0 ? WEIR__CUDNN_VIRTUAL : WEIR__CUDNN_STORED,
        .id = id,
        .type = id == 0 ? WEIR__CUDNN_DATA_FLOAT : type_of(dtype),
        .dimensions = {count, channels, height, width},
        .strides = {height * width * channels, 1, width * channels, channels}};
    return weir__cudnn_tensor(graph, &tensor);
}

static void *window_new(struct weir__cudnn_graph *graph, const struct weir__window *window) {
    const int64_t dilations[] = {window->gap.height + 1, window->gap.width + 1};
    const int64_t strides[] = {window->stride.height, window->stride.width};
    const int64_t paddings[] = {window->padding.height, window->padding.width};
    int64_t spatial = 2;
    int type = WEIR__CUDNN_DATA_FLOAT, mode = WEIR__CUDNN_CROSS_CORRELATION;
    void *made = weir__cudnn_make(graph, WEIR__CUDNN_CONVOLUTION);
#define SET(attribute, kind, count, elements)                                                      \
    weir__cudnn_set(graph, made, WEIR__CUDNN_CONVOLUTION_##attribute, WEIR__CUDNN_TYPE_##kind,     \
                    count, elements)
    SET(COMP_TYPE, DATA_TYPE, 1, &type);
    SET(CONV_MODE, CONVOLUTION_MODE, 1, &mode);
    SET(SPATIAL_DIMS, INT64, 1, &spatial);
    SET(DILATIONS, INT64, 2, dilations);
    SET(FILTER_STRIDES, INT64, 2, strides);
    SET(PRE_PADDINGS, INT64, 2, paddings);
    SET(POST_PADDINGS, INT64, 2, paddings);
#undef SET
    weir__cudnn_finish(graph, made);
    return made;
}

/** What an operation's attributes are called. */
struct names {
    enum weir__cudnn_kind kind;
    enum weir__cudnn_attribute alpha, beta, window, x, weight, y;
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

enum { X, WEIGHT, Y, TENSORS };

static void convolve(struct weir__cudnn_graph *graph, enum weir__cuda_convolution_kind kind,
                     const struct weir__window *window, void *const tensors[TENSORS]) {
    const struct names *names = &operations[kind];
    const float alpha = 1, beta = 0;
    void *described = window_new(graph, window);
    void *operation = weir__cudnn_make(graph, names->kind);
#define SET(attribute, type, element)                                                              \
    weir__cudnn_set(graph, operation, names->attribute, WEIR__CUDNN_TYPE_##type, 1, element)
    SET(window, DESCRIPTOR, &described);
    SET(x, DESCRIPTOR, &tensors[X]);
    SET(weight, DESCRIPTOR, &tensors[WEIGHT]);
    SET(y, DESCRIPTOR, &tensors[Y]);
    SET(alpha, FLOAT, &alpha);
    SET(beta, FLOAT, &beta);
#undef SET
    weir__cudnn_finish_operation(graph, operation);
}

/** Which tensor the operation of a kind makes. */
static int result_of(enum weir__cuda_convolution_kind kind) {
    switch (kind) {
    case WEIR__CUDA_CONVOLVE: return Y;
    case WEIR__CUDA_CONVOLVE_GRAD_INPUT: return X;
    case WEIR__CUDA_CONVOLVE_GRAD_WEIGHT: break;
    }
    return WEIGHT;
}

/** For `rows` rows. `apart`: the sums stay in F32 until a second operation stores them; with a bias
 * they always do. */
static int graph_of(struct weir__cudnn_graph *graph, void *handle,
                    const struct weir__cuda_convolution *convolution, int64_t rows, bool apart) {
    static const int64_t ids[] = {WEIR__CUDNN_ID_X, WEIR__CUDNN_ID_WEIGHT, WEIR__CUDNN_ID_Y};
    const struct weir__window *window = &convolution->window;
    const int64_t counts[] = {rows, convolution->out, rows};
    const int64_t channels[] = {convolution->in, convolution->in / window->groups,
                                convolution->out};
    const struct weir__plane planes[] = {window->in, window->kernel, window->out};
    const enum weir_dtype dtypes[] = {convolution->image, convolution->weight, convolution->image};
    int result = result_of(convolution->kind);
    bool two = apart || convolution->has_bias;
    void *tensors[TENSORS];
    for (int t = 0; t < TENSORS; t++)
        tensors[t] = image_new(graph, two && t == result ? 0 : ids[t], counts[t], channels[t],
                               planes[t], dtypes[t]);
    convolve(graph, convolution->kind, window, tensors);
    if (!two) return weir__cudnn_graph_end(graph, handle);
    struct weir__cudnn_pointwise store = {.mode = WEIR__CUDNN_POINTWISE_IDENTITY,
                                          .type = WEIR__CUDNN_DATA_FLOAT,
                                          .x = tensors[result]};
    if (convolution->has_bias) {
        store.mode = WEIR__CUDNN_POINTWISE_ADD;
        store.b = image_new(graph, WEIR__CUDNN_ID_BIAS, 1, convolution->out,
                            (struct weir__plane){1, 1}, WEIR_F32);
    }
    store.y = image_new(graph, ids[result], counts[result], channels[result], planes[result],
                        dtypes[result]);
    weir__cudnn_pointwise(graph, &store);
    return weir__cudnn_graph_end(graph, handle);
}

/* ---- plans ---- */

static void key_of(const struct weir__cudnn *cudnn,
                   const struct weir__cuda_convolution *convolution, int64_t rows,
                   struct weir__cudnn_key *key) {
    const struct weir__window *w = &convolution->window;
    const int64_t numbers[] = {
        convolution->kind,     convolution->image, convolution->weight, rows,
        convolution->rows_max, convolution->in,    convolution->out,    w->groups,
        w->in.height,          w->in.width,        w->out.height,       w->out.width,
        w->kernel.height,      w->kernel.width,    w->stride.height,    w->stride.width,
        w->padding.height,     w->padding.width,   w->gap.height,       w->gap.width,
        convolution->has_bias};
    weir__cudnn_key_init(cudnn, "convolution", numbers, WEIR__COUNT_OF(numbers), key);
}

void weir__cudnn_convolution_keys(const struct weir__cudnn *cudnn,
                                  const struct weir__cuda_convolution *convolution,
                                  struct weir__cudnn_keys *keys) {
    key_of(cudnn, convolution, convolution->rows, &keys->own);
    key_of(cudnn, convolution, convolution->rows_max, &keys->shape);
}

static int find_plan(const struct weir__cudnn *cudnn, void *handle,
                     const struct weir__cuda_convolution *convolution, bool apart,
                     size_t workspace_max, struct weir__cudnn_plan *plan) {
    struct weir__cudnn_graph largest = {.cudnn = cudnn}, own = {.cudnn = cudnn};
    bool is_largest = convolution->rows == convolution->rows_max;
    struct weir__cudnn_key shape;
    key_of(cudnn, convolution, convolution->rows_max, &shape);
    const struct weir__cudnn_wish wish = {.shape = &shape,
                                          .largest = &largest,
                                          .own = is_largest ? &largest : &own,
                                          .workspace_max = workspace_max,
                                          .graph = apart,
                                          .by_rows =
                                              convolution->kind != WEIR__CUDA_CONVOLVE_GRAD_WEIGHT,
                                          .single = convolution->image == WEIR_F32};
    int result = graph_of(&largest, handle, convolution, convolution->rows_max, apart);
    if (result == 0 && !is_largest)
        result = graph_of(&own, handle, convolution, convolution->rows, apart);
    if (result == 0) result = weir__cudnn_plan_find(cudnn, handle, &wish, plan);
    weir__cudnn_graph_clean_up(&own);
    weir__cudnn_graph_clean_up(&largest);
    return result;
}

/** Whether the gradient of weights may be made by a pair of operations. */
static bool may_widen(const struct weir__cuda_convolution *convolution) {
    int64_t groups = convolution->window.groups;
    bool fits = convolution->in / groups % CHANNELS_STEP == 0 &&
                convolution->out / groups % CHANNELS_STEP == 0;
    return convolution->weight != convolution->image && fits;
}

int weir__cudnn_convolution_plan(const struct weir__cudnn *cudnn, void *handle,
                                 const struct weir__cuda_convolution *convolution,
                                 size_t workspace_max, struct weir__cudnn_plan *plan) {
    bool widens = convolution->weight != convolution->image;
    int result = WEIR__CUDNN_NOT_SUPPORTED;
    *plan = (struct weir__cudnn_plan){NULL, 0, 0, 0};
    if (may_widen(convolution))
        result = find_plan(cudnn, handle, convolution, true, workspace_max, plan);
    if (weir__cudnn_lacks(result))
        result = find_plan(cudnn, handle, convolution, false, workspace_max, plan);
    return widens || convolution->has_bias ? weir__cudnn_do_without(result) : result;
}

/* SPDX-License-Identifier: MIT */
/*
 * Causal attention as cuDNN's graph: the operations that its attention engines know by their order,
 * of which they make one kernel (forward) or three. The single operations for it that later
 * versions have (SDPA_FWD since 9.13, SDPA_BWD since 9.17) are not used: the backward one takes no
 * causal mask, and none says how it sums.
 *
 * Tensors are told as (rows, heads, tokens, size), whatever lies where.
 */
#include "net/cuda/cudnn_attention.h"

/** A graph in the making: the shape, and what all of its parts want. */
struct drawing {
    struct weir__cudnn_graph *graph;
    int64_t rows, heads, tokens, size;
    void *scale, *masked; /**< single numbers, by value */
};

/* ---- tensors ---- */

static void *stored(const struct drawing *d, int64_t id, int type, const int64_t sizes[2],
                    const int64_t strides[4]) {
    const struct weir__cudnn_tensor tensor = {
        .place = WEIR__CUDNN_STORED,
        .id = id,
        .type = type,
        .dimensions = {d->rows, d->heads, sizes[0], sizes[1]},
        .strides = {strides[0], strides[1], strides[2], strides[3]}};
    return weir__cudnn_tensor(d->graph, &tensor);
}

/** One of q, k and v side by side, or of their gradients; `turned`: (size, tokens). */
static void *third(const struct drawing *d, int64_t id, bool turned) {
    int64_t width = d->heads * d->size, pitch = 3 * width;
    const int64_t upright[] = {d->tokens, d->size}, lying[] = {d->size, d->tokens};
    const int64_t strides[] = {d->tokens * pitch, d->size, turned ? 1 : pitch, turned ? pitch : 1};
    return stored(d, id, WEIR__CUDNN_DATA_BFLOAT16, turned ? lying : upright, strides);
}

/** y or its gradient */
static void *output(const struct drawing *d, int64_t id) {
    int64_t width = d->heads * d->size;
    const int64_t sizes[] = {d->tokens, d->size};
    const int64_t strides[] = {d->tokens * width, d->size, width, 1};
    return stored(d, id, WEIR__CUDNN_DATA_BFLOAT16, sizes, strides);
}

/** Packed: (rows, heads, a, b). */
static struct weir__cudnn_tensor packed(const struct drawing *d, int64_t id, int type, int64_t a,
                                        int64_t b) {
    return (struct weir__cudnn_tensor){.place = id == 0 ? WEIR__CUDNN_VIRTUAL : WEIR__CUDNN_STORED,
                                       .id = id,
                                       .type = type,
                                       .dimensions = {d->rows, d->heads, a, b},
                                       .strides = {d->heads * a * b, a * b, b, 1}};
}

/** A number for each token, F32; id 0: virtual. */
static void *per_token(const struct drawing *d, int64_t id) {
    const struct weir__cudnn_tensor tensor = packed(d, id, WEIR__CUDNN_DATA_FLOAT, d->tokens, 1);
    return weir__cudnn_tensor(d->graph, &tensor);
}

/** A number for each two tokens, which never is in memory. */
static void *scores(const struct drawing *d, int type) {
    const struct weir__cudnn_tensor tensor = packed(d, 0, type, d->tokens, d->tokens);
    return weir__cudnn_tensor(d->graph, &tensor);
}

static void *by_value(const struct drawing *d, int64_t id) {
    const struct weir__cudnn_tensor tensor = {.place = WEIR__CUDNN_BY_VALUE,
                                              .id = id,
                                              .type = WEIR__CUDNN_DATA_FLOAT,
                                              .dimensions = {1, 1, 1, 1},
                                              .strides = {1, 1, 1, 1}};
    return weir__cudnn_tensor(d->graph, &tensor);
}

/* ---- operations ---- */

static void *matmul(const struct drawing *d, void *a, void *b, void *c) {
    int type = WEIR__CUDNN_DATA_FLOAT;
    void *described = weir__cudnn_make(d->graph, WEIR__CUDNN_MATMUL);
    weir__cudnn_set(d->graph, described, WEIR__CUDNN_MATMUL_COMP_TYPE, WEIR__CUDNN_TYPE_DATA_TYPE,
                    1, &type);
    weir__cudnn_finish(d->graph, described);
    void *operation = weir__cudnn_make(d->graph, WEIR__CUDNN_OPERATION_MATMUL);
#define SET(attribute, element)                                                                    \
    weir__cudnn_set(d->graph, operation, WEIR__CUDNN_OPERATION_MATMUL_##attribute,                 \
                    WEIR__CUDNN_TYPE_DESCRIPTOR, 1, element)
    SET(DESC, &described);
    SET(A, &a);
    SET(B, &b);
    SET(C, &c);
#undef SET
    weir__cudnn_finish_operation(d->graph, operation);
    return c;
}

/** Along the last dimension: y has 1 there. */
static void *reduce(const struct drawing *d, int mode, void *x, void *y) {
    int type = WEIR__CUDNN_DATA_FLOAT;
    void *described = weir__cudnn_make(d->graph, WEIR__CUDNN_REDUCTION);
    weir__cudnn_set(d->graph, described, WEIR__CUDNN_REDUCTION_COMP_TYPE,
                    WEIR__CUDNN_TYPE_DATA_TYPE, 1, &type);
    weir__cudnn_set(d->graph, described, WEIR__CUDNN_REDUCTION_OPERATOR,
                    WEIR__CUDNN_TYPE_REDUCTION_OPERATOR, 1, &mode);
    weir__cudnn_finish(d->graph, described);
    void *operation = weir__cudnn_make(d->graph, WEIR__CUDNN_OPERATION_REDUCTION);
#define SET(attribute, element)                                                                    \
    weir__cudnn_set(d->graph, operation, WEIR__CUDNN_OPERATION_REDUCTION_##attribute,              \
                    WEIR__CUDNN_TYPE_DESCRIPTOR, 1, element)
    SET(DESC, &described);
    SET(X, &x);
    SET(Y, &y);
#undef SET
    weir__cudnn_finish_operation(d->graph, operation);
    return y;
}

/** The same numbers, seen with y's strides. */
static void *turn(const struct drawing *d, void *x, const struct weir__cudnn_tensor *tensor) {
    void *y = weir__cudnn_tensor(d->graph, tensor);
    void *operation = weir__cudnn_make(d->graph, WEIR__CUDNN_OPERATION_RESHAPE);
    weir__cudnn_set(d->graph, operation, WEIR__CUDNN_OPERATION_RESHAPE_X,
                    WEIR__CUDNN_TYPE_DESCRIPTOR, 1, &x);
    weir__cudnn_set(d->graph, operation, WEIR__CUDNN_OPERATION_RESHAPE_Y,
                    WEIR__CUDNN_TYPE_DESCRIPTOR, 1, &y);
    weir__cudnn_finish_operation(d->graph, operation);
    return y;
}

/** Scores by tokens, turned and rounded for a product. */
static void *turn_scores(const struct drawing *d, void *x) {
    struct weir__cudnn_tensor tensor =
        packed(d, 0, WEIR__CUDNN_DATA_BFLOAT16, d->tokens, d->tokens);
    tensor.strides[2] = 1;
    tensor.strides[3] = d->tokens;
    return turn(d, x, &tensor);
}

/** y = mode(x, b) in F32 */
static void *compute(const struct drawing *d, int mode, void *x, void *b, void *y) {
    const struct weir__cudnn_pointwise pointwise = {
        .mode = mode, .type = WEIR__CUDNN_DATA_FLOAT, .x = x, .b = b, .y = y};
    weir__cudnn_pointwise(d->graph, &pointwise);
    return y;
}

/** Scores of later tokens are masked. */
static void *mask(const struct drawing *d, void *x) {
    void *index[2], *is_seen = scores(d, WEIR__CUDNN_DATA_BOOLEAN);
    for (int i = 0; i < 2; i++) {
        index[i] = scores(d, WEIR__CUDNN_DATA_INT32);
        const struct weir__cudnn_pointwise count = {.mode = WEIR__CUDNN_POINTWISE_GEN_INDEX,
                                                    .type = WEIR__CUDNN_DATA_INT32,
                                                    .axis = 2 + i,
                                                    .x = x,
                                                    .y = index[i]};
        weir__cudnn_pointwise(d->graph, &count);
    }
    const struct weir__cudnn_pointwise compare = {.mode = WEIR__CUDNN_POINTWISE_CMP_GE,
                                                  .type = WEIR__CUDNN_DATA_BOOLEAN,
                                                  .x = index[0],
                                                  .b = index[1],
                                                  .y = is_seen};
    weir__cudnn_pointwise(d->graph, &compare);
    const struct weir__cudnn_pointwise choose = {.mode = WEIR__CUDNN_POINTWISE_BINARY_SELECT,
                                                 .type = WEIR__CUDNN_DATA_FLOAT,
                                                 .x = x,
                                                 .b = d->masked,
                                                 .t = is_seen,
                                                 .y = scores(d, WEIR__CUDNN_DATA_FLOAT)};
    weir__cudnn_pointwise(d->graph, &choose);
    return choose.y;
}

/* ---- the graphs ---- */

static struct drawing begin(struct weir__cudnn_graph *graph, const struct weir__cuda_attend *attend,
                            int64_t rows) {
    struct drawing d = {graph, rows, attend->heads, attend->tokens, attend->size, NULL, NULL};
    d.scale = by_value(&d, WEIR__CUDNN_ID_SCALE);
    d.masked = by_value(&d, WEIR__CUDNN_ID_MASKED);
    return d;
}

#define SCORES(d) scores(d, WEIR__CUDNN_DATA_FLOAT)

/** q kᵀ scaled */
static void *score(const struct drawing *d, void *q, void *k_turned) {
    void *raw = matmul(d, q, k_turned, SCORES(d));
    return compute(d, WEIR__CUDNN_POINTWISE_MUL, raw, d->scale, SCORES(d));
}

static void forward(const struct drawing *d) {
    void *q = third(d, WEIR__CUDNN_ID_Q, false), *k_turned = third(d, WEIR__CUDNN_ID_K, true);
    void *v = third(d, WEIR__CUDNN_ID_V, false);
    void *seen = mask(d, score(d, q, k_turned));
    void *most = reduce(d, WEIR__CUDNN_REDUCE_MAX, seen, per_token(d, 0));
    void *below = compute(d, WEIR__CUDNN_POINTWISE_SUB, seen, most, SCORES(d));
    void *shares = compute(d, WEIR__CUDNN_POINTWISE_EXP, below, NULL, SCORES(d));
    void *sum = reduce(d, WEIR__CUDNN_REDUCE_ADD, shares, per_token(d, 0));
    void *log = compute(d, WEIR__CUDNN_POINTWISE_LOG, sum, NULL, per_token(d, 0));
    compute(d, WEIR__CUDNN_POINTWISE_ADD, most, log, per_token(d, WEIR__CUDNN_ID_LSE));
    void *parts =
        compute(d, WEIR__CUDNN_POINTWISE_DIV, shares, sum, scores(d, WEIR__CUDNN_DATA_BFLOAT16));
    matmul(d, parts, v, output(d, WEIR__CUDNN_ID_OUT));
}

/** delta = the sum of dy * y, times one, in memory: cuDNN makes it by a kernel of its own. */
static void *delta(const struct drawing *d, void *dy, void *y) {
    int64_t tokens = d->tokens, heads = d->heads, size = d->size;
    const struct weir__cudnn_tensor tensor = {
        .place = WEIR__CUDNN_VIRTUAL,
        .type = WEIR__CUDNN_DATA_FLOAT,
        .dimensions = {d->rows, heads, tokens, size},
        .strides = {heads * tokens * size, tokens * size, heads * size, 1}};
    void *product =
        compute(d, WEIR__CUDNN_POINTWISE_MUL, dy, y, weir__cudnn_tensor(d->graph, &tensor));
    void *sum = reduce(d, WEIR__CUDNN_REDUCE_ADD, product, per_token(d, 0));
    return compute(d, WEIR__CUDNN_POINTWISE_MUL, sum, by_value(d, WEIR__CUDNN_ID_ONE),
                   per_token(d, WEIR__CUDNN_ID_DELTA));
}

static void backward(const struct drawing *d) {
    void *q = third(d, WEIR__CUDNN_ID_Q, false), *k_turned = third(d, WEIR__CUDNN_ID_K, true);
    void *v_turned = third(d, WEIR__CUDNN_ID_V, true);
    void *y = output(d, WEIR__CUDNN_ID_OUT), *dy = output(d, WEIR__CUDNN_ID_DOUT);
    void *delta_of = delta(d, dy, y);
    void *below = compute(d, WEIR__CUDNN_POINTWISE_SUB, score(d, q, k_turned),
                          per_token(d, WEIR__CUDNN_ID_LSE), SCORES(d));
    void *shares = compute(d, WEIR__CUDNN_POINTWISE_EXP, mask(d, below), NULL, SCORES(d));
    matmul(d, turn_scores(d, shares), dy, third(d, WEIR__CUDNN_ID_DV, false));
    void *dp = matmul(d, dy, v_turned, SCORES(d));
    dp = compute(d, WEIR__CUDNN_POINTWISE_SUB, dp, delta_of, SCORES(d));
    dp = compute(d, WEIR__CUDNN_POINTWISE_MUL, dp, shares, SCORES(d));
    void *ds = compute(d, WEIR__CUDNN_POINTWISE_MUL, dp, d->scale, SCORES(d));
    matmul(d, turn_scores(d, ds), q, third(d, WEIR__CUDNN_ID_DK, false));
    int64_t pitch = 3 * d->heads * d->size;
    const struct weir__cudnn_tensor upright = {
        .place = WEIR__CUDNN_VIRTUAL,
        .type = WEIR__CUDNN_DATA_BFLOAT16,
        .dimensions = {d->rows, d->heads, d->tokens, d->size},
        .strides = {d->tokens * pitch, d->size, pitch, 1}};
    matmul(d, ds, turn(d, k_turned, &upright), third(d, WEIR__CUDNN_ID_DQ, false));
}

int weir__cudnn_attention_graph(struct weir__cudnn_graph *graph, void *handle,
                                const struct weir__cuda_attend *attend, int64_t rows) {
    assert(rows >= 1);
    const struct drawing d = begin(graph, attend, rows);
    if (attend->backward)
        backward(&d);
    else
        forward(&d);
    return weir__cudnn_graph_end(graph, handle);
}

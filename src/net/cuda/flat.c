/* SPDX-License-Identifier: MIT */
/*
 * What is done to a stage's flat arrays on a GPU: all parameters in one launch for every
 * WEIR__CUDA_SPANS of them. F32.
 */
#include "net/scalar.h"
#include "net/cuda/cuda.h"
#include "net/cuda/flat_arguments.h"

#include <math.h>

enum { THREADS = 256 };

static uint64_t tiles_of(uint64_t count) {
    return count / WEIR__CUDA_TILE + (count % WEIR__CUDA_TILE != 0);
}

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Whether the tiles of the spans, of one launch, are not too many for a grid. */
static uint64_t count_tiles(const struct weir__span *spans, uint32_t count) {
    uint64_t tiles = 0;
    for (uint32_t i = 0; i < count; i++) tiles += tiles_of(spans[i].count);
    assert(tiles <= INT32_MAX);
    return tiles;
}

/* Up to WEIR__CUDA_SPANS spans, from the i-th on, as a kernel takes them. Returns their tiles. */
static uint64_t pack(const struct weir__spans *spans, uint32_t i, bool results,
                     struct weir__cuda_flat *flat) {
    uint64_t tiles = 0;
    flat->count = smaller(spans->count - i, WEIR__CUDA_SPANS);
    for (uint32_t k = 0; k < flat->count; k++) {
        const struct weir__span *span = &spans->list[i + k];
        flat->spans[k] = (struct weir__cuda_flat_span){
            .first = span->first,
            .count = span->count,
            .first_tile = (uint32_t)tiles,
            .mark = results ? span->result : span->decays,
        };
        tiles += tiles_of(span->count);
    }
    assert(tiles <= INT32_MAX);
    return tiles;
}

static int launch(struct weir_stream *stream, enum weir__net_kernel kernel, uint64_t blocks,
                  void **arguments) {
    assert(blocks <= INT32_MAX);
    struct weir__cuda_grid grid = weir__cuda_line(blocks, 1, THREADS, 0);
    if (blocks == 0) return WEIR_OK;
    return weir__net_launch(stream, kernel, &grid, arguments);
}

/* ---- sums of squares ---- */

static size_t squares_workspace(const struct weir__spans *spans) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < spans->count; i += WEIR__CUDA_SPANS) {
        uint64_t tiles = count_tiles(spans->list + i, smaller(spans->count - i, WEIR__CUDA_SPANS));
        most = tiles > most ? tiles : most;
    }
    return (size_t)most * sizeof(double);
}

static int squares(const struct weir__spans *spans, const void *data, double *sums,
                   void *workspace) {
    assert(spans->count == 0 || (sums != NULL && workspace != NULL));
    struct weir__cuda_flat flat;
    void *parts[] = {&flat, &data, &workspace};
    void *folds[] = {&flat, &workspace, &sums};
    for (uint32_t i = 0; i < spans->count; i += WEIR__CUDA_SPANS) {
        uint64_t tiles = pack(spans, i, true, &flat);
        int status = launch(spans->stream, WEIR__NET_KERNEL_square_parts, tiles, parts);
        if (status != WEIR_OK) return status;
        status = launch(spans->stream, WEIR__NET_KERNEL_square_fold, flat.count, folds);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int accumulate(struct weir_stream *stream, void *y, const void *x, uint64_t count) {
    assert(y != x || count == 0);
    void *arguments[] = {&y, &x, &count};
    return launch(stream, WEIR__NET_KERNEL_accumulate, tiles_of(count), arguments);
}

/* ---- updates ---- */

/* `call` is the kernel's second argument. */
static int update_all(const struct weir__spans *spans, const struct weir__update *update,
                      enum weir__net_kernel kernel, void *call) {
    struct weir__cuda_flat flat;
    const struct weir_verdict *verdict = update->verdict;
    void *arguments[] = {&flat, call, &verdict};
    for (uint32_t i = 0; i < spans->count; i += WEIR__CUDA_SPANS) {
        uint64_t tiles = pack(spans, i, false, &flat);
        int status = launch(spans->stream, kernel, tiles, arguments);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* Factors as the reference makes them: in double, rounded once. */
static int adamw(const struct weir__spans *spans, const struct weir__update *update) {
    assert(update->number >= 1);
    const struct weir_optimizer *o = update->optimizer;
    double correction1 = 1 - weir__power(o->beta1, update->number);
    double correction2 = 1 - weir__power(o->beta2, update->number);
    struct weir__cuda_adamw call = {
        .w = update->parameters,
        .m = update->first,
        .v = update->second,
        .g = update->gradients,
        .decay = (float)(1 - update->lr * o->weight_decay),
        .fresh1 = (float)(1 - o->beta1),
        .fresh2 = (float)(1 - o->beta2),
        .beta2 = (float)o->beta2,
        .root2 = (float)sqrt(correction2),
        .eps = (float)o->eps,
        .rate = (float)(update->lr / correction1),
    };
    return update_all(spans, update, WEIR__NET_KERNEL_adamw, &call);
}

static int sgd(const struct weir__spans *spans, const struct weir__update *update) {
    const struct weir_optimizer *o = update->optimizer;
    assert(update->first != NULL || o->momentum == 0 || spans->count == 0);
    struct weir__cuda_sgd call = {
        .w = update->parameters,
        .m = o->momentum != 0 ? update->first : NULL,
        .g = update->gradients,
        .decay = (float)o->weight_decay,
        .lr = (float)update->lr,
        .factor = (float)o->momentum,
        .nesterov = o->nesterov,
        .first = update->number == 1,
    };
    return update_all(spans, update, WEIR__NET_KERNEL_sgd, &call);
}

/* ---- batch norm's running numbers ---- */

static int move_running(struct weir_stream *stream, const struct weir_verdict *verdict,
                        const struct weir__running_numbers *numbers, double momentum) {
    assert(numbers->dtype == WEIR_F32 && numbers->channels <= INT32_MAX);
    struct weir__cuda_batch_running call = {.moments = numbers->moments,
                                            .mean = numbers->mean,
                                            .variance = numbers->variance,
                                            .batches = numbers->batches,
                                            .momentum = momentum,
                                            .channels = (uint32_t)numbers->channels,
                                            .plain = numbers->plain};
    void *arguments[] = {&call, &verdict};
    return launch(stream, WEIR__NET_KERNEL_batch_move, 1, arguments);
}

const struct weir__flat_calls weir__cuda_flat_f32 = {
    .accumulate = accumulate,
    .squares = squares,
    .squares_workspace = squares_workspace,
    .update = {[WEIR_OPTIMIZER_ADAMW] = adamw, [WEIR_OPTIMIZER_SGD] = sgd},
    .move_running = move_running};

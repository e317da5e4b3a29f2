/* SPDX-License-Identifier: MIT */
#include "net/cuda/flat.h"

#include "net/cuda/cuda.h"

#include <math.h>

enum { THREADS = 256 };

static uint64_t tiles_of(uint64_t count) {
    return count / WEIR__CUDA_TILE + (count % WEIR__CUDA_TILE != 0);
}

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Whether the tiles of the spans, of one launch, are not too many for a grid. */
static uint64_t count_tiles(const struct weir__cuda_span *spans, uint32_t count) {
    uint64_t tiles = 0;
    for (uint32_t i = 0; i < count; i++) tiles += tiles_of(spans[i].count);
    assert(tiles <= INT32_MAX);
    return tiles;
}

/* Up to WEIR__CUDA_SPANS spans as a kernel takes them. Returns their tiles. */
static uint64_t pack(const struct weir__cuda_span *spans, uint32_t count, bool results,
                     struct weir__cuda_flat *flat) {
    assert(count <= WEIR__CUDA_SPANS);
    uint64_t tiles = 0;
    flat->count = count;
    for (uint32_t i = 0; i < count; i++) {
        flat->spans[i] = (struct weir__cuda_flat_span){
            .first = spans[i].first,
            .count = spans[i].count,
            .first_tile = (uint32_t)tiles,
            .mark = results ? spans[i].result : spans[i].decays,
        };
        tiles += tiles_of(spans[i].count);
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

size_t weir__cuda_square_sums_workspace(const struct weir__cuda_span *spans, uint32_t count) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < count; i += WEIR__CUDA_SPANS) {
        uint64_t tiles = count_tiles(spans + i, smaller(count - i, WEIR__CUDA_SPANS));
        most = tiles > most ? tiles : most;
    }
    return (size_t)most * sizeof(double);
}

int weir__cuda_square_sums(struct weir_stream *stream, const float *data,
                           const struct weir__cuda_span *spans, uint32_t count, double *squares,
                           void *workspace) {
    assert(count == 0 || (spans != NULL && squares != NULL && workspace != NULL));
    struct weir__cuda_flat flat;
    void *parts[] = {&flat, &data, &workspace};
    void *folds[] = {&flat, &workspace, &squares};
    for (uint32_t i = 0; i < count; i += WEIR__CUDA_SPANS) {
        uint64_t tiles = pack(spans + i, smaller(count - i, WEIR__CUDA_SPANS), true, &flat);
        int status = launch(stream, WEIR__NET_KERNEL_square_parts, tiles, parts);
        if (status != WEIR_OK) return status;
        status = launch(stream, WEIR__NET_KERNEL_square_fold, flat.count, folds);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

int weir__cuda_accumulate(struct weir_stream *stream, float *y, const float *x, uint64_t count) {
    assert(y != x || count == 0);
    void *arguments[] = {&y, &x, &count};
    return launch(stream, WEIR__NET_KERNEL_accumulate, tiles_of(count), arguments);
}

/* ---- updates ---- */

/* `call` is the kernel's second argument. */
static int update(struct weir_stream *stream, enum weir__net_kernel kernel, void *call,
                  const struct weir_verdict *verdict, const struct weir__cuda_span *spans,
                  uint32_t count) {
    struct weir__cuda_flat flat;
    void *arguments[] = {&flat, call, &verdict};
    for (uint32_t i = 0; i < count; i += WEIR__CUDA_SPANS) {
        uint64_t tiles = pack(spans + i, smaller(count - i, WEIR__CUDA_SPANS), false, &flat);
        int status = launch(stream, kernel, tiles, arguments);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* Factors as the reference makes them: in double, rounded once. */
int weir__cuda_adamw(struct weir_stream *stream, const struct weir__adamw_step *options,
                     const struct weir_verdict *verdict, const struct weir__cuda_span *spans,
                     uint32_t count, float *parameters, const float *gradients, float *exp_avg,
                     float *exp_avg_sq) {
    assert(options->step >= 1);
    double correction1 = 1 - pow(options->beta1, (double)options->step);
    double correction2 = 1 - pow(options->beta2, (double)options->step);
    struct weir__cuda_adamw call = {
        .w = parameters,
        .m = exp_avg,
        .v = exp_avg_sq,
        .g = gradients,
        .decay = (float)(1 - options->lr * options->weight_decay),
        .fresh1 = (float)(1 - options->beta1),
        .fresh2 = (float)(1 - options->beta2),
        .beta2 = (float)options->beta2,
        .root2 = (float)sqrt(correction2),
        .eps = (float)options->eps,
        .rate = (float)(options->lr / correction1),
    };
    return update(stream, WEIR__NET_KERNEL_adamw, &call, verdict, spans, count);
}

int weir__cuda_sgd(struct weir_stream *stream, const struct weir__sgd_step *options,
                   const struct weir_verdict *verdict, const struct weir__cuda_span *spans,
                   uint32_t count, float *parameters, const float *gradients, float *momentum) {
    assert(momentum != NULL || options->momentum == 0);
    struct weir__cuda_sgd call = {
        .w = parameters,
        .m = options->momentum != 0 ? momentum : NULL,
        .g = gradients,
        .decay = (float)options->weight_decay,
        .lr = (float)options->lr,
        .factor = (float)options->momentum,
        .nesterov = options->nesterov,
        .first = options->first,
    };
    return update(stream, WEIR__NET_KERNEL_sgd, &call, verdict, spans, count);
}

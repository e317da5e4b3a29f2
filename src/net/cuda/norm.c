/* SPDX-License-Identifier: MIT */
/* LayerNorm, RMSNorm, and what mixes residuals by it. */
#include "net/cuda/cuda.h"

#include <string.h>

enum { THREADS = 256, WARPS = THREADS / 32, WARP_NUMBERS = 1024 };

/* Kernels count a row's numbers in 32 bits. */
static int check_width(const struct weir__op_call *call) {
    if (call->shape->width <= INT32_MAX) return WEIR_OK;
    return weir__fail(call->error, WEIR_ERR_ARGUMENT,
                      "CUDA's norms take rows of up to %d numbers, not %lld", INT32_MAX,
                      (long long)call->shape->width);
}

static uint64_t rows_of(const struct weir__op_shape *shape) {
    return (uint64_t)(shape->rows * shape->tokens);
}

/* Rows to warps or to blocks; which of them depends on the width alone. */
static int launch_rows(const struct weir__op_call *call, enum weir__net_kernel by_warp,
                       enum weir__net_kernel by_block, void *argument) {
    bool warps = call->shape->width <= WARP_NUMBERS;
    struct weir__cuda_grid grid =
        weir__cuda_line(rows_of(call->shape), warps ? WARPS : 1, THREADS, 0);
    void *arguments[] = {argument};
    int status = check_width(call);
    if (status != WEIR_OK || rows_of(call->shape) == 0) return status;
    return weir__net_launch(call->stream, warps ? by_warp : by_block, &grid, arguments);
}

static int layer_norm(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_layer_norm norm = {.y = call->out[0],
                                         .mean = call->out[1],
                                         .rstd = call->out[2],
                                         .x = call->in[0],
                                         .weight = call->in[1],
                                         .bias = call->in[2],
                                         .rows = rows_of(shape),
                                         .width = (uint32_t)shape->width,
                                         .eps = (float)shape->eps};
    return launch_rows(call, WEIR__CUDA_BY_DTYPE(layer_norm_warp, shape),
                       WEIR__CUDA_BY_DTYPE(layer_norm_block, shape), &norm);
}

static int add_layer_norm(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_layer_norm norm = {.y = call->out[0],
                                         .sum = call->out[3],
                                         .mean = call->out[1],
                                         .rstd = call->out[2],
                                         .x = call->in[0],
                                         .b = call->in[1],
                                         .weight = call->in[2],
                                         .bias = call->in[3],
                                         .rows = rows_of(shape),
                                         .width = (uint32_t)shape->width,
                                         .eps = (float)shape->eps};
    return launch_rows(call, WEIR__CUDA_BY_DTYPE(add_layer_norm_warp, shape),
                       WEIR__CUDA_BY_DTYPE(add_layer_norm_block, shape), &norm);
}

static int layer_norm_grad_input(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_layer_norm_grad grad = {.dx = call->out[0],
                                              .dy = call->in[0],
                                              .x = call->in[1],
                                              .mean = call->in[2],
                                              .rstd = call->in[3],
                                              .weight = call->in[4],
                                              .rows = rows_of(shape),
                                              .width = (uint32_t)shape->width};
    return launch_rows(call, WEIR__CUDA_BY_DTYPE(layer_norm_grad_warp, shape),
                       WEIR__CUDA_BY_DTYPE(layer_norm_grad_block, shape), &grad);
}

static int add_layer_norm_grad_input(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_layer_norm_grad grad = {.dx = call->out[0],
                                              .dy = call->in[0],
                                              .dsum = call->in[1],
                                              .x = call->in[2],
                                              .mean = call->in[3],
                                              .rstd = call->in[4],
                                              .weight = call->in[5],
                                              .rows = rows_of(shape),
                                              .width = (uint32_t)shape->width};
    return launch_rows(call, WEIR__CUDA_BY_DTYPE(add_layer_norm_grad_warp, shape),
                       WEIR__CUDA_BY_DTYPE(add_layer_norm_grad_block, shape), &grad);
}

/* Columns that a block of layer_norm_weight takes: 32 chunks of 16 bytes. */
static uint64_t weight_tiles(const struct weir__op_shape *shape) {
    assert(shape->dtype == WEIR_F32 || shape->dtype == WEIR_BF16);
    uint64_t columns = 32 * 16 / weir_dtype_bytes(shape->dtype);
    return ((uint64_t)shape->width + columns - 1) / columns;
}

static uint64_t weight_parts(const struct weir__op_shape *shape) {
    uint64_t part_rows = weir__cuda_part_rows(rows_of(shape), weight_tiles(shape));
    return weir__cuda_parts(rows_of(shape), part_rows);
}

static int measure_norm_grad_weight(const struct weir__op_shape *shape, size_t *workspace) {
    uint64_t sums = shape->op == WEIR__OP_rms_norm_grad_weight ? 1 : 2;
    *workspace = (size_t)(weight_parts(shape) * sums * (uint64_t)shape->width) * sizeof(float);
    return WEIR_OK;
}

/** By the kernel; `dbias` NULL: rms_norm's. */
static int norm_grad_weight(const struct weir__op_call *call, enum weir__net_kernel kernel,
                            const void *mean, const void *rstd, float *dbias) {
    const struct weir__op_shape *shape = call->shape;
    uint64_t tiles = weight_tiles(shape), rows = rows_of(shape);
    struct weir__cuda_norm_weight grad = {.partial = call->workspace,
                                          .dy = call->in[0],
                                          .x = call->in[1],
                                          .mean = mean,
                                          .rstd = rstd,
                                          .rows = rows,
                                          .width = (uint32_t)shape->width,
                                          .part_rows = weir__cuda_part_rows(rows, tiles)};
    struct weir__cuda_fold fold = {.to = {call->out[0], dbias},
                                   .partial = call->workspace,
                                   .parts = weir__cuda_parts(rows, grad.part_rows),
                                   .width = (uint32_t)shape->width,
                                   .overwrite = call->overwrite};
    struct weir__cuda_grid grid = {{(uint32_t)tiles, (uint32_t)fold.parts, 1}, {THREADS, 1, 1}, 0};
    void *arguments[] = {&grad};
    int status = check_width(call);
    if (status != WEIR_OK || shape->width == 0) return status;
    status = weir__net_launch(call->stream, kernel, &grid, arguments);
    return status == WEIR_OK ? weir__cuda_fold(call->stream, &fold) : status;
}

static int layer_norm_grad_weight(const struct weir__op_call *call) {
    return norm_grad_weight(call, WEIR__CUDA_BY_DTYPE(layer_norm_weight, call->shape), call->in[2],
                            call->in[3], call->out[1]);
}

/* ---- without a mean ---- */

static int rms_norm(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_layer_norm norm = {.y = call->out[0],
                                         .rstd = call->out[1],
                                         .x = call->in[0],
                                         .weight = shape->has_bias ? call->in[1] : NULL,
                                         .rows = rows_of(shape),
                                         .width = (uint32_t)shape->width,
                                         .eps = (float)shape->eps};
    return launch_rows(call, WEIR__CUDA_BY_DTYPE(rms_norm_warp, shape),
                       WEIR__CUDA_BY_DTYPE(rms_norm_block, shape), &norm);
}

static int rms_norm_grad_input(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_layer_norm_grad grad = {.dx = call->out[0],
                                              .dy = call->in[0],
                                              .x = call->in[1],
                                              .rstd = call->in[2],
                                              .weight = shape->has_bias ? call->in[3] : NULL,
                                              .rows = rows_of(shape),
                                              .width = (uint32_t)shape->width};
    return launch_rows(call, WEIR__CUDA_BY_DTYPE(rms_norm_grad_warp, shape),
                       WEIR__CUDA_BY_DTYPE(rms_norm_grad_block, shape), &grad);
}

static int rms_norm_grad_weight(const struct weir__op_call *call) {
    return norm_grad_weight(call, WEIR__CUDA_BY_DTYPE(rms_norm_weight, call->shape), NULL,
                            call->in[2], NULL);
}

/* ---- block attention residuals ---- */

_Static_assert((int)WEIR__CUDA_SOURCES_MAX == (int)WEIR__SOURCES_MAX, "kernels take all sources");

/* Whether rows at all of these pointers are multiples of 16 bytes. */
static bool are_whole(const struct weir__op_shape *shape, const void *const *pointers,
                      uint64_t count) {
    bool whole = (uint64_t)shape->width * weir_dtype_bytes(shape->dtype) % 16 == 0;
    for (uint64_t i = 0; i < count; i++) whole = whole && (uintptr_t)pointers[i] % 16 == 0;
    return whole;
}

static int residual_mix(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    uint64_t sources = (uint64_t)shape->sources;
    assert(sources >= 1 && sources <= WEIR__SOURCES_MAX);
    struct weir__cuda_mix mix = {.y = call->out[0],
                                 .share = call->out[1],
                                 .rstd = call->out[2],
                                 .weight = call->in[0],
                                 .query = call->in[1],
                                 .rows = rows_of(shape),
                                 .width = (uint32_t)shape->width,
                                 .sources = (uint32_t)sources,
                                 .whole = are_whole(shape, call->in, 2 + sources) &&
                                          are_whole(shape, (const void *const *)call->out, 1),
                                 .eps = (float)shape->eps};
    memcpy(mix.x, call->in + 2, sources * sizeof mix.x[0]);
    return launch_rows(call, WEIR__CUDA_BY_DTYPE(residual_mix_warp, shape),
                       WEIR__CUDA_BY_DTYPE(residual_mix_block, shape), &mix);
}

static int residual_mix_grad(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    uint64_t sources = (uint64_t)shape->sources;
    assert(sources >= 1 && sources <= WEIR__SOURCES_MAX);
    const void *const *out = (const void *const *)call->out;
    struct weir__cuda_mix_grad grad = {.pull = call->out[0],
                                       .dy = call->in[0],
                                       .share = call->in[1],
                                       .rstd = call->in[2],
                                       .weight = call->in[3],
                                       .query = call->in[4],
                                       .rows = rows_of(shape),
                                       .width = (uint32_t)shape->width,
                                       .sources = (uint32_t)sources,
                                       .whole = are_whole(shape, call->in, 1) &&
                                                are_whole(shape, call->in + 3, 2 + 2 * sources) &&
                                                are_whole(shape, out, 1 + sources)};
    memcpy(grad.dx, call->out + 1, sources * sizeof grad.dx[0]);
    memcpy(grad.x, call->in + 5, sources * sizeof grad.x[0]);
    memcpy(grad.sum, call->in + 5 + sources, sources * sizeof grad.sum[0]);
    return launch_rows(call, WEIR__CUDA_BY_DTYPE(residual_mix_grad_warp, shape),
                       WEIR__CUDA_BY_DTYPE(residual_mix_grad_block, shape), &grad);
}

/* Columns are F32's, whatever is stored. */
static struct weir__cuda_bias_grad pull_sums(const struct weir__op_shape *shape, uint64_t *tiles) {
    enum { COLUMNS = 128 };
    *tiles = ((uint64_t)shape->width + COLUMNS - 1) / COLUMNS;
    return (struct weir__cuda_bias_grad){.rows = rows_of(shape),
                                         .width = (uint32_t)shape->width,
                                         .part_rows = weir__cuda_part_rows(rows_of(shape), *tiles)};
}

static int measure_mix_weight(const struct weir__op_shape *shape, size_t *workspace) {
    uint64_t tiles;
    struct weir__cuda_bias_grad sums = pull_sums(shape, &tiles);
    uint64_t parts = weir__cuda_parts(sums.rows, sums.part_rows);
    *workspace = (size_t)((1 + parts) * sums.width) * sizeof(float);
    return WEIR_OK;
}

static int residual_mix_grad_weight(const struct weir__op_call *call) {
    uint64_t tiles;
    float *sum = call->workspace;
    struct weir__cuda_bias_grad sums = pull_sums(call->shape, &tiles);
    sums.dy = call->in[0];
    sums.partial = sum + sums.width;
    struct weir__cuda_fold fold = {.to = {sum, NULL},
                                   .partial = sums.partial,
                                   .parts = weir__cuda_parts(sums.rows, sums.part_rows),
                                   .width = sums.width,
                                   .overwrite = true};
    struct weir__cuda_mix_weight weight = {.dweight = call->out[0],
                                           .dquery = call->out[1],
                                           .sum = sum,
                                           .weight = call->in[1],
                                           .query = call->in[2],
                                           .width = sums.width,
                                           .overwrite = call->overwrite};
    struct weir__cuda_grid grid = {{(uint32_t)tiles, (uint32_t)fold.parts, 1}, {THREADS, 1, 1}, 0};
    struct weir__cuda_grid line = weir__cuda_line(sums.width, THREADS, THREADS, 0);
    void *of_sums[] = {&sums}, *of_weight[] = {&weight};
    int status = check_width(call);
    if (status != WEIR_OK || sums.width == 0) return status;
    status = weir__net_launch(call->stream, WEIR__NET_KERNEL_bias_grad_f32, &grid, of_sums);
    if (status != WEIR_OK) return status;
    status = weir__cuda_fold(call->stream, &fold);
    if (status != WEIR_OK) return status;
    return weir__net_launch(call->stream, WEIR__NET_KERNEL_residual_mix_weight, &line, of_weight);
}

#define ROW(name, measure_)                                                                        \
    [WEIR__OP_##name] = {.measure = (measure_), .run = (name), .library = "CUDA"}

const struct weir__kernel weir__cuda_norm[WEIR__OP_COUNT] = {
    ROW(layer_norm, NULL),
    ROW(layer_norm_grad_input, NULL),
    ROW(layer_norm_grad_weight, measure_norm_grad_weight),
    ROW(rms_norm, NULL),
    ROW(rms_norm_grad_input, NULL),
    ROW(rms_norm_grad_weight, measure_norm_grad_weight),
    ROW(residual_mix, NULL),
    ROW(residual_mix_grad, NULL),
    ROW(residual_mix_grad_weight, measure_mix_weight),
    ROW(add_layer_norm, NULL),
    ROW(add_layer_norm_grad_input, NULL),
};

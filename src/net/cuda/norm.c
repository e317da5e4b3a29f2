/* SPDX-License-Identifier: MIT */
/* LayerNorm and RMSNorm. */
#include "net/cuda/cuda.h"

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

#define ROW(name, measure_)                                                                        \
    [WEIR__OP_##name] = {.measure = (measure_), .run = (name), .library = "CUDA"}

const struct weir__kernel weir__cuda_norm[WEIR__OP_COUNT] = {
    ROW(layer_norm, NULL),
    ROW(layer_norm_grad_input, NULL),
    ROW(layer_norm_grad_weight, measure_norm_grad_weight),
    ROW(rms_norm, NULL),
    ROW(rms_norm_grad_input, NULL),
    ROW(rms_norm_grad_weight, measure_norm_grad_weight),
    ROW(add_layer_norm, NULL),
    ROW(add_layer_norm_grad_input, NULL),
};

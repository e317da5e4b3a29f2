/* SPDX-License-Identifier: MIT */
/* LayerNorm and instance norm. */
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
static int launch_rows(const struct weir__op_call *call, enum weir__cuda_kernel by_warp,
                       enum weir__cuda_kernel by_block, void *argument) {
    bool warps = call->shape->width <= WARP_NUMBERS;
    struct weir__cuda_grid grid =
        weir__cuda_line(rows_of(call->shape), warps ? WARPS : 1, THREADS, 0);
    void *arguments[] = {argument};
    int status = check_width(call);
    if (status != WEIR_OK || rows_of(call->shape) == 0) return status;
    return weir__cuda_launch(call->stream, warps ? by_warp : by_block, &grid, arguments);
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

/* Columns that a block of layer_norm_weight takes: 32 chunks of 16 bytes. */
static uint64_t weight_tiles(const struct weir__op_shape *shape) {
    uint64_t columns = 32 * 16 / weir_dtype_bytes(shape->dtype);
    return ((uint64_t)shape->width + columns - 1) / columns;
}

static int measure_layer_norm_grad_weight(const struct weir__op_shape *shape, size_t *workspace) {
    uint64_t part_rows = weir__cuda_part_rows(rows_of(shape), weight_tiles(shape));
    uint64_t parts = weir__cuda_parts(rows_of(shape), part_rows);
    *workspace = (size_t)(parts * 2 * (uint64_t)shape->width) * sizeof(float);
    return WEIR_OK;
}

static int layer_norm_grad_weight(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    uint64_t tiles = weight_tiles(shape), rows = rows_of(shape);
    struct weir__cuda_layer_norm_weight grad = {.partial = call->workspace,
                                                .dy = call->in[0],
                                                .x = call->in[1],
                                                .mean = call->in[2],
                                                .rstd = call->in[3],
                                                .rows = rows,
                                                .width = (uint32_t)shape->width,
                                                .part_rows = weir__cuda_part_rows(rows, tiles)};
    struct weir__cuda_fold fold = {.to = {call->out[0], call->out[1]},
                                   .partial = call->workspace,
                                   .parts = weir__cuda_parts(rows, grad.part_rows),
                                   .width = (uint32_t)shape->width,
                                   .overwrite = call->overwrite};
    struct weir__cuda_grid grid = {{(uint32_t)tiles, (uint32_t)fold.parts, 1}, {THREADS, 1, 1}, 0};
    void *arguments[] = {&grad};
    int status = check_width(call);
    if (status != WEIR_OK || shape->width == 0) return status;
    status = weir__cuda_launch(call->stream, WEIR__CUDA_BY_DTYPE(layer_norm_weight, shape), &grid,
                               arguments);
    return status == WEIR_OK ? weir__cuda_fold(call->stream, &fold) : status;
}

const struct weir__kernel weir__cuda_norm[WEIR__OP_COUNT] = {
    [WEIR__OP_layer_norm] = {.run = layer_norm, .library = "CUDA"},
    [WEIR__OP_layer_norm_grad_input] = {.run = layer_norm_grad_input, .library = "CUDA"},
    [WEIR__OP_layer_norm_grad_weight] = {.measure = measure_layer_norm_grad_weight,
                                         .run = layer_norm_grad_weight,
                                         .library = "CUDA"},
};

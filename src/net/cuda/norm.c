/* SPDX-License-Identifier: MIT */
/* LayerNorm, RMSNorm and instance norm. */
#include "net/cuda/cuda.h"

#include <math.h>

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

/* ---- over the pixels of each channel of a row ---- */

enum { PART_BYTES = 64 * 1024, PARTS_MAX = 128, ACROSS_LOG2_MAX = 5, QUAD = 4, LINES = 32 };

static uint64_t divided(uint64_t count, uint64_t by) {
    assert(by > 0);
    return count / by + (count % by != 0);
}

/* Threads over the fours of channels of a pixel, and the parts of a row's pixels: by the pixels and
 * channels alone, so that a row is computed alike among any others. */
static void split(const struct weir__op_shape *shape, struct weir__cuda_instance *norm) {
    uint64_t quads = divided((uint64_t)shape->width, QUAD), pixels = (uint64_t)shape->tokens;
    norm->across_log2 = 0;
    while (norm->across_log2 < ACROSS_LOG2_MAX && 1u << norm->across_log2 < quads)
        norm->across_log2++;
    uint64_t part_pixels =
        PART_BYTES / (QUAD * weir_dtype_bytes(shape->dtype)) >> norm->across_log2;
    uint64_t least = divided(pixels, PARTS_MAX);
    norm->part_pixels = (uint32_t)(part_pixels > least ? part_pixels : least);
    norm->parts = (uint32_t)(pixels > 0 ? divided(pixels, norm->part_pixels) : 1);
}

static struct weir__cuda_mask dropped_channels(const struct weir__op_call *call, bool fused) {
    double p = fused && !call->infer ? call->shape->p : 0;
    assert(p >= 0 && p < 1);
    return (struct weir__cuda_mask){.seed = call->seed,
                                    .mini_batch = call->mini_batch,
                                    .op = call->shape->random_op,
                                    .row_first = (uint32_t)call->row_first,
                                    .threshold = (uint32_t)ceil(p * 0x1p24),
                                    .scale = (float)(1 / (1 - p))};
}

/* `fused`: with the dropout before the norm and the activation after it. */
static struct weir__cuda_instance instance_of(const struct weir__op_call *call, bool fused) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_instance norm = {.partial = call->workspace,
                                       .rows = (uint64_t)shape->rows,
                                       .pixels = (uint32_t)shape->tokens,
                                       .channels = (uint32_t)shape->width,
                                       .slope = fused ? (float)shape->slope : 1.0f,
                                       .eps = shape->eps,
                                       .mask = dropped_channels(call, fused)};
    split(shape, &norm);
    norm.means = (float *)(norm.partial + norm.rows * norm.parts * 2 * (uint64_t)shape->width);
    return norm;
}

/* The parts' sums in double, then each row's as floats. */
static int measure_instance_norm(const struct weir__op_shape *shape, size_t *workspace) {
    struct weir__cuda_instance norm = {.rows = (uint64_t)shape->rows};
    split(shape, &norm);
    uint64_t sums = norm.rows * 2 * (uint64_t)shape->width;
    *workspace = (size_t)(sums * norm.parts) * sizeof(double) + (size_t)sums * sizeof(float);
    return WEIR_OK;
}

static bool is_empty(const struct weir__op_shape *shape) {
    return shape->rows == 0 || shape->tokens == 0 || shape->width == 0;
}

static int check_plane(const struct weir__op_call *call) {
    if (call->shape->tokens > INT32_MAX)
        return weir__fail(call->error, WEIR_ERR_ARGUMENT,
                          "CUDA's norms take planes of up to %d pixels, not %lld", INT32_MAX,
                          (long long)call->shape->tokens);
    return check_width(call);
}

/* Blocks of threads over channels, parts, rows. */
static int launch_parts(const struct weir__op_call *call, enum weir__net_kernel kernel,
                        struct weir__cuda_instance *norm) {
    assert(norm->parts >= 1);
    uint64_t tiles = divided(divided(norm->channels, QUAD), 1u << norm->across_log2);
    uint32_t rows = norm->rows < UINT16_MAX ? (uint32_t)norm->rows : UINT16_MAX;
    struct weir__cuda_grid grid = {{(uint32_t)tiles, norm->parts, rows}, {THREADS, 1, 1}, 0};
    void *arguments[] = {norm};
    return weir__net_launch(call->stream, kernel, &grid, arguments);
}

/* Blocks of 32 warps over `columns` sums of each row. */
static int launch_fold(const struct weir__op_call *call, enum weir__net_kernel kernel,
                       uint64_t columns, uint64_t rows, void **arguments) {
    struct weir__cuda_grid grid = weir__cuda_line(columns, LINES, 32 * LINES, 0);
    grid.blocks[1] = rows < UINT16_MAX ? (uint32_t)rows : UINT16_MAX;
    return weir__net_launch(call->stream, kernel, &grid, arguments);
}

static int run_instance_norm(const struct weir__op_call *call, struct weir__cuda_instance *norm) {
    const struct weir__op_shape *shape = call->shape;
    void *arguments[] = {norm};
    int status = check_plane(call);
    if (status != WEIR_OK || is_empty(shape)) return status;
    norm->x = call->in[0];
    norm->out = call->out[0];
    norm->mean = call->out[1];
    norm->rstd = call->out[2];
    status = launch_parts(call, WEIR__CUDA_BY_DTYPE(instance_sums, shape), norm);
    if (status != WEIR_OK) return status;
    status =
        launch_fold(call, WEIR__NET_KERNEL_instance_moments, norm->channels, norm->rows, arguments);
    if (status != WEIR_OK) return status;
    return launch_parts(call, WEIR__CUDA_BY_DTYPE(instance_apply, shape), norm);
}

static int instance_norm(const struct weir__op_call *call) {
    struct weir__cuda_instance norm = instance_of(call, false);
    if (call->shape->has_bias) {
        norm.weight = call->in[1];
        norm.bias = call->in[2];
    }
    return run_instance_norm(call, &norm);
}

static int instance_norm_act(const struct weir__op_call *call) {
    struct weir__cuda_instance norm = instance_of(call, true);
    return run_instance_norm(call, &norm);
}

static int run_instance_grad(const struct weir__op_call *call, struct weir__cuda_instance *grad) {
    const struct weir__op_shape *shape = call->shape;
    void *arguments[] = {grad};
    int status = check_plane(call);
    if (status != WEIR_OK || is_empty(shape)) return status;
    grad->out = call->out[0];
    status = launch_parts(call, WEIR__CUDA_BY_DTYPE(instance_grad_sums, shape), grad);
    if (status != WEIR_OK) return status;
    status = launch_fold(call, WEIR__NET_KERNEL_instance_means, (uint64_t)grad->channels * 2,
                         grad->rows, arguments);
    if (status != WEIR_OK) return status;
    return launch_parts(call, WEIR__CUDA_BY_DTYPE(instance_grad, shape), grad);
}

/* What a gradient takes of dy, x, mean, rstd, which stand in that order from input `first` on but
 * for dy. */
static void take_inputs(const struct weir__op_call *call, uint32_t first,
                        struct weir__cuda_instance *grad) {
    assert(first == 1 || first == 2);
    grad->dy = call->in[0];
    grad->x = call->in[first];
    grad->mean = (float *)(uintptr_t)call->in[first + 1];
    grad->rstd = (float *)(uintptr_t)call->in[first + 2];
}

static int instance_norm_grad_input(const struct weir__op_call *call) {
    struct weir__cuda_instance grad = instance_of(call, false);
    take_inputs(call, 1, &grad);
    if (call->shape->has_bias) grad.weight = call->in[4];
    return run_instance_grad(call, &grad);
}

static int instance_norm_act_grad(const struct weir__op_call *call) {
    struct weir__cuda_instance grad = instance_of(call, true);
    take_inputs(call, 2, &grad);
    grad.sign = call->in[1];
    return run_instance_grad(call, &grad);
}

static int instance_norm_grad_weight(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_instance grad = instance_of(call, false);
    void *dweight = call->out[0], *dbias = call->out[1];
    uint32_t overwrite = call->overwrite;
    void *arguments[] = {&grad, &dweight, &dbias, &overwrite};
    int status = check_plane(call);
    take_inputs(call, 1, &grad);
    if (status != WEIR_OK || shape->width == 0) return status;
    if (is_empty(shape))
        grad.parts = 0;
    else
        status = launch_parts(call, WEIR__CUDA_BY_DTYPE(instance_grad_sums, shape), &grad);
    if (status != WEIR_OK) return status;
    return launch_fold(call, WEIR__NET_KERNEL_instance_weights, (uint64_t)grad.channels * 2, 1,
                       arguments);
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
    ROW(instance_norm, measure_instance_norm),
    ROW(instance_norm_grad_input, measure_instance_norm),
    ROW(instance_norm_grad_weight, measure_instance_norm),
    ROW(instance_norm_act, measure_instance_norm),
    ROW(instance_norm_act_grad, measure_instance_norm),
};

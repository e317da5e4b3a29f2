/* SPDX-License-Identifier: MIT */
/*
 * Instance norm, over the pixels of each channel of a row; and batch norm, over those of all rows:
 * for the kernels the rows of its micro-batch are one.
 */
#include "net/cuda/cuda.h"
#include "net/moments.h"

#include <math.h>

/* ---- over the pixels of each channel of a row ---- */

enum { THREADS = 256, PART_BYTES = 64 * 1024, ACROSS_LOG2_MAX = 5, QUAD = 4, LINES = 32 };
/* Of a row; of a micro-batch, whose rows need not share the GPU. */
enum { PARTS_MAX = 128, BATCH_PARTS_MAX = 1024 };
_Static_assert((int)WEIR__CUDA_DIGITS == WEIR__MOMENT_DIGITS, "as the host's");

static uint64_t divided(uint64_t count, uint64_t by) {
    assert(by > 0);
    return count / by + (count % by != 0);
}

/* Threads over the fours of channels of a pixel, and the parts of a row's pixels: by the pixels and
 * channels alone, so that a row is computed alike among any others. */
static void split(const struct weir__op_shape *shape, uint64_t pixels, uint64_t parts_max,
                  struct weir__cuda_instance *norm) {
    uint64_t quads = divided((uint64_t)shape->width, QUAD);
    norm->across_log2 = 0;
    while (norm->across_log2 < ACROSS_LOG2_MAX && 1u << norm->across_log2 < quads)
        norm->across_log2++;
    uint64_t part_pixels =
        PART_BYTES / (QUAD * weir_dtype_bytes(shape->dtype)) >> norm->across_log2;
    uint64_t least = divided(pixels, parts_max);
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
    split(shape, (uint64_t)shape->tokens, PARTS_MAX, &norm);
    norm.means = (float *)(norm.partial + norm.rows * norm.parts * 2 * (uint64_t)shape->width);
    return norm;
}

/* The parts' sums in double, then each row's as floats. */
static int measure_instance_norm(const struct weir__op_shape *shape, size_t *workspace) {
    struct weir__cuda_instance norm = {.rows = (uint64_t)shape->rows};
    split(shape, (uint64_t)shape->tokens, PARTS_MAX, &norm);
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
    if (call->shape->width <= INT32_MAX) return WEIR_OK;
    return weir__fail(call->error, WEIR_ERR_ARGUMENT,
                      "CUDA's norms take up to %d channels, not %lld", INT32_MAX,
                      (long long)call->shape->width);
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

/* ---- over those of all rows ---- */

static struct weir__cuda_instance passes_of(const struct weir__op_shape *shape) {
    struct weir__cuda_instance norm = {.rows = 1,
                                       .pixels = (uint32_t)(shape->rows * shape->tokens),
                                       .channels = (uint32_t)shape->width,
                                       .slope = 1.0f,
                                       .mask = {.scale = 1.0f}};
    split(shape, norm.pixels, BATCH_PARTS_MAX, &norm);
    return norm;
}

/* The parts' sums in double, then four floats of each channel. */
static int measure_batch_norm(const struct weir__op_shape *shape, size_t *workspace) {
    uint64_t channels = (uint64_t)shape->width, parts = passes_of(shape).parts;
    *workspace = (size_t)(2 * channels * parts) * sizeof(double) + 4 * channels * sizeof(float);
    return WEIR_OK;
}

/* What the passes over pixels take, and what is done with channels: in the same workspace. */
struct batch {
    struct weir__cuda_instance passes;
    struct weir__cuda_batch_norm channels;
};

static struct batch batch_of(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_instance passes = passes_of(shape);
    uint64_t channels = passes.channels;
    passes.partial = call->workspace;
    passes.mean = (float *)(passes.partial + 2 * channels * passes.parts);
    passes.rstd = passes.mean + channels;
    passes.means = passes.rstd + channels;
    return (struct batch){.passes = passes,
                          .channels = {.middle = passes.mean,
                                       .factor = passes.rstd,
                                       .means = passes.means,
                                       .partial = passes.partial,
                                       .eps = shape->eps,
                                       .pixels = passes.pixels,
                                       .channels = passes.channels,
                                       .parts = passes.parts}};
}

static int check_batch(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    assert(shape->rows >= 1 && shape->tokens >= 1 && shape->width >= 1);
    if (shape->tokens <= INT32_MAX / shape->rows) return check_plane(call);
    return weir__fail(call->error, WEIR_ERR_ARGUMENT,
                      "CUDA's batch norm takes micro-batches of up to %d pixels, not %lld rows of "
                      "%lld: use more chunks",
                      INT32_MAX, (long long)shape->rows, (long long)shape->tokens);
}

/* A thread for each of so many. */
static int launch_each(const struct weir__op_call *call, enum weir__net_kernel kernel,
                       uint64_t count, void **arguments) {
    struct weir__cuda_grid grid = weir__cuda_line(count, THREADS, THREADS, 0);
    return weir__net_launch(call->stream, kernel, &grid, arguments);
}

static int launch_scale(const struct weir__op_call *call, struct batch *batch) {
    void *arguments[] = {&batch->channels};
    return launch_each(call, WEIR__NET_KERNEL_batch_scale, batch->channels.channels, arguments);
}

static int find_moments(const struct weir__op_call *call, struct batch *batch) {
    void *arguments[] = {&batch->channels};
    int status =
        launch_parts(call, WEIR__CUDA_BY_DTYPE(instance_sums, call->shape), &batch->passes);
    if (status != WEIR_OK) return status;
    return launch_fold(call, WEIR__NET_KERNEL_batch_moments, batch->channels.channels, 1,
                       arguments);
}

static int batch_norm(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    bool running = call->infer && shape->tracks;
    struct batch batch = batch_of(call);
    int status = running ? WEIR_OK : weir__check_batch(call);
    if (status != WEIR_OK) return status;
    status = check_batch(call);
    if (status != WEIR_OK) return status;
    batch.passes.x = call->in[0];
    batch.passes.out = call->out[0];
    batch.passes.weight = shape->has_bias ? call->in[1] : NULL;
    batch.passes.bias = shape->has_bias ? call->in[2] : NULL;
    batch.channels.mean = call->out[1];
    batch.channels.variance = call->out[2];
    batch.channels.running_mean = running ? call->in[3] : NULL;
    batch.channels.running_variance = running ? call->in[4] : NULL;
    if (!running) status = find_moments(call, &batch);
    if (status != WEIR_OK) return status;
    status = launch_scale(call, &batch);
    if (status != WEIR_OK) return status;
    return launch_parts(call, WEIR__CUDA_BY_DTYPE(instance_apply, shape), &batch.passes);
}

/* With what both gradients take, ready but for the sums. */
static struct batch gradient_of(const struct weir__op_call *call) {
    struct batch batch = batch_of(call);
    batch.passes.dy = call->in[0];
    batch.passes.x = call->in[1];
    batch.channels.mean = (double *)(uintptr_t)call->in[2];
    batch.channels.variance = (double *)(uintptr_t)call->in[3];
    return batch;
}

static int batch_norm_sums(const struct weir__op_call *call) {
    struct batch batch = gradient_of(call);
    void *arguments[] = {&batch.channels};
    int status = check_batch(call);
    if (status != WEIR_OK) return status;
    status = launch_scale(call, &batch);
    if (status != WEIR_OK) return status;
    status =
        launch_parts(call, WEIR__CUDA_BY_DTYPE(instance_grad_sums, call->shape), &batch.passes);
    if (status != WEIR_OK) return status;
    batch.channels.sum = call->out[0];
    batch.channels.product = call->out[1];
    return launch_fold(call, WEIR__NET_KERNEL_batch_sums, 2 * (uint64_t)batch.channels.channels, 1,
                       arguments);
}

static int batch_norm_grad_input(const struct weir__op_call *call) {
    struct batch batch = gradient_of(call);
    int status = check_batch(call);
    if (status != WEIR_OK) return status;
    batch.channels.sum = (double *)(uintptr_t)call->in[4];
    batch.channels.product = (double *)(uintptr_t)call->in[5];
    batch.channels.weight = batch.passes.weight = call->shape->has_bias ? call->in[6] : NULL;
    batch.passes.out = call->out[0];
    status = launch_scale(call, &batch);
    if (status != WEIR_OK) return status;
    return launch_parts(call, WEIR__CUDA_BY_DTYPE(instance_grad, call->shape), &batch.passes);
}

static int batch_norm_grad_weight(const struct weir__op_call *call) {
    const void *sum = call->in[0], *product = call->in[1];
    void *dweight = call->out[0], *dbias = call->out[1];
    uint32_t channels = (uint32_t)call->shape->width, overwrite = call->overwrite;
    void *arguments[] = {&sum, &product, &dweight, &dbias, &channels, &overwrite};
    int status = check_batch(call);
    if (status != WEIR_OK) return status;
    return launch_each(call, WEIR__NET_KERNEL_batch_deliver, channels, arguments);
}

static int batch_norm_statistics(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const struct weir__moment_weights weights = weir__moment_weights_of(call);
    struct weir__cuda_batch_statistics statistics = {.mean = call->in[0],
                                                     .variance = call->in[1],
                                                     .running_mean = call->in[2],
                                                     .moments = call->out[0],
                                                     .weight_mean = weights.mean,
                                                     .weight_variance = weights.variance,
                                                     .weight_squares = weights.squares,
                                                     .count = weights.count,
                                                     .channels = (uint32_t)shape->width,
                                                     .overwrite = call->overwrite};
    void *arguments[] = {&statistics};
    int status = check_batch(call);
    if (status != WEIR_OK) return status;
    return launch_each(call, WEIR__NET_KERNEL_batch_statistics,
                       (uint64_t)weir__moment_numbers(shape->width), arguments);
}

#define ROW(name, measure_)                                                                        \
    [WEIR__OP_##name] = {.measure = (measure_), .run = (name), .library = "CUDA"}

const struct weir__kernel weir__cuda_image_norm[WEIR__OP_COUNT] = {
    ROW(instance_norm, measure_instance_norm),
    ROW(instance_norm_grad_input, measure_instance_norm),
    ROW(instance_norm_grad_weight, measure_instance_norm),
    ROW(instance_norm_act, measure_instance_norm),
    ROW(instance_norm_act_grad, measure_instance_norm),
    ROW(batch_norm, measure_batch_norm),
    ROW(batch_norm_sums, measure_batch_norm),
    ROW(batch_norm_grad_input, measure_batch_norm),
    ROW(batch_norm_grad_weight, NULL),
    ROW(batch_norm_statistics, NULL),
};

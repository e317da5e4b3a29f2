/* SPDX-License-Identifier: MIT */
/* Activations, dropout, softmax, sums, transposition, column sums. */
#include "net/cuda/cuda.h"

#include <math.h>

enum { THREADS = 256, CHUNK = 16, CHUNKS_PER_BLOCK = 2 * THREADS, ROWS_PER_THREAD = 8 };

static uint64_t elements(const struct weir__op_shape *shape) {
    return (uint64_t)(shape->rows * shape->width);
}

/** Chunks of 16 bytes that hold so many numbers. */
static uint64_t chunks_of(const struct weir__op_shape *shape, uint64_t count) {
    assert(shape->dtype == WEIR_F32 || shape->dtype == WEIR_BF16);
    uint64_t width = CHUNK / weir_dtype_bytes(shape->dtype);
    return count / width + (count % width != 0);
}

/* ---- maps ---- */

static struct weir__cuda_each each_of(const struct weir__op_call *call, bool pair) {
    return (struct weir__cuda_each){.y = call->out[0],
                                    .a = call->in[0],
                                    .b = pair ? call->in[1] : NULL,
                                    .count = elements(call->shape),
                                    .by_tanh = call->shape->gelu_tanh,
                                    .slope = (float)call->shape->slope};
}

static int run_each(const struct weir__op_call *call, enum weir__net_kernel kernel,
                    struct weir__cuda_each *each) {
    struct weir__cuda_grid grid =
        weir__cuda_line(chunks_of(call->shape, each->count), CHUNKS_PER_BLOCK, THREADS, 0);
    void *arguments[] = {each};
    if (each->count == 0) return WEIR_OK;
    return weir__net_launch(call->stream, kernel, &grid, arguments);
}

static int gelu(const struct weir__op_call *call) {
    struct weir__cuda_each each = each_of(call, false);
    return run_each(call, WEIR__CUDA_BY_DTYPE(gelu, call->shape), &each);
}

static int gelu_grad(const struct weir__op_call *call) {
    struct weir__cuda_each each = each_of(call, true);
    return run_each(call, WEIR__CUDA_BY_DTYPE(gelu_grad, call->shape), &each);
}

static int swiglu_grad(const struct weir__op_call *call) {
    struct weir__cuda_swiglu_grad grad = {.dgate = call->out[0],
                                          .dup = call->out[1],
                                          .dy = call->in[0],
                                          .gate = call->in[1],
                                          .up = call->in[2],
                                          .count = elements(call->shape)};
    struct weir__cuda_grid grid =
        weir__cuda_line(chunks_of(call->shape, grad.count), THREADS, THREADS, 0);
    void *arguments[] = {&grad};
    if (grad.count == 0) return WEIR_OK;
    return weir__net_launch(call->stream, WEIR__CUDA_BY_DTYPE(swiglu_grad, call->shape), &grid,
                            arguments);
}

static int map_one(const struct weir__op_call *call, enum weir__cuda_map map) {
    struct weir__cuda_each each = each_of(call, false);
    each.map = map;
    return run_each(call, WEIR__CUDA_BY_DTYPE(each, call->shape), &each);
}

static int map_pair(const struct weir__op_call *call, enum weir__cuda_map map) {
    struct weir__cuda_each each = each_of(call, true);
    each.map = map;
    return run_each(call, WEIR__CUDA_BY_DTYPE(each_pair, call->shape), &each);
}

#define MAP(name, run, which)                                                                      \
    static int name(const struct weir__op_call *call) {                                            \
        return run(call, WEIR__CUDA_MAP_##which);                                                  \
    }
MAP(relu, map_one, RELU)
MAP(leaky_relu, map_one, LEAKY_RELU)
MAP(scale, map_one, SCALE)
MAP(silu, map_one, SILU)
MAP(sigmoid, map_one, SIGMOID)
MAP(hyperbolic, map_one, TANH)
MAP(add, map_pair, ADD)
MAP(multiply, map_pair, MULTIPLY)
MAP(swiglu, map_pair, SWIGLU)
MAP(relu_grad, map_pair, RELU_GRAD)
MAP(leaky_relu_grad, map_pair, LEAKY_RELU_GRAD)
MAP(silu_grad, map_pair, SILU_GRAD)
MAP(sigmoid_grad, map_pair, SIGMOID_GRAD)
MAP(hyperbolic_grad, map_pair, TANH_GRAD)

/* ---- dropout ---- */

static struct weir__cuda_mask mask_of(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    double p = call->infer ? 0 : shape->p;
    return (struct weir__cuda_mask){.seed = call->seed,
                                    .mini_batch = call->mini_batch,
                                    .op = shape->random_op,
                                    .row_first = (uint32_t)call->row_first,
                                    .threshold = (uint32_t)ceil(p * 0x1p24),
                                    .scale = (float)(1 / (1 - p))};
}

static struct weir__cuda_dropout dropout_of(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    int64_t channels = shape->channels;
    return (struct weir__cuda_dropout){.y = call->out[0],
                                       .x = call->in[0],
                                       .rows = (uint64_t)shape->rows,
                                       .width = (uint64_t)shape->width,
                                       .pixels =
                                           channels > 0 ? (uint64_t)(shape->width / channels) : 0,
                                       .channels = (uint64_t)channels,
                                       .mask = mask_of(call)};
}

static int run_dropout(const struct weir__op_call *call, struct weir__cuda_dropout *dropout) {
    assert(dropout->channels == 0 || dropout->pixels * dropout->channels == dropout->width);
    struct weir__cuda_grid grid =
        dropout->channels > 0
            ? weir__cuda_plane(dropout->channels, dropout->pixels / 4 + 2, 1, dropout->rows)
            : weir__cuda_plane((chunks_of(call->shape, dropout->width) + 1) / 2, dropout->rows, 1,
                               1);
    void *arguments[] = {dropout};
    if (dropout->rows == 0 || dropout->width == 0) return WEIR_OK;
    return weir__net_launch(call->stream, WEIR__CUDA_BY_DTYPE(dropout, call->shape), &grid,
                            arguments);
}

/** What nothing is dropped of is not drawn for: in inference. */
static int dropout(const struct weir__op_call *call) {
    struct weir__cuda_dropout dropout = dropout_of(call);
    return run_dropout(call, &dropout);
}

static int dropout_add(const struct weir__op_call *call) {
    struct weir__cuda_dropout dropout = dropout_of(call);
    dropout.residual = call->in[1];
    return run_dropout(call, &dropout);
}

static int dropout2d(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_dropout dropout = dropout_of(call);
    dropout.pixels = (uint64_t)shape->tokens;
    dropout.channels = (uint64_t)shape->width;
    dropout.width = dropout.pixels * dropout.channels;
    struct weir__cuda_grid grid = weir__cuda_plane(chunks_of(shape, dropout.channels),
                                                   dropout.pixels, ROWS_PER_THREAD, dropout.rows);
    void *arguments[] = {&dropout};
    if (dropout.rows == 0 || dropout.width == 0) return WEIR_OK;
    return weir__net_launch(call->stream, WEIR__CUDA_BY_DTYPE(dropout2d, shape), &grid, arguments);
}

/* ---- with the bias of the product before ---- */

static int run_biased(const struct weir__op_call *call, enum weir__net_kernel kernel,
                      struct weir__cuda_biased *biased) {
    const struct weir__op_shape *shape = call->shape;
    assert(shape->out > 0 && shape->width % shape->out == 0);
    biased->y = call->out[0];
    biased->columns = (uint64_t)shape->out;
    biased->rows = (uint64_t)(shape->rows * (shape->width / shape->out));
    biased->by_tanh = shape->gelu_tanh;
    struct weir__cuda_grid grid =
        weir__cuda_plane(chunks_of(shape, biased->columns), biased->rows, ROWS_PER_THREAD, 1);
    void *arguments[] = {biased};
    if (biased->rows == 0) return WEIR_OK;
    return weir__net_launch(call->stream, kernel, &grid, arguments);
}

static int bias_gelu(const struct weir__op_call *call) {
    struct weir__cuda_biased biased = {.x = call->in[0], .bias = call->in[1]};
    return run_biased(call, WEIR__CUDA_BY_DTYPE(bias_gelu, call->shape), &biased);
}

static int bias_gelu_grad(const struct weir__op_call *call) {
    struct weir__cuda_biased biased = {.x = call->in[1], .a = call->in[0], .bias = call->in[2]};
    return run_biased(call, WEIR__CUDA_BY_DTYPE(bias_gelu_grad, call->shape), &biased);
}

static int bias_dropout_add(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    assert(shape->out > 0 && shape->width % shape->out == 0);
    struct weir__cuda_dropout dropout = dropout_of(call);
    dropout.bias = call->in[1];
    dropout.residual = call->in[2];
    dropout.channels = (uint64_t)shape->out;
    dropout.pixels = dropout.width / dropout.channels;
    struct weir__cuda_grid grid = weir__cuda_plane(chunks_of(shape, dropout.channels),
                                                   dropout.pixels, ROWS_PER_THREAD, dropout.rows);
    void *arguments[] = {&dropout};
    if (dropout.rows == 0 || dropout.width == 0) return WEIR_OK;
    return weir__net_launch(call->stream, WEIR__CUDA_BY_DTYPE(bias_dropout_add, shape), &grid,
                            arguments);
}

/* ---- moves ---- */

static int transpose(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    return weir__cuda_nchw_to_nhwc(call->stream, call->out[0], call->in[0],
                                   (uint64_t)(shape->rows * shape->tokens), (uint64_t)shape->in,
                                   (uint64_t)shape->out, weir_dtype_bytes(shape->dtype));
}

/* ---- rows ---- */

enum { WARP = 32, WARP_NUMBERS = 1024 };

static uint64_t matrix_rows(const struct weir__op_shape *shape) {
    return (uint64_t)(shape->rows * shape->tokens);
}

/* Kernels count a row's numbers in 32 bits. */
static int check_width(const struct weir__op_call *call, int64_t width) {
    if (width <= INT32_MAX) return WEIR_OK;
    return weir__fail(call->error, WEIR_ERR_ARGUMENT,
                      "%s on CUDA takes rows of up to %d numbers, not %lld",
                      weir__op_name(call->shape->op), INT32_MAX, (long long)width);
}

/* Rows to warps or to blocks: the width alone says which. */
static int run_softmax(const struct weir__op_call *call, enum weir__net_kernel by_warp,
                       enum weir__net_kernel by_block, struct weir__cuda_softmax *softmax) {
    const struct weir__op_shape *shape = call->shape;
    bool warps = shape->width <= WARP_NUMBERS;
    int status = check_width(call, shape->width);
    if (status != WEIR_OK || matrix_rows(shape) == 0 || shape->width == 0) return status;
    softmax->rows = matrix_rows(shape);
    softmax->width = (uint32_t)shape->width;
    struct weir__cuda_grid grid =
        weir__cuda_line(softmax->rows, warps ? THREADS / WARP : 1, THREADS, 0);
    void *arguments[] = {softmax};
    return weir__net_launch(call->stream, warps ? by_warp : by_block, &grid, arguments);
}

static int softmax(const struct weir__op_call *call) {
    struct weir__cuda_softmax softmax = {.to = call->out[0], .y = call->in[0]};
    return run_softmax(call, WEIR__CUDA_BY_DTYPE(softmax_warp, call->shape),
                       WEIR__CUDA_BY_DTYPE(softmax_block, call->shape), &softmax);
}

static int softmax_grad(const struct weir__op_call *call) {
    struct weir__cuda_softmax softmax = {.to = call->out[0], .y = call->in[1], .dy = call->in[0]};
    return run_softmax(call, WEIR__CUDA_BY_DTYPE(softmax_grad_warp, call->shape),
                       WEIR__CUDA_BY_DTYPE(softmax_grad_block, call->shape), &softmax);
}

/* Blocks side by side: each has 32 chunks of 16 bytes of the columns. */
static uint64_t bias_tiles(const struct weir__op_shape *shape) {
    uint64_t chunks = chunks_of(shape, (uint64_t)shape->out);
    return chunks / WARP + (chunks % WARP != 0);
}

static int measure_bias_grad(const struct weir__op_shape *shape, size_t *workspace) {
    uint64_t part_rows = weir__cuda_part_rows(matrix_rows(shape), bias_tiles(shape));
    uint64_t parts = weir__cuda_parts(matrix_rows(shape), part_rows);
    *workspace = (size_t)(parts * (uint64_t)shape->out) * sizeof(float);
    return WEIR_OK;
}

static int bias_grad(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    uint64_t rows = matrix_rows(shape), tiles = bias_tiles(shape);
    struct weir__cuda_bias_grad grad = {.partial = call->workspace,
                                        .dy = call->in[0],
                                        .rows = rows,
                                        .part_rows = weir__cuda_part_rows(rows, tiles),
                                        .width = (uint32_t)shape->out};
    struct weir__cuda_fold fold = {.to = {call->out[0]},
                                   .partial = call->workspace,
                                   .parts = weir__cuda_parts(rows, grad.part_rows),
                                   .width = grad.width,
                                   .overwrite = call->overwrite};
    struct weir__cuda_grid grid = {{(uint32_t)tiles, (uint32_t)fold.parts, 1}, {THREADS, 1, 1}, 0};
    void *arguments[] = {&grad};
    int status = check_width(call, shape->out);
    if (status != WEIR_OK || shape->out == 0) return status;
    status =
        weir__net_launch(call->stream, WEIR__CUDA_BY_DTYPE(bias_grad, shape), &grid, arguments);
    return status == WEIR_OK ? weir__cuda_fold(call->stream, &fold) : status;
}

#define ROW(name, run_) [WEIR__OP_##name] = {.run = (run_), .library = "CUDA"}

const struct weir__kernel weir__cuda_pointwise[WEIR__OP_COUNT] = {
    ROW(gelu, gelu),
    ROW(gelu_grad, gelu_grad),
    ROW(relu, relu),
    ROW(relu_grad, relu_grad),
    ROW(leaky_relu, leaky_relu),
    ROW(leaky_relu_grad, leaky_relu_grad),
    ROW(scale, scale),
    ROW(silu, silu),
    ROW(silu_grad, silu_grad),
    ROW(swiglu, swiglu),
    ROW(swiglu_grad, swiglu_grad),
    ROW(sigmoid, sigmoid),
    ROW(sigmoid_grad, sigmoid_grad),
    ROW(tanh, hyperbolic),
    ROW(tanh_grad, hyperbolic_grad),
    ROW(dropout, dropout),
    ROW(dropout_add, dropout_add),
    ROW(dropout2d, dropout2d),
    ROW(bias_gelu, bias_gelu),
    ROW(bias_gelu_grad, bias_gelu_grad),
    ROW(bias_dropout_add, bias_dropout_add),
    ROW(add, add),
    ROW(multiply, multiply),
    ROW(transpose, transpose),
    ROW(softmax, softmax),
    ROW(softmax_grad, softmax_grad),
    [WEIR__OP_bias_grad] = {.measure = measure_bias_grad, .run = bias_grad, .library = "CUDA"},
};

/* SPDX-License-Identifier: MIT */
/* Rows of tables, losses. */
#include "net/cuda/table_arguments.h"

#include "net/cuda/cuda.h"

enum { THREADS = 256, WARPS = THREADS / 32, WARP_NUMBERS = 1024, CHUNK_BYTES = 16 };

/* Kernels count a table's rows, a row's numbers, and some ops' tokens, in 32 bits. */
static int check_count(const struct weir__op_call *call, const char *what, int64_t count) {
    if (count <= INT32_MAX) return WEIR_OK;
    return weir__fail(call->error, WEIR_ERR_ARGUMENT, "CUDA's %s takes up to %d %s, not %lld",
                      weir__op_name(call->shape->op), INT32_MAX, what, (long long)count);
}

static uint64_t tokens_of(const struct weir__op_shape *shape) {
    return (uint64_t)(shape->rows * shape->tokens);
}

static uint64_t chunks_of(const struct weir__op_shape *shape, uint64_t numbers) {
    uint64_t width = CHUNK_BYTES / weir_dtype_bytes(shape->dtype);
    return numbers / width + (numbers % width != 0);
}

/* ---- embedding ---- */

static int embedding(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_embedding rows = {.y = call->out[0],
                                        .index = call->in[0],
                                        .table = call->in[1],
                                        .count = tokens_of(shape),
                                        .rows = (uint32_t)shape->in,
                                        .width = (uint32_t)shape->out};
    struct weir__cuda_grid grid = weir__cuda_line(rows.count, WARPS, THREADS, 0);
    void *arguments[] = {&rows};
    int status = check_count(call, "rows", shape->in);
    if (status != WEIR_OK) return status;
    status = check_count(call, "columns", shape->out);
    if (status != WEIR_OK || rows.count == 0) return status;
    return weir__net_launch(call->stream, WEIR__CUDA_BY_DTYPE(embedding, shape), &grid, arguments);
}

static int measure_embedding_grad(const struct weir__op_shape *shape, size_t *workspace) {
    uint64_t numbers = 2 * (uint64_t)shape->in + tokens_of(shape) + 1;
    *workspace = (size_t)numbers * sizeof(uint32_t);
    return WEIR_OK;
}

static int launch_embedding_grad(const struct weir__op_call *call,
                                 struct weir__cuda_embedding_grad *grad) {
    uint64_t tiles = (chunks_of(call->shape, grad->width) + 31) / 32;
    struct weir__cuda_grid clear = weir__cuda_line(grad->rows, THREADS, THREADS, 0);
    struct weir__cuda_grid link = weir__cuda_line(grad->count, THREADS, THREADS, 0);
    struct weir__cuda_grid rows = weir__cuda_line(grad->rows, WARPS, THREADS, 0);
    void *arguments[] = {grad};
    rows.blocks[1] = (uint32_t)tiles;
    int status =
        weir__net_launch(call->stream, WEIR__NET_KERNEL_embedding_clear, &clear, arguments);
    if (status != WEIR_OK) return status;
    status = weir__net_launch(call->stream, WEIR__NET_KERNEL_embedding_link, &link, arguments);
    if (status != WEIR_OK) return status;
    return weir__net_launch(call->stream, WEIR__CUDA_BY_DTYPE(embedding_rows, call->shape), &rows,
                            arguments);
}

static int embedding_grad(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    uint32_t *workspace = call->workspace;
    struct weir__cuda_embedding_grad grad = {.dtable = call->out[0],
                                             .index = call->in[0],
                                             .dy = call->in[1],
                                             .used = workspace + 1,
                                             .last = workspace + 1 + shape->in,
                                             .next = workspace + 1 + 2 * shape->in,
                                             .bad = workspace,
                                             .count = (uint32_t)tokens_of(shape),
                                             .rows = (uint32_t)shape->in,
                                             .width = (uint32_t)shape->out,
                                             .overwrite = call->overwrite};
    int status = check_count(call, "rows", shape->in);
    if (status != WEIR_OK) return status;
    if ((status = check_count(call, "columns", shape->out)) != WEIR_OK) return status;
    status = check_count(call, "tokens", (int64_t)tokens_of(shape));
    if (status != WEIR_OK || shape->in == 0 || shape->out == 0) return status;
    return launch_embedding_grad(call, &grad);
}

/* ---- positions ---- */

/* Rows of the micro-batch as far as they look the same: tokens x width numbers. */
static int check_position(const struct weir__op_call *call, struct weir__cuda_position *position) {
    const struct weir__op_shape *shape = call->shape;
    int64_t table = shape->table > shape->tokens ? shape->table : shape->tokens;
    position->rows = (uint64_t)shape->rows;
    position->width = (uint32_t)(shape->tokens * shape->width);
    position->table_width = (uint32_t)(table * shape->width);
    position->overwrite = call->overwrite;
    return check_count(call, "numbers of a table", table * shape->width);
}

static int position_add(const struct weir__op_call *call) {
    enum { BLOCKS = 2048 }; /* as many as keep a GPU busy */
    struct weir__cuda_position position = {
        .y = call->out[0], .x = call->in[0], .table = call->in[1]};
    int status = check_position(call, &position);
    struct weir__cuda_grid grid =
        weir__cuda_line(chunks_of(call->shape, position.width), THREADS, THREADS, 0);
    uint64_t planes = (BLOCKS - 1) / grid.blocks[0] + 1;
    grid.blocks[1] = (uint32_t)(planes < position.rows ? planes : position.rows);
    void *arguments[] = {&position};
    if (status != WEIR_OK || position.rows == 0 || position.width == 0) return status;
    return weir__net_launch(call->stream, WEIR__CUDA_BY_DTYPE(position_add, call->shape), &grid,
                            arguments);
}

static int position_grad(const struct weir__op_call *call) {
    struct weir__cuda_position position = {.x = call->in[0], .dtable = call->out[0]};
    int status = check_position(call, &position);
    struct weir__cuda_grid grid =
        weir__cuda_line(chunks_of(call->shape, position.table_width), THREADS, THREADS, 0);
    void *arguments[] = {&position};
    if (status != WEIR_OK || position.table_width == 0) return status;
    return weir__net_launch(call->stream, WEIR__CUDA_BY_DTYPE(position_grad, call->shape), &grid,
                            arguments);
}

/* ---- losses ---- */

/* Adds up what the blocks or rows left in the workspace. */
static int launch_loss(const struct weir__op_call *call, uint64_t count) {
    struct weir__cuda_grid grid = weir__cuda_line(1, 1, THREADS, 0);
    void *loss = call->out[0], *partial = call->workspace;
    double weight = call->loss_weight;
    void *arguments[] = {&loss, &partial, &count, &weight};
    return weir__net_launch(call->stream, WEIR__NET_KERNEL_loss, &grid, arguments);
}

static int launch_rows(const struct weir__op_call *call, enum weir__net_kernel by_warp,
                       enum weir__net_kernel by_block, void *argument) {
    bool warps = call->shape->width <= WARP_NUMBERS;
    struct weir__cuda_grid grid =
        weir__cuda_line(tokens_of(call->shape), warps ? WARPS : 1, THREADS, 0);
    void *arguments[] = {argument};
    int status = check_count(call, "classes", call->shape->width);
    if (status != WEIR_OK || tokens_of(call->shape) == 0) return status;
    return weir__net_launch(call->stream, warps ? by_warp : by_block, &grid, arguments);
}

static int measure_cross_entropy(const struct weir__op_shape *shape, size_t *workspace) {
    *workspace = (size_t)tokens_of(shape) * sizeof(double);
    return WEIR_OK;
}

static int cross_entropy(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_cross_entropy rows = {.logits = call->in[0],
                                            .target = call->in[1],
                                            .largest = call->out[1],
                                            .total = call->out[2],
                                            .partial = call->workspace,
                                            .rows = tokens_of(shape),
                                            .ignore_index = shape->ignore_index,
                                            .width = (uint32_t)shape->width};
    int status = launch_rows(call, WEIR__CUDA_BY_DTYPE(cross_entropy_warp, shape),
                             WEIR__CUDA_BY_DTYPE(cross_entropy_block, shape), &rows);
    return status == WEIR_OK ? launch_loss(call, rows.rows) : status;
}

static int cross_entropy_grad(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_cross_entropy_grad grad = {.dlogits = call->out[0],
                                                 .logits = call->in[0],
                                                 .target = call->in[1],
                                                 .largest = call->in[2],
                                                 .total = call->in[3],
                                                 .rows = tokens_of(shape),
                                                 .ignore_index = shape->ignore_index,
                                                 .width = (uint32_t)shape->width,
                                                 .share = (float)(1 / call->loss_weight)};
    return launch_rows(call, WEIR__CUDA_BY_DTYPE(cross_entropy_grad_warp, shape),
                       WEIR__CUDA_BY_DTYPE(cross_entropy_grad_block, shape), &grad);
}

static uint64_t elements_of(const struct weir__op_shape *shape) {
    return (uint64_t)(shape->rows * shape->width);
}

static uint64_t tiles_of(const struct weir__op_shape *shape) {
    uint64_t count = elements_of(shape);
    return count / WEIR__CUDA_LOSS_TILE + (count % WEIR__CUDA_LOSS_TILE != 0);
}

static int measure_loss(const struct weir__op_shape *shape, size_t *workspace) {
    *workspace = (size_t)tiles_of(shape) * sizeof(double);
    return WEIR_OK;
}

static int loss_of_numbers(const struct weir__op_call *call, enum weir__net_kernel kernel) {
    struct weir__cuda_loss loss = {.partial = call->workspace,
                                   .x = call->in[0],
                                   .t = call->in[1],
                                   .count = elements_of(call->shape)};
    struct weir__cuda_grid grid = weir__cuda_line(tiles_of(call->shape), 1, THREADS, 0);
    void *arguments[] = {&loss};
    int status = check_count(call, "numbers by 4096", (int64_t)tiles_of(call->shape));
    if (status == WEIR_OK && loss.count > 0)
        status = weir__net_launch(call->stream, kernel, &grid, arguments);
    return status == WEIR_OK ? launch_loss(call, tiles_of(call->shape)) : status;
}

static int grad_of_numbers(const struct weir__op_call *call, enum weir__net_kernel kernel,
                           double factor) {
    void *dx = call->out[0];
    const void *x = call->in[0], *t = call->in[1];
    uint64_t count = elements_of(call->shape);
    float share = (float)(factor / call->loss_weight);
    struct weir__cuda_grid grid =
        weir__cuda_line(chunks_of(call->shape, count), (uint64_t)2 * THREADS, THREADS, 0);
    void *arguments[] = {&dx, &x, &t, &count, &share};
    if (count == 0) return WEIR_OK;
    return weir__net_launch(call->stream, kernel, &grid, arguments);
}

static int mse(const struct weir__op_call *call) {
    return loss_of_numbers(call, WEIR__CUDA_BY_DTYPE(mse, call->shape));
}

static int mse_grad(const struct weir__op_call *call) {
    return grad_of_numbers(call, WEIR__CUDA_BY_DTYPE(mse_grad, call->shape), 2);
}

static int bce_with_logits(const struct weir__op_call *call) {
    return loss_of_numbers(call, WEIR__CUDA_BY_DTYPE(bce, call->shape));
}

static int bce_with_logits_grad(const struct weir__op_call *call) {
    return grad_of_numbers(call, WEIR__CUDA_BY_DTYPE(bce_grad, call->shape), 1);
}

#define ROW(name, measure_)                                                                        \
    [WEIR__OP_##name] = {.measure = (measure_), .run = (name), .library = "CUDA"}

const struct weir__kernel weir__cuda_table[WEIR__OP_COUNT] = {
    ROW(embedding, NULL),
    ROW(embedding_grad, measure_embedding_grad),
    ROW(position_add, NULL),
    ROW(position_grad, NULL),
    ROW(cross_entropy, measure_cross_entropy),
    ROW(cross_entropy_grad, NULL),
    ROW(mse, measure_loss),
    ROW(mse_grad, NULL),
    ROW(bce_with_logits, measure_loss),
    ROW(bce_with_logits_grad, NULL),
};

/* SPDX-License-Identifier: MIT */
/* Pools, upsampling, concatenation. */
#include "net/cuda/cuda.h"

enum { PART = 16, THREADS = 256, WARP = 32, EXTENT_MAX = 1 << 29, NARROW_WINNERS = 256 };

static int64_t pixels(struct weir__plane plane) {
    return plane.height * plane.width;
}

static struct weir__cuda_extent extent(struct weir__plane plane) {
    return (struct weir__cuda_extent){(int32_t)plane.height, (int32_t)plane.width};
}

/* ---- what kernels can count ---- */

static bool fits_extent(struct weir__plane plane) {
    return plane.height <= EXTENT_MAX && plane.width <= EXTENT_MAX;
}

static bool fits_product(int64_t a, int64_t b) {
    return a == 0 || b <= INT32_MAX / a;
}

/* Kernels count a plane's numbers, and those of a window's kernel, in 31 bits. */
static bool fits(const struct weir__window *window, int64_t channels) {
    const struct weir__plane in = window->in, out = window->out, kernel = window->kernel;
    if (!fits_extent(in) || !fits_extent(out) || !fits_extent(kernel)) return false;
    if (!fits_extent(window->stride) || !fits_extent(window->padding)) return false;
    if (!fits_product(in.height, in.width) || !fits_product(pixels(in), channels)) return false;
    if (!fits_product(out.height, out.width) || !fits_product(pixels(out), channels)) return false;
    if (!window->adaptive) return fits_product(kernel.height, kernel.width);
    return fits_product(in.height + 1, out.height + 1) && fits_product(in.width + 1, out.width + 1);
}

static int check(const struct weir__op_call *call, int64_t channels) {
    if (fits(&call->shape->window, channels)) return WEIR_OK;
    return weir__fail(call->error, WEIR_ERR_ARGUMENT,
                      "%s on CUDA takes images of fewer than 2^31 numbers, not of %lld x %lld "
                      "pixels with %lld channels",
                      weir__op_name(call->shape->op), (long long)call->shape->window.in.height,
                      (long long)call->shape->window.in.width, (long long)channels);
}

/* ---- walks ---- */

/* The largest part, up to 16 bytes, that divides addresses and sizes, whose bits are joined. */
static uint32_t common_part(uint64_t bits) {
    uint32_t part = PART;
    while (bits % part != 0) part /= 2;
    return part;
}

static struct weir__cuda_walk walk_of(uint64_t rows, struct weir__plane plane, uint64_t pixel_bytes,
                                      uint32_t part_bytes) {
    uint32_t parts = (uint32_t)(pixel_bytes / part_bytes);
    return (struct weir__cuda_walk){.rows = rows,
                                    .items = (uint32_t)pixels(plane) * parts,
                                    .part_bytes = part_bytes,
                                    .whole = part_bytes == PART,
                                    .by_parts = weir__cuda_divisor(parts),
                                    .by_width = weir__cuda_divisor((uint32_t)plane.width)};
}

static struct weir__cuda_grid grid_of(const struct weir__cuda_walk *walk) {
    uint32_t threads = WARP;
    while (threads < THREADS && threads < walk->items) threads *= 2;
    struct weir__cuda_grid grid = weir__cuda_line(walk->items, threads, threads, 0);
    grid.blocks[1] = walk->rows < UINT16_MAX ? (uint32_t)walk->rows : UINT16_MAX;
    return grid;
}

/* ---- pools ---- */

static uint64_t address(const void *pointer) {
    return (uintptr_t)pointer;
}

/* With what is read and written; `over` is the plane that is walked. `moves`: bytes of any size,
 * else numbers. */
static struct weir__cuda_pool pool_of(const struct weir__op_call *call, const void *x,
                                      const void *dy, struct weir__plane over, bool moves) {
    const struct weir__op_shape *shape = call->shape;
    const struct weir__window *window = &shape->window;
    uint64_t number = weir_dtype_bytes(shape->dtype), pixel = (uint64_t)shape->width * number;
    uint32_t part = common_part(address(x) | address(dy) | address(call->out[0]) | pixel);
    if (part < PART && !moves) part = (uint32_t)number;
    uint64_t parts = pixel / part;
    struct weir__plane stride = window->stride;
    if (window->adaptive) stride = (struct weir__plane){1, 1};
    return (struct weir__cuda_pool){.y = call->out[0],
                                    .x = x,
                                    .dy = dy,
                                    .winners = call->workspace,
                                    .in_items = (uint64_t)pixels(window->in) * parts,
                                    .out_items = (uint64_t)pixels(window->out) * parts,
                                    .walk = walk_of((uint64_t)shape->rows, over, pixel, part),
                                    .in = extent(window->in),
                                    .out = extent(window->out),
                                    .kernel = extent(window->kernel),
                                    .stride = extent(stride),
                                    .padding = extent(window->padding),
                                    .by_stride_height = weir__cuda_divisor((uint32_t)stride.height),
                                    .by_stride_width = weir__cuda_divisor((uint32_t)stride.width),
                                    .adaptive = window->adaptive,
                                    .count_padding = window->count_padding,
                                    .wide_winners = pixels(window->kernel) > NARROW_WINNERS};
}

static int launch_pool(const struct weir__op_call *call, enum weir__net_kernel kernel,
                       struct weir__cuda_pool *pool) {
    struct weir__cuda_grid grid = grid_of(&pool->walk);
    void *arguments[] = {pool};
    return weir__net_launch(call->stream, kernel, &grid, arguments);
}

static bool is_empty(const struct weir__op_shape *shape) {
    return shape->rows == 0 || shape->width == 0;
}

static int forward(const struct weir__op_call *call, enum weir__net_kernel kernel) {
    int status = check(call, call->shape->width);
    if (status != WEIR_OK || is_empty(call->shape)) return status;
    struct weir__cuda_pool pool = pool_of(call, call->in[0], NULL, call->shape->window.out, false);
    return launch_pool(call, kernel, &pool);
}

static int backward(const struct weir__op_call *call, enum weir__net_kernel kernel) {
    int status = check(call, call->shape->width);
    if (status != WEIR_OK || is_empty(call->shape)) return status;
    struct weir__cuda_pool pool = pool_of(call, NULL, call->in[0], call->shape->window.in, false);
    return launch_pool(call, kernel, &pool);
}

static int max_pool2d(const struct weir__op_call *call) {
    return forward(call, WEIR__CUDA_BY_DTYPE(max_pool2d, call->shape));
}

static int avg_pool2d(const struct weir__op_call *call) {
    return forward(call, WEIR__CUDA_BY_DTYPE(avg_pool2d, call->shape));
}

static int avg_pool2d_grad(const struct weir__op_call *call) {
    return backward(call, WEIR__CUDA_BY_DTYPE(avg_pool2d_grad, call->shape));
}

static bool overlaps(const struct weir__window *window) {
    return window->stride.height < window->kernel.height ||
           window->stride.width < window->kernel.width;
}

static int measure_max_pool2d_grad(const struct weir__op_shape *shape, size_t *workspace) {
    const struct weir__window *window = &shape->window;
    size_t outputs = (size_t)(shape->rows * pixels(window->out) * shape->width);
    size_t winner = pixels(window->kernel) > NARROW_WINNERS ? sizeof(uint32_t) : sizeof(uint8_t);
    *workspace = overlaps(window) ? outputs * winner : 0;
    return WEIR_OK;
}

static int max_pool2d_grad(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const struct weir__window *window = &shape->window;
    int status = check(call, shape->width);
    if (status != WEIR_OK || is_empty(shape)) return status;
    struct weir__cuda_pool find = pool_of(call, call->in[1], call->in[0], window->out, false);
    if (!overlaps(window))
        return launch_pool(call, WEIR__CUDA_BY_DTYPE(max_pool2d_grad, shape), &find);
    struct weir__cuda_pool gather = pool_of(call, call->in[1], call->in[0], window->in, false);
    status = launch_pool(call, WEIR__CUDA_BY_DTYPE(max_pool2d_winners, shape), &find);
    if (status != WEIR_OK) return status;
    return launch_pool(call, WEIR__CUDA_BY_DTYPE(max_pool2d_gather, shape), &gather);
}

static int upsample(const struct weir__op_call *call) {
    int status = check(call, call->shape->width);
    if (status != WEIR_OK || is_empty(call->shape)) return status;
    struct weir__cuda_pool pool = pool_of(call, call->in[0], NULL, call->shape->window.out, true);
    return launch_pool(call, WEIR__NET_KERNEL_upsample, &pool);
}

static int upsample_grad(const struct weir__op_call *call) {
    return backward(call, WEIR__CUDA_BY_DTYPE(upsample_grad, call->shape));
}

/* ---- joining channels ---- */

/* `over` is the plane, `channels` what is written of its pixels. */
static struct weir__cuda_concat concat_of(const struct weir__op_call *call, const void *a,
                                          const void *b, struct weir__plane over,
                                          int64_t channels) {
    const struct weir__op_shape *shape = call->shape;
    uint64_t number = weir_dtype_bytes(shape->dtype);
    uint64_t a_bytes = (uint64_t)shape->in * number, b_bytes = (uint64_t)shape->out * number;
    uint32_t part =
        common_part(address(a) | address(b) | address(call->out[0]) | a_bytes | b_bytes);
    return (struct weir__cuda_concat){
        .y = call->out[0],
        .a = a,
        .b = b,
        .walk = walk_of((uint64_t)shape->rows, over, (uint64_t)channels * number, part),
        .in = extent(shape->window.in),
        .out = extent(shape->window.out),
        .a_parts = (uint32_t)(a_bytes / part),
        .joined_parts = (uint32_t)((a_bytes + b_bytes) / part)};
}

static int launch_concat(const struct weir__op_call *call, enum weir__net_kernel kernel,
                         struct weir__cuda_concat *join) {
    struct weir__cuda_grid grid = grid_of(&join->walk);
    void *arguments[] = {join};
    if (call->shape->rows == 0) return WEIR_OK;
    return weir__net_launch(call->stream, kernel, &grid, arguments);
}

static int concat(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    int64_t channels = shape->in + shape->out;
    int status = check(call, channels);
    if (status != WEIR_OK) return status;
    struct weir__cuda_concat join =
        concat_of(call, call->in[0], call->in[1], shape->window.out, channels);
    return launch_concat(call, WEIR__NET_KERNEL_concat, &join);
}

static int concat_grad_a(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    int status = check(call, shape->in + shape->out);
    if (status != WEIR_OK) return status;
    struct weir__cuda_concat join = concat_of(call, call->in[0], NULL, shape->window.in, shape->in);
    return launch_concat(call, WEIR__NET_KERNEL_concat_grad_a, &join);
}

static int concat_grad_b(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    uint64_t number = weir_dtype_bytes(shape->dtype);
    uint64_t a_bytes = (uint64_t)shape->in * number, b_bytes = (uint64_t)shape->out * number;
    const struct weir__cuda_rows rows = {.to = call->out[0],
                                         .from = (const char *)call->in[0] + a_bytes,
                                         .to_pitch = b_bytes,
                                         .from_pitch = a_bytes + b_bytes,
                                         .row_bytes = b_bytes,
                                         .rows =
                                             (uint64_t)(shape->rows * pixels(shape->window.out))};
    return weir__cuda_copy_rows(call->stream, &rows, 0);
}

#define ROW(name, measure_)                                                                        \
    [WEIR__OP_##name] = {.measure = (measure_), .run = name, .library = "CUDA"}

const struct weir__kernel weir__cuda_image[WEIR__OP_COUNT] = {
    ROW(max_pool2d, NULL),    ROW(max_pool2d_grad, measure_max_pool2d_grad),
    ROW(avg_pool2d, NULL),    ROW(avg_pool2d_grad, NULL),
    ROW(upsample, NULL),      ROW(upsample_grad, NULL),
    ROW(concat, NULL),        ROW(concat_grad_a, NULL),
    ROW(concat_grad_b, NULL),
};

/* SPDX-License-Identifier: MIT */
/* Launch shapes of the copy kernels. A shape depends on sizes and pointers only; results never
 * depend on it, because every kernel strides over what its grid does not cover. */
#include "base/base.h"
#include "device/cuda.h"

enum {
    THREADS = 256,
    SPAN_BYTES = THREADS * 4 * 16, /* what a block has under way: four loads of 16 bytes a thread */
    PULL_BYTES = THREADS * 8 * 16,
    CAST_ELEMENTS = THREADS * 8,
    ROWS_AT_ONCE = 4,
    STRIP_ELEMENTS = 1024,
    WARP = 32,
    WIDTH_MAX = 16
};

static uint64_t divide_up(uint64_t value, uint64_t by) {
    return value / by + (value % by != 0);
}

/* At least one, at most blocks_max (0: INT32_MAX, what a grid can have in its first direction). */
static uint32_t bounded(uint64_t blocks, uint32_t blocks_max) {
    uint64_t most = blocks_max == 0 || blocks_max > INT32_MAX ? INT32_MAX : blocks_max;
    if (blocks > most) return (uint32_t)most;
    return blocks == 0 ? 1 : (uint32_t)blocks;
}

static struct weir__cuda_grid line(uint64_t blocks, uint32_t blocks_max) {
    return (struct weir__cuda_grid){{bounded(blocks, blocks_max), 1, 1}, {THREADS, 1, 1}, 0};
}

/* ---- contiguous ---- */

static int copy(struct weir_stream *stream, enum weir__cuda_kernel kernel, void *to,
                const void *from, uint64_t bytes, const struct weir__cuda_grid *grid) {
    if (bytes == 0) return WEIR_OK;
    void *arguments[] = {&to, &from, &bytes};
    return weir__cuda_launch(stream, kernel, grid, arguments);
}

int weir__cuda_copy(struct weir_stream *stream, void *to, const void *from, uint64_t bytes,
                    uint32_t blocks_max) {
    struct weir__cuda_grid grid = line(divide_up(bytes, SPAN_BYTES), blocks_max);
    return copy(stream, WEIR__CUDA_KERNEL_copy, to, from, bytes, &grid);
}

int weir__cuda_push(struct weir_stream *stream, void *to, const void *from, uint64_t bytes,
                    uint32_t blocks_max) {
    struct weir__cuda_grid grid = line(divide_up(bytes, SPAN_BYTES), blocks_max);
    return copy(stream, WEIR__CUDA_KERNEL_push, to, from, bytes, &grid);
}

int weir__cuda_pull(struct weir_stream *stream, void *to, const void *from, uint64_t bytes,
                    uint32_t blocks_max) {
    struct weir__cuda_grid grid = line(divide_up(bytes, PULL_BYTES), blocks_max);
    return copy(stream, WEIR__CUDA_KERNEL_pull, to, from, bytes, &grid);
}

/* ---- batches ---- */

/* Adds one copy; its tiles stand behind those counted so far. */
static void add_copy(struct weir__cuda_batch *batch, const struct weir__copy_item *item,
                     uint64_t *tiles) {
    assert(batch->count < WEIR__CUDA_BATCH_COPIES && item->bytes > 0);
    batch->copies[batch->count++] =
        (struct weir__cuda_batch_copy){item->to, item->from, item->bytes, *tiles};
    *tiles += divide_up(item->bytes, WEIR__CUDA_BATCH_TILE);
}

static int launch_batch(struct weir_stream *stream, struct weir__cuda_batch *batch,
                        uint64_t tiles) {
    struct weir__cuda_grid grid = line(tiles, 0);
    void *arguments[] = {batch};
    if (batch->count == 0) return WEIR_OK;
    return weir__cuda_launch(stream, WEIR__CUDA_KERNEL_copy_batch, &grid, arguments);
}

int weir__cuda_copy_batch(struct weir_stream *stream, const struct weir__copy_item *items,
                          size_t count) {
    size_t next = 0;
    while (next < count) {
        struct weir__cuda_batch batch = {.count = 0};
        uint64_t tiles = 0;
        for (; next < count && batch.count < WEIR__CUDA_BATCH_COPIES; next++)
            if (items[next].bytes > 0) add_copy(&batch, &items[next], &tiles);
        int status = launch_batch(stream, &batch, tiles);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* ---- sets ---- */

static int copy_one(struct weir_stream *stream, const struct weir__copy_set *set) {
    const struct weir__copy_item *item = set->items;
    uint32_t own = stream->device->memory;
    if (set->from_memory != own)
        return weir__cuda_pull(stream, item->to, item->from, item->bytes, set->blocks_max);
    if (set->to_memory != own)
        return weir__cuda_push(stream, item->to, item->from, item->bytes, set->blocks_max);
    return weir__cuda_copy(stream, item->to, item->from, item->bytes, set->blocks_max);
}

int weir__cuda_copy_set(struct weir_stream *stream, const struct weir__copy_set *set) {
    if (set->count == 1) return copy_one(stream, set);
    return weir__cuda_copy_batch(stream, set->items, set->count);
}

/* ---- rows ---- */

/* The widest vector that divides all. */
static uint32_t common_width(const struct weir__cuda_rows *rows) {
    uint64_t bits = (uintptr_t)rows->to | (uintptr_t)rows->from | rows->row_bytes;
    if (rows->rows > 1) bits |= rows->to_pitch | rows->from_pitch;
    uint32_t width = WIDTH_MAX;
    while (bits % width != 0) width /= 2;
    return width;
}

/* Threads along a row of `columns`, of THREADS: a power of two. */
static uint32_t threads_along(uint64_t columns) {
    uint32_t threads = 1;
    while (threads < THREADS && threads < columns) threads *= 2;
    return threads;
}

/* A grid's second direction is short. */
static struct weir__cuda_grid plane(uint64_t columns, uint64_t rows, uint32_t rows_at_once,
                                    uint32_t blocks_max) {
    uint32_t x = threads_along(columns), y = THREADS / x;
    uint32_t down = bounded(divide_up(rows, (uint64_t)rows_at_once * y), blocks_max);
    if (down > UINT16_MAX) down = UINT16_MAX;
    uint32_t along = bounded(divide_up(columns, x), 0);
    if (blocks_max > 0 && along > blocks_max / down) along = blocks_max / down;
    return (struct weir__cuda_grid){{along, down, 1}, {x, y, 1}, 0};
}

int weir__cuda_copy_rows(struct weir_stream *stream, const struct weir__cuda_rows *rows,
                         uint32_t blocks_max) {
    if (rows->rows == 0 || rows->row_bytes == 0) return WEIR_OK;
    if (rows->rows > 1 && (rows->to_pitch < rows->row_bytes || rows->from_pitch < rows->row_bytes))
        return WEIR_ERR_ARGUMENT;
    struct weir__cuda_rows own = *rows;
    own.width = common_width(rows);
    struct weir__cuda_grid grid =
        plane(own.row_bytes / own.width, own.rows, ROWS_AT_ONCE, blocks_max);
    void *arguments[] = {&own};
    return weir__cuda_launch(stream, WEIR__CUDA_KERNEL_copy_rows, &grid, arguments);
}

/* ---- layout ---- */

struct transposition {
    size_t element_bytes;
    enum weir__cuda_kernel kernel;
    uint32_t side; /* of its tile, as in kernels/engine/layout.cu */
};
static const struct transposition transpositions[] = {
    {1, WEIR__CUDA_KERNEL_transpose_1, 64},
    {2, WEIR__CUDA_KERNEL_transpose_2, 64},
    {4, WEIR__CUDA_KERNEL_transpose_4, 32},
    {8, WEIR__CUDA_KERNEL_transpose_8, 32},
};

/* How much of the wide side a block takes where the other one is narrow, else 0: what fits into
 * 1024 shared elements with one spare in each row, a multiple of the threads or of a warp. */
static uint32_t strip_of(const struct weir__cuda_transpose *matrix) {
    uint64_t narrow = matrix->down < matrix->across ? matrix->down : matrix->across;
    if (narrow == 0 || narrow > WEIR__CUDA_NARROW) return 0;
    uint32_t strip = STRIP_ELEMENTS / (uint32_t)narrow - 1;
    return strip - strip % (strip < THREADS ? WARP : THREADS);
}

/* False if there are more than a grid can have. */
static bool count_blocks(const struct weir__cuda_transpose *matrix, uint32_t side, size_t *blocks) {
    uint64_t down = matrix->down, across = matrix->across;
    size_t each;
    if (matrix->strip > 0)
        each = divide_up(down > across ? down : across, matrix->strip);
    else if (!weir__multiply(divide_up(down, side), divide_up(across, side), &each))
        return false;
    return weir__multiply(each, matrix->count, blocks) && *blocks <= INT32_MAX;
}

static int transpose(struct weir_stream *stream, struct weir__cuda_transpose *matrix,
                     size_t element_bytes) {
    const struct transposition *how = transpositions;
    const struct transposition *end = how + WEIR__COUNT_OF(transpositions);
    while (how < end && how->element_bytes != element_bytes) how++;
    if (how == end) return WEIR_ERR_ARGUMENT;
    matrix->strip = strip_of(matrix);
    size_t blocks;
    if (!count_blocks(matrix, how->side, &blocks)) return WEIR_ERR_ARGUMENT;
    if (blocks == 0) return WEIR_OK;
    struct weir__cuda_grid grid = line(blocks, 0);
    void *arguments[] = {matrix};
    return weir__cuda_launch(stream, how->kernel, &grid, arguments);
}

int weir__cuda_nchw_to_nhwc(struct weir_stream *stream, void *to, const void *from, uint64_t images,
                            uint64_t channels, uint64_t pixels, size_t element_bytes) {
    struct weir__cuda_transpose matrix = {to, from, images, channels, pixels, 0};
    return transpose(stream, &matrix, element_bytes);
}

int weir__cuda_nhwc_to_nchw(struct weir_stream *stream, void *to, const void *from, uint64_t images,
                            uint64_t channels, uint64_t pixels, size_t element_bytes) {
    struct weir__cuda_transpose matrix = {to, from, images, pixels, channels, 0};
    return transpose(stream, &matrix, element_bytes);
}

/* ---- casts ---- */

struct cast {
    enum weir_dtype from, to;
    enum weir__cuda_kernel kernel;
};
static const struct cast casts[] = {
    {WEIR_F32, WEIR_BF16, WEIR__CUDA_KERNEL_cast_f32_bf16},
    {WEIR_BF16, WEIR_F32, WEIR__CUDA_KERNEL_cast_bf16_f32},
    {WEIR_F32, WEIR_F16, WEIR__CUDA_KERNEL_cast_f32_f16},
    {WEIR_F16, WEIR_F32, WEIR__CUDA_KERNEL_cast_f16_f32},
};

int weir__cuda_cast(struct weir_stream *stream, void *to, enum weir_dtype to_dtype,
                    const void *from, enum weir_dtype from_dtype, uint64_t elements,
                    uint32_t blocks_max) {
    const struct cast *cast = casts, *end = casts + WEIR__COUNT_OF(casts);
    while (cast < end && (cast->from != from_dtype || cast->to != to_dtype)) cast++;
    if (cast == end) return WEIR_ERR_ARGUMENT;
    if (elements == 0) return WEIR_OK;
    struct weir__cuda_grid grid = line(divide_up(elements, CAST_ELEMENTS), blocks_max);
    void *arguments[] = {&to, &from, &elements};
    return weir__cuda_launch(stream, cast->kernel, &grid, arguments);
}

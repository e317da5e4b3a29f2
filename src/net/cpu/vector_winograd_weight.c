/* SPDX-License-Identifier: MIT */
/*
 * Minimal filtering for the gradient of weights: a product of channels at each position, whose
 * depth are the tiles of the micro-batch. Every sum of a position is one chain over these, image by
 * image and row by row. The sums of a block of channels stay in workspace while tiles go by, a
 * chunk at a time, of which what the block reads is brought into the domain. Where there is one
 * chunk only, so are the sums of a few columns, which leave before the next ones are made.
 *
 * As in vector_winograd.c: 64 channels at 192 x 192 158 GFLOP/s, 512 at 24 x 24 148, where direct
 * ones reach 69 and 64. Smaller blocks, which the second cache would hold, bring tiles into the
 * domain more often than their sums are worth.
 */
#include "net/cpu/vector_winograd.h"

#include <assert.h>

enum {
    CHUNK_TILES = 48,
    BLOCK_IN = 128,
    BLOCK_OUT = 64,
    TAPS = 9,
    PIECE_IN = 32, /* whose taps turn together */
    FEWEST_IN = 16 /* for the sake of another thread */
};
_Static_assert(BLOCK_IN % LANES == 0 && BLOCK_OUT % LANES == 0, "blocks are whole vectors");

static const float zeros[BLOCK_OUT] = {0};

struct weight_filtering {
    const struct weir__op_call *call;
    struct weir__conv_walk walk;
    struct weir__winograd_image x, dy;
    int64_t all_tiles, in; /* of all images; channels of x in a block */
    int64_t columns;       /* channels of dy whose sums are kept at a time */
    float *workspace;
};

struct filtered_channels {
    int64_t in, in_count, out, out_count;
};

struct filtered_weight_areas {
    struct weir__winograd_area sums; /* of channels of the input, not of tiles: the output's */
    struct weir__winograd_area x, dy;
};

/** Floats of a member's workspace; places its areas in `memory`. */
static int64_t lay_out(const struct weight_filtering *filter, float *memory,
                       struct filtered_weight_areas *areas) {
    int64_t out = v_least(filter->walk.columns, BLOCK_OUT);
    int64_t x_row = v_winograd_row(filter->in), dy_row = v_winograd_row(out);
    int64_t sums_row =
        filter->columns > WEIR__TILE_COLUMNS ? v_winograd_row(filter->columns) : filter->columns;
    int64_t sums = v_winograd_distance(filter->in, sums_row);
    int64_t x = v_winograd_distance(CHUNK_TILES, x_row);
    int64_t dy = v_winograd_distance(CHUNK_TILES, dy_row);
    if (memory != NULL) {
        float *second = memory + WEIR__WINOGRAD_POSITIONS * sums;
        *areas = (struct filtered_weight_areas){
            .sums = {memory, sums_row, sums},
            .x = {second, x_row, x},
            .dy = {second + WEIR__WINOGRAD_POSITIONS * x, dy_row, dy}};
    }
    return WEIR__WINOGRAD_POSITIONS * (sums + x + dy);
}

/* ---- what tiles read of dy ---- */

/** One tile's 2 x 2 pixels of some channels, in the domain. */
VECTOR_INLINE void transform(const float *const pixels[4], int64_t at, int64_t lanes, float *to,
                             int64_t distance) {
    const vfloat half = v_all(0.5f);
    vfloat d[4], rows[4][2];
    V_UNROLL
    for (int i = 0; i < 4; i++) {
        const float *from = pixels[i] + at;
        d[i] = lanes == LANES ? v_load(from) : v_load_some(from, lanes);
    }
    V_UNROLL
    for (int x = 0; x < 2; x++) {
        rows[0][x] = d[x];
        rows[1][x] = (d[x] + d[2 + x]) * half;
        rows[2][x] = (d[x] - d[2 + x]) * half;
        rows[3][x] = d[2 + x];
    }
    V_UNROLL
    for (int y = 0; y < 4; y++) {
        const vfloat *r = rows[y];
        v_store(to + (y * 4 + 0) * distance, r[0]);
        v_store(to + (y * 4 + 1) * distance, (r[0] + r[1]) * half);
        v_store(to + (y * 4 + 2) * distance, (r[0] - r[1]) * half);
        v_store(to + (y * 4 + 3) * distance, r[1]);
    }
}

static void take_gradients(const struct weight_filtering *filter,
                           const struct filtered_channels *block, struct weir__conv_range tiles,
                           const struct weir__winograd_area *area) {
    const struct weir__winograd_tiles all = VECTOR(winograd_tiles)(&filter->walk);
    const struct weir__winograd_image *dy = &filter->dy;
    float *to = area->numbers;
    for (int64_t tile = tiles.first; tile < tiles.end; tile++, to += area->row) {
        const struct weir__winograd_place place = v_winograd_place(all, tile);
        const float *pixels[4];
        for (int64_t i = 0; i < 4; i++) {
            int64_t y = place.y + i / 2, x = place.x + i % 2;
            bool inside = y < dy->plane.height && x < dy->plane.width;
            int64_t pixel = (place.image * dy->plane.height + y) * dy->plane.width + x;
            pixels[i] = inside ? dy->numbers + pixel * dy->channels + block->out : zeros;
        }
        int64_t c = 0;
        for (; c + LANES <= block->out_count; c += LANES)
            transform(pixels, c, LANES, to + c, area->distance);
        if (c < block->out_count)
            transform(pixels, c, block->out_count - c, to + c, area->distance);
    }
}

/* ---- a block ---- */

static void bring_chunk(const struct weight_filtering *filter,
                        const struct filtered_channels *block, struct weir__conv_range tiles,
                        const struct filtered_weight_areas *areas) {
    VECTOR(winograd_source)
    (&filter->x, &filter->walk, tiles, block->in, block->in_count, &areas->x);
    take_gradients(filter, block, tiles, &areas->dy);
}

/** Some columns of the block, by all of its channels of x. The first chunk's sums begin at 0. */
static void add_chunk(const struct filtered_channels *block, struct weir__conv_range tiles,
                      struct weir__conv_range columns, const struct filtered_weight_areas *areas) {
    struct weir__panel panel = {.a_row = 1,
                                .a_step = areas->x.row,
                                .b_row = areas->dy.row,
                                .c_row = areas->sums.row,
                                .rows = block->in_count,
                                .depth = tiles.end - tiles.first,
                                .mode = tiles.first == 0 ? WEIR__PANEL_SET : WEIR__PANEL_CHAIN};
    for (int64_t p = 0; p < WEIR__WINOGRAD_POSITIONS; p++)
        for (int64_t j = columns.first; j < columns.end; j += WEIR__TILE_COLUMNS) {
            panel.columns = v_least(v_up(columns.end - j, LANES), WEIR__TILE_COLUMNS);
            panel.a = areas->x.numbers + p * areas->x.distance;
            panel.b = areas->dy.numbers + p * areas->dy.distance + j;
            panel.c = areas->sums.numbers + p * areas->sums.distance + j - columns.first;
            VECTOR_F32(panel_product)(&panel);
        }
}

/** A pair of channels' sums, 16 pairs at a time, become kernels' taps. */
VECTOR_INLINE void transform_back(const float *sums, int64_t distance, float *to) {
    vfloat rows[3][4];
    V_UNROLL
    for (int x = 0; x < 4; x++) {
        vfloat m[4];
        v_winograd_column(sums, distance, x, m);
        rows[0][x] = m[0] + m[1] + m[2];
        rows[1][x] = m[1] - m[2];
        rows[2][x] = m[1] + m[2] - m[3];
    }
    V_UNROLL
    for (int y = 0; y < 3; y++) {
        const vfloat *m = rows[y];
        v_store(to + (y * 3 + 0) * LANES, m[0] + m[1] + m[2]);
        v_store(to + (y * 3 + 1) * LANES, m[1] - m[2]);
        v_store(to + (y * 3 + 2) * LANES, m[1] + m[2] - m[3]);
    }
}

static void deliver(const struct weight_filtering *filter, const struct filtered_channels *block,
                    struct weir__conv_range columns, const struct filtered_weight_areas *areas) {
    _Alignas(64) float taps[PIECE_IN * TAPS * LANES];
    struct weir__conv_sums sums = {.sums = taps, .tap_row = LANES, .in_row = TAPS * LANES};
    for (int64_t j = columns.first; j < columns.end; j += LANES)
        for (int64_t first = 0; first < block->in_count; first += PIECE_IN) {
            const float *from = areas->sums.numbers + first * areas->sums.row + j - columns.first;
            sums.in = block->in + first;
            sums.in_count = v_least(block->in_count - first, PIECE_IN);
            sums.out = block->out + j;
            sums.out_count = v_least(columns.end - j, LANES);
            for (int64_t i = 0; i < sums.in_count; i++)
                transform_back(from + i * areas->sums.row, areas->sums.distance,
                               taps + i * TAPS * LANES);
            VECTOR(conv_deliver)(filter->call, &sums);
        }
}

static void make_part(void *context, uint32_t part, uint32_t member) {
    const struct weight_filtering *filter = context;
    int64_t blocks = v_parts(filter->walk.depth, filter->in);
    struct filtered_channels block = {.in = part % blocks * filter->in,
                                      .out = part / blocks * BLOCK_OUT};
    struct filtered_weight_areas areas;
    struct weir__conv_range tiles = {0, 0};
    block.in_count = v_least(filter->walk.depth - block.in, filter->in);
    block.out_count = v_least(filter->walk.columns - block.out, BLOCK_OUT);
    lay_out(filter, filter->workspace + member * lay_out(filter, NULL, NULL), &areas);
    do {
        tiles = (struct weir__conv_range){tiles.end,
                                          v_least(tiles.end + CHUNK_TILES, filter->all_tiles)};
        bring_chunk(filter, &block, tiles, &areas);
        for (int64_t j = 0; j < block.out_count; j += filter->columns) {
            struct weir__conv_range columns = {j, v_least(j + filter->columns, block.out_count)};
            add_chunk(&block, tiles, columns, &areas);
            if (tiles.end == filter->all_tiles) deliver(filter, &block, columns, &areas);
        }
    } while (tiles.end < filter->all_tiles);
}

/* ---- all blocks ---- */

/** So many channels that there are enough blocks for the team. */
static int64_t channels_of(const struct weir__op_shape *shape, const struct weir__conv_walk *walk) {
    int64_t across = v_parts(walk->columns, BLOCK_OUT), blocks = v_parts(walk->depth, BLOCK_IN);
    while (blocks * across < shape->threads && v_parts(walk->depth, 2 * blocks) >= FEWEST_IN)
        blocks *= 2;
    int64_t channels = v_up(v_parts(walk->depth, blocks), LANES);
    assert(channels <= BLOCK_IN);
    return channels;
}

static struct weight_filtering filtering_of(const struct weir__op_shape *shape) {
    const struct weir__window *w = &shape->window;
    struct weight_filtering filter = {.walk = VECTOR(conv_walk)(shape, 0),
                                      .x = {.plane = w->in, .channels = shape->in},
                                      .dy = {.plane = w->out, .channels = shape->out}};
    const struct weir__winograd_tiles tiles = VECTOR(winograd_tiles)(&filter.walk);
    filter.all_tiles = shape->rows * tiles.down * tiles.across;
    filter.in = channels_of(shape, &filter.walk);
    filter.columns = filter.all_tiles > CHUNK_TILES ? v_least(filter.walk.columns, BLOCK_OUT)
                                                    : WEIR__TILE_COLUMNS;
    return filter;
}

int VECTOR(measure_winograd_weight)(const struct weir__op_shape *shape, size_t *workspace) {
    const struct weight_filtering filter = filtering_of(shape);
    size_t each = (size_t)lay_out(&filter, NULL, NULL) * sizeof(float);
    return weir__multiply(each, shape->threads, workspace) ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

void VECTOR(winograd_weight)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weight_filtering filter = filtering_of(shape);
    assert(VECTOR(winograd_takes)(shape) && shape->op == WEIR__OP_conv2d_grad_weight);
    filter.call = call;
    filter.x.numbers = call->in[0];
    filter.dy.numbers = call->in[1];
    filter.workspace = call->workspace;
    int64_t parts = v_parts(filter.walk.depth, filter.in) * v_parts(filter.walk.columns, BLOCK_OUT);
    weir__share(call, parts, weir__conv_multiply_adds(shape, shape->rows) * 4 / 9, make_part,
                &filter);
}

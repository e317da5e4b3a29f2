/* SPDX-License-Identifier: MIT */
/*
 * Minimal filtering forward and back. A part of the call makes some tiles of all images by some
 * columns, a chunk of tiles at a time: what they see is brought into the domain, a slice of the
 * depth at a time, and multiplied with the panels of the packed kernels; the sums of all the depth
 * come back as pixels, and the bias is added to these. Every sum of a position is one chain over
 * the source's channels, whatever the slices, the chunks and the team.
 *
 * On one core of a Zen 3 whose roof is 103 GFLOP/s, counted as direct convolutions, which reach 94
 * at most: 64 channels at 192 x 192 160, 512 at 24 x 24 160, 32 at 48 x 48 120, and of one image,
 * whose weights come from memory, 1024 at 12 x 12 140, 2048 at 6 x 6 100. Products take three
 * quarters of the time, at their roof. Larger chunks, slices and blocks are no faster. On a Xeon
 * the last of these takes 26 to 32 ms with AVX-512 whether its kernels are kept packed or packed by
 * the call, and packing them for all calls 30 ms after each update (50 to 80 by stores that are
 * kept in caches); at v3 30 to 38 ms kept and 40 to 50 not. What prefetches kernels while others
 * are multiplied stalls these instead.
 */
#include "net/cpu/vector_winograd.h"

#include <assert.h>

enum {
    LEAST_CHANNELS = 16,
    LEAST_PAIRS = 512,       /* of channels: fewer take less time than the transforms */
    PAIRS_BY_TILE = 1 << 19, /* more come from memory for too few tiles */
    KEPT_TILES = 12,         /* of more, kernels are multiplied for longer than packing takes */
    KEPT_PAIRS = 1 << 16,    /* as few do not come from memory each time */
    LEAST_SIDE = 4,          /* smaller images see more padding than pixels */
    CHUNK_TILES = 36,        /* whole tiles of products */
    AHEAD_PIXELS = 4,        /* how far ahead these are prefetched */
    BLOCK_COLUMNS = 64,      /* the chunk's sums and slice of the source are half a megabyte */
    BLOCKS_PER_MEMBER = 2
};
_Static_assert(CHUNK_TILES % WEIR__TILE_ROWS == 0, "a chunk is whole tiles");

static const float zeros[WEIR__WINOGRAD_SLICE] = {0};

bool VECTOR(winograd_takes)(const struct weir__op_shape *shape) {
    const struct weir__window *w = &shape->window;
    bool three = w->kernel.height == 3 && w->kernel.width == 3;
    bool dense = w->stride.height == 1 && w->stride.width == 1 && w->groups == 1;
    bool together = w->gap.height == 0 && w->gap.width == 0;
    bool wide = shape->in >= LEAST_CHANNELS && shape->out >= LEAST_CHANNELS;
    if (!three || !dense || !together || !wide) return false;
    int64_t side =
        v_least(v_least(w->in.height, w->in.width), v_least(w->out.height, w->out.width));
    int64_t tiles = v_parts(w->out.height, 2) * v_parts(w->out.width, 2);
    int64_t pairs = shape->in * shape->out;
    return side >= LEAST_SIDE && pairs >= LEAST_PAIRS && pairs / PAIRS_BY_TILE <= tiles;
}

bool VECTOR(winograd_keeps_packed)(const struct weir__op_shape *shape) {
    const struct weir__conv_walk walk = VECTOR(conv_walk)(shape, 0);
    const struct weir__winograd_tiles tiles = VECTOR(winograd_tiles)(&walk);
    return shape->rows_max * tiles.down * tiles.across > KEPT_TILES ||
           shape->in * shape->out <= KEPT_PAIRS;
}

struct weir__winograd_tiles VECTOR(winograd_tiles)(const struct weir__conv_walk *walk) {
    return (struct weir__winograd_tiles){v_parts(walk->y.pixels, 2), v_parts(walk->x.pixels, 2)};
}

/* ---- what tiles see ---- */

/** One tile's pixels of some channels, in the domain. */
VECTOR_INLINE void transform(const float *const pixels[WEIR__WINOGRAD_POSITIONS], int64_t at,
                             int64_t lanes, int64_t ahead, float *to, int64_t distance) {
    vfloat columns[4][4];
    V_UNROLL
    for (int y = 0; y < 4; y++) {
        __builtin_prefetch(pixels[y * 4 + 2] + at + ahead);
        __builtin_prefetch(pixels[y * 4 + 3] + at + ahead);
    }
    V_UNROLL
    for (int x = 0; x < 4; x++) {
        vfloat d[4];
        V_UNROLL
        for (int y = 0; y < 4; y++) {
            const float *from = pixels[y * 4 + x] + at;
            d[y] = lanes == LANES ? v_load(from) : v_load_some(from, lanes);
        }
        columns[0][x] = d[0] - d[2];
        columns[1][x] = d[1] + d[2];
        columns[2][x] = d[2] - d[1];
        columns[3][x] = d[1] - d[3];
    }
    V_UNROLL
    for (int y = 0; y < 4; y++) {
        const vfloat *d = columns[y];
        v_store(to + (y * 4 + 0) * distance, d[0] - d[2]);
        v_store(to + (y * 4 + 1) * distance, d[1] + d[2]);
        v_store(to + (y * 4 + 2) * distance, d[2] - d[1]);
        v_store(to + (y * 4 + 3) * distance, d[1] - d[3]);
    }
}

/** The 4 x 4 pixels from (y, x) on. */
static void find_pixels(const struct weir__winograd_image *image, int64_t number, int64_t y,
                        int64_t x, int64_t channel, const float *pixels[WEIR__WINOGRAD_POSITIONS]) {
    const struct weir__plane plane = image->plane;
    for (int64_t i = 0; i < WEIR__WINOGRAD_POSITIONS; i++) {
        int64_t row = y + i / 4, column = x + i % 4;
        bool inside = row >= 0 && row < plane.height && column >= 0 && column < plane.width;
        int64_t pixel = (number * plane.height + row) * plane.width + column;
        pixels[i] = inside ? image->numbers + pixel * image->channels + channel : zeros;
    }
}

void VECTOR(winograd_source)(const struct weir__winograd_image *image,
                             const struct weir__conv_walk *walk, struct weir__conv_range tiles,
                             int64_t channel, int64_t depth,
                             const struct weir__winograd_area *area) {
    const struct weir__winograd_tiles all = VECTOR(winograd_tiles)(walk);
    int64_t distance = area->distance;
    float *to = area->numbers;
    assert(depth <= WEIR__WINOGRAD_SLICE && area->row >= v_up(depth, LANES));
    for (int64_t tile = tiles.first; tile < tiles.end; tile++, to += area->row) {
        const float *pixels[WEIR__WINOGRAD_POSITIONS];
        const struct weir__winograd_place place = v_winograd_place(all, tile);
        find_pixels(image, place.image, walk->y.first + place.y, walk->x.first + place.x, channel,
                    pixels);
        int64_t c = 0;
        for (; c + LANES <= depth; c += LANES)
            transform(pixels, c, LANES, AHEAD_PIXELS * image->channels, to + c, distance);
        if (c < depth)
            transform(pixels, c, depth - c, AHEAD_PIXELS * image->channels, to + c, distance);
    }
}

/* ---- a block ---- */

/** One call. */
struct filtering {
    struct weir__conv_walk walk;
    struct weir__winograd_image from;
    struct weir__plane plane; /* of the result */
    int64_t channels;
    float *to;
    const float *packed, *bias;
    struct weir__winograd_kernels kernels; /* where none are packed */
    int64_t all_tiles, tiles;              /* of all images, and of a block */
    float *workspace;
};

struct filter_block {
    struct weir__conv_range tiles;
    int64_t column, columns;
};

struct filter_areas {
    struct weir__winograd_area source; /* depth */
    struct weir__winograd_area sums;   /* columns */
    float *kernels;                    /* one slice of one tile of columns */
};

/** Floats from a position of so many channels' kernels to the next one's: apart from what falls on
 * the same sets of the first cache. */
static int64_t kernels_distance(int64_t channels) {
    return channels * WEIR__TILE_COLUMNS + LANES;
}

/** Floats of a member's workspace; places its areas in `memory`. */
static int64_t lay_out(const struct weir__conv_walk *walk, bool kept, float *memory,
                       struct filter_areas *areas) {
    int64_t depth = v_least(walk->depth, WEIR__WINOGRAD_SLICE),
            columns = v_least(walk->columns, BLOCK_COLUMNS);
    int64_t source_row = v_winograd_row(depth), sums_row = v_winograd_row(columns);
    int64_t source = v_winograd_distance(CHUNK_TILES, source_row);
    int64_t sums = v_winograd_distance(CHUNK_TILES, sums_row);
    int64_t kernels = kept ? 0 : kernels_distance(depth);
    if (memory != NULL)
        *areas = (struct filter_areas){
            .source = {memory, source_row, source},
            .sums = {memory + WEIR__WINOGRAD_POSITIONS * source, sums_row, sums},
            .kernels = memory + WEIR__WINOGRAD_POSITIONS * (source + sums)};
    return WEIR__WINOGRAD_POSITIONS * (source + sums + kernels);
}

/** The packed kernels of a slice of the depth, for a tile of columns; `distance` is from position
 * to position. */
static const float *kernels_of(const struct filtering *filter, int64_t column,
                               struct weir__conv_range depth, float *area, int64_t *distance) {
    int64_t channels = depth.end - depth.first;
    if (filter->packed == NULL) {
        *distance = kernels_distance(channels);
        VECTOR(winograd_pack)(&filter->kernels, column, depth, area, *distance);
        return area;
    }
    int64_t before = column * filter->walk.depth + depth.first * WEIR__TILE_COLUMNS;
    *distance = channels * WEIR__TILE_COLUMNS;
    return filter->packed + WEIR__WINOGRAD_POSITIONS * before;
}

/** A slice of the depth, by all columns of the block. A position's panel is brought near by the one
 * before it: of few tiles it takes longer to come than to multiply. */
static void multiply(const struct filtering *filter, const struct filter_block *block,
                     int64_t tiles, struct weir__conv_range depth,
                     const struct filter_areas *areas) {
    struct weir__panel panel = {.a_row = areas->source.row,
                                .a_step = 1,
                                .b_row = WEIR__TILE_COLUMNS,
                                .c_row = areas->sums.row,
                                .rows = tiles,
                                .depth = depth.end - depth.first,
                                .mode = depth.first == 0 ? WEIR__PANEL_SET : WEIR__PANEL_CHAIN};
    for (int64_t j = 0; j < block->columns; j += WEIR__TILE_COLUMNS) {
        int64_t distance;
        const float *kernels =
            kernels_of(filter, block->column + j, depth, areas->kernels, &distance);
        panel.columns = v_least(v_up(block->columns - j, LANES), WEIR__TILE_COLUMNS);
        for (int64_t p = 0; p < WEIR__WINOGRAD_POSITIONS; p++) {
            panel.a = areas->source.numbers + p * areas->source.distance;
            panel.b = kernels + p * distance;
            panel.c = areas->sums.numbers + p * areas->sums.distance + j;
            panel.next = p + 1 < WEIR__WINOGRAD_POSITIONS ? distance : 0;
            VECTOR_F32(panel_product)(&panel);
        }
    }
}

/** A tile's sums of some columns become its four pixels. */
VECTOR_INLINE void transform_back(const float *sums, int64_t distance, vfloat pixels[4]) {
    vfloat rows[2][4];
    V_UNROLL
    for (int x = 0; x < 4; x++) {
        vfloat m[4];
        v_winograd_column(sums, distance, x, m);
        rows[0][x] = m[0] + m[1] + m[2];
        rows[1][x] = m[1] - m[2] - m[3];
    }
    V_UNROLL
    for (int y = 0; y < 2; y++) {
        const vfloat *m = rows[y];
        pixels[y * 2] = m[0] + m[1] + m[2];
        pixels[y * 2 + 1] = m[1] - m[2] - m[3];
    }
}

static void deliver_tile(const struct filtering *filter, const struct filter_block *block,
                         int64_t tile, const float *sums, int64_t distance) {
    const struct weir__winograd_place place =
        v_winograd_place(VECTOR(winograd_tiles)(&filter->walk), tile);
    const struct weir__plane plane = filter->plane;
    int64_t high = v_least(plane.height - place.y, 2), wide = v_least(plane.width - place.x, 2);
    int64_t pixel = (place.image * plane.height + place.y) * plane.width + place.x;
    int64_t channels = filter->channels;
    float *to = filter->to + pixel * channels + block->column;
    for (int64_t j = 0; j < block->columns; j += LANES) {
        vfloat pixels[4];
        int64_t lanes = v_least(block->columns - j, LANES);
        transform_back(sums + j, distance, pixels);
        if (filter->bias != NULL) {
            vfloat bias = v_load_some(filter->bias + block->column + j, lanes);
            V_UNROLL
            for (int i = 0; i < 4; i++) pixels[i] += bias;
        }
        for (int64_t i = 0; i < high; i++)
            for (int64_t k = 0; k < wide; k++)
                v_store_some(to + (i * plane.width + k) * channels + j, pixels[i * 2 + k], lanes);
    }
}

static void make_block(const struct filtering *filter, const struct filter_block *block,
                       const struct filter_areas *areas) {
    const struct weir__conv_walk *walk = &filter->walk;
    for (int64_t first = block->tiles.first; first < block->tiles.end; first += CHUNK_TILES) {
        struct weir__conv_range tiles = {first, v_least(first + CHUNK_TILES, block->tiles.end)};
        int64_t count = tiles.end - tiles.first;
        for (int64_t d = 0; d < walk->depth; d += WEIR__WINOGRAD_SLICE) {
            struct weir__conv_range depth = {d, v_least(d + WEIR__WINOGRAD_SLICE, walk->depth)};
            VECTOR(winograd_source)(&filter->from, walk, tiles, d, depth.end - d, &areas->source);
            multiply(filter, block, count, depth, areas);
        }
        for (int64_t t = 0; t < count; t++)
            deliver_tile(filter, block, first + t, areas->sums.numbers + t * areas->sums.row,
                         areas->sums.distance);
    }
}

static void make_part(void *context, uint32_t part, uint32_t member) {
    const struct filtering *filter = context;
    int64_t down = v_parts(filter->all_tiles, filter->tiles);
    struct filter_areas areas;
    struct filter_block block = {.column = part / down * BLOCK_COLUMNS};
    block.tiles.first = part % down * filter->tiles;
    block.tiles.end = v_least(block.tiles.first + filter->tiles, filter->all_tiles);
    block.columns = v_least(filter->walk.columns - block.column, BLOCK_COLUMNS);
    bool kept = filter->packed != NULL;
    lay_out(&filter->walk, kept,
            filter->workspace + member * lay_out(&filter->walk, kept, NULL, NULL), &areas);
    make_block(filter, &block, &areas);
}

/* ---- all blocks ---- */

/** So many tiles that there are enough blocks for the team. */
static int64_t tiles_of_block(const struct filtering *filter, uint32_t threads) {
    int64_t across = v_parts(filter->walk.columns, BLOCK_COLUMNS);
    int64_t wanted = threads > 1 ? threads * BLOCKS_PER_MEMBER : 1;
    int64_t tiles = v_parts(filter->all_tiles, v_parts(wanted, across));
    return v_up(tiles, tiles > CHUNK_TILES ? CHUNK_TILES : WEIR__TILE_ROWS);
}

void VECTOR(winograd)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const struct weir__window *w = &shape->window;
    bool back = shape->op == WEIR__OP_conv2d_grad_input;
    struct filtering filter = {.walk = VECTOR(conv_walk)(shape, 0),
                               .from = {.numbers = call->in[0],
                                        .plane = back ? w->out : w->in,
                                        .channels = back ? shape->out : shape->in},
                               .plane = back ? w->in : w->out,
                               .channels = back ? shape->in : shape->out,
                               .to = call->out[0],
                               .packed = call->packed,
                               .kernels = {.weight = call->in[1],
                                           .in = shape->in,
                                           .out = shape->out,
                                           .back = back,
                                           .rounds = shape->dtype == WEIR_BF16},
                               .bias = shape->has_bias && !back ? call->in[2] : NULL,
                               .workspace = call->workspace};
    const struct weir__winograd_tiles tiles = VECTOR(winograd_tiles)(&filter.walk);
    assert(VECTOR(winograd_takes)(shape));
    assert((call->packed != NULL) == VECTOR(winograd_keeps_packed)(shape));
    filter.all_tiles = shape->rows * tiles.down * tiles.across;
    if (filter.all_tiles == 0) return;
    filter.tiles = tiles_of_block(&filter, shape->threads);
    int64_t parts =
        v_parts(filter.all_tiles, filter.tiles) * v_parts(filter.walk.columns, BLOCK_COLUMNS);
    weir__share(call, parts, weir__conv_multiply_adds(shape, shape->rows) * 4 / 9, make_part,
                &filter);
}

int VECTOR(measure_winograd)(const struct weir__op_shape *shape, size_t *workspace) {
    const struct weir__conv_walk walk = VECTOR(conv_walk)(shape, 0);
    bool kept = VECTOR(winograd_keeps_packed)(shape);
    size_t each = (size_t)lay_out(&walk, kept, NULL, NULL) * sizeof(float);
    return weir__multiply(each, shape->threads, workspace) ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

/* SPDX-License-Identifier: MIT */
/*
 * The gradient of a convolution's weights: for each tap a product of the input's channels with the
 * output's, whose depth are the pixels. Every number is one chain over the micro-batch's rows and
 * the output's pixels, row by row.
 *
 * The sums of a block of channels stay in workspace while pixels go by: as many as the second cache
 * holds, copied side by side, dy's columns as panels (unless they are one as they lie) and the
 * input with the zeros that pad its columns. Then one row of taps is one run of neighbours, and few
 * channels fill a tile, too. Of many channels, and where it is dilated, each tap is a product of
 * its own, of the pixels inside the image.
 *
 * Where minimal filtering takes fewer multiply-adds, vector_winograd_weight.c does it all.
 *
 * As in vector_conv.c: 106% of oneDNN's speed with AVX-512, 156% with AVX2.
 */
#include "net/cpu/vector_winograd.h"

#include <assert.h>

enum {
    SUMS_FLOATS = 1 << 15,   /* of a block of channels */
    PIXELS_FLOATS = 1 << 15, /* of both operands, copied */
    DEEP_FROM = 64,          /* channels fill tiles by themselves */
    FEWEST_CHANNELS = 4,     /* of a block, for the sake of another thread */
    AHEAD_KERNELS = 2,       /* whose runs are brought near while others are added to */
    RUN_FLOATS = 288,        /* of a kernel, which are added to at a time */
    BLOCKS_PER_MEMBER = 2
};

struct weight_gradient {
    struct weir__conv_walk walk;
    const struct weir__op_call *call;
    const float *x, *dy;
    bool deep;
    struct weir__plane in, out;
    int64_t images, channels; /* channels of x in a block */
    float *workspace;
};

/** What one part of the call makes: some of the input's channels by one tile of the output's. */
struct channel_block {
    int64_t group, in, in_count, out, out_count;
};

/* ---- what is copied at a time ---- */

/** How the pixels of some images, or of some rows of one, lie side by side. */
struct copies {
    int64_t width, line; /* of a copied row of x: pixels, floats */
    int64_t columns;     /* of a panel of dy */
    bool in_place;       /* that is dy as it lies */
    int64_t images, rows;
    int64_t image, dy_image; /* floats */
};

/** The same for all blocks. */
static struct copies copies_of(const struct weight_gradient *gradient) {
    const struct weir__conv_axis *y = &gradient->walk.y, *x = &gradient->walk.x;
    struct copies copies = {.width = VECTOR(conv_reach)(x, x->pixels),
                            .columns = VECTOR_F32(panel_width)(gradient->walk.columns),
                            .images = 1,
                            .rows = y->pixels};
    copies.in_place = copies.columns == gradient->walk.columns * gradient->walk.groups;
    copies.line = copies.width * gradient->channels;
    int64_t row = y->stride * copies.line + x->pixels * copies.columns;
    int64_t seen = VECTOR(conv_reach)(y, 1);
    int64_t beside = seen > y->stride ? (seen - y->stride) * copies.line : 0;
    if (row * y->pixels + beside > PIXELS_FLOATS) {
        int64_t rows = (PIXELS_FLOATS - beside) / row;
        copies.rows = rows < 1 ? 1 : v_least(rows, y->pixels);
    } else {
        copies.images = v_least(PIXELS_FLOATS / (row * y->pixels + beside), gradient->images);
    }
    copies.image = VECTOR(conv_reach)(y, copies.rows) * copies.line;
    copies.dy_image = (copies.in_place ? y->pixels : copies.rows) * x->pixels * copies.columns;
    return copies;
}

/** Of a member's workspace. */
struct weight_areas {
    float *sums; /* (taps, channels of the block, a tile's columns) */
    float *x, *copied_dy;
    const float *dy; /* copied, or as it lies */
};

static int64_t lay_out(const struct weight_gradient *gradient, float *memory,
                       struct weight_areas *areas) {
    const struct weir__conv_walk *walk = &gradient->walk;
    const struct copies copies = copies_of(gradient);
    int64_t sums = walk->y.taps * walk->x.taps * gradient->channels * WEIR__TILE_COLUMNS;
    int64_t dy = sums + (copies.in_place ? 0 : copies.images * copies.dy_image);
    if (memory != NULL) *areas = (struct weight_areas){memory, memory + dy, memory + sums, NULL};
    return v_up(dy + copies.images * copies.image, LANES);
}

/* ---- a block ---- */

/** One row of pixels of dy, some columns of them. */
static void copy_columns(const float *from, int64_t distance, int64_t count, int64_t pixels,
                         int64_t columns, float *to) {
    size_t rest = (size_t)(columns - count) * sizeof *to;
    for (int64_t i = 0; i < pixels; i++, from += distance, to += columns) {
        v_copy(to, from, count);
        if (rest > 0) memset(to + count, 0, rest);
    }
}

/** Some images' rows from `row` on, of which there are `rows`. */
static void copy_pixels(const struct weight_gradient *gradient, const struct channel_block *block,
                        const struct copies *copies, int64_t first, struct weir__conv_range rows,
                        struct weight_areas *areas) {
    const struct weir__conv_walk *walk = &gradient->walk;
    int64_t in = walk->depth * walk->groups, out = walk->columns * walk->groups;
    const struct weir__plane plane = gradient->in;
    struct weir__conv_image image = {.plane = plane, .channels = in, .depth = block->in_count};
    struct weir__conv_range seen = {.first = walk->y.first + rows.first * walk->y.stride};
    seen.end = seen.first + VECTOR(conv_reach)(&walk->y, rows.end - rows.first);
    for (int64_t i = 0; i < copies->images; i++) {
        image.numbers = gradient->x + (first + i) * plane.height * plane.width * in +
                        block->group * walk->depth + block->in;
        VECTOR(conv_copy)(&image, seen, walk->x.first, copies->width, areas->x + i * copies->image);
        int64_t pixel = ((first + i) * gradient->out.height + rows.first) * gradient->out.width;
        const float *dy = gradient->dy + pixel * out + block->group * walk->columns + block->out;
        if (i == 0) areas->dy = copies->in_place ? dy : areas->copied_dy;
        if (!copies->in_place)
            copy_columns(dy, out, block->out_count, (rows.end - rows.first) * gradient->out.width,
                         copies->columns, areas->copied_dy + i * copies->dy_image);
    }
}

/** The sums by tap (y, x), or, where channels are few, by the row y of taps. */
static void add_tap(const struct weight_gradient *gradient, const struct channel_block *block,
                    const struct copies *copies, struct weir__conv_range rows, int64_t tap_y,
                    int64_t tap_x, const struct weight_areas *areas) {
    const struct weir__conv_axis *y = &gradient->walk.y, *x = &gradient->walk.x;
    struct weir__conv_range seen = VECTOR(conv_pixels)(y, tap_y), pixels = {0, x->pixels};
    if (gradient->deep) pixels = VECTOR(conv_pixels)(x, tap_x);
    if (seen.first < rows.first) seen.first = rows.first;
    if (seen.end > rows.end) seen.end = rows.end;
    if (seen.first >= seen.end || pixels.first >= pixels.end) return;
    int64_t line = copies->width * block->in_count, from = seen.first - rows.first;
    const struct weir__panel panel = {
        .a = areas->x + (from * y->stride + tap_y * y->spread) * line +
             (pixels.first * x->stride + tap_x * x->spread) * block->in_count,
        .a_row = 1,
        .a_step = x->stride * block->in_count,
        .b = areas->dy + (from * x->pixels + pixels.first) * copies->columns,
        .b_row = copies->columns,
        .c = areas->sums + (tap_y * x->taps + tap_x) * block->in_count * WEIR__TILE_COLUMNS,
        .c_row = WEIR__TILE_COLUMNS,
        .rows = (gradient->deep ? 1 : x->taps) * block->in_count,
        .depth = pixels.end - pixels.first,
        .columns = copies->columns,
        .mode = WEIR__PANEL_CHAIN,
        .lines = {seen.end - seen.first, y->stride * line, x->pixels * copies->columns},
        .planes = {copies->images, copies->image, copies->dy_image}};
    VECTOR_F32(panel_product)(&panel);
}

static void add_pixels(const struct weight_gradient *gradient, const struct channel_block *block,
                       struct weight_areas *areas) {
    const struct weir__conv_axis *y = &gradient->walk.y, *x = &gradient->walk.x;
    struct copies copies = copies_of(gradient);
    int64_t most = copies.images;
    for (int64_t image = 0; image < gradient->images; image += most)
        for (int64_t row = 0; row < y->pixels; row += copies.rows) {
            struct weir__conv_range rows = {row, v_least(row + copies.rows, y->pixels)};
            copies.images = v_least(most, gradient->images - image);
            copy_pixels(gradient, block, &copies, image, rows, areas);
            for (int64_t tap = 0; tap < y->taps * x->taps; tap += gradient->deep ? 1 : x->taps)
                add_tap(gradient, block, &copies, rows, tap / x->taps, tap % x->taps, areas);
        }
}

/* Sums of 16 kernels, channel by channel and tap by tap, become some floats of each. */
static void turn(const struct weir__conv_sums *sums, int64_t taps, struct weir__conv_range floats,
                 float turned[LANES][RUN_FLOATS]) {
    bool in_order = sums->in_row == taps * sums->tap_row;
    for (int64_t first = floats.first; first < floats.end; first += LANES) {
        float *to = turned[0] + first - floats.first;
        if (in_order && first + LANES <= floats.end) {
            v_turn(sums->sums + first * sums->tap_row, sums->tap_row, to, RUN_FLOATS);
            continue;
        }
        int64_t channel = first / taps, tap = first % taps;
        _Alignas(64) float gathered[LANES][LANES] = {{0}};
        for (int64_t k = 0; k < v_least(floats.end - first, LANES); k++) {
            v_store(gathered[k], v_load(sums->sums + channel * sums->in_row + tap * sums->tap_row));
            if (++tap == taps) tap = 0, channel++;
        }
        v_turn(gathered[0], LANES, to, RUN_FLOATS);
    }
}

/* Kernels lie one behind the other in PyTorch's order, which is (in, taps) for each. Memory is gone
 * through in runs: 16 kernels a line each at a time would take it twice as long. */
void VECTOR(conv_deliver)(const struct weir__op_call *call, const struct weir__conv_sums *sums) {
    const struct weir__window *window = &call->shape->window;
    int64_t taps = window->kernel.height * window->kernel.width, length = sums->in_count * taps;
    int64_t kernel = call->shape->in / window->groups * taps;
    float *to = (float *)call->out[0] + sums->out * kernel + sums->in * taps;
    assert(sums->out_count <= LANES);
    for (int64_t first = 0; first < length; first += RUN_FLOATS) {
        _Alignas(64) float turned[LANES][RUN_FLOATS];
        struct weir__conv_range floats = {first, v_least(first + RUN_FLOATS, length)};
        int64_t count = floats.end - first;
        turn(sums, taps, floats, turned);
        for (int64_t o = 0; o < sums->out_count; o++) {
            float *run = to + o * kernel + first;
            int64_t i = 0;
            for (; i + LANES <= count; i += LANES) {
                vfloat row = v_load(turned[o] + i);
                __builtin_prefetch(run + AHEAD_KERNELS * kernel + i, 1);
                v_store(run + i, call->overwrite ? row : row + v_load(run + i));
            }
            if (i < count) {
                vfloat row = v_load(turned[o] + i);
                if (!call->overwrite) row += v_load_some(run + i, count - i);
                v_store_some(run + i, row, count - i);
            }
        }
    }
}

static void make_part(void *context, uint32_t part, uint32_t member) {
    const struct weight_gradient *gradient = context;
    const struct weir__conv_walk *walk = &gradient->walk;
    int64_t blocks = v_parts(walk->depth, gradient->channels);
    int64_t tiles = v_parts(walk->columns, WEIR__TILE_COLUMNS);
    struct channel_block block = {.group = part / (blocks * tiles),
                                  .in = part % blocks * gradient->channels,
                                  .out = part / blocks % tiles * WEIR__TILE_COLUMNS};
    struct weight_areas areas;
    block.in_count = v_least(walk->depth - block.in, gradient->channels);
    block.out_count = v_least(walk->columns - block.out, WEIR__TILE_COLUMNS);
    lay_out(gradient, gradient->workspace + member * lay_out(gradient, NULL, NULL), &areas);
    memset(areas.sums, 0,
           (size_t)(walk->y.taps * walk->x.taps * block.in_count) * WEIR__TILE_COLUMNS *
               sizeof *areas.sums);
    add_pixels(gradient, &block, &areas);
    for (int64_t out = 0; out < block.out_count; out += LANES) {
        const struct weir__conv_sums sums = {.sums = areas.sums + out,
                                             .tap_row = block.in_count * WEIR__TILE_COLUMNS,
                                             .in_row = WEIR__TILE_COLUMNS,
                                             .in = block.in,
                                             .in_count = block.in_count,
                                             .out = block.group * walk->columns + block.out + out,
                                             .out_count = v_least(block.out_count - out, LANES)};
        VECTOR(conv_deliver)(gradient->call, &sums);
    }
}

/* ---- all blocks ---- */

/** So many channels that their sums fit, and that there are enough blocks for the team. */
static int64_t channels_of(const struct weir__op_shape *shape, const struct weir__conv_walk *walk) {
    int64_t most = SUMS_FLOATS / (walk->y.taps * walk->x.taps * WEIR__TILE_COLUMNS);
    int64_t others = walk->groups * v_parts(walk->columns, WEIR__TILE_COLUMNS);
    double work = weir__conv_multiply_adds(shape, shape->rows) / WEIR__SHARED_LEAST;
    double wanted = shape->threads > 1 ? shape->threads * BLOCKS_PER_MEMBER : 1;
    if (wanted > work) wanted = work;
    int64_t blocks = most < 1 ? walk->depth : v_parts(walk->depth, most);
    while ((double)(blocks * others) < wanted &&
           v_parts(walk->depth, 2 * blocks) >= FEWEST_CHANNELS)
        blocks *= 2;
    int64_t channels = v_parts(walk->depth, blocks);
    int64_t unit = channels > WEIR__TILE_ROWS ? WEIR__TILE_ROWS : 1;
    return v_least(v_up(channels, unit), walk->depth);
}

static struct weight_gradient gradient_of(const struct weir__op_shape *shape) {
    const struct weir__conv_walk walk = VECTOR(conv_walk)(shape, 0);
    return (struct weight_gradient){.walk = walk,
                                    .deep = walk.depth >= DEEP_FROM || walk.x.spread > 1,
                                    .in = shape->window.in,
                                    .out = shape->window.out,
                                    .images = shape->rows,
                                    .channels = channels_of(shape, &walk)};
}

int VECTOR(measure_conv_weight)(const struct weir__op_shape *shape, size_t *workspace) {
    *workspace = 0;
    if (VECTOR(conv_is_single)(shape)) return WEIR_OK;
    if (VECTOR(winograd_takes)(shape)) return VECTOR(measure_winograd_weight)(shape, workspace);
    const struct weight_gradient gradient = gradient_of(shape);
    size_t each = (size_t)lay_out(&gradient, NULL, NULL) * sizeof(float);
    return weir__multiply(each, shape->threads, workspace) ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

int VECTOR(conv_weight)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    if (VECTOR(conv_is_single)(shape)) {
        VECTOR(conv_single_weight)(call);
        return WEIR_OK;
    }
    if (VECTOR(winograd_takes)(shape)) {
        VECTOR(winograd_weight)(call);
        return WEIR_OK;
    }
    struct weight_gradient gradient = gradient_of(shape);
    const struct weir__conv_walk *walk = &gradient.walk;
    gradient.x = call->in[0];
    gradient.dy = call->in[1];
    gradient.call = call;
    gradient.workspace = call->workspace;
    int64_t parts = walk->groups * v_parts(walk->columns, WEIR__TILE_COLUMNS) *
                    v_parts(walk->depth, gradient.channels);
    weir__share(call, parts, weir__conv_multiply_adds(shape, shape->rows), make_part, &gradient);
    return WEIR_OK;
}

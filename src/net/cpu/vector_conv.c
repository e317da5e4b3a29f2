/* SPDX-License-Identifier: MIT */
/*
 * Convolutions, and the gradient of their input: products of pixels with panels of packed weights.
 * Every number is one chain, from the bias on: over the taps, row by row, and the source's channels
 * for each. The gradient of the input takes the taps from the last to the first, and has no bias.
 *
 * Rows of pixels are copied side by side with the zeros that pad them; then one row of taps is one
 * run of numbers for every pixel, and a tile of results stays in registers for all taps. Of small
 * images with many channels, the pixels that see the source by one tap are gathered in strips,
 * whatever rows and images they are in, and chained to the result: so images of a few pixels fill
 * tiles, and what pads them costs nothing. So do those that see dilated taps, which are no run.
 * Channels, dilation and pixels of a row alone decide which. Where minimal filtering takes fewer
 * multiply-adds, vector_winograd.c does it all.
 *
 * For the U-Net (2, 16) at 96 x 96, 16 rows, all of it made here, on one core of a Zen 4, with
 * packing, against oneDNN 2.6: forward 98% of its speed with AVX-512 and 115% with AVX2, back 93%
 * and 106%.
 */
#include "net/cpu/vector_winograd.h"

#include <assert.h>

enum {
    GATHERED_FROM = 64,     /* channels of the source */
    GATHERED_BELOW = 12,    /* pixels of a row, the most that a tile has */
    AREA_FLOATS = 1 << 15,  /* of copied rows */
    BLOCK_FLOATS = 1 << 17, /* of pixels that all taps go over */
    STRIP_PIXELS = 96,      /* whole tiles */
    STRIP_GAP = 16,         /* floats, so that pixels do not fall on few sets of the cache */
    BLOCKS_PER_MEMBER = 2
};
_Static_assert(STRIP_PIXELS % WEIR__TILE_ROWS == 0, "a strip is whole tiles");

/** One walk for all the micro-batch. */
struct conv_pass {
    const struct weir__conv_walk *walk;
    const float *from, *weights, *bias;
    float *to;
    struct weir__plane from_plane, to_plane;
    int64_t from_channels, to_channels;
    int64_t all_rows;      /* of pixels, of all images */
    int64_t rows, columns; /* of a block */
    float *workspace;
};

/** Some columns of some rows of pixels. */
struct conv_block {
    int64_t group, row, rows, column, columns;
};

/** Whether pixels are gathered. In neither case does what pads an image's rows count; what pads its
 * columns is multiplied, as zeros, where they are not. */
static bool gathers(const struct weir__conv_walk *walk) {
    bool spread = walk->x.taps > 1 && walk->x.spread > 1;
    return spread || (walk->depth >= GATHERED_FROM && walk->x.pixels < GATHERED_BELOW);
}

/* ---- operands ---- */

static const float *tile_weights(const struct conv_pass *conv, const struct conv_block *block,
                                 int64_t column) {
    const struct weir__conv_walk *walk = conv->walk;
    int64_t tiles = v_parts(walk->columns, WEIR__TILE_COLUMNS);
    int64_t floats = walk->y.taps * walk->x.taps * walk->depth * WEIR__TILE_COLUMNS;
    assert(column % WEIR__TILE_COLUMNS == 0);
    return conv->weights + (block->group * tiles + column / WEIR__TILE_COLUMNS) * floats;
}

/** From a pixel of the result to the next one. */
static int64_t result_step(const struct conv_pass *conv) {
    return conv->walk->x.to_step * conv->to_channels;
}

/** The first pixel of row `row` of all, at the block's first column. */
static float *result_row(const struct conv_pass *conv, const struct conv_block *block,
                         int64_t row) {
    const struct weir__conv_axis *y = &conv->walk->y, *x = &conv->walk->x;
    int64_t line =
        row / y->pixels * conv->to_plane.height + y->to_first + row % y->pixels * y->to_step;
    int64_t pixel = line * conv->to_plane.width + x->to_first;
    return conv->to + pixel * conv->to_channels + block->group * conv->walk->columns +
           block->column;
}

static struct weir__conv_image image_of(const struct conv_pass *conv,
                                        const struct conv_block *block, int64_t image) {
    int64_t pixels = conv->from_plane.height * conv->from_plane.width;
    return (struct weir__conv_image){.numbers = conv->from + image * pixels * conv->from_channels +
                                                block->group * conv->walk->depth,
                                     .plane = conv->from_plane,
                                     .channels = conv->from_channels,
                                     .depth = conv->walk->depth};
}

static const float *block_bias(const struct conv_pass *conv, const struct conv_block *block) {
    return conv->bias + block->group * conv->walk->columns + block->column;
}

/** What chains begin with, for some rows of pixels. */
static void begin(const struct conv_pass *conv, const struct conv_block *block, int64_t row,
                  int64_t rows) {
    const float *bias = conv->bias == NULL ? NULL : block_bias(conv, block);
    size_t bytes = (size_t)block->columns * sizeof *bias;
    for (int64_t end = row + rows; row < end; row++) {
        float *to = result_row(conv, block, row);
        for (int64_t t = 0; t < conv->walk->x.pixels; t++, to += result_step(conv))
            if (bias == NULL)
                memset(to, 0, bytes);
            else
                memcpy(to, bias, bytes);
    }
}

/* ---- few channels: rows of pixels ---- */

static int64_t copied_width(const struct weir__conv_walk *walk) {
    return VECTOR(conv_reach)(&walk->x, walk->x.pixels);
}

/** Rows of pixels of one image whose source is copied at a time. */
static int64_t rows_at_once(const struct weir__conv_walk *walk) {
    int64_t row = copied_width(walk) * walk->depth * walk->y.stride;
    int64_t wanted = row > 0 ? AREA_FLOATS / row : 1;
    return wanted < 1 ? 1 : v_least(wanted, walk->y.pixels);
}

/** One tile of columns for one row of pixels, whose first tap is copied at `from`. */
static void multiply_row(const struct conv_pass *conv, const struct conv_block *block, int64_t row,
                         int64_t column, const float *from) {
    const struct weir__conv_walk *walk = conv->walk;
    const struct weir__conv_range taps = VECTOR(conv_taps)(&walk->y, row % walk->y.pixels);
    int64_t line = copied_width(walk) * walk->depth, depth = walk->x.taps * walk->depth;
    int64_t weights = depth * WEIR__TILE_COLUMNS;
    const struct weir__panel panel = {
        .a = from + taps.first * walk->y.spread * line,
        .a_row = walk->x.stride * walk->depth,
        .a_step = 1,
        .b = tile_weights(conv, block, block->column + column) + taps.first * weights,
        .b_row = WEIR__TILE_COLUMNS,
        .c = result_row(conv, block, row) + column,
        .c_row = result_step(conv),
        .rows = walk->x.pixels,
        .depth = taps.end > taps.first ? depth : 0,
        .columns = v_least(block->columns - column, WEIR__TILE_COLUMNS),
        .mode = conv->bias == NULL ? WEIR__PANEL_SET : WEIR__PANEL_CHAIN,
        .begin = conv->bias == NULL ? NULL : block_bias(conv, block) + column,
        .lines = {.times = taps.end - taps.first, .a = walk->y.spread * line, .b = weights}};
    VECTOR_F32(panel_product)(&panel);
}

static void multiply_rows(const struct conv_pass *conv, const struct conv_block *block,
                          float *area) {
    const struct weir__conv_axis *y = &conv->walk->y, *x = &conv->walk->x;
    int64_t line = copied_width(conv->walk) * conv->walk->depth;
    for (int64_t row = block->row, end = row + block->rows; row < end;) {
        int64_t first = row % y->pixels;
        int64_t rows = v_least(v_least(rows_at_once(conv->walk), y->pixels - first), end - row);
        const struct weir__conv_image image = image_of(conv, block, row / y->pixels);
        struct weir__conv_range seen = {.first = y->first + first * y->stride};
        seen.end = seen.first + VECTOR(conv_reach)(y, rows);
        VECTOR(conv_copy)(&image, seen, x->first, copied_width(conv->walk), area);
        for (int64_t j = 0; j < block->columns; j += WEIR__TILE_COLUMNS)
            for (int64_t r = 0; r < rows; r++)
                multiply_row(conv, block, row + r, j, area + r * y->stride * line);
        row += rows;
    }
}

/* ---- many channels: strips of pixels ---- */

/** Pixels that see the source by one tap, anywhere. */
struct pixel_strip {
    const struct conv_pass *conv;
    const struct conv_block *block;
    float *area;
    int64_t tap, count;
    const float *from[STRIP_PIXELS];
    float *to[STRIP_PIXELS];
};

static int64_t strip_row(const struct weir__conv_walk *walk) {
    return v_up(walk->depth, LANES) + STRIP_GAP;
}

/** A tile by way of one whose rows are neighbours. */
static void multiply_tile(const struct pixel_strip *strip, const struct weir__panel *given,
                          int64_t first, int64_t column) {
    float c[WEIR__TILE_ROWS * WEIR__TILE_COLUMNS];
    struct weir__panel panel = *given;
    int64_t columns = v_least(strip->block->columns - column, WEIR__TILE_COLUMNS);
    if (columns < WEIR__TILE_COLUMNS) memset(c, 0, sizeof c);
    panel.a += first * panel.a_row;
    panel.c = c;
    panel.rows = v_least(strip->count - first, WEIR__TILE_ROWS);
    for (int64_t r = 0; r < panel.rows; r++)
        v_copy(c + r * WEIR__TILE_COLUMNS, strip->to[first + r] + column, columns);
    VECTOR_F32(panel_product)(&panel);
    for (int64_t r = 0; r < panel.rows; r++)
        v_copy(strip->to[first + r] + column, c + r * WEIR__TILE_COLUMNS, columns);
}

/** All columns, and empties the strip. */
static void multiply_strip(struct pixel_strip *strip) {
    const struct weir__conv_walk *walk = strip->conv->walk;
    int64_t row = strip_row(walk);
    struct weir__panel panel = {.a = strip->area,
                                .a_row = row,
                                .a_step = 1,
                                .b_row = WEIR__TILE_COLUMNS,
                                .c_row = WEIR__TILE_COLUMNS,
                                .depth = walk->depth,
                                .mode = WEIR__PANEL_CHAIN};
    for (int64_t i = 0; i < strip->count; i++)
        v_copy(strip->area + i * row, strip->from[i], walk->depth);
    for (int64_t j = 0; j < strip->block->columns; j += WEIR__TILE_COLUMNS) {
        panel.b = tile_weights(strip->conv, strip->block, strip->block->column + j) +
                  strip->tap * walk->depth * WEIR__TILE_COLUMNS;
        panel.columns = VECTOR_F32(panel_width)(strip->block->columns - j);
        for (int64_t i = 0; i < strip->count; i += WEIR__TILE_ROWS)
            multiply_tile(strip, &panel, i, j);
    }
    strip->count = 0;
}

/** The pixels of a row that see the source's row from `from` on. */
static void gather_row(struct pixel_strip *strip, const float *from, int64_t row, int64_t tap) {
    const struct conv_pass *conv = strip->conv;
    const struct weir__conv_axis *x = &conv->walk->x;
    const struct weir__conv_range pixels = VECTOR(conv_pixels)(x, tap);
    float *to = result_row(conv, strip->block, row);
    for (int64_t t = pixels.first; t < pixels.end; t++) {
        int64_t pixel = x->first + t * x->stride + tap * x->spread;
        strip->from[strip->count] = from + pixel * conv->from_channels;
        strip->to[strip->count++] = to + t * result_step(conv);
        if (strip->count == STRIP_PIXELS) multiply_strip(strip);
    }
}

/** Some rows of the block by all taps. */
static void multiply_taps(struct pixel_strip *strip, int64_t row, int64_t rows) {
    const struct conv_pass *conv = strip->conv;
    const struct weir__conv_axis *y = &conv->walk->y, *x = &conv->walk->x;
    begin(conv, strip->block, row, rows);
    for (int64_t tap = 0; tap < y->taps * x->taps; tap++) {
        strip->tap = tap;
        for (int64_t r = row; r < row + rows; r++) {
            int64_t line = y->first + r % y->pixels * y->stride + tap / x->taps * y->spread;
            if (line < 0 || line >= y->sources) continue;
            const struct weir__conv_image image = image_of(conv, strip->block, r / y->pixels);
            gather_row(strip, image.numbers + line * image.plane.width * image.channels, r,
                       tap % x->taps);
        }
        multiply_strip(strip);
    }
}

static void multiply_strips(const struct conv_pass *conv, const struct conv_block *block,
                            float *area) {
    const struct weir__conv_walk *walk = conv->walk;
    struct pixel_strip strip = {.conv = conv, .block = block, .area = area};
    int64_t pixels = BLOCK_FLOATS / (walk->depth + block->columns);
    int64_t rows = (pixels < STRIP_PIXELS ? STRIP_PIXELS : pixels) / walk->x.pixels;
    if (rows < 1) rows = 1;
    for (int64_t row = 0; row < block->rows; row += rows)
        multiply_taps(&strip, block->row + row, v_least(block->rows - row, rows));
}

/* ---- all blocks ---- */

/** Floats of a member's workspace. */
static int64_t area_of(const struct weir__conv_walk *walk) {
    if (walk->x.pixels == 0 || walk->y.pixels == 0) return 0;
    if (gathers(walk)) return STRIP_PIXELS * strip_row(walk);
    int64_t rows = VECTOR(conv_reach)(&walk->y, rows_at_once(walk));
    int64_t floats = rows * copied_width(walk) * walk->depth;
    return v_up(floats < 0 ? 0 : floats, LANES);
}

static void multiply_part(void *context, uint32_t part, uint32_t member) {
    const struct conv_pass *conv = context;
    int64_t across = v_parts(conv->walk->columns, conv->columns);
    int64_t down = v_parts(conv->all_rows, conv->rows);
    struct conv_block block = {.group = part / (across * down),
                               .row = part / across % down * conv->rows,
                               .column = part % across * conv->columns};
    block.rows = v_least(conv->all_rows - block.row, conv->rows);
    block.columns = v_least(conv->walk->columns - block.column, conv->columns);
    float *area = conv->workspace + member * area_of(conv->walk);
    if (gathers(conv->walk))
        multiply_strips(conv, &block, area);
    else
        multiply_rows(conv, &block, area);
}

/** Halves blocks until there are enough of them for the team. */
static int64_t cut_blocks(struct conv_pass *conv, double work, uint32_t threads) {
    const struct weir__conv_walk *walk = conv->walk;
    double wanted = threads > 1 ? threads * BLOCKS_PER_MEMBER : 1;
    if (wanted > work / WEIR__SHARED_LEAST) wanted = work / WEIR__SHARED_LEAST;
    for (int64_t down = 1, across = 1;;) {
        conv->rows = v_parts(conv->all_rows, down);
        conv->columns = v_up(v_parts(walk->columns, across), WEIR__TILE_COLUMNS);
        int64_t count = walk->groups * v_parts(conv->all_rows, conv->rows) *
                        v_parts(walk->columns, conv->columns);
        bool narrow = conv->columns <= WEIR__TILE_COLUMNS;
        if ((double)count >= wanted || (narrow && conv->rows == 1)) return count;
        if (narrow || (conv->rows > 1 && conv->rows * walk->x.pixels > STRIP_PIXELS))
            down *= 2;
        else
            across *= 2;
    }
}

int VECTOR(conv_walks)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    if (VECTOR(winograd_takes)(shape)) {
        VECTOR(winograd)(call);
        return WEIR_OK;
    }
    bool back = shape->op == WEIR__OP_conv2d_grad_input;
    const struct weir__window *window = &shape->window;
    struct conv_pass conv = {.from = call->in[0],
                             .weights = call->packed,
                             .bias = shape->has_bias && !back ? call->in[2] : NULL,
                             .to = call->out[0],
                             .from_plane = back ? window->out : window->in,
                             .to_plane = back ? window->in : window->out,
                             .from_channels = back ? shape->out : shape->in,
                             .to_channels = back ? shape->in : shape->out,
                             .workspace = call->workspace};
    int64_t phases = VECTOR(conv_phases)(shape);
    double work = weir__conv_multiply_adds(shape, shape->rows) / (double)phases;
    for (int64_t phase = 0; phase < phases; phase++) {
        const struct weir__conv_walk walk = VECTOR(conv_walk)(shape, phase);
        conv.walk = &walk;
        conv.all_rows = shape->rows * walk.y.pixels;
        if (walk.single)
            VECTOR(conv_single_walk)(call, &walk, conv.weights);
        else if (conv.all_rows > 0 && walk.x.pixels > 0)
            weir__share(call, cut_blocks(&conv, work, shape->threads), work, multiply_part, &conv);
        conv.weights += VECTOR(conv_packed)(&walk);
    }
    return WEIR_OK;
}

int VECTOR(measure_conv_walks)(const struct weir__op_shape *shape, size_t *workspace) {
    int64_t most = 0;
    if (VECTOR(winograd_takes)(shape)) return VECTOR(measure_winograd)(shape, workspace);
    for (int64_t phase = 0; phase < VECTOR(conv_phases)(shape); phase++) {
        const struct weir__conv_walk walk = VECTOR(conv_walk)(shape, phase);
        if (!walk.single && most < area_of(&walk)) most = area_of(&walk);
    }
    return weir__multiply((size_t)most * sizeof(float), shape->threads, workspace)
               ? WEIR_OK
               : WEIR_ERR_OVERFLOW;
}

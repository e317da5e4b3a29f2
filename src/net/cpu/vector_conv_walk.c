/* SPDX-License-Identifier: MIT */
/* Which pixels of a convolution meet by which tap, and copies of images and weights. */
#include "net/cpu/vector_winograd.h"

#include <assert.h>

bool VECTOR(conv_is_single)(const struct weir__op_shape *shape) {
    int64_t groups = shape->window.groups;
    return groups > 1 && shape->in == groups && shape->out == groups;
}

/* ---- axes ---- */

struct conv_side {
    int64_t in, out, kernel, stride, padding, dilation;
};

static struct weir__conv_axis forward_axis(const struct conv_side *side) {
    return (struct weir__conv_axis){.pixels = side->out,
                                    .to_step = 1,
                                    .sources = side->in,
                                    .first = -side->padding,
                                    .stride = side->stride,
                                    .spread = side->dilation,
                                    .taps = side->kernel,
                                    .tap_step = 1};
}

static int64_t common_divisor(int64_t a, int64_t b) {
    assert(a > 0 && b > 0);
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/** The first tap that a phase's pixels see; the kernel's size: they see none. */
static int64_t first_tap(const struct conv_side *side, int64_t phase) {
    int64_t tap = 0;
    while (tap < side->kernel && (tap * side->dilation - phase) % side->stride != 0) tap++;
    return tap;
}

/** Of the input's pixels i with (i + padding) % stride = phase: where the dilation is 1 these see
 * the taps phase, phase + stride and so on, here from the last to the first. */
static struct weir__conv_axis back_axis(const struct conv_side *side, int64_t phase) {
    int64_t stride = side->stride, shift = side->padding % stride;
    int64_t i = (phase - shift + stride) % stride, least = first_tap(side, phase);
    int64_t common = common_divisor(stride, side->dilation), step = stride / common;
    int64_t taps = least < side->kernel ? (side->kernel - 1 - least) / step + 1 : 0;
    int64_t spread = taps > 1 ? side->dilation / common : 1; /* output's pixels from tap to tap */
    int64_t from = taps > 0 ? (i + side->padding - least * side->dilation) / stride : 0;
    assert(taps == 0 || (i + side->padding - least * side->dilation) % stride == 0);
    return (struct weir__conv_axis){.pixels = i < side->in ? (side->in - 1 - i) / stride + 1 : 0,
                                    .to_first = i,
                                    .to_step = stride,
                                    .sources = side->out,
                                    .first = from - (taps - 1) * spread,
                                    .stride = 1,
                                    .spread = spread,
                                    .taps = taps,
                                    .tap_first = least + (taps - 1) * step,
                                    .tap_step = -step};
}

int64_t VECTOR(conv_phases)(const struct weir__op_shape *shape) {
    struct weir__plane stride = shape->window.stride;
    return shape->op == WEIR__OP_conv2d_grad_input ? stride.height * stride.width : 1;
}

struct weir__conv_walk VECTOR(conv_walk)(const struct weir__op_shape *shape, int64_t phase) {
    const struct weir__window *w = &shape->window;
    assert(phase < VECTOR(conv_phases)(shape));
    const struct conv_side y = {w->in.height,     w->out.height,     w->kernel.height,
                                w->stride.height, w->padding.height, w->gap.height + 1};
    const struct conv_side x = {w->in.width,     w->out.width,     w->kernel.width,
                                w->stride.width, w->padding.width, w->gap.width + 1};
    bool back = shape->op == WEIR__OP_conv2d_grad_input;
    int64_t in = shape->in / w->groups, out = shape->out / w->groups;
    return (struct weir__conv_walk){
        .y = back ? back_axis(&y, phase / w->stride.width) : forward_axis(&y),
        .x = back ? back_axis(&x, phase % w->stride.width) : forward_axis(&x),
        .groups = w->groups,
        .single = VECTOR(conv_is_single)(shape),
        .filtered = VECTOR(winograd_takes)(shape),
        .depth = back ? out : in,
        .columns = back ? in : out,
        .back = back};
}

static int64_t clip(int64_t i, int64_t least, int64_t most) {
    return i < least ? least : i > most ? most : i;
}

/** Steps of `step` from 0 on until `distance` is reached. */
static int64_t steps_to(int64_t distance, int64_t step) {
    return distance <= 0 ? 0 : (distance + step - 1) / step;
}

struct weir__conv_range VECTOR(conv_taps)(const struct weir__conv_axis *axis, int64_t t) {
    int64_t at = axis->first + t * axis->stride;
    int64_t first = clip(steps_to(-at, axis->spread), 0, axis->taps);
    int64_t end = steps_to(axis->sources - at, axis->spread);
    return (struct weir__conv_range){first, clip(end, first, axis->taps)};
}

struct weir__conv_range VECTOR(conv_pixels)(const struct weir__conv_axis *axis, int64_t m) {
    int64_t before = -(axis->first + m * axis->spread), after = before + axis->sources;
    int64_t first = clip(steps_to(before, axis->stride), 0, axis->pixels);
    int64_t end = steps_to(after, axis->stride);
    return (struct weir__conv_range){first, clip(end, first, axis->pixels)};
}

int64_t VECTOR(conv_reach)(const struct weir__conv_axis *axis, int64_t pixels) {
    assert(pixels >= 0 && axis->spread > 0);
    return (pixels - 1) * axis->stride + (axis->taps - 1) * axis->spread + 1;
}

/* ---- copies ---- */

static void copy_pixels(const struct weir__conv_image *image, const float *from, int64_t pixels,
                        float *to) {
    if (image->depth == image->channels) {
        v_copy(to, from, pixels * image->depth);
        return;
    }
    for (int64_t i = 0; i < pixels; i++)
        v_copy(to + i * image->depth, from + i * image->channels, image->depth);
}

void VECTOR(conv_copy)(const struct weir__conv_image *image, struct weir__conv_range rows,
                       int64_t left, int64_t width, float *to) {
    const struct weir__plane plane = image->plane;
    int64_t first = clip(left, 0, plane.width), end = clip(left + width, first, plane.width);
    size_t before = (size_t)((end > first ? first - left : width) * image->depth) * sizeof *to;
    size_t all = (size_t)(width * image->depth) * sizeof *to;
    size_t inside = (size_t)((end - first) * image->depth) * sizeof *to;
    for (int64_t y = rows.first; y < rows.end; y++, to += width * image->depth) {
        if (y < 0 || y >= plane.height) continue;
        const float *from = image->numbers + (y * plane.width + first) * image->channels;
        memset(to, 0, before);
        copy_pixels(image, from, end - first, (float *)((char *)to + before));
        memset((char *)to + before + inside, 0, all - before - inside);
    }
}

/* ---- packed weights ---- */

static int64_t tiles_of(const struct weir__conv_walk *walk) {
    return v_up(walk->columns, WEIR__TILE_COLUMNS) / WEIR__TILE_COLUMNS;
}

static int64_t tile_floats(const struct weir__conv_walk *walk) {
    int64_t taps = walk->filtered ? WEIR__WINOGRAD_POSITIONS : walk->y.taps * walk->x.taps;
    return taps * walk->depth * WEIR__TILE_COLUMNS;
}

int64_t VECTOR(conv_packed)(const struct weir__conv_walk *walk) {
    if (walk->single) return walk->y.taps * walk->x.taps * v_up(walk->groups, LANES);
    return walk->groups * tiles_of(walk) * tile_floats(walk);
}

/** As many floats, on their way past the caches, are packed up to twice as fast. */
enum { PAST_LEAST = 1 << 23 };

/** Weights on their way from PyTorch's order. */
struct packing {
    const struct weir__conv_walk *walk;
    struct weir__plane kernel;
    const float *weight;
    bool rounds; /* to what bf16 holds */
    float *to;
};

/** Which tap of the walk the kernel's is; -1: none. */
static int64_t tap_of(const struct weir__conv_axis *axis, int64_t tap) {
    int64_t distance = tap - axis->tap_first, m = distance / axis->tap_step;
    return distance % axis->tap_step == 0 && m >= 0 && m < axis->taps ? m : -1;
}

/** Where the rows of the kernel's taps from `first` on go in a tile, as tap * depth; -1: nowhere.
 */
static void place_taps(const struct packing *packing, int64_t first, int64_t count,
                       int64_t places[LANES]) {
    const struct weir__conv_walk *walk = packing->walk;
    for (int64_t k = 0; k < count; k++) {
        int64_t y = tap_of(&walk->y, (first + k) / packing->kernel.width);
        int64_t x = tap_of(&walk->x, (first + k) % packing->kernel.width);
        places[k] = y < 0 || x < 0 ? -1 : (y * walk->x.taps + x) * walk->depth;
    }
}

/** Kernels of 16 columns at most, `distance` apart, some taps of each: column[tap] in `rows`. Whole
 * vectors are read as far as there are weights. */
VECTOR_INLINE void turn_kernels(const float *kernels, int64_t distance, int64_t columns,
                                int64_t taps, const float *end, vfloat rows[LANES]) {
    bool inside = end - kernels >= (columns - 1) * distance + LANES;
    V_UNROLL
    for (int j = 0; j < LANES; j++)
        rows[j] = j >= columns ? v_all(0)
                  : inside     ? v_load(kernels + j * distance)
                               : v_load_some(kernels + j * distance, taps);
    v_transpose(rows);
}

/** Some columns of a tile, some taps, all of the depth. */
static void pack_columns(const struct packing *packing, const float *kernels, int64_t columns,
                         int64_t first_tap, float *to) {
    const struct weir__conv_walk *walk = packing->walk;
    int64_t all = packing->kernel.height * packing->kernel.width;
    int64_t taps = v_least(all - first_tap, LANES), places[LANES];
    int64_t d_step = walk->back ? walk->columns * all : all;
    int64_t distance = walk->back ? all : walk->depth * all;
    const float *end = packing->weight + walk->groups * walk->depth * walk->columns * all;
    place_taps(packing, first_tap, taps, places);
    for (int64_t d = 0; d < walk->depth; d++, kernels += d_step) {
        vfloat rows[LANES];
        turn_kernels(kernels, distance, columns, taps, end, rows);
        for (int64_t k = 0; k < taps && packing->rounds; k++)
            rows[k] = v_from_bf16(v_to_bf16(rows[k]));
        for (int64_t k = 0; k < taps; k++)
            if (places[k] >= 0) v_store(to + (places[k] + d) * WEIR__TILE_COLUMNS, rows[k]);
    }
}

static void pack_filtered(const struct packing *packing, int64_t column, float *to) {
    const struct weir__conv_walk *walk = packing->walk;
    const struct weir__winograd_kernels kernels = {
        .weight = packing->weight,
        .in = walk->back ? walk->columns : walk->depth,
        .out = walk->back ? walk->depth : walk->columns,
        .back = walk->back,
        .rounds = packing->rounds,
        .past = WEIR__WINOGRAD_POSITIONS * walk->columns * walk->depth >= PAST_LEAST};
    for (int64_t d = 0; d < walk->depth; d += WEIR__WINOGRAD_SLICE) {
        struct weir__conv_range depth = {d, v_least(d + WEIR__WINOGRAD_SLICE, walk->depth)};
        int64_t distance = (depth.end - d) * WEIR__TILE_COLUMNS;
        VECTOR(winograd_pack)(&kernels, column, depth, to, distance);
        to += WEIR__WINOGRAD_POSITIONS * distance;
    }
}

/** One tile of columns. */
static void pack_part(void *context, uint32_t part, uint32_t member) {
    const struct packing *packing = context;
    const struct weir__conv_walk *walk = packing->walk;
    int64_t taps = packing->kernel.height * packing->kernel.width, tiles = tiles_of(walk);
    int64_t group = part / tiles, column = part % tiles * WEIR__TILE_COLUMNS;
    int64_t distance = walk->back ? taps : walk->depth * taps;
    const float *kernels = packing->weight + group * walk->depth * walk->columns * taps;
    float *to = packing->to + part * tile_floats(walk);
    (void)member;
    if (walk->filtered) {
        pack_filtered(packing, column, to);
        return;
    }
    for (int64_t j = 0; j < WEIR__TILE_COLUMNS; j += LANES) {
        int64_t left = walk->columns - column - j;
        int64_t first = left > 0 ? column + j : 0;
        for (int64_t tap = 0; tap < taps; tap += LANES)
            pack_columns(packing, kernels + first * distance + tap,
                         v_least(left < 0 ? 0 : left, LANES), tap, to + j);
    }
}

static void pack_single(const struct packing *packing) {
    const struct weir__conv_walk *walk = packing->walk;
    int64_t taps = packing->kernel.height * packing->kernel.width;
    int64_t padded = v_up(walk->groups, LANES);
    memset(packing->to, 0, (size_t)VECTOR(conv_packed)(walk) * sizeof *packing->to);
    for (int64_t tap = 0; tap < taps; tap++) {
        int64_t y = tap_of(&walk->y, tap / packing->kernel.width);
        int64_t x = tap_of(&walk->x, tap % packing->kernel.width);
        float *to = packing->to + (y * walk->x.taps + x) * padded;
        for (int64_t c = 0; c < walk->groups && y >= 0 && x >= 0; c++) {
            float weight = packing->weight[c * taps + tap];
            to[c] = packing->rounds ? v_from_bf16(v_to_bf16(v_all(weight)))[0] : weight;
        }
    }
}

int VECTOR(measure_pack_walks)(const struct weir__op_shape *shape, size_t *bytes) {
    struct weir__op_shape product;
    *bytes = 0;
    if (weir__conv_as_product(shape, &product)) return WEIR_OK;
    if (VECTOR(winograd_takes)(shape) && !VECTOR(winograd_keeps_packed)(shape)) return WEIR_OK;
    for (int64_t phase = 0; phase < VECTOR(conv_phases)(shape); phase++) {
        const struct weir__conv_walk walk = VECTOR(conv_walk)(shape, phase);
        *bytes += (size_t)VECTOR(conv_packed)(&walk) * sizeof(float);
    }
    return WEIR_OK;
}

int VECTOR(pack_walks)(const struct weir__op_call *call, bool rounds, void *packed) {
    const struct weir__op_shape *shape = call->shape;
    struct packing packing = {
        .kernel = shape->window.kernel, .weight = call->in[1], .rounds = rounds, .to = packed};
    assert(shape->op != WEIR__OP_conv2d_grad_weight);
    assert(!VECTOR(winograd_takes)(shape) || VECTOR(winograd_keeps_packed)(shape));
    for (int64_t phase = 0; phase < VECTOR(conv_phases)(shape); phase++) {
        const struct weir__conv_walk walk = VECTOR(conv_walk)(shape, phase);
        packing.walk = &walk;
        double work = 8.0 * (double)VECTOR(conv_packed)(&walk); /* as long as memory takes */
        if (walk.single)
            pack_single(&packing);
        else
            weir__share(call, walk.groups * tiles_of(&walk), work, pack_part, &packing);
        packing.to += VECTOR(conv_packed)(&walk);
    }
    return WEIR_OK;
}

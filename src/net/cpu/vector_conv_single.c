/* SPDX-License-Identifier: MIT */
/*
 * Convolutions whose groups are single channels: channels are lanes, and what pads an image is
 * passed over. Each number is one chain, in the order of the other convolutions. Memory decides:
 * an input's number is multiplied once for each tap, all of them while it is in the first cache.
 */
#include "net/cpu/vector_conv.h"

#include <assert.h>

enum {
    BLOCK = 2, /* vectors of channels at a time: chains beside each other */
    WEIGHT_BLOCK = 4,
    PARTS_PER_MEMBER = 4
};

/** One walk for all the micro-batch. */
struct single {
    const struct weir__conv_walk *walk;
    const float *from, *weights, *bias;
    float *to;
    struct weir__plane from_plane, to_plane;
    int64_t channels, images, rows; /* rows: of pixels, of a part */
};

/** Channels from c on in a vector, 0 to 16. */
static int64_t lanes_from(int64_t c, int64_t channels) {
    return c >= channels ? 0 : v_least(channels - c, LANES);
}

/** A pixel by `taps` (y, x), of which the first is at `weights`, and what it sees at `from`. */
static void make_pixel(const struct single *single, const float *from, const float *weights,
                       struct weir__plane taps, float *to) {
    const int64_t channels = single->channels, line = single->from_plane.width * channels;
    const int64_t padded = v_up(channels, LANES);
    const int64_t weights_line = single->walk->x.taps * padded;
    const int64_t down = single->walk->y.spread, across = single->walk->x.spread;
    for (int64_t c = 0; c < channels; c += BLOCK * LANES) {
        vfloat sums[BLOCK];
        int64_t counts[BLOCK];
        V_UNROLL
        for (int v = 0; v < BLOCK; v++) {
            counts[v] = lanes_from(c + v * LANES, channels);
            sums[v] = single->bias == NULL ? v_all(0)
                                           : v_load_some(single->bias + c + v * LANES, counts[v]);
        }
        for (int64_t y = 0; y < taps.height; y++)
            for (int64_t x = 0; x < taps.width; x++) {
                const float *seen = from + y * down * line + x * across * channels + c;
                const float *weight = weights + y * weights_line + x * padded + c;
                V_UNROLL
                for (int v = 0; v < BLOCK; v++)
                    if (counts[v] > 0)
                        sums[v] = v_fma(v_load_some(seen + v * LANES, counts[v]),
                                        v_load(weight + v * LANES), sums[v]);
            }
        V_UNROLL
        for (int v = 0; v < BLOCK; v++) v_store_some(to + c + v * LANES, sums[v], counts[v]);
    }
}

static void make_row(const struct single *single, int64_t image, int64_t row) {
    const struct weir__conv_axis *y = &single->walk->y, *x = &single->walk->x;
    const int64_t channels = single->channels;
    const int64_t padded = v_up(channels, LANES);
    const struct weir__conv_range down = VECTOR(conv_taps)(y, row);
    int64_t line =
        image * single->from_plane.height + y->first + row * y->stride + down.first * y->spread;
    int64_t to_line = image * single->to_plane.height + y->to_first + row * y->to_step;
    float *to = single->to + (to_line * single->to_plane.width + x->to_first) * channels;
    for (int64_t t = 0; t < x->pixels; t++, to += x->to_step * channels) {
        const struct weir__conv_range across = VECTOR(conv_taps)(x, t);
        int64_t pixel =
            line * single->from_plane.width + x->first + t * x->stride + across.first * x->spread;
        make_pixel(single, single->from + pixel * channels,
                   single->weights + (down.first * x->taps + across.first) * padded,
                   (struct weir__plane){down.end - down.first, across.end - across.first}, to);
    }
}

static void make_rows(void *context, uint32_t part, uint32_t member) {
    const struct single *single = context;
    int64_t pixels = single->walk->y.pixels, all = single->images * pixels;
    int64_t first = part * single->rows, end = v_least(first + single->rows, all);
    (void)member;
    for (int64_t row = first; row < end; row++) make_row(single, row / pixels, row % pixels);
}

void VECTOR(conv_single_walk)(const struct weir__op_call *call, const struct weir__conv_walk *walk,
                              const float *weights) {
    const struct weir__op_shape *shape = call->shape;
    const struct weir__window *window = &shape->window;
    struct single single = {.walk = walk,
                            .from = call->in[0],
                            .weights = weights,
                            .bias = shape->has_bias && !walk->back ? call->in[2] : NULL,
                            .to = call->out[0],
                            .from_plane = walk->back ? window->out : window->in,
                            .to_plane = walk->back ? window->in : window->out,
                            .channels = shape->in,
                            .images = shape->rows};
    int64_t all = single.images * walk->y.pixels, parts = shape->threads * PARTS_PER_MEMBER;
    assert(walk->depth == 1 && walk->columns == 1 && weights != NULL);
    single.rows = (all + parts - 1) / parts;
    if (all > 0)
        weir__share(call, (all + single.rows - 1) / single.rows,
                    weir__conv_multiply_adds(shape, shape->rows), make_rows, &single);
}

/* ---- the gradient of weights ---- */

struct single_weight {
    const struct weir__op_shape *shape;
    struct weir__conv_walk walk;
    const float *x, *dy;
    float *dweight;
    bool overwrite;
};

/** Sums of one tap, of some vectors of channels from c on. */
static void sum_tap(const struct single_weight *weight, int64_t tap, int64_t c,
                    const int64_t *counts, vfloat *sums) {
    const struct weir__window *window = &weight->shape->window;
    const struct weir__conv_axis *y = &weight->walk.y, *x = &weight->walk.x;
    const int64_t channels = weight->shape->in;
    const struct weir__conv_range rows = VECTOR(conv_pixels)(y, tap / x->taps);
    const struct weir__conv_range pixels = VECTOR(conv_pixels)(x, tap % x->taps);
    int64_t above = y->first + tap / x->taps * y->spread;
    int64_t left = x->first + tap % x->taps * x->spread;
    vfloat sum[WEIGHT_BLOCK] = {v_all(0)};
    for (int64_t image = 0; image < weight->shape->rows; image++)
        for (int64_t r = rows.first; r < rows.end; r++) {
            int64_t in = (image * window->in.height + above + r * y->stride) * window->in.width;
            int64_t out = (image * window->out.height + r) * window->out.width;
            for (int64_t t = pixels.first; t < pixels.end; t++) {
                const float *a = weight->x + (in + left + t * x->stride) * channels + c;
                const float *b = weight->dy + (out + t) * channels + c;
                V_UNROLL
                for (int v = 0; v < WEIGHT_BLOCK; v++)
                    if (counts[v] > 0)
                        sum[v] = v_fma(v_load_some(a + v * LANES, counts[v]),
                                       v_load_some(b + v * LANES, counts[v]), sum[v]);
            }
        }
    memcpy(sums, sum, sizeof sum);
}

/** One tap of some channels. */
static void make_tap(void *context, uint32_t part, uint32_t member) {
    const struct single_weight *weight = context;
    int64_t taps = weight->walk.y.taps * weight->walk.x.taps, channels = weight->shape->in;
    int64_t tap = part % taps, c = part / taps * WEIGHT_BLOCK * LANES;
    vfloat sums[WEIGHT_BLOCK];
    int64_t counts[WEIGHT_BLOCK];
    (void)member;
    for (int v = 0; v < WEIGHT_BLOCK; v++) counts[v] = lanes_from(c + v * LANES, channels);
    sum_tap(weight, tap, c, counts, sums);
    for (int v = 0; v < WEIGHT_BLOCK; v++)
        for (int64_t l = 0; l < counts[v]; l++) {
            float *to = weight->dweight + (c + v * LANES + l) * taps + tap;
            *to = weight->overwrite ? sums[v][l] : *to + sums[v][l];
        }
}

void VECTOR(conv_single_weight)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct single_weight weight = {.shape = shape,
                                   .walk = VECTOR(conv_walk)(shape, 0),
                                   .x = call->in[0],
                                   .dy = call->in[1],
                                   .dweight = call->out[0],
                                   .overwrite = call->overwrite};
    int64_t taps = weight.walk.y.taps * weight.walk.x.taps;
    int64_t blocks = (shape->in + WEIGHT_BLOCK * LANES - 1) / (WEIGHT_BLOCK * LANES);
    assert(shape->in == shape->window.groups && shape->out == shape->in);
    weir__share(call, blocks * taps, weir__conv_multiply_adds(shape, shape->rows), make_tap,
                &weight);
}

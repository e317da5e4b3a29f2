/* SPDX-License-Identifier: MIT */
#include "kernels/winograd.h"

#include "harness.h"

#include <string.h>

enum { POSITIONS = 16 };

/** One call's images: what tiles see, and, at a tile's own four pixels, what they make (or, of the
 * gradient of the weights, take). */
struct images {
    const struct kernel_case *test;
    const double *seen;
    struct weir__plane seen_plane, plane;
    int64_t seen_channels, channels, first_y, first_x, down, across;
};

static struct images images_of(const struct kernel_case *test) {
    const struct weir__op_shape *shape = &test->shape;
    const struct weir__window *w = &shape->window;
    bool back = shape->op == WEIR__OP_conv2d_grad_input;
    struct images images = {.test = test,
                            .seen = test->in[0],
                            .seen_plane = back ? w->out : w->in,
                            .plane = back ? w->in : w->out,
                            .seen_channels = back ? shape->out : shape->in,
                            .channels = back ? shape->in : shape->out,
                            .first_y = back ? w->padding.height - 2 : -w->padding.height,
                            .first_x = back ? w->padding.width - 2 : -w->padding.width};
    images.down = (images.plane.height + 1) / 2;
    images.across = (images.plane.width + 1) / 2;
    return images;
}

static float pixel_of(const double *numbers, struct weir__plane plane, int64_t image, int64_t y,
                      int64_t x, int64_t channels, int64_t channel) {
    if (y < 0 || y >= plane.height || x < 0 || x >= plane.width) return 0;
    return (float)numbers[((image * plane.height + y) * plane.width + x) * channels + channel];
}

/** Four numbers at `step` from each other, in the domain. */
static void turn_seen(float *d, int step) {
    float a = d[0], b = d[step], c = d[2 * step], e = d[3 * step];
    d[0] = a - c;
    d[step] = b + c;
    d[2 * step] = c - b;
    d[3 * step] = b - e;
}

/** Of a tile, what it sees of a channel, in the domain. */
static void see(const struct images *images, int64_t tile, int64_t channel, float to[POSITIONS]) {
    int64_t image = tile / (images->down * images->across);
    int64_t place = tile % (images->down * images->across);
    int64_t y = 2 * (place / images->across) + images->first_y;
    int64_t x = 2 * (place % images->across) + images->first_x;
    for (int i = 0; i < POSITIONS; i++)
        to[i] = pixel_of(images->seen, images->seen_plane, image, y + i / 4, x + i % 4,
                         images->seen_channels, channel);
    for (int column = 0; column < 4; column++) turn_seen(to + column, 4);
    for (int row = 0; row < 4; row++) turn_seen(to + row * 4, 1);
}

/** Three numbers, four of the domain. */
static void turn_taps(const float *from, int step, float *to, int to_step) {
    float sides = from[0] + from[2 * step];
    to[0] = from[0];
    to[to_step] = (sides + from[step]) / 2;
    to[2 * to_step] = (sides - from[step]) / 2;
    to[3 * to_step] = from[2 * step];
}

static void take_kernel(const struct images *images, int64_t seen, int64_t channel,
                        float to[POSITIONS]) {
    const struct weir__op_shape *shape = &images->test->shape;
    bool back = shape->op == WEIR__OP_conv2d_grad_input;
    int64_t out = back ? seen : channel, in = back ? channel : seen;
    const double *kernel = images->test->in[1] + (out * shape->in + in) * 9;
    float taps[9], rows[12];
    for (int k = 0; k < 9; k++) taps[k] = (float)kernel[back ? 8 - k : k];
    for (int x = 0; x < 3; x++) turn_taps(taps + x, 3, rows + x, 3);
    for (int y = 0; y < 4; y++) turn_taps(rows + y * 3, 1, to + y * 4, 1);
}

static int64_t tiles_of(const struct images *images) {
    return images->test->shape.rows * images->down * images->across;
}

/** A tile's sums become its pixels, of one channel. */
static void make_pixels(const struct images *images, int64_t tile, int64_t channel, const float *m,
                        float *results) {
    int64_t image = tile / (images->down * images->across);
    int64_t place = tile % (images->down * images->across);
    float rows[2][4];
    for (int x = 0; x < 4; x++) {
        rows[0][x] = m[x] + m[4 + x] + m[8 + x];
        rows[1][x] = m[4 + x] - m[8 + x] - m[12 + x];
    }
    for (int i = 0; i < 4; i++) {
        const float *r = rows[i / 2];
        int64_t y = 2 * (place / images->across) + i / 2, x = 2 * (place % images->across) + i % 2;
        if (y >= images->plane.height || x >= images->plane.width) continue;
        int64_t pixel = (image * images->plane.height + y) * images->plane.width + x;
        results[pixel * images->channels + channel] =
            i % 2 == 0 ? r[0] + r[1] + r[2] : r[1] - r[2] - r[3];
    }
}

static void filter(const struct images *images, winograd_add_fn *add, bool fused, float *results) {
    int64_t tiles = tiles_of(images), depth = images->seen_channels;
    size_t count = (size_t)(tiles * depth * POSITIONS);
    float *seen = weir__acquire(test_allocator(), count, sizeof *seen);
    float *kernels = weir__acquire(test_allocator(), (size_t)(depth * POSITIONS), sizeof *kernels);
    for (int64_t t = 0; t < tiles * depth; t++)
        see(images, t / depth, t % depth, seen + t * POSITIONS);
    for (int64_t channel = 0; channel < images->channels; channel++) {
        for (int64_t d = 0; d < depth; d++)
            take_kernel(images, d, channel, kernels + d * POSITIONS);
        for (int64_t tile = 0; tile < tiles; tile++) {
            float m[POSITIONS] = {0};
            for (int64_t i = 0; i < depth * POSITIONS; i++)
                m[i % POSITIONS] =
                    add(fused, seen[tile * depth * POSITIONS + i], kernels[i], m[i % POSITIONS]);
            make_pixels(images, tile, channel, m, results);
        }
    }
    weir__release(test_allocator(), kernels, (size_t)(depth * POSITIONS), sizeof *kernels);
    weir__release(test_allocator(), seen, count, sizeof *seen);
}

/* ---- the gradient of the weights ---- */

/** Two numbers, four of the domain. */
static void turn_pair(const float *from, int step, float *to, int to_step) {
    to[0] = from[0];
    to[to_step] = (from[0] + from[step]) / 2;
    to[2 * to_step] = (from[0] - from[step]) / 2;
    to[3 * to_step] = from[step];
}

static void take_gradients(const struct images *images, int64_t tile, int64_t channel,
                           float to[POSITIONS]) {
    int64_t image = tile / (images->down * images->across);
    int64_t place = tile % (images->down * images->across);
    int64_t y = 2 * (place / images->across), x = 2 * (place % images->across);
    float pixels[4], rows[8];
    for (int i = 0; i < 4; i++)
        pixels[i] = pixel_of(images->test->in[1], images->plane, image, y + i / 2, x + i % 2,
                             images->channels, channel);
    for (int i = 0; i < 2; i++) turn_pair(pixels + i, 2, rows + i, 2);
    for (int i = 0; i < 4; i++) turn_pair(rows + i * 2, 1, to + i * 4, 1);
}

/** Four sums, three taps. */
static void turn_back(const float *from, int step, float *to, int to_step) {
    to[0] = from[0] + from[step] + from[2 * step];
    to[to_step] = from[step] - from[2 * step];
    to[2 * to_step] = from[step] + from[2 * step] - from[3 * step];
}

static void filter_weights(const struct images *images, winograd_add_fn *add, bool fused,
                           float *results) {
    int64_t pairs = images->channels * images->seen_channels;
    size_t count = (size_t)(pairs * POSITIONS);
    float *sums = weir__acquire(test_allocator(), count, sizeof *sums);
    memset(sums, 0, count * sizeof *sums);
    for (int64_t tile = 0; tile < tiles_of(images); tile++)
        for (int64_t in = 0; in < images->seen_channels; in++) {
            float x[POSITIONS], dy[POSITIONS];
            see(images, tile, in, x);
            for (int64_t out = 0; out < images->channels; out++) {
                float *m = sums + (out * images->seen_channels + in) * POSITIONS;
                take_gradients(images, tile, out, dy);
                for (int p = 0; p < POSITIONS; p++) m[p] = add(fused, x[p], dy[p], m[p]);
            }
        }
    for (int64_t pair = 0; pair < pairs; pair++) {
        float rows[12];
        for (int x = 0; x < 4; x++) turn_back(sums + pair * POSITIONS + x, 4, rows + x, 4);
        for (int y = 0; y < 3; y++) turn_back(rows + y * 4, 1, results + pair * 9 + y * 3, 1);
    }
    weir__release(test_allocator(), sums, count, sizeof *sums);
}

void winograd_sums(const struct kernel_case *test, winograd_add_fn *add, bool fused, float *sums) {
    const struct images images = images_of(test);
    if (test->shape.op == WEIR__OP_conv2d_grad_weight)
        filter_weights(&images, add, fused, sums);
    else
        filter(&images, add, fused, sums);
}

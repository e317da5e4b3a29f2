/* SPDX-License-Identifier: MIT */
/**
 * What our own convolutions share: which pixels meet by which tap, and copies of images and weights
 * in the order in which products read them.
 *
 * The gradient of the input walks as the forward pass does, from the output's pixels to the
 * input's, with kernels turned by half. Where it has strides, the input's pixels that see the same
 * taps are a walk of their own: a *phase*. Dilated taps are `spread`: they see pixels that are not
 * neighbours.
 */
#ifndef WEIR_VECTOR_CONV_H
#define WEIR_VECTOR_CONV_H

#include "net/cpu/panel.h"
#include "net/cpu/vector_calls.h"

/** Pixels along one side: pixel t of the result and tap m meet at pixel first + t * stride + m *
 * spread of the source, where there is one. */
struct weir__conv_axis {
    int64_t pixels, to_first, to_step; /**< t is the result's to_first + t * to_step */
    int64_t sources, first, stride, spread;
    int64_t taps, tap_first, tap_step; /**< m is the kernel's tap_first + m * tap_step */
};

struct weir__conv_walk {
    struct weir__conv_axis y, x;
    int64_t groups;
    int64_t depth, columns; /**< channels of a group of the source, and of the result */
    bool back;              /**< of the gradient of the input */
    bool single;            /**< see VECTOR(conv_is_single) */
    bool filtered;          /**< see VECTOR(winograd_takes) */
};

struct weir__conv_range {
    int64_t first, end;
};

/** A source, or a part of its channels. */
struct weir__conv_image {
    const float *numbers; /**< of the first channel wanted of the first pixel */
    struct weir__plane plane;
    int64_t channels, depth; /**< of a pixel, and wanted */
};

int64_t VECTOR(conv_phases)(const struct weir__op_shape *shape);
struct weir__conv_walk VECTOR(conv_walk)(const struct weir__op_shape *shape, int64_t phase);
/** The taps by which pixel t sees the source, and the pixels that see it by tap m. */
struct weir__conv_range VECTOR(conv_taps)(const struct weir__conv_axis *axis, int64_t t);
struct weir__conv_range VECTOR(conv_pixels)(const struct weir__conv_axis *axis, int64_t m);
/** From the first to the last pixel of the source that `pixels` of the result see beside each
 * other, both counted. */
int64_t VECTOR(conv_reach)(const struct weir__conv_axis *axis, int64_t pixels);

/** Copies the image's rows of `rows` to `to`, `width` pixels each from column `left` on, with zeros
 * where there are none beside it. Rows above and below it are left as they are. */
void VECTOR(conv_copy)(const struct weir__conv_image *image, struct weir__conv_range rows,
                       int64_t left, int64_t width, float *to);

/** Groups of one channel in and out, which are many: vector_conv_single.c. */
bool VECTOR(conv_is_single)(const struct weir__op_shape *shape);
/** One phase, all rows. */
void VECTOR(conv_single_walk)(const struct weir__op_call *call, const struct weir__conv_walk *walk,
                              const float *weights);
void VECTOR(conv_single_weight)(const struct weir__op_call *call);

/** Sums of a gradient of weights: by taps, some of the input's channels and at most 16 of the
 * output's, with so many floats from one tap, and from one channel of the input, to the next. */
struct weir__conv_sums {
    const float *sums;
    int64_t tap_row, in_row;
    int64_t in, in_count, out, out_count; /**< out of all groups, in of its own */
};

/** Adds them to dweight, or with call->overwrite puts them there. */
void VECTOR(conv_deliver)(const struct weir__op_call *call, const struct weir__conv_sums *sums);

/** Floats of a walk's packed weights: (group, tile of columns, tap y, tap x, depth, column); of
 * filtered ones (tile of columns, slice of the depth, position, depth, column); of single channels
 * (tap y, tap x, channel), these up to a multiple of 16. */
int64_t VECTOR(conv_packed)(const struct weir__conv_walk *walk);

/* The ops on floats, but for 1x1 convolutions: conv2d and its gradient of the input by walks, and
 * that of the weight. */
int VECTOR_F32(conv_walks)(const struct weir__op_call *call);
int VECTOR_F32(measure_conv_walks)(const struct weir__op_shape *shape, size_t *workspace);
int VECTOR_F32(measure_pack_walks)(const struct weir__op_shape *shape, size_t *bytes);
/** With `rounds` weights become what bf16 holds of them first. */
int VECTOR_F32(pack_walks)(const struct weir__op_call *call, bool rounds, void *packed);
int VECTOR_F32(conv_weight)(const struct weir__op_call *call);
int VECTOR_F32(measure_conv_weight)(const struct weir__op_shape *shape, size_t *workspace);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * What kernels for networks take by value: shared by the rows, which are C, and the kernels, which
 * are CUDA C++. Plain data, laid out the same by every compiler. Numbers are the kernel's dtype
 * unless a member says otherwise.
 */
#ifndef WEIR_NET_CUDA_ARGUMENTS_H
#define WEIR_NET_CUDA_ARGUMENTS_H

#include <stdint.h>

/** Which map an element-wise kernel does: of one input, or of two. */
enum weir__cuda_map {
    WEIR__CUDA_MAP_RELU,
    WEIR__CUDA_MAP_LEAKY_RELU,
    WEIR__CUDA_MAP_SILU,
    WEIR__CUDA_MAP_SIGMOID,
    WEIR__CUDA_MAP_TANH,

    WEIR__CUDA_MAP_ADD,
    WEIR__CUDA_MAP_MULTIPLY,
    WEIR__CUDA_MAP_RELU_GRAD,
    WEIR__CUDA_MAP_LEAKY_RELU_GRAD,
    WEIR__CUDA_MAP_SILU_GRAD,
    WEIR__CUDA_MAP_SIGMOID_GRAD,
    WEIR__CUDA_MAP_TANH_GRAD,
    WEIR__CUDA_MAP_SCALE,
    WEIR__CUDA_MAP_SWIGLU
};

/** An element-wise op; y may be an input. */
struct weir__cuda_each {
    void *y;       /**< (count) */
    const void *a; /**< (count): x; dy of a gradient */
    const void *b; /**< (count): a gradient's x or y; NULL: one input */
    uint64_t count;
    uint32_t map;     /**< enum weir__cuda_map; gelu's are kernels of their own */
    uint32_t by_tanh; /**< gelu */
    float slope;      /**< leaky_relu, scale */
};

/** Each of (count). */
struct weir__cuda_swiglu_grad {
    void *dgate, *dup;
    const void *dy, *gate, *up;
    uint64_t count;
};

/** weight_pack, weight_deliver: threads of a block, and the most blocks: five for each
 * multiprocessor of an H200. */
enum { WEIR__CUDA_WEIGHT_THREADS = 288, WEIR__CUDA_WEIGHT_BLOCKS = 660 };

/** What is dropped: see the op dropout in net/kernel.h. */
struct weir__cuda_mask {
    uint64_t seed, mini_batch;
    uint32_t op, row_first;
    uint32_t threshold; /**< kept if word >> 8 is at least this; 0: all are, and none is drawn */
    float scale;        /**< of what is kept */
};

/** dropout, dropout_add, bias_dropout_add, dropout2d; y may be x. */
struct weir__cuda_dropout {
    void *y;              /**< (rows, width) */
    const void *x;        /**< (rows, width) */
    const void *residual; /**< (rows, width); NULL: none */
    const float *bias;    /**< (channels), bias_dropout_add's; its row lies as (pixels, channels) */
    uint64_t rows, width;
    uint64_t pixels, channels; /**< channels > 0: the row lies in memory as (pixels, channels) */
    struct weir__cuda_mask mask;
};

/* ---- images, channels last ---- */

/** n / by is ((n multiplier >> 32) + n) >> shift, for n < 2^31. */
struct weir__cuda_divisor {
    uint32_t by, multiplier, shift;
};

/** How a grid walks over images: every part of every pixel of a plane. */
struct weir__cuda_walk {
    uint64_t rows;                      /**< images */
    uint32_t items;                     /**< parts of an image, below 2^31 */
    uint32_t part_bytes;                /**< 16, or a smaller power of two that divides a pixel */
    uint32_t whole;                     /**< part_bytes is 16; else a part is a number */
    struct weir__cuda_divisor by_parts; /**< the parts of a pixel */
    struct weir__cuda_divisor by_width; /**< the plane's width */
};

struct weir__cuda_extent {
    int32_t height, width;
};

/** Pools and upsampling. Forward y and x, backward y (dx), dy and, of max_pool2d, x. */
struct weir__cuda_pool {
    void *y;
    const void *x, *dy;
    void
        *winners; /**< (R, out plane, C) uint8_t or uint32_t: max_pool2d's, where windows overlap */
    uint64_t in_items, out_items; /**< parts of an image of either plane */
    struct weir__cuda_walk walk;  /**< over the plane that is written */
    struct weir__cuda_extent in, out, kernel, stride, padding;
    struct weir__cuda_divisor by_stride_height, by_stride_width;
    uint32_t adaptive, count_padding, wide_winners;
};

struct weir__cuda_concat {
    void *y;
    const void *a, *b;           /**< concat_grad_a: a is dy */
    struct weir__cuda_walk walk; /**< over the plane and the channels that are written */
    struct weir__cuda_extent in, out;
    uint32_t a_parts, joined_parts; /**< of a's pixel, of the output's */
};

/** y = f(a, x + bias): GELU fused with the bias before it. */
struct weir__cuda_biased {
    void *y;           /**< (rows, columns) */
    const void *x, *a; /**< (rows, columns); a: a gradient's dy */
    const float *bias; /**< (columns) */
    uint64_t rows, columns;
    uint32_t by_tanh;
};

struct weir__cuda_softmax {
    void *to;       /**< (rows, width): y, or dx */
    const void *y;  /**< (rows, width): x forward */
    const void *dy; /**< (rows, width); NULL forward */
    uint64_t rows;
    uint32_t width;
};

/** The first half of a bias's gradient; struct weir__cuda_fold is the second. */
struct weir__cuda_bias_grad {
    float *partial; /**< (parts, width) */
    const void *dy; /**< (rows, width) */
    uint64_t rows, part_rows;
    uint32_t width;
};

#endif

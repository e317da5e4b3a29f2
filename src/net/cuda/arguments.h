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
    WEIR__CUDA_MAP_RELU_GRAD,
    WEIR__CUDA_MAP_LEAKY_RELU_GRAD,
    WEIR__CUDA_MAP_SILU_GRAD,
    WEIR__CUDA_MAP_SIGMOID_GRAD,
    WEIR__CUDA_MAP_TANH_GRAD
};

/** An element-wise op; y may be an input. */
struct weir__cuda_each {
    void *y;       /**< (count) */
    const void *a; /**< (count): x; dy of a gradient */
    const void *b; /**< (count): a gradient's x or y; NULL: one input */
    uint64_t count;
    uint32_t map;     /**< enum weir__cuda_map; gelu's are kernels of their own */
    uint32_t by_tanh; /**< gelu */
    float slope;      /**< leaky_relu */
};

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
    const float *bias;    /**< (channels), bias_dropout_add's */
    uint64_t rows, width;
    uint64_t pixels, channels; /**< channels > 0: the row lies in memory as (pixels, channels) */
    struct weir__cuda_mask mask;
};

#endif

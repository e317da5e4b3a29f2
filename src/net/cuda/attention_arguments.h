/* SPDX-License-Identifier: MIT */
/**
 * What attention's kernels take by value: shared by the launchers, which are C, and the kernels,
 * which are CUDA C++. Plain data, laid out the same by every compiler. Shapes as in net/kernel.h;
 * `size` is that of a head, C = heads x size.
 */
#ifndef WEIR_NET_CUDA_ATTENTION_ARGUMENTS_H
#define WEIR_NET_CUDA_ATTENTION_ARGUMENTS_H

#include <stdint.h>

/** A pass over whole sequences. What it does not use is NULL. */
struct weir__cuda_attention {
    const void *qkv; /**< (R, T, 3, heads, size) */
    void *y;         /**< (R, T, heads, size); only read by the backward pass */
    float *lse;      /**< (R, heads, T); likewise */
    const void *dy;  /**< (R, T, heads, size) */
    void *dqkv;      /**< (R, T, 3, heads, size) */
    float *delta;    /**< (R, heads, T): dy . y, made by dq's kernel for the one of dk and dv */
    uint32_t tokens, heads, size;
    float scale; /**< 1 / sqrt(size) */
};

#endif

/* SPDX-License-Identifier: MIT */
/**
 * Sums and maxima over a warp or a block, in an order that depends on the block's size alone: a
 * butterfly over the warp's lanes, then one over the warps. Every thread gets the result, the same
 * bits.
 */
#ifndef WEIR_KERNELS_REDUCE_CUH
#define WEIR_KERNELS_REDUCE_CUH

#include "platform.cuh"

struct add {
    template <typename T> static __device__ __forceinline__ T of(T a, T b) {
        return a + b;
    }
};
/** A NaN wins. */
struct larger {
    template <typename T> static __device__ __forceinline__ T of(T a, T b) {
        return a > b || a != a ? a : b;
    }
};

/** All 32 lanes take part. */
template <typename How, typename T> __device__ __forceinline__ T reduce_warp(T value) {
#pragma unroll
    for (uint32_t lanes = 16; lanes > 0; lanes /= 2)
        value = How::of(value, __shfl_xor_sync(0xffffffffu, value, lanes));
    return value;
}

/** All threads of a block of one dimension, `warps` x 32 of them (warps: a power of two up to 32),
 * take part. `shared` holds `warps` numbers, which are free again after the next __syncthreads. */
template <uint32_t warps, typename How, typename T>
__device__ __forceinline__ T reduce_block(T value, T *shared) {
    value = reduce_warp<How>(value);
    if (warps == 1) return value;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    value = shared[lane % warps];
#pragma unroll
    for (uint32_t lanes = warps / 2; lanes > 0; lanes /= 2)
        value = How::of(value, __shfl_xor_sync(0xffffffffu, value, lanes));
    return value;
}

#endif

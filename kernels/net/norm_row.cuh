/* SPDX-License-Identifier: MIT */
/** Rows of a layer norm, by a warp each or by a block; what layer_norm.cu and layer_norm_grad.cu
 * share. */
#ifndef WEIR_KERNELS_NORM_ROW_CUH
#define WEIR_KERNELS_NORM_ROW_CUH

#include "net/chunk.cuh"
#include "net/cuda/norm_arguments.h"
#include "net/reduce.cuh"

/** 1024 numbers by a warp: 32 floats of a thread's registers. */
template <typename T> constexpr uint32_t held_chunks = 32 / chunk_width<T>;

/** For each chunk of a row of n that lane `lane` of `threads` has, whose first number is number i:
 * kept(its number, i), or, of those that it does not keep, rest(i). */
template <typename T, uint32_t threads, uint32_t held, typename Kept, typename Rest>
__device__ __forceinline__ void walk_row(uint32_t lane, uint32_t n, Kept kept, Rest rest) {
    constexpr uint32_t width = chunk_width<T>;
#pragma unroll
    for (uint32_t k = 0; k < held; k++) {
        const uint32_t i = (lane + k * threads) * width;
        if (i < n) kept(k, i);
    }
#pragma unroll 1
    for (uint32_t i = (lane + held * threads) * width; i < n; i += threads * width) rest(i);
}

/** a + b, each rounded as it is stored. */
template <typename T> __device__ __forceinline__ chunk<T> sum_of(chunk<T> a, const chunk<T> &b) {
#pragma unroll
    for (uint32_t e = 0; e < chunk_width<T>; e++)
        a.at[e] = narrow<T>(widen(a.at[e]) + widen(b.at[e]));
    return a;
}

/** visit(m, lane, shared) for every row m: all threads, `threads` of them a row. */
template <uint32_t threads, typename Visit>
__device__ __forceinline__ void walk_rows(uint64_t rows, Visit visit) {
    __shared__ float shared[2][32];
    constexpr uint64_t per_block = 256 / threads;
    const uint64_t step = gridDim.x * per_block;
#pragma unroll 1
    for (uint64_t m = blockIdx.x * per_block + threadIdx.x / threads; m < rows; m += step)
        visit(m, threadIdx.x % threads, shared);
}

#endif

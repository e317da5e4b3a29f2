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

/** How a row lies in its threads' registers: chunks of 16 bytes each or not; if so, `full` of them
 * in each thread's, or, as a rule (0), up to held_chunks, and the rest is read again. */
template <typename T, bool whole_, uint32_t threads_, uint32_t full> struct row_form {
    static constexpr bool whole = whole_, is_full = full > 0;
    static constexpr uint32_t threads = threads_, width = chunk_width<T>;
    static constexpr uint32_t held = is_full ? full : whole ? held_chunks<T> : 1;
};

/** For each chunk of a row of n that lane `lane` has, whose first number is number i: kept(its
 * number, i), or, of those that it does not keep, rest(i). */
template <typename Form, typename Kept, typename Rest>
__device__ __forceinline__ void walk_row(uint32_t lane, uint32_t n, Kept kept, Rest rest) {
    constexpr uint32_t held = Form::held, threads = Form::threads, width = Form::width;
#pragma unroll
    for (uint32_t k = 0; k < held; k++) {
        const uint32_t i = (lane + k * threads) * width;
        if (Form::is_full || i < n) kept(k, i);
    }
    if constexpr (!Form::is_full)
#pragma unroll 1
        for (uint32_t i = (lane + held * threads) * width; i < n; i += threads * width) rest(i);
}

/** a + b, each rounded as it is stored. */
template <typename T>
__device__ __forceinline__ chunk<T> sum_of(const chunk<T> &a, const chunk<T> &b) {
    float sum[chunk_width<T>];
#pragma unroll
    for (uint32_t e = 0; e < chunk_width<T>; e++) sum[e] = widen(a.at[e]) + widen(b.at[e]);
    return narrow_all<T>(sum);
}

/** Op::run<form>(call), the form being that of the call's rows: 768 and 1024 numbers are full ones
 * of a warp. */
template <typename Op, typename T, uint32_t threads, typename Call>
__device__ __forceinline__ void by_form(const Call &call, bool whole) {
    constexpr uint32_t held = held_chunks<T>, line = threads * chunk_width<T>;
    if (!whole)
        Op::template run<row_form<T, false, threads, 0>>(call);
    else if (threads == 32 && call.width == held * line)
        Op::template run<row_form<T, true, threads, held>>(call);
    else if (threads == 32 && call.width == held * 3 / 4 * line)
        Op::template run<row_form<T, true, threads, held * 3 / 4>>(call);
    else
        Op::template run<row_form<T, true, threads, 0>>(call);
}

/** visit(m, lane, shared) for every row m: all threads, `threads` of them a row. */
template <uint32_t threads, typename Visit>
__device__ __forceinline__ void walk_rows(uint64_t rows, Visit visit) {
    __shared__ float shared[3][32];
    constexpr uint64_t per_block = 256 / threads;
    const uint64_t step = gridDim.x * per_block;
#pragma unroll 1
    for (uint64_t m = blockIdx.x * per_block + threadIdx.x / threads; m < rows; m += step)
        visit(m, threadIdx.x % threads, shared);
}

#endif

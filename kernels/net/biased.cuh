/* SPDX-License-Identifier: MIT */
/** Maps over a matrix to whose rows a bias is added first: a thread keeps its columns' bias, and
 * walks down the rows. */
#ifndef WEIR_KERNELS_BIASED_CUH
#define WEIR_KERNELS_BIASED_CUH

#include "net/each.cuh"
#include "net/cuda/arguments.h"

/** The bias of columns c …, of which there are `columns`. */
template <typename T>
__device__ __forceinline__ floats<chunk_width<T>> load_bias(const float *bias, uint64_t c,
                                                            uint64_t columns) {
    floats<chunk_width<T>> held;
#pragma unroll
    for (uint32_t k = 0; k < chunk_width<T>; k++) held.at[k] = c + k < columns ? bias[c + k] : 0.0f;
    return held;
}

/** Two rows of a thread's chunk: y = f(a, x + bias); with one input, a is not read. */
template <int inputs, typename T, typename Function>
__device__ __forceinline__ void do_biased(const struct weir__cuda_biased &all, uint64_t row,
                                          uint64_t step, uint64_t c, bool whole,
                                          const floats<chunk_width<T>> &bias, Function f) {
    constexpr uint32_t unroll = 2;
    chunk<T> held_x[unroll], held_a[unroll];
#pragma unroll
    for (uint32_t u = 0; u < unroll; u++) {
        const uint64_t m = row + u * step, at = m * all.columns + c;
        if (m >= all.rows) continue;
        held_x[u] = load_some(static_cast<const T *>(all.x) + at, all.columns - c, whole);
        if (inputs == 2)
            held_a[u] = load_some(static_cast<const T *>(all.a) + at, all.columns - c, whole);
    }
#pragma unroll
    for (uint32_t u = 0; u < unroll; u++) {
        const uint64_t m = row + u * step;
        if (m >= all.rows) continue;
        float made[chunk_width<T>];
#pragma unroll
        for (uint32_t k = 0; k < chunk_width<T>; k++)
            made[k] =
                f(inputs == 2 ? widen(held_a[u].at[k]) : 0.0f, widen(held_x[u].at[k]) + bias.at[k]);
        store_some(static_cast<T *>(all.y) + m * all.columns + c, narrow_all<T>(made),
                   all.columns - c, whole);
    }
}

template <int inputs, typename T, typename Function>
__device__ __forceinline__ void for_biased(const struct weir__cuda_biased &all, Function f) {
    const bool whole = all.columns % chunk_width<T> == 0 && is_aligned(all.y) &&
                       is_aligned(all.x) && (inputs == 1 || is_aligned(all.a));
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t x_step = static_cast<uint64_t>(gridDim.x) * blockDim.x * chunk_width<T>;
    const uint64_t y = static_cast<uint64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    const uint64_t y_step = static_cast<uint64_t>(gridDim.y) * blockDim.y;
#pragma unroll 1
    for (uint64_t c = first * chunk_width<T>; c < all.columns; c += x_step) {
        const floats<chunk_width<T>> bias = load_bias<T>(all.bias, c, all.columns);
#pragma unroll 1
        for (uint64_t row = y; row < all.rows; row += 2 * y_step)
            do_biased<inputs, T>(all, row, y_step, c, whole, bias, f);
    }
}

#endif

/* SPDX-License-Identifier: MIT */
/**
 * Maps over arrays: what activations, their gradients and sums share.
 *
 * A thread has two vectors of 16 bytes of every array under way before it computes: at 40 registers
 * a multiprocessor holds six blocks of 256 threads, so 48 KB or more are in flight where 29 KB
 * cover an H200's bandwidth x latency (4.8 TB/s x 0.8 us / 132).
 */
#ifndef WEIR_KERNELS_EACH_CUH
#define WEIR_KERNELS_EACH_CUH

#include "net/chunk.cuh"
#include "net/cuda/arguments.h"

/** The chunk that begins at `from`: at once where `whole`, else its first `count` numbers; the rest
 * is 0. */
template <typename T>
__device__ __forceinline__ chunk<T> load_some(const T *from, uint64_t count, bool whole) {
    constexpr uint32_t width = chunk_width<T>;
    if (whole) return load_chunk<true>(from, 0, width);
    return load_chunk<false>(from, 0, count < width ? static_cast<uint32_t>(count) : width);
}

template <typename T>
__device__ __forceinline__ void store_some(T *to, const chunk<T> &held, uint64_t count,
                                           bool whole) {
    constexpr uint32_t width = chunk_width<T>;
    if (whole)
        store_chunk<true>(to, 0, width, held);
    else
        store_chunk<false>(to, 0, count < width ? static_cast<uint32_t>(count) : width, held);
}

/** y[i] = f(a[i], b[i]) for i < n; with one input, b is not read. y may be an input. All threads of
 * a grid of one dimension; fast if the pointers are multiples of 16. */
template <int inputs, typename T, typename Function>
__device__ __forceinline__ void for_each(T *y, const T *a, const T *b, uint64_t n, Function f) {
    constexpr uint32_t unroll = 2, width = chunk_width<T>;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const bool aligned = is_aligned(y) && is_aligned(a) && (inputs == 1 || is_aligned(b));
    const uint64_t chunks = aligned ? n / width : 0;
#pragma unroll 1
    for (uint64_t i = first; i < chunks; i += unroll * step) {
        chunk<T> held_a[unroll], held_b[unroll];
#pragma unroll
        for (uint32_t u = 0; u < unroll; u++) {
            const uint64_t at = i + u * step;
            if (at >= chunks) continue;
            held_a[u] = reinterpret_cast<const chunk<T> *>(a)[at];
            if (inputs == 2) held_b[u] = reinterpret_cast<const chunk<T> *>(b)[at];
        }
#pragma unroll
        for (uint32_t u = 0; u < unroll; u++) {
            const uint64_t at = i + u * step;
            if (at >= chunks) continue;
            float made[width];
#pragma unroll
            for (uint32_t k = 0; k < width; k++)
                made[k] = f(widen(held_a[u].at[k]), inputs == 2 ? widen(held_b[u].at[k]) : 0.0f);
            store_all(y + at * width, narrow_all<T>(made));
        }
    }
#pragma unroll 1
    for (uint64_t i = chunks * width + first; i < n; i += step)
        y[i] = narrow<T>(f(widen(a[i]), inputs == 2 ? widen(b[i]) : 0.0f));
}

/** The same with a launch's arrays. */
template <int inputs, typename T, typename Function>
__device__ __forceinline__ void for_each(const struct weir__cuda_each &call, Function f) {
    const T *a = static_cast<const T *>(call.a);
    const T *b = inputs == 2 ? static_cast<const T *>(call.b) : a;
    for_each<inputs>(static_cast<T *>(call.y), a, b, call.count, f);
}

#endif

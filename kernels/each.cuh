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

#include "number.cuh"

/** Sixteen bytes of numbers. */
template <typename T> constexpr int pack_width = 16 / static_cast<int>(sizeof(T));
template <typename T> using pack = several<T, pack_width<T>>;

/** The pack that begins at `from`: at once where `whole`, else number by number, `count` of them;
 * the rest is 0. */
template <typename T>
__device__ __forceinline__ pack<T> load_pack(const T *from, uint64_t count, bool whole) {
    if (whole) return *reinterpret_cast<const pack<T> *>(from);
    pack<T> held;
#pragma unroll
    for (int k = 0; k < pack_width<T>; k++)
        held.at[k] = static_cast<uint64_t>(k) < count ? from[k] : narrow<T>(0.0f);
    return held;
}

template <typename T>
__device__ __forceinline__ void store_pack(T *to, const pack<T> &held, uint64_t count, bool whole) {
    if (whole) {
        *reinterpret_cast<pack<T> *>(to) = held;
        return;
    }
#pragma unroll
    for (int k = 0; k < pack_width<T>; k++)
        if (static_cast<uint64_t>(k) < count) to[k] = held.at[k];
}

/** y[i] = f(a[i], b[i]) for i < n; with one input, b is not read. y may be an input. All threads of
 * a grid of one dimension; fast if the pointers are multiples of 16. */
template <int inputs, typename T, typename Function>
__device__ __forceinline__ void for_each(T *y, const T *a, const T *b, uint64_t n, Function f) {
    constexpr int unroll = 2, width = pack_width<T>;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const bool aligned = is_aligned(y) && is_aligned(a) && (inputs == 1 || is_aligned(b));
    const uint64_t packs = aligned ? n / width : 0;
#pragma unroll 1
    for (uint64_t i = first; i < packs; i += unroll * step) {
        pack<T> held_a[unroll], held_b[unroll];
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            const uint64_t at = i + u * step;
            if (at >= packs) continue;
            held_a[u] = reinterpret_cast<const pack<T> *>(a)[at];
            if (inputs == 2) held_b[u] = reinterpret_cast<const pack<T> *>(b)[at];
        }
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            const uint64_t at = i + u * step;
            if (at >= packs) continue;
#pragma unroll
            for (int k = 0; k < width; k++)
                held_a[u].at[k] = narrow<T>(
                    f(widen(held_a[u].at[k]), inputs == 2 ? widen(held_b[u].at[k]) : 0.0f));
            reinterpret_cast<pack<T> *>(y)[at] = held_a[u];
        }
    }
#pragma unroll 1
    for (uint64_t i = packs * width + first; i < n; i += step)
        y[i] = narrow<T>(f(widen(a[i]), inputs == 2 ? widen(b[i]) : 0.0f));
}

#endif

/* SPDX-License-Identifier: MIT */
/**
 * A row of numbers in chunks of 16 bytes, as threads share it: lane l of `threads` has chunks l, l
 * + threads, and so on; of these it keeps the first `held` in registers, and reads later ones again
 * each time. What a thread adds, and in which order, depends on the row's length alone.
 *
 * `whole`: every row is a multiple of 16 bytes, and so is its address. Else numbers are moved one
 * by one.
 */
#ifndef WEIR_KERNELS_CHUNK_CUH
#define WEIR_KERNELS_CHUNK_CUH

#include "net/number.cuh"

template <typename T> constexpr uint32_t chunk_width = 16 / sizeof(T);
template <typename T> using chunk = several<T, static_cast<int>(chunk_width<T>)>;

/** `count` numbers i … of a row of n, i < n. Where the row ends before them: 0. */
template <bool whole, int count, typename T>
__device__ __forceinline__ several<T, count> load_some(const T *row, uint32_t i, uint32_t n) {
    if constexpr (whole) {
        return *reinterpret_cast<const several<T, count> *>(row + i);
    } else {
        several<T, count> v;
#pragma unroll
        for (uint32_t e = 0; e < count; e++) v.at[e] = i + e < n ? row[i + e] : narrow<T>(0.0f);
        return v;
    }
}

template <bool whole, int count, typename T>
__device__ __forceinline__ void store_some(T *row, uint32_t i, uint32_t n, several<T, count> v) {
    if constexpr (whole) {
        store_all<count>(row + i, v);
    } else {
#pragma unroll
        for (uint32_t e = 0; e < count; e++)
            if (i + e < n) row[i + e] = v.at[e];
    }
}

template <bool whole, typename T>
__device__ __forceinline__ chunk<T> load_chunk(const T *row, uint32_t i, uint32_t n) {
    return load_some<whole, static_cast<int>(chunk_width<T>)>(row, i, n);
}

template <bool whole, typename T>
__device__ __forceinline__ void store_chunk(T *row, uint32_t i, uint32_t n, chunk<T> v) {
    store_some<whole>(row, i, n, v);
}

/** `count` floats, a multiple of 4, beside a chunk of any type. */
template <uint32_t count> struct floats { float at[count]; };

template <bool whole, uint32_t count>
__device__ __forceinline__ floats<count> load_floats(const float *row, uint32_t i, uint32_t n) {
    floats<count> v;
#pragma unroll
    for (uint32_t part = 0; part < count; part += 4) {
        const chunk<float> four = load_chunk<whole>(row, i + part, n);
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) v.at[part + e] = four.at[e];
    }
    return v;
}

template <bool whole, uint32_t count>
__device__ __forceinline__ void store_floats(float *row, uint32_t i, uint32_t n, floats<count> v) {
#pragma unroll
    for (uint32_t part = 0; part < count; part += 4)
        store_chunk<whole>(row, i + part, n,
                           {v.at[part], v.at[part + 1], v.at[part + 2], v.at[part + 3]});
}

/** The chunks of a row that a thread keeps. */
template <typename T, uint32_t held> struct kept { chunk<T> at[held]; };

/** Loads what lane `lane` of `threads` keeps of a row of n: all under way at once. `full`: the row
 * has all of these chunks. */
template <bool whole, uint32_t threads, bool full = false, uint32_t held, typename T>
__device__ __forceinline__ void keep_row(kept<T, held> &keep, const T *row, uint32_t lane,
                                         uint32_t n) {
#pragma unroll
    for (uint32_t k = 0; k < held; k++) {
        const uint32_t i = (lane + k * threads) * chunk_width<T>;
        if (full || i < n) keep.at[k] = load_chunk<whole>(row, i, n);
    }
}

#endif

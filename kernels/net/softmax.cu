/* SPDX-License-Identifier: MIT */
/*
 * softmax: y = exp(x - largest) / sum of them, over each row of C numbers.
 * softmax_grad: dx = y * (dy - sum of dy * y).
 *
 * Memory: y and dx are overwritten (=). Fast if rows and pointers are multiples of 16 bytes.
 * Bytes: reads M C or 2 M C numbers, writes M C. Floor: that / bandwidth. A row is read from memory
 *   once: a thread keeps 32 numbers of a warp's row in registers, 16 of a block's or a gradient's;
 *   what is longer comes from a cache again.
 * Launch: threads 256; _warp, for C up to 1024: a warp a row, blocks ceil(M / 8), or fewer: the
 * grid strides; _block: a block a row.
 */
#include "net/chunk.cuh"
#include "net/cuda/arguments.h"
#include "net/reduce.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

/* The threads that have a row, and how they reduce. */
template <bool warp> struct team {
    static constexpr uint32_t threads = warp ? 32 : THREADS;
    float *shared;

    __device__ __forceinline__ uint32_t lane() const {
        return threadIdx.x % threads;
    }
    template <typename How> __device__ __forceinline__ float reduce(float value) const {
        if constexpr (warp) {
            return reduce_warp<How>(value);
        } else {
            value = reduce_block<WARPS, How>(value, shared);
            __syncthreads(); /* `shared` is free again */
            return value;
        }
    }
};

/* visit(chunk's number, element's number) for what of a row of n lies in `held` chunks of a
 * thread. */
template <typename T, uint32_t threads, uint32_t held, bool whole, typename Visit>
__device__ __forceinline__ void for_kept(uint32_t lane, uint32_t n, Visit visit) {
#pragma unroll
    for (uint32_t k = 0; k < held; k++)
#pragma unroll
        for (uint32_t e = 0; e < chunk_width<T>; e++)
            if ((lane + k * threads) * chunk_width<T> + (whole ? 0 : e) < n) visit(k, e);
}

/* visit(place of the chunk in the row) for the chunks behind them. */
template <typename T, uint32_t threads, uint32_t held, typename Visit>
__device__ __forceinline__ void for_rest(uint32_t lane, uint32_t n, Visit visit) {
#pragma unroll 1
    for (uint64_t i = static_cast<uint64_t>(lane + held * threads) * chunk_width<T>; i < n;
         i += threads * chunk_width<T>)
        visit(static_cast<uint32_t>(i));
}

template <typename T> __device__ __forceinline__ float power_of(float value) {
    return sizeof(T) == 2 ? exp2_fast(value * 1.44269504088896341f) : expf(value);
}

template <typename T, bool warp, bool whole>
__device__ __forceinline__ void softmax_row(T *y, const T *x, uint32_t n, const team<warp> &team) {
    constexpr uint32_t threads = ::team<warp>::threads, width = chunk_width<T>,
                       held = (warp ? 32 : 16) / width;
    const uint32_t lane = team.lane();
    kept<T, held> keep;
    float value[held][width];
    keep_row<whole, threads>(keep, x, lane, n);

    float largest = f32_from_bits(0xff800000u); /* -infinity */
    for_kept<T, threads, held, whole>(lane, n, [&](uint32_t k, uint32_t e) {
        value[k][e] = widen(keep.at[k].at[e]);
        largest = larger::of(largest, value[k][e]);
    });
    for_rest<T, threads, held>(lane, n, [&](uint32_t i) {
        const chunk<T> v = load_chunk<whole>(x, i, n);
#pragma unroll
        for (uint32_t e = 0; e < width; e++)
            if (i + e < n) largest = larger::of(largest, widen(v.at[e]));
    });
    largest = team.template reduce<larger>(largest);

    float sum = 0.0f;
    for_kept<T, threads, held, whole>(lane, n, [&](uint32_t k, uint32_t e) {
        value[k][e] = power_of<T>(value[k][e] - largest);
        sum += value[k][e];
    });
    for_rest<T, threads, held>(lane, n, [&](uint32_t i) {
        const chunk<T> v = load_chunk<whole>(x, i, n);
#pragma unroll
        for (uint32_t e = 0; e < width; e++)
            if (i + e < n) sum += power_of<T>(widen(v.at[e]) - largest);
    });
    const float scale = 1.0f / team.template reduce<add>(sum);

#pragma unroll
    for (uint32_t k = 0; k < held; k++) {
        const uint32_t i = (lane + k * threads) * width;
#pragma unroll
        for (uint32_t e = 0; e < width; e++) value[k][e] *= scale;
        if (i < n) store_chunk<whole>(y, i, n, narrow_all<T>(value[k]));
    }
    for_rest<T, threads, held>(lane, n, [&](uint32_t i) {
        chunk<T> v = load_chunk<whole>(x, i, n);
#pragma unroll
        for (uint32_t e = 0; e < width; e++)
            v.at[e] = narrow<T>(power_of<T>(widen(v.at[e]) - largest) * scale);
        store_chunk<whole>(y, i, n, v);
    });
}

template <typename T>
__device__ __forceinline__ chunk<T> slope_of(const chunk<T> &dy, const chunk<T> &y, float mean) {
    chunk<T> dx;
#pragma unroll
    for (uint32_t e = 0; e < chunk_width<T>; e++)
        dx.at[e] = narrow<T>(widen(y.at[e]) * (widen(dy.at[e]) - mean));
    return dx;
}

template <typename T, bool warp, bool whole>
__device__ __forceinline__ void softmax_grad_row(T *dx, const T *dy, const T *y, uint32_t n,
                                                 const team<warp> &team) {
    constexpr uint32_t threads = ::team<warp>::threads, width = chunk_width<T>, held = 16 / width;
    const uint32_t lane = team.lane();
    kept<T, held> keep_dy, keep_y;
    keep_row<whole, threads>(keep_dy, dy, lane, n);
    keep_row<whole, threads>(keep_y, y, lane, n);

    float sum = 0.0f;
    for_kept<T, threads, held, whole>(lane, n, [&](uint32_t k, uint32_t e) {
        sum += widen(keep_dy.at[k].at[e]) * widen(keep_y.at[k].at[e]);
    });
    for_rest<T, threads, held>(lane, n, [&](uint32_t i) {
        const chunk<T> d = load_chunk<whole>(dy, i, n), v = load_chunk<whole>(y, i, n);
#pragma unroll
        for (uint32_t e = 0; e < width; e++) sum += widen(d.at[e]) * widen(v.at[e]);
    });
    const float mean = team.template reduce<add>(sum);

#pragma unroll
    for (uint32_t k = 0; k < held; k++) {
        const uint32_t i = (lane + k * threads) * width;
        if (i < n) store_chunk<whole>(dx, i, n, slope_of<T>(keep_dy.at[k], keep_y.at[k], mean));
    }
    for_rest<T, threads, held>(lane, n, [&](uint32_t i) {
        const chunk<T> d = load_chunk<whole>(dy, i, n), v = load_chunk<whole>(y, i, n);
        store_chunk<whole>(dx, i, n, slope_of<T>(d, v, mean));
    });
}

template <typename T, bool warp, bool gradient, bool whole>
__device__ __forceinline__ void walk_rows(const struct weir__cuda_softmax &all) {
    __shared__ float shared[WARPS];
    const team<warp> team = {shared};
    constexpr uint32_t rows = THREADS / ::team<warp>::threads;
#pragma unroll 1
    for (uint64_t m = static_cast<uint64_t>(blockIdx.x) * rows + threadIdx.x / team.threads;
         m < all.rows; m += static_cast<uint64_t>(gridDim.x) * rows) {
        const uint64_t at = m * all.width;
        T *to = static_cast<T *>(all.to) + at;
        const T *y = static_cast<const T *>(all.y) + at;
        if constexpr (gradient)
            softmax_grad_row<T, warp, whole>(to, static_cast<const T *>(all.dy) + at, y, all.width,
                                             team);
        else
            softmax_row<T, warp, whole>(to, y, all.width, team);
    }
}

template <typename T, bool warp, bool gradient>
__device__ __forceinline__ void softmax(const struct weir__cuda_softmax &all) {
    if (all.width % chunk_width<T> == 0 && is_aligned(all.to) && is_aligned(all.y) &&
        is_aligned(all.dy))
        walk_rows<T, warp, gradient, true>(all);
    else
        walk_rows<T, warp, gradient, false>(all);
}

extern "C" __global__ void __launch_bounds__(256)
    weir_softmax_warp_f32(const __grid_constant__ struct weir__cuda_softmax all) {
    softmax<float, true, false>(all);
}
EXPORT_KERNEL(weir_softmax_warp_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_softmax_warp_bf16(const __grid_constant__ struct weir__cuda_softmax all) {
    softmax<bf16, true, false>(all);
}
EXPORT_KERNEL(weir_softmax_warp_bf16);

extern "C" __global__ void __launch_bounds__(256)
    weir_softmax_block_f32(const __grid_constant__ struct weir__cuda_softmax all) {
    softmax<float, false, false>(all);
}
EXPORT_KERNEL(weir_softmax_block_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_softmax_block_bf16(const __grid_constant__ struct weir__cuda_softmax all) {
    softmax<bf16, false, false>(all);
}
EXPORT_KERNEL(weir_softmax_block_bf16);

extern "C" __global__ void __launch_bounds__(256)
    weir_softmax_grad_warp_f32(const __grid_constant__ struct weir__cuda_softmax all) {
    softmax<float, true, true>(all);
}
EXPORT_KERNEL(weir_softmax_grad_warp_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_softmax_grad_warp_bf16(const __grid_constant__ struct weir__cuda_softmax all) {
    softmax<bf16, true, true>(all);
}
EXPORT_KERNEL(weir_softmax_grad_warp_bf16);

extern "C" __global__ void __launch_bounds__(256)
    weir_softmax_grad_block_f32(const __grid_constant__ struct weir__cuda_softmax all) {
    softmax<float, false, true>(all);
}
EXPORT_KERNEL(weir_softmax_grad_block_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_softmax_grad_block_bf16(const __grid_constant__ struct weir__cuda_softmax all) {
    softmax<bf16, false, true>(all);
}
EXPORT_KERNEL(weir_softmax_grad_block_bf16);

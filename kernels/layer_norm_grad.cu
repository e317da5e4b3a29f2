/* SPDX-License-Identifier: MIT */
/*
 * layer_norm_grad_input: with n = (x - mean) * rstd and d = dy * weight,
 *   dx = (d - sum(d) / C - n * sum(d * n) / C) * rstd
 * add_layer_norm_grad_input: dsum + that, which is rounded as it would be stored before it is added
 *
 * Memory: dx is overwritten (=). Fast if rows and pointers are multiples of 16 bytes.
 * Bytes: reads 2 x M x C numbers (with dsum 3), writes M x C; the weight stays in the first cache.
 * A row is read once as long as it fits in registers, as in layer_norm.cu; dsum is read last.
 *   Floor: 3 (4) x M x C x (4 or 2) / bandwidth.
 * Launch: threads 256; rows of up to 1024 numbers take a warp each, longer ones a block.
 */
#include "chunk.cuh"
#include "net/cuda/norm_arguments.h"
#include "reduce.cuh"

template <typename T> constexpr uint32_t held_chunks = 32 / chunk_width<T>;

template <typename T, bool whole, bool added, uint32_t threads> struct layer_norm_grad_row {
    static constexpr uint32_t width = chunk_width<T>, held = whole ? held_chunks<T> : 1;
    const struct weir__cuda_layer_norm_grad &call;
    uint32_t n, lane;
    kept<T, held> keep_dy, keep_x;

    /** visit(dy's chunk, x's, i) for each of this lane's chunks, whose first number is number i. */
    template <typename Visit>
    __device__ __forceinline__ void each(const T *dy, const T *x, Visit visit) {
#pragma unroll
        for (uint32_t k = 0; k < held; k++) {
            const uint32_t i = (lane + k * threads) * width;
            if (i < n) visit(keep_dy.at[k], keep_x.at[k], i);
        }
#pragma unroll 1
        for (uint32_t i = (lane + held * threads) * width; i < n; i += threads * width)
            visit(load_chunk<whole>(dy, i, n), load_chunk<whole>(x, i, n), i);
    }

    __device__ __forceinline__ void run(uint64_t m, float (*shared)[32]) {
        const T *dy = static_cast<const T *>(call.dy) + m * n;
        const T *x = static_cast<const T *>(call.x) + m * n;
        keep_row<whole, threads>(keep_dy, dy, lane, n);
        keep_row<whole, threads>(keep_x, x, lane, n);
        const float mean = call.mean[m], rstd = call.rstd[m];
        float sum = 0.0f, product = 0.0f;
        each(dy, x, [&](const chunk<T> &v, const chunk<T> &at, uint32_t i) {
            const floats<width> weight = load_floats<whole, width>(call.weight, i, n);
#pragma unroll
            for (uint32_t e = 0; e < width; e++) { /* past the row, dy and weight are 0 */
                const float d = widen(v.at[e]) * weight.at[e];
                const float normal = (widen(at.at[e]) - mean) * rstd;
                sum += d;
                if (whole || i + e < n) product += d * normal;
            }
        });
        sum = reduce_block<threads / 32, struct add>(sum, shared[0]) / static_cast<float>(n);
        product =
            reduce_block<threads / 32, struct add>(product, shared[1]) / static_cast<float>(n);
        T *dx = static_cast<T *>(call.dx) + m * n;
        each(dy, x, [&](chunk<T> v, const chunk<T> &at, uint32_t i) {
            const floats<width> weight = load_floats<whole, width>(call.weight, i, n);
#pragma unroll
            for (uint32_t e = 0; e < width; e++) {
                const float normal = (widen(at.at[e]) - mean) * rstd;
                v.at[e] =
                    narrow<T>((widen(v.at[e]) * weight.at[e] - sum - normal * product) * rstd);
            }
            store_chunk<whole>(dx, i, n, added ? plus_dsum(v, m, i) : v);
        });
    }

    __device__ __forceinline__ chunk<T> plus_dsum(chunk<T> v, uint64_t m, uint32_t i) {
        const chunk<T> other = load_chunk<whole>(static_cast<const T *>(call.dsum) + m * n, i, n);
#pragma unroll
        for (uint32_t e = 0; e < width; e++)
            v.at[e] = narrow<T>(widen(v.at[e]) + widen(other.at[e]));
        return v;
    }
};

template <typename T, bool added, uint32_t threads>
__device__ __forceinline__ void layer_norm_grad(const struct weir__cuda_layer_norm_grad &call) {
    __shared__ float shared[2][32];
    constexpr uint64_t per_block = 256 / threads;
    const uint32_t n = call.width, lane = threadIdx.x % threads;
    const bool whole = n % chunk_width<T> == 0 && is_aligned(call.dy) && is_aligned(call.x) &&
                       is_aligned(call.dx) && is_aligned(call.dsum) && is_aligned(call.weight);
    const uint64_t first = blockIdx.x * per_block + threadIdx.x / threads;
    const uint64_t step = gridDim.x * per_block;
#pragma unroll 1
    for (uint64_t m = first; m < call.rows; m += step) {
        if (whole)
            layer_norm_grad_row<T, true, added, threads>{call, n, lane, {}, {}}.run(m, shared);
        else
            layer_norm_grad_row<T, false, added, threads>{call, n, lane, {}, {}}.run(m, shared);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    weir_layer_norm_grad_warp_f32(const __grid_constant__ struct weir__cuda_layer_norm_grad call) {
    layer_norm_grad<float, false, 32>(call);
}
EXPORT_KERNEL(weir_layer_norm_grad_warp_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_layer_norm_grad_warp_bf16(const __grid_constant__ struct weir__cuda_layer_norm_grad call) {
    layer_norm_grad<bf16, false, 32>(call);
}
EXPORT_KERNEL(weir_layer_norm_grad_warp_bf16);

extern "C" __global__ void __launch_bounds__(256)
    weir_layer_norm_grad_block_f32(const __grid_constant__ struct weir__cuda_layer_norm_grad call) {
    layer_norm_grad<float, false, 256>(call);
}
EXPORT_KERNEL(weir_layer_norm_grad_block_f32);

extern "C" __global__ void __launch_bounds__(256) weir_layer_norm_grad_block_bf16(
    const __grid_constant__ struct weir__cuda_layer_norm_grad call) {
    layer_norm_grad<bf16, false, 256>(call);
}
EXPORT_KERNEL(weir_layer_norm_grad_block_bf16);

extern "C" __global__ void __launch_bounds__(256) weir_add_layer_norm_grad_warp_f32(
    const __grid_constant__ struct weir__cuda_layer_norm_grad call) {
    layer_norm_grad<float, true, 32>(call);
}
EXPORT_KERNEL(weir_add_layer_norm_grad_warp_f32);

extern "C" __global__ void __launch_bounds__(256) weir_add_layer_norm_grad_warp_bf16(
    const __grid_constant__ struct weir__cuda_layer_norm_grad call) {
    layer_norm_grad<bf16, true, 32>(call);
}
EXPORT_KERNEL(weir_add_layer_norm_grad_warp_bf16);

extern "C" __global__ void __launch_bounds__(256) weir_add_layer_norm_grad_block_f32(
    const __grid_constant__ struct weir__cuda_layer_norm_grad call) {
    layer_norm_grad<float, true, 256>(call);
}
EXPORT_KERNEL(weir_add_layer_norm_grad_block_f32);

extern "C" __global__ void __launch_bounds__(256) weir_add_layer_norm_grad_block_bf16(
    const __grid_constant__ struct weir__cuda_layer_norm_grad call) {
    layer_norm_grad<bf16, true, 256>(call);
}
EXPORT_KERNEL(weir_add_layer_norm_grad_block_bf16);

/* SPDX-License-Identifier: MIT */
/*
 * position_add: y[r] = x[r] + table, for each row r of T x C numbers
 * position_grad: dtable = or += the sum over r, ascending, of dy[r]; with =, the table's further
 * rows are 0
 *
 * Memory: y is overwritten (=), and may be x; dtable = or +=, where the sum is finished first. Fast
 *   if T x C numbers and the pointers are multiples of 16 bytes.
 * Bytes: R x T x C numbers read (and written); the table once for each plane of blocks. Floor: that
 * / bandwidth. Launch: threads 256, a chunk of 16 bytes each, of four (eight) rows at once.
 * position_add has as many planes of blocks as fill a GPU, each with every so manieth row.
 */
#include "net/chunk.cuh"
#include "net/cuda/table_arguments.h"

enum { ADD_UNROLL = 4, SUM_UNROLL = 8 };

template <typename T, bool whole>
__device__ __forceinline__ void add_rows(const struct weir__cuda_position &call, uint32_t i) {
    constexpr uint32_t width = chunk_width<T>;
    const uint32_t n = call.width;
    const floats<width> table = load_floats<whole, width>(call.table, i, n);
    const T *x = static_cast<const T *>(call.x);
    T *y = static_cast<T *>(call.y);
#pragma unroll 1
    for (uint64_t first = blockIdx.y; first < call.rows;
         first += static_cast<uint64_t>(gridDim.y) * ADD_UNROLL) {
        chunk<T> held[ADD_UNROLL];
#pragma unroll
        for (uint32_t k = 0; k < ADD_UNROLL; k++) {
            const uint64_t r = first + static_cast<uint64_t>(k) * gridDim.y;
            if (r < call.rows) held[k] = load_chunk<whole>(x + r * n, i, n);
        }
#pragma unroll
        for (uint32_t k = 0; k < ADD_UNROLL; k++) {
            const uint64_t r = first + static_cast<uint64_t>(k) * gridDim.y;
            if (r >= call.rows) continue;
#pragma unroll
            for (uint32_t e = 0; e < width; e++)
                held[k].at[e] = narrow<T>(widen(held[k].at[e]) + table.at[e]);
            store_chunk<whole>(y + r * n, i, n, held[k]);
        }
    }
}

template <typename T>
__device__ __forceinline__ void position_add(const struct weir__cuda_position &call) {
    const uint64_t i = (static_cast<uint64_t>(blockIdx.x) * 256 + threadIdx.x) * chunk_width<T>;
    const bool whole = call.width % chunk_width<T> == 0 && is_aligned(call.x) &&
                       is_aligned(call.y) && is_aligned(call.table);
    if (i >= call.width) return;
    if (whole)
        add_rows<T, true>(call, static_cast<uint32_t>(i));
    else
        add_rows<T, false>(call, static_cast<uint32_t>(i));
}

template <typename T, bool whole>
__device__ __forceinline__ void sum_rows(const struct weir__cuda_position &call, uint32_t i) {
    constexpr uint32_t width = chunk_width<T>;
    const uint32_t n = call.width, to = call.overwrite != 0 ? call.table_width : n;
    const T *x = static_cast<const T *>(call.x);
    floats<width> sum = {};
#pragma unroll 1
    for (uint64_t first = 0; i < n && first < call.rows; first += SUM_UNROLL) {
        chunk<T> held[SUM_UNROLL];
#pragma unroll
        for (uint32_t k = 0; k < SUM_UNROLL; k++)
            if (first + k < call.rows) held[k] = load_chunk<whole>(x + (first + k) * n, i, n);
#pragma unroll
        for (uint32_t k = 0; k < SUM_UNROLL; k++) {
            if (first + k >= call.rows) continue;
#pragma unroll
            for (uint32_t e = 0; e < width; e++) sum.at[e] += widen(held[k].at[e]);
        }
    }
    if (i >= to) return;
    if (call.overwrite == 0) {
        const floats<width> old = load_floats<whole, width>(call.dtable, i, to);
#pragma unroll
        for (uint32_t e = 0; e < width; e++) sum.at[e] = old.at[e] + sum.at[e];
    }
    store_floats<whole>(call.dtable, i, to, sum);
}

template <typename T>
__device__ __forceinline__ void position_grad(const struct weir__cuda_position &call) {
    const uint64_t i = (static_cast<uint64_t>(blockIdx.x) * 256 + threadIdx.x) * chunk_width<T>;
    const bool whole = call.width % chunk_width<T> == 0 && call.table_width % chunk_width<T> == 0 &&
                       is_aligned(call.x) && is_aligned(call.dtable);
    if (i >= call.table_width) return;
    if (whole)
        sum_rows<T, true>(call, static_cast<uint32_t>(i));
    else
        sum_rows<T, false>(call, static_cast<uint32_t>(i));
}

extern "C" __global__ void __launch_bounds__(256)
    weir_position_add_f32(const __grid_constant__ struct weir__cuda_position call) {
    position_add<float>(call);
}
EXPORT_KERNEL(weir_position_add_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_position_add_bf16(const __grid_constant__ struct weir__cuda_position call) {
    position_add<bf16>(call);
}
EXPORT_KERNEL(weir_position_add_bf16);

extern "C" __global__ void __launch_bounds__(256)
    weir_position_grad_f32(const __grid_constant__ struct weir__cuda_position call) {
    position_grad<float>(call);
}
EXPORT_KERNEL(weir_position_grad_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_position_grad_bf16(const __grid_constant__ struct weir__cuda_position call) {
    position_grad<bf16>(call);
}
EXPORT_KERNEL(weir_position_grad_bf16);

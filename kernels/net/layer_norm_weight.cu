/* SPDX-License-Identifier: MIT */
/*
 * layer_norm_grad_weight, first half: for each part of the rows,
 *   partial[0] = sum over its rows of dy * (x - mean) * rstd, partial[1] = sum of dy
 * and rms_norm_grad_weight's: partial = sum of dy * x * rstd. fold.cu adds the parts up.
 *
 * Memory: partial is overwritten (=). Fast if rows and pointers are multiples of 16 bytes.
 * Bytes: reads 2 x M x C numbers and 8 M; writes 8 C for each part (rms_norm: 4 M, 4 C). Floor:
 *   that / bandwidth.
 * Launch: threads 256, a warp a row; blocks (ceil(C / 32 chunks), parts). A warp adds every eighth
 *   row of the part, then the eight warps' sums are added in their order. Four rows at a time: 128
 *   bytes of a thread are under way.
 */
#include "net/chunk.cuh"
#include "net/cuda/norm_arguments.h"

enum { WARPS = 8, UNROLL = 4 };

/* The sums of a thread's columns; without a mean there is no bias. */
template <typename T, bool centred> struct column_sums {
    float weight[chunk_width<T>] = {}, bias[centred ? chunk_width<T> : 1] = {};

    __device__ __forceinline__ void add(const chunk<T> &dy, const chunk<T> &x, float mean,
                                        float rstd) {
#pragma unroll
        for (uint32_t e = 0; e < chunk_width<T>; e++) {
            const float d = widen(dy.at[e]);
            weight[e] += d * ((widen(x.at[e]) - mean) * rstd);
            if constexpr (centred) bias[e] += d;
        }
    }
};

template <typename T, bool centred, bool whole, int count>
__device__ __forceinline__ void add_rows(column_sums<T, centred> &sums,
                                         const struct weir__cuda_norm_weight &call, uint64_t m,
                                         uint32_t i) {
    const uint32_t n = call.width;
    chunk<T> dy[count], x[count];
    float mean[count], rstd[count];
#pragma unroll
    for (int k = 0; k < count; k++) {
        const uint64_t row = m + static_cast<uint64_t>(k * WARPS);
        dy[k] = load_chunk<whole>(static_cast<const T *>(call.dy) + row * n, i, n);
        x[k] = load_chunk<whole>(static_cast<const T *>(call.x) + row * n, i, n);
        mean[k] = centred ? call.mean[row] : 0.0f;
        rstd[k] = call.rstd[row];
    }
#pragma unroll
    for (int k = 0; k < count; k++) sums.add(dy[k], x[k], mean[k], rstd[k]);
}

template <typename T, bool centred, bool whole>
__device__ __forceinline__ void add_part(column_sums<T, centred> &sums,
                                         const struct weir__cuda_norm_weight &call, uint32_t i) {
    const uint64_t first = blockIdx.y * call.part_rows;
    const uint64_t rest = call.rows - first;
    const uint64_t end = first + (rest < call.part_rows ? rest : call.part_rows);
    uint64_t m = first + threadIdx.x / 32;
#pragma unroll 1
    for (; m + (UNROLL - 1) * WARPS < end; m += UNROLL * WARPS)
        add_rows<T, centred, whole, UNROLL>(sums, call, m, i);
#pragma unroll 1
    for (; m < end; m += WARPS) add_rows<T, centred, whole, 1>(sums, call, m, i);
}

/* The warps' sums of the block's columns, to the part's row of `to`. */
template <typename T>
__device__ __forceinline__ void fold_warps(const float (&sums)[chunk_width<T>], float *to,
                                           uint32_t first, uint32_t n) {
    constexpr uint32_t width = chunk_width<T>, pitch = 33;
    __shared__ float shared[WARPS][width * pitch];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();
#pragma unroll
    for (uint32_t e = 0; e < width; e++) shared[warp][e * pitch + lane] = sums[e];
    __syncthreads();
    const uint32_t column = threadIdx.x;
    if (column >= 32 * width || first + column >= n) return;
    float sum = 0.0f;
#pragma unroll
    for (uint32_t w = 0; w < WARPS; w++) sum += shared[w][column % width * pitch + column / width];
    to[first + column] = sum;
}

template <typename T, bool centred>
__device__ __forceinline__ void norm_weight(const struct weir__cuda_norm_weight &call) {
    const uint32_t n = call.width, first = blockIdx.x * 32 * chunk_width<T>;
    const uint32_t i = first + threadIdx.x % 32 * chunk_width<T>;
    const bool whole = n % chunk_width<T> == 0 && is_aligned(call.dy) && is_aligned(call.x);
    column_sums<T, centred> sums;
    if (i < n && whole) add_part<T, centred, true>(sums, call, i);
    if (i < n && !whole) add_part<T, centred, false>(sums, call, i);
    float *partial = call.partial + static_cast<uint64_t>(blockIdx.y) * (centred ? 2 : 1) * n;
    fold_warps<T>(sums.weight, partial, first, n);
    if constexpr (centred) fold_warps<T>(sums.bias, partial + n, first, n);
}

STORED_KERNELS(layer_norm_weight, weir__cuda_norm_weight, (256), norm_weight<T, true>);
STORED_KERNELS(rms_norm_weight, weir__cuda_norm_weight, (256), norm_weight<T, false>);

/* SPDX-License-Identifier: MIT */
/*
 * bias_grad, first half: for each part of the rows, partial = the sum over its rows of dy; fold.cu
 * adds the parts up.
 *
 * Memory: partial is overwritten (=). Fast if rows and pointers are multiples of 16 bytes.
 * Bytes: reads M x C numbers; writes 4 C for each part. Floor: that / bandwidth.
 * Launch: threads 256, a warp a row; blocks (ceil(C / 32 chunks), parts). A warp adds every eighth
 *   row of the part, then the eight warps' sums are added in their order. Eight rows at a time: 128
 *   bytes of a thread are under way, at two blocks of a multiprocessor 64 KB.
 */
#include "net/chunk.cuh"
#include "net/cuda/arguments.h"

enum { WARPS = 8, UNROLL = 8 };

template <typename T, bool whole, int count>
__device__ __forceinline__ void add_rows(float (&sums)[chunk_width<T>],
                                         const struct weir__cuda_bias_grad &call, uint64_t m,
                                         uint32_t i) {
    chunk<T> dy[count];
#pragma unroll
    for (int k = 0; k < count; k++) {
        const uint64_t row = m + static_cast<uint64_t>(k * WARPS);
        dy[k] =
            load_chunk<whole>(static_cast<const T *>(call.dy) + row * call.width, i, call.width);
    }
#pragma unroll
    for (int k = 0; k < count; k++)
#pragma unroll
        for (uint32_t e = 0; e < chunk_width<T>; e++) sums[e] += widen(dy[k].at[e]);
}

template <typename T, bool whole>
__device__ __forceinline__ void add_part(float (&sums)[chunk_width<T>],
                                         const struct weir__cuda_bias_grad &call, uint32_t i) {
    const uint64_t first = blockIdx.y * call.part_rows, rest = call.rows - first;
    const uint64_t end = first + (rest < call.part_rows ? rest : call.part_rows);
    uint64_t m = first + threadIdx.x / 32;
#pragma unroll 1
    for (; m + (UNROLL - 1) * WARPS < end; m += UNROLL * WARPS)
        add_rows<T, whole, UNROLL>(sums, call, m, i);
#pragma unroll 1
    for (; m < end; m += WARPS) add_rows<T, whole, 1>(sums, call, m, i);
}

template <typename T>
__device__ __forceinline__ void bias_grad(const struct weir__cuda_bias_grad &call) {
    constexpr uint32_t width = chunk_width<T>, pitch = 33;
    __shared__ float shared[WARPS][width * pitch];
    const uint32_t n = call.width, first = blockIdx.x * 32 * width;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, i = first + lane * width;
    const bool whole = n % width == 0 && is_aligned(call.dy);
    float sums[width] = {};
    if (i < n && whole) add_part<T, true>(sums, call, i);
    if (i < n && !whole) add_part<T, false>(sums, call, i);
#pragma unroll
    for (uint32_t e = 0; e < width; e++) shared[warp][e * pitch + lane] = sums[e];
    __syncthreads();
    const uint32_t column = threadIdx.x;
    if (column >= 32 * width || first + column >= n) return;
    float sum = 0.0f;
#pragma unroll
    for (uint32_t w = 0; w < WARPS; w++) sum += shared[w][column % width * pitch + column / width];
    call.partial[static_cast<uint64_t>(blockIdx.y) * n + first + column] = sum;
}

extern "C" __global__ void __launch_bounds__(256)
    weir_bias_grad_f32(const __grid_constant__ struct weir__cuda_bias_grad call) {
    bias_grad<float>(call);
}
EXPORT_KERNEL(weir_bias_grad_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_bias_grad_bf16(const __grid_constant__ struct weir__cuda_bias_grad call) {
    bias_grad<bf16>(call);
}
EXPORT_KERNEL(weir_bias_grad_bf16);

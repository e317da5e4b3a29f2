/* SPDX-License-Identifier: MIT */
/*
 * fold: to[k][i] = sum over parts of partial[part][k][i], k < 2 (or 1); the second half of column
 * sums, whose first one sums up the rows of each part.
 *
 * Memory: with overwrite =, else += (the sum is finished first, then added once).
 * Bytes: reads 8 C for each part, from the second cache, where the first half left them.
 * Launch: threads 256: 32 columns, whose parts eight warps take in turn; the warps' sums are then
 *   added in their order. Blocks ceil(2 C / 32). Four parts at a time.
 */
#include "net/cuda/norm_arguments.h"
#include "platform.cuh"

enum { WARPS = 8, UNROLL = 4 };

extern "C" __global__ void __launch_bounds__(256)
    weir_fold(const __grid_constant__ struct weir__cuda_fold fold) {
    __shared__ float shared[WARPS][32];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint64_t columns = static_cast<uint64_t>(fold.width) * (fold.to[1] != nullptr ? 2 : 1);
    const uint64_t column = static_cast<uint64_t>(blockIdx.x) * 32 + lane;
    float sum = 0.0f;
    if (column < columns) {
        const float *from = fold.partial + column;
        uint64_t part = warp;
#pragma unroll 1
        for (; part + (UNROLL - 1) * WARPS < fold.parts; part += UNROLL * WARPS) {
            float held[UNROLL];
#pragma unroll
            for (uint32_t k = 0; k < UNROLL; k++) held[k] = from[(part + k * WARPS) * columns];
#pragma unroll
            for (uint32_t k = 0; k < UNROLL; k++) sum += held[k];
        }
#pragma unroll 1
        for (; part < fold.parts; part += WARPS) sum += from[part * columns];
    }
    shared[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || column >= columns) return;
    sum = 0.0f;
#pragma unroll
    for (uint32_t w = 0; w < WARPS; w++) sum += shared[w][lane];
    float *to = column < fold.width ? fold.to[0] + column : fold.to[1] + (column - fold.width);
    *to = fold.overwrite != 0 ? sum : *to + sum;
}
EXPORT_KERNEL(weir_fold);

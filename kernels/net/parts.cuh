/* SPDX-License-Identifier: MIT */
/** The parts' sums of the norms over pixels. */
#ifndef WEIR_KERNELS_PARTS_CUH
#define WEIR_KERNELS_PARTS_CUH

#include "platform.cuh"

enum { FOLD_WARPS = 32, FOLD_UNROLL = 4 };

/** The sum over `parts` of number i of 2 C. A block of 32 warps, whose lanes have neighbours; the
 * first warp gets it. */
__device__ __forceinline__ double fold_parts(const double *partial, uint64_t parts, uint32_t n,
                                             uint64_t i, bool there) {
    __shared__ double shared[FOLD_WARPS][32];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint64_t pitch = static_cast<uint64_t>(n) * 2;
    double sum = 0.0;
#pragma unroll 1
    for (uint64_t part = warp; there && part < parts; part += FOLD_WARPS * FOLD_UNROLL) {
        double held[FOLD_UNROLL];
#pragma unroll
        for (uint32_t k = 0; k < FOLD_UNROLL; k++) {
            const uint64_t at = part + k * FOLD_WARPS;
            held[k] = at < parts ? partial[at * pitch + i] : 0.0;
        }
#pragma unroll
        for (uint32_t k = 0; k < FOLD_UNROLL; k++) sum += held[k];
    }
    __syncthreads();
    shared[warp][lane] = sum;
    __syncthreads();
    if (warp != 0) return 0.0;
    sum = 0.0;
    for (uint32_t w = 0; w < FOLD_WARPS; w++) sum += shared[w][lane];
    return sum;
}

#endif

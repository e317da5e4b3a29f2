/* SPDX-License-Identifier: MIT */
/*
 * accumulate: y += x
 *
 * Memory: += . Fast if both pointers are multiples of 16.
 * Bytes: reads 2 n, writes n numbers. Floor: 12 n / bandwidth.
 * Launch: threads 256; blocks ceil(n / 4096), four chunks of 16 bytes a thread.
 */
#include "net/tile.cuh"

template <bool whole>
__device__ __forceinline__ void add_tile(float *y, const float *x, uint32_t count) {
    chunk<float> a[tile_chunks], b[tile_chunks];
#pragma unroll
    for (uint32_t k = 0; k < tile_chunks; k++) {
        a[k] = load_chunk<whole>(y, tile_chunk(k), count);
        b[k] = load_chunk<whole>(x, tile_chunk(k), count);
    }
#pragma unroll
    for (uint32_t k = 0; k < tile_chunks; k++) {
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) a[k].at[e] += b[k].at[e];
        store_chunk<whole>(y, tile_chunk(k), count, a[k]);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    weir_accumulate(float *y, const float *x, uint64_t n) {
    const uint64_t tiles = (n + WEIR__CUDA_TILE - 1) / WEIR__CUDA_TILE;
    const bool aligned = is_aligned(y) && is_aligned(x);
#pragma unroll 1
    for (uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const uint64_t at = tile * WEIR__CUDA_TILE, rest = n - at;
        if (aligned && rest >= WEIR__CUDA_TILE)
            add_tile<true>(y + at, x + at, WEIR__CUDA_TILE);
        else
            add_tile<false>(y + at, x + at,
                            static_cast<uint32_t>(rest < WEIR__CUDA_TILE ? rest : WEIR__CUDA_TILE));
    }
}
EXPORT_KERNEL(weir_accumulate);

/* SPDX-License-Identifier: MIT */
/**
 * A block's part of flat arrays: spans are cut into tiles of WEIR__CUDA_TILE numbers, counted
 * through all spans of a launch; block b has tile b. Chunk k of thread t is numbers 4 x (k x 256 +
 * t) … of the tile, wherever it lies in memory.
 */
#ifndef WEIR_KERNELS_TILE_CUH
#define WEIR_KERNELS_TILE_CUH

#include "net/chunk.cuh"
#include "net/cuda/flat_arguments.h"

/** 16-byte pieces of an array that a thread of 256 has of a tile. */
constexpr uint32_t tile_chunks = WEIR__CUDA_TILE / 4 / 256;

struct tile {
    uint64_t at;    /**< its first number in the arrays */
    uint32_t count; /**< of numbers */
    uint32_t mark;  /**< the span's */
};

__device__ __forceinline__ struct tile tile_of(const struct weir__cuda_flat &flat, uint32_t block) {
    uint32_t low = 0, high = flat.count; /* the last span that begins at or before the tile */
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (flat.spans[middle].first_tile <= block)
            low = middle;
        else
            high = middle;
    }
    const struct weir__cuda_flat_span &span = flat.spans[low];
    const uint64_t from = static_cast<uint64_t>(block - span.first_tile) * WEIR__CUDA_TILE;
    const uint64_t rest = span.count - from;
    const uint32_t count = rest < WEIR__CUDA_TILE ? static_cast<uint32_t>(rest) : WEIR__CUDA_TILE;
    return {span.first + from, count, span.mark};
}

/** The thread's chunk k of a tile. */
__device__ __forceinline__ uint32_t tile_chunk(uint32_t k) {
    return (k * 256 + threadIdx.x) * 4;
}

/** Whether the tile's chunks in `array` can be moved whole: all of it is there and aligned. A NULL
 * array does not matter. */
__device__ __forceinline__ bool is_whole(const struct tile &tile, const float *array) {
    return tile.count == WEIR__CUDA_TILE && (array == nullptr || is_aligned(array + tile.at));
}

#endif

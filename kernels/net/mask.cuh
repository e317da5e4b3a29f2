/* SPDX-License-Identifier: MIT */
/** What dropout does to numbers, for dropout.cu and what is fused with it. */
#ifndef WEIR_KERNELS_MASK_CUH
#define WEIR_KERNELS_MASK_CUH

#include "net/each.cuh"
#include "net/cuda/arguments.h"
#include "philox.cuh"

/** The words of a row's elements 4 group …; all ones, which are kept, where nothing is dropped. */
__device__ __forceinline__ uint4 draw(const struct weir__cuda_mask &mask, uint64_t row,
                                      uint64_t group) {
    if (mask.threshold == 0) return {~0u, ~0u, ~0u, ~0u};
    return random_words(mask.seed, mask.mini_batch, mask.op,
                        static_cast<uint32_t>(mask.row_first + row), group);
}

/** word >> 8 >= threshold, without the shift, for words of draw. */
__device__ __forceinline__ bool is_kept(const struct weir__cuda_mask &mask, uint32_t word) {
    return word > (mask.threshold == 0 ? 0 : (mask.threshold << 8) - 1); /* of 2^24: nothing */
}

__device__ __forceinline__ float drop(const struct weir__cuda_mask &mask, float value,
                                      uint32_t word) {
    return is_kept(mask, word) ? value * mask.scale : 0.0f;
}

/** The word of a group's element `k`, which is known when unrolled. */
__device__ __forceinline__ uint32_t word_of(uint4 words, uint32_t k) {
    return k == 0 ? words.x : k == 1 ? words.y : k == 2 ? words.z : words.w;
}

/** Whether chunks can be moved at once: `width` a multiple of theirs, and so the addresses. */
template <typename T>
__device__ __forceinline__ bool has_whole_chunks(const struct weir__cuda_dropout &all,
                                                 uint64_t width) {
    return width % chunk_width<T> == 0 && is_aligned(all.y) && is_aligned(all.x) &&
           is_aligned(all.residual);
}

#endif

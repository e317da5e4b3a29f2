/* SPDX-License-Identifier: MIT */
/** Philox4x32-10: the same numbers as base/philox.c. A number is a function of its place, so a mask
 * does not depend on chunks, partition, recompute or device. */
#ifndef WEIR_KERNELS_PHILOX_CUH
#define WEIR_KERNELS_PHILOX_CUH

#include "platform.cuh"

__device__ __forceinline__ uint4 philox(uint4 counter, uint2 key) {
    constexpr uint32_t multiplier_0 = 0xD2511F53u, multiplier_1 = 0xCD9E8D57u;
    constexpr uint32_t key_step_0 = 0x9E3779B9u, key_step_1 = 0xBB67AE85u;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = static_cast<uint64_t>(multiplier_0) * counter.x;
        const uint64_t p1 = static_cast<uint64_t>(multiplier_1) * counter.z;
        counter = {static_cast<uint32_t>(p1 >> 32) ^ counter.y ^ key.x, static_cast<uint32_t>(p1),
                   static_cast<uint32_t>(p0 >> 32) ^ counter.w ^ key.y, static_cast<uint32_t>(p0)};
        key.x += key_step_0;
        key.y += key_step_1;
    }
    return counter;
}

/** weir__philox_words: those of elements 4 group … of a row. */
__device__ __forceinline__ uint4 random_words(uint64_t seed, uint64_t mini_batch, uint32_t op,
                                              uint32_t row, uint64_t group) {
    return philox({static_cast<uint32_t>(group), row, op, static_cast<uint32_t>(mini_batch)},
                  {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

#endif

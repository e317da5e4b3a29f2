/* SPDX-License-Identifier: MIT */
/*
 * random_words: to[r][e] = word e % 4 of Philox4x32-10(counter, key), with
 *   counter = (e / 4, row_first + r, op, mini_batch), key = (seed's low half, its high half)
 *
 * The same numbers as base/philox.c: a number is a function of its place, so a mask does not depend
 * on chunks, partition, recompute or device.
 *
 * Memory: to is overwritten (=). Fast where a row starts at a multiple of 16 bytes.
 * Bytes: writes 4 rows elements. Floor: that / bandwidth; but ten rounds are about 100 integer
 *   instructions for 16 bytes, which takes about twice as long: it is bound by arithmetic.
 * Launch: threads (x along a row, y rows), x y = 256, one group of four elements a thread; blocks
 *   (ceil(groups / x), ceil(rows / y)) or fewer: the grid strides both ways.
 */
#include "device/cuda_arguments.h"
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

/* The `count` words, up to four, at `to`. */
__device__ __forceinline__ void store(uint32_t *to, uint4 words, uint64_t count) {
    if (count >= 4 && reinterpret_cast<uint64_t>(to) % 16 == 0) {
        *reinterpret_cast<uint4 *>(to) = words;
        return;
    }
    to[0] = words.x;
    if (count > 1) to[1] = words.y;
    if (count > 2) to[2] = words.z;
    if (count > 3) to[3] = words.w;
}

extern "C" __global__ void __launch_bounds__(256)
    weir_random_words(struct weir__cuda_random random) {
    const uint64_t groups = (random.elements + 3) / 4;
    const uint64_t x = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t y = static_cast<uint64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    const uint64_t x_step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const uint64_t y_step = static_cast<uint64_t>(gridDim.y) * blockDim.y;
    const uint2 key = {static_cast<uint32_t>(random.seed),
                       static_cast<uint32_t>(random.seed >> 32)};
    for (uint64_t row = y; row < random.rows; row += y_step) {
        for (uint64_t group = x; group < groups; group += x_step) {
            const uint4 counter = {static_cast<uint32_t>(group),
                                   static_cast<uint32_t>(random.row_first + row), random.op,
                                   static_cast<uint32_t>(random.mini_batch)};
            store(&random.to[row * random.elements + group * 4], philox(counter, key),
                  random.elements - group * 4);
        }
    }
}
EXPORT_KERNEL(weir_random_words);

/* SPDX-License-Identifier: MIT */
/*
 * random_words: to[r][e] = word e % 4 of Philox4x32-10(counter, key), with
 *   counter = (e / 4, row_first + r, op, mini_batch), key = (seed's low half, its high half)
 *
 * Memory: to is overwritten (=). Fast where a row starts at a multiple of 16 bytes.
 * Bytes: writes 4 rows elements. Floor: that / bandwidth; but ten rounds are about 100 integer
 *   instructions for 16 bytes, which takes about twice as long: it is bound by arithmetic.
 * Launch: threads (x along a row, y rows), x y = 256, one group of four elements a thread; blocks
 *   (ceil(groups / x), ceil(rows / y)) or fewer: the grid strides both ways.
 */
#include "device/cuda_arguments.h"
#include "philox.cuh"

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
    for (uint64_t row = y; row < random.rows; row += y_step) {
        for (uint64_t group = x; group < groups; group += x_step) {
            const uint4 words = random_words(random.seed, random.mini_batch, random.op,
                                             static_cast<uint32_t>(random.row_first + row), group);
            store(&random.to[row * random.elements + group * 4], words,
                  random.elements - group * 4);
        }
    }
}
EXPORT_KERNEL(weir_random_words);

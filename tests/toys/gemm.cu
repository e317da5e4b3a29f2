/* SPDX-License-Identifier: MIT */
/*
 * A matrix product to keep a GPU's multiprocessors busy beside copies: c = a b in f32, tiles of
 * 64 x 64 by 256 threads, a sum in ascending order of k for each element. It must move
 * 4 (m k + k n + m n) bytes and reads (m / 64 + n / 64) / 2 times as many of a and b, mostly from
 * the cache.
 *
 * Launch: (n / 64, m / 64) blocks of 256 threads; m and n are multiples of 64, k of 16.
 */
#include "platform.cuh"

static constexpr uint32_t SIDE = 64, DEPTH = 16, EACH = 4;

extern "C" __global__ void weir_gemm(float *c,       /* (m, n) */
                                     const float *a, /* (m, k) */
                                     const float *b, /* (k, n) */
                                     uint32_t n, uint32_t k) {
    __shared__ float a_tile[SIDE * DEPTH], b_tile[DEPTH * SIDE];
    const uint32_t row = blockIdx.y * SIDE, column = blockIdx.x * SIDE, t = threadIdx.x;
    const uint32_t down = t / 16 * EACH, across = t % 16 * EACH;
    float sums[EACH][EACH] = {};
    for (uint32_t at = 0; at < k; at += DEPTH) {
        for (uint32_t i = t; i < SIDE * DEPTH; i += 256) {
            a_tile[i] = a[static_cast<uint64_t>(row + i / DEPTH) * k + at + i % DEPTH];
            b_tile[i] = b[static_cast<uint64_t>(at + i / SIDE) * n + column + i % SIDE];
        }
        __syncthreads();
        for (uint32_t d = 0; d < DEPTH; d++)
            for (uint32_t i = 0; i < EACH; i++)
                for (uint32_t j = 0; j < EACH; j++)
                    sums[i][j] += a_tile[(down + i) * DEPTH + d] * b_tile[d * SIDE + across + j];
        __syncthreads();
    }
    for (uint32_t i = 0; i < EACH; i++)
        for (uint32_t j = 0; j < EACH; j++)
            c[static_cast<uint64_t>(row + down + i) * n + column + across + j] = sums[i][j];
}
EXPORT_KERNEL(weir_gemm);

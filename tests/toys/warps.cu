/* SPDX-License-Identifier: MIT */
/*
 * Kernels that only the emulation's own tests use: what a warp's lanes do together by names of
 * platform.cuh.
 */
#include "platform.cuh"

/* One warp. A tile (16, 16) of 2-byte numbers, the rows 24 apart. */
enum { SIDE = 16, PITCH = 24, AT_ONCE = 8 };

__device__ __forceinline__ void fetch(uint16_t *tile, const uint16_t *from) {
    const uint32_t row = threadIdx.x / 2, column = threadIdx.x % 2 * AT_ONCE;
    copy_async(tile + row * PITCH + column, from + row * SIDE + column, true);
}

/* to[0] = a b^T, to[1] = a b, in F32; all (16, 16), a and b of BF16. Launch: one warp, shared_bytes
 * 2 x 16 x 24 x 2. */
template <bool with_wait>
__device__ __forceinline__ void multiply(float *to, const uint16_t *a, const uint16_t *b) {
    DYNAMIC_SHARED(uint16_t, tile_a);
    uint16_t *tile_b = tile_a + SIDE * PITCH;
    uint32_t left[4], below[4], across[4];
    float sum[4][4] = {};
    fetch(tile_a, a);
    fetch(tile_b, b);
    if (with_wait) copy_async_wait();
    __syncwarp();
    load_16x16(left, tile_a, PITCH);
    load_16x16(below, tile_b, PITCH);
    load_16x16_transposed(across, tile_b, PITCH);
    const uint32_t right[4][2] = {
        {below[0], below[2]}, {below[1], below[3]}, {across[0], across[1]}, {across[2], across[3]}};
    multiply_16x8<4>(sum, left, right);
    for (uint32_t n = 0; n < 4; n++)
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t row = threadIdx.x / 4 + i / 2 * 8;
            const uint32_t column = n % 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
            to[n / 2 * SIDE * SIDE + row * SIDE + column] = sum[n][i];
        }
}

extern "C" __global__ void weir_warp_product(float *to, const uint16_t *a, const uint16_t *b) {
    multiply<true>(to, a, b);
}
EXPORT_KERNEL(weir_warp_product);

extern "C" __global__ void weir_warp_product_without_wait(float *to, const uint16_t *a,
                                                          const uint16_t *b) {
    multiply<false>(to, a, b);
}
EXPORT_KERNEL(weir_warp_product_without_wait);

/* to[0] and to[1]: the largest and the sum of each 8 lanes' numbers, and to[2] of all, for each
 * lane; to[3]: twice the sum. Launch: one warp. */
extern "C" __global__ void weir_lane_groups(float *to, const float *from) {
    const uint32_t lane = threadIdx.x;
    float largest[1] = {from[lane]}, sums[2] = {from[lane], 2 * from[lane]};
    float whole[1] = {from[lane]};
    max_of_lanes<8>(largest);
    sum_of_lanes<8>(sums);
    sum_of_lanes<32>(whole);
    to[lane] = largest[0];
    to[32 + lane] = sums[0];
    to[64 + lane] = whole[0];
    to[96 + lane] = sums[1];
}
EXPORT_KERNEL(weir_lane_groups);

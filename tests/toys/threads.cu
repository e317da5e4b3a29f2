/* SPDX-License-Identifier: MIT */
/*
 * Kernels that only the emulation's own tests use: what threads of a block may do together, done
 * rightly and, in those whose names say so, wrongly. The wrong ones run on the emulation only.
 */
#include "platform.cuh"

/* Launch: one block of any size, shared_bytes 4 per thread. to[i] = from[threads - 1 - i] */
extern "C" __global__ void weir_reverse(uint32_t *to, const uint32_t *from) {
    DYNAMIC_SHARED(uint32_t, held);
    held[threadIdx.x] = from[threadIdx.x];
    __syncthreads();
    to[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}
EXPORT_KERNEL(weir_reverse);

extern "C" __global__ void weir_reverse_without_barrier(uint32_t *to, const uint32_t *from) {
    DYNAMIC_SHARED(uint32_t, held);
    held[threadIdx.x] = from[threadIdx.x];
    to[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}
EXPORT_KERNEL(weir_reverse_without_barrier);

/* The value `rounds` rotations later: to[i] = from[(i + rounds) mod threads]. Launch: one block of
 * at most 256. */
template <bool with_both_barriers>
__device__ __forceinline__ void rotate(uint32_t *to, const uint32_t *from, uint32_t rounds) {
    __shared__ uint32_t held[256];
    uint32_t value = from[threadIdx.x];
    for (uint32_t round = 0; round < rounds; round++) {
        held[threadIdx.x] = value;
        __syncthreads();
        value = held[(threadIdx.x + 1) % blockDim.x];
        if (with_both_barriers) __syncthreads(); /* else the next round writes what others read */
    }
    to[threadIdx.x] = value;
}

extern "C" __global__ void weir_rotate(uint32_t *to, const uint32_t *from, uint32_t rounds) {
    rotate<true>(to, from, rounds);
}
EXPORT_KERNEL(weir_rotate);

extern "C" __global__ void weir_rotate_without_barrier(uint32_t *to, const uint32_t *from,
                                                       uint32_t rounds) {
    rotate<false>(to, from, rounds);
}
EXPORT_KERNEL(weir_rotate_without_barrier);

/* to[i] = what shared memory holds before anything is written there. Launch: at most 256 threads.
 */
extern "C" __global__ void weir_read_unwritten(uint32_t *to) {
    __shared__ uint32_t held[256];
    uint32_t value = held[threadIdx.x];
    held[threadIdx.x] = 0;
    to[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
EXPORT_KERNEL(weir_read_unwritten);

/* Half of the threads never come to the barrier. */
extern "C" __global__ void weir_half_a_barrier(uint32_t *to) {
    if (threadIdx.x % 2 == 0) __syncthreads();
    to[threadIdx.x] = 1;
}
EXPORT_KERNEL(weir_half_a_barrier);

/* Sums of warps, by each kind of shuffle: to[0], to[1], to[2] per warp. */
extern "C" __global__ void weir_warp_sums(uint32_t *to, const uint32_t *from) {
    const uint32_t warp = threadIdx.x / 32, all = 0xffffffffu;
    uint32_t across = from[threadIdx.x], down = across, up = across;
    for (uint32_t i = 16; i > 0; i /= 2) {
        across += __shfl_xor_sync(all, across, i);
        down += __shfl_down_sync(all, down, i);
    }
    for (uint32_t i = 1; i < 32; i *= 2) {
        const uint32_t other = __shfl_up_sync(all, up, i);
        if (threadIdx.x % 32 >= i) up += other;
    }
    const uint32_t last = __shfl_sync(all, up, 31);
    if (threadIdx.x % 32 == 0) {
        to[warp * 3] = across;
        to[warp * 3 + 1] = down;
        to[warp * 3 + 2] = last;
    }
}
EXPORT_KERNEL(weir_warp_sums);

/* Per warp the ballot of from[i] != 0 as its lanes below 16 and from 16 on see it, each half with
 * a mask of its own. */
extern "C" __global__ void weir_warp_ballots(uint32_t *to, const uint32_t *from) {
    const uint32_t warp = threadIdx.x / 32, half = threadIdx.x % 32 / 16;
    uint32_t ballot;
    if (half == 0)
        ballot = __ballot_sync(0x0000ffffu, from[threadIdx.x] != 0);
    else
        ballot = __ballot_sync(0xffff0000u, from[threadIdx.x] != 0);
    if (threadIdx.x % 16 == 0) to[warp * 2 + half] = ballot;
}
EXPORT_KERNEL(weir_warp_ballots);

/* Lanes from 16 on are named by the mask and do not come. */
extern "C" __global__ void weir_half_a_warp(uint32_t *to) {
    uint32_t value = threadIdx.x;
    if (threadIdx.x % 32 < 16) value = __shfl_xor_sync(0xffffffffu, value, 1);
    to[threadIdx.x] = value;
}
EXPORT_KERNEL(weir_half_a_warp);

/* Lane 0 takes a value from a lane that does not take part. */
extern "C" __global__ void weir_shuffle_from_outside(uint32_t *to) {
    uint32_t value = threadIdx.x;
    if (threadIdx.x % 32 < 16) value = __shfl_sync(0x0000ffffu, value, 20);
    to[threadIdx.x] = value;
}
EXPORT_KERNEL(weir_shuffle_from_outside);

/* counts[from[i] mod bins] += 1, sum += from[i], largest = max. Launch: any. */
extern "C" __global__ void weir_count(uint32_t *counts, unsigned long long *sum, uint32_t *largest,
                                      const uint32_t *from, uint32_t n, uint32_t bins) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&counts[from[i] % bins], 1u);
    atomicAdd(sum, static_cast<unsigned long long>(from[i]));
    atomicMax(largest, from[i]);
}
EXPORT_KERNEL(weir_count);

/* Each block and thread in its place, in all three directions: to is (blocks, threads, 12). */
extern "C" __global__ void weir_places(uint32_t *to) {
    const uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const uint32_t thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const uint32_t threads = blockDim.x * blockDim.y * blockDim.z;
    uint32_t *at = &to[(block * threads + thread) * 12];
    const uint32_t values[12] = {blockIdx.x,  blockIdx.y,  blockIdx.z, threadIdx.x,
                                 threadIdx.y, threadIdx.z, gridDim.x,  gridDim.y,
                                 gridDim.z,   blockDim.x,  blockDim.y, blockDim.z};
    for (int i = 0; i < 12; i++) at[i] = values[i];
}
EXPORT_KERNEL(weir_places);

/* The order in which threads come: order[place] = thread. Launch: one block. */
extern "C" __global__ void weir_order(uint32_t *order, uint32_t *next) {
    order[atomicAdd(next, 1u)] = blockIdx.x * blockDim.x + threadIdx.x;
}
EXPORT_KERNEL(weir_order);

/* A store of 16 bytes at an address that is only aligned to 4. */
extern "C" __global__ void weir_misaligned(uint32_t *to) {
    *reinterpret_cast<uint4 *>(to + 1) = {1, 2, 3, 4};
}
EXPORT_KERNEL(weir_misaligned);

/* One element behind the end of a shared array. */
extern "C" __global__ void weir_outside_shared(uint32_t *to, uint32_t index) {
    __shared__ uint32_t held[32];
    held[index] = 1;
    __syncthreads();
    to[0] = held[0];
}
EXPORT_KERNEL(weir_outside_shared);

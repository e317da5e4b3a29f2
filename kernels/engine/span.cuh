/* SPDX-License-Identifier: MIT */
/**
 * A group of threads copies a contiguous range: what copy, copy_batch, push and pull share.
 *
 * Loads are marked as read once (the source's work is done); stores are not, because the copy is
 * what the next kernel reads. `unroll` loads are under way before the first is stored: bytes in
 * flight = threads x unroll x 16 must cover bandwidth x latency, on an H200 4.8 TB/s x 0.8 us / 132
 * multiprocessors = 29 KB on each. Two blocks of 256 threads with four loads do; more fit as long
 * as no outer loop is unrolled (on sm_100 that took 128 registers).
 */
#ifndef WEIR_KERNELS_SPAN_CUH
#define WEIR_KERNELS_SPAN_CUH

#include "platform.cuh"

/** Which of the group's threads this is, of how many. */
struct lane {
    uint64_t rank, count;
};

/** All threads of the grid (of one dimension). */
__device__ __forceinline__ struct lane grid_lane() {
    return {static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
            static_cast<uint64_t>(gridDim.x) * blockDim.x};
}

/** `n` elements. */
template <int unroll, typename Vector>
__device__ __forceinline__ void copy_vectors(Vector *to, const Vector *from, uint64_t n,
                                             struct lane lane) {
    uint64_t i = lane.rank;
#pragma unroll 1
    for (; i + (unroll - 1) * lane.count < n; i += unroll * lane.count) {
        Vector held[unroll];
#pragma unroll
        for (int k = 0; k < unroll; k++) held[k] = __ldcs(&from[i + k * lane.count]);
#pragma unroll
        for (int k = 0; k < unroll; k++) to[i + k * lane.count] = held[k];
    }
#pragma unroll 1
    for (; i < n; i += lane.count) to[i] = __ldcs(&from[i]);
}

/** `bytes` bytes of any alignment: in 16s where both ends are aligned alike, with the bytes before
 * and after one by one; else in 4s, or, slowly, in ones. */
template <int unroll>
__device__ __forceinline__ void copy_span(unsigned char *to, const unsigned char *from,
                                          uint64_t bytes, struct lane lane) {
    const uint64_t to_address = reinterpret_cast<uint64_t>(to);
    const uint64_t from_address = reinterpret_cast<uint64_t>(from);
    if ((to_address ^ from_address) % 16 == 0) {
        const uint64_t ragged = (16 - to_address % 16) % 16;
        const uint64_t head = ragged < bytes ? ragged : bytes;
        const uint64_t body = (bytes - head) / 16 * 16;
        copy_vectors<1>(to, from, head, lane);
        copy_vectors<unroll>(reinterpret_cast<uint4 *>(to + head),
                             reinterpret_cast<const uint4 *>(from + head), body / 16, lane);
        copy_vectors<1>(to + head + body, from + head + body, bytes - head - body, lane);
    } else if ((to_address | from_address) % 4 == 0) {
        copy_vectors<unroll>(reinterpret_cast<uint32_t *>(to),
                             reinterpret_cast<const uint32_t *>(from), bytes / 4, lane);
        const uint64_t body = bytes / 4 * 4;
        copy_vectors<1>(to + body, from + body, bytes - body, lane);
    } else {
        copy_vectors<1>(to, from, bytes, lane);
    }
}

#endif

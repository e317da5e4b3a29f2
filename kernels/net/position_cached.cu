/* SPDX-License-Identifier: MIT */
/*
 * position_cached: y = x + the table's row of each row's place
 *
 * Memory: y is overwritten (=), and may be x. Fast if rows are multiples of 16 bytes.
 * Bytes: a row reads x and 4 bytes a number of the table, and writes y. A token has few numbers:
 *   this takes as long as a launch.
 * Launch: threads 256, blocks (ceil(width / 2048), rows) or fewer: the grid strides along x.
 */
#include "net/cuda/attention_arguments.h"
#include "net/number.cuh"

template <typename T>
__device__ __forceinline__ void add_position(const struct weir__cuda_position_cached &pass) {
    constexpr uint32_t at_once = 16 / sizeof(T);
    const uint64_t row = blockIdx.y, place = pass.places.place[row];
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const T *x = static_cast<const T *>(pass.x) + row * pass.width;
    const float *position = pass.table + place * pass.width;
    T *y = static_cast<T *>(pass.y) + row * pass.width;
    const bool wide = is_aligned(x) && is_aligned(y) && is_aligned(position);
    const uint64_t vectors = wide ? pass.width / at_once : 0;
    for (uint64_t i = first; i < vectors; i += step) {
        several<T, at_once> held = reinterpret_cast<const several<T, at_once> *>(x)[i];
#pragma unroll
        for (uint32_t k = 0; k < at_once; k += 4) {
            const several<float, 4> more =
                *reinterpret_cast<const several<float, 4> *>(position + i * at_once + k);
#pragma unroll
            for (uint32_t l = 0; l < 4; l++)
                held.at[k + l] = narrow<T>(widen(held.at[k + l]) + more.at[l]);
        }
        reinterpret_cast<several<T, at_once> *>(y)[i] = held;
    }
    for (uint64_t i = vectors * at_once + first; i < pass.width; i += step)
        y[i] = narrow<T>(widen(x[i]) + position[i]);
}

extern "C" __global__ void __launch_bounds__(256)
    weir_position_cached_f32(struct weir__cuda_position_cached pass) {
    add_position<float>(pass);
}
EXPORT_KERNEL(weir_position_cached_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_position_cached_bf16(struct weir__cuda_position_cached pass) {
    add_position<bf16>(pass);
}
EXPORT_KERNEL(weir_position_cached_bf16);

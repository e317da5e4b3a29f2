/* SPDX-License-Identifier: MIT */
/*
 * copy_rows: to[r * to_pitch + i] = from[r * from_pitch + i]
 *
 * A gather (to_pitch = row_bytes) takes a tensor's part out of a wider one, a scatter (from_pitch =
 * row_bytes) puts it back: a skip's channels, a slice of a concatenation. Bytes between a row's end
 * and the next one's start are not written.
 *
 * Memory: the rows of to are overwritten (=). Both pointers, both pitches and row_bytes are
 *   multiples of `width`; rows do not overlap.
 * Bytes: reads and writes rows x row_bytes. Floor: 2 rows row_bytes / bandwidth, where rows are
 *   multiples of 32 bytes, the memory's sector; a shorter or crooked row moves whole sectors.
 * Launch: threads (x along a row, y rows), x y = 256, x the smallest power of two that spans a row
 *   in `width`s; blocks (ceil(row / x), ceil(rows / 4 y)) or fewer: the grid strides both ways.
 */
#include "device/cuda_arguments.h"
#include "platform.cuh"

enum { UNROLL = 4 }; /* rows under way per thread */

/* Element `column` of UNROLL rows that are `step` apart. */
template <typename Vector>
__device__ __forceinline__ void copy_column(const struct weir__cuda_rows &rows, uint64_t first,
                                            uint64_t step, uint64_t column) {
    unsigned char *to = static_cast<unsigned char *>(rows.to) + column * sizeof(Vector);
    const unsigned char *from =
        static_cast<const unsigned char *>(rows.from) + column * sizeof(Vector);
    Vector held[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        const uint64_t row = first + k * step;
        if (row < rows.rows)
            held[k] = __ldcs(reinterpret_cast<const Vector *>(from + row * rows.from_pitch));
    }
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        const uint64_t row = first + k * step;
        if (row < rows.rows) *reinterpret_cast<Vector *>(to + row * rows.to_pitch) = held[k];
    }
}

template <typename Vector>
__device__ __forceinline__ void copy_rows(const struct weir__cuda_rows &rows) {
    const uint64_t columns = rows.row_bytes / sizeof(Vector);
    const uint64_t x = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t y = static_cast<uint64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    const uint64_t x_step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const uint64_t y_step = static_cast<uint64_t>(gridDim.y) * blockDim.y;
    for (uint64_t row = y; row < rows.rows; row += UNROLL * y_step)
        for (uint64_t column = x; column < columns; column += x_step)
            copy_column<Vector>(rows, row, y_step, column);
}

extern "C" __global__ void __launch_bounds__(256, 6) weir_copy_rows(struct weir__cuda_rows rows) {
    switch (rows.width) {
    case 16: copy_rows<uint4>(rows); break;
    case 8: copy_rows<uint2>(rows); break;
    case 4: copy_rows<uint32_t>(rows); break;
    case 2: copy_rows<unsigned short>(rows); break;
    default: copy_rows<unsigned char>(rows); break;
    }
}
EXPORT_KERNEL(weir_copy_rows);

/* SPDX-License-Identifier: MIT */
/*
 * transpose_1, _2, _4, _8: to[m][j][i] = from[m][i][j], for elements of so many bytes
 *
 * NCHW to NHWC is (N, down = C, across = H W), NHWC to NCHW the other way round. A block takes a
 * square tile through shared memory, so that both reads and writes run along rows. A shared row is
 * padded to an odd number of banks: the 32 elements of a column lie in 32 of them. Tiles are 64
 * wide for elements of one or two bytes, 32 for wider ones: a tile's row is at least two sectors.
 *
 * Memory: to is overwritten (=). Pointers are aligned to the element's size.
 * Bytes: reads and writes count x down x across elements. Floor: 2 x that / bandwidth. Where one
 *   side is narrow (three channels), a tile's lanes are busy only as far as it is wide, and its
 *   rows are shorter than a sector: such an image is bound by instructions, not by bytes.
 * Launch: threads 256; blocks count x ceil(down / side) x ceil(across / side).
 */
#include "device/cuda_arguments.h"
#include "platform.cuh"

enum { THREADS = 256, LANES = 32, ROWS_AT_ONCE = THREADS / LANES };

/* Moves what is inside of a tile's square (rows x columns of it): every 8th row, every 32nd
 * column. */
template <int side, typename Visit>
__device__ __forceinline__ void walk_tile(uint64_t rows, uint64_t columns, Visit visit) {
#pragma unroll
    for (int row = 0; row < side; row += ROWS_AT_ONCE) {
#pragma unroll
        for (int column = 0; column < side; column += LANES) {
            const uint32_t i = row + threadIdx.x / LANES, j = column + threadIdx.x % LANES;
            if (i < rows && j < columns) visit(i, j);
        }
    }
}

template <typename Element, int side>
__device__ __forceinline__ void transpose(const struct weir__cuda_transpose &matrix) {
    constexpr int padding = sizeof(Element) < 4 ? 4 / sizeof(Element) : 1;
    __shared__ Element tile[side][side + padding];
    const uint64_t tiles_down = (matrix.down + side - 1) / side;
    const uint64_t tiles_across = (matrix.across + side - 1) / side;
    const uint64_t which = blockIdx.x % (tiles_down * tiles_across);
    const uint64_t image = blockIdx.x / (tiles_down * tiles_across);
    const uint64_t down = which / tiles_across * side, across = which % tiles_across * side;
    const uint64_t start = image * matrix.down * matrix.across;
    const Element *from =
        static_cast<const Element *>(matrix.from) + start + down * matrix.across + across;
    Element *to = static_cast<Element *>(matrix.to) + start + across * matrix.down + down;

    walk_tile<side>(matrix.down - down, matrix.across - across, [&](uint32_t i, uint32_t j) {
        tile[i][j] = __ldcs(&from[i * matrix.across + j]);
    });
    __syncthreads();
    walk_tile<side>(matrix.across - across, matrix.down - down,
                    [&](uint32_t j, uint32_t i) { to[j * matrix.down + i] = tile[i][j]; });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    weir_transpose_1(struct weir__cuda_transpose matrix) {
    transpose<unsigned char, 64>(matrix);
}
EXPORT_KERNEL(weir_transpose_1);

extern "C" __global__ void __launch_bounds__(THREADS)
    weir_transpose_2(struct weir__cuda_transpose matrix) {
    transpose<unsigned short, 64>(matrix);
}
EXPORT_KERNEL(weir_transpose_2);

extern "C" __global__ void __launch_bounds__(THREADS)
    weir_transpose_4(struct weir__cuda_transpose matrix) {
    transpose<uint32_t, 32>(matrix);
}
EXPORT_KERNEL(weir_transpose_4);

extern "C" __global__ void __launch_bounds__(THREADS)
    weir_transpose_8(struct weir__cuda_transpose matrix) {
    transpose<uint2, 32>(matrix);
}
EXPORT_KERNEL(weir_transpose_8);

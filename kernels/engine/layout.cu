/* SPDX-License-Identifier: MIT */
/*
 * transpose_1, _2, _4, _8: to[m][j][i] = from[m][i][j], for elements of so many bytes
 *
 * NCHW to NHWC is (N, down = C, across = H W), NHWC to NCHW the other way round. A block takes a
 * square tile through shared memory, so that both reads and writes run along rows. A shared row is
 * padded to an odd number of banks: the 32 elements of a column lie in 32 of them. Tiles are 64
 * wide for elements of one or two bytes, 32 for wider ones: a tile's row is at least two sectors.
 * Where one side is narrow (an image's three channels) most of a tile would be empty; there a block
 * takes a strip, all of the narrow side and as much of the other as shared memory holds, and the
 * side on which the few stand together is one contiguous range.
 *
 * Memory: to is overwritten (=). Pointers are aligned to the element's size.
 * Bytes: reads and writes count x down x across elements. Floor: 2 x that / bandwidth. A strip
 * costs a division per element, too: about 50 instructions for four bytes, which is near the floor.
 * Launch: threads 256; blocks count x ceil(down / side) x ceil(across / side), or, with a strip,
 *   count x ceil(the wide side / strip).
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

/* How far a shared row is from the next one: an odd number of banks. */
template <typename Element, int side>
constexpr int pitch = side + (sizeof(Element) < 4 ? 4 / static_cast<int>(sizeof(Element)) : 1);

template <typename Element, int side>
__device__ __forceinline__ void transpose_tile(const struct weir__cuda_transpose &matrix,
                                               Element (&tile)[side][pitch<Element, side>]) {
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

/* `few` rows stand apart (each `many` long) on one side, and together on the other. */
template <typename Element>
__device__ __forceinline__ void transpose_strip(const struct weir__cuda_transpose &matrix,
                                                Element (&held)[1024]) {
    const bool apart = matrix.down <= matrix.across; /* in from; else in to */
    const uint32_t few = static_cast<uint32_t>(apart ? matrix.down : matrix.across);
    const uint64_t many = apart ? matrix.across : matrix.down;
    const uint64_t strips = (many + matrix.strip - 1) / matrix.strip;
    const uint64_t start = blockIdx.x / strips * few * many,
                   first = blockIdx.x % strips * matrix.strip;
    const uint32_t length =
        many - first < matrix.strip ? static_cast<uint32_t>(many - first) : matrix.strip;
    const uint32_t held_pitch = matrix.strip + 1;
    const Element *from = static_cast<const Element *>(matrix.from) + start;
    Element *to = static_cast<Element *>(matrix.to) + start;

    if (apart) {
        for (uint32_t i = 0; i < few; i++)
            for (uint32_t j = threadIdx.x; j < length; j += THREADS)
                held[i * held_pitch + j] = __ldcs(&from[i * many + first + j]);
    } else {
        for (uint32_t e = threadIdx.x; e < few * length; e += THREADS)
            held[e % few * held_pitch + e / few] = __ldcs(&from[first * few + e]);
    }
    __syncthreads();
    if (apart) {
        for (uint32_t e = threadIdx.x; e < few * length; e += THREADS)
            to[first * few + e] = held[e % few * held_pitch + e / few];
    } else {
        for (uint32_t i = 0; i < few; i++)
            for (uint32_t j = threadIdx.x; j < length; j += THREADS)
                to[i * many + first + j] = held[i * held_pitch + j];
    }
}

template <typename Element, int side>
__device__ __forceinline__ void transpose(const struct weir__cuda_transpose &matrix) {
    if (matrix.strip > 0) {
        __shared__ Element held[1024];
        transpose_strip<Element>(matrix, held);
    } else {
        __shared__ Element tile[side][pitch<Element, side>];
        transpose_tile<Element, side>(matrix, tile);
    }
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

/* SPDX-License-Identifier: MIT */
/*
 * square_sums: squares[span.mark] = sum of x^2 over the span, in double, in two halves:
 * 1. square_parts: partial[tile] = the tile's sum. Thread t of 256 adds number e of each of its
 *    chunks (tile.cuh) in turn, e = 0 … 3 apart; then (0 + 1) + (2 + 3), then the block's butterfly
 *    (reduce.cuh).
 * 2. square_fold: thread t of 256 adds tiles t, t + 256 … of the span; then the butterfly.
 * A square of a float is exact in double: what is rounded are the sums.
 *
 * Memory: partial, squares are overwritten (=). Fast where a tile begins at a multiple of 16 bytes.
 * Bytes: reads 4 n, writes 8 for each tile of 4096. Floor: 4 n / bandwidth; a number takes one
 *   conversion and two operations in double: 4 of 64 each clock at an H200's bandwidth.
 * Launch: threads 256; blocks: tiles, then spans.
 */
#include "net/reduce.cuh"
#include "net/tile.cuh"

template <bool whole>
__device__ __forceinline__ double thread_squares(const float *data, uint32_t count) {
    chunk<float> x[tile_chunks];
    double sum[4] = {0.0, 0.0, 0.0, 0.0};
#pragma unroll
    for (uint32_t k = 0; k < tile_chunks; k++) x[k] = load_chunk<whole>(data, tile_chunk(k), count);
#pragma unroll
    for (uint32_t k = 0; k < tile_chunks; k++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            sum[e] += static_cast<double>(x[k].at[e]) * static_cast<double>(x[k].at[e]);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

extern "C" __global__ void __launch_bounds__(256)
    weir_square_parts(const __grid_constant__ struct weir__cuda_flat flat, const float *data,
                      double *partial) {
    __shared__ double shared[32];
    const struct tile tile = tile_of(flat, blockIdx.x);
    double sum = is_whole(tile, data) ? thread_squares<true>(data + tile.at, tile.count)
                                      : thread_squares<false>(data + tile.at, tile.count);
    sum = reduce_block<8, struct add>(sum, shared);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
EXPORT_KERNEL(weir_square_parts);

extern "C" __global__ void __launch_bounds__(256)
    weir_square_fold(const __grid_constant__ struct weir__cuda_flat flat, const double *partial,
                     double *squares) {
    __shared__ double shared[32];
    const struct weir__cuda_flat_span &span = flat.spans[blockIdx.x];
    const uint64_t tiles = (span.count + WEIR__CUDA_TILE - 1) / WEIR__CUDA_TILE;
    double sum = 0.0;
    for (uint64_t tile = threadIdx.x; tile < tiles; tile += 256)
        sum += partial[span.first_tile + tile];
    sum = reduce_block<8, struct add>(sum, shared);
    if (threadIdx.x == 0) squares[span.mark] = sum;
}
EXPORT_KERNEL(weir_square_fold);

/* SPDX-License-Identifier: MIT */
/**
 * Attention on the tensor cores, for BF16 and heads of up to 128 numbers, a multiple of 8: what its
 * forward and its backward pass share.
 *
 * Of a product each warp has 16 rows, whose left operand stays in its registers (`strip`), while
 * the right operand's tiles go by in shared memory: two buffers of two tiles each, one computed on
 * while the other is filled. Sums are F32. What a product of rows by rows gives (`sums` of 16 x 8
 * numbers, two or four of a lane) is laid out as the next product's left operand has to be, so that
 * shares never leave the registers; they are rounded to BF16 there.
 *
 * A tile's rows are PITCH numbers apart, an odd multiple of 16 bytes: eight neighbouring rows lie
 * in different banks. Heads are filled up with zeros to 64 or 128 numbers, but products stop at the
 * next multiple of 16.
 */
#ifndef WEIR_KERNELS_ATTENTION_TENSOR_CUH
#define WEIR_KERNELS_ATTENTION_TENSOR_CUH

#include "net/attention_part.cuh"

enum { WARP_ROWS = 16, STEP = 16 /* of a product's depth */, EIGHT = 8 };

constexpr float log2_e = 1.44269504088896341f;

template <int head> constexpr int pitch = head + 8;

/** Two tiles that go by. */
template <int head, int rows> struct stream_buffer { bf16 tile[2][rows * pitch<head>]; };

/** A warp's left operand: 16 rows of a head. */
template <int head> struct strip { uint32_t at[head / STEP][4]; };

/** A warp's sums, 16 x (count x 64 or fewer). The lane's of n: rows lane / 4 (0, 1) and lane / 4 +
 * 8 (2, 3), columns 8 n + lane % 4 * 2 and the next. */
template <int count> using sums = float[count][4];

/** Begins to copy (rows, size) numbers, `step` apart, into a tile of `tile_rows`; the rest becomes
 * 0. All threads of the block, `threads`. */
template <int head, int tile_rows, int threads>
__device__ __forceinline__ void fetch_tile(bf16 *tile, const bf16 *from, uint64_t step,
                                           uint32_t rows, uint32_t size) {
    constexpr int per_row = head / EIGHT;
    static_assert(tile_rows * per_row % threads == 0, "every thread has as much to copy");
#pragma unroll
    for (int n = 0; n < tile_rows * per_row / threads; n++) {
        const uint32_t i = threadIdx.x + n * threads;
        const uint32_t row = i / per_row, column = i % per_row * EIGHT;
        const bool there = row < rows && column < size;
        copy_async(tile + row * pitch<head> + column, there ? from + row * step + column : from,
                   there);
    }
}

/** The warp's 16 rows of a tile, from `tile` on. */
template <int head>
__device__ __forceinline__ void take_strip(struct strip<head> &strip, const bf16 *tile) {
#pragma unroll
    for (int k = 0; k < head / STEP; k++) load_16x16(strip.at[k], tile + k * STEP, pitch<head>);
}

/** sum[n] += strip times the tile's rows 8 n ... 8 n + 7. */
template <int head, int count>
__device__ __forceinline__ void rows_by_rows(sums<count> &sum, const struct strip<head> &strip,
                                             const bf16 *tile, uint32_t size) {
#pragma unroll
    for (uint32_t k = 0; k < head / STEP; k++) {
        if (k * STEP >= size) break;
        uint32_t right[count][2];
#pragma unroll
        for (int n = 0; n < count; n += 2) {
            uint32_t held[4];
            load_16x16(held, tile + n * EIGHT * pitch<head> + k * STEP, pitch<head>);
            right[n][0] = held[0], right[n][1] = held[2];
            right[n + 1][0] = held[1], right[n + 1][1] = held[3];
        }
        multiply_16x8<count>(sum, strip.at[k], right);
    }
}

/** The sums of 16 columns, from sum[n] on, as a left operand. */
template <int count>
__device__ __forceinline__ void round_sums(uint32_t (&left)[4], const sums<count> &sum, int n) {
    left[0] = bf16_pair(sum[n][0], sum[n][1]);
    left[1] = bf16_pair(sum[n][2], sum[n][3]);
    left[2] = bf16_pair(sum[n + 1][0], sum[n + 1][1]);
    left[3] = bf16_pair(sum[n + 1][2], sum[n + 1][3]);
}

/** sum[piece][n] += left, rounded, times the tile's columns 64 piece + 8 n ... + 7. */
template <int head, int count>
__device__ __forceinline__ void rows_by_columns(float (&sum)[head / 64][EIGHT][4],
                                                const sums<count> &left, const bf16 *tile,
                                                uint32_t size) {
#pragma unroll
    for (int k = 0; k < count / 2; k++) {
        uint32_t rounded[4];
        round_sums<count>(rounded, left, 2 * k);
#pragma unroll
        for (uint32_t piece = 0; piece < head / 64; piece++) {
            if (piece * 64 >= size) break;
            uint32_t right[EIGHT][2];
#pragma unroll
            for (int n = 0; n < EIGHT; n += 2) {
                uint32_t held[4];
                load_16x16_transposed(held, tile + k * STEP * pitch<head> + piece * 64 + n * EIGHT,
                                      pitch<head>);
                right[n][0] = held[0], right[n][1] = held[1];
                right[n + 1][0] = held[2], right[n + 1][1] = held[3];
            }
            multiply_16x8<EIGHT>(sum[piece], rounded, right);
        }
    }
}

/** Stores a warp's (rows, size) numbers, times a factor for the lane's two rows. */
template <int head>
__device__ __forceinline__ void store_sums(bf16 *to, uint64_t step,
                                           const float (&sum)[head / 64][EIGHT][4],
                                           const float (&factor)[2], uint32_t rows, uint32_t size) {
    const uint32_t lane = threadIdx.x % 32, row = lane / 4, pair = lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (row + half * EIGHT >= rows) break;
        uint32_t *line = reinterpret_cast<uint32_t *>(to + (row + half * EIGHT) * step + pair);
#pragma unroll
        for (uint32_t n = 0; n < head / EIGHT; n++) {
            const float(&held)[4] = sum[n / EIGHT][n % EIGHT];
            if (n * EIGHT < size)
                line[n * EIGHT / 2] =
                    bf16_pair(held[2 * half] * factor[half], held[2 * half + 1] * factor[half]);
        }
    }
}

#endif

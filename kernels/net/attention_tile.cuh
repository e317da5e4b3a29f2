/* SPDX-License-Identifier: MIT */
/**
 * Attention by tiles of 64 tokens, on the ordinary cores: what its forward and its backward pass
 * share. Products are made of two tiles in shared memory, each (64, up to 64) with rows PITCH
 * apart; of a product's 64 x 64 numbers each of the 256 threads has 4 x 4, in registers. A head
 * that is wider than 64 goes through shared memory in pieces of 64 numbers, so 35 KB do for every
 * head size; the last piece is filled up with zeros.
 *
 * Reading 2 x 4 x 4 numbers for 64 products, a warp needs 12 of shared memory's cycles for 16 of
 * its multipliers': the multipliers' peak is in reach.
 */
#ifndef WEIR_KERNELS_ATTENTION_TILE_CUH
#define WEIR_KERNELS_ATTENTION_TILE_CUH

#include "net/attention_part.cuh"

enum {
    TILE = 64,
    PITCH = TILE + 4, /* 16-byte reads of eight neighbouring rows lie in all 32 banks */
    THREADS = 256,
    ACROSS = 16, /* threads along a row of a product */
    OWN = 4      /* rows and columns of a thread */
};

/** Loads (rows, columns) numbers into a tile, whose rest becomes 0. Rows in memory are `step`
 * apart.
 */
template <typename T>
__device__ __forceinline__ void load_tile(float *tile, const T *from, uint64_t step, uint32_t rows,
                                          uint32_t columns) {
    constexpr int at_once = 16 / sizeof(T), per_row = TILE / at_once;
    const bool wide = is_aligned(from) && (step | columns) % at_once == 0;
    if (wide) {
#pragma unroll
        for (uint32_t i = threadIdx.x; i < TILE * per_row; i += THREADS) {
            const uint32_t row = i / per_row, column = i % per_row * at_once;
            several<T, at_once> held = {};
            if (row < rows && column < columns)
                held = *reinterpret_cast<const several<T, at_once> *>(from + row * step + column);
#pragma unroll
            for (int k = 0; k < at_once; k += 4)
                *reinterpret_cast<several<float, 4> *>(tile + row * PITCH + column + k) = {
                    {widen(held.at[k]), widen(held.at[k + 1]), widen(held.at[k + 2]),
                     widen(held.at[k + 3])}};
        }
    } else {
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < TILE * TILE; i += THREADS) {
            const uint32_t row = i / TILE, column = i % TILE;
            const bool inside = row < rows && column < columns;
            tile[row * PITCH + column] = inside ? widen(from[row * step + column]) : 0.0f;
        }
    }
}

template <int count>
__device__ __forceinline__ const several<float, count> &several_at(const float *from) {
    return *reinterpret_cast<const several<float, count> *>(from);
}

/** The rows of a product that a thread has begin here. */
__device__ __forceinline__ uint32_t own_row() {
    return threadIdx.x / ACROSS * OWN;
}

/** Unrolled steps of multiply_heads beside so many pieces of a head's sums: as far as the registers
 * of sm_80 to sm_100 reach, by nvcc 13 and NVRTC 12.9, where two blocks share a processor. */
template <int pieces> constexpr int steps_unrolled = pieces == 2 ? 2 : 1;

/** sum[i][j] += a's row own_row() + i times b's row across + 16 j, over `columns` columns, or up to
 * three more, which are 0. */
template <int unroll>
__device__ __forceinline__ void rows_by_rows(float (&sum)[OWN][OWN], const float *a, const float *b,
                                             uint32_t columns) {
    a += own_row() * PITCH;
    b += threadIdx.x % ACROSS * PITCH;
#pragma unroll unroll
    for (uint32_t d = 0; d < columns; d += 4) {
        several<float, 4> x[OWN], y[OWN];
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            x[i] = several_at<4>(a + i * PITCH + d);
            y[i] = several_at<4>(b + i * ACROSS * PITCH + d);
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int i = 0; i < OWN; i++)
#pragma unroll
                for (int j = 0; j < OWN; j++) sum[i][j] = fmaf(x[i].at[k], y[j].at[k], sum[i][j]);
    }
}

/** sum[i][j] += a's row own_row() + i times b's column 4 across + j, over `count` of b's rows,
 * or up to three more, which are 0. */
__device__ __forceinline__ void rows_by_columns(float (&sum)[OWN][OWN], const float *a,
                                                const float *b, uint32_t count) {
    a += own_row() * PITCH;
    b += threadIdx.x % ACROSS * OWN;
#pragma unroll 2
    for (uint32_t k = 0; k < count; k += 4) {
        several<float, 4> x[OWN];
#pragma unroll
        for (int i = 0; i < OWN; i++) x[i] = several_at<4>(a + i * PITCH + k);
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const several<float, 4> y = several_at<4>(b + (k + l) * PITCH);
#pragma unroll
            for (int i = 0; i < OWN; i++)
#pragma unroll
                for (int j = 0; j < OWN; j++) sum[i][j] = fmaf(x[i].at[l], y.at[j], sum[i][j]);
        }
    }
}

/** A product of rows by rows becomes a tile. */
__device__ __forceinline__ void keep_tile(float *tile, const float (&numbers)[OWN][OWN]) {
    tile += own_row() * PITCH + threadIdx.x % ACROSS;
#pragma unroll
    for (int i = 0; i < OWN; i++)
#pragma unroll
        for (int j = 0; j < OWN; j++) tile[i * PITCH + j * ACROSS] = numbers[i][j];
}

/** Stores a thread's part of a product of rows by columns, those inside of (rows, columns). */
template <typename T>
__device__ __forceinline__ void store_rows(T *to, uint64_t step, const float (&numbers)[OWN][OWN],
                                           uint32_t rows, uint32_t columns) {
    const uint32_t column = threadIdx.x % ACROSS * OWN;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        if (own_row() + i >= rows) break;
        T *row = to + (own_row() + i) * step;
#pragma unroll
        for (int j = 0; j < OWN; j++)
            if (column + j < columns) row[column + j] = narrow<T>(numbers[i][j]);
    }
}

/** The columns of a head's piece that begins at `first`. */
__device__ __forceinline__ uint32_t columns_from(uint32_t first, uint32_t size) {
    return size - first < TILE ? size - first : TILE;
}

/** sum += tile of (rows of a, rows of b) over the whole head, piece by piece; both tiles are free
 * before and hold the last piece after. `unroll`: more needs more registers. All threads. */
template <int unroll, typename T>
__device__ __forceinline__ void multiply_heads(float (&sum)[OWN][OWN], float *a, float *b,
                                               const T *from_a, uint64_t step_a, uint32_t rows_a,
                                               const T *from_b, uint64_t step_b, uint32_t rows_b,
                                               uint32_t size) {
#pragma unroll 1
    for (uint32_t first = 0; first < size; first += TILE) {
        const uint32_t columns = columns_from(first, size);
        __syncthreads();
        load_tile(a, from_a + first, step_a, rows_a, columns);
        load_tile(b, from_b + first, step_b, rows_b, columns);
        __syncthreads();
        rows_by_rows<unroll>(sum, a, b, columns);
    }
}

/** sum[piece] += a (64, count) times the head's pieces of `count` rows, which come through b. If
 * b_holds_last, it holds the last piece already. a is there after a __syncthreads; b is free after
 * one. All threads. */
template <int pieces, typename T>
__device__ __forceinline__ void add_product(float (&sum)[pieces][OWN][OWN], const float *a,
                                            float *b, const T *from, uint64_t step, uint32_t count,
                                            uint32_t size, bool b_holds_last) {
    bool loaded = b_holds_last;
#pragma unroll
    for (int piece = pieces - 1; piece >= 0; piece--) {
        const uint32_t first = piece * TILE;
        if (first >= size) continue;
        if (!loaded) {
            __syncthreads();
            load_tile(b, from + first, step, count, columns_from(first, size));
        }
        loaded = false;
        __syncthreads();
        rows_by_columns(sum[piece], a, b, count);
    }
}

/** Stores a thread's part of (rows, size) numbers. */
template <int pieces, typename T>
__device__ __forceinline__ void store_pieces(T *to, uint64_t step,
                                             const float (&numbers)[pieces][OWN][OWN],
                                             uint32_t rows, uint32_t size) {
#pragma unroll
    for (int piece = 0; piece < pieces; piece++) {
        const uint32_t first = piece * TILE;
        if (first < size) store_rows(to + first, step, numbers[piece], rows, size - first);
    }
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * embedding: y[m] = table[index[m]]; NaN where the index is outside of the table
 * embedding_grad: dtable[v] = or += the sum over the tokens m with index[m] = v, ascending, of
 * dy[m]; of more than 32 tokens, in eight parts of all M, which are added in their order
 *
 * The gradient takes three launches: _clear empties the rows' lists of tokens, _link has every
 * token join its row's list, in whatever order, and count itself; _rows gives each row of the table
 * to a warp. Up to 32 tokens it puts in order. A row of more, of which there are at most M / 33,
 * its block's eight warps share once they have their own: each looks through an eighth of all
 * indices, in order. If an index is outside of the table, row 0 gets NaN.
 *
 * Memory: y is overwritten (=); dtable = (with rows that no token uses 0) or +=, where the sum is
 *   finished first; rows that no token uses are then left alone.
 * Bytes: forward M x C x (4 + 4 or 2). Gradient: reads M x C numbers, 24 M of indices and lists, 8
 * V; writes V x C floats, or reads and writes those of the rows used. Floor: that / bandwidth.
 * Launch: threads 256; forward and _rows: a warp a row; _rows has blocks (V / 8, C / 32 chunks).
 */
#include "net/chunk.cuh"
#include "net/cuda/table_arguments.h"

enum { WARPS = 8, NEAR = 32, SCAN = 256 };

template <typename T, bool whole>
__device__ __forceinline__ void copy_row(T *y, const float *row, uint32_t n, bool inside) {
    constexpr uint32_t width = chunk_width<T>, held = 4;
#pragma unroll 1
    for (uint32_t first = threadIdx.x % 32 * width; first < n; first += 32 * width * held) {
        floats<width> keep[held];
#pragma unroll
        for (uint32_t k = 0; k < held; k++) {
            const uint32_t i = first + k * 32 * width;
            if (i < n && inside) keep[k] = load_floats<whole, width>(row, i, n);
        }
#pragma unroll
        for (uint32_t k = 0; k < held; k++) {
            const uint32_t i = first + k * 32 * width;
            chunk<T> v;
#pragma unroll
            for (uint32_t e = 0; e < width; e++)
                v.at[e] = narrow<T>(inside ? keep[k].at[e] : f32_from_bits(0x7fffffff));
            if (i < n) store_chunk<whole>(y, i, n, v);
        }
    }
}

template <typename T>
__device__ __forceinline__ void embedding(const struct weir__cuda_embedding &call) {
    const uint32_t n = call.width;
    const bool whole = n % chunk_width<T> == 0 && is_aligned(call.y) && is_aligned(call.table);
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * WARPS;
#pragma unroll 1
    for (uint64_t m = static_cast<uint64_t>(blockIdx.x) * WARPS + threadIdx.x / 32; m < call.count;
         m += step) {
        const uint64_t index = static_cast<uint64_t>(call.index[m]);
        const bool inside = index < call.rows;
        const float *row = call.table + (inside ? index * n : 0);
        if (whole)
            copy_row<T, true>(static_cast<T *>(call.y) + m * n, row, n, inside);
        else
            copy_row<T, false>(static_cast<T *>(call.y) + m * n, row, n, inside);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    weir_embedding_f32(const __grid_constant__ struct weir__cuda_embedding call) {
    embedding<float>(call);
}
EXPORT_KERNEL(weir_embedding_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_embedding_bf16(const __grid_constant__ struct weir__cuda_embedding call) {
    embedding<bf16>(call);
}
EXPORT_KERNEL(weir_embedding_bf16);

/* ---- the gradient ---- */

extern "C" __global__ void __launch_bounds__(256)
    weir_embedding_clear(const __grid_constant__ struct weir__cuda_embedding_grad call) {
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * 256 + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * 256;
    for (uint64_t v = first; v < call.rows; v += step) call.used[v] = 0;
    if (first == 0) *call.bad = 0;
}
EXPORT_KERNEL(weir_embedding_clear);

/* last[v] needs no beginning: a list is followed as far as used[v] says. */
extern "C" __global__ void __launch_bounds__(256)
    weir_embedding_link(const __grid_constant__ struct weir__cuda_embedding_grad call) {
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * 256 + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * 256;
    for (uint64_t m = first; m < call.count; m += step) {
        const uint64_t v = static_cast<uint64_t>(call.index[m]);
        if (v >= call.rows) {
            *call.bad = 1;
            continue;
        }
        call.next[m] = atomicExch(&call.last[v], static_cast<uint32_t>(m));
        atomicAdd(&call.used[v], 1u);
    }
}
EXPORT_KERNEL(weir_embedding_link);

/* Adds dy's chunk i of the tokens listed, in their order. */
template <typename T, bool whole>
__device__ __forceinline__ void add_tokens(floats<chunk_width<T>> &sum, const T *dy, uint32_t n,
                                           uint32_t i, const uint32_t *tokens, uint32_t count) {
    constexpr uint32_t unroll = whole ? 8 : 2;
    if (i >= n) return;
#pragma unroll 1
    for (uint32_t first = 0; first < count; first += unroll) {
        chunk<T> held[unroll];
#pragma unroll
        for (uint32_t k = 0; k < unroll; k++)
            if (first + k < count)
                held[k] =
                    load_chunk<whole>(dy + static_cast<uint64_t>(tokens[first + k]) * n, i, n);
#pragma unroll
        for (uint32_t k = 0; k < unroll; k++) {
            if (first + k >= count) continue;
#pragma unroll
            for (uint32_t e = 0; e < chunk_width<T>; e++) sum.at[e] += widen(held[k].at[e]);
        }
    }
}

/* A row's list of up to 32 tokens, ascending, to `tokens`. All lanes. */
__device__ __forceinline__ void order_tokens(const struct weir__cuda_embedding_grad &call,
                                             uint32_t v, uint32_t count, uint32_t *tokens) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t own = 0xffffffffu, at = call.last[v], rank = 0;
    for (uint32_t k = 0; k < count; k++) {
        if (lane == k) own = at;
        if (k + 1 < count) at = call.next[at];
    }
    for (uint32_t k = 0; k < count; k++) rank += __shfl_sync(0xffffffffu, own, k) < own;
    if (lane < count) tokens[rank] = own;
    __syncwarp();
}

/* Those among tokens first … first + SCAN - 1, ascending, to `tokens`; returns how many. All
 * lanes. */
__device__ __forceinline__ uint32_t find_tokens(const struct weir__cuda_embedding_grad &call,
                                                uint32_t v, uint32_t first, uint32_t *tokens) {
    const uint32_t lane = threadIdx.x % 32;
    bool mine[SCAN / 32];
    uint32_t count = 0;
#pragma unroll
    for (uint32_t k = 0; k < SCAN / 32; k++) {
        const uint32_t m = first + k * 32 + lane;
        mine[k] = m < call.count && static_cast<uint64_t>(call.index[m]) == v;
    }
#pragma unroll
    for (uint32_t k = 0; k < SCAN / 32; k++) {
        const uint32_t all = __ballot_sync(0xffffffffu, mine[k]);
        const uint32_t before = static_cast<uint32_t>(__popc(all & ((1u << lane) - 1)));
        if (mine[k]) tokens[count + before] = first + k * 32 + lane;
        count += static_cast<uint32_t>(__popc(all));
    }
    __syncwarp();
    return count;
}

/* Gives row v its sum. */
template <bool whole, uint32_t width>
__device__ __forceinline__ void store_row(const struct weir__cuda_embedding_grad &call, uint32_t v,
                                          uint32_t i, floats<width> sum) {
    const uint32_t n = call.width;
    const bool bad = v == 0 && *call.bad != 0;
    float *to = call.dtable + static_cast<uint64_t>(v) * n;
    if (i >= n) return;
    const floats<width> old =
        call.overwrite != 0 ? floats<width>{} : load_floats<whole, width>(to, i, n);
#pragma unroll
    for (uint32_t e = 0; e < width; e++) {
        if (bad) sum.at[e] = f32_from_bits(0x7fffffff);
        if (call.overwrite == 0) sum.at[e] = old.at[e] + sum.at[e];
    }
    store_floats<whole>(to, i, n, sum);
}

/* What a block shares: its warps' tokens, and what they have of a row. */
struct block_rows {
    uint32_t tokens[WARPS][SCAN];
    float part[WARPS][32 * 8];
};

/* A row of up to NEAR tokens. A warp. */
template <typename T, bool whole>
__device__ __forceinline__ void sum_near(const struct weir__cuda_embedding_grad &call, uint32_t v,
                                         uint32_t count, uint32_t i, uint32_t *tokens) {
    floats<chunk_width<T>> sum = {};
    const bool bad = v == 0 && *call.bad != 0;
    if (count == 0 && !bad && call.overwrite == 0) return;
    order_tokens(call, v, count, tokens);
    add_tokens<T, whole>(sum, static_cast<const T *>(call.dy), call.width, i, tokens, count);
    store_row<whole, chunk_width<T>>(call, v, i, sum);
}

/* A row of more. The block. */
template <typename T, bool whole>
__device__ __forceinline__ void sum_far(const struct weir__cuda_embedding_grad &call, uint32_t v,
                                        uint32_t i, struct block_rows &shared) {
    constexpr uint32_t width = chunk_width<T>;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t share = (call.count + WARPS * SCAN - 1) / (WARPS * SCAN) * SCAN;
    const uint32_t end = (warp + 1) * share < call.count ? (warp + 1) * share : call.count;
    floats<width> sum = {};
#pragma unroll 1
    for (uint32_t first = warp * share; first < end; first += SCAN) {
        const uint32_t found = find_tokens(call, v, first, shared.tokens[warp]);
        add_tokens<T, whole>(sum, static_cast<const T *>(call.dy), call.width, i,
                             shared.tokens[warp], found);
        __syncwarp();
    }
#pragma unroll
    for (uint32_t e = 0; e < width; e++) shared.part[warp][e * 32 + lane] = sum.at[e];
    __syncthreads();
    if (warp == 0) {
#pragma unroll 1
        for (uint32_t w = 1; w < WARPS; w++)
#pragma unroll
            for (uint32_t e = 0; e < width; e++) sum.at[e] += shared.part[w][e * 32 + lane];
        store_row<whole, width>(call, v, i, sum);
    }
    __syncthreads();
}

template <typename T, bool whole>
__device__ __forceinline__ void sum_rows(const struct weir__cuda_embedding_grad &call,
                                         struct block_rows &shared) {
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t i = (blockIdx.y * 32 + threadIdx.x % 32) * chunk_width<T>;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * WARPS, own = first + warp;
    const uint32_t count = own < call.rows ? call.used[own] : NEAR + 1;
    if (count <= NEAR)
        sum_near<T, whole>(call, static_cast<uint32_t>(own), count, i, shared.tokens[warp]);
#pragma unroll 1
    for (uint64_t v = first; v < first + WARPS && v < call.rows; v++)
        if (call.used[v] > NEAR) sum_far<T, whole>(call, static_cast<uint32_t>(v), i, shared);
}

template <typename T>
__device__ __forceinline__ void embedding_rows(const struct weir__cuda_embedding_grad &call) {
    __shared__ struct block_rows shared;
    const bool whole =
        call.width % chunk_width<T> == 0 && is_aligned(call.dy) && is_aligned(call.dtable);
    if (whole)
        sum_rows<T, true>(call, shared);
    else
        sum_rows<T, false>(call, shared);
}

extern "C" __global__ void __launch_bounds__(256, 3)
    weir_embedding_rows_f32(const __grid_constant__ struct weir__cuda_embedding_grad call) {
    embedding_rows<float>(call);
}
EXPORT_KERNEL(weir_embedding_rows_f32);

extern "C" __global__ void __launch_bounds__(256, 3)
    weir_embedding_rows_bf16(const __grid_constant__ struct weir__cuda_embedding_grad call) {
    embedding_rows<bf16>(call);
}
EXPORT_KERNEL(weir_embedding_rows_bf16);

/* SPDX-License-Identifier: MIT */
/** Which part of an attention pass a block has, and where that lies. */
#ifndef WEIR_KERNELS_ATTENTION_PART_CUH
#define WEIR_KERNELS_ATTENTION_PART_CUH

#include "net/cuda/attention_arguments.h"
#include "net/number.cuh"

/** Some tokens of a head. */
struct block_part {
    uint32_t first; /* token */
    uint32_t head;
    uint64_t row; /* of the micro-batch */
};

/** Of one of `heads` heads a block has `tile` tokens. Blocks that have most to do begin first:
 * those with the last tokens where each goes over the tokens before its own, else those with the
 * first ones. */
__device__ __forceinline__ struct block_part part_of_block(const struct weir__cuda_attention &pass,
                                                           uint32_t heads, uint32_t tile,
                                                           bool last_first) {
    const uint32_t tiles = (pass.tokens + tile - 1) / tile;
    const uint32_t index = blockIdx.x % tiles, rest = blockIdx.x / tiles;
    return {(last_first ? tiles - 1 - index : index) * tile, rest % heads, rest / heads};
}

/** A query sees the keys from this one on: the last `reach` up to its own, or all. */
__device__ __forceinline__ uint32_t keys_first(const struct weir__cuda_attention &pass,
                                               uint32_t query) {
    return query < pass.reach ? 0 : query + 1 - pass.reach;
}

/** And before this one. */
__device__ __forceinline__ uint32_t keys_seen(const struct weir__cuda_attention &pass,
                                              uint32_t query) {
    return pass.sees_all ? pass.tokens : query + 1;
}

/** Whether it sees a key: for one behind the last that it sees the difference is a huge number. */
__device__ __forceinline__ bool sees(const struct weir__cuda_attention &pass, uint32_t query,
                                     uint32_t key) {
    return keys_seen(pass, query) - 1 - key < pass.reach;
}

/** The first query that sees a key. */
__device__ __forceinline__ uint32_t first_reader(const struct weir__cuda_attention &pass,
                                                 uint32_t key) {
    return pass.sees_all ? 0 : key;
}

/** The query behind the last one that does. */
__device__ __forceinline__ uint32_t readers_end(const struct weir__cuda_attention &pass,
                                                uint32_t key) {
    const uint32_t end = key + pass.reach;
    return end < pass.tokens ? end : pass.tokens;
}

/** The first of a head's numbers in a row whose tokens are `step` apart. */
__device__ __forceinline__ uint64_t head_at(const struct weir__cuda_attention &pass, uint64_t row,
                                            uint32_t head, uint64_t step) {
    return row * pass.tokens * step + head * pass.size;
}

/** A head of queries in all that the backward pass reads and writes of it. */
template <typename T> struct query_head {
    const T *q, *dy, *y;
    T *dq;
    const float *lse;
    float *delta;
    uint64_t width; /* from token to token of dy and y: C */
};

template <typename T>
__device__ __forceinline__ struct query_head<T> query_head_of(
    const struct weir__cuda_attention &pass, uint64_t row, uint32_t head) {
    const uint64_t width = static_cast<uint64_t>(pass.heads) * pass.size;
    const uint64_t at = head_at(pass, row, head, pass.step);
    const uint64_t at_y = head_at(pass, row, head, width);
    const uint64_t at_lse = (row * pass.heads + head) * pass.tokens;
    return {static_cast<const T *>(pass.q) + at,
            static_cast<const T *>(pass.dy) + at_y,
            static_cast<const T *>(pass.y) + at_y,
            static_cast<T *>(pass.dq) + at,
            pass.lse + at_lse,
            pass.delta + at_lse,
            width};
}

/** The numbers of a head of keys or values, or of their gradients. */
template <typename T>
__device__ __forceinline__ T *kv_head_of(const struct weir__cuda_attention &pass, T *numbers,
                                         uint64_t row, uint32_t head) {
    return numbers + head_at(pass, row, head, pass.kv_step);
}

#endif

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

/** A block has `tile` tokens. Blocks that have most to do begin first: those with the last tokens
 * where each goes over the tokens before its own, else those with the first ones. */
__device__ __forceinline__ struct block_part part_of_block(const struct weir__cuda_attention &pass,
                                                           uint32_t tile, bool last_first) {
    const uint32_t tiles = (pass.tokens + tile - 1) / tile;
    const uint32_t index = blockIdx.x % tiles, rest = blockIdx.x / tiles;
    return {(last_first ? tiles - 1 - index : index) * tile, rest % pass.heads, rest / pass.heads};
}

/** A query sees the keys before this one: those up to its own, or all. */
__device__ __forceinline__ uint32_t keys_seen(const struct weir__cuda_attention &pass,
                                              uint32_t query) {
    return pass.sees_all ? pass.tokens : query + 1;
}

/** The first query that sees a key. */
__device__ __forceinline__ uint32_t first_reader(const struct weir__cuda_attention &pass,
                                                 uint32_t key) {
    return pass.sees_all ? 0 : key;
}

/** The first of a head's numbers in (R, T, parts, heads, size). */
__device__ __forceinline__ uint64_t head_at(const struct weir__cuda_attention &pass,
                                            const struct block_part &part, uint32_t parts,
                                            uint32_t which) {
    const uint64_t width = static_cast<uint64_t>(pass.heads) * pass.size;
    return part.row * pass.tokens * parts * width + which * width + part.head * pass.size;
}

/** A head in all that the backward pass reads and writes. */
template <typename T> struct head_pointers {
    const T *q, *k, *v, *dy, *y;
    T *dqkv; /* dq's */
    const float *lse;
    float *delta;
    uint64_t step, width; /* from token to token: 3C in qkv and dqkv, C elsewhere */
};

template <typename T>
__device__ __forceinline__ struct head_pointers<T> pointers_of(
    const struct weir__cuda_attention &pass, const struct block_part &part) {
    const uint64_t width = static_cast<uint64_t>(pass.heads) * pass.size;
    const uint64_t at = head_at(pass, part, 3, 0), at_y = head_at(pass, part, 1, 0);
    const uint64_t at_lse = (part.row * pass.heads + part.head) * pass.tokens;
    const T *qkv = static_cast<const T *>(pass.qkv) + at;
    return {qkv,
            qkv + width,
            qkv + 2 * width,
            static_cast<const T *>(pass.dy) + at_y,
            static_cast<const T *>(pass.y) + at_y,
            static_cast<T *>(pass.dqkv) + at,
            pass.lse + at_lse,
            pass.delta + at_lse,
            3 * width,
            width};
}

#endif

/* SPDX-License-Identifier: MIT */
/**
 * What kernels take by value, or read and write in memory: shared by the launchers, which are C,
 * and the kernels, which are CUDA C++. Plain data, laid out the same by every compiler.
 */
#ifndef WEIR_DEVICE_CUDA_ARGUMENTS_H
#define WEIR_DEVICE_CUDA_ARGUMENTS_H

#include <stdint.h>

/** Rows of `row_bytes` that stand `pitch` bytes apart; a pitch may be row_bytes (contiguous). */
struct weir__cuda_rows {
    void *to;         /**< (rows, to_pitch) */
    const void *from; /**< (rows, from_pitch) */
    uint64_t to_pitch, from_pitch, row_bytes, rows;
    uint32_t width; /**< 1, 2, 4, 8 or 16: divides both pointers, both pitches and row_bytes */
};

enum {
    WEIR__CUDA_BATCH_COPIES = 64,     /**< in one launch: 2 KiB of its 4 KiB of parameters */
    WEIR__CUDA_BATCH_TILE = 16 * 1024 /**< bytes that one block copies */
};

struct weir__cuda_batch_copy {
    void *to;
    const void *from;
    uint64_t bytes;
    uint64_t first_tile; /**< tiles of the copies before this one */
};

/** Copies of any sizes and alignments, in one launch. */
struct weir__cuda_batch {
    struct weir__cuda_batch_copy copies[WEIR__CUDA_BATCH_COPIES];
    uint32_t count;
};

enum { WEIR__CUDA_NARROW = 16 };

/** Batched transposition: for each of `count` matrices, (down, across) to (across, down). */
struct weir__cuda_transpose {
    void *to;         /**< (count, across, down) */
    const void *from; /**< (count, down, across) */
    uint64_t count, down, across;
    uint32_t strip; /**< 0: in square tiles; else one side is at most WEIR__CUDA_NARROW, and a block
                         takes so much of the other one; strip + 1 times
                         the narrow side is at most 1024 */
};

/** Which random words: see weir__philox_words. */
struct weir__cuda_random {
    uint32_t *to; /**< (rows, elements), 4-byte aligned */
    uint64_t rows, elements;
    uint64_t seed, mini_batch;
    uint32_t op, row_first;
};

/** What a byte range is filled with: `bytes` of a pattern of 16. */
struct weir__cuda_fill {
    void *to;
    uint64_t bytes;
    uint32_t pattern[4]; /**< byte i of the range is byte i % 16 of this */
};

#endif

/* SPDX-License-Identifier: MIT */
/**
 * What attention's kernels take by value: shared by the launchers, which are C, and the kernels,
 * which are CUDA C++. Plain data, laid out the same by every compiler. Shapes as in net/kernel.h;
 * `size` is that of a head, C = heads x size.
 */
#ifndef WEIR_NET_CUDA_ATTENTION_ARGUMENTS_H
#define WEIR_NET_CUDA_ATTENTION_ARGUMENTS_H

#include <stdint.h>

/** A pass over whole sequences. Each head of k and v serves `group` heads of q in turn. What a pass
 * does not use is NULL. */
struct weir__cuda_attention {
    const void *q;      /**< (R, T, heads, size), tokens `step` numbers apart */
    const void *k, *v;  /**< (R, T, heads / group, size), tokens `kv_step` apart */
    void *y;            /**< (R, T, heads, size); only read by the backward pass */
    float *lse;         /**< (R, heads, T); likewise */
    const void *dy;     /**< (R, T, heads, size) */
    void *dq, *dk, *dv; /**< as q, k, v */
    float *delta;       /**< (R, heads, T): dy . y, made by dq's kernel for that of dk and dv */
    uint64_t step, kv_step;
    uint32_t tokens, heads, group, size;
    uint32_t reach;    /**< a query sees the last so many keys up to its own; 1 to T */
    uint32_t sees_all; /**< a query sees every key, and reach is T */
    float scale;       /**< 1 / sqrt(size) */
};

enum {
    WEIR__CUDA_PLACES = 128,      /**< rows of one launch: 1 KiB of its 4 KiB of parameters */
    WEIR__CUDA_CACHED_PART = 256, /**< places that a block takes of a row's past */
    WEIR__CUDA_CACHED_HEAD = 2    /**< numbers of a part before the sums of its values */
};

/** Where rows stand, as in weir__places: those of one launch. */
struct weir__cuda_places {
    uint32_t sequence[WEIR__CUDA_PLACES], place[WEIR__CUDA_PLACES];
};

/** Attention of single tokens over a cache. Pointers are the launch's first row's. */
struct weir__cuda_cached {
    const void *q;     /**< (rows, heads, size), `step` numbers apart */
    const void *k, *v; /**< (rows, heads / group, size), `kv_step` apart */
    void *y;           /**< (rows, heads, size) */
    void *cache;       /**< (sequences, table, 2, heads / group, size) */
    /** (rows, heads, part_count, CACHED_HEAD + size): a part's largest score, the sum of its shares
     * relative to that, and of those times their values. Of rows of one part nothing is here. */
    float *parts;
    uint64_t step, kv_step;
    uint32_t part_count; /**< of the row that has most */
    uint32_t table, heads, group, size;
    uint32_t reach; /**< a row sees the last so many places up to its own; 1 to table */
    float scale;    /**< 1 / sqrt(size) */
    struct weir__cuda_places places;
};

struct weir__cuda_position_cached {
    void *y;            /**< (rows, width) */
    const void *x;      /**< (rows, width) */
    const float *table; /**< (P, width) */
    uint64_t width;
    struct weir__cuda_places places;
};

enum { WEIR__CUDA_ROPE_PAIRS = 128 /**< of a head, at most */ };

/** Rotary positions. y may be x. */
struct weir__cuda_rope {
    void *y;         /**< (rows, heads, 2, pairs) */
    const void *x;   /**< (rows, heads, 2, pairs) */
    uint64_t rows;   /**< tokens of all sequences */
    uint32_t tokens; /**< of a sequence: row r is token r % tokens */
    uint32_t heads, pairs;
    float way;                                /**< 1, or -1 to turn back */
    float frequencies[WEIR__CUDA_ROPE_PAIRS]; /**< radians per token */
};

/** Of single tokens, at their places. Pointers are the launch's first row's. */
struct weir__cuda_rope_cached {
    struct weir__cuda_rope rope;
    struct weir__cuda_places places;
};

#endif

/* SPDX-License-Identifier: MIT */
/**
 * What the forward and the backward pass of our attention share. Work goes by (row of the
 * micro-batch, head) and, within one, by blocks of 32 queries, which stand in the lanes of two
 * vectors: so the softmax over keys needs no sum across lanes, and a query's place decides nothing
 * but its lane. Scores of a block lie key by key, 32 numbers each.
 */
#ifndef WEIR_ATTENTION_H
#define WEIR_ATTENTION_H

#include "net/cpu/cpu.h"
#include "net/cpu/panel.h"

/** All tokens' keys or values as products read them, `step` floats apart. */
struct weir__head_rows {
    const float *at;
    int64_t step;
};

/** One head of one row of the micro-batch; tokens' vectors of y lie C apart. */
struct weir__head {
    int64_t tokens, width; /**< T, C */
    int64_t size;          /**< C / heads */
    int64_t padded;        /**< size, up to a multiple of 16: the row of packed matrices */
    bool sees_all;         /**< a query sees every key, not only those up to its own */
    int64_t reach;         /**< > 0: only as many keys, its own the last */
    float scale;           /**< 1 / sqrt(size) */
    const number *q, *k, *v;
    int64_t step, kv_step;               /**< from token to token, of q, and of k and v */
    struct weir__head_rows keys, values; /**< the latter in the backward pass only */
    const float *lse;                    /**< (T); the backward pass only */
    const int64_t *documents; /**< (T) of packed rows: where each token's begins; else NULL */
};

/** Of packed rows, where the documents of a block's queries begin. */
struct weir__head_documents {
    int64_t last;                 /**< the last query's; 0: every query sees from the first key on */
    int32_t first[2 * LANES]; /**< of each lane's query, counted from the block's first */
};

/** Multiply-adds of all heads' forward pass. */
double VECTOR(attention_work)(const struct weir__op_shape *shape);
/** Fills what all heads of a shape share; pointers are NULL. */
struct weir__head VECTOR(head_of)(const struct weir__op_shape *shape);
/** Puts the head where it stands in q, k and v, or qkv. */
void VECTOR(head_stands)(struct weir__head *head, const struct weir__head_place *at,
                         const void *const *in);
/** Of the row, where rows are packed: then `in` begins with the documents. */
void VECTOR(head_takes_documents)(struct weir__head *head, const struct weir__op_shape *shape,
                                  const void *const *in, int64_t row);
/** Of the block of queries from `first` on. */
struct weir__head_documents VECTOR(head_documents)(const struct weir__head *head, int64_t first);
/** The keys that a block of queries from `first` on sees: from the first up to, not with, the end,
 * which is the block's own, or that of all. */
int64_t VECTOR(head_keys_first)(const struct weir__head *head, int64_t first);
int64_t VECTOR(head_keys)(const struct weir__head *head, int64_t first);
/** Queries in the block from `first` on: 32, or what is left. */
int64_t VECTOR(head_queries)(const struct weir__head *head, int64_t first);
/** Packs all tokens' vectors of k or v as floats, (T, padded). */
void VECTOR(head_pack)(const struct weir__head *head, const number *vectors, float *to);
/** The vectors where they lie, if they are floats; else packed in `room` (T, padded). */
struct weir__head_rows VECTOR(head_rows)(const struct weir__head *head, const number *vectors,
                                         float *room);
/** c (rows, head's padded size) by panels of columns; a, b, modes and distances as in `panel`,
 * whose columns are ignored. */
void VECTOR(head_product)(const struct weir__head *head, const struct weir__panel *panel);

/** Whether some query of the block from `first` on, whose documents these are, does not see `key`.
 */
VECTOR_INLINE bool weir__head_masks(const struct weir__head *head,
                                    const struct weir__head_documents *documents, int64_t first,
                                    int64_t key) {
    bool beyond = head->reach > 0 && key + head->reach < first + WEIR__PANEL;
    return beyond || key < documents->last || (!head->sees_all && key > first);
}
/** All ones in the lanes of vector `half` (0, 1) of the block from `first` on whose query may see
 * `key`, where keys end at the query. */
VECTOR_INLINE vint weir__head_mask(const struct weir__head *head,
                                   const struct weir__head_documents *documents, int64_t first,
                                   int half, int64_t key) {
    int32_t least = (int32_t)(key - first) - half * LANES;
    vint seen = v_lane_numbers() >= least, begins;
    if (head->reach > 0) seen &= v_lane_numbers() < least + (int32_t)head->reach;
    if (key >= documents->last) return seen;
    memcpy(&begins, documents->first + half * LANES, sizeof begins);
    return seen & (begins <= (int32_t)(key - first));
}

#endif

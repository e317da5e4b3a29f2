/* SPDX-License-Identifier: MIT */
/** What the kernels of tables and losses take by value: as arguments.h. */
#ifndef WEIR_NET_CUDA_TABLE_ARGUMENTS_H
#define WEIR_NET_CUDA_TABLE_ARGUMENTS_H

#include <stdint.h>

struct weir__cuda_embedding {
    void *y;              /**< (count, width) */
    const int64_t *index; /**< (count) */
    const float *table;   /**< (rows, width) */
    uint64_t count;
    uint32_t rows, width;
};

struct weir__cuda_embedding_grad {
    float *dtable;        /**< (rows, width) */
    const int64_t *index; /**< (count) */
    const void *dy;       /**< (count, width) */
    uint32_t *used;       /**< (rows): tokens of a row */
    uint32_t *last;       /**< (rows): any of them */
    uint32_t *next;       /**< (count): another token of the same row */
    uint32_t *bad;        /**< whether an index is outside of the table */
    uint32_t count, rows, width, overwrite;
};

/** position_add, position_grad; a row of the micro-batch has `width` numbers, tokens x C. */
struct weir__cuda_position {
    void *y;            /**< (rows, width); position_add */
    const void *x;      /**< (rows, width): dy of the gradient */
    const float *table; /**< (width …); position_add */
    float *dtable;      /**< (table_width); the gradient's */
    uint64_t rows;
    uint32_t width, table_width, overwrite;
};

struct weir__cuda_cross_entropy {
    const void *logits;     /**< (rows, width) */
    const int64_t *target;  /**< (rows) */
    float *largest, *total; /**< (rows) */
    double *partial;        /**< (rows): each one's loss */
    uint64_t rows;
    int64_t ignore_index;
    uint32_t width;
};

struct weir__cuda_cross_entropy_grad {
    void *dlogits;                /**< (rows, width); may be logits */
    const void *logits;           /**< (rows, width) */
    const int64_t *target;        /**< (rows) */
    const float *largest, *total; /**< (rows) */
    uint64_t rows;
    int64_t ignore_index;
    uint32_t width;
    float share; /**< 1 / weight */
};

/** Losses of single numbers: a block sums up WEIR__CUDA_LOSS_TILE of them. */
struct weir__cuda_loss {
    double *partial;   /**< (tiles) */
    const void *x, *t; /**< (count) */
    uint64_t count;
};
enum { WEIR__CUDA_LOSS_TILE = 4096 };

#endif

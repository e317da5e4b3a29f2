/* SPDX-License-Identifier: MIT */
/**
 * What the norms' kernels take by value: as arguments.h. Shapes as in net/kernel.h.
 */
#ifndef WEIR_NET_CUDA_NORM_ARGUMENTS_H
#define WEIR_NET_CUDA_NORM_ARGUMENTS_H

#include <stdint.h>

/** layer_norm, and add_layer_norm of x + b. */
struct weir__cuda_layer_norm {
    void *y;                    /**< (rows, width) */
    void *sum;                  /**< (rows, width): x + b, or NULL */
    float *mean, *rstd;         /**< (rows) */
    const void *x, *b;          /**< (rows, width); b is NULL without sum */
    const float *weight, *bias; /**< (width) */
    uint64_t rows;
    uint32_t width;
    float eps;
};

struct weir__cuda_layer_norm_grad {
    void *dx;                 /**< (rows, width) */
    const void *dy, *x;       /**< (rows, width) */
    const void *dsum;         /**< (rows, width), added to dx; or NULL */
    const float *mean, *rstd; /**< (rows) */
    const float *weight;      /**< (width) */
    uint64_t rows;
    uint32_t width;
};

/** The weight's and the bias's gradients, for parts of the rows. */
struct weir__cuda_layer_norm_weight {
    float *partial;     /**< (parts, 2, width) */
    const void *dy, *x; /**< (rows, width) */
    const float *mean, *rstd;
    uint64_t rows;
    uint32_t width;
    uint64_t part_rows; /**< of each part but the last */
};

/** Sums over parts: to[k][i] = or += the sum of partial[part][k][i]. */
struct weir__cuda_fold {
    float *to[2];         /**< (width); the second may be NULL: then partial is (parts, width) */
    const float *partial; /**< (parts, 2, width) */
    uint64_t parts, width;
    uint32_t overwrite;
};

#endif

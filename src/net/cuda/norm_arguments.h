/* SPDX-License-Identifier: MIT */
/**
 * What the norms' kernels take by value: as arguments.h. Shapes as in net/kernel.h.
 */
#ifndef WEIR_NET_CUDA_NORM_ARGUMENTS_H
#define WEIR_NET_CUDA_NORM_ARGUMENTS_H

#include "net/cuda/arguments.h"

/** layer_norm, add_layer_norm of x + b, and rms_norm, which has no mean and no bias and may have no
 * weight (NULL). */
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

/** The weight's and the bias's gradients, for parts of the rows; rms_norm has no mean, no bias. */
struct weir__cuda_norm_weight {
    float *partial;           /**< (parts, 2, width), or (parts, width) */
    const void *dy, *x;       /**< (rows, width) */
    const float *mean, *rstd; /**< (rows); rms_norm: no mean */
    uint64_t rows;
    uint32_t width;
    uint64_t part_rows; /**< of each part but the last */
};

enum { WEIR__CUDA_SOURCES_MAX = 64 }; /**< WEIR__SOURCES_MAX */

/** See kernels/net/residual_mix.cu. */
struct weir__cuda_mix {
    void *y;                     /**< (rows, width) */
    float *share, *rstd;         /**< (rows, sources) */
    const float *weight, *query; /**< (width) */
    uint64_t rows;
    uint32_t width, sources;
    uint32_t whole; /**< rows and pointers are multiples of 16 bytes */
    float eps;
    const void *x[WEIR__CUDA_SOURCES_MAX]; /**< (rows, width) each */
};

struct weir__cuda_mix_grad {
    float *pull;                 /**< (rows, width) */
    const void *dy;              /**< (rows, width) */
    const float *share, *rstd;   /**< (rows, sources) */
    const float *weight, *query; /**< (width) */
    uint64_t rows;
    uint32_t width, sources;
    uint32_t whole;
    void *dx[WEIR__CUDA_SOURCES_MAX]; /**< (rows, width) each, as the next two */
    const void *x[WEIR__CUDA_SOURCES_MAX];
    const void *sum[WEIR__CUDA_SOURCES_MAX]; /**< NULL: 0 */
};

struct weir__cuda_mix_weight {
    float *dweight, *dquery;           /**< (width) */
    const float *sum, *weight, *query; /**< (width) */
    uint32_t width, overwrite;
};

/** Sums over parts: to[k][i] = or += the sum of partial[part][k][i]. */
struct weir__cuda_fold {
    float *to[2];         /**< (width); the second may be NULL: then partial is (parts, width) */
    const float *partial; /**< (parts, 2, width) */
    uint64_t parts, width;
    uint32_t overwrite;
};

/** The norms over the pixels of a row: see kernels/net/instance_norm.cu. */
struct weir__cuda_instance {
    void *out;                  /**< (rows, pixels, channels): y, or dx */
    const void *x, *dy, *sign;  /**< (rows, pixels, channels); sign: y of the gradient with an
                                     activation, else NULL */
    float *mean, *rstd;         /**< (rows, channels); a gradient reads them */
    const float *weight, *bias; /**< (channels), or NULL */
    double *partial;            /**< (rows, parts, 2, channels) */
    float *means;               /**< (rows, 2, channels), of a gradient */
    uint64_t rows;
    uint32_t pixels, channels;
    uint32_t parts, part_pixels; /**< of each part but the last */
    uint32_t across_log2;        /**< threads over the channels of a pixel, 4 each */
    float slope;                 /**< of the activation; 1: none */
    double eps;
    struct weir__cuda_mask mask; /**< what is dropped first; its threshold is 0 if nothing is */
};

enum { WEIR__CUDA_DIGITS = 24 }; /**< WEIR__MOMENT_DIGITS */

/** What a batch norm does with channels: see kernels/net/batch_norm.cu. */
struct weir__cuda_batch_norm {
    double *mean, *variance;                      /**< (channels) */
    const float *running_mean, *running_variance; /**< (channels), instead of those; or NULL */
    double *sum, *product;                        /**< (channels), of a gradient; else NULL */
    const float *weight;                          /**< (channels), or NULL */
    float *middle, *factor;                       /**< (channels): as the passes take them */
    float *means;                                 /**< (2, channels), likewise */
    const double *partial;                        /**< (parts, 2, channels) */
    double eps;
    uint64_t pixels;
    uint32_t channels, parts;
};

/** What a micro-batch adds to a mini-batch's moments. */
struct weir__cuda_batch_statistics {
    const double *mean, *variance; /**< (channels) */
    const float *running_mean;     /**< (channels) */
    float *moments;                /**< net/moments.h */
    /** struct weir__moment_weights */
    double weight_mean, weight_variance, weight_squares, count;
    uint32_t channels, overwrite;
};

/** struct weir__running_numbers in F32. */
struct weir__cuda_batch_running {
    const float *moments;
    float *mean, *variance; /**< (channels) */
    int64_t *batches;
    double momentum; /**< < 0: cumulative */
    uint32_t channels, plain;
};

#endif

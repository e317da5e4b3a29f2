/* SPDX-License-Identifier: MIT */
/** Whole training steps of one model on GPUs in BF16, next to what they could be at best, and in
 * turns with another program's. */
#ifndef WEIR_BENCH_GPU_TRAIN_H
#define WEIR_BENCH_GPU_TRAIN_H

#include "gpu.h"
#include "weir_net.h"

enum { GPU_SMALL_ROWS = 12 };

struct gpu_job {
    const char *topic;
    const char *rate_unit;    /**< "tokens/s"; a step has item_count of them */
    struct weir_model *model; /**< the caller's */
    struct weir_model *small; /**< as many kernels, hardly any work: for the host's time */
    int64_t rows;             /**< the mini-batch */
    const void *input, *target;
    const void *small_input, *small_target; /**< GPU_SMALL_ROWS of the small model */
    double item_count;
    double flops;            /**< of a step, forward and backward */
    const char *flops_words; /**< how they are counted */
    double mfu_least;        /**< bound of the share of the data sheet's peak; NaN: none */
    double lr, clip_norm;
    bool adamw;          /**< with GPT-2's numbers; else SGD */
    const char *script;  /**< of the peer, in options.peers */
    char arguments[160]; /**< of the peer, behind --serve */
    const char *judged;  /**< the peer's variant that ours is to be at least as fast as */
};

/** Runs the job and adds its results. Where a library that it takes is missing, only says so. */
void gpu_train(struct bench *bench, const struct gpu_job *job);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * What both overhead benches share: the cost of one (micro-batch x stage), forward and backward, is
 * the slope of the median step time over the number of micro-batches, divided by the stages. What a
 * step costs once (hand-out, norm, update) is the intercept and stays out.
 */
#ifndef WEIR_BENCH_OVERHEAD_H
#define WEIR_BENCH_OVERHEAD_H

#include "harness.h"

enum {
    OVERHEAD_STAGES = 2,
    OVERHEAD_POINTS = 7, /**< counts of micro-batches */
    OVERHEAD_LEAST = 8,  /**< the first, doubling */
    OVERHEAD_MOST = OVERHEAD_LEAST << (OVERHEAD_POINTS - 1)
};

/** Something that runs steps of one-row micro-batches over two stages. */
struct overhead_case {
    /** One step; returns its time in ns. */
    uint64_t (*step)(void *context, uint32_t micro_batches);
    void *context;
    uint32_t rounds;                    /**< samples so far, with the warm-up's */
    double (*medians)[OVERHEAD_POINTS]; /**< [round][point], s per step */
};

/** Makes `medians`. */
void overhead_case_init(struct bench *bench, struct overhead_case *one,
                        uint64_t (*step)(void *, uint32_t), void *context);
/** A bench_case's `sample`; `context` is the struct overhead_case, the value its slope per stage in
 * seconds. */
void overhead_sample(struct bench *bench, void *context, double *value);
/** Adds a result for a sampled case, with the fit over all rounds in its note. */
struct bench_result *overhead_report(struct bench *bench, const struct bench_case *sampled,
                                     double ideal, double at_most);

/** Net stages of one `linear` 1 -> 1 each; `engine` is what empty callbacks took under 1F1B and
 * GPipe, s. */
void overhead_net(struct bench *bench, const double engine[2]);

#endif

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
    OVERHEAD_WORKERS = 2,
    OVERHEAD_STAGES_MOST = 4,
    OVERHEAD_SCHEDULES_MOST = 32,
    OVERHEAD_POINTS = 7, /**< counts of micro-batches */
    OVERHEAD_LEAST = 8,  /**< the first, doubling */
    OVERHEAD_MOST = OVERHEAD_LEAST << (OVERHEAD_POINTS - 1)
};

/** A schedule of two workers, each with as many stages as it is made of. */
struct overhead_schedule {
    const char *name;
    uint32_t stages;
    double ideal;  /**< per (micro-batch x stage), s, were there nothing but clock and hand-offs */
    double engine; /**< what empty callbacks took, s */
};

/** Those that run on two workers, 1f1b first; returns how many. */
uint32_t overhead_schedules(struct bench *bench,
                            struct overhead_schedule list[OVERHEAD_SCHEDULES_MOST]);

/** Something that runs steps of one-row micro-batches. */
struct overhead_case {
    uint32_t stages;
    /** One step; returns its time in ns. */
    uint64_t (*step)(void *context, uint32_t micro_batches);
    void *context;
    uint32_t rounds;                    /**< samples so far, with the warm-up's */
    double (*medians)[OVERHEAD_POINTS]; /**< [round][point], s per step */
};

/** Makes `medians`. */
void overhead_case_init(struct bench *bench, struct overhead_case *one, uint32_t stages,
                        uint64_t (*step)(void *, uint32_t), void *context);
/** A bench_case's `sample`; `context` is the struct overhead_case, the value its slope per stage in
 * seconds. */
void overhead_sample(struct bench *bench, void *context, double *value);
/** Adds overhead/<schedule>/<stages> for a sampled case, with the fit over all rounds in its note.
 */
struct bench_result *overhead_report(struct bench *bench, const struct bench_case *sampled,
                                     const char *stages, double ideal, double at_most);

/** Net stages of one `linear` 1 -> 1 each. */
void overhead_net(struct bench *bench, const struct overhead_schedule *schedules, uint32_t count);

#endif

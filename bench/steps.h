/* SPDX-License-Identifier: MIT */
/**
 * Executed steps of one pipe, by action of its table, and what follows from them: how long a step
 * took, how long the table alone would take with the tasks' own times, and how much of the workers'
 * compute ran at the same time. Reads the pipe's insides: this is a bench.
 */
#ifndef WEIR_BENCH_STEPS_H
#define WEIR_BENCH_STEPS_H

#include "harness.h"
#include "trace/predict.h"

struct steps {
    const struct weir_table *table;       /**< the pipe's */
    struct weir_simulate_options options; /**< all that the simulator must know but times */
    uint32_t count, capacity;
    uint32_t per_sample; /**< consecutive steps of one sample; 1 unless set */
    double *start, *end; /**< [step][action], s since the step's first one */
};

/** A training step without update of a pipe with one input. Dies on a failure. */
void steps_run(struct weir_pipe *pipe, int64_t rows, const void *input,
               struct weir_step_result *result);
/** The pipe must have run a training step of the row count that follows, and must outlive `steps`:
 * the table is its own. */
void steps_init(struct bench *bench, struct steps *steps, const struct weir_pipe *pipe,
                uint32_t capacity);
/** Keeps the stamps of the pipe's last step. */
void steps_take(struct steps *steps, const struct weir_pipe *pipe);
/** From the first action's start to the last one's end, N and U left out. */
double steps_makespan(const struct steps *steps, uint32_t step);
/** The simulated makespan of the table where every task takes the median of its stage and kind over
 * the steps of samples of the other parity than `sample`'s, and every copied crossing its delay;
 * the pipe's memory orders what it orders. */
double steps_predicted(struct bench *bench, const struct steps *steps, uint32_t sample);
/** The same with the shortest task of each stage and kind, over all steps: what would be left on a
 * machine that does nothing else. */
double steps_undisturbed(struct bench *bench, const struct steps *steps);
/** The same where all stages are equal: F and R take 1, B 2, a crossing `delay`. */
double steps_in_theory(struct bench *bench, const struct steps *steps, double delay);
/** The median time of a kind's tasks, over all steps and stages; 0 without any. */
double steps_median(struct bench *bench, const struct steps *steps, enum weir_kind kind);
/** The shortest of one stage's tasks of a kind over all steps, which others on the machine disturb
 * least; 0 without any. */
double steps_stage_least(const struct steps *steps, uint32_t stage, enum weir_kind kind);
/** Time in which workers 0 and 1 both compute, as part of the shorter one's busy time, from when
 * both have begun until one has ended. */
double steps_overlap(const struct steps *steps, uint32_t step);

#endif

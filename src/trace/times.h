/* SPDX-License-Identifier: MIT */
/**
 * The stamps of one kept training step by action of its table, and replays of that table: what
 * reports, what-ifs and snapshots are made from. Not during a step; never on the path of one.
 *
 * Of each action in the step (N and U are not) the time from the end of the one before it falls
 * into what it waited for other workers, what a copy took, and what was left: the host's. The same
 * parts, put back into a replay, give the measured times again to the nanosecond.
 */
#ifndef WEIR_TIMES_H
#define WEIR_TIMES_H

#include "pipe/run/pipe.h"

/** Times are ns since `origin`, exact: whole numbers far below 2^53. */
struct weir__times {
    const struct weir_pipe *pipe;
    const struct weir__row_plan *plan;
    const struct weir_table *table;
    struct weir__pool pool;
    uint64_t origin;       /**< CLOCK_MONOTONIC */
    uint64_t step;         /**< its number */
    uint64_t *first_event; /**< [worker]: the step's first event, counted since the start */
    double *start, *end;   /**< [action], of those in the step */
    double *model;         /**< [action]: durations for a replay */
    double *model_start, *model_end;
    double first, last; /**< of all actions in the step */
};

/** What passed before an action in the step began. They add up to its start less the end of the
 * action in the step before it on that worker (the step's beginning for the first one). */
struct weir__before {
    double waiting; /**< until other workers had produced its inputs and left its memory */
    double delay;   /**< of that crossing's delay: passes by itself */
    double copying; /**< the worker's own copies */
    double host;
};

/** Reads the step whose first event on worker w is number first_event[w] since the start; NULL: the
 * last completed training step. Its actions in the step must all have run and be kept. Clean up
 * also after a failure: WEIR_ERR_OUT_OF_MEMORY. */
int weir__times_init(struct weir__times *t, const struct weir_pipe *pipe,
                     const struct weir__row_plan *prepared, const uint64_t *first_event);
void weir__times_clean_up(struct weir__times *t);

/** Whether the action counts for the step. */
bool weir__times_in_step(const struct weir__times *t, uint32_t action);
/** `now` is the end of the action in the step before it on its worker, or t->first. */
struct weir__before weir__times_before(const struct weir__times *t, uint32_t action,
                                       uint32_t worker, double now);
/** How long data that crosses to another worker is on its way after its producer's end. */
double weir__times_delay(const struct weir__times *t);
/** The same of one of the prepared `orders`, to an action of `worker`. */
double weir__times_delay_of(const struct weir__times *t, uint32_t edge, uint32_t worker);

/** model[a]: the mean over all actions of the kind. */
void weir__times_model_means(struct weir__times *t);
/** model[a]: the median over the stage's actions of the kind. WEIR_ERR_OUT_OF_MEMORY. */
int weir__times_model_medians(struct weir__times *t);
/** Replays `model` in the orders that the step kept: the table's dependencies and what sharing
 * memory adds (weir__row_plan.orders), with copy[edge of those] (or NULL) in between. */
int weir__times_replay(struct weir__times *t, const double *copy, double *makespan);
/** The same by the table's dependencies alone. */
int weir__times_replay_table(struct weir__times *t, double *makespan);

/** Sorts the times and returns the median; 0 where there are none. */
double weir__times_median(double *times, uint32_t count);

/** The step's report, its workers into `workers`. */
int weir__times_report(struct weir__times *t, struct weir_worker_time *workers,
                       struct weir_step_report *report);
/** One makespan (ns) per question; see weir_report.h. */
int weir__times_what_if(struct weir__times *t, double what_if[]);

#endif

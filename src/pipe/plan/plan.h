/* SPDX-License-Identifier: MIT */
/**
 * A pipe's plan as a whole: the row counts that its arenas are sized for, whether they fit, what
 * people are told about them, and what would fit where they do not.
 */
#ifndef WEIR_PLAN_H
#define WEIR_PLAN_H

#include "device/device.h"
#include "pipe/lower/prepared.h"

enum { WEIR__ROW_COUNTS = 3, WEIR__PREPARED_MAX = 2 * WEIR__ROW_COUNTS };

/** Prepares every row count that the arenas are sized for, the largest first, into `prepared`
 * [WEIR__PREPARED_MAX]; and sees whether the devices are there. After a failure too the caller
 * destroys the first *count. */
int weir__plan_prepare(const struct weir__setup *setup, struct weir__row_plan **prepared,
                       uint32_t *count, struct weir_faults *faults);
/** The arenas' sizes into bytes[worker]: what the largest of all needs. WEIR_ERR_MEMORY_LIMIT, with
 * a fault for each worker that needs more than the limit, and then one with the smallest limit that
 * would do and the cheapest change that fits within the one given. `options` are those that the
 * setup was made from. */
int weir__plan_arenas(const struct weir__setup *setup, const struct weir_pipe_options *options,
                      struct weir__row_plan *const *prepared, uint32_t count, size_t *bytes,
                      struct weir_faults *faults);
/** Fills the plan of the first of `count` prepared. Its arrays are the pool's. */
int weir__plan_fill(const struct weir__setup *setup, struct weir__row_plan *const *prepared,
                    uint32_t count, const size_t *bytes, struct weir__pool *pool,
                    struct weir_plan *plan);
/** Bytes of the memory that losses and norms are told in, of the most micro-batches that there can
 * be. WEIR_ERR_OVERFLOW. */
int weir__plan_numbers(const struct weir__setup *setup, size_t *bytes);
/** What is pinned for each worker's device (pinned.c): pinned[workers], zeroed. */
int weir__plan_count_pinned(const struct weir__setup *setup, struct weir__row_plan *const *prepared,
                            uint32_t count, struct weir_plan_pinned *pinned);
int weir__plan_device(const struct weir__setup *setup, uint32_t worker, struct weir_faults *faults,
                      struct weir__device **device);

/** Receive slots, by worker (receive.c). */
int weir__plan_receives(struct weir__row_plan *prepared, struct weir_plan_receive *receives);

/** What would fit. */
struct weir__advice {
    bool found;
    struct weir_pipe_options options; /**< the given ones, with the change */
    size_t bytes;                     /**< of the largest arena then */
    double step;                      /**< predicted, of the step as it is now */
};
/** Plans checkpoint modes, late recompute, more chunks and other schedules, and takes the one
 * within memory_limit whose step is predicted shortest when every stage's forward takes its rows'
 * share of the same time; of equal ones the first with fewer changes, and more chunks only where
 * nothing else does: they change results' bits. `step` is the refused plan's
 * own. WEIR_ERR_OUT_OF_MEMORY. */
int weir__plan_advise(const struct weir_pipe_options *options, double step,
                      struct weir__advice *advice);
/** The predicted step, in forwards of the whole mini-batch. */
double weir__plan_step(const struct weir__row_plan *prepared);

#endif

/* SPDX-License-Identifier: MIT */
/** How a snapshot is put together: the step that is chosen, then its parts, all from one pool. */
#ifndef WEIR_SNAPSHOT_H
#define WEIR_SNAPSHOT_H

#include "trace/times.h"
#include "trace/trace.h"
#include "weir_report.h"

/** A training step whose events are all kept. */
struct weir__kept_step {
    uint64_t step, update;
    const struct weir__row_plan *plan;
    bool whole; /**< with norm and update, which a mini-batch to accumulate goes without */
    double makespan;
};

/** A snapshot being made. */
struct weir__snapshot_state {
    struct weir_snapshot shown; /**< first: what the caller gets a pointer to */
    struct weir__pool pool;
    const struct weir_pipe *pipe;
    struct weir__kept_step of;
    uint64_t *others; /**< further kept steps of the same row count, by number */
    uint32_t other_count;
    uint32_t *event_begin; /**< [worker]: the step's first among the kept events */
    uint32_t *line_begin;  /**< [worker]: its first action in the snapshot, one more at the end */
    uint64_t origin;       /**< CLOCK_MONOTONIC */
};

/** Finds the step; with number 0 a typical one. WEIR_ERR_NOT_FOUND, WEIR_ERR_OUT_OF_MEMORY. */
int weir__snapshot_choose(struct weir__snapshot_state *s, uint64_t step);
/** The event of the table's action, or NULL where it did not run. */
const struct weir_trace_event *weir__snapshot_event(const struct weir__snapshot_state *s,
                                                    uint32_t action);
/** shown.predicted; nothing without other steps. */
int weir__snapshot_predict(struct weir__snapshot_state *s);
/** Memory over time of one worker. */
int weir__snapshot_fill_memory(struct weir__snapshot_state *s, uint32_t worker,
                               struct weir_snapshot_worker *into);

#endif

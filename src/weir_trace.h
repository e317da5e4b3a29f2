/* SPDX-License-Identifier: MIT */
/**
 * What a pipe's steps did and where their time went. Part of weir.h, which includes it; errors,
 * threads and ownership are as there.
 */
#ifndef WEIR_TRACE_PUBLIC_H
#define WEIR_TRACE_PUBLIC_H

#include "weir.h"

#ifdef __cplusplus
extern "C" {
#endif

/** One executed action. Times are CLOCK_MONOTONIC nanoseconds. A GPU's are asked of its driver,
 * which takes a microsecond or so for each: no step waits for that. They are taken while the next
 * step runs, or by the first of the functions below that is called before it, for which others that
 * are called at the same time wait.
 *
 * These functions, and weir_snapshot_new, may run on several threads at once, but not beside a step
 * or any other call that is given a pipe that is not const: those write what these read. When the
 * watchdog gave up on the last step they give WEIR_ERR_BUSY (weir_pipe_trace no event) until a
 * later call on the pipe has found it ended. */
struct weir_trace_event {
    uint64_t step;   /**< number of the step on this pipe */
    uint64_t waited; /**< when the worker began to wait for the action's inputs */
    uint64_t start;  /**< when the callback was called (on a GPU: when the stream came to what it
                          gave, and all that this follows was done) */
    uint64_t end;    /**< when it had returned (on a GPU: when the stream had passed it) */
    struct weir_action action;
    uint32_t worker;
    int32_t waited_for; /**< the worker whose action was waited for last, or -1; of a copy between
                             memories: the worker at its other end */
    int64_t rows;       /**< of the step's mini-batch */
};

/** Copies a worker's newest events, oldest first, at most `capacity`; returns how many. Not during
 * a step. */
uint32_t weir_pipe_trace(const struct weir_pipe *pipe, uint32_t worker, uint32_t capacity,
                         struct weir_trace_event *events);

/** A worker's time in one step, as fractions of nothing: nanoseconds that add up: busy + idle =
 * makespan, dependency + copy + imbalance + host = idle. `copy`: producer's end to data ready;
 * `host`: inputs ready to start; `dependency`: idle time of the same table when every kind takes
 * its mean time; `imbalance`: the rest. Memory that another worker has not left yet counts as an
 * input: waiting for it is dependency where equal times would wait too. N and U are left out. */
struct weir_worker_time {
    double busy, idle, dependency, copy, imbalance, host;
    double steady; /**< (last end - first start - busy) / (last end - first start) */
};

/** The last step's times. */
struct weir_step_report {
    double makespan;         /**< ns, from the first action's start to the last one's end */
    double bubble;           /**< 1 - sum of busy / (workers * makespan) */
    double bubble_steady;    /**< the largest `steady` of the workers */
    double recompute_hidden; /**< part of R's time that ran while its gradient was not there yet */
    double critical_path;    /**< ns: the table's makespan with each (stage, kind)'s median time,
                                  were there a slot of memory for everything */
    uint32_t worker_count;
    struct weir_worker_time *workers; /**< the pipe's, valid until the next call; so only one
                                           thread at a time asks for a report */
};

/** Analyses the last completed training step. WEIR_ERR_NOT_FOUND if there was none, or if inference
 * since then has filled the trace (trace_actions makes it longer). */
int weir_pipe_report(struct weir_pipe *pipe, struct weir_step_report *report);

/** Receives the next bytes of a text; returns 0 or a status, which ends the writing. */
typedef int weir_write_fn(void *context, const char *text, size_t bytes);

/** Writes the trace as Chrome trace events (JSON), which Perfetto opens: one track per worker, flow
 * arrows for crossings that were waited for; where GPUs copy, one track per worker and source with
 * every copy and its bytes, and arrows from what made them and to what they are for. */
int weir_pipe_trace_chrome(const struct weir_pipe *pipe, weir_write_fn *write, void *context);
/** Draws the last step as text, `columns` wide (40 to 1000 are possible), one line per worker:
 * letters of the kinds, dots for waiting. `colour` uses ANSI colours. Like the function above: not
 * during a step, allocates nothing, and a failure of `write` ends it and is returned.
 * WEIR_ERR_NOT_FOUND without a step. */
int weir_pipe_trace_text(const struct weir_pipe *pipe, uint32_t columns, bool colour,
                         weir_write_fn *write, void *context);

#ifdef __cplusplus
}
#endif
#endif

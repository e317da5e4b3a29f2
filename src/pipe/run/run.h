/* SPDX-License-Identifier: MIT */
/**
 * One step on one worker, and what surrounds its callbacks.
 */
#ifndef WEIR_RUN_H
#define WEIR_RUN_H

#include "pipe/run/pipe.h"

struct weir__run {
    struct weir__worker *worker;
    struct weir_pipe *pipe;
    const struct weir__row_plan *plan;
    struct weir_task task; /**< what is the same for every action is filled in once */
    struct weir_error error;
    uint64_t now;          /**< end of the last action */
    uint32_t copies_given; /**< the worker's copies by lanes before this number are given */
    uint32_t stop;         /**< how many actions of the line are to be done */
    bool judged, updates;  /**< what the verdict says about U, where the host knows it */
};

/** Fills in the task for the call (task.c). */
void weir__run_fill_task(struct weir__run *run, const struct weir__call *call);
/** Calls the stage, and fails if it wrote to what it may only read (watched.c). CPU only. */
int weir__run_guarded(struct weir__run *run, const struct weir__call *call, void *context);

/** The following return WEIR_OK at once where the worker's device and those that it copies from do
 * all work at once; their failures are the device's (streams.c). */

/** Gives the copies that come to `call` by lanes to their streams, behind what they follow. */
int weir__run_lanes(struct weir__run *run, const struct weir__call *call);
/** For a worker that does its actions itself. It has ended `done` actions of its line and begins
 * the one before `next`. This gives the copies for `next` that need not wait for another thread, so
 * that their stream can make them during the callback. In a callback the worker gives nothing: the
 * other copies are given when it comes to `next`. So recomputation overlaps the copy of the
 * gradient, if the gradient's action has been given to its device when the recomputation begins. */
int weir__run_lanes_ahead(struct weir__run *run, const struct weir__call *next, uint32_t done);
/** The status, a failure of the worker's device; where nobody has said so yet, the device's reason
 * becomes the error's message. */
int weir__run_explain(struct weir__run *run, int status);
/** Makes the stream wait for the event behind a wait whose gate was passed. */
int weir__run_follow(struct weir__run *run, struct weir_stream *stream,
                     const struct weir__needed_wait *wait);
/** Sends what the caller wants of the call's results on its way. */
int weir__run_returns(struct weir__run *run, const struct weir__call *call);
/** Records the action's signal, which is done when the worker's stream has come to its end. */
int weir__run_signal(struct weir__run *run, uint32_t line_index);
/** Stamps the events of the step before. Then waits until all that this worker has given to streams
 * is done. */
int weir__run_finish(struct weir__run *run);

/** How long this worker spins for something before it parks; 0: it has no core of its own. */
uint64_t weir__run_spin_ns(const struct weir__worker *worker);
/** Waits for everything in waits[begin .. end) that another worker must have done, or given to its
 * stream; returns the worker last waited for, or -1 (worker.c). */
int32_t weir__run_gates(struct weir__run *run, uint32_t begin, uint32_t end);
static inline bool weir__run_has_failed(const struct weir__run *run) {
    int failed = atomic_load_explicit(&run->pipe->outcome.failed, memory_order_acquire);
    return failed == WEIR__FAILURE_IN_WRITING || failed == WEIR__FAILURE_KNOWN;
}

#endif

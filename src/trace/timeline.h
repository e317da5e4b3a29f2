/* SPDX-License-Identifier: MIT */
/** Steps that can be drawn as text: where their events are. */
#ifndef WEIR_TRACE_TIMELINE_H
#define WEIR_TRACE_TIMELINE_H

#include "trace/trace.h"

/** One worker's events of a step in order, in a ring: number i stands at (first + i) % capacity. */
struct weir__timeline_line {
    const struct weir_trace_event *events;
    uint32_t first, count, capacity;
    bool several; /**< the worker has several stages: labels name them */
};

struct weir__timeline {
    const char *title; /**< "step 20" */
    uint32_t worker_count, stage_count;
    struct weir__timeline_line (*line)(const void *context, uint32_t worker);
    const void *context;
};

/** As weir_pipe_trace_text. */
int weir__timeline_text(const struct weir__timeline *source, uint32_t columns, bool colour,
                        weir_write_fn *write, void *context);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The replay: a walk with a clock per worker. Times do not depend on the order of the walk, since
 * an action's start is the maximum over things that are done by then.
 */
#include "schedule/walk.h"

/* When the worker is free and everything that the action waits for has come. */
static double start_of(const struct weir__deps *deps, uint32_t action, const double *copy,
                       const double *end, double free) {
    assert(action < deps->action_count);
    double start = free;
    for (uint32_t e = deps->begin[action]; e < deps->begin[action + 1]; e++) {
        double ready = end[deps->edges[e].from] + (copy != NULL ? copy[e] : 0.0);
        start = ready > start ? ready : start;
    }
    return start;
}

static double span_of(const struct weir_table *table, const double *start, const double *end) {
    bool any = false;
    double first = 0.0, last = 0.0;
    for (uint32_t a = 0; a < table->action_count; a++) {
        if (!weir__kinds[table->actions[a].kind].in_step) continue;
        first = !any || start[a] < first ? start[a] : first;
        last = !any || end[a] > last ? end[a] : last;
        any = true;
    }
    return last - first;
}

int weir__table_replay(const struct weir_table *table, const struct weir__deps *deps,
                       const double *duration, const double *copy, double *start, double *end,
                       double *makespan, const struct weir_allocator *allocator) {
    assert(duration != NULL && start != NULL && end != NULL);
    struct weir__walk walk;
    int status = weir__walk_init(&walk, table, deps, allocator);
    if (status != WEIR_OK) return status;
    uint32_t action = 0;
    while (weir__walk_next(&walk, &action)) {
        uint32_t worker = weir__table_worker_of(table, action);
        double free = action > table->lines[worker] ? end[action - 1] : 0.0;
        start[action] = start_of(deps, action, copy, end, free);
        end[action] = start[action] + duration[action];
    }
    bool complete = walk.done_count == table->action_count;
    weir__walk_clean_up(&walk);
    if (!complete) return WEIR_ERR_SCHEDULE;
    if (makespan != NULL) *makespan = span_of(table, start, end);
    return WEIR_OK;
}

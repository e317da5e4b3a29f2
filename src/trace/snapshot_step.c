/* SPDX-License-Identifier: MIT */
/* Which step a snapshot is of. A kept step is complete where every worker's events are its line of
 * one prepared table, to the end or up to norm and update. */
#include "trace/snapshot.h"

#include <math.h>
#include <stdlib.h>

/* Whether the worker's events of the step are its line; *whole: to the line's end. */
static bool line_ran(const struct weir__row_plan *prepared, const struct weir__worker *worker,
                     uint64_t step, bool *whole) {
    const struct weir_table *table = prepared->table;
    uint32_t w = worker->index, begin = weir__trace_step_begin(worker, step);
    uint32_t count = weir__trace_step_begin(worker, step + 1) - begin;
    uint32_t length = table->lines[w + 1] - table->lines[w];
    assert(w < table->worker_count && prepared->tail[w] <= length);
    if (count != length && count != prepared->tail[w]) return false;
    *whole &= count == length;
    for (uint32_t i = 0; i < count; i++) {
        const struct weir_trace_event *event = weir__trace_event_at(worker, begin + i);
        if (event->rows != prepared->rows) return false;
        if (!weir__trace_same(&event->action, &table->actions[table->lines[w] + i])) return false;
    }
    return true;
}

static double makespan_of(const struct weir_pipe *pipe, uint64_t step) {
    uint64_t first = UINT64_MAX, last = 0;
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        const struct weir__worker *worker = &pipe->workers[w];
        uint32_t end = weir__trace_step_begin(worker, step + 1);
        for (uint32_t i = weir__trace_step_begin(worker, step); i < end; i++) {
            const struct weir_trace_event *event = weir__trace_event_at(worker, i);
            if (!weir__kinds[event->action.kind].in_step) continue;
            if (event->start < first) first = event->start;
            if (event->end > last) last = event->end;
        }
    }
    assert(first <= last);
    return (double)(last - first);
}

static bool read_step(const struct weir_pipe *pipe, uint64_t step, struct weir__kept_step *kept) {
    for (uint32_t i = 0; i < pipe->prepared_count; i++) {
        const struct weir__row_plan *prepared = pipe->prepared[i];
        bool ran = !prepared->infer, whole = true;
        for (uint32_t w = 0; ran && w < pipe->worker_count; w++)
            ran = line_ran(prepared, &pipe->workers[w], step, &whole);
        if (!ran) continue;
        *kept = (struct weir__kept_step){step, 0, prepared, whole, makespan_of(pipe, step)};
        return true;
    }
    return false;
}

/* Into kept[], of which there are as many as events; returns how many. */
static uint32_t read_steps(const struct weir_pipe *pipe, struct weir__kept_step *kept) {
    const struct weir__worker *worker = &pipe->workers[0];
    uint32_t events = weir__trace_count(worker), count = 0;
    for (uint32_t i = 0; i < events;) {
        const struct weir_trace_event *event = weir__trace_event_at(worker, i);
        uint64_t step = event->step;
        if (read_step(pipe, step, &kept[count]))
            kept[count++].update = weir__trace_update(pipe, event);
        i = weir__trace_step_begin(worker, step + 1);
    }
    return count;
}

/* Keeps those with the largest row count, and of them the whole ones, if there are any. */
static uint32_t drop_odd_ones(struct weir__kept_step *kept, uint32_t count) {
    int64_t rows = 0;
    bool whole = false;
    for (uint32_t i = 0; i < count; i++)
        if (kept[i].plan->rows > rows) rows = kept[i].plan->rows;
    for (uint32_t i = 0; i < count; i++) whole |= kept[i].plan->rows == rows && kept[i].whole;
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++)
        if (kept[i].plan->rows == rows && kept[i].whole == whole) kept[left++] = kept[i];
    assert(0 < left && left <= count);
    return left;
}

static int by_makespan(const void *a, const void *b) {
    const struct weir__kept_step *x = a, *y = b;
    if (x->makespan != y->makespan) return x->makespan < y->makespan ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

static int find_step(const struct weir__kept_step *kept, uint32_t count, uint64_t step,
                     struct weir__kept_step *found) {
    for (uint32_t i = 0; i < count; i++) {
        if (kept[i].step != step) continue;
        *found = kept[i];
        return WEIR_OK;
    }
    return WEIR_ERR_NOT_FOUND;
}

/* `kept` has room for all steps. */
static int list_others(struct weir__snapshot_state *s, struct weir__kept_step *kept) {
    uint32_t count = read_steps(s->pipe, kept);
    s->others = weir__pool_take(&s->pool, count, sizeof *s->others);
    if (s->others == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        if (kept[i].plan == s->of.plan && kept[i].step != s->of.step)
            s->others[s->other_count++] = kept[i].step;
    return WEIR_OK;
}

static int choose(struct weir__snapshot_state *s, uint64_t step, struct weir__kept_step *kept) {
    uint32_t count = read_steps(s->pipe, kept);
    if (count == 0) return WEIR_ERR_NOT_FOUND;
    int status = step != 0 ? find_step(kept, count, step, &s->of) : WEIR_OK;
    if (status != WEIR_OK) return status;
    count = drop_odd_ones(kept, count);
    qsort(kept, count, sizeof *kept, by_makespan);
    if (step == 0) s->of = kept[count / 2];
    s->shown.kept_count = count;
    s->shown.kept_least = kept[0].makespan;
    s->shown.kept_most = kept[count - 1].makespan;
    return list_others(s, kept);
}

int weir__snapshot_choose(struct weir__snapshot_state *s, uint64_t step) {
    const struct weir_allocator *allocator = s->pool.allocator;
    uint32_t most = weir__trace_count(&s->pipe->workers[0]);
    struct weir__kept_step *kept = weir__acquire(allocator, most, sizeof *kept);
    if (kept == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = choose(s, step, kept);
    weir__release(allocator, kept, most, sizeof *kept);
    return status;
}

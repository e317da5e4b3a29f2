/* SPDX-License-Identifier: MIT */
/* A step's stamps, and replays of its table with other durations. Events of one step stand in the
 * order of their line, so an action's event is found by its place there. */
#include "trace/times.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool weir__times_in_step(const struct weir__times *t, uint32_t action) {
    assert(action < t->table->action_count);
    return weir__kinds[t->table->actions[action].kind].in_step;
}

static const struct weir_trace_event *event_of(const struct weir__times *t, uint32_t worker,
                                               uint32_t line_index) {
    assert(worker < t->table->worker_count);
    const struct weir__worker *of = &t->pipe->workers[worker];
    return &of->events[(t->first_event[worker] + line_index) % of->event_capacity];
}

static bool take(struct weir__times *t) {
    uint32_t count = t->table->action_count;
    t->first_event = weir__pool_take(&t->pool, t->table->worker_count, sizeof *t->first_event);
    t->start = weir__pool_take(&t->pool, count, sizeof(double));
    t->end = weir__pool_take(&t->pool, count, sizeof(double));
    t->model = weir__pool_take(&t->pool, count, sizeof(double));
    t->model_start = weir__pool_take(&t->pool, count, sizeof(double));
    t->model_end = weir__pool_take(&t->pool, count, sizeof(double));
    return t->first_event != NULL && t->start != NULL && t->end != NULL && t->model != NULL &&
           t->model_start != NULL && t->model_end != NULL;
}

static void read_events(struct weir__times *t) {
    t->origin = UINT64_MAX;
    t->step = event_of(t, 0, 0)->step;
    for (uint32_t w = 0; w < t->table->worker_count; w++) {
        uint64_t start = event_of(t, w, 0)->start;
        if (start < t->origin) t->origin = start;
    }
    t->first = HUGE_VAL;
    assert(t->origin != UINT64_MAX);
    for (uint32_t w = 0; w < t->table->worker_count; w++) {
        for (uint32_t a = t->table->lines[w]; a < t->table->lines[w + 1]; a++) {
            if (!weir__times_in_step(t, a)) continue;
            const struct weir_trace_event *event = event_of(t, w, a - t->table->lines[w]);
            t->start[a] = (double)(event->start - t->origin);
            t->end[a] = (double)(event->end - t->origin);
            t->first = fmin(t->first, t->start[a]);
            t->last = fmax(t->last, t->end[a]);
        }
    }
}

int weir__times_init(struct weir__times *t, const struct weir_pipe *pipe,
                     const struct weir__row_plan *prepared, const uint64_t *first_event) {
    assert(prepared != NULL && prepared->table->worker_count == pipe->worker_count);
    *t = (struct weir__times){.pipe = pipe, .plan = prepared, .table = prepared->table};
    weir__pool_init(&t->pool, pipe->setup.options.allocator);
    if (!take(t)) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < t->table->worker_count; w++)
        t->first_event[w] =
            first_event != NULL ? first_event[w] : pipe->workers[w].last_first_event;
    read_events(t);
    return WEIR_OK;
}

void weir__times_clean_up(struct weir__times *t) {
    weir__pool_clean_up(&t->pool);
}

/* ---- before an action ---- */

double weir__times_delay(const struct weir__times *t) {
    const struct weir_pipe_options *options = &t->pipe->setup.options;
    return options->link == WEIR_LINK_COPY ? (double)options->link_delay_ns : 0.0;
}

double weir__times_delay_of(const struct weir__times *t, uint32_t edge, uint32_t worker) {
    assert(edge < t->plan->orders.edge_count);
    const struct weir__edge *order = &t->plan->orders.edges[edge];
    bool stays = order->cause == WEIR__CAUSE_MEMORY ||
                 weir__table_worker_of(t->table, order->from) == worker;
    return stays ? 0.0 : weir__times_delay(t);
}

struct weir__before weir__times_before(const struct weir__times *t, uint32_t action,
                                       uint32_t worker, double now) {
    assert(action < t->table->action_count && worker < t->table->worker_count);
    const struct weir__deps *orders = &t->plan->orders;
    double start = t->start[action], produced = t->first, ready = t->first;
    for (uint32_t e = orders->begin[action]; e < orders->begin[action + 1]; e++) {
        uint32_t from = orders->edges[e].from;
        if (weir__table_worker_of(t->table, from) == worker) continue;
        produced = fmax(produced, t->end[from]);
        ready = fmax(ready, t->end[from] + weir__times_delay_of(t, e, worker));
    }
    produced = fmin(fmax(produced, now), start);
    ready = fmin(fmax(ready, produced), start);
    assert(produced <= ready && ready <= start);
    const struct weir__call *call = &t->plan->calls[action];
    struct weir__before before = {.waiting = produced - now, .delay = ready - produced};
    if (call->copy_end > call->copy_begin) {
        before.copying = start - ready; /* it was copied until then */
    } else {
        before.host = start - ready;
    }
    return before;
}

/* ---- models ---- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double weir__times_median(double *times, uint32_t count) {
    if (count > 0) qsort(times, count, sizeof *times, compare_doubles);
    return count > 0 ? times[count / 2] : 0.0;
}

void weir__times_model_means(struct weir__times *t) {
    double sum[WEIR_KIND_COUNT] = {0}, count[WEIR_KIND_COUNT] = {0};
    for (uint32_t a = 0; a < t->table->action_count; a++) {
        uint8_t kind = t->table->actions[a].kind;
        sum[kind] += t->end[a] - t->start[a];
        count[kind] += 1.0;
    }
    for (uint32_t a = 0; a < t->table->action_count; a++) {
        uint8_t kind = t->table->actions[a].kind;
        t->model[a] = weir__times_in_step(t, a) ? sum[kind] / count[kind] : 0.0;
    }
}

int weir__times_model_medians(struct weir__times *t) {
    uint32_t m = t->table->micro_batch_count, stages = t->table->stage_count;
    double *all = weir__pool_take(&t->pool, (size_t)stages * WEIR_KIND_COUNT * m, sizeof *all);
    uint32_t *count = weir__pool_take(&t->pool, (size_t)stages * WEIR_KIND_COUNT, sizeof *count);
    if (all == NULL || count == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t a = 0; a < t->table->action_count; a++) {
        const struct weir_action *action = &t->table->actions[a];
        uint32_t group = action->stage * WEIR_KIND_COUNT + action->kind;
        if (weir__times_in_step(t, a))
            all[(size_t)group * m + count[group]++] = t->end[a] - t->start[a];
    }
    for (uint32_t g = 0; g < stages * WEIR_KIND_COUNT; g++)
        (void)weir__times_median(&all[(size_t)g * m], count[g]);
    for (uint32_t a = 0; a < t->table->action_count; a++) {
        const struct weir_action *action = &t->table->actions[a];
        uint32_t group = action->stage * WEIR_KIND_COUNT + action->kind;
        t->model[a] = weir__times_in_step(t, a) ? all[(size_t)group * m + count[group] / 2] : 0.0;
    }
    return WEIR_OK;
}

static int replay(struct weir__times *t, const struct weir__deps *orders, const double *copy,
                  double *makespan) {
    return weir__table_replay(t->table, orders, t->model, copy, t->model_start, t->model_end,
                              makespan, t->pipe->setup.options.allocator);
}

int weir__times_replay(struct weir__times *t, const double *copy, double *makespan) {
    return replay(t, &t->plan->orders, copy, makespan);
}

int weir__times_replay_table(struct weir__times *t, double *makespan) {
    return replay(t, &t->plan->deps, NULL, makespan);
}

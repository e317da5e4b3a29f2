/* SPDX-License-Identifier: MIT */
/* Where the time of the last step went. Works from the events of one step, which stand in row
 * order, and the table's own dependencies; never on the path of a step. */
#include "pipe/pipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** One step's times in ns, by action of the table. */
struct times {
    const struct weir_pipe *pipe;
    const struct weir__prepared *prepared;
    const struct weir_table *table;
    struct weir__pool pool;
    double *start, *end;
    double *model, *model_start, *model_end; /* durations of a replay, and what comes out */
    double first, last;                      /* of all actions in the step, N and U left out */
};

static bool in_step(const struct times *t, uint32_t a) {
    return weir__kinds[t->table->actions[a].kind].in_step;
}

/* Of the last training step; inference may have run since, and its events stand behind. */
static const struct weir_trace_event *event_of(const struct weir__worker *worker,
                                               uint32_t row_index) {
    return &worker->events[(worker->last_first_event + row_index) % worker->event_capacity];
}

static bool events_are_kept(const struct weir_pipe *pipe) {
    bool kept = true;
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        const struct weir__worker *worker = &pipe->workers[w];
        kept &= worker->event_count - worker->last_first_event <= worker->event_capacity;
    }
    return kept;
}

static int load(struct times *t) {
    uint32_t count = t->table->action_count;
    weir__pool_init(&t->pool, t->pipe->setup.options.allocator);
    t->start = weir__pool_take(&t->pool, count, sizeof(double));
    t->end = weir__pool_take(&t->pool, count, sizeof(double));
    t->model = weir__pool_take(&t->pool, count, sizeof(double));
    t->model_start = weir__pool_take(&t->pool, count, sizeof(double));
    t->model_end = weir__pool_take(&t->pool, count, sizeof(double));
    if (t->start == NULL || t->end == NULL || t->model == NULL || t->model_start == NULL ||
        t->model_end == NULL)
        return WEIR_ERR_OUT_OF_MEMORY;
    uint64_t origin = UINT64_MAX;
    for (uint32_t w = 0; w < t->table->worker_count; w++) {
        uint64_t start = event_of(&t->pipe->workers[w], 0)->start;
        if (start < origin) origin = start;
    }
    t->first = HUGE_VAL;
    for (uint32_t w = 0; w < t->table->worker_count; w++) {
        for (uint32_t a = t->table->rows[w]; a < t->table->rows[w + 1]; a++) {
            if (!in_step(t, a)) continue;
            const struct weir_trace_event *event =
                event_of(&t->pipe->workers[w], a - t->table->rows[w]);
            t->start[a] = (double)(event->start - origin);
            t->end[a] = (double)(event->end - origin);
            t->first = fmin(t->first, t->start[a]);
            t->last = fmax(t->last, t->end[a]);
        }
    }
    return WEIR_OK;
}

/* ---- replays of the same table ---- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* model[a]: the mean over all actions of the kind. */
static void model_means(struct times *t) {
    double sum[WEIR_KIND_COUNT] = {0}, count[WEIR_KIND_COUNT] = {0};
    for (uint32_t a = 0; a < t->table->action_count; a++) {
        uint8_t kind = t->table->actions[a].kind;
        sum[kind] += t->end[a] - t->start[a];
        count[kind] += 1.0;
    }
    for (uint32_t a = 0; a < t->table->action_count; a++) {
        uint8_t kind = t->table->actions[a].kind;
        t->model[a] = in_step(t, a) ? sum[kind] / count[kind] : 0.0;
    }
}

/* model[a]: the median over the stage's actions of the kind. */
static int model_medians(struct times *t) {
    uint32_t m = t->table->micro_batch_count, stages = t->table->stage_count;
    double *all = weir__pool_take(&t->pool, (size_t)stages * WEIR_KIND_COUNT * m, sizeof *all);
    uint32_t *count = weir__pool_take(&t->pool, (size_t)stages * WEIR_KIND_COUNT, sizeof *count);
    if (all == NULL || count == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t a = 0; a < t->table->action_count; a++) {
        const struct weir_action *action = &t->table->actions[a];
        uint32_t group = action->stage * WEIR_KIND_COUNT + action->kind;
        if (in_step(t, a)) all[(size_t)group * m + count[group]++] = t->end[a] - t->start[a];
    }
    for (uint32_t g = 0; g < stages * WEIR_KIND_COUNT; g++)
        qsort(&all[(size_t)g * m], count[g], sizeof *all, compare_doubles);
    for (uint32_t a = 0; a < t->table->action_count; a++) {
        const struct weir_action *action = &t->table->actions[a];
        uint32_t group = action->stage * WEIR_KIND_COUNT + action->kind;
        t->model[a] = in_step(t, a) ? all[(size_t)group * m + count[group] / 2] : 0.0;
    }
    return WEIR_OK;
}

static int replay(struct times *t, double *makespan) {
    return weir__table_replay(t->table, &t->prepared->deps, t->model, NULL, t->model_start,
                              t->model_end, makespan, t->pipe->setup.options.allocator);
}

/* ---- lost time ---- */

/* When the inputs of an action had been produced by other workers, and when they were there. */
static void inputs_ready(const struct times *t, uint32_t a, uint32_t worker, double *produced,
                         double *ready) {
    const struct weir__deps *deps = &t->prepared->deps;
    const struct weir_pipe_options *options = &t->pipe->setup.options;
    double delay = options->link == WEIR_LINK_COPY ? (double)options->link_delay_ns : 0.0;
    *produced = *ready = t->first;
    for (uint32_t e = deps->begin[a]; e < deps->begin[a + 1]; e++) {
        uint32_t from = deps->edges[e].from;
        if (weir__table_worker_of(t->table, from) == worker) continue;
        *produced = fmax(*produced, t->end[from]);
        *ready = fmax(*ready, t->end[from] + delay);
    }
}

static void split_worker(const struct times *t, uint32_t w, double model_makespan,
                         struct weir_worker_time *time) {
    double now = t->first, window_start = -1.0, waited = 0.0, model_busy = 0.0;
    memset(time, 0, sizeof *time);
    for (uint32_t a = t->table->rows[w]; a < t->table->rows[w + 1]; a++) {
        if (!in_step(t, a)) continue;
        double produced, ready;
        inputs_ready(t, a, w, &produced, &ready);
        produced = fmin(fmax(produced, now), t->start[a]);
        ready = fmin(fmax(ready, produced), t->start[a]);
        const struct weir__call *call = &t->prepared->calls[a];
        if (call->copy_end > call->copy_begin) ready = t->start[a]; /* it was copied until then */
        waited += produced - now;
        time->copy += ready - produced;
        time->host += t->start[a] - ready;
        time->busy += t->end[a] - t->start[a];
        model_busy += t->model[a];
        if (window_start < 0.0) window_start = t->start[a];
        now = t->end[a];
    }
    double window = now - fmax(window_start, 0.0);
    time->steady = window > 0.0 ? (window - time->busy) / window : 0.0;
    waited += t->last - now;
    time->idle = t->last - t->first - time->busy;
    time->dependency = model_makespan - model_busy;
    time->imbalance = waited - time->dependency;
}

/* Part of the recomputation that ran before its gradient was there. */
static double hidden_part(const struct times *t) {
    double all = 0.0, hidden = 0.0;
    for (uint32_t a = 0; a < t->table->action_count; a++) {
        const struct weir_action *action = &t->table->actions[a];
        if (action->kind != WEIR_KIND_R) continue;
        uint32_t b = a + 1; /* its B or I stands later in the same row */
        while (t->table->actions[b].stage != action->stage ||
               t->table->actions[b].micro_batch != action->micro_batch)
            b++;
        const struct weir__deps *deps = &t->prepared->deps;
        double delay = t->pipe->setup.options.link == WEIR_LINK_COPY
                           ? (double)t->pipe->setup.options.link_delay_ns
                           : 0.0;
        double arrival = -1.0;
        for (uint32_t e = deps->begin[b]; e < deps->begin[b + 1]; e++)
            if (deps->edges[e].cause == WEIR__CAUSE_GRADIENT)
                arrival = fmax(arrival, t->end[deps->edges[e].from] + delay);
        all += t->end[a] - t->start[a];
        hidden += fmax(0.0, fmin(arrival, t->end[a]) - t->start[a]);
    }
    return all > 0.0 ? hidden / all : 0.0;
}

static int analyse(struct times *t, struct weir_step_report *report) {
    double mean_makespan, busy = 0.0;
    int status = load(t);
    if (status != WEIR_OK) return status;
    report->makespan = t->last - t->first;
    report->worker_count = t->table->worker_count;
    report->workers = t->pipe->times;
    model_means(t);
    status = replay(t, &mean_makespan);
    if (status != WEIR_OK) return status;
    report->bubble_steady = 0.0;
    for (uint32_t w = 0; w < report->worker_count; w++) {
        split_worker(t, w, mean_makespan, &report->workers[w]);
        busy += report->workers[w].busy;
        report->bubble_steady = fmax(report->bubble_steady, report->workers[w].steady);
    }
    report->bubble = 1.0 - busy / (report->worker_count * report->makespan);
    report->recompute_hidden = hidden_part(t);
    status = model_medians(t);
    if (status == WEIR_OK) status = replay(t, &report->critical_path);
    return status;
}

int weir_pipe_report(struct weir_pipe *pipe, struct weir_step_report *report) {
    if (pipe == NULL || report == NULL) return WEIR_ERR_ARGUMENT;
    if (pipe->last == NULL || !events_are_kept(pipe)) return WEIR_ERR_NOT_FOUND;
    struct times t = {.pipe = pipe, .prepared = pipe->last, .table = pipe->last->table};
    int status = analyse(&t, report);
    weir__pool_clean_up(&t.pool);
    return status;
}

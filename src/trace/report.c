/* SPDX-License-Identifier: MIT */
/* Where the time of a step went. Works from the events of one step and the table's own
 * dependencies; never on the path of a step. */
#include "trace/times.h"

#include <math.h>
#include <string.h>

static bool events_are_kept(const struct weir_pipe *pipe) {
    bool kept = true;
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        const struct weir__worker *worker = &pipe->workers[w];
        kept &= worker->event_count - worker->last_first_event <= worker->event_capacity;
    }
    return kept;
}

static void split_worker(const struct weir__times *t, uint32_t w, double model_makespan,
                         struct weir_worker_time *time) {
    assert(w < t->table->worker_count);
    double now = t->first, window_start = -1.0, waited = 0.0, model_busy = 0.0;
    memset(time, 0, sizeof *time);
    for (uint32_t a = t->table->lines[w]; a < t->table->lines[w + 1]; a++) {
        if (!weir__times_in_step(t, a)) continue;
        struct weir__before before = weir__times_before(t, a, w, now);
        waited += before.waiting;
        time->copy += before.delay + before.copying;
        time->host += before.host;
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

/* When what `from` made for the action was there: as it was made, or copied. */
static double arrival_of(const struct weir__times *t, uint32_t action, uint32_t from) {
    const struct weir__row_plan *p = t->plan;
    assert(action < t->table->action_count && from < t->table->action_count);
    const struct weir__call *call = &p->calls[action];
    double arrival = t->end[from] + weir__times_delay(t);
    for (uint32_t i = call->copy_begin; i < call->copy_end; i++) {
        const struct weir__prepared_copy *copy = &p->copies[i];
        if (copy->lane == WEIR__NO_LANE || copy->from_block == WEIR__NO_BLOCK) continue;
        if (weir__prepared_made(p, copy) != from) continue;
        const struct weir__worker *worker = &t->pipe->workers[p->lanes[copy->lane].worker];
        const struct weir__copy_event *event = weir__stamps_copy(worker, t->step, i);
        if (event != NULL) arrival = fmax(arrival, (double)event->end - (double)t->origin);
    }
    return arrival;
}

/* Part of the recomputation that ran before its gradient was there. */
static double hidden_part(const struct weir__times *t) {
    double all = 0.0, hidden = 0.0;
    for (uint32_t a = 0; a < t->table->action_count; a++) {
        const struct weir_action *action = &t->table->actions[a];
        if (weir__pass_of(action->kind) != WEIR__PASS_RECOMPUTE) continue;
        uint32_t b = a + 1; /* its B or I stands later in the same line */
        while (t->table->actions[b].stage != action->stage ||
               t->table->actions[b].micro_batch != action->micro_batch)
            b++;
        assert(b < t->table->action_count);
        const struct weir__deps *deps = &t->plan->deps;
        double arrival = -1.0;
        for (uint32_t e = deps->begin[b]; e < deps->begin[b + 1]; e++)
            if (deps->edges[e].cause == WEIR__CAUSE_GRADIENT)
                arrival = fmax(arrival, arrival_of(t, b, deps->edges[e].from));
        all += t->end[a] - t->start[a];
        hidden += fmax(0.0, fmin(arrival, t->end[a]) - t->start[a]);
    }
    return all > 0.0 ? hidden / all : 0.0;
}

int weir__times_report(struct weir__times *t, struct weir_worker_time *workers,
                       struct weir_step_report *report) {
    double mean_makespan, busy = 0.0;
    report->makespan = t->last - t->first;
    report->worker_count = t->table->worker_count;
    report->workers = workers;
    weir__times_model_means(t);
    int status = weir__times_replay(t, NULL, &mean_makespan);
    if (status != WEIR_OK) return status;
    report->bubble_steady = 0.0;
    for (uint32_t w = 0; w < report->worker_count; w++) {
        split_worker(t, w, mean_makespan, &workers[w]);
        busy += workers[w].busy;
        report->bubble_steady = fmax(report->bubble_steady, workers[w].steady);
    }
    report->bubble = 1.0 - busy / (report->worker_count * report->makespan);
    report->recompute_hidden = hidden_part(t);
    if ((status = weir__times_model_medians(t)) != WEIR_OK) return status;
    return weir__times_replay_table(t, &report->critical_path);
}

int weir_pipe_report(struct weir_pipe *pipe, struct weir_step_report *report) {
    if (pipe == NULL || report == NULL) return WEIR_ERR_ARGUMENT;
    if (pipe->history.last == NULL || !events_are_kept(pipe)) return WEIR_ERR_NOT_FOUND;
    struct weir__times t;
    int status = weir__stamps_read(pipe);
    if (status != WEIR_OK) return status;
    status = weir__times_init(&t, pipe, pipe->history.last, NULL);
    if (status != WEIR_OK) goto out;
    status = weir__times_report(&t, pipe->history.times, report);
out:
    weir__times_clean_up(&t);
    return status;
}

/* SPDX-License-Identifier: MIT */
/* A kept step as plain data. Everything is copied: the ring of events goes round with the next
 * steps, and the page is often written only at the end. */
#include "trace/snapshot.h"

#include <math.h>
#include <string.h>

/* ---- events ---- */

const struct weir_trace_event *weir__snapshot_event(const struct weir__snapshot_state *s,
                                                    uint32_t action) {
    assert(action < s->of.plan->table->action_count);
    const struct weir_table *table = s->of.plan->table;
    uint32_t w = weir__table_worker_of(table, action), index = action - table->lines[w];
    if (index >= s->line_begin[w + 1] - s->line_begin[w]) return NULL;
    return weir__trace_event_at(&s->pipe->workers[w], s->event_begin[w] + index);
}

/* The index in the snapshot of the table's action, which ran. */
static uint32_t shown_index(const struct weir__snapshot_state *s, uint32_t action) {
    const struct weir_table *table = s->of.plan->table;
    uint32_t w = weir__table_worker_of(table, action);
    assert(action - table->lines[w] < s->line_begin[w + 1] - s->line_begin[w]);
    return s->line_begin[w] + action - table->lines[w];
}

static int find_lines(struct weir__snapshot_state *s) {
    uint32_t workers = s->pipe->worker_count;
    s->event_begin = weir__pool_take(&s->pool, workers, sizeof *s->event_begin);
    s->line_begin = weir__pool_take(&s->pool, (size_t)workers + 1, sizeof *s->line_begin);
    if (s->event_begin == NULL || s->line_begin == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    s->origin = UINT64_MAX;
    uint64_t last = 0;
    for (uint32_t w = 0; w < workers; w++) {
        const struct weir__worker *worker = &s->pipe->workers[w];
        uint32_t begin = weir__trace_step_begin(worker, s->of.step);
        uint32_t end = weir__trace_step_begin(worker, s->of.step + 1);
        s->event_begin[w] = begin;
        s->line_begin[w + 1] = s->line_begin[w] + (end - begin);
        if (begin == end) continue;
        uint64_t waited = weir__trace_event_at(worker, begin)->waited;
        if (waited < s->origin) s->origin = waited;
        if (weir__trace_event_at(worker, end - 1)->end > last)
            last = weir__trace_event_at(worker, end - 1)->end;
    }
    assert(last >= s->origin);
    s->shown.span = last - s->origin;
    return WEIR_OK;
}

/* ---- what each action waited for ---- */

static enum weir_cause cause_of(const struct weir__snapshot_state *s, uint32_t action,
                                uint32_t from) {
    static const enum weir_cause causes[] = {[WEIR__CAUSE_BORDER] = WEIR_CAUSE_ACTIVATIONS,
                                             [WEIR__CAUSE_GRADIENT] = WEIR_CAUSE_GRADIENT,
                                             [WEIR__CAUSE_SKIP] = WEIR_CAUSE_SKIP,
                                             [WEIR__CAUSE_LOCAL] = WEIR_CAUSE_NOTHING,
                                             [WEIR__CAUSE_MEMORY] = WEIR_CAUSE_MEMORY};
    const struct weir__row_plan *prepared = s->of.plan;
    if (!weir__kinds[prepared->table->actions[action].kind].in_step)
        return WEIR_CAUSE_ALL_GRADIENTS;
    for (uint32_t e = prepared->deps.begin[action]; e < prepared->deps.begin[action + 1]; e++)
        if (prepared->deps.edges[e].from == from) return causes[prepared->deps.edges[e].cause];
    return WEIR_CAUSE_MEMORY; /* no data crosses: it took over bytes */
}

/* The copy of a lane that the action waited for last, of those between its worker and `other`. */
static const struct weir__copy_event *last_copy(const struct weir__snapshot_state *s,
                                                uint32_t action,
                                                const struct weir_trace_event *event) {
    assert(event->waited_for < (int32_t)s->pipe->worker_count);
    const struct weir__row_plan *p = s->of.plan;
    const struct weir__copy_event *last = NULL;
    for (uint32_t i = p->calls[action].wait_begin; i < p->calls[action].wait_end; i++) {
        const struct weir__needed_wait *wait = &p->waits[i];
        if (wait->copy == WEIR__NO_COPY) continue;
        if (weir__wait_for_whom(p, event->worker, wait) != event->waited_for) continue;
        const struct weir__worker *to =
            &s->pipe->workers[p->lanes[p->copies[wait->copy].lane].worker];
        const struct weir__copy_event *copy = weir__stamps_copy(to, event->step, wait->copy);
        if (copy != NULL && (last == NULL || copy->end > last->end)) last = copy;
    }
    return last;
}

/* The action that made what the copy brings, UINT32_MAX for one that takes from the worker. */
static uint32_t made_for(const struct weir__snapshot_state *s, const struct weir__copy_event *copy,
                         uint32_t worker) {
    const struct weir__row_plan *p = s->of.plan;
    const struct weir__prepared_copy *of = &p->copies[copy->copy];
    if (p->lanes[of->lane].worker != worker || of->from_block == WEIR__NO_BLOCK) return UINT32_MAX;
    return weir__prepared_made(p, of);
}

/* Returns the awaited action in the table, or UINT32_MAX. */
static uint32_t fill_wait(const struct weir__snapshot_state *s, uint32_t action,
                          const struct weir_trace_event *event, struct weir_snapshot_action *into) {
    into->waited_for = event->waited_for;
    into->awaited = WEIR_NO_ACTION;
    into->cause = WEIR_CAUSE_NOTHING;
    if (event->waited_for < 0) return UINT32_MAX;
    uint32_t from = weir__trace_last_wait(s->of.plan, action, (uint32_t)event->waited_for);
    const struct weir__copy_event *copy = last_copy(s, action, event);
    if (copy != NULL && (from == UINT32_MAX || weir__snapshot_event(s, from)->end <= copy->end)) {
        from = made_for(s, copy, event->worker);
        into->cause = WEIR_CAUSE_COPY;
    } else if (from != UINT32_MAX) {
        into->cause = cause_of(s, action, from);
    }
    if (from != UINT32_MAX) into->awaited = shown_index(s, from);
    return from;
}

/* The parts as the report counts them; before norm and update, which it leaves out, all until the
 * awaited one's end is waiting. */
static void split_wait(const struct weir__snapshot_state *s, const struct weir__times *t,
                       uint32_t action, uint32_t from, const struct weir_trace_event *event,
                       struct weir_snapshot_action *into) {
    assert(into->waited <= into->start);
    uint64_t all = into->start - into->waited;
    if (weir__times_in_step(t, action)) {
        double now = (double)event->waited - (double)t->origin;
        struct weir__before before =
            weir__times_before(t, action, event->worker, fmax(now, t->first));
        into->waiting = (uint64_t)before.waiting;
        into->copy = (uint64_t)(before.delay + before.copying);
    } else if (from != UINT32_MAX) {
        uint64_t end = weir__snapshot_event(s, from)->end;
        if (end > event->waited) into->waiting = end - event->waited;
    }
    if (into->waiting > all) into->waiting = all;
    if (into->copy > all - into->waiting) into->copy = all - into->waiting;
    assert(into->waiting + into->copy <= all);
    into->host = all - into->waiting - into->copy;
}

static int fill_actions(struct weir__snapshot_state *s, const struct weir__times *t) {
    const struct weir_table *table = s->of.plan->table;
    uint32_t count = s->line_begin[s->pipe->worker_count];
    struct weir_snapshot_action *actions = weir__pool_take(&s->pool, count, sizeof *actions);
    if (actions == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t a = 0; a < table->action_count; a++) {
        const struct weir_trace_event *event = weir__snapshot_event(s, a);
        if (event == NULL) continue;
        struct weir_snapshot_action *into = &actions[shown_index(s, a)];
        into->action = event->action;
        into->worker = event->worker;
        into->waited = event->waited - s->origin;
        into->start = event->start - s->origin;
        into->end = event->end - s->origin;
        assert(into->waited <= into->start && into->start <= into->end);
        uint32_t from = fill_wait(s, a, event, into);
        split_wait(s, t, a, from, event, into);
    }
    s->shown.actions = actions;
    s->shown.action_count = count;
    s->shown.first = t->origin + (uint64_t)t->first - s->origin;
    return WEIR_OK;
}

/* ---- times ---- */

static int analyse(struct weir__snapshot_state *s, const uint64_t *first_event,
                   struct weir__times *t) {
    uint32_t workers = s->pipe->worker_count;
    int status = weir__times_init(t, s->pipe, s->of.plan, first_event);
    if (status != WEIR_OK) return status;
    struct weir_worker_time *times = weir__pool_take(&s->pool, workers, sizeof *times);
    if (times == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    if ((status = weir__times_report(t, times, &s->shown.report)) != WEIR_OK) return status;
    if ((status = weir__times_what_if(t, s->shown.what_if)) != WEIR_OK) return status;
    return fill_actions(s, t);
}

static int fill_times(struct weir__snapshot_state *s) {
    struct weir__times t;
    uint32_t workers = s->pipe->worker_count;
    uint64_t *first_event = weir__pool_take(&s->pool, workers, sizeof *first_event);
    if (first_event == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < workers; w++) {
        const struct weir__worker *worker = &s->pipe->workers[w];
        first_event[w] = worker->event_count - weir__trace_count(worker) + s->event_begin[w];
    }
    int status = analyse(s, first_event, &t);
    weir__times_clean_up(&t);
    return status;
}

/* ---- stages and workers ---- */

/* `times` has room for a micro-batch each. */
static void fill_stage(const struct weir__snapshot_state *s, uint32_t number, double *times,
                       struct weir_snapshot_stage *stage) {
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < s->shown.action_count; i++) {
            const struct weir_snapshot_action *action = &s->shown.actions[i];
            if (action->action.stage != number || action->action.kind != k) continue;
            assert(count < s->of.plan->micro_batch_count);
            times[count] = (double)(action->end - action->start);
            if (weir__kinds[k].in_step) stage->busy += times[count];
            count++;
        }
        stage->count[k] = count;
        stage->median[k] = weir__times_median(times, count);
    }
}

static int fill_stages(struct weir__snapshot_state *s) {
    uint32_t count = s->of.plan->table->stage_count;
    struct weir_snapshot_stage *stages = weir__pool_take(&s->pool, count, sizeof *stages);
    double *times = weir__pool_take(&s->pool, s->of.plan->micro_batch_count, sizeof *times);
    if (stages == NULL || times == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        const struct weir_stage *stage = &s->pipe->setup.stages[i].stage;
        if (stage->name != NULL) {
            stages[i].name = weir__pool_text(&s->pool, stage->name);
            if (stages[i].name == NULL) return WEIR_ERR_OUT_OF_MEMORY;
        }
        stages[i].worker = s->of.plan->stage_worker[i];
        stages[i].parameter_bytes = stage->parameter_bytes;
        fill_stage(s, i, times, &stages[i]);
    }
    s->shown.stages = stages;
    s->shown.stage_count = count;
    return WEIR_OK;
}

static int fill_workers(struct weir__snapshot_state *s) {
    uint32_t count = s->pipe->worker_count;
    struct weir_snapshot_worker *workers = weir__pool_take(&s->pool, count, sizeof *workers);
    if (workers == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < count; w++) {
        workers[w].place = s->pipe->placements[w].place;
        workers[w].threads = s->pipe->placements[w].threads;
        workers[w].plan = s->pipe->plan.devices[w];
        workers[w].action_begin = s->line_begin[w];
        workers[w].action_end = s->line_begin[w + 1];
        int status = weir__snapshot_fill_memory(s, w, &workers[w]);
        if (status != WEIR_OK) return status;
    }
    s->shown.workers = workers;
    s->shown.worker_count = count;
    return WEIR_OK;
}

static int fill_options(struct weir__snapshot_state *s) {
    const struct weir_pipe_options *options = &s->pipe->setup.options;
    struct weir_snapshot *shown = &s->shown;
    shown->step = s->of.step;
    shown->update = s->of.update;
    shown->rows = s->of.plan->rows;
    shown->micro_batch_count = s->of.plan->micro_batch_count;
    shown->schedule =
        weir__pool_text(&s->pool, options->table_csv != NULL ? "a table" : options->schedule);
    shown->checkpoint = options->checkpoint;
    shown->recompute_late = options->recompute_late;
    shown->copies = options->link == WEIR_LINK_COPY;
    shown->spins = s->pipe->spins;
    return shown->schedule != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

/* ---- the whole ---- */

static int fill(struct weir__snapshot_state *s, uint64_t step) {
    int status = weir__snapshot_choose(s, step);
    if (status != WEIR_OK) return status;
    if ((status = find_lines(s)) != WEIR_OK) return status;
    if ((status = fill_times(s)) != WEIR_OK) return status;
    if ((status = weir__snapshot_predict(s)) != WEIR_OK) return status;
    if ((status = fill_stages(s)) != WEIR_OK) return status;
    if ((status = fill_workers(s)) != WEIR_OK) return status;
    return fill_options(s);
}

int weir_snapshot_new(const struct weir_pipe *pipe, uint64_t step,
                      const struct weir_allocator *allocator, struct weir_snapshot **snapshot) {
    if (pipe == NULL || snapshot == NULL) return WEIR_ERR_ARGUMENT;
    if (atomic_load(&pipe->in_use)) return WEIR_ERR_BUSY;
    int status = weir__stamps_read(pipe);
    if (status != WEIR_OK) return status;
    struct weir__snapshot_state *s = weir__acquire(allocator, 1, sizeof *s);
    if (s == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    s->pipe = pipe;
    s->shown.typical = step == 0;
    weir__pool_init(&s->pool, allocator);
    status = fill(s, step);
    s->pipe = NULL; /* from here on it may be gone */
    s->of.plan = NULL;
    if (status == WEIR_OK)
        *snapshot = &s->shown;
    else
        weir_snapshot_destroy(&s->shown);
    return status;
}

void weir_snapshot_destroy(struct weir_snapshot *snapshot) {
    if (snapshot == NULL) return;
    struct weir__snapshot_state *s = (struct weir__snapshot_state *)snapshot;
    const struct weir_allocator *allocator = s->pool.allocator;
    weir__pool_clean_up(&s->pool);
    weir__release(allocator, s, 1, sizeof *s);
}

const char *weir_cause_text(enum weir_cause cause) {
    static const char *const texts[] = {
#define TEXT(name, text) text,
        WEIR_CAUSE_MAP(TEXT)
#undef TEXT
    };
    assert(cause < WEIR_CAUSE_COUNT);
    return texts[cause];
}

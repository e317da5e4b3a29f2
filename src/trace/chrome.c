/* SPDX-License-Identifier: MIT */
/*
 * The trace as Chrome trace events, the JSON that Perfetto and chrome://tracing open: a track per
 * worker, a slice per action and per wait, an arrow from the action that was waited for.
 *
 * Times are microseconds from the oldest event on, written from whole nanoseconds: no rounding, and
 * no locale's decimal comma. An event names the worker that it waited for, not the action; which
 * action follows from the waits that the pipe was prepared with.
 */
#include "trace/trace.h"

#include <inttypes.h>

/* Of all workers; any number does. */
enum { PROCESS = 1 };

struct chrome {
    const struct weir_pipe *pipe;
    uint64_t origin; /* ns */
    bool first;      /* nothing written yet, so no comma */
    uint32_t arrows;
    struct weir__text text;
};

/* ---- the form ---- */

static void open_event(struct chrome *c, const char *phase, uint32_t worker) {
    weir__text_add(&c->text, "%s{\"ph\":\"%s\",\"pid\":%d,\"tid\":%" PRIu32, c->first ? "" : ",\n",
                   phase, PROCESS, worker);
    c->first = false;
}

static void add_microseconds(struct chrome *c, const char *key, uint64_t ns) {
    weir__text_add(&c->text, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

/* ---- names of tracks ---- */

static void add_stages(struct chrome *c, uint32_t worker) {
    const struct weir__prepared *prepared = c->pipe->prepared[0];
    const char *before = " · stages ";
    for (uint32_t s = 0; s < prepared->table->stage_count; s++) {
        if (prepared->stage_worker[s] != worker) continue;
        weir__text_add(&c->text, "%s%" PRIu32, before, s);
        before = ",";
    }
}

static void name_track(struct chrome *c, uint32_t worker) {
    const struct weir_place *place = &c->pipe->placements[worker].place;
    open_event(c, "M", worker);
    weir__text_add(&c->text, ",\"name\":\"thread_name\",\"args\":{\"name\":\"worker %" PRIu32,
                   worker);
    if (place->bound) {
        weir__text_add(&c->text, " · cores %s", place->cores); /* digits, commas and dashes */
    } else {
        weir__text_add(&c->text, " · unbound");
    }
    add_stages(c, worker);
    weir__text_add(&c->text, "\"}}");
    open_event(c, "M", worker);
    weir__text_add(
        &c->text, ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%" PRIu32 "}}", worker);
}

static void name_tracks(struct chrome *c) {
    open_event(c, "M", 0);
    weir__text_add(&c->text, ",\"name\":\"process_name\",\"args\":{\"name\":\"weir\"}}");
    for (uint32_t w = 0; w < c->pipe->worker_count; w++) name_track(c, w);
}

/* ---- slices ---- */

static void add_wait(struct chrome *c, const struct weir_trace_event *event) {
    if (event->waited_for < 0 || event->start <= event->waited) return;
    open_event(c, "X", event->worker);
    weir__text_add(&c->text, ",\"name\":\"wait\",\"cat\":\"wait\"");
    add_microseconds(c, "ts", event->waited - c->origin);
    add_microseconds(c, "dur", event->start - event->waited);
    weir__text_add(&c->text, ",\"args\":{\"step\":%" PRIu64 ",\"waited_for\":%" PRId32 "}}",
                   event->step, event->waited_for);
}

static void add_action(struct chrome *c, const struct weir_trace_event *event) {
    const struct weir_action *action = &event->action;
    const struct weir__kind *kind = &weir__kinds[action->kind];
    const char *stage = c->pipe->setup.stages[action->stage].stage.name;
    char name[32];
    open_event(c, "X", event->worker);
    weir__text_add(&c->text, ",\"name\":\"%s\",\"cat\":\"%s\"", weir__trace_name(action, name),
                   kind->name);
    add_microseconds(c, "ts", event->start - c->origin);
    add_microseconds(c, "dur", event->end - event->start);
    weir__text_add(&c->text,
                   ",\"args\":{\"stage\":%u,\"micro_batch\":%" PRIu32
                   ",\"kind\":\"%c\",\"step\":%" PRIu64,
                   (unsigned)action->stage, action->micro_batch, kind->letter, event->step);
    add_microseconds(c, "waited_us", event->start - event->waited);
    weir__text_add(&c->text, ",\"waited_for\":%" PRId32, event->waited_for);
    if (stage != NULL) {
        weir__text_add(&c->text, ",\"stage_name\":");
        weir__text_json(&c->text, stage);
    }
    weir__text_add(&c->text, "}}");
}

/* ---- arrows ---- */

static bool same_action(const struct weir_action *a, const struct weir_action *b) {
    return a->kind == b->kind && a->stage == b->stage && a->micro_batch == b->micro_batch;
}

/* The action's index in the worker's row, or UINT32_MAX. `near` is where to look first: events come
 * in the row's order. */
static uint32_t find_action(const struct weir_table *table, uint32_t worker,
                            const struct weir_action *action, uint32_t near) {
    uint32_t begin = table->rows[worker], length = table->rows[worker + 1] - begin;
    for (uint32_t i = 0; i < length; i++) {
        uint32_t a = begin + (near + i) % length;
        if (same_action(&table->actions[a], action)) return a;
    }
    return UINT32_MAX;
}

/* What the event's action waited for. An event does not say which row count its step had; an action
 * that stands in several tables waits for the same one in all that matter. */
static const struct weir_action *awaited(const struct weir_pipe *pipe,
                                         const struct weir_trace_event *event, uint32_t near) {
    for (uint32_t i = 0; i < pipe->prepared_count; i++) {
        const struct weir__prepared *prepared = pipe->prepared[i];
        uint32_t a = find_action(prepared->table, event->worker, &event->action, near);
        if (a == UINT32_MAX) continue;
        uint32_t last = weir__trace_last_wait(prepared, a, (uint32_t)event->waited_for);
        if (last != UINT32_MAX) return &prepared->table->actions[last];
    }
    return NULL;
}

/* The event that ran `action` in the same step and had ended by `event`'s start, or NULL. */
static const struct weir_trace_event *find_event(const struct weir__worker *worker,
                                                 const struct weir_action *action,
                                                 const struct weir_trace_event *event) {
    uint32_t low = weir__trace_step_begin(worker, event->step);
    uint32_t high = weir__trace_step_begin(worker, event->step + 1);
    while (low < high) {
        const struct weir_trace_event *candidate = weir__trace_event(worker, --high);
        if (candidate->end <= event->start && same_action(&candidate->action, action))
            return candidate;
    }
    return NULL;
}

/* An end of an arrow belongs to the slice around its time, so the tail stands just inside. */
static void add_arrow(struct chrome *c, const struct weir_trace_event *from,
                      const struct weir_trace_event *to) {
    uint64_t tail = from->end > from->start ? from->end - 1 : from->start;
    uint32_t id = c->arrows++;
    open_event(c, "s", from->worker);
    weir__text_add(&c->text, ",\"id\":%" PRIu32 ",\"name\":\"crossing\",\"cat\":\"crossing\"", id);
    add_microseconds(c, "ts", tail - c->origin);
    weir__text_add(&c->text, "}");
    open_event(c, "f", to->worker);
    weir__text_add(&c->text, ",\"id\":%" PRIu32 ",\"name\":\"crossing\",\"cat\":\"crossing\"", id);
    add_microseconds(c, "ts", to->start - c->origin);
    weir__text_add(&c->text, ",\"bp\":\"e\"}");
}

static void add_crossing(struct chrome *c, const struct weir_trace_event *event, uint32_t near) {
    if (event->waited_for < 0) return;
    const struct weir_action *action = awaited(c->pipe, event, near);
    if (action == NULL) return;
    const struct weir_trace_event *from =
        find_event(&c->pipe->workers[event->waited_for], action, event);
    if (from != NULL) add_arrow(c, from, event);
}

/* ---- all of it ---- */

static uint64_t find_origin(const struct weir_pipe *pipe) {
    uint64_t origin = UINT64_MAX;
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        if (weir__trace_count(&pipe->workers[w]) == 0) continue;
        uint64_t first = weir__trace_event(&pipe->workers[w], 0)->waited;
        if (first < origin) origin = first;
    }
    return origin;
}

static void add_worker(struct chrome *c, const struct weir__worker *worker) {
    uint32_t count = weir__trace_count(worker), in_step = 0;
    for (uint32_t i = 0; i < count && c->text.status == WEIR_OK; i++) {
        const struct weir_trace_event *event = weir__trace_event(worker, i);
        bool begins = i == 0 || weir__trace_event(worker, i - 1)->step != event->step;
        in_step = begins ? 0 : in_step + 1;
        add_wait(c, event);
        add_action(c, event);
        add_crossing(c, event, in_step);
    }
}

int weir_pipe_trace_chrome(const struct weir_pipe *pipe, weir_write_fn *write, void *context) {
    if (pipe == NULL || write == NULL) return WEIR_ERR_ARGUMENT;
    struct chrome c = {.pipe = pipe, .origin = find_origin(pipe), .first = true};
    weir__text_begin(&c.text, write, context);
    weir__text_add(&c.text,
                   "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"weir\":\"%s\"},"
                   "\"traceEvents\":[\n",
                   weir_version());
    name_tracks(&c);
    for (uint32_t w = 0; w < pipe->worker_count; w++) add_worker(&c, &pipe->workers[w]);
    weir__text_add(&c.text, "\n]}\n");
    return weir__text_end(&c.text);
}

/* SPDX-License-Identifier: MIT */
/*
 * The trace as Chrome trace events, the JSON that Perfetto and chrome://tracing open: a track per
 * worker, a slice per action and per wait, an arrow from the action that was waited for; and a
 * track per stream of copies, with arrows from what made the bytes and to what they are for.
 *
 * Times are microseconds from the oldest event on, written from whole nanoseconds: no rounding, and
 * no locale's decimal comma. An event names the worker that it waited for, not the action; which
 * action follows from the waits that the pipe was prepared with.
 */
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>

/* Of rank 0, or of all workers where there are no ranks; any number does. */
enum { PROCESS = 1 };

struct chrome {
    const struct weir_pipe *pipe;
    uint64_t origin; /* ns */
    bool first;      /* nothing written yet, so no comma */
    bool any_lanes;
    uint32_t arrows;
    struct weir__text text;
};

/* ---- the form ---- */

/* A rank is a process; only a pipe without ranks has lanes, behind the workers. */
static void open_event(struct chrome *c, const char *phase, uint32_t track) {
    uint32_t rank = track < c->pipe->worker_count ? c->pipe->placements[track].place.rank : 0;
    weir__text_add(&c->text, "%s{\"ph\":\"%s\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32,
                   c->first ? "" : ",\n", phase, PROCESS + rank, track);
    c->first = false;
}

/* ---- names of tracks ---- */

static void add_stages(struct chrome *c, uint32_t worker) {
    const struct weir__row_plan *prepared = c->pipe->prepared[0];
    const char *before = " · stages ";
    for (uint32_t s = 0; s < prepared->table->stage_count; s++) {
        if (prepared->stage_worker[s] != worker) continue;
        weir__text_add(&c->text, "%s%" PRIu32, before, s);
        before = ",";
    }
}

/* Lanes come behind their worker's track: the caller's, then each worker's. */
static uint32_t place_of(const struct chrome *c, uint32_t worker) {
    return c->any_lanes ? worker * (c->pipe->worker_count + 2) : worker;
}

static uint32_t lane_number(uint32_t from) {
    return from == WEIR__FROM_CALLER ? 0 : 1 + from;
}

static uint32_t lane_track(const struct chrome *c, uint32_t worker, uint32_t from) {
    assert(worker < c->pipe->worker_count);
    uint32_t workers = c->pipe->worker_count;
    return workers + worker * (workers + 1) + lane_number(from);
}

static void place_track(struct chrome *c, uint32_t track, uint32_t place) {
    open_event(c, "M", track);
    weir__text_add(&c->text,
                   ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%" PRIu32 "}}", place);
}

static void name_lane(struct chrome *c, uint32_t worker, uint32_t from) {
    uint32_t track = lane_track(c, worker, from);
    open_event(c, "M", track);
    weir__text_add(&c->text,
                   ",\"name\":\"thread_name\",\"args\":{\"name\":\"copies to worker %" PRIu32,
                   worker);
    if (from == WEIR__FROM_CALLER)
        weir__text_add(&c->text, " from the caller\"}}");
    else
        weir__text_add(&c->text, " from worker %" PRIu32 "\"}}", from);
    place_track(c, track, place_of(c, worker) + 1 + lane_number(from));
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
    place_track(c, worker, place_of(c, worker));
    const struct weir__copy_stream *lane = c->pipe->workers[worker].copy_streams;
    for (; lane != NULL; lane = lane->next) name_lane(c, worker, lane->from);
}

/* "rank 1 on left, clock ±12 us". */
static void name_process(struct chrome *c, uint32_t worker) {
    const struct weir_place *place = &c->pipe->placements[worker].place;
    char name[160] = "weir", error[64] = "";
    if (place->clock_error_ns > 0)
        snprintf(error, sizeof error, ", clock ±%" PRIu64 " us", place->clock_error_ns / 1000 + 1);
    if (c->pipe->ranks != NULL)
        snprintf(name, sizeof name, "rank %" PRIu32 " on %s%s", place->rank, place->host, error);
    open_event(c, "M", worker);
    weir__text_add(&c->text, ",\"name\":\"process_name\",\"args\":{\"name\":");
    weir__text_json(&c->text, name);
    weir__text_add(&c->text, "}}");
}

static void name_tracks(struct chrome *c) {
    const struct weir__worker_place *placements = c->pipe->placements;
    for (uint32_t w = 0; w < c->pipe->worker_count; w++) {
        bool first = w == 0 || placements[w].place.rank != placements[w - 1].place.rank;
        if (first) name_process(c, w);
        name_track(c, w);
    }
}

/* ---- slices ---- */

static void add_wait(struct chrome *c, const struct weir_trace_event *event) {
    if (event->waited_for < 0 || event->start <= event->waited) return;
    assert(event->waited >= c->origin);
    open_event(c, "X", event->worker);
    weir__text_add(&c->text, ",\"name\":\"wait\",\"cat\":\"wait\"");
    weir__text_microseconds(&c->text, "ts", event->waited - c->origin);
    weir__text_microseconds(&c->text, "dur", event->start - event->waited);
    weir__text_add(&c->text, ",\"args\":{\"step\":%" PRIu64 ",\"waited_for\":%" PRId32 "}}",
                   event->step, event->waited_for);
}

static void add_action(struct chrome *c, const struct weir_trace_event *event) {
    assert(event->waited <= event->start && event->start <= event->end);
    const struct weir_action *action = &event->action;
    const struct weir__kind_facts *kind = &weir__kinds[action->kind];
    const char *stage = c->pipe->setup.stages[action->stage].stage.name;
    char name[32];
    open_event(c, "X", event->worker);
    weir__text_add(&c->text, ",\"name\":\"%s\",\"cat\":\"%s\"", weir__trace_name(action, name),
                   kind->name);
    weir__text_microseconds(&c->text, "ts", event->start - c->origin);
    weir__text_microseconds(&c->text, "dur", event->end - event->start);
    weir__text_add(&c->text,
                   ",\"args\":{\"stage\":%u,\"micro_batch\":%" PRIu32
                   ",\"kind\":\"%c\",\"step\":%" PRIu64,
                   (unsigned)action->stage, action->micro_batch, kind->letter, event->step);
    uint64_t update = weir__trace_update(c->pipe, event);
    if (update > 0) weir__text_add(&c->text, ",\"update\":%" PRIu64, update);
    weir__text_microseconds(&c->text, "waited_us", event->start - event->waited);
    weir__text_add(&c->text, ",\"waited_for\":%" PRId32, event->waited_for);
    if (stage != NULL) {
        weir__text_add(&c->text, ",\"stage_name\":");
        weir__text_json(&c->text, stage);
    }
    weir__text_add(&c->text, "}}");
}

/* ---- arrows ---- */

/* The action's index in the table, or UINT32_MAX. `near` is where in the worker's line to look
 * first: events come in the line's order. */
static uint32_t find_action(const struct weir_table *table, uint32_t worker,
                            const struct weir_action *action, uint32_t near) {
    assert(worker < table->worker_count);
    uint32_t begin = table->lines[worker], length = table->lines[worker + 1] - begin;
    for (uint32_t i = 0; i < length; i++) {
        uint32_t a = begin + (near + i) % length;
        if (weir__trace_same(&table->actions[a], action)) return a;
    }
    return UINT32_MAX;
}

/* What the event's action waited for. An event does not say which row count its step had; an action
 * that stands in several tables waits for the same one in all that matter. */
static const struct weir_action *awaited(const struct weir_pipe *pipe,
                                         const struct weir_trace_event *event, uint32_t near) {
    for (uint32_t i = 0; i < pipe->prepared_count; i++) {
        const struct weir__row_plan *prepared = pipe->prepared[i];
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
        const struct weir_trace_event *candidate = weir__trace_event_at(worker, --high);
        if (candidate->end <= event->start && weir__trace_same(&candidate->action, action))
            return candidate;
    }
    return NULL;
}

/* A slice, as far as arrows need it. */
struct slice {
    uint32_t track;
    uint64_t start, end;
};

static struct slice slice_of(const struct weir_trace_event *event) {
    return (struct slice){event->worker, event->start, event->end};
}

/* An end of an arrow belongs to the slice around its time, so the tail stands just inside. */
static void add_arrow(struct chrome *c, struct slice from, struct slice to) {
    assert(c->origin <= from.start && c->origin <= to.start);
    uint64_t tail = from.end > from.start ? from.end - 1 : from.start;
    uint32_t id = c->arrows++;
    open_event(c, "s", from.track);
    weir__text_add(&c->text, ",\"id\":%" PRIu32 ",\"name\":\"crossing\",\"cat\":\"crossing\"", id);
    weir__text_microseconds(&c->text, "ts", tail - c->origin);
    weir__text_add(&c->text, "}");
    open_event(c, "f", to.track);
    weir__text_add(&c->text, ",\"id\":%" PRIu32 ",\"name\":\"crossing\",\"cat\":\"crossing\"", id);
    weir__text_microseconds(&c->text, "ts", to.start - c->origin);
    weir__text_add(&c->text, ",\"bp\":\"e\"}");
}

static void add_crossing(struct chrome *c, const struct weir_trace_event *event, uint32_t near) {
    if (event->waited_for < 0) return;
    const struct weir_action *action = awaited(c->pipe, event, near);
    if (action == NULL) return;
    const struct weir_trace_event *from =
        find_event(&c->pipe->workers[event->waited_for], action, event);
    if (from != NULL) add_arrow(c, slice_of(from), slice_of(event));
}

/* ---- copies ---- */

/* The event of the table's action in the copy's step, NULL if it is not kept. */
static const struct weir_trace_event *event_of(const struct chrome *c,
                                               const struct weir__copy_event *of, uint32_t action) {
    const struct weir_table *table = of->plan->table;
    uint32_t w = weir__table_worker_of(table, action);
    const struct weir__worker *worker = &c->pipe->workers[w];
    uint32_t at = weir__trace_step_begin(worker, of->step) + action - table->lines[w];
    if (at >= weir__trace_step_begin(worker, of->step + 1)) return NULL;
    const struct weir_trace_event *event = weir__trace_event_at(worker, at);
    return weir__trace_same(&event->action, &table->actions[action]) ? event : NULL;
}

static void add_copy_arrows(struct chrome *c, const struct weir__copy_event *event,
                            struct slice slice) {
    const struct weir__row_plan *p = event->plan;
    const struct weir_trace_event *to = event_of(c, event, p->copies[event->copy].action);
    for (uint32_t i = event->copy; i != WEIR__NO_COPY; i = p->copies[i].next) {
        if (p->copies[i].from_block == WEIR__NO_BLOCK) continue;
        uint32_t made = weir__prepared_made(p, &p->copies[i]);
        const struct weir_trace_event *from = event_of(c, event, made);
        if (from != NULL && from->start <= slice.start) add_arrow(c, slice_of(from), slice);
    }
    if (to != NULL) add_arrow(c, slice, slice_of(to));
}

static void add_copy(struct chrome *c, const struct weir__copy_event *event) {
    const struct weir__row_plan *p = event->plan;
    const struct weir__prepared_copy *copy = &p->copies[event->copy];
    assert(copy->unit == event->copy);
    const struct weir__lane *lane = &p->lanes[copy->lane];
    bool caller = lane->from == WEIR__FROM_CALLER;
    struct slice slice = {lane_track(c, lane->worker, lane->from), event->start, event->end};
    uint64_t bytes = 0;
    char name[32];
    for (uint32_t i = event->copy; i != WEIR__NO_COPY; i = p->copies[i].next)
        bytes += p->copies[i].bytes;
    open_event(c, "X", slice.track);
    weir__text_add(&c->text, ",\"name\":\"copy for %s\",\"cat\":\"copy\"",
                   weir__trace_name(&p->table->actions[copy->action], name));
    weir__text_microseconds(&c->text, "ts", event->start - c->origin);
    weir__text_microseconds(&c->text, "dur", event->end - event->start);
    weir__text_add(&c->text,
                   ",\"args\":{\"step\":%" PRIu64 ",\"bytes\":%" PRIu64
                   ",\"from\":%d,\"to\":%" PRIu32 ",\"by\":\"%s\"}}",
                   event->step, bytes, caller ? -1 : (int)lane->from, lane->worker,
                   copy->by_kernel ? "kernel" : "engine");
    add_copy_arrows(c, event, slice);
}

/* Those of actions that are no longer kept are left out. */
static void add_copies(struct chrome *c, const struct weir__worker *worker) {
    uint64_t count = worker->copy_event_count, capacity = worker->copy_event_capacity;
    for (uint64_t i = count > capacity ? count - capacity : 0; i < count; i++) {
        const struct weir__copy_event *event = &worker->copy_events[i % capacity];
        if (event->start >= c->origin && c->text.status == WEIR_OK) add_copy(c, event);
    }
}

/* ---- all of it ---- */

static uint64_t find_origin(const struct weir_pipe *pipe) {
    uint64_t origin = UINT64_MAX;
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        if (weir__trace_count(&pipe->workers[w]) == 0) continue;
        uint64_t first = weir__trace_event_at(&pipe->workers[w], 0)->waited;
        if (first < origin) origin = first;
    }
    return origin;
}

static void add_worker(struct chrome *c, const struct weir__worker *worker) {
    uint32_t count = weir__trace_count(worker), in_step = 0;
    for (uint32_t i = 0; i < count && c->text.status == WEIR_OK; i++) {
        const struct weir_trace_event *event = weir__trace_event_at(worker, i);
        bool begins = i == 0 || weir__trace_event_at(worker, i - 1)->step != event->step;
        in_step = begins ? 0 : in_step + 1;
        add_wait(c, event);
        add_action(c, event);
        add_crossing(c, event, in_step);
    }
}

int weir_pipe_trace_chrome(const struct weir_pipe *pipe, weir_write_fn *write, void *context) {
    if (pipe == NULL || write == NULL) return WEIR_ERR_ARGUMENT;
    int status = weir__stamps_read(pipe);
    if (status != WEIR_OK) return status;
    struct chrome c = {.pipe = pipe, .origin = find_origin(pipe), .first = true};
    for (uint32_t w = 0; w < pipe->worker_count; w++)
        c.any_lanes |= pipe->workers[w].copy_streams != NULL;
    weir__text_begin(&c.text, write, context);
    weir__text_add(&c.text,
                   "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"weir\":\"%s\"},"
                   "\"traceEvents\":[\n",
                   weir_version());
    name_tracks(&c);
    for (uint32_t w = 0; w < pipe->worker_count; w++) add_worker(&c, &pipe->workers[w]);
    for (uint32_t w = 0; w < pipe->worker_count; w++) add_copies(&c, &pipe->workers[w]);
    weir__text_add(&c.text, "\n]}\n");
    return weir__text_end(&c.text);
}

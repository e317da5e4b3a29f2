/* SPDX-License-Identifier: MIT */
/*
 * A predicted step as a drawing and as Chrome trace events, like a run's. Seconds become whole
 * nanoseconds, as a clock would have counted them.
 */
#include "trace/timeline.h"
#include "weir_predict.h"

#include <inttypes.h>
#include <math.h>

#define SECONDS_MAX 1e9

static bool can_be_drawn(const struct weir_table *table, const struct weir_prediction *prediction,
                         weir_write_fn *write) {
    return table != NULL && prediction != NULL && write != NULL && prediction->start != NULL &&
           prediction->worker_count == table->worker_count && table->action_count > 0;
}

static uint64_t ns_of(double seconds) {
    assert(0.0 <= seconds && seconds <= SECONDS_MAX);
    return (uint64_t)llround(seconds * 1e9);
}

static struct weir_trace_event event_of(const struct weir_table *table,
                                        const struct weir_prediction *prediction, uint32_t worker,
                                        uint32_t a) {
    assert(table->lines[worker] <= a && a < table->lines[worker + 1]);
    uint64_t start = ns_of(prediction->start[a]);
    uint64_t before = a > table->lines[worker] ? ns_of(prediction->end[a - 1]) : 0;
    return (struct weir_trace_event){.waited = before < start ? before : start,
                                     .start = start,
                                     .end = ns_of(prediction->end[a]),
                                     .action = table->actions[a],
                                     .worker = worker,
                                     .waited_for = -1};
}

/* ---- text ---- */

struct predicted_drawing {
    const struct weir_table *table;
    struct weir_trace_event *events;
};

static struct weir__timeline_line line_of(const void *context, uint32_t w) {
    const struct predicted_drawing *drawing = context;
    const struct weir_table *table = drawing->table;
    assert(w < table->worker_count);
    uint32_t first = table->lines[w], end = table->lines[w + 1];
    bool several = false;
    for (uint32_t a = first; a < end; a++)
        several = several || table->actions[a].stage != table->actions[first].stage;
    return (struct weir__timeline_line){drawing->events, first, end - first, table->action_count,
                                        several};
}

int weir_prediction_text(const struct weir_table *table, const struct weir_prediction *prediction,
                         const struct weir_allocator *allocator, uint32_t columns, bool colour,
                         weir_write_fn *write, void *context) {
    if (!can_be_drawn(table, prediction, write)) return WEIR_ERR_ARGUMENT;
    if (prediction->total > SECONDS_MAX) return WEIR_ERR_OVERFLOW;
    struct predicted_drawing drawing = {.table = table};
    drawing.events = weir__acquire(allocator, table->action_count, sizeof *drawing.events);
    if (drawing.events == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < table->worker_count; w++)
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++)
            drawing.events[a] = event_of(table, prediction, w, a);
    struct weir__timeline source = {.title = "predicted",
                                    .worker_count = table->worker_count,
                                    .stage_count = table->stage_count,
                                    .line = line_of,
                                    .context = &drawing};
    int status = weir__timeline_text(&source, columns, colour, write, context);
    weir__release(allocator, drawing.events, table->action_count, sizeof *drawing.events);
    return status;
}

/* ---- Chrome trace events ---- */

static void add_event(struct weir__text *text, const struct weir_trace_event *event) {
    const struct weir__kind_facts *kind = &weir__kinds[event->action.kind];
    char name[32];
    weir__text_add(text,
                   ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%" PRIu32 ",\"name\":\"%s\",\"cat\":\"%s\"",
                   event->worker, weir__trace_name(&event->action, name), kind->name);
    weir__text_microseconds(text, "ts", event->start);
    weir__text_microseconds(text, "dur", event->end - event->start);
    weir__text_add(text, ",\"args\":{\"stage\":%u,\"micro_batch\":%" PRIu32 ",\"kind\":\"%c\"",
                   (unsigned)event->action.stage, event->action.micro_batch, kind->letter);
    weir__text_microseconds(text, "waited_us", event->start - event->waited);
    weir__text_add(text, "}}");
}

static void name_worker(struct weir__text *text, uint32_t w) {
    weir__text_add(text,
                   ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%" PRIu32
                   ",\"name\":\"thread_name\",\"args\":{\"name\":\"worker %" PRIu32 "\"}}"
                   ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%" PRIu32
                   ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%" PRIu32 "}}",
                   w, w, w, w);
}

int weir_prediction_chrome(const struct weir_table *table, const struct weir_prediction *prediction,
                           weir_write_fn *write, void *context) {
    if (!can_be_drawn(table, prediction, write)) return WEIR_ERR_ARGUMENT;
    if (prediction->total > SECONDS_MAX) return WEIR_ERR_OVERFLOW;
    struct weir__text text;
    weir__text_begin(&text, write, context);
    weir__text_add(&text,
                   "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"weir\":\"%s\"},"
                   "\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":1,\"tid\":0,"
                   "\"name\":\"process_name\",\"args\":{\"name\":\"weir, predicted\"}}",
                   weir_version());
    for (uint32_t w = 0; w < table->worker_count; w++) name_worker(&text, w);
    for (uint32_t w = 0; w < table->worker_count && text.status == WEIR_OK; w++)
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            struct weir_trace_event event = event_of(table, prediction, w, a);
            add_event(&text, &event);
        }
    weir__text_add(&text, "\n]}\n");
    return weir__text_end(&text);
}

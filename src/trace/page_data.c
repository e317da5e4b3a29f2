/* SPDX-License-Identifier: MIT */
/* The page's facts for programs, its own script among them. Whole nanoseconds and bytes, so that
 * they are exactly those of the trace. */
#include "trace/page.h"

#include <inttypes.h>

static void add_real(struct weir__page *page, const char *key, double value) {
    weir__text_add(&page->text, ",\"%s\":", key);
    weir__html_real(&page->text, value);
}

/* "name":["text",...] */
static void add_names(struct weir__page *page) {
    weir__text_string(&page->text, ",\n\"kinds\":[");
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++)
        weir__text_add(&page->text, "%s[\"%c\",\"%s\",%s]", k == 0 ? "" : ",",
                       weir__kinds[k].letter, weir__kinds[k].name,
                       weir__kinds[k].per_micro_batch ? "true" : "false");
    weir__text_string(&page->text, "],\n\"causes\":[");
    for (uint32_t i = 0; i < WEIR_CAUSE_COUNT; i++)
        weir__text_add(&page->text, "%s\"%s\"", i == 0 ? "" : ",",
                       weir_cause_text((enum weir_cause)i));
    weir__text_string(&page->text, "],\n\"stages\":[");
    for (uint32_t i = 0; i < page->snapshot->stage_count; i++) {
        if (i > 0) weir__text_string(&page->text, ",");
        weir__html_json(&page->text, page->snapshot->stages[i].name);
    }
    weir__text_string(&page->text, "]");
}

static void add_what_if(struct weir__page *page) {
    weir__text_string(&page->text, ",\n\"what_if\":{");
    for (uint32_t i = 0; i < WEIR_WHAT_IF_COUNT; i++) {
        weir__text_add(&page->text, "%s\"%s\":", i == 0 ? "" : ",",
                       weir_what_if_text((enum weir_what_if)i));
        weir__html_real(&page->text, page->snapshot->what_if[i]);
    }
    weir__text_string(&page->text, "}");
}

static void add_times(struct weir__page *page, const struct weir_worker_time *time) {
    add_real(page, "idle", time->idle);
    add_real(page, "dependency", time->dependency);
    add_real(page, "copy", time->copy);
    add_real(page, "imbalance", time->imbalance);
    add_real(page, "host", time->host);
}

static void add_predicted(struct weir__page *page) {
    const struct weir_snapshot *s = page->snapshot;
    weir__text_string(&page->text, ",\n\"predicted\":");
    if (s->predicted.step_count == 0) {
        weir__text_string(&page->text, "null");
        return;
    }
    weir__text_add(&page->text, "{\"steps\":%" PRIu32, s->predicted.step_count);
    add_real(page, "makespan", s->predicted.makespan);
    add_real(page, "bubble", s->predicted.bubble);
    weir__text_string(&page->text, ",\"workers\":[");
    for (uint32_t w = 0; w < s->worker_count; w++) {
        weir__text_string(&page->text, w == 0 ? "{\"busy\":" : ",{\"busy\":");
        weir__html_real(&page->text, s->predicted.workers[w].busy);
        add_times(page, &s->predicted.workers[w]);
        weir__text_string(&page->text, "}");
    }
    weir__text_string(&page->text, "]}");
}

static void add_worker(struct weir__page *page, uint32_t number) {
    const struct weir_snapshot_worker *worker = &page->snapshot->workers[number];
    const struct weir_worker_time *time = &page->snapshot->report.workers[number];
    weir__text_add(&page->text,
                   "%s\n{\"lasting\":%" PRIu64 ",\"planned\":%" PRIu64 ",\"peak\":%" PRIu64,
                   number == 0 ? "" : ",", worker->lasting, worker->plan.total, worker->peak);
    add_real(page, "busy", time->busy);
    add_times(page, time);
    weir__text_string(&page->text, ",\n\"memory\":[");
    for (uint32_t i = 0; i < worker->memory_count; i++) {
        const struct weir_snapshot_memory *point = &worker->memory[i];
        weir__text_add(&page->text,
                       "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]",
                       i == 0 ? "" : ",", point->ns, point->activations, point->borders,
                       point->portals, point->workspace);
    }
    weir__text_string(&page->text, "]}");
}

static void add_action(struct weir__page *page, uint32_t number) {
    assert(number < page->snapshot->action_count);
    const struct weir_snapshot_action *a = &page->snapshot->actions[number];
    int64_t awaited = a->awaited == WEIR_NO_ACTION ? -1 : (int64_t)a->awaited;
    weir__text_add(&page->text,
                   "%s\n[%" PRIu32 ",%u,%u,%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                   ",%" PRIu64 ",%" PRIu64 ",%" PRId32 ",%" PRId64 ",%u]",
                   number == 0 ? "" : ",", a->worker, (unsigned)a->action.kind,
                   (unsigned)a->action.stage, a->action.micro_batch, a->waited, a->start, a->end,
                   a->waiting, a->copy, a->host, a->waited_for, awaited, (unsigned)a->cause);
}

static void add_step(struct weir__page *page) {
    const struct weir_snapshot *s = page->snapshot;
    weir__text_add(&page->text,
                   ",\"step\":%" PRIu64 ",\"rows\":%" PRId64 ",\"span\":%" PRIu64
                   ",\"first\":%" PRIu64,
                   s->step, s->rows, s->span, s->first);
    add_real(page, "makespan", s->report.makespan);
    weir__text_add(&page->text, ",\n\"time\":[\"%s\",%.0f,%u],\"size\":[\"%s\",%.0f,%u]",
                   page->time.name, page->time.size, (unsigned)page->time.decimals, page->size.name,
                   page->size.size, (unsigned)page->size.decimals);
    add_names(page);
    add_what_if(page);
    add_predicted(page);
    add_real(page, "planned_step", page->options->planned_step);
    weir__text_string(&page->text, ",\n\"workers\":[");
    for (uint32_t w = 0; w < s->worker_count; w++) add_worker(page, w);
    weir__text_string(&page->text, "],\n\"actions\":[");
    for (uint32_t i = 0; i < s->action_count; i++) add_action(page, i);
    weir__text_string(&page->text, "]");
}

/* ---- curves ---- */

static void add_numbers(struct weir__page *page, const char *key, const double *numbers,
                        uint32_t count) {
    weir__text_add(&page->text, ",\"%s\":[", key);
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0) weir__text_string(&page->text, ",");
        weir__html_real(&page->text, numbers[i]);
    }
    weir__text_string(&page->text, "]");
}

static void add_series(struct weir__page *page, const struct weir_report_series *series) {
    bool level = series->form == WEIR_REPORT_LEVEL;
    weir__text_string(&page->text, "{\"name\":");
    weir__html_json(&page->text, series->name);
    add_numbers(page, "x", series->x, level ? 0 : series->count);
    add_numbers(page, "y", series->y, level && series->count > 0 ? 1 : series->count);
    weir__text_string(&page->text, "}");
}

static void add_charts(struct weir__page *page) {
    const struct weir_report_options *options = page->options;
    weir__text_string(&page->text, "\"charts\":[");
    for (uint32_t i = 0; i < options->chart_count; i++) {
        weir__text_add(&page->text, i == 0 ? "[" : ",\n[");
        for (uint32_t k = 0; k < options->charts[i].series_count; k++) {
            if (k > 0) weir__text_string(&page->text, ",\n");
            add_series(page, &options->charts[i].series[k]);
        }
        weir__text_string(&page->text, "]");
    }
    weir__text_string(&page->text, "]");
}

void weir__page_data(struct weir__page *page) {
    weir__text_string(&page->text, "<script type=\"application/json\" id=\"data\">{");
    add_charts(page);
    if (page->snapshot != NULL) add_step(page);
    weir__text_string(&page->text, "}</script>\n");
}

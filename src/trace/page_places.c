/* SPDX-License-Identifier: MIT */
/* Who runs where: a row per worker, a row per stage. */
#include "trace/page.h"

#include <inttypes.h>

static void add_stage_numbers(struct weir__page *page, uint32_t worker) {
    const struct weir_snapshot *s = page->snapshot;
    const char *before = "";
    for (uint32_t i = 0; i < s->stage_count; i++) {
        if (s->stages[i].worker != worker) continue;
        weir__text_add(&page->text, "%s%" PRIu32, before, i);
        before = ", ";
    }
}

static bool has_ranks(const struct weir__page *page) {
    return page->snapshot->workers[0].place.host[0] != 0;
}

static void add_rank(struct weir__page *page, const struct weir_place *place) {
    struct weir__text *text = &page->text;
    weir__text_add(text, "<td>%" PRIu32 " on ", place->rank);
    weir__html_text(text, place->host);
    if (place->clock_error_ns > 0)
        weir__text_add(text, ", clock ±%" PRIu64 " us", place->clock_error_ns / 1000 + 1);
    weir__text_string(text, "</td>");
}

static void add_worker(struct weir__page *page, uint32_t number) {
    const struct weir_snapshot_worker *worker = &page->snapshot->workers[number];
    struct weir__text *text = &page->text;
    weir__text_add(text, "<tr><th scope=\"row\">worker %" PRIu32 "</th>", number);
    if (has_ranks(page)) add_rank(page, &worker->place);
    weir__text_string(text, "<td>");
    add_stage_numbers(page, number);
    weir__text_string(text, "</td><td>");
    weir__html_text(text, worker->plan.name);
    weir__text_add(text, "</td><td>%" PRIu32 "</td><td>", worker->threads);
    weir__html_text(text, worker->place.bound ? worker->place.cores : "not bound");
    weir__text_string(text, "</td><td>");
    if (worker->place.numa_node >= 0)
        weir__text_add(text, "%" PRId32, worker->place.numa_node);
    else
        weir__text_string(text, "–");
    weir__text_string(text, "</td><td>");
    weir__html_text(text, worker->place.cache[0] != 0 ? worker->place.cache : "–");
    weir__text_string(text, "</td></tr>\n");
}

static bool kind_occurs(const struct weir_snapshot *s, uint32_t kind) {
    for (uint32_t i = 0; i < s->stage_count; i++)
        if (s->stages[i].count[kind] > 0) return true;
    return false;
}

static void add_stage(struct weir__page *page, uint32_t number) {
    assert(number < page->snapshot->stage_count);
    const struct weir_snapshot *s = page->snapshot;
    const struct weir_snapshot_stage *stage = &s->stages[number];
    struct weir__text *text = &page->text;
    weir__text_add(text, "<tr><th scope=\"row\">stage %" PRIu32, number);
    if (stage->name != NULL) {
        weir__text_string(text, " <bdi>");
        weir__html_text(text, stage->name);
        weir__text_string(text, "</bdi>");
    }
    weir__text_string(text, "</th>");
    if (page->options->stage_notes != NULL) {
        weir__text_string(text, "<td class=\"left\"><bdi>");
        weir__html_text(text, page->options->stage_notes[number]);
        weir__text_string(text, "</bdi></td>");
    }
    weir__text_add(text, "<td>%" PRIu32 "</td><td>", stage->worker);
    weir__html_in(text, &page->size, (double)stage->parameter_bytes);
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) {
        if (!kind_occurs(s, k)) continue;
        weir__text_string(text, "</td><td>");
        if (stage->count[k] > 0) weir__html_in(text, &page->time, stage->median[k]);
    }
    weir__text_string(text, "</td><td>");
    weir__html_in(text, &page->time, stage->busy);
    weir__text_string(text, "</td><td>");
    weir__html_percent(text, stage->busy / s->report.makespan);
    weir__text_string(text, "</td></tr>\n");
}

static void add_stages(struct weir__page *page) {
    const struct weir_snapshot *s = page->snapshot;
    struct weir__text *text = &page->text;
    weir__text_add(text,
                   "<h3>Stages <small>median of an action, and all in the step, in %s"
                   "</small></h3>\n<div class=\"wide\"><table>\n<thead><tr><th></th>",
                   page->time.name);
    if (page->options->stage_notes != NULL) weir__text_string(text, "<th></th>");
    weir__text_add(text, "<th scope=\"col\">worker</th><th scope=\"col\">parameters, %s</th>",
                   page->size.name);
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++)
        if (kind_occurs(s, k))
            weir__text_add(text, "<th scope=\"col\">%s</th>", weir__kinds[k].name);
    weir__text_string(text, "<th scope=\"col\">all</th><th scope=\"col\">of the step</th></tr>"
                            "</thead>\n<tbody>\n");
    for (uint32_t i = 0; i < s->stage_count; i++) add_stage(page, i);
    weir__text_string(text, "</tbody></table></div>\n");
}

void weir__page_places(struct weir__page *page) {
    struct weir__text *text = &page->text;
    weir__text_string(text, "<section id=\"places\">\n<h2>Placement</h2>\n<h3>Workers</h3>\n"
                            "<div class=\"wide\"><table>\n<thead><tr><th></th>");
    if (has_ranks(page)) weir__text_string(text, "<th scope=\"col\">rank</th>");
    weir__text_string(text, "<th scope=\"col\">stages</th>"
                            "<th scope=\"col\">device</th><th scope=\"col\">threads</th>"
                            "<th scope=\"col\">cores</th><th scope=\"col\">NUMA node</th>"
                            "<th scope=\"col\">shared cache</th></tr></thead>\n<tbody>\n");
    for (uint32_t w = 0; w < page->snapshot->worker_count; w++) add_worker(page, w);
    weir__text_string(text, "</tbody></table></div>\n");
    add_stages(page);
    weir__text_string(text, "</section>\n");
}

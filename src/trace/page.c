/* SPDX-License-Identifier: MIT */
/* The page as a whole: head, key figures, sections, the run's own tables. */
#include "trace/page.h"

#include <inttypes.h>
#include <string.h>

/* Nothing may be fetched, so that the page is the same everywhere and tells nobody that it was
 * opened. */
#define POLICY                                                                                     \
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; " \
    "form-action 'none'"

static void add_document_head(struct weir__page *page) {
    const char *title = page->options->title;
    weir__text_string(&page->text,
                      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    weir__text_string(&page->text,
                      "<meta http-equiv=\"Content-Security-Policy\" content=\"" POLICY "\">\n");
    weir__text_add(&page->text, "<meta name=\"generator\" content=\"weir %s\">\n<title>",
                   weir_version());
    weir__html_text(&page->text, title != NULL ? title : "Weir");
    weir__text_string(&page->text, "</title>\n<style>\n");
    weir__text_string(&page->text, weir__page_style);
    weir__text_string(&page->text, "</style>\n</head>\n<body>\n");
}

static void add_paragraph(struct weir__page *page, const char *class_of, const char *string) {
    if (string == NULL) return;
    weir__text_add(&page->text, "<p class=\"%s\"><bdi>", class_of);
    weir__html_text(&page->text, string);
    weir__text_string(&page->text, "</bdi></p>\n");
}

void weir__page_cell(struct weir__page *page, const struct weir__unit *unit, double value) {
    weir__text_string(&page->text, "<td>");
    weir__html_in(&page->text, unit, value);
    weir__text_string(&page->text, "</td>");
}

/* ---- key figures ---- */

static void begin_figure(struct weir__page *page, const char *name) {
    weir__text_string(&page->text, "<div><dt>");
    weir__html_text(&page->text, name);
    weir__text_string(&page->text, "</dt><dd>");
}

static void end_figure(struct weir__page *page) {
    weir__text_string(&page->text, "</dd></div>\n");
}

static void add_step_figures(struct weir__page *page) {
    const struct weir_snapshot *s = page->snapshot;
    bool recomputes = false;
    uint64_t planned = 0;
    for (uint32_t i = 0; i < s->stage_count; i++) recomputes |= s->stages[i].count[WEIR_KIND_R] > 0;
    for (uint32_t w = 0; w < s->worker_count; w++) planned += s->workers[w].plan.total;
    begin_figure(page, s->typical && s->kept_count > 1 ? "typical step" : "step");
    weir__html_with(&page->text, &page->time, s->report.makespan);
    end_figure(page);
    if (s->predicted.step_count > 0) {
        begin_figure(page, "predicted");
        weir__html_with(&page->text, &page->time, s->predicted.makespan);
        weir__text_string(&page->text, " <small>");
        weir__page_difference(page, s->predicted.makespan, s->report.makespan);
        weir__text_string(&page->text, "</small>");
        end_figure(page);
    }
    begin_figure(page, "bubble");
    weir__html_percent(&page->text, s->report.bubble);
    end_figure(page);
    if (recomputes) {
        begin_figure(page, "recompute hidden");
        weir__html_percent(&page->text, s->report.recompute_hidden);
        end_figure(page);
    }
    struct weir__unit unit = weir__unit_of_size((double)planned);
    begin_figure(page, "planned memory");
    weir__html_with(&page->text, &unit, (double)planned);
    end_figure(page);
}

static void add_figures(struct weir__page *page) {
    const struct weir_report_options *options = page->options;
    if (options->figure_count == 0 && page->snapshot == NULL) return;
    weir__text_string(&page->text, "<dl class=\"figures\">\n");
    for (uint32_t i = 0; i < options->figure_count; i++) {
        begin_figure(page, options->figures[i].name);
        weir__html_text(&page->text, options->figures[i].value);
        end_figure(page);
    }
    if (page->snapshot != NULL) add_step_figures(page);
    weir__text_string(&page->text, "</dl>\n");
}

static void add_pipeline(struct weir__page *page) {
    const struct weir_snapshot *s = page->snapshot;
    struct weir__text *text = &page->text;
    weir__text_string(text, "<p class=\"summary\">");
    weir__html_text(text, s->schedule);
    weir__text_add(text,
                   ": %" PRIu32 " stage%s on %" PRIu32 " worker%s, %" PRId64 " row%s in %" PRIu32
                   " micro-batch%s; checkpoint %s",
                   s->stage_count, weir__s(s->stage_count), s->worker_count,
                   weir__s(s->worker_count), s->rows, weir__s((uint64_t)s->rows),
                   s->micro_batch_count, weir__es(s->micro_batch_count),
                   weir_checkpoint_name(s->checkpoint));
    if (s->recompute_late) weir__text_string(text, ", recompute late");
    weir__text_add(text, "; crossings %s; workers %s while they wait</p>\n",
                   s->copies ? "are copied" : "pass pointers", s->spins ? "spin" : "sleep");
}

static void add_header(struct weir__page *page) {
    const struct weir_report_options *options = page->options;
    weir__text_string(&page->text, "<header>\n<h1><bdi>");
    weir__html_text(&page->text, options->title != NULL ? options->title : "Weir");
    weir__text_string(&page->text, "</bdi></h1>\n");
    add_paragraph(page, "summary", options->summary);
    if (page->snapshot != NULL) add_pipeline(page);
    add_paragraph(page, "warning", options->warning);
    if (page->snapshot == NULL)
        add_paragraph(page, "warning",
                      "No training step was traced to its end, so there is no timeline, no lost "
                      "time and no memory over time.");
    add_figures(page);
    weir__text_string(&page->text, "</header>\n<main>\n");
}

/* ---- the run ---- */

/* Bytes of a value from which on it stands below its name. */
enum { LONG = 36 };

static void add_table(struct weir__page *page, const struct weir_report_table *table) {
    weir__text_string(&page->text, "<h3>");
    weir__html_text(&page->text, table->title);
    weir__text_string(&page->text, "</h3>\n<dl class=\"facts\">\n");
    for (uint32_t i = 0; i < table->fact_count; i++) {
        const struct weir_report_fact *fact = &table->facts[i];
        bool is_long = fact->value != NULL && strlen(fact->value) > LONG;
        weir__text_add(&page->text, "<div class=\"%s%s\"><dt><bdi>", fact->strong ? "strong " : "",
                       is_long ? "long" : "");
        weir__html_text(&page->text, fact->name);
        weir__text_string(&page->text, "</bdi></dt><dd><bdi>");
        weir__html_text(&page->text, fact->value);
        weir__text_string(&page->text, "</bdi></dd></div>\n");
    }
    weir__text_string(&page->text, "</dl>\n");
}

static void add_run(struct weir__page *page) {
    const struct weir_report_options *options = page->options;
    if (options->command == NULL && options->table_count == 0) return;
    weir__text_string(&page->text, "<section id=\"run\">\n<h2>The run</h2>\n");
    if (options->command != NULL) {
        weir__text_string(&page->text, "<h3>To repeat it</h3>\n<pre id=\"command\"><code><bdi>");
        weir__html_text(&page->text, options->command);
        weir__text_string(&page->text, "</bdi></code></pre>\n");
    }
    for (uint32_t i = 0; i < options->table_count; i++) add_table(page, &options->tables[i]);
    weir__text_string(&page->text, "</section>\n");
}

static void add_sections(struct weir__page *page) {
    if (page->snapshot != NULL) {
        weir__page_timeline(page);
        weir__page_lost(page);
        weir__page_predicted(page);
        weir__page_what_if(page);
        weir__page_memory(page);
    }
    weir__page_charts(page);
    if (page->snapshot != NULL) weir__page_places(page);
    add_run(page);
    weir__text_string(&page->text, "</main>\n");
    weir__page_data(page);
    weir__text_string(&page->text, "<script>\n");
    weir__text_string(&page->text, weir__page_script);
    weir__text_string(&page->text, "</script>\n</body>\n</html>\n");
}

int weir_report_html(const struct weir_report_options *options, weir_write_fn *write,
                     void *context) {
    if (!weir__is_sized(options) || write == NULL) return WEIR_ERR_ARGUMENT;
    struct weir__page page = {.options = options, .snapshot = options->snapshot};
    if (page.snapshot != NULL) {
        page.time = weir__unit_of_time((double)page.snapshot->span);
        page.size = weir__unit_of_size(weir__page_largest_plan(page.snapshot));
    }
    weir__text_begin(&page.text, write, context);
    add_document_head(&page);
    add_header(&page);
    add_sections(&page);
    return weir__text_end(&page.text);
}

/* SPDX-License-Identifier: MIT */
/* What the simulator said of the step next to what was measured. */
#include "trace/page.h"

#include <inttypes.h>
#include <stdio.h>

void weir__page_difference(struct weir__page *page, double value, double from) {
    if (value > from) weir__text_string(&page->text, "+");
    weir__html_percent(&page->text, value / from - 1.0);
}

/* A predicted and a measured time, and how far the first is from the second. */
static void add_pair(struct weir__page *page, double predicted, double measured) {
    weir__page_cell(page, &page->time, predicted);
    weir__page_cell(page, &page->time, measured);
    weir__text_string(&page->text, "<td>");
    if (measured > 0.0) weir__page_difference(page, predicted, measured);
    weir__text_string(&page->text, "</td>");
}

static void add_row(struct weir__page *page, const char *name, double predicted, double measured) {
    weir__text_add(&page->text, "<tr><th scope=\"row\">%s</th>", name);
    add_pair(page, predicted, measured);
    weir__text_string(&page->text, "</tr>\n");
}

static void add_worker(struct weir__page *page, uint32_t worker) {
    const struct weir_snapshot *s = page->snapshot;
    const struct weir_worker_time *predicted = &s->predicted.workers[worker];
    const struct weir_worker_time *measured = &s->report.workers[worker];
    char name[48];
    snprintf(name, sizeof name, "worker %" PRIu32 " busy", worker);
    add_row(page, name, predicted->busy, measured->busy);
    snprintf(name, sizeof name, "worker %" PRIu32 " idle", worker);
    add_row(page, name, predicted->idle, measured->idle);
}

void weir__page_predicted(struct weir__page *page) {
    const struct weir_snapshot *s = page->snapshot;
    struct weir__text *text = &page->text;
    if (s->predicted.step_count == 0 && page->options->planned_step <= 0.0) return;
    weir__text_add(text,
                   "<section id=\"predicted\">\n<h2>Predicted and measured <small>%s</small></h2>\n"
                   "<div class=\"wide\"><table>\n<thead><tr><th></th>"
                   "<th scope=\"col\">predicted</th><th scope=\"col\">measured</th>"
                   "<th scope=\"col\">difference</th></tr></thead>\n<tbody>\n",
                   page->time.name);
    if (page->options->planned_step > 0.0)
        add_row(page, "the step, by the plan", page->options->planned_step, s->report.makespan);
    if (s->predicted.step_count > 0) {
        add_row(page, "the step", s->predicted.makespan, s->report.makespan);
        for (uint32_t w = 0; w < s->worker_count; w++) add_worker(page, w);
    }
    weir__text_string(text, "</tbody></table></div>\n<p class=\"note\">");
    if (s->predicted.step_count > 0)
        weir__text_add(text,
                       "Predicted is the simulated table where every action takes the median of "
                       "its stage and kind over %" PRIu32 " other step%s of this run; neither host "
                       "time nor what workers copy themselves is in it. ",
                       s->predicted.step_count, weir__s(s->predicted.step_count));
    if (page->options->planned_step > 0.0)
        weir__text_string(text, "The plan’s is from before the run. ");
    weir__text_string(text, "</p>\n</section>\n");
}

/* SPDX-License-Identifier: MIT */
/* Where the step's time went, by worker and cause, and what the step would take if something were
 * different. Bars are parts of the makespan. */
#include "trace/page.h"

#include <inttypes.h>
#include <math.h>

struct part {
    const char *colour;
    const char *name;
    double ns;
};

enum { PARTS = 5 };

static void parts_of(const struct weir_worker_time *time, struct part parts[PARTS]) {
    parts[0] = (struct part){"busy", "busy", time->busy};
    parts[1] = (struct part){"dependency", "dependency", time->dependency};
    parts[2] = (struct part){"imbalance", "imbalance", time->imbalance};
    parts[3] = (struct part){"copy", "copy", time->copy};
    parts[4] = (struct part){"host", "host", time->host};
}

/* A negative part (the measured step waited less than the table with mean times would) is taken off
 * the one before it, so that the bar is as long as the step. */
static void draw_parts(struct weir__page *page, const struct part parts[PARTS]) {
    double makespan = page->snapshot->report.makespan, at = 0.0, owed = 0.0;
    for (uint32_t i = 1; i < PARTS; i++) owed += fmin(parts[i].ns, 0.0);
    weir__text_string(&page->text, "<td class=\"bars\"><svg width=\"100%\" height=\"14\" "
                                   "role=\"img\" aria-label=\"parts of the step\">");
    for (uint32_t i = 0; i < PARTS; i++) {
        double ns = fmax(parts[i].ns, 0.0);
        if (i > 0) {
            double taken = fmin(ns, -owed);
            ns -= taken;
            owed += taken;
        }
        weir__text_add(&page->text, "<rect class=\"%s\" height=\"14\" x=\"", parts[i].colour);
        weir__html_share(&page->text, at, makespan);
        weir__text_string(&page->text, "\" width=\"");
        weir__html_share(&page->text, ns, makespan);
        weir__text_string(&page->text, "\"/>");
        at += ns;
    }
    weir__text_string(&page->text, "</svg></td>");
}

static void add_worker(struct weir__page *page, uint32_t worker) {
    const struct weir_worker_time *time = &page->snapshot->report.workers[worker];
    struct weir__text *text = &page->text;
    struct part parts[PARTS];
    parts_of(time, parts);
    weir__text_add(text, "<tr><th scope=\"row\">worker %" PRIu32 "</th>", worker);
    for (uint32_t i = 0; i < PARTS; i++) weir__page_cell(page, &page->time, parts[i].ns);
    weir__page_cell(page, &page->time, time->idle);
    weir__text_string(text, "<td>");
    weir__html_percent(text, time->idle / page->snapshot->report.makespan);
    weir__text_string(text, "</td>");
    draw_parts(page, parts);
    weir__text_string(text, "</tr>\n");
}

void weir__page_lost(struct weir__page *page) {
    const struct weir_snapshot *s = page->snapshot;
    struct weir__text *text = &page->text;
    struct part parts[PARTS];
    parts_of(&s->report.workers[0], parts);
    weir__text_add(text, "<section id=\"lost\">\n<h2>Lost time <small>%s of a step of ",
                   page->time.name);
    weir__html_with(text, &page->time, s->report.makespan);
    weir__text_string(
        text, "</small></h2>\n<div class=\"wide\"><table class=\"full\">\n<thead><tr><th></th>");
    for (uint32_t i = 0; i < PARTS; i++)
        weir__text_add(text, "<th scope=\"col\"><i class=\"box %s\"></i>%s</th>", parts[i].colour,
                       parts[i].name);
    weir__text_string(text, "<th scope=\"col\">idle</th><th scope=\"col\">of the step</th>"
                            "<th class=\"bars\"></th></tr></thead>\n<tbody>\n");
    for (uint32_t w = 0; w < s->worker_count; w++) add_worker(page, w);
    weir__text_string(
        text,
        "</tbody></table></div>\n<p class=\"note\">Idle time is the sum of its four causes. "
        "<b>Dependency</b>: what this table would wait if every kind of action took its mean time. "
        "<b>Imbalance</b>: the rest of the waiting; below zero where the measured order of things "
        "was luckier than that. <b>Copy</b>: from a producer’s end until its data were here. "
        "<b>Host</b>: from then until the action started. Norm and update are left out.</p>\n"
        "</section>\n");
}

/* ---- what if ---- */

static const char *explain(enum weir_what_if question) {
    assert(question < WEIR_WHAT_IF_COUNT);
    static const char *const texts[WEIR_WHAT_IF_COUNT] = {
        [WEIR_WHAT_IF_MEASURED] = "the table replayed with this step’s own times",
        [WEIR_WHAT_IF_EQUAL_STAGES] = "every stage scaled to the stages’ mean",
        [WEIR_WHAT_IF_STEADY_TIMES] = "every action takes its stage’s median for the kind",
        [WEIR_WHAT_IF_FREE_COPIES] = "data are there when they are produced",
        [WEIR_WHAT_IF_FREE_HOST] = "what can start, starts",
        [WEIR_WHAT_IF_FREE_RECOMPUTE] = "as if all activations had been kept",
        [WEIR_WHAT_IF_NO_WAITING] = "all work evenly spread: no schedule is faster"};
    return texts[question];
}

static void add_answer(struct weir__page *page, enum weir_what_if question) {
    const struct weir_snapshot *s = page->snapshot;
    struct weir__text *text = &page->text;
    double measured = s->what_if[WEIR_WHAT_IF_MEASURED], ns = s->what_if[question];
    weir__text_add(text, "<tr><th scope=\"row\">%s</th>", weir_what_if_text(question));
    weir__page_cell(page, &page->time, ns);
    weir__text_string(text, "<td>");
    if (question != WEIR_WHAT_IF_MEASURED) weir__page_difference(page, ns, measured);
    weir__text_string(text,
                      "</td><td class=\"bars\"><svg width=\"100%\" height=\"14\" role=\"img\" "
                      "aria-label=\"length of the step\"><rect class=\"ground\" width=\"100%\" "
                      "height=\"14\"/><rect class=\"busy\" height=\"14\" width=\"");
    weir__html_share(text, ns, fmax(ns, measured));
    weir__text_add(text, "\"/></svg></td><td class=\"left\">%s</td></tr>\n", explain(question));
}

void weir__page_what_if(struct weir__page *page) {
    weir__text_add(
        &page->text,
        "<section id=\"whatif\">\n<h2>What if <small>the step’s length, replayed with "
        "one thing changed</small></h2>\n<div class=\"wide\"><table class=\"full\">\n<thead><tr>"
        "<th></th><th scope=\"col\">%s</th><th scope=\"col\">change</th>"
        "<th class=\"bars\"></th><th></th></tr></thead>\n<tbody>\n",
        page->time.name);
    for (uint32_t i = 0; i < WEIR_WHAT_IF_COUNT; i++) add_answer(page, (enum weir_what_if)i);
    weir__text_string(&page->text, "</tbody></table></div>\n</section>\n");
}

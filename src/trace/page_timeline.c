/* SPDX-License-Identifier: MIT */
/*
 * The timeline: a lane per worker, in it a row per stage that runs there, so that blocks need to
 * say only kind and micro-batch. Places along the time axis are percentages of the drawing's width,
 * heights are pixels: however wide it is drawn, or zoomed by the script, text keeps its shape.
 */
#include "trace/page.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Pixels. Which labels fit is decided for a page of paper; the script decides for the real width.
 */
enum { AXIS = 24, ROW_ALONE = 36, ROW = 22, GAP = 8, WIDTH = 640, LETTER = 7, TICKS = 10 };

/* ---- geometry ---- */

static uint32_t count_stages(const struct weir_snapshot *s, uint32_t worker) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->stage_count; i++) count += s->stages[i].worker == worker;
    return count;
}

static uint32_t row_height(uint32_t stages) {
    return stages > 1 ? ROW : ROW_ALONE;
}

static uint32_t lane_height(const struct weir_snapshot *s, uint32_t worker) {
    uint32_t stages = count_stages(s, worker);
    return row_height(stages) * (stages > 0 ? stages : 1);
}

/* Of the stage among those on its worker. */
static uint32_t row_of(const struct weir_snapshot *s, uint32_t stage) {
    assert(stage < s->stage_count);
    uint32_t row = 0;
    for (uint32_t i = 0; i < stage; i++) row += s->stages[i].worker == s->stages[stage].worker;
    return row;
}

static double pixels(const struct weir_snapshot *s, uint64_t ns) {
    return s->span > 0 ? (double)ns * WIDTH / (double)s->span : 0.0;
}

static void add_extent(struct weir__page *page, uint64_t from, uint64_t to) {
    assert(from <= to);
    double span = (double)page->snapshot->span;
    weir__text_string(&page->text, " x=\"");
    weir__html_share(&page->text, (double)from, span);
    weir__text_string(&page->text, "\" width=\"");
    weir__html_share(&page->text, (double)(to - from), span);
    weir__text_string(&page->text, "\"");
}

/* ---- names at the left ---- */

static void add_name(struct weir__page *page, uint32_t worker) {
    const struct weir_snapshot *s = page->snapshot;
    const struct weir_worker_time *time = &s->report.workers[worker];
    uint32_t stages = count_stages(s, worker), height = row_height(stages);
    weir__text_add(&page->text,
                   "<div class=\"name\" style=\"height:%upx\"><b>worker %" PRIu32 "</b>",
                   (unsigned)lane_height(s, worker), worker);
    weir__text_string(&page->text, "<small>");
    weir__html_fixed(&page->text, time->busy / s->report.makespan * 100.0, 0);
    weir__text_string(&page->text, "% busy</small><ul>");
    for (uint32_t i = 0; i < s->stage_count; i++) {
        if (s->stages[i].worker != worker) continue;
        weir__text_add(&page->text, "<li style=\"height:%upx\">stage %" PRIu32 "</li>",
                       (unsigned)height, i);
    }
    weir__text_string(&page->text, "</ul></div>\n");
}

/* ---- the axis ---- */

/* No text where it would be cut off at the right. */
static void add_tick(struct weir__page *page, double at, double span, uint32_t decimals,
                     uint32_t height) {
    struct weir__text *text = &page->text;
    weir__text_string(text, "<line x1=\"");
    weir__html_share(text, at, span);
    weir__text_string(text, "\" x2=\"");
    weir__html_share(text, at, span);
    weir__text_add(text, "\" y1=\"0\" y2=\"%u\"/>", (unsigned)height);
    if (at <= 0.95 * span) {
        weir__text_string(text, "<text dx=\"4\" y=\"12\" x=\"");
        weir__html_share(text, at, span);
        weir__text_string(text, "\">");
        weir__html_fixed(text, at, decimals);
        weir__text_add(text, " %s</text>", page->time.name);
    }
    weir__text_string(text, "\n");
}

static void add_axis(struct weir__page *page, uint32_t height) {
    double span = (double)page->snapshot->span / page->time.size;
    struct weir__ticks ticks = weir__ticks_of(0.0, span, TICKS, false);
    weir__text_string(&page->text, "<g class=\"axis\">\n");
    for (uint32_t i = 0; i < ticks.count; i++)
        add_tick(page, ticks.first + i * ticks.step, span, ticks.decimals, height);
    weir__text_string(&page->text, "</g>\n");
}

/* ---- waits ---- */

static void add_wait(struct weir__page *page, const char *cause, uint32_t y, uint64_t from,
                     uint64_t ns) {
    if (pixels(page->snapshot, ns) < 0.25) return;
    weir__text_add(&page->text, "<rect class=\"wait %s\" y=\"%u\" height=\"4\"", cause,
                   (unsigned)y - 2);
    add_extent(page, from, from + ns);
    weir__text_string(&page->text, "/>");
}

static void add_waits(struct weir__page *page, const struct weir_snapshot_action *action,
                      uint32_t y) {
    uint64_t copied = action->waited + action->waiting, there = copied + action->copy;
    add_wait(page, "waiting", y, action->waited, action->waiting);
    add_wait(page, "copy", y, copied, action->copy);
    add_wait(page, "host", y, there, action->host);
}

/* ---- actions ---- */

static void add_before(struct weir__page *page, const struct weir_snapshot_action *action) {
    struct weir__text *text = &page->text;
    if (action->awaited != WEIR_NO_ACTION) {
        const struct weir_snapshot_action *awaited = &page->snapshot->actions[action->awaited];
        char name[32];
        weir__text_string(text, "\nwaited ");
        weir__html_with(text, &page->time, (double)(action->start - action->waited));
        weir__text_add(text, " for %s on worker %" PRIu32 " (%s)",
                       weir__trace_name(&awaited->action, name), awaited->worker,
                       weir_cause_text(action->cause));
    }
    if (action->copy > 0) {
        weir__text_string(text, "\ncopy ");
        weir__html_with(text, &page->time, (double)action->copy);
    }
}

static void add_title(struct weir__page *page, const struct weir_snapshot_action *action) {
    struct weir__text *text = &page->text;
    const struct weir__kind_facts *kind = &weir__kinds[action->action.kind];
    weir__text_add(text, "<title>%s, stage %u", kind->name, (unsigned)action->action.stage);
    if (kind->per_micro_batch)
        weir__text_add(text, ", micro-batch %" PRIu32, action->action.micro_batch);
    weir__text_string(text, "\n");
    weir__html_in(text, &page->time, (double)action->start);
    weir__text_string(text, " to ");
    weir__html_with(text, &page->time, (double)action->end);
    weir__text_string(text, ", took ");
    weir__html_with(text, &page->time, (double)(action->end - action->start));
    add_before(page, action);
    weir__text_string(text, "</title>");
}

/* As much as fits: letter and micro-batch, the letter, nothing. */
static void add_label(struct weir__page *page, const struct weir_action *action, double room,
                      uint32_t height) {
    const struct weir__kind_facts *kind = &weir__kinds[action->kind];
    char label[16];
    int length = snprintf(label, sizeof label, "%c%" PRIu32, kind->letter, action->micro_batch);
    if (!kind->per_micro_batch || room < length * LETTER + 4) length = 1;
    if (room < LETTER + 4) return;
    weir__text_add(&page->text, "<text x=\"3\" y=\"%u\">%.*s</text>", (unsigned)height / 2 + 4,
                   length, label);
}

static void add_action(struct weir__page *page, const struct weir_snapshot_action *action,
                       uint32_t top, uint32_t height) {
    double room = pixels(page->snapshot, action->end - action->start);
    weir__text_add(&page->text, "<svg class=\"a %c%s\" y=\"%u\" height=\"%u\"",
                   weir__kinds[action->action.kind].letter, room < 4.0 ? " s" : "",
                   (unsigned)top + 1, (unsigned)height - 2);
    add_extent(page, action->start, action->end);
    weir__text_string(&page->text, ">");
    add_title(page, action);
    weir__text_string(&page->text, "<rect width=\"100%\" height=\"100%\"/>");
    add_label(page, &action->action, room, height - 2);
    weir__text_string(&page->text, "</svg>\n");
}

/* Waits first: a block is never covered. */
static void add_lane(struct weir__page *page, uint32_t worker, uint32_t top) {
    const struct weir_snapshot *s = page->snapshot;
    const struct weir_snapshot_worker *w = &s->workers[worker];
    uint32_t height = row_height(count_stages(s, worker));
    weir__text_add(&page->text,
                   "<g class=\"lane\">\n<rect class=\"ground\" y=\"%u\" width=\"100%%\" "
                   "height=\"%u\"/>\n",
                   (unsigned)top, (unsigned)lane_height(s, worker));
    for (uint32_t i = w->action_begin; i < w->action_end; i++) {
        uint32_t row = row_of(s, s->actions[i].action.stage);
        add_waits(page, &s->actions[i], top + row * height + height / 2);
    }
    weir__text_string(&page->text, "\n");
    for (uint32_t i = w->action_begin; i < w->action_end; i++) {
        uint32_t row = row_of(s, s->actions[i].action.stage);
        add_action(page, &s->actions[i], top + row * height, height);
    }
    weir__text_string(&page->text, "</g>\n");
}

/* ---- key and head ---- */

static void add_key(struct weir__page *page) {
    const struct weir_snapshot *s = page->snapshot;
    weir__text_string(&page->text, "<p class=\"keys\">");
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < s->stage_count; i++) count += s->stages[i].count[k];
        if (count == 0) continue;
        weir__text_add(&page->text, "<span class=\"key\"><i class=\"box %c\">%c</i>%s</span>",
                       weir__kinds[k].letter, weir__kinds[k].letter, weir__kinds[k].name);
    }
    weir__text_string(&page->text,
                      "<span class=\"key\"><i class=\"bar waiting\"></i>waiting</span>"
                      "<span class=\"key\"><i class=\"bar copy\"></i>copy</span>"
                      "<span class=\"key\"><i class=\"bar host\"></i>host</span>"
                      "<span class=\"note\">F3 is forward of micro-batch 3.</span></p>\n");
}

static void add_head(struct weir__page *page) {
    const struct weir_snapshot *s = page->snapshot;
    struct weir__text *text = &page->text;
    weir__text_string(text, "<div class=\"head\">\n<h2>Timeline <small>");
    if (s->kept_count > 1) {
        weir__text_add(text, "%s %" PRIu32 " traced steps, which took ",
                       s->typical ? "the median of" : "one of", s->kept_count);
        weir__html_in(text, &page->time, s->kept_least);
        weir__text_string(text, " to ");
        weir__html_with(text, &page->time, s->kept_most);
        weir__text_string(text, "; ");
    }
    if (s->update > 0)
        weir__text_add(text, "update %" PRIu64, s->update);
    else
        weir__text_add(text, "step %" PRIu64 " of the trace", s->step);
    weir__text_string(text, "</small></h2>\n"
                            "<p class=\"buttons\"><button type=\"button\" data-zoom=\"0.5\" "
                            "title=\"zoom out\">−</button><button type=\"button\" data-zoom=\"2\" "
                            "title=\"zoom in\">+</button><button type=\"button\" data-zoom=\"0\" "
                            "title=\"the whole step\">fit</button></p></div>\n");
}

void weir__page_timeline(struct weir__page *page) {
    const struct weir_snapshot *s = page->snapshot;
    uint32_t height = AXIS, top = AXIS;
    for (uint32_t w = 0; w < s->worker_count; w++) height += lane_height(s, w) + GAP;
    weir__text_string(&page->text, "<section id=\"timeline\">\n");
    add_head(page);
    add_key(page);
    weir__text_string(&page->text, "<div class=\"lanes\">\n<div class=\"names\">\n");
    for (uint32_t w = 0; w < s->worker_count; w++) add_name(page, w);
    weir__text_add(
        &page->text,
        "</div>\n<div class=\"view\" tabindex=\"0\" role=\"group\" aria-label=\"Timeline "
        "of the step\">\n<svg width=\"100%%\" height=\"%u\">\n",
        (unsigned)height);
    add_axis(page, height);
    for (uint32_t w = 0; w < s->worker_count; w++) {
        add_lane(page, w, top);
        top += lane_height(s, w) + GAP;
    }
    weir__text_string(&page->text, "</svg></div></div>\n<div class=\"detail\" aria-live=\"polite\">"
                                   "</div>\n</section>\n");
}

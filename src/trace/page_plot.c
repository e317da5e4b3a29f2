/* SPDX-License-Identifier: MIT */
/* A plot's frame. The drawing is stretched to whatever room there is, so it holds no text: axes are
 * labelled beside it, at percentages, and keep their size. */
#include "trace/page.h"

#include <math.h>

enum { TICKS_X = 8, TICKS_Y = 5 };

void weir__page_keys(struct weir__page *page, const struct weir__key *keys, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        weir__text_add(&page->text, "<span class=\"key\"><i class=\"%s %s\"></i>", keys[i].mark,
                       keys[i].colour);
        weir__html_text(&page->text, keys[i].name);
        weir__text_string(&page->text, "</span>");
    }
}

uint32_t weir__plot_x(const struct weir__plot *plot, double x) {
    double range = plot->x_most - plot->x_least;
    double part = range > 0.0 ? (x - plot->x_least) / range : 0.5;
    return (uint32_t)lround(fmin(fmax(part, 0.0), 1.0) * WEIR__PLOT_WIDTH);
}

uint32_t weir__plot_y(const struct weir__plot *plot, double y) {
    double range = plot->y_most - plot->y_least;
    double part = range > 0.0 ? (y - plot->y_least) / range : 0.5;
    return WEIR__PLOT_HEIGHT - (uint32_t)lround(fmin(fmax(part, 0.0), 1.0) * WEIR__PLOT_HEIGHT);
}

static void add_words(struct weir__page *page, const char *before, const char *words) {
    if (words == NULL) return;
    weir__text_string(&page->text, before);
    weir__html_text(&page->text, words);
}

static void add_caption(struct weir__page *page, const struct weir__plot *plot,
                        const struct weir__key *keys, uint32_t key_count) {
    struct weir__text *text = &page->text;
    weir__text_string(text, "<figcaption><b>");
    weir__html_text(text, plot->title);
    weir__text_string(text, "</b> <span class=\"unit\">");
    add_words(page, "", plot->unit);
    add_words(page, plot->unit != NULL ? ", by " : "by ", plot->x_name);
    weir__text_string(text, "</span>");
    weir__page_keys(page, keys, key_count);
    weir__text_string(text, "<output></output></figcaption>\n");
}

/* Ticks are round in the plot's unit, not in ns or bytes. */
static struct weir__ticks ticks_y(const struct weir__plot *plot) {
    return weir__ticks_of(plot->y_least / plot->y_scale, plot->y_most / plot->y_scale, TICKS_Y,
                          false);
}

static void add_ticks_y(struct weir__page *page, const struct weir__plot *plot) {
    struct weir__ticks ticks = ticks_y(plot);
    double least = plot->y_least / plot->y_scale, most = plot->y_most / plot->y_scale;
    weir__text_string(&page->text, "<div class=\"ys\">");
    for (uint32_t i = 0; i < ticks.count; i++) {
        double y = ticks.first + i * ticks.step;
        weir__text_string(&page->text, "<span style=\"bottom:");
        weir__html_share(&page->text, y - least, most - least);
        weir__text_string(&page->text, "\">");
        weir__html_fixed(&page->text, y, ticks.decimals);
        weir__text_string(&page->text, "</span>");
    }
    weir__text_string(&page->text, "</div>\n");
}

static void add_grid(struct weir__page *page, const struct weir__plot *plot) {
    struct weir__ticks ticks = ticks_y(plot);
    weir__text_string(&page->text, "<path class=\"grid\" d=\"");
    for (uint32_t i = 0; i < ticks.count; i++) {
        double y = (ticks.first + i * ticks.step) * plot->y_scale;
        weir__text_add(&page->text, "M0 %uh%d", (unsigned)weir__plot_y(plot, y),
                       (int)WEIR__PLOT_WIDTH);
    }
    weir__text_string(&page->text, "\"/>\n");
}

/* The last one may stand at the very edge: its text ends there. */
static void add_ticks_x(struct weir__page *page, const struct weir__plot *plot) {
    double least = plot->x_least / plot->x_scale, most = plot->x_most / plot->x_scale;
    struct weir__ticks ticks = weir__ticks_of(least, most, TICKS_X, plot->x_whole);
    weir__text_string(&page->text, "<div class=\"xs\">");
    for (uint32_t i = 0; i < ticks.count; i++) {
        double x = ticks.first + i * ticks.step;
        bool at_edge = x - least > 0.96 * (most - least);
        weir__text_add(&page->text, "<span%s style=\"left:", at_edge ? " class=\"end\"" : "");
        weir__html_share(&page->text, x - least, most - least);
        weir__text_string(&page->text, "\">");
        weir__html_fixed(&page->text, x, ticks.decimals);
        if (plot->x_unit != NULL) weir__text_add(&page->text, " %s", plot->x_unit);
        weir__text_string(&page->text, "</span>");
    }
    weir__text_string(&page->text, "</div>\n");
}

void weir__plot_begin(struct weir__page *page, const struct weir__plot *plot,
                      const struct weir__key *keys, uint32_t key_count) {
    assert(plot->x_scale > 0.0 && plot->y_scale > 0.0);
    weir__text_add(&page->text, "<figure class=\"plot %s\" data-plot=\"%s\">\n", plot->class_of,
                   plot->data);
    add_caption(page, plot, keys, key_count);
    add_ticks_y(page, plot);
    weir__text_add(&page->text,
                   "<div class=\"area\"><svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" "
                   "role=\"img\" aria-label=\"",
                   (int)WEIR__PLOT_WIDTH, (int)WEIR__PLOT_HEIGHT);
    weir__html_text(&page->text, plot->title);
    weir__text_string(&page->text, "\">\n");
    add_grid(page, plot);
}

void weir__plot_end(struct weir__page *page, const struct weir__plot *plot) {
    weir__text_string(&page->text, "</svg></div>\n");
    add_ticks_x(page, plot);
    weir__text_string(&page->text, "</figure>\n");
}

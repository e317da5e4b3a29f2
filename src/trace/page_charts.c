/* SPDX-License-Identifier: MIT */
/* The caller's curves. */
#include "trace/page.h"

#include <math.h>
#include <stdio.h>

enum { SERIES_MOST = 4 };

struct bounds {
    double x_least, x_most, y_least, y_most;
};

static void include(struct bounds *bounds, double x, double y) {
    if (isfinite(x)) {
        bounds->x_least = fmin(bounds->x_least, x);
        bounds->x_most = fmax(bounds->x_most, x);
    }
    if (isfinite(y)) {
        bounds->y_least = fmin(bounds->y_least, y);
        bounds->y_most = fmax(bounds->y_most, y);
    }
}

/* Of nothing, 0 to 1; of one value, a little around it. */
static void widen(double *least, double *most) {
    if (*least > *most) *least = 0.0, *most = 1.0;
    if (*least < *most) return;
    double room = *least == 0.0 ? 1.0 : fabs(*least) * 0.5;
    *least -= room;
    *most += room;
}

static struct bounds bounds_of(const struct weir_report_chart *chart) {
    struct bounds bounds = {HUGE_VAL, -HUGE_VAL, HUGE_VAL, -HUGE_VAL};
    for (uint32_t i = 0; i < chart->series_count; i++) {
        const struct weir_report_series *series = &chart->series[i];
        bool level = series->form == WEIR_REPORT_LEVEL;
        for (uint32_t k = 0; k < (level ? series->count > 0 : series->count); k++)
            include(&bounds, level ? NAN : series->x[k], series->y[k]);
    }
    widen(&bounds.x_least, &bounds.x_most);
    widen(&bounds.y_least, &bounds.y_most);
    double room = 0.04 * (bounds.y_most - bounds.y_least);
    /* what is never below zero begins there, unless that would flatten it */
    bool from_zero = bounds.y_least >= 0.0 && bounds.y_least < 0.25 * bounds.y_most;
    bounds.y_least = from_zero ? 0.0 : bounds.y_least - room;
    bounds.y_most += room;
    return bounds;
}

static void draw_line(struct weir__page *page, const struct weir__plot *plot,
                      const struct weir_report_series *series, uint32_t number) {
    bool drawn = false;
    weir__text_add(&page->text, "<path class=\"line c%u\" d=\"", (unsigned)number);
    for (uint32_t k = 0; k < series->count; k++) {
        bool gap = !isfinite(series->x[k]) || !isfinite(series->y[k]);
        if (!gap)
            weir__text_add(&page->text, "%s%u %u", drawn ? "L" : "M",
                           (unsigned)weir__plot_x(plot, series->x[k]),
                           (unsigned)weir__plot_y(plot, series->y[k]));
        drawn = !gap;
    }
    weir__text_add(&page->text, "%s\"/>\n", series->count == 1 ? "h0" : "");
}

/* Lines of no length with round ends: a circle would be stretched with the drawing. */
static void draw_points(struct weir__page *page, const struct weir__plot *plot,
                        const struct weir_report_series *series, uint32_t number) {
    weir__text_add(&page->text, "<path class=\"dots c%u\" d=\"", (unsigned)number);
    for (uint32_t k = 0; k < series->count; k++)
        if (isfinite(series->x[k]) && isfinite(series->y[k]))
            weir__text_add(&page->text, "M%u %uh0", (unsigned)weir__plot_x(plot, series->x[k]),
                           (unsigned)weir__plot_y(plot, series->y[k]));
    weir__text_string(&page->text, "\"/>\n");
}

static void draw_level(struct weir__page *page, const struct weir__plot *plot,
                       const struct weir_report_series *series, uint32_t number) {
    if (series->count == 0 || !isfinite(series->y[0])) return;
    weir__text_add(&page->text, "<path class=\"line level c%u\" d=\"M0 %uH%d\"/>\n",
                   (unsigned)number, (unsigned)weir__plot_y(plot, series->y[0]),
                   (int)WEIR__PLOT_WIDTH);
}

static void draw_series(struct weir__page *page, const struct weir__plot *plot,
                        const struct weir_report_series *series, uint32_t number) {
    assert(number < SERIES_MOST);
    switch (series->form) {
    case WEIR_REPORT_LINE: draw_line(page, plot, series, number); break;
    case WEIR_REPORT_POINTS: draw_points(page, plot, series, number); break;
    case WEIR_REPORT_LEVEL: draw_level(page, plot, series, number); break;
    }
}

static void add_chart(struct weir__page *page, const struct weir_report_chart *chart,
                      uint32_t number) {
    static const char *const colours[SERIES_MOST] = {"c0", "c1", "c2", "c3"};
    static const char *const marks[] = {
        [WEIR_REPORT_LINE] = "stroke", [WEIR_REPORT_POINTS] = "dot", [WEIR_REPORT_LEVEL] = "dash"};
    struct weir__key keys[SERIES_MOST];
    struct bounds bounds = bounds_of(chart);
    char data[16];
    snprintf(data, sizeof data, "c%u", (unsigned)number);
    struct weir__plot plot = {.title = chart->title,
                              .unit = chart->unit,
                              .x_name = chart->x_name,
                              .data = data,
                              .class_of = chart->small ? "small" : "large",
                              .x_least = bounds.x_least,
                              .x_most = bounds.x_most,
                              .y_least = bounds.y_least,
                              .y_most = bounds.y_most,
                              .x_scale = 1.0,
                              .y_scale = 1.0,
                              .x_whole = true};
    uint32_t count = chart->series_count < SERIES_MOST ? chart->series_count : SERIES_MOST;
    for (uint32_t i = 0; i < count; i++)
        keys[i] =
            (struct weir__key){chart->series[i].name, colours[i], marks[chart->series[i].form]};
    weir__plot_begin(page, &plot, keys, count > 1 ? count : 0);
    for (uint32_t i = 0; i < chart->series_count; i++)
        draw_series(page, &plot, &chart->series[i], i < SERIES_MOST ? i : SERIES_MOST - 1);
    weir__plot_end(page, &plot);
}

void weir__page_charts(struct weir__page *page) {
    const struct weir_report_options *options = page->options;
    if (options->chart_count == 0) return;
    weir__text_string(&page->text, "<section id=\"curves\">\n<h2>Training</h2>\n"
                                   "<div class=\"charts\">\n");
    for (uint32_t i = 0; i < options->chart_count; i++) add_chart(page, &options->charts[i], i);
    weir__text_string(&page->text, "</div>\n</section>\n");
}

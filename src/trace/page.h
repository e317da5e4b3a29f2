/* SPDX-License-Identifier: MIT */
/**
 * The report's page, by sections. What stands on it is complete without its script, which adds
 * zooming and pointing at things; style and script are files of their own kind (page.css, page.js),
 * which the build turns into texts.
 */
#ifndef WEIR_PAGE_H
#define WEIR_PAGE_H

#include "trace/html.h"
#include "weir_report.h"

extern const char weir__page_style[];
extern const char weir__page_script[];

struct weir__page {
    struct weir__text text;
    const struct weir_report_options *options;
    const struct weir_snapshot *snapshot; /**< NULL: there was no step */
    struct weir__unit time;               /**< of everything within the step */
    struct weir__unit size;               /**< of all memory */
};

/** The size of the largest plan. */
double weir__page_largest_plan(const struct weir_snapshot *snapshot);

/** A table's cell with a number in the unit. */
void weir__page_cell(struct weir__page *page, const struct weir__unit *unit, double value);
/** The step's actions and waits; for people, and with a title on each action. */
void weir__page_timeline(struct weir__page *page);
/** Lost time by cause. */
void weir__page_lost(struct weir__page *page);
/** What was predicted of the step next to what was measured; nothing where nothing was. */
void weir__page_predicted(struct weir__page *page);
/** "+1.2%": how far a value is from another, above 0. */
void weir__page_difference(struct weir__page *page, double value, double from);
/** The what-ifs. */
void weir__page_what_if(struct weir__page *page);
/** Memory over time by worker, and the plan. */
void weir__page_memory(struct weir__page *page);
/** The caller's curves. */
void weir__page_charts(struct weir__page *page);
/** Workers and stages. */
void weir__page_places(struct weir__page *page);
/** The same facts as JSON. */
void weir__page_data(struct weir__page *page);

/** Around a plot: <figure> with title, unit and key; the plot with its axes. */
struct weir__plot {
    const char *title;
    const char *unit;     /**< of y, or NULL */
    const char *x_name;   /**< what x counts, or NULL */
    const char *x_unit;   /**< behind each tick of x, or NULL */
    const char *data;     /**< what the script finds its numbers by: "m0", "c1" */
    const char *class_of; /**< further classes of the figure */
    double x_least, x_most, y_least, y_most;
    double x_scale, y_scale; /**< a tick's text is value / scale */
    bool x_whole;            /**< x counts something */
};

/** Coordinates of a plot's drawing. */
enum { WEIR__PLOT_WIDTH = 10000, WEIR__PLOT_HEIGHT = 1000 };

/** An entry of a plot's key: the name of its colour's class, and of the mark's ("box", "line",
 * "dash", "dot"). */
struct weir__key {
    const char *name, *colour, *mark;
};

void weir__page_keys(struct weir__page *page, const struct weir__key *keys, uint32_t count);
/** From <figure> up to where paths are to be drawn. */
void weir__plot_begin(struct weir__page *page, const struct weir__plot *plot,
                      const struct weir__key *keys, uint32_t key_count);
/** Up to </figure>. */
void weir__plot_end(struct weir__page *page, const struct weir__plot *plot);
uint32_t weir__plot_x(const struct weir__plot *plot, double x);
uint32_t weir__plot_y(const struct weir__plot *plot, double y);

#endif

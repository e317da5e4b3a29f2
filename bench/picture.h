/* SPDX-License-Identifier: MIT */
/** Pictures of results: bars beside each other with a mark of what could be, and curves over sizes.
 */
#ifndef WEIR_BENCH_PICTURE_H
#define WEIR_BENCH_PICTURE_H

#include "cli/svg.h"

#include <stdbool.h>
#include <stdint.h>

enum { PICTURE_LABEL_BYTES = 96, PICTURE_SERIES_MOST = 4, PICTURE_PANELS_MOST = 12 };
enum { PICTURE_FIT_POINTS = 32, PICTURE_FITS_MOST = 4 };

/** A row of a panel: a bar from 0 to `value`. */
struct picture_bar {
    char label[PICTURE_LABEL_BYTES];
    double value;
    double mark;     /**< a line across the bar; NaN: none */
    char text[40];   /**< the value, for people */
    uint32_t series; /**< its colour */
};

struct picture_panel {
    char title[PICTURE_LABEL_BYTES];
    uint32_t count;
    struct picture_bar *bars;
};

struct picture_bars {
    const char *title, *description;
    const char *axis;                        /**< what the values are, with their unit */
    double unit;                             /**< a value of the axis' unit: 1e-3 for ms */
    const char *series[PICTURE_SERIES_MOST]; /**< names for the legend; NULL: unused */
    const char *mark;                        /**< the mark's name; NULL: there is none */
    uint32_t panel_count;
    struct picture_panel panels[PICTURE_PANELS_MOST];
};

/** Each panel has its own scale, from 0 on. */
void picture_write_bars(struct svg *svg, const struct picture_bars *bars);

struct picture_point {
    double x, y;
};

/** A formula's line over a part of the sizes. */
struct picture_fit {
    struct picture_point points[PICTURE_FIT_POINTS];
};

struct picture_curve {
    char name[2 * PICTURE_LABEL_BYTES];
    uint32_t point_count;
    struct picture_point *points; /**< ascending in x; drawn as dots */
    uint32_t fit_count;           /**< 0: the dots are joined instead */
    struct picture_fit fits[PICTURE_FITS_MOST];
};

struct picture_curves {
    const char *title, *description;
    const char *x_axis, *y_axis;
    uint32_t curve_count;
    struct picture_curve *curves; /**< up to PICTURE_SERIES_MOST */
};

/** Both axes are logarithmic: bytes below, anything positive at the left. */
void picture_write_curves(struct svg *svg, const struct picture_curves *curves);

#endif

/* SPDX-License-Identifier: MIT */
#include "picture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 960,
    MARGIN = 20,
    HEAD = 58, /* title and legend */
    PANEL_HEAD = 30,
    ROW = 20,
    BAR = 13,
    AXIS = 42,   /* its numbers and its name */
    VALUE = 100, /* at the right, of bars */
    LETTER = 7,
    LABELS_MOST = 420,
    TICKS_MOST = 6,
    LEGEND_LINE = 18, /* of a curve */
    PLOT_LEFT = 78,
    PLOT_HEIGHT = 400
};

static const char style[] =
    "svg{--s0:#2f7fc1;--s1:#9aa4af;--s2:#c98a12;--s3:#1d6b57;--mark:#c0392b;--grid:#d5dae0}\n"
    "@media (prefers-color-scheme:dark){svg{--s0:#66abe8;--s1:#98a4b0;--s2:#e9bf50;--s3:#48b394;"
    "--mark:#ff8a75;--grid:#39424b}}\n"
    ".s0{fill:var(--s0);stroke:var(--s0)}.s1{fill:var(--s1);stroke:var(--s1)}"
    ".s2{fill:var(--s2);stroke:var(--s2)}.s3{fill:var(--s3);stroke:var(--s3)}\n"
    "rect.s0,rect.s1,rect.s2,rect.s3{stroke:none}.curve{fill:none;stroke-width:1.8}\n"
    ".mark{stroke:var(--mark);stroke-width:2}.grid{stroke:var(--grid);stroke-width:1}\n"
    "text{font-size:12px}.h{font-size:15px;font-weight:650}.p{font-size:13px;font-weight:600}\n"
    ".e{text-anchor:end}.m{text-anchor:middle}\n";

/* 1, 2 or 5 times a power of ten, so that at most TICKS_MOST of them are within `most`. */
static double tick_of(double most) {
    double ten = pow(10.0, floor(log10(most / TICKS_MOST)));
    static const double steps[] = {1, 2, 5, 10};
    for (int i = 0; i < 4; i++)
        if (most / (steps[i] * ten) <= TICKS_MOST) return steps[i] * ten;
    return 10 * ten;
}

static void add_text(struct svg *svg, const char *class, double x, double y, const char *text) {
    svg_add(svg, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    svg_add_escaped(svg, text);
    svg_add(svg, "</text>\n");
}

static void add_line(struct svg *svg, const char *class, double x0, double y0, double x1,
                     double y1) {
    svg_add(svg, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class,
            x0, y0, x1, y1);
}

static void add_rect(struct svg *svg, uint32_t series, double x, double y, double width,
                     double height) {
    svg_add(svg,
            "<rect class=\"s%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
            "rx=\"2\"/>\n",
            series, x, y, width, height);
}

static double text_width(const char *text) {
    size_t letters = 0;
    for (; *text != 0; text++) letters += (*text & 0xc0) != 0x80; /* of UTF-8 */
    return (double)(letters * LETTER);
}

/* ---- bars ---- */

static double label_width(const struct picture_bars *bars) {
    double widest = 0.0;
    for (uint32_t p = 0; p < bars->panel_count; p++)
        for (uint32_t i = 0; i < bars->panels[p].count; i++)
            widest = fmax(widest, text_width(bars->panels[p].bars[i].label));
    return fmin(widest, LABELS_MOST) + 12;
}

static double most_of(const struct picture_panel *panel) {
    double most = 0.0;
    for (uint32_t i = 0; i < panel->count; i++) {
        most = fmax(most, panel->bars[i].value);
        if (isfinite(panel->bars[i].mark)) most = fmax(most, panel->bars[i].mark);
    }
    return most > 0.0 ? most : 1.0;
}

static double panel_height(const struct picture_panel *panel) {
    return PANEL_HEAD + panel->count * ROW + AXIS;
}

static void add_axis(struct svg *svg, const struct picture_bars *bars, double left, double scale,
                     double most, double top, double bottom) {
    double tick = tick_of(most / bars->unit);
    for (double at = 0.0; at * bars->unit <= most * 1.0001; at += tick) {
        char number[32];
        double x = left + at * bars->unit * scale;
        add_line(svg, "grid", x, top, x, bottom + 4);
        snprintf(number, sizeof number, "%.4g", at);
        add_text(svg, "soft m", x, bottom + 17, number);
    }
    add_text(svg, "soft", left, bottom + 33, bars->axis);
}

static void add_bar(struct svg *svg, const struct picture_bar *bar, double left, double scale,
                    double y) {
    double middle = y + ROW / 2.0 + 4;
    add_text(svg, "e", left - 8, middle, bar->label);
    add_rect(svg, bar->series, left, y + (ROW - BAR) / 2.0, fmax(bar->value * scale, 0.5), BAR);
    add_text(svg, "soft e", WIDTH - MARGIN, middle, bar->text);
    if (!isfinite(bar->mark)) return;
    double x = left + bar->mark * scale;
    add_line(svg, "mark", x, y + 2, x, y + ROW - 2);
}

static void add_panel(struct svg *svg, const struct picture_bars *bars,
                      const struct picture_panel *panel, double left, double y) {
    double most = most_of(panel), scale = (WIDTH - MARGIN - VALUE - left) / most;
    double top = y + PANEL_HEAD;
    add_text(svg, "p", MARGIN, y + 18, panel->title);
    add_axis(svg, bars, left, scale, most, top, top + panel->count * ROW);
    for (uint32_t i = 0; i < panel->count; i++)
        add_bar(svg, &panel->bars[i], left, scale, top + i * ROW);
}

static void add_bar_legend(struct svg *svg, const struct picture_bars *bars) {
    double x = MARGIN;
    for (uint32_t s = 0; s < PICTURE_SERIES_MOST; s++) {
        if (bars->series[s] == NULL) continue;
        add_rect(svg, s, x, 40, 13, 13);
        add_text(svg, "soft", x + 19, 51, bars->series[s]);
        x += 40 + text_width(bars->series[s]);
    }
    if (bars->mark == NULL) return;
    add_line(svg, "mark", x + 6, 39, x + 6, 54);
    add_text(svg, "soft", x + 14, 51, bars->mark);
}

void picture_write_bars(struct svg *svg, const struct picture_bars *bars) {
    double height = HEAD + MARGIN, y = HEAD, left = MARGIN + label_width(bars);
    for (uint32_t p = 0; p < bars->panel_count; p++) height += panel_height(&bars->panels[p]);
    svg_begin(svg, WIDTH, height, bars->title, bars->description, style);
    add_text(svg, "h", MARGIN, 28, bars->title);
    add_bar_legend(svg, bars);
    for (uint32_t p = 0; p < bars->panel_count; p++) {
        add_panel(svg, bars, &bars->panels[p], left, y);
        y += panel_height(&bars->panels[p]);
    }
    svg_end(svg);
}

/* ---- curves ---- */

struct frame {
    double x_least, x_most, y_least, y_most; /* logarithms: of two, of ten */
    double left, top, width, height;
};

static void widen(struct frame *frame, const struct picture_point *points, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        frame->x_least = fmin(frame->x_least, log2(points[i].x));
        frame->x_most = fmax(frame->x_most, log2(points[i].x));
        frame->y_least = fmin(frame->y_least, log10(points[i].y));
        frame->y_most = fmax(frame->y_most, log10(points[i].y));
    }
}

static struct frame frame_of(const struct picture_curves *curves) {
    struct frame frame = {.x_least = HUGE_VAL,
                          .x_most = -HUGE_VAL,
                          .y_least = HUGE_VAL,
                          .y_most = -HUGE_VAL,
                          .left = PLOT_LEFT,
                          .top = HEAD + LEGEND_LINE * (double)(curves->curve_count - 1) + 8,
                          .width = WIDTH - PLOT_LEFT - MARGIN - 16,
                          .height = PLOT_HEIGHT};
    for (uint32_t c = 0; c < curves->curve_count; c++)
        widen(&frame, curves->curves[c].points, curves->curves[c].point_count);
    frame.y_least = floor(frame.y_least * 2) / 2;
    frame.y_most = ceil(frame.y_most * 2 + 0.1) / 2;
    return frame;
}

static double x_of(const struct frame *frame, double x) {
    return frame->left +
           (log2(x) - frame->x_least) / (frame->x_most - frame->x_least) * frame->width;
}

static double y_of(const struct frame *frame, double y) {
    double part = (log10(y) - frame->y_least) / (frame->y_most - frame->y_least);
    return frame->top + (1.0 - fmin(fmax(part, 0.0), 1.0)) * frame->height;
}

static void add_curve_axes(struct svg *svg, const struct picture_curves *curves,
                           const struct frame *frame) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double bottom = frame->top + frame->height;
    char text[32];
    for (int two = (int)ceil(frame->x_least); two <= (int)frame->x_most; two += 2) {
        double x = x_of(frame, exp2(two));
        add_line(svg, "grid", x, frame->top, x, bottom + 4);
        snprintf(text, sizeof text, "%d %s", 1 << two % 10, units[two / 10]);
        add_text(svg, "soft m", x, bottom + 18, text);
    }
    for (int ten = (int)floor(frame->y_least); ten <= (int)ceil(frame->y_most); ten++)
        for (int digit = 1; digit <= 5; digit += digit == 1 ? 1 : 3) {
            double value = digit * pow(10.0, ten);
            if (log10(value) < frame->y_least || log10(value) > frame->y_most) continue;
            double y = y_of(frame, value);
            add_line(svg, "grid", frame->left - 4, y, frame->left + frame->width, y);
            snprintf(text, sizeof text, "%g", value);
            add_text(svg, "soft e", frame->left - 8, y + 4, text);
        }
    add_text(svg, "soft m", frame->left + frame->width / 2, bottom + 38, curves->x_axis);
    svg_add(svg, "<text class=\"soft m\" transform=\"translate(%d %.1f) rotate(-90)\">", MARGIN + 2,
            frame->top + frame->height / 2);
    svg_add_escaped(svg, curves->y_axis);
    svg_add(svg, "</text>\n");
}

static void add_polyline(struct svg *svg, const struct picture_point *points, uint32_t count,
                         uint32_t series, const struct frame *frame) {
    svg_add(svg, "<polyline class=\"s%u curve\" style=\"fill:none\" points=\"", series);
    for (uint32_t i = 0; i < count; i++)
        svg_add(svg, "%s%.1f,%.1f", i == 0 ? "" : " ", x_of(frame, points[i].x),
                y_of(frame, points[i].y));
    svg_add(svg, "\"/>\n");
}

static void add_curve(struct svg *svg, const struct picture_curve *curve, uint32_t series,
                      const struct frame *frame) {
    if (curve->fit_count == 0) add_polyline(svg, curve->points, curve->point_count, series, frame);
    for (uint32_t f = 0; f < curve->fit_count; f++)
        add_polyline(svg, curve->fits[f].points, PICTURE_FIT_POINTS, series, frame);
    for (uint32_t i = 0; i < curve->point_count; i++)
        svg_add(svg, "<circle class=\"s%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", series,
                x_of(frame, curve->points[i].x), y_of(frame, curve->points[i].y));
}

void picture_write_curves(struct svg *svg, const struct picture_curves *curves) {
    struct frame frame = frame_of(curves);
    svg_begin(svg, WIDTH, frame.top + frame.height + 56, curves->title, curves->description, style);
    add_text(svg, "h", MARGIN, 28, curves->title);
    add_curve_axes(svg, curves, &frame);
    for (uint32_t c = 0; c < curves->curve_count; c++) {
        add_rect(svg, c, MARGIN, 40 + LEGEND_LINE * c, 13, 13);
        add_text(svg, "soft", MARGIN + 19, 51 + LEGEND_LINE * c, curves->curves[c].name);
        add_curve(svg, &curves->curves[c], c, &frame);
    }
    svg_end(svg);
}

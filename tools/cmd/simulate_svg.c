/* SPDX-License-Identifier: MIT */
/*
 * Predicted steps as a picture: a panel per schedule, a row per worker, all on one scale so that
 * lengths can be compared. One file without links, with its own ground, so that it reads on light
 * and dark pages. Blocks say the micro-batch; what is narrower than its number says nothing.
 */
#include "cli/progress.h"
#include "cmd/simulate.h"
#include "schedule/facts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    WIDTH = 960,
    MARGIN = 16,
    LEFT = 84, /* of the time axis */
    ROW = 24,
    ROW_GAP = 3,
    HEAD = 30, /* a panel's title */
    PANEL_GAP = 14,
    FOOT = 44, /* axis' note and legend */
    DIGIT = 7,
    ACTIONS_MAX = 50000
};

static const char style[] =
    "<style>\n"
    "svg{--bg:#fff;--ink:#1b1f24;--soft:#57606a;--ground:#eceff3;--line:#fff;"
    "--F:#6aa9de;--R:#f3c64f;--B:#1d6b57;--I:#3a9c80;--W:#a5d9c6;--N:#a4adb7;--U:#4d5661;"
    "--on:#10151b;--onB:#fff;"
    "font:13px system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans',sans-serif;"
    "font-variant-numeric:tabular-nums}\n"
    "@media (prefers-color-scheme:dark){svg{--bg:#13171b;--ink:#e4e8ec;--soft:#a0abb6;"
    "--ground:#232a31;--line:#13171b;--F:#5f9fd6;--R:#e9bf50;--B:#48b394;--I:#7fd0b6;--W:#c3ebdd;"
    "--N:#8d98a4;--U:#c6ced6;--onB:#10151b}}\n"
    ".bg{fill:var(--bg)}.ground{fill:var(--ground)}text{fill:var(--ink)}.soft{fill:var(--soft)}\n"
    ".b text{fill:var(--on);text-anchor:middle;font-size:11.5px}"
    ".b text.B,.b text.U{fill:var(--onB)}\n"
    "rect.F{fill:var(--F)}rect.R{fill:var(--R)}rect.B{fill:var(--B)}rect.I{fill:var(--I)}"
    "rect.W{fill:var(--W)}rect.N{fill:var(--N)}rect.U{fill:var(--U)}\n"
    ".odd{fill-opacity:.62}.b text.odd{fill:var(--ink);fill-opacity:1}\n"
    ".b rect{stroke:var(--line);stroke-width:1}\n"
    "</style>\n";

/* ---- numbers and texts ---- */

struct svg {
    struct output output;
    int status;
    double scale; /* pixels per second */
    bool seen[WEIR_KIND_COUNT];
    bool odd; /* a worker of several stages is there */
};

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
add(struct svg *svg, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (svg->status == WEIR_OK && length > 0) {
        svg->status = output_write(&svg->output, text, strlen(text));
    }
}

/* Names may be paths: what XML reads otherwise is written as a reference. */
static void add_escaped(struct svg *svg, const char *text) {
    for (; *text != 0; text++) {
        if (*text == '<' || *text == '&' || *text == '>' || *text == '"' || *text < ' ') {
            add(svg, *text < ' ' ? "?" : "&#%d;", *text);
        } else {
            add(svg, "%c", *text);
        }
    }
}

/* ---- one panel ---- */

/** A worker's stages in ascending order: neighbours are drawn differently. */
struct drawn_lane {
    uint16_t stages[64]; /* of more than so many, the last are drawn alike */
    uint32_t count;
};

static struct drawn_lane lane_of(const struct weir_table *table, uint32_t worker) {
    struct drawn_lane lane = {.count = 0};
    for (uint32_t a = table->lines[worker]; a < table->lines[worker + 1]; a++) {
        uint16_t stage = table->actions[a].stage;
        uint32_t at = 0;
        while (at < lane.count && lane.stages[at] < stage) at++;
        if ((at < lane.count && lane.stages[at] == stage) || lane.count == 64) continue;
        memmove(&lane.stages[at + 1], &lane.stages[at], (lane.count - at) * sizeof(uint16_t));
        lane.stages[at] = stage;
        lane.count++;
    }
    return lane;
}

static bool is_odd(const struct drawn_lane *lane, uint32_t stage) {
    uint32_t at = 0;
    while (at < lane->count && lane->stages[at] != stage) at++;
    return at % 2 == 1;
}

static void add_block(struct svg *svg, const struct simulate_case *c, uint32_t a, double y,
                      bool odd) {
    const struct weir_action *action = &c->table->actions[a];
    double x = LEFT + c->prediction.start[a] * svg->scale;
    double width = (c->prediction.end[a] - c->prediction.start[a]) * svg->scale;
    char letter = weir__kinds[action->kind].letter;
    char number[16];
    if (width <= 0.0) return;
    svg->seen[action->kind] = true;
    svg->odd = svg->odd || odd;
    add(svg, "<rect class=\"%c%s\" x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\"/>", letter,
        odd ? " odd" : "", x, y, width, ROW);
    int digits = snprintf(number, sizeof number, "%" PRIu32, action->micro_batch);
    if (width >= digits * DIGIT + 3) {
        add(svg, "<text class=\"%c%s\" x=\"%.2f\" y=\"%.0f\">%s</text>", letter, odd ? " odd" : "",
            x + width / 2, y + ROW / 2 + 4, number);
    }
    add(svg, "\n");
}

static void add_worker(struct svg *svg, const struct simulate_case *c, uint32_t w, double y) {
    const struct weir_table *table = c->table;
    add(svg, "<text class=\"soft\" x=\"%d\" y=\"%.0f\">worker %" PRIu32 "</text>", MARGIN,
        y + ROW / 2 + 4, w);
    add(svg, "<rect class=\"ground\" x=\"%d\" y=\"%.0f\" width=\"%.2f\" height=\"%d\"/>\n", LEFT, y,
        c->prediction.step * svg->scale, ROW);
    struct drawn_lane lane = lane_of(table, w);
    add(svg, "<g class=\"b\">\n");
    for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
        if (weir__kinds[table->actions[a].kind].in_step)
            add_block(svg, c, a, y, is_odd(&lane, table->actions[a].stage));
    }
    add(svg, "</g>\n");
}

static double panel_height(const struct simulate_case *c) {
    return HEAD + c->table->worker_count * (ROW + ROW_GAP) + PANEL_GAP;
}

static void add_panel(struct svg *svg, const struct simulate_case *c, double y) {
    const struct weir_prediction *p = &c->prediction;
    char step[32];
    add(svg, "<text x=\"%d\" y=\"%.0f\"><tspan font-weight=\"650\" font-size=\"15\">", MARGIN,
        y + 18);
    add_escaped(svg, c->name);
    add(svg,
        "</tspan><tspan class=\"soft\" dx=\"12\">step %s · bubble %.1f%% · a worker keeps the "
        "activations of at most %g micro-batches</tspan></text>\n",
        time_text_seconds(p->step, step), p->bubble * 100.0, simulate_case_peak(c));
    for (uint32_t w = 0; w < p->worker_count; w++) {
        add_worker(svg, c, w, y + HEAD + w * (ROW + ROW_GAP));
    }
}

/* ---- the whole ---- */

static void add_legend(struct svg *svg, double y) {
    double x = LEFT;
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) {
        if (!svg->seen[k]) continue;
        add(svg, "<rect class=\"%c\" x=\"%.0f\" y=\"%.0f\" width=\"14\" height=\"14\"/>",
            weir__kinds[k].letter, x, y);
        add(svg, "<text class=\"soft\" x=\"%.0f\" y=\"%.0f\">%s</text>\n", x + 20, y + 12,
            weir__kinds[k].name);
        x += 36 + DIGIT * (double)strlen(weir__kinds[k].name);
    }
    add(svg, "<rect class=\"ground\" x=\"%.0f\" y=\"%.0f\" width=\"14\" height=\"14\"/>", x, y);
    add(svg, "<text class=\"soft\" x=\"%.0f\" y=\"%.0f\">waiting%s</text>\n", x + 20, y + 12,
        svg->odd ? " · muted: the worker's second stage" : "");
}

static void add_all(struct svg *svg, const struct simulate_case *cases, uint32_t count) {
    double height = MARGIN + FOOT, longest = 0.0, y = MARGIN;
    for (uint32_t i = 0; i < count; i++) {
        height += panel_height(&cases[i]);
        longest = fmax(longest, cases[i].prediction.step);
    }
    svg->scale = longest > 0.0 ? (WIDTH - LEFT - MARGIN) / longest : 0.0;
    add(svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" "
        "height=\"%.0f\" role=\"img\">\n<title>Pipeline schedules, predicted</title>\n",
        WIDTH, height, WIDTH, height);
    add(svg, "<desc>Which worker runs which micro-batch when; a row per worker, time to the "
             "right.</desc>\n");
    if (svg->status == WEIR_OK) {
        svg->status = output_write(&svg->output, style, sizeof style - 1);
    }
    add(svg, "<rect class=\"bg\" width=\"%d\" height=\"%.0f\" rx=\"6\"/>\n", WIDTH, height);
    for (uint32_t i = 0; i < count; i++) {
        add_panel(svg, &cases[i], y);
        y += panel_height(&cases[i]);
    }
    add_legend(svg, y + 4);
    add(svg, "</svg>\n");
}

int simulate_svg(const char *path, const struct simulate_case *cases, uint32_t count,
                 struct weir_error *error) {
    struct svg svg = {.status = WEIR_OK};
    uint64_t actions = 0;
    for (uint32_t i = 0; i < count; i++) actions += cases[i].table->action_count;
    if (actions > ACTIONS_MAX) {
        return weir__fail(error, WEIR_ERR_ARGUMENT,
                          "--svg: a picture of %" PRIu64
                          " actions cannot be read: simulate fewer chunks (at most %d actions), or "
                          "use --trace",
                          actions, ACTIONS_MAX);
    }
    int status = output_begin(&svg.output, path, error);
    if (status != WEIR_OK) return status;
    add_all(&svg, cases, count);
    if (svg.status != WEIR_OK) {
        output_abort(&svg.output);
        return svg.status;
    }
    return output_commit(&svg.output);
}

/* SPDX-License-Identifier: MIT */
/*
 * Predicted steps as a picture: a panel per schedule, a row per worker, all on one scale so that
 * lengths can be compared. One file without links, with its own ground, so that it reads on light
 * and dark pages. Blocks say the micro-batch; what is narrower than its number says nothing.
 */
#include "cli/progress.h"
#include "cli/svg.h"
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
    "svg{--F:#6aa9de;--R:#f3c64f;--B:#1d6b57;--I:#3a9c80;--W:#a5d9c6;--N:#a4adb7;--U:#4d5661;"
    "--on:#10151b;--onB:#fff}\n"
    "@media (prefers-color-scheme:dark){svg{--F:#5f9fd6;--R:#e9bf50;--B:#48b394;--I:#7fd0b6;"
    "--W:#c3ebdd;--N:#8d98a4;--U:#c6ced6;--onB:#10151b}}\n"
    ".b text{fill:var(--on);text-anchor:middle;font-size:11.5px}"
    ".b text.B,.b text.U{fill:var(--onB)}\n"
    "rect.F{fill:var(--F)}rect.R{fill:var(--R)}rect.B{fill:var(--B)}rect.I{fill:var(--I)}"
    "rect.W{fill:var(--W)}rect.N{fill:var(--N)}rect.U{fill:var(--U)}\n"
    ".odd{fill-opacity:.62}.b text.odd{fill:var(--ink);fill-opacity:1}\n"
    ".b rect{stroke:var(--line);stroke-width:1}\n";

struct picture {
    struct svg svg;
    double scale; /* pixels per second */
    bool seen[WEIR_KIND_COUNT];
    bool odd; /* a worker of several stages is there */
};

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

static void add_block(struct picture *picture, const struct simulate_case *c, uint32_t a, double y,
                      bool odd) {
    const struct weir_action *action = &c->table->actions[a];
    double x = LEFT + c->prediction.start[a] * picture->scale;
    double width = (c->prediction.end[a] - c->prediction.start[a]) * picture->scale;
    char letter = weir__kinds[action->kind].letter;
    char number[16];
    if (width <= 0.0) return;
    picture->seen[action->kind] = true;
    picture->odd = picture->odd || odd;
    svg_add(&picture->svg,
            "<rect class=\"%c%s\" x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\"/>", letter,
            odd ? " odd" : "", x, y, width, ROW);
    int digits = snprintf(number, sizeof number, "%" PRIu32, action->micro_batch);
    if (width >= digits * DIGIT + 3) {
        svg_add(&picture->svg, "<text class=\"%c%s\" x=\"%.2f\" y=\"%.0f\">%s</text>", letter,
                odd ? " odd" : "", x + width / 2, y + ROW / 2 + 4, number);
    }
    svg_add(&picture->svg, "\n");
}

static void add_worker(struct picture *picture, const struct simulate_case *c, uint32_t w,
                       double y) {
    const struct weir_table *table = c->table;
    svg_add(&picture->svg, "<text class=\"soft\" x=\"%d\" y=\"%.0f\">worker %" PRIu32 "</text>",
            MARGIN, y + ROW / 2 + 4, w);
    svg_add(&picture->svg,
            "<rect class=\"ground\" x=\"%d\" y=\"%.0f\" width=\"%.2f\" height=\"%d\"/>\n", LEFT, y,
            c->prediction.step * picture->scale, ROW);
    struct drawn_lane lane = lane_of(table, w);
    svg_add(&picture->svg, "<g class=\"b\">\n");
    for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
        if (weir__kinds[table->actions[a].kind].in_step)
            add_block(picture, c, a, y, is_odd(&lane, table->actions[a].stage));
    }
    svg_add(&picture->svg, "</g>\n");
}

static double panel_height(const struct simulate_case *c) {
    return HEAD + c->table->worker_count * (ROW + ROW_GAP) + PANEL_GAP;
}

static void add_panel(struct picture *picture, const struct simulate_case *c, double y) {
    const struct weir_prediction *p = &c->prediction;
    char step[32];
    svg_add(&picture->svg, "<text x=\"%d\" y=\"%.0f\"><tspan font-weight=\"650\" font-size=\"15\">",
            MARGIN, y + 18);
    svg_add_escaped(&picture->svg, c->name);
    svg_add(&picture->svg,
            "</tspan><tspan class=\"soft\" dx=\"12\">step %s · bubble %.1f%% · a worker keeps the "
            "activations of at most %g micro-batches</tspan></text>\n",
            time_text_seconds(p->step, step), p->bubble * 100.0, simulate_case_peak(c));
    for (uint32_t w = 0; w < p->worker_count; w++) {
        add_worker(picture, c, w, y + HEAD + w * (ROW + ROW_GAP));
    }
}

/* ---- the whole ---- */

static void add_legend(struct picture *picture, double y) {
    double x = LEFT;
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) {
        if (!picture->seen[k]) continue;
        svg_add(&picture->svg,
                "<rect class=\"%c\" x=\"%.0f\" y=\"%.0f\" width=\"14\" height=\"14\"/>",
                weir__kinds[k].letter, x, y);
        svg_add(&picture->svg, "<text class=\"soft\" x=\"%.0f\" y=\"%.0f\">%s</text>\n", x + 20,
                y + 12, weir__kinds[k].name);
        x += 36 + DIGIT * (double)strlen(weir__kinds[k].name);
    }
    svg_add(&picture->svg,
            "<rect class=\"ground\" x=\"%.0f\" y=\"%.0f\" width=\"14\" height=\"14\"/>", x, y);
    svg_add(&picture->svg, "<text class=\"soft\" x=\"%.0f\" y=\"%.0f\">waiting%s</text>\n", x + 20,
            y + 12, picture->odd ? " · muted: the worker's second stage" : "");
}

static void add_all(struct picture *picture, const struct simulate_case *cases, uint32_t count) {
    double height = MARGIN + FOOT, longest = 0.0, y = MARGIN;
    for (uint32_t i = 0; i < count; i++) {
        height += panel_height(&cases[i]);
        longest = fmax(longest, cases[i].prediction.step);
    }
    picture->scale = longest > 0.0 ? (WIDTH - LEFT - MARGIN) / longest : 0.0;
    svg_begin(&picture->svg, WIDTH, height, "Pipeline schedules, predicted",
              "Which worker runs which micro-batch when; a row per worker, time to the right.",
              style);
    for (uint32_t i = 0; i < count; i++) {
        add_panel(picture, &cases[i], y);
        y += panel_height(&cases[i]);
    }
    add_legend(picture, y + 4);
    svg_end(&picture->svg);
}

int simulate_svg(const char *path, const struct simulate_case *cases, uint32_t count,
                 struct weir_error *error) {
    struct output output;
    struct picture picture = {.svg = {output_write, &output, WEIR_OK}};
    uint64_t actions = 0;
    for (uint32_t i = 0; i < count; i++) actions += cases[i].table->action_count;
    if (actions > ACTIONS_MAX) {
        return weir__fail(error, WEIR_ERR_ARGUMENT,
                          "--svg: a picture of %" PRIu64
                          " actions cannot be read: simulate fewer chunks (at most %d actions), or "
                          "use --trace",
                          actions, ACTIONS_MAX);
    }
    int status = output_begin(&output, path, error);
    if (status != WEIR_OK) return status;
    add_all(&picture, cases, count);
    if (picture.svg.status != WEIR_OK) {
        output_abort(&output);
        return picture.svg.status;
    }
    return output_commit(&output);
}

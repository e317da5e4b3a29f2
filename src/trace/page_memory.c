/* SPDX-License-Identifier: MIT */
/* Memory over time: what lives as long as the pipe at the bottom, what comes and goes stacked on
 * it, and the plan's total, which the arena's size is, as a line. */
#include "trace/page.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { LAYERS = 5 };

static const struct weir__key keys[LAYERS + 1] = {
    {"lasting", "lasting", "box"},     {"activations", "activations", "box"},
    {"borders", "borders", "box"},     {"portals", "portals", "box"},
    {"workspace", "workspace", "box"}, {"planned", "planned", "dash"}};

double weir__page_largest_plan(const struct weir_snapshot *snapshot) {
    double most = 0.0;
    for (uint32_t w = 0; w < snapshot->worker_count; w++)
        most = fmax(most, (double)snapshot->workers[w].plan.total);
    return most;
}

/* The sum of the lowest `layers` of them. */
static uint64_t height_of(const struct weir_snapshot_worker *worker,
                          const struct weir_snapshot_memory *point, uint32_t layers) {
    assert(layers <= LAYERS);
    const uint64_t bytes[LAYERS] = {worker->lasting, point->activations, point->borders,
                                    point->portals, point->workspace};
    uint64_t sum = 0;
    for (uint32_t i = 0; i < layers; i++) sum += bytes[i];
    return sum;
}

/* A staircase: relative steps, and none where the drawing would not change. */
static void draw_layer(struct weir__page *page, const struct weir__plot *plot,
                       const struct weir_snapshot_worker *worker, uint32_t layers) {
    assert(0 < layers && layers <= LAYERS && worker->memory_count > 0);
    struct weir__text *text = &page->text;
    uint32_t x = 0, y = weir__plot_y(plot, (double)height_of(worker, &worker->memory[0], layers));
    weir__text_add(text, "<path class=\"fill %s\" d=\"M0 %dV%u", keys[layers - 1].colour,
                   (int)WEIR__PLOT_HEIGHT, (unsigned)y);
    for (uint32_t i = 1; i < worker->memory_count; i++) {
        const struct weir_snapshot_memory *point = &worker->memory[i];
        uint32_t to_x = weir__plot_x(plot, (double)point->ns);
        uint32_t to_y = weir__plot_y(plot, (double)height_of(worker, point, layers));
        if (to_y == y) continue;
        if (to_x != x) weir__text_add(text, "h%d", (int)to_x - (int)x);
        weir__text_add(text, "v%d", (int)to_y - (int)y);
        x = to_x, y = to_y;
    }
    weir__text_add(text, "H%dV%dz\"/>\n", (int)WEIR__PLOT_WIDTH, (int)WEIR__PLOT_HEIGHT);
}

static void draw_worker(struct weir__page *page, uint32_t number) {
    const struct weir_snapshot *s = page->snapshot;
    const struct weir_snapshot_worker *worker = &s->workers[number];
    char title[32], data[16];
    snprintf(title, sizeof title, "worker %" PRIu32, number);
    snprintf(data, sizeof data, "m%" PRIu32, number);
    struct weir__plot plot = {.title = title,
                              .unit = page->size.name,
                              .x_unit = page->time.name,
                              .data = data,
                              .class_of = "memory",
                              .x_most = (double)s->span,
                              .y_most = weir__page_largest_plan(s) * 1.04,
                              .x_scale = page->time.size,
                              .y_scale = page->size.size};
    weir__plot_begin(page, &plot, NULL, 0);
    for (uint32_t layers = LAYERS; layers > 0; layers--) draw_layer(page, &plot, worker, layers);
    weir__text_add(&page->text, "<path class=\"line planned\" d=\"M0 %uH%d\"/>\n",
                   (unsigned)weir__plot_y(&plot, (double)worker->plan.total),
                   (int)WEIR__PLOT_WIDTH);
    weir__plot_end(page, &plot);
}

/* ---- the plan ---- */

static const struct column {
    const char *name;
    size_t offset;
} columns[] = {{"parameters", offsetof(struct weir_device_plan, parameters)},
               {"gradients", offsetof(struct weir_device_plan, gradients)},
               {"optimizer", offsetof(struct weir_device_plan, optimizer)},
               {"activations", offsetof(struct weir_device_plan, activations)},
               {"borders", offsetof(struct weir_device_plan, borders)},
               {"portals", offsetof(struct weir_device_plan, portals)},
               {"workspace", offsetof(struct weir_device_plan, workspace)},
               {"padding", offsetof(struct weir_device_plan, padding)},
               {"planned", offsetof(struct weir_device_plan, total)}};

static void add_plan(struct weir__page *page, uint32_t number) {
    const struct weir_snapshot_worker *worker = &page->snapshot->workers[number];
    struct weir__text *text = &page->text;
    weir__text_add(text, "<tr><th scope=\"row\">worker %" PRIu32 "</th>", number);
    for (uint32_t i = 0; i < WEIR__COUNT_OF(columns); i++) {
        uint64_t bytes = *(const uint64_t *)((const char *)&worker->plan + columns[i].offset);
        weir__page_cell(page, &page->size, (double)bytes);
    }
    weir__page_cell(page, &page->size, (double)worker->peak);
    weir__page_cell(page, &page->time, (double)worker->peak_ns);
    weir__text_string(text, "</tr>\n");
}

void weir__page_memory(struct weir__page *page) {
    const struct weir_snapshot *s = page->snapshot;
    struct weir__text *text = &page->text;
    weir__text_string(text,
                      "<section id=\"memory\">\n<h2>Memory <small>during the step</small></h2>\n"
                      "<p class=\"keys\">");
    weir__page_keys(page, keys, WEIR__COUNT_OF(keys));
    weir__text_string(text, "</p>\n<div class=\"pair\">\n");
    for (uint32_t w = 0; w < s->worker_count; w++) draw_worker(page, w);
    weir__text_add(text,
                   "</div>\n<div class=\"wide\"><table>\n<thead><tr><th class=\"left\">%s</th>",
                   page->size.name);
    for (uint32_t i = 0; i < WEIR__COUNT_OF(columns); i++)
        weir__text_add(text, "<th scope=\"col\">%s</th>", columns[i].name);
    weir__text_add(text,
                   "<th scope=\"col\">peak in use</th><th scope=\"col\">at, %s</th></tr>"
                   "</thead>\n<tbody>\n",
                   page->time.name);
    for (uint32_t w = 0; w < s->worker_count; w++) add_plan(page, w);
    weir__text_string(
        text, "</tbody></table></div>\n<p class=\"note\">Planned is the arena’s size, "
              "allocated before the first step; its parts are those at the planned peak. "
              "Lasting: parameters, gradients, optimizer state and what else stages keep. In "
              "use: from the start of the first action that touches something to the end of "
              "the last.</p>\n</section>\n");
}

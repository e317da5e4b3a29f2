/* SPDX-License-Identifier: MIT */
/* Which results make which picture. */
#include "harness.h"
#include "picture.h"
#include "results.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BARS_MOST = 256, SIZES_MOST = 64, GROUP_BYTES = 64 };

/* What reads more than it writes passes a copy's speed: not so far that others' bars get short. */
static const double LONGEST_KERNEL = 1.2;

/* A picture in the making; its bars' and points' memory is one piece each. */
struct drawing {
    const struct results_run *run;
    char group[GROUP_BYTES]; /* of kernels: "gpt-s" */
    char title[RESULTS_NAME_BYTES + 96];
    struct picture_bars bars;
    struct picture_bar memory[BARS_MOST];
    uint32_t used;
    struct picture_curve curves[PICTURE_SERIES_MOST];
    struct picture_point points[PICTURE_SERIES_MOST][SIZES_MOST];
    uint32_t curve_count;
};

static const json_t *find_result(const struct results_run *run, const char *name) {
    size_t i;
    json_t *result;
    json_array_foreach(run->results, i, result) {
        if (strcmp(results_text(result, "name"), name) == 0) return result;
    }
    return NULL;
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), own = strlen(end);
    return length >= own && strcmp(text + length - own, end) == 0;
}

/* ---- bars ---- */

/* The panel of this title, which is the last one or a new one; NULL: there is no room. */
static struct picture_panel *panel_of(struct drawing *drawing, const char *title) {
    struct picture_bars *bars = &drawing->bars;
    struct picture_panel *last =
        bars->panel_count > 0 ? &bars->panels[bars->panel_count - 1] : NULL;
    if (last != NULL && strcmp(last->title, title) == 0) return last;
    if (bars->panel_count == PICTURE_PANELS_MOST) return NULL;
    struct picture_panel *panel = &bars->panels[bars->panel_count++];
    snprintf(panel->title, sizeof panel->title, "%s", title);
    panel->count = 0;
    panel->bars = &drawing->memory[drawing->used];
    return panel;
}

static struct picture_bar *add_bar(struct drawing *drawing, const char *panel_title,
                                   const char *label, double value, const char *unit) {
    struct picture_panel *panel = panel_of(drawing, panel_title);
    if (panel == NULL || drawing->used == BARS_MOST || !isfinite(value)) return NULL;
    struct picture_bar *bar = &drawing->memory[drawing->used++];
    panel->count++;
    *bar = (struct picture_bar){.value = value, .mark = NAN};
    snprintf(bar->label, sizeof bar->label, "%s", label);
    results_value(value, unit, bar->text);
    return bar;
}

/* Of a CPU's "kernels/<group>/<kernel>", whose ideal is its roof. */
static void add_kernel(struct drawing *drawing, const json_t *result) {
    const char *label = results_text(result, "name") + strlen("kernels/");
    size_t group = strcspn(label, "/");
    double median = results_number(result, "median"), ideal = results_number(result, "ideal");
    if (label[group] == 0 || strcmp(results_text(result, "unit"), "s") != 0) return;
    if (strncmp(drawing->group, label, group) != 0 || drawing->group[group] != 0) return;
    const char *roof = results_text(result, "note");
    struct picture_bar *bar = add_bar(drawing, "Fraction of what one core can do at best",
                                      label + group + 1, ideal / median, "fraction");
    if (bar == NULL) return;
    bar->value = fmin(bar->value, LONGEST_KERNEL); /* its text says how long it would be */
    bar->mark = ideal / results_number(result, "at_most");
    bar->series = strstr(roof, "multiply") != NULL ? 0 : strstr(roof, "exp") != NULL ? 2 : 1;
}

static void draw_kernels(struct drawing *drawing) {
    size_t i;
    json_t *result;
    drawing->bars.axis = "% of the roof";
    drawing->bars.unit = 0.01;
    drawing->bars.series[0] = "roof: multiply-adds";
    drawing->bars.series[1] = "roof: a copy";
    drawing->bars.series[2] = "roof: exponentials";
    drawing->bars.mark = "what it must reach";
    json_array_foreach(drawing->run->results, i, result) {
        if (strncmp(results_text(result, "name"), "kernels/", 8) == 0) add_kernel(drawing, result);
    }
    snprintf(drawing->title, sizeof drawing->title, "Kernels beside their roofs: %s, %s",
             drawing->group, drawing->run->name);
}

/* Of a GPU's "<topic>/<kernel>/to-copy". */
static void draw_gpu_kernels(struct drawing *drawing) {
    size_t i;
    json_t *result;
    drawing->bars.axis = "% of a plain copy's speed";
    drawing->bars.unit = 0.01;
    drawing->bars.series[0] = "bytes that must move, by the kernel's time";
    drawing->bars.mark = "what it must reach";
    json_array_foreach(drawing->run->results, i, result) {
        const char *name = results_text(result, "name"), *label = strchr(name, '/');
        char text[PICTURE_LABEL_BYTES];
        if (label == NULL || !ends_with(name, "/to-copy")) continue;
        snprintf(text, sizeof text, "%.*s", (int)(strlen(label + 1) - strlen("/to-copy")),
                 label + 1);
        struct picture_bar *bar = add_bar(drawing, "Fraction of a plain copy", text,
                                          results_number(result, "median"), "fraction");
        if (bar != NULL) bar->mark = results_number(result, "at_least");
    }
    snprintf(drawing->title, sizeof drawing->title, "Kernels beside a plain copy: %s",
             drawing->run->name);
}

/* "schedules/gpt/zb-v/4-chunks/never/bubble": a panel per chunks, without recomputation. What is
 * simulated is the same work within the simulated step. */
static void add_bubble(struct drawing *drawing, const json_t *result) {
    char step_name[RESULTS_NAME_BYTES], schedule[32] = "", chunks[32] = "", title[64];
    const char *name = results_text(result, "name");
    if (!ends_with(name, "/never/bubble")) return;
    if (sscanf(name, "schedules/%*[^/]/%31[^/]/%31[^/]/", schedule, chunks) != 2) return;
    snprintf(step_name, sizeof step_name, "%.*sstep", (int)(strlen(name) - strlen("bubble")), name);
    const json_t *step = find_result(drawing->run, step_name);
    double bubble = results_number(result, "median");
    if (step == NULL) return;
    snprintf(title, sizeof title, "%d micro-batches", atoi(chunks));
    struct picture_bar *bar = add_bar(drawing, title, schedule, bubble, "fraction");
    if (bar == NULL) return;
    double busy = (1 - bubble) * results_number(step, "median");
    bar->mark = fmax(0.0, 1 - busy / results_number(step, "ideal"));
}

static void draw_bubbles(struct drawing *drawing) {
    static const char *const chunks[] = {"/4-chunks/", "/8-chunks/"};
    drawing->bars.axis = "% of the workers' time in a step that is idle";
    drawing->bars.unit = 0.01;
    drawing->bars.series[0] = "measured";
    drawing->bars.mark = "simulated by the tasks' own times";
    for (int c = 0; c < 2; c++) {
        size_t i;
        json_t *result;
        json_array_foreach(drawing->run->results, i, result) {
            if (strstr(results_text(result, "name"), chunks[c]) != NULL)
                add_bubble(drawing, result);
        }
    }
    snprintf(drawing->title, sizeof drawing->title, "Bubbles, measured and simulated: %s",
             drawing->run->name);
}

static bool is_ours(const char *label) {
    static const char *const own[] = {"1-stage", "2-stages", "planned"};
    for (size_t i = 0; i < WEIR__COUNT_OF(own); i++)
        if (strcmp(label, own[i]) == 0) return true;
    return false;
}

/* Whether the topic has results of this kind. */
static bool has_part(const struct results_run *run, const char *topic, const char *part) {
    size_t i, length = strlen(topic);
    json_t *result;
    json_array_foreach(run->results, i, result) {
        const char *name = results_text(result, "name");
        if (strncmp(name, topic, length) == 0 && strncmp(name + length, part, strlen(part)) == 0)
            return true;
    }
    return false;
}

/* "<topic>/step/<case>" of the topics that have such a part as well. */
static void add_steps(struct drawing *drawing, const char *part) {
    size_t i;
    json_t *result;
    drawing->bars.axis = "milliseconds of a training step: shorter is better";
    drawing->bars.unit = 1e-3;
    drawing->bars.series[0] = "Weir";
    drawing->bars.mark = "roof: the step's products at the machine's best";
    json_array_foreach(drawing->run->results, i, result) {
        const char *name = results_text(result, "name"), *step = strstr(name, "/step/");
        char topic[PICTURE_LABEL_BYTES];
        if (step == NULL || strcmp(results_text(result, "unit"), "s") != 0) continue;
        snprintf(topic, sizeof topic, "%.*s", (int)(step - name), name);
        if (!has_part(drawing->run, topic, part)) continue;
        const char *label = step + strlen("/step/");
        struct picture_bar *bar =
            add_bar(drawing, topic, label, results_number(result, "median"), "s");
        if (bar == NULL) continue;
        bar->series = drawing->bars.series[1] == NULL || is_ours(label) ? 0 : 1;
        bar->mark = results_number(result, "ideal");
    }
}

static void draw_peers(struct drawing *drawing) {
    drawing->bars.series[1] = "PyTorch and torchgpipe";
    add_steps(drawing, "/against/");
    if (drawing->used == 0) add_steps(drawing, "/speed-to/");
    snprintf(drawing->title, sizeof drawing->title, "A training step beside the peers': %s",
             drawing->run->name);
}

static void draw_ways(struct drawing *drawing) {
    add_steps(drawing, "/to-best/");
    snprintf(drawing->title, sizeof drawing->title, "One model three ways: %s", drawing->run->name);
}

/* "ablation/<row>/throughput" */
static void draw_ablation(struct drawing *drawing) {
    size_t i;
    json_t *result;
    drawing->bars.axis = "rows a second: longer is better";
    drawing->bars.unit = 1;
    drawing->bars.series[0] = "measured";
    drawing->bars.mark = "without any wait";
    json_array_foreach(drawing->run->results, i, result) {
        const char *name = results_text(result, "name");
        char label[PICTURE_LABEL_BYTES];
        if (strncmp(name, "ablation/", 9) != 0 || !ends_with(name, "/throughput")) continue;
        snprintf(label, sizeof label, "%.*s", (int)(strlen(name) - 9 - strlen("/throughput")),
                 name + 9);
        struct picture_bar *bar = add_bar(drawing, "Each row adds to the one above", label,
                                          results_number(result, "median"), "rows/s");
        if (bar != NULL) bar->mark = results_number(result, "ideal");
    }
    snprintf(drawing->title, sizeof drawing->title, "What each part gains: %s", drawing->run->name);
}

/* ---- curves ---- */

/* "64-KiB" or a number; 0: neither. */
static double bytes_of(const char *text) {
    char *end;
    double number = strtod(text, &end);
    static const char *const units[] = {"-B", "-KiB", "-MiB", "-GiB"};
    for (int i = 0; i < 4; i++)
        if (strncmp(end, units[i], strlen(units[i])) == 0) return ldexp(number, 10 * i);
    return *end == 0 ? number : 0.0;
}

static bool is_way(const char *name, const char *way, bool gpu, double *bytes) {
    char pattern[64];
    snprintf(pattern, sizeof pattern, gpu ? "gpu-copy/%s/" : "/%s", way);
    if (gpu) {
        if (strncmp(name, pattern, strlen(pattern)) != 0) return false;
        *bytes = bytes_of(name + strlen(pattern));
    } else {
        if (strncmp(name, "copy/", 5) != 0 || !ends_with(name, pattern)) return false;
        *bytes = bytes_of(name + 5);
    }
    return *bytes > 0;
}

/* By time = alpha + bytes / beta, from the first to the last size, where the run has that fit. Its
 * beta, or NaN. */
static double add_fit(const struct drawing *drawing, const char *fit, double first, double last,
                      struct picture_curve *curve, char alpha_text[40]) {
    char name[RESULTS_NAME_BYTES];
    snprintf(name, sizeof name, "%s/alpha", fit);
    double alpha = results_number(find_result(drawing->run, name), "median");
    snprintf(name, sizeof name, "%s/beta", fit);
    double beta = results_number(find_result(drawing->run, name), "median");
    if (!isfinite(alpha) || !(beta > 0) || curve->point_count < 2) return NAN;
    struct picture_fit *made = &curve->fits[curve->fit_count++];
    for (uint32_t i = 0; i < PICTURE_FIT_POINTS; i++) {
        double part = (double)i / (PICTURE_FIT_POINTS - 1);
        double bytes = exp2(log2(first) + (log2(last) - log2(first)) * part);
        made->points[i] = (struct picture_point){bytes, bytes / (alpha + bytes / beta) * 1e-9};
    }
    results_value(alpha, "s", alpha_text);
    return beta;
}

static void add_gpu_fit(const struct drawing *drawing, const char *way,
                        struct picture_curve *curve) {
    char fit[RESULTS_NAME_BYTES], start[40], rate[40];
    snprintf(fit, sizeof fit, "gpu-copy/fit/%s", way);
    double beta = add_fit(drawing, fit, curve->points[0].x, curve->points[curve->point_count - 1].x,
                          curve, start);
    if (isfinite(beta))
        snprintf(curve->name, sizeof curve->name, "%s: %s, then bytes at %s", way, start,
                 results_value(beta, "B/s", rate));
}

/* One fit for each of the caches, over the sizes that bench_copy.c fits, and one for memory. */
static void add_cpu_fits(const struct drawing *drawing, const char *way,
                         struct picture_curve *curve) {
    const json_t *context = json_object_get(drawing->run->json, "context");
    const json_t *machine = json_object_get(context, "machine");
    double l1 = results_number(machine, "l1d_bytes"), l2 = results_number(machine, "l2_bytes");
    double l3 = results_number(machine, "l3_bytes"), beta = NAN;
    const struct range {
        const char *name;
        double first, last;
    } ranges[PICTURE_FITS_MOST] = {{"L1", curve->points[0].x, l1 / 4},
                                   {"L2", l1, l2 / 4},
                                   {"L3", l2, l3 / 4},
                                   {"memory", 2 * l3, curve->points[curve->point_count - 1].x}};
    char fit[RESULTS_NAME_BYTES], start[40], rate[40];
    for (int i = 0; i < PICTURE_FITS_MOST; i++) {
        snprintf(fit, sizeof fit, "copy/fit/%s/%s", ranges[i].name, way);
        beta = add_fit(drawing, fit, ranges[i].first, ranges[i].last, curve, start);
    }
    if (isfinite(beta))
        snprintf(curve->name, sizeof curve->name, "%s: in memory bytes at %s", way,
                 results_value(beta, "B/s", rate));
}

static void add_way(struct drawing *drawing, const char *way, bool gpu) {
    struct picture_curve *curve = &drawing->curves[drawing->curve_count];
    size_t i;
    json_t *result;
    *curve = (struct picture_curve){.points = drawing->points[drawing->curve_count]};
    snprintf(curve->name, sizeof curve->name, "%s", way);
    json_array_foreach(drawing->run->results, i, result) {
        double bytes, seconds = results_number(result, "median");
        if (strcmp(results_text(result, "unit"), "s") != 0 || curve->point_count == SIZES_MOST)
            continue;
        if (is_way(results_text(result, "name"), way, gpu, &bytes) && seconds > 0)
            curve->points[curve->point_count++] =
                (struct picture_point){bytes, bytes / seconds * 1e-9};
    }
    if (curve->point_count < 2) return;
    drawing->curve_count++;
    if (gpu)
        add_gpu_fit(drawing, way, curve);
    else
        add_cpu_fits(drawing, way, curve);
}

static void draw_copies(struct drawing *drawing) {
    static const char *const cpu[] = {"memcpy", "past-cache", "engine"};
    static const char *const gpu[] = {"h2d-engine", "d2h-engine", "d2d-engine", "d2d-kernel"};
    for (size_t i = 0; i < WEIR__COUNT_OF(cpu); i++) add_way(drawing, cpu[i], false);
    if (drawing->curve_count == 0)
        for (size_t i = 0; i < WEIR__COUNT_OF(gpu); i++) add_way(drawing, gpu[i], true);
    snprintf(drawing->title, sizeof drawing->title,
             "Copies by size, and the lines of alpha + bytes / beta: %s", drawing->run->name);
}

/* ---- files ---- */

/* `mark` stands in names of the results that it takes. */
static const struct kind {
    const char *name, *mark, *description;
    void (*draw)(struct drawing *drawing);
} kinds[] = {
    {"kernels", "kernels/", "A bar for each kernel: its roof's time by its own.", draw_kernels},
    {"kernels", "/to-copy", "A bar for each kernel: a plain copy's time by its own.",
     draw_gpu_kernels},
    {"bubbles", "/never/bubble", "A bar for each schedule, a line where the simulator sees it.",
     draw_bubbles},
    {"peers", "/step/", "A bar for each way to train a model, by its time.", draw_peers},
    {"ways", "/to-best/", "A bar for each way to use two cores, by its time.", draw_ways},
    {"ablation", "ablation/", "A bar for each row of the ablation, by its speed.", draw_ablation},
    {"copies", "copy/", "How many bytes a second are copied, by size.", draw_copies},
};

static void write_copies(struct svg *svg, struct drawing *drawing, const struct kind *kind) {
    struct picture_curves curves = {.title = drawing->title,
                                    .description = kind->description,
                                    .x_axis = "bytes of one copy",
                                    .y_axis = "GB/s",
                                    .curve_count = drawing->curve_count,
                                    .curves = drawing->curves};
    picture_write_curves(svg, &curves);
}

static int write_stream(void *context, const char *text, size_t bytes) {
    return fwrite(text, 1, bytes, context) == bytes ? WEIR_OK : WEIR_ERR_IO;
}

static void keep_picture(struct results *results, struct drawing *drawing, const struct kind *kind,
                         FILE *page) {
    char name[RESULTS_NAME_BYTES + GROUP_BYTES + 32];
    if (results->picture_count == RESULTS_PICTURES_MOST) bench_die("too many pictures");
    struct results_file *file = &results->pictures[results->picture_count++];
    snprintf(name, sizeof name, "%s-%s%s%s.svg", drawing->run->name, kind->name,
             drawing->group[0] != 0 ? "-" : "", drawing->group);
    snprintf(file->path, sizeof file->path, "%s/pictures/%s", results->folder, name);
    FILE *stream = open_memstream(&file->text, &file->bytes);
    if (stream == NULL) bench_die("out of memory");
    struct svg svg = {write_stream, stream, WEIR_OK};
    drawing->bars.title = drawing->title;
    drawing->bars.description = kind->description;
    if (drawing->curve_count > 0)
        write_copies(&svg, drawing, kind);
    else
        picture_write_bars(&svg, &drawing->bars);
    if (fclose(stream) != 0 || svg.status != WEIR_OK) bench_die("%s: cannot be made", name);
    fprintf(page, "![%s](pictures/%s)\n\n", drawing->title, name);
}

static void draw(struct results *results, const struct results_run *run, const struct kind *kind,
                 const char *group, FILE *page) {
    struct drawing *drawing = calloc(1, sizeof *drawing);
    if (drawing == NULL) bench_die("out of memory");
    drawing->run = run;
    snprintf(drawing->group, sizeof drawing->group, "%s", group);
    kind->draw(drawing);
    if (drawing->used > 0 || drawing->curve_count > 0) keep_picture(results, drawing, kind, page);
    free(drawing);
}

/* A picture for each "kernels/<group>/…", in their order. */
static void draw_groups(struct results *results, const struct results_run *run, FILE *page) {
    char group[GROUP_BYTES] = "", next[GROUP_BYTES];
    size_t i;
    json_t *result;
    json_array_foreach(run->results, i, result) {
        if (sscanf(results_text(result, "name"), "kernels/%63[^/]/", next) != 1) continue;
        if (strcmp(group, next) == 0) continue;
        snprintf(group, sizeof group, "%s", next);
        draw(results, run, &kinds[0], group, page);
    }
}

static bool has_mark(const struct results_run *run, const char *mark) {
    size_t i;
    json_t *result;
    json_array_foreach(run->results, i, result) {
        if (strstr(results_text(result, "name"), mark) != NULL) return true;
    }
    return false;
}

void results_add_pictures(struct results *results, const struct results_run *run, FILE *page) {
    for (size_t k = 0; k < WEIR__COUNT_OF(kinds); k++) {
        if (!has_mark(run, kinds[k].mark)) continue;
        if (kinds[k].draw == draw_kernels)
            draw_groups(results, run, page);
        else
            draw(results, run, &kinds[k], "", page);
    }
}

/* SPDX-License-Identifier: MIT */
/* A run's page. */
#include "cmd/train_report.h"

#include "net/cpu/level.h"
#include "net/run/net.h"
#include "place/place.h"
#include "cmd/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Written by the build: the commit's hash, or "unknown". */
extern const char weir_build_commit[];

/* ---- curves ---- */

void curve_init(struct curve *curve, uint32_t value_count) {
    curve->value_count = value_count;
    curve->stride = 1;
}

static void halve(struct curve *curve) {
    for (uint32_t i = 0; i < CURVE_POINTS / 2; i++) {
        curve->x[i] = (curve->x[2 * i] + curve->x[2 * i + 1]) / 2;
        for (uint32_t v = 0; v < curve->value_count; v++)
            curve->values[v][i] = (curve->values[v][2 * i] + curve->values[v][2 * i + 1]) / 2;
    }
    curve->count = CURVE_POINTS / 2;
    curve->stride *= 2;
}

void curve_finish(struct curve *curve) {
    if (curve->pending == 0) return;
    if (curve->count == CURVE_POINTS) halve(curve);
    curve->x[curve->count] = curve->sum_x / curve->pending;
    for (uint32_t v = 0; v < curve->value_count; v++) {
        curve->values[v][curve->count] = curve->sums[v] / curve->pending;
        curve->sums[v] = 0.0;
    }
    curve->count++;
    curve->pending = 0;
    curve->sum_x = 0.0;
}

void curve_add(struct curve *curve, double x, const double *values) {
    curve->sum_x += x;
    for (uint32_t v = 0; v < curve->value_count; v++) curve->sums[v] += values[v];
    if (++curve->pending >= curve->stride) curve_finish(curve);
}

/* ---- a run's ---- */

struct train_report *train_report_new(int argc, char **argv) {
    struct train_report *report = calloc(1, sizeof *report);
    if (report == NULL) return NULL;
    weir__pool_init(&report->pool, NULL);
    curve_init(&report->updates, 4);
    curve_init(&report->validations, 2);
    report->command = train_report_words(&report->pool, argc, argv);
    if (report->command != NULL) return report;
    train_report_destroy(report);
    return NULL;
}

void train_report_destroy(struct train_report *report) {
    if (report == NULL) return;
    weir_snapshot_destroy(report->snapshot);
    weir__pool_clean_up(&report->pool);
    free(report);
}

static bool wanted(const struct train *t) {
    return t->values->report != NULL;
}

void train_report_update(struct train *t, const struct train_line *line) {
    const double values[] = {line->loss, line->grad_norm, line->lr, line->seconds};
    if (wanted(t)) curve_add(&t->report->updates, (double)line->step, values);
}

void train_report_validation(struct train *t, uint64_t step, const struct task_score *score) {
    bool masks = t->task.metric == TASK_IOU;
    const double values[] = {score->loss, masks ? score->iou : score->accuracy};
    if (wanted(t)) curve_add(&t->report->validations, (double)step, values);
}

int train_report_keep(struct train *t) {
    struct weir_snapshot *snapshot;
    if (t->net == NULL) return WEIR_OK;
    int status = weir_snapshot_new(weir_net_pipe(t->net), 0, NULL, &snapshot);
    /* an older one is better than none */
    if (status == WEIR_ERR_NOT_FOUND || status == WEIR_ERR_BUSY) return WEIR_OK;
    if (status != WEIR_OK) return status;
    weir_snapshot_destroy(t->report->snapshot);
    t->report->snapshot = snapshot;
    return WEIR_OK;
}

/* ---- what stands on the page ---- */

enum { CHARTS = 5, SERIES = 3, FIGURES = 5, VERSIONS = 6, STAGE_NOTE_BYTES = 48 };

/* Everything that the page's options point to. */
struct page {
    struct weir_report_options options;
    struct weir_report_series loss[SERIES], others[CHARTS];
    struct weir_report_chart charts[CHARTS];
    struct weir_report_fact figures[FIGURES], facts[ARGS_OPTIONS_MAX], versions[VERSIONS];
    struct weir_report_table tables[2];
    char texts[FIGURES + VERSIONS][160];
    double sorted[CURVE_POINTS];
    char title[128], summary[256], warning[512], kernels[512];
};

static const char *loss_unit(const struct train *t) {
    if (t->task.metric != TASK_NATS) return NULL;
    return t->task.data->kind == WEIR__DATA_TEXT ? "nats per byte" : "nats per token";
}

/* NULL where there is none beside the loss. */
static const char *metric_name(const struct train *t) {
    return t->task.metric == TASK_ACCURACY ? "Accuracy" : t->task.metric == TASK_IOU ? "IoU" : NULL;
}

static void add_chart(struct page *page, const char *title, const char *unit,
                      const struct curve *curve, uint32_t value, enum weir_report_form form) {
    uint32_t i = page->options.chart_count++;
    page->others[i] =
        (struct weir_report_series){title, curve->x, curve->values[value], curve->count, form};
    page->charts[i] = (struct weir_report_chart){title, unit, "update", &page->others[i], 1, true};
}

static void add_charts(const struct train *t, struct page *page) {
    struct curve *updates = &t->report->updates, *checks = &t->report->validations;
    bool text = t->task.data->kind == WEIR__DATA_TEXT;
    curve_finish(updates);
    curve_finish(checks);
    page->loss[0] = (struct weir_report_series){"training", updates->x, updates->values[0],
                                                updates->count, WEIR_REPORT_LINE};
    page->loss[1] = (struct weir_report_series){"validation", checks->x, checks->values[0],
                                                checks->count, WEIR_REPORT_POINTS};
    page->loss[2] =
        (struct weir_report_series){"a bigram model", NULL, &t->bigram, 1, WEIR_REPORT_LEVEL};
    page->charts[page->options.chart_count++] = (struct weir_report_chart){
        "Loss", loss_unit(t), "update", page->loss, text ? SERIES : SERIES - 1, false};
    if (metric_name(t) != NULL)
        add_chart(page, metric_name(t), "held out", checks, 1, WEIR_REPORT_POINTS);
    add_chart(page, "Gradient norm", NULL, updates, 1, WEIR_REPORT_LINE);
    add_chart(page, "Learning rate", NULL, updates, 2, WEIR_REPORT_LINE);
    add_chart(page, "Time per update", "s", updates, 3, WEIR_REPORT_LINE);
    page->options.charts = page->charts;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, uint32_t count, double sorted[CURVE_POINTS]) {
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, compare_doubles);
    return sorted[count / 2];
}

/* With commas between thousands where there are no decimals; what is beyond all measure (the loss
 * of a run that diverged) with an exponent. */
static void add_figure(struct page *page, const char *name, double value, int decimals) {
    uint32_t i = page->options.figure_count++;
    char digits[64], *to = page->texts[i];
    page->figures[i] = (struct weir_report_fact){name, page->texts[i], false};
    if (!(fabs(value) < 1e15)) {
        snprintf(page->texts[i], sizeof page->texts[i], "%.4g", value);
        return;
    }
    int length = snprintf(digits, sizeof digits, "%.*f", decimals, value);
    for (int k = 0; k < length; k++) {
        if (decimals == 0 && k > 0 && (length - k) % 3 == 0) *to++ = ',';
        *to++ = digits[k];
    }
}

static void add_figures(const struct train *t, struct page *page) {
    const struct curve *updates = &t->report->updates, *checks = &t->report->validations;
    bool samples = t->task.data->kind == WEIR__DATA_ARRAYS;
    page->options.figures = page->figures;
    if (updates->count == 0) return;
    double seconds = median(updates->values[3], updates->count, page->sorted);
    double units = (double)t->values->batch * t->values->accumulate * (double)t->task.row_units;
    add_figure(page, "updates", (double)t->progress.step, 0);
    add_figure(page, "loss", updates->values[0][updates->count - 1], 4);
    if (checks->count > 0)
        add_figure(page, "validation loss", checks->values[0][checks->count - 1], 4);
    if (checks->count > 0 && metric_name(t) != NULL)
        add_figure(page, metric_name(t), checks->values[1][checks->count - 1], 4);
    add_figure(page, samples ? "samples per second" : "tokens per second", units / seconds, 0);
}

static void add_version(struct page *page, const char *name, const char *value) {
    uint32_t i = page->tables[1].fact_count++;
    snprintf(page->texts[FIGURES + i], sizeof page->texts[0], "%s", value);
    page->versions[i] = (struct weir_report_fact){name, page->texts[FIGURES + i], false};
}

static void add_machine(struct page *page) {
    struct weir__machine *machine;
    struct weir__machine_facts facts;
    char text[96];
    if (weir__machine_new(NULL, &machine) != WEIR_OK) return;
    weir__machine_facts(machine, &facts);
    weir__machine_destroy(machine);
    add_version(page, "processor", facts.model);
    snprintf(text, sizeof text, "%" PRIu32 " of %" PRIu32 ", in %" PRIu32 " NUMA node%s",
             facts.usable_cores, facts.cores, facts.numa_nodes, weir__s(facts.numa_nodes));
    add_version(page, "cores", text);
}

static void add_versions(const struct train *t, struct page *page) {
    char text[96];
    page->tables[1].title = "Versions and machine";
    page->tables[1].facts = page->versions;
    snprintf(text, sizeof text, "%s (%.40s)", weir_version(), weir_build_commit);
    add_version(page, "weir", text);
    add_version(page, "level", t->net->level->name);
    add_machine(page);
    weir_net_kernels(t->net, page->kernels, sizeof page->kernels);
    page->versions[page->tables[1].fact_count++] =
        (struct weir_report_fact){"kernels", page->kernels, false};
}

static void add_texts(const struct train *t, struct page *page, const char *failure) {
    const struct train_values *v = t->values;
    time_t now = time(NULL);
    struct tm local;
    char when[40] = "";
    if (localtime_r(&now, &local) != NULL)
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S %z", &local);
    snprintf(page->title, sizeof page->title, "weir train: %s", v->model.model);
    snprintf(page->summary, sizeof page->summary, "Written %s", when);
    page->options.title = page->title;
    page->options.summary = page->summary;
    if (failure != NULL)
        snprintf(page->warning, sizeof page->warning,
                 "The run failed after %" PRIu64 " of %" PRIu64 " updates: %s", t->progress.step,
                 t->steps, failure);
    else if (train_is_stopped(t))
        snprintf(page->warning, sizeof page->warning,
                 "The run was interrupted after %" PRIu64 " of %" PRIu64 " updates.",
                 t->progress.step, t->steps);
    if (page->warning[0] != 0) page->options.warning = page->warning;
}

/* "layers 0-2" for each stage. */
static int add_stage_notes(const struct train *t, struct page *page) {
    const uint32_t *balance = weir_net_balance(t->net);
    uint32_t stages = weir_pipe_stage_count(weir_net_pipe(t->net)), layer = 0;
    const char **notes = weir__pool_take(&t->report->pool, stages, sizeof *notes);
    if (notes == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t s = 0; s < stages; s++) {
        char text[STAGE_NOTE_BYTES];
        if (balance[s] == 1)
            snprintf(text, sizeof text, "layer %" PRIu32, layer);
        else
            snprintf(text, sizeof text, "layers %" PRIu32 "–%" PRIu32, layer,
                     layer + balance[s] - 1);
        notes[s] = weir__pool_text(&t->report->pool, text);
        if (notes[s] == NULL) return WEIR_ERR_OUT_OF_MEMORY;
        layer += balance[s];
    }
    page->options.stage_notes = notes;
    return WEIR_OK;
}

static int fill_page(const struct train *t, const char *failure, struct page *page) {
    struct weir__pool *pool = &t->report->pool;
    page->options = (struct weir_report_options)WEIR_REPORT_OPTIONS_INIT;
    page->options.snapshot = t->report->snapshot;
    page->options.planned_step = train_planned_step(t) * 1e9;
    page->options.tables = page->tables;
    page->options.table_count = 2;
    add_texts(t, page, failure);
    add_figures(t, page);
    add_charts(t, page);
    add_versions(t, page);
    page->tables[0] = (struct weir_report_table){"Options, those given in bold", page->facts,
                                                 train_report_options(t, pool, page->facts)};
    page->options.command = train_report_command(t, pool);
    if (page->tables[0].fact_count == 0 || page->options.command == NULL)
        return WEIR_ERR_OUT_OF_MEMORY;
    return add_stage_notes(t, page);
}

static int save_page(const struct train *t, const struct page *page) {
    struct output output;
    int status = output_begin(&output, t->values->report, t->error);
    if (status != WEIR_OK) return status;
    status = weir_report_html(&page->options, output_write, &output);
    if (status == WEIR_OK) return output_commit(&output);
    output_abort(&output);
    return status;
}

static int write_page(struct train *t, const char *failure, struct page *page) {
    int status = WEIR_OK;
    /* else a step was kept before the last validation */
    if (failure != NULL) status = train_report_keep(t);
    if (status != WEIR_OK) return status;
    if ((status = fill_page(t, failure, page)) != WEIR_OK) return status;
    return save_page(t, page);
}

int train_report_write(struct train *t, const char *failure) {
    if (!wanted(t) || t->net == NULL || t->report->written) return WEIR_OK;
    struct page *page = calloc(1, sizeof *page);
    if (page == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = write_page(t, failure, page);
    t->report->written = status == WEIR_OK;
    free(page);
    return status;
}

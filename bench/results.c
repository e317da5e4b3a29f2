/* SPDX-License-Identifier: MIT */
/* The files of the page: read, written, compared. */
#include "results.h"

#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *results_text(const json_t *result, const char *key) {
    const char *text = json_string_value(json_object_get(result, key));
    return text != NULL ? text : "";
}

double results_number(const json_t *result, const char *key) {
    const json_t *value = json_object_get(result, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* 538113.7 tokens/s as 538,114 tokens/s. */
static void write_large(double value, const char *unit, char text[40]) {
    char digits[32];
    size_t used = 0;
    size_t length = (size_t)snprintf(digits, sizeof digits, "%.0f", value);
    for (size_t i = 0; i < length && used + 2 < 40; i++) {
        if (i > 0 && (length - i) % 3 == 0) text[used++] = ',';
        text[used++] = digits[i];
    }
    snprintf(text + used, 40 - used, "%s%s", strcmp(unit, "1/s") == 0 ? "" : " ",
             strcmp(unit, "1/s") == 0 ? "" : unit);
}

const char *results_value(double value, const char *unit, char text[40]) {
    char plain[32];
    bool scaled = bench_is_scaled(unit);
    if (isfinite(value) && value >= 1e3 && value < 1e12 && !scaled) {
        write_large(value, unit, text);
    } else if (strcmp(unit, "ratio") == 0 && isfinite(value)) {
        snprintf(text, 40, "%.3f×", value);
    } else if (strcmp(unit, "fraction") == 0 && isfinite(value)) {
        snprintf(text, 40, "%.1f%%", value * 100);
    } else {
        bench_value_text(value, unit, plain);
        char *micro = strstr(plain, " us");
        snprintf(text, 40, "%.*s%s", micro != NULL ? (int)(micro - plain) : 32, plain,
                 micro != NULL ? " µs" : "");
    }
    return text;
}

/* ---- reading ---- */

static char *read_text(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    char part[4096];
    size_t got;
    if (file == NULL) return NULL;
    FILE *whole = open_memstream(&text, bytes);
    if (whole == NULL) bench_die("out of memory");
    while ((got = fread(part, 1, sizeof part, file)) > 0) fwrite(part, 1, got, whole);
    fclose(whole);
    fclose(file);
    return text;
}

static int compare_runs(const void *a, const void *b) {
    return strcmp(((const struct results_run *)a)->name, ((const struct results_run *)b)->name);
}

static void read_run(struct results *results, const char *folder, const char *file) {
    char path[1024];
    json_error_t error;
    if (results->run_count == RESULTS_RUNS_MOST) bench_die("%s: too many runs", folder);
    struct results_run *run = &results->runs[results->run_count++];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    snprintf(run->name, sizeof run->name, "%.*s", (int)(strlen(file) - strlen(".json")), file);
    run->json = json_load_file(path, 0, &error);
    if (run->json == NULL) bench_die("%s:%d: %s", path, error.line, error.text);
    run->results = json_object_get(run->json, "benchmarks");
    if (!json_is_array(run->results)) bench_die("%s: it has no \"benchmarks\"", path);
    const json_t *context = json_object_get(run->json, "context");
    if (json_is_true(json_object_get(json_object_get(context, "configuration"), "quick")))
        bench_die("%s: of --quick: its numbers mean nothing", path);
}

static void read_runs(struct results *results) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s/results", results->folder);
    DIR *stream = opendir(folder);
    const struct dirent *entry;
    if (stream == NULL) bench_die("%s: %s", folder, strerror(errno));
    while ((entry = readdir(stream)) != NULL) {
        size_t length = strlen(entry->d_name);
        if (length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0)
            read_run(results, folder, entry->d_name);
    }
    closedir(stream);
    qsort(results->runs, results->run_count, sizeof results->runs[0], compare_runs);
}

/* ---- writing ---- */

static void write_file(const struct results_file *made) {
    FILE *file = fopen(made->path, "wb");
    bool written = file != NULL && fwrite(made->text, 1, made->bytes, file) == made->bytes;
    if (file == NULL || fclose(file) != 0 || !written)
        bench_die("%s: cannot be written", made->path);
}

static bool is_current(const struct results_file *made) {
    size_t bytes = 0;
    char *text = read_text(made->path, &bytes);
    bool same = text != NULL && bytes == made->bytes && memcmp(text, made->text, bytes) == 0;
    free(text);
    return same;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool is_picture(const struct results *results, const char *name) {
    for (uint32_t i = 0; i < results->picture_count; i++)
        if (strcmp(base_name(results->pictures[i].path), name) == 0) return true;
    return false;
}

/* Pictures of runs that are gone: removed, or where `check` counted. */
static int find_left_over(const struct results *results, bool check) {
    char folder[512], path[1024];
    const struct dirent *entry;
    int found = 0;
    snprintf(folder, sizeof folder, "%s/pictures", results->folder);
    DIR *stream = opendir(folder);
    if (stream == NULL) return 0;
    while ((entry = readdir(stream)) != NULL) {
        if (strstr(entry->d_name, ".svg") == NULL || is_picture(results, entry->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (check)
            fprintf(stderr, "%s: of no run: run './zigw build results'\n", path);
        else
            remove(path);
        found++;
    }
    closedir(stream);
    return found;
}

static bool settle(const struct results_file *made, bool check) {
    if (!check) {
        write_file(made);
        return true;
    }
    if (is_current(made)) return true;
    fprintf(stderr, "%s: stale: run './zigw build results'\n", made->path);
    return false;
}

static bool settle_all(const struct results *results, const struct results_file *page, bool check) {
    char folder[512];
    bool current = settle(page, check);
    snprintf(folder, sizeof folder, "%s/pictures", results->folder);
    if (!check && mkdir(folder, 0777) != 0 && errno != EEXIST)
        bench_die("%s: %s", folder, strerror(errno));
    for (uint32_t i = 0; i < results->picture_count; i++)
        current = settle(&results->pictures[i], check) && current;
    return (find_left_over(results, check) == 0 || !check) && current;
}

static void clean_up(struct results *results) {
    for (uint32_t i = 0; i < results->run_count; i++) json_decref(results->runs[i].json);
    for (uint32_t i = 0; i < results->picture_count; i++) free(results->pictures[i].text);
    free(results);
}

int bench_results(const char *folder, bool check) {
    struct results *results = calloc(1, sizeof *results);
    struct results_file page;
    char path[512];
    size_t bytes;
    if (results == NULL) bench_die("out of memory");
    results->folder = folder;
    read_runs(results);
    snprintf(path, sizeof path, "%s/results/notes.md", folder);
    char *notes = read_text(path, &bytes);
    if (notes == NULL) bench_die("%s: %s", path, strerror(errno));
    snprintf(page.path, sizeof page.path, "%s/RESULTS.md", folder);
    FILE *stream = open_memstream(&page.text, &page.bytes);
    if (stream == NULL) bench_die("out of memory");
    bool right = results_write_page(results, notes, stream);
    fclose(stream);
    right = right && settle_all(results, &page, check);
    free(page.text);
    free(notes);
    clean_up(results);
    return right ? 0 : 1;
}

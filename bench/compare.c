/* SPDX-License-Identifier: MIT */
/*
 * Two runs, one after the other: what became worse by more than noise? Noise is the largest of
 * three: the bootstrap interval of the ratio (within the runs), what the runs' controls show, and
 * NOISE_BETWEEN_RUNS, since two runs of the same program differ by more than either shows alone.
 */
#include "harness.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Single runs on one machine: differences under 7% are ties. */
static const double NOISE_BETWEEN_RUNS = 0.07;

enum { WORSE = 1, UNREADABLE = 2 };

static double *samples_of(const json_t *result, uint32_t *count) {
    const json_t *list = json_object_get(result, "samples");
    *count = (uint32_t)json_array_size(list);
    double *samples = calloc(*count + 1, sizeof *samples);
    if (samples == NULL) bench_die("out of memory");
    for (uint32_t i = 0; i < *count; i++) samples[i] = json_number_value(json_array_get(list, i));
    return samples;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static const json_t *find_result(const json_t *results, const char *name) {
    for (size_t i = 0; i < json_array_size(results); i++)
        if (strcmp(text_of(json_array_get(results, i), "name"), name) == 0)
            return json_array_get(results, i);
    return NULL;
}

/* How far the controls are from 1. */
static double control_noise(const json_t *results) {
    double noise = 0.0;
    for (size_t i = 0; i < json_array_size(results); i++) {
        const json_t *result = json_array_get(results, i);
        if (!json_is_true(json_object_get(result, "control"))) continue;
        const json_t *interval = json_object_get(result, "interval");
        for (size_t k = 0; k < json_array_size(interval); k++)
            noise = fmax(noise, fabs(json_number_value(json_array_get(interval, k)) - 1.0));
    }
    return noise;
}

/* Whether it became worse; prints its line. */
static bool compare_result(const json_t *before, const json_t *after, double noise, uint64_t seed) {
    uint32_t count_a, count_b;
    double *a = samples_of(before, &count_a), *b = samples_of(after, &count_b);
    double ratio = json_number_value(json_object_get(after, "median")) /
                   json_number_value(json_object_get(before, "median"));
    struct bench_interval interval = bench_ratio_interval(b, count_b, a, count_a, false, seed);
    bool higher = strcmp(text_of(after, "better"), "higher") == 0;
    bool up = interval.low > 1.0 && ratio > 1.0 + noise;
    bool down = interval.high < 1.0 && ratio < 1.0 / (1.0 + noise);
    bool worse = higher ? down : up, better = higher ? up : down;
    char from[32], to[32];
    printf("%-44s %12s %12s %8.3f  %.3f to %.3f  %s\n", text_of(before, "name"),
           bench_value_text(json_number_value(json_object_get(before, "median")),
                            text_of(before, "unit"), from),
           bench_value_text(json_number_value(json_object_get(after, "median")),
                            text_of(after, "unit"), to),
           ratio, interval.low, interval.high,
           worse    ? "WORSE"
           : better ? "better"
                    : "the same");
    free(a);
    free(b);
    return worse;
}

static bool same_machine(const json_t *before, const json_t *after) {
    const json_t *a = json_object_get(json_object_get(before, "context"), "machine");
    const json_t *b = json_object_get(json_object_get(after, "context"), "machine");
    return strcmp(text_of(a, "model"), text_of(b, "model")) == 0 &&
           json_equal(json_object_get(a, "usable_cores"), json_object_get(b, "usable_cores"));
}

static bool all_right(const json_t *root) {
    const json_t *answers = json_object_get(root, "answers");
    for (size_t i = 0; i < json_array_size(answers); i++)
        if (!json_is_true(json_object_get(json_array_get(answers, i), "right"))) return false;
    return true;
}

static int compare_all(const json_t *before, const json_t *after, uint64_t seed) {
    const json_t *old = json_object_get(before, "benchmarks");
    const json_t *new = json_object_get(after, "benchmarks");
    double noise = fmax(NOISE_BETWEEN_RUNS, fmax(control_noise(old), control_noise(new)));
    int worse = 0, compared = 0;
    if (!same_machine(before, after)) printf("the machines differ: compare ratios, not times\n");
    printf("changes within %.1f%% are noise here\n\n%-44s %12s %12s %8s  %s\n", noise * 100.0, "",
           "before", "after", "ratio", "95%");
    for (size_t i = 0; i < json_array_size(old); i++) {
        const json_t *a = json_array_get(old, i), *b = find_result(new, text_of(a, "name"));
        if (json_is_true(json_object_get(a, "control"))) continue;
        if (b == NULL) {
            printf("%-44s not measured after\n", text_of(a, "name"));
            continue;
        }
        compared++;
        worse += compare_result(a, b, noise, seed);
    }
    if (!all_right(after)) printf("the later run has a WRONG ANSWER\n");
    printf("\n%d of %d worse\n", worse, compared);
    return worse > 0 || !all_right(after) ? WORSE : 0;
}

static json_t *load(const char *path) {
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (root == NULL) fprintf(stderr, "bench: %s: line %d: %s\n", path, error.line, error.text);
    if (root != NULL && !json_is_array(json_object_get(root, "benchmarks"))) {
        fprintf(stderr, "bench: %s: has no list \"benchmarks\"\n", path);
        json_decref(root);
        root = NULL;
    }
    return root;
}

int bench_compare(const char *before, const char *after, uint64_t seed) {
    json_t *old = load(before), *new = load(after);
    int status = old != NULL && new != NULL ? compare_all(old, new, seed) : UNREADABLE;
    json_decref(old);
    json_decref(new);
    return status;
}

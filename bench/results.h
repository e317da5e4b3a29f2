/* SPDX-License-Identifier: MIT */
/**
 * What was measured, as a page: FOLDER/RESULTS.md and FOLDER/pictures are made of the runs in
 * FOLDER/results/<run>.json and of what only a person can say, FOLDER/results/notes.md. In the
 * notes stand, to be replaced,
 *
 *   {{value RUN NAME}}      the median of a result
 *   {{range RUN PATTERN}}   the least and the largest median of those that match, as a shell
 *                           matches names
 *   {{met RUN PATTERN}}     how many of those that have a bound are within it: "5 of 13"
 *   {{table RUN PATTERN}}   a table of them
 *   {{pictures RUN}}        the pictures that can be drawn of it
 *   {{runs}}                a table of all runs: machine, level, versions, commit
 *   {{others}}              pictures and a table of each run that the notes do not name
 */
#ifndef WEIR_BENCH_RESULTS_H
#define WEIR_BENCH_RESULTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { RESULTS_RUNS_MOST = 128, RESULTS_PICTURES_MOST = 256, RESULTS_NAME_BYTES = 128 };

struct results_run {
    char name[RESULTS_NAME_BYTES]; /**< of its file, without .json */
    json_t *json;
    const json_t *results; /**< "benchmarks" */
    bool told;             /**< the notes name it */
};

/** A file of the page. */
struct results_file {
    char path[512];
    char *text;
    size_t bytes;
};

struct results {
    const char *folder;
    uint32_t run_count;
    struct results_run runs[RESULTS_RUNS_MOST]; /**< by name */
    uint32_t picture_count;
    struct results_file pictures[RESULTS_PICTURES_MOST];
};

/** Members of a result; "" and NaN where there is none. */
const char *results_text(const json_t *result, const char *key);
double results_number(const json_t *result, const char *key);
/** A median for people, with its unit. Returns `text`. */
const char *results_value(double value, const char *unit, char text[40]);

/** The notes, replaced, onto `page`; false where a line cannot be, which is then printed.
 * (results_page.c) */
bool results_write_page(struct results *results, const char *notes, FILE *page);
/** Makes the pictures that a run has and puts their Markdown onto `page`. (results_pictures.c) */
void results_add_pictures(struct results *results, const struct results_run *run, FILE *page);

#endif

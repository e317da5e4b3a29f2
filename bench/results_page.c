/* SPDX-License-Identifier: MIT */
/* The page: the notes with their figures, and tables of what the notes do not tell. */
#include "harness.h"
#include "results.h"

#include <fnmatch.h>
#include <math.h>
#include <string.h>

enum { WORDS_MOST = 3, LONG_TABLE = 48, WORD_BYTES = 128 };

/* What stands between {{ and }}. */
struct request {
    char words[WORDS_MOST][WORD_BYTES];
    int line;
};

static bool complain(const struct request *request, const char *what, const char *name) {
    fprintf(stderr, "bench: notes.md:%d: %s '%s'\n", request->line, what, name);
    return false;
}

static struct results_run *find_run(struct results *results, const char *name) {
    for (uint32_t i = 0; i < results->run_count; i++)
        if (strcmp(results->runs[i].name, name) == 0) return &results->runs[i];
    return NULL;
}

static bool has_bound(const json_t *result) {
    return isfinite(results_number(result, "at_least")) ||
           isfinite(results_number(result, "at_most"));
}

static bool is_met(const json_t *result) {
    return json_is_true(json_object_get(result, "met"));
}

/* Controls are of no figure. */
static bool is_asked_for(const struct request *request, const json_t *result) {
    return fnmatch(request->words[2], results_text(result, "name"), 0) == 0 &&
           !json_is_true(json_object_get(result, "control"));
}

/* ---- figures ---- */

/* Where the unit begins. */
static size_t digits_of(const char *text) {
    return strspn(text, "0123456789.,-");
}

static bool write_range(const struct results_run *run, const struct request *request, FILE *page) {
    double least = HUGE_VAL, most = -HUGE_VAL;
    char low[40], high[40];
    const char *unit = NULL;
    size_t i;
    json_t *result;
    json_array_foreach(run->results, i, result) {
        if (!is_asked_for(request, result)) continue;
        least = fmin(least, results_number(result, "median"));
        most = fmax(most, results_number(result, "median"));
        unit = results_text(result, "unit");
    }
    if (unit == NULL) return complain(request, "no result is called", request->words[2]);
    results_value(least, unit, low);
    results_value(most, unit, high);
    if (strcmp(low + digits_of(low), high + digits_of(high)) == 0) low[digits_of(low)] = 0;
    if (least == most)
        fputs(high, page);
    else
        fprintf(page, "%s–%s", low, high);
    return true;
}

static bool write_met(const struct results_run *run, const struct request *request, FILE *page) {
    uint32_t met = 0, all = 0;
    size_t i;
    json_t *result;
    json_array_foreach(run->results, i, result) {
        if (!is_asked_for(request, result) || !has_bound(result)) continue;
        all++;
        met += is_met(result);
    }
    if (all == 0) return complain(request, "no result with a bound is called", request->words[2]);
    fprintf(page, "%u of %u", met, all);
    return true;
}

/* ---- tables ---- */

static void write_bound(const json_t *result, FILE *page) {
    const char *unit = results_text(result, "unit");
    double least = results_number(result, "at_least"), most = results_number(result, "at_most");
    char text[40];
    if (isfinite(least)) fprintf(page, " ≥ %s", results_value(least, unit, text));
    if (isfinite(least) && isfinite(most)) fputs(",", page);
    if (isfinite(most)) fprintf(page, " ≤ %s", results_value(most, unit, text));
    if (has_bound(result) && !is_met(result)) fputs(": **not met**", page);
}

static void write_row(const json_t *result, FILE *page) {
    const char *unit = results_text(result, "unit");
    const json_t *interval = json_object_get(result, "interval");
    double median = results_number(result, "median"), ideal = results_number(result, "ideal");
    bool higher = strcmp(results_text(result, "better"), "higher") == 0;
    char text[40];
    fprintf(page, "| `%s` | %s |", results_text(result, "name"), results_value(median, unit, text));
    if (json_array_size(json_object_get(result, "samples")) > 1) {
        const json_t *low = json_array_get(interval, 0), *high = json_array_get(interval, 1);
        fprintf(page, " %s to", results_value(json_number_value(low), unit, text));
        fprintf(page, " %s", results_value(json_number_value(high), unit, text));
    }
    fputs(" |", page);
    if (isfinite(ideal) && ideal > 0)
        fprintf(page, " %s (%.0f%%)", results_value(ideal, unit, text),
                (higher ? median / ideal : ideal / median) * 100);
    fputs(" |", page);
    write_bound(result, page);
    const char *note = results_text(result, "note");
    fprintf(page, " |%s%s |\n", note[0] != 0 ? " " : "", note);
}

static void write_table_head(FILE *page) {
    fputs("| result | median | 95% | ideal | bound | |\n|---|---|---|---|---|---|\n", page);
}

static bool write_table(const struct results_run *run, const struct request *request, FILE *page) {
    bool any = false;
    size_t i;
    json_t *result;
    json_array_foreach(run->results, i, result) {
        if (!is_asked_for(request, result)) continue;
        if (!any) write_table_head(page);
        write_row(result, page);
        any = true;
    }
    return any || complain(request, "no result is called", request->words[2]);
}

/* ---- runs ---- */

static const char *machine_of(const struct results_run *run) {
    const json_t *context = json_object_get(run->json, "context");
    const json_t *gpu = json_object_get(context, "gpu");
    return results_text(gpu != NULL ? gpu : json_object_get(context, "machine"),
                        gpu != NULL ? "name" : "model");
}

static void write_run(const struct results_run *run, FILE *page) {
    const json_t *context = json_object_get(run->json, "context");
    const json_t *versions = json_object_get(context, "versions");
    const char *level = results_text(versions, "level");
    uint32_t met = 0, all = 0;
    double noise = 0.0;
    size_t i;
    json_t *result;
    json_array_foreach(run->results, i, result) {
        all += has_bound(result);
        met += has_bound(result) && is_met(result);
        if (json_is_true(json_object_get(result, "control")))
            noise = fmax(noise, fabs(results_number(result, "median") - 1));
    }
    fprintf(page, "| [`%s`](results/%s.json) | %s%s%s | %.10s | `%.12s`%s | %zu | ", run->name,
            run->name, machine_of(run), level[0] != 0 ? ", " : "", level,
            results_text(context, "date"), results_text(context, "commit"),
            strstr(results_text(context, "commit"), "-dirty") != NULL ? " changed" : "",
            json_array_size(run->results));
    if (all > 0) fprintf(page, "%u of %u", met, all);
    fprintf(page, " | %.1f%% |\n", noise * 100);
}

static void write_runs(const struct results *results, FILE *page) {
    fputs("| run | machine, level | date | commit | results | within bounds | control off by |\n"
          "|---|---|---|---|---|---|---|\n",
          page);
    for (uint32_t i = 0; i < results->run_count; i++) write_run(&results->runs[i], page);
}

/* ---- what the notes do not tell ---- */

/* Of a long run only what is asked for or compares. */
static bool is_worth_a_row(const json_t *result, bool lengthy) {
    const char *name = results_text(result, "name"), *unit = results_text(result, "unit");
    if (json_is_true(json_object_get(result, "control"))) return false;
    if (!lengthy) return true;
    return (has_bound(result) && !is_met(result)) || strstr(name, "/against/") != NULL ||
           strstr(name, "/step/") != NULL || strcmp(unit, "rows/s") == 0;
}

static void write_absent(const struct results_run *run, FILE *page) {
    const json_t *absent = json_object_get(run->json, "absent");
    for (size_t i = 0; i < json_array_size(absent); i++)
        fprintf(page, "%sNot measured: %s.\n", i == 0 ? "\n" : "",
                json_string_value(json_array_get(absent, i)));
}

static void write_other(struct results *results, const struct results_run *run, FILE *page) {
    bool lengthy = json_array_size(run->results) > LONG_TABLE;
    size_t i;
    json_t *result;
    fprintf(page, "### `%s`\n\n", run->name);
    results_add_pictures(results, run, page);
    if (lengthy) fputs("Steps, comparisons, and what is beyond its bound:\n\n", page);
    write_table_head(page);
    json_array_foreach(run->results, i, result) {
        if (is_worth_a_row(result, lengthy)) write_row(result, page);
    }
    write_absent(run, page);
    fputs("\n", page);
}

static void write_others(struct results *results, FILE *page) {
    bool any = false;
    for (uint32_t i = 0; i < results->run_count; i++) any = any || !results->runs[i].told;
    if (any) fputs("## Measured since\n\nWhat the words above do not tell yet, by run.\n\n", page);
    for (uint32_t i = 0; i < results->run_count; i++)
        if (!results->runs[i].told) write_other(results, &results->runs[i], page);
}

/* ---- the notes ---- */

static bool answer_of_run(struct results *results, const struct request *request, FILE *page) {
    const char *verb = request->words[0];
    struct results_run *run = find_run(results, request->words[1]);
    if (run == NULL) return complain(request, "no run is called", request->words[1]);
    if (strcmp(verb, "value") == 0 || strcmp(verb, "range") == 0)
        return write_range(run, request, page);
    if (strcmp(verb, "met") == 0) return write_met(run, request, page);
    if (strcmp(verb, "table") == 0) return write_table(run, request, page);
    if (strcmp(verb, "pictures") != 0) return complain(request, "there is no", verb);
    results_add_pictures(results, run, page);
    return true;
}

static bool answer(struct results *results, const struct request *request, FILE *page) {
    if (strcmp(request->words[0], "runs") == 0)
        write_runs(results, page);
    else if (strcmp(request->words[0], "others") == 0)
        write_others(results, page);
    else
        return answer_of_run(results, request, page);
    return true;
}

/* From behind "{{"; returns where it goes on, behind "}}", or NULL where it does not end. */
static const char *read_request(const char *at, struct request *request) {
    const char *end = strstr(at, "}}");
    memset(request->words, 0, sizeof request->words);
    if (end == NULL) return NULL;
    for (int w = 0; w < WORDS_MOST && at < end; w++) {
        size_t length = strcspn(at, " }\n");
        snprintf(request->words[w], WORD_BYTES, "%.*s", (int)length, at);
        at += length + strspn(at + length, " ");
    }
    return end + 2;
}

/* Before anything is written: `others` are those that no line names, before or after it. */
static void mark_told(struct results *results, const char *notes) {
    struct request request = {.line = 0};
    for (const char *at = notes; (at = strstr(at, "{{")) != NULL;) {
        if ((at = read_request(at + 2, &request)) == NULL) return;
        struct results_run *run = find_run(results, request.words[1]);
        if (run != NULL) run->told = true;
    }
}

bool results_write_page(struct results *results, const char *notes, FILE *page) {
    struct request request = {.line = 1};
    bool right = true;
    fputs("<!-- Made by './zigw build results' of results/*.json and results/notes.md. -->\n",
          page);
    mark_told(results, notes);
    for (const char *at = notes; *at != 0;) {
        const char *next = strncmp(at, "{{", 2) == 0 ? read_request(at + 2, &request) : NULL;
        if (next == NULL) {
            request.line += *at == '\n';
            fputc(*at++, page);
            continue;
        }
        right = answer(results, &request, page) && right;
        at = next;
    }
    return right;
}

/* SPDX-License-Identifier: MIT */
/* A run's results for programs: `context` (machine, roofs, versions, commit, configuration),
 * `benchmarks`, `answers`, and what is `absent`. Times in seconds, sizes in bytes, fractions of 1.
 */
#include "gpu.h"
#include "harness.h"

#include "net/cpu/level.h"

#include <hwloc.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

const char *bench_level(void) {
    const struct weir__level *level;
    return weir__level_find(NULL, NULL, &level) == WEIR_OK ? level->name : "no level";
}

/* ---- the commit ---- */

extern const char weir_build_commit[]; /* written by build.zig: where there is no folder */

/* The file's first line without its end; false if there is none. */
static bool read_line(const char *path, char *line, int capacity) {
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    bool read = fgets(line, capacity, file) != NULL;
    fclose(file);
    if (read) line[strcspn(line, "\r\n")] = 0;
    return read;
}

/* Without git: HEAD, and the file of the branch that it names. */
static bool read_head(char text[64]) {
    char head[256], path[300];
    if (!read_line(".git/HEAD", head, sizeof head)) return false;
    bool branch = strncmp(head, "ref: ", 5) == 0;
    if (branch) {
        snprintf(path, sizeof path, ".git/%s", head + 5);
        if (!read_line(path, head, sizeof head)) return false;
    }
    snprintf(text, 64, "%.40s", head);
    return true;
}

const char *bench_commit(char text[64]) {
    FILE *git = popen("git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null", "r");
    text[0] = 0;
    if (git != NULL) {
        if (fgets(text, 64, git) == NULL) text[0] = 0;
        pclose(git);
        text[strcspn(text, "\r\n")] = 0;
    }
    if (text[0] == 0 && !read_head(text)) snprintf(text, 64, "%.63s", weir_build_commit);
    return text;
}

/* ---- values ---- */

static json_t *number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *checked(json_t *value) {
    if (value == NULL) bench_die("out of memory");
    return value;
}

/* Takes `value` over. */
static void put(json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, checked(value)) != 0) bench_die("out of memory");
}

static void append(json_t *array, json_t *value) {
    if (json_array_append_new(array, checked(value)) != 0) bench_die("out of memory");
}

/* ---- context ---- */

static json_t *machine_json(const struct bench *bench) {
    const struct weir__machine_facts *facts = &bench->facts;
    struct utsname system;
    double load[1] = {NAN};
    json_t *machine = checked(json_object());
    put(machine, "model", json_string(facts->model));
    put(machine, "cores", json_integer(facts->cores));
    put(machine, "usable_cores", json_integer(facts->usable_cores));
    put(machine, "processing_units", json_integer(facts->processing_units));
    put(machine, "numa_nodes", json_integer(facts->numa_nodes));
    put(machine, "l1d_bytes", json_integer((json_int_t)facts->l1d_bytes));
    put(machine, "l2_bytes", json_integer((json_int_t)facts->l2_bytes));
    put(machine, "l3_bytes", json_integer((json_int_t)facts->l3_bytes));
    put(machine, "memory_bytes", json_integer((json_int_t)facts->memory_bytes));
    if (uname(&system) == 0) put(machine, "kernel", json_string(system.release));
    if (getloadavg(load, 1) == 1) put(machine, "load", number(load[0]));
    return machine;
}

static json_t *roofs_json(const struct bench_roofs *roofs) {
    json_t *json = checked(json_object());
    put(json, "fma_flops_per_core", number(roofs->fma_flops));
    put(json, "fma_flops_all_cores", number(roofs->fma_flops_all));
    put(json, "copy_cache_bytes_per_second", number(roofs->copy_cache));
    put(json, "copy_memory_bytes_per_second", number(roofs->copy_memory));
    put(json, "handoff_line", number(roofs->handoff_line));
    put(json, "handoff_spin", number(roofs->handoff_spin));
    put(json, "handoff_park", number(roofs->handoff_park));
    put(json, "clock_read", number(roofs->clock_read));
    return json;
}

/* Null where NVML said nothing. */
static json_t *state_json(const struct gpu_state *state) {
    if (state->looks == 0) return json_null();
    json_t *json = checked(json_object()), *reasons = checked(json_array());
    const char *reason;
    put(json, "looks", json_integer(state->looks));
    put(json, "sm_hz_least", number(state->sm_mhz_least * 1e6));
    put(json, "sm_hz_most", number(state->sm_mhz_most * 1e6));
    put(json, "memory_hz_least", number(state->memory_mhz_least * 1e6));
    put(json, "power_watts_most", number(state->power_mw_most * 1e-3));
    put(json, "power_watts_limit", number(state->power_mw_limit * 1e-3));
    put(json, "celsius_most", json_integer(state->celsius_most));
    for (uint32_t i = 0; (reason = gpu_state_reason(state, i)) != NULL; i++)
        append(reasons, json_string(reason));
    put(json, "held_back_by", reasons);
    return json;
}

static json_t *gpu_json(const struct bench_gpu *gpu) {
    json_t *json = checked(json_object());
    put(json, "name", json_string(gpu->name));
    put(json, "fake", json_boolean(gpu->fake)); /* then no number means anything */
    put(json, "count", json_integer(gpu->count));
    put(json, "driver_cuda", json_integer(gpu->version));
    put(json, "capability", json_integer(10 * gpu->capability_major + gpu->capability_minor));
    put(json, "multiprocessors", json_integer(gpu->multiprocessors));
    put(json, "memory_bytes", json_integer((json_int_t)gpu->memory_bytes));
    put(json, "memory_bytes_per_second", number(gpu->memory_roof));
    put(json, "state", state_json(&gpu->state));
    return json;
}

static json_t *versions_json(void) {
    char hwloc[32];
    unsigned version = hwloc_get_api_version();
    snprintf(hwloc, sizeof hwloc, "%u.%u.%u", version >> 16, version >> 8 & 255, version & 255);
    json_t *json = checked(json_object());
    put(json, "weir", json_string(weir_version()));
    put(json, "level", json_string(bench_level()));
    put(json, "hwloc", json_string(hwloc));
    put(json, "compiler", json_string(__VERSION__));
    return json;
}

static json_t *configuration_json(const struct bench_options *options) {
    json_t *json = checked(json_object()), *topics = checked(json_array());
    for (uint32_t i = 0; i < options->topic_count; i++)
        append(topics, json_string(options->topics[i]));
    put(json, "topics", topics);
    put(json, "quick", json_boolean(options->quick));
    put(json, "seed", json_integer((json_int_t)options->seed));
    put(json, "repetitions", json_integer(options->repetitions));
    static const char *const variables[] = {"WEIR_BIND", "WEIR_LEVEL", "WEIR_WAIT",
                                            "HWLOC_SYNTHETIC"};
    for (size_t i = 0; i < WEIR__COUNT_OF(variables); i++)
        if (getenv(variables[i]) != NULL)
            put(json, variables[i], json_string(getenv(variables[i])));
    return json;
}

static json_t *context_json(const struct bench *bench) {
    char commit[64], date[32];
    time_t now = time(NULL);
    struct tm utc;
    json_t *context = checked(json_object());
    put(context, "machine", machine_json(bench));
    if (bench->gpu != NULL) put(context, "gpu", gpu_json(bench->gpu));
    put(context, "roofs", roofs_json(&bench->roofs));
    put(context, "versions", versions_json());
    put(context, "commit", json_string(bench_commit(commit)));
    put(context, "configuration", configuration_json(&bench->options));
    if (gmtime_r(&now, &utc) != NULL && strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc) > 0)
        put(context, "date", json_string(date));
    return context;
}

/* ---- results ---- */

static json_t *result_json(const struct bench_result *result) {
    json_t *json = checked(json_object()), *samples = checked(json_array());
    for (uint32_t i = 0; i < result->count; i++) append(samples, number(result->samples[i]));
    put(json, "name", json_string(result->name));
    put(json, "unit", json_string(result->unit));
    put(json, "median", number(result->median));
    put(json, "p10", number(bench_quantile(result->samples, result->count, 0.1)));
    put(json, "p90", number(bench_quantile(result->samples, result->count, 0.9)));
    put(json, "ideal", number(result->ideal));
    put(json, "better", json_string(result->higher_is_better ? "higher" : "lower"));
    put(json, "control", json_boolean(result->control));
    put(json, "at_least", number(result->at_least));
    put(json, "at_most", number(result->at_most));
    put(json, "met", json_boolean(bench_is_met(result)));
    json_t *interval = checked(json_array());
    append(interval, number(result->interval.low));
    append(interval, number(result->interval.high));
    put(json, "interval", interval);
    put(json, "outliers", json_integer(bench_outliers(result->samples, result->count)));
    put(json, "note", json_string(result->note));
    put(json, "samples", samples);
    return json;
}

static json_t *bench_json(const struct bench *bench) {
    json_t *root = checked(json_object());
    json_t *results = checked(json_array()), *answers = checked(json_array());
    json_t *absent = checked(json_array());
    for (uint32_t i = 0; i < bench->result_count; i++)
        append(results, result_json(&bench->results[i]));
    for (uint32_t i = 0; i < bench->answer_count; i++) {
        json_t *answer = checked(json_object());
        put(answer, "name", json_string(bench->answers[i].name));
        put(answer, "right", json_boolean(bench->answers[i].right));
        append(answers, answer);
    }
    put(root, "context", context_json(bench));
    put(root, "benchmarks", results);
    put(root, "answers", answers);
    for (uint32_t i = 0; i < bench->absence_count; i++)
        append(absent, json_string(bench->absences[i].text));
    put(root, "absent", absent);
    return root;
}

void bench_write_json(const struct bench *bench) {
    const char *path = bench->options.json;
    if (path == NULL) return;
    json_t *root = bench_json(bench);
    size_t flags = JSON_INDENT(1) | JSON_REAL_PRECISION(9);
    if (strcmp(path, "-") == 0) {
        if (json_dumpf(root, stdout, flags) != 0 || puts("") < 0 || fflush(stdout) != 0)
            bench_die("stdout: cannot be written");
    } else {
        char partial[4096];
        int length = snprintf(partial, sizeof partial, "%s.partial", path);
        if ((size_t)length >= sizeof partial) bench_die("--json: the path is too long");
        if (json_dump_file(root, partial, flags) != 0 || rename(partial, path) != 0) {
            unlink(partial);
            bench_die("--json %s: cannot be written", path);
        }
    }
    json_decref(root);
}

void bench_save(const struct bench *bench) {
    bool file = bench->options.json != NULL && strcmp(bench->options.json, "-") != 0;
    if (file) bench_write_json(bench);
}

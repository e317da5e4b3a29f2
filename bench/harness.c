/* SPDX-License-Identifier: MIT */
/* The run's state: memory, cases in random order, results, answers. */
#include "harness.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- when something goes wrong ---- */

void bench_die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

void bench_check(int status, const char *what) {
    if (status != WEIR_OK) bench_die("%s: %s", what, weir_status_text(status));
}

void bench_check_faults(int status, const char *what, struct weir_faults *faults) {
    for (uint32_t i = 0; i < faults->kept; i++) fprintf(stderr, "bench: %s\n", faults->lines[i]);
    if (status == WEIR_OK && faults->count > 0) status = WEIR_ERR_CONFIG;
    weir_faults_clean_up(faults);
    bench_check(status, what);
}

void *bench_take(struct bench *bench, size_t count, size_t bytes) {
    void *memory = weir__pool_take(&bench->pool, count, bytes);
    if (memory == NULL) bench_die("no memory for %zu times %zu bytes", count, bytes);
    return memory;
}

static void grow(struct bench *bench, void **array, uint32_t count, uint32_t *capacity,
                 size_t bytes) {
    if (!weir__pool_grow(&bench->pool, array, count, capacity, bytes)) bench_die("out of memory");
}

/* ---- cases ---- */

static void shuffle(uint32_t *order, uint32_t count, uint64_t *random) {
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = (uint32_t)(bench_random(random) % i), kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
}

void bench_interleave(struct bench *bench, struct bench_case *cases, uint32_t count) {
    uint32_t rounds = bench->options.repetitions;
    uint32_t *order = bench_take(bench, count, sizeof *order);
    double ignored;
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
        cases[i].samples = bench_take(bench, rounds, sizeof *cases[i].samples);
        cases[i].count = rounds;
        cases[i].sample(bench, cases[i].context, &ignored);
    }
    for (uint32_t round = 0; round < rounds; round++) {
        shuffle(order, count, &bench->random);
        for (uint32_t i = 0; i < count; i++) {
            struct bench_case *next = &cases[order[i]];
            next->sample(bench, next->context, &next->samples[round]);
            if (!isfinite(next->samples[round])) bench_die("%s: no number came out", next->label);
        }
    }
}

/* ---- results ---- */

static struct bench_result *add(struct bench *bench, const char *unit, const double *samples,
                                uint32_t count) {
    void *results = bench->results;
    grow(bench, &results, bench->result_count, &bench->result_capacity, sizeof *bench->results);
    bench->results = results;
    struct bench_result *result = &bench->results[bench->result_count++];
    *result = (struct bench_result){.unit = unit,
                                    .ideal = NAN,
                                    .at_least = NAN,
                                    .at_most = NAN,
                                    .median = bench_median(samples, count),
                                    .count = count,
                                    .samples = samples};
    return result;
}

struct bench_result *bench_add(struct bench *bench, const char *unit, const double *samples,
                               uint32_t count, const char *format, ...) {
    struct bench_result *result = add(bench, unit, samples, count);
    result->interval = bench_median_interval(samples, count, bench->options.seed);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(result->name, sizeof result->name, format, arguments);
    va_end(arguments);
    return result;
}

struct bench_result *bench_add_ratio(struct bench *bench, const struct bench_case *a,
                                     const struct bench_case *b, const char *format, ...) {
    assert(a->count == b->count);
    double *ratios = bench_take(bench, a->count, sizeof *ratios);
    for (uint32_t i = 0; i < a->count; i++) ratios[i] = a->samples[i] / b->samples[i];
    struct bench_result *result = add(bench, "ratio", ratios, a->count);
    result->median = bench_median(a->samples, a->count) / bench_median(b->samples, b->count);
    result->interval =
        bench_ratio_interval(a->samples, a->count, b->samples, b->count, true, bench->options.seed);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(result->name, sizeof result->name, format, arguments);
    va_end(arguments);
    return result;
}

bool bench_is_met(const struct bench_result *result) {
    return !(result->median < result->at_least) && !(result->median > result->at_most);
}

/* ---- answers ---- */

void bench_answer(struct bench *bench, bool right, const char *format, ...) {
    void *answers = bench->answers;
    grow(bench, &answers, bench->answer_count, &bench->answer_capacity, sizeof *bench->answers);
    bench->answers = answers;
    struct bench_answer *answer = &bench->answers[bench->answer_count++];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(answer->name, sizeof answer->name, format, arguments);
    va_end(arguments);
    answer->right = right;
    if (!right) fprintf(stderr, "bench: WRONG ANSWER: %s\n", answer->name);
}

bool bench_all_right(const struct bench *bench) {
    for (uint32_t i = 0; i < bench->answer_count; i++)
        if (!bench->answers[i].right) return false;
    return true;
}

/* ---- what is not there ---- */

void bench_absent(struct bench *bench, const char *format, ...) {
    void *absences = bench->absences;
    grow(bench, &absences, bench->absence_count, &bench->absence_capacity, sizeof *bench->absences);
    bench->absences = absences;
    struct bench_absence *absence = &bench->absences[bench->absence_count++];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(absence->text, sizeof absence->text, format, arguments);
    va_end(arguments);
    fprintf(bench->text, "not measured: %s\n", absence->text);
}

/* SPDX-License-Identifier: MIT */
/* Results for people. */
#include "harness.h"

#include <math.h>
#include <string.h>

/* A unit, and a larger or smaller one to print a value in. */
struct scale {
    const char *unit, *shown;
    double least; /* from here on */
    double factor;
};

/* Per unit from large to small; the last one of a unit takes the rest. */
static const struct scale scales[] = {{"s", "s", 1.0, 1.0},
                                      {"s", "ms", 1e-3, 1e3},
                                      {"s", "us", 1e-6, 1e6},
                                      {"s", "ns", 0.0, 1e9},
                                      {"B/s", "GB/s", 0.0, 1e-9},
                                      {"B", "GB", 1e9, 1e-9},
                                      {"B", "MB", 0.0, 1e-6},
                                      {"FLOP/s", "TFLOP/s", 1e12, 1e-12},
                                      {"FLOP/s", "GFLOP/s", 0.0, 1e-9},
                                      {"fraction", "%", 0.0, 1e2},
                                      {"ratio", "x", 0.0, 1.0}};

const char *bench_value_text(double value, const char *unit, char text[32]) {
    if (!isfinite(value)) {
        snprintf(text, 32, "-");
        return text;
    }
    for (size_t i = 0; i < WEIR__COUNT_OF(scales); i++) {
        const struct scale *scale = &scales[i];
        bool last = i + 1 == WEIR__COUNT_OF(scales) || strcmp(scales[i + 1].unit, unit) != 0;
        if (strcmp(scale->unit, unit) != 0 || (fabs(value) < scale->least && !last)) continue;
        double shown = value * scale->factor;
        int decimals = fabs(shown) >= 100.0 ? 1 : fabs(shown) >= 10.0 ? 2 : 3;
        snprintf(text, 32, "%.*f %s", decimals, shown, scale->shown);
        return text;
    }
    snprintf(text, 32, "%.4g %s", value, unit);
    return text;
}

bool bench_is_scaled(const char *unit) {
    for (size_t i = 0; i < WEIR__COUNT_OF(scales); i++)
        if (strcmp(scales[i].unit, unit) == 0) return true;
    return false;
}

/* ---- context ---- */

static void print_roof(const struct bench *bench, const char *what, double value,
                       const char *unit) {
    char text[32];
    fprintf(bench->text, "  %-44s %14s\n", what,
            value > 0.0 ? bench_value_text(value, unit, text) : "not measured");
}

void bench_print_context(const struct bench *bench) {
    const struct weir__machine_facts *facts = &bench->facts;
    const struct bench_roofs *roofs = &bench->roofs;
    char commit[64];
    fprintf(bench->text, "Weir %s, commit %.12s%s, %s, compiled by %s\n", weir_version(),
            bench_commit(commit), strstr(commit, "-dirty") != NULL ? " with changes" : "",
            bench_level(), __VERSION__);
    fprintf(bench->text, "%s, %u cores (%u usable), %u rounds, seed %llu%s\n", facts->model,
            facts->cores, facts->usable_cores, bench->options.repetitions,
            (unsigned long long)bench->options.seed,
            bench->options.quick ? ", QUICK: these numbers mean nothing" : "");
    fprintf(bench->text, "\nroofs\n");
    print_roof(bench, "fused multiply-add f32, one core", roofs->fma_flops, "FLOP/s");
    print_roof(bench, "the same on all usable cores", roofs->fma_flops_all, "FLOP/s");
    print_roof(bench, "copy within the second-level cache, one core", roofs->copy_cache, "B/s");
    print_roof(bench, "copy in memory, one core", roofs->copy_memory, "B/s");
    print_roof(bench, "a cache line from core to core", roofs->handoff_line, "s");
    print_roof(bench, "hand-off between two cores, spinning", roofs->handoff_spin, "s");
    print_roof(bench, "hand-off between two cores, parked", roofs->handoff_park, "s");
    print_roof(bench, "a look at the clock", roofs->clock_read, "s");
    fflush(bench->text);
}

/* ---- results ---- */

static const char *bound_text(const struct bench_result *result, char text[64]) {
    char value[32];
    bool least = isfinite(result->at_least), most = isfinite(result->at_most);
    const char *verdict = bench_is_met(result) ? "met" : "MISSED";
    text[0] = 0;
    if (least && most) {
        snprintf(text, 64, "%.3g to %.3g: %s", result->at_least, result->at_most, verdict);
    } else if (least) {
        snprintf(text, 64, ">= %s: %s", bench_value_text(result->at_least, result->unit, value),
                 verdict);
    } else if (most) {
        snprintf(text, 64, "<= %s: %s", bench_value_text(result->at_most, result->unit, value),
                 verdict);
    }
    return text;
}

/* How near the ideal is: 100% is there. */
static const char *ideal_text(const struct bench_result *result, char text[64]) {
    char value[32];
    if (!isfinite(result->ideal)) return "-";
    double part =
        result->higher_is_better ? result->median / result->ideal : result->ideal / result->median;
    snprintf(text, 64, "%s (%.0f%%)", bench_value_text(result->ideal, result->unit, value),
             part * 100.0);
    return text;
}

static void print_result(const struct bench *bench, const struct bench_result *result) {
    char median[32], p10[32], p90[32], low[32], high[32], ideal[64], bound[64];
    uint32_t outliers = bench_outliers(result->samples, result->count);
    fprintf(
        bench->text, "%-44s %12s %12s %12s %18s  %s\n", result->name,
        bench_value_text(result->median, result->unit, median),
        bench_value_text(bench_quantile(result->samples, result->count, 0.1), result->unit, p10),
        bench_value_text(bench_quantile(result->samples, result->count, 0.9), result->unit, p90),
        ideal_text(result, ideal), bound_text(result, bound));
    if (result->count > 1)
        fprintf(bench->text, "    95%%: %s to %s; %u samples, %u outliers%s",
                bench_value_text(result->interval.low, result->unit, low),
                bench_value_text(result->interval.high, result->unit, high), result->count,
                outliers, result->note[0] != 0 ? "; " : "\n");
    if (result->note[0] != 0)
        fprintf(bench->text, "%s%s\n", result->count > 1 ? "" : "    ", result->note);
    bool apart = result->interval.low > 1.0 || result->interval.high < 1.0;
    if (result->control && apart)
        fprintf(bench->text, "    the same against itself differs: this machine is not quiet\n");
}

void bench_print_results(const struct bench *bench, uint32_t first) {
    if (first == bench->result_count) return;
    fprintf(bench->text, "\n%-44s %12s %12s %12s %18s  %s\n", "", "median", "p10", "p90", "ideal",
            "bound");
    for (uint32_t i = first; i < bench->result_count; i++)
        if (!bench->results[i].tabled) print_result(bench, &bench->results[i]);
    fflush(bench->text);
}

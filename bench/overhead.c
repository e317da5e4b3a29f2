/* SPDX-License-Identifier: MIT */
/* The fit that overhead is: steps of 8 to 512 micro-batches, the median time of each count, a line
 * through the medians. */
#include "overhead.h"

#include <math.h>

enum { STEPS_LEAST = 5, STEPS_MOST = 4096, WARM_UP = 3 };
#define SAMPLE_NS UINT64_C(210000000)
#define SAMPLE_QUICK_NS UINT64_C(7000000)

static uint32_t count_of(uint32_t point) {
    return (uint32_t)OVERHEAD_LEAST << point;
}

void overhead_case_init(struct bench *bench, struct overhead_case *one,
                        uint64_t (*step)(void *, uint32_t), void *context) {
    *one = (struct overhead_case){.step = step, .context = context};
    one->medians = bench_take(bench, bench->options.repetitions + 1, sizeof *one->medians);
}

/* The median of the steps that fit into the time. */
static double time_steps(const struct overhead_case *one, uint32_t micro_batches, uint64_t ns) {
    double samples[STEPS_MOST];
    uint32_t count = 0;
    uint64_t end = weir__now_ns() + ns;
    for (int i = 0; i < WARM_UP; i++) one->step(one->context, micro_batches);
    while (count < STEPS_MOST && (count < STEPS_LEAST || weir__now_ns() < end))
        samples[count++] = (double)one->step(one->context, micro_batches) * 1e-9;
    return bench_median(samples, count);
}

static struct bench_line fit(const double *medians) {
    double counts[OVERHEAD_POINTS];
    for (uint32_t p = 0; p < OVERHEAD_POINTS; p++) counts[p] = count_of(p);
    return bench_fit(counts, medians, OVERHEAD_POINTS);
}

void overhead_sample(struct bench *bench, void *context, double *value) {
    struct overhead_case *one = context;
    uint64_t ns = bench->options.quick ? SAMPLE_QUICK_NS : SAMPLE_NS;
    assert(one->rounds <= bench->options.repetitions);
    double *medians = one->medians[one->rounds++];
    for (uint32_t p = 0; p < OVERHEAD_POINTS; p++)
        medians[p] = time_steps(one, count_of(p), ns / OVERHEAD_POINTS);
    *value = fit(medians).slope / OVERHEAD_STAGES;
}

struct bench_result *overhead_report(struct bench *bench, const struct bench_case *sampled,
                                     double ideal, double at_most) {
    const struct overhead_case *one = sampled->context;
    double pooled[OVERHEAD_POINTS], column[BENCH_ROUNDS_MOST];
    char slope[32], once[32];
    for (uint32_t p = 0; p < OVERHEAD_POINTS; p++) { /* round 0 warmed up */
        for (uint32_t r = 1; r < one->rounds; r++) column[r - 1] = one->medians[r][p];
        pooled[p] = bench_median(column, one->rounds - 1);
    }
    struct bench_line line = fit(pooled);
    struct bench_result *result =
        bench_add(bench, "s", sampled->samples, sampled->count, "overhead/%s", sampled->label);
    result->ideal = ideal;
    result->at_most = at_most;
    snprintf(result->note, sizeof result->note, "all rounds in one fit: %s, and %s once per step",
             bench_value_text(line.slope / OVERHEAD_STAGES, "s", slope),
             bench_value_text(line.intercept, "s", once));
    return result;
}

/* SPDX-License-Identifier: MIT */
/* The fit that overhead is: steps of 8 to 512 micro-batches, the median time of each count, a line
 * through the medians. */
#include "overhead.h"

#include "weir_predict.h"

#include <math.h>
#include <string.h>

enum { STEPS_LEAST = 5, STEPS_MOST = 4096, WARM_UP = 3 };
#define SAMPLE_NS UINT64_C(210000000)
#define SAMPLE_QUICK_NS UINT64_C(7000000)

static uint32_t count_of(uint32_t point) {
    return (uint32_t)OVERHEAD_LEAST << point;
}

/* ---- the schedules ---- */

static struct weir_table *table_of(const struct overhead_schedule *schedule,
                                   uint32_t micro_batches) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table = NULL;
    options.schedule = schedule->name;
    options.stages = schedule->stages;
    options.workers = OVERHEAD_WORKERS;
    options.micro_batches = micro_batches;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    return weir_table_new(&options, NULL, &table) == WEIR_OK ? table : NULL;
}

/* The table's step where an action costs two looks at the clock, a crossing a hand-off, and nothing
 * else anything. */
static double ideal_step(const struct bench *bench, const struct overhead_schedule *schedule,
                         uint32_t micro_batches) {
    struct weir_simulate_options options = WEIR_SIMULATE_OPTIONS_INIT;
    struct weir_table *table = table_of(schedule, micro_batches);
    struct weir_simulator *simulator;
    struct weir_prediction prediction;
    options.table = table;
    options.link.latency = fmin(bench->roofs.handoff_line, bench->roofs.handoff_spin);
    options.no_causes = true;
    for (int k = 0; k < WEIR_KIND_COUNT; k++)
        options.kind_seconds[k] = 2.0 * bench->roofs.clock_read;
    bench_check(weir_simulator_new(NULL, &simulator), "overhead: the ideal");
    bench_check(weir_simulate(simulator, &options, NULL, &prediction), "overhead: the ideal");
    weir_simulator_destroy(simulator);
    weir_table_destroy(table);
    return prediction.step;
}

static void add_schedule(struct bench *bench, const char *name, struct overhead_schedule *list,
                         uint32_t *count) {
    struct overhead_schedule schedule = {
        .name = name, .stages = OVERHEAD_WORKERS * weir_schedule_virtual_stages(name)};
    struct weir_table *table = table_of(&schedule, OVERHEAD_MOST);
    weir_table_destroy(table);
    if (table == NULL || schedule.stages > OVERHEAD_STAGES_MOST) return;
    if (*count == OVERHEAD_SCHEDULES_MOST) bench_die("overhead: too many schedules");
    double more = ideal_step(bench, &schedule, OVERHEAD_MOST) -
                  ideal_step(bench, &schedule, OVERHEAD_MOST / 2);
    schedule.ideal = more / (OVERHEAD_MOST / 2.0) / schedule.stages;
    list[(*count)++] = schedule;
}

uint32_t overhead_schedules(struct bench *bench,
                            struct overhead_schedule list[OVERHEAD_SCHEDULES_MOST]) {
    static const char first[] = "1f1b";
    uint32_t count = 0;
    const char *name;
    add_schedule(bench, first, list, &count);
    for (uint32_t i = 0; (name = weir_schedule_name(i)) != NULL; i++)
        if (strcmp(name, first) != 0) add_schedule(bench, name, list, &count);
    return count;
}

/* ---- samples ---- */

void overhead_case_init(struct bench *bench, struct overhead_case *one, uint32_t stages,
                        uint64_t (*step)(void *, uint32_t), void *context) {
    *one = (struct overhead_case){.stages = stages, .step = step, .context = context};
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
    *value = fit(medians).slope / one->stages;
}

struct bench_result *overhead_report(struct bench *bench, const struct bench_case *sampled,
                                     const char *stages, double ideal, double at_most) {
    const struct overhead_case *one = sampled->context;
    double pooled[OVERHEAD_POINTS], column[BENCH_ROUNDS_MOST];
    char slope[32], once[32];
    for (uint32_t p = 0; p < OVERHEAD_POINTS; p++) { /* round 0 warmed up */
        for (uint32_t r = 1; r < one->rounds; r++) column[r - 1] = one->medians[r][p];
        pooled[p] = bench_median(column, one->rounds - 1);
    }
    struct bench_line line = fit(pooled);
    struct bench_result *result = bench_add(bench, "s", sampled->samples, sampled->count,
                                            "overhead/%s/%s", sampled->label, stages);
    result->ideal = ideal;
    result->at_most = at_most;
    snprintf(result->note, sizeof result->note, "all rounds in one fit: %s, and %s once per step",
             bench_value_text(line.slope / one->stages, "s", slope),
             bench_value_text(line.intercept, "s", once));
    return result;
}

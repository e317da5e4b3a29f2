/* SPDX-License-Identifier: MIT */
/*
 * Does the simulator say what a step takes, and how fast does it say it? Every schedule, two
 * workers, two and four stages, three models, without checkpoint and with; and a table of 67
 * million actions.
 *
 * Napkin. A step is the table with the tasks' own times, plus the engine: 1 us per task where a
 * task takes 0.2 to 1 ms, 0.1 to 0.5%, and what sharing memory adds to waiting. So the ratio of
 * predicted to measured should be within 3% below 1, unless tasks take another time beside each
 * other than one step's medians say; the medians are of other steps. The simulation itself reads 8
 * bytes of table and 16 to 48 of cells per action, mostly from cache: 20 to 50 ns, so 67 million
 * take 1.5 to 3 s, and the table as long again.
 */
#include "subject.h"

#include <math.h>
#include <string.h>

static const double RATIO_OFF_AT_MOST = 0.03;
enum { CASES_MOST = 64, MICRO_BATCHES = 8 };
enum { LARGE_STAGES = 4096, LARGE_CHUNKS = 8192, QUICK_STAGES = 256, QUICK_CHUNKS = 512 };
static const double LARGE_SECONDS_AT_MOST = 60.0, ACTIONS_PER_SECOND = 5e6;

/* ---- measured against predicted ---- */

struct group {
    const struct subject *subject;
    void *context;
    uint32_t count;
    struct subject_run runs[CASES_MOST];
    struct bench_case cases[CASES_MOST];
};

static void add_run(struct bench *bench, struct group *group, const char *schedule, uint32_t stages,
                    enum weir_checkpoint checkpoint) {
    struct weir_pipe_options how = WEIR_PIPE_OPTIONS_INIT;
    struct subject_run *run = &group->runs[group->count];
    if (group->count == CASES_MOST) bench_die("simulate: more than %d cases", CASES_MOST);
    how.schedule = schedule;
    how.workers = SUBJECT_WORKERS;
    how.rows = group->subject->rows;
    how.chunks = MICRO_BATCHES;
    how.checkpoint = checkpoint;
    how.threads_per_worker = 1;
    run->subject = group->subject;
    run->trial = group->subject->open(bench, group->context, &how, stages, NULL);
    snprintf(run->name, sizeof run->name, "%s/%s/%u-stages/%s", group->subject->name, schedule,
             stages, weir_checkpoint_name(checkpoint));
    group->cases[group->count++] =
        (struct bench_case){.label = run->name, .sample = subject_sample, .context = run};
}

static void open_runs(struct bench *bench, struct group *group) {
    for (uint32_t i = 0; weir_schedule_name(i) != NULL; i++) {
        for (uint32_t stages = 2; stages <= SUBJECT_STAGES_MOST; stages += 2) {
            if (!subject_fits(weir_schedule_name(i), stages, MICRO_BATCHES)) continue;
            add_run(bench, group, weir_schedule_name(i), stages, WEIR_CHECKPOINT_NEVER);
            add_run(bench, group, weir_schedule_name(i), stages, WEIR_CHECKPOINT_ALWAYS);
        }
    }
}

static void report_run(struct bench *bench, struct subject_run *run, struct bench_case *one) {
    double *ratios = bench_take(bench, one->count, sizeof *ratios), predicted[2];
    char measured_text[32], predicted_text[32];
    for (uint32_t parity = 0; parity < 2; parity++)
        predicted[parity] = steps_predicted(bench, &run->steps, parity);
    for (uint32_t i = 0; i < one->count; i++) ratios[i] = predicted[i % 2] / one->samples[i];
    struct bench_result *result =
        bench_add(bench, "s", one->samples, one->count, "simulate/%s/step", run->name);
    result->ideal = (predicted[0] + predicted[1]) / 2.0;
    result->tabled = true;
    bench_value_text(result->median, "s", measured_text);
    bench_value_text(result->ideal, "s", predicted_text);
    result = bench_add(bench, "ratio", ratios, one->count, "simulate/%s/predicted-to-measured",
                       run->name);
    result->ideal = 1.0;
    result->at_least = 1.0 - RATIO_OFF_AT_MOST;
    result->at_most = 1.0 + RATIO_OFF_AT_MOST;
    result->tabled = true;
    fprintf(bench->text, "%-40s %10s %10s %8.4f  %.4f to %.4f%s\n", run->name, measured_text,
            predicted_text, result->median, result->interval.low, result->interval.high,
            bench_is_met(result) ? "" : "  beyond 3%");
}

static void measure_subject(struct bench *bench, const struct subject *subject) {
    struct group *group = bench_take(bench, 1, sizeof *group);
    group->subject = subject;
    group->context = subject->new_context(bench);
    open_runs(bench, group);
    bench_interleave(bench, group->cases, group->count);
    fprintf(bench->text, "\n%-40s %10s %10s %8s\n", subject->name, "measured", "predicted",
            "ratio");
    for (uint32_t i = 0; i < group->count; i++) {
        struct subject_run *run = &group->runs[i];
        report_run(bench, run, &group->cases[i]);
        bench_answer(bench, subject_same_again(run),
                     "simulate/%s: the same loss and gradients as at first", run->name);
        subject->close(run->trial);
    }
    subject->destroy_context(group->context);
}

/* ---- scale ---- */

struct scale {
    uint32_t stages, chunks, actions;
    double *whole;      /* per sample: table and simulation, s */
    double *per_second; /* actions simulated */
    uint32_t count;
};

static struct weir_table *large_table(const struct scale *scale) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table = NULL;
    options.stages = scale->stages;
    options.micro_batches = scale->chunks;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    bench_check(weir_table_new(&options, NULL, &table), "simulate: a large table");
    return table;
}

static void sample_scale(struct bench *bench, struct scale *scale) {
    struct weir_simulate_options options = WEIR_SIMULATE_OPTIONS_INIT;
    struct weir_simulator *simulator;
    struct weir_prediction prediction;
    uint64_t start = weir__now_ns();
    struct weir_table *table = large_table(scale);
    uint64_t made = weir__now_ns();
    options.table = table;
    options.kind_seconds[WEIR_KIND_F] = 1.0;
    options.kind_seconds[WEIR_KIND_B] = 2.0;
    bench_check(weir_simulator_new(NULL, &simulator), "simulate: a large table");
    bench_check(weir_simulate(simulator, &options, NULL, &prediction), "simulate: a large table");
    uint64_t end = weir__now_ns();
    scale->actions = table->action_count;
    scale->whole[scale->count] = (double)(end - start) * 1e-9;
    scale->per_second[scale->count++] = table->action_count / ((double)(end - made) * 1e-9);
    bench_answer(bench, prediction.step == 3.0 * (scale->chunks + scale->stages - 1.0),
                 "simulate/scale: the step of the formula");
    weir_simulator_destroy(simulator);
    weir_table_destroy(table);
}

static void measure_scale(struct bench *bench) {
    bool quick = bench->options.quick;
    uint32_t rounds = bench->options.repetitions < 5 ? bench->options.repetitions : 5;
    struct scale scale = {.stages = quick ? QUICK_STAGES : LARGE_STAGES,
                          .chunks = quick ? QUICK_CHUNKS : LARGE_CHUNKS,
                          .whole = bench_take(bench, rounds, sizeof(double)),
                          .per_second = bench_take(bench, rounds, sizeof(double))};
    for (uint32_t i = 0; i < rounds; i++) sample_scale(bench, &scale);
    struct bench_result *result = bench_add(
        bench, "s", scale.whole, rounds, "simulate/scale/table-and-step/1f1b-%u-stages-%u-chunks",
        scale.stages, scale.chunks);
    result->at_most = LARGE_SECONDS_AT_MOST;
    snprintf(result->note, sizeof result->note, "%u actions", scale.actions);
    result = bench_add(bench, "1/s", scale.per_second, rounds, "simulate/scale/actions/1f1b");
    result->higher_is_better = true;
    result->at_least = ACTIONS_PER_SECOND;
}

void bench_simulate(struct bench *bench) {
    measure_scale(bench);
    if (bench->facts.usable_cores < SUBJECT_WORKERS) {
        fprintf(bench->text, "fewer than two usable cores: no step to predict here\n");
        return;
    }
    measure_subject(bench, &subject_busy);
    measure_subject(bench, &subject_gpt);
    measure_subject(bench, &subject_unet);
}

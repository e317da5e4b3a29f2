/* SPDX-License-Identifier: MIT */
/*
 * Does a better schedule gain what its table says? Every schedule on two workers, the same model
 * cut into two stages, or into four where the schedule is made of two per worker, equal by measured
 * layers; with four and with eight micro-batches, without checkpoint and with.
 *
 * Napkin. In units of a whole stage's F = I = W = 1 (B = 2, R = 1), four micro-batches: 1F1B takes
 * 3 (m + 1) = 15, ZB-V 3 m + 0.5 = 12.5, a sixth less: what W fill at the end and V order at the
 * beginning. Both keep 2 stages' activations, ZB-V as four halves; what waits for W comes on top.
 * The half-stages' kernels work on the same tensors, so only the number of tasks doubles: 2 us a
 * micro-batch. With checkpoint `always` an R is added to three units of F, I and W: 4/3, less what
 * hides in ZB's bubble; interleaved has B = 2 and a bubble of 0.5 (1 + 1 + 2): never better.
 */
#include "subject.h"

#include "weir_planner.h"
#include "weir_report.h"

#include <math.h>
#include <string.h>

enum { CASES_MOST = 64, COUNTS = 2, PROFILE_SAMPLES = 5 };
static const uint32_t counts[COUNTS] = {4, 8};
static const uint32_t gain_count = 4; /* micro-batches at which the gain has a bound */

static const double RATIO_OFF_AT_MOST = 0.03, GAIN_AT_LEAST = 0.8, ALWAYS_AT_MOST = 1.35;
static const double SLOWER_AT_MOST = 1.0;

struct run {
    struct subject_run sampled; /* first: what the case's context points to */
    const char *schedule;
    enum weir_checkpoint checkpoint;
    bool again;                  /* the control */
    double predicted[2];         /* by parity of the sample */
    uint64_t activations, total; /* planned for the fullest worker */
    char cut[48];
};

/* One model and one number of micro-batches. */
struct group {
    const struct subject *subject;
    void *context;
    const double *weights; /* of layers, s; NULL: nothing to balance */
    uint32_t micro_batches, count;
    struct run runs[CASES_MOST];
    struct bench_case cases[CASES_MOST];
};

/* ---- where to cut ---- */

static struct weir_pipe_options options_of(const struct subject *subject, const char *schedule,
                                           uint32_t workers, uint32_t micro_batches,
                                           enum weir_checkpoint checkpoint) {
    struct weir_pipe_options how = WEIR_PIPE_OPTIONS_INIT;
    how.schedule = schedule;
    how.workers = workers;
    how.rows = subject->rows;
    how.chunks = micro_batches;
    how.checkpoint = checkpoint;
    how.threads_per_worker = 1;
    return how;
}

/* F and B of each layer as a stage of its own, on one worker; NULL where cuts do not matter. */
static double *weigh_layers(struct bench *bench, const struct subject *subject, void *context) {
    if (subject->layers == NULL) return NULL;
    uint32_t layers = subject->layers(context);
    struct weir_pipe_options how =
        options_of(subject, "gpipe", 1, counts[0], WEIR_CHECKPOINT_NEVER);
    void *trial = subject->open(bench, context, &how, layers, NULL);
    double *weights = bench_take(bench, layers, sizeof *weights);
    struct weir_step_result result;
    struct steps steps;
    subject->step(trial, &result);
    steps_init(bench, &steps, subject->pipe(trial), PROFILE_SAMPLES);
    for (int i = 0; i < PROFILE_SAMPLES; i++) {
        subject->step(trial, &result);
        steps_take(&steps, subject->pipe(trial));
    }
    for (uint32_t l = 0; l < layers; l++)
        weights[l] =
            steps_stage_least(&steps, l, WEIR_KIND_F) + steps_stage_least(&steps, l, WEIR_KIND_B);
    subject->close(trial);
    return weights;
}

/* Every stage alike: balanced wherever a schedule places them. */
static const uint32_t *balance_of(const struct group *group, uint32_t stages,
                                  uint32_t sizes[SUBJECT_STAGES_MOST]) {
    struct weir_partition_options options = WEIR_PARTITION_OPTIONS_INIT;
    if (group->weights == NULL) return NULL;
    options.weights = group->weights;
    options.count = group->subject->layers(group->context);
    options.parts = stages;
    bench_check(weir_partition(&options, sizes, NULL), "schedules: where to cut");
    return sizes;
}

/* ---- the runs ---- */

static void add_run(struct bench *bench, struct group *group, const char *schedule,
                    enum weir_checkpoint checkpoint, bool again) {
    uint32_t stages = SUBJECT_WORKERS * weir_schedule_virtual_stages(schedule);
    uint32_t sizes[SUBJECT_STAGES_MOST];
    struct run *run = &group->runs[group->count];
    if (group->count == CASES_MOST) bench_die("schedules: more than %d cases", CASES_MOST);
    struct weir_pipe_options how =
        options_of(group->subject, schedule, SUBJECT_WORKERS, group->micro_batches, checkpoint);
    const uint32_t *balance = balance_of(group, stages, sizes);
    struct subject_run *sampled = &run->sampled;
    *run = (struct run){.schedule = schedule, .checkpoint = checkpoint, .again = again};
    sampled->subject = group->subject;
    sampled->trial = group->subject->open(bench, group->context, &how, stages, balance);
    snprintf(sampled->name, sizeof sampled->name, "%s/%s/%u-chunks/%s%s", group->subject->name,
             schedule, group->micro_batches, weir_checkpoint_name(checkpoint),
             again ? "/again" : "");
    group->cases[group->count++] =
        (struct bench_case){.label = sampled->name, .sample = subject_sample, .context = sampled};
    for (uint32_t s = 0; balance != NULL && s < stages; s++) {
        size_t used = strlen(run->cut);
        snprintf(run->cut + used, sizeof run->cut - used, "%s%u", s > 0 ? " + " : "", sizes[s]);
    }
    const struct weir_plan *plan = weir_pipe_plan(group->subject->pipe(sampled->trial));
    for (uint32_t d = 0; d < plan->device_count; d++) {
        if (plan->devices[d].activations > run->activations)
            run->activations = plan->devices[d].activations;
        if (plan->devices[d].total > run->total) run->total = plan->devices[d].total;
    }
}

static void open_runs(struct bench *bench, struct group *group) {
    const char *name;
    for (uint32_t i = 0; (name = weir_schedule_name(i)) != NULL; i++) {
        uint32_t stages = SUBJECT_WORKERS * weir_schedule_virtual_stages(name);
        if (stages > SUBJECT_STAGES_MOST || !subject_fits(name, stages, group->micro_batches))
            continue;
        add_run(bench, group, name, WEIR_CHECKPOINT_NEVER, false);
        add_run(bench, group, name, WEIR_CHECKPOINT_ALWAYS, false);
    }
    add_run(bench, group, "1f1b", WEIR_CHECKPOINT_NEVER, true);
}

/* NULL if the schedule does not fit here. */
static const struct run *find_run(const struct group *group, const char *schedule,
                                  enum weir_checkpoint checkpoint, bool again) {
    for (uint32_t i = 0; i < group->count; i++) {
        const struct run *run = &group->runs[i];
        if (strcmp(run->schedule, schedule) == 0 && run->checkpoint == checkpoint &&
            run->again == again)
            return run;
    }
    return NULL;
}

static const struct bench_case *case_of(const struct group *group, const struct run *run) {
    return &group->cases[run - group->runs];
}

/* ---- each by itself ---- */

/* What a typical step had in use at most, as part of the plan; the largest of the workers. */
static double used_part(const struct subject_run *run) {
    struct weir_snapshot *snapshot;
    double most = 0.0;
    bench_check(weir_snapshot_new(run->subject->pipe(run->trial), 0, NULL, &snapshot), run->name);
    for (uint32_t w = 0; w < snapshot->worker_count; w++)
        most =
            fmax(most, (double)snapshot->workers[w].peak / (double)snapshot->workers[w].plan.total);
    weir_snapshot_destroy(snapshot);
    return most;
}

static struct bench_result *add_ratio_to_predicted(struct bench *bench, struct run *run,
                                                   const struct bench_case *one) {
    double *ratios = bench_take(bench, one->count, sizeof *ratios);
    for (uint32_t i = 0; i < one->count; i++) ratios[i] = run->predicted[i % 2] / one->samples[i];
    struct bench_result *result =
        bench_add(bench, "ratio", ratios, one->count, "schedules/%s/predicted-to-measured",
                  run->sampled.name);
    result->ideal = 1.0;
    result->at_least = 1.0 - RATIO_OFF_AT_MOST;
    result->at_most = 1.0 + RATIO_OFF_AT_MOST;
    result->tabled = true;
    return result;
}

static void report_run(struct bench *bench, struct run *run, const struct bench_case *one) {
    char measured_text[32], predicted_text[32], activations_text[32], total_text[32];
    struct subject_run *sampled = &run->sampled;
    double *part = bench_take(bench, 1, sizeof *part);
    for (uint32_t parity = 0; parity < 2; parity++)
        run->predicted[parity] = steps_predicted(bench, &sampled->steps, parity);
    struct bench_result *result =
        bench_add(bench, "s", one->samples, one->count, "schedules/%s/step", sampled->name);
    result->ideal = (run->predicted[0] + run->predicted[1]) / 2.0;
    result->tabled = true;
    if (run->cut[0] != 0)
        snprintf(result->note, sizeof result->note, "stages of %s layers", run->cut);
    bench_value_text(result->median, "s", measured_text);
    bench_value_text(result->ideal, "s", predicted_text);
    result = bench_add(bench, "fraction", sampled->bubbles, one->count, "schedules/%s/bubble",
                       sampled->name);
    result->tabled = true;
    double bubble = result->median;
    *part = used_part(sampled);
    result = bench_add(bench, "ratio", part, 1, "schedules/%s/peak-to-plan", sampled->name);
    result->at_most = 1.0;
    result->tabled = true;
    result = add_ratio_to_predicted(bench, run, one);
    snprintf(activations_text, sizeof activations_text, "%.2f MB", (double)run->activations * 1e-6);
    snprintf(total_text, sizeof total_text, "%.2f MB", (double)run->total * 1e-6);
    fprintf(bench->text, "%-34s %10s %10s %7.4f %7.1f%% %11s %11s %6.1f%%  %s%s\n", sampled->name,
            measured_text, predicted_text, result->median, bubble * 100.0, activations_text,
            total_text, *part * 100.0, run->cut, bench_is_met(result) ? "" : "  beyond 3%");
}

static void report_runs(struct bench *bench, struct group *group) {
    fprintf(bench->text, "\n%-34s %10s %10s %7s %8s %11s %11s %7s  layers\n", "", "measured",
            "predicted", "ratio", "bubble", "activations", "plan", "used");
    for (uint32_t i = 0; i < group->count; i++)
        report_run(bench, &group->runs[i], &group->cases[i]);
}

/* Whether every stage adds up its gradients from the first micro-batch to the last. */
static bool adds_in_order(const struct run *run) {
    const struct weir_table *table = run->sampled.steps.table;
    uint32_t next[SUBJECT_STAGES_MOST] = {0};
    bool in_order = true;
    for (uint32_t a = 0; a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        if (action->kind == WEIR_KIND_B || action->kind == WEIR_KIND_W)
            in_order &= action->micro_batch == next[action->stage]++;
    }
    return in_order;
}

/* The same chunks: the loss is the same bits under every schedule; and the same order of
 * accumulation: so are the gradients. */
static void check_answers(struct bench *bench, struct group *group) {
    const struct run *first = find_run(group, "1f1b", WEIR_CHECKPOINT_NEVER, false);
    for (uint32_t i = 0; i < group->count; i++) {
        struct run *run = &group->runs[i];
        bool gradients = adds_in_order(run) == adds_in_order(first);
        bool same = run->sampled.loss == first->sampled.loss &&
                    (!gradients || run->sampled.hash == first->sampled.hash);
        bench_answer(bench, same && subject_same_again(&run->sampled),
                     "schedules/%s: %s the bits of 1f1b", run->sampled.name,
                     gradients ? "loss and gradients have" : "the loss has");
    }
}

/* ---- one against another ---- */

static double median_of(const struct group *group, const struct run *run) {
    const struct bench_case *one = case_of(group, run);
    return bench_median(one->samples, one->count);
}

static double predicted_of(const struct run *run) {
    return (run->predicted[0] + run->predicted[1]) / 2.0;
}

/* The time that `run` saves of `base`, as part of what the simulator says that it saves. */
static void add_gain(struct bench *bench, const struct group *group, const struct run *base,
                     const struct run *run) {
    const struct bench_case *a = case_of(group, run), *b = case_of(group, base);
    double *parts = bench_take(bench, a->count, sizeof *parts);
    double predicted = 1.0 - predicted_of(run) / predicted_of(base);
    for (uint32_t i = 0; i < a->count; i++)
        parts[i] = (1.0 - a->samples[i] / b->samples[i]) / predicted;
    struct bench_interval ratio =
        bench_ratio_interval(a->samples, a->count, b->samples, b->count, true, bench->options.seed);
    struct bench_result *result =
        bench_add(bench, "fraction", parts, a->count, "schedules/%s/%u-chunks/gain-of-predicted/%s",
                  group->subject->name, group->micro_batches, run->schedule);
    double measured = 1.0 - median_of(group, run) / median_of(group, base);
    result->median = measured / predicted;
    result->interval =
        (struct bench_interval){(1.0 - ratio.high) / predicted, (1.0 - ratio.low) / predicted};
    result->ideal = 1.0;
    result->higher_is_better = true;
    if (group->micro_batches == gain_count) result->at_least = GAIN_AT_LEAST;
    snprintf(result->note, sizeof result->note, "saves %.1f%% of 1f1b's step, predicted %.1f%%",
             measured * 100.0, predicted * 100.0);
}

static void add_memory(struct bench *bench, const struct group *group, const struct run *base,
                       const struct run *run) {
    double *ratio = bench_take(bench, 1, sizeof *ratio);
    *ratio = (double)run->activations / (double)base->activations;
    struct bench_result *result =
        bench_add(bench, "ratio", ratio, 1, "schedules/%s/%u-chunks/activations/%s-to-1f1b",
                  group->subject->name, group->micro_batches, run->schedule);
    result->ideal = 1.0;
    snprintf(result->note, sizeof result->note,
             "planned on the fullest worker: %.2f MB and %.2f MB; in all %.2f MB and %.2f MB",
             (double)run->activations * 1e-6, (double)base->activations * 1e-6,
             (double)run->total * 1e-6, (double)base->total * 1e-6);
}

static void compare_gains(struct bench *bench, const struct group *group) {
    static const char *const better[] = {"zb-v", "auto"};
    const struct run *base = find_run(group, "1f1b", WEIR_CHECKPOINT_NEVER, false);
    for (size_t i = 0; i < WEIR__COUNT_OF(better); i++) {
        const struct run *run = find_run(group, better[i], WEIR_CHECKPOINT_NEVER, false);
        if (run == NULL) continue;
        add_gain(bench, group, base, run);
        add_memory(bench, group, base, run);
    }
    const struct run *again = find_run(group, "1f1b", WEIR_CHECKPOINT_NEVER, true);
    bench_add_ratio(bench, case_of(group, base), case_of(group, again),
                    "schedules/%s/%u-chunks/control", group->subject->name, group->micro_batches)
        ->control = true;
}

/* The least time of a kind, all stages together. */
static double least_of(const struct run *run, enum weir_kind kind) {
    double sum = 0.0;
    for (uint32_t s = 0; s < run->sampled.steps.table->stage_count; s++)
        sum += steps_stage_least(&run->sampled.steps, s, kind);
    return sum;
}

static void add_part(struct bench *bench, const struct group *group, double part, double ideal,
                     const char *name) {
    double *value = bench_take(bench, 1, sizeof *value);
    *value = part;
    bench_add(bench, "ratio", value, 1, "schedules/%s/%u-chunks/least-times/%s",
              group->subject->name, group->micro_batches, name)
        ->ideal = ideal;
}

/* What a split backward and a recomputation cost by themselves, on the same two stages. */
static void compare_kinds(struct bench *bench, const struct group *group) {
    const struct run *whole = find_run(group, "1f1b", WEIR_CHECKPOINT_NEVER, false);
    const struct run *split = find_run(group, "zb-h1", WEIR_CHECKPOINT_NEVER, false);
    const struct run *again = find_run(group, "1f1b", WEIR_CHECKPOINT_ALWAYS, false);
    if (whole == NULL || split == NULL || again == NULL) return;
    double input = least_of(split, WEIR_KIND_I), weight = least_of(split, WEIR_KIND_W);
    double forward = least_of(whole, WEIR_KIND_F);
    add_part(bench, group, (input + weight) / least_of(whole, WEIR_KIND_B), 1.0, "I-and-W-to-B");
    add_part(bench, group, weight / forward, 1.0, "W-to-F");
    add_part(bench, group, input / forward, 1.0, "I-to-F");
    add_part(bench, group, least_of(again, WEIR_KIND_R) / forward, 1.0, "R-to-F");
}

static void compare_checkpoints(struct bench *bench, const struct group *group) {
    static const char *const split[] = {"zb-h1", "zb-v"};
    const struct run *other = find_run(group, "interleaved", WEIR_CHECKPOINT_ALWAYS, false);
    for (size_t i = 0; i < WEIR__COUNT_OF(split); i++) {
        const struct run *always = find_run(group, split[i], WEIR_CHECKPOINT_ALWAYS, false);
        const struct run *never = find_run(group, split[i], WEIR_CHECKPOINT_NEVER, false);
        if (always == NULL || never == NULL) continue;
        struct bench_result *result =
            bench_add_ratio(bench, case_of(group, always), case_of(group, never),
                            "schedules/%s/%u-chunks/always-to-never/%s", group->subject->name,
                            group->micro_batches, split[i]);
        result->ideal = predicted_of(always) / predicted_of(never);
        result->at_most = ALWAYS_AT_MOST;
        if (other == NULL) continue;
        result = bench_add_ratio(bench, case_of(group, always), case_of(group, other),
                                 "schedules/%s/%u-chunks/always/%s-to-interleaved",
                                 group->subject->name, group->micro_batches, split[i]);
        result->ideal = predicted_of(always) / predicted_of(other);
        result->at_most = SLOWER_AT_MOST;
    }
}

/* ---- the topics ---- */

static void measure_count(struct bench *bench, const struct subject *subject, void *context,
                          const double *weights, uint32_t micro_batches) {
    struct group *group = bench_take(bench, 1, sizeof *group);
    group->subject = subject;
    group->context = context;
    group->weights = weights;
    group->micro_batches = micro_batches;
    open_runs(bench, group);
    bench_interleave(bench, group->cases, group->count);
    report_runs(bench, group);
    check_answers(bench, group);
    compare_gains(bench, group);
    compare_checkpoints(bench, group);
    compare_kinds(bench, group);
    for (uint32_t i = 0; i < group->count; i++) subject->close(group->runs[i].sampled.trial);
}

static void measure(struct bench *bench, const struct subject *subject) {
    if (bench->facts.usable_cores < SUBJECT_WORKERS) {
        fprintf(bench->text, "fewer than two usable cores: no schedule to measure here\n");
        return;
    }
    void *context = subject->new_context(bench);
    const double *weights = weigh_layers(bench, subject, context);
    for (int i = 0; i < COUNTS; i++) measure_count(bench, subject, context, weights, counts[i]);
    subject->destroy_context(context);
}

void bench_schedules_equal(struct bench *bench) {
    measure(bench, &subject_equal);
}

void bench_schedules_gpt(struct bench *bench) {
    measure(bench, &subject_gpt_default);
}

void bench_schedules_unet(struct bench *bench) {
    measure(bench, &subject_unet_deep);
}

/* SPDX-License-Identifier: MIT */
/*
 * What does recomputing early gain, while the gradient is on its way, over recomputing late, when
 * it is there? Two stages, 32 micro-batches, checkpoint always; copies take 0 to 1 forwards.
 *
 * Napkin. With F = R = 1 and B = 2, GPipe's late step is longer by one R of stage 0: the first
 * gradient is waited for once, (p - 1) / (4 (m + p - 1)) = 0.8%. Under 1F1B the late variant puts
 * R of stage 0 between every gradient and the next but one forward that stage 1 waits for: copy, R,
 * B, F, copy take 4 + 2 c where stage 1 has work for 4, so every two micro-batches lose 2 c: at c =
 * 0.25 a round of 4.25 instead of 4, less at the ends, 6.5%. Early, R is in the shadow of the copy
 * and the loop takes 3 + 2 c: nothing is lost up to c = 0.5.
 *
 * The prediction is the table's critical path with this run's own medians of the other steps. What
 * early and late compute is the same bits, and never's as well.
 */
#include "recompute.h"
#include "steps.h"

#include <math.h>
#include <string.h>
#include <time.h>

static const double GAIN_AT_LEAST = 0.9;
/* A gain that is less than this, in theory or by the table, drowns in noise: no ratio is shown. */
static const double GAIN_WORTH_A_RATIO = 0.02;
/* The one that must be reached. */
static const double JUDGED_COPY = 0.25;
/* A sample is the median of some short steps, 0.2 s together, rather than one long step: what else
 * the machine does then hits some of them, and the median does not see it. */
enum { STEPS_PER_SAMPLE = 3, STEPS_PER_SAMPLE_QUICK = 1, SCOUTING_STEPS = 8 };

enum variant { EARLY, LATE, NEVER, EARLY_AGAIN, VARIANTS };
static const char *const variant_names[VARIANTS] = {"early", "late", "never", "early-again"};

struct run {
    const struct recompute_subject *subject;
    void *trial;
    struct steps steps; /* STEPS_PER_SAMPLE for each sample */
    double *hidden;     /* per sample, the last step's */
    uint32_t samples;
    bool warm;
};

/* What the variants of one schedule and copy time share. */
struct group {
    uint32_t variants; /* the control only where it is judged */
    const struct recompute_subject *subject;
    void *context;
    const char *schedule;
    double copy, forward_s; /* copies in forwards */
    char name[48];
    struct run runs[VARIANTS];
    struct bench_case cases[VARIANTS];
    unsigned char *gradients; /* the first variant's of the schedule's first group, all others' */
    size_t gradient_bytes;
    double loss;
};

/* ---- trials ---- */

static void *open_trial(struct bench *bench, const struct group *group, enum variant variant) {
    struct weir_pipe_options how = WEIR_PIPE_OPTIONS_INIT;
    how.schedule = group->schedule;
    how.workers = RECOMPUTE_STAGES;
    how.checkpoint = variant == NEVER ? WEIR_CHECKPOINT_NEVER : WEIR_CHECKPOINT_ALWAYS;
    how.recompute_late = variant == LATE;
    how.threads_per_worker = 1;
    how.link = WEIR_LINK_COPY;
    how.link_delay_ns = (uint64_t)(group->copy * group->forward_s * 1e9 + 0.5);
    return group->subject->open(bench, group->context, &how);
}

/* The workers of the trial before spin for a moment before they park. */
static void let_others_park(void) {
    nanosleep(&(struct timespec){.tv_nsec = 4000000}, NULL);
}

static void warm_up(struct bench *bench, struct run *run) {
    struct weir_step_result result;
    uint32_t per_sample = bench->options.quick ? STEPS_PER_SAMPLE_QUICK : STEPS_PER_SAMPLE;
    run->subject->step(run->trial, &result);
    steps_init(bench, &run->steps, run->subject->pipe(run->trial),
               bench->options.repetitions * per_sample);
    run->steps.per_sample = per_sample;
    run->warm = true;
}

/* The median time of some steps by their own stamps, and the part that the report calls hidden. */
static void sample_steps(struct bench *bench, void *context, double *value) {
    struct run *run = context;
    struct weir_pipe *pipe = run->subject->pipe(run->trial);
    double times[STEPS_PER_SAMPLE];
    struct weir_step_report report;
    let_others_park();
    *value = NAN;
    if (!run->warm) {
        warm_up(bench, run);
        return;
    }
    for (uint32_t i = 0; i < run->steps.per_sample; i++) {
        struct weir_step_result result;
        run->subject->step(run->trial, &result);
        steps_take(&run->steps, pipe);
        times[i] = steps_makespan(&run->steps, run->steps.count - 1);
    }
    bench_check(weir_pipe_report(pipe, &report), "recompute: the report");
    run->hidden[run->samples++] = report.recompute_hidden;
    *value = bench_median(times, run->steps.per_sample);
}

/* What a forward takes: the median of some steps without recomputation and delay. */
static double scout(struct bench *bench, const struct recompute_subject *subject, void *context) {
    struct group group = {.subject = subject, .context = context, .schedule = "1f1b"};
    struct weir_step_result result;
    struct steps steps;
    void *trial = open_trial(bench, &group, NEVER);
    subject->step(trial, &result);
    steps_init(bench, &steps, subject->pipe(trial), SCOUTING_STEPS);
    for (int i = 0; i < SCOUTING_STEPS; i++) {
        subject->step(trial, &result);
        steps_take(&steps, subject->pipe(trial));
    }
    double forward_s = steps_median(bench, &steps, WEIR_KIND_F); /* reads the pipe's table */
    subject->close(trial);
    return forward_s;
}

/* ---- answers ---- */

static void remember_answer(struct bench *bench, struct group *first, const unsigned char *own,
                            size_t bytes, double loss) {
    bool any = false;
    for (size_t i = 0; i < bytes; i++) any |= own[i] != 0;
    bench_answer(bench, any && isfinite(loss) && loss > 0.0, "recompute/%s: a loss and gradients",
                 first->name);
    first->gradients = bench_take(bench, bytes, 1);
    memcpy(first->gradients, own, bytes);
    first->gradient_bytes = bytes;
    first->loss = loss;
}

/* All variants, at all copy times, give the same bits; `first` remembers the schedule's first. */
static void check_answers(struct bench *bench, struct group *group, struct group *first) {
    size_t bytes = group->subject->gradients(group->runs[EARLY].trial, NULL);
    unsigned char *own = bench_take(bench, bytes, 1);
    for (uint32_t v = 0; v < group->variants; v++) {
        const struct run *run = &group->runs[v];
        struct weir_step_result result;
        run->subject->step(run->trial, &result);
        run->subject->gradients(run->trial, own);
        if (first->gradients == NULL) {
            remember_answer(bench, first, own, bytes, result.loss);
            continue;
        }
        bench_answer(bench,
                     bytes == first->gradient_bytes && result.loss == first->loss &&
                         memcmp(own, first->gradients, bytes) == 0,
                     "recompute/%s/%s: loss and gradients are %s's bits", group->name,
                     variant_names[v], first->name);
    }
}

/* ---- results ---- */

struct gain {
    double *measured, *predicted, *ratio; /* per round: late / early - 1, and both's ratio */
    double theory;
};

static struct gain gain_of(struct bench *bench, struct group *group) {
    uint32_t rounds = bench->options.repetitions;
    const struct run *early = &group->runs[EARLY], *late = &group->runs[LATE];
    struct gain gain = {.measured = bench_take(bench, rounds, sizeof(double)),
                        .predicted = bench_take(bench, rounds, sizeof(double)),
                        .ratio = bench_take(bench, rounds, sizeof(double))};
    double predicted[2] = {NAN, NAN};
    for (uint32_t parity = 0; parity < 2 && rounds > 1; parity++)
        predicted[parity] = steps_predicted(bench, &late->steps, parity) /
                                steps_predicted(bench, &early->steps, parity) -
                            1.0;
    for (uint32_t r = 0; r < rounds; r++) {
        gain.measured[r] = group->cases[LATE].samples[r] / group->cases[EARLY].samples[r] - 1.0;
        gain.predicted[r] = predicted[r % 2];
        gain.ratio[r] = gain.measured[r] / gain.predicted[r];
    }
    gain.theory = steps_in_theory(bench, &late->steps, group->copy) /
                      steps_in_theory(bench, &early->steps, group->copy) -
                  1.0;
    return gain;
}

static void add_steps(struct bench *bench, const struct group *group) {
    for (uint32_t v = 0; v < group->variants; v++) {
        const struct bench_case *one = &group->cases[v];
        struct bench_result *result =
            bench_add(bench, "s", one->samples, one->count, "recompute/%s/step/%s", group->name,
                      variant_names[v]);
        result->ideal = (steps_predicted(bench, &group->runs[v].steps, 0) +
                         steps_predicted(bench, &group->runs[v].steps, 1)) /
                        2.0;
        result->tabled = true;
    }
    if (group->variants <= EARLY_AGAIN) return;
    bench_add_ratio(bench, &group->cases[EARLY], &group->cases[EARLY_AGAIN], "recompute/%s/control",
                    group->name)
        ->control = true;
}

/* One line of the table for people, and the results behind it. */
static void add_gain(struct bench *bench, struct group *group) {
    uint32_t rounds = bench->options.repetitions;
    struct gain gain = gain_of(bench, group);
    double predicted = bench_median(gain.predicted, rounds);
    double early_hidden = bench_median(group->runs[EARLY].hidden, rounds);
    double late_hidden = bench_median(group->runs[LATE].hidden, rounds);
    struct bench_result *result =
        bench_add(bench, "fraction", gain.measured, rounds, "recompute/%s/gain", group->name);
    double measured = result->median;
    result->ideal = predicted;
    result->higher_is_better = result->tabled = true;
    snprintf(result->note, sizeof result->note, "in theory %.2f%%", gain.theory * 100.0);
    result = bench_add(bench, "fraction", group->runs[EARLY].hidden, rounds,
                       "recompute/%s/hidden/early", group->name);
    result->higher_is_better = result->tabled = true;
    bool judged = group->subject == &recompute_busy && group->copy == JUDGED_COPY;
    if (gain.theory >= GAIN_WORTH_A_RATIO && (predicted >= GAIN_WORTH_A_RATIO || judged)) {
        result = bench_add(bench, "ratio", gain.ratio, rounds, "recompute/%s/gain-to-predicted",
                           group->name);
        result->higher_is_better = true;
        result->ideal = 1.0;
        if (judged) result->at_least = GAIN_AT_LEAST;
        snprintf(result->note, sizeof result->note, "gain %.2f%%, predicted %.2f%%, theory %.2f%%",
                 measured * 100.0, predicted * 100.0, gain.theory * 100.0);
    }
    fprintf(bench->text, "%-22s", group->name);
    for (int v = EARLY; v <= NEVER; v++) {
        char text[32];
        double time = bench_median(group->cases[v].samples, rounds);
        fprintf(bench->text, " %10s", bench_value_text(time, "s", text));
    }
    fprintf(bench->text, " %9.2f%% %9.2f%% %9.2f%% %11.1f%% %6.1f%%\n", measured * 100.0,
            predicted * 100.0, gain.theory * 100.0, early_hidden * 100.0, late_hidden * 100.0);
    fflush(bench->text);
}

/* ---- the topic ---- */

static void measure_group(struct bench *bench, struct group *group, struct group *first) {
    snprintf(group->name, sizeof group->name, "%s/%s/copy-%.2f", group->subject->name,
             group->schedule, group->copy);
    for (uint32_t v = 0; v < group->variants; v++) {
        struct run *run = &group->runs[v];
        run->subject = group->subject;
        run->trial = open_trial(bench, group, v == EARLY_AGAIN ? EARLY : (enum variant)v);
        run->hidden = bench_take(bench, bench->options.repetitions, sizeof *run->hidden);
        group->cases[v] =
            (struct bench_case){.label = variant_names[v], .sample = sample_steps, .context = run};
    }
    check_answers(bench, group, first);
    bench_interleave(bench, group->cases, group->variants);
    check_answers(bench, group, first);
    add_steps(bench, group);
    add_gain(bench, group);
    for (uint32_t v = 0; v < group->variants; v++) group->subject->close(group->runs[v].trial);
}

static void measure_subject(struct bench *bench, const struct recompute_subject *subject) {
    static const char *const schedules[] = {"1f1b", "gpipe"};
    char text[32];
    void *context = subject->new_context(bench);
    double forward_s = scout(bench, subject, context);
    fprintf(bench->text, "\n%s: a forward takes %s\n%-22s %10s %10s %10s %10s %10s %10s %12s %7s\n",
            subject->name, bench_value_text(forward_s, "s", text), "", "early", "late", "never",
            "gain", "predicted", "theory", "hidden early", "late");
    for (size_t s = 0; s < WEIR__COUNT_OF(schedules); s++) {
        struct group *first = NULL;
        for (uint32_t c = 0; c < subject->copy_count; c++) {
            struct group *group = bench_take(bench, 1, sizeof *group);
            if (first == NULL) first = group;
            group->subject = subject;
            group->context = context;
            group->schedule = schedules[s];
            group->copy = subject->copies[c];
            group->variants = subject->copies[c] == JUDGED_COPY ? VARIANTS : EARLY_AGAIN;
            group->forward_s = forward_s;
            measure_group(bench, group, first);
        }
    }
    subject->destroy_context(context);
}

void bench_recompute(struct bench *bench) {
    if (bench->facts.usable_cores < RECOMPUTE_STAGES) {
        fprintf(bench->text, "fewer than two usable cores: nothing to measure here\n");
        return;
    }
    measure_subject(bench, &recompute_busy);
    measure_subject(bench, &recompute_net);
}

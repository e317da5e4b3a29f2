/* SPDX-License-Identifier: MIT */
/* Sampling a trial. */
#include "subject.h"

#include <math.h>
#include <time.h>

enum { STEPS_MOST = 16 };

/* The workers of the trial before spin for a moment before they park. */
static void let_others_park(void) {
    nanosleep(&(struct timespec){.tv_nsec = 4000000}, NULL);
}

static void warm_up(struct bench *bench, struct subject_run *run) {
    struct weir_step_result result;
    uint32_t rounds = bench->options.repetitions, each = run->subject->steps_per_sample;
    run->subject->step(run->trial, &result);
    steps_init(bench, &run->steps, run->subject->pipe(run->trial), rounds * each);
    run->steps.per_sample = each;
    run->bubbles = bench_take(bench, rounds, sizeof *run->bubbles);
    run->loss = result.loss;
    run->hash = run->subject->hash(run->trial);
    run->warm = true;
}

static void take_sample(struct subject_run *run, double *value) {
    struct weir_pipe *pipe = run->subject->pipe(run->trial);
    uint32_t each = run->subject->steps_per_sample, sample = run->steps.count / each;
    double times[STEPS_MOST];
    struct weir_step_report report;
    assert(each <= STEPS_MOST);
    for (uint32_t i = 0; i < each; i++) {
        struct weir_step_result result;
        run->subject->step(run->trial, &result);
        steps_take(&run->steps, pipe);
        times[i] = steps_makespan(&run->steps, run->steps.count - 1);
    }
    bench_check(weir_pipe_report(pipe, &report), run->name);
    run->bubbles[sample] = report.bubble;
    *value = bench_median(times, each);
}

void subject_sample(struct bench *bench, void *context, double *value) {
    struct subject_run *run = context;
    let_others_park();
    *value = NAN;
    if (run->warm)
        take_sample(run, value);
    else
        warm_up(bench, run);
}

bool subject_same_again(struct subject_run *run) {
    struct weir_step_result result;
    run->subject->step(run->trial, &result);
    return isfinite(result.loss) && result.loss > 0.0 && result.loss == run->loss &&
           run->subject->hash(run->trial) == run->hash;
}

bool subject_fits(const char *schedule, uint32_t stages, uint32_t micro_batches) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table = NULL;
    options.schedule = schedule;
    options.stages = stages;
    options.workers = SUBJECT_WORKERS;
    options.micro_batches = micro_batches;
    int status = weir_table_new(&options, NULL, &table);
    weir_table_destroy(table);
    return status == WEIR_OK;
}

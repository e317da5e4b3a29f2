/* SPDX-License-Identifier: MIT */
/*
 * What do block attention residuals cost? A GPT of 8 layers, whose sublayers each mix the sums of
 * up to 8 blocks (--residual-block 1), against the plain one of the same layers, on two cores: one
 * stage of two threads, and two stages.
 *
 * Napkin, for one token of width C = 512: a sublayer's products take 36 C^2 FLOPs on average, 9.4
 * MFLOP, 80 us of a core's 120 GFLOP/s. It mixes 5 sources on average: forward reads them, backward
 * reads them and their sums, and writes these: 20 C numbers, 41 KB, 2 us at 20 GB/s of a cache.
 * So 1.03 times the plain step, and less where products do not reach the roof. FLOPs of mixing are
 * 0.1% more: the same, as the question has it.
 */
#include "training.h"

#include <math.h>

static const double STEP_AT_MOST = 1.04;

enum { PLAIN, MIXED, PLAIN_AGAIN, CASES };

static const struct training_job plain_job = {.topic = "models/residual",
                                              .rows = 8,
                                              .unit = 1,
                                              .adamw = true,
                                              .gpt = {8, 512, 8, 256, 256, false, 0}};

/* By one shape for all: the plain one's best. */
static void compare(struct bench *bench, const struct training_job *plain,
                    const struct training_job *mixed, const struct training_shape *shape) {
    static const char *const labels[CASES] = {"plain", "mixed", "plain-again"};
    struct training trainings[CASES];
    struct bench_case cases[CASES];
    for (int i = 0; i < CASES; i++) {
        training_new(i == MIXED ? mixed : plain, shape, &trainings[i]);
        cases[i] = (struct bench_case){
            .label = labels[i], .sample = training_sample, .context = &trainings[i]};
    }
    double loss = training_loss(&trainings[MIXED]);
    bench_answer(bench, isfinite(loss) && loss > 0 && loss < 10, "%s: a loss", plain->topic);
    bench_interleave(bench, cases, CASES);
    for (int i = 0; i < PLAIN_AGAIN; i++)
        bench_add(bench, "s", cases[i].samples, cases[i].count, "%s/step/%s/%s", plain->topic,
                  shape->name, labels[i]);
    struct bench_result *result = bench_add_ratio(
        bench, &cases[MIXED], &cases[PLAIN], "%s/mixed-to-plain/%s", plain->topic, shape->name);
    result->at_most = STEP_AT_MOST;
    struct bench_result *control = bench_add_ratio(bench, &cases[PLAIN_AGAIN], &cases[PLAIN],
                                                   "%s/control/%s", plain->topic, shape->name);
    control->control = true;
    for (int i = 0; i < CASES; i++) training_clean_up(&trainings[i]);
}

void bench_models_residual(struct bench *bench) {
    struct training_job plain = plain_job, mixed = plain_job;
    if (bench->facts.usable_cores < TRAINING_CORES) {
        fprintf(bench->text, "fewer than two usable cores: nothing to measure here\n");
        return;
    }
    plain.level = mixed.level = bench_level();
    mixed.gpt.residual_block = 1;
    training_make(bench, &plain);
    training_make(bench, &mixed);
    for (uint32_t stages = 1; stages <= TRAINING_CORES; stages++) {
        struct training_shape shape =
            training_best_shape(bench, &plain, stages == 1 ? "1-stage" : "2-stages", stages);
        compare(bench, &plain, &mixed, &shape);
    }
    training_job_clean_up(&plain);
    training_job_clean_up(&mixed);
}

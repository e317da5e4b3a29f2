/* SPDX-License-Identifier: MIT */
/* Which shape a model trains fastest in: by trying, and by planning. */
#include "training.h"
#include "weir_profile.h"

#include <math.h>
#include <string.h>

enum { SCAN_STEPS = 4, SHIFTS = 2 };
static const double STEP_SLACK = 0.01; /* as `weir plan --search` has it */

/* ---- by trying ---- */

struct scan {
    struct training_shape best;
    double best_s;
};

static void try_shape(struct bench *bench, const struct training_job *job,
                      const struct training_shape *shape, struct scan *scan) {
    struct training training;
    double s = HUGE_VAL;
    char text[32];
    training_new(job, shape, &training);
    training_step(&training);
    for (int i = 0; i < (bench->options.quick ? 1 : SCAN_STEPS); i++)
        s = fmin(s, training_step(&training));
    fprintf(bench->text, "%s: %s: %s\n", shape->name, training.shape.note,
            bench_value_text(s, "s", text));
    fflush(bench->text);
    if (s < scan->best_s) *scan = (struct scan){training.shape, s};
    training_clean_up(&training);
}

struct training_shape training_best_shape(struct bench *bench, const struct training_job *job,
                                          const char *name, uint32_t stages) {
    struct training_shape shape = {.name = name, .stages = stages, .workers = stages};
    struct scan scan = {.best_s = HUGE_VAL};
    for (uint32_t s = 0; s < stages; s++) shape.checkpoint[s] = WEIR_CHECKPOINT_NEVER;
    for (shape.chunks = stages; shape.chunks <= job->rows; shape.chunks *= 2)
        try_shape(bench, job, &shape, &scan);
    const struct training_shape middle = scan.best;
    for (int shift = -SHIFTS; shift <= SHIFTS && stages > 1; shift++) {
        int64_t first = (int64_t)middle.balance[0] + (int64_t)job->unit * shift;
        uint32_t layers = middle.balance[0] + middle.balance[1];
        if (shift == 0 || first < 1 || first >= layers) continue;
        shape = middle;
        shape.balance[0] = (uint32_t)first;
        shape.balance[1] = layers - shape.balance[0];
        try_shape(bench, job, &shape, &scan);
    }
    return scan.best;
}

/* ---- by planning ---- */

struct planning {
    const struct training_job *job;
    struct weir_net_options net;
    uint32_t counts[WEIR_NET_CHUNKS_MOST], count; /* of other chunks */
    struct weir_profile *profiles[WEIR_NET_CHUNKS_MOST + 1];
    struct weir_planner *planner;
};

static void profile_all(struct bench *bench, struct planning *planning) {
    planning->count = weir_net_chunks(&planning->net, planning->counts);
    for (uint32_t i = 0; i <= planning->count; i++) {
        struct weir_profile_options options = WEIR_PROFILE_OPTIONS_INIT;
        struct weir_faults faults = WEIR_FAULTS_INIT;
        options.net = planning->net;
        if (i > 0) options.net.pipe.chunks = planning->counts[i - 1];
        options.seconds = bench->options.quick ? 0 : 1;
        bench_check_faults(
            weir_profile_new(planning->job->model, &options, &faults, &planning->profiles[i]),
            planning->job->topic, &faults);
    }
}

static void plan(struct bench *bench, struct planning *planning,
                 struct weir_planner_result *result) {
    struct weir_planner_options options = WEIR_PLANNER_OPTIONS_INIT;
    struct weir_planner_chunks others[WEIR_NET_CHUNKS_MOST];
    struct weir_faults faults = WEIR_FAULTS_INIT;
    profile_all(bench, planning);
    for (uint32_t i = 0; i < planning->count; i++)
        others[i] = (struct weir_planner_chunks){planning->counts[i],
                                                 &planning->profiles[i + 1]->costs, NULL};
    options.step_slack = STEP_SLACK;
    options.other_count = planning->count;
    options.others = others;
    if (bench->options.quick) options.effort = WEIR_PLANNER_QUICK;
    bench_check(weir_planner_new(NULL, &planning->planner), planning->job->topic);
    bench_check_faults(weir_net_search(planning->planner, planning->job->model, &planning->net,
                                       &planning->profiles[0]->costs, &options, &faults, result),
                       planning->job->topic, &faults);
}

static struct training_shape shape_of(const struct training_job *job,
                                      const struct weir_planner_choice *choice) {
    struct training_shape shape = {.name = "planned",
                                   .schedule = choice->schedule,
                                   .stages = choice->stages,
                                   .workers = choice->workers,
                                   .chunks = choice->micro_batches,
                                   .recompute_late = choice->recompute_late};
    if (choice->stages > TRAINING_STAGES_MOST)
        bench_die("%s: the planner chose %u stages", job->topic, choice->stages);
    memcpy(shape.balance, choice->balance, choice->stages * sizeof shape.balance[0]);
    memcpy(shape.checkpoint, choice->checkpoint, choice->stages * sizeof shape.checkpoint[0]);
    return shape;
}

struct training_shape training_planned_shape(struct bench *bench, const struct training_job *job) {
    const struct training_shape plain = {
        .stages = TRAINING_CORES, .workers = TRAINING_CORES, .chunks = TRAINING_CORES};
    struct planning planning = {.job = job, .net = training_options(job, &plain)};
    struct weir_planner_result result;
    char text[32];
    planning.net.pipe.stage_checkpoint = NULL; /* what is searched */
    plan(bench, &planning, &result);
    struct training_shape shape = shape_of(job, result.winner);
    fprintf(bench->text, "planned: %s, %u micro-batches, %u stages, predicted %s\n", shape.schedule,
            shape.chunks, shape.stages, bench_value_text(result.winner->step, "s", text));
    for (uint32_t i = 0; i <= planning.count; i++) weir_profile_destroy(planning.profiles[i]);
    weir_planner_destroy(planning.planner);
    return shape;
}

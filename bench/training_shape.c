/* SPDX-License-Identifier: MIT */
/* Which shape a model trains fastest in: by trying, and by planning. */
#include "training.h"

#include "cli/search.h"

#include <math.h>
#include <string.h>

enum { SCAN_STEPS = 4, SHIFTS = 2 };

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

static uint32_t planned_chunks(const struct training_job *job) {
    return job->chunks > 0 ? job->chunks : TRAINING_CHUNKS;
}

/* The command line of `weir train` with no more than this about the pipeline on it. */
static void parse_given(struct bench *bench, const struct training_job *job,
                        const char *const *given, struct args *args, struct pipe_options *pipe) {
    enum { OWN = 7, GIVEN_MOST = 8, WORD_BYTES = 16 };
    char *words[OWN + GIVEN_MOST] = {"train",
                                     "--chunks",
                                     bench_take(bench, WORD_BYTES, 1),
                                     "--dtype",
                                     bench_take(bench, WORD_BYTES, 1),
                                     "--level",
                                     bench_take(bench, WORD_BYTES, 1)};
    int count = OWN;
    struct arg_section *section = bench_take(bench, 1, sizeof *section);
    struct arg_command *command = bench_take(bench, 1, sizeof *command);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    snprintf(words[2], WORD_BYTES, "%u", planned_chunks(job));
    snprintf(words[4], WORD_BYTES, "%s", weir_dtype_name(job->dtype));
    snprintf(words[6], WORD_BYTES, "%s", job->level);
    for (; given != NULL && *given != NULL && count < OWN + GIVEN_MOST; given++) {
        words[count] = bench_take(bench, WORD_BYTES, 1);
        snprintf(words[count++], WORD_BYTES, "%s", *given);
    }
    *section = (struct arg_section){"Pipeline", pipe_option_list, pipe_option_count, 0};
    *command = (struct arg_command){.name = "train", .sections = section, .section_count = 1};
    args_parse(args, command, count, words, pipe, &faults);
    bench_check_faults(WEIR_OK, job->topic, &faults);
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

struct training_shape training_planned_shape(struct bench *bench, const struct training_job *job,
                                             const char *const *given) {
    const struct training_shape plain = {.stages = 1, .workers = 1, .chunks = planned_chunks(job)};
    const struct search_how how = {.keeps_chunks = true, .workers = true};
    struct weir_net_options net = training_options(job, &plain);
    net.pipe.stage_checkpoint = NULL; /* what is given says it */
    struct search search = {.planner = NULL};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct pipe_options pipe = {.stages = 0};
    struct args args;
    char text[32];
    parse_given(bench, job, given, &args, &pipe);
    bench_check_faults(
        search_run(&search, &how, &args, job->model, &net, &pipe, bench->text, &faults), job->topic,
        &faults);
    struct training_shape shape = shape_of(job, search.result.winner);
    fprintf(bench->text, "planned: %s, predicted %s\n", search.repeat,
            bench_value_text(search.result.winner->step, "s", text));
    search_clean_up(&search);
    return shape;
}

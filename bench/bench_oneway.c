/* SPDX-License-Identifier: MIT */
/*
 * One model three ways on the same two cores: two threads inside each op; rows in parallel, two
 * copies of the net whose gradients are summed in a fixed order; a pipeline of two stages. Which
 * wins, with weights that the shared cache holds, and with weights that it does not?
 *
 * Napkin. Threads inside ops meet after every op: some microseconds times a few hundred ops, which
 * is much of a small model's step, and each core sees all weights. Rows in parallel meet once, but
 * read and write every weight and gradient twice: 7 passes over 4 bytes of each parameter, 0.8 GB
 * of 28 million, 40 ms at 20 GB/s. A pipeline's cores each touch half of the weights, and wait at
 * the ends: m / (m + 1) of two cores with m micro-batches and ZB-H1's little bubble, so with the
 * weights beyond the cache it should win, unless micro-batches get so small that reading weights
 * for each costs more. SGD in all three, so that the copies' update is one line here.
 */
#include "training.h"

#include <math.h>
#include <string.h>

enum { COPIES = TRAINING_CORES, LEARNING_STEPS = 3, SCAN_STEPS = 3, BIND_BYTES = 16 };
static const double LOSS_TOLERANCE = 1e-5, RATE = 0.1;

static const struct training_job jobs[] = {
    {.topic = "oneway/below-cache", .rows = 16, .unit = 1, .gpt = {4, 128, 4, 128, 256, false, 0}},
    {.topic = "oneway/above-cache", .rows = 16, .unit = 1, .gpt = {4, 768, 12, 32, 256, false, 0}},
};

/* A net of each half of the rows. */
struct copies {
    struct training_job jobs[COPIES];
    struct training trainings[COPIES];
    uint32_t parameter_count;
    struct weir_parameter *parameters[COPIES];
    double loss_weight; /* of all rows */
    double *seconds;    /* of each step of the team, the first member's to write */
    uint32_t steps;
};

enum way { THREADS, ROWS, PIPELINE, PIPELINE_AGAIN, WAYS };
static const char *const way_names[WAYS] = {"threads", "rows", "pipeline", "pipeline-again"};

/* ---- rows in parallel ---- */

static void step_copy(struct copies *copies, uint32_t member) {
    struct training *training = &copies->trainings[member];
    struct weir_step_result result;
    struct weir_net_batch batch = training_batch(training);
    batch.loss_weight = copies->loss_weight;
    batch.no_update = true;
    if (weir_net_step(training->net, &batch, &result) != WEIR_OK)
        bench_die("%s: %s", training->job->topic, result.error.message);
    training->steps++;
}

/* SGD of every `COPIES`th parameter, in all copies; gradients are summed in the copies' order. */
static void update_part(const struct copies *copies, uint32_t member) {
    for (uint32_t i = member; i < copies->parameter_count; i += COPIES) {
        const float *first = copies->parameters[0][i].gradient;
        const float *second = copies->parameters[1][i].gradient;
        float *data = copies->parameters[0][i].data, *twin = copies->parameters[1][i].data;
        for (uint64_t k = 0; k < copies->parameters[0][i].count; k++) {
            data[k] -= (float)RATE * (first[k] + second[k]);
            twin[k] = data[k];
        }
    }
}

static void run_member(struct bench_team *team, uint32_t member) {
    struct copies *copies = team->context;
    uint32_t round = 0;
    for (uint32_t step = 0; step < copies->steps; step++) {
        bench_meet(team, member, COPIES, ++round);
        uint64_t start = weir__now_ns();
        step_copy(copies, member);
        bench_meet(team, member, COPIES, ++round);
        update_part(copies, member);
        bench_meet(team, member, COPIES, ++round);
        if (member == 0) copies->seconds[step] = (double)(weir__now_ns() - start) * 1e-9;
        bench_check(weir_net_share(copies->trainings[member].net), "oneway");
    }
}

static double run_copies(struct bench *bench, struct copies *copies, uint32_t steps) {
    double seconds[LEARNING_STEPS + SCAN_STEPS], least = HUGE_VAL;
    assert(steps <= WEIR__COUNT_OF(seconds));
    copies->steps = steps;
    copies->seconds = seconds;
    bench_run_team(bench, COPIES, copies, run_member);
    for (uint32_t i = 0; i < steps; i++) least = fmin(least, seconds[i]);
    return least;
}

/* The core of each copy, where the engine would put two workers. */
static void write_binds(struct bench *bench, char binds[COPIES][BIND_BYTES]) {
    struct weir__worker_place *places = bench_take(bench, COPIES, sizeof *places);
    struct weir__place_request request = {.bind = "auto", .workers = COPIES, .threads = 1};
    bench_check(weir__place_plan(bench->machine, &request, NULL, places), "oneway");
    weir__place_unclaim(bench->machine);
    for (uint32_t i = 0; i < COPIES; i++)
        snprintf(binds[i], BIND_BYTES, "%u", places[i].core_ids[0]);
}

static void open_copies(struct bench *bench, const struct training_job *job, uint32_t chunks,
                        struct copies *copies) {
    const struct weir_gpt_options *gpt = &job->gpt;
    char binds[COPIES][BIND_BYTES];
    write_binds(bench, binds);
    for (uint32_t i = 0; i < COPIES; i++) {
        struct training_shape shape = {
            .name = "rows", .stages = 1, .workers = 1, .threads = 1, .chunks = chunks};
        size_t skipped = (size_t)i * job->rows / COPIES * gpt->context;
        shape.checkpoint[0] = WEIR_CHECKPOINT_NEVER;
        shape.bind = binds[i];
        copies->jobs[i] = *job;
        copies->jobs[i].rows = job->rows / COPIES;
        copies->jobs[i].input = (int64_t *)job->input + skipped;
        copies->jobs[i].target = (int64_t *)job->target + skipped;
        training_new(&copies->jobs[i], &shape, &copies->trainings[i]);
        copies->trainings[i].shape.bind = NULL; /* it was for the call */
        copies->parameter_count = weir_net_parameter_count(copies->trainings[i].net);
        copies->parameters[i] =
            bench_take(bench, copies->parameter_count, sizeof *copies->parameters[i]);
        for (uint32_t k = 0; k < copies->parameter_count; k++)
            bench_check(weir_net_parameter(copies->trainings[i].net, k, &copies->parameters[i][k]),
                        job->topic);
    }
    copies->loss_weight =
        weir_net_loss_weight(copies->trainings[0].net, job->target, (int64_t)job->rows);
}

static void close_copies(struct copies *copies) {
    for (uint32_t i = 0; i < COPIES; i++) training_clean_up(&copies->trainings[i]);
}

static uint32_t best_chunks(struct bench *bench, const struct training_job *job) {
    double least = HUGE_VAL;
    uint32_t best = 1;
    char text[32];
    for (uint32_t chunks = 1; chunks <= job->rows / COPIES; chunks *= 2) {
        struct copies *copies = bench_take(bench, 1, sizeof *copies);
        open_copies(bench, job, chunks, copies);
        double s = run_copies(bench, copies, SCAN_STEPS);
        close_copies(copies);
        fprintf(bench->text, "rows: 2 copies of %u micro-batches: %s\n", chunks,
                bench_value_text(s, "s", text));
        if (s < least) least = s, best = chunks;
    }
    return best;
}

static void sample_copies(struct bench *bench, void *context, double *value) {
    *value = run_copies(bench, context, 2);
}

/* ---- one size ---- */

struct contest {
    struct training_job job;
    struct training trainings[WAYS]; /* of ROWS none */
    struct copies copies;
    struct bench_case cases[WAYS];
};

static double learned_loss(struct bench *bench, struct contest *contest, int way) {
    if (way == ROWS) {
        double sum = 0;
        run_copies(bench, &contest->copies, LEARNING_STEPS);
        for (uint32_t i = 0; i < COPIES; i++) sum += training_loss(&contest->copies.trainings[i]);
        return sum / COPIES;
    }
    for (int i = 0; i < LEARNING_STEPS; i++) training_step(&contest->trainings[way]);
    return training_loss(&contest->trainings[way]);
}

static void check_answers(struct bench *bench, struct contest *contest) {
    double first = training_loss(&contest->trainings[THREADS]);
    double one = learned_loss(bench, contest, THREADS);
    bench_answer(bench, one > 0 && one < first, "%s: the loss falls", contest->job.topic);
    for (int way = ROWS; way < WAYS; way++) {
        double other = learned_loss(bench, contest, way);
        bench_answer(bench, fabs(other - one) <= LOSS_TOLERANCE * one,
                     "%s/%s: what is learned is the same within rounding", contest->job.topic,
                     way_names[way]);
    }
}

static void add_way(struct bench *bench, const struct contest *contest, int way) {
    const struct bench_case *one = &contest->cases[way];
    const struct training_job *job = &contest->job;
    const struct training *training =
        way == ROWS ? &contest->copies.trainings[0] : &contest->trainings[way];
    struct bench_result *result =
        bench_add(bench, "s", one->samples, one->count, "%s/step/%s", job->topic, way_names[way]);
    result->ideal = job->flops / bench->roofs.fma_flops_all;
    snprintf(result->note, sizeof result->note, "%s%.140s", way == ROWS ? "2 copies of " : "",
             training->shape.note);
    double *bytes = bench_take(bench, 1, sizeof *bytes);
    *bytes = (double)training_bytes(training) * (way == ROWS ? COPIES : 1);
    result = bench_add(bench, "B", bytes, 1, "%s/memory/%s", job->topic, way_names[way]);
    snprintf(result->note, sizeof result->note, "weights %.1f MB, shared cache %.1f MB",
             (double)job->parameters * 4e-6, (double)bench->facts.l3_bytes * 1e-6);
}

static double median_of(const struct bench_case *one) {
    return bench_median(one->samples, one->count);
}

static void add_results(struct bench *bench, const struct contest *contest) {
    const struct bench_case *cases = contest->cases;
    int best = THREADS;
    for (int way = THREADS; way <= PIPELINE; way++) {
        add_way(bench, contest, way);
        if (median_of(&cases[way]) < median_of(&cases[best])) best = way;
    }
    for (int way = THREADS; way <= PIPELINE; way++) {
        struct bench_result *result = bench_add_ratio(
            bench, &cases[way], &cases[best], "%s/to-best/%s", contest->job.topic, way_names[way]);
        snprintf(result->note, sizeof result->note, "the best: %s", way_names[best]);
    }
    bench_add_ratio(bench, &cases[PIPELINE_AGAIN], &cases[PIPELINE], "%s/control",
                    contest->job.topic)
        ->control = true;
}

static void run_size(struct bench *bench, const struct training_job *job) {
    struct contest *contest = bench_take(bench, 1, sizeof *contest);
    contest->job = *job;
    contest->job.level = bench_level();
    training_make(bench, &contest->job);
    struct training_shape pipeline = training_best_shape(bench, &contest->job, "pipeline", 2);
    const struct training_shape shapes[WAYS] = {
        [THREADS] = training_best_shape(bench, &contest->job, "threads", 1),
        [PIPELINE] = pipeline,
        [PIPELINE_AGAIN] = pipeline};
    open_copies(bench, &contest->job, best_chunks(bench, &contest->job), &contest->copies);
    for (int way = THREADS; way < WAYS; way++) {
        struct bench_case *one = &contest->cases[way];
        *one = (struct bench_case){.label = way_names[way], .sample = training_sample};
        one->context = &contest->trainings[way];
        if (way != ROWS) training_new(&contest->job, &shapes[way], &contest->trainings[way]);
    }
    contest->cases[ROWS].sample = sample_copies;
    contest->cases[ROWS].context = &contest->copies;
    check_answers(bench, contest);
    bench_interleave(bench, contest->cases, WAYS);
    add_results(bench, contest);
    for (int way = THREADS; way < WAYS; way++)
        if (way != ROWS) training_clean_up(&contest->trainings[way]);
    close_copies(&contest->copies);
    training_job_clean_up(&contest->job);
}

void bench_oneway(struct bench *bench) {
    if (bench->facts.usable_cores < TRAINING_CORES) {
        fprintf(bench->text, "fewer than two usable cores: nothing to measure here\n");
        return;
    }
    for (size_t i = 0; i < WEIR__COUNT_OF(jobs); i++) run_size(bench, &jobs[i]);
}

/* SPDX-License-Identifier: MIT */
/*
 * How fast does the default GPT train over two workers of one core each: against one worker, with
 * checkpoints, with more stages than workers, and against what its own table says?
 *
 * Napkin. Two equal stages and m micro-batches leave a bubble of 1 / (m + 1), 11% with eight: 1.78
 * times one worker where the stages are equal, and a little less as their products become smaller.
 * A checkpoint runs the forward pass again, a third of forward and backward, less what waiting
 * hides and what needs no recomputation: at most 1.33. The engine's own time is 1 us in tasks of 10
 * ms: nothing; a step measured above its table's critical path is cores disturbing each other.
 */
#include "steps.h"

#include "weir_net.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* The default of `weir train`. */
enum { LAYERS = 4, WIDTH = 256, HEADS = 8, CONTEXT = 128, VOCABULARY = 256, ROWS = 32, CHUNKS = 8 };
/* What --quick runs instead. */
enum { QUICK_WIDTH = 32, QUICK_CONTEXT = 16 };
enum { STEPS = 40, STEPS_QUICK = 6, SCAN_STEPS = 3 };
static const double SAMPLE_S = 0.2, SAMPLE_QUICK_S = 0.001;

static const double SPEED_UP_AT_LEAST = 1.7, CHECKPOINT_AT_MOST = 1.32, STAGES_AT_MOST = 1.15;
static const double EXECUTOR_LEAST = 0.95, EXECUTOR_MOST = 1.05, OVERLAP_AT_LEAST = 0.85;
static const double ACTIVATIONS_AT_LEAST = 4.0;

/* What a net is built for. */
struct shape {
    const char *name;
    uint32_t stages, workers, chunks;
    enum weir_checkpoint checkpoint;
};

struct data {
    struct weir_model *model;
    uint32_t context;
    int64_t tokens[ROWS * (CONTEXT + 1)];
    double flops; /* of a step: forward, and twice that backward */
};

struct training {
    const struct data *data;
    struct shape shape;
    struct weir_net *net;
    uint64_t steps;
    double sample_s;
    int64_t input[ROWS * CONTEXT], target[ROWS * CONTEXT];
};

/* ---- model and data ---- */

static void make_data(struct bench *bench, struct data *data) {
    bool quick = bench->options.quick;
    struct weir_gpt_options gpt = {.layers = LAYERS,
                                   .width = quick ? QUICK_WIDTH : WIDTH,
                                   .heads = HEADS,
                                   .context = quick ? QUICK_CONTEXT : CONTEXT,
                                   .vocab = VOCABULARY};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    uint64_t random = 1;
    data->context = gpt.context;
    bench_check_faults(weir_model_gpt(NULL, &gpt, &faults, &data->model), "pipeline", &faults);
    for (size_t i = 0; i < WEIR__COUNT_OF(data->tokens); i++)
        data->tokens[i] = (int64_t)(bench_random(&random) % VOCABULARY);
    uint32_t layers = weir_model_layer_count(data->model);
    struct weir_layer_facts *facts = bench_take(bench, layers, sizeof *facts);
    bench_check(weir_model_infer(data->model, WEIR_F32, facts, NULL), "pipeline");
    for (uint32_t i = 0; i < layers; i++) data->flops += 3.0 * ROWS * (double)facts[i].flops;
}

static struct weir_net_options net_options(const struct shape *shape) {
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    options.stages = shape->stages;
    options.pipe.workers = shape->workers;
    options.pipe.rows = ROWS;
    options.pipe.chunks = shape->chunks;
    options.pipe.checkpoint = shape->checkpoint;
    options.pipe.threads_per_worker = 1;
    options.optimizer.lr = 1e-4;
    return options;
}

static void make_training(struct bench *bench, const struct data *data, struct shape shape,
                          struct training *out) {
    struct weir_net_options options = net_options(&shape);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    *out = (struct training){
        .data = data, .shape = shape, .sample_s = bench->options.quick ? SAMPLE_QUICK_S : SAMPLE_S};
    bench_check_faults(weir_net_new(data->model, &options, &faults, &out->net), shape.name,
                       &faults);
    bench_check(weir_net_init(out->net, 1), shape.name);
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t t = 0; t < data->context; t++) {
            size_t from = (size_t)r * (data->context + 1) + t, to = (size_t)r * data->context + t;
            out->input[to] = data->tokens[from];
            out->target[to] = data->tokens[from + 1];
        }
}

static double run_step(struct training *training, bool update, struct weir_step_result *result) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = ROWS;
    batch.input = training->input;
    batch.target = training->target;
    batch.mini_batch = training->steps;
    batch.update = training->steps;
    batch.no_update = !update;
    int status = weir_net_step(training->net, &batch, result);
    if (status != WEIR_OK)
        bench_die("pipeline: %s: %s", training->shape.name, result->error.message);
    training->steps += update;
    return (double)result->ns * 1e-9;
}

/* Seconds per step, over as many as fill the time. */
static void sample_step(struct bench *bench, void *context, double *value) {
    struct training *training = context;
    struct weir_step_result result;
    double sum = 0.0;
    uint32_t count = 0;
    do {
        sum += run_step(training, true, &result);
        count++;
    } while (sum < training->sample_s);
    *value = sum / count;
}

/* ---- the best number of chunks ---- */

static double time_chunks(struct bench *bench, const struct data *data, struct shape shape) {
    struct training *training = bench_take(bench, 1, sizeof *training);
    struct weir_step_result result;
    double best = HUGE_VAL;
    make_training(bench, data, shape, training);
    run_step(training, true, &result);
    for (int i = 0; i < SCAN_STEPS; i++) best = fmin(best, run_step(training, true, &result));
    weir_net_destroy(training->net);
    return best;
}

static struct shape best_chunks(struct bench *bench, const struct data *data, struct shape shape) {
    double best = HUGE_VAL;
    uint32_t best_count = 1;
    fprintf(bench->text, "%s:", shape.name);
    for (uint32_t chunks = shape.workers; chunks <= ROWS; chunks *= 2) {
        char text[32];
        shape.chunks = chunks;
        double s = time_chunks(bench, data, shape);
        fprintf(bench->text, " %u chunks %s;", chunks, bench_value_text(s, "s", text));
        if (s < best) best = s, best_count = chunks;
    }
    fprintf(bench->text, " best: %u\n", best_count);
    fflush(bench->text);
    shape.chunks = best_count;
    return shape;
}

/* ---- answers ---- */

/* The first step's loss and norm: the same bits for the same chunks, whatever else differs; for
 * other chunks the sums over micro-batches are ordered otherwise: a rounding each for the loss (in
 * double), and for the norm one in f32 per sum. */
static void check_answers(struct bench *bench, struct training *const *all, uint32_t count) {
    struct weir_step_result first, other;
    run_step(all[0], false, &first);
    bench_answer(bench, isfinite(first.loss) && first.loss > 0.0, "pipeline/%s: a loss",
                 all[0]->shape.name);
    for (uint32_t i = 1; i < count; i++) {
        run_step(all[i], false, &other);
        bool same = all[i]->shape.chunks == all[0]->shape.chunks;
        double loss = same ? 0.0 : first.loss * ROWS * CONTEXT * DBL_EPSILON;
        double norm = same ? 0.0 : first.gradient_norm * ROWS * FLT_EPSILON;
        bench_answer(bench,
                     fabs(other.loss - first.loss) <= loss &&
                         fabs(other.gradient_norm - first.gradient_norm) <= norm,
                     "pipeline/%s: the first loss and norm are %s", all[i]->shape.name,
                     same ? "the same bits" : "within rounding of other chunks'");
    }
}

/* ---- comparisons ---- */

enum { ONE, ONE_AGAIN, TWO, TWO_EIGHT, ALWAYS, FOUR, CASES };

static void add_times(struct bench *bench, const struct bench_case *cases,
                      struct training *const *all) {
    for (int i = 0; i < CASES; i++) {
        if (i == ONE_AGAIN) continue;
        const struct shape *shape = &all[i]->shape;
        struct bench_result *result =
            bench_add(bench, "s", cases[i].samples, cases[i].count, "pipeline/step/%s/%u-chunks",
                      shape->name, shape->chunks);
        double roof = bench->roofs.fma_flops_all / bench->facts.usable_cores * shape->workers;
        result->ideal = all[i]->data->flops / roof;
        snprintf(result->note, sizeof result->note, "%.0f tokens/s",
                 ROWS * all[i]->data->context / result->median);
    }
}

static void add_ratios(struct bench *bench, const struct bench_case *cases) {
    struct bench_result *result =
        bench_add_ratio(bench, &cases[ONE], &cases[TWO], "pipeline/speed-up/2-workers");
    result->higher_is_better = true;
    result->ideal = 2.0;
    result->at_least = SPEED_UP_AT_LEAST;
    result =
        bench_add_ratio(bench, &cases[ALWAYS], &cases[TWO_EIGHT], "pipeline/checkpoint/always");
    result->ideal = 4.0 / 3.0;
    result->at_most = CHECKPOINT_AT_MOST;
    result = bench_add_ratio(bench, &cases[FOUR], &cases[TWO_EIGHT], "pipeline/stages/4-on-2");
    result->ideal = 1.0;
    result->at_most = STAGES_AT_MOST;
    result = bench_add_ratio(bench, &cases[ONE], &cases[ONE_AGAIN], "pipeline/control");
    result->control = true;
}

static void compare_shapes(struct bench *bench, struct training *const *all) {
    struct bench_case cases[CASES];
    for (int i = 0; i < CASES; i++)
        cases[i] = (struct bench_case){
            .label = all[i]->shape.name, .sample = sample_step, .context = all[i]};
    bench_interleave(bench, cases, CASES);
    add_times(bench, cases, all);
    add_ratios(bench, cases);
}

/* ---- one step against its table ---- */

static void take_steps(struct bench *bench, struct training *training, struct steps *steps,
                       double *bubbles) {
    struct weir_pipe *pipe = weir_net_pipe(training->net);
    struct weir_step_result result;
    struct weir_step_report report;
    run_step(training, true, &result);
    steps_init(bench, steps, pipe, bench->options.quick ? STEPS_QUICK : STEPS);
    while (steps->count < steps->capacity) {
        run_step(training, true, &result);
        bench_check(weir_pipe_report(pipe, &report), "pipeline: the report");
        bubbles[steps->count] = report.bubble;
        steps_take(steps, pipe);
    }
}

static void analyse_steps(struct bench *bench, struct training *training) {
    struct steps steps;
    const struct shape *shape = &training->shape;
    double *bubbles = bench_take(bench, STEPS, sizeof *bubbles);
    double *ratios = bench_take(bench, STEPS, sizeof *ratios);
    double *overlaps = bench_take(bench, STEPS, sizeof *overlaps);
    take_steps(bench, training, &steps, bubbles);
    double predicted[2] = {steps_predicted(bench, &steps, 0), steps_predicted(bench, &steps, 1)};
    for (uint32_t s = 0; s < steps.count; s++) {
        ratios[s] = steps_makespan(&steps, s) / predicted[s % 2];
        overlaps[s] = steps_overlap(&steps, s);
    }
    struct bench_result *result =
        bench_add(bench, "ratio", ratios, steps.count, "pipeline/executor/measured-to-table");
    result->ideal = 1.0;
    result->at_least = EXECUTOR_LEAST;
    result->at_most = EXECUTOR_MOST;
    result = bench_add(bench, "fraction", overlaps, steps.count, "pipeline/overlap/steady");
    result->higher_is_better = true;
    result->ideal = 1.0;
    result->at_least = OVERLAP_AT_LEAST;
    result = bench_add(bench, "fraction", bubbles, steps.count, "pipeline/bubble/1f1b");
    result->ideal = (shape->workers - 1.0) / (shape->chunks + shape->workers - 1.0);
}

/* ---- the plan ---- */

/* The largest of the devices' activations. */
static double planned_activations(const struct data *data, enum weir_checkpoint checkpoint) {
    struct shape shape = {"gpipe", 2, 2, CHUNKS, checkpoint};
    struct weir_net_options options = net_options(&shape);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_plan *plan;
    options.pipe.schedule = "gpipe";
    bench_check_faults(weir_net_plan(data->model, &options, &faults, &plan), "pipeline: the plan",
                       &faults);
    double most = 0.0;
    for (uint32_t d = 0; d < plan->device_count; d++)
        most = fmax(most, (double)plan->devices[d].activations);
    weir_plan_destroy(plan);
    return most;
}

static void compare_plans(struct bench *bench, const struct data *data) {
    double *ratio = bench_take(bench, 1, sizeof *ratio);
    double never = planned_activations(data, WEIR_CHECKPOINT_NEVER);
    double always = planned_activations(data, WEIR_CHECKPOINT_ALWAYS);
    *ratio = never / always;
    struct bench_result *result =
        bench_add(bench, "ratio", ratio, 1, "pipeline/activations/gpipe-never-to-always");
    result->higher_is_better = true;
    result->ideal = CHUNKS;
    result->at_least = ACTIVATIONS_AT_LEAST;
    snprintf(result->note, sizeof result->note,
             "planned: %.1f MB and %.1f MB on the fullest worker", never * 1e-6, always * 1e-6);
}

/* ---- the topic ---- */

void bench_pipeline(struct bench *bench) {
    struct data *data = bench_take(bench, 1, sizeof *data);
    make_data(bench, data);
    compare_plans(bench, data);
    if (bench->facts.usable_cores < 2) {
        fprintf(bench->text, "fewer than two usable cores: nothing else to measure here\n");
        weir_model_destroy(data->model);
        return;
    }
    struct shape shapes[CASES] = {
        [ONE] = {"1-worker", 1, 1, 1, WEIR_CHECKPOINT_NEVER},
        [TWO] = {"2-workers", 2, 2, 1, WEIR_CHECKPOINT_NEVER},
        [TWO_EIGHT] = {"2-workers-never", 2, 2, CHUNKS, WEIR_CHECKPOINT_NEVER},
        [ALWAYS] = {"2-workers-always", 2, 2, CHUNKS, WEIR_CHECKPOINT_ALWAYS},
        [FOUR] = {"4-stages-on-2", 4, 2, CHUNKS, WEIR_CHECKPOINT_NEVER}};
    shapes[ONE] = best_chunks(bench, data, shapes[ONE]);
    shapes[ONE_AGAIN] = shapes[ONE];
    shapes[TWO] = best_chunks(bench, data, shapes[TWO]);
    struct training *all[CASES];
    for (int i = 0; i < CASES; i++) {
        all[i] = bench_take(bench, 1, sizeof *all[i]);
        make_training(bench, data, shapes[i], all[i]);
    }
    check_answers(bench, all, CASES);
    compare_shapes(bench, all);
    analyse_steps(bench, all[TWO_EIGHT]);
    for (int i = 0; i < CASES; i++) weir_net_destroy(all[i]->net);
    weir_model_destroy(data->model);
}

/* SPDX-License-Identifier: MIT */
/*
 * How fast do models of users train on two cores, in f32: as one stage with two threads, as the
 * best pipeline of two stages, and against PyTorch?
 *
 * Napkin, at 120 GFLOP/s per core. GPT S (6 layers, width 256) has 4.9 million parameters and 2,048
 * tokens a step: 6 FLOPs for each of both are 60 GFLOP, attention 5 more: 0.27 s. GPT M (8 layers,
 * width 512) has 25.6 million and as many tokens: 310 and 26 GFLOP, 1.4 s. AdamW reads four numbers
 * of each parameter and writes three: 0.7 GB for M, 35 ms. So products decide, what stands between
 * them costs little where micro-batches fit the caches, and ZB-H1 leaves a small bubble.
 *
 * torchgpipe's U-Net (B = 2, C = 16, 96 x 96, batch 16, SGD): 3 x 0.62 GFLOP x 16 rows = 30 GFLOP,
 * 125 ms. Its units' tensors (dropout2d, instance norm, leaky ReLU around each convolution)
 * are 12.5 MB a row: forward reads and writes each a few times, 2 to 3 GB in all, as long again at
 * 20 GB/s if nothing stayed in cache.
 *
 * PyTorch is timed in turns with ours (peer.h), with as many threads as we have.
 */
#include "harness.h"
#include "peer.h"

#include "weir_net.h"

#include <math.h>
#include <string.h>

enum { THREADS = 2, STAGES_MOST = 2, SCAN_STEPS = 4, SHIFTS = 2 };
static const double PEER_AT_MOST = 1.0;
/* Of losses: the order of sums, in f32. */
static const double LOSS_TOLERANCE = 1e-5;

struct job {
    const char *topic, *script;
    uint32_t rows;
    uint32_t unit; /* layers that a cut is shifted by */
    bool adamw;    /* with GPT-2's numbers and clipping; else SGD */
    struct weir_gpt_options gpt;
    struct weir_unet_options unet; /* depth 0: it is the GPT */

    struct weir_model *model;
    void *input, *target;
    double flops; /* of a step */
    uint64_t parameters;
};

enum { GPT_S, GPT_M, UNET };
static const struct job jobs[] = {
    [GPT_S] = {.topic = "models/gpt-s",
               .script = "gpt_eager.py",
               .rows = 16,
               .unit = 1,
               .adamw = true,
               .gpt = {6, 256, 8, 128, 256, false, 0}},
    [GPT_M] = {.topic = "models/gpt-m",
               .script = "gpt_eager.py",
               .rows = 8,
               .unit = 1,
               .adamw = true,
               .gpt = {8, 512, 8, 256, 256, false, 0}},
    [UNET] = {.topic = "models/unet",
              .script = "unet_eager.py",
              .rows = 16,
              .unit = 4,
              .unet = {5, 2, 16, 3, 1, 96, 96, 0.1}},
};

struct shape {
    const char *name;
    uint32_t stages, chunks;
    uint32_t balance[STAGES_MOST];
};

struct training {
    const struct job *job;
    struct shape shape;
    struct weir_net *net;
    uint64_t steps;
};

/* A peer's variant as a case. */
struct peer_case {
    struct peer *peer;
    const char *name;
};

/* ---- model and data ---- */

static void shrink(struct job *job) {
    job->gpt.layers = 2;
    job->gpt.width = 32;
    job->gpt.context = 16;
    if (job->unet.depth > 0) job->unet.depth = 3;
    job->unet.height = job->unet.width = 32;
}

static void make_gpt(struct bench *bench, struct job *job) {
    const struct weir_gpt_options *gpt = &job->gpt;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    size_t tokens = (size_t)job->rows * gpt->context;
    bench_check_faults(weir_model_gpt(NULL, gpt, &faults, &job->model), job->topic, &faults);
    job->input = bench_take(bench, tokens, sizeof(int64_t));
    job->target = bench_take(bench, tokens, sizeof(int64_t));
    peer_fill_texts(job->input, job->target, job->rows, gpt->context, gpt->vocab);
}

static void make_unet(struct bench *bench, struct job *job) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    size_t pixels = (size_t)job->unet.height * job->unet.width;
    bench_check_faults(weir_model_unet(NULL, &job->unet, &faults, &job->model), job->topic,
                       &faults);
    job->input = bench_take(bench, job->rows * 3 * pixels, sizeof(float));
    job->target = bench_take(bench, job->rows * pixels, sizeof(float));
    peer_fill_images(job->input, job->target, job->rows, pixels);
}

static void make_job(struct bench *bench, struct job *job) {
    if (bench->options.quick) shrink(job);
    if (job->unet.depth > 0)
        make_unet(bench, job);
    else
        make_gpt(bench, job);
    uint32_t layers = weir_model_layer_count(job->model);
    struct weir_layer_facts *facts = bench_take(bench, layers, sizeof *facts);
    bench_check(weir_model_infer(job->model, WEIR_F32, facts, NULL), job->topic);
    for (uint32_t i = 0; i < layers; i++) {
        job->flops += 3.0 * job->rows * (double)facts[i].flops;
        job->parameters += facts[i].parameters;
    }
    fprintf(bench->text, "%s: %.2f million parameters, %.3g GFLOP a step, level %s\n", job->topic,
            (double)job->parameters * 1e-6, job->flops * 1e-9, bench_level());
}

/* ---- training ---- */

static struct weir_optimizer optimizer_of(const struct job *job) {
    struct weir_optimizer adamw = WEIR_ADAMW_INIT, sgd = WEIR_SGD_INIT;
    adamw.lr = 6e-4;
    adamw.beta2 = 0.95;
    adamw.weight_decay = 0.1;
    adamw.decay_matrices_only = true;
    sgd.lr = 0.1;
    return job->adamw ? adamw : sgd;
}

static void make_training(const struct job *job, struct shape shape, struct training *out) {
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    *out = (struct training){.job = job, .shape = shape};
    options.stages = shape.stages;
    if (shape.balance[0] > 0) options.balance = out->shape.balance;
    options.optimizer = optimizer_of(job);
    options.pipe.rows = job->rows;
    options.pipe.chunks = shape.chunks;
    options.pipe.schedule = shape.stages == 1 ? "1f1b" : "zb-h1";
    options.pipe.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.pipe.threads_per_worker = THREADS / shape.stages;
    options.pipe.clip_norm = job->adamw ? 1.0 : 0.0;
    bench_check_faults(weir_net_new(job->model, &options, &faults, &out->net), job->topic, &faults);
    memcpy(out->shape.balance, weir_net_balance(out->net),
           shape.stages * sizeof out->shape.balance[0]);
    bench_check(weir_net_init(out->net, 1), job->topic);
}

static struct weir_net_batch batch_of(const struct training *training) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = training->job->rows;
    batch.input = training->job->input;
    batch.target = training->job->target;
    batch.mini_batch = training->steps;
    batch.update = training->steps;
    return batch;
}

/* Seconds. */
static double run_step(struct training *training) {
    struct weir_step_result result;
    struct weir_net_batch batch = batch_of(training);
    if (weir_net_step(training->net, &batch, &result) != WEIR_OK)
        bench_die("%s: %s: %s", training->job->topic, training->shape.name, result.error.message);
    training->steps++;
    return (double)result.ns * 1e-9;
}

/* Without dropout. */
static double loss_of(struct training *training) {
    struct weir_step_result result;
    struct weir_net_batch batch = batch_of(training);
    if (weir_net_infer(training->net, &batch, &result) != WEIR_OK)
        bench_die("%s: %s: %s", training->job->topic, training->shape.name, result.error.message);
    return result.loss;
}

static void sample_step(struct bench *bench, void *context, double *value) {
    (void)bench;
    double first = run_step(context), second = run_step(context);
    *value = fmin(first, second);
}

/* ---- the best shape ---- */

struct scan {
    struct shape best;
    double best_s;
};

static void try_shape(struct bench *bench, const struct job *job, struct shape shape,
                      struct scan *scan) {
    struct training training;
    double s = HUGE_VAL;
    char text[32];
    make_training(job, shape, &training);
    shape = training.shape;
    run_step(&training);
    for (int i = 0; i < (bench->options.quick ? 1 : SCAN_STEPS); i++)
        s = fmin(s, run_step(&training));
    weir_net_destroy(training.net);
    fprintf(bench->text, "%s, %u micro-batches, %u + %u layers: %s\n", shape.name, shape.chunks,
            shape.balance[0], shape.balance[1], bench_value_text(s, "s", text));
    fflush(bench->text);
    if (s < scan->best_s) *scan = (struct scan){shape, s};
}

/* Micro-batches, then cuts some units away from the one that the estimated costs give. */
static struct shape best_shape(struct bench *bench, const struct job *job, struct shape shape) {
    struct scan scan = {.best_s = HUGE_VAL};
    for (shape.chunks = shape.stages; shape.chunks <= job->rows; shape.chunks *= 2)
        try_shape(bench, job, shape, &scan);
    const struct shape middle = scan.best;
    for (int shift = -SHIFTS; shift <= SHIFTS && shape.stages > 1; shift++) {
        int64_t first = (int64_t)middle.balance[0] + (int64_t)job->unit * shift;
        uint32_t layers = middle.balance[0] + middle.balance[1];
        if (shift == 0 || first < 1 || first >= layers) continue;
        shape = middle;
        shape.balance[0] = (uint32_t)first;
        shape.balance[1] = layers - shape.balance[0];
        try_shape(bench, job, shape, &scan);
    }
    return scan.best;
}

/* ---- the peer ---- */

static void sample_peer(struct bench *bench, void *context, double *value) {
    const struct peer_case *of = context;
    (void)bench;
    peer_resume(of->peer);
    double first = peer_step(of->peer, of->name), second = peer_step(of->peer, of->name);
    peer_pause(of->peer);
    *value = fmin(first, second);
}

static void start_peer(struct bench *bench, const struct job *job, struct peer *peer) {
    const struct weir_gpt_options *gpt = &job->gpt;
    const struct weir_unet_options *unet = &job->unet;
    char arguments[256];
    int used = snprintf(arguments, sizeof arguments, "--threads %d --parameters %llu --batch %u ",
                        THREADS, (unsigned long long)job->parameters, job->rows);
    if (unet->depth > 0)
        snprintf(arguments + used, sizeof arguments - (size_t)used,
                 "--depth %u --num-convs %u --base-channels %u --image %u", unet->depth,
                 unet->num_convs, unet->base_channels, unet->height);
    else
        snprintf(arguments + used, sizeof arguments - (size_t)used,
                 "--layers %u --width %u --heads %u --context %u --vocab %u --tokens %u",
                 gpt->layers, gpt->width, gpt->heads, gpt->context, gpt->vocab, gpt->vocab);
    struct peer_job of = {job->topic, job->script, arguments,
                          bench->options.quick ? "--quick's times mean nothing" : NULL};
    peer_start(bench, peer, &of);
}

/* ---- the topics ---- */

enum { ONE, PIPELINE, PIPELINE_AGAIN, OURS };

/* By the first weights; the peer's by those that have learned something, so that a wrong model
 * would not have the same. */
static void check_answers(struct bench *bench, struct training *trainings, struct peer *peer) {
    const char *topic = trainings[ONE].job->topic;
    double one = loss_of(&trainings[ONE]), two = loss_of(&trainings[PIPELINE]);
    bench_answer(bench, isfinite(one) && one > 0 && one < 10, "%s: a loss", topic);
    /* Other micro-batches and other threads. */
    bench_answer(bench, fabs(one - two) <= LOSS_TOLERANCE * one,
                 "%s: the first loss is the same within rounding", topic);
    if (peer->count == 0) return;
    for (int i = 0; i < SCAN_STEPS; i++) run_step(&trainings[ONE]);
    double theirs = peer_loss(peer, trainings[ONE].net), ours = loss_of(&trainings[ONE]);
    fprintf(bench->text, "%s: loss by the same weights: ours %.7f, the peer's %.7f\n", topic, ours,
            theirs);
    bench_answer(bench, fabs(ours - theirs) <= LOSS_TOLERANCE * ours,
                 "%s: the peer's loss by the same weights", topic);
}

static void add_step(struct bench *bench, const struct bench_case *one, const struct job *job,
                     const struct shape *shape) {
    struct bench_result *result =
        bench_add(bench, "s", one->samples, one->count, "%s/step/%s", job->topic, one->label);
    result->ideal = job->flops / bench->roofs.fma_flops_all;
    if (shape == NULL) return;
    if (shape->stages == 1)
        snprintf(result->note, sizeof result->note, "%u micro-batches, %d threads", shape->chunks,
                 THREADS);
    else
        snprintf(result->note, sizeof result->note, "%u + %u layers, %u micro-batches",
                 shape->balance[0], shape->balance[1], shape->chunks);
}

static void add_results(struct bench *bench, const struct bench_case *cases,
                        const struct training *trainings, const struct peer *peer) {
    const struct job *job = trainings[ONE].job;
    const struct bench_case *theirs = &cases[OURS], *best = theirs;
    add_step(bench, &cases[ONE], job, &trainings[ONE].shape);
    add_step(bench, &cases[PIPELINE], job, &trainings[PIPELINE].shape);
    for (uint32_t i = 0; i < peer->count; i++) {
        add_step(bench, &theirs[i], job, NULL);
        if (bench_median(theirs[i].samples, theirs[i].count) <
            bench_median(best->samples, best->count))
            best = &theirs[i];
    }
    for (int i = ONE; i <= PIPELINE && peer->count > 0; i++) {
        struct bench_result *result =
            bench_add_ratio(bench, &cases[i], best, "%s/against/%s", job->topic, cases[i].label);
        if (i == PIPELINE) result->at_most = PEER_AT_MOST;
        snprintf(result->note, sizeof result->note, "the peer's best, %s: %.100s", best->label,
                 peer->about);
    }
    struct bench_result *control =
        bench_add_ratio(bench, &cases[PIPELINE], &cases[PIPELINE_AGAIN], "%s/control", job->topic);
    control->control = true;
}

static void train(struct bench *bench, const struct job *job) {
    struct training trainings[OURS];
    struct bench_case cases[OURS + PEER_NAMES_MOST];
    struct peer peer;
    struct peer_case peer_cases[PEER_NAMES_MOST];
    struct shape one = {.name = "1-stage", .stages = 1}, two = {.name = "2-stages", .stages = 2};
    one = best_shape(bench, job, one);
    two = best_shape(bench, job, two);
    const struct shape shapes[OURS] = {one, two, two};
    for (int i = 0; i < OURS; i++) {
        make_training(job, shapes[i], &trainings[i]);
        cases[i] = (struct bench_case){
            .label = shapes[i].name, .sample = sample_step, .context = &trainings[i]};
    }
    start_peer(bench, job, &peer);
    for (uint32_t i = 0; i < peer.count; i++) {
        peer_cases[i] = (struct peer_case){&peer, peer.names[i]};
        cases[OURS + i] = (struct bench_case){
            .label = peer.names[i], .sample = sample_peer, .context = &peer_cases[i]};
    }
    check_answers(bench, trainings, &peer);
    bench_interleave(bench, cases, OURS + peer.count);
    add_results(bench, cases, trainings, &peer);
    peer_stop(&peer);
    for (int i = 0; i < OURS; i++) weir_net_destroy(trainings[i].net);
}

static void run_job(struct bench *bench, struct job job) {
    if (bench->facts.usable_cores < THREADS) {
        fprintf(bench->text, "fewer than two usable cores: nothing to measure here\n");
        return;
    }
    make_job(bench, &job);
    train(bench, &job);
    weir_model_destroy(job.model);
}

void bench_models_gpt_s(struct bench *bench) {
    run_job(bench, jobs[GPT_S]);
}

void bench_models_gpt_m(struct bench *bench) {
    run_job(bench, jobs[GPT_M]);
}

void bench_models_unet(struct bench *bench) {
    run_job(bench, jobs[UNET]);
}

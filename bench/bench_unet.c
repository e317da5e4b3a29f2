/* SPDX-License-Identifier: MIT */
/*
 * How fast does torchgpipe's U-Net (B = 2, C = 16, 96 x 96, batch 16, f32, SGD) train on two cores:
 * as one stage with two threads, as the best pipeline of two stages, and against PyTorch?
 *
 * Napkin. A step is 3 x 0.62 GFLOP x 16 rows = 30 GFLOP: 60 ms at 250 GFLOP/s per core. The units'
 * tensors (dropout2d, instance norm, leaky ReLU around each convolution) are 12.5 MB a row: forward
 * reads and writes each a few times, 2 to 3 GB in all, as long again at 20 GB/s if nothing stayed
 * in cache. So fusion and rows that fit the second-level cache decide, and a bubble of 1 / (m + 1).
 *
 * With --peer COMMAND the same step is timed in another program, in turns with ours (peer.h), such
 * as bench/peers/unet_eager.py --serve.
 */
#include "harness.h"
#include "peer.h"

#include "weir_net.h"

#include <math.h>
#include <string.h>

enum { CONVS = 2, CHANNELS = 16, SIDE = 96, ROWS = 16, DEPTH = 5 };
enum { QUICK_SIDE = 32, SCAN_STEPS = 4, SHIFTS = 2 };
static const double PEER_AT_MOST = 1.0;

struct shape {
    const char *name;
    uint32_t stages, threads, chunks;
    uint32_t balance[2];
};

struct training {
    const struct data *data;
    struct shape shape;
    struct weir_net *net;
    uint64_t steps;
};

struct data {
    struct weir_model *model;
    float *input, *target;
    double flops; /* of a step */
};

/* A peer's variant as a case. */
struct peer_case {
    struct peer *peer;
    const char *name;
};

/* ---- model and data ---- */

static void make_data(struct bench *bench, struct data *data) {
    struct weir_unet_options unet = WEIR_UNET_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    uint64_t random = 1;
    unet.num_convs = CONVS;
    unet.base_channels = CHANNELS;
    unet.height = unet.width = bench->options.quick ? QUICK_SIDE : SIDE;
    if (bench->options.quick) unet.depth = 3;
    bench_check_faults(weir_model_unet(NULL, &unet, &faults, &data->model), "unet", &faults);
    size_t plane = (size_t)unet.height * unet.width;
    data->input = bench_take(bench, ROWS * 3 * plane, sizeof(float));
    data->target = bench_take(bench, ROWS * plane, sizeof(float));
    for (size_t i = 0; i < ROWS * 3 * plane; i++)
        data->input[i] = (float)(bench_random(&random) >> 40) * 0x1p-24F;
    for (size_t i = 0; i < ROWS * plane; i++)
        data->target[i] = (float)(bench_random(&random) >> 40) * 0x1p-24F;
    uint32_t layers = weir_model_layer_count(data->model);
    struct weir_layer_facts *facts = bench_take(bench, layers, sizeof *facts);
    bench_check(weir_model_infer(data->model, WEIR_F32, facts, NULL), "unet");
    for (uint32_t i = 0; i < layers; i++) data->flops += 3.0 * ROWS * (double)facts[i].flops;
}

static void make_training(struct bench *bench, const struct data *data, struct shape shape,
                          struct training *out) {
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    (void)bench;
    *out = (struct training){.data = data, .shape = shape};
    options.stages = shape.stages;
    if (shape.balance[0] > 0) options.balance = out->shape.balance;
    options.pipe.rows = ROWS;
    options.pipe.chunks = shape.chunks;
    options.pipe.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.pipe.threads_per_worker = shape.threads;
    options.optimizer = (struct weir_optimizer)WEIR_SGD_INIT;
    options.optimizer.lr = 0.1;
    bench_check_faults(weir_net_new(data->model, &options, &faults, &out->net), shape.name,
                       &faults);
    memcpy(out->shape.balance, weir_net_balance(out->net),
           shape.stages * sizeof out->shape.balance[0]);
    bench_check(weir_net_init(out->net, 1), shape.name);
}

static double run_step(struct training *training, bool update, struct weir_step_result *result) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = ROWS;
    batch.input = training->data->input;
    batch.target = training->data->target;
    batch.mini_batch = training->steps;
    batch.update = training->steps;
    batch.no_update = !update;
    int status = weir_net_step(training->net, &batch, result);
    if (status != WEIR_OK) bench_die("unet: %s: %s", training->shape.name, result->error.message);
    training->steps += update;
    return (double)result->ns * 1e-9;
}

static void sample_step(struct bench *bench, void *context, double *value) {
    struct weir_step_result result;
    (void)bench;
    *value = fmin(run_step(context, true, &result), run_step(context, true, &result));
}

/* ---- the best pipeline ---- */

static double time_shape(struct bench *bench, const struct data *data, struct shape *shape) {
    struct training *training = bench_take(bench, 1, sizeof *training);
    struct weir_step_result result;
    double best = HUGE_VAL;
    make_training(bench, data, *shape, training);
    *shape = training->shape;
    run_step(training, true, &result);
    for (int i = 0; i < SCAN_STEPS; i++) best = fmin(best, run_step(training, true, &result));
    weir_net_destroy(training->net);
    return best;
}

/* Chunks, then cuts some units away from the one that the estimated costs give. */
static struct shape best_pipeline(struct bench *bench, const struct data *data) {
    struct shape best = {.name = "2-stages"}, shape;
    double best_s = HUGE_VAL;
    char text[32];
    for (uint32_t chunks = 2; chunks <= ROWS; chunks *= 2) {
        shape = (struct shape){"2-stages", 2, 1, chunks, {0, 0}};
        double s = time_shape(bench, data, &shape);
        fprintf(bench->text, "%u chunks, %u + %u layers: %s\n", chunks, shape.balance[0],
                shape.balance[1], bench_value_text(s, "s", text));
        if (s < best_s) best_s = s, best = shape;
    }
    struct shape middle = best;
    for (int shift = -SHIFTS; shift <= SHIFTS; shift++) {
        int64_t first = (int64_t)middle.balance[0] + 4 * shift;
        uint32_t layers = middle.balance[0] + middle.balance[1];
        if (shift == 0 || first < 1 || first >= layers) continue;
        shape = middle;
        shape.balance[0] = (uint32_t)first;
        shape.balance[1] = layers - shape.balance[0];
        double s = time_shape(bench, data, &shape);
        fprintf(bench->text, "%u chunks, %u + %u layers: %s\n", shape.chunks, shape.balance[0],
                shape.balance[1], bench_value_text(s, "s", text));
        if (s < best_s) best_s = s, best = shape;
    }
    fflush(bench->text);
    return best;
}

/* ---- the peer ---- */

/* Its threads spin between steps, so it sleeps while ours are timed. */
static void sample_peer(struct bench *bench, void *context, double *value) {
    const struct peer_case *of = context;
    (void)bench;
    peer_resume(of->peer);
    double first = peer_step(of->peer, of->name), second = peer_step(of->peer, of->name);
    peer_pause(of->peer);
    *value = fmin(first, second);
}

static void start_peer(struct bench *bench, struct peer *peer) {
    char why[256];
    if (bench->options.peer == NULL) return;
    if (!peer_start(peer, bench->options.peer, why)) bench_die("unet: the peer: %s", why);
}

/* ---- the topic ---- */

enum { ONE, PIPELINE, PIPELINE_AGAIN, OURS };

static void check_answers(struct bench *bench, struct training *const *all) {
    struct weir_step_result one, two;
    run_step(all[ONE], false, &one);
    run_step(all[PIPELINE], false, &two);
    bench_answer(bench, isfinite(one.loss) && one.loss > 0 && one.loss < 10, "unet: a loss");
    /* Other chunks and other threads: sums are ordered otherwise. */
    bench_answer(bench, fabs(one.loss - two.loss) <= 1e-5 * one.loss,
                 "unet: the first loss is the same within rounding");
}

static void add_results(struct bench *bench, const struct bench_case *cases, uint32_t peers,
                        struct training *const *all) {
    for (uint32_t i = 0; i < OURS + peers; i++) {
        if (i == PIPELINE_AGAIN) continue;
        struct bench_result *result =
            bench_add(bench, "s", cases[i].samples, cases[i].count, "unet/step/%s", cases[i].label);
        result->ideal = all[ONE]->data->flops / bench->roofs.fma_flops_all;
        const struct shape *shape = i < OURS ? &all[i]->shape : NULL;
        if (shape != NULL)
            snprintf(result->note, sizeof result->note,
                     "%u stages, %u + %u layers, %u chunks, %u threads each", shape->stages,
                     shape->balance[0], shape->stages > 1 ? shape->balance[1] : 0, shape->chunks,
                     shape->threads);
    }
    for (uint32_t i = 0; i < peers; i++) {
        struct bench_result *result = bench_add_ratio(bench, &cases[PIPELINE], &cases[OURS + i],
                                                      "unet/against/%s", cases[OURS + i].label);
        if (strcmp(cases[OURS + i].label, "eager") == 0) result->at_most = PEER_AT_MOST;
    }
    struct bench_result *control =
        bench_add_ratio(bench, &cases[PIPELINE], &cases[PIPELINE_AGAIN], "unet/control");
    control->control = true;
}

void bench_unet(struct bench *bench) {
    struct data *data = bench_take(bench, 1, sizeof *data);
    struct training *all[OURS];
    struct peer peer = {0};
    struct peer_case peer_cases[PEER_NAMES_MOST];
    make_data(bench, data);
    if (bench->facts.usable_cores < 2) {
        fprintf(bench->text, "fewer than two usable cores: nothing to measure here\n");
        weir_model_destroy(data->model);
        return;
    }
    struct shape one = {"1-stage", 1, 2, 2, {0, 0}}, pipeline = best_pipeline(bench, data);
    const struct shape shapes[OURS] = {one, pipeline, pipeline};
    struct bench_case cases[OURS + PEER_NAMES_MOST];
    for (int i = 0; i < OURS; i++) {
        all[i] = bench_take(bench, 1, sizeof *all[i]);
        make_training(bench, data, shapes[i], all[i]);
        cases[i] =
            (struct bench_case){.label = shapes[i].name, .sample = sample_step, .context = all[i]};
    }
    check_answers(bench, all);
    start_peer(bench, &peer);
    for (uint32_t i = 0; i < peer.count; i++) {
        peer_cases[i] = (struct peer_case){&peer, peer.names[i]};
        cases[OURS + i] = (struct bench_case){
            .label = peer.names[i], .sample = sample_peer, .context = &peer_cases[i]};
    }
    bench_interleave(bench, cases, OURS + peer.count);
    add_results(bench, cases, peer.count, all);
    peer_stop(&peer);
    for (int i = 0; i < OURS; i++) weir_net_destroy(all[i]->net);
    weir_model_destroy(data->model);
}

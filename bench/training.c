/* SPDX-License-Identifier: MIT */
#include "training.h"

#include "peer.h"
#include "weir_models.h"

#include <math.h>
#include <string.h>

/* ---- model and data ---- */

static void shrink(struct training_job *job) {
    job->gpt.layers = 2;
    job->gpt.width = 32;
    job->gpt.heads = 4;
    job->gpt.context = 16;
    if (job->unet.depth > 0) job->unet.depth = 3;
    job->unet.height = job->unet.width = 32;
    job->unet.base_channels = 16;
    if (job->decoder.layers > 0) job->decoder.layers = 2;
    job->decoder.context = 16;
    job->decoder.vocab = 256;
    if (job->resnet.classes == 0 && job->amoebanet.classes == 0) return;
    job->rows = 2 * TRAINING_CHUNKS; /* of which every channel's numbers have a variance */
    job->resnet.height = job->resnet.width = 33;
    job->amoebanet.layers = 3;
    job->amoebanet.filters = 16;
}

static void make_gpt(struct bench *bench, struct training_job *job) {
    const struct weir_gpt_options *gpt = &job->gpt;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    size_t tokens = (size_t)job->rows * gpt->context;
    bench_check_faults(weir_model_gpt(NULL, gpt, &faults, &job->model), job->topic, &faults);
    job->input = bench_take(bench, tokens, sizeof(int64_t));
    job->target = bench_take(bench, tokens, sizeof(int64_t));
    peer_fill_texts(job->input, job->target, job->rows, gpt->context, gpt->vocab);
}

static void make_decoder(struct bench *bench, struct training_job *job) {
    const struct weir_decoder_options *decoder = &job->decoder;
    static const char *const all[] = {"all-linear"};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    const struct weir_lora lora = {
        .rank = job->lora_rank, .alpha = 2 * job->lora_rank, .targets = all, .target_count = 1};
    size_t tokens = (size_t)job->rows * decoder->context;
    bench_check_faults(weir_model_decoder(NULL, decoder, &faults, &job->model), job->topic,
                       &faults);
    if (job->lora_rank > 0) bench_check(weir_model_lora(job->model, &lora), job->topic);
    job->input = bench_take(bench, tokens, sizeof(int64_t));
    job->target = bench_take(bench, tokens, sizeof(int64_t));
    peer_fill_texts(job->input, job->target, job->rows, decoder->context, decoder->vocab);
}

static void make_unet(struct bench *bench, struct training_job *job) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    size_t pixels = (size_t)job->unet.height * job->unet.width;
    bench_check_faults(weir_model_unet(NULL, &job->unet, &faults, &job->model), job->topic,
                       &faults);
    job->input = bench_take(bench, job->rows * 3 * pixels, sizeof(float));
    job->target = bench_take(bench, job->rows * pixels, sizeof(float));
    peer_fill_images(job->input, job->target, job->rows, pixels);
}

static void make_classifier(struct bench *bench, struct training_job *job) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    bool resnet = job->resnet.classes > 0;
    uint32_t side = resnet ? job->resnet.height : job->amoebanet.height;
    uint32_t classes = resnet ? job->resnet.classes : job->amoebanet.classes;
    size_t pixels = (size_t)side * side;
    int status = resnet ? weir_model_resnet101(NULL, &job->resnet, &faults, &job->model)
                        : weir_model_amoebanetd(NULL, &job->amoebanet, &faults, &job->model);
    bench_check_faults(status, job->topic, &faults);
    job->input = bench_take(bench, job->rows * 3 * pixels, sizeof(float));
    int64_t *labels = bench_take(bench, job->rows, sizeof *labels);
    for (uint32_t i = 0; i < job->rows; i++) labels[i] = i * 7 % classes;
    job->target = labels;
    peer_fill_images(job->input, NULL, job->rows, pixels);
}

void training_make(struct bench *bench, struct training_job *job) {
    if (bench->options.quick) shrink(job);
    if (job->unet.depth > 0)
        make_unet(bench, job);
    else if (job->resnet.classes > 0 || job->amoebanet.classes > 0)
        make_classifier(bench, job);
    else if (job->decoder.layers > 0)
        make_decoder(bench, job);
    else
        make_gpt(bench, job);
    uint32_t layers = weir_model_layer_count(job->model);
    struct weir_layer_facts *facts = bench_take(bench, layers, sizeof *facts);
    bench_check(weir_model_infer(job->model, WEIR_F32, facts, NULL), job->topic);
    /* a frozen product has no gradient of its weight */
    const double products = job->lora_rank > 0 ? 2 : 3;
    for (uint32_t i = 0; i < layers; i++) {
        job->flops += products * job->rows * (double)facts[i].flops;
        job->parameters += facts[i].parameters;
    }
    fprintf(bench->text, "%s: %.2f million parameters, %.3g GFLOP a step, level %s\n", job->topic,
            (double)job->parameters * 1e-6, job->flops * 1e-9, job->level);
}

void training_job_clean_up(struct training_job *job) {
    weir_model_destroy(job->model);
}

/* ---- training ---- */

static struct weir_optimizer optimizer_of(const struct training_job *job) {
    struct weir_optimizer adamw = WEIR_ADAMW_INIT, sgd = WEIR_SGD_INIT;
    adamw.lr = 6e-4;
    adamw.beta2 = 0.95;
    adamw.weight_decay = 0.1;
    adamw.decay_matrices_only = true;
    sgd.lr = 0.1;
    return job->adamw ? adamw : sgd;
}

static uint32_t threads_of(const struct training_shape *shape) {
    return shape->threads > 0 ? shape->threads : TRAINING_CORES / shape->workers;
}

struct weir_net_options training_options(const struct training_job *job,
                                         const struct training_shape *shape) {
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    options.stages = shape->stages;
    if (shape->balance[0] > 0) options.balance = shape->balance;
    options.optimizer = optimizer_of(job);
    options.level = job->level;
    options.dtype = job->dtype;
    options.pipe.rows = job->rows;
    options.pipe.chunks = shape->chunks;
    options.pipe.workers = shape->workers;
    options.pipe.schedule = shape->schedule;
    if (shape->schedule == NULL) options.pipe.schedule = shape->stages == 1 ? "1f1b" : "zb-h1";
    options.pipe.stage_checkpoint = shape->checkpoint;
    options.pipe.recompute_late = shape->recompute_late;
    options.pipe.threads_per_worker = threads_of(shape);
    options.pipe.bind = shape->bind;
    options.pipe.world = shape->world;
    options.pipe.clip_norm = job->adamw ? 1.0 : 0.0;
    return options;
}

static void write_note(const struct weir_net_options *options, struct training_shape *shape) {
    size_t used = (size_t)snprintf(shape->note, sizeof shape->note, "%s, %u micro-batches, ",
                                   options->pipe.schedule, shape->chunks);
    for (uint32_t s = 0; s < shape->stages && used < sizeof shape->note; s++)
        used += (size_t)snprintf(shape->note + used, sizeof shape->note - used, "%s%u",
                                 s == 0 ? "" : " + ", shape->balance[s]);
    bool never = true;
    for (uint32_t s = 0; s < shape->stages; s++)
        never = never && shape->checkpoint[s] == WEIR_CHECKPOINT_NEVER;
    if (used < sizeof shape->note)
        snprintf(shape->note + used, sizeof shape->note - used, " layers, %u worker%s of %u%s",
                 shape->workers, shape->workers == 1 ? "" : "s", threads_of(shape),
                 never ? "" : ", with checkpoints");
}

void training_new(const struct training_job *job, const struct training_shape *shape,
                  struct training *out) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    *out = (struct training){.job = job, .shape = *shape};
    struct weir_net_options options = training_options(job, &out->shape);
    bench_check_faults(weir_net_new(job->model, &options, &faults, &out->net), job->topic, &faults);
    memcpy(out->shape.balance, weir_net_balance(out->net),
           shape->stages * sizeof out->shape.balance[0]);
    write_note(&options, &out->shape);
    bench_check(weir_net_init(out->net, 1), job->topic);
}

void training_clean_up(struct training *training) {
    weir_net_destroy(training->net);
}

uint64_t training_bytes(const struct training *training) {
    const struct weir_plan *plan = weir_pipe_plan(weir_net_pipe(training->net));
    uint64_t sum = 0;
    for (uint32_t d = 0; d < plan->device_count; d++) sum += plan->devices[d].total;
    return sum;
}

struct weir_net_batch training_batch(const struct training *training) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = training->job->rows;
    batch.input = training->job->input;
    batch.target = training->job->target;
    batch.mini_batch = training->steps;
    batch.update = training->steps;
    return batch;
}

double training_step(struct training *training) {
    struct weir_step_result result;
    struct weir_net_batch batch = training_batch(training);
    if (weir_net_step(training->net, &batch, &result) != WEIR_OK)
        bench_die("%s: %s: %s", training->job->topic, training->shape.name, result.error.message);
    training->steps++;
    return (double)result.ns * 1e-9;
}

double training_loss(struct training *training) {
    struct weir_step_result result;
    struct weir_net_batch batch = training_batch(training);
    if (weir_net_infer(training->net, &batch, &result) != WEIR_OK)
        bench_die("%s: %s: %s", training->job->topic, training->shape.name, result.error.message);
    return result.loss;
}

void training_sample(struct bench *bench, void *context, double *value) {
    (void)bench;
    double first = training_step(context), second = training_step(context);
    *value = fmin(first, second);
}

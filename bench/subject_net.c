/* SPDX-License-Identifier: MIT */
/* Networks whose kinds have their own times and whose stages are unequal: a GPT, and a U-Net with
 * skips over every cut. */
#include "subject.h"
#include "weir_models.h"

/* What --quick runs instead. */
enum { QUICK_WIDTH = 16, QUICK_CONTEXT = 8, QUICK_SIDE = 16, PLANES_IN = 3 };

struct data {
    struct weir_model *model;
    void *input, *target;
};

struct trial {
    struct weir_net *net;
    const struct data *data;
    int64_t rows;
};

void *subject_gpt_context(struct bench *bench, struct weir_gpt_options gpt, uint32_t rows) {
    struct data *data = bench_take(bench, 1, sizeof *data);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    uint64_t random = 1;
    if (bench->options.quick) gpt.width = QUICK_WIDTH, gpt.context = QUICK_CONTEXT;
    size_t count = (size_t)rows * gpt.context;
    int64_t *input = bench_take(bench, count, sizeof *input);
    int64_t *target = bench_take(bench, count, sizeof *target);
    bench_check_faults(weir_model_gpt(NULL, &gpt, &faults, &data->model), "a GPT", &faults);
    for (size_t i = 0; i < count; i++) {
        input[i] = (int64_t)(bench_random(&random) % gpt.vocab);
        target[i] = (int64_t)(bench_random(&random) % gpt.vocab);
    }
    data->input = input;
    data->target = target;
    return data;
}

static void *gpt_context(struct bench *bench) {
    struct weir_gpt_options gpt = {
        .layers = 6, .width = 128, .heads = 4, .context = 128, .vocab = 256};
    return subject_gpt_context(bench, gpt, SUBJECT_ROWS_MOST);
}

static void *gpt_default_context(struct bench *bench) {
    struct weir_gpt_options gpt = WEIR_GPT_OPTIONS_INIT;
    return subject_gpt_context(bench, gpt, SUBJECT_ROWS_MOST);
}

static float *random_floats(struct bench *bench, size_t count, uint64_t seed) {
    float *values = bench_take(bench, count, sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = (float)(bench_random(&seed) >> 40) * 0x1p-24F;
    return values;
}

static void *unet_of(struct bench *bench, uint32_t depth, uint32_t channels, uint32_t side) {
    struct data *data = bench_take(bench, 1, sizeof *data);
    struct weir_unet_options unet = WEIR_UNET_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    unet.num_convs = 2;
    unet.depth = depth;
    unet.base_channels = channels;
    unet.height = unet.width = side;
    size_t plane = (size_t)SUBJECT_ROWS_MOST * unet.height * unet.width;
    bench_check_faults(weir_model_unet(NULL, &unet, &faults, &data->model), "a U-Net", &faults);
    data->input = random_floats(bench, PLANES_IN * plane, 1);
    data->target = random_floats(bench, plane, 2);
    return data;
}

static void *unet_context(struct bench *bench) {
    return unet_of(bench, 3, 8, bench->options.quick ? QUICK_SIDE : 64);
}

static void *unet_deep_context(struct bench *bench) {
    return bench->options.quick ? unet_of(bench, 3, 8, QUICK_SIDE) : unet_of(bench, 5, 16, 64);
}

static uint32_t net_layers(void *context) {
    return weir_model_layer_count(((struct data *)context)->model);
}

static const struct weir_model *net_model(void *context) {
    return ((struct data *)context)->model;
}

static void net_destroy_context(void *context) {
    weir_model_destroy(((struct data *)context)->model);
}

static void *net_open(struct bench *bench, void *context, const struct weir_pipe_options *how,
                      uint32_t stages, const uint32_t *balance) {
    struct trial *trial = bench_take(bench, 1, sizeof *trial);
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    trial->data = context;
    options.pipe = *how;
    trial->rows = how->rows;
    options.stages = stages;
    options.balance = balance;
    options.optimizer.kind = WEIR_OPTIMIZER_NONE;
    bench_check_faults(weir_net_new(trial->data->model, &options, &faults, &trial->net), "a net",
                       &faults);
    bench_check(weir_net_init(trial->net, 1), "a net");
    return trial;
}

struct weir_net *subject_net(void *trial) {
    return ((struct trial *)trial)->net;
}

static struct weir_pipe *net_pipe(void *trial) {
    return weir_net_pipe(subject_net(trial));
}

static void net_step(void *trial, struct weir_step_result *result) {
    struct trial *own = trial;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = own->rows;
    batch.input = own->data->input;
    batch.target = own->data->target;
    batch.no_update = true;
    if (weir_net_step(own->net, &batch, result) != WEIR_OK)
        bench_die("a net: a step failed: %s", result->error.message);
}

/* FNV-1a over words of the gradients. */
static uint64_t net_hash(void *trial) {
    const struct weir_net *net = ((struct trial *)trial)->net;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint32_t i = 0; i < weir_net_parameter_count(net); i++) {
        struct weir_parameter parameter;
        bench_check(weir_net_parameter(net, i, &parameter), "a net");
        const uint32_t *words = parameter.gradient;
        for (uint64_t k = 0; k < parameter.count; k++)
            hash = (hash ^ words[k]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static void net_close(void *trial) {
    weir_net_destroy(((struct trial *)trial)->net);
}

#define NET_SUBJECT(called, steps, count, context)                                                 \
    {                                                                                              \
        .name = called, .steps_per_sample = steps, .rows = count, .new_context = context,          \
        .destroy_context = net_destroy_context, .layers = net_layers, .model = net_model,          \
        .open = net_open, .pipe = net_pipe, .step = net_step, .hash = net_hash, .close = net_close \
    }

const struct subject subject_gpt = NET_SUBJECT("gpt", 3, 8, gpt_context);
const struct subject subject_unet = NET_SUBJECT("unet", 3, 8, unet_context);
const struct subject subject_gpt_default = NET_SUBJECT("gpt", 1, 8, gpt_default_context);
const struct subject subject_unet_deep = NET_SUBJECT("unet", 1, 16, unet_deep_context);

/* SPDX-License-Identifier: MIT */
/* Networks whose kinds have their own times and whose stages are unequal: a GPT, and a U-Net with
 * skips over every cut. */
#include "simulate.h"

#include "weir_net.h"

enum { LAYERS = 6, WIDTH = 128, HEADS = 4, CONTEXT = 128, VOCABULARY = 256 };
enum { CHANNELS = 8, SIDE = 64, DEPTH = 3, PLANES_IN = 3 };
/* What --quick runs instead. */
enum { QUICK_WIDTH = 16, QUICK_CONTEXT = 8, QUICK_SIDE = 16 };

struct data {
    struct weir_model *model;
    void *input, *target;
};

struct trial {
    struct weir_net *net;
    const struct data *data;
};

static void *gpt_context(struct bench *bench) {
    bool quick = bench->options.quick;
    struct data *data = bench_take(bench, 1, sizeof *data);
    struct weir_gpt_options gpt = {.layers = LAYERS,
                                   .width = quick ? QUICK_WIDTH : WIDTH,
                                   .heads = HEADS,
                                   .context = quick ? QUICK_CONTEXT : CONTEXT,
                                   .vocab = VOCABULARY};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    uint64_t random = 1;
    size_t count = (size_t)SIMULATE_MICRO_BATCHES * CONTEXT;
    int64_t *input = bench_take(bench, count, sizeof *input);
    int64_t *target = bench_take(bench, count, sizeof *target);
    bench_check_faults(weir_model_gpt(NULL, &gpt, &faults, &data->model), "simulate/gpt", &faults);
    for (size_t i = 0; i < count; i++) {
        input[i] = (int64_t)(bench_random(&random) % VOCABULARY);
        target[i] = (int64_t)(bench_random(&random) % VOCABULARY);
    }
    data->input = input;
    data->target = target;
    return data;
}

static float *random_floats(struct bench *bench, size_t count, uint64_t seed) {
    float *values = bench_take(bench, count, sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = (float)(bench_random(&seed) >> 40) * 0x1p-24F;
    return values;
}

static void *unet_context(struct bench *bench) {
    struct data *data = bench_take(bench, 1, sizeof *data);
    struct weir_unet_options unet = WEIR_UNET_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    unet.num_convs = 2;
    unet.depth = DEPTH;
    unet.base_channels = CHANNELS;
    unet.height = unet.width = bench->options.quick ? QUICK_SIDE : SIDE;
    size_t plane = (size_t)SIMULATE_MICRO_BATCHES * unet.height * unet.width;
    bench_check_faults(weir_model_unet(NULL, &unet, &faults, &data->model), "simulate/unet",
                       &faults);
    data->input = random_floats(bench, PLANES_IN * plane, 1);
    data->target = random_floats(bench, plane, 2);
    return data;
}

static void net_destroy_context(void *context) {
    weir_model_destroy(((struct data *)context)->model);
}

static void *net_open(struct bench *bench, void *context, const struct weir_pipe_options *how,
                      uint32_t stages) {
    struct trial *trial = bench_take(bench, 1, sizeof *trial);
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    trial->data = context;
    options.pipe = *how;
    options.pipe.rows = options.pipe.chunks = SIMULATE_MICRO_BATCHES;
    options.stages = stages;
    options.optimizer.kind = WEIR_OPTIMIZER_NONE;
    bench_check_faults(weir_net_new(trial->data->model, &options, &faults, &trial->net),
                       "simulate/net", &faults);
    bench_check(weir_net_init(trial->net, 1), "simulate/net");
    return trial;
}

static struct weir_pipe *net_pipe(void *trial) {
    return weir_net_pipe(((struct trial *)trial)->net);
}

static void net_step(void *trial, struct weir_step_result *result) {
    struct trial *own = trial;
    struct weir_net_batch batch = {.rows = SIMULATE_MICRO_BATCHES,
                                   .input = own->data->input,
                                   .target = own->data->target,
                                   .no_update = true,
                                   .lr = -1.0};
    if (weir_net_step(own->net, &batch, result) != WEIR_OK)
        bench_die("simulate/net: a step failed: %s", result->error.message);
}

static void net_close(void *trial) {
    weir_net_destroy(((struct trial *)trial)->net);
}

const struct simulate_subject simulate_gpt = {.name = "gpt",
                                              .new_context = gpt_context,
                                              .destroy_context = net_destroy_context,
                                              .open = net_open,
                                              .pipe = net_pipe,
                                              .step = net_step,
                                              .close = net_close};
const struct simulate_subject simulate_unet = {.name = "unet",
                                               .new_context = unet_context,
                                               .destroy_context = net_destroy_context,
                                               .open = net_open,
                                               .pipe = net_pipe,
                                               .step = net_step,
                                               .close = net_close};

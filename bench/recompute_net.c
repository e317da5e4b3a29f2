/* SPDX-License-Identifier: MIT */
/* A small GPT: what recomputation gains where stages are unequal, F, R and B have their own times
 * and memory is busy. */
#include "recompute.h"

#include "weir_net.h"

#include <string.h>

enum { LAYERS = 4, WIDTH = 96, HEADS = 4, CONTEXT = 96, VOCABULARY = 256 };
/* What --quick runs instead. */
enum { QUICK_WIDTH = 16, QUICK_CONTEXT = 8 };

struct data {
    struct weir_model *model;
    int64_t input[RECOMPUTE_MICRO_BATCHES * CONTEXT], target[RECOMPUTE_MICRO_BATCHES * CONTEXT];
};

struct trial {
    struct weir_net *net;
    const struct data *data;
};

static void *net_context(struct bench *bench) {
    bool quick = bench->options.quick;
    struct data *data = bench_take(bench, 1, sizeof *data);
    struct weir_gpt_options gpt = {.layers = LAYERS,
                                   .width = quick ? QUICK_WIDTH : WIDTH,
                                   .heads = HEADS,
                                   .context = quick ? QUICK_CONTEXT : CONTEXT,
                                   .vocab = VOCABULARY};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    uint64_t random = 1;
    bench_check_faults(weir_model_gpt(NULL, &gpt, &faults, &data->model), "recompute/net", &faults);
    for (size_t i = 0; i < WEIR__COUNT_OF(data->input); i++) {
        data->input[i] = (int64_t)(bench_random(&random) % VOCABULARY);
        data->target[i] = (int64_t)(bench_random(&random) % VOCABULARY);
    }
    return data;
}

static void net_destroy_context(void *context) {
    weir_model_destroy(((struct data *)context)->model);
}

static void *net_open(struct bench *bench, void *context, const struct weir_pipe_options *how) {
    struct trial *trial = bench_take(bench, 1, sizeof *trial);
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    trial->data = context;
    options.pipe = *how;
    options.pipe.rows = options.pipe.chunks = RECOMPUTE_MICRO_BATCHES;
    options.stages = RECOMPUTE_STAGES;
    options.optimizer.kind = WEIR_OPTIMIZER_NONE;
    bench_check_faults(weir_net_new(trial->data->model, &options, &faults, &trial->net),
                       "recompute/net", &faults);
    bench_check(weir_net_init(trial->net, 1), "recompute/net");
    return trial;
}

static struct weir_pipe *net_pipe(void *trial) {
    return weir_net_pipe(((struct trial *)trial)->net);
}

static void net_step(void *trial, struct weir_step_result *result) {
    struct trial *own = trial;
    struct weir_net_batch batch = {.rows = RECOMPUTE_MICRO_BATCHES,
                                   .input = own->data->input,
                                   .target = own->data->target,
                                   .no_update = true,
                                   .lr = -1.0};
    if (weir_net_step(own->net, &batch, result) != WEIR_OK)
        bench_die("recompute/net: a step failed: %s", result->error.message);
}

static size_t net_gradients(void *trial, unsigned char *out) {
    struct trial *own = trial;
    size_t bytes = 0;
    for (uint32_t i = 0; i < weir_net_parameter_count(own->net); i++) {
        struct weir_parameter parameter;
        bench_check(weir_net_parameter(own->net, i, &parameter), "recompute/net");
        size_t own_bytes = (size_t)parameter.count * sizeof(float);
        if (out != NULL) memcpy(out + bytes, parameter.gradient, own_bytes);
        bytes += own_bytes;
    }
    return bytes;
}

static void net_close(void *trial) {
    weir_net_destroy(((struct trial *)trial)->net);
}

const struct recompute_subject recompute_net = {.name = "gpt",
                                                .copy_count = 3,
                                                .copies = {0.0, 0.25, 1.0},
                                                .new_context = net_context,
                                                .destroy_context = net_destroy_context,
                                                .open = net_open,
                                                .pipe = net_pipe,
                                                .step = net_step,
                                                .gradients = net_gradients,
                                                .close = net_close};

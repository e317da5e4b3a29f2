/* SPDX-License-Identifier: MIT */
/* A small GPT: what recomputation gains where stages are unequal, F, R and B have their own times
 * and memory is busy. */
#include "recompute.h"
#include "subject.h"

#include <string.h>

static void *net_context(struct bench *bench) {
    struct weir_gpt_options gpt = {
        .layers = 4, .width = 96, .heads = 4, .context = 96, .vocab = 256};
    return subject_gpt_context(bench, gpt, RECOMPUTE_MICRO_BATCHES);
}

static void net_destroy_context(void *context) {
    subject_gpt.destroy_context(context);
}

static void *net_open(struct bench *bench, void *context, const struct weir_pipe_options *how) {
    struct weir_pipe_options options = *how;
    options.rows = options.chunks = RECOMPUTE_MICRO_BATCHES;
    return subject_gpt.open(bench, context, &options, RECOMPUTE_STAGES, NULL);
}

static struct weir_pipe *net_pipe(void *trial) {
    return subject_gpt.pipe(trial);
}

static void net_step(void *trial, struct weir_step_result *result) {
    subject_gpt.step(trial, result);
}

static size_t net_gradients(void *trial, unsigned char *out) {
    const struct weir_net *net = subject_net(trial);
    size_t bytes = 0;
    for (uint32_t i = 0; i < weir_net_parameter_count(net); i++) {
        struct weir_parameter parameter;
        bench_check(weir_net_parameter(net, i, &parameter), "recompute/net");
        size_t own_bytes = (size_t)parameter.count * sizeof(float);
        if (out != NULL) memcpy(out + bytes, parameter.gradient, own_bytes);
        bytes += own_bytes;
    }
    return bytes;
}

static void net_close(void *trial) {
    subject_gpt.close(trial);
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

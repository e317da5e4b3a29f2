/* SPDX-License-Identifier: MIT */
/** `weir train`, in parts: the options (cmd_train.c), the run (train_run.c), what a person and a
 * program see of it (train_print.c), and the sample (train_sample.c). */
#ifndef WEIR_TOOLS_TRAIN_H
#define WEIR_TOOLS_TRAIN_H

#include "io/corpus.h"
#include "model_options.h"
#include "output.h"
#include "pipe_options.h"

struct train_values {
    struct model_options model;
    struct pipe_options pipe;
    struct arg_paths data;
    uint64_t steps;
    double epochs;
    uint32_t batch, accumulate;
    uint32_t optimizer;   /**< adamw, sgd */
    uint32_t lr_schedule; /**< constant, cosine */
    double lr, weight_decay, momentum, beta1, beta2, eps, clip;
    uint64_t warmup;
    bool nesterov;
    uint32_t on_nonfinite; /**< stop, skip */
    uint64_t eval_every, log_every, save_every;
    uint32_t eval_batches, sample;
    const char *save, *resume, *save_weights, *trace, *json;
};

/** A training run. Zeroed, then cleaned up as a whole. */
struct train {
    struct train_values *values;
    struct weir_faults *faults;
    struct weir_error *error;
    struct people people;
    struct output json;
    struct weir_model *model;
    struct weir_net *net;
    struct weir_net_options options;
    struct pipe_storage storage;
    struct weir__corpus corpus;
    struct weir_progress progress;
    uint64_t steps; /**< updates in all, from the very beginning */
    int64_t *inputs, *targets;
    double bigram, validation; /**< nats per byte, on the same held-out rows */
    uint64_t eval_rows;
    bool interrupted;
};

/** One update, as it is reported. */
struct train_line {
    uint64_t step;
    double loss, grad_norm, lr, seconds, tokens_per_second, bubble, recompute_hidden;
    bool updated;
};

/** Opens data, builds the net, initialises or resumes. */
int train_begin(struct train *t, const struct args *args);
/** All updates, saves and evaluations. */
int train_loop(struct train *t);
/** Ctrl-C was pressed: what is under way is to be ended in good order. */
bool train_interrupted(void);
/** Mean loss on the first held-out rows, in nats per byte. */
int train_evaluate(struct train *t, double *loss);
/** Writes the sample: `count` bytes drawn from the model, after a prompt. */
int train_sample(struct train *t, uint32_t count);

/** The tables before the first step. */
void train_print_header(const struct train *t);
void train_print_line(struct train *t, const struct train_line *line);
int train_json_line(struct train *t, const struct train_line *line);
void train_print_validation(struct train *t, uint64_t step, double loss);
/** Timeline of the last step, and the trace's file. */
int train_print_timeline(struct train *t);
void train_print_summary(struct train *t, const struct train_line *medians);
int train_json_summary(struct train *t, const struct train_line *medians);
/** The summary of a run that failed: how far it came and why it went no further. */
int train_json_failure(struct train *t);

#endif

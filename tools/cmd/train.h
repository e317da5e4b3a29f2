/* SPDX-License-Identifier: MIT */
/** `weir train`, in parts: the options (cmd_train.c), the data (train_data.c), the run
 * (train_run.c), validation (train_eval.c), checkpoints (train_save.c, its thread train_saver.c,
 * former ones train_former.c, whether all ranks see them train_probe.c), what a gradient that is
 * not finite comes from (train_explain.c), what a checkpoint says of its run (train_resume.c), what
 * a person and a program see of it (train_print.c, train_log.c), its page (train_report.c), and the
 * sample (train_sample.c). Nothing here knows models by their names: their input, target and loss
 * decide.
 */
#ifndef WEIR_TOOLS_TRAIN_H
#define WEIR_TOOLS_TRAIN_H

#include "data/prefetch.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/pipe_options.h"
#include "cli/search.h"
#include "cmd/task.h"
#include "cmd/train_log.h"
#include "cmd/train_report.h"
#include "cmd/train_save.h"

struct weir__archive;

struct train_values {
    struct model_options model;
    struct pipe_options pipe;
    uint32_t plan; /**< given, auto */
    struct arg_paths data, eval_data;
    uint64_t steps;
    double epochs;
    uint32_t batch, accumulate;
    uint32_t optimizer;   /**< adamw, sgd */
    uint32_t lr_schedule; /**< constant, cosine */
    double peer_timeout;
    double lr, weight_decay, momentum, beta1, beta2, eps, clip;
    uint64_t warmup;
    bool nesterov;
    uint32_t on_nonfinite; /**< stop, skip */
    uint64_t eval_every, log_every, save_every;
    uint32_t eval_batches, sample, keep;
    uint32_t form; /**< --template */
    bool no_pack;
    struct arg_words sample_prompts;
    bool keep_best, quiet;
    uint32_t load_strict; /**< true, false */
    const char *save, *load, *resume, *save_weights, *save_adapter, *trace, *report, *json,
        *log_dir;
};

#define TRAIN_OWN_PATHS 6
#define TRAIN_NOTES_MAX 26

/** What is kept in a checkpoint to compare with when it is resumed; keys and values are owned. */
struct train_notes {
    struct weir_note list[TRAIN_NOTES_MAX];
    uint32_t count;
};

/** A training run. Zeroed, then cleaned up as a whole. */
struct train {
    struct train_values *values;
    struct weir_faults *faults;
    struct weir_error *error;
    const struct args *args;
    struct people people;
    struct output json;
    struct train_report *report;
    struct weir_model *model;
    struct weir_net *net;
    struct weir_net_options options;
    struct pipe_storage storage;
    struct search search;                   /**< where train_searches */
    const char *own_paths[TRAIN_OWN_PATHS]; /**< what is trained on without --data */
    struct task task;                       /**< what is trained on, and validation */
    struct weir__prefetch *prefetch;        /**< its thread reads task, data_seed and values */
    uint64_t data_seed;
    struct progress shown; /**< the line that renews itself */
    bool has_columns;      /**< the updates' table has its head */
    struct train_log log;
    struct weir_progress progress;
    struct train_notes notes;
    char order[WEIR_ORDER_BYTES]; /**< of gradients, as a resumed run began; "": as it comes */
    struct train_save save;
    bool other_state; /**< a resumed run's is not for this optimizer */
    uint64_t steps;   /**< updates in all, from the very beginning */
    double bigram;    /**< nats per byte, on the same held-out rows; NaN where it is not text */
    struct task_score score;
    uint64_t eval_rows;
    bool unexplained, explained; /**< the first update that was skipped */
    struct ranks ranks;
};

/** One update, as it is reported. */
struct train_line {
    uint64_t step;
    double loss, grad_norm, lr, seconds, bubble, recompute_hidden;
    double units_per_second; /**< tokens or samples */
    bool updated;
    bool scored; /**< validation followed it */
    struct task_score score;
};

/** Opens data, builds the net, initialises or resumes. */
int train_begin(struct train *t, const struct args *args);
/** Whether the run was asked to end before its last update. */
bool train_is_stopped(const struct train *t);
/** All updates, saves and evaluations. */
int train_loop(struct train *t);

/* The data: open; the model, whose shape may be theirs; bind, once the dtype is known; start, once
 * the position is. Faults are listed as far as they can be found. */

int train_data_open(struct train *t);
int train_data_build_model(struct train *t, const struct args *args);
int train_data_bind(struct train *t);
int train_data_start(struct train *t);
/** The weight of all targets of the coming update. */
int train_data_weight(struct train *t, double *weight);
/** Updates that make so many passes over the data. */
uint64_t train_data_steps(const struct train *t, double epochs);
void train_data_clean_up(struct train *t);

/** The message of an update whose gradient is not finite: whether the input, a parameter or which
 * layer first held such a number. */
void train_explain_failure(struct train *t);
/** The same as a warning, of an update that was skipped. */
void train_explain_skip(struct train *t);

/** Held-out rows that a validation looks at. */
uint64_t train_eval_rows(const struct train *t);
/** Loss and metric on those. */
int train_evaluate(struct train *t, struct task_score *score);

/** The rate of update `update`, from 0, of a run of `steps`. */
double train_rate(const struct train *t, uint64_t update, uint64_t steps);

/** Whether the pipeline is searched: with --plan auto, but a table leaves nothing to search, who
 * asks for --balance-by has the cut that follows, and CPUs beside GPUs have no estimates; where
 * --plan is given these are refused. */
bool train_searches(const struct train *t);

/** A resumed run's dropout and data go on with the seed that it began with, and a search leaves it
 * its chunks and its order of accumulation. */
int train_read_origin(struct train *t, const struct args *args);
/** Started by `weir launch` to go on: the bits of the level of kernels that the checkpoint was made
 * by, which the hosts that remain may not be of by themselves, into `bits`; else NULL. */
const char *train_read_bits(const struct train *t, char bits[64]);
/** What decides the bits of this run; train_notes_clean_up, also after a failure. */
int train_notes_make(const struct train *t, struct train_notes *notes);
void train_notes_clean_up(struct train_notes *notes);
/** Whether a checkpoint says of itself what t->notes do: the model and the data; with `all` the
 * rest that decides bits too, but for the run's end. */
bool train_notes_match(const struct train *t, const struct weir__archive *file, bool all);
/** Compares t->notes with those of the checkpoint that is resumed: faults for another model or
 * optimizer. */
int train_notes_check(struct train *t);
/** Warnings on stderr for all that breaks "bit for bit as if never stopped". */
int train_notes_warn(struct train *t);

/** Whether the model gives text: bytes, or tokens of its tokenizer. */
bool train_has_samples(const struct train *t);
/** Writes samples: each --sample-prompt, or one of the data's, and what the model puts after it,
 * --sample bytes or tokens at most. Of what cannot be sampled that is said, and no failure of the
 * run. */
void train_sample(struct train *t);

/** "tokens_per_second" or "samples_per_second", for programs. */
const char *train_rate_key(const struct train *t);
/** Seconds that --plan auto predicted for a step; 0 without it. */
double train_planned_step(const struct train *t);
/** The tables before the first update; the clock starts. */
void train_print_header(struct train *t);
/** An update, if it is to be shown. */
void train_print_line(struct train *t, const struct train_line *line);
int train_json_line(struct train *t, const struct train_line *line);
void train_print_validation(struct train *t, uint64_t step, const struct task_score *score);
/** Timeline of the last step, and the trace's file. */
int train_print_timeline(struct train *t);
void train_print_summary(struct train *t, const struct train_line *medians);
int train_json_summary(struct train *t, const struct train_line *medians);
/** The summary of a run that failed: how far it came and why it went no further. */
int train_json_failure(struct train *t);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * What a model is asked and how its answers are evaluated: rows of a data set in the dtypes of
 * steps, and over them the loss, for classes how many labels are right, for masks how well they
 * overlap. Shared by the validation of `weir train` and by `weir eval`. Nothing here knows models
 * by their names: their input, target and loss decide.
 */
#ifndef WEIR_TOOLS_TASK_H
#define WEIR_TOOLS_TASK_H

#include "data/dataset.h"
#include "cli/ranks.h"
#include "text/model_text.h"
#include "weir_net.h"

#include <jansson.h>

/** What it is evaluated by. */
enum task_metric {
    TASK_NATS,     /**< of text and tokens: the loss per byte or token */
    TASK_ACCURACY, /**< of classes: how many labels are right */
    TASK_IOU,      /**< of masks: intersection over union, at a probability of 1/2 */
    TASK_LOSS,     /**< else: the loss */
    TASK_OUTPUTS   /**< what it gives is wanted, not how good it is */
};

/** Zeroed; then come a data set (the caller's to open, closed with the task), the model, the
 * binding, memory, and rows. */
struct task {
    struct model_text words; /**< of a model with a tokenizer; else there is none in it */
    struct weir__dataset *dataset;
    const struct weir_model *model;
    const struct weir__dataset_facts *data;
    struct weir_tensor input, target, output; /**< one row each, in the dtypes of steps */
    int64_t classes;                          /**< the output's last dimension */
    uint64_t target_numbers;                  /**< of a row's target */
    double row_units;    /**< tokens of a row, without padding on average; 1 for samples */
    uint64_t parameters; /**< the model's numbers */
    bool predicts; /**< set before the binding: outputs are wanted, and there are no targets */
    enum task_metric metric;
    uint32_t batch; /**< rows of a mini-batch; may be lowered until there is memory for it */
    size_t input_bytes, target_bytes, output_bytes;
    void *inputs, *targets, *outputs; /**< of a mini-batch; outputs only where they are looked at */
    struct ranks *ranks;              /**< who run the steps, and hear of signals by them */
};

/** Whose text it is. */
struct task_text {
    const char *folder; /**< --model, where that is a folder of transformers; else NULL */
    uint32_t form;      /**< --template, in model_text_templates */
    bool form_given;    /**< on the command line */
    bool no_pack;       /**< likewise */
};
/** Opens the tokenizer of the folder, if it has one, and the data set of `options` by it; of
 * conversations the chat template, too. What is refused is a line in `faults`. */
int task_open_data(struct task *task, const struct task_text *text,
                   struct weir__dataset_options *options, struct weir_faults *faults,
                   struct weir_error *error);
/** Whether rows shall hold several conversations: those do, unless `refused` or a worker is a GPU,
 * whose kernels take rows whole. `devices`: --device. */
bool task_packs(const struct task *task, const struct arg_texts *devices, bool refused);
/** Takes the model's border, in the dtypes of steps at `dtype`. Returns its loss, or NULL. The
 * model must outlive the task. */
const char *task_take_model(struct task *task, const struct weir_model *model,
                            enum weir_dtype dtype);
/** Binds the data set to the model, which has a loss unless `predicts`. Every fault is a line in
 * `faults`. */
int task_bind(struct task *task, uint32_t batch, struct weir_faults *faults,
              struct weir_error *error);
/** For inputs, targets and outputs of a mini-batch. */
int task_take_memory(struct task *task);
void task_clean_up(struct task *task);

/** "bytes", "tokens" or "samples": what row_units counts. */
const char *task_units(const struct task *task);

struct task_score {
    double loss;
    double accuracy; /**< of classes, or of a mask's pixels */
    double iou;      /**< over all masks together */
    double weight;   /**< of all targets: of text and tokens how many were judged */
};

/** What is counted over rows. Begins zeroed. */
struct task_tally {
    double loss, weight; /**< sum of losses times weights */
    uint64_t right, labels;
    uint64_t both, either; /**< numbers that are of the mask by both, by one or the other */
};

/** Prepares the steps that evaluate `rows` rows, mini-batch by mini-batch and last what is left
 * over, so that none fails for memory at the end. */
int task_prepare(const struct task *task, struct weir_net *net, uint64_t rows,
                 struct weir_faults *faults);
/** Runs held-out rows first … first + rows - 1, at most a mini-batch, forward: inputs, targets and
 * outputs are theirs then. */
int task_run(struct task *task, struct weir_net *net, uint64_t first, uint32_t rows,
             struct weir_step_result *result, struct weir_error *error);
/** Judges held-out rows first … first + rows - 1, at most a mini-batch. */
int task_evaluate(struct task *task, struct weir_net *net, uint64_t first, uint32_t rows,
                  struct task_tally *tally, struct weir_error *error);
struct task_score task_score_of(const struct task_tally *tally);

/** "1.3612 nats/byte", "loss 0.0712, accuracy 97.85%" into `text`; returns it. */
const char *task_score_text(const struct task *task, const struct task_score *score,
                            char text[128]);
/** Adds the metric's own fields to an object: `perplexity`, `accuracy`, or `iou` and
 * `pixel_accuracy`. */
void task_score_json(const struct task *task, const struct task_score *score, json_t *to);

#endif

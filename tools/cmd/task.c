/* SPDX-License-Identifier: MIT */
/* Binding, steps without update, and counting what came out. */
#include "cmd/task.h"

#include "base/base.h"
#include "cli/json_text.h"
#include "cli/net_run.h"
#include "device/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- data ---- */

/* Conversations are nothing to a model of bytes. */
static int check_conversations(const struct task_text *text,
                               const struct weir__dataset_options *options,
                               struct weir_faults *faults) {
    for (uint32_t i = 0; i < options->path_count + options->eval_path_count; i++) {
        bool trains = i < options->path_count;
        const char *path =
            trains ? options->paths[i] : options->eval_paths[i - options->path_count];
        if (options->text || !weir__dataset_has_chats(path)) continue;
        weir_faults_add(faults,
                        "--%s %.200s: conversations are read by the model's tokenizer: put its "
                        "tokenizer.json into %.200s",
                        trains ? "data" : "eval-data", path, text->folder);
        return WEIR_ERR_CONFIG;
    }
    return WEIR_OK;
}

static int choose_form(struct task *task, const struct task_text *text, const struct weir__io *io,
                       struct weir_faults *faults) {
    enum weir__data_kind kind = weir__dataset_kind(task->dataset);
    if (kind == WEIR__DATA_CHATS)
        return model_text_choose(io, text->folder, text->form, &task->words);
    if (text->no_pack)
        weir_faults_add(faults, "--no-pack means nothing without conversations (.jsonl): leave it "
                                "away");
    if (!text->form_given) return text->no_pack ? WEIR_ERR_CONFIG : WEIR_OK;
    weir_faults_add(faults, "--template means nothing without conversations (.jsonl) for a --model "
                            "with a tokenizer: leave it away");
    return WEIR_ERR_CONFIG;
}

/* A tokenizer or template that is not taken is refused like any other option. */
static int refuse(struct weir_faults *faults, const struct weir_error *error, int status) {
    if (status == WEIR_ERR_OUT_OF_MEMORY || error->message[0] == '\0') return status;
    weir_faults_add(faults, "%s", error->message);
    return WEIR_ERR_CONFIG;
}

static int check_predicts(const struct task *task, struct weir_faults *faults) {
    enum weir__data_kind kind = weir__dataset_kind(task->dataset);
    if (!task->predicts || (kind != WEIR__DATA_WORDS && kind != WEIR__DATA_CHATS)) return WEIR_OK;
    weir_faults_add(faults, "--data is text, and outputs come for rows without padding: give "
                            "tokens, a .npy file or llm.c's .bin (weir tokenize makes them)");
    return WEIR_ERR_CONFIG;
}

int task_open_data(struct task *task, const struct task_text *text,
                   struct weir__dataset_options *options, struct weir_faults *faults,
                   struct weir_error *error) {
    struct weir_error own = {.status = WEIR_OK};
    struct weir__io io = {.error = &own};
    bool has_words = text->folder != NULL && model_text_is(&io, text->folder);
    int opened = has_words ? model_text_open(&io, text->folder, &task->words) : WEIR_OK, status;
    if (opened == WEIR_ERR_OUT_OF_MEMORY) return opened;
    if (text->folder != NULL && !has_words) {
        status = check_conversations(text, options, faults);
        if (status != WEIR_OK) return status;
    }
    options->words = has_words && opened == WEIR_OK ? &task->words : NULL;
    io.error = error;
    status = weir__dataset_open(&io, options, faults, &task->dataset);
    if (status != WEIR_OK) return status;
    io.error = &own;
    /* of tokens and arrays nobody needs the tokenizer */
    bool lacks_words = opened != WEIR_OK && weir__dataset_kind(task->dataset) == WEIR__DATA_TEXT;
    status = lacks_words ? opened : choose_form(task, text, &io, faults);
    status = status != WEIR_OK ? refuse(faults, &own, status) : check_predicts(task, faults);
    if (status == WEIR_OK) return WEIR_OK;
    weir__dataset_close(task->dataset); /* which cannot be bound */
    task->dataset = NULL;
    return status;
}

bool task_packs(const struct task *task, const struct arg_texts *devices, bool refused) {
    for (uint32_t i = 0; i < devices->count; i++)
        if (!weir__device_facts(arg_texts_get(devices, i)).synchronous) return false;
    return !refused && task->dataset != NULL &&
           weir__dataset_kind(task->dataset) == WEIR__DATA_CHATS;
}

/* ---- the model's side ---- */

/* What goes in is F32 where the run is in BF16. */
static enum weir_dtype step_dtype(enum weir_dtype dtype, enum weir_dtype wanted) {
    if (!weir_dtype_is_float(dtype)) return dtype;
    return wanted == WEIR_F64 ? WEIR_F64 : WEIR_F32;
}

static int find_output(struct task *task, struct weir_faults *faults) {
    uint32_t layers = weir_model_layer_count(task->model);
    struct weir_layer_facts *facts = calloc(layers + 1, sizeof *facts);
    if (facts == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir_model_infer(task->model, WEIR_F32, facts, faults);
    if (status == WEIR_OK) task->output = layers > 0 ? facts[layers - 1].output : task->input;
    for (uint32_t i = 0; i < layers && status == WEIR_OK; i++)
        task->parameters += facts[i].parameters;
    free(facts);
    return status;
}

static enum task_metric metric_of(const struct task *task, const char *loss) {
    if (task->predicts) return TASK_OUTPUTS;
    if (weir__dataset_kind(task->dataset) != WEIR__DATA_ARRAYS) return TASK_NATS;
    if (strcmp(loss, "cross_entropy") == 0) return TASK_ACCURACY;
    return strcmp(loss, "bce_with_logits") == 0 ? TASK_IOU : TASK_LOSS;
}

static uint64_t count_numbers(const struct weir_tensor *tensor) {
    uint64_t count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) count *= (uint64_t)tensor->shape[i];
    return count;
}

const char *task_take_model(struct task *task, const struct weir_model *model,
                            enum weir_dtype dtype) {
    const char *loss;
    task->model = model;
    weir_model_border(model, &task->input, &task->target, &loss);
    task->input.dtype = step_dtype(task->input.dtype, dtype);
    task->target.dtype = step_dtype(task->target.dtype, dtype);
    task->output.dtype = dtype;
    return loss;
}

int task_bind(struct task *task, uint32_t batch, struct weir_faults *faults,
              struct weir_error *error) {
    struct weir__io io = {.error = error};
    struct weir_tensor input, target;
    const char *loss;
    enum weir_dtype dtype = task->output.dtype;
    int status = find_output(task, faults);
    if (status != WEIR_OK) return status;
    if (weir_dtype_is_float(task->output.dtype)) task->output.dtype = dtype;
    task->classes = task->output.rank > 0 ? task->output.shape[task->output.rank - 1] : 0;
    weir_model_border(task->model, &input, &target, &loss);
    struct weir__dataset_model model = {task->input, task->target, loss, task->classes,
                                        weir_model_ignored(task->model)};
    if (task->predicts) { /* the net looks at tokens; what it gives need not be tokens */
        model.loss = NULL;
        model.classes = INT64_MAX;
    }
    status = weir__dataset_bind(task->dataset, &io, &model, faults);
    if (status != WEIR_OK) return status;
    task->data = weir__dataset_facts(task->dataset);
    task->metric = metric_of(task, loss);
    if (task->predicts) task->target = task->input; /* a text's rows are read with successors */
    task->target_numbers = count_numbers(&task->target);
    task->row_units = task->metric == TASK_NATS ? (double)task->target_numbers : 1.0;
    if (task->data->row_tokens > 0) task->row_units = task->data->row_tokens;
    task->batch = batch;
    return WEIR_OK;
}

/* Of a mini-batch. */
static int measure(struct task *task) {
    const struct weir_tensor *tensors[] = {&task->input, &task->target, &task->output};
    size_t *bytes[] = {&task->input_bytes, &task->target_bytes, &task->output_bytes};
    for (int i = 0; i < 3; i++) {
        int status = weir__tensor_bytes(tensors[i], task->batch, bytes[i]);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static void *take(size_t bytes) {
    return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
}

int task_take_memory(struct task *task) {
    bool by_outputs = task->metric != TASK_NATS && task->metric != TASK_LOSS;
    int status = measure(task);
    if (status != WEIR_OK) return status;
    task->inputs = take(task->input_bytes);
    task->targets = take(task->target_bytes);
    task->outputs = by_outputs ? take(task->output_bytes) : NULL;
    bool all =
        task->inputs != NULL && task->targets != NULL && by_outputs == (task->outputs != NULL);
    return all ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

void task_clean_up(struct task *task) {
    weir__dataset_close(task->dataset);
    model_text_close(&task->words);
    free(task->inputs);
    free(task->targets);
    free(task->outputs);
    *task = (struct task){0};
}

const char *task_units(const struct task *task) {
    static const char *const names[] = {[WEIR__DATA_TEXT] = "bytes",
                                        [WEIR__DATA_TOKENS] = "tokens",
                                        [WEIR__DATA_ARRAYS] = "samples",
                                        [WEIR__DATA_WORDS] = "tokens",
                                        [WEIR__DATA_CHATS] = "tokens"};
    return names[task->data->kind];
}

/* ---- counting ---- */

/* The first of the largest logits is the answer. */
static void count_labels(const struct task *task, uint32_t rows, struct task_tally *tally) {
    const int64_t *labels = task->targets;
    uint64_t count = rows * task->target_numbers, classes = (uint64_t)task->classes;
    for (uint64_t i = 0; i < count; i++) {
        if (labels[i] == weir_model_ignored(task->model)) continue;
        uint64_t best = 0;
        for (uint64_t c = 1; c < classes; c++)
            if (weir__number_at(task->output.dtype, task->outputs, i * classes + c) >
                weir__number_at(task->output.dtype, task->outputs, i * classes + best))
                best = c;
        tally->right += (int64_t)best == labels[i];
        tally->labels++;
    }
}

/* A logit above 0 is a probability above one half. */
static void count_masks(const struct task *task, uint32_t rows, struct task_tally *tally) {
    uint64_t count = rows * task->target_numbers;
    for (uint64_t i = 0; i < count; i++) {
        bool found = weir__number_at(task->output.dtype, task->outputs, i) > 0;
        bool wanted = weir__number_at(task->target.dtype, task->targets, i) > 0.5;
        tally->both += found && wanted;
        tally->either += found || wanted;
        tally->right += found == wanted;
    }
    tally->labels += count;
}

/* ---- rows ---- */

int task_prepare(const struct task *task, struct weir_net *net, uint64_t rows,
                 struct weir_faults *faults) {
    int64_t rest = (int64_t)(rows % task->batch);
    return rest == 0 ? WEIR_OK : weir_pipe_prepare_infer(weir_net_pipe(net), rest, faults);
}

int task_run(struct task *task, struct weir_net *net, uint64_t first, uint32_t rows,
             struct weir_step_result *result, struct weir_error *error) {
    struct weir__io io = {.error = error};
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = rows;
    batch.input = task->inputs;
    batch.target = task->predicts ? NULL : task->targets;
    batch.output = task->outputs;
    batch.flags = ranks_flags();
    int status =
        weir__dataset_read_held_out(task->dataset, &io, first, rows, task->inputs, task->targets);
    if (status != WEIR_OK) return status;
    status = weir_net_infer(net, &batch, result);
    ranks_heard(task->ranks, status, result->flags);
    if (status != WEIR_OK) net_run_error(&result->error, error);
    return status;
}

int task_evaluate(struct task *task, struct weir_net *net, uint64_t first, uint32_t rows,
                  struct task_tally *tally, struct weir_error *error) {
    struct weir_step_result result;
    int status = task_run(task, net, first, rows, &result, error);
    if (status != WEIR_OK) return status;
    double weight = weir_net_loss_weight(net, task->targets, rows);
    tally->loss += result.loss * weight;
    tally->weight += weight;
    if (task->metric == TASK_ACCURACY) count_labels(task, rows, tally);
    if (task->metric == TASK_IOU) count_masks(task, rows, tally);
    return WEIR_OK;
}

struct task_score task_score_of(const struct task_tally *tally) {
    struct task_score score = {.loss = tally->loss / tally->weight,
                               .accuracy = (double)tally->right / (double)tally->labels,
                               .iou = (double)tally->both / (double)tally->either,
                               .weight = tally->weight};
    if (tally->either == 0) score.iou = 1.0; /* no mask, and none found */
    return score;
}

/* ---- telling ---- */

const char *task_score_text(const struct task *task, const struct task_score *score,
                            char text[128]) {
    switch (task->metric) {
    case TASK_NATS:
        if (task->data->kind == WEIR__DATA_TEXT)
            snprintf(text, 128, "%.4f nats/byte", score->loss);
        else
            snprintf(text, 128, "%.4f nats/token, perplexity %.4g", score->loss, exp(score->loss));
        break;
    case TASK_ACCURACY:
        snprintf(text, 128, "loss %.4f, accuracy %.2f%%", score->loss, score->accuracy * 100.0);
        break;
    case TASK_IOU:
        snprintf(text, 128, "loss %.4f, IoU %.4f, pixel accuracy %.2f%%", score->loss, score->iou,
                 score->accuracy * 100.0);
        break;
    default: snprintf(text, 128, "loss %.4f", score->loss);
    }
    return text;
}

void task_score_json(const struct task *task, const struct task_score *score, json_t *to) {
    if (task->metric == TASK_NATS)
        json_object_set_new(to, "perplexity", json_text_real(exp(score->loss)));
    if (task->metric == TASK_ACCURACY)
        json_object_set_new(to, "accuracy", json_text_real(score->accuracy));
    if (task->metric != TASK_IOU) return;
    json_object_set_new(to, "iou", json_text_real(score->iou));
    json_object_set_new(to, "pixel_accuracy", json_text_real(score->accuracy));
}

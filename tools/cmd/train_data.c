/* SPDX-License-Identifier: MIT */
/* What is trained on: from paths to mini-batches, read ahead. The data come before the model, whose
 * shape may be theirs; then they are bound to what the model takes. */
#include "cmd/train.h"
#include "weir_models.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

/* One is trained on, one is ready, one is being read. */
enum { BATCHES = 3 };

static const char *const own_text[] = {"src", "kernels", "bench", "tests", "tools", "README.md"};
enum { OWN_TEXT = sizeof own_text / sizeof own_text[0] };
_Static_assert(OWN_TEXT <= TRAIN_OWN_PATHS, "the project's own text has its place");

/* ---- opening ---- */

/* The project's own text, as far as it is here. */
static int choose_own_text(struct train *t, struct weir__dataset_options *options) {
    struct stat facts;
    options->paths = t->own_paths;
    options->text = true;
    for (int i = 0; i < OWN_TEXT; i++)
        if (stat(own_text[i], &facts) == 0) t->own_paths[options->path_count++] = own_text[i];
    if (options->path_count > 0) return WEIR_OK;
    weir_faults_add(t->faults, "no --data, and no project text (src, bench, tests, tools, "
                               "README.md) in this folder: give --data PATH...");
    return WEIR_ERR_CONFIG;
}

int train_data_open(struct train *t) {
    const struct train_values *values = t->values;
    struct weir__dataset_options options = {values->data.items, values->data.count,
                                            values->eval_data.items, values->eval_data.count,
                                            false};
    bool folder = model_options_is_folder(&values->model);
    struct task_text text = {folder ? values->model.model : NULL, values->form,
                             args_given(t->args, "template"), values->no_pack};
    int status = options.path_count > 0 ? WEIR_OK : choose_own_text(t, &options);
    if (status != WEIR_OK) return status;
    return task_open_data(&t->task, &text, &options, t->faults, t->error);
}

int train_data_build_model(struct train *t, const struct args *args) {
    struct weir_tensor input, target;
    const struct train_values *values = t->values;
    struct model_data data = {.packed =
                                  task_packs(&t->task, &values->pipe.device, values->no_pack)};
    if (t->task.dataset != NULL && weir__dataset_kind(t->task.dataset) == WEIR__DATA_ARRAYS) {
        weir__dataset_sample(t->task.dataset, &input, &target);
        data = (struct model_data){&input, &target, false};
    }
    int status = model_options_build(&values->model, args, &data, t->faults, &t->model);
    if (status == WEIR_OK && values->save_adapter != NULL && weir_model_adapters(t->model) == NULL)
        weir_faults_add(t->faults, "--save-adapter: there are none: give --lora-rank or --adapter");
    return status;
}

/* ---- binding ---- */

/* Text is what one gets who names no data: not what an image model is to be told. */
static bool lacks_data(struct train *t) {
    bool tokens = t->task.input.dtype == WEIR_I64 && t->task.input.rank == 1;
    if (t->values->data.count > 0 || t->task.dataset == NULL || tokens) return false;
    weir_faults_add(t->faults, "--data is missing: give a .npy or IDX file of inputs and one of "
                               "targets, or a folder with both");
    return true;
}

int train_data_bind(struct train *t) {
    const char *loss = task_take_model(&t->task, t->model, t->options.dtype);
    if (loss == NULL) return WEIR_OK; /* the net says that it cannot be trained */
    if (lacks_data(t) || t->task.dataset == NULL) return WEIR_ERR_CONFIG;
    int status = task_bind(&t->task, t->values->batch, t->faults, t->error);
    if (status == WEIR_OK && t->values->sample_prompts.count > 0 && !train_has_samples(t))
        weir_faults_add(t->faults, "--sample-prompt: %s: leave it away",
                        args_given(t->args, "sample") && t->values->sample == 0
                            ? "--sample 0 asks for no samples"
                            : "without a text or a tokenizer there are no samples");
    if (status != WEIR_OK || t->task.parameters > 0) return status;
    weir_faults_add(t->faults, "the model has no parameters: there is nothing to train");
    t->options.pipe.clip_norm = 0; /* what the pipe would say of that is no news */
    return WEIR_ERR_CONFIG;
}

/* ---- mini-batches ---- */

static int fill(void *context, uint64_t number, void *input, void *target,
                struct weir_error *error) {
    const struct train *t = context; /* what is read here does not change during the run */
    struct weir__io io = {.error = error};
    const struct weir_pipe *pipe = weir_net_pipe(t->net);
    uint32_t rows = t->values->batch;
    int64_t first, count, first_target, targets;
    weir_pipe_input_rows(pipe, 0, rows, &first, &count);
    weir_pipe_input_rows(pipe, 1, rows, &first_target, &targets);
    if (count == 0 && targets == 0) return WEIR_OK; /* other ranks have them */
    assert(count == 0 || targets == 0 || (first == first_target && count == targets));
    return weir__dataset_read_part(t->task.dataset, &io, t->data_seed, number, rows,
                                   (uint32_t)(count > 0 ? first : first_target),
                                   (uint32_t)(count > 0 ? count : targets),
                                   count > 0 ? input : NULL, target);
}

int train_data_start(struct train *t) {
    int status = task_take_memory(&t->task);
    if (status != WEIR_OK) return status;
    t->data_seed = t->progress.seed;
    struct weir__prefetch_options options = {.fill = fill,
                                             .context = t,
                                             .first = t->progress.mini_batch,
                                             .depth = BATCHES,
                                             .input_bytes = t->task.input_bytes,
                                             .target_bytes = t->task.target_bytes};
    return weir__prefetch_new(&options, t->error, &t->prefetch);
}

int train_data_weight(struct train *t, double *weight) {
    const struct train_values *values = t->values;
    struct weir__io io = {.error = t->error};
    *weight = 0;
    if (!t->task.data->ignores) {
        *weight = (double)t->task.target_numbers * values->batch * values->accumulate;
        return WEIR_OK;
    }
    for (uint32_t k = 0; k < values->accumulate; k++) {
        int status =
            weir__dataset_read(t->task.dataset, &io, t->data_seed, t->progress.mini_batch + k,
                               values->batch, NULL, t->task.targets);
        if (status != WEIR_OK) return status;
        *weight += weir_net_loss_weight(t->net, t->task.targets, values->batch);
    }
    if (*weight > 0) return WEIR_OK;
    return weir__fail(t->error, WEIR_ERR_CONFIG,
                      "update %" PRIu64 ": every target is the ignored label %" PRId64
                      ": raise --batch or --accumulate, or leave such samples away",
                      t->progress.step + 1, weir_model_ignored(t->model));
}

uint64_t train_data_steps(const struct train *t, double epochs) {
    double rows = (double)t->values->batch * t->values->accumulate;
    /* 1.1 is a little more than 1.1 as a double: that makes no update more */
    double steps = ceil(t->task.data->pass_rows * epochs / rows * (1.0 - 1e-12));
    return steps < 0x1p62 ? (uint64_t)steps : (uint64_t)1 << 62;
}

void train_data_clean_up(struct train *t) {
    weir__prefetch_destroy(t->prefetch);
    task_clean_up(&t->task);
}

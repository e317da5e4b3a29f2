/* SPDX-License-Identifier: MIT */
/* What is trained on: from paths to mini-batches, read ahead. The data come before the model, whose
 * shape may be theirs; then they are bound to what the model takes. */
#include "train.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
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
    struct weir__io io = {.error = t->error};
    struct weir__dataset_options options = {values->data.items, values->data.count,
                                            values->eval_data.items, values->eval_data.count,
                                            false};
    int status = options.path_count > 0 ? WEIR_OK : choose_own_text(t, &options);
    if (status != WEIR_OK) return status;
    return weir__dataset_open(&io, &options, t->faults, &t->dataset);
}

int train_data_build_model(struct train *t, const struct args *args) {
    struct weir_tensor input, target;
    struct model_data data = {NULL, NULL};
    if (t->dataset != NULL && weir__dataset_kind(t->dataset) == WEIR__DATA_ARRAYS) {
        weir__dataset_sample(t->dataset, &input, &target);
        data = (struct model_data){&input, &target};
    }
    return model_options_build(&t->values->model, args, &data, t->faults, &t->model);
}

/* ---- the model's side ---- */

/* What is not available here (bf16) has been refused already. */
static enum weir_dtype step_dtype(const struct train *t, enum weir_dtype dtype) {
    if (!weir_dtype_is_float(dtype)) return dtype;
    return t->options.dtype == WEIR_F64 ? WEIR_F64 : WEIR_F32;
}

static int find_output(struct train *t) {
    uint32_t layers = weir_model_layer_count(t->model);
    struct weir_layer_facts *facts = calloc(layers + 1, sizeof *facts);
    if (facts == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir_model_infer(t->model, WEIR_F32, facts, t->faults);
    if (status == WEIR_OK) t->output = layers > 0 ? facts[layers - 1].output : t->input;
    free(facts);
    return status;
}

static enum train_metric metric_of(const struct train *t, const char *loss) {
    if (weir__dataset_kind(t->dataset) != WEIR__DATA_ARRAYS) return TRAIN_METRIC_NATS;
    if (strcmp(loss, "cross_entropy") == 0) return TRAIN_METRIC_ACCURACY;
    return strcmp(loss, "bce_with_logits") == 0 ? TRAIN_METRIC_IOU : TRAIN_METRIC_LOSS;
}

static uint64_t count_numbers(const struct weir_tensor *tensor) {
    uint64_t count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) count *= (uint64_t)tensor->shape[i];
    return count;
}

static int measure(struct train *t) {
    const struct weir_tensor *tensors[] = {&t->input, &t->target, &t->output};
    size_t *bytes[] = {&t->input_bytes, &t->target_bytes, &t->output_bytes};
    for (int i = 0; i < 3; i++) {
        int status = weir__tensor_bytes(tensors[i], t->values->batch, bytes[i]);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* Text is what one gets who names no data: not what an image model is to be told. */
static bool lacks_data(struct train *t) {
    bool tokens = t->input.dtype == WEIR_I64 && t->input.rank == 1;
    if (t->values->data.count > 0 || t->dataset == NULL || tokens) return false;
    weir_faults_add(t->faults, "--data is missing: give a .npy or IDX file of inputs and one of "
                               "targets, or a folder with both");
    return true;
}

int train_data_bind(struct train *t) {
    struct weir__io io = {.error = t->error};
    const char *loss;
    weir_model_border(t->model, &t->input, &t->target, &loss);
    t->input.dtype = step_dtype(t, t->input.dtype);
    t->target.dtype = step_dtype(t, t->target.dtype);
    if (loss == NULL) return WEIR_OK; /* the net says that it cannot be trained */
    if (lacks_data(t)) return WEIR_ERR_CONFIG;
    if (t->dataset == NULL) return WEIR_ERR_CONFIG;
    int status = find_output(t);
    if (status != WEIR_OK) return status;
    t->output.dtype = step_dtype(t, t->output.dtype);
    t->classes = t->output.rank > 0 ? t->output.shape[t->output.rank - 1] : 0;
    struct weir__dataset_model model = {t->input, t->target, loss, t->classes,
                                        weir_model_ignored(t->model)};
    status = weir__dataset_bind(t->dataset, &io, &model, t->faults);
    if (status != WEIR_OK) return status;
    t->data = weir__dataset_facts(t->dataset);
    t->metric = metric_of(t, loss);
    t->row_units = t->metric == TRAIN_METRIC_NATS ? count_numbers(&t->target) : 1;
    return measure(t);
}

/* ---- mini-batches ---- */

static int fill(void *context, uint64_t number, void *input, void *target,
                struct weir_error *error) {
    const struct train *t = context; /* what is read here does not change during the run */
    struct weir__io io = {.error = error};
    return weir__dataset_read(t->dataset, &io, t->data_seed, number, t->values->batch, input,
                              target);
}

int train_data_start(struct train *t) {
    t->inputs = aligned_alloc(64, (t->input_bytes + 63) / 64 * 64 + 64);
    t->targets = aligned_alloc(64, (t->target_bytes + 63) / 64 * 64 + 64);
    if (t->metric == TRAIN_METRIC_ACCURACY || t->metric == TRAIN_METRIC_IOU) {
        t->outputs = aligned_alloc(64, (t->output_bytes + 63) / 64 * 64 + 64);
        if (t->outputs == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    }
    if (t->inputs == NULL || t->targets == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    t->data_seed = t->progress.seed;
    struct weir__prefetch_options options = {.fill = fill,
                                             .context = t,
                                             .first = t->progress.mini_batch,
                                             .depth = BATCHES,
                                             .input_bytes = t->input_bytes,
                                             .target_bytes = t->target_bytes};
    return weir__prefetch_new(&options, t->error, &t->prefetch);
}

int train_data_weight(struct train *t, double *weight) {
    const struct train_values *values = t->values;
    struct weir__io io = {.error = t->error};
    *weight = 0;
    if (!t->data->ignores) {
        *weight = (double)count_numbers(&t->target) * values->batch * values->accumulate;
        return WEIR_OK;
    }
    for (uint32_t k = 0; k < values->accumulate; k++) {
        int status = weir__dataset_read(t->dataset, &io, t->data_seed, t->progress.mini_batch + k,
                                        values->batch, NULL, t->targets);
        if (status != WEIR_OK) return status;
        *weight += weir_net_loss_weight(t->net, t->targets, values->batch);
    }
    if (*weight > 0) return WEIR_OK;
    return weir__fail(t->error, WEIR_ERR_CONFIG,
                      "update %" PRIu64 ": every target is the ignored label %" PRId64
                      ": raise --batch or --accumulate, or leave such samples away",
                      t->progress.step + 1, weir_model_ignored(t->model));
}

uint64_t train_data_steps(const struct train *t, double epochs) {
    double rows = (double)t->values->batch * t->values->accumulate;
    double steps = ceil(t->data->pass_rows * epochs / rows);
    return steps < 0x1p62 ? (uint64_t)steps : (uint64_t)1 << 62;
}

void train_data_clean_up(struct train *t) {
    weir__prefetch_destroy(t->prefetch);
    weir__dataset_close(t->dataset);
    free(t->inputs);
    free(t->targets);
    free(t->outputs);
}

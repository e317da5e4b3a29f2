/* SPDX-License-Identifier: MIT */
/* `weir grad`: one training step without update, as numbers in a file: what a test of the whole
 * machinery against another implementation needs. */
#include "cmd/commands.h"
#include "io/safetensors.h"
#include "cli/model_options.h"
#include "cli/net_run.h"
#include "cli/output.h"
#include "cli/pipe_costs.h"
#include "cli/ranks.h"
#include "cli/search.h"
#include "cmd/path_uses.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct grad_values {
    struct model_options model;
    struct pipe_options pipe;
    const char *weights, *data, *out;
    bool masks;
    uint32_t plan;
    struct ranks_times times;
};

static const struct arg_option own[] = {
    {"weights", ARG_TEXT, offsetof(struct grad_values, weights), "parameters (safetensors)",
     .value = "FILE"},
    {"data", ARG_TEXT, offsetof(struct grad_values, data),
     "tensors input and target, rows first (safetensors)", .value = "FILE"},
    {"out", ARG_TEXT, offsetof(struct grad_values, out), "loss, output and gradients (safetensors)",
     .value = "FILE"},
    {"masks", ARG_FLAG, offsetof(struct grad_values, masks), "the dropout masks too"},
    {"plan", ARG_CHOICE, offsetof(struct grad_values, plan),
     "auto: searches for the fastest pipeline within --memory-limit as 'weir plan --search' "
     "does, but leaves --chunks, and so every bit, as they are",
     .fallback = "given", .choices = search_plan_names},
    RANKS_OPTION_TIMES(offsetof(struct grad_values, times)),
};

/** Everything the run holds; zeroed, then cleaned up as a whole. */
struct grad {
    struct grad_values *values;
    const struct args *args;
    struct people people; /* notes alone, on stderr */
    struct ranks ranks;
    struct weir_faults *faults;
    struct weir_error *error;
    struct weir_model *model;
    struct weir_net *net;
    struct search search;
    struct pipe_storage storage;
    struct weir_net_options options;
    struct weir__safetensors *data;
    const struct weir__safetensor *input, *target;
    void *input_data, *target_data; /* aligned, in the run's dtypes */
    void *output, *input_grad;
    struct weir_tensor input_spec, target_spec, output_spec;
    int64_t rows;
    bool moves; /* there are statistics, which a step moves */
    struct weir__safetensors_item *items;
    uint32_t item_count, item_capacity;
    uint32_t gradients_begin, gradients_end; /* items whose data are the command's own */
    double loss64;
    float loss32;
};

/* ---- reading ---- */

static size_t row_count(const struct weir_tensor *tensor) {
    size_t count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) count *= (size_t)tensor->shape[i];
    return count;
}

static double read_real(const struct weir__safetensor *from, size_t i) {
    float single;
    double real;
    if (from->dtype == WEIR_F32) {
        memcpy(&single, (const char *)from->data + i * sizeof single, sizeof single);
        return (double)single;
    }
    memcpy(&real, (const char *)from->data + i * sizeof real, sizeof real);
    return real;
}

static int64_t read_integer(const struct weir__safetensor *from, size_t i) {
    int64_t wide;
    int32_t narrow;
    if (from->dtype == WEIR_I64) {
        memcpy(&wide, (const char *)from->data + i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)from->data + i * sizeof narrow, sizeof narrow);
    return narrow;
}

static void convert(const struct weir__safetensor *from, enum weir_dtype to, size_t count,
                    void *out) {
    for (size_t i = 0; i < count; i++) {
        if (to == WEIR_I64)
            ((int64_t *)out)[i] = read_integer(from, i);
        else if (to == WEIR_F64)
            ((double *)out)[i] = read_real(from, i);
        else
            ((float *)out)[i] = (float)read_real(from, i);
    }
}

static bool readable_as(enum weir_dtype file, enum weir_dtype run) {
    if (run == WEIR_I64) return file == WEIR_I64 || file == WEIR_I32;
    return file == WEIR_F32 || file == WEIR_F64;
}

static enum weir_dtype exact_dtype(const struct grad *g) {
    return g->options.dtype == WEIR_BF16 ? WEIR_F32 : g->options.dtype;
}

/* A model's floating-point tensors are of the run's dtype, whatever the model's list says; what
 * goes in is F32 where that is BF16. */
static enum weir_dtype run_dtype(const struct grad *g, const struct weir_tensor *spec) {
    if (!weir_dtype_is_float(spec->dtype)) return spec->dtype;
    return spec == &g->output_spec ? g->options.dtype : exact_dtype(g);
}

static bool fits(const struct weir__safetensor *from, const struct weir_tensor *spec) {
    bool same = from->rank == spec->rank + 1 && from->shape[0] >= 1;
    for (uint32_t i = 0; same && i < spec->rank; i++) same = from->shape[i + 1] == spec->shape[i];
    return same;
}

static const struct weir__safetensor *find(struct grad *g, const char *name,
                                           const struct weir_tensor *spec) {
    const struct weir__safetensor *from = weir__safetensors_find(g->data, name);
    char have[96], want[96];
    if (from == NULL) {
        weir_faults_add(g->faults, "%s holds no tensor '%s': write it with rows first",
                        g->values->data, name);
    } else if (!readable_as(from->dtype, run_dtype(g, spec)) || !fits(from, spec)) {
        weir_faults_add(
            g->faults,
            "%s: '%s' is %s, the model takes rows of %s: convert it, or choose another model",
            g->values->data, name, weir__safetensor_text(from, have, sizeof have),
            weir__tensor_text(spec, want, sizeof want));
    } else {
        return from;
    }
    return NULL;
}

static void *take(struct grad *g, const struct weir_tensor *spec) {
    size_t bytes = (size_t)g->rows * row_count(spec) * weir_dtype_bytes(run_dtype(g, spec));
    return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
}

static int open_data(struct grad *g) {
    struct weir__io io = {.error = g->error};
    int status = weir__safetensors_open(&io, g->values->data, NULL, &g->data);
    if (status != WEIR_OK && status != WEIR_ERR_OUT_OF_MEMORY)
        weir_faults_add(g->faults, "%s", g->error->message);
    return status;
}

/** A row of the file's tensor, for models that take their shape from the data. */
static bool row_of(const struct grad *g, const char *name, struct weir_tensor *row) {
    const struct weir__safetensor *from =
        g->data == NULL ? NULL : weir__safetensors_find(g->data, name);
    if (from == NULL || from->rank < 1) return false;
    *row = (struct weir_tensor){.dtype = from->dtype, .rank = from->rank - 1};
    memcpy(row->shape, from->shape + 1, row->rank * sizeof row->shape[0]);
    return true;
}

static int build_model(struct grad *g, const struct args *args) {
    struct weir_tensor input, target;
    struct model_data data = {.input = row_of(g, "input", &input) ? &input : NULL,
                              .target = row_of(g, "target", &target) ? &target : NULL};
    return model_options_build(&g->values->model, args, &data, g->faults, &g->model);
}

static int find_data(struct grad *g) {
    const char *loss;
    weir_model_border(g->model, &g->input_spec, &g->target_spec, &loss);
    if (loss == NULL) {
        weir_faults_add(g->faults, "the model has no loss, so there are no gradients: give its "
                                   "file a \"target\" and a \"loss\"");
        return WEIR_ERR_CONFIG;
    }
    g->input = find(g, "input", &g->input_spec);
    g->target = find(g, "target", &g->target_spec);
    if (g->input == NULL || g->target == NULL) return WEIR_ERR_SHAPE;
    g->rows = g->input->shape[0];
    if (g->target->shape[0] == g->rows) return WEIR_OK;
    weir_faults_add(g->faults,
                    "%s: input has %" PRId64 " row%s, target %" PRId64 ": give each row a target",
                    g->values->data, g->rows, weir__s((uint64_t)g->rows), g->target->shape[0]);
    return WEIR_ERR_SHAPE;
}

static int find_output(struct grad *g) {
    uint32_t layers = weir_model_layer_count(g->model);
    struct weir_layer_facts *facts = calloc(layers + 1, sizeof *facts);
    if (facts == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir_model_infer(g->model, g->options.dtype, facts, g->faults);
    g->output_spec = layers > 0 ? facts[layers - 1].output : g->input_spec;
    for (uint32_t i = 0; i < layers; i++) g->moves |= facts[i].statistics > 0;
    free(facts);
    return status;
}

static int take_memory(struct grad *g) {
    g->input_data = take(g, &g->input_spec);
    g->target_data = take(g, &g->target_spec);
    g->output = take(g, &g->output_spec);
    if (weir_dtype_is_float(g->input_spec.dtype)) g->input_grad = take(g, &g->input_spec);
    bool all = g->input_data != NULL && g->target_data != NULL && g->output != NULL &&
               (g->input_grad != NULL || !weir_dtype_is_float(g->input_spec.dtype));
    if (!all) return WEIR_ERR_OUT_OF_MEMORY;
    size_t rows = (size_t)g->rows;
    convert(g->input, run_dtype(g, &g->input_spec), rows * row_count(&g->input_spec),
            g->input_data);
    convert(g->target, run_dtype(g, &g->target_spec), rows * row_count(&g->target_spec),
            g->target_data);
    return WEIR_OK;
}

/* ---- writing ---- */

static struct weir__safetensors_item *add_item(struct grad *g, const char *prefix, const char *name,
                                               enum weir_dtype dtype) {
    if (g->item_count == g->item_capacity) {
        uint32_t capacity = g->item_capacity < 8 ? 64 : 2 * g->item_capacity;
        void *items = realloc(g->items, capacity * sizeof *g->items);
        if (items == NULL) return NULL;
        g->items = items;
        g->item_capacity = capacity;
    }
    size_t length = strlen(prefix) + strlen(name) + 1;
    char *text = malloc(length);
    if (text == NULL) return NULL;
    snprintf(text, length, "%s%s", prefix, name);
    struct weir__safetensors_item *item = &g->items[g->item_count++];
    *item = (struct weir__safetensors_item){.name = text, .dtype = dtype};
    return item;
}

static int add_rows(struct grad *g, const char *prefix, const char *name,
                    const struct weir_tensor *spec, enum weir_dtype dtype, const void *data) {
    struct weir__safetensors_item *item = add_item(g, prefix, name, dtype);
    if (item == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    item->rank = spec->rank + 1;
    item->shape[0] = g->rows;
    for (uint32_t i = 0; i < spec->rank; i++) item->shape[i + 1] = spec->shape[i];
    item->data = data;
    return WEIR_OK;
}

static int add_loss(struct grad *g, double loss) {
    bool wide = g->options.dtype == WEIR_F64;
    struct weir__safetensors_item *item = add_item(g, "", "loss", exact_dtype(g));
    if (item == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    g->loss64 = loss;
    g->loss32 = (float)loss;
    item->data = wide ? (void *)&g->loss64 : (void *)&g->loss32;
    return WEIR_OK;
}

/* A GPU's memory cannot be written to a file: the item has a copy, to the end of the command. */
static int read_numbers(struct grad *g, const struct weir_parameter *parameter, const void *from,
                        struct weir__safetensors_item *item) {
    size_t bytes = (size_t)parameter->count * weir_dtype_bytes(parameter->dtype);
    void *copy = malloc(bytes);
    if (copy == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    item->data = copy;
    g->gradients_end = g->item_count;
    return weir_pipe_read(weir_net_pipe(g->net), parameter->stage, copy, from, bytes);
}

static int add_gradients(struct grad *g) {
    g->gradients_begin = g->gradients_end = g->item_count;
    for (uint32_t i = 0; i < weir_net_parameter_count(g->net); i++) {
        struct weir_parameter parameter;
        int status = weir_net_parameter(g->net, i, &parameter);
        if (status != WEIR_OK) return status;
        if (parameter.frozen && !parameter.statistic) continue;
        const char *prefix = parameter.statistic ? "buffer." : "grad.";
        struct weir__safetensors_item *item = add_item(g, prefix, parameter.name, parameter.dtype);
        if (item == NULL) return WEIR_ERR_OUT_OF_MEMORY;
        item->rank = parameter.rank;
        memcpy(item->shape, parameter.shape, sizeof parameter.shape);
        status = read_numbers(g, &parameter,
                              parameter.statistic ? parameter.data : parameter.gradient, item);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int add_mask(void *context, const char *name, const struct weir_tensor *shape, int64_t rows,
                    const uint8_t *mask) {
    struct grad *g = context;
    size_t bytes = (size_t)rows * row_count(shape);
    uint8_t *copy = malloc(bytes + 1); /* lives to the end of the command */
    if (copy == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    memcpy(copy, mask, bytes);
    int status = add_rows(g, "mask.", name, shape, WEIR_U8, copy);
    if (status != WEIR_OK) free(copy);
    return status;
}

static int save(struct grad *g, double loss) {
    struct weir__io io = {.error = g->error};
    int status = add_loss(g, loss);
    if (status != WEIR_OK) return status;
    status = add_rows(g, "", "output", &g->output_spec, run_dtype(g, &g->output_spec), g->output);
    if (status != WEIR_OK) return status;
    if (g->input_grad != NULL)
        status = add_rows(g, "grad.", "input", &g->input_spec, exact_dtype(g), g->input_grad);
    if (status != WEIR_OK) return status;
    if ((status = add_gradients(g)) != WEIR_OK) return status;
    if (g->values->masks) status = weir_net_masks(g->net, 0, g->rows, add_mask, g);
    if (status != WEIR_OK || !ranks_leads(&g->ranks)) return status;
    return weir__safetensors_save(&io, g->values->out, g->items, g->item_count, NULL, 0);
}

/* ---- the command ---- */

static int step(struct grad *g, double *loss) {
    struct weir_step_result result;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = g->rows;
    batch.input = g->input_data;
    batch.target = g->target_data;
    batch.output = g->output;
    batch.input_grad = g->input_grad;
    batch.no_update = !g->moves;
    int status = weir_net_step(g->net, &batch, &result);
    ranks_heard(&g->ranks, status, 0);
    *loss = result.loss;
    if (status == WEIR_ERR_NONFINITE || status == WEIR_OK) return WEIR_OK;
    net_run_error(&result.error, g->error);
    return status;
}

/* All but the pipeline's own options, which a search may choose. Statistics move when parameters
 * do: then by nothing. */
static void fill_options(struct grad *g, struct weir_net_options *options) {
    options->pipe.rows = g->rows;
    options->optimizer = (struct weir_optimizer){.kind = WEIR_OPTIMIZER_NONE};
    if (g->moves) options->optimizer.kind = WEIR_OPTIMIZER_SGD;
    options->input_grads = weir_dtype_is_float(g->input_spec.dtype);
}

/* The pipeline, once the rows are known. */
static int search(struct grad *g, const struct args *args) {
    const struct weir_world *world = ranks_world(&g->ranks);
    struct search_how how = {.keeps_chunks = true,
                             .hosts = world != NULL ? world->rank_count / world->host_count : 1};
    struct weir_net_options wanted = WEIR_NET_OPTIONS_INIT;
    if (!ranks_leads(&g->ranks)) return ranks_take_pipeline(&g->ranks, &g->search);
    fill_options(g, &wanted);
    int status =
        search_run(&g->search, &how, args, g->model, &wanted, &g->values->pipe, stderr, g->faults);
    if (status != WEIR_OK || g->faults->count > 0) return status;
    search_print_choice(stderr, &g->search);
    return world != NULL ? ranks_give_pipeline(&g->ranks) : WEIR_OK;
}

static int choose(struct grad *g, const struct args *args) {
    if (g->values->plan == 0) return WEIR_OK;
    int status = search(g, args);
    if (status != WEIR_OK || g->faults->count > 0) return status;
    pipe_storage_clean_up(&g->storage);
    return pipe_options_fill(&g->values->pipe, args, g->model, &g->storage, &g->options, g->faults);
}

static int join(struct grad *g, const struct arg_command *command) {
    struct grad_values *values = g->values;
    const struct ranks_command of = {.command = command,
                                     .unit = "step",
                                     .args = g->args,
                                     .pipe = &values->pipe,
                                     .times = values->times,
                                     .people = &g->people,
                                     .faults = g->faults,
                                     .error = g->error};
    int status = ranks_join(&g->ranks, &of);
    if (status != WEIR_OK) return status;
    g->options.pipe.world = ranks_world(&g->ranks);
    if (ranks_leads(&g->ranks)) net_run_check_output("out", values->out, g->faults);
    return WEIR_OK;
}

/* What all ranks must have read. */
static uint64_t digest(const struct grad *g) {
    const struct weir__safetensor *tensors[] = {g->input, g->target};
    uint64_t hash = WEIR__HASH_BEGIN;
    for (size_t i = 0; i < WEIR__COUNT_OF(tensors); i++) {
        const struct weir__safetensor *tensor = tensors[i];
        size_t bytes = weir_dtype_bytes(tensor->dtype);
        for (uint32_t d = 0; d < tensor->rank; d++) bytes *= (size_t)tensor->shape[d];
        hash = weir__hash(hash, tensor->data, bytes);
    }
    return hash;
}

static int run(struct grad *g, const struct arg_command *command) {
    const struct args *args = g->args;
    double loss = 0.0;
    int joined = join(g, command);
    if (joined != WEIR_OK) return joined;
    /* Faults of the data, the model and the options are listed side by side. */
    int opened = g->values->data != NULL ? open_data(g) : WEIR_ERR_ARGUMENT;
    int status = build_model(g, args);
    if (status != WEIR_OK) return status;
    status =
        pipe_options_fill(&g->values->pipe, args, g->model, &g->storage, &g->options, g->faults);
    if (opened == WEIR_OK) opened = find_data(g);
    if (status != WEIR_OK) return status;
    if (opened != WEIR_OK || g->faults->count > 0) return opened;
    if ((status = find_output(g)) != WEIR_OK) return status;
    status = choose(g, args);
    if (status != WEIR_OK || g->faults->count > 0) return status;
    fill_options(g, &g->options);
    status = pipe_balance(&g->values->pipe, g->model, g->values->plan == 1, &g->storage,
                          &g->options, stderr, g->faults);
    if (status != WEIR_OK) return status;
    if ((status = take_memory(g)) != WEIR_OK) return status;
    status = ranks_agree(&g->ranks, WEIR_OK, digest(g));
    if (status != WEIR_OK) return status;
    status = weir_net_new(g->model, &g->options, g->faults, &g->net);
    if (status != WEIR_OK) return status;
    status = net_run_load(g->net, g->values->weights, NULL, g->faults);
    if (status != WEIR_OK) return status;
    status = model_options_load_adapter(&g->values->model, g->net, g->faults);
    if (status != WEIR_OK) return status;
    if ((status = step(g, &loss)) != WEIR_OK) return status;
    return save(g, loss);
}

static void clean_up(struct grad *g) {
    for (uint32_t i = 0; i < g->item_count; i++) {
        bool is_gradient = i >= g->gradients_begin && i < g->gradients_end;
        bool is_mask = strncmp(g->items[i].name, "mask.", 5) == 0;
        if (is_gradient || is_mask) free((void *)g->items[i].data);
        free((void *)g->items[i].name);
    }
    free(g->items);
    free(g->input_data);
    free(g->target_data);
    free(g->output);
    free(g->input_grad);
    weir__safetensors_close(g->data);
    weir_net_destroy(g->net);
    pipe_storage_clean_up(&g->storage);
    search_clean_up(&g->search);
    weir_model_destroy(g->model);
}

int cmd_grad(int argc, char **argv) {
    const struct arg_section sections[] = {
        {"Options", own, sizeof own / sizeof own[0], 0},
        {"Model", model_option_list, model_option_count, offsetof(struct grad_values, model)},
        {"Pipeline", pipe_option_list, pipe_option_count, offsetof(struct grad_values, pipe)}};
    const struct arg_command command = {"grad", "one training step without update, as a file", NULL,
                                        sections, 3};
    struct grad_values values = {.pipe.threads_per_stage = 1};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    struct grad g = {.values = &values,
                     .args = &args,
                     .faults = &faults,
                     .error = &error,
                     .options = WEIR_NET_OPTIONS_INIT};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    if (values.weights == NULL) weir_faults_add(&faults, "--weights is missing: give a file");
    if (values.data == NULL) weir_faults_add(&faults, "--data is missing: give a file");
    if (values.out == NULL) weir_faults_add(&faults, "--out is missing: give a file");
    net_run_check_input("weights", values.weights, &faults);
    const struct path_use paths[] = {{"out", values.out, PATH_BINARY},
                                     {"weights", values.weights, PATH_INPUT},
                                     {"data", values.data, PATH_INPUT}};
    path_uses_check_own(paths, 3, &values.model, &values.pipe, &faults);
    people_init(&g.people, true);
    int code = ranks_end(&g.ranks, run(&g, &command));
    clean_up(&g);
    return ranks_leave(&g.ranks, code);
}

/* SPDX-License-Identifier: MIT */
/* From options to a net with its weights, and all rows through it. */
#include "cmd/forward.h"

#include "base/base.h"
#include "cli/gpt_file.h"
#include "cli/interrupt.h"
#include "cli/net_run.h"
#include "cli/pipe_costs.h"
#include "cli/progress.h"
#include "cmd/path_uses.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT(member) offsetof(struct forward_values, member)

const struct arg_option forward_option_list[] = {
    {"load", ARG_TEXT, AT(load),
     "weights or a training checkpoint (safetensors); a GPT's sizes are taken from them; a --model "
     "folder's own by default",
     .value = "FILE"},
    {"data", ARG_PATHS, AT(data),
     "text: any files and folders; eval: conversations, for a --model with a tokenizer: .jsonl; "
     "tokens: llm.c's .bin; images: .npy or IDX files, or a folder with such, of which those count "
     "that names mark (test, val)",
     .value = "PATH..."},
    {"batch", ARG_U32, AT(batch), "at a time", .value = "N", .fallback = "32", .unit = "rows",
     .least = 1, .most = 1048576},
    {"json", ARG_TEXT, AT(json), "the summary as one object; - is stdout", .value = "FILE"},
    RANKS_OPTION_TIMES(AT(times)),
};
const uint32_t forward_option_count = sizeof forward_option_list / sizeof forward_option_list[0];

/* ---- building: faults are listed as far as they can be found ---- */

/* No output is another one, or an input. */
static int check_paths(const struct forward *f) {
    const struct forward_values *values = f->values;
    struct path_uses *uses = calloc(1, sizeof *uses);
    if (uses == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    path_uses_add(uses, (struct path_use){"json", values->json, PATH_TEXT});
    path_uses_add(uses, (struct path_use){"out", f->out, PATH_BINARY});
    path_uses_add(uses, (struct path_use){"load", values->load, PATH_INPUT});
    for (uint32_t i = 0; i < values->data.count; i++)
        path_uses_add(uses, (struct path_use){"data", values->data.items[i], PATH_INPUT});
    path_uses_add_options(uses, &values->model, &values->pipe);
    path_uses_check(uses, f->faults);
    free(uses);
    return WEIR_OK;
}

static void check_values(const struct forward *f) {
    const struct forward_values *values = f->values;
    struct weir_faults *faults = f->faults;
    net_run_check_output("out", f->out, faults);
    if (values->load == NULL) weir_faults_add(faults, "--load is missing: give a file of weights");
    if (values->data.count == 0) weir_faults_add(faults, "--data is missing: give PATH...");
    net_run_check_input("load", values->load, faults);
    if (!output_is_standard(values->json)) net_run_check_output("json", values->json, faults);
}

static int open_data(struct forward *f) {
    const struct forward_values *values = f->values;
    bool folder = model_options_is_folder(&values->model);
    struct task_text text = {folder ? values->model.model : NULL, values->form,
                             args_given(f->args, "template"), values->no_pack};
    struct weir__dataset_options options = {.paths = f->values->data.items,
                                            .path_count = f->values->data.count,
                                            .whole = true,
                                            .inputs = f->task.predicts};
    return options.path_count > 0 ? task_open_data(&f->task, &text, &options, f->faults, f->error)
                                  : WEIR_ERR_CONFIG;
}

static int build_model(struct forward *f, const struct args *args) {
    struct forward_values *values = f->values;
    struct weir_tensor input, target;
    struct model_data data = {.packed =
                                  task_packs(&f->task, &values->pipe.device, values->no_pack)};
    int status = values->load != NULL && access(values->load, R_OK) == 0
                     ? gpt_file_fill(values->load, args, &values->model, f->faults)
                     : WEIR_OK;
    if (status != WEIR_OK) return status;
    if (f->task.dataset != NULL && weir__dataset_kind(f->task.dataset) == WEIR__DATA_ARRAYS) {
        weir__dataset_sample(f->task.dataset, &input, &target);
        data = (struct model_data){&input, f->task.predicts ? NULL : &target, false};
    }
    return model_options_build(&values->model, args, &data, f->faults, &f->model);
}

static int bind(struct forward *f) {
    const char *loss = task_take_model(&f->task, f->model, f->options.dtype);
    if (loss == NULL && !f->task.predicts) {
        weir_faults_add(f->faults,
                        "the model has no loss: there is nothing to evaluate it by: give "
                        "its file a \"target\" and a \"loss\"");
        return WEIR_ERR_CONFIG;
    }
    return f->task.dataset != NULL ? task_bind(&f->task, f->values->batch, f->faults, f->error)
                                   : WEIR_ERR_CONFIG;
}

/* A pipe for no more rows than there are. */
static int build_net(struct forward *f) {
    uint64_t rows = f->task.data->held_out_rows;
    struct weir_net_options *options = &f->options;
    if (f->task.batch > rows) f->task.batch = (uint32_t)rows;
    options->pipe.rows = f->task.batch;
    options->pipe.infer_only = true;
    options->optimizer.kind = WEIR_OPTIMIZER_NONE;
    options->weights = f->values->load;
    options->weights_all = true;
    int status = pipe_balance(&f->values->pipe, f->model, false, &f->storage, options,
                              f->people.stream, f->faults);
    if (status != WEIR_OK) return status;
    status = weir_net_new(f->model, options, f->faults, &f->net);
    if (status != WEIR_OK) return status;
    status = task_prepare(&f->task, f->net, rows, f->faults);
    if (status != WEIR_OK) return status;
    status = net_run_load(f->net, f->values->load, NULL, f->faults);
    if (status != WEIR_OK) return status;
    status = model_options_load_adapter(&f->values->model, f->net, f->faults);
    if (status != WEIR_OK) return status;
    return task_take_memory(&f->task);
}

/* What all ranks must have read, and run. */
static uint64_t digest(const struct forward *f) {
    const uint64_t numbers[] = {f->task.data->fingerprint, f->task.data->held_out_rows,
                                f->task.batch};
    return weir__hash(WEIR__HASH_BEGIN, numbers, sizeof numbers);
}

/* Bytes that are scaled give other results than bytes that are not. */
static void print_data(const struct forward *f) {
    char text[512];
    if (weir__dataset_scales(f->task.dataset))
        fprintf(f->people.stream, "data: %s\n",
                weir__dataset_text(f->task.dataset, text, sizeof text));
}

static int join(struct forward *f, const struct arg_command *command) {
    const struct ranks_command of = {.command = command,
                                     .unit = "row",
                                     .args = f->args,
                                     .pipe = &f->values->pipe,
                                     .times = f->values->times,
                                     .people = &f->people,
                                     .faults = f->faults,
                                     .error = f->error};
    int status = ranks_join(&f->ranks, &of);
    if (status != WEIR_OK) return status;
    f->task.ranks = &f->ranks;
    f->options.pipe.world = ranks_world(&f->ranks);
    if (!ranks_leads(&f->ranks)) f->out = f->values->json = NULL;
    return WEIR_OK;
}

/* Everything that the command line and the files may be refused for, as far as it goes. */
static int build_all(struct forward *f) {
    const struct args *args = f->args;
    if (f->values->load == NULL) f->values->load = model_options_weights(&f->values->model);
    check_values(f);
    if (check_paths(f) != WEIR_OK) return WEIR_ERR_OUT_OF_MEMORY;
    int opened = open_data(f);
    if (opened == WEIR_ERR_OUT_OF_MEMORY) return opened;
    int status = build_model(f, args);
    if (status != WEIR_OK) return status;
    status =
        pipe_options_fill(&f->values->pipe, args, f->model, &f->storage, &f->options, f->faults);
    if (status == WEIR_ERR_OUT_OF_MEMORY) return status;
    int bound = bind(f);
    if (bound != WEIR_OK || status != WEIR_OK || f->faults->count > 0)
        return status != WEIR_OK ? status : bound;
    status = ranks_agree(&f->ranks, WEIR_OK, digest(f));
    return status == WEIR_OK ? build_net(f) : status;
}

int forward_begin(struct forward *f, const struct arg_command *command) {
    int status = join(f, command);
    if (status != WEIR_OK) return status;
    status = build_all(f);
    if (status == WEIR_OK && f->faults->count == 0) print_data(f);
    return status;
}

/* ---- the run ---- */

int forward_rows(struct forward *f, forward_visit_fn *visit, void *context) {
    uint64_t total = f->task.data->held_out_rows, start = weir__now_ns();
    int status = WEIR_OK;
    struct progress progress;
    progress_begin(&progress, &f->people, 0, total);
    interrupt_catch();
    while (status == WEIR_OK && f->rows < total && !ranks_stopped(&f->ranks)) {
        uint64_t left = total - f->rows;
        uint32_t rows = left < f->task.batch ? (uint32_t)left : f->task.batch;
        ranks_at(&f->ranks, "its rows", f->rows);
        status = visit(context, f->rows, rows);
        if (status == WEIR_OK) f->rows += rows;
        progress_show(&progress, f->rows, "%" PRIu64 " of %" PRIu64 " rows  %.0f rows/s", f->rows,
                      total, (double)f->rows / progress_elapsed(&progress));
    }
    progress_clear(&progress);
    f->seconds = (double)(weir__now_ns() - start) * 1e-9;
    return status;
}

bool forward_stopped(const struct forward *f) {
    return f->rows < f->task.data->held_out_rows;
}

double forward_units(const struct forward *f) {
    return (double)f->rows * f->task.row_units;
}

double forward_rate(const struct forward *f) {
    return f->seconds > 0.0 ? forward_units(f) / f->seconds : 0.0;
}

int forward_end(struct forward *f, int status) {
    int code = ranks_end(&f->ranks, status);
    task_clean_up(&f->task);
    weir_net_destroy(f->net);
    pipe_storage_clean_up(&f->storage);
    weir_model_destroy(f->model);
    return ranks_leave(&f->ranks, code);
}

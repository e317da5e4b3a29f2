/* SPDX-License-Identifier: MIT */
/* `weir eval`: how good trained weights are on all rows of some data, over a pipe that only infers.
 */
#include "cmd/commands.h"
#include "base/base.h"
#include "cli/gpt_file.h"
#include "cli/interrupt.h"
#include "cli/json_text.h"
#include "cli/net_run.h"
#include "cli/output.h"
#include "cli/pipe_costs.h"
#include "cmd/task.h"

#include <inttypes.h>
#include <math.h>
#include <unistd.h>

struct eval_values {
    struct model_options model;
    struct pipe_options pipe;
    const char *load, *json;
    struct arg_paths data;
    uint32_t batch;
};

static const struct arg_option own[] = {
    {"load", ARG_TEXT, offsetof(struct eval_values, load),
     "weights or a training checkpoint (safetensors); a GPT's sizes are taken from them",
     .value = "FILE"},
    {"data", ARG_PATHS, offsetof(struct eval_values, data),
     "text: any files and folders; tokens: llm.c's .bin; images: two .npy or IDX files, or "
     "a folder with such, of which those count that names mark (test, val)",
     .value = "PATH..."},
    {"batch", ARG_U32, offsetof(struct eval_values, batch), "at a time", .value = "N",
     .fallback = "32", .unit = "rows", .least = 1, .most = 1048576},
    {"json", ARG_TEXT, offsetof(struct eval_values, json), "the same as one object; - is stdout",
     .value = "FILE"},
};

/** A run. Zeroed, then cleaned up as a whole. */
struct eval {
    struct eval_values *values;
    struct weir_faults *faults;
    struct weir_error *error;
    struct people people;
    struct weir_model *model;
    struct weir_net *net;
    struct pipe_storage storage;
    struct weir_net_options options;
    struct task task;
    struct task_tally tally;
    uint64_t rows; /**< evaluated */
    double seconds;
};

/* ---- building: faults are listed as far as they can be found ---- */

static void check_values(const struct eval_values *values, struct weir_faults *faults) {
    if (values->load == NULL) weir_faults_add(faults, "--load is missing: give a file of weights");
    if (values->data.count == 0) weir_faults_add(faults, "--data is missing: give PATH...");
    net_run_check_input("load", values->load, faults);
    if (!output_is_standard(values->json)) net_run_check_output("json", values->json, faults);
}

static int open_data(struct eval *e) {
    struct weir__io io = {.error = e->error};
    struct weir__dataset_options options = {
        .paths = e->values->data.items, .path_count = e->values->data.count, .whole = true};
    return options.path_count > 0 ? weir__dataset_open(&io, &options, e->faults, &e->task.dataset)
                                  : WEIR_ERR_CONFIG;
}

static int build_model(struct eval *e, const struct args *args) {
    struct eval_values *values = e->values;
    struct weir_tensor input, target;
    struct model_data data = {NULL, NULL};
    int status = values->load != NULL && access(values->load, R_OK) == 0
                     ? gpt_file_fill(values->load, args, &values->model, e->faults)
                     : WEIR_OK;
    if (status != WEIR_OK) return status;
    if (e->task.dataset != NULL && weir__dataset_kind(e->task.dataset) == WEIR__DATA_ARRAYS) {
        weir__dataset_sample(e->task.dataset, &input, &target);
        data = (struct model_data){&input, &target};
    }
    return model_options_build(&values->model, args, &data, e->faults, &e->model);
}

static int bind(struct eval *e) {
    const char *loss = task_take_model(&e->task, e->model, e->options.dtype);
    if (loss == NULL) {
        weir_faults_add(e->faults,
                        "the model has no loss: there is nothing to evaluate it by: give "
                        "its file a \"target\" and a \"loss\"");
        return WEIR_ERR_CONFIG;
    }
    return e->task.dataset != NULL ? task_bind(&e->task, e->values->batch, e->faults, e->error)
                                   : WEIR_ERR_CONFIG;
}

/* A pipe for no more rows than there are. */
static int build_net(struct eval *e) {
    uint64_t rows = e->task.data->held_out_rows;
    struct weir_net_options *options = &e->options;
    if (e->task.batch > rows) e->task.batch = (uint32_t)rows;
    options->pipe.rows = e->task.batch;
    options->pipe.infer_only = true;
    options->optimizer.kind = WEIR_OPTIMIZER_NONE;
    int status = pipe_balance(&e->values->pipe, e->model, false, &e->storage, options,
                              e->people.stream, e->faults);
    if (status != WEIR_OK) return status;
    status = weir_net_new(e->model, options, e->faults, &e->net);
    if (status != WEIR_OK) return status;
    status = task_prepare(&e->task, e->net, rows, e->faults);
    if (status != WEIR_OK) return status;
    status = net_run_load(e->net, e->values->load, NULL, e->faults);
    if (status != WEIR_OK) return status;
    return task_take_memory(&e->task);
}

static int begin(struct eval *e, const struct args *args) {
    int opened = open_data(e);
    if (opened == WEIR_ERR_OUT_OF_MEMORY) return opened;
    int status = build_model(e, args);
    if (status != WEIR_OK) return status;
    status =
        pipe_options_fill(&e->values->pipe, args, e->model, &e->storage, &e->options, e->faults);
    if (status == WEIR_ERR_OUT_OF_MEMORY) return status;
    int bound = bind(e);
    if (bound != WEIR_OK || status != WEIR_OK || e->faults->count > 0)
        return status != WEIR_OK ? status : bound;
    return build_net(e);
}

/* ---- the run ---- */

static void show_progress(const struct eval *e, uint64_t total) {
    if (!e->people.terminal) return;
    fprintf(e->people.stream, "\r%" PRIu64 " of %" PRIu64 " rows", e->rows, total);
    fflush(e->people.stream);
}

static void clear_progress(const struct eval *e) {
    if (e->people.terminal) fprintf(e->people.stream, "\r%*s\r", 50, "");
}

static int evaluate(struct eval *e) {
    uint64_t total = e->task.data->held_out_rows, start = weir__now_ns();
    int status = WEIR_OK;
    while (status == WEIR_OK && e->rows < total && !interrupt_came()) {
        uint64_t left = total - e->rows;
        uint32_t rows = left < e->task.batch ? (uint32_t)left : e->task.batch;
        status = task_evaluate(&e->task, e->net, e->rows, rows, &e->tally, e->error);
        if (status == WEIR_OK) e->rows += rows;
        show_progress(e, total);
    }
    clear_progress(e);
    e->seconds = (double)(weir__now_ns() - start) * 1e-9;
    return status;
}

static double units(const struct eval *e) {
    return (double)e->rows * (double)e->task.row_units;
}

static double rate(const struct eval *e) {
    return e->seconds > 0.0 ? units(e) / e->seconds : 0.0;
}

static void print(const struct eval *e, const struct task_score *score) {
    FILE *to = e->people.stream;
    char text[128];
    fprintf(to, "%s", task_score_text(&e->task, score, text));
    if (e->task.metric == TASK_NATS) fprintf(to, " (%.4f bits)", score->loss / log(2.0));
    fprintf(to, " over %.0f %s, %.0f %s/s\n", units(e), task_units(&e->task), rate(e),
            task_units(&e->task));
    if (e->rows < e->task.data->held_out_rows)
        fprintf(to, "interrupted after %" PRIu64 " of %" PRIu64 " row%s\n", e->rows,
                e->task.data->held_out_rows, weir__s(e->task.data->held_out_rows));
}

static int write_json(const struct eval *e, const struct task_score *score) {
    const char *bits = e->task.data->kind == WEIR__DATA_TEXT ? "bits_per_byte" : "bits_per_token";
    char per_second[32];
    if (e->values->json == NULL) return WEIR_OK;
    snprintf(per_second, sizeof per_second, "%s_per_second", task_units(&e->task));
    json_t *object = json_pack("{s:o}", "loss", json_text_real(score->loss));
    if (e->task.metric == TASK_NATS)
        json_object_set_new(object, bits, json_text_real(score->loss / log(2.0)));
    task_score_json(&e->task, score, object);
    json_object_set_new(object, "rows", json_integer((json_int_t)e->rows));
    json_object_set_new(object, task_units(&e->task), json_integer((json_int_t)units(e)));
    json_object_set_new(object, "seconds", json_text_real(e->seconds));
    json_object_set_new(object, per_second, json_text_real(rate(e)));
    json_object_set_new(object, "interrupted", json_boolean(e->rows < e->task.data->held_out_rows));
    return json_text_save(e->values->json, object, e->error);
}

/* Of nothing there is no mean. */
static int check_evaluated(const struct eval *e) {
    if (e->tally.weight > 0) return WEIR_OK;
    if (e->rows == 0) return weir__fail(e->error, WEIR_ERR_CONFIG, "interrupted before any row");
    return weir__fail(e->error, WEIR_ERR_CONFIG,
                      "every target is the ignored label %" PRId64
                      ": give data with labels to evaluate by",
                      weir_model_ignored(e->model));
}

static int run(struct eval *e) {
    interrupt_catch();
    int status = evaluate(e);
    if (status != WEIR_OK) return status;
    status = check_evaluated(e);
    if (status != WEIR_OK) return status;
    struct task_score score = task_score_of(&e->tally);
    print(e, &score);
    return write_json(e, &score);
}

static int finish(struct eval *e, const struct arg_command *command, int status) {
    int code = args_end(command, e->faults, status, e->error);
    return code == EXIT_DONE && interrupt_came() ? EXIT_INTERRUPTED : code;
}

static void clean_up(struct eval *e) {
    task_clean_up(&e->task);
    weir_net_destroy(e->net);
    pipe_storage_clean_up(&e->storage);
    weir_model_destroy(e->model);
}

int cmd_eval(int argc, char **argv) {
    const struct arg_section sections[] = {
        {"Evaluation", own, sizeof own / sizeof own[0], 0},
        {"Model", model_option_list, model_option_count, offsetof(struct eval_values, model)},
        {"Pipeline", pipe_option_list, pipe_option_count, offsetof(struct eval_values, pipe)}};
    const struct arg_command command = {
        "eval",
        "loss or accuracy of trained weights on a file",
        "The loss over all rows, of text in nats and bits per byte; of classes the accuracy, of "
        "masks the intersection over union. A rest of text that is shorter than a row is left out.",
        sections,
        3,
        pipe_infer_refusals};
    struct eval_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    struct eval e = {
        .values = &values, .faults = &faults, .error = &error, .options = WEIR_NET_OPTIONS_INIT};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    check_values(&values, &faults);
    people_init(&e.people, output_is_standard(values.json));
    int status = begin(&e, &args);
    if (status == WEIR_OK && faults.count == 0) status = run(&e);
    int code = finish(&e, &command, status);
    clean_up(&e);
    return code;
}

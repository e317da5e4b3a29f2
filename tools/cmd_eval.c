/* SPDX-License-Identifier: MIT */
/* `weir eval`: what trained weights are worth on a file: the loss, and for classes and masks how
 * often they are right. The rows go through the pipe in their order, forward only; numbers are
 * those of train's validation. */
#include "commands.h"
#include "json_text.h"
#include "net_run.h"
#include "train.h"

#include <inttypes.h>
#include <math.h>

#define AT(member) offsetof(struct values, member)

struct values {
    struct train_values train; /* the model, the pipe, --data and --batch of it are used */
    const char *load;
};

static const struct arg_option own[] = {
    {.name = "load",
     .type = ARG_TEXT,
     .offset = AT(load),
     .value = "FILE",
     .help = "trained weights, or a checkpoint (safetensors)"},
    {.name = "data",
     .type = ARG_PATHS,
     .offset = AT(train.data),
     .value = "PATH...",
     .help = "what to look at, as train takes it; all of it"},
    {.name = "batch",
     .type = ARG_U32,
     .offset = AT(train.batch),
     .value = "N",
     .fallback = "32",
     .least = 1,
     .most = 1048576,
     .unit = "rows",
     .help = "rows at a time; they decide no number but its rounding"},
    {.name = "json",
     .type = ARG_TEXT,
     .offset = AT(train.json),
     .value = "FILE",
     .help = "the result for programs; - is stdout"},
};

static int build(struct train *t, const struct args *args, const char *load) {
    int status = train_data_open(t);
    if (status != WEIR_ERR_OUT_OF_MEMORY) status = train_data_build_model(t, args);
    if (status != WEIR_OK) return status;
    status =
        pipe_options_fill(&t->values->pipe, args, t->model, &t->storage, &t->options, t->faults);
    int bound = train_data_bind(t);
    if (status == WEIR_OK) status = bound;
    if (status != WEIR_OK || t->faults->count > 0) return status;
    t->options.pipe.rows = t->values->batch;
    t->options.pipe.infer_only = true;
    t->options.optimizer.kind = WEIR_OPTIMIZER_NONE;
    status = weir_net_new(t->model, &t->options, t->faults, &t->net);
    if (status == WEIR_OK) status = weir_pipe_prepare(weir_net_pipe(t->net), 1, t->faults);
    if (status == WEIR_OK) status = net_run_load(t->net, load, NULL, t->faults);
    if (status == WEIR_OK) status = train_data_start(t);
    return status;
}

static void print(const struct train *t) {
    FILE *to = t->people.stream;
    const struct train_score *score = &t->score;
    const char *what = t->metric == TRAIN_METRIC_NATS ? "rows" : "samples";
    fprintf(to, "loss %.4f", score->loss);
    if (t->metric == TRAIN_METRIC_NATS)
        fprintf(to, " nats, %.4f bits per token", score->loss / log(2.0));
    if (t->metric == TRAIN_METRIC_ACCURACY) fprintf(to, ", accuracy %.2f%%", 100 * score->accuracy);
    if (t->metric == TRAIN_METRIC_IOU)
        fprintf(to, ", IoU %.4f, pixel accuracy %.2f%%", score->iou, 100 * score->accuracy);
    fprintf(to, " over %" PRIu64 " %s\n", t->eval_rows, what);
}

static json_t *result(const struct train *t) {
    const struct train_score *score = &t->score;
    json_t *object = json_pack("{s:o, s:I}", "loss", json_text_real(score->loss), "rows",
                               (json_int_t)t->eval_rows);
    if (t->metric == TRAIN_METRIC_NATS)
        json_object_set_new(object, "bits", json_text_real(score->loss / log(2.0)));
    if (t->metric == TRAIN_METRIC_ACCURACY || t->metric == TRAIN_METRIC_IOU)
        json_object_set_new(object, "accuracy", json_text_real(score->accuracy));
    if (t->metric == TRAIN_METRIC_IOU)
        json_object_set_new(object, "iou", json_text_real(score->iou));
    return object;
}

static int run(struct train *t, const struct args *args, const char *load) {
    int status = build(t, args, load);
    if (status != WEIR_OK || t->faults->count > 0) return status;
    t->eval_rows = t->data->held_out_rows;
    status = train_evaluate(t, &t->score);
    if (status != WEIR_OK) return status;
    print(t);
    if (t->values->json == NULL) return WEIR_OK;
    return json_text_save(t->values->json, result(t), t->error);
}

static void clean_up(struct train *t) {
    train_data_clean_up(t);
    weir_net_destroy(t->net);
    pipe_storage_clean_up(&t->storage);
    weir_model_destroy(t->model);
}

int cmd_eval(int argc, char **argv) {
    const struct arg_section sections[] = {
        {"Options", own, sizeof own / sizeof own[0], 0},
        {"Model", model_option_list, model_option_count, AT(train.model)},
        {"Pipeline", pipe_option_list, pipe_option_count, AT(train.pipe)}};
    const struct arg_command command = {"eval", "the loss of trained weights on a file", NULL,
                                        sections, 3};
    struct values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    struct train t = {.values = &values.train,
                      .faults = &faults,
                      .error = &error,
                      .options = WEIR_NET_OPTIONS_INIT};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    if (values.load == NULL) weir_faults_add(&faults, "--load is missing: give the weights' file");
    if (values.train.data.count == 0)
        weir_faults_add(&faults, "--data is missing: give --data PATH...");
    net_run_check_input("load", values.load, &faults);
    if (!output_is_standard(values.train.json))
        net_run_check_output("json", values.train.json, &faults);
    values.train.eval_data = values.train.data; /* all of it is looked at */
    people_init(&t.people, output_is_standard(values.train.json));
    int status = faults.count == 0 ? run(&t, &args, values.load) : WEIR_ERR_CONFIG;
    int code = EXIT_DONE;
    if (faults.count > 0) {
        code = args_refuse(&command, &faults);
    } else if (status != WEIR_OK) {
        if (error.status == WEIR_OK) error.status = status;
        code = args_fail(&command, &error);
    }
    clean_up(&t);
    return code;
}

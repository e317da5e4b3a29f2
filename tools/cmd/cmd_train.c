/* SPDX-License-Identifier: MIT */
/* `weir train`: the options, and the order of things. */
#include "cmd/commands.h"
#include "cli/step_options.h"
#include "cmd/train.h"

#define AT(member) offsetof(struct train_values, member)

static const char *const optimizer_names[] = {"adamw", "sgd", NULL};
static const char *const schedule_names[] = {"constant", "cosine", NULL};
static const char *const nonfinite_names[] = {"stop", "skip", NULL};

static const struct arg_option run_options[] = {
    {.name = "data",
     .type = ARG_PATHS,
     .offset = AT(data),
     .value = "PATH...",
     .help = "text: any files and folders; tokens: llm.c's .bin; images: two .npy or IDX files, or "
             "a folder with such; default: the project's own text"},
    {.name = "eval-data",
     .type = ARG_PATHS,
     .offset = AT(eval_data),
     .value = "PATH...",
     .help = "what is held out; default: what names mark (test, val), else a tenth of --data"},
    {.name = "steps",
     .type = ARG_U64,
     .offset = AT(steps),
     .value = "N",
     .fallback = "400",
     .unit = "updates",
     .help = "in all, counted from the very beginning"},
    {.name = "epochs",
     .type = ARG_REAL,
     .offset = AT(epochs),
     .value = "X",
     .least = 0,
     .help = "passes over the data, instead of --steps"},
    STEP_OPTION_BATCH(AT(batch)),
    {.name = "accumulate",
     .type = ARG_U32,
     .offset = AT(accumulate),
     .value = "K",
     .fallback = "1",
     .least = 1,
     .help = "mini-batches per update"},
    {.name = "eval-every",
     .type = ARG_U64,
     .offset = AT(eval_every),
     .value = "N",
     .fallback = "0",
     .unit = "updates",
     .help = "validation in between; 0: at the end only"},
    {.name = "eval-batches",
     .type = ARG_U32,
     .offset = AT(eval_batches),
     .value = "N",
     .least = 1,
     .help = "mini-batches per validation (default 16; of images all that are held out)"},
    {.name = "log-every",
     .type = ARG_U64,
     .offset = AT(log_every),
     .value = "N",
     .fallback = "1",
     .least = 1,
     .unit = "updates",
     .help = "lines for people"},
    {.name = "save",
     .type = ARG_TEXT,
     .offset = AT(save),
     .value = "FILE",
     .help = "training checkpoint (safetensors), at the end"},
    {.name = "save-every",
     .type = ARG_U64,
     .offset = AT(save_every),
     .value = "K",
     .fallback = "0",
     .help = "and every K updates; 0: only then"},
    {.name = "resume",
     .type = ARG_TEXT,
     .offset = AT(resume),
     .value = "FILE",
     .help = "goes on from a training checkpoint, bit for bit"},
    {.name = "save-weights",
     .type = ARG_TEXT,
     .offset = AT(save_weights),
     .value = "FILE",
     .help = "weights only, at the end"},
    {.name = "plan",
     .type = ARG_CHOICE,
     .offset = AT(plan),
     .choices = search_plan_names,
     .fallback = "given",
     .help =
         "auto: searches for the fastest pipeline within --memory-limit as 'weir plan --search' "
         "does; what is given stays as it is"},
    {.name = "trace",
     .type = ARG_TEXT,
     .offset = AT(trace),
     .value = "FILE",
     .help = "the last steps as Chrome trace events (opens in Perfetto)"},
    {.name = "report",
     .type = ARG_TEXT,
     .offset = AT(report),
     .value = "FILE.html",
     .help = "a page with a typical step's timeline, lost time and memory, and the loss curve"},
    {.name = "json",
     .type = ARG_TEXT,
     .offset = AT(json),
     .value = "FILE",
     .help = "one object per update and a summary; - is stdout"},
    {.name = "sample",
     .type = ARG_U32,
     .offset = AT(sample),
     .value = "N",
     .fallback = "400",
     .most = 1048576,
     .unit = "bytes",
     .help = "text drawn from the model at the end"},
};

static const struct arg_option optimizer_options[] = {
    {.name = "optimizer",
     .type = ARG_CHOICE,
     .offset = AT(optimizer),
     .choices = optimizer_names,
     .fallback = "adamw",
     .help = "PyTorch's AdamW or SGD"},
    {.name = "lr",
     .type = ARG_REAL,
     .offset = AT(lr),
     .value = "X",
     .fallback = "0.002",
     .least = 0,
     .help = "learning rate after the warm-up"},
    {.name = "lr-schedule",
     .type = ARG_CHOICE,
     .offset = AT(lr_schedule),
     .choices = schedule_names,
     .fallback = "cosine",
     .help = "cosine falls to a tenth at --steps"},
    {.name = "warmup",
     .type = ARG_U64,
     .offset = AT(warmup),
     .value = "N",
     .fallback = "20",
     .unit = "updates",
     .help = "linear rise to the learning rate"},
    {.name = "weight-decay",
     .type = ARG_REAL,
     .offset = AT(weight_decay),
     .value = "X",
     .fallback = "0.1",
     .least = 0,
     .help = "on matrices only"},
    {.name = "momentum",
     .type = ARG_REAL,
     .offset = AT(momentum),
     .value = "X",
     .fallback = "0",
     .least = 0,
     .help = "sgd"},
    {.name = "nesterov", .type = ARG_FLAG, .offset = AT(nesterov), .help = "sgd"},
    {.name = "beta1",
     .type = ARG_REAL,
     .offset = AT(beta1),
     .value = "X",
     .fallback = "0.9",
     .least = 0,
     .most = 1,
     .help = "adamw"},
    {.name = "beta2",
     .type = ARG_REAL,
     .offset = AT(beta2),
     .value = "X",
     .fallback = "0.95",
     .least = 0,
     .most = 1,
     .help = "adamw"},
    {.name = "eps",
     .type = ARG_REAL,
     .offset = AT(eps),
     .value = "X",
     .fallback = "1e-8",
     .least = 0,
     .help = "adamw"},
    {.name = "clip",
     .type = ARG_REAL,
     .offset = AT(clip),
     .value = "X",
     .fallback = "1",
     .least = 0,
     .help = "largest global gradient norm; 0: off"},
    {.name = "on-nonfinite",
     .type = ARG_CHOICE,
     .offset = AT(on_nonfinite),
     .choices = nonfinite_names,
     .fallback = "stop",
     .help = "what an infinite or NaN gradient does"},
};

static void check_values(const struct args *args, const struct train_values *values,
                         struct weir_faults *faults) {
    if (values->save_every > 0 && values->save == NULL)
        weir_faults_add(faults, "--save-every needs a file: give --save FILE");
    if (values->nesterov && values->momentum == 0.0)
        weir_faults_add(faults, "--nesterov needs --momentum above 0: give both, like 0.9");
    if (values->eval_data.count > 0 && values->data.count == 0)
        weir_faults_add(faults, "--eval-data needs --data: give both");
    if (args_given(args, "epochs") && args_given(args, "steps"))
        weir_faults_add(faults, "--epochs and --steps: give one of them");
    if (output_is_standard(values->trace) && output_is_standard(values->json))
        weir_faults_add(faults, "--trace - and --json -: only one of them can have stdout");
    if (output_is_standard(values->report) &&
        (output_is_standard(values->trace) || output_is_standard(values->json)))
        weir_faults_add(faults, "--report - and --%s -: only one of them can have stdout",
                        output_is_standard(values->trace) ? "trace" : "json");
}

static bool takes_standard(const struct train_values *values) {
    return output_is_standard(values->json) || output_is_standard(values->trace) ||
           output_is_standard(values->report);
}

static int run(struct train *t, const struct args *args) {
    int status = train_begin(t, args);
    if (status != WEIR_OK || t->faults->count > 0) return status;
    train_print_header(t);
    return train_loop(t);
}

static void clean_up(struct train *t) {
    train_data_clean_up(t);
    train_notes_clean_up(&t->notes);
    weir_net_destroy(t->net);
    pipe_storage_clean_up(&t->storage);
    search_clean_up(&t->search);
    weir_model_destroy(t->model);
    train_report_destroy(t->report);
}

/* A page about a run that failed is worth having; its own failure is not what went wrong. */
static void report_failure(struct train *t) {
    const char *message = t->error->message;
    struct weir_error first = *t->error;
    (void)train_report_write(t, message[0] != '\0' ? message : weir_status_text(first.status));
    *t->error = first;
}

static int finish(struct train *t, const struct arg_command *command, int status) {
    int code = EXIT_DONE;
    if (t->faults->count > 0) {
        output_abort(&t->json);
        code = args_refuse(command, t->faults);
    } else if (status != WEIR_OK) {
        if (t->error->status == WEIR_OK) t->error->status = status;
        /* what was reported up to here is worth keeping, and complete with its reason */
        if (train_json_failure(t) == WEIR_OK) output_commit(&t->json);
        output_abort(&t->json);
        report_failure(t);
        code = args_fail(command, t->error);
    } else if (output_commit(&t->json) != WEIR_OK) {
        code = args_fail(command, t->error);
    } else if (t->interrupted) {
        code = EXIT_INTERRUPTED;
    }
    clean_up(t);
    return code;
}

int cmd_train(int argc, char **argv) {
    const struct arg_section sections[] = {
        {"Training", run_options, sizeof run_options / sizeof run_options[0], 0},
        {"Optimizer", optimizer_options, sizeof optimizer_options / sizeof optimizer_options[0], 0},
        {"Model", model_option_list, model_option_count, AT(model)},
        {"Pipeline", pipe_option_list, pipe_option_count, AT(pipe)}};
    const struct arg_command command = {"train", "trains a model over a pipeline", NULL, sections,
                                        4};
    struct train_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    struct train t = {.values = &values,
                      .faults = &faults,
                      .error = &error,
                      .args = &args,
                      .options = WEIR_NET_OPTIONS_INIT,
                      .report = train_report_new(argc, argv)};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) {
        clean_up(&t);
        return EXIT_DONE;
    }
    check_values(&args, &values, &faults);
    people_init(&t.people, takes_standard(&values));
    int status = t.report != NULL ? run(&t, &args) : WEIR_ERR_OUT_OF_MEMORY;
    return finish(&t, &command, status);
}

/* SPDX-License-Identifier: MIT */
/* `weir train`: the options, and the order of things. */
#include "cmd/commands.h"
#include "cli/interrupt.h"
#include "cli/step_options.h"
#include "cli/template_option.h"
#include "cmd/launch_rank.h"
#include "cmd/train.h"

#define AT(member) offsetof(struct train_values, member)

static const char *const optimizer_names[] = {"adamw", "sgd", NULL};
static const char *const schedule_names[] = {"constant", "cosine", NULL};
static const char *const truth_names[] = {"true", "false", NULL};
static const char *const nonfinite_names[] = {"stop", "skip", NULL};

static const struct arg_option run_options[] = {
    {"data", ARG_PATHS, AT(data),
     "text: any files and folders; conversations, for a --model with a tokenizer: .jsonl of "
     "messages, or of prompt and completion; tokens: llm.c's .bin; images: two .npy or IDX files, "
     "a .npz, or a folder with such; default: the project's own text",
     .value = "PATH..."},
    {"eval-data", ARG_PATHS, AT(eval_data),
     "what is held out; default: what names mark (test, val), else a tenth of --data",
     .value = "PATH..."},
    TEMPLATE_OPTION(AT(form)),
    NO_PACK_OPTION(AT(no_pack)),
    {"steps", ARG_U64, AT(steps), "in all, counted from the very beginning", .value = "N",
     .fallback = "400", .unit = "updates"},
    {"epochs", ARG_REAL, AT(epochs), "passes over the data, instead of --steps", .value = "X",
     .least = 0},
    STEP_OPTION_BATCH(AT(batch)),
    {"accumulate", ARG_U32, AT(accumulate), "mini-batches per update", .value = "K",
     .fallback = "1", .least = 1},
    {"eval-every", ARG_U64, AT(eval_every), "validation in between; 0: at the end only",
     .value = "N", .fallback = "0", .unit = "updates"},
    {"eval-batches", ARG_U32, AT(eval_batches),
     "mini-batches per validation (default 16; of images all that are held out)", .value = "N",
     .least = 1},
    {"log-every", ARG_U64, AT(log_every),
     "a line for people; default: on a terminal one that renews itself, elsewhere one every five "
     "seconds",
     .value = "N", .unit = "updates", .least = 1},
    {"log-dir", ARG_TEXT, AT(log_dir),
     "metrics of every update: events for TensorBoard, and metrics.csv", .value = "DIR"},
    {"quiet", ARG_FLAG, AT(quiet), "nothing for people but warnings and errors"},
    {"save", ARG_TEXT, AT(save),
     "training checkpoint (safetensors), at the end; written beside training; of several processes "
     "a folder",
     .value = "FILE"},
    {"save-every", ARG_U64, AT(save_every), "and every K updates; 0: only then", .value = "K",
     .fallback = "0"},
    {"keep", ARG_U32, AT(keep),
     "saves as FILE-STEP, of which the newest N stay; FILE is another name of the newest",
     .value = "N", .least = 1},
    {"keep-best", ARG_FLAG, AT(keep_best),
     "saves as FILE-best where the validation loss is the least so far; needs --eval-every"},
    {"resume", ARG_TEXT, AT(resume),
     "goes on from a training checkpoint, bit for bit, and saves there if --save names no other",
     .value = "FILE"},
    {"load", ARG_TEXT, AT(load),
     "starts from these weights, with a new optimizer: of init, --save-weights, or safetensors of "
     "PyTorch; a --model folder's own by default; --freeze keeps parameters as they are",
     .value = "WEIGHTS"},
    {"load-strict", ARG_CHOICE, AT(load_strict),
     "false: takes what there is, and names what is missing (the seed draws it) or left over",
     .fallback = "true", .choices = truth_names},
    {"save-weights", ARG_TEXT, AT(save_weights), "weights only, at the end", .value = "FILE"},
    {"save-adapter", ARG_TEXT, AT(save_adapter),
     "the adapters of --lora-rank or --adapter, at the end, as Hugging Face's PEFT has them",
     .value = "FOLDER"},
    {"plan", ARG_CHOICE, AT(plan),
     "auto: searches for the fastest pipeline within --memory-limit, its workers and their threads "
     "among it; what is given stays as it is, and so does every bit. given: what is not given is "
     "as said there",
     .fallback = "auto", .choices = search_plan_names},
    {"links", ARG_TEXT, AT(links),
     "over several processes: what lies between them, as 'weir doctor --json' writes it there, for "
     "the search; with --gradient-groups, which then says the bits, it chooses --replicas too",
     .value = "FILE"},
    {"trace", ARG_TEXT, AT(trace), "the last steps as Chrome trace events (opens in Perfetto)",
     .value = "FILE"},
    {"report", ARG_TEXT, AT(report),
     "a page with a typical step's timeline, lost time and memory, and the loss curve",
     .value = "FILE.html"},
    {"json", ARG_TEXT, AT(json), "one object per update and a summary; - is stdout",
     .value = "FILE"},
    RANKS_OPTION_TIMES(AT(times)),
    {"sample", ARG_U32, AT(sample),
     "text drawn from the model at the end, in bytes (default 400), or of a model with a tokenizer "
     "in tokens (default 100)",
     .value = "N", .most = 1048576},
    {"sample-prompt", ARG_TEXTS, AT(sample_prompts),
     "what the samples go on from, or answer where the data are conversations; then samples come "
     "with every validation, too; several of them one after the other",
     .value = "TEXT"},
};

static const struct arg_option optimizer_options[] = {
    {"optimizer", ARG_CHOICE, AT(optimizer), "PyTorch's AdamW or SGD", .fallback = "adamw",
     .choices = optimizer_names},
    {"lr", ARG_REAL, AT(lr), "learning rate after the warm-up", .value = "X", .fallback = "0.002",
     .least = 0},
    {"lr-schedule", ARG_CHOICE, AT(lr_schedule), "cosine falls to a tenth at --steps",
     .fallback = "cosine", .choices = schedule_names},
    {"warmup", ARG_U64, AT(warmup), "linear rise to the learning rate", .value = "N",
     .fallback = "20", .unit = "updates"},
    {"weight-decay", ARG_REAL, AT(weight_decay), "on matrices only", .value = "X",
     .fallback = "0.1", .least = 0},
    {"momentum", ARG_REAL, AT(momentum), "sgd", .value = "X", .fallback = "0", .least = 0},
    {"nesterov", ARG_FLAG, AT(nesterov), "sgd"},
    {"beta1", ARG_REAL, AT(beta1), "adamw", .value = "X", .fallback = "0.9", .least = 0, .most = 1},
    {"beta2", ARG_REAL, AT(beta2), "adamw", .value = "X", .fallback = "0.95", .least = 0,
     .most = 1},
    {"eps", ARG_REAL, AT(eps), "adamw", .value = "X", .fallback = "1e-8", .least = 0},
    {"clip", ARG_REAL, AT(clip), "largest global gradient norm; 0: off", .value = "X",
     .fallback = "1", .least = 0},
    {"on-nonfinite", ARG_CHOICE, AT(on_nonfinite), "what an infinite or NaN gradient does",
     .fallback = "stop", .choices = nonfinite_names},
};

/* What belongs to the other optimizer. */
static void check_optimizer(const struct args *args, const struct train_values *values,
                            struct weir_faults *faults) {
    static const char *const others[2][4] = {{"momentum", "nesterov"}, {"beta1", "beta2", "eps"}};
    const char *const *other = others[values->optimizer];
    for (size_t i = 0; other[i] != NULL; i++)
        if (args_given(args, other[i]))
            weir_faults_add(faults,
                            "--%s means nothing to --optimizer %s: leave it away, or give "
                            "--optimizer %s",
                            other[i], optimizer_names[values->optimizer],
                            optimizer_names[1 - values->optimizer]);
}

static void check_values(const struct args *args, const struct train_values *values,
                         struct weir_faults *faults) {
    check_optimizer(args, values, faults);
    bool saves = values->save != NULL || values->resume != NULL;
    if (values->save_every > 0 && !saves)
        weir_faults_add(faults, "--save-every needs a file: give --save FILE");
    if (values->keep > 0 && !saves)
        weir_faults_add(faults, "--keep needs a file: give --save FILE");
    if (values->keep_best && !saves)
        weir_faults_add(faults, "--keep-best needs a file: give --save FILE");
    if (values->keep_best && values->eval_every == 0)
        weir_faults_add(faults, "--keep-best needs validations: give --eval-every N");
    if (values->load != NULL && values->resume != NULL)
        weir_faults_add(faults, "--load and --resume: a resumed run has its weights: give one of "
                                "them");
    if (args_given(args, "load-strict") && values->load == NULL)
        weir_faults_add(faults, "--load-strict goes with --load: give both");
    if (values->optimizer == 1 && values->nesterov && values->momentum == 0.0)
        weir_faults_add(faults, "--nesterov needs --momentum above 0: give both, like 0.9");
    if (values->eval_data.count > 0 && values->data.count == 0)
        weir_faults_add(faults, "--eval-data needs --data: give both");
    if (values->links != NULL && values->plan != 1)
        weir_faults_add(faults, "--links is for the search: leave it away, or --plan given");
    if (args_given(args, "epochs") && args_given(args, "steps"))
        weir_faults_add(faults, "--epochs and --steps: give one of them");
}

static bool takes_standard(const struct train_values *values) {
    return output_is_standard(values->json) || output_is_standard(values->trace) ||
           output_is_standard(values->report);
}

static int check_replicas(const struct train *t) {
    uint32_t replicas = t->values->pipe.replicas, ranks = t->ranks.world.rank_count;
    bool links = t->values->links != NULL;
    if (t->values->plan == 1 && args_given(t->args, "plan") && replicas > 1 && ranks > 1 && !links)
        weir_faults_add(t->faults,
                        "--plan auto: for replicas it needs the links between them: give --links "
                        "FILE, or what 'weir plan --search' prints");
    if (links && ranks == 1)
        weir_faults_add(t->faults,
                        "--links %s: this process is alone: leave it away, or start "
                        "several by mpiexec -n R weir train",
                        t->values->links);
    if (ranks % replicas == 0) return WEIR_OK;
    weir_faults_add(t->faults,
                    "--replicas %u: as many processes, or a multiple, share a mini-batch, and "
                    "there %s %u: start them by mpiexec -n %u weir train",
                    replicas, ranks == 1 ? "is" : "are", ranks, (ranks / replicas + 1) * replicas);
    return WEIR_ERR_CONFIG;
}

static int join(struct train *t, const struct arg_command *command) {
    struct train_values *values = t->values;
    char bits[64];
    const struct ranks_command of = {.command = command,
                                     .unit = "update",
                                     .args = t->args,
                                     .pipe = &values->pipe,
                                     .times = values->times,
                                     .people = &t->people,
                                     .faults = t->faults,
                                     .error = t->error,
                                     .bits = train_read_bits(t, bits),
                                     .saves = true,
                                     .save = values->save};
    int status = ranks_join(&t->ranks, &of);
    if (status != WEIR_OK) return status;
    t->ranks.of.bits = NULL; /* which ends here */
    t->task.ranks = &t->ranks;
    t->options.pipe.world = ranks_world(&t->ranks);
    if (!ranks_leads(&t->ranks))
        values->json = values->log_dir = values->trace = values->report = NULL;
    if (values->save_adapter != NULL && t->ranks.world.rank_count > 1)
        weir_faults_add(t->faults, "--save-adapter: one process writes it: give --save, and then "
                                   "--resume in one process");
    return check_replicas(t);
}

/* Who names a model's folder goes on with what is in it. */
static void take_own_weights(struct train *t) {
    struct train_values *values = t->values;
    bool wants = values->load == NULL && values->resume == NULL;
    if (wants) values->load = model_options_weights(&values->model);
}

/* Where it saves is known before the ranks meet: what is said of a lost one names it. */
static int run(struct train *t, const struct arg_command *command) {
    const struct args *args = t->args;
    take_own_weights(t);
    int status = train_save_choose(t);
    if (status != WEIR_OK) return status;
    if ((status = join(t, command)) != WEIR_OK) return status;
    status = train_begin(t, args);
    if (status != WEIR_OK || t->faults->count > 0) return status;
    train_print_header(t);
    return train_loop(t);
}

static void clean_up(struct train *t) {
    train_save_clean_up(t);
    train_log_end(&t->log);
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
    bool failed = t->faults->count > 0 || status != WEIR_OK;
    bool lost = failed && ranks_lost_claim(&t->ranks, status);
    if (t->error->status == WEIR_OK) t->error->status = status;
    if (lost) {
        output_abort(&t->json);
        (void)(t->faults->count > 0 ? args_refuse(command, t->faults)
                                    : args_fail(command, t->error));
        ranks_lost_end(&t->ranks);
    } else if (t->faults->count > 0) {
        output_abort(&t->json);
        code = args_refuse(command, t->faults);
    } else if (status != WEIR_OK) {
        /* what was reported up to here is worth keeping, and complete with its reason */
        if (train_json_failure(t) == WEIR_OK) output_commit(&t->json);
        output_abort(&t->json);
        report_failure(t);
        train_save_tell_last(t);
        code = args_fail(command, t->error);
    } else if (output_commit(&t->json) != WEIR_OK || train_save_judge(t) != WEIR_OK) {
        code = args_fail(command, t->error);
    }
    clean_up(t);
    return interrupt_exit(code);
}

int cmd_train(int argc, char **argv) {
    const struct arg_section sections[] = {
        {"Training", run_options, sizeof run_options / sizeof run_options[0], 0},
        {"Optimizer", optimizer_options, sizeof optimizer_options / sizeof optimizer_options[0], 0},
        {"Model", model_option_list, model_option_count, AT(model)},
        {"Pipeline", pipe_option_list, pipe_option_count, AT(pipe)},
        {"Replicas", pipe_share_list, pipe_share_count, AT(pipe)}};
    const struct arg_command command = {"train", "trains a model over a pipeline", NULL, sections,
                                        5};
    int code;
    if (launch_rank_waits(&code)) return code;
    struct train_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {.status = WEIR_OK, .stage = -1, .micro_batch = -1};
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
    interrupt_catch(); /* a run that is asked to end before its first update saves what it has */
    people_init(&t.people, takes_standard(&values));
    if (values.quiet) people_silence(&t.people);
    int status = t.report != NULL ? run(&t, &command) : WEIR_ERR_OUT_OF_MEMORY;
    return ranks_leave(&t.ranks, finish(&t, &command, status));
}

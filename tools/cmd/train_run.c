/* SPDX-License-Identifier: MIT */
/* The run itself: data, updates, validation, saves. */
#include "cli/adapter_config.h"
#include "cli/gpt_file.h"
#include "cli/net_run.h"
#include "cli/pipe_costs.h"
#include "cli/links_file.h"
#include "cmd/path_uses.h"
#include "cmd/train.h"
#include "device/device.h"
#include "io/file.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- beginning ---- */

static void fill_optimizer(const struct train_values *values, struct weir_optimizer *optimizer) {
    *optimizer =
        (struct weir_optimizer){values->optimizer == 0 ? WEIR_OPTIMIZER_ADAMW : WEIR_OPTIMIZER_SGD,
                                values->lr,
                                values->weight_decay,
                                values->beta1,
                                values->beta2,
                                values->eps,
                                values->momentum,
                                values->nesterov,
                                true};
}

/* What a pipe refuses is listed also where something else is wrong already. */
static int list_faults(struct train *t) {
    struct weir_plan *plan = NULL;
    int status = weir_net_plan(t->model, &t->options, t->faults, &plan);
    weir_plan_destroy(plan);
    return status == WEIR_OK ? WEIR_ERR_CONFIG : status;
}

static uint32_t count_gpus(const struct arg_texts *devices) {
    uint32_t gpus = 0;
    for (uint32_t i = 0; i < devices->count; i++)
        gpus += !weir__device_facts(arg_texts_get(devices, i)).synchronous;
    return gpus;
}

/* On CPUs and GPUs a cut says whose kernels a layer takes, and so decides bits. How much memory a
 * GPU has is not asked for a plan, so what may be kept there is for the user to say; nor is how
 * many threads a list of cores is good for. */
bool train_searches(const struct train *t) {
    const struct pipe_options *pipe = &t->values->pipe;
    uint32_t gpus = count_gpus(&pipe->device);
    bool devices = gpus == 0 || (gpus == pipe->device.count && pipe->memory_limit > 0);
    bool listed = strcmp(pipe->bind, "auto") != 0 && strcmp(pipe->bind, "none") != 0;
    bool can = devices && !listed && !weir__text_ends(pipe->schedule, ".csv") &&
               pipe->balance_by == PIPE_BALANCE_BY_COST;
    bool links = t->values->links != NULL;
    bool known = pipe->replicas <= 1 || links; /* what replicas send each other takes its time */
    return t->values->plan == 1 && ((can && known) || links || args_given(t->args, "plan"));
}

/* All but the pipeline's own options, which a search may choose. */
static void fill_options(struct train *t) {
    const struct train_values *values = t->values;
    t->options.pipe.rows = values->batch;
    t->options.pipe.clip_norm = values->clip;
    t->options.pipe.skip_nonfinite = values->on_nonfinite == 1;
    t->options.pipe.trace_actions = 4096;
    t->options.pipe.accumulates = values->accumulate > 1;
    fill_optimizer(values, &t->options.optimizer);
}

/* What cannot be as it is given is refused for that, not for what a search made of it. */
static int check_given(struct train *t, const struct args *args) {
    struct weir_net_options net = t->options;
    struct weir_plan *plan = NULL;
    struct pipe_storage storage;
    int status = pipe_options_fill(&t->values->pipe, args, t->model, &storage, &net, t->faults);
    if (status != WEIR_OK) goto out;
    net.pipe.memory_limit = 0;
    net.pipe.clip_norm = 0; /* which a model may have nothing for */
    status = weir_net_plan(t->model, &net, t->faults, &plan);
    weir_plan_destroy(plan);
out:
    pipe_storage_clean_up(&storage);
    return status;
}

static int read_links(struct train *t, struct links_file *links) {
    const char *path = t->values->links;
    uint32_t ranks = t->ranks.world.rank_count;
    if (path == NULL) return WEIR_OK;
    int status = links_file_read(links, path, t->faults);
    if (status != WEIR_OK || links->ranks.rank_count == ranks) return status;
    weir_faults_add(t->faults,
                    "--links %s: it is of %u rank%s, and there are %u: measure them by mpiexec -n "
                    "%u weir doctor --json FILE",
                    path, links->ranks.rank_count, weir__s(links->ranks.rank_count), ranks, ranks);
    return WEIR_ERR_CONFIG;
}

/* Replicas are free where links are known, and groups, which decide the bits, are given. */
static int search_here(struct train *t, const struct args *args) {
    const struct weir_world *world = ranks_world(&t->ranks);
    struct links_file links = {0};
    int status = read_links(t, &links);
    if (status != WEIR_OK) goto out;
    const struct search_how how = {.keeps_chunks = true,
                                   .workers = world == NULL, /* else they come with the ranks */
                                   .keeps_replicas = !args_given(args, "gradient-groups"),
                                   .hosts =
                                       world != NULL ? world->rank_count / world->host_count : 1,
                                   .ranks = t->values->links != NULL ? &links.ranks : NULL,
                                   .order = t->order[0] != '\0' ? t->order : NULL};
    status = args_given(args, "plan") ? WEIR_OK : check_given(t, args);
    if (status != WEIR_OK) goto out;
    status = search_run(&t->search, &how, args, t->model, &t->options, &t->values->pipe,
                        t->people.stream, t->faults);
out:
    links_file_clean_up(&links);
    return status;
}

static int search_pipeline(struct train *t, const struct args *args) {
    if (!ranks_leads(&t->ranks)) return ranks_take_pipeline(&t->ranks, &t->search);
    int status = search_here(t, args);
    bool alone = ranks_world(&t->ranks) == NULL;
    if (status != WEIR_OK || t->faults->count > 0 || alone) return status;
    return ranks_give_pipeline(&t->ranks);
}

static int choose_pipeline(struct train *t, const struct args *args) {
    int status = train_searches(t) ? search_pipeline(t, args) : WEIR_OK;
    if (status != WEIR_OK) return status;
    return pipe_options_fill(&t->values->pipe, args, t->model, &t->storage, &t->options, t->faults);
}

/* What the pipe says: of its devices, and of a table that was given. */
static void tell(void *context, const char *line) {
    people_wrap(context, "pipe      ", line);
}

static int build_net(struct train *t, const struct args *args) {
    struct train_values *values = t->values;
    fill_options(t);
    t->options.weights = values->resume != NULL ? values->resume : values->load;
    int status = choose_pipeline(t, args);
    int bound = train_data_bind(t); /* its faults are listed beside the options' */
    if (status != WEIR_OK) return status;
    if (bound == WEIR_ERR_OUT_OF_MEMORY) return bound;
    if (t->faults->count > 0) return list_faults(t);
    if (bound != WEIR_OK) return bound;
    status = pipe_balance(&values->pipe, t->model, train_searches(t), &t->storage, &t->options,
                          t->people.stream, t->faults);
    if (status != WEIR_OK) return status;
    t->options.pipe.log = tell;
    t->options.pipe.log_context = &t->people;
    status = weir_net_new(t->model, &t->options, t->faults, &t->net);
    if (status != WEIR_OK) return status;
    t->eval_rows = train_eval_rows(t);
    return task_prepare(&t->task, t->net, t->eval_rows, t->faults);
}

/* What is not in the file is as the seed draws it. */
static int load_weights(struct train *t) {
    struct weir_faults notes = WEIR_FAULTS_INIT;
    int status = gpt_file_check_heads(t->values->load, &t->values->model, t->faults);
    if (status != WEIR_OK) return status;
    if (t->values->load_strict == 0) return net_run_load(t->net, t->values->load, NULL, t->faults);
    status = net_run_load_some(t->net, t->values->load, &notes, t->faults);
    for (uint32_t i = 0; i < notes.kept && status == WEIR_OK; i++)
        fprintf(stderr, "weir: train: warning: %s: %s\n", t->values->load, notes.lines[i]);
    if (notes.count > notes.kept && status == WEIR_OK)
        fprintf(stderr, "weir: train: warning: and %" PRIu32 " more tensors\n",
                notes.count - notes.kept);
    weir_faults_clean_up(&notes);
    return status;
}

static int begin_parameters(struct train *t) {
    uint64_t seed = t->values->pipe.seed;
    if (t->values->resume == NULL) {
        t->progress.seed = seed;
        int status = weir_net_init(t->net, seed);
        if (status == WEIR_OK && t->values->load != NULL) status = load_weights(t);
        if (status != WEIR_OK) return status;
        return model_options_load_adapter(&t->values->model, t->net, t->faults);
    }
    int status =
        net_run_load(t->net, t->values->resume, t->other_state ? NULL : &t->progress, t->faults);
    if (status != WEIR_OK) return status;
    if (t->other_state) return WEIR_OK; /* which is refused, and its progress not read */
    if (t->progress.step > t->steps)
        weir_faults_add(t->faults, "--steps %llu: %s has done %llu: give more",
                        (unsigned long long)t->steps, t->values->resume,
                        (unsigned long long)t->progress.step);
    return WEIR_OK;
}

static void add_inputs(const struct train_values *v, struct path_uses *uses) {
    for (uint32_t i = 0; i < v->data.count; i++)
        path_uses_add(uses, (struct path_use){"data", v->data.items[i], PATH_INPUT});
    for (uint32_t i = 0; i < v->eval_data.count; i++)
        path_uses_add(uses, (struct path_use){"eval-data", v->eval_data.items[i], PATH_INPUT});
    path_uses_add_options(uses, &v->model, &v->pipe);
}

/* What saving and logging write beside --save FILE, and in DIR. The texts are borrowed. */
static void add_further_outputs(struct train *t, char texts[3][PATH_MAX], struct path_uses *uses) {
    const struct train_values *v = t->values;
    struct weir__io io = {.error = NULL};
    if (v->keep > 0 && v->save != NULL) {
        snprintf(texts[0], PATH_MAX, "%s-STEP", v->save);
        path_uses_add(uses, (struct path_use){"save", texts[0], PATH_BINARY, .steps = true});
    }
    if (v->keep_best && v->save != NULL) {
        train_save_best_path(t, texts[1]);
        net_run_check_checkpoint("keep-best", texts[1], ranks_world(&t->ranks) != NULL, t->faults);
        path_uses_add(uses, (struct path_use){"save", texts[1], PATH_BINARY});
    }
    if (v->log_dir == NULL) return;
    (void)weir__path_join(&io, v->log_dir, TRAIN_LOG_CSV, texts[2]); /* refused if too long */
    path_uses_add(uses, (struct path_use){"log-dir", v->log_dir, PATH_TEXT});
    path_uses_add(uses, (struct path_use){"log-dir", texts[2], PATH_TEXT});
}

/* The folder that adapters go into, at the very end. */
static void check_adapter(const char *folder, struct weir_faults *faults) {
    struct weir__io io = {.error = NULL};
    char file[PATH_MAX];
    struct stat facts;
    bool there = folder != NULL && stat(folder, &facts) == 0;
    if (!there)
        net_run_check_output("save-adapter", folder, faults);
    else if (!S_ISDIR(facts.st_mode))
        weir_faults_add(faults, "--save-adapter %s is a file: name a folder", folder);
    else if (weir__path_join(&io, folder, ADAPTER_WEIGHTS, file) == WEIR_OK)
        net_run_check_output("save-adapter", file, faults);
}

static int check_paths(struct train *t) {
    const struct train_values *v = t->values;
    const struct path_use outputs[] = {{"save", v->save, PATH_BINARY},
                                       {"save-weights", v->save_weights, PATH_BINARY},
                                       {"trace", v->trace, PATH_TEXT},
                                       {"report", v->report, PATH_TEXT},
                                       {"json", v->json, PATH_TEXT}};
    struct path_uses *uses = calloc(1, sizeof *uses);
    char texts[3][PATH_MAX];
    if (uses == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    train_log_check(t);
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        bool streams = i >= 2 && output_is_standard(outputs[i].path);
        if (i < 2)
            net_run_check_checkpoint(outputs[i].option, outputs[i].path,
                                     ranks_world(&t->ranks) != NULL, t->faults);
        else if (!streams)
            net_run_check_output(outputs[i].option, outputs[i].path, t->faults);
        path_uses_add(uses, outputs[i]);
    }
    add_further_outputs(t, texts, uses);
    check_adapter(v->save_adapter, t->faults);
    path_uses_add(uses, (struct path_use){"save-adapter", v->save_adapter, PATH_BINARY});
    path_uses_add(uses, (struct path_use){"resume", v->resume, PATH_INPUT, "save"});
    path_uses_add(uses, (struct path_use){"load", v->load, PATH_INPUT});
    path_uses_add(uses, (struct path_use){"links", v->links, PATH_INPUT});
    net_run_check_input("load", v->load, t->faults);
    add_inputs(v, uses);
    path_uses_check(uses, t->faults);
    free(uses);
    return WEIR_OK;
}

/* Everything that the command line and the files may be refused for, as far as it goes. */
static int build_all(struct train *t, const struct args *args) {
    int status = ranks_leads(&t->ranks) ? check_paths(t) : WEIR_OK;
    if (status != WEIR_OK) return status;
    status = train_read_origin(t, args);
    if (status != WEIR_ERR_OUT_OF_MEMORY) status = train_data_open(t);
    if (status != WEIR_ERR_OUT_OF_MEMORY) status = train_data_build_model(t, args);
    if (status != WEIR_OK) return status;
    return build_net(t, args);
}

/* All that decides bits, and what they are judged by. */
static int hash_all(const struct train *t, uint64_t *hash) {
    const struct train_notes *notes = &t->notes;
    const struct weir__io io = {.error = t->error};
    *hash = WEIR__HASH_BEGIN;
    for (uint32_t i = 0; i < notes->count; i++) {
        const struct weir_note *note = &notes->list[i];
        *hash = weir__hash(*hash, note->key, strlen(note->key) + 1);
        *hash = weir__hash(*hash, note->value, strlen(note->value) + 1);
    }
    return t->task.dataset != NULL ? weir__dataset_hash_held_out(t->task.dataset, &io, hash)
                                   : WEIR_OK;
}

/* Another model is said before all the tensors that follow from it; warnings are for runs that go
 * on. */
static int begin_training(struct train *t) {
    bool resumes = t->values->resume != NULL;
    int status = train_notes_make(t, &t->notes);
    t->progress.notes = t->notes.list;
    t->progress.note_count = t->notes.count;
    uint64_t hash = 0;
    if (status == WEIR_OK && ranks_world(&t->ranks) != NULL) status = hash_all(t, &hash);
    status = ranks_agree(&t->ranks, status, hash);
    if (status != WEIR_OK) return status;
    if (resumes) status = train_notes_check(t);
    if (status != WEIR_OK) return status;
    status = begin_parameters(t);
    if (status != WEIR_OK || t->faults->count > 0 || !resumes) return status;
    return train_notes_warn(t);
}

int train_begin(struct train *t, const struct args *args) {
    const struct train_values *values = t->values;
    int status = build_all(t, args);
    if (status != WEIR_OK || t->faults->count > 0) return status;
    t->steps = args_given(args, "epochs") ? train_data_steps(t, values->epochs) : values->steps;
    status = begin_training(t);
    if (status != WEIR_OK || t->faults->count > 0) return status;
    status = weir__dataset_bigram(t->task.dataset, t->eval_rows, &t->bigram);
    if (status != WEIR_OK) return status;
    if ((status = train_data_start(t)) != WEIR_OK) return status;
    if ((status = train_save_begin(t)) != WEIR_OK) return status;
    if ((status = train_log_begin(t, &t->log)) != WEIR_OK) return status;
    return output_begin(&t->json, values->json, t->error);
}

/* ---- updates ---- */

double train_rate(const struct train *t, uint64_t update, uint64_t steps) {
    const struct train_values *values = t->values;
    return weir_lr(values->lr_schedule == 0 ? WEIR_LR_CONSTANT : WEIR_LR_COSINE, values->lr, 0.1,
                   update, values->warmup, steps);
}

static int fail_step(struct train *t, int status, const struct weir_error *error) {
    net_run_error(error, t->error);
    if (status != WEIR_ERR_NONFINITE) return status;
    train_explain_failure(t);
    /* of the update nothing was done: it begins with its first mini-batch */
    t->progress.mini_batch -= t->values->accumulate - 1;
    return status;
}

static int run_mini_batch(struct train *t, uint32_t k, double weight, struct train_line *line) {
    struct weir_step_result result;
    struct weir__batch data;
    int status = weir__prefetch_next(t->prefetch, &data, t->error);
    if (status != WEIR_OK) return status;
    assert(data.number == t->progress.mini_batch);
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = t->values->batch;
    batch.input = data.input;
    batch.target = data.target;
    batch.mini_batch = t->progress.mini_batch;
    batch.update = t->progress.step - t->progress.skipped;
    batch.loss_weight = weight;
    batch.accumulate_more = k + 1 < t->values->accumulate;
    batch.accumulate_next = k > 0;
    batch.lr = line->lr;
    batch.flags = ranks_flags() | train_save_flags(t);
    status = weir_net_step(t->net, &batch, &result);
    ranks_heard(&t->ranks, status, result.flags);
    if (status != WEIR_OK) return fail_step(t, status, &result.error);
    line->loss += result.loss;
    line->grad_norm = result.gradient_norm;
    line->updated = result.updated;
    train_save_heard(t, result.flags);
    t->progress.mini_batch++;
    return WEIR_OK;
}

static double units_per_update(const struct train *t) {
    return (double)t->values->batch * t->task.row_units * t->values->accumulate;
}

/* Once, as it takes longer than a step; when nobody asks for the last step's times any more. */
static void explain_skip(struct train *t) {
    if (!t->unexplained) return;
    train_explain_skip(t);
    t->unexplained = false;
    t->explained = true;
}

static int run_update(struct train *t, struct train_line *line) {
    explain_skip(t);
    ranks_at(&t->ranks, "training", t->progress.step);
    uint64_t start = weir__now_ns();
    struct weir_step_report report = {0};
    double weight;
    *line = (struct train_line){.lr = train_rate(t, t->progress.step, t->steps)};
    int status = train_data_weight(t, &weight);
    for (uint32_t k = 0; k < t->values->accumulate && status == WEIR_OK; k++)
        status = run_mini_batch(t, k, weight, line);
    if (status != WEIR_OK) return status;
    line->seconds = (double)(weir__now_ns() - start) * 1e-9;
    line->step = ++t->progress.step;
    t->progress.skipped += !line->updated;
    line->units_per_second = units_per_update(t) / line->seconds;
    if (weir_pipe_report(weir_net_pipe(t->net), &report) == WEIR_OK) {
        line->bubble = report.bubble;
        line->recompute_hidden = report.recompute_hidden;
    }
    t->unexplained = t->unexplained || (!line->updated && !t->explained);
    return WEIR_OK;
}

static bool due(uint64_t every, uint64_t step) {
    return every > 0 && step % every == 0;
}

static int validate(struct train *t, struct train_line *line) {
    int status = train_report_keep(t);
    if (status != WEIR_OK) return status;
    ranks_at(&t->ranks, "validation", t->progress.step);
    if ((status = train_evaluate(t, &line->score)) != WEIR_OK) return status;
    line->scored = true;
    train_print_validation(t, line->step, &line->score);
    train_report_validation(t, line->step, &line->score);
    if (train_has_samples(t) && t->values->sample_prompts.count > 0) train_sample(t);
    return WEIR_OK;
}

static int validate_and_save(struct train *t, struct train_line *line) {
    /* the last update's comes with the summary, after the timeline of a training step */
    bool last = line->step == t->steps;
    int status = !last && due(t->values->eval_every, line->step) ? validate(t, line) : WEIR_OK;
    ranks_at(&t->ranks, "a save, or after it", t->progress.step);
    return status != WEIR_OK ? status : train_save_update(t, line);
}

static int after_update(struct train *t, struct train_line *line) {
    train_report_update(t, line);
    train_print_line(t, line);
    int status = validate_and_save(t, line);
    train_log_update(t, &t->log, line);
    int written = train_json_line(t, line);
    return status == WEIR_OK ? written : status;
}

/* ---- medians for the summary ---- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { HISTORY = 16384 };

/* The newest updates. */
struct history {
    double *seconds, *bubble, *hidden;
    uint64_t count;
};

static int history_init(struct history *history) {
    history->seconds = malloc(HISTORY * sizeof(double));
    history->bubble = malloc(HISTORY * sizeof(double));
    history->hidden = malloc(HISTORY * sizeof(double));
    bool all = history->seconds != NULL && history->bubble != NULL && history->hidden != NULL;
    return all ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

static void history_clean_up(struct history *history) {
    free(history->seconds);
    free(history->bubble);
    free(history->hidden);
}

static void history_add(struct history *history, const struct train_line *line) {
    uint64_t at = history->count++ % HISTORY;
    history->seconds[at] = line->seconds;
    history->bubble[at] = line->bubble;
    history->hidden[at] = line->recompute_hidden;
}

static double median(double *values, uint64_t count) {
    if (count == 0) return 0.0;
    if (count > HISTORY) count = HISTORY;
    qsort(values, count, sizeof *values, compare_doubles);
    return values[count / 2];
}

static void history_medians(struct history *history, const struct train *t,
                            struct train_line *line) {
    line->seconds = median(history->seconds, history->count);
    line->bubble = median(history->bubble, history->count);
    line->recompute_hidden = median(history->hidden, history->count);
    line->units_per_second = line->seconds > 0.0 ? units_per_update(t) / line->seconds : 0.0;
}

/* ---- the whole ---- */

static int finish_run(struct train *t, struct train_line *medians) {
    ranks_at(&t->ranks, "the end of the run", t->progress.step);
    /* first: a trace that cannot be written must not cost the training */
    int status = train_save_end(t);
    if (status != WEIR_OK) return status;
    if (t->values->save_weights != NULL)
        status = weir_net_save(t->net, t->values->save_weights, NULL, t->error);
    if (status != WEIR_OK) return status;
    if (t->values->save_adapter != NULL)
        status = adapter_save(t->net, t->model, t->values->save_adapter, t->values->model.model,
                              t->error);
    if (status != WEIR_OK) return status;
    if (medians->step > 0 && ranks_leads(&t->ranks)) status = train_print_timeline(t);
    if (status != WEIR_OK) return status;
    if ((status = train_report_keep(t)) != WEIR_OK) return status;
    explain_skip(t);
    if ((status = train_evaluate(t, &t->score)) != WEIR_OK) return status;
    if ((status = train_save_best(t, t->score.loss)) != WEIR_OK) return status;
    train_report_validation(t, t->progress.step, &t->score);
    train_log_validation(t, &t->log, t->progress.step, &t->score);
    status = train_report_write(t, NULL);
    if (status != WEIR_OK) return status;
    train_print_summary(t, medians);
    status = train_json_summary(t, medians);
    if (status == WEIR_OK && train_has_samples(t) && !train_is_stopped(t)) train_sample(t);
    return status;
}

bool train_is_stopped(const struct train *t) {
    return ranks_stopped(&t->ranks);
}

int train_loop(struct train *t) {
    struct train_line line = {0};
    struct history history = {0};
    int status = history_init(&history);
    while (status == WEIR_OK && t->progress.step < t->steps && !train_is_stopped(t)) {
        status = run_update(t, &line);
        if (status != WEIR_OK) break;
        history_add(&history, &line);
        status = after_update(t, &line);
    }
    if (status != WEIR_OK) goto out;
    history_medians(&history, t, &line);
    status = finish_run(t, &line);
out:
    history_clean_up(&history);
    return status;
}

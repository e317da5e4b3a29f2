/* SPDX-License-Identifier: MIT */
/* The run itself: data, updates, validation, saves. */
#include "io/safetensors.h"
#include "net_run.h"
#include "train.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Ctrl-C: once, finish the step and save; twice, leave at once ---- */

static volatile sig_atomic_t interrupts; /* a handler can reach nothing but globals */

static void interrupt(int signal_number) {
    (void)signal_number;
    if (++interrupts > 1) _exit(EXIT_INTERRUPTED);
}

bool train_interrupted(void) {
    return interrupts > 0;
}

static void catch_interrupts(void) {
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

/* ---- beginning ---- */

static const char *const own_text[] = {"src", "kernels", "bench", "tests", "tools", "README.md"};
enum { OWN_TEXT = sizeof own_text / sizeof own_text[0] };

static int open_corpus(struct train *t) {
    struct weir__io io = {.error = t->error};
    const char *present[OWN_TEXT];
    struct weir__corpus_options options = {t->values->data.items, t->values->data.count,
                                           t->values->model.context, 0};
    if (options.path_count == 0) {
        struct stat facts;
        options.paths = present;
        for (int i = 0; i < OWN_TEXT; i++)
            if (stat(own_text[i], &facts) == 0) present[options.path_count++] = own_text[i];
        if (options.path_count == 0) {
            weir_faults_add(t->faults, "no --data, and no project text (src, bench, tests, tools, "
                                       "README.md) in this folder: give --data PATH...");
            return WEIR_ERR_CONFIG;
        }
    }
    int status = weir__corpus_open(&io, &options, &t->corpus);
    if (status == WEIR_ERR_CONFIG || status == WEIR_ERR_IO)
        weir_faults_add(t->faults, "%s", t->error->message);
    return status;
}

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

static int build_net(struct train *t, const struct args *args) {
    struct train_values *values = t->values;
    int status =
        pipe_options_fill(&values->pipe, args, t->model, &t->storage, &t->options, t->faults);
    if (status != WEIR_OK) return status;
    t->options.pipe.rows = values->batch;
    t->options.pipe.clip_norm = values->clip;
    t->options.pipe.skip_nonfinite = values->on_nonfinite == 1;
    t->options.pipe.trace_actions = 4096;
    fill_optimizer(values, &t->options.optimizer);
    if (t->faults->count > 0) return list_faults(t);
    status = weir_net_new(t->model, &t->options, t->faults, &t->net);
    if (status != WEIR_OK) return status;
    /* the sample's row, and those of a short validation */
    return weir_pipe_prepare(weir_net_pipe(t->net), 1, t->faults);
}

static int begin_parameters(struct train *t, const struct args *args) {
    uint64_t seed = t->values->pipe.seed;
    if (t->values->resume == NULL) {
        t->progress = (struct weir_progress){0, 0, seed};
        return weir_net_init(t->net, seed);
    }
    int status = net_run_load(t->net, t->values->resume, &t->progress, t->faults);
    if (status != WEIR_OK) return status;
    if (args_given(args, "seed") && t->progress.seed != seed)
        weir_faults_add(t->faults, "--seed %llu: %s was trained with seed %llu: leave --seed away",
                        (unsigned long long)seed, t->values->resume,
                        (unsigned long long)t->progress.seed);
    if (t->progress.step > t->steps)
        weir_faults_add(t->faults, "--steps %llu: %s has done %llu: give more",
                        (unsigned long long)t->steps, t->values->resume,
                        (unsigned long long)t->progress.step);
    return WEIR_OK;
}

static uint64_t count_steps(const struct train *t, const struct args *args) {
    const struct train_values *values = t->values;
    if (!args_given(args, "epochs")) return values->steps;
    double tokens = (double)values->batch * values->accumulate * values->model.context;
    double steps = ceil((double)t->corpus.text.count * values->epochs / tokens);
    return steps < 0x1p62 ? (uint64_t)steps : (uint64_t)1 << 62;
}

/* A resumed run's dropout and data go on with the seed that it began with. */
static int read_seed(struct train *t, const struct args *args) {
    if (t->values->resume == NULL || args_given(args, "seed")) return WEIR_OK;
    struct weir__io io = {.error = t->error};
    struct weir__safetensors *file;
    int status = weir__safetensors_open(&io, t->values->resume, NULL, &file);
    if (status == WEIR_ERR_OUT_OF_MEMORY) return status;
    if (status != WEIR_OK) {
        weir_faults_add(t->faults, "%s", t->error->message);
        return status;
    }
    const char *seed = weir__safetensors_metadata(file, "seed");
    if (seed != NULL) t->values->pipe.seed = strtoull(seed, NULL, 10);
    weir__safetensors_close(file);
    return WEIR_OK;
}

int train_begin(struct train *t, const struct args *args) {
    const struct train_values *values = t->values;
    size_t tokens = (size_t)values->batch * values->model.context;
    net_run_check_output("save", values->save, t->faults);
    net_run_check_output("save-weights", values->save_weights, t->faults);
    if (!output_is_standard(values->trace)) net_run_check_output("trace", values->trace, t->faults);
    if (!output_is_standard(values->json)) net_run_check_output("json", values->json, t->faults);
    int status = read_seed(t, args);
    if (status != WEIR_ERR_OUT_OF_MEMORY) status = open_corpus(t);
    if (status != WEIR_ERR_OUT_OF_MEMORY) status = build_net(t, args);
    if (status != WEIR_OK || t->faults->count > 0) return status;
    t->steps = count_steps(t, args);
    status = begin_parameters(t, args);
    if (status != WEIR_OK || t->faults->count > 0) return status;
    t->inputs = malloc(tokens * sizeof *t->inputs);
    t->targets = malloc(tokens * sizeof *t->targets);
    if (t->inputs == NULL || t->targets == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    t->eval_rows = (uint64_t)values->eval_batches * values->batch;
    if (t->eval_rows > t->corpus.held_out_rows) t->eval_rows = t->corpus.held_out_rows;
    if (t->eval_rows >= values->batch) t->eval_rows -= t->eval_rows % values->batch;
    status = weir__corpus_bigram(&t->corpus, &t->corpus, t->eval_rows, &t->bigram);
    return status == WEIR_OK ? output_begin(&t->json, values->json, t->error) : status;
}

/* ---- validation ---- */

/* Whole mini-batches, or single rows of fewer: a row count in between may not fit the arena. */
int train_evaluate(struct train *t, double *loss) {
    uint32_t rows = t->eval_rows < t->values->batch ? 1 : t->values->batch;
    double sum = 0.0;
    for (uint64_t first = 0; first < t->eval_rows; first += rows) {
        weir__corpus_batch_held_out(&t->corpus, first, rows, t->inputs, t->targets);
        struct weir_net_batch part = {
            .rows = rows, .input = t->inputs, .target = t->targets, .lr = -1.0};
        struct weir_step_result result;
        int status = weir_net_infer(t->net, &part, &result);
        if (status != WEIR_OK) {
            net_run_error(&result.error, t->error);
            return status;
        }
        sum += result.loss * rows;
    }
    *loss = sum / (double)t->eval_rows;
    return WEIR_OK;
}

/* ---- updates ---- */

static double rate(const struct train *t) {
    const struct train_values *values = t->values;
    return weir_lr(values->lr_schedule == 0 ? WEIR_LR_CONSTANT : WEIR_LR_COSINE, values->lr, 0.1,
                   t->progress.step, values->warmup, t->steps);
}

static int run_mini_batch(struct train *t, uint32_t k, double lr, struct train_line *line) {
    const struct train_values *values = t->values;
    double tokens = (double)values->batch * values->model.context;
    struct weir_step_result result;
    weir__corpus_batch(&t->corpus, t->progress.seed, t->progress.mini_batch, values->batch,
                       t->inputs, t->targets);
    struct weir_net_batch batch = {.rows = values->batch,
                                   .input = t->inputs,
                                   .target = t->targets,
                                   .mini_batch = t->progress.mini_batch,
                                   .update = t->progress.step,
                                   .loss_weight = tokens * values->accumulate,
                                   .accumulate_more = k + 1 < values->accumulate,
                                   .accumulate_next = k > 0,
                                   .lr = lr};
    int status = weir_net_step(t->net, &batch, &result);
    if (status != WEIR_OK) {
        net_run_error(&result.error, t->error);
        if (status == WEIR_ERR_NONFINITE)
            weir__fail(t->error, status,
                       "update %" PRIu64 ": its gradient is not finite: lower "
                       "--lr, or go on without it by --on-nonfinite skip",
                       t->progress.step + 1);
        return status;
    }
    line->loss += result.loss;
    line->grad_norm = result.gradient_norm;
    line->updated = result.updated;
    t->progress.mini_batch++;
    return WEIR_OK;
}

static int run_update(struct train *t, struct train_line *line) {
    const struct train_values *values = t->values;
    uint64_t start = weir__now_ns();
    struct weir_step_report report = {0};
    *line = (struct train_line){.lr = rate(t)};
    for (uint32_t k = 0; k < values->accumulate; k++) {
        int status = run_mini_batch(t, k, line->lr, line);
        if (status != WEIR_OK) return status;
    }
    line->seconds = (double)(weir__now_ns() - start) * 1e-9;
    line->step = ++t->progress.step;
    line->tokens_per_second =
        (double)values->batch * values->model.context * values->accumulate / line->seconds;
    if (weir_pipe_report(weir_net_pipe(t->net), &report) == WEIR_OK) {
        line->bubble = report.bubble;
        line->recompute_hidden = report.recompute_hidden;
    }
    return WEIR_OK;
}

static int save(struct train *t) {
    if (t->values->save == NULL) return WEIR_OK;
    return weir_net_save(t->net, t->values->save, &t->progress, t->error);
}

static bool due(uint64_t every, uint64_t step) {
    return every > 0 && step % every == 0;
}

static int after_update(struct train *t, const struct train_line *line) {
    int status = train_json_line(t, line);
    if (due(t->values->log_every, line->step) || line->step == t->steps) train_print_line(t, line);
    if (status == WEIR_OK && due(t->values->save_every, line->step)) status = save(t);
    /* the last update's comes with the summary, after the timeline of a training step */
    bool last = line->step == t->steps;
    if (status == WEIR_OK && !last && due(t->values->eval_every, line->step)) {
        double loss;
        status = train_evaluate(t, &loss);
        if (status == WEIR_OK) train_print_validation(t, line->step, loss);
    }
    return status;
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
    double tokens = (double)t->values->batch * t->values->model.context * t->values->accumulate;
    line->seconds = median(history->seconds, history->count);
    line->bubble = median(history->bubble, history->count);
    line->recompute_hidden = median(history->hidden, history->count);
    line->tokens_per_second = line->seconds > 0.0 ? tokens / line->seconds : 0.0;
}

/* ---- the whole ---- */

static int finish_run(struct train *t, struct train_line *medians) {
    int status = save(t); /* first: a trace that cannot be written must not cost the training */
    if (status == WEIR_OK && t->values->save_weights != NULL)
        status = weir_net_save(t->net, t->values->save_weights, NULL, t->error);
    if (status == WEIR_OK && medians->step > 0) status = train_print_timeline(t);
    if (status == WEIR_OK) status = train_evaluate(t, &t->validation);
    if (status != WEIR_OK) return status;
    t->interrupted = train_interrupted();
    train_print_summary(t, medians);
    status = train_json_summary(t, medians);
    if (status == WEIR_OK && t->values->sample > 0 && !t->interrupted)
        status = train_sample(t, t->values->sample);
    t->interrupted = train_interrupted();
    return status;
}

int train_loop(struct train *t) {
    struct train_line line = {0};
    struct history history = {0};
    int status = history_init(&history);
    catch_interrupts();
    while (status == WEIR_OK && t->progress.step < t->steps && !t->interrupted) {
        status = run_update(t, &line);
        if (status != WEIR_OK) break;
        history_add(&history, &line);
        status = after_update(t, &line);
        t->interrupted = train_interrupted();
    }
    if (status == WEIR_OK) {
        history_medians(&history, t, &line);
        status = finish_run(t, &line);
    }
    history_clean_up(&history);
    return status;
}

/* SPDX-License-Identifier: MIT */
/* What a run shows: tables before, a line per update, timeline and summary after; and the same for
 * programs. */
#include "cli/json_text.h"
#include "cli/plan_text.h"
#include "cmd/train.h"
#include "pipe/describe/groups.h"
#include "pipe/describe/microbatch.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>

/* ---- before the first step ---- */

static void print_layers(FILE *to, const struct train *t) {
    const uint32_t *balance = weir_net_balance(t->net);
    uint32_t stages = weir_pipe_stage_count(weir_net_pipe(t->net)), layer = 0;
    fprintf(to, "\n%5s  %-16s %-7s %14s %14s  %s\n", "stage", "layers", "worker", "parameters",
            "bytes", "place");
    for (uint32_t s = 0; s < stages; s++) {
        uint64_t numbers = 0, bytes = 0;
        struct weir_attachment attachment;
        struct weir_place place = {0};
        if (weir_pipe_attachment(weir_net_pipe(t->net), s, &attachment) != WEIR_OK) continue;
        (void)weir_pipe_place(weir_net_pipe(t->net), attachment.worker, &place);
        for (uint32_t i = 0; i < weir_net_parameter_count(t->net); i++) {
            struct weir_parameter p;
            if (weir_net_parameter(t->net, i, &p) != WEIR_OK || p.stage != s) continue;
            numbers += p.statistic ? 0 : p.count;
            bytes += p.count * weir_dtype_bytes(p.dtype);
        }
        char layers[32], where[160], host[80] = "";
        snprintf(layers, sizeof layers, "%" PRIu32 "-%" PRIu32, layer, layer + balance[s] - 1);
        if (ranks_world(&t->ranks) != NULL)
            snprintf(host, sizeof host, "rank %" PRIu32 " on %s, ", place.rank, place.host);
        if (place.bound)
            snprintf(where, sizeof where, "%scores %s, NUMA node %" PRId32, host, place.cores,
                     place.numa_node);
        else
            snprintf(where, sizeof where, "%snot bound", host);
        fprintf(to, "%5" PRIu32 "  %-16s %-7" PRIu32 " %14" PRIu64 " %14" PRIu64 "  %s\n", s,
                layers, attachment.worker, numbers, bytes, where);
        layer += balance[s];
    }
}

static void print_model(FILE *to, const struct train *t) {
    const struct model_options *model = &t->values->model;
    if (strcmp(model->model, "gpt") == 0) {
        fprintf(to,
                "model     gpt: %" PRIu32 " layer%s, width %" PRIu32 ", %" PRIu32
                " head%s, context %" PRIu32,
                model->layers, weir__s(model->layers), model->width, model->heads,
                weir__s(model->heads), model->context);
        if (model->residual_block > 0)
            fprintf(to, ", residuals mixed by blocks of %" PRIu32, model->residual_block);
        fputc('\n', to);
        return;
    }
    struct weir_tensor input, target;
    const char *loss;
    char from[96], to_text[96];
    weir_model_border(t->model, &input, &target, &loss);
    uint32_t layers = weir_model_layer_count(t->model);
    fprintf(to, "model     %s: %" PRIu32 " layer%s, %s to %s, %s\n", model->model, layers,
            weir__s(layers), weir__tensor_text(&input, from, sizeof from),
            weir__tensor_text(&t->task.output, to_text, sizeof to_text), loss);
    if (model_options_is_folder(model) && t->values->load == NULL && t->values->resume == NULL)
        fprintf(to, "          weights drawn by --seed: the folder has none\n");
}

/* How much of a row is no padding tells whether a smaller --context would do. */
static void print_words(FILE *to, const struct train *t, const struct weir__dataset_facts *data) {
    bool chats = data->kind == WEIR__DATA_CHATS;
    double full = 100.0 * data->row_tokens / (double)t->task.target_numbers;
    if (chats)
        fprintf(to,
                "chats     %" PRIu64 " conversation%s by the template %s, %" PRIu64
                " tokens, of replies %" PRIu64 "\n",
                data->document_count, weir__s(data->document_count),
                chat_template_name(t->task.words.form), data->units, data->learnt);
    else
        fprintf(to, "text      %" PRIu64 " tokens in %" PRIu32 " file%s\n", data->units,
                data->file_count, weir__s(data->file_count));
    fprintf(to,
            "          rows of %" PRIu64 ", %.0f%% full, %.0f to train on, %" PRIu64 " held out\n",
            t->task.target_numbers, full, data->pass_rows, data->held_out_rows);
}

static void print_data(FILE *to, const struct train *t) {
    char text[512];
    const struct weir__dataset_facts *data = t->task.data;
    const char *held_out =
        t->values->eval_data.count > 0 ? "other text held out" : "a tenth held out";
    switch (data->kind) {
    case WEIR__DATA_TEXT:
        fprintf(to, "text      %s in %" PRIu32 " file%s, %s\n", plan_text_bytes(data->units, text),
                data->file_count, weir__s(data->file_count), held_out);
        break;
    case WEIR__DATA_TOKENS:
        fprintf(to,
                "tokens    %" PRIu64 " in %" PRIu32 " file%s, rows of %" PRIu64 ", %" PRIu64
                " row%s held out\n",
                data->units, data->file_count, weir__s(data->file_count), t->task.target_numbers,
                data->held_out_rows, weir__s(data->held_out_rows));
        break;
    case WEIR__DATA_WORDS:
    case WEIR__DATA_CHATS: print_words(to, t, data); break;
    default:
        fprintf(to, "data      %s: %" PRIu64 " sample%s, %" PRIu64 " more held out\n",
                weir__dataset_text(t->task.dataset, text, sizeof text), data->units,
                weir__s(data->units), data->held_out_rows);
    }
}

/* "tokens" or "samples" */
static const char *unit_of(const struct train *t) {
    return t->task.data->kind == WEIR__DATA_ARRAYS ? "samples" : "tokens";
}

static void print_groups(FILE *to, const struct weir_pipe_options *pipe) {
    uint32_t replicas = weir__replicas(pipe), groups = weir__gradient_groups(pipe);
    if (groups > 1)
        fprintf(to, "          %" PRIu32 " replica%s, %" PRIu32 " groups of gradients\n", replicas,
                weir__s(replicas), groups);
}

void train_print_header(struct train *t) {
    FILE *to = t->people.stream;
    const struct train_values *v = t->values;
    char kernels[512];
    weir_net_kernels(t->net, kernels, sizeof kernels);
    print_model(to, t);
    print_data(to, t);
    const struct weir_table *table = weir_pipe_table(weir_net_pipe(t->net), v->batch);
    uint32_t micro_batches = weir__chunk_count(v->batch, t->options.pipe.chunks);
    if (t->search.result.winner != NULL) search_print_choice(to, &t->search);
    fprintf(to,
            "pipeline  %s, %" PRIu32 " stage%s on %" PRIu32 " worker%s, %" PRIu32
            " row%s in %" PRIu32 " micro-batch%s, checkpoint %s, recompute %s\n",
            v->pipe.schedule, table->stage_count, weir__s(table->stage_count), table->worker_count,
            weir__s(table->worker_count), v->batch, weir__s(v->batch), micro_batches,
            weir__es(micro_batches), pipe_checkpoint_text(&v->pipe), pipe_recompute_text(&v->pipe));
    print_groups(to, &t->options.pipe);
    people_wrap(&t->people, "kernels   ", kernels);
    const char *exchange = weir_pipe_exchange(weir_net_pipe(t->net));
    if (exchange[0] != '\0') people_wrap(&t->people, "ranks     ", exchange);
    print_layers(to, t);
    fprintf(to, "\nplanned memory\n");
    plan_text_print(&t->people, weir_pipe_plan(weir_net_pipe(t->net)));
    fputc('\n', to);
    train_save_print(t);
    if (v->resume != NULL)
        fprintf(to, "\nresumed from %s after %" PRIu64 " updates\n", v->resume, t->progress.step);
    if (v->load != NULL && v->load_strict == 1)
        fprintf(to, "\nstarts from what %s has of the model's weights\n", v->load);
    else if (v->load != NULL)
        fprintf(to, "\nstarts from %s: all %" PRIu32 " tensors of the model\n", v->load,
                weir_net_parameter_count(t->net));
    fputc('\n', to);
    fflush(to);
    progress_begin(&t->shown, &t->people, t->progress.step, t->steps);
}

/* ---- during ---- */

static bool wants_line(struct train *t, const struct train_line *line) {
    uint64_t every = t->values->log_every;
    if (t->people.silent) return false;
    if (every > 0) return line->step % every == 0 || line->step == t->steps;
    if (t->people.terminal) return !line->updated; /* what must not pass by */
    return progress_due(&t->shown) || line->step == t->steps;
}

static void print_columns(struct train *t) {
    if (t->has_columns) return;
    fprintf(t->people.stream, "%7s %9s %9s %10s %10s %7s/s %7s %7s %8s\n", "update", "loss", "norm",
            "lr", "time", unit_of(t), "bubble", "hidden", "left");
    t->has_columns = true;
}

void train_print_line(struct train *t, const struct train_line *line) {
    char time[32], left[32];
    if (wants_line(t, line)) {
        progress_clear(&t->shown);
        print_columns(t);
        fprintf(t->people.stream,
                "%7" PRIu64 " %9.4f %9.3f %10.3e %10s %9.0f %6.1f%% %6.1f%% %8s%s\n", line->step,
                line->loss, line->grad_norm, line->lr, time_text(line->seconds, time),
                line->units_per_second, line->bubble * 100.0, line->recompute_hidden * 100.0,
                time_text_clock(progress_left(&t->shown, line->step), left),
                line->updated ? "" : "  gradient not finite: update skipped");
        fflush(t->people.stream);
    }
    progress_show(&t->shown, line->step, "update %" PRIu64 "/%" PRIu64 "  loss %.4f  %.0f %s/s ",
                  line->step, t->steps, line->loss, line->units_per_second, unit_of(t));
    if (line->step == t->steps) progress_keep(&t->shown);
}

const char *train_rate_key(const struct train *t) {
    return t->task.data->kind == WEIR__DATA_ARRAYS ? "samples_per_second" : "tokens_per_second";
}

static void add_score(const struct train *t, const struct task_score *score, json_t *to) {
    json_object_set_new(to, "validation_loss", json_text_real(score->loss));
    task_score_json(&t->task, score, to);
}

int train_json_line(struct train *t, const struct train_line *line) {
    if (t->values->json == NULL) return WEIR_OK;
    json_t *object = json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "step", (json_int_t)line->step, "loss",
        json_text_real(line->loss), "grad_norm", json_text_real(line->grad_norm), "lr",
        json_text_real(line->lr), "seconds", json_text_real(line->seconds), train_rate_key(t),
        json_text_real(line->units_per_second), "bubble", json_text_real(line->bubble),
        "recompute_hidden", json_text_real(line->recompute_hidden));
    if (line->scored) add_score(t, &line->score, object);
    return json_text_line(&t->json, object);
}

void train_print_validation(struct train *t, uint64_t step, const struct task_score *score) {
    char text[128];
    task_score_text(&t->task, score, text);
    progress_clear(&t->shown);
    fprintf(t->people.stream, "%7" PRIu64 " validation %s", step, text);
    if (t->task.data->kind == WEIR__DATA_TEXT)
        fprintf(t->people.stream, " (bigram %.4f)", t->bigram);
    fputc('\n', t->people.stream);
    fflush(t->people.stream);
}

/* ---- after ---- */

static int write_people(void *context, const char *text, size_t bytes) {
    return fwrite(text, 1, bytes, context) == bytes ? WEIR_OK : WEIR_ERR_IO;
}

static int write_trace(struct train *t) {
    struct output output;
    int status = output_begin(&output, t->values->trace, t->error);
    if (status != WEIR_OK) return status;
    status = weir_pipe_trace_chrome(weir_net_pipe(t->net), output_write, &output);
    if (status != WEIR_OK) {
        output_abort(&output);
        return status;
    }
    return output_commit(&output);
}

/* Nothing is "-0". */
static const char *short_time(double ns, char text[32]) {
    return time_text(fabs(ns) < 0.5 ? 0.0 : ns * 1e-9, text);
}

static void print_workers(FILE *to, const struct weir_step_report *report) {
    fprintf(to, "\n%6s %10s %10s %11s %10s %11s %10s\n", "worker", "busy", "idle", "dependency",
            "copy", "imbalance", "host");
    for (uint32_t w = 0; w < report->worker_count; w++) {
        const struct weir_worker_time *time = &report->workers[w];
        char text[6][32];
        fprintf(to, "%6" PRIu32 " %10s %10s %11s %10s %11s %10s\n", w,
                short_time(time->busy, text[0]), short_time(time->idle, text[1]),
                short_time(time->dependency, text[2]), short_time(time->copy, text[3]),
                short_time(time->imbalance, text[4]), short_time(time->host, text[5]));
    }
}

/* A worker that is busy for less than half as long as another: why, and what next. */
static void print_uneven(const struct train *t, const struct weir_step_report *report) {
    uint32_t least = 0, most = 0, layers = weir_model_layer_count(t->model);
    const struct pipe_options *pipe = &t->values->pipe;
    char text[320];
    for (uint32_t w = 1; w < report->worker_count; w++) {
        if (report->workers[w].busy < report->workers[least].busy) least = w;
        if (report->workers[w].busy > report->workers[most].busy) most = w;
    }
    double part = report->workers[least].busy / report->workers[most].busy;
    if (!(part < 0.5)) return;
    bool measured = pipe->balance_by == PIPE_BALANCE_BY_TIME || pipe->balance.count > 0;
    bool few = layers < 4 * t->options.stages;
    snprintf(text, sizeof text,
             "worker %" PRIu32 " is busy %.0f%% as long as worker %" PRIu32 ": %s%s", least,
             part * 100.0, most,
             few ? "the model has few layers to divide, and a layer cannot be cut: fewer stages "
                   "(--stages), or more and smaller layers, would use it better"
                 : "its stages have less to do",
             few        ? ""
             : measured ? ": another --balance would use it better"
                        : ": try --balance-by time, or --plan auto");
    fputc('\n', t->people.stream);
    people_wrap(&t->people, "uneven      ", text);
}

int train_print_timeline(struct train *t) {
    struct weir_step_report report;
    struct weir_pipe *pipe = weir_net_pipe(t->net);
    progress_keep(&t->shown); /* of a run that was interrupted */
    fprintf(t->people.stream, "\nthe last update%s\n",
            t->values->accumulate > 1 ? ", its last mini-batch" : "");
    int status = weir_pipe_trace_text(pipe, t->people.columns, t->people.colour, write_people,
                                      t->people.stream);
    if (status != WEIR_OK) return status;
    status = weir_pipe_report(pipe, &report);
    if (status != WEIR_OK) return status;
    print_workers(t->people.stream, &report);
    print_uneven(t, &report);
    return t->values->trace != NULL ? write_trace(t) : WEIR_OK;
}

static uint64_t peak_bytes(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

static uint64_t planned_bytes(const struct train *t) {
    const struct weir_plan *plan = weir_pipe_plan(weir_net_pipe(t->net));
    uint64_t bytes = 0;
    for (uint32_t d = 0; d < plan->device_count; d++) bytes += plan->devices[d].total;
    return bytes + train_save_bytes(t);
}

double train_planned_step(const struct train *t) {
    return t->search.result.winner != NULL ? t->search.result.winner->step : 0.0;
}

/* Of the step that was kept: what it took, and what the simulator says by the steps around it. NaN
 * where there is none. */
static double kept_seconds(const struct train *t, bool predicted) {
    const struct weir_snapshot *kept = t->report->snapshot;
    if (kept == NULL || (predicted && kept->predicted.step_count == 0)) return NAN;
    return (predicted ? kept->predicted.makespan : kept->report.makespan) * 1e-9;
}

static void print_prediction(const struct train *t) {
    double measured = kept_seconds(t, false), predicted = kept_seconds(t, true);
    if (isnan(predicted)) return;
    char text[2][32];
    fprintf(t->people.stream,
            "pipeline    a typical step %s, predicted by %" PRIu32 " other%s %s (%+.1f%%)\n",
            time_text(measured, text[0]), t->report->snapshot->predicted.step_count,
            weir__s(t->report->snapshot->predicted.step_count), time_text(predicted, text[1]),
            (predicted / measured - 1.0) * 100.0);
}

void train_print_summary(struct train *t, const struct train_line *medians) {
    FILE *to = t->people.stream;
    const struct train_values *v = t->values;
    char plan[24], peak[24], score[128], time[32], text[320];
    bool tokens = t->task.metric == TASK_NATS;
    int used =
        snprintf(text, sizeof text, "%s over %.0f %s", task_score_text(&t->task, &t->score, score),
                 tokens ? t->score.weight : (double)t->eval_rows, task_units(&t->task));
    if (t->task.data->kind == WEIR__DATA_TEXT)
        snprintf(text + used, sizeof text - (size_t)used,
                 "; a bigram model of the same text %.4f (%+.4f)", t->bigram,
                 t->score.loss - t->bigram);
    fputc('\n', to);
    people_wrap(&t->people, "validation  ", text);
    snprintf(text, sizeof text,
             "%s per update, %.0f %s/s, bubble %.1f%%, recompute hidden %.1f%% (medians)",
             time_text(medians->seconds, time), medians->units_per_second, unit_of(t),
             medians->bubble * 100.0, medians->recompute_hidden * 100.0);
    if (medians->step > 0) people_wrap(&t->people, "speed       ", text);
    print_prediction(t);
    fprintf(to, "memory      planned %s, the process's peak %s\n",
            plan_text_bytes(planned_bytes(t), plan), plan_text_bytes(peak_bytes(), peak));
    if (v->save != NULL) fprintf(to, "checkpoint  %s\n", v->save);
    if (v->save_adapter != NULL) fprintf(to, "adapters    %s\n", v->save_adapter);
    if (v->save_weights != NULL) fprintf(to, "weights     %s\n", v->save_weights);
    if (v->trace != NULL) fprintf(to, "trace       %s (open it in Perfetto)\n", v->trace);
    if (v->report != NULL) fprintf(to, "report      %s\n", v->report);
    if (train_is_stopped(t))
        fprintf(to, "interrupted after %" PRIu64 " of %" PRIu64 " updates\n", t->progress.step,
                t->steps);
    fflush(to);
}

int train_json_summary(struct train *t, const struct train_line *medians) {
    if (t->values->json == NULL) return WEIR_OK;
    char kernels[512];
    uint32_t reference = weir_net_kernels(t->net, kernels, sizeof kernels);
    json_t *summary = json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:s, s:i, s:b, s:I, s:I}", "steps", (json_int_t)t->progress.step,
        "seconds", json_text_real(medians->seconds), train_rate_key(t),
        json_text_real(medians->units_per_second), "bubble", json_text_real(medians->bubble),
        "recompute_hidden", json_text_real(medians->recompute_hidden), "kernels", kernels,
        "reference_ops", (int)reference, "interrupted", train_is_stopped(t), "planned_bytes",
        (json_int_t)planned_bytes(t), "peak_bytes", (json_int_t)peak_bytes());
    json_object_set_new(summary, "typical_step", json_text_real(kept_seconds(t, false)));
    json_object_set_new(summary, "predicted_step", json_text_real(kept_seconds(t, true)));
    if (train_planned_step(t) > 0.0)
        json_object_set_new(summary, "planned_step", json_real(train_planned_step(t)));
    add_score(t, &t->score, summary);
    if (t->task.data->kind == WEIR__DATA_TEXT)
        json_object_set_new(summary, "bigram_loss", json_text_real(t->bigram));
    return json_text_line(&t->json, json_pack("{s:o}", "summary", summary));
}

int train_json_failure(struct train *t) {
    if (t->values->json == NULL) return WEIR_OK;
    const char *reason =
        t->error->message[0] != '\0' ? t->error->message : weir_status_text(t->error->status);
    return json_text_line(&t->json, json_pack("{s:{s:I, s:o}}", "summary", "steps",
                                              (json_int_t)t->progress.step, "failed",
                                              json_text_string(reason)));
}

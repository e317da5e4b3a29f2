/* SPDX-License-Identifier: MIT */
/* What a run shows: tables before, a line per update, timeline and summary after; and the same for
 * programs. */
#include "cli/json_text.h"
#include "cli/plan_text.h"
#include "cmd/train.h"

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
        weir_pipe_place(weir_net_pipe(t->net), attachment.worker, &place);
        for (uint32_t i = 0; i < weir_net_parameter_count(t->net); i++) {
            struct weir_parameter p;
            if (weir_net_parameter(t->net, i, &p) != WEIR_OK || p.stage != s) continue;
            numbers += p.count;
            bytes += p.count * weir_dtype_bytes(p.dtype);
        }
        char layers[32], where[96];
        snprintf(layers, sizeof layers, "%" PRIu32 "-%" PRIu32, layer, layer + balance[s] - 1);
        if (place.bound)
            snprintf(where, sizeof where, "cores %s, NUMA node %" PRId32, place.cores,
                     place.numa_node);
        else
            snprintf(where, sizeof where, "not bound");
        fprintf(to, "%5" PRIu32 "  %-16s %-7" PRIu32 " %14" PRIu64 " %14" PRIu64 "  %s\n", s,
                layers, attachment.worker, numbers, bytes, where);
        layer += balance[s];
    }
}

/* Breaks at blanks; later lines are indented as far as the first one's title. */
static void print_wrapped(FILE *to, uint32_t columns, const char *title, const char *text) {
    size_t indent = strlen(title), used = indent;
    fputs(title, to);
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (used > indent && used + word + 1 > columns) {
            fprintf(to, "\n%*s", (int)indent, "");
            used = indent;
        } else if (used > indent) {
            fputc(' ', to);
            used++;
        }
        fprintf(to, "%.*s", (int)word, text);
        used += word;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', to);
}

static void print_model(FILE *to, const struct train *t) {
    const struct model_options *model = &t->values->model;
    if (strcmp(model->model, "gpt") == 0) {
        fprintf(to,
                "model     gpt: %" PRIu32 " layer%s, width %" PRIu32 ", %" PRIu32
                " head%s, context %" PRIu32 "\n",
                model->layers, weir__s(model->layers), model->width, model->heads,
                weir__s(model->heads), model->context);
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
                data->units, data->file_count, weir__s(data->file_count), t->task.row_units,
                data->held_out_rows, weir__s(data->held_out_rows));
        break;
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

void train_print_header(const struct train *t) {
    FILE *to = t->people.stream;
    const struct train_values *v = t->values;
    char kernels[512];
    weir_net_kernels(t->net, kernels, sizeof kernels);
    print_model(to, t);
    print_data(to, t);
    const struct weir_table *table = weir_pipe_table(weir_net_pipe(t->net), v->batch);
    if (t->search.result.winner != NULL) search_print_choice(to, &t->search);
    fprintf(to,
            "pipeline  %s, %" PRIu32 " stage%s on %" PRIu32 " worker%s, %" PRIu32
            " row%s in %" PRIu32 " micro-batch%s, checkpoint %s, recompute %s\n",
            v->pipe.schedule, table->stage_count, weir__s(table->stage_count), table->worker_count,
            weir__s(table->worker_count), v->batch, weir__s(v->batch), table->micro_batch_count,
            weir__es(table->micro_batch_count), pipe_checkpoint_text(&v->pipe),
            pipe_recompute_text(&v->pipe));
    print_wrapped(to, t->people.columns, "kernels   ", kernels);
    print_layers(to, t);
    fprintf(to, "\nplanned memory\n");
    plan_text_print(to, weir_pipe_plan(weir_net_pipe(t->net)));
    if (v->resume != NULL)
        fprintf(to, "\nresumed from %s after %" PRIu64 " updates\n", v->resume, t->progress.step);
    fprintf(to, "\n%7s %9s %9s %10s %8s %7s/s %7s %7s\n", "step", "loss", "norm", "lr", "ms",
            unit_of(t), "bubble", "hidden");
    fflush(to);
}

/* ---- during ---- */

void train_print_line(struct train *t, const struct train_line *line) {
    fprintf(t->people.stream, "%7" PRIu64 " %9.4f %9.3f %10.3e %8.1f %9.0f %6.1f%% %6.1f%%%s\n",
            line->step, line->loss, line->grad_norm, line->lr, line->seconds * 1e3,
            line->units_per_second, line->bubble * 100.0, line->recompute_hidden * 100.0,
            line->updated ? "" : "  gradient not finite: update skipped");
    fflush(t->people.stream);
}

/* "tokens_per_second" or "samples_per_second" */
static const char *rate_key(const struct train *t) {
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
        json_text_real(line->lr), "seconds", json_text_real(line->seconds), rate_key(t),
        json_text_real(line->units_per_second), "bubble", json_text_real(line->bubble),
        "recompute_hidden", json_text_real(line->recompute_hidden));
    if (line->scored) add_score(t, &line->score, object);
    return json_text_line(&t->json, object);
}

void train_print_validation(struct train *t, uint64_t step, const struct task_score *score) {
    char text[128];
    task_score_text(&t->task, score, text);
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

/* Nothing is "-0.00". */
static double milliseconds(double ns) {
    double ms = ns * 1e-6;
    return fabs(ms) < 0.005 ? 0.0 : ms;
}

int train_print_timeline(struct train *t) {
    struct weir_step_report report;
    struct weir_pipe *pipe = weir_net_pipe(t->net);
    fprintf(t->people.stream, "\nthe last step\n");
    int status = weir_pipe_trace_text(pipe, t->people.columns, t->people.colour, write_people,
                                      t->people.stream);
    if (status != WEIR_OK) return status;
    status = weir_pipe_report(pipe, &report);
    if (status != WEIR_OK) return status;
    fprintf(t->people.stream, "\n%6s %9s %9s %11s %9s %11s %9s   (ms)\n", "worker", "busy", "idle",
            "dependency", "copy", "imbalance", "host");
    for (uint32_t w = 0; w < report.worker_count; w++) {
        const struct weir_worker_time *time = &report.workers[w];
        fprintf(t->people.stream, "%6" PRIu32 " %9.2f %9.2f %11.2f %9.2f %11.2f %9.2f\n", w,
                milliseconds(time->busy), milliseconds(time->idle), milliseconds(time->dependency),
                milliseconds(time->copy), milliseconds(time->imbalance), milliseconds(time->host));
    }
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
    return bytes;
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
    fprintf(t->people.stream,
            "pipeline    a typical step %.1f ms, predicted by %" PRIu32
            " other%s %.1f ms (%+.1f%%)\n",
            measured * 1e3, t->report->snapshot->predicted.step_count,
            weir__s(t->report->snapshot->predicted.step_count), predicted * 1e3,
            (predicted / measured - 1.0) * 100.0);
}

void train_print_summary(struct train *t, const struct train_line *medians) {
    FILE *to = t->people.stream;
    const struct train_values *v = t->values;
    char plan[24], peak[24], score[128];
    task_score_text(&t->task, &t->score, score);
    fprintf(to, "\nvalidation  %s over %" PRIu64 " %s", score, t->eval_rows * t->task.row_units,
            task_units(&t->task));
    if (t->task.data->kind == WEIR__DATA_TEXT)
        fprintf(to, "; a bigram model of the same text %.4f (%+.4f)", t->bigram,
                t->score.loss - t->bigram);
    fputc('\n', to);
    if (medians->step > 0)
        fprintf(to,
                "speed       %.1f ms per update, %.0f %s/s, bubble %.1f%%, recompute hidden "
                "%.1f%% (medians)\n",
                medians->seconds * 1e3, medians->units_per_second, unit_of(t),
                medians->bubble * 100.0, medians->recompute_hidden * 100.0);
    print_prediction(t);
    fprintf(to, "memory      planned %s, the process's peak %s\n",
            plan_text_bytes(planned_bytes(t), plan), plan_text_bytes(peak_bytes(), peak));
    if (v->save != NULL) fprintf(to, "checkpoint  %s\n", v->save);
    if (v->save_weights != NULL) fprintf(to, "weights     %s\n", v->save_weights);
    if (v->trace != NULL) fprintf(to, "trace       %s (open it in Perfetto)\n", v->trace);
    if (v->report != NULL) fprintf(to, "report      %s\n", v->report);
    if (t->interrupted)
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
        "seconds", json_text_real(medians->seconds), rate_key(t),
        json_text_real(medians->units_per_second), "bubble", json_text_real(medians->bubble),
        "recompute_hidden", json_text_real(medians->recompute_hidden), "kernels", kernels,
        "reference_ops", (int)reference, "interrupted", t->interrupted, "planned_bytes",
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

/* SPDX-License-Identifier: MIT */
/* `weir eval`: how good trained weights are on all rows of some data. */
#include "cmd/commands.h"
#include "base/base.h"
#include "cli/json_text.h"
#include "cli/template_option.h"
#include "cmd/forward.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

struct eval {
    struct forward forward;
    struct task_tally tally;
};

static int visit(void *context, uint64_t first, uint32_t rows) {
    struct eval *e = context;
    struct forward *f = &e->forward;
    return task_evaluate(&f->task, f->net, first, rows, &e->tally, f->error);
}

/* What was judged: of text and tokens each target that is not ignored. */
static double judged(const struct forward *f, const struct task_score *score) {
    return f->task.metric == TASK_NATS ? score->weight : forward_units(f);
}

static double rate(const struct forward *f, const struct task_score *score) {
    return f->seconds > 0.0 ? judged(f, score) / f->seconds : 0.0;
}

static void print(const struct forward *f, const struct task_score *score) {
    FILE *to = f->people.stream;
    char text[128];
    fprintf(to, "%s", task_score_text(&f->task, score, text));
    if (f->task.metric == TASK_NATS) fprintf(to, " (%.4f bits)", score->loss / log(2.0));
    fprintf(to, " over %.0f %s, %.0f %s/s\n", judged(f, score), task_units(&f->task),
            rate(f, score), task_units(&f->task));
    if (forward_stopped(f))
        fprintf(to, "interrupted after %" PRIu64 " of %" PRIu64 " row%s\n", f->rows,
                f->task.data->held_out_rows, weir__s(f->task.data->held_out_rows));
}

static int write_json(const struct forward *f, const struct task_score *score) {
    const char *bits = f->task.data->kind == WEIR__DATA_TEXT ? "bits_per_byte" : "bits_per_token";
    char per_second[32];
    if (f->values->json == NULL) return WEIR_OK;
    snprintf(per_second, sizeof per_second, "%s_per_second", task_units(&f->task));
    json_t *object = json_pack("{s:o}", "loss", json_text_real(score->loss));
    if (f->task.metric == TASK_NATS)
        json_object_set_new(object, bits, json_text_real(score->loss / log(2.0)));
    task_score_json(&f->task, score, object);
    json_object_set_new(object, "rows", json_integer((json_int_t)f->rows));
    json_object_set_new(object, task_units(&f->task), json_integer((json_int_t)judged(f, score)));
    json_object_set_new(object, "seconds", json_text_real(f->seconds));
    json_object_set_new(object, per_second, json_text_real(rate(f, score)));
    json_object_set_new(object, "interrupted", json_boolean(forward_stopped(f)));
    return json_text_save(f->values->json, object, f->error);
}

/* Of nothing there is no mean, and of what is not finite no score. */
static int check_evaluated(const struct eval *e) {
    const struct forward *f = &e->forward;
    if (!isfinite(e->tally.loss))
        return weir__fail(f->error, WEIR_ERR_NONFINITE,
                          "the loss is not finite: the weights are damaged, their training had "
                          "diverged, or the data hold such numbers");
    if (e->tally.weight > 0) return WEIR_OK;
    if (f->rows == 0) return weir__fail(f->error, WEIR_ERR_CONFIG, "interrupted before any row");
    return weir__fail(f->error, WEIR_ERR_CONFIG,
                      "every target is the ignored label %" PRId64
                      ": give data with labels to evaluate by",
                      weir_model_ignored(f->model));
}

static int run(struct eval *e) {
    int status = forward_rows(&e->forward, visit, e);
    if (status != WEIR_OK) return status;
    status = check_evaluated(e);
    if (status != WEIR_OK) return status;
    struct task_score score = task_score_of(&e->tally);
    print(&e->forward, &score);
    return write_json(&e->forward, &score);
}

int cmd_eval(int argc, char **argv) {
    static const struct arg_option own[] = {
        TEMPLATE_OPTION(offsetof(struct forward_values, form)),
        NO_PACK_OPTION(offsetof(struct forward_values, no_pack))};
    const struct arg_section sections[] = {
        {"Evaluation", forward_option_list, forward_option_count, 0},
        {"Text", own, sizeof own / sizeof own[0], 0},
        {"Model", model_option_list, model_option_count, offsetof(struct forward_values, model)},
        {"Pipeline", pipe_option_list, pipe_option_count, offsetof(struct forward_values, pipe)}};
    const struct arg_command command = {
        "eval",
        "loss or accuracy of trained weights on a file",
        "The loss over all rows, of text in nats and bits per byte or token; of classes the "
        "accuracy, of masks the intersection over union. A rest of text that is shorter than a row "
        "is left out, but where a tokenizer reads it.",
        sections,
        4,
        pipe_infer_refusals};
    struct forward_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    struct eval e = {.forward = {.values = &values,
                                 .args = &args,
                                 .faults = &faults,
                                 .error = &error,
                                 .options = WEIR_NET_OPTIONS_INIT}};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    people_init(&e.forward.people, output_is_standard(values.json));
    int status = forward_begin(&e.forward, &command);
    if (status == WEIR_OK && faults.count == 0) status = run(&e);
    return forward_end(&e.forward, status);
}

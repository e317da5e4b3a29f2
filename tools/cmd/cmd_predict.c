/* SPDX-License-Identifier: MIT */
/* `weir predict`: what a model gives for all rows of some data, into one .npy file, mini-batch by
 * mini-batch: memory is for one of them, however many there are. */
#include "cmd/commands.h"
#include "base/base.h"
#include "cli/interrupt.h"
#include "cli/json_text.h"
#include "cmd/forward.h"
#include "data/npy.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

struct predict_values {
    struct forward_values forward;
    const char *out;
};

static const struct arg_option own[] = {
    {"out", ARG_TEXT, offsetof(struct predict_values, out),
     "the outputs (NumPy's .npy): rows, then the output's shape; f32, with --dtype f64 f64",
     .value = "FILE.npy"},
};

struct predict {
    struct forward forward;
    const char *path;
    struct output out;
    uint64_t numbers; /**< of a row's output */
    float *rounded;   /**< a mini-batch of BF16 as F32; NULL for other dtypes */
    uint64_t damaged; /**< rows with a number that is not finite, and the first of them */
    uint64_t first_damaged;
};

/* ---- the file ---- */

static bool is_f64(const struct predict *p) {
    return p->forward.task.output.dtype == WEIR_F64;
}

static int begin_file(struct predict *p) {
    struct task *task = &p->forward.task;
    char header[WEIR__NPY_HEADER_MAX];
    int64_t shape[1 + WEIR_RANK_MAX] = {(int64_t)task->data->held_out_rows};
    p->numbers = 1;
    for (uint32_t i = 0; i < task->output.rank; i++) {
        shape[i + 1] = task->output.shape[i];
        p->numbers *= (uint64_t)task->output.shape[i];
    }
    if (task->output.dtype == WEIR_BF16) {
        p->rounded = calloc(task->batch * p->numbers, sizeof *p->rounded);
        if (p->rounded == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    }
    int status = output_begin(&p->out, p->forward.out, p->forward.error);
    if (status != WEIR_OK) return status;
    size_t bytes = weir__npy_header(is_f64(p) ? WEIR__NUMBER_F64 : WEIR__NUMBER_F32,
                                    task->output.rank + 1, shape, header);
    return output_write(&p->out, header, bytes);
}

/* Rows that are said at the end: the file is written all the same, its other rows are good. */
static void look_at(struct predict *p, const void *rows, uint64_t first, uint32_t count) {
    for (uint64_t r = 0, at = 0; r < count; r++) {
        bool finite = true;
        for (uint64_t i = 0; i < p->numbers; i++, at++)
            finite &= isfinite(is_f64(p) ? ((const double *)rows)[at] : ((const float *)rows)[at]);
        if (!finite && p->damaged++ == 0) p->first_damaged = first + r;
    }
}

static int visit(void *context, uint64_t first, uint32_t rows) {
    struct predict *p = context;
    struct task *task = &p->forward.task;
    struct weir_step_result result;
    int status = task_run(task, p->forward.net, first, rows, &result, p->forward.error);
    if (status != WEIR_OK) return status;
    const void *from = task->outputs;
    size_t count = (size_t)(rows * p->numbers);
    for (size_t i = 0; p->rounded != NULL && i < count; i++)
        p->rounded[i] = (float)weir__number_at(WEIR_BF16, task->outputs, i);
    if (p->rounded != NULL) from = p->rounded;
    look_at(p, from, first, rows);
    return output_write(&p->out, from, count * (is_f64(p) ? 8 : 4));
}

/* ---- telling ---- */

static void print(const struct predict *p) {
    const struct forward *f = &p->forward;
    struct weir_tensor shown = f->task.output;
    char text[96];
    if (shown.dtype == WEIR_BF16) shown.dtype = WEIR_F32;
    fprintf(f->people.stream, "%s: %" PRIu64 " row%s of %s, %.1f rows/s\n", p->path, f->rows,
            weir__s(f->rows), weir__tensor_text(&shown, text, sizeof text), forward_rate(f));
    if (p->damaged == 0) return;
    fprintf(stderr,
            "weir: predict: warning: %" PRIu64 " of %" PRIu64 " rows hold numbers that are not "
            "finite, the first of them row %" PRIu64 ": the data there hold such numbers, or the "
            "weights are damaged\n",
            p->damaged, f->rows, p->first_damaged);
}

static int write_json(const struct predict *p) {
    const struct forward *f = &p->forward;
    if (f->values->json == NULL) return WEIR_OK;
    json_t *shape = json_array();
    json_array_append_new(shape, json_integer((json_int_t)f->rows));
    for (uint32_t i = 0; i < f->task.output.rank; i++)
        json_array_append_new(shape, json_integer(f->task.output.shape[i]));
    json_t *object = json_pack("{s:o, s:I, s:o, s:s, s:o, s:o}", "out", json_text_string(p->path),
                               "rows", (json_int_t)f->rows, "shape", shape, "dtype",
                               is_f64(p) ? "f64" : "f32", "seconds", json_text_real(f->seconds),
                               "rows_per_second", json_text_real(forward_rate(f)));
    return json_text_save(f->values->json, object, f->error);
}

/* ---- the run ---- */

static void check_values(const struct predict_values *values, struct weir_faults *faults) {
    if (values->out == NULL) weir_faults_add(faults, "--out is missing: give FILE.npy");
}

static int check_output(const struct predict *p) {
    const struct weir_tensor *output = &p->forward.task.output;
    char text[96];
    if (weir_dtype_is_float(output->dtype)) return WEIR_OK;
    weir_faults_add(p->forward.faults,
                    "the model gives %s, but numbers are written as f32: end it with a layer that "
                    "computes",
                    weir__tensor_text(output, text, sizeof text));
    return WEIR_ERR_CONFIG;
}

static void print_interrupted(const struct predict *p) {
    const struct forward *f = &p->forward;
    fprintf(f->people.stream, "interrupted after %" PRIu64 " of %" PRIu64 " row%s: no %s\n",
            f->rows, f->task.data->held_out_rows, weir__s(f->task.data->held_out_rows), p->path);
}

static int run(struct predict *p) {
    struct forward *f = &p->forward;
    int status = check_output(p);
    if (status != WEIR_OK) return status;
    if ((status = begin_file(p)) != WEIR_OK) return status;
    if ((status = forward_rows(f, visit, p)) != WEIR_OK) return status;
    if (forward_stopped(f)) {
        print_interrupted(p);
        return WEIR_OK;
    }
    if ((status = output_commit(&p->out)) != WEIR_OK) return status;
    print(p);
    return write_json(p);
}

int cmd_predict(int argc, char **argv) {
    const struct arg_section sections[] = {
        {"Prediction", forward_option_list, forward_option_count, 0},
        {"Output", own, sizeof own / sizeof own[0], 0},
        {"Model", model_option_list, model_option_count, offsetof(struct forward_values, model)},
        {"Pipeline", pipe_option_list, pipe_option_count, offsetof(struct forward_values, pipe)}};
    const struct arg_command command = {
        "predict",
        "outputs of trained weights for all rows of a file",
        "Arrays need no targets: name the file of inputs, or a folder. Text and tokens are cut "
        "into rows of the model's context, and a rest that is shorter than a row and its successor "
        "is left out; rows of your own choice are a .npy of token numbers.",
        sections,
        4,
        pipe_infer_refusals};
    struct predict_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    struct predict p = {.forward = {.values = &values.forward,
                                    .args = &args,
                                    .faults = &faults,
                                    .error = &error,
                                    .options = WEIR_NET_OPTIONS_INIT,
                                    .task = {.predicts = true}}};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    check_values(&values, &faults);
    people_init(&p.forward.people, output_is_standard(values.forward.json));
    p.path = p.forward.out = values.out;
    int status = forward_begin(&p.forward, &command);
    if (status == WEIR_OK && faults.count == 0) status = run(&p);
    output_abort(&p.out);
    free(p.rounded);
    return forward_end(&p.forward, status);
}

/* SPDX-License-Identifier: MIT */
/*
 * An example that uses the engine alone: its two stages are written by hand, with no layer of the
 * net library. Stage 0 computes h = slope * x, stage 1 the residual h + offset - y and the loss,
 * the mean of its squares over the mini-batch. On data that lie on y = 3 x - 2 gradient descent
 * must find 3 and -2. Micro-batches flow through both stages at the same time, each on its own
 * worker.
 *
 *   cc embed.c $(pkg-config --cflags --libs weir)
 */
#include "weir.h"

#include <math.h>
#include <stdio.h>

#define ROWS 64
#define STEPS 200
#define RATE 0.5

/* Each stage has one parameter, and so one gradient; both are doubles. */
struct stage {
    double start;
    double *parameter; /* in the pipe's memory, from attach to detach */
    double *gradient;
};

static int attach(void *context, const struct weir_attachment *attachment) {
    struct stage *stage = context;
    stage->parameter = attachment->parameters;
    stage->gradient = attachment->gradients;
    *stage->parameter = stage->start;
    return WEIR_OK;
}

/* The first call since the last update overwrites the gradient, the others add to it. */
static void add_gradient(struct stage *stage, const struct weir_task *task, double part) {
    *stage->gradient = task->gradients_first ? part : *stage->gradient + part;
}

static int update(void *context, const struct weir_task *task) {
    struct stage *stage = context;
    *stage->parameter -= RATE * task->gradient_scale * *stage->gradient;
    return WEIR_OK;
}

/* ---- stage 0: h = slope * x ------------------------------------------------------------------ */

static int scale_forward(void *context, const struct weir_task *task) {
    const struct stage *stage = context;
    const double *x = task->inputs[0].data;
    double *h = task->outputs[0].data;
    for (int64_t r = 0; r < task->rows; r++) h[r] = *stage->parameter * x[r];
    return WEIR_OK;
}

/* It saves nothing, its input is all that backward needs: there is nothing to recompute. */
static int scale_recompute(void *context, const struct weir_task *task) {
    (void)context, (void)task;
    return WEIR_OK;
}

static int scale_backward(void *context, const struct weir_task *task) {
    const double *x = task->inputs[0].data;
    const double *h_grad = task->output_grads[0].data;
    double sum = 0;
    for (int64_t r = 0; r < task->rows; r++) sum += h_grad[r] * x[r];
    add_gradient(context, task, sum);
    return WEIR_OK;
}

/* ---- stage 1: loss = mean of (h + offset - y)^2 -----------------------------------------------
 */

/* From forward to backward it keeps the residuals, a double for each row. */
static int loss_measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    (void)context;
    bytes->saved = (size_t)rows * sizeof(double);
    return WEIR_OK;
}

static double residual(const struct stage *stage, const struct weir_task *task, int64_t row) {
    const double *h = task->inputs[0].data;
    const double *y = task->inputs[1].data; /* border inputs come first, then the pipe's own */
    return h[row] + *stage->parameter - y[row];
}

static int loss_recompute(void *context, const struct weir_task *task) {
    double *saved = task->saved;
    for (int64_t r = 0; r < task->rows; r++) saved[r] = residual(context, task, r);
    return WEIR_OK;
}

static int loss_forward(void *context, const struct weir_task *task) {
    double *residuals = task->outputs[0].data;
    double sum = 0;
    for (int64_t r = 0; r < task->rows; r++) {
        residuals[r] = residual(context, task, r);
        sum += residuals[r] * residuals[r];
    }
    if (task->loss) *task->loss = sum / task->loss_weight;
    if (task->phase == WEIR_FORWARD) return loss_recompute(context, task);
    return WEIR_OK; /* under a checkpoint nothing is saved: task->saved is NULL */
}

static int loss_backward(void *context, const struct weir_task *task) {
    const double *residuals = task->saved;
    double *h_grad = task->input_grads[0].data;
    double sum = 0;
    for (int64_t r = 0; r < task->rows; r++) {
        h_grad[r] = 2 * residuals[r] / task->loss_weight;
        sum += h_grad[r];
    }
    add_gradient(context, task, sum);
    return WEIR_OK;
}

/* ---- the pipe -------------------------------------------------------------------------------- */

static int build(struct stage models[2], struct weir_faults *faults, struct weir_pipe **pipe) {
    static const struct weir_stage_calls calls[2] = {
        {.forward = scale_forward,
         .recompute = scale_recompute,
         .backward = scale_backward,
         .update = update,
         .attach = attach},
        {.forward = loss_forward,
         .recompute = loss_recompute,
         .backward = loss_backward,
         .update = update,
         .measure = loss_measure,
         .attach = attach},
    };
    const struct weir_tensor number = {.dtype = WEIR_F64, .rank = 0, .differentiable = true};
    const struct weir_tensor data = {.dtype = WEIR_F64, .rank = 0};
    struct weir_stage stages[2] = {WEIR_STAGE_INIT, WEIR_STAGE_INIT};
    for (int s = 0; s < 2; s++) {
        stages[s].calls = &calls[s];
        stages[s].context = &models[s];
        stages[s].outputs = &number;
        stages[s].output_count = 1;
        stages[s].parameter_bytes = stages[s].gradient_bytes = sizeof(double);
    }
    const struct weir_input inputs[2] = {{.tensor = data, .name = "x", .stage = 0},
                                         {.tensor = data, .name = "y", .stage = 1}};
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    options.stages = stages;
    options.stage_count = 2;
    options.inputs = inputs;
    options.input_count = 2;
    options.rows = ROWS;
    options.chunks = 8;
    options.schedule = "1f1b";
    options.checkpoint = WEIR_CHECKPOINT_EXCEPT_LAST;
    return weir_pipe_new(&options, faults, pipe);
}

static int train(struct weir_pipe *pipe, double *loss) {
    static double x[ROWS], y[ROWS];
    for (int r = 0; r < ROWS; r++) {
        x[r] = 2.0 * r / (ROWS - 1) - 1;
        y[r] = 3 * x[r] - 2;
    }
    int status = WEIR_OK;
    for (uint64_t i = 0; status == WEIR_OK && i < STEPS; i++) {
        struct weir_step step = WEIR_STEP_INIT;
        struct weir_step_result result;
        step.rows = ROWS;
        step.inputs = (const void *[]){x, y};
        step.mini_batch = step.update = i;
        status = weir_pipe_step(pipe, &step, &result);
        if (status != WEIR_OK) fprintf(stderr, "embed: %s\n", result.error.message);
        *loss = result.loss;
    }
    return status;
}

int main(void) {
    struct stage models[2] = {{.start = 0}, {.start = 0}};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_pipe *pipe;
    int status = build(models, &faults, &pipe);
    for (uint32_t i = 0; i < faults.kept; i++) fprintf(stderr, "embed: %s\n", faults.lines[i]);
    weir_faults_clean_up(&faults);
    if (status != WEIR_OK) return 1;

    double loss = NAN;
    status = train(pipe, &loss);
    double slope = *models[0].parameter;
    double offset = *models[1].parameter;
    weir_pipe_destroy(pipe);

    printf("slope %.9f offset %.9f loss %.3g\n", slope, offset, loss);
    bool found = fabs(slope - 3) < 1e-6 && fabs(offset + 2) < 1e-6 && loss < 1e-12;
    return status == WEIR_OK && found ? 0 : 1;
}

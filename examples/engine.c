/* SPDX-License-Identifier: MIT */
/*
 * A network on the engine alone: forward, recompute, backward and update are written by hand, with
 * no layer of the net library.
 *
 *   h[l] = tanh(h[l-1] W[l] + b[l])       l = 0 … LAYERS - 1, of WIDTH numbers each; h[-1] is x
 *   y    = h[LAYERS-1] + h[0]             h[0] goes straight from the first stage to the last
 *   loss = mean over rows of |y - target|^2
 *
 * A stage is a run of layers. The program trains over STAGES stages, each on a worker of its own,
 * and draws the last step; trains again in one stage; and exits 0 if the loss has fallen and both
 * have come to the same bits.
 *
 *   zig build examples && zig-out/examples/engine
 *   cc -O3 engine.c $(pkg-config --cflags --libs weir) -lm
 *
 * engine_cuda.cu is its twin for GPUs: what differs between the two is what CUDA asks for.
 */
#include "weir.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 64, LAYERS = 8, STAGES = 4, ROWS = 256, CHUNKS = 8, STEPS = 40 };
enum { LAYER = (WIDTH + 1) * WIDTH }; /* W[in][out], and a last row b[out] */
static const float rate = 0.1f;

struct stage {
    int first, layers;
    bool begins, ends; /* the network */
};

static float random_number(uint32_t *state) { /* -1 … 1 */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1;
}

/* A layer starts with the same numbers whichever stage has it. */
static int attach(void *context, const struct weir_attachment *attachment) {
    const struct stage *stage = context;
    float *weights = attachment->parameters;
    for (int l = 0; l < stage->layers; l++) {
        uint32_t state = (uint32_t)(stage->first + l);
        for (int i = 0; i < LAYER; i++) *weights++ = random_number(&state) / 5;
    }
    return WEIR_OK;
}

/* Every h is saved; under a checkpoint, where nothing is, forward puts it into its workspace. */
static int measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    const struct stage *stage = context;
    size_t one = (size_t)rows * WIDTH * sizeof(float);
    bytes->saved = (size_t)stage->layers * one;
    bytes->workspace[WEIR_FORWARD_CHECKPOINT] = bytes->workspace[WEIR_INFER] = bytes->saved;
    bytes->workspace[WEIR_BACKWARD] = 3 * one;
    return WEIR_OK;
}

/* ---- forward and recompute ------------------------------------------------------------------- */

static void run_layer(const float *weights, const float *x, float *h, int64_t rows) {
    for (int64_t r = 0; r < rows; r++, x += WIDTH, h += WIDTH) {
        memcpy(h, weights + WIDTH * WIDTH, WIDTH * sizeof *h);
        for (int k = 0; k < WIDTH; k++)
            for (int j = 0; j < WIDTH; j++) h[j] += x[k] * weights[k * WIDTH + j];
        for (int j = 0; j < WIDTH; j++) h[j] = tanhf(h[j]);
    }
}

/* The h of all layers, one after the other; returns the last. */
static const float *run_layers(const struct stage *stage, const struct weir_task *task, float *h) {
    const float *x = task->inputs[0].data, *weights = task->parameters;
    for (int l = 0; l < stage->layers; l++, weights += LAYER) {
        run_layer(weights, x, h, task->rows);
        x = h, h += task->rows * WIDTH;
    }
    return x;
}

static int recompute(void *context, const struct weir_task *task) {
    run_layers(context, task, task->saved);
    return WEIR_OK;
}

/* y, and this micro-batch's part of the loss, which is a mean over the whole mini-batch. */
static void finish(const struct weir_task *task, const float *last, const float *skip) {
    const float *target = task->inputs[1].data;
    float *y = task->outputs[0].data;
    double sum = 0;
    for (int64_t i = 0; i < task->rows * WIDTH; i++) {
        y[i] = last[i] + skip[i];
        sum += (double)(y[i] - target[i]) * (y[i] - target[i]);
    }
    *task->loss = sum / task->loss_weight;
}

static int forward(void *context, const struct weir_task *task) {
    const struct stage *stage = context;
    size_t bytes = (size_t)task->rows * WIDTH * sizeof(float);
    float *h = task->saved != NULL ? task->saved : task->workspace;
    const float *last = run_layers(stage, task, h);
    if (stage->ends)
        finish(task, last, stage->begins ? h : task->skips[0].data);
    else
        memcpy(task->outputs[0].data, last, bytes);
    if (stage->begins && !stage->ends) memcpy(task->skips[0].data, h, bytes);
    return WEIR_OK;
}

/* ---- backward and update --------------------------------------------------------------------- */

/* `g` is the gradient of h at first. dx NULL: nobody wants it. */
static void return_layer(const float *weights, float *gradient, const float *x, const float *h,
                         float *g, float *dx, int64_t rows) {
    for (int64_t i = 0; i < rows * WIDTH; i++) g[i] *= 1 - h[i] * h[i];
    for (int64_t r = 0; r < rows; r++, x += WIDTH, g += WIDTH) {
        for (int k = 0; k < WIDTH; k++)
            for (int j = 0; j < WIDTH; j++) gradient[k * WIDTH + j] += x[k] * g[j];
        for (int j = 0; j < WIDTH; j++) gradient[WIDTH * WIDTH + j] += g[j];
        for (int k = 0; dx != NULL && k < WIDTH; k++) {
            float sum = 0;
            for (int j = 0; j < WIDTH; j++) sum += weights[k * WIDTH + j] * g[j];
            dx[r * WIDTH + k] = sum;
        }
    }
}

static void add(float *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] += from[i];
}

/* The gradient of y, which is that of both its terms. */
static void begin_backward(const struct weir_task *task, const float *last, const float *skip,
                           float *g, float *skip_gradient) {
    const float *target = task->inputs[1].data;
    float scale = 2 / (float)task->loss_weight;
    for (int64_t i = 0; i < task->rows * WIDTH; i++)
        g[i] = skip_gradient[i] = scale * (last[i] + skip[i] - target[i]);
}

static int backward(void *context, const struct weir_task *task) {
    const struct stage *stage = context;
    int64_t count = task->rows * WIDTH;
    size_t top = (size_t)stage->layers - 1;
    const float *h = (const float *)task->saved + (int64_t)top * count;
    const float *weights = (const float *)task->parameters + top * LAYER;
    float *gradient = (float *)task->gradients + top * LAYER;
    float *g = task->workspace, *dx = g + count, *skip_gradient = g + 2 * count;

    if (task->gradients_first) memset(task->gradients, 0, (top + 1) * LAYER * sizeof(float));
    if (stage->ends && stage->begins)
        begin_backward(task, h, task->saved, g, skip_gradient);
    else if (stage->ends)
        begin_backward(task, h, task->skips[0].data, g, task->skip_grads_out[0].data);
    else
        memcpy(g, task->output_grads[0].data, (size_t)count * sizeof(float));
    for (int l = stage->layers; l-- > 0; h -= count, weights -= LAYER, gradient -= LAYER) {
        const float *x = l > 0 ? h - count : task->inputs[0].data;
        float *to = l > 0 ? dx : task->input_grads[0].data;
        if (l == 0 && stage->begins)
            add(g, stage->ends ? skip_gradient : task->skip_grads[0].data, count);
        return_layer(weights, gradient, x, h, g, to, task->rows);
        dx = g, g = to;
    }
    return WEIR_OK;
}

static int update(void *context, const struct weir_task *task) {
    const struct stage *stage = context;
    const float *gradient = task->gradients;
    float *weights = task->parameters, scale = rate * (float)task->gradient_scale;
    for (int i = 0; i < stage->layers * LAYER; i++) weights[i] -= scale * gradient[i];
    return WEIR_OK;
}

/* ---- the pipe -------------------------------------------------------------------------------- */

static const struct weir_stage_calls calls = {.forward = forward,
                                              .recompute = recompute,
                                              .backward = backward,
                                              .update = update,
                                              .measure = measure,
                                              .attach = attach};

static int build(struct stage *stages, int count, struct weir_faults *faults,
                 struct weir_pipe **pipe) {
    const struct weir_tensor hidden = {WEIR_F32, 1, {WIDTH}, true}, data = {WEIR_F32, 1, {WIDTH}};
    const struct weir_skip_use stash = {WEIR_SKIP_STASH, "h0", NULL, hidden};
    const struct weir_skip_use pop = {WEIR_SKIP_POP, "h0", NULL, hidden, false, true};
    const struct weir_input inputs[] = {{data, "x", 0}, {data, "target", (uint32_t)count - 1}};
    const struct weir_stage plain = WEIR_STAGE_INIT;
    struct weir_stage list[STAGES];
    for (int s = 0; s < count; s++) {
        int layers = LAYERS / count;
        stages[s] = (struct stage){s * layers, layers, s == 0, s == count - 1};
        list[s] = plain;
        list[s].calls = &calls, list[s].context = &stages[s];
        list[s].outputs = &hidden, list[s].output_count = 1;
        list[s].skips = s == 0 ? &stash : &pop;
        list[s].skip_count = stages[s].begins != stages[s].ends ? 1 : 0;
        list[s].parameter_bytes = list[s].gradient_bytes = (size_t)layers * LAYER * sizeof(float);
    }
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    options.stages = list, options.stage_count = (uint32_t)count;
    options.inputs = inputs, options.input_count = 2;
    options.rows = ROWS, options.chunks = CHUNKS;
    options.schedule = "1f1b", options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    return weir_pipe_new(&options, faults, pipe);
}

/* ---- training -------------------------------------------------------------------------------- */

struct outcome {
    double first_loss, last_loss;
    float weights[LAYERS * LAYER];
};

static int train(struct weir_pipe *pipe, struct outcome *outcome) {
    static float x[ROWS * WIDTH], target[ROWS * WIDTH];
    const void *inputs[] = {x, target};
    uint32_t state = 1;
    for (int i = 0; i < ROWS * WIDTH; i++) x[i] = random_number(&state);
    for (int i = 0; i < ROWS * WIDTH; i++) target[i] = x[i] * x[i ^ 1];
    int status = WEIR_OK;
    for (int i = 0; status == WEIR_OK && i < STEPS; i++) {
        struct weir_step step = WEIR_STEP_INIT;
        struct weir_step_result result;
        step.rows = ROWS, step.inputs = inputs;
        step.mini_batch = step.update = (uint64_t)i;
        status = weir_pipe_step(pipe, &step, &result);
        if (status != WEIR_OK) fprintf(stderr, "engine: %s\n", result.error.message);
        if (i == 0) outcome->first_loss = result.loss;
        if (i % 10 == 9) printf("step %d  loss %.4f\n", i + 1, result.loss);
        outcome->last_loss = result.loss;
    }
    return status;
}

static int read_weights(const struct weir_pipe *pipe, int count, struct outcome *outcome) {
    size_t each = LAYERS / count * LAYER;
    int status = WEIR_OK;
    for (int s = 0; status == WEIR_OK && s < count; s++) {
        struct weir_attachment at;
        status = weir_pipe_attachment(pipe, (uint32_t)s, &at);
        if (status == WEIR_OK)
            memcpy(outcome->weights + s * each, at.parameters, each * sizeof(float));
    }
    return status;
}

static int print(void *file, const char *text, size_t bytes) {
    return fwrite(text, 1, bytes, file) == bytes ? WEIR_OK : WEIR_ERR_IO;
}

static int run(int count, struct outcome *outcome) {
    struct stage stages[STAGES];
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_pipe *pipe = NULL;
    int status = build(stages, count, &faults, &pipe);
    for (uint32_t i = 0; i < faults.kept; i++) fprintf(stderr, "engine: %s\n", faults.lines[i]);
    weir_faults_clean_up(&faults);
    if (status == WEIR_OK) status = train(pipe, outcome);
    if (status == WEIR_OK) status = weir_pipe_trace_text(pipe, 100, false, print, stdout);
    if (status == WEIR_OK) status = read_weights(pipe, count, outcome);
    weir_pipe_destroy(pipe);
    return status;
}

int main(void) {
    static struct outcome many, one;
    if (run(STAGES, &many) != WEIR_OK || run(1, &one) != WEIR_OK) return EXIT_FAILURE;
    bool same = memcmp(&many, &one, sizeof many) == 0;
    printf("%d stages and one: %s\n", STAGES, same ? "the same bits" : "DIFFERENT BITS");
    return same && many.last_loss < many.first_loss / 2 ? EXIT_SUCCESS : EXIT_FAILURE;
}

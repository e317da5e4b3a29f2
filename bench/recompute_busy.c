/* SPDX-License-Identifier: MIT */
/* Stages whose time is known: multiply-adds in registers, calibrated, and next to them a formula
 * whose gradients depend on every callback: h = x / (1 + x^2), which is what F or R saves, and y =
 * a h; the loss is the mean of y^2. */
#include "recompute.h"
#include "steps.h"

#include <string.h>

enum { WIDTH = 16 };
static const double FORWARD_S = 5e-4, FORWARD_QUICK_S = 5e-5;

struct stage {
    float factor;
    bool last;
    uint32_t turns; /* of a forward */
};

struct trial {
    struct weir_pipe *pipe;
    struct stage stages[RECOMPUTE_STAGES];
    float inputs[RECOMPUTE_MICRO_BATCHES * WIDTH];
};

/* ---- stages ---- */

static int work(const struct stage *stage, uint32_t forwards) {
    return bench_multiply_add(forwards * stage->turns) ? WEIR_OK : WEIR_ERR_CALLBACK;
}

static float kept_of(float x) {
    return x / (1.0f + x * x);
}

static int stage_forward(void *context, const struct weir_task *task) {
    const struct stage *stage = context;
    const float *x = task->inputs[0].data;
    float *y = task->outputs[0].data, *saved = task->saved;
    double sum = 0.0;
    for (int i = 0; i < WIDTH; i++) {
        float kept = kept_of(x[i]);
        y[i] = stage->factor * kept;
        sum += (double)y[i] * y[i];
        if (saved != NULL) saved[i] = kept;
    }
    if (stage->last) *task->loss = sum / (WIDTH * task->loss_weight);
    return work(stage, 1);
}

static int stage_recompute(void *context, const struct weir_task *task) {
    const float *x = task->inputs[0].data;
    float *saved = task->saved;
    for (int i = 0; i < WIDTH; i++) saved[i] = kept_of(x[i]);
    return work(context, 1);
}

static int stage_backward(void *context, const struct weir_task *task) {
    const struct stage *stage = context;
    const float *x = task->inputs[0].data, *saved = task->saved;
    const float *incoming = stage->last ? NULL : task->output_grads[0].data;
    float *outgoing = task->input_grads[0].data, *own = task->gradients;
    for (int i = 0; i < WIDTH; i++) {
        float weight = 2.0f / (WIDTH * (float)task->loss_weight);
        float gradient = stage->last ? weight * stage->factor * saved[i] : incoming[i];
        float squares = 1.0f + x[i] * x[i];
        own[i] = gradient * saved[i] + (task->gradients_first ? 0.0f : own[i]);
        if (outgoing == NULL) continue;
        outgoing[i] = gradient * stage->factor * (2.0f - squares) / (squares * squares);
    }
    return work(stage, 2);
}

static int stage_measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    *bytes = (struct weir_stage_bytes){.saved = (size_t)rows * WIDTH * sizeof(float)};
    return WEIR_OK;
}

/* ---- trials ---- */

static void *busy_context(struct bench *bench) {
    uint32_t *turns = bench_take(bench, 1, sizeof *turns);
    *turns = bench_turns(bench->options.quick ? FORWARD_QUICK_S : FORWARD_S);
    return turns;
}

static void busy_destroy_context(void *context) {
    (void)context; /* the run's memory */
}

static void *busy_open(struct bench *bench, void *context, const struct weir_pipe_options *how) {
    static const struct weir_stage_calls calls = {.forward = stage_forward,
                                                  .recompute = stage_recompute,
                                                  .backward = stage_backward,
                                                  .measure = stage_measure};
    struct trial *trial = bench_take(bench, 1, sizeof *trial);
    struct weir_tensor row = {
        .dtype = WEIR_F32, .rank = 1, .shape = {WIDTH}, .differentiable = true};
    struct weir_input input = {.tensor = row, .name = "x"};
    struct weir_stage stages[RECOMPUTE_STAGES];
    struct weir_pipe_options options = *how;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    for (uint32_t s = 0; s < RECOMPUTE_STAGES; s++) {
        bool last = s == RECOMPUTE_STAGES - 1;
        trial->stages[s] = (struct stage){last ? 0.7f : 1.9f, last, *(const uint32_t *)context};
        stages[s] = (struct weir_stage)WEIR_STAGE_INIT;
        stages[s].calls = &calls;
        stages[s].context = &trial->stages[s];
        stages[s].outputs = &row;
        stages[s].output_count = 1;
        stages[s].gradient_bytes = WIDTH * sizeof(float);
    }
    for (int i = 0; i < RECOMPUTE_MICRO_BATCHES * WIDTH; i++)
        trial->inputs[i] = (float)(i % 37 - 18) * 0.11f;
    options.stages = stages;
    options.stage_count = RECOMPUTE_STAGES;
    options.inputs = &input;
    options.input_count = 1;
    options.rows = options.chunks = RECOMPUTE_MICRO_BATCHES;
    bench_check_faults(weir_pipe_new(&options, &faults, &trial->pipe), "recompute/busy", &faults);
    return trial;
}

static struct weir_pipe *busy_pipe(void *trial) {
    return ((struct trial *)trial)->pipe;
}

static void busy_step(void *trial, struct weir_step_result *result) {
    struct trial *own = trial;
    steps_run(own->pipe, RECOMPUTE_MICRO_BATCHES, own->inputs, result);
}

static size_t busy_gradients(void *trial, unsigned char *out) {
    struct trial *own = trial;
    size_t bytes = WIDTH * sizeof(float);
    for (uint32_t s = 0; out != NULL && s < RECOMPUTE_STAGES; s++) {
        struct weir_attachment attachment;
        bench_check(weir_pipe_attachment(own->pipe, s, &attachment), "recompute/busy");
        memcpy(out + s * bytes, attachment.gradients, bytes);
    }
    return RECOMPUTE_STAGES * bytes;
}

static void busy_close(void *trial) {
    weir_pipe_destroy(((struct trial *)trial)->pipe);
}

const struct recompute_subject recompute_busy = {.name = "busy",
                                                 .copy_count = 5,
                                                 .copies = {0.0, 0.25, 0.5, 0.75, 1.0},
                                                 .new_context = busy_context,
                                                 .destroy_context = busy_destroy_context,
                                                 .open = busy_open,
                                                 .pipe = busy_pipe,
                                                 .step = busy_step,
                                                 .gradients = busy_gradients,
                                                 .close = busy_close};

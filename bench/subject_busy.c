/* SPDX-License-Identifier: MIT */
/* Stages whose times are known: multiply-adds in registers, calibrated. Each micro-batch's loss is
 * its index, so that a step shows whether all of them ran. */
#include "subject.h"

enum { MODEL_SAVED = 1 << 16 }; /* bytes a row */
static const double FORWARD_S = 5e-4, FORWARD_QUICK_S = 2e-5;

/* In quarters of a forward, and eighths of the stage's. */
struct costs {
    uint32_t quarters[SUBJECT_STAGES_MOST];
    uint32_t input, weight;
    bool whole; /* fewer stages are larger ones: the same model */
};

/* No two stages are equal, and no kind is twice another. */
static const struct costs unequal = {{4, 5, 3, 4}, 9, 7, false};
static const struct costs equal = {{4, 4, 4, 4}, 8, 8, true};

struct context {
    const struct costs *costs;
    uint32_t turns; /* a quarter of a forward */
};

struct stage {
    uint32_t index, count;
    const struct costs *costs;
    uint32_t turns; /* a forward */
};

struct trial {
    struct weir_pipe *pipe;
    int64_t rows;
    struct stage stages[SUBJECT_STAGES_MOST];
    float inputs[SUBJECT_ROWS_MOST];
};

static int work(const struct stage *stage, uint32_t eighths) {
    uint64_t turns = (uint64_t)stage->turns * eighths / 8;
    return bench_multiply_add((uint32_t)turns) ? WEIR_OK : WEIR_ERR_CALLBACK;
}

static int forward(void *context, const struct weir_task *task) {
    const struct stage *stage = context;
    *(float *)task->outputs[0].data = *(const float *)task->inputs[0].data;
    if (stage->index + 1 == stage->count) *task->loss = task->micro_batch;
    return work(stage, 8);
}

static int recompute(void *context, const struct weir_task *task) {
    (void)task;
    return work(context, 8);
}

static int backward_input(void *context, const struct weir_task *task) {
    const struct stage *stage = context;
    if (task->input_grads[0].data != NULL) *(float *)task->input_grads[0].data = 1.0f;
    return work(stage, stage->costs->input);
}

static int backward_weight(void *context, const struct weir_task *task) {
    const struct stage *stage = context;
    *(float *)task->gradients = 1.0f;
    return work(stage, stage->costs->weight);
}

static int backward(void *context, const struct weir_task *task) {
    if (task->input_grads[0].data != NULL) *(float *)task->input_grads[0].data = 1.0f;
    *(float *)task->gradients = 1.0f;
    return work(context, 16);
}

/* A model's activations, however it is cut. */
static int measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    const struct stage *stage = context;
    size_t row = stage->costs->whole ? MODEL_SAVED / stage->count : sizeof(float);
    *bytes = (struct weir_stage_bytes){.saved = (size_t)rows * row};
    return WEIR_OK;
}

static void *new_context(struct bench *bench, const struct costs *costs) {
    struct context *context = bench_take(bench, 1, sizeof *context);
    context->costs = costs;
    context->turns = bench_turns((bench->options.quick ? FORWARD_QUICK_S : FORWARD_S) / 4.0);
    return context;
}

static void *busy_context(struct bench *bench) {
    return new_context(bench, &unequal);
}

static void *equal_context(struct bench *bench) {
    return new_context(bench, &equal);
}

static void busy_destroy_context(void *context) {
    (void)context; /* the run's memory */
}

static struct stage stage_of(const struct context *context, uint32_t index, uint32_t count) {
    const struct costs *costs = context->costs;
    uint32_t turns = context->turns * costs->quarters[index];
    if (costs->whole) turns = turns * SUBJECT_STAGES_MOST / count;
    return (struct stage){index, count, costs, turns};
}

static void *busy_open(struct bench *bench, void *context, const struct weir_pipe_options *how,
                       uint32_t stage_count, const uint32_t *balance) {
    (void)balance;
    static const struct weir_stage_calls calls = {.forward = forward,
                                                  .recompute = recompute,
                                                  .backward = backward,
                                                  .backward_input = backward_input,
                                                  .backward_weight = backward_weight,
                                                  .measure = measure};
    struct trial *trial = bench_take(bench, 1, sizeof *trial);
    struct weir_tensor row = {.dtype = WEIR_F32, .differentiable = true};
    struct weir_input input = {.tensor = row, .name = "x"};
    struct weir_stage stages[SUBJECT_STAGES_MOST];
    struct weir_pipe_options options = *how;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    for (uint32_t s = 0; s < stage_count; s++) {
        trial->stages[s] = stage_of(context, s, stage_count);
        stages[s] = (struct weir_stage)WEIR_STAGE_INIT;
        stages[s].calls = &calls;
        stages[s].context = &trial->stages[s];
        stages[s].outputs = &row;
        stages[s].output_count = 1;
        stages[s].gradient_bytes = sizeof(float);
    }
    options.stages = stages;
    options.stage_count = stage_count;
    options.inputs = &input;
    options.input_count = 1;
    trial->rows = options.rows;
    bench_check_faults(weir_pipe_new(&options, &faults, &trial->pipe), "busy stages", &faults);
    return trial;
}

static struct weir_pipe *busy_pipe(void *trial) {
    return ((struct trial *)trial)->pipe;
}

static void busy_step(void *trial, struct weir_step_result *result) {
    struct trial *own = trial;
    steps_run(own->pipe, own->rows, own->inputs, result);
}

static uint64_t busy_hash(void *trial) {
    struct trial *own = trial;
    uint64_t all = 1;
    for (uint32_t s = 0; s < own->stages[0].count; s++) {
        struct weir_attachment attachment;
        bench_check(weir_pipe_attachment(own->pipe, s, &attachment), "busy stages");
        all &= *(const float *)attachment.gradients == 1.0f;
    }
    return all;
}

static void busy_close(void *trial) {
    weir_pipe_destroy(((struct trial *)trial)->pipe);
}

#define BUSY                                                                                       \
    .rows = 8, .destroy_context = busy_destroy_context, .open = busy_open, .pipe = busy_pipe,      \
    .step = busy_step, .hash = busy_hash, .close = busy_close

const struct subject subject_busy = {
    .name = "busy", .steps_per_sample = 3, .new_context = busy_context, BUSY};
const struct subject subject_equal = {
    .name = "equal", .steps_per_sample = 5, .new_context = equal_context, BUSY};

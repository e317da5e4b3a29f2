/* SPDX-License-Identifier: MIT */
/* Stages whose times are known: multiply-adds in registers, calibrated. Each micro-batch's loss is
 * its index, so that a step shows whether all of them ran. */
#include "simulate.h"

static const double FORWARD_S = 5e-4, FORWARD_QUICK_S = 2e-5;
/* In quarters of a forward: no two stages are equal, and no kind is twice another. */
static const uint32_t quarters[SIMULATE_STAGES_MOST] = {4, 5, 3, 4};

struct stage {
    uint32_t index, count;
    uint32_t turns; /* a quarter of a forward */
};

struct trial {
    struct weir_pipe *pipe;
    struct stage stages[SIMULATE_STAGES_MOST];
    float inputs[SIMULATE_MICRO_BATCHES];
};

static int work(const struct stage *stage, uint32_t eighths) {
    uint32_t turns = stage->turns * quarters[stage->index] * eighths / 8;
    return bench_multiply_add(turns) ? WEIR_OK : WEIR_ERR_CALLBACK;
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
    if (task->input_grads[0].data != NULL) *(float *)task->input_grads[0].data = 1.0f;
    return work(context, 9);
}

static int backward_weight(void *context, const struct weir_task *task) {
    *(float *)task->gradients = 1.0f;
    return work(context, 7);
}

static int backward(void *context, const struct weir_task *task) {
    if (task->input_grads[0].data != NULL) *(float *)task->input_grads[0].data = 1.0f;
    *(float *)task->gradients = 1.0f;
    return work(context, 16);
}

static int measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    (void)context;
    *bytes = (struct weir_stage_bytes){.saved = (size_t)rows * sizeof(float)};
    return WEIR_OK;
}

/* Turns that take as long as a quarter of a forward shall. */
static void *busy_context(struct bench *bench) {
    enum { TURNS = 20000, TRIES = 50 };
    uint32_t *turns = bench_take(bench, 1, sizeof *turns);
    double best = 1.0, wanted = bench->options.quick ? FORWARD_QUICK_S : FORWARD_S;
    for (int i = 0; i < TRIES; i++) {
        uint64_t start = weir__now_ns();
        if (!bench_multiply_add(TURNS)) bench_die("simulate: multiply-adds give wrong answers");
        double s = (double)(weir__now_ns() - start) * 1e-9;
        if (s < best) best = s;
    }
    *turns = (uint32_t)(wanted / 4.0 / best * TURNS) + 100;
    return turns;
}

static void busy_destroy_context(void *context) {
    (void)context; /* the run's memory */
}

static void *busy_open(struct bench *bench, void *context, const struct weir_pipe_options *how,
                       uint32_t stage_count) {
    static const struct weir_stage_calls calls = {.forward = forward,
                                                  .recompute = recompute,
                                                  .backward = backward,
                                                  .backward_input = backward_input,
                                                  .backward_weight = backward_weight,
                                                  .measure = measure};
    struct trial *trial = bench_take(bench, 1, sizeof *trial);
    struct weir_tensor row = {.dtype = WEIR_F32, .differentiable = true};
    struct weir_input input = {.tensor = row, .name = "x"};
    struct weir_stage stages[SIMULATE_STAGES_MOST];
    struct weir_pipe_options options = *how;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    for (uint32_t s = 0; s < stage_count; s++) {
        trial->stages[s] = (struct stage){s, stage_count, *(const uint32_t *)context};
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
    options.rows = options.chunks = SIMULATE_MICRO_BATCHES;
    bench_check_faults(weir_pipe_new(&options, &faults, &trial->pipe), "simulate/busy", &faults);
    return trial;
}

static struct weir_pipe *busy_pipe(void *trial) {
    return ((struct trial *)trial)->pipe;
}

static void busy_step(void *trial, struct weir_step_result *result) {
    struct trial *own = trial;
    const void *inputs[1] = {own->inputs};
    struct weir_step step = WEIR_STEP_INIT;
    step.rows = SIMULATE_MICRO_BATCHES;
    step.inputs = inputs;
    step.no_update = true;
    if (weir_pipe_step(own->pipe, &step, result) != WEIR_OK)
        bench_die("simulate/busy: a step failed: %s", result->error.message);
}

static void busy_close(void *trial) {
    weir_pipe_destroy(((struct trial *)trial)->pipe);
}

const struct simulate_subject simulate_busy = {.name = "busy",
                                               .new_context = busy_context,
                                               .destroy_context = busy_destroy_context,
                                               .open = busy_open,
                                               .pipe = busy_pipe,
                                               .step = busy_step,
                                               .close = busy_close};

/* SPDX-License-Identifier: MIT */
/*
 * What does a task on a GPU cost its host?
 *
 * Napkin. The driver takes 1.5 to 3 us for a launch or a small copy, 0.5 to 1 for an event's
 * record, wait or time. An empty forward and backward have a copy of the caller's row, three
 * records, two waits and three times of the step before (they cost the host what they do only where
 * nothing is left to wait for); so 4 us a task without a launch, 6 with one. Steps of such tasks
 * are as long as their host takes, so the cost is the slope of a step's time over its micro-batches
 * (see bench_overhead.c), per task: a forward and a backward are two.
 */
#include "gpu.h"
#include "overhead.h"

#include <math.h>
#include <string.h>

static const double AT_MOST_S = 5e-6;

enum { WIDTH = 256, STAGES = 2 };

struct pipe_case;

struct gpu_stage {
    struct pipe_case *pipe;
    bool last;
};

/* One worker, or two on the first GPU; tasks launch nothing, or one small kernel each. */
struct pipe_case {
    const char *name;
    uint32_t stages;
    bool launches;
    struct bench_gpu *gpu;
    struct weir_pipe *pipe;
    struct gpu_stage stage[STAGES];
    struct overhead_case overhead;
    float inputs[OVERHEAD_MOST * WIDTH], outputs[OVERHEAD_MOST * WIDTH];
};

/* ---- the stage: y = x + x, dx = dy + dy; the last one's dy and the loss do not matter ---- */

static int twice(const struct pipe_case *one, const struct weir_task *task, void *to,
                 const void *from) {
    const struct weir__cuda_grid grid = {{1, 1, 1}, {WIDTH, 1, 1}, 0};
    uint64_t n = (uint64_t)task->rows * WIDTH;
    void *arguments[] = {&to, &from, &from, &n};
    return toys_launch(task->stream, one->gpu->add, &grid, arguments);
}

static int stage_forward(void *context, const struct weir_task *task) {
    const struct gpu_stage *stage = context;
    if (!stage->pipe->launches) return WEIR_OK;
    return twice(stage->pipe, task, task->outputs[0].data, task->inputs[0].data);
}

static int stage_backward(void *context, const struct weir_task *task) {
    const struct gpu_stage *stage = context;
    void *wanted = task->input_grads[0].data, *to = wanted != NULL ? wanted : task->workspace;
    const void *from = stage->last ? task->inputs[0].data : task->output_grads[0].data;
    if (!stage->pipe->launches) return WEIR_OK;
    return twice(stage->pipe, task, to, from);
}

static int stage_measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    (void)context;
    bytes->workspace[WEIR_BACKWARD] = (size_t)rows * WIDTH * sizeof(float);
    return 0;
}

static void make_pipe(struct bench_gpu *gpu, struct pipe_case *one) {
    static const struct weir_stage_calls calls = {
        .forward = stage_forward, .backward = stage_backward, .measure = stage_measure};
    static const char *const devices[STAGES] = {"cuda:0", "cuda:0"};
    const struct weir_tensor row = {
        .dtype = WEIR_F32, .rank = 1, .shape = {WIDTH}, .differentiable = true};
    struct weir_input input = {.tensor = row, .name = "x"};
    struct weir_stage stages[STAGES];
    struct weir_faults faults = WEIR_FAULTS_INIT;
    one->gpu = gpu;
    for (uint32_t s = 0; s < one->stages; s++) {
        one->stage[s] = (struct gpu_stage){one, s + 1 == one->stages};
        stages[s] = (struct weir_stage)WEIR_STAGE_INIT;
        stages[s].calls = &calls;
        stages[s].context = &one->stage[s];
        stages[s].outputs = &row;
        stages[s].output_count = 1;
    }
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    options.stages = stages;
    options.stage_count = options.workers = one->stages;
    options.inputs = &input;
    options.input_count = 1;
    options.rows = options.chunks = OVERHEAD_MOST;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.devices = devices;
    options.device_count = one->stages;
    bench_check_faults(weir_pipe_new(&options, &faults, &one->pipe), "gpu-overhead", &faults);
    for (int64_t rows = OVERHEAD_LEAST; rows < OVERHEAD_MOST; rows *= 2)
        bench_check(weir_pipe_prepare(one->pipe, rows, NULL), "gpu-overhead");
    for (int i = 0; i < OVERHEAD_MOST * WIDTH; i++) one->inputs[i] = (float)(i % 1000);
}

static uint64_t run_step(void *context, uint32_t micro_batches) {
    struct pipe_case *one = context;
    const void *inputs[1] = {one->inputs};
    void *outputs[1] = {one->launches ? one->outputs : NULL};
    struct weir_step step = WEIR_STEP_INIT;
    struct weir_step_result result;
    step.rows = micro_batches;
    step.inputs = inputs;
    step.outputs = outputs;
    int status = weir_pipe_step(one->pipe, &step, &result);
    if (status != WEIR_OK) bench_die("gpu-overhead: a step failed: %s", result.error.message);
    return result.ns;
}

/* The fake driver's log makes long steps take for ever: there one short one shows that it runs. */
static void sample_tasks(struct bench *bench, void *context, double *value) {
    struct pipe_case *one = context;
    if (bench->gpu->fake)
        *value = (double)run_step(one, OVERHEAD_LEAST) * 1e-9;
    else
        overhead_sample(bench, &one->overhead, value);
}

/* Every number doubled by every stage. */
static void check_answers(struct bench *bench, struct pipe_case *one) {
    bool right = true;
    int rows = bench->gpu->fake ? OVERHEAD_LEAST : OVERHEAD_MOST;
    if (!one->launches) return;
    memset(one->outputs, 0, sizeof one->outputs);
    (void)run_step(one, (uint32_t)rows);
    for (int i = 0; i < rows * WIDTH; i++)
        right &= one->outputs[i] == ldexpf(one->inputs[i], (int)one->stages);
    bench_answer(bench, right, "gpu-overhead/%s: the outputs are right", one->name);
}

static void add_overhead(struct bench *bench, const struct bench_case *measured) {
    struct bench_result *result = bench_add(bench, "s", measured->samples, measured->count,
                                            "gpu-overhead/%s/per-task", measured->label);
    result->at_most = AT_MOST_S;
    snprintf(result->note, sizeof result->note, "half the cost of a micro-batch in a stage");
}

void bench_gpu_overhead(struct bench *bench) {
    static const struct {
        const char *name;
        uint32_t stages;
        bool launches;
    } kinds[] = {{"one-worker/empty", 1, false},
                 {"one-worker/launch", 1, true},
                 {"two-workers/empty", 2, false},
                 {"two-workers/launch", 2, true}};
    enum { COUNT = WEIR__COUNT_OF(kinds) };
    struct pipe_case *own[COUNT];
    struct bench_case cases[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        own[i] = bench_take(bench, 1, sizeof *own[i]);
        own[i]->name = kinds[i].name;
        own[i]->stages = kinds[i].stages;
        own[i]->launches = kinds[i].launches;
        make_pipe(bench->gpu, own[i]);
        check_answers(bench, own[i]);
        overhead_case_init(bench, &own[i]->overhead, 2 * own[i]->stages, run_step, own[i]);
        cases[i] =
            (struct bench_case){.label = own[i]->name, .sample = sample_tasks, .context = own[i]};
    }
    bench_interleave(bench, cases, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        add_overhead(bench, &cases[i]);
        check_answers(bench, own[i]);
        weir_pipe_destroy(own[i]->pipe);
    }
}

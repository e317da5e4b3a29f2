/* SPDX-License-Identifier: MIT */
/*
 * What does the engine cost per micro-batch and stage, forward and backward, when the stages do
 * nothing? Every schedule, on two workers on two cores, checkpoint never, trace on.
 *
 * Napkin. An action is two looks at the clock (20 to 30 ns each), a task filled from cached memory
 * (20 ns), a stamp and a store that others spin on (20 ns): about 0.1 us. Under GPipe both workers
 * stream, so a micro-batch costs each stage its F and its B, two actions of two stages in parallel:
 * 0.1 us per micro-batch and stage. Under 1F1B, B of stage 1 lets stage 0 run B and the next but
 * one F, which stage 1 waits for: a loop of four actions and two hand-offs (0.15 us each) for every
 * two micro-batches, so half a hand-off more: 0.2 us. A backward in two parts is a third action,
 * half as much again, and W fills what 1F1B waits. The ideals below are the simulated tables with
 * this machine's own clock and hand-off and nothing else.
 *
 * The same for the peers, per task: torchgpipe 104 us, torch.distributed.pipelining 370 to 415 us
 * (GPipe; its 1F1B costs more).
 */
#include "overhead.h"

#include <math.h>
#include <string.h>

static const double AT_MOST_S = 1.5e-6;

/* Stages that multiply, y = … a1 * (a0 * x), loss = the mean of y: with whole numbers all sums are
 * exact, so the answer is checked to the bit. `answering` is off while steps are timed. */
struct engine_case {
    const struct overhead_schedule *schedule;
    struct weir_pipe *pipe;
    bool answering;
    struct engine_stage {
        struct engine_case *owner;
        float factor;
        bool last;
    } stages[OVERHEAD_STAGES_MOST];
    float inputs[OVERHEAD_MOST];
};

static const float factors[OVERHEAD_STAGES_MOST] = {2.0f, 3.0f, 5.0f, 7.0f};

static int stage_forward(void *context, const struct weir_task *task) {
    const struct engine_stage *stage = context;
    if (!stage->owner->answering) return 0;
    const float *x = task->inputs[0].data;
    float *y = task->outputs[0].data, *saved = task->saved;
    double sum = 0.0;
    for (int64_t i = 0; i < task->rows; i++) {
        y[i] = stage->factor * x[i];
        saved[i] = x[i];
        sum += y[i];
    }
    if (stage->last) *task->loss = sum / task->loss_weight;
    return 0;
}

static float incoming(const struct engine_stage *stage, const struct weir_task *task, int64_t row) {
    if (stage->last) return 1.0f / (float)task->loss_weight;
    return ((const float *)task->output_grads[0].data)[row];
}

static int stage_backward_input(void *context, const struct weir_task *task) {
    const struct engine_stage *stage = context;
    if (!stage->owner->answering) return 0;
    float *outgoing = task->input_grads[0].data;
    for (int64_t i = 0; outgoing != NULL && i < task->rows; i++)
        outgoing[i] = incoming(stage, task, i) * stage->factor;
    return 0;
}

static int stage_backward_weight(void *context, const struct weir_task *task) {
    const struct engine_stage *stage = context;
    if (!stage->owner->answering) return 0;
    const float *saved = task->saved;
    float *own = task->gradients;
    if (task->gradients_first) *own = 0.0f;
    for (int64_t i = 0; i < task->rows; i++) *own += incoming(stage, task, i) * saved[i];
    return 0;
}

static int stage_backward(void *context, const struct weir_task *task) {
    const struct engine_stage *stage = context;
    if (!stage->owner->answering) return 0;
    stage_backward_weight(context, task);
    return stage_backward_input(context, task);
}

static int stage_measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    *bytes = (struct weir_stage_bytes){.saved = (size_t)rows * sizeof(float)};
    return WEIR_OK;
}

/* One pipe for all counts: of one-row micro-batches as many as rows. */
static void make_pipe(struct engine_case *one) {
    static const struct weir_stage_calls calls = {.forward = stage_forward,
                                                  .backward = stage_backward,
                                                  .backward_input = stage_backward_input,
                                                  .backward_weight = stage_backward_weight,
                                                  .measure = stage_measure};
    uint32_t stage_count = one->schedule->stages;
    struct weir_tensor number = {.dtype = WEIR_F32, .differentiable = true};
    struct weir_input input = {.tensor = number, .name = "x"};
    struct weir_stage stages[OVERHEAD_STAGES_MOST];
    struct weir_faults faults = WEIR_FAULTS_INIT;
    for (uint32_t s = 0; s < stage_count; s++) {
        one->stages[s] = (struct engine_stage){one, factors[s], s == stage_count - 1};
        stages[s] = (struct weir_stage)WEIR_STAGE_INIT;
        stages[s].calls = &calls;
        stages[s].context = &one->stages[s];
        stages[s].outputs = &number;
        stages[s].output_count = 1;
        stages[s].gradient_bytes = sizeof(float);
    }
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    options.stages = stages;
    options.stage_count = stage_count;
    options.workers = OVERHEAD_WORKERS;
    options.inputs = &input;
    options.input_count = 1;
    options.rows = options.chunks = OVERHEAD_MOST;
    options.schedule = one->schedule->name;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.threads_per_worker = 1;
    bench_check_faults(weir_pipe_new(&options, &faults, &one->pipe), "overhead", &faults);
    for (int64_t rows = OVERHEAD_LEAST; rows < OVERHEAD_MOST; rows *= 2)
        bench_check(weir_pipe_prepare(one->pipe, rows, NULL), "overhead");
    for (int i = 0; i < OVERHEAD_MOST; i++) one->inputs[i] = (float)(i + 1);
}

static void run_step(struct engine_case *one, uint32_t rows, struct weir_step_result *result) {
    const void *inputs[1] = {one->inputs};
    struct weir_step step = WEIR_STEP_INIT;
    step.rows = rows;
    step.inputs = inputs;
    int status = weir_pipe_step(one->pipe, &step, result);
    if (status != WEIR_OK) bench_die("overhead: a step failed: %s", result->error.message);
}

static uint64_t timed_step(void *context, uint32_t micro_batches) {
    struct weir_step_result result;
    run_step(context, micro_batches, &result);
    return result.ns;
}

static float gradient_of(const struct engine_case *one, uint32_t stage) {
    struct weir_attachment attachment;
    bench_check(weir_pipe_attachment(one->pipe, stage, &attachment), "overhead");
    return *(const float *)attachment.gradients;
}

static double product(uint32_t stages) {
    double all = 1.0;
    for (uint32_t s = 0; s < stages; s++) all *= factors[s];
    return all;
}

/* Whether each worker's newest events are one step's. */
static bool is_traced(struct bench *bench, const struct engine_case *one, int64_t rows) {
    const struct weir_table *table = weir_pipe_table(one->pipe, rows);
    struct weir_trace_event *events = bench_take(bench, table->action_count, sizeof *events);
    bool traced = true;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        uint32_t expected = 0;
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++)
            expected +=
                table->actions[a].kind != WEIR_KIND_N && table->actions[a].kind != WEIR_KIND_U;
        uint32_t count = weir_pipe_trace(one->pipe, w, expected, events);
        traced &= count == expected && events[0].step == events[count - 1].step;
    }
    return traced;
}

/* The loss, every gradient, and that every action was stamped. */
static void check_answers(struct bench *bench, struct engine_case *one) {
    struct weir_step_result result;
    uint32_t stages = one->schedule->stages;
    bool right = true, traced = true;
    one->answering = true;
    for (uint32_t m = OVERHEAD_LEAST; m <= OVERHEAD_MOST; m *= 2) {
        double mean = (m + 1) / 2.0;
        run_step(one, m, &result);
        right &= result.loss == product(stages) * mean;
        for (uint32_t s = 0; s < stages; s++)
            right &= gradient_of(one, s) == product(stages) / factors[s] * mean;
        traced &= is_traced(bench, one, m);
    }
    one->answering = false;
    bench_answer(bench, right, "overhead/%s/engine: loss and gradients are the closed form's",
                 one->schedule->name);
    bench_answer(bench, traced, "overhead/%s/engine: every action is in the trace",
                 one->schedule->name);
}

static void print_estimate(const struct bench *bench) {
    char clock[32], crossing[32];
    double handoff = fmin(bench->roofs.handoff_line, bench->roofs.handoff_spin);
    fprintf(bench->text,
            "per micro-batch and stage, forward and backward. ideal: two looks at the clock (%s)\n"
            "per action, and the hand-offs (%s) that the table waits for, if all else is free.\n"
            "Peers: torchgpipe 104 us, torch pipelining 370 to 415 us.\n",
            bench_value_text(bench->roofs.clock_read, "s", clock),
            bench_value_text(handoff, "s", crossing));
    fflush(bench->text);
}

/* The first schedule once more, at the end. */
static void measure_engine(struct bench *bench, struct overhead_schedule *schedules,
                           uint32_t count) {
    struct engine_case *own[OVERHEAD_SCHEDULES_MOST + 1];
    struct overhead_case overheads[OVERHEAD_SCHEDULES_MOST + 1];
    struct bench_case cases[OVERHEAD_SCHEDULES_MOST + 1];
    for (uint32_t i = 0; i <= count; i++) {
        own[i] = bench_take(bench, 1, sizeof *own[i]);
        own[i]->schedule = &schedules[i % count];
        make_pipe(own[i]);
        check_answers(bench, own[i]);
        overhead_case_init(bench, &overheads[i], own[i]->schedule->stages, timed_step, own[i]);
        cases[i] = (struct bench_case){
            .label = own[i]->schedule->name, .sample = overhead_sample, .context = &overheads[i]};
    }
    bench_interleave(bench, cases, count + 1);
    for (uint32_t i = 0; i < count; i++)
        schedules[i].engine =
            overhead_report(bench, &cases[i], "engine", schedules[i].ideal, AT_MOST_S)->median;
    bench_add_ratio(bench, &cases[0], &cases[count], "overhead/control/engine")->control = true;
    for (uint32_t i = 0; i <= count; i++) {
        check_answers(bench, own[i]);
        weir_pipe_destroy(own[i]->pipe);
    }
}

void bench_overhead(struct bench *bench) {
    struct overhead_schedule schedules[OVERHEAD_SCHEDULES_MOST];
    if (bench->facts.usable_cores < OVERHEAD_WORKERS)
        fprintf(bench->text, "this machine has fewer than two usable cores: workers will park\n");
    uint32_t count = overhead_schedules(bench, schedules);
    print_estimate(bench);
    measure_engine(bench, schedules, count);
    overhead_net(bench, schedules, count);
}

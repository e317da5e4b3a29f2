/* SPDX-License-Identifier: MIT */
/*
 * What does the engine cost per micro-batch and stage, forward and backward, when the stages do
 * nothing? Two stages on two workers on two cores, checkpoint never, trace on.
 *
 * Napkin. An action is two looks at the clock (20 to 30 ns each), a task filled from cached memory
 * (20 ns), a stamp and a store that others spin on (20 ns): about 0.1 us. Under GPipe both workers
 * stream, so a micro-batch costs each stage its F and its B, two actions of two stages in parallel:
 * 0.1 us per micro-batch and stage. Under 1F1B, B of stage 1 lets stage 0 run B and the next but
 * one F, which stage 1 waits for: a loop of four actions and two hand-offs (0.15 us each) for every
 * two micro-batches, so half a hand-off more: 0.2 us. The ideals below are the same sums with this
 * machine's own clock and hand-off and nothing else.
 *
 * The same for the peers, per task: torchgpipe 104 us, torch.distributed.pipelining 370 to 415 us
 * (GPipe; its 1F1B costs more).
 */
#include "overhead.h"

#include <math.h>
#include <string.h>

static const double AT_MOST_S = 1.5e-6;

/* Two stages that multiply, y = a1 * (a0 * x), loss = the mean of y: with whole numbers all sums
 * are exact, so the answer is checked to the bit. `answering` is off while steps are timed. */
struct engine_case {
    struct weir_pipe *pipe;
    bool answering;
    struct engine_stage {
        struct engine_case *owner;
        float factor;
        bool last;
    } stages[OVERHEAD_STAGES];
    float inputs[OVERHEAD_MOST];
};

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

static int stage_backward(void *context, const struct weir_task *task) {
    const struct engine_stage *stage = context;
    if (!stage->owner->answering) return 0;
    const float *saved = task->saved, *incoming = task->output_grads[0].data;
    float *outgoing = task->input_grads[0].data, *own = task->gradients;
    if (task->gradients_first) *own = 0.0f;
    for (int64_t i = 0; i < task->rows; i++) {
        float gradient = stage->last ? 1.0f / (float)task->loss_weight : incoming[i];
        *own += gradient * saved[i];
        if (outgoing != NULL) outgoing[i] = gradient * stage->factor;
    }
    return 0;
}

static int stage_measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    *bytes = (struct weir_stage_bytes){.saved = (size_t)rows * sizeof(float)};
    return WEIR_OK;
}

/* One pipe for all counts: of one-row micro-batches as many as rows. */
static void make_pipe(struct engine_case *one, const char *schedule) {
    static const struct weir_stage_calls calls = {
        .forward = stage_forward, .backward = stage_backward, .measure = stage_measure};
    struct weir_tensor number = {.dtype = WEIR_F32, .differentiable = true};
    struct weir_input input = {.tensor = number, .name = "x"};
    struct weir_stage stages[OVERHEAD_STAGES];
    struct weir_faults faults = WEIR_FAULTS_INIT;
    for (uint32_t s = 0; s < OVERHEAD_STAGES; s++) {
        bool last = s == OVERHEAD_STAGES - 1;
        one->stages[s] = (struct engine_stage){one, last ? 3.0f : 2.0f, last};
        stages[s] = (struct weir_stage)WEIR_STAGE_INIT;
        stages[s].calls = &calls;
        stages[s].context = &one->stages[s];
        stages[s].outputs = &number;
        stages[s].output_count = 1;
        stages[s].gradient_bytes = sizeof(float);
    }
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    options.stages = stages;
    options.stage_count = OVERHEAD_STAGES;
    options.inputs = &input;
    options.input_count = 1;
    options.rows = options.chunks = OVERHEAD_MOST;
    options.schedule = schedule;
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

/* The loss, both gradients, and that every action was stamped. */
static void check_answers(struct bench *bench, struct engine_case *one, const char *name) {
    struct weir_trace_event events[2 * OVERHEAD_MOST + 2];
    struct weir_step_result result;
    bool right = true, traced = true;
    one->answering = true;
    for (uint32_t m = OVERHEAD_LEAST; m <= OVERHEAD_MOST; m *= 2) {
        float mean = (float)(m + 1) / 2.0f;
        run_step(one, m, &result);
        right &= result.loss == 6.0 * mean;
        right &= gradient_of(one, 0) == 3.0f * mean && gradient_of(one, 1) == 2.0f * mean;
        for (uint32_t w = 0; w < OVERHEAD_STAGES; w++) {
            uint32_t count = weir_pipe_trace(one->pipe, w, 2 * m, events);
            traced &= count == 2 * m && events[0].step == events[count - 1].step;
        }
    }
    one->answering = false;
    bench_answer(bench, right, "overhead/%s: loss and gradients are the closed form's", name);
    bench_answer(bench, traced, "overhead/%s: every action is in the trace", name);
}

static void print_estimate(const struct bench *bench, double handoff, double gpipe,
                           double one_f_one_b) {
    char clock[32], crossing[32], low[32], high[32];
    fprintf(bench->text,
            "estimate: two looks at the clock (%s) per action, and under 1F1B half a hand-off\n"
            "(%s): %s (gpipe) and %s (1f1b) per micro-batch and stage, forward and backward, if\n"
            "all else is free. Peers: torchgpipe 104 us, torch pipelining 370 to 415 us.\n",
            bench_value_text(bench->roofs.clock_read, "s", clock),
            bench_value_text(handoff, "s", crossing), bench_value_text(gpipe, "s", low),
            bench_value_text(one_f_one_b, "s", high));
    fflush(bench->text);
}

static void measure_engine(struct bench *bench, double medians[2]) {
    static const char *const schedules[] = {"1f1b", "gpipe", "1f1b"};
    static const char *const labels[] = {"engine/1f1b", "engine/gpipe", "engine/1f1b-again"};
    enum { CASES = 3 };
    struct engine_case *own[CASES];
    struct overhead_case overheads[CASES];
    struct bench_case cases[CASES];
    double gpipe = 2.0 * bench->roofs.clock_read;
    double handoff = fmin(bench->roofs.handoff_line, bench->roofs.handoff_spin);
    double one_f_one_b = gpipe + handoff / 2.0;
    print_estimate(bench, handoff, gpipe, one_f_one_b);
    for (int i = 0; i < CASES; i++) {
        own[i] = bench_take(bench, 1, sizeof *own[i]);
        make_pipe(own[i], schedules[i]);
        check_answers(bench, own[i], labels[i]);
        overhead_case_init(bench, &overheads[i], timed_step, own[i]);
        cases[i] = (struct bench_case){
            .label = labels[i], .sample = overhead_sample, .context = &overheads[i]};
    }
    bench_interleave(bench, cases, CASES);
    medians[0] = overhead_report(bench, &cases[0], one_f_one_b, AT_MOST_S)->median;
    medians[1] = overhead_report(bench, &cases[1], gpipe, AT_MOST_S)->median;
    bench_add_ratio(bench, &cases[0], &cases[2], "overhead/engine/control")->control = true;
    for (int i = 0; i < CASES; i++) {
        check_answers(bench, own[i], labels[i]);
        weir_pipe_destroy(own[i]->pipe);
    }
}

void bench_overhead(struct bench *bench) {
    if (bench->facts.usable_cores < OVERHEAD_STAGES)
        fprintf(bench->text, "this machine has fewer than two usable cores: workers will park\n");
    double medians[2];
    measure_engine(bench, medians);
    overhead_net(bench, medians);
}

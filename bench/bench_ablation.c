/* SPDX-License-Identifier: MIT */
/*
 * What does each part of the engine gain? Upstream's table, and the row that it never measured:
 * dependency order -> + copies on their own -> + portals -> + early recompute.
 *
 * Four stages loop over two workers, as GPipe orders them, with nested skips as a U-Net has them: a
 * from stage 0 to stage 3, b from stage 1 to stage 2. Work is multiply-adds of a known time. Every
 * tensor that crosses between workers takes a quarter of a forward: at first its reader's own time,
 * as if copies stood in the stream of the work; then beside the work, as a copy engine's would.
 * Without portals a skip is one more tensor of every border that it passes.
 *
 * Napkin, in forwards, of 8 micro-batches, all but the last recomputed: a worker works 16 F + 14 R
 * + 16 B = 62. Without portals 1, 2 or 3 tensors cross a border, 6 for each micro-batch each way:
 * 96 copies over two workers, 12 forwards of each, so copies on their own are worth a sixth.
 * Portals take 6 crossings to 5, which matters where nothing hides them, at the ends; and memory:
 * a passes two workers for nothing. Early recompute hides in the wait for the first gradient.
 */
#include "harness.h"
#include "steps.h"

#include <math.h>
#include <string.h>

enum { STAGES = 4, WORKERS = 2, CHUNKS = 8, WIDTH = 16 };
enum { BORDER_FLOATS = 1 << 14, SAVED_BYTES = 1 << 18, STEPS_PER_SAMPLE = 5 };
static const double FORWARD_S = 5e-4, FORWARD_QUICK_S = 5e-5, COPY_PART = 0.25;
static const double TOLERANCE = 1e-5;

enum variant { DEPENDENCY, COPIES, PORTALS, EARLY, VARIANTS, AGAIN = VARIANTS, TRIALS };
static const char *const names[TRIALS] = {"dependency-order", "and-copies-on-their-own",
                                          "and-portals", "and-early-recompute", "again"};

struct stage {
    uint32_t index;
    bool portals;
    uint32_t turns, copy_turns; /* of a forward; of each tensor that the reader copies itself */
};

struct trial {
    enum variant variant;
    struct weir_pipe *pipe;
    struct stage stages[STAGES];
    float inputs[CHUNKS * BORDER_FLOATS];
};

static const float factors[STAGES] = {0.9f, 1.1f, 0.7f, 0.6f};

/* ---- borders ---- */

/* What a stage puts out without portals, beside its own output: stage 1 passes a on, adds b. */
static uint32_t tensors_out(const struct stage *stage) {
    static const uint32_t counts[STAGES] = {2, 3, 2, 1};
    return stage->portals ? 1 : counts[stage->index];
}

/* Where the skip that a stage takes lies among its inputs; 0: it takes none. */
static uint32_t skip_at(uint32_t index) {
    return index == 2 ? 2 : index == 3 ? 1 : 0;
}

static bool passes(const struct stage *stage) {
    return !stage->portals && (stage->index == 1 || stage->index == 2);
}

/* The reader's own time for what comes over its border: with portals they are what comes so. */
static int copy_and_work(const struct stage *stage, uint32_t tensors, uint32_t forwards) {
    uint32_t turns = forwards * stage->turns + tensors * stage->copy_turns;
    return bench_multiply_add(turns) ? WEIR_OK : WEIR_ERR_CALLBACK;
}

/* ---- stages: y = f (x + skip); the loss is the mean of the last one's y^2 ---- */

static const float *skip_of(const struct stage *stage, const struct weir_task *task) {
    uint32_t at = skip_at(stage->index);
    if (at == 0) return NULL;
    return stage->portals ? task->skips[0].data : task->inputs[at].data;
}

static void add_up(const struct stage *stage, const struct weir_task *task, float sum[WIDTH]) {
    const float *x = task->inputs[0].data, *skip = skip_of(stage, task);
    for (int i = 0; i < WIDTH; i++) sum[i] = x[i] + (skip != NULL ? skip[i] : 0.0f);
}

static void put_out(const struct stage *stage, const struct weir_task *task, const float *y) {
    size_t bytes = WIDTH * sizeof *y;
    memcpy(task->outputs[0].data, y, bytes);
    if (passes(stage)) memcpy(task->outputs[1].data, task->inputs[1].data, bytes);
    if (stage->index > 1) return;
    memcpy(stage->portals ? task->skips[0].data : task->outputs[1 + stage->index].data, y, bytes);
}

static int forward(void *context, const struct weir_task *task) {
    const struct stage *stage = context;
    float sum[WIDTH], y[WIDTH];
    double squares = 0.0;
    add_up(stage, task, sum);
    for (int i = 0; i < WIDTH; i++) {
        y[i] = factors[stage->index] * sum[i];
        squares += (double)y[i] * y[i];
    }
    if (task->saved != NULL) memcpy(task->saved, sum, sizeof sum);
    put_out(stage, task, y);
    if (stage->index == STAGES - 1) *task->loss = squares / (WIDTH * task->loss_weight);
    const struct stage before = {.index = stage->index - 1, .portals = stage->portals};
    return copy_and_work(stage, stage->index > 0 ? tensors_out(&before) : 0, 1);
}

static int recompute(void *context, const struct weir_task *task) {
    add_up(context, task, task->saved);
    return copy_and_work(context, 0, 1);
}

/* Of the stage's own output: what the next stage says, and whoever took it as a skip. */
static void gradient_of_output(const struct stage *stage, const struct weir_task *task,
                               float gradient[WIDTH]) {
    const float *saved = task->saved, *from_next = NULL, *from_skip = NULL;
    const float factor = factors[stage->index];
    if (stage->index < STAGES - 1) from_next = task->output_grads[0].data;
    if (stage->index < 2)
        from_skip =
            stage->portals ? task->skip_grads[0].data : task->output_grads[1 + stage->index].data;
    for (int i = 0; i < WIDTH; i++) {
        float mean = 2.0f * factor * saved[i] / (WIDTH * (float)task->loss_weight);
        gradient[i] = from_next != NULL ? from_next[i] : mean;
        if (from_skip != NULL) gradient[i] += from_skip[i];
    }
}

static void put_back(const struct stage *stage, const struct weir_task *task, const float *x) {
    size_t bytes = WIDTH * sizeof *x;
    uint32_t at = skip_at(stage->index);
    if (task->input_grads[0].data != NULL) memcpy(task->input_grads[0].data, x, bytes);
    if (passes(stage)) memcpy(task->input_grads[1].data, task->output_grads[1].data, bytes);
    if (at == 0) return;
    memcpy(stage->portals ? task->skip_grads_out[0].data : task->input_grads[at].data, x, bytes);
}

static int backward(void *context, const struct weir_task *task) {
    const struct stage *stage = context;
    const float *saved = task->saved;
    float *own = task->gradients, gradient[WIDTH], x[WIDTH];
    gradient_of_output(stage, task, gradient);
    for (int i = 0; i < WIDTH; i++) {
        own[i] = gradient[i] * saved[i] + (task->gradients_first ? 0.0f : own[i]);
        x[i] = gradient[i] * factors[stage->index];
    }
    put_back(stage, task, x);
    return copy_and_work(stage, stage->index < STAGES - 1 ? tensors_out(stage) : 0, 2);
}

static int measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    (void)context;
    *bytes = (struct weir_stage_bytes){.saved = (size_t)rows * SAVED_BYTES};
    return WEIR_OK;
}

/* ---- trials ---- */

static const struct weir_stage_calls calls = {
    .forward = forward, .recompute = recompute, .backward = backward, .measure = measure};
#define ROW                                                                                        \
    { .dtype = WEIR_F32, .rank = 1, .shape = {BORDER_FLOATS}, .differentiable = true }
static const struct weir_tensor row = ROW, borders[] = {ROW, ROW, ROW};

static struct weir_stage make_stage(struct stage *stage, struct weir_skip_use *skip) {
    struct weir_stage made = WEIR_STAGE_INIT;
    uint32_t at = stage->portals ? 0 : skip_at(stage->index);
    made.calls = &calls;
    made.context = stage;
    made.outputs = borders;
    made.output_count = tensors_out(stage);
    made.inputs_kept = 0;
    made.inputs_recomputed = 1u | (at > 0 ? 1u << at : 0u);
    made.gradient_bytes = WIDTH * sizeof(float);
    if (!stage->portals) return made;
    *skip = (struct weir_skip_use){.verb = stage->index < 2 ? WEIR_SKIP_STASH : WEIR_SKIP_POP,
                                   .name = stage->index % 3 == 0 ? "a" : "b",
                                   .tensor = row};
    made.skips = skip;
    made.skip_count = 1;
    return made;
}

static void open_trial(struct bench *bench, enum variant variant, uint32_t turns, double forward_s,
                       struct trial *trial) {
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_input input = {.tensor = row, .name = "x"};
    struct weir_skip_use skips[STAGES];
    struct weir_stage stages[STAGES];
    trial->variant = variant;
    (void)bench;
    for (uint32_t s = 0; s < STAGES; s++) {
        uint32_t copy_turns = variant == DEPENDENCY ? (uint32_t)(turns * COPY_PART) : 0;
        trial->stages[s] = (struct stage){s, variant >= PORTALS, turns, copy_turns};
        stages[s] = make_stage(&trial->stages[s], &skips[s]);
    }
    for (int i = 0; i < CHUNKS * BORDER_FLOATS; i++) trial->inputs[i] = (float)(i % 37) * 0.11f;
    options.stages = stages;
    options.stage_count = STAGES;
    options.inputs = &input;
    options.input_count = 1;
    options.rows = options.chunks = CHUNKS;
    options.workers = WORKERS;
    options.schedule = "looped-bfs";
    options.checkpoint = WEIR_CHECKPOINT_EXCEPT_LAST;
    options.threads_per_worker = 1;
    options.link = WEIR_LINK_COPY;
    if (variant != DEPENDENCY) options.link_delay_ns = (uint64_t)(forward_s * COPY_PART * 1e9);
    options.recompute_late = variant < EARLY;
    bench_check_faults(weir_pipe_new(&options, &faults, &trial->pipe), "ablation", &faults);
}

static double run_step(struct trial *trial) {
    struct weir_step_result result;
    steps_run(trial->pipe, CHUNKS, trial->inputs, &result);
    return (double)result.ns * 1e-9;
}

static void sample(struct bench *bench, void *context, double *value) {
    double times[STEPS_PER_SAMPLE];
    (void)bench;
    for (int i = 0; i < STEPS_PER_SAMPLE; i++) times[i] = run_step(context);
    *value = bench_median(times, STEPS_PER_SAMPLE);
}

static uint64_t memory_of(const struct trial *trial) {
    const struct weir_plan *plan = weir_pipe_plan(trial->pipe);
    uint64_t sum = 0;
    for (uint32_t d = 0; d < plan->device_count; d++) sum += plan->devices[d].total;
    return sum;
}

/* ---- answers ---- */

static const float *gradients_of(const struct trial *trial, uint32_t stage) {
    struct weir_attachment attachment;
    bench_check(weir_pipe_attachment(trial->pipe, stage, &attachment), "ablation");
    return attachment.gradients;
}

/* Stage 0's, by hand: y3 = f3 (f2 (f1 + f1) + 1) f0 x, and y3^2's derivative by f0. */
static double gradient_by_hand(const struct trial *trial, int at) {
    const double f0 = factors[0], f1 = factors[1], f2 = factors[2], f3 = factors[3];
    double slope = f3 * (2 * f2 * f1 + 1), sum = 0.0;
    for (int c = 0; c < CHUNKS; c++) {
        double x = trial->inputs[c * BORDER_FLOATS + at];
        sum += 2 * slope * slope * f0 * x * x / (WIDTH * (double)CHUNKS);
    }
    return sum;
}

static void check_answers(struct bench *bench, const struct trial *trials) {
    for (int v = 0; v < VARIANTS; v++) {
        bool right = true;
        const float *own = gradients_of(&trials[v], 0);
        for (int i = 0; i < WIDTH; i++) {
            double exact = gradient_by_hand(&trials[v], i);
            right &= fabs((double)own[i] - exact) <= TOLERANCE * exact;
        }
        for (uint32_t s = 0; s < STAGES; s++)
            right &= memcmp(gradients_of(&trials[v], s), gradients_of(&trials[0], s),
                            WIDTH * sizeof(float)) == 0;
        bench_answer(bench, right, "ablation/%s: gradients by hand, and the first one's bits",
                     names[v]);
    }
}

/* ---- results ---- */

static void add_rates(struct bench *bench, const struct bench_case *one, const struct trial *trial,
                      double work_s) {
    const char *name = names[trial->variant];
    double *rates = bench_take(bench, one->count, sizeof *rates);
    double *bytes = bench_take(bench, 1, sizeof *bytes);
    struct bench_result *result =
        bench_add(bench, "s", one->samples, one->count, "ablation/%s/step", name);
    result->ideal = work_s;
    for (uint32_t i = 0; i < one->count; i++) rates[i] = CHUNKS / one->samples[i];
    result = bench_add(bench, "rows/s", rates, one->count, "ablation/%s/throughput", name);
    result->higher_is_better = true;
    result->ideal = CHUNKS / work_s;
    *bytes = (double)memory_of(trial);
    bench_add(bench, "B", bytes, 1, "ablation/%s/memory", name);
}

static void report(struct bench *bench, const struct bench_case *cases, const struct trial *trials,
                   double forward_s) {
    const double work_s = STAGES * (CHUNKS * 3 + CHUNKS - 1) * forward_s / WORKERS;
    for (int v = 0; v < VARIANTS; v++) add_rates(bench, &cases[v], &trials[v], work_s);
    for (int v = COPIES; v < VARIANTS; v++) {
        struct bench_result *result =
            bench_add_ratio(bench, &cases[v - 1], &cases[v], "ablation/%s/speed-up", names[v]);
        result->higher_is_better = true;
        snprintf(result->note, sizeof result->note, "against the row before");
    }
    bench_add_ratio(bench, &cases[AGAIN], &cases[EARLY], "ablation/control")->control = true;
}

void bench_ablation(struct bench *bench) {
    struct bench_case cases[TRIALS];
    if (bench->facts.usable_cores < WORKERS) {
        fprintf(bench->text, "fewer than two usable cores: nothing to measure here\n");
        return;
    }
    struct trial *trials = bench_take(bench, TRIALS, sizeof *trials);
    const double forward_s = bench->options.quick ? FORWARD_QUICK_S : FORWARD_S;
    uint32_t turns = bench_turns(forward_s);
    for (int v = 0; v < TRIALS; v++) {
        open_trial(bench, v == AGAIN ? EARLY : (enum variant)v, turns, forward_s, &trials[v]);
        cases[v] = (struct bench_case){.label = names[v], .sample = sample, .context = &trials[v]};
    }
    bench_interleave(bench, cases, TRIALS);
    check_answers(bench, trials);
    report(bench, cases, trials, forward_s);
    for (int v = 0; v < TRIALS; v++) weir_pipe_destroy(trials[v].pipe);
}

/* SPDX-License-Identifier: MIT */
/*
 * Goal: stages made of kernels, launched on the streams that their tasks bring, train on GPUs to
 * the bits that plain loops give on the CPU, on any mixture of devices. Method: a chain of toy
 * layers (tests/toys/affine.cu) with a skip, a loss and a clipped update, each operation once as
 * a kernel and once as a loop; the fake driver in hostile orders, or the machine's own GPUs;
 * against one worker on the CPU.
 */
#include "cuda/fake_gpu.h"
#include "harness.h"
#include "toys/toys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS = 37, ROWS = 24, STAGES_MAX = 4, GPUS_MAX = 2, STEPS = 3 };
enum { ROW_BYTES = COLUMNS * sizeof(float), PARAMETER_BYTES = 2 * ROW_BYTES };
static const float RATE = 0.05f;

/* ---- the operations ---- */

enum toy { AFFINE, INPUT_GRADIENT, WEIGHT_GRADIENT, ADD, SQUARE_LOSS, SQUARE_SUM, DESCEND, TOYS };
static const char *const symbols[TOYS] = {
    "weir_affine", "weir_affine_input_gradient", "weir_affine_weight_gradient",
    "weir_add",    "weir_square_loss",           "weir_square_sum",
    "weir_descend"};

static struct gpu {
    struct weir__device *device; /* so that the kernels stay loaded in the context */
    struct toys toys;
    struct CUfunc_st *functions[TOYS];
} gpus[GPUS_MAX];

static int launch(struct weir_stream *stream, enum toy toy, uint32_t threads, void **arguments) {
    const struct gpu *gpu = &gpus[stream->device->memory - 1];
    const struct weir__cuda_grid grid = {{threads > 1 ? 3 : 1, 1, 1}, {threads, 1, 1}, 0};
    return toys_launch(stream, gpu->functions[toy], &grid, arguments);
}

static bool is_gpu(const struct weir_stream *stream) {
    return weir_stream_cuda(stream) != NULL;
}

static int affine(struct weir_stream *stream, float *y, const float *x, const float *p,
                  uint64_t rows) {
    const float *a = p, *b = p + COLUMNS;
    uint64_t columns = COLUMNS;
    if (is_gpu(stream))
        return launch(stream, AFFINE, 64, (void *[]){&y, &x, &a, &b, &rows, &columns});
    for (uint64_t i = 0; i < rows * columns; i++) y[i] = a[i % columns] * x[i] + b[i % columns];
    return WEIR_OK;
}

static int input_gradient(struct weir_stream *stream, float *dx, const float *dy, const float *a,
                          uint64_t rows) {
    uint64_t columns = COLUMNS;
    if (is_gpu(stream))
        return launch(stream, INPUT_GRADIENT, 64, (void *[]){&dx, &dy, &a, &rows, &columns});
    for (uint64_t i = 0; i < rows * columns; i++) dx[i] = a[i % columns] * dy[i];
    return WEIR_OK;
}

static int weight_gradient(struct weir_stream *stream, float *g, const float *dy, const float *x,
                           uint64_t rows) {
    float *da = g, *db = g + COLUMNS;
    uint64_t columns = COLUMNS;
    if (is_gpu(stream))
        return launch(stream, WEIGHT_GRADIENT, 32, (void *[]){&da, &db, &dy, &x, &rows, &columns});
    for (uint64_t c = 0; c < columns; c++) {
        float a = 0.0f, b = 0.0f;
        for (uint64_t r = 0; r < rows; r++) {
            a += dy[r * columns + c] * x[r * columns + c];
            b += dy[r * columns + c];
        }
        da[c] += a;
        db[c] += b;
    }
    return WEIR_OK;
}

static int add(struct weir_stream *stream, float *y, const float *x, const float *z, uint64_t n) {
    if (is_gpu(stream)) return launch(stream, ADD, 128, (void *[]){&y, &x, &z, &n});
    for (uint64_t i = 0; i < n; i++) y[i] = x[i] + z[i];
    return WEIR_OK;
}

static int fill(struct weir_stream *stream, void *to, float value, uint64_t n) {
    float *numbers = to;
    if (is_gpu(stream)) return weir__cuda_fill(stream, to, &value, sizeof value, n);
    for (uint64_t i = 0; i < n; i++) numbers[i] = value;
    return WEIR_OK;
}

static int square_loss(struct weir_stream *stream, double *loss, float *dy, const float *y,
                       const float *target, uint64_t n, double whole) {
    if (is_gpu(stream))
        return launch(stream, SQUARE_LOSS, 1, (void *[]){&loss, &dy, &y, &target, &n, &whole});
    double sum = 0.0;
    for (uint64_t i = 0; i < n; i++) {
        double difference = (double)y[i] - (double)target[i];
        sum += difference * difference;
        dy[i] = (float)(2.0 * difference / whole);
    }
    *loss += sum / whole;
    return WEIR_OK;
}

/* ---- the stage ---- */

struct stage {
    uint32_t index, count;
};

static bool is_last(const struct stage *stage) {
    return stage->index + 1 == stage->count;
}

/* y = a x + b, in the last stage with the first one's added; there the loss follows, whose gradient
 * is what is saved. */
static int forward(void *context, const struct weir_task *task) {
    const struct stage *stage = context;
    struct weir_stream *stream = task->stream;
    uint64_t rows = (uint64_t)task->rows, n = rows * COLUMNS;
    bool recomputes = weir_task_is_recomputing(task);
    if (recomputes && !is_last(stage)) return WEIR_OK;
    float *y = recomputes ? task->workspace : task->outputs[0].data;
    int status = affine(stream, y, task->inputs[0].data, task->parameters, rows);
    if (status != WEIR_OK) return status;
    if (stage->index == 0)
        return affine(stream, task->skips[0].data, task->inputs[0].data, task->parameters, rows);
    if (!is_last(stage)) return WEIR_OK;
    status = add(stream, y, y, task->skips[0].data, n);
    double *loss = recomputes ? (double *)((float *)task->workspace + n + n % 2) : task->loss;
    float *dy = task->saved != NULL ? task->saved : (float *)task->workspace + n + n % 2 + 2;
    if (status == WEIR_OK) status = fill(stream, loss, 0.0f, 2);
    if (status != WEIR_OK) return status;
    return square_loss(stream, loss, dy, y, task->inputs[1].data, n,
                       (double)task->rows_total * COLUMNS);
}

static int backward(void *context, const struct weir_task *task) {
    const struct stage *stage = context;
    struct weir_stream *stream = task->stream;
    uint64_t rows = (uint64_t)task->rows, n = rows * COLUMNS;
    const float *dy = is_last(stage) ? task->saved : task->output_grads[0].data;
    int status = WEIR_OK;
    if (stage->index == 0) {
        status = add(stream, task->workspace, dy, task->skip_grads[0].data, n);
        dy = task->workspace;
    }
    if (status == WEIR_OK && is_last(stage)) {
        status = fill(stream, task->workspace, 0.0f, n);
        if (status == WEIR_OK)
            status = add(stream, task->skip_grads_out[0].data, dy, task->workspace, n);
    }
    if (status == WEIR_OK && task->gradients_first)
        status = fill(stream, task->gradients, 0.0f, 2 * COLUMNS);
    if (status == WEIR_OK && task->input_grads[0].data != NULL)
        status = input_gradient(stream, task->input_grads[0].data, dy, task->parameters, rows);
    if (status != WEIR_OK) return status;
    return weight_gradient(stream, task->gradients, dy, task->inputs[0].data, rows);
}

static int norm(void *context, const struct weir_task *task) {
    (void)context;
    double *square = task->norm_squares, sum = 0.0;
    const float *g = task->gradients;
    uint64_t n = 2 * COLUMNS;
    if (is_gpu(task->stream))
        return launch(task->stream, SQUARE_SUM, 1, (void *[]){&square, &g, &n});
    for (uint64_t i = 0; i < n; i++) sum += (double)g[i] * (double)g[i];
    *square = sum;
    return WEIR_OK;
}

static int update(void *context, const struct weir_task *task) {
    (void)context;
    float *p = task->parameters, rate = RATE, scale = (float)task->gradient_scale;
    const float *g = task->gradients;
    const struct weir_verdict *verdict = task->verdict;
    uint64_t n = 2 * COLUMNS;
    if (is_gpu(task->stream))
        return launch(task->stream, DESCEND, 32, (void *[]){&p, &g, &verdict, &rate, &n});
    for (uint64_t i = 0; i < n; i++) p[i] -= rate * (g[i] * scale);
    return WEIR_OK;
}

static int measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    size_t tensor = (size_t)rows * ROW_BYTES;
    if (is_last(context)) bytes->saved = tensor;
    for (int phase = 0; phase < WEIR_PHASE_COUNT; phase++)
        bytes->workspace[phase] = 2 * tensor + 64; /* y, loss, dy */
    return WEIR_OK;
}

static int attach(void *context, const struct weir_attachment *at) {
    const struct stage *stage = context;
    float *p = at->parameters;
    int status = fill(at->stream, p, 1.0f + (float)stage->index / 8.0f, COLUMNS);
    return status == WEIR_OK ? fill(at->stream, p + COLUMNS, 0.375f, COLUMNS) : status;
}

/* ---- pipes ---- */

struct chain {
    struct weir_pipe *pipe;
    const char *devices[STAGES_MAX];
    const struct weir_fake_cuda_control *control; /* NULL: on CPUs */
    struct stage stages[STAGES_MAX];
    float outputs[ROWS * COLUMNS];
    struct weir_step_result result;
};

/* Of what crosses; a constant's name would be no constant to C11. */
#define A_ROW                                                                                      \
    { .dtype = WEIR_F32, .rank = 1, .shape = {COLUMNS}, .differentiable = true }

static void describe(struct chain *chain, uint32_t count, struct weir_stage described[STAGES_MAX]) {
    static const struct weir_stage_calls calls = {.forward = forward,
                                                  .recompute = forward,
                                                  .backward = backward,
                                                  .norm = norm,
                                                  .update = update,
                                                  .measure = measure,
                                                  .attach = attach};
    static const struct weir_tensor tensor = A_ROW;
    static const struct weir_skip_use stash = {
        .verb = WEIR_SKIP_STASH, .name = "first", .tensor = A_ROW};
    static const struct weir_skip_use pop = {
        .verb = WEIR_SKIP_POP, .name = "first", .tensor = A_ROW};
    for (uint32_t s = 0; s < count; s++) {
        chain->stages[s] = (struct stage){s, count};
        described[s] = (struct weir_stage)WEIR_STAGE_INIT;
        described[s].calls = &calls;
        described[s].context = &chain->stages[s];
        described[s].outputs = &tensor;
        described[s].output_count = 1;
        described[s].parameter_bytes = described[s].gradient_bytes = PARAMETER_BYTES;
        described[s].norm_count = 1;
        described[s].skip_count = s == 0 || s + 1 == count;
        described[s].skips = s == 0 ? &stash : &pop;
    }
}

static bool open_chain(struct chain *chain, uint32_t count, uint32_t workers, const char *schedule,
                       enum weir_checkpoint checkpoint) {
    struct weir_stage described[STAGES_MAX];
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    const struct weir_tensor number = {.dtype = WEIR_F32, .rank = 1, .shape = {COLUMNS}};
    const struct weir_input inputs[2] = {{.tensor = number, .name = "x"},
                                         {.tensor = number, .name = "y", .stage = count - 1}};
    describe(chain, count, described);
    options.allocator = test_allocator();
    options.stages = described;
    options.stage_count = count;
    options.workers = workers;
    options.inputs = inputs;
    options.input_count = 2;
    options.rows = ROWS;
    options.chunks = 5;
    options.schedule = schedule;
    options.checkpoint = checkpoint;
    options.devices = chain->devices;
    options.device_count = workers;
    options.clip_norm = 0.5;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    bool opened = EXPECT_STATUS(weir_pipe_new(&options, &faults, &chain->pipe), WEIR_OK);
    for (uint32_t i = 0; i < faults.kept; i++) TEST_FAIL("%s", faults.lines[i]);
    weir_faults_clean_up(&faults);
    return opened;
}

static void run_step(struct chain *chain, const float *x, const float *target, uint64_t number) {
    const void *inputs[2] = {x, target};
    void *outputs[1] = {chain->outputs};
    struct weir_step step = WEIR_STEP_INIT;
    step.rows = ROWS;
    step.inputs = inputs;
    step.outputs = outputs;
    step.mini_batch = step.update = number;
    if (!EXPECT_STATUS(weir_pipe_step(chain->pipe, &step, &chain->result), WEIR_OK))
        TEST_FAIL("%s", chain->result.error.message);
}

static void read_parameters(const struct chain *chain, uint32_t stage, float *to) {
    struct weir_attachment at = {0};
    EXPECT_STATUS(weir_pipe_attachment(chain->pipe, stage, &at), WEIR_OK);
    if (weir_stream_cuda(at.stream) == NULL)
        memcpy(to, at.parameters, PARAMETER_BYTES);
    else
        EXPECT(chain->control->peek(to, at.parameters, PARAMETER_BYTES));
}

static void expect_same(const struct chain *chain, const struct chain *expected, uint32_t count) {
    float got[2 * COLUMNS], due[2 * COLUMNS];
    EXPECT_EQ_BYTES(&chain->result.loss, &expected->result.loss, sizeof(double));
    EXPECT_EQ_BYTES(&chain->result.gradient_norm, &expected->result.gradient_norm, sizeof(double));
    EXPECT_EQ_BYTES(chain->outputs, expected->outputs, sizeof expected->outputs);
    for (uint32_t s = 0; s < count; s++) {
        read_parameters(chain, s, got);
        read_parameters(expected, s, due);
        EXPECT_EQ_BYTES(got, due, sizeof due);
    }
}

static void fill_randomly(float *numbers) {
    for (int i = 0; i < ROWS * COLUMNS; i++) numbers[i] = (float)test_random_unit() * 2.0f - 1.0f;
}

static void compare(struct chain *chain, uint32_t count, const char *schedule,
                    enum weir_checkpoint checkpoint) {
    static struct chain expected;
    static float x[ROWS * COLUMNS], target[ROWS * COLUMNS];
    expected = (struct chain){.devices = {"cpu"}};
    bool opened = open_chain(chain, count, count, schedule, checkpoint);
    if (opened && open_chain(&expected, count, 1, schedule, WEIR_CHECKPOINT_NEVER)) {
        for (uint64_t step = 0; step < STEPS && !test_has_failed(); step++) {
            fill_randomly(x);
            fill_randomly(target);
            run_step(chain, x, target, step);
            run_step(&expected, x, target, step);
            expect_same(chain, &expected, count);
            EXPECT(isfinite(chain->result.loss) && chain->result.loss > 0.0);
        }
    }
    weir_pipe_destroy(chain->pipe);
    weir_pipe_destroy(expected.pipe);
}

/* ---- GPUs ---- */

static void close_gpus(void) {
    for (uint32_t g = 0; g < GPUS_MAX; g++) {
        if (gpus[g].device == NULL) continue;
        toys_unload(&gpus[g].toys);
        gpus[g].device->calls->close(gpus[g].device);
        gpus[g] = (struct gpu){0};
    }
}

/* As many as there are, of two. */
static uint32_t open_gpus(void) {
    uint32_t count = 0;
    for (char name[] = "cuda:0"; count < GPUS_MAX; count++, name[5]++) {
        struct gpu *gpu = &gpus[count];
        if (weir__device_check(name, NULL) != WEIR_OK) break;
        gpu->device = fake_gpu_open(name);
        if (gpu->device == NULL) break;
        if (!EXPECT_STATUS(toys_load(&gpu->toys, gpu->device), WEIR_OK)) continue;
        for (int t = 0; t < TOYS; t++)
            EXPECT_STATUS(toys_find(&gpu->toys, symbols[t], &gpu->functions[t]), WEIR_OK);
    }
    return count;
}

/* At least one stage is on a GPU. */
static void choose_devices(struct chain *chain, uint32_t count, uint32_t gpu_count) {
    static const char *const names[] = {"cuda:0", "cuda:1", "cpu"};
    for (uint32_t s = 0; s < count; s++) {
        uint64_t pick = test_random_below(3);
        chain->devices[s] = names[pick == 1 && gpu_count < 2 ? 0 : pick];
    }
    chain->devices[test_random_below(count)] = "cuda:0";
}

static void test_stages_of_kernels_train_to_the_cpus_bits(void) {
    static const char *const schedules[] = {"1f1b", "gpipe"};
    static struct chain chain;
    uint32_t runs = test_is_sanitized() ? 6 : 30;
    for (uint32_t run = 0; run < runs && !test_has_failed(); run++) {
        uint32_t count = 2 + (uint32_t)test_random_below(STAGES_MAX - 1);
        enum weir_checkpoint checkpoint =
            run % 2 == 0 ? WEIR_CHECKPOINT_NEVER : WEIR_CHECKPOINT_ALWAYS;
        uint32_t least = test_gpu_is_real() || run % 3 == 0 ? 1 : GPUS_MAX;
        chain = (struct chain){.control = any_gpus(test_random_u64(), least, 0)};
        if (chain.control == NULL) return;
        uint32_t gpu_count = open_gpus();
        choose_devices(&chain, count, gpu_count);
        if (!test_has_failed()) compare(&chain, count, schedules[run / 2 % 2], checkpoint);
        if (test_has_failed())
            printf("run %u: %u stages on %s, %s, %s, %s\n", run, count, chain.devices[0],
                   chain.devices[1], count > 2 ? chain.devices[2] : "-",
                   count > 3 ? chain.devices[3] : "-");
        close_gpus();
        fake_gpus_clean(chain.control);
    }
}

WEIR_TEST_SUITE(engine_kernels, TEST(stages_of_kernels_train_to_the_cpus_bits))

/* SPDX-License-Identifier: MIT */
/* Stages that sleep as long as a model's tasks take, and whose values are as large as its own. So
 * there can be more hosts than cores, and what is measured is the engine and the links. */
#include "hosts.h"

#include <string.h>
#include <time.h>

/* ---- values ---- */

/* What a stage writes at both ends of its values. */
static float mark_of(uint32_t stage, uint32_t micro_batch) {
    return (float)(stage * 4096 + micro_batch + 1);
}

static void mark(const struct weir_view *view, uint64_t bytes, float value) {
    float *data = view->data;
    if (data == NULL) return;
    size_t count = (size_t)view->rows * bytes / sizeof *data;
    data[0] = data[count - 1] = value;
}

static bool is_marked(const struct weir_view *view, uint64_t bytes, float value) {
    const float *data = view->data;
    if (data == NULL) return false;
    size_t count = (size_t)view->rows * bytes / sizeof *data;
    return memcmp(&data[0], &value, sizeof value) == 0 &&
           memcmp(&data[count - 1], &value, sizeof value) == 0;
}

/* ---- callbacks ---- */

/* Until a moment, so that what is late once is not late twice. */
static void sleep_for(double seconds) {
    struct timespec until;
    if (!(seconds > 0.0)) return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + (uint64_t)(seconds * 1e9);
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) continue;
}

static double seconds_of(const struct hosts_stage *stage, enum weir_kind kind) {
    return stage->shape->seconds[stage->index][kind];
}

static int forward(void *context, const struct weir_task *task) {
    const struct hosts_stage *stage = context;
    const struct hosts_shape *shape = stage->shape;
    uint32_t s = stage->index, m = task->micro_batch;
    bool right = s == 0 || is_marked(&task->inputs[0], shape->borders[s - 1], mark_of(s - 1, m));
    for (uint32_t u = 0; u < stage->use_count; u++) {
        const struct hosts_skip *skip = &shape->skips[stage->use_skips[u]];
        if (stage->uses[u].verb == WEIR_SKIP_STASH)
            mark(&task->skips[u], skip->bytes, mark_of(s, m));
        else
            right = right && is_marked(&task->skips[u], skip->bytes, mark_of(skip->source, m));
    }
    sleep_for(seconds_of(stage, WEIR_KIND_F));
    mark(&task->outputs[0], shape->borders[s], mark_of(s, m));
    if (s + 1 == shape->stages) *task->loss = m;
    return right ? WEIR_OK : WEIR_ERR_CALLBACK;
}

/* Gradients are marked as their sender. */
static int backward_of(const struct hosts_stage *stage, const struct weir_task *task,
                       enum weir_kind kind) {
    const struct hosts_shape *shape = stage->shape;
    uint32_t s = stage->index, m = task->micro_batch;
    bool last = s + 1 == shape->stages;
    bool right = last || is_marked(&task->output_grads[0], shape->borders[s], mark_of(s + 1, m));
    sleep_for(seconds_of(stage, kind));
    if (s > 0) mark(&task->input_grads[0], shape->borders[s - 1], mark_of(s, m));
    for (uint32_t u = 0; u < stage->use_count; u++)
        if (stage->uses[u].verb != WEIR_SKIP_STASH)
            mark(&task->skip_grads_out[u], shape->skips[stage->use_skips[u]].bytes, mark_of(s, m));
    return right ? WEIR_OK : WEIR_ERR_CALLBACK;
}

static int backward(void *context, const struct weir_task *task) {
    return backward_of(context, task, WEIR_KIND_B);
}

static int backward_input(void *context, const struct weir_task *task) {
    return backward_of(context, task, WEIR_KIND_I);
}

static int backward_weight(void *context, const struct weir_task *task) {
    (void)task;
    sleep_for(seconds_of(context, WEIR_KIND_W));
    return WEIR_OK;
}

/* ---- the pipe ---- */

static struct weir_tensor tensor_of(uint64_t bytes, bool differentiable) {
    return (struct weir_tensor){.dtype = WEIR_F32,
                                .rank = 1,
                                .shape = {(int64_t)(bytes / sizeof(float))},
                                .differentiable = differentiable};
}

static void add_use(struct hosts_pipe *pipe, uint32_t stage, uint32_t skip,
                    enum weir_skip_verb verb) {
    struct hosts_stage *own = &pipe->stages[stage];
    if (own->use_count == HOSTS_SKIPS_MOST) bench_die("hosts: too many skips");
    own->use_skips[own->use_count] = skip;
    own->uses[own->use_count++] = (struct weir_skip_use){
        .verb = verb,
        .name = pipe->names[skip],
        .tensor = tensor_of(pipe->shape.skips[skip].bytes, pipe->shape.skips[skip].differentiable)};
}

static void list_skips(struct hosts_pipe *pipe) {
    const struct hosts_shape *shape = &pipe->shape;
    for (uint32_t k = 0; k < shape->skip_count; k++) {
        const struct hosts_skip *skip = &shape->skips[k];
        snprintf(pipe->names[k], sizeof pipe->names[k], "k%u", k);
        add_use(pipe, skip->source, k, WEIR_SKIP_STASH);
        for (uint32_t r = 0; r < skip->reader_count; r++)
            add_use(pipe, skip->readers[r], k,
                    r + 1 == skip->reader_count ? WEIR_SKIP_POP : WEIR_SKIP_READ);
    }
}

/* Workers take stages in turns: each micro-batch goes down them all and back. */
static char *write_table(struct bench *bench, const struct hosts_shape *shape) {
    size_t capacity = (size_t)shape->stages * shape->chunks * 32 + 64, used = 0;
    char *text = bench_take(bench, capacity, 1);
    for (uint32_t w = 0; w < shape->workers; w++) {
        for (uint32_t m = 0; m < shape->chunks; m++) {
            for (uint32_t s = w; s < shape->stages; s += shape->workers)
                used += (size_t)snprintf(text + used, capacity - used, "%uF%u,", s, m);
            for (uint32_t s = shape->stages; s-- > 0;)
                if (s % shape->workers == w)
                    used += (size_t)snprintf(text + used, capacity - used, "%uB%u,", s, m);
        }
        text[used - 1] = '\n';
    }
    return text;
}

void hosts_pipe_open(struct bench *bench, struct hosts_pipe *pipe, const struct hosts_shape *shape,
                     const struct weir_world *world) {
    static const struct weir_stage_calls calls = {.forward = forward,
                                                  .backward = backward,
                                                  .backward_input = backward_input,
                                                  .backward_weight = backward_weight};
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    struct weir_stage stages[HOSTS_STAGES_MOST];
    struct weir_input input = {.tensor = {.dtype = WEIR_F32}, .name = "x"};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    *pipe = (struct hosts_pipe){.shape = *shape};
    pipe->inputs = bench_take(bench, shape->chunks, sizeof *pipe->inputs);
    list_skips(pipe);
    for (uint32_t s = 0; s < shape->stages; s++) {
        struct hosts_stage *own = &pipe->stages[s];
        own->shape = &pipe->shape;
        own->index = s;
        own->output = tensor_of(shape->borders[s], true);
        stages[s] = (struct weir_stage)WEIR_STAGE_INIT;
        stages[s].calls = &calls;
        stages[s].context = own;
        stages[s].outputs = &own->output;
        stages[s].output_count = 1;
        stages[s].skips = own->uses;
        stages[s].skip_count = own->use_count;
        stages[s].inputs_kept = 0;
    }
    options.stages = stages;
    options.stage_count = shape->stages;
    options.inputs = &input;
    options.input_count = 1;
    options.rows = shape->chunks;
    options.chunks = shape->chunks;
    options.workers = shape->workers;
    options.schedule = shape->schedule;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.threads_per_worker = 1;
    options.world = world;
    if (shape->schedule[0] == '\0') {
        options.table_csv = write_table(bench, shape);
        options.table_csv_bytes = strlen(options.table_csv);
    }
    bench_check_faults(weir_pipe_new(&options, &faults, &pipe->pipe), shape->name, &faults);
}

double hosts_pipe_step(struct hosts_pipe *pipe) {
    struct weir_step step = WEIR_STEP_INIT;
    struct weir_step_result result;
    const void *inputs[] = {pipe->inputs};
    uint32_t chunks = pipe->shape.chunks;
    step.rows = chunks;
    step.inputs = inputs;
    step.no_update = true;
    if (weir_pipe_step(pipe->pipe, &step, &result) != WEIR_OK)
        bench_die("hosts: %s: %s", pipe->shape.name, result.error.message);
    if ((uint32_t)result.loss != chunks * (chunks - 1) / 2)
        bench_die("hosts: %s: a loss of %g of %u micro-batches", pipe->shape.name, result.loss,
                  chunks);
    return (double)result.ns * 1e-9;
}

void hosts_pipe_close(struct hosts_pipe *pipe) {
    weir_pipe_destroy(pipe->pipe);
}

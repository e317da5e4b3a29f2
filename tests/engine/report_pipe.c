/* SPDX-License-Identifier: MIT */
/* The pipe and the simulation behind the tests of reports. */
#include "engine/report_pipe.h"

#include <math.h>
#include <string.h>

/* ---- stages that do next to nothing, but need memory ---- */

static int stage_forward(void *context, const struct weir_task *task) {
    const float *x = task->inputs[0].data;
    float *y = task->outputs[0].data;
    for (int64_t i = 0; i < 16 * task->rows; i++) y[i] = x[i] + 1.0f;
    *task->loss = 0.0;
    return context != NULL ? *(const int *)context : 0;
}

static int stage_backward(void *context, const struct weir_task *task) {
    float *gradient = task->input_grads[0].data;
    for (int64_t i = 0; gradient != NULL && i < 16 * task->rows; i++) gradient[i] = 1.0f;
    return 0;
}

static int stage_nothing(void *context, const struct weir_task *task) {
    return 0;
}

static int stage_measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    bytes->saved = 1000 * (size_t)rows;
    bytes->workspace[WEIR_FORWARD] = 300 * (size_t)rows;
    bytes->workspace[WEIR_BACKWARD] = 700 * (size_t)rows;
    return WEIR_OK;
}

static const struct weir_stage_calls stage_calls = {.forward = stage_forward,
                                                    .recompute = stage_nothing,
                                                    .backward = stage_backward,
                                                    .backward_input = stage_backward,
                                                    .backward_weight = stage_nothing,
                                                    .measure = stage_measure};

bool report_pipe_new(struct report_pipe *p, const struct report_options *options) {
    struct weir_tensor x = {.dtype = WEIR_F32, .rank = 1, .shape = {16}, .differentiable = true};
    struct weir_input input = {.tensor = x, .name = "x"};
    struct weir_stage stages[REPORT_STAGES_MOST];
    *p = (struct report_pipe){.options = *options};
    for (uint32_t s = 0; s < options->stages; s++) {
        stages[s] = (struct weir_stage)WEIR_STAGE_INIT;
        stages[s].calls = &stage_calls;
        stages[s].outputs = &x;
        stages[s].output_count = 1;
        stages[s].name = options->names != NULL ? options->names[s] : NULL;
        stages[s].parameter_bytes = stages[s].gradient_bytes = 4096 * ((size_t)s + 1);
        if (s == options->stages - 1) stages[s].context = &p->failure;
    }
    struct weir_pipe_options o = WEIR_PIPE_OPTIONS_INIT;
    o.allocator = test_allocator();
    o.stages = stages, o.stage_count = options->stages;
    o.inputs = &input, o.input_count = 1;
    o.rows = options->chunks > REPORT_ROWS ? options->chunks : REPORT_ROWS;
    o.chunks = options->chunks;
    o.workers = options->workers;
    if (options->schedule != NULL) o.schedule = options->schedule;
    o.checkpoint = options->checkpoint;
    o.link = options->copies ? WEIR_LINK_COPY : WEIR_LINK_AUTO;
    o.link_delay_ns = options->delay;
    o.trace_actions = options->trace_actions;
    o.wait = WEIR_WAIT_PARK;
    o.bind = "none";
    return EXPECT_STATUS(weir_pipe_new(&o, NULL, &p->pipe), WEIR_OK);
}

void report_pipe_destroy(struct report_pipe *p) {
    weir_pipe_destroy(p->pipe);
}

static struct weir_step step_of(int64_t rows, bool last) {
    static const float x[64 * 16];
    static const void *const inputs[1] = {x};
    struct weir_step step = WEIR_STEP_INIT;
    step.rows = rows;
    step.inputs = inputs;
    step.accumulate_last = last;
    return step;
}

int report_pipe_step(struct report_pipe *p, int64_t rows, bool last) {
    struct weir_step step = step_of(rows, last);
    struct weir_step_result result;
    step.update = p->updates;
    return weir_pipe_step(p->pipe, &step, &result);
}

int report_pipe_infer(struct report_pipe *p) {
    struct weir_step step = step_of(p->pipe->setup.options.rows, true);
    struct weir_step_result result;
    return weir_pipe_infer(p->pipe, &step, &result);
}

/* ---- the simulation ---- */

static bool in_step(const struct weir_action *action) {
    return action->kind != WEIR_KIND_N && action->kind != WEIR_KIND_U;
}

static uint32_t worker_of(const struct report_times *t, uint32_t action) {
    uint32_t w = 0;
    while (action >= t->table->lines[w + 1]) w++;
    return w;
}

static uint32_t find(const struct report_times *t, int kind, uint32_t stage, uint32_t micro_batch) {
    for (uint32_t a = 0; a < t->table->action_count; a++) {
        const struct weir_action *action = &t->table->actions[a];
        if (action->kind == kind && action->stage == stage && action->micro_batch == micro_batch)
            return a;
    }
    return UINT32_MAX;
}

/* The action of another stage that makes what this one reads, or UINT32_MAX. */
static uint32_t producer(const struct report_times *t, const struct weir_action *action) {
    uint32_t i = action->micro_batch, s = action->stage;
    if (action->kind == WEIR_KIND_F || action->kind == WEIR_KIND_R)
        return s > 0 ? find(t, WEIR_KIND_F, s - 1, i) : UINT32_MAX;
    if (action->kind != WEIR_KIND_B && action->kind != WEIR_KIND_I) return UINT32_MAX;
    if (s + 1 == t->table->stage_count) return UINT32_MAX;
    uint32_t b = find(t, WEIR_KIND_B, s + 1, i);
    return b != UINT32_MAX ? b : find(t, WEIR_KIND_I, s + 1, i);
}

void report_times_draw(struct report_times *times, const struct report_pipe *p, uint32_t most) {
    memset(times, 0, sizeof *times);
    times->plan = p->pipe->prepared[0];
    times->table = times->plan->table;
    times->delay = p->options.copies ? (double)p->options.delay : 0.0;
    for (uint32_t a = 0; a < times->table->action_count; a++) {
        const struct weir_action *action = &times->table->actions[a];
        uint32_t from = producer(times, action);
        bool crosses = from != UINT32_MAX && worker_of(times, from) != worker_of(times, a);
        bool copied = p->options.copies && crosses && action->kind != WEIR_KIND_R;
        double before = (double)test_random_below(most / 8 + 1);
        times->duration[a] = 1.0 + (double)test_random_below(most);
        times->copying[a] = copied ? before : 0.0;
        times->host[a] = copied || a == 0 ? 0.0 : before;
    }
}

/* When other workers have left the memory that the action writes to; *last: the last to do so. */
static double memory_free(const struct report_times *t, uint32_t a, uint32_t *last) {
    const struct weir__call *call = &t->plan->calls[a];
    double free = 0.0;
    for (uint32_t i = call->wait_begin; i < call->wait_end; i++) {
        const struct weir__needed_wait *wait = &t->plan->waits[i];
        if (wait->cause != WEIR__CAUSE_MEMORY || t->end[wait->action] < free) continue;
        free = t->end[wait->action];
        *last = wait->action;
    }
    return free;
}

/* Passes over all rows until nothing moves any more: as many as the longest chain at most. */
double report_times_simulate(struct report_times *t) {
    double last = 0.0;
    memset(t->end, 0, sizeof t->end);
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t a = 0; a < t->table->action_count; a++) {
            const struct weir_action *action = &t->table->actions[a];
            uint32_t w = worker_of(t, a), from = producer(t, action), holder;
            double ready = a > t->table->lines[w] ? t->end[a - 1] : 0.0;
            if (from != UINT32_MAX)
                ready = fmax(ready, t->end[from] + (worker_of(t, from) != w ? t->delay : 0.0));
            ready = fmax(ready, memory_free(t, a, &holder));
            t->start[a] = ready + t->copying[a] + t->host[a];
            double end = t->start[a] + t->duration[a];
            moved |= end != t->end[a];
            t->end[a] = end;
        }
    }
    for (uint32_t a = 0; a < t->table->action_count; a++)
        if (in_step(&t->table->actions[a])) last = fmax(last, t->end[a]);
    return last;
}

static bool is_first_update(const struct weir_table *table, uint32_t action) {
    return table->actions[action].kind == WEIR_KIND_U &&
           table->actions[action - 1].kind != WEIR_KIND_U;
}

void report_times_stamp(const struct report_times *times, const struct report_pipe *p,
                        uint64_t origin) {
    for (uint32_t w = 0; w < times->table->worker_count; w++) {
        uint64_t free = origin;
        for (uint32_t a = times->table->lines[w]; a < times->table->lines[w + 1]; a++) {
            struct weir_trace_event *event =
                weir__worker_event(&p->pipe->workers[w], a - times->table->lines[w]);
            uint32_t from = producer(times, &times->table->actions[a]), holder;
            bool crosses = from != UINT32_MAX && worker_of(times, from) != w;
            double data = crosses ? times->end[from] : 0.0;
            if (memory_free(times, a, &holder) > data) from = holder;
            event->waited = free;
            event->start = origin + (uint64_t)times->start[a];
            event->end = free = origin + (uint64_t)times->end[a];
            bool waits = from != UINT32_MAX && worker_of(times, from) != w &&
                         origin + (uint64_t)times->end[from] > event->waited;
            event->waited_for = waits ? (int32_t)worker_of(times, from) : -1;
            if (is_first_update(times->table, a) && times->table->worker_count > 1)
                event->waited_for = (int32_t)((w + 1) % times->table->worker_count);
        }
    }
}

/* ---- a text ---- */

struct report_sink report_sink_new(void) {
    struct report_sink sink = {.capacity = 1 << 22};
    sink.text = weir__acquire(test_allocator(), sink.capacity, 1);
    return sink;
}

void report_sink_destroy(struct report_sink *sink) {
    weir__release(test_allocator(), sink->text, sink->capacity, 1);
}

int report_sink_write(void *context, const char *text, size_t bytes) {
    struct report_sink *sink = context;
    sink->calls++;
    if (sink->fail_at > 0 && sink->calls >= sink->fail_at) return 70 + (int)sink->calls;
    if (sink->used + bytes >= sink->capacity) return WEIR_ERR_IO;
    memcpy(sink->text + sink->used, text, bytes);
    sink->used += bytes;
    sink->text[sink->used] = 0;
    return WEIR_OK;
}

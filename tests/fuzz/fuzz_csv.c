/* SPDX-License-Identifier: MIT */
/*
 * Tables as CSV. A table that is read must be written and read back the same; one that is found
 * good must run: a pipe of tiny stages is built for it and makes a step, under a watchdog, and each
 * action is done once.
 */
#include "fuzz/fuzz.h"

#include "schedule/action.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define STAGES_MAX 6
#define WORKERS_MAX 4
#define MICRO_BATCHES_MAX 16

/* ---- tiny stages ---- */

/* How often each was called, all stages together; [phase]. */
static _Atomic uint32_t calls_made[WEIR_PHASE_COUNT];

static int forward(void *context, const struct weir_task *task) {
    (void)context;
    const float *x = task->inputs[0].data;
    float *y = task->outputs[0].data;
    for (int64_t r = 0; r < task->rows; r++) y[r] = x[r] + 1;
    calls_made[WEIR_FORWARD]++;
    return WEIR_OK;
}

static int recompute(void *context, const struct weir_task *task) {
    (void)context, (void)task;
    calls_made[WEIR_RECOMPUTE]++;
    return WEIR_OK;
}

static int backward(void *context, const struct weir_task *task) {
    (void)context;
    float *dx = task->input_grads[0].data;
    const float *dy = task->output_grads[0].data;
    for (int64_t r = 0; dx && r < task->rows; r++) dx[r] = dy ? dy[r] : 1;
    calls_made[task->phase]++;
    return WEIR_OK;
}

static int backward_weight(void *context, const struct weir_task *task) {
    (void)context, (void)task;
    calls_made[WEIR_BACKWARD_WEIGHT]++;
    return WEIR_OK;
}

static const struct weir_stage_calls stage_calls = {.forward = forward,
                                                    .recompute = recompute,
                                                    .backward = backward,
                                                    .backward_input = backward,
                                                    .backward_weight = backward_weight};

static void run_step(struct weir_pipe *pipe, const struct weir_table *table) {
    static float x[MICRO_BATCHES_MAX], y[MICRO_BATCHES_MAX];
    const void *inputs[] = {x};
    void *outputs[] = {y};
    struct weir_step step = WEIR_STEP_INIT;
    struct weir_step_result result;
    uint32_t work = table->stage_count * table->micro_batch_count;
    step.rows = table->micro_batch_count;
    step.inputs = inputs;
    step.outputs = outputs;
    for (int phase = 0; phase < WEIR_PHASE_COUNT; phase++) calls_made[phase] = 0;
    FUZZ_CHECK(weir_pipe_step(pipe, &step, &result) == WEIR_OK);
    FUZZ_CHECK(calls_made[WEIR_FORWARD] == work);
    FUZZ_CHECK(calls_made[WEIR_BACKWARD] + calls_made[WEIR_BACKWARD_INPUT] == work);
    FUZZ_CHECK(calls_made[WEIR_BACKWARD_INPUT] == calls_made[WEIR_BACKWARD_WEIGHT]);
    for (uint32_t i = 0; i < table->micro_batch_count; i++) {
        FUZZ_CHECK(y[i] == (float)table->stage_count);
    }
}

/* Lowers the text and runs it. */
static void run_table(const struct weir_table *table, const char *text, size_t bytes) {
    struct weir_tensor x = {.dtype = WEIR_F32, .differentiable = true};
    struct weir_input input = {.tensor = x, .name = "x"};
    struct weir_stage stages[STAGES_MAX];
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    struct weir_pipe *pipe = NULL;
    for (uint32_t s = 0; s < table->stage_count; s++) {
        stages[s] = (struct weir_stage)WEIR_STAGE_INIT;
        stages[s].calls = &stage_calls;
        stages[s].outputs = &x;
        stages[s].output_count = 1;
    }
    options.stages = stages, options.stage_count = table->stage_count;
    options.inputs = &input, options.input_count = 1;
    options.rows = options.chunks = table->micro_batch_count;
    options.workers = table->worker_count;
    options.table_csv = text, options.table_csv_bytes = bytes;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.bind = "none", options.wait = WEIR_WAIT_PARK;
    options.threads_per_worker = 1;
    options.watchdog_ns = UINT64_C(5000000000);
    FUZZ_CHECK(weir_pipe_new(&options, NULL, &pipe) == WEIR_OK);
    run_step(pipe, table);
    weir_pipe_destroy(pipe);
}

/* ---- reading ---- */

static int parse(const struct weir_allocator *allocator, const char *text, size_t bytes,
                 struct weir_table **table) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_faults faults = {.allocator = allocator}, notes = {.allocator = allocator};
    options.allocator = allocator;
    options.stages = options.micro_batches = 0;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    int status = weir_table_parse(&options, text, bytes, &faults, &notes, table);
    FUZZ_CHECK(status == WEIR_OK || status == WEIR_ERR_FORMAT);
    FUZZ_CHECK((status == WEIR_OK) == (faults.count == 0));
    weir_faults_clean_up(&faults);
    weir_faults_clean_up(&notes);
    return status;
}

static void check_round_trip(const struct weir_allocator *allocator,
                             const struct weir_table *table) {
    size_t bytes = weir_table_format(table, false, NULL, 0);
    char *text = malloc(bytes + 1), *again = malloc(bytes + 1);
    struct weir_table *copy = NULL;
    FUZZ_CHECK(text && again);
    FUZZ_CHECK(weir_table_format(table, false, text, bytes + 1) == bytes);
    /* Rows without an action do not come back. */
    if (parse(allocator, text, bytes, &copy) == WEIR_OK &&
        copy->worker_count == table->worker_count) {
        FUZZ_CHECK(weir_table_format(copy, false, again, bytes + 1) == bytes);
        FUZZ_CHECK(memcmp(text, again, bytes) == 0);
    }
    weir_table_destroy(copy);
    free(again);
    free(text);
}

static bool is_small(const struct weir_table *table) {
    return table->stage_count <= STAGES_MAX && table->worker_count <= WORKERS_MAX &&
           table->micro_batch_count <= MICRO_BATCHES_MAX;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count) {
    struct weir_table *table = NULL;
    const struct weir_allocator *allocator = fuzz_begin(data, count)->allocator;
    const char *text = (const char *)data;
    bool runs = false, small = false;
    if (parse(allocator, text, count, &table) == WEIR_OK) {
        struct weir_faults faults = {.allocator = allocator};
        check_round_trip(allocator, table);
        runs = weir_table_check(table, allocator, &faults) == WEIR_OK;
        FUZZ_CHECK(runs == (faults.count == 0));
        small = is_small(table);
        weir_faults_clean_up(&faults);
    }
    if (runs && small) run_table(table, text, count);
    weir_table_destroy(table);
    fuzz_end(1 << 20);
    return 0;
}

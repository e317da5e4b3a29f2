/* SPDX-License-Identifier: MIT */
/*
 * Goal: every row count can be prepared; where it needs more memory than the pipe was built with it
 * gets more, within the limit, and nothing that lasts moves. Method: random set-ups, of which some
 * need more; what the arenas are before and after; a device that has no more to give.
 */
#include "engine/engine_stages.h"

#include "pipe/run/pipe.h"

#include <string.h>

static struct engine_model model;
static struct engine_random run;
static struct engine_trial trial;

/* ---- what a pipe has ---- */

struct seen {
    struct weir__arena arenas[ENGINE_STAGES_MAX];
    struct weir_attachment at[ENGINE_STAGES_MAX];
    struct weir_device_plan plans[ENGINE_STAGES_MAX];
};

static void look(struct seen *seen) {
    const struct weir_plan *plan = weir_pipe_plan(trial.pipe);
    memset(seen, 0, sizeof *seen);
    for (uint32_t w = 0; w < trial.pipe->worker_count; w++) {
        seen->arenas[w] = trial.pipe->memory.arenas[w];
        seen->plans[w] = plan->devices[w];
    }
    for (uint32_t s = 0; s < model.stage_count; s++)
        EXPECT_STATUS(weir_pipe_attachment(trial.pipe, s, &seen->at[s]), WEIR_OK);
}

static void expect_lasting(const struct seen *before, const struct seen *after) {
    for (uint32_t s = 0; s < model.stage_count; s++) {
        EXPECT_EQ_PTR(after->at[s].parameters, before->at[s].parameters);
        EXPECT_EQ_PTR(after->at[s].gradients, before->at[s].gradients);
        EXPECT_EQ_PTR(after->at[s].optimizer, before->at[s].optimizer);
        EXPECT_EQ_PTR(after->at[s].state, before->at[s].state);
    }
    for (uint32_t w = 0; w < trial.pipe->worker_count; w++) {
        EXPECT_EQ_PTR(after->arenas[w].lasting, before->arenas[w].lasting);
        EXPECT_EQ_UINT(after->arenas[w].lasting_bytes, before->arenas[w].lasting_bytes);
    }
    EXPECT_EQ_BYTES(after->plans, before->plans, sizeof after->plans);
}

static void expect_unchanged(const struct seen *before) {
    struct seen after;
    look(&after);
    expect_lasting(before, &after);
    for (uint32_t w = 0; w < trial.pipe->worker_count; w++) {
        EXPECT_EQ_PTR(after.arenas[w].working, before->arenas[w].working);
        EXPECT_EQ_UINT(after.arenas[w].working_bytes, before->arenas[w].working_bytes);
        EXPECT(trial.pipe->memory.grown[w].working == NULL);
    }
}

/* The bytes that some worker has now and had not, most of all workers; 0: nothing grew. */
static size_t grown_to(const struct seen *before) {
    size_t most = 0;
    for (uint32_t w = 0; w < trial.pipe->worker_count; w++) {
        size_t bytes = weir__arena_bytes(&trial.pipe->memory.arenas[w]);
        EXPECT(bytes >= weir__arena_bytes(&before->arenas[w]));
        if (bytes > weir__arena_bytes(&before->arenas[w]) && bytes > most) most = bytes;
    }
    return most;
}

static uint64_t largest_plan(void) {
    const struct weir_plan *plan = weir_pipe_plan(trial.pipe);
    uint64_t most = 0;
    for (uint32_t d = 0; d < plan->device_count; d++)
        if (plan->devices[d].total > most) most = plan->devices[d].total;
    return most;
}

/* ---- set-ups ---- */

/* Single rows need more than many, which a stage must not say; so that some set-ups surely grow. */
static int measure_greedily(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    int status = engine_stage_calls.measure(context, rows, bytes);
    for (int phase = WEIR_FORWARD; phase <= WEIR_FORWARD_CHECKPOINT; phase++)
        if (rows == 1 && bytes->workspace[phase] > 0) bytes->workspace[phase] += 8192;
    return status;
}

static void be_greedy(uint32_t stage) {
    static struct weir_stage_calls calls;
    calls = *model.described[stage].calls;
    calls.measure = measure_greedily;
    model.described[stage].calls = &calls;
}

static bool open_run(uint64_t limit) {
    run.options.memory_limit = limit;
    return engine_trial_open(&trial, &model, &run.options, NULL);
}

/* A pipe may have what it needs and not a byte less. */
static void expect_limit(int64_t rows, size_t need, uint64_t plan) {
    struct weir_faults faults = {.allocator = test_allocator()};
    struct seen before;
    if (need <= plan) return; /* another worker's plan is larger than what this one grows to */
    if (!open_run(need - 1)) return;
    look(&before);
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, rows, &faults), WEIR_ERR_MEMORY_LIMIT);
    EXPECT_CONTAINS(faults.kept > 0 ? faults.lines[0] : "", "1 more than the limit");
    weir_faults_clean_up(&faults);
    expect_unchanged(&before);
    engine_trial_step(&trial);
    engine_trial_close(&trial);
    if (!open_run(need)) return;
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, rows, NULL), WEIR_OK);
    engine_trial_rows(&trial, rows, false);
    engine_trial_close(&trial);
}

/* Returns what a worker has grown to, or 0. */
static size_t prepare_and_run(int64_t rows) {
    struct seen before, after;
    look(&before);
    if (!EXPECT_STATUS(weir_pipe_prepare(trial.pipe, rows, NULL), WEIR_OK)) return 0;
    look(&after);
    expect_lasting(&before, &after);
    engine_trial_rows(&trial, rows, false);
    engine_trial_rows(&trial, rows, true);
    return grown_to(&before);
}

/* Every row count that the schedule takes, each on a pipe of its own first, because growth for one
 * is room for the next. */
static uint32_t run_all_rows(void) {
    uint32_t grown = 0;
    for (int64_t rows = run.options.rows - 1; rows > 0 && !test_has_failed(); rows--) {
        if (!engine_random_accepts(&run, rows)) continue;
        if (!open_run(0)) break;
        size_t need = prepare_and_run(rows);
        uint64_t plan = largest_plan();
        engine_trial_step(&trial);
        engine_trial_close(&trial);
        grown += need > 0;
        if (need > 0 && !test_has_failed()) expect_limit(rows, need, plan);
    }
    if (!test_has_failed() && open_run(0)) {
        for (int64_t rows = run.options.rows; rows > 0 && !test_has_failed(); rows--)
            if (engine_random_accepts(&run, rows)) prepare_and_run(rows);
        engine_trial_step(&trial);
        engine_trial_close(&trial);
    }
    return grown;
}

static void test_every_row_count_of_random_pipes_can_be_prepared(void) {
    uint32_t grown = 0;
    for (uint32_t number = 0; number < 60 && !test_has_failed(); number++) {
        engine_random_choose(&run, &model);
        model.jitter = 0;
        run.options.wait = WEIR_WAIT_PARK;
        run.options.link_delay_ns = 0;
        if (run.has_table) continue; /* it is for one count of micro-batches */
        if (number % 3 == 0) be_greedy((uint32_t)test_random_below(model.stage_count));
        grown += run_all_rows();
        if (test_has_failed()) engine_random_describe(&run, number);
    }
    EXPECT(grown > 0);
}

/* ---- one set-up that grows ---- */

enum { FEWER = 5 }; /* rows: the last of 3 micro-batches is of one */

static bool open_growing(void) {
    engine_model_init(&model, 3);
    run.options = engine_options(&model);
    be_greedy(0), be_greedy(2);
    return open_run(0);
}

static int none_left(struct weir__device *device, size_t bytes, void **memory) {
    (void)device, (void)bytes, (void)memory;
    return WEIR_ERR_OUT_OF_MEMORY;
}

static void test_memory_that_cannot_be_had_changes_nothing(void) {
    struct weir_faults faults = {.allocator = test_allocator()};
    struct seen before;
    CHECK(open_growing());
    look(&before);
    struct weir__device *device = trial.pipe->workers[2].device; /* the first has had its part */
    const struct weir__device_calls *rich = device->calls;
    struct weir__device_calls poor = *rich;
    poor.memory_acquire = none_left;
    device->calls = &poor;
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, FEWER, &faults), WEIR_ERR_OUT_OF_MEMORY);
    EXPECT_CONTAINS(faults.kept > 0 ? faults.lines[0] : "", "which cannot be had");
    weir_faults_clean_up(&faults);
    expect_unchanged(&before);
    device->calls = rich;
    engine_trial_step(&trial);
    EXPECT(prepare_and_run(FEWER) > 0);
    engine_trial_close(&trial);
}

static void test_a_failed_callback_gives_back_what_was_reserved(void) {
    struct seen before;
    CHECK(open_growing());
    look(&before);
    model.lifecycle.at = ENGINE_PREPARE, model.lifecycle.status = 7;
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, FEWER, NULL), 7);
    model.lifecycle.at = ENGINE_NONE;
    expect_unchanged(&before);
    engine_trial_step(&trial);
    EXPECT(prepare_and_run(FEWER) > 0);
    engine_trial_close(&trial);
}

/* Gradients last, so what was accumulated before is there after. */
static void test_memory_may_grow_within_an_accumulation(void) {
    CHECK(open_growing());
    trial.base.loss_weight = (double)run.options.rows * 2;
    trial.base.accumulate_last = false;
    engine_trial_step(&trial);
    trial.base.accumulate_first = false, trial.base.accumulate_last = true;
    EXPECT(prepare_and_run(FEWER) > 0);
    engine_trial_close(&trial);
}

WEIR_TEST_SUITE(arena, TEST(every_row_count_of_random_pipes_can_be_prepared),
                TEST(memory_that_cannot_be_had_changes_nothing),
                TEST(a_failed_callback_gives_back_what_was_reserved),
                TEST(memory_may_grow_within_an_accumulation))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: with what a pipe adds to its table (skips, delays, memory that is shared) the simulator is
 * the engine's own replay, which gives a measured step back to the nanosecond: so a prediction is
 * off by its tasks' times and the host's alone. Method: pipes of every schedule, of two to eight
 * stages with a skip over them, times at random per stage and kind; both makespans.
 */
#include "harness.h"

#include "trace/predict.h"

enum { STAGES = 8, WIDTH = 32, ROWS = 8, TIMES = 20 };

static int do_forward(void *context, const struct weir_task *task) {
    (void)context;
    if (task->loss != NULL) *task->loss = 0.0;
    return WEIR_OK;
}

static int do_nothing(void *context, const struct weir_task *task) {
    (void)context, (void)task;
    return WEIR_OK;
}

static int measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    (void)context;
    *bytes = (struct weir_stage_bytes){.saved = (size_t)rows * WIDTH * 8};
    return WEIR_OK;
}

/* NULL: the schedule cannot have so many stages and workers. */
static struct weir_pipe *pipe_of(const char *schedule, uint32_t stages, uint32_t workers,
                                 bool checkpoint) {
    static const struct weir_stage_calls calls = {.forward = do_forward,
                                                  .recompute = do_nothing,
                                                  .backward = do_nothing,
                                                  .backward_input = do_nothing,
                                                  .backward_weight = do_nothing,
                                                  .measure = measure};
    struct weir_tensor x = {.dtype = WEIR_F32, .rank = 1, .shape = {WIDTH}, .differentiable = true};
    struct weir_skip_use stash = {.verb = WEIR_SKIP_STASH, .name = "s", .tensor = x};
    struct weir_skip_use pop = {.verb = WEIR_SKIP_POP, .name = "s", .tensor = x, .kept = true};
    struct weir_input input = {.tensor = x, .name = "x"};
    struct weir_stage list[STAGES];
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    struct weir_pipe *pipe = NULL;
    for (uint32_t s = 0; s < stages; s++) {
        list[s] = (struct weir_stage)WEIR_STAGE_INIT;
        list[s].calls = &calls;
        list[s].outputs = &x;
        list[s].output_count = 1;
        list[s].gradient_bytes = 64;
    }
    list[0].skips = &stash, list[0].skip_count = 1;
    list[stages - 1].skips = &pop, list[stages - 1].skip_count = 1;
    options.allocator = test_allocator();
    options.stages = list, options.stage_count = stages;
    options.inputs = &input, options.input_count = 1;
    options.rows = options.chunks = ROWS;
    options.workers = workers, options.schedule = schedule;
    options.checkpoint = checkpoint ? WEIR_CHECKPOINT_ALWAYS : WEIR_CHECKPOINT_NEVER;
    options.link = WEIR_LINK_COPY, options.link_delay_ns = test_random_below(2) * 250000000u;
    options.threads_per_worker = 1, options.bind = "none", options.wait = WEIR_WAIT_PARK;
    return weir_pipe_new(&options, NULL, &pipe) == WEIR_OK ? pipe : NULL;
}

static const struct weir__row_plan *training_of(const struct weir_pipe *pipe) {
    uint32_t i = 0;
    while (pipe->prepared[i]->infer) i++;
    return pipe->prepared[i];
}

static double replayed(const struct weir__row_plan *prepared, const double *seconds, double delay) {
    const struct weir_table *table = prepared->table;
    const struct weir__deps *orders = &prepared->orders;
    uint32_t actions = table->action_count;
    double *times = weir__acquire(test_allocator(), 3 * (size_t)actions, sizeof *times);
    double *copy = weir__acquire(test_allocator(), orders->edge_count, sizeof *copy);
    double makespan = -1.0;
    for (uint32_t a = 0; a < actions; a++) {
        const struct weir_action *action = &table->actions[a];
        times[a] = seconds[action->stage * WEIR_KIND_COUNT + action->kind];
        for (uint32_t e = orders->begin[a]; e < orders->begin[a + 1]; e++)
            copy[e] = orders->edges[e].cause == WEIR__CAUSE_MEMORY ? 0.0 : delay;
    }
    EXPECT_STATUS(weir__table_replay(table, orders, times, copy, &times[actions],
                                     &times[2 * actions], &makespan, test_allocator()),
                  WEIR_OK);
    weir__release(test_allocator(), times, 3 * (size_t)actions, sizeof *times);
    weir__release(test_allocator(), copy, orders->edge_count, sizeof *copy);
    return makespan;
}

static void compare(const struct weir_pipe *pipe, struct weir_simulator *simulator) {
    const struct weir__row_plan *prepared = training_of(pipe);
    struct weir_simulate_options options = WEIR_SIMULATE_OPTIONS_INIT;
    struct weir_prediction prediction;
    struct weir__pool pool;
    double seconds[STAGES * WEIR_KIND_COUNT];
    weir__pool_init(&pool, test_allocator());
    if (!EXPECT_STATUS(weir__predict_options(&pipe->setup, prepared, &pool, &options), WEIR_OK))
        return;
    options.stage_seconds = seconds;
    for (int i = 0; i < TIMES; i++) {
        for (uint32_t k = 0; k < STAGES * WEIR_KIND_COUNT; k++)
            seconds[k] = 0.5 + test_random_unit();
        EXPECT_STATUS(weir_simulate(simulator, &options, NULL, &prediction), WEIR_OK);
        double wanted = replayed(prepared, seconds, options.link.latency);
        EXPECT_NEAR(prediction.step, wanted, 1e-9);
        if (test_has_failed()) break;
    }
    EXPECT_EQ_UINT(options.skip_count, 1);
    EXPECT_EQ_UINT(options.border_bytes[0], WIDTH * 4);
    weir__pool_clean_up(&pool);
}

static void test_a_pipe_s_prediction_is_its_replay(void) {
    struct weir_simulator *simulator;
    uint32_t pipes = 0;
    CHECK_OK(weir_simulator_new(test_allocator(), &simulator));
    for (uint32_t i = 0; weir_schedule_name(i) != NULL && !test_has_failed(); i++) {
        const char *schedule = weir_schedule_name(i);
        for (uint32_t at = 0; at < 8; at++) {
            struct weir_pipe *pipe = pipe_of(schedule, 2 + at / 2 * 2, at % 2 == 0 ? 2 : 4, at > 3);
            if (pipe == NULL) continue;
            compare(pipe, simulator);
            if (test_has_failed()) TEST_FAIL("%s, %u stages", schedule, 2 + at / 2 * 2);
            weir_pipe_destroy(pipe);
            pipes++;
        }
    }
    weir_simulator_destroy(simulator);
    EXPECT(pipes > 10);
}

WEIR_TEST_SUITE(simulate_pipe, TEST(a_pipe_s_prediction_is_its_replay))

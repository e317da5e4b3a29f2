/* SPDX-License-Identifier: MIT */
/*
 * Goal: a pipe computes what the model computes, bit for bit, and refuses what it cannot run.
 * Method: a grid of pipes beside the reference; the log of the callbacks and the trace show what
 * ran and in what order.
 */
#include "engine/engine_stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct engine_model model;
static struct engine_trial trial;
static const char *const schedules[] = {"gpipe", "1f1b"};
enum { EVENTS_MAX = 512 };

/* A chain with a skip from the first to the last stage, labels at the last. */
static void chain(uint32_t stages) {
    engine_model_init(&model, stages);
    engine_input(&model, stages - 1, "labels", engine_tensor(WEIR_I64, 2, false));
    model.jitter = 3;
    if (stages < 2) return;
    engine_skip(&model, 0, WEIR_SKIP_STASH, "a");
    if (stages > 2) engine_skip(&model, 1, WEIR_SKIP_READ, "a");
    engine_skip(&model, stages - 1, WEIR_SKIP_POP, "a");
}

static bool open_chain(uint32_t stages, int64_t rows, uint32_t chunks, const char *schedule,
                       enum weir_checkpoint mode) {
    chain(stages);
    struct weir_pipe_options options = engine_options(&model);
    options.rows = rows, options.chunks = chunks;
    options.schedule = schedule, options.checkpoint = mode;
    return engine_trial_open(&trial, &model, &options, NULL);
}

/* ---- the same bits ---- */

// MB-7
static void test_every_pipe_gives_the_unpipelined_bits(void) {
    for (uint32_t stages = 1; stages <= 4; stages++) {
        for (uint32_t chunks = 1; chunks <= 5; chunks += 2) {
            for (int k = 0; k < 6; k++) {
                enum weir_checkpoint mode = (enum weir_checkpoint)(WEIR_CHECKPOINT_ALWAYS + k / 2);
                CHECK(open_chain(stages, 7, chunks, schedules[k % 2], mode));
                engine_trial_step(&trial);
                engine_trial_step(&trial);
                engine_trial_close(&trial);
                CHECK_HELPERS();
            }
        }
    }
}

// MB-7
static void test_many_stages_and_micro_batches_give_the_same_bits(void) {
    for (int k = 0; k < 2; k++) {
        chain(ENGINE_STAGES_MAX);
        model.jitter = 40;
        struct weir_pipe_options options = engine_options(&model);
        options.rows = options.chunks = ENGINE_CHUNKS_MAX;
        options.workers = 3, options.schedule = schedules[k];
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        engine_trial_step(&trial);
        engine_trial_close(&trial);
    }
}

/* Largest difference of the gradients of two references, and of their losses. */
static double distance(const struct engine_reference *a, const struct engine_reference *b) {
    double worst = fabs(a->loss - b->loss);
    for (uint32_t s = 0; s < model.stage_count; s++)
        for (uint32_t i = 0; i < model.stages[s].parameters; i++)
            worst = fmax(worst, fabs(a->gradients[s][i] - b->gradients[s][i]));
    return worst;
}

// MB-7
static void test_micro_batches_sum_to_the_whole_mini_batch(void) {
    struct engine_reference whole;
    struct engine_order order;
    struct engine_reference_options how = {.chunks = 1, .order = &order};
    engine_order_of(&order, "1f1b", 1);
    for (uint32_t chunks = 2; chunks <= 7; chunks++) {
        CHECK(open_chain(3, 7, chunks, "1f1b", WEIR_CHECKPOINT_DEFAULT));
        trial.base.no_update = true;
        struct weir_step step = engine_step(&trial.expected);
        step.no_update = true;
        engine_reference_init(&whole, &model);
        engine_trial_step(&trial);
        engine_reference_step(&whole, &trial.expected, &step, &how);
        /* each number is a sum of at most 7 rows * 4 elements * 4 tensors terms below 1 */
        EXPECT_NEAR(distance(&whole, &trial.reference), 0.0, 7 * 4 * 4 * 0x1p-52);
        EXPECT(whole.gradient_norm > 1e-3);
        engine_reference_clean_up(&whole);
        engine_trial_close(&trial);
        CHECK_HELPERS();
    }
}

static double loss_with(uint32_t stage, uint32_t index, double value) {
    struct weir_attachment at;
    struct weir_step step = engine_step(&trial.batch);
    step.no_update = true;
    EXPECT_STATUS(weir_pipe_attachment(trial.pipe, stage, &at), WEIR_OK);
    double *p = at.parameters, before = p[index];
    p[index] = value;
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_OK);
    p[index] = before;
    return trial.result.loss;
}

/* Borders of f32 would drown the differences. */
static void test_gradients_are_derivatives(void) {
    const double h = 1e-6;
    chain(3);
    for (uint32_t s = 0; s < 3; s++) model.stages[s].outputs[0].dtype = WEIR_F64;
    model.stages[1].adds_border = model.stages[2].adds_skips = true;
    struct weir_pipe_options options = engine_options(&model);
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    for (uint32_t s = 0; s < 3; s++) {
        for (uint32_t i = 0; i < 5; i++) {
            double p = engine_initial_parameter(&model, s, i);
            double slope = (loss_with(s, i, p + h) - loss_with(s, i, p - h)) / (2 * h);
            struct weir_attachment at;
            loss_with(s, i, p);
            EXPECT_STATUS(weir_pipe_attachment(trial.pipe, s, &at), WEIR_OK);
            /* eps / h of rounding, and the third derivative times h^2 */
            EXPECT_NEAR(((double *)at.gradients)[i], slope, 64 * 0x1p-52 / h + 8 * h * h);
        }
    }
    engine_trial_close(&trial);
}

/* ---- checkpoint modes ---- */

static void expect_checkpointed(enum weir_checkpoint mode, uint32_t chunks, uint32_t expected) {
    CHECK(open_chain(2, 2, chunks, "gpipe", mode));
    engine_trial_step(&trial);
    EXPECT_EQ_UINT(engine_calls_of(&model, WEIR_FORWARD_CHECKPOINT), 2 * expected);
    EXPECT_EQ_UINT(engine_calls_of(&model, WEIR_FORWARD), 2 * (chunks - expected));
    EXPECT_EQ_UINT(engine_calls_of(&model, WEIR_RECOMPUTE), 2 * expected);
    engine_trial_close(&trial);
}

// PI-1
static void test_modes_checkpoint_two_one_and_none_of_two(void) {
    expect_checkpointed(WEIR_CHECKPOINT_ALWAYS, 2, 2);
    expect_checkpointed(WEIR_CHECKPOINT_EXCEPT_LAST, 2, 1);
    expect_checkpointed(WEIR_CHECKPOINT_DEFAULT, 2, 1);
    expect_checkpointed(WEIR_CHECKPOINT_NEVER, 2, 0);
    expect_checkpointed(WEIR_CHECKPOINT_ALWAYS, 1, 1);
    expect_checkpointed(WEIR_CHECKPOINT_EXCEPT_LAST, 1, 0);
    expect_checkpointed(WEIR_CHECKPOINT_NEVER, 1, 0);
}

// PI-1
static void test_an_unknown_mode_is_refused_with_the_three_names(void) {
    static const enum weir_checkpoint bad[2] = {WEIR_CHECKPOINT_DEFAULT, (enum weir_checkpoint)9};
    chain(2);
    struct weir_pipe_options options = engine_options(&model);
    options.checkpoint = (enum weir_checkpoint)4;
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "always, except_last or never"));
    options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    options.stage_checkpoint = bad;
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "stage 1: unknown checkpoint mode"));
}

static void test_a_stage_may_have_a_mode_of_its_own(void) {
    static const enum weir_checkpoint modes[3] = {WEIR_CHECKPOINT_NEVER, WEIR_CHECKPOINT_DEFAULT,
                                                  WEIR_CHECKPOINT_ALWAYS};
    chain(3);
    struct weir_pipe_options options = engine_options(&model);
    options.stage_checkpoint = modes;
    options.checkpoint = WEIR_CHECKPOINT_EXCEPT_LAST;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_step(&trial);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t none = UINT32_MAX;
        EXPECT(engine_find_call(&model, WEIR_FORWARD, 0, i) != none);
        EXPECT((engine_find_call(&model, WEIR_RECOMPUTE, 1, i) != none) == (i < 3));
        EXPECT(engine_find_call(&model, WEIR_FORWARD_CHECKPOINT, 2, i) != none);
    }
    engine_trial_close(&trial);
}

/* ---- inference ---- */

// PI-2
static void test_inference_saves_and_recomputes_nothing(void) {
    CHECK(open_chain(3, 7, 4, "1f1b", WEIR_CHECKPOINT_ALWAYS));
    engine_trial_step(&trial);
    engine_forget(&model);
    engine_trial_infer(&trial); /* its callbacks check that `saved` is NULL */
    EXPECT_EQ_UINT(engine_calls_of(&model, WEIR_INFER), 3 * 4);
    EXPECT_EQ_UINT(engine_calls_of(&model, WEIR_PHASE_COUNT), 3 * 4);
    EXPECT(isnan(trial.result.gradient_norm) && !trial.result.updated);
    engine_trial_step(&trial);
    engine_trial_close(&trial);
}

// PI-2
static void test_a_pipe_for_inference_only_has_no_memory_for_more(void) {
    chain(3);
    struct weir_pipe_options options = engine_options(&model);
    options.infer_only = true;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_infer(&trial);
    const struct weir_plan *plan = weir_pipe_plan(trial.pipe);
    for (uint32_t d = 0; d < plan->device_count; d++) {
        EXPECT_EQ_UINT(plan->devices[d].gradients, 0);
        EXPECT_EQ_UINT(plan->devices[d].optimizer, 0);
        EXPECT_EQ_UINT(plan->devices[d].activations, 0);
        EXPECT(plan->devices[d].parameters > 0);
    }
    struct weir_step step = engine_step(&trial.batch);
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_ERR_ARGUMENT);
    EXPECT_CONTAINS(trial.result.error.message, "infer_only");
    engine_trial_close(&trial);
}

/* ---- devices ---- */

// PI-3
static void test_too_few_devices_are_refused_and_surplus_ones_unused(void) {
    static const char *const names[] = {"cpu", "cpu:1", "cpu:2", "nonsense"};
    chain(3);
    struct weir_pipe_options options = engine_options(&model);
    options.devices = names, options.device_count = 2;
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "2 devices for a table of 3 workers"));
    options.device_count = 4; /* the fourth is not even looked at */
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_step(&trial);
    EXPECT_EQ_UINT(weir_pipe_plan(trial.pipe)->device_count, 3);
    engine_trial_close(&trial);
    options.workers = 2, options.device_count = 2; /* as many as workers, not as stages */
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_step(&trial);
    engine_trial_close(&trial);
}

// PI-7
static void test_an_unknown_device_is_refused(void) {
    static const char *const names[] = {"cpu", "abacus"};
    chain(2);
    struct weir_pipe_options options = engine_options(&model);
    options.devices = names, options.device_count = 2;
    CHECK(engine_expect_refused(&options, WEIR_ERR_NOT_FOUND, "abacus"));
    EXPECT_EQ_UINT(atomic_load(&model.attached), 0);
    options.devices = NULL;
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "devices is NULL"));
}

/* A plan is refused for what the pipe is refused for, in the same words. */
static void expect_bind(const struct weir_pipe_options *options, int status, uint32_t count) {
    struct weir_faults lists[2] = {{.allocator = test_allocator()},
                                   {.allocator = test_allocator()}};
    struct weir_pipe *pipe = NULL;
    struct weir_plan *plan = NULL;
    EXPECT_STATUS(weir_pipe_new(options, &lists[0], &pipe), status);
    EXPECT_STATUS(weir_plan_new(options, &lists[1], &plan), status);
    EXPECT_EQ_UINT(lists[0].kept, count);
    EXPECT_EQ_UINT(lists[1].kept, count);
    for (uint32_t i = 0; i < lists[0].kept && i < lists[1].kept; i++)
        EXPECT_EQ_STR(lists[1].lines[i], lists[0].lines[i]);
    weir_pipe_destroy(pipe);
    weir_plan_destroy(plan);
    for (int k = 0; k < 2; k++) weir_faults_clean_up(&lists[k]);
}

static void test_plans_check_the_bind_list_too(void) {
    chain(2);
    struct weir_pipe_options options = engine_options(&model);
    static const char *const right[] = {"none", "auto", NULL};
    for (int k = 0; k < 3; k++) {
        options.bind = right[k];
        expect_bind(&options, WEIR_OK, 0);
    }
    setenv("HWLOC_SYNTHETIC", "core:4 pu:1", 1);
    options.bind = "0-1,3";
    expect_bind(&options, WEIR_OK, 0);
    options.bind = "0,7,0";
    expect_bind(&options, WEIR_ERR_ARGUMENT, 2);
    options.bind = "3";
    expect_bind(&options, WEIR_ERR_ARGUMENT, 1);
    options.bind = "0-3", options.threads_per_worker = 3;
    expect_bind(&options, WEIR_ERR_ARGUMENT, 1);
    options.bind = NULL, options.threads_per_worker = 0;
    setenv("WEIR_BIND", "9", 1);
    expect_bind(&options, WEIR_ERR_ARGUMENT, 1);
    unsetenv("WEIR_BIND");
    unsetenv("HWLOC_SYNTHETIC");
}

/* One refusal names them all: a bad border, a skip without its stash, too few chunks, a schedule
 * that does not exist. */
static void test_every_fault_is_listed_at_once(void) {
    static const char *const parts[] = {"give a known dtype", "orphan", "chunks must be", "1f1c"};
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_pipe *pipe = NULL;
    chain(2);
    struct weir_pipe_options options = engine_options(&model);
    struct weir_stage stages[2] = {options.stages[0], options.stages[1]};
    struct weir_tensor bad = stages[0].outputs[0];
    struct weir_skip_use orphan = {.verb = WEIR_SKIP_POP, .name = "orphan", .tensor = bad};
    bad.rank = WEIR_RANK_MAX + 1;
    stages[0].outputs = &bad, stages[0].output_count = 1;
    stages[1].skips = &orphan, stages[1].skip_count = 1;
    options.stages = stages, options.schedule = "1f1c", options.clip_norm = -1.0;
    for (uint32_t chunks = 0; chunks < 2; chunks++) { /* without a count there is no schedule */
        options.chunks = chunks;
        EXPECT_STATUS(weir_pipe_new(&options, &faults, &pipe), WEIR_ERR_CONFIG);
        for (uint32_t i = 0; i < 4; i++) {
            bool found = false, wanted = i < 2 || (i == 2) == (chunks == 0);
            for (uint32_t k = 0; k < faults.kept; k++)
                found |= strstr(faults.lines[k], parts[i]) != NULL;
            if (found != wanted) TEST_FAIL("chunks %u: '%s' %d", chunks, parts[i], found);
        }
        weir_faults_clean_up(&faults);
        faults = (struct weir_faults){.allocator = test_allocator()};
    }
}

/* What a pipe is made of is fixed when it is built: changing the description later does nothing. */
// PI-7
static void test_a_description_is_copied(void) {
    static const char *names[2];
    enum weir_checkpoint modes[2] = {WEIR_CHECKPOINT_NEVER, WEIR_CHECKPOINT_ALWAYS};
    char skip[] = "a", space[] = "inner", schedule[] = "gpipe", device[] = "cpu";
    chain(2);
    for (uint32_t s = 0; s < 2; s++) {
        model.stages[s].skips[0].name = skip;
        model.stages[s].skips[0].name_space = space;
    }
    struct weir_pipe_options options = engine_options(&model);
    names[0] = names[1] = device;
    options.schedule = schedule, options.devices = names, options.device_count = 2;
    options.stage_checkpoint = modes;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    trial.schedule = "gpipe";
    struct weir_input input = model.inputs[0];
    struct weir_tensor output = model.stages[1].outputs[0];
    memset(model.described, 0, sizeof model.described);
    memset(names, 0, sizeof names);
    modes[0] = modes[1] = WEIR_CHECKPOINT_EXCEPT_LAST;
    memset(&options, 0, sizeof options);
    model.inputs[0].tensor.dtype = WEIR_F64, model.inputs[0].stage = 1;
    model.stages[1].outputs[0].shape[0] = 1 << 20;
    model.stages[0].skips[0].tensor.dtype = WEIR_F32;
    skip[0] = space[0] = schedule[0] = device[0] = '!';
    struct weir_step step = engine_step(&trial.batch);
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_OK);
    char text[256];
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, 4, NULL), WEIR_OK);
    weir_table_format(weir_pipe_table(trial.pipe, 4), false, text, sizeof text);
    EXPECT(strstr(text, "0R") == NULL && strstr(text, "1R3") != NULL);
    model.inputs[0] = input, model.stages[1].outputs[0] = output;
    model.stages[0].skips[0].tensor.dtype = WEIR_F64;
    skip[0] = 'a', space[0] = 'i';
    engine_order_of(&trial.order, "gpipe", 4);
    engine_reference_step(&trial.reference, &trial.expected, &step, &trial.how);
    engine_expect_batches(&trial.batch, &trial.expected, true);
    engine_expect_state(trial.pipe, &trial.reference);
    engine_trial_close(&trial);
}

/* ---- order, from the trace ---- */

static struct weir_trace_event events[ENGINE_STAGES_MAX][EVENTS_MAX];
static uint32_t event_counts[ENGINE_STAGES_MAX];

static void take_trace(uint32_t workers) {
    for (uint32_t w = 0; w < workers; w++)
        event_counts[w] = weir_pipe_trace(trial.pipe, w, EVENTS_MAX, events[w]);
}

/* One stage per worker. */
static const struct weir_trace_event *find_event(enum weir_kind kind, uint32_t stage, uint32_t i) {
    for (uint32_t k = 0; k < event_counts[stage]; k++) {
        const struct weir_trace_event *event = &events[stage][k];
        if (event->action.kind == kind && event->action.micro_batch == i) return event;
    }
    TEST_FAIL("no event of kind %d, stage %u, micro-batch %u", (int)kind, stage, i);
    return &events[0][0];
}

static void expect_clock_cycles(uint32_t m, uint32_t stages) {
    CHECK(open_chain(stages, m, m, "gpipe", WEIR_CHECKPOINT_DEFAULT));
    engine_trial_step(&trial);
    take_trace(stages);
    for (uint32_t j = 0; j < stages; j++) {
        for (uint32_t i = 0; i < m; i++) {
            uint64_t start = find_event(WEIR_KIND_F, j, i)->start;
            if (i > 0) EXPECT(start >= find_event(WEIR_KIND_F, j, i - 1)->end);
            if (j > 0) EXPECT(start >= find_event(WEIR_KIND_F, j - 1, i)->end);
        }
    }
    engine_trial_close(&trial);
}

// PI-10
static void test_gpipe_forwards_follow_their_neighbours(void) {
    expect_clock_cycles(1, 1);
    expect_clock_cycles(1, 3);
    expect_clock_cycles(3, 1);
    expect_clock_cycles(3, 3);
    expect_clock_cycles(4, 2);
}

// PI-11
static void test_gpipe_backwards_run_in_reverse_on_every_stage(void) {
    CHECK(open_chain(3, 8, 4, "gpipe", WEIR_CHECKPOINT_DEFAULT));
    engine_trial_step(&trial);
    take_trace(3);
    for (uint32_t s = 0; s < 3; s++) {
        for (uint32_t i = 0; i < 3; i++)
            EXPECT(find_event(WEIR_KIND_B, s, i)->start >= find_event(WEIR_KIND_B, s, i + 1)->end);
        EXPECT(find_event(WEIR_KIND_B, s, 3)->start >= find_event(WEIR_KIND_F, s, 3)->end);
        if (s > 0)
            EXPECT(find_event(WEIR_KIND_B, s - 1, 3)->start >= find_event(WEIR_KIND_B, s, 3)->end);
    }
    engine_trial_close(&trial);
}

/* A row as it is executed: all norms before the first update. */
static uint32_t executed_row(const struct weir_table *table, uint32_t w,
                             struct weir_action *actions) {
    uint32_t count = 0, end = table->lines[w + 1], first = table->lines[w];
    while (first < end && table->actions[first].kind != WEIR_KIND_U)
        actions[count++] = table->actions[first++];
    for (uint32_t a = first; a < end; a++) {
        actions[count] = table->actions[a];
        actions[count++].kind = WEIR_KIND_N;
    }
    while (first < end) actions[count++] = table->actions[first++];
    return count;
}

static void expect_traced_row(uint32_t w, uint64_t step) {
    struct weir_action row[EVENTS_MAX];
    uint32_t count = executed_row(weir_pipe_table(trial.pipe, 8), w, row);
    CHECK(event_counts[w] >= count);
    for (uint32_t i = 0; i < count; i++) {
        const struct weir_trace_event *event = &events[w][event_counts[w] - count + i];
        EXPECT_EQ_UINT(event->step, step);
        EXPECT_EQ_UINT(event->worker, w);
        EXPECT_EQ_BYTES(&event->action, &row[i], sizeof row[i].micro_batch);
        EXPECT(event->action.stage == row[i].stage && event->action.kind == row[i].kind);
        EXPECT(event->waited <= event->start && event->start <= event->end);
        EXPECT(event->waited_for >= -1 && event->waited_for < 2);
        EXPECT(event->waited_for != (int32_t)w);
        if (i > 0) EXPECT(event->waited >= event[-1].end);
    }
}

static void test_every_action_is_traced_in_its_rows_order(void) {
    chain(3);
    struct weir_pipe_options options = engine_options(&model);
    options.workers = 2;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    take_trace(2);
    EXPECT_EQ_UINT(event_counts[0] + event_counts[1], 0);
    for (uint64_t step = 1; step <= 5; step++) {
        engine_trial_step(&trial);
        take_trace(2);
        for (uint32_t w = 0; w < 2; w++) expect_traced_row(w, step);
    }
    EXPECT_EQ_UINT(weir_pipe_trace(trial.pipe, 0, 3, events[2]), 3); /* the newest ones */
    EXPECT_EQ_BYTES(events[2], &events[0][event_counts[0] - 3], 3 * sizeof events[2][0]);
    EXPECT_EQ_UINT(weir_pipe_trace(trial.pipe, 2, 3, events[2]), 0);
    engine_trial_close(&trial);
}

WEIR_TEST_SUITE(pipe, TEST(every_pipe_gives_the_unpipelined_bits),
                TEST(many_stages_and_micro_batches_give_the_same_bits),
                TEST(micro_batches_sum_to_the_whole_mini_batch), TEST(gradients_are_derivatives),
                TEST(modes_checkpoint_two_one_and_none_of_two),
                TEST(an_unknown_mode_is_refused_with_the_three_names),
                TEST(a_stage_may_have_a_mode_of_its_own),
                TEST(inference_saves_and_recomputes_nothing),
                TEST(a_pipe_for_inference_only_has_no_memory_for_more),
                TEST(too_few_devices_are_refused_and_surplus_ones_unused),
                TEST(an_unknown_device_is_refused), TEST(plans_check_the_bind_list_too),
                TEST(every_fault_is_listed_at_once), TEST(a_description_is_copied),
                TEST(gpipe_forwards_follow_their_neighbours),
                TEST(gpipe_backwards_run_in_reverse_on_every_stage),
                TEST(every_action_is_traced_in_its_rows_order))

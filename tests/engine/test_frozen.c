/* SPDX-License-Identifier: MIT */
/*
 * Goal: a stage without backward costs its forwards and nothing else, and the others cannot tell.
 * Method: first stages of random models are frozen; the gradients of the others must be the bits
 * that the reference finds with every stage learning. Tables, traces and plans are searched for
 * what must not be there any more.
 */
#include "engine/engine_stages.h"

#include "schedule/action.h"

#include <string.h>

static struct engine_model model, frozen_model;
static struct engine_random run;
static struct engine_trial trial;
static const char *const schedules[] = {"gpipe", "1f1b"};
static const enum weir_checkpoint modes[] = {WEIR_CHECKPOINT_ALWAYS, WEIR_CHECKPOINT_EXCEPT_LAST,
                                             WEIR_CHECKPOINT_NEVER};

/* The same model with its first `count` stages frozen, and options for it. */
static struct weir_pipe_options freeze_first(uint32_t count,
                                             const struct weir_pipe_options *options) {
    memcpy(&frozen_model, &model, sizeof model);
    for (uint32_t s = 0; s < count; s++) engine_freeze(&frozen_model, s);
    struct weir_pipe_options own = engine_options(&frozen_model), changed = *options;
    changed.stages = own.stages;
    changed.inputs = own.inputs;
    return changed;
}

static bool any_frozen(void) {
    bool any = false;
    for (uint32_t s = 0; s < model.stage_count; s++) any |= model.stages[s].frozen;
    return any;
}

/* What learns nowhere has nothing to share. */
static bool any_tied(void) {
    bool any = false;
    for (uint32_t s = 0; s < model.stage_count; s++) any |= model.stages[s].tie_count > 0;
    return any;
}

/* ---- bits ---- */

/* The learning stages' gradients against those of a reference where all stages learn. */
static void expect_same_gradients(uint32_t frozen, const struct engine_reference *whole,
                                  const struct engine_batch *expected) {
    EXPECT_EQ_BYTES(&trial.result.loss, &whole->loss, sizeof whole->loss);
    for (uint32_t s = frozen; s < model.stage_count; s++) {
        struct weir_attachment at;
        CHECK_OK(weir_pipe_attachment(trial.pipe, s, &at));
        if (model.stages[s].parameters > 0)
            EXPECT_EQ_BYTES(at.gradients, whole->gradients[s],
                            model.stages[s].parameters * sizeof(double));
    }
    for (uint32_t k = 0; k < model.input_count; k++)
        if (trial.batch.input_grads[k] != NULL)
            EXPECT_EQ_BYTES(trial.batch.input_grads[k], expected->input_grads[k],
                            expected->input_bytes[k]);
    engine_expect_batches(&trial.batch, expected, false);
}

static void compare_frozen(uint32_t frozen, const struct weir_pipe_options *options,
                           const struct engine_order *order) {
    struct engine_reference whole;
    struct engine_batch expected;
    struct weir_pipe_options own = freeze_first(frozen, options);
    if (!engine_trial_open(&trial, &frozen_model, &own, order)) return;
    trial.base.no_update = true;
    engine_trial_step(&trial);
    engine_reference_init(&whole, &model);
    engine_batch_init(&expected, &model, options->rows, 1);
    struct weir_step step = engine_step(&expected);
    step.no_update = true;
    trial.how.infer = false;
    engine_reference_step(&whole, &expected, &step, &trial.how);
    expect_same_gradients(frozen, &whole, &expected);
    engine_batch_clean_up(&expected);
    engine_reference_clean_up(&whole);
    engine_trial_close(&trial);
}

static void test_freezing_the_first_stages_changes_no_other_gradient(void) {
    uint32_t compared = 0;
    for (uint32_t number = 0; number < 120 && !test_has_failed(); number++) {
        engine_random_choose(&run, &model);
        if (model.stage_count < 2 || any_frozen() || any_tied()) continue;
        run.options.clip_norm = 0.0; /* there may be no norm left */
        uint32_t frozen = 1 + (uint32_t)test_random_below(model.stage_count - 1);
        compare_frozen(frozen, &run.options, run.has_table ? &run.order : NULL);
        compared++;
        if (test_has_failed()) engine_random_describe(&run, number);
    }
    EXPECT(compared >= 20);
}

/* A chain with a skip from a frozen stage to a learning one, and one among the learning. */
static void chain(void) {
    engine_model_init(&model, 4);
    engine_skip(&model, 0, WEIR_SKIP_STASH, "far");
    engine_skip(&model, 2, WEIR_SKIP_READ, "far");
    engine_skip(&model, 3, WEIR_SKIP_POP, "far");
    engine_skip(&model, 2, WEIR_SKIP_STASH, "near");
    engine_skip(&model, 3, WEIR_SKIP_POP, "near");
    for (uint32_t s = 0; s < 4; s++) model.stages[s].keeps_inputs = s % 2 == 1;
}

/* Whether the schedule can be had for the options' stages, workers and 5 micro-batches. */
static bool accepts(const struct weir_pipe_options *options) {
    struct weir_table_options want = WEIR_TABLE_OPTIONS_INIT;
    want.schedule = options->schedule;
    want.stages = options->stage_count;
    want.workers = options->workers;
    want.micro_batches = 5;
    return weir__table_options_check(&want, NULL) == WEIR_OK;
}

static void test_every_schedule_and_mode_gives_the_same_gradients(void) {
    uint32_t compared = 0;
    for (uint32_t k = 0; weir_schedule_name(k) != NULL; k++)
        for (uint32_t mode = 0; mode < 3; mode++)
            for (uint32_t workers = 1; workers <= 4; workers++)
                for (uint32_t frozen = 1; frozen <= 3 && !test_has_failed(); frozen++) {
                    chain();
                    struct weir_pipe_options options = engine_options(&model);
                    options.rows = 13, options.chunks = 5, options.workers = workers;
                    options.schedule = weir_schedule_name(k), options.checkpoint = modes[mode];
                    options.recompute_late = frozen == 2;
                    if (!accepts(&options)) continue;
                    compare_frozen(frozen, &options, NULL);
                    compared++;
                }
    EXPECT(compared > 150);
}

/* Nothing learns: the step is an inference in the phases of training. */
static void test_all_stages_may_be_frozen(void) {
    chain();
    struct weir_pipe_options whole = engine_options(&model), options = freeze_first(4, &whole);
    CHECK(engine_trial_open(&trial, &frozen_model, &options, NULL));
    for (int k = 0; k < 2 && !test_has_failed(); k++) engine_trial_step(&trial);
    EXPECT_EQ_UINT(engine_calls_of(&frozen_model, WEIR_FORWARD), 2 * 4 * 4);
    EXPECT_EQ_UINT(engine_calls_of(&frozen_model, WEIR_PHASE_COUNT), 2 * 4 * 4);
    struct weir_step_report report;
    CHECK_OK(weir_pipe_report(trial.pipe, &report));
    EXPECT(report.makespan > 0.0 && report.recompute_hidden == 0.0);
    engine_trial_close(&trial);
}

/* ---- tables and traces ---- */

static uint32_t kinds_of(const struct weir_table *table, uint32_t stage,
                         uint32_t counts[WEIR_KIND_COUNT]) {
    uint32_t all = 0;
    memset(counts, 0, WEIR_KIND_COUNT * sizeof *counts);
    for (uint32_t a = 0; a < table->action_count; a++) {
        if (table->actions[a].stage != stage) continue;
        counts[table->actions[a].kind]++;
        all++;
    }
    return all;
}

/* Forwards, an empty N and U, and each counted once by the callbacks, if at all. */
static void expect_only_forwards(uint32_t stage, uint32_t micro_batches) {
    struct weir_trace_event events[256];
    uint32_t traced[WEIR_KIND_COUNT] = {0}, called = 0;
    for (uint32_t w = 0; w < 2; w++) {
        uint32_t count = weir_pipe_trace(trial.pipe, w, 256, events);
        for (uint32_t e = 0; e < count; e++)
            traced[events[e].action.kind] += events[e].action.stage == stage;
    }
    EXPECT_EQ_UINT(traced[WEIR_KIND_F], micro_batches);
    EXPECT_EQ_UINT(traced[WEIR_KIND_R] + traced[WEIR_KIND_B] + traced[WEIR_KIND_I], 0);
    EXPECT_EQ_UINT(traced[WEIR_KIND_W], 0);
    for (uint32_t i = 0; i < micro_batches; i++)
        called += engine_find_call(&frozen_model, WEIR_FORWARD, stage, i) != UINT32_MAX;
    EXPECT_EQ_UINT(called, micro_batches);
    EXPECT_EQ_UINT(engine_find_call(&frozen_model, WEIR_FORWARD_CHECKPOINT, stage, 0), UINT32_MAX);
}

static void test_tables_and_traces_have_no_backward_of_it(void) {
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t counts[WEIR_KIND_COUNT];
        chain();
        struct weir_pipe_options whole = engine_options(&model), options = freeze_first(2, &whole);
        options.workers = 2, options.schedule = schedules[k];
        options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
        CHECK(engine_trial_open(&trial, &frozen_model, &options, NULL));
        engine_trial_step(&trial);
        const struct weir_table *table = weir_pipe_table(trial.pipe, 8);
        for (uint32_t s = 0; s < 2; s++) {
            EXPECT_EQ_UINT(kinds_of(table, s, counts), 4 + 1);
            EXPECT_EQ_UINT(counts[WEIR_KIND_F], 4);
            EXPECT_EQ_UINT(counts[WEIR_KIND_U], 1);
            expect_only_forwards(s, 4);
        }
        EXPECT_EQ_UINT(kinds_of(table, 2, counts), 3 * 4 + 1);
        engine_trial_close(&trial);
        CHECK_HELPERS();
    }
}

/* ---- memory ---- */

static uint64_t planned(const struct weir_pipe_options *options, struct weir_device_plan *first) {
    struct weir_plan *plan;
    uint64_t total = 0;
    if (!EXPECT_STATUS(weir_plan_new(options, NULL, &plan), WEIR_OK)) return 0;
    for (uint32_t d = 0; d < plan->device_count; d++) total += plan->devices[d].total;
    *first = plan->devices[0];
    weir_plan_destroy(plan);
    return total;
}

static void test_the_plan_is_smaller(void) {
    for (uint32_t k = 0; k < 6; k++) {
        struct weir_device_plan all, less;
        chain();
        struct weir_pipe_options options = engine_options(&model);
        options.rows = options.chunks = 16;
        options.schedule = schedules[k % 2], options.checkpoint = modes[k / 2];
        uint64_t whole = planned(&options, &all);
        struct weir_pipe_options own = freeze_first(2, &options);
        uint64_t total = planned(&own, &less);
        EXPECT(total < whole);
        EXPECT(less.total < all.total);
        EXPECT_EQ_UINT(less.parameters, all.parameters);
        EXPECT_EQ_UINT(less.gradients + less.optimizer + less.activations, 0);
        EXPECT_EQ_UINT(less.parameters + less.borders + less.portals + less.workspace +
                           less.padding,
                       less.total);
    }
}

/* Its outputs wait for the next stage's pace in a few slots, not in one for each micro-batch. */
static void test_it_does_not_run_ahead_of_its_slots(void) {
    struct weir_device_plan few, many;
    for (uint32_t frozen = 1; frozen <= 2; frozen++) {
        engine_model_init(&model, 3);
        struct weir_pipe_options options = engine_options(&model);
        options.rows = options.chunks = 8;
        struct weir_pipe_options own = freeze_first(frozen, &options);
        planned(&own, &few);
        own.rows = own.chunks = 64;
        planned(&own, &many);
        EXPECT_EQ_UINT(many.total, few.total);
        EXPECT_EQ_UINT(many.borders, few.borders);
    }
}

/* Rows that take the next stage's forwards the other way round need all of them made before. */
static void test_rows_in_any_order_run(void) {
    static const char table[] = "0F0,0F1,0F2,0F3,2F3,2B3,2F2,2B2,2F1,2B1,2F0,2B0\n"
                                "1F3,1F2,1F1,1F0,1B3,1B2,1B1,1B0\n";
    struct engine_order order;
    engine_model_init(&model, 3);
    engine_order_of(&order, "gpipe", 4); /* descending, as the rows have it */
    struct weir_pipe_options whole = engine_options(&model), options = freeze_first(1, &whole);
    options.table_csv = table, options.table_csv_bytes = sizeof table - 1;
    options.workers = 2;
    CHECK(engine_trial_open(&trial, &frozen_model, &options, &order));
    for (int k = 0; k < 2 && !test_has_failed(); k++) engine_trial_step(&trial);
    engine_trial_close(&trial);
}

/* ---- what is refused ---- */

static void refuse(const char *part) {
    struct weir_pipe_options options = engine_options(&model);
    engine_expect_refused(&options, WEIR_ERR_CONFIG, part);
}

static void test_gradients_that_nobody_makes_are_refused(void) {
    static const char mend[] = ": clear `differentiable` there, or no_backward";
    engine_model_init(&model, 3);
    engine_skip(&model, 0, WEIR_SKIP_STASH, "a");
    engine_skip(&model, 1, WEIR_SKIP_POP, "a");
    model.stages[1].frozen = true;
    refuse("stage 1 has no backward and gives output 0 of stage 0 no gradient");
    refuse("stage 1 has no backward and its output 0 no gradient");
    refuse("stage 1 has no backward and its skip 'a' no gradient");
    refuse(mend);
    engine_freeze(&model, 1); /* stage 0 learns from nothing but its own loss now */
    struct weir_pipe_options options = engine_options(&model);
    struct weir_pipe *pipe;
    CHECK_OK(weir_pipe_new(&options, NULL, &pipe));
    weir_pipe_destroy(pipe);
    engine_input(&model, 1, "y", engine_tensor(WEIR_F32, 2, true));
    refuse("stage 1 has no backward and gives input 1 no gradient");
}

static void test_a_norm_of_frozen_stages_clips_nothing(void) {
    engine_model_init(&model, 2);
    model.stages[1].fixed = true;
    engine_freeze(&model, 0);
    struct weir_pipe_options options = engine_options(&model);
    options.clip_norm = 1.0;
    engine_expect_refused(&options, WEIR_ERR_CONFIG, "clip_norm");
}

/* ---- tables without a pipe ---- */

static const bool first_of_two[2] = {true, false};

static bool format_is(const struct weir_table *table, const char *expected) {
    char text[256];
    weir_table_format(table, false, text, sizeof text);
    return EXPECT_EQ_STR(text, expected);
}

static void test_schedules_leave_it_out(void) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table;
    options.allocator = test_allocator();
    options.stages = options.micro_batches = 2;
    options.no_backward = first_of_two;
    options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    CHECK_OK(weir_table_new(&options, NULL, &table));
    format_is(table, "0F0,0F1,0U\n1F0,1R0,1B0,1F1,1R1,1B1,1U\n");
    weir_table_destroy(table);
}

static int parse(const char *text, const bool *no_backward, struct weir_faults *notes,
                 struct weir_table **table) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    options.allocator = test_allocator();
    options.stages = options.micro_batches = 2;
    options.no_backward = no_backward;
    options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    return weir_table_parse(&options, text, strlen(text), NULL, notes, table);
}

static void test_cells_of_it_in_a_text_are_left_out_with_a_note(void) {
    static const char with[] = "0F0,0F1,0B0,0I1,0W1\n1F0,1B0,1F1,1B1\n";
    static const char without[] = "0F0,0F1\n1F0,1B0,1F1,1B1\n";
    for (int k = 0; k < 2; k++) {
        struct weir_faults notes = {.allocator = test_allocator()};
        struct weir_table *table;
        CHECK_OK(parse(k == 0 ? with : without, first_of_two, &notes, &table));
        format_is(table, "0F0,0F1,0U\n1F0,1R0,1B0,1F1,1R1,1B1,1U\n");
        EXPECT_EQ_UINT(notes.count, k == 0 ? 1 : 0);
        if (notes.kept > 0)
            EXPECT_EQ_STR(notes.lines[0], "3 R, B, I or W cells are left out: their stages have "
                                          "no backward");
        weir_faults_clean_up(&notes);
        weir_table_destroy(table);
    }
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table;
    options.allocator = test_allocator();
    options.stages = 0, options.no_backward = first_of_two;
    EXPECT_STATUS(weir_table_parse(&options, with, sizeof with - 1, NULL, NULL, &table),
                  WEIR_ERR_ARGUMENT);
}

static void expect_checked(const char *text, const bool *no_backward, int status,
                           const char *part) {
    struct weir__flow flow = {.stage_count = 2, .no_backward = no_backward};
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_table *table;
    CHECK_OK(parse(text, NULL, NULL, &table));
    EXPECT_STATUS(weir__table_check_flow(table, &flow, test_allocator(), &faults), status);
    bool found = part == NULL;
    for (uint32_t i = 0; i < faults.kept; i++) found |= strstr(faults.lines[i], part) != NULL;
    if (!found) TEST_FAIL("no fault says '%s'", part);
    weir_faults_clean_up(&faults);
    weir_table_destroy(table);
}

static void test_the_check_knows_what_a_flow_has_no_backward_of(void) {
    static const char with[] = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
    static const char without[] = "0F0,0F1\n1F0,1B0,1F1,1B1\n";
    expect_checked(without, first_of_two, WEIR_OK, NULL);
    expect_checked(with, NULL, WEIR_OK, NULL);
    expect_checked(without, NULL, WEIR_ERR_SCHEDULE, "0B1 is missing");
    expect_checked(with, first_of_two, WEIR_ERR_SCHEDULE, "0B0: stage 0 has no backward: leave it");
    expect_checked(with, first_of_two, WEIR_ERR_SCHEDULE, "0R0: stage 0 has no backward");
    expect_checked("0F0\n1F0,1B0,1F1,1B1\n", first_of_two, WEIR_ERR_SCHEDULE, "0F1 is missing");
}

WEIR_TEST_SUITE(frozen, TEST(freezing_the_first_stages_changes_no_other_gradient),
                TEST(every_schedule_and_mode_gives_the_same_gradients),
                TEST(all_stages_may_be_frozen), TEST(tables_and_traces_have_no_backward_of_it),
                TEST(the_plan_is_smaller), TEST(it_does_not_run_ahead_of_its_slots),
                TEST(rows_in_any_order_run), TEST(gradients_that_nobody_makes_are_refused),
                TEST(a_norm_of_frozen_stages_clips_nothing), TEST(schedules_leave_it_out),
                TEST(cells_of_it_in_a_text_are_left_out_with_a_note),
                TEST(the_check_knows_what_a_flow_has_no_backward_of))

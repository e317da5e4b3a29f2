/* SPDX-License-Identifier: MIT */
/*
 * Goal: gradients add up by groups of micro-batches, and groups by a balanced tree, whatever runs
 * them; the plan counts the sums that this needs. Method: random models, tables and groups beside
 * the reference, which has every group's sum at once, bit for bit.
 */
#include "engine/engine_stages.h"

#include <string.h>

enum { RUNS = 60 };

static struct engine_model model;
static struct engine_trial trial;
static struct engine_random run;

/* ---- bits ---- */

static bool accumulate(uint32_t count) {
    bool same = true;
    for (uint32_t k = 0; same && k < count; k++) {
        trial.base.accumulate_first = k == 0;
        trial.base.accumulate_last = k + 1 == count;
        same = engine_trial_step(&trial);
    }
    trial.base.accumulate_first = trial.base.accumulate_last = true;
    return same;
}

static void run_one(uint32_t number) {
    engine_random_choose(&run, &model);
    engine_random_groups(&run);
    if (engine_trial_open(&trial, &model, &run.options, run.has_table ? &run.order : NULL)) {
        bool same = engine_trial_step(&trial) && engine_trial_step(&trial);
        if (run.options.accumulates) same = same && accumulate(2 + number % 2);
        same = same && engine_trial_infer(&trial) && engine_trial_step(&trial);
        engine_trial_close(&trial);
    }
    if (!test_has_failed()) return;
    TEST_FAIL("%u groups%s", run.options.gradient_groups,
              run.options.accumulates ? ", accumulated" : "");
    engine_random_describe(&run, number);
}

static void test_random_pipes_with_groups_give_the_reference_bits(void) {
    for (uint32_t number = 0; number < RUNS && !test_has_failed(); number++) run_one(number);
}

/* Else the test above could pass without any tree. */
static void test_the_number_of_groups_decides_bits(void) {
    double seen[2][64];
    for (uint32_t k = 0; k < 2; k++) {
        engine_model_init(&model, 1);
        model.stages[0].parameters = 64;
        struct weir_pipe_options options = engine_options(&model);
        options.rows = 32, options.chunks = 16;
        options.gradient_groups = k == 0 ? 1 : 8;
        if (!engine_trial_open(&trial, &model, &options, NULL)) return;
        engine_trial_step(&trial);
        memcpy(seen[k], trial.reference.gradients[0], sizeof seen[k]);
        engine_trial_close(&trial);
    }
    EXPECT(memcmp(seen[0], seen[1], sizeof seen[0]) != 0);
}

/* ---- memory ---- */

static uint64_t gradient_bytes(uint32_t groups, bool accumulates, const char *schedule) {
    engine_model_init(&model, 2);
    model.stages[0].parameters = model.stages[1].parameters = 1024;
    struct weir_pipe_options options = engine_options(&model);
    struct weir_plan *plan;
    options.rows = 16, options.chunks = 16;
    options.schedule = schedule;
    options.gradient_groups = groups;
    options.accumulates = accumulates;
    if (!EXPECT_STATUS(weir_plan_new(&options, NULL, &plan), WEIR_OK)) return 0;
    uint64_t bytes = plan->devices[0].gradients;
    EXPECT_EQ_UINT(plan->devices[1].gradients, bytes);
    weir_plan_destroy(plan);
    return bytes / (1024 * sizeof(double));
}

static void test_the_plan_counts_a_sum_for_each_level_of_the_tree(void) {
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1"};
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT_EQ_UINT(gradient_bytes(1, false, schedules[i]), 1);
        EXPECT_EQ_UINT(gradient_bytes(2, false, schedules[i]), 2);
        EXPECT_EQ_UINT(gradient_bytes(4, false, schedules[i]), 3);
        EXPECT_EQ_UINT(gradient_bytes(16, false, schedules[i]), 5);
        EXPECT_EQ_UINT(gradient_bytes(4, true, schedules[i]), 4);
    }
}

/* ---- what cannot be ---- */

static void test_groups_that_cannot_be_are_refused(void) {
    engine_model_init(&model, 2);
    struct weir_pipe_options options = engine_options(&model);
    options.rows = 12, options.chunks = 6;
    options.gradient_groups = 3;
    engine_expect_refused(&options, WEIR_ERR_CONFIG, "give a power of two");
    options.gradient_groups = 8;
    engine_expect_refused(&options, WEIR_ERR_CONFIG,
                          "cannot be 8 groups of gradients: give "
                          "gradient_groups 2");
    options.gradient_groups = 4; /* of 6 micro-batches are 2, 2, 2 */
    engine_expect_refused(&options, WEIR_ERR_CONFIG, "6 micro-batches (of 12 rows) cannot be 4");
    struct weir_stage_calls calls = engine_stage_calls;
    calls.combine = NULL;
    model.described[1].calls = &calls;
    options.gradient_groups = 2;
    engine_expect_refused(&options, WEIR_ERR_CONFIG, "stage 1: groups of gradients need a combine");
}

static void test_few_rows_can_be_inferred_and_are_refused_to_train(void) {
    engine_model_init(&model, 2);
    struct weir_pipe_options options = engine_options(&model);
    options.gradient_groups = 4;
    if (!engine_trial_open(&trial, &model, &options, NULL)) return;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, 3, &faults), WEIR_ERR_CONFIG);
    EXPECT_CONTAINS(faults.kept > 0 ? faults.lines[0] : "", "give gradient_groups 2");
    EXPECT_STATUS(weir_pipe_prepare_infer(trial.pipe, 3, NULL), WEIR_OK);
    engine_trial_rows(&trial, 3, true);
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, 4, NULL), WEIR_OK);
    engine_trial_rows(&trial, 4, false);
    weir_faults_clean_up(&faults);
    engine_trial_close(&trial);
}

static void test_parts_of_an_update_need_sums_that_last(void) {
    engine_model_init(&model, 2);
    struct weir_pipe_options options = engine_options(&model);
    options.gradient_groups = 2;
    if (!engine_trial_open(&trial, &model, &options, NULL)) return;
    struct weir_step step = engine_step(&trial.batch);
    step.accumulate_last = false;
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_ERR_ARGUMENT);
    EXPECT_CONTAINS(trial.result.error.message, "build it with `accumulates`");
    engine_trial_step(&trial);
    engine_trial_close(&trial);
}

static void test_a_combine_that_fails_fails_the_step_and_no_parameter_changes(void) {
    engine_model_init(&model, 2);
    struct weir_pipe_options options = engine_options(&model);
    options.gradient_groups = 2;
    if (!engine_trial_open(&trial, &model, &options, NULL)) return;
    struct weir_step step = engine_step(&trial.batch);
    model.combine_status = 77;
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), 77);
    EXPECT_EQ_INT(trial.result.error.phase, WEIR_BACKWARD);
    model.combine_status = 0;
    engine_trial_step(&trial);
    engine_trial_close(&trial);
}

WEIR_TEST_SUITE(groups, TEST(random_pipes_with_groups_give_the_reference_bits),
                TEST(the_number_of_groups_decides_bits),
                TEST(the_plan_counts_a_sum_for_each_level_of_the_tree),
                TEST(groups_that_cannot_be_are_refused),
                TEST(few_rows_can_be_inferred_and_are_refused_to_train),
                TEST(parts_of_an_update_need_sums_that_last),
                TEST(a_combine_that_fails_fails_the_step_and_no_parameter_changes))

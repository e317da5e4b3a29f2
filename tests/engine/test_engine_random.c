/* SPDX-License-Identifier: MIT */
/*
 * Goal: no combination of stages, workers, chunks, borders, skips, checkpoints, schedules and links
 * changes a bit. Method: random ones, from the printed seed, against the reference; the callbacks
 * sleep, yield and spin at random, so that another order of events is another run.
 */
#include "engine/engine_stages.h"

enum { RUNS = 200 };

static struct engine_model model;
static struct engine_trial trial;
static struct engine_random run;

/* Another row count: to infer in any case, to train where the schedule takes it. */
static void run_short(void) {
    int64_t rows = 1 + (int64_t)test_random_below((uint64_t)run.options.rows);
    if (test_random_below(2) == 0) {
        int inferred = weir_pipe_prepare_infer(trial.pipe, rows, NULL);
        if (EXPECT_STATUS(inferred, WEIR_OK)) engine_trial_rows(&trial, rows, true);
    }
    if (run.has_table) return; /* it is for one count of micro-batches */
    if (!engine_random_accepts(&run, rows)) {
        EXPECT_STATUS(weir_pipe_prepare(trial.pipe, rows, NULL), WEIR_ERR_ARGUMENT);
        return;
    }
    int status = weir_pipe_prepare(trial.pipe, rows, NULL);
    if (EXPECT_STATUS(status, WEIR_OK)) engine_trial_rows(&trial, rows, false);
    if (!test_has_failed()) engine_trial_rows(&trial, rows, true);
}

static void run_one(uint32_t number) {
    engine_random_choose(&run, &model);
    if (engine_trial_open(&trial, &model, &run.options, run.has_table ? &run.order : NULL)) {
        for (int k = 0; k < 3 && !test_has_failed(); k++) engine_trial_step(&trial);
        if (!test_has_failed()) engine_trial_infer(&trial);
        if (!test_has_failed()) run_short();
        if (!test_has_failed()) engine_trial_step(&trial);
        engine_trial_close(&trial);
    }
    if (test_has_failed()) engine_random_describe(&run, number);
}

// MB-7
// PO-7
static void test_random_pipes_give_the_reference_bits(void) {
    for (uint32_t number = 0; number < RUNS && !test_has_failed(); number++) run_one(number);
}

WEIR_TEST_SUITE(engine_random, TEST(random_pipes_give_the_reference_bits))

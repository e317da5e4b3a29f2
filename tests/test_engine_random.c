/* SPDX-License-Identifier: MIT */
/*
 * Goal: no combination of stages, workers, chunks, borders, skips, checkpoints, schedules and links
 * changes a bit. Method: random ones, from the printed seed, against the reference; the callbacks
 * sleep, yield and spin at random, so that another order of events is another run.
 */
#include "engine_stages.h"

#include <stdio.h>
#include <string.h>

enum { RUNS = 200, TABLE_BYTES = 1 << 17 };

/* What one run is made of. */
struct random_run {
    struct weir_pipe_options options;
    enum weir_checkpoint stage_checkpoint[ENGINE_STAGES_MAX];
    struct engine_order order;
    bool has_table;
};

static struct engine_model model;
static char table[TABLE_BYTES];

static uint32_t below(uint32_t bound) {
    return (uint32_t)test_random_below(bound);
}

static enum weir_checkpoint random_mode(void) {
    return (enum weir_checkpoint)below(WEIR_CHECKPOINT_NEVER + 1);
}

static void choose_schedule(struct random_run *run) {
    struct weir_pipe_options *options = &run->options;
    uint32_t m = engine_chunk_count(options->rows, options->chunks);
    options->workers = 1 + below(options->stage_count < 4 ? options->stage_count : 4);
    options->schedule = below(2) == 0 ? "gpipe" : "1f1b";
    run->has_table = below(3) == 0;
    if (!run->has_table) return;
    options->table_csv = table;
    options->table_csv_bytes =
        engine_random_table(table, sizeof table, options->stage_count, options->workers, m,
                            options->recompute_late, &run->order);
}

static void choose(struct random_run *run) {
    memset(run, 0, sizeof *run);
    engine_random_model(&model, 1 + below(5));
    model.jitter = below(3) == 0 ? 0 : 1 + below(12);
    run->options = engine_options(&model);
    struct weir_pipe_options *options = &run->options;
    options->rows = 1 + (int64_t)below(20);
    options->chunks = 1 + below(9);
    options->checkpoint = random_mode();
    for (uint32_t s = 0; s < model.stage_count; s++) run->stage_checkpoint[s] = random_mode();
    if (below(3) == 0) options->stage_checkpoint = run->stage_checkpoint;
    options->recompute_late = below(4) == 0;
    options->debug_inputs = below(6) == 0;
    options->link = below(3) == 0 ? WEIR_LINK_COPY : WEIR_LINK_POINTER;
    if (options->link == WEIR_LINK_COPY && below(3) == 0) options->link_delay_ns = below(100000);
    options->wait = (enum weir_wait)below(3);
    options->clip_norm = below(3) == 0 ? 0.01 : 0.0;
    choose_schedule(run);
}

static void describe(const struct random_run *run, uint32_t number) {
    const struct weir_pipe_options *options = &run->options;
    printf("run %u: %u stages, %u workers, %lld rows in %u chunks, %s, checkpoint %s%s, %s%s%s\n",
           number, options->stage_count, options->workers, (long long)options->rows,
           options->chunks, run->has_table ? "table" : options->schedule,
           weir_checkpoint_name(options->checkpoint),
           options->stage_checkpoint != NULL ? " and per stage" : "",
           options->recompute_late ? "late" : "early",
           options->link == WEIR_LINK_COPY ? ", copies" : "",
           options->debug_inputs ? ", inputs watched" : "");
    if (run->has_table) fputs(table, stdout);
}

static void run_one(uint32_t number) {
    struct random_run run;
    struct engine_trial trial;
    choose(&run);
    const struct engine_order *order = run.has_table ? &run.order : NULL;
    if (engine_trial_open(&trial, &model, &run.options, order)) {
        for (int k = 0; k < 3 && !test_has_failed(); k++) engine_trial_step(&trial);
        if (!test_has_failed()) engine_trial_infer(&trial);
        if (!test_has_failed()) engine_trial_step(&trial);
        engine_trial_close(&trial);
    }
    if (test_has_failed()) describe(&run, number);
}

// MB-7
// PO-7
static void test_random_pipes_give_the_reference_bits(void) {
    for (uint32_t number = 0; number < RUNS && !test_has_failed(); number++) run_one(number);
}

WEIR_TEST_SUITE(engine_random, TEST(random_pipes_give_the_reference_bits))

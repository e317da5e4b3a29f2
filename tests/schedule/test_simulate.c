/* SPDX-License-Identifier: MIT */
/*
 * Goal: the simulator gives what formulas say, counts what moves as the benchmark models' notes do,
 * names what it cannot work with, and allocates no more than it must. Method: closed forms; skips
 * of known models over stages that are placed in loop and V order; injected failures. That it is
 * right for any table is test_simulate_random.c's, all schedules' closed forms are
 * test_cli_simulate.c's.
 */
#include "harness.h"

#include "weir_predict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- tables and options ---- */

static struct weir_table *table_of(const char *schedule, uint32_t stages, uint32_t workers,
                                   uint32_t micro_batches) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table = NULL;
    options.allocator = test_allocator();
    options.schedule = schedule;
    options.stages = stages;
    options.workers = workers;
    options.micro_batches = micro_batches;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    EXPECT_STATUS(weir_table_new(&options, NULL, &table), WEIR_OK);
    return table;
}

static struct weir_table *parsed(const char *text) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table = NULL;
    options.allocator = test_allocator();
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.stages = options.micro_batches = 0;
    EXPECT_STATUS(weir_table_parse(&options, text, strlen(text), NULL, NULL, &table), WEIR_OK);
    return table;
}

static struct weir_simulate_options options_of(const struct weir_table *table) {
    struct weir_simulate_options options = WEIR_SIMULATE_OPTIONS_INIT;
    options.table = table;
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) options.kind_seconds[k] = 1.0;
    options.kind_seconds[WEIR_KIND_B] = 2.0;
    return options;
}

static struct weir_simulator *simulator_new(void) {
    struct weir_simulator *simulator = NULL;
    EXPECT_STATUS(weir_simulator_new(test_allocator(), &simulator), WEIR_OK);
    return simulator;
}

/* ---- closed forms ---- */

static void test_bubbles_of_gpipe_and_1f1b_are_the_papers(void) {
    static const char *const schedules[] = {"gpipe", "1f1b"};
    struct weir_simulator *simulator = simulator_new();
    for (uint32_t i = 0; i < 2 * 5 * 6; i++) {
        uint32_t p = 1 + i / 2 % 5, m = 1 + i / 10 * 3;
        struct weir_prediction prediction;
        struct weir_table *table = table_of(schedules[i % 2], p, 0, m);
        struct weir_simulate_options options = options_of(table);
        EXPECT_STATUS(weir_simulate(simulator, &options, NULL, &prediction), WEIR_OK);
        EXPECT_NEAR(prediction.bubble, (p - 1.0) / (m + p - 1.0), 1e-12);
        EXPECT_NEAR(prediction.step, 3.0 * (m + p - 1.0), 0.0);
        EXPECT_NEAR(prediction.total, prediction.step + 1.0, 0.0); /* U */
        for (uint32_t s = 0; s < p; s++) {
            uint64_t most = i % 2 == 0 || m < p - s ? m : p - s;
            EXPECT_EQ_UINT(prediction.workers[s].peak_activations, most);
        }
        weir_table_destroy(table);
    }
    weir_simulator_destroy(simulator);
}

/* Each crossing on the way forth and back shows once under GPipe. */
static void test_copies_and_host_time_stand_where_they_belong(void) {
    struct weir_simulator *simulator = simulator_new();
    struct weir_table *table = table_of("gpipe", 4, 0, 8);
    struct weir_simulate_options options = options_of(table);
    static const uint64_t bytes[] = {100, 200, 300};
    struct weir_prediction prediction;
    options.link = (struct weir_link_cost){0.125, 0x1p-10};
    options.border_bytes = bytes;
    CHECK_OK(weir_simulate(simulator, &options, NULL, &prediction));
    EXPECT_NEAR(prediction.step, 3.0 * 11 + 2 * (3 * 0.125 + 600 * 0x1p-10), 1e-12);
    EXPECT_EQ_UINT(prediction.moved_bytes, 2 * 8 * 600);
    EXPECT_EQ_UINT(prediction.transfers, 2 * 8 * 3);
    options.link = (struct weir_link_cost){0.0, 0.0};
    options.host_seconds = 0.5; /* before each of the 22 actions of the longest chain but the first
                                   one */
    CHECK_OK(weir_simulate(simulator, &options, NULL, &prediction));
    EXPECT_NEAR(prediction.step, 3.0 * 11 + 21 * 0.5, 1e-12);
    weir_table_destroy(table);
    weir_simulator_destroy(simulator);
}

static void test_noise_depends_on_its_seed_and_stays_within_bounds(void) {
    struct weir_simulator *simulator = simulator_new();
    struct weir_table *table = table_of("1f1b", 4, 0, 8);
    struct weir_simulate_options options = options_of(table);
    struct weir_prediction prediction;
    double steps[3];
    options.noise = 0.1;
    options.want_actions = true;
    for (uint32_t i = 0; i < 3; i++) {
        options.seed = i / 2; /* 0, 0, 1 */
        CHECK_OK(weir_simulate(simulator, &options, NULL, &prediction));
        steps[i] = prediction.step;
        EXPECT(fabs(prediction.step / 33.0 - 1.0) < 0.1);
        for (uint32_t a = 0; a < table->action_count; a++) {
            double seconds = prediction.end[a] - prediction.start[a];
            double wanted = options.kind_seconds[table->actions[a].kind];
            EXPECT(seconds >= wanted * 0.9 - 1e-9 && seconds <= wanted * 1.1 + 1e-9);
        }
    }
    EXPECT_NEAR(steps[0], steps[1], 0.0);
    EXPECT(fabs(steps[0] - steps[2]) > 1e-6);
    weir_table_destroy(table);
    weir_simulator_destroy(simulator);
}

static void test_smaller_micro_batches_take_less_time(void) {
    static const double scale[] = {1.0, 1.0, 0.5};
    struct weir_simulator *simulator = simulator_new();
    struct weir_table *table = table_of("gpipe", 1, 0, 3);
    struct weir_simulate_options options = options_of(table);
    struct weir_prediction prediction;
    options.micro_batch_scale = scale;
    CHECK_OK(weir_simulate(simulator, &options, NULL, &prediction));
    EXPECT_NEAR(prediction.step, 7.5, 0.0);
    weir_table_destroy(table);
    weir_simulator_destroy(simulator);
}

/* The last stage is on the faster machine: 33 where all are alike. */
static void test_a_worker_takes_as_long_as_its_pace_says(void) {
    static const double paces[] = {1.0, 1.0, 1.0, 0.5}, none[] = {1.0, 1.0, -1.0, 1.0};
    struct weir_simulator *simulator = simulator_new();
    struct weir_table *table = table_of("1f1b", 4, 0, 8);
    struct weir_simulate_options options = options_of(table);
    struct weir_prediction prediction;
    options.worker_paces = paces;
    CHECK_OK(weir_simulate(simulator, &options, NULL, &prediction));
    EXPECT_NEAR(prediction.step, 30.5, 0.0);
    EXPECT_NEAR(prediction.workers[3].busy, 12.0, 0.0);
    EXPECT_NEAR(prediction.workers[2].busy, 24.0, 0.0);
    options.worker_paces = none;
    CHECK_STATUS(weir_simulate(simulator, &options, NULL, &prediction), WEIR_ERR_ARGUMENT);
    weir_table_destroy(table);
    weir_simulator_destroy(simulator);
}

/* ---- what skips move ---- */

/* How many values of skips go to another worker per micro-batch. */
static uint32_t skip_copies(const struct weir_table *table, const struct weir_skip_route *skips,
                            uint32_t count, uint64_t *moved) {
    struct weir_simulator *simulator = simulator_new();
    struct weir_simulate_options options = options_of(table);
    struct weir_prediction prediction = {0};
    options.skips = skips;
    options.skip_count = count;
    EXPECT_STATUS(weir_simulate(simulator, &options, NULL, &prediction), WEIR_OK);
    weir_simulator_destroy(simulator);
    if (moved != NULL) *moved = prediction.moved_bytes;
    return prediction.skip_copies;
}

/* Block attention residuals: the sum of each finished block is read by every later stage. If each
 * stage passes all on, a block crosses every border behind it. arXiv 2603.15031, 8 blocks. */
static void test_many_reader_skips_cross_once_per_worker(void) {
    static const struct {
        uint32_t workers, each, naive, once;
    } cases[] = {{4, 2, 28, 18}, {4, 4, 56, 20}, {8, 4, 112, 46}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        uint32_t stages = cases[c].workers * cases[c].each, naive = 0;
        uint32_t readers[8][32];
        struct weir_skip_route skips[8];
        for (uint32_t b = 0; b < 8; b++) {
            uint32_t source = (b + 1) * (stages / 8) - 1; /* where the block ends */
            skips[b] = (struct weir_skip_route){.source = source, .readers = readers[b]};
            for (uint32_t s = source + 1; s < stages; s++) readers[b][skips[b].reader_count++] = s;
            naive += stages - 1 - source;
        }
        struct weir_table *table = table_of("gpipe", stages, cases[c].workers, 4);
        uint32_t once = skip_copies(table, skips, 7, NULL); /* nobody is behind the last one */
        printf("%u workers x %u stages: %u block transfers, %u with one per worker\n",
               cases[c].workers, cases[c].each, naive, once);
        EXPECT_EQ_UINT(naive, cases[c].naive);
        EXPECT_EQ_UINT(once, cases[c].once);
        weir_table_destroy(table);
    }
}

/* A text with each stage's F and B on the worker that `worker_of` says. */
static struct weir_table *placed(const uint32_t *worker_of, uint32_t stages, uint32_t workers) {
    char text[1024] = "";
    for (uint32_t w = 0; w < workers; w++) {
        size_t used;
        for (uint32_t s = 0; s < stages; s++)
            if (used = strlen(text), worker_of[s] == w)
                snprintf(text + used, sizeof text - used, "%uF0,", s);
        for (uint32_t s = stages; s-- > 0;)
            if (used = strlen(text), worker_of[s] == w)
                snprintf(text + used, sizeof text - used, "%uB0,", s);
        strcat(text, "\n");
    }
    return parsed(text);
}

/* A U-Net of 32 layers with 16 skips, layer i to layer 31 - i, over 4 workers of two stages. */
static void test_a_unet_folded_in_a_v_needs_no_portal_between_workers(void) {
    static const uint32_t loop[] = {0, 1, 2, 3, 0, 1, 2, 3}, fold[] = {0, 1, 2, 3, 3, 2, 1, 0};
    struct weir_skip_route skips[16];
    uint32_t readers[16];
    uint64_t moved[2];
    for (uint32_t i = 0; i < 16; i++) {
        readers[i] = (31 - i) / 4;
        skips[i] = (struct weir_skip_route){i / 4, 1, &readers[i], 100, true};
    }
    struct weir_table *loop_table = placed(loop, 8, 4), *fold_table = placed(fold, 8, 4);
    uint32_t in_loop = skip_copies(loop_table, skips, 16, &moved[0]);
    uint32_t in_v = skip_copies(fold_table, skips, 16, &moved[1]);
    printf("U-Net, 32 layers, 16 skips, 4 workers: %u portals cross in loop order, %u in V order\n",
           in_loop, in_v);
    EXPECT_EQ_UINT(in_loop, 16);
    EXPECT_EQ_UINT(in_v, 0);
    EXPECT_EQ_UINT(moved[0], 2 * 16 * 100); /* and the gradients back */
    EXPECT_EQ_UINT(moved[1], 0);
    weir_table_destroy(loop_table);
    weir_table_destroy(fold_table);
}

/* ---- what cannot be ---- */

static void test_costs_that_cannot_be_are_named(void) {
    static const uint32_t wrong[] = {1, 1};
    static const uint32_t order_begin[3 * 9 + 1] = {0, 1}; /* then fewer */
    struct weir_simulator *simulator = simulator_new();
    struct weir_table *table = table_of("1f1b", 3, 0, 4);
    struct weir_simulate_options options = options_of(table);
    struct weir_skip_route skip = {0, 2, wrong, 1, true};
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_prediction prediction;
    options.kind_seconds[WEIR_KIND_F] = -1.0;
    options.host_seconds = NAN;
    options.noise = 2.0;
    options.link.latency = INFINITY;
    options.skips = &skip;
    options.skip_count = 1;
    options.order_begin = order_begin;
    EXPECT_STATUS(weir_simulate(simulator, &options, &faults, &prediction), WEIR_ERR_ARGUMENT);
    EXPECT_FAULTS(&faults, "the time of kind 0 is -1", "the host's time 0 is nan", "a noise of 2",
                  "a link of inf s", "skip 0: its readers must be stages after its source",
                  "the orders do not name the table's 27 actions");
    EXPECT_STATUS(weir_simulate(simulator, &options, NULL, &prediction), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_simulate(simulator, NULL, NULL, &prediction), WEIR_ERR_ARGUMENT);
    options = options_of(table);
    options.skip_count = 1;
    EXPECT_STATUS(weir_simulate(simulator, &options, &faults, &prediction), WEIR_ERR_ARGUMENT);
    if (EXPECT_EQ_UINT(faults.kept, 7))
        EXPECT_CONTAINS(faults.lines[6], "skip_count is 1 but skips is NULL");
    options.table = NULL;
    EXPECT_STATUS(weir_simulate(simulator, &options, NULL, &prediction), WEIR_ERR_ARGUMENT);
    weir_faults_clean_up(&faults);
    weir_table_destroy(table);
    weir_simulator_destroy(simulator);
}

static void test_tables_that_cannot_run_are_refused(void) {
    static const char *const texts[] = {
        "0B0,0F0\n",                          /* backward before forward */
        "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", /* a wait in a circle */
        "0F0,0F0,0B0\n",                      /* twice */
        "0F0\n0B0\n",                         /* in two rows */
        "0F0,0W0,0I0\n",                      /* W before its I */
    };
    struct weir_simulator *simulator = simulator_new();
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct weir_table *table = parsed(texts[i]);
        struct weir_simulate_options options = options_of(table);
        struct weir_prediction prediction;
        EXPECT_STATUS(weir_simulate(simulator, &options, NULL, &prediction), WEIR_ERR_SCHEDULE);
        weir_table_destroy(table);
    }
    weir_simulator_destroy(simulator);
}

/* ---- memory ---- */

static void test_a_simulator_allocates_only_to_grow(void) {
    struct weir_simulator *simulator = simulator_new();
    struct weir_table *large = table_of("1f1b", 4, 0, 16), *small = table_of("gpipe", 3, 0, 5);
    struct weir_simulate_options options = options_of(large);
    struct weir_prediction prediction;
    CHECK_OK(weir_simulate(simulator, &options, NULL, &prediction));
    uint64_t before = test_allocator_count();
    options.table = small;
    CHECK_OK(weir_simulate(simulator, &options, NULL, &prediction));
    options.table = large;
    CHECK_OK(weir_simulate(simulator, &options, NULL, &prediction));
    EXPECT_NEAR(prediction.step, 3.0 * 19, 0.0);
    EXPECT_EQ_UINT(test_allocator_count(), before);
    weir_table_destroy(large);
    weir_table_destroy(small);
    weir_simulator_destroy(simulator);
}

static void test_running_out_of_memory_leaves_nothing_behind(void) {
    struct weir_table *table = table_of("1f1b", 2, 0, 4);
    struct weir_simulate_options options = options_of(table);
    bool fired = true;
    for (uint64_t k = 1; fired; k++) {
        struct weir_simulator *simulator = NULL;
        struct weir_prediction prediction;
        test_allocator_fail_at(k, false);
        int status = weir_simulator_new(test_allocator(), &simulator);
        if (status == WEIR_OK) status = weir_simulate(simulator, &options, NULL, &prediction);
        fired = test_allocator_fired();
        EXPECT_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        weir_simulator_destroy(simulator);
    }
    test_allocator_fail_at(0, false);
    weir_table_destroy(table);
}

WEIR_TEST_SUITE(simulate, TEST(bubbles_of_gpipe_and_1f1b_are_the_papers),
                TEST(copies_and_host_time_stand_where_they_belong),
                TEST(noise_depends_on_its_seed_and_stays_within_bounds),
                TEST(smaller_micro_batches_take_less_time),
                TEST(a_worker_takes_as_long_as_its_pace_says),
                TEST(many_reader_skips_cross_once_per_worker),
                TEST(a_unet_folded_in_a_v_needs_no_portal_between_workers),
                TEST(costs_that_cannot_be_are_named), TEST(tables_that_cannot_run_are_refused),
                TEST(a_simulator_allocates_only_to_grow),
                TEST(running_out_of_memory_leaves_nothing_behind))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: the simulator gives what formulas and papers say, and on any table what a simulation
 * written another way gives.
 * Method: closed forms for equal times.
 */
#include "harness.h"

#include "weir_simulate.h"

static struct weir_table *table_of(const char *schedule, uint32_t stages, uint32_t micro_batches) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table = NULL;
    options.allocator = test_allocator();
    options.schedule = schedule;
    options.stages = stages;
    options.micro_batches = micro_batches;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    EXPECT_STATUS(weir_table_new(&options, NULL, &table), WEIR_OK);
    return table;
}

static void test_bubbles_of_gpipe_and_1f1b_are_the_papers(void) {
    static const char *const schedules[] = {"gpipe", "1f1b"};
    struct weir_simulator *simulator;
    CHECK_OK(weir_simulator_new(test_allocator(), &simulator));
    for (uint32_t i = 0; i < 2 * 5 * 6; i++) {
        uint32_t p = 1 + i / 2 % 5, m = 1 + i / 10 * 3;
        struct weir_simulate_options options = WEIR_SIMULATE_OPTIONS_INIT;
        struct weir_prediction prediction;
        struct weir_table *table = table_of(schedules[i % 2], p, m);
        options.table = table;
        options.kind_seconds[WEIR_KIND_F] = 1.0;
        options.kind_seconds[WEIR_KIND_B] = 2.0;
        EXPECT_STATUS(weir_simulate(simulator, &options, NULL, &prediction), WEIR_OK);
        EXPECT_NEAR(prediction.bubble, (p - 1.0) / (m + p - 1.0), 1e-12);
        EXPECT_NEAR(prediction.step, 3.0 * (m + p - 1.0), 0.0);
        for (uint32_t s = 0; s < p; s++) {
            uint64_t most = i % 2 == 0 || m < p - s ? m : p - s;
            EXPECT_EQ_UINT(prediction.workers[s].peak_activations, most);
        }
        weir_table_destroy(table);
    }
    weir_simulator_destroy(simulator);
}

WEIR_TEST_SUITE(simulate, TEST(bubbles_of_gpipe_and_1f1b_are_the_papers))

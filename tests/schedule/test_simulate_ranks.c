/* SPDX-License-Identifier: MIT */
/*
 * Goal: the simulator gives messages between ranks the time that links and their queues take, gives
 * the bubbles that were published with the times that were published, and does so for a thousand
 * ranks within a minute. Method: closed forms; the paper's own table; the processor's time. That
 * queues are right for any table is test_simulate_random.c's.
 */
#include "harness.h"

#include "weir_predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static struct weir_simulate_options options_of(const struct weir_table *table) {
    struct weir_simulate_options options = WEIR_SIMULATE_OPTIONS_INIT;
    options.table = table;
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) options.kind_seconds[k] = 1.0;
    return options;
}

static double step_of(const struct weir_simulate_options *options) {
    struct weir_simulator *simulator = NULL;
    struct weir_prediction prediction = {0};
    EXPECT_STATUS(weir_simulator_new(test_allocator(), &simulator), WEIR_OK);
    EXPECT_STATUS(weir_simulate(simulator, options, NULL, &prediction), WEIR_OK);
    weir_simulator_destroy(simulator);
    return prediction.step;
}

/* Tasks of 1, messages of 2: eight of them leave one after the other, forth and back. */
static void test_messages_of_a_link_wait_for_each_other(void) {
    static const uint64_t bytes[] = {1};
    const struct weir_link_cost costs[] = {{0}, {0.25, 2.0}, {0.5, 2.0}, {0}};
    const struct weir_rank_links ranks = {.rank_count = 2, .costs = costs};
    struct weir_table *table = table_of("gpipe", 2, 2, 8);
    struct weir_simulate_options options = options_of(table);
    options.border_bytes = bytes;
    options.link = (struct weir_link_cost){100.0, 100.0}; /* nothing crosses within a rank */
    options.ranks = &ranks;
    EXPECT_NEAR(step_of(&options), 1 + 8 * 2 + 0.25 + 1 + 1 + 8 * 2 + 0.5 + 1, 1e-12);
    options.ranks = NULL;
    options.link = costs[1]; /* as many crossings by themselves: no one waits */
    EXPECT_NEAR(step_of(&options), 8 + 2.25 + 1 + 8 + 2.25 + 1, 1e-12);
    weir_table_destroy(table);
}

/* Four ranks in a row: 0 and 1 send at one time, 0 to 1 within their host, 1 to 2 between two. */
static void test_ranks_share_their_hosts_way_out(void) {
    static const uint64_t bytes[] = {1, 1, 1};
    static const uint32_t pairs[] = {0, 0, 1, 1}, turns[] = {0, 1, 0, 1};
    struct weir_link_cost costs[16];
    struct weir_rank_links ranks = {.rank_count = 4, .costs = costs};
    struct weir_table *table = table_of("gpipe", 4, 4, 8);
    struct weir_simulate_options options = options_of(table);
    for (uint32_t i = 0; i < 16; i++) costs[i] = (struct weir_link_cost){0.0, 1.0};
    options.border_bytes = bytes;
    options.ranks = &ranks;
    double apart = step_of(&options);
    ranks.hosts = pairs; /* one of three crossings leaves a host */
    EXPECT_NEAR(step_of(&options), apart, 1e-12);
    ranks.hosts = turns; /* all do, and 0 shares its way out with 2 */
    EXPECT(step_of(&options) > apart + 4.0);
    weir_table_destroy(table);
}

static void test_links_that_cannot_be_are_named(void) {
    struct weir_link_cost costs[4] = {{0}, {0.0, NAN}, {1.0, 1.0}, {0}};
    static const uint32_t hosts[] = {0, 2};
    struct weir_rank_links ranks = {.rank_count = 2, .costs = costs, .hosts = hosts};
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_table *table = table_of("1f1b", 2, 2, 4);
    struct weir_simulate_options options = options_of(table);
    struct weir_simulator *simulator = NULL;
    struct weir_prediction prediction;
    CHECK_OK(weir_simulator_new(test_allocator(), &simulator));
    options.ranks = &ranks;
    EXPECT_STATUS(weir_simulate(simulator, &options, &faults, &prediction), WEIR_ERR_ARGUMENT);
    EXPECT_FAULTS(&faults, "rank 1 is on host 2 of 2 ranks",
                  "the link from rank 0 to 1 takes 0 s and nan s per byte");
    ranks.rank_count = 3;
    EXPECT_STATUS(weir_simulate(simulator, &options, &faults, &prediction), WEIR_ERR_ARGUMENT);
    if (EXPECT_EQ_UINT(faults.kept, 3))
        EXPECT_CONTAINS(faults.lines[2], "links of 3 ranks for 2 workers");
    weir_faults_clean_up(&faults);
    weir_simulator_destroy(simulator);
    weir_table_destroy(table);
}

/* ---- published ---- */

/* Qi et al., "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241): of the model of 1.5 billion
 * parameters, 8 GPUs and 24 micro-batches, the profiled times in milliseconds, and the bubble rates
 * of its schedules. The interleaved one cuts a worker's layers in three; B there is our I, and B
 * and W together our B. A rank per worker: a message's time is all latency. */
static void test_bubbles_of_zero_bubble_are_the_papers(void) {
    static const struct {
        const char *schedule;
        uint32_t each;
        double bubble;
    } published[] = {
        {"1f1b", 1, 0.243}, {"interleaved", 3, 0.106}, {"zb-h1", 1, 0.159}, {"zb-h2", 1, 0.108}};
    enum { WORKERS = 8, MICRO_BATCHES = 24 };
    struct weir_link_cost costs[WORKERS * WORKERS];
    const struct weir_rank_links ranks = {.rank_count = WORKERS, .costs = costs};
    for (uint32_t i = 0; i < WORKERS * WORKERS; i++)
        costs[i] = (struct weir_link_cost){.latency = 0.601};
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        uint32_t each = published[i].each;
        struct weir_table *table =
            table_of(published[i].schedule, WORKERS * each, WORKERS, MICRO_BATCHES);
        struct weir_simulate_options options = options_of(table);
        options.kind_seconds[WEIR_KIND_F] = 18.522 / each;
        options.kind_seconds[WEIR_KIND_I] = 18.086 / each;
        options.kind_seconds[WEIR_KIND_W] = 9.337 / each;
        options.kind_seconds[WEIR_KIND_B] = (18.086 + 9.337) / each;
        options.ranks = &ranks;
        double work = MICRO_BATCHES * (18.522 + 18.086 + 9.337);
        EXPECT_NEAR(1.0 - work / step_of(&options), published[i].bubble, 0.01);
        weir_table_destroy(table);
    }
}

/* ---- a thousand ranks ---- */

enum { RANKS = 1024, RANK_WORKERS = 8, SECONDS_MOST = 60 };

static void test_a_thousand_ranks_take_less_than_a_minute(void) {
    uint32_t workers = RANKS * RANK_WORKERS, micro_batches = test_is_sanitized() ? 16 : 256;
    struct weir_link_cost *costs = calloc((size_t)RANKS * RANKS, sizeof *costs);
    uint64_t *bytes = calloc(workers, sizeof *bytes);
    clock_t begin = clock();
    CHECK(costs != NULL && bytes != NULL);
    for (uint32_t i = 0; i < RANKS * RANKS; i++) costs[i] = (struct weir_link_cost){0.01, 0.5e-6};
    for (uint32_t s = 0; s < workers; s++) bytes[s] = 1000000;
    const struct weir_rank_links ranks = {.rank_count = RANKS, .costs = costs};
    struct weir_table *table = table_of("1f1b", workers, workers, micro_batches);
    struct weir_simulate_options options = options_of(table);
    options.border_bytes = bytes;
    options.ranks = &ranks;
    options.kind_seconds[WEIR_KIND_B] = 2.0;
    /* the fill and the drain cross each link between ranks once, and so does every round */
    double fill = (RANKS - 1) * 0.51, least = 3.0 * (workers + micro_batches - 1.0) + 2.0 * fill;
    double step = step_of(&options);
    EXPECT(step >= least - 1e-6);
    EXPECT(step <= least + micro_batches * 2.0 * 0.51);
    EXPECT((double)(clock() - begin) / CLOCKS_PER_SEC <= SECONDS_MOST);
    weir_table_destroy(table);
    free(bytes);
    free(costs);
}

WEIR_TEST_SUITE(simulate_ranks, TEST(messages_of_a_link_wait_for_each_other),
                TEST(ranks_share_their_hosts_way_out), TEST(links_that_cannot_be_are_named),
                TEST(bubbles_of_zero_bubble_are_the_papers),
                TEST(a_thousand_ranks_take_less_than_a_minute))

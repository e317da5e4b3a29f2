/* SPDX-License-Identifier: MIT */
/*
 * Goal: the simulator gives messages between ranks the time that links and their queues take, gives
 * the bubbles that were published with the times that were published, and does so for a thousand
 * ranks within a minute. Method: closed forms; the paper's own table; the processor's time. That
 * queues are right for any table is test_simulate_random.c's.
 */
#include "harness.h"

#include "schedule/schedule_facts.h"
#include "weir_shared.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct weir_table *table_of(const char *schedule, uint32_t stages, uint32_t workers,
                                   uint32_t micro_batches) {
    const struct schedule_counts counts = {stages, workers, micro_batches};
    return schedule_table(schedule, counts, WEIR_CHECKPOINT_NEVER);
}

static struct weir_simulate_options options_of(const struct weir_table *table) {
    struct weir_simulate_options options = WEIR_SIMULATE_OPTIONS_INIT;
    options.table = table;
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) options.kind_seconds[k] = 1.0;
    return options;
}

static struct weir_prediction predict(const struct weir_simulate_options *options) {
    struct weir_simulator *simulator = NULL;
    struct weir_prediction prediction = {0};
    EXPECT_STATUS(weir_simulator_new(test_allocator(), &simulator), WEIR_OK);
    EXPECT_STATUS(weir_simulate(simulator, options, NULL, &prediction), WEIR_OK);
    weir_simulator_destroy(simulator);
    prediction.workers = NULL; /* the simulator's */
    return prediction;
}

static double step_of(const struct weir_simulate_options *options) {
    return predict(options).step;
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

/* ---- replicas ---- */

enum { BLOCK = WEIR_SLICE_BLOCK };

/* Two replicas of two ranks, a stage each, whose slices take 1 + 0.25 from rank to rank. */
static void test_slices_of_gradients_and_parameters_are_waited_for(void) {
    static const uint64_t gradients[] = {2 * BLOCK, 2 * BLOCK};
    struct weir_link_cost costs[16];
    struct weir_rank_links ranks = {.rank_count = 4, .costs = costs};
    struct weir_shared_costs shared = {.replicas = 2,
                                       .groups = 1,
                                       .gradient_bytes = gradients,
                                       .add_seconds_per_byte = 0.25 / BLOCK};
    struct weir_table *table = table_of("gpipe", 2, 2, 1);
    struct weir_simulate_options options = options_of(table);
    for (uint32_t i = 0; i < 16; i++) costs[i] = (struct weir_link_cost){0.25, 1.0 / BLOCK};
    options.kind_seconds[WEIR_KIND_N] = 0.5;
    options.kind_seconds[WEIR_KIND_U] = 2.0;
    options.shared = &shared;
    options.ranks = &ranks;
    struct weir_prediction prediction = predict(&options);
    double backward = 2 * 0.25 + 4.0, norm = backward + 1.25 + 0.25 + 0.5;
    EXPECT_NEAR(prediction.step, backward, 1e-12);
    EXPECT_NEAR(prediction.total, norm + 2.0 / 2 + 1.25, 1e-12);
    EXPECT_EQ_UINT(prediction.moved_bytes, 8 * BLOCK);
    EXPECT_EQ_UINT(prediction.transfers, 12);
    /* one way out: of the last stages, whose slices go at one time, then of the first */
    static const uint32_t hosts[] = {0, 1, 0, 1};
    ranks.hosts = hosts;
    for (uint32_t r = 0; r < 4; r++)
        costs[r * 4 + (r ^ 2)].seconds_per_byte = 0.0; /* replicas meet within a host */
    prediction = predict(&options);
    EXPECT_NEAR(prediction.total, norm - 1.0 + 2.0 / 2 + 0.25, 1e-12);
    shared.replicas = 3;
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_simulator *simulator = NULL;
    CHECK_OK(weir_simulator_new(test_allocator(), &simulator));
    shared.groups = 2;
    EXPECT_STATUS(weir_simulate(simulator, &options, &faults, &prediction), WEIR_ERR_ARGUMENT);
    EXPECT_FAULTS(&faults, "1 micro-batch cannot be 2 groups", "3 replicas do not divide 4 ranks");
    weir_faults_clean_up(&faults);
    weir_simulator_destroy(simulator);
    weir_table_destroy(table);
}

/* Four groups of a micro-batch: the sums of two, and the one under way, beside the first. */
static void test_sums_of_groups_take_memory_and_time(void) {
    static const uint64_t gradients[] = {BLOCK};
    struct weir_shared_costs shared = {.replicas = 1,
                                       .groups = 4,
                                       .gradient_bytes = gradients,
                                       .add_seconds_per_byte = 0.5 / BLOCK};
    struct weir_table *table = table_of("1f1b", 1, 1, 4);
    struct weir_simulate_options options = options_of(table);
    struct weir_simulator *simulator = NULL;
    struct weir_prediction prediction;
    options.shared = &shared;
    CHECK_OK(weir_simulator_new(test_allocator(), &simulator));
    CHECK_OK(weir_simulate(simulator, &options, NULL, &prediction));
    EXPECT_NEAR(prediction.step, 4 * 2.0 + 3 * 0.5, 1e-12);
    EXPECT_EQ_UINT(prediction.workers[0].peak_bytes, 2 * BLOCK);
    weir_simulator_destroy(simulator);
    weir_table_destroy(table);
}

/* ---- published ---- */

/* Qi et al., "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241): of its four models the profiled
 * times in milliseconds (table 9) and the bubble rates that its schedules have with them (table 5).
 * A rate is of the cost, the longest window of a worker. The interleaved schedule cuts a worker's
 * layers one by one, of which the models have as many as `layers`; its rates are the only ones that
 * differ from ours, by up to 0.4 points. B there is our I, and B and W together our B. A rank per
 * worker: a message's time is all latency. */
static const struct published {
    uint32_t workers, micro_batches, layers;
    double f, i, w, message;
    double bubbles[4];
} published[] = {
    {8, 24, 3, 18.522, 18.086, 9.337, 0.601, {0.2431, 0.1055, 0.1585, 0.1083}},
    {8, 32, 3, 18.513, 18.086, 9.331, 0.626, {0.1985, 0.0818, 0.1242, 0.0837}},
    {8, 64, 3, 18.546, 18.097, 9.321, 0.762, {0.1240, 0.0443, 0.0674, 0.0444}},
    {8, 24, 4, 29.718, 29.444, 19.927, 0.527, {0.2347, 0.0808, 0.1323, 0.0698}},
    {8, 32, 4, 29.802, 29.428, 19.530, 0.577, {0.1898, 0.0628, 0.1045, 0.0559}},
    {8, 64, 4, 29.935, 29.621, 19.388, 0.535, {0.1091, 0.0320, 0.0554, 0.0294}},
    {16, 48, 3, 11.347, 11.248, 8.132, 0.377, {0.2552, 0.1104, 0.1397, 0.0672}},
    {16, 64, 3, 11.307, 11.254, 8.101, 0.379, {0.2082, 0.0852, 0.1088, 0.0516}},
    {16, 128, 3, 11.325, 11.308, 8.109, 0.378, {0.1251, 0.0445, 0.0576, 0.0266}},
    {32, 96, 2, 10.419, 10.207, 7.715, 0.408, {0.2646, 0.1493, 0.1421, 0.0641}},
    {32, 128, 2, 10.408, 10.204, 7.703, 0.408, {0.2168, 0.1164, 0.1106, 0.0490}},
    {32, 256, 2, 10.402, 10.248, 7.698, 0.460, {0.1352, 0.0624, 0.0594, 0.0257}},
};

static double longest_window(const struct weir_simulate_options *options) {
    struct weir_simulator *simulator = NULL;
    struct weir_prediction prediction = {0};
    double longest = 0.0;
    EXPECT_STATUS(weir_simulator_new(test_allocator(), &simulator), WEIR_OK);
    EXPECT_STATUS(weir_simulate(simulator, options, NULL, &prediction), WEIR_OK);
    for (uint32_t w = 0; w < prediction.worker_count; w++)
        longest = fmax(longest, prediction.workers[w].window);
    weir_simulator_destroy(simulator);
    return longest;
}

static double bubble_of(const struct published *of, const char *schedule, uint32_t each) {
    struct weir_link_cost costs[32 * 32];
    const struct weir_rank_links ranks = {.rank_count = of->workers, .costs = costs};
    struct weir_table *table =
        table_of(schedule, of->workers * each, of->workers, of->micro_batches);
    struct weir_simulate_options options = options_of(table);
    for (uint32_t i = 0; i < of->workers * of->workers; i++)
        costs[i] = (struct weir_link_cost){.latency = of->message};
    options.kind_seconds[WEIR_KIND_F] = of->f / each;
    options.kind_seconds[WEIR_KIND_I] = of->i / each;
    options.kind_seconds[WEIR_KIND_W] = of->w / each;
    options.kind_seconds[WEIR_KIND_B] = (of->i + of->w) / each;
    options.ranks = &ranks;
    double work = of->micro_batches * (of->f + of->i + of->w);
    double bubble = 1.0 - work / longest_window(&options);
    weir_table_destroy(table);
    return bubble;
}

static void test_bubbles_of_zero_bubble_are_the_papers(void) {
    static const char *const schedules[] = {"1f1b", "interleaved", "zb-h1", "zb-h2"};
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++)
        for (size_t k = 0; k < 4; k++) {
            double bubble =
                bubble_of(&published[i], schedules[k], k == 1 ? published[i].layers : 1);
            EXPECT_NEAR(bubble, published[i].bubbles[k], k == 1 ? 0.004 : 0.0001);
        }
}

/* ---- a thousand ranks ---- */

enum { RANKS = 1024, RANK_WORKERS = 8, SECONDS_MOST = 60 };

/* The fill and the drain cross each link between ranks once, and so does every round. */
static void check_thousand_ranks(uint32_t replicas) {
    uint32_t each = RANKS / replicas, workers = each * RANK_WORKERS;
    uint32_t micro_batches = test_is_sanitized() ? 16 : 256;
    struct weir_link_cost *costs = calloc((size_t)RANKS * RANKS, sizeof *costs);
    uint64_t *bytes = calloc(workers, sizeof *bytes);
    CHECK(costs != NULL && bytes != NULL);
    for (uint32_t i = 0; i < RANKS * RANKS; i++) costs[i] = (struct weir_link_cost){0.01, 0.5e-6};
    for (uint32_t s = 0; s < workers; s++) bytes[s] = 1000000;
    const struct weir_rank_links ranks = {.rank_count = RANKS, .costs = costs};
    const struct weir_shared_costs shared = {
        .replicas = replicas, .groups = 1, .gradient_bytes = bytes};
    struct weir_table *table = table_of("1f1b", workers, workers, micro_batches);
    struct weir_simulate_options options = options_of(table);
    options.border_bytes = bytes;
    options.ranks = &ranks;
    options.shared = &shared;
    options.kind_seconds[WEIR_KIND_B] = 2.0;
    double fill = (each - 1) * 0.51, least = 3.0 * (workers + micro_batches - 1.0) + 2.0 * fill;
    struct weir_prediction prediction = predict(&options);
    EXPECT(prediction.step >= least - 1e-6);
    EXPECT(prediction.step <= least + micro_batches * 2.0 * 0.51);
    EXPECT(prediction.total >= prediction.step + (replicas > 1 ? 2 * 0.01 : 0.0));
    weir_table_destroy(table);
    free(bytes);
    free(costs);
}

static void test_a_thousand_ranks_take_less_than_a_minute(void) {
    for (uint32_t replicas = 1; replicas <= 8; replicas *= 8) {
        clock_t begin = clock();
        check_thousand_ranks(replicas);
        EXPECT((double)(clock() - begin) / CLOCKS_PER_SEC <= SECONDS_MOST);
    }
}

WEIR_TEST_SUITE(simulate_ranks, TEST(messages_of_a_link_wait_for_each_other),
                TEST(ranks_share_their_hosts_way_out), TEST(links_that_cannot_be_are_named),
                TEST(slices_of_gradients_and_parameters_are_waited_for),
                TEST(sums_of_groups_take_memory_and_time),
                TEST(bubbles_of_zero_bubble_are_the_papers),
                TEST(a_thousand_ranks_take_less_than_a_minute))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: a net's pipeline is searched over numbers of micro-batches that its rows make, with times
 * that follow from those that are known, and memory to the byte; of small models the fastest that
 * fits and the least limit are found. Method: small models, times that the test fills in or checks
 * against the line between two profiles; the chosen net is planned again; every pipeline of a small
 * space is made here, one by one.
 */
#include "harness.h"
#include "net/profiles.h"
#include "weir_profile.h"

#include "pipe/describe/microbatch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 16 };

/* ---- numbers ---- */

static void expect_counts(int64_t rows, uint32_t chunks, uint32_t workers, const char *expected) {
    struct weir_net_options net = WEIR_NET_OPTIONS_INIT;
    uint32_t counts[WEIR_NET_CHUNKS_MOST];
    char text[64] = "";
    net.pipe.rows = rows;
    net.pipe.chunks = chunks;
    net.pipe.workers = workers;
    uint32_t count = weir_net_chunks(&net, counts);
    for (uint32_t i = 0; i < count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%u", i > 0 ? " " : "", counts[i]);
        EXPECT_EQ_UINT(weir__chunk_count(rows, counts[i]), counts[i]);
    }
    EXPECT_EQ_STR(text, expected);
}

static void test_counts_are_divisors_about_the_workers(void) {
    expect_counts(32, 8, 2, "1 2 4 16 32");
    expect_counts(32, 5, 2, "1 2 4 8 16 32"); /* 5 of 7 rows, the last of 4 */
    expect_counts(12, 8, 2, "1 2 4 12");      /* 6 of 2 rows */
    expect_counts(31, 8, 2, "1 31");
    expect_counts(1, 8, 2, "");
    expect_counts(1000, 8, 8, "4 20 40 50 125");
    expect_counts(0, 8, 2, "");
    expect_counts(INT64_C(1) << 40, 8, 2, "1 2 4 16 32");
}

/* ---- times ---- */

static struct weir_profile *scaled(const struct weir_model *model, int64_t rows,
                                   const struct weir_profile *const *known, uint32_t count,
                                   int status) {
    struct weir_profile_options options = profile_options(rows, 1);
    struct weir_profile *profile = NULL;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    EXPECT_STATUS(weir_profile_scale(model, &options.net, known, count, &faults, &profile), status);
    EXPECT((faults.count > 0) == (status != WEIR_OK));
    weir_faults_clean_up(&faults);
    return profile;
}

static double time_of(const struct weir_profile *profile, uint32_t layer, int kind) {
    return profile->costs.layers[layer].seconds[kind];
}

static void expect_bytes(const struct weir_model *model, const struct weir_profile *profile) {
    struct weir_profile_options options = profile_options(profile->rows, 1);
    options.bytes_only = true;
    struct weir_profile *bytes = profile_of(model, &options);
    for (uint32_t i = 0; bytes != NULL && i < profile->costs.layer_count; i++) {
        const struct weir_layer_cost *a = &profile->costs.layers[i], *b = &bytes->costs.layers[i];
        EXPECT(a->saved == b->saved && a->border == b->border && a->workspace == b->workspace);
        EXPECT(a->parameters == b->parameters && a->joined == b->joined);
    }
    weir_profile_destroy(bytes);
}

static void check_between(const struct weir_model *model, const struct weir_profile *const *known) {
    struct weir_profile *middle = scaled(model, 4, known, 2, WEIR_OK);
    struct weir_profile *same = scaled(model, 8, known, 2, WEIR_OK);
    struct weir_profile *beyond = scaled(model, 16, known, 2, WEIR_OK);
    CHECK(middle != NULL && same != NULL && beyond != NULL);
    for (uint32_t i = 0; i < middle->costs.layer_count; i++)
        for (int k = 0; k < WEIR_KIND_COUNT; k++) {
            double few = time_of(known[1], i, k), many = time_of(known[0], i, k);
            EXPECT_NEAR(time_of(middle, i, k), few + (many - few) / 3, 1e-12);
            EXPECT(time_of(same, i, k) == many);
            double grown = time_of(beyond, i, k);
            EXPECT(grown >= many && grown <= 2 * many * (1 + 1e-9));
        }
    EXPECT(middle->measured && beyond->measured);
    expect_bytes(model, middle);
    expect_bytes(model, beyond);
    weir_profile_destroy(middle);
    weir_profile_destroy(same);
    weir_profile_destroy(beyond);
}

static void test_times_of_other_rows_lie_between_those_known(void) {
    struct weir_model *models[] = {gpt_model(false, 0), unet_model()};
    for (int i = 0; i < 2; i++) {
        struct weir_profile_options few = profile_options(2, 1), many = profile_options(8, 1);
        const struct weir_profile *known[] = {profile_of(models[i], &many),
                                              profile_of(models[i], &few)};
        CHECK(known[0] != NULL && known[1] != NULL);
        check_between(models[i], known);
        CHECK_HELPERS();
        (void)scaled(models[i], 4, known, 0, WEIR_ERR_CONFIG);
        (void)scaled(models[1 - i], 4, known, 2, WEIR_ERR_CONFIG);
        weir_profile_destroy((struct weir_profile *)known[0]);
        weir_profile_destroy((struct weir_profile *)known[1]);
    }
    weir_model_destroy(models[0]);
    weir_model_destroy(models[1]);
}

/* ---- the search ---- */

/* As many times as long as its rows take at one speed, which is no machine's. */
static void set_seconds(struct weir_profile *profile, double times, uint32_t micro_batches) {
    struct weir_layer_cost *layers = (struct weir_layer_cost *)profile->costs.layers;
    for (uint32_t i = 0; i < profile->costs.layer_count; i++)
        for (int k = 0; k < WEIR_KIND_COUNT; k++)
            if (layers[i].seconds[k] > 0) layers[i].seconds[k] = times * 1e-2 / micro_batches;
}

static void expect_planned(const struct weir_model *model, struct weir_net_options net,
                           const struct weir_planner_choice *choice) {
    struct weir_plan *plan;
    uint64_t most = 0;
    weir_net_choose(choice, &net);
    net.pipe.memory_limit = UINT64_MAX; /* nothing is kept just to save time */
    EXPECT_EQ_UINT(weir_net_micro_batches(&net), choice->micro_batches);
    CHECK_OK(weir_net_plan(model, &net, NULL, &plan));
    for (uint32_t d = 0; d < plan->device_count; d++)
        if (plan->devices[d].total > most) most = plan->devices[d].total;
    EXPECT_EQ_UINT(most, choice->bytes);
    weir_plan_destroy(plan);
}

/* With 4 chunks asked for, of which the times are so many times too long. */
static uint32_t choose_chunks(const struct weir_model *model, double slower) {
    struct weir_planner_options search = WEIR_PLANNER_OPTIONS_INIT;
    struct weir_net_options net = profile_options(ROWS, 4).net;
    struct weir_planner_chunks others[WEIR_NET_CHUNKS_MOST];
    struct weir_profile *profiles[WEIR_NET_CHUNKS_MOST + 1] = {0};
    uint32_t counts[WEIR_NET_CHUNKS_MOST], chosen = 0;
    struct weir_planner *planner = NULL;
    struct weir_planner_result result;
    net.pipe.workers = 2;
    search.other_count = weir_net_chunks(&net, counts);
    search.others = others;
    EXPECT_EQ_UINT(search.other_count, 4);
    for (uint32_t i = 0; i <= search.other_count; i++) {
        struct weir_net_options own = net;
        if (i > 0) own.pipe.chunks = counts[i - 1];
        EXPECT_STATUS(weir_profile_estimate(model, &own, NULL, &profiles[i]), WEIR_OK);
        double times = i == 0 ? slower : own.pipe.chunks == 8 ? 1 : 2;
        set_seconds(profiles[i], times, weir_net_micro_batches(&own));
        if (i > 0)
            others[i - 1] = (struct weir_planner_chunks){counts[i - 1], &profiles[i]->costs, NULL};
    }
    EXPECT_STATUS(weir_planner_new(test_allocator(), &planner), WEIR_OK);
    EXPECT_STATUS(
        weir_net_search(planner, model, &net, &profiles[0]->costs, &search, NULL, &result),
        WEIR_OK);
    chosen = result.winner->micro_batches;
    expect_planned(model, net, result.winner);
    EXPECT_EQ_UINT(result.plain->micro_batches, 4);
    others[0].micro_batches = 5; /* 16 rows in 5 chunks are 4 micro-batches */
    EXPECT_STATUS(
        weir_net_search(planner, model, &net, &profiles[0]->costs, &search, NULL, &result),
        WEIR_ERR_ARGUMENT);
    search.others = NULL;
    EXPECT_STATUS(
        weir_net_search(planner, model, &net, &profiles[0]->costs, &search, NULL, &result),
        WEIR_ERR_ARGUMENT);
    for (uint32_t i = 0; i <= WEIR_NET_CHUNKS_MOST; i++) weir_profile_destroy(profiles[i]);
    weir_planner_destroy(planner);
    return chosen;
}

static void test_chunks_are_chosen_by_their_times(void) {
    struct weir_model *models[] = {gpt_model(false, 0), unet_model()};
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ_UINT(choose_chunks(models[i], 0.5), 4);
        EXPECT_EQ_UINT(choose_chunks(models[i], 3.0), 8);
        weir_model_destroy(models[i]);
    }
}

/* ---- replicas ---- */

/* As many bytes as are planned, of a replica; a step that ends when all have all parameters, and
 * whose parts add up to it. What is sent for nothing is for nothing, or it takes its time. */
static void test_replicas_are_searched_as_they_are_planned(void) {
    struct weir_model *model = gpt_model(false, 0);
    struct weir_net_options net = profile_options(ROWS, 8).net;
    struct weir_planner_options search = WEIR_PLANNER_OPTIONS_INIT;
    struct weir_shared_costs shared;
    struct weir_profile *profile = NULL;
    struct weir_planner *planner = NULL;
    struct weir_planner_result result;
    uint32_t counts[WEIR_NET_CHUNKS_MOST];
    net.pipe.workers = 2;
    net.pipe.replicas = 2;
    net.pipe.gradient_groups = 4;
    EXPECT_EQ_UINT(weir_net_micro_batches(&net), 4);
    for (uint32_t i = weir_net_chunks(&net, counts); i-- > 0;) EXPECT_EQ_UINT(counts[i] % 4, 0);
    CHECK_OK(weir_profile_estimate(model, &net, NULL, &profile));
    CHECK_OK(weir_planner_new(test_allocator(), &planner));
    weir_net_shared(&net, &shared);
    EXPECT_EQ_UINT(shared.groups, 2);
    search.shared = &shared;
    double steps[2];
    for (int slow = 0; slow < 2; slow++) {
        shared.link = (struct weir_link_cost){slow, 0.0};
        CHECK_OK(weir_net_search(planner, model, &net, &profile->costs, &search, NULL, &result));
        const struct weir_planner_parts *parts = &result.winner->parts;
        steps[slow] = result.winner->step;
        expect_planned(model, net, result.winner);
        EXPECT_NEAR(parts->work + parts->recompute + parts->bubble + parts->imbalance +
                        parts->copies + parts->host + parts->shared,
                    steps[slow], 1e-9);
    }
    EXPECT_NEAR(steps[1] - steps[0], 2.0, 0.1); /* gradients there, parameters back */
    net.pipe.gradient_groups = 3;
    struct weir_faults faults = {.allocator = test_allocator()};
    EXPECT_STATUS(weir_net_search(planner, model, &net, &profile->costs, &search, &faults, &result),
                  WEIR_ERR_CONFIG);
    EXPECT_FAULTS(&faults, "gradient_groups 3", "2 replicas do not divide 3");
    weir_faults_clean_up(&faults);
    weir_planner_destroy(planner);
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

/* ---- everything, one by one ---- */

enum { WORKERS = 2, TRIES_MOST = 1000, STAGES_MOST = 4 };

struct brute {
    const struct weir_model *model;
    struct weir_net_options net;
    struct weir_profile *profile;
    struct weir_planner *planner;
    struct weir_planner_options fixed; /* the present try */
    const char *schedule;
    uint32_t count;
    double step[TRIES_MOST];
    uint64_t bytes[TRIES_MOST];
};

static int search(struct brute *brute, const struct weir_planner_options *options,
                  struct weir_planner_result *result) {
    return weir_net_search(brute->planner, brute->model, &brute->net, &brute->profile->costs,
                           options, NULL, result);
}

/* All modes and times of recompute; false: the schedule does not take so many stages. */
static bool try_modes(struct brute *brute) {
    enum weir_checkpoint modes[STAGES_MOST];
    uint32_t all = 1;
    for (uint32_t s = 0; s < brute->fixed.stages; s++) all *= 3;
    brute->fixed.stage_checkpoint = modes;
    for (uint32_t code = 0; code < 2 * all; code++) {
        struct weir_planner_result result;
        uint32_t rest = code / 2;
        for (uint32_t s = 0; s < brute->fixed.stages; s++, rest /= 3)
            modes[s] = (enum weir_checkpoint)(WEIR_CHECKPOINT_ALWAYS + rest % 3);
        brute->fixed.recompute = code % 2 == 0 ? WEIR_RECOMPUTE_EARLY : WEIR_RECOMPUTE_LATE;
        int status = search(brute, &brute->fixed, &result);
        if (status == WEIR_ERR_ARGUMENT) return false;
        if (!EXPECT_STATUS(status, WEIR_OK) || !EXPECT(brute->count < TRIES_MOST)) return false;
        brute->step[brute->count] = result.winner->step;
        brute->bytes[brute->count++] = result.winner->bytes;
    }
    return true;
}

static bool try_sizes(struct brute *brute, uint32_t *sizes, uint32_t stage, uint32_t left) {
    uint32_t rest = brute->fixed.stages - stage - 1;
    brute->fixed.balance = sizes;
    sizes[stage] = left;
    if (rest == 0) return try_modes(brute);
    for (sizes[stage] = 1; sizes[stage] + rest <= left; sizes[stage]++)
        if (!try_sizes(brute, sizes, stage + 1, left - sizes[stage])) return false;
    return true;
}

static void try_all(struct brute *brute) {
    struct weir_planner_options none = WEIR_PLANNER_OPTIONS_INIT;
    uint32_t layers = brute->profile->costs.layer_count, sizes[STAGES_MOST];
    for (uint32_t stages = WORKERS; stages <= STAGES_MOST; stages++) {
        brute->fixed = none;
        brute->fixed.schedule = brute->schedule;
        brute->fixed.stages = stages;
        (void)try_sizes(brute, sizes, 0, layers);
    }
}

static void compare(struct brute *brute) {
    struct weir_planner_options options = WEIR_PLANNER_OPTIONS_INIT;
    struct weir_planner_result result;
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t i = 0; i < brute->count; i++) {
        least = brute->bytes[i] < least ? brute->bytes[i] : least;
        most = brute->bytes[i] > most ? brute->bytes[i] : most;
    }
    options.schedule = brute->schedule;
    options.memory_limit = least - 1;
    EXPECT_STATUS(search(brute, &options, &result), WEIR_ERR_MEMORY_LIMIT);
    EXPECT(result.is_smallest);
    EXPECT_EQ_UINT(result.smallest_limit, least);
    for (uint32_t k = 0; k < 4 && !test_has_failed(); k++) {
        double best = HUGE_VAL;
        options.memory_limit = least + (most - least) * k / 32;
        for (uint32_t i = 0; i < brute->count; i++)
            if (brute->bytes[i] <= options.memory_limit) best = fmin(best, brute->step[i]);
        EXPECT_STATUS(search(brute, &options, &result), WEIR_OK);
        EXPECT(result.winner->step <= best * (1 + 1e-12));
        EXPECT(result.winner->bytes <= options.memory_limit);
    }
    printf("%u pipelines, %u asked about at last\n", brute->count, result.asks);
}

static void check_space(const struct weir_model *model, const char *schedule) {
    static struct brute brute;
    brute = (struct brute){.model = model, .net = profile_options(8, 8).net, .schedule = schedule};
    brute.net.pipe.workers = WORKERS;
    EXPECT_STATUS(weir_profile_estimate(model, &brute.net, NULL, &brute.profile), WEIR_OK);
    EXPECT_STATUS(weir_planner_new(test_allocator(), &brute.planner), WEIR_OK);
    try_all(&brute);
    compare(&brute);
    weir_planner_destroy(brute.planner);
    weir_profile_destroy(brute.profile);
}

static void test_nothing_of_a_small_space_is_faster_or_smaller(void) {
    /* attention's workspace is what this one needs most */
    struct weir_gpt_options gpt = {2, 16, 2, 128, 256, false, 0};
    struct weir_model *text;
    CHECK_OK(weir_model_gpt(test_allocator(), &gpt, NULL, &text));
    check_space(text, "1f1b");
    check_space(text, "v-min");
    weir_model_destroy(text);
}

WEIR_TEST_SUITE(net_search, TEST(nothing_of_a_small_space_is_faster_or_smaller),
                TEST(counts_are_divisors_about_the_workers),
                TEST(times_of_other_rows_lie_between_those_known),
                TEST(chunks_are_chosen_by_their_times),
                TEST(replicas_are_searched_as_they_are_planned))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: lists are cut where it is best, and stages cost what their layers do. Method: brute force
 * over all partitions of random small lists, written here on its own; weights are small whole
 * numbers, so that sums are exact. A large list is cut against the clock.
 */
#include "balance/balance.h"
#include "harness.h"
#include "steps.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 12, STAGES = 4, WEIGHTS = STAGES * LAYERS, LARGE = 512 };

/* ---- brute force ---- */

struct brute {
    const struct weir_partition_options *options;
    double largest, score; /* the best */
    uint32_t best[LAYERS];
    uint32_t within, count; /* how many weigh at most `limit`, and all */
    double limit;
};

static double load_of(const struct weir_partition_options *options, const uint32_t *sizes) {
    uint32_t workers = options->workers == 0 ? options->parts : options->workers;
    double loads[LARGE] = {0}, largest = 0;
    for (uint32_t k = 0, layer = 0; k < options->parts; k++) {
        uint32_t at = k % workers;
        bool back = options->placement == WEIR_PLACEMENT_V && k / workers % 2 == 1;
        const uint32_t *own = options->stage_workers;
        uint32_t worker = own != NULL ? own[k] : back ? workers - 1 - at : at;
        const double *weights = &options->weights[options->by_worker ? worker * options->count : 0];
        for (uint32_t i = 0; i < sizes[k]; i++) loads[worker] += weights[layer++];
        if (loads[worker] > largest) largest = loads[worker];
    }
    return largest;
}

/* Rugged, and nothing like the heaviest worker. */
static double rugged(void *context, const uint32_t *sizes) {
    const struct weir_partition_options *options = context;
    double sum = 0;
    for (uint32_t k = 0; k < options->parts; k++)
        sum += (double)((sizes[k] * 7 + k * 3) % 11) * (double)(k + 1);
    return sum;
}

static void try_all(struct brute *brute, uint32_t *sizes, uint32_t part, uint32_t left) {
    const struct weir_partition_options *options = brute->options;
    if (part + 1 < options->parts) {
        for (sizes[part] = 1; sizes[part] < left; sizes[part]++)
            try_all(brute, sizes, part + 1, left - sizes[part]);
        return;
    }
    sizes[part] = left;
    double load = load_of(options, sizes), score = rugged((void *)options, sizes);
    brute->count++;
    brute->within += load <= brute->limit;
    if (load < brute->largest) brute->largest = load;
    if (score >= brute->score) return;
    brute->score = score;
    memcpy(brute->best, sizes, options->parts * sizeof sizes[0]);
}

static struct brute brute_force(const struct weir_partition_options *options, double limit) {
    struct brute brute = {
        .options = options, .largest = HUGE_VAL, .score = HUGE_VAL, .limit = limit};
    uint32_t sizes[LAYERS];
    try_all(&brute, sizes, 0, options->count);
    return brute;
}

/* Good until the next call. */
static const uint32_t *workers_at_random(const struct weir_partition_options *options) {
    static uint32_t workers[STAGES];
    for (uint32_t k = 0; k < options->parts; k++)
        workers[k] = (uint32_t)test_random_below(options->workers);
    return workers;
}

static struct weir_partition_options random_list(double *weights) {
    struct weir_partition_options options = WEIR_PARTITION_OPTIONS_INIT;
    options.allocator = test_allocator();
    options.weights = weights;
    options.count = 1 + (uint32_t)test_random_below(LAYERS);
    uint32_t most = options.count < STAGES ? options.count : STAGES;
    options.parts = 1 + (uint32_t)test_random_below(most);
    options.workers = (uint32_t)test_random_below(options.parts + 1);
    options.placement = test_random_below(2) == 0 ? WEIR_PLACEMENT_LOOP : WEIR_PLACEMENT_V;
    if (options.workers > 0 && test_random_below(3) == 0)
        options.stage_workers = workers_at_random(&options);
    uint64_t range = 1 + test_random_below(20);
    options.by_worker = test_random_below(3) == 0; /* each has weights of its own */
    for (uint32_t i = 0; i < WEIGHTS; i++) weights[i] = (double)test_random_below(range);
    return options;
}

static void check_sizes(const struct weir_partition_options *options, const uint32_t *sizes) {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < options->parts; k++) {
        EXPECT(sizes[k] >= 1);
        sum += sizes[k];
    }
    EXPECT_EQ_UINT(sum, options->count);
}

/* The first two workers are rank 0's. */
static void test_a_worker_has_its_ranks_pace(void) {
    const double paces[] = {1, 0.5};
    struct weir_layer_costs costs = {.rank_count = 2, .rank_paces = paces};
    double found[4];
    CHECK_OK(weir_worker_paces(&costs, 4, found));
    for (uint32_t w = 0; w < 4; w++) EXPECT_NEAR(found[w], paces[w / 2], 0);
    EXPECT_STATUS(weir_worker_paces(&costs, 1, found), WEIR_ERR_ARGUMENT);
    costs.rank_count = 0;
    CHECK_OK(weir_worker_paces(&costs, 4, found));
    EXPECT_NEAR(found[3], 1, 0);
}

/* ---- partitions ---- */

static void expect_cut(const double *weights, uint32_t count, const uint32_t *expected,
                       uint32_t parts) {
    struct weir_partition_options options = WEIR_PARTITION_OPTIONS_INIT;
    uint32_t sizes[6] = {0};
    options.allocator = test_allocator();
    options.weights = weights;
    options.count = count;
    options.parts = parts;
    CHECK_OK(weir_partition(&options, sizes, NULL));
    for (uint32_t k = 0; k < parts; k++) EXPECT_EQ_UINT(sizes[k], expected[k]);
}

// BA-1
static void test_blocks_are_cut_as_upstream_cuts_them(void) {
    struct weir_partition_options options = WEIR_PARTITION_OPTIONS_INIT;
    uint32_t sizes[6];
    expect_cut((const double[]){1, 2, 3, 4, 5, 6}, 6, (const uint32_t[]){4, 2}, 2);
    expect_cut((const double[]){0, 0}, 2, (const uint32_t[]){1, 1}, 2);
    options.allocator = test_allocator();
    options.weights = (const double[]){1, 2, 3, 4, 5, 6};
    options.count = 6;
    for (options.parts = 0; options.parts <= 7; options.parts += 7)
        EXPECT_STATUS(weir_partition(&options, sizes, NULL), WEIR_ERR_ARGUMENT);
}

static void test_among_equals_later_parts_are_large(void) {
    expect_cut((const double[]){1, 0, 1, 0, 0, 1}, 6, (const uint32_t[]){1, 2, 3}, 3);
}

static void test_weights_that_are_none_are_refused(void) {
    struct weir_partition_options options = WEIR_PARTITION_OPTIONS_INIT;
    uint32_t sizes[2];
    static const double bad[] = {-1, (double)NAN, (double)INFINITY};
    for (int i = 0; i < 3; i++) {
        options.weights = (const double[]){1, bad[i]};
        options.count = options.parts = 2;
        EXPECT_STATUS(weir_partition(&options, sizes, NULL), WEIR_ERR_ARGUMENT);
    }
    options.weights = (const double[]){1, 1};
    CHECK_OK(weir_partition(&options, sizes, NULL));
    options.workers = 3;
    EXPECT_STATUS(weir_partition(&options, sizes, NULL), WEIR_ERR_ARGUMENT);
    options.workers = 0;
    options.size--;
    EXPECT_STATUS(weir_partition(&options, sizes, NULL), WEIR_ERR_ARGUMENT);
}

// BA-1
static void test_no_partition_has_a_lighter_heaviest_worker(void) {
    double weights[WEIGHTS];
    uint32_t sizes[LAYERS];
    for (int trial = 0; trial < 2000 && !test_has_failed(); trial++) {
        struct weir_partition_options options = random_list(weights);
        struct weir_partition_result result;
        struct brute brute = brute_force(&options, 0);
        CHECK_OK(weir_partition(&options, sizes, &result));
        check_sizes(&options, sizes);
        EXPECT_NEAR(load_of(&options, sizes), brute.largest, 0);
        EXPECT_NEAR(result.largest, brute.largest, 0);
        EXPECT(result.exact);
    }
}

struct visited {
    const struct weir_partition_options *options;
    uint32_t count;
    uint32_t last[LAYERS];
    double limit;
};

static int visit(void *context, const uint32_t *sizes, double largest) {
    struct visited *visited = context;
    const struct weir_partition_options *options = visited->options;
    bool later = visited->count == 0;
    check_sizes(options, sizes);
    for (uint32_t k = 0; k < options->parts && !later && sizes[k] >= visited->last[k]; k++)
        later = sizes[k] > visited->last[k];
    EXPECT(later);
    EXPECT(largest <= visited->limit);
    EXPECT_NEAR(largest, load_of(options, sizes), 0);
    memcpy(visited->last, sizes, options->parts * sizeof sizes[0]);
    return ++visited->count == 1000000 ? 77 : 0;
}

static int stop_at_once(void *context, const uint32_t *sizes, double largest) {
    (void)sizes;
    (void)largest;
    ++*(uint32_t *)context;
    return 77;
}

static void test_all_partitions_up_to_a_weight_are_visited_once(void) {
    double weights[WEIGHTS];
    for (int trial = 0; trial < 1000 && !test_has_failed(); trial++) {
        struct weir_partition_options options = random_list(weights);
        double limit = trial % 4 == 0 ? HUGE_VAL : (double)test_random_below(80);
        struct visited visited = {.options = &options, .limit = limit};
        struct brute brute = brute_force(&options, limit);
        CHECK_OK(weir_partition_each(&options, limit, visit, &visited));
        EXPECT_EQ_UINT(visited.count, brute.within);
    }
    struct weir_partition_options options = random_list(weights);
    uint32_t count = 0;
    EXPECT_EQ_INT(weir_partition_each(&options, HUGE_VAL, stop_at_once, &count), 77);
    EXPECT_EQ_UINT(count, 1);
}

static void test_no_partition_has_a_better_score(void) {
    double weights[WEIGHTS];
    uint32_t sizes[LAYERS];
    for (int trial = 0; trial < 1000 && !test_has_failed(); trial++) {
        struct weir_partition_options options = random_list(weights);
        struct weir_partition_result result;
        struct brute brute = brute_force(&options, 0);
        CHECK_OK(weir_partition_search(&options, rugged, &options, sizes, &result));
        EXPECT(memcmp(sizes, brute.best, options.parts * sizeof sizes[0]) == 0);
        EXPECT_NEAR(result.score, brute.score, 0);
        EXPECT_NEAR(result.largest, load_of(&options, sizes), 0);
        EXPECT(result.exact && result.looked == brute.count);
    }
}

struct target {
    const uint32_t *sizes;
    uint32_t parts, asked;
};

/* How many layers are in the wrong part. */
static double distance(void *context, const uint32_t *sizes) {
    struct target *target = context;
    double sum = 0;
    target->asked++;
    for (uint32_t k = 0; k < target->parts; k++)
        sum += fabs((double)sizes[k] - (double)target->sizes[k]);
    return sum;
}

static void test_long_lists_are_searched_downhill_within_the_budget(void) {
    static const uint32_t wanted[] = {3, 12, 1, 4, 9, 2, 8, 1};
    double weights[40];
    uint32_t sizes[8];
    struct weir_partition_options options = WEIR_PARTITION_OPTIONS_INIT;
    struct weir_partition_result result;
    struct target target = {wanted, 8, 0};
    for (uint32_t i = 0; i < 40; i++) weights[i] = 1;
    options.allocator = test_allocator();
    options.weights = weights;
    options.count = 40;
    options.parts = 8;
    options.budget = 3000;
    CHECK_OK(weir_partition_search(&options, distance, &target, sizes, &result));
    EXPECT(memcmp(sizes, wanted, sizeof wanted) == 0);
    EXPECT(result.score == 0 && !result.exact && target.asked == result.looked);
    options.budget = target.asked = 10;
    CHECK_OK(weir_partition_search(&options, distance, &target, sizes, &result));
    EXPECT_EQ_UINT(target.asked, 20);
    check_sizes(&options, sizes);
}

static double impossible(void *context, const uint32_t *sizes) {
    (void)context;
    (void)sizes;
    return HUGE_VAL;
}

static void test_where_nothing_fits_that_is_said(void) {
    double weights[WEIGHTS];
    uint32_t sizes[LAYERS];
    struct weir_partition_options options = random_list(weights);
    EXPECT_STATUS(weir_partition_search(&options, impossible, NULL, sizes, NULL),
                  WEIR_ERR_NOT_FOUND);
    check_sizes(&options, sizes);
}

static uint64_t steps_of(const struct weir_partition_options *options, uint32_t *sizes) {
    uint64_t begin = test_steps();
    EXPECT_STATUS(weir_partition(options, sizes, NULL), WEIR_OK);
    uint64_t steps = test_steps() - begin;
    check_sizes(options, sizes);
    return steps;
}

/* Four times what they were when this was written, for other weights and builds. */
static void test_long_lists_are_cut_in_few_steps(void) {
    enum { STEPS_SMALL = 8000, STEPS_LARGE = 2000000, STEPS_SHARED = 5000000 };
    static double weights[LARGE];
    static uint32_t sizes[LARGE];
    struct weir_partition_options options = WEIR_PARTITION_OPTIONS_INIT;
    for (uint32_t i = 0; i < LARGE; i++) weights[i] = 1 + (double)test_random_below(1000);
    options.allocator = test_allocator();
    options.weights = weights;
    options.count = 32;
    options.parts = 8;
    uint64_t small = steps_of(&options, sizes);
    options.count = LARGE;
    options.parts = 64;
    uint64_t large = steps_of(&options, sizes);
    options.workers = 32;
    options.placement = WEIR_PLACEMENT_V;
    uint64_t shared = steps_of(&options, sizes);
    printf("32 layers, 8 stages: %llu steps; 512, 64: %llu; on 32 workers in a V: %llu\n",
           (unsigned long long)small, (unsigned long long)large, (unsigned long long)shared);
    EXPECT(small <= STEPS_SMALL && large <= STEPS_LARGE && shared <= STEPS_SHARED);
}

/* ---- weights and stages ---- */

static const uint32_t far_readers[] = {2, 3, 5}, near_readers[] = {2};
static const struct weir_skip_route two_skips[] = {{0, 3, far_readers, 100, true, "", "far"},
                                                   {1, 1, near_readers, 10, false, "n", "near"}};

static struct weir_layer_costs six_layers(struct weir_layer_cost *layers) {
    for (uint32_t i = 0; i < 6; i++) {
        double k = i + 1;
        layers[i] = (struct weir_layer_cost){.seconds = {[WEIR_KIND_F] = k,
                                                         [WEIR_KIND_R] = 0.75 * k,
                                                         [WEIR_KIND_B] = 2 * k,
                                                         [WEIR_KIND_I] = 1.25 * k,
                                                         [WEIR_KIND_W] = k},
                                             .forward_checkpoint = 0.875 * k,
                                             .recompute_last = 0.25 * k,
                                             .saved = 64 * (i + 1),
                                             .saved_output = 16 * (i + 1),
                                             .weight_saved = 32 * (i + 1),
                                             .border = 8 * (i + 1),
                                             .border_gradient = i == 0 ? 0 : 8 * (i + 1),
                                             .workspace = 1000 - i,
                                             .parameters = 4 * (i + 1),
                                             .gradients = 4 * (i + 1),
                                             .optimizer = 8 * (i + 1),
                                             .no_backward = i == 0};
    }
    layers[0].gradients = layers[0].optimizer = layers[0].saved = layers[0].saved_output = 0;
    return (struct weir_layer_costs){6, layers, 2, two_skips, 0.5};
}

static void test_a_layer_weighs_its_time(void) {
    struct weir_layer_cost layers[6];
    struct weir_layer_costs costs = six_layers(layers);
    struct weir_balance_options by = WEIR_BALANCE_OPTIONS_INIT;
    double weights[6];
    by.micro_batches = 4;
    by.checkpoint = WEIR_CHECKPOINT_NEVER;
    CHECK_OK(weir_layer_weights(&costs, &by, weights));
    EXPECT_NEAR(weights[0], 1, 0);
    EXPECT_NEAR(weights[1], 6, 0);
    by.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    CHECK_OK(weir_layer_weights(&costs, &by, weights));
    EXPECT_NEAR(weights[1], 2 * (0.875 + 0.75 + 2), 0);
    by.checkpoint = WEIR_CHECKPOINT_DEFAULT;
    CHECK_OK(weir_layer_weights(&costs, &by, weights));
    EXPECT_NEAR(weights[1], 2 * (0.25 * 1 + 0.75 * (0.875 + 0.75) + 2), 0);
    by.split = true;
    CHECK_OK(weir_layer_weights(&costs, &by, weights));
    EXPECT_NEAR(weights[1], 2 * (0.25 * 1 + 0.75 * (0.875 + 0.75) + 2.25), 0);
    by.infer = true;
    CHECK_OK(weir_layer_weights(&costs, &by, weights));
    EXPECT_NEAR(weights[1], 2, 0);
    by.micro_batches = 0;
    EXPECT_STATUS(weir_layer_weights(&costs, &by, weights), WEIR_ERR_ARGUMENT);
}

static void test_a_layer_weighs_its_bytes(void) {
    struct weir_layer_cost layers[6];
    struct weir_layer_costs costs = six_layers(layers);
    struct weir_balance_options by = WEIR_BALANCE_OPTIONS_INIT;
    double weights[6];
    by.by = WEIR_BALANCE_BY_SIZE;
    by.micro_batches = 4;
    by.checkpoint = WEIR_CHECKPOINT_NEVER;
    CHECK_OK(weir_layer_weights(&costs, &by, weights));
    EXPECT_NEAR(weights[0], 4 + 4 * 100, 0);
    EXPECT_NEAR(weights[1], 32 + 4 * 128 + 4 * 10, 0);
    EXPECT_NEAR(weights[2], 48 + 4 * 192, 0);
    by.alive = 2;
    CHECK_OK(weir_layer_weights(&costs, &by, weights));
    EXPECT_NEAR(weights[2], 48 + 2 * 192, 0);
    by.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    CHECK_OK(weir_layer_weights(&costs, &by, weights));
    EXPECT_NEAR(weights[2], 48 + 192 + 2 * 24, 0);
    by.parameter_scale = 100;
    CHECK_OK(weir_layer_weights(&costs, &by, weights));
    EXPECT_NEAR(weights[2], 1200 + 192 + 2 * 24, 0);
}

static void test_a_stage_costs_its_layers_but_for_its_ends(void) {
    struct weir_layer_cost layers[6];
    struct weir_layer_costs costs = six_layers(layers);
    struct weir_stage_costs *stages;
    CHECK_OK(weir_stage_costs_new(&costs, 3, test_allocator(), &stages));
    CHECK_OK(weir_stage_costs_fill(stages, (const uint32_t[]){1, 3, 2}, 3));
    const struct weir_stage_cost *frozen = &stages->list[0], *middle = &stages->list[1];
    EXPECT_EQ_UINT(stages->stage_count, 3);
    EXPECT(frozen->no_backward && !middle->no_backward);
    EXPECT_NEAR(frozen->seconds[WEIR_KIND_F], 1.5, 0);
    EXPECT_NEAR(frozen->seconds[WEIR_KIND_R], 0, 0);
    EXPECT_EQ_UINT(frozen->border_gradient, 0);
    EXPECT_EQ_UINT(middle->layer_first, 1);
    EXPECT_EQ_UINT(middle->layer_count, 3);
    EXPECT_NEAR(middle->seconds[WEIR_KIND_F], 9.5, 0);
    EXPECT_NEAR(middle->seconds[WEIR_KIND_R], 0.75 * 5 + 0.25 * 4 + 0.5, 0);
    EXPECT_NEAR(middle->seconds[WEIR_KIND_B], 18.5, 0);
    EXPECT_NEAR(middle->seconds[WEIR_KIND_I], 11.75, 0);
    EXPECT_NEAR(middle->seconds[WEIR_KIND_I], 11.75, 0);
    EXPECT_NEAR(middle->seconds[WEIR_KIND_W], 9.5, 0);
    EXPECT_NEAR(middle->forward_checkpoint, 0.875 * 9 + 0.5, 0);
    EXPECT_EQ_UINT(middle->saved, 64 * 9 - 16 * 4);
    EXPECT_EQ_UINT(middle->weight_saved, 32 * 9);
    EXPECT_EQ_UINT(middle->border, 32);
    EXPECT_EQ_UINT(middle->border_gradient, 32);
    EXPECT_EQ_UINT(middle->workspace, 999);
    EXPECT_EQ_UINT(middle->parameters + middle->gradients + middle->optimizer, 16 * 9);
    weir_stage_costs_destroy(stages);
}

/* The second kind takes three times as long and keeps twice as much; a worker of it that is half as
 * fast six times as long. */
static void test_a_stage_costs_what_it_does_on_its_worker(void) {
    struct weir_layer_cost layers[6], slower[6];
    struct weir_layer_costs costs = six_layers(layers), other = six_layers(slower);
    const struct weir_worker_cost workers[] = {{0, 0}, {1, 1}, {1, 2}}, none = {2, 1};
    static const uint32_t sizes[] = {1, 3, 2};
    struct weir_balance_options by = WEIR_BALANCE_OPTIONS_INIT;
    struct weir_stage_costs *stages, *alone;
    double weights[18];
    for (uint32_t i = 0; i < 6; i++) {
        for (int k = 0; k < WEIR_KIND_COUNT; k++) slower[i].seconds[k] *= 3;
        slower[i].saved *= 2;
    }
    slower[5].border = 0; /* its output is nobody's */
    costs.other = &other;
    CHECK_OK(weir_stage_costs_new(&costs, 3, test_allocator(), &stages));
    CHECK_OK(weir_stage_costs_new(&costs, 3, test_allocator(), &alone));
    CHECK_OK(weir_stage_costs_fill(alone, sizes, 3));
    CHECK_OK(weir_stage_costs_fill_on(stages, sizes, 3, workers, (const uint32_t[]){2, 0, 1}));
    double task = costs.task_seconds;
    const enum weir_kind f = WEIR_KIND_F;
    EXPECT_NEAR(stages->list[0].seconds[f], 2 * (3 * (alone->list[0].seconds[f] - task) + task), 0);
    EXPECT_EQ_BYTES(&stages->list[1], &alone->list[1], sizeof alone->list[1]);
    EXPECT_NEAR(stages->list[2].seconds[f], 3 * (alone->list[2].seconds[f] - task) + task, 0);
    EXPECT(stages->list[2].saved > alone->list[2].saved);
    EXPECT(stages->list[2].border == 0 && alone->list[2].border > 0);
    CHECK_OK(weir_worker_weights(&costs, workers, 3, &by, weights));
    for (uint32_t i = 0; i < 6; i++) EXPECT_NEAR(weights[12 + i], 2 * weights[6 + i], 0);
    by.by = WEIR_BALANCE_BY_SIZE;
    CHECK_OK(weir_worker_weights(&costs, workers, 3, &by, weights));
    for (uint32_t i = 0; i < 6; i++) EXPECT_NEAR(weights[12 + i], weights[6 + i], 0);
    EXPECT(weights[7] > weights[1]);
    EXPECT_STATUS(weir_worker_weights(&costs, &none, 1, &by, weights), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(
        weir_stage_costs_fill_on(stages, (const uint32_t[]){6}, 1, &none, (const uint32_t[]){0}),
        WEIR_ERR_ARGUMENT);
    weir_stage_costs_destroy(alone);
    weir_stage_costs_destroy(stages);
}

static void test_where_no_gradient_leaves_the_weight_part_does_all(void) {
    struct weir_layer_cost layers[6];
    struct weir_layer_costs costs = six_layers(layers);
    struct weir_stage_costs *stages;
    costs.skip_count = 0;
    layers[0].no_backward = false;
    CHECK_OK(weir_stage_costs_new(&costs, 3, test_allocator(), &stages));
    CHECK_OK(weir_stage_costs_fill(stages, (const uint32_t[]){1, 2, 3}, 3));
    for (uint32_t s = 0, sum = 1; s < 3; s++, sum = s == 1 ? 5 : 15) {
        bool joined = s < 2; /* nothing comes back over the first border */
        const struct weir_stage_cost *stage = &stages->list[s];
        EXPECT_NEAR(stage->seconds[WEIR_KIND_I], joined ? 0.5 : 1.25 * sum + 0.5, 0);
        EXPECT_NEAR(stage->seconds[WEIR_KIND_W], (joined ? 2.25 : 1) * sum + 0.5, 0);
        EXPECT_EQ_UINT(stage->weight_saved, joined ? stage->saved : 32 * sum);
    }
    weir_stage_costs_destroy(stages);
}

static void test_a_skip_goes_to_each_stage_that_reads_it_once(void) {
    struct weir_layer_cost layers[6];
    struct weir_layer_costs costs = six_layers(layers);
    struct weir_stage_costs *stages;
    CHECK_OK(weir_stage_costs_new(&costs, 6, test_allocator(), &stages));
    CHECK_OK(weir_stage_costs_fill(stages, (const uint32_t[]){1, 3, 2}, 3));
    EXPECT_EQ_UINT(stages->skip_count, 1); /* "near" stays within the second */
    EXPECT_EQ_STR(stages->skips[0].name, "far");
    EXPECT_EQ_UINT(stages->skips[0].source, 0);
    EXPECT_EQ_UINT(stages->skips[0].reader_count, 2);
    EXPECT_EQ_UINT(stages->skips[0].readers[0], 1);
    EXPECT_EQ_UINT(stages->skips[0].readers[1], 2);
    EXPECT_EQ_UINT(stages->skips[0].bytes, 100);
    CHECK_OK(weir_stage_costs_fill(stages, (const uint32_t[]){6}, 1));
    EXPECT_EQ_UINT(stages->skip_count, 0);
    CHECK_OK(weir_stage_costs_fill(stages, (const uint32_t[]){2, 1, 3}, 3));
    EXPECT_EQ_UINT(stages->skip_count, 2);
    EXPECT_EQ_UINT(stages->skips[1].readers[0], 1);
    EXPECT(!stages->skips[1].differentiable);
    weir_stage_costs_destroy(stages);
}

static void test_a_predicted_step_is_of_the_stages_times(void) {
    struct weir_layer_cost layers[6];
    struct weir_layer_costs costs = six_layers(layers);
    struct weir_stage_costs *stages;
    struct weir_table_options how = WEIR_TABLE_OPTIONS_INIT;
    struct weir_simulate_options options = WEIR_SIMULATE_OPTIONS_INIT;
    struct weir_simulator *simulator;
    struct weir_prediction prediction;
    struct weir_table *table;
    layers[0].no_backward = false;
    how.allocator = test_allocator();
    how.schedule = "gpipe";
    how.stages = 2;
    how.micro_batches = 3;
    how.checkpoint = WEIR_CHECKPOINT_NEVER;
    CHECK_OK(weir_table_new(&how, NULL, &table));
    CHECK_OK(weir_simulator_new(test_allocator(), &simulator));
    CHECK_OK(weir_stage_costs_new(&costs, 2, test_allocator(), &stages));
    EXPECT_STATUS(weir_stage_costs_simulate(stages, how.checkpoint, NULL, 3, &options),
                  WEIR_ERR_ARGUMENT);
    CHECK_OK(weir_stage_costs_fill(stages, (const uint32_t[]){4, 2}, 2));
    CHECK_OK(weir_stage_costs_simulate(stages, how.checkpoint, NULL, 3, &options));
    options.table = table;
    CHECK_OK(weir_simulate(simulator, &options, NULL, &prediction));
    /* F 10.5 and 11.5, B 20.5 and 22.5: the second stage is always busy */
    EXPECT_NEAR(prediction.step, 10.5 + 3 * (11.5 + 22.5) + 20.5, 1e-9);
    EXPECT_EQ_UINT(options.border_bytes[0], 32);
    EXPECT_EQ_UINT(options.kept_bytes[1], 32);
    CHECK_OK(weir_stage_costs_simulate(stages, WEIR_CHECKPOINT_EXCEPT_LAST, NULL, 4, &options));
    EXPECT_NEAR(options.stage_seconds[0], 0.25 * 10.5 + 0.75 * (8.75 + 0.5), 1e-9);
    weir_stage_costs_destroy(stages);
    weir_simulator_destroy(simulator);
    weir_table_destroy(table);
}

static void test_wrong_partitions_leave_the_stages_alone(void) {
    static const uint32_t wrong[][3] = {{1, 0, 5}, {1, 2, 4}, {2, 2, 1}};
    struct weir_layer_cost layers[6];
    struct weir_layer_costs costs = six_layers(layers);
    struct weir_stage_costs *stages;
    EXPECT_STATUS(weir_stage_costs_new(&costs, 0, test_allocator(), &stages), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_stage_costs_new(&costs, 7, test_allocator(), &stages), WEIR_ERR_ARGUMENT);
    CHECK_OK(weir_stage_costs_new(&costs, 3, test_allocator(), &stages));
    CHECK_OK(weir_stage_costs_fill(stages, (const uint32_t[]){4, 2}, 2));
    for (int i = 0; i < 3; i++)
        EXPECT_STATUS(weir_stage_costs_fill(stages, wrong[i], 3), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_stage_costs_fill(stages, (const uint32_t[]){1, 1, 1, 3}, 4),
                  WEIR_ERR_ARGUMENT);
    EXPECT_EQ_UINT(stages->stage_count, 2);
    EXPECT_EQ_UINT(stages->list[0].layer_count, 4);
    weir_stage_costs_destroy(stages);
    struct weir_skip_route backwards = {3, 1, near_readers, 1, true, "", "s"};
    costs.skips = &backwards;
    costs.skip_count = 1;
    EXPECT_STATUS(weir_stage_costs_new(&costs, 2, test_allocator(), &stages), WEIR_ERR_ARGUMENT);
}

static void test_skips_without_their_list_are_refused(void) {
    struct weir_layer_cost layers[6];
    struct weir_layer_costs costs = six_layers(layers);
    struct weir_skip_route no_readers = {3, 1, NULL, 1, true, "", "s"};
    struct weir_balance_options options = WEIR_BALANCE_OPTIONS_INIT;
    struct weir_stage_costs *stages;
    double weights[6];
    options.by = WEIR_BALANCE_BY_SIZE;
    costs.skip_count = 1;
    for (int i = 0; i < 2; i++) {
        costs.skips = i == 0 ? NULL : &no_readers;
        EXPECT_STATUS(weir_stage_costs_new(&costs, 2, test_allocator(), &stages),
                      WEIR_ERR_ARGUMENT);
        EXPECT_STATUS(weir_layer_weights(&costs, &options, weights), WEIR_ERR_ARGUMENT);
    }
}

WEIR_TEST_SUITE(
    balance, TEST(blocks_are_cut_as_upstream_cuts_them), TEST(among_equals_later_parts_are_large),
    TEST(a_worker_has_its_ranks_pace), TEST(weights_that_are_none_are_refused),
    TEST(no_partition_has_a_lighter_heaviest_worker),
    TEST(all_partitions_up_to_a_weight_are_visited_once), TEST(no_partition_has_a_better_score),
    TEST(long_lists_are_searched_downhill_within_the_budget), TEST(where_nothing_fits_that_is_said),
    TEST(long_lists_are_cut_in_few_steps), TEST(a_layer_weighs_its_time),
    TEST(a_layer_weighs_its_bytes), TEST(a_stage_costs_its_layers_but_for_its_ends),
    TEST(a_stage_costs_what_it_does_on_its_worker),
    TEST(where_no_gradient_leaves_the_weight_part_does_all),
    TEST(a_skip_goes_to_each_stage_that_reads_it_once),
    TEST(a_predicted_step_is_of_the_stages_times), TEST(wrong_partitions_leave_the_stages_alone),
    TEST(skips_without_their_list_are_refused))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: with several numbers of micro-batches the planner finds what the best of one search for
 * each finds, changes what was asked for only for a reason, and leaves nothing out that could win.
 * Method: random layers, whose times have a fixed part; separate searches; and for what is left
 * out, its bound against the simulated step of random partitions and checkpoint modes.
 */
#include "harness.h"

#include "balance/planner.h"
#include "engine/planner_problems.h"
#include "steps.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COUNTS = 4, SCALES_MOST = 64 };

/* ---- bounds ---- */

/* Frozen layers at the beginning, F that is cheaper under checkpoint, R that is next to nothing. */
static void make_odd(struct problem *problem) {
    uint32_t layers = problem->costs.layer_count;
    uint32_t frozen = test_random_below(3) == 0 ? (uint32_t)test_random_below(layers) : 0;
    for (uint32_t i = 0; i < layers; i++) {
        struct weir_layer_cost *layer = &problem->layers[i];
        double *seconds = layer->seconds;
        if (test_random_below(2) == 0) layer->forward_checkpoint *= test_random_unit();
        if (test_random_below(2) == 0) seconds[WEIR_KIND_R] *= 0.1 * test_random_unit();
        if (test_random_below(2) == 0) seconds[WEIR_KIND_B] *= 0.5 + test_random_unit();
        layer->recompute_last = seconds[WEIR_KIND_R];
        if (test_random_below(8) == 0) layer->border_gradient = 0;
        if (i >= frozen) continue;
        seconds[WEIR_KIND_B] = seconds[WEIR_KIND_I] = seconds[WEIR_KIND_W] = 0;
        seconds[WEIR_KIND_R] = layer->recompute_last = 0;
        layer->no_backward = true;
        layer->border_gradient = 0;
        if (problem->skip.source == i) problem->skip.differentiable = false;
    }
}

/* So many parts of the layers, each at least one. */
static void cut_at_random(uint32_t layers, uint32_t stages, uint32_t *sizes) {
    for (uint32_t s = 0; s < stages; s++) sizes[s] = 1;
    for (uint32_t i = stages; i < layers; i++) sizes[test_random_below(stages)]++;
}

/* How near the bound came, at best. */
static double try_bounds(struct weir_planner *planner, uint32_t shape) {
    uint32_t stages = planner->shapes[shape].stages;
    uint32_t layers = planner->options->costs->layer_count;
    double nearest = 0, step;
    uint64_t estimate;
    for (int i = 0; i < 8; i++) {
        cut_at_random(layers, stages, planner->sizes);
        for (uint32_t s = 0; s < stages; s++)
            planner->modes[s] = WEIR_CHECKPOINT_ALWAYS + (enum weir_checkpoint)test_random_below(3);
        struct weir__try tried = weir__planner_present(planner, shape);
        tried.late = test_random_below(2) == 0;
        EXPECT_STATUS(weir__planner_try(planner, &tried, &step, &estimate, NULL), WEIR_OK);
        if (step >= HUGE_VAL) continue;
        double any = weir__planner_bound(planner, shape, NULL);
        double these = weir__planner_bound(planner, shape, planner->modes);
        EXPECT(any > 0 && any <= these);
        EXPECT(these <= step);
        nearest = fmax(nearest, these / step);
    }
    return nearest;
}

static void test_no_step_is_below_its_bound(void) {
    struct weir_planner *planner = problem_planner();
    struct problem problem;
    double scale[SCALES_MOST], nearest = 0;
    for (uint32_t i = 0; i < 60; i++) {
        uint32_t workers = 1 + (uint32_t)test_random_below(5);
        uint32_t micro_batches = 1 + (uint32_t)test_random_below(12);
        for (uint32_t k = 0; k < micro_batches; k++) scale[k] = test_random_unit() + 0.01;
        problem_fill(&problem, 2 * workers + 1 + (uint32_t)test_random_below(6));
        make_odd(&problem);
        struct weir_planner_options options = problem_options(&problem, workers, micro_batches);
        options.any_order = true;
        options.micro_batch_scale = i % 2 == 0 ? scale : NULL;
        options.host_seconds = i % 3 == 0 ? 1e-3 : 0;
        if (i % 4 == 0) options.link = (struct weir_link_cost){0, 0};
        CHECK_OK(weir__planner_begin(planner, &options));
        CHECK_OK(weir__planner_shapes(planner, 3, NULL));
        for (uint32_t s = 0; s < planner->shape_count; s++)
            nearest = fmax(nearest, try_bounds(planner, s));
        weir__planner_end(planner);
        CHECK_HELPERS();
    }
    printf("a bound came up to %.4f of a step\n", nearest);
    EXPECT(nearest > 0.99);
    weir_planner_destroy(planner);
}

/* ---- against a search for each ---- */

struct counts {
    struct problem problems[COUNTS];
    struct weir_planner_chunks list[COUNTS];
};

/* 4 are asked for. */
static struct weir_planner_options make_counts(struct counts *counts, uint32_t layers,
                                               uint32_t workers) {
    static const uint32_t numbers[COUNTS] = {4, 2, 8, 16};
    double fixed = test_random_below(2) == 0 ? 0.002 : 0.3;
    problem_fill(&counts->problems[0], layers);
    for (uint32_t i = 0; i < COUNTS; i++) {
        if (i > 0)
            problem_scale(&counts->problems[0], 4.0 / numbers[i], fixed, &counts->problems[i]);
        counts->list[i] =
            (struct weir_planner_chunks){numbers[i], &counts->problems[i].costs, NULL};
    }
    struct weir_planner_options options = problem_options(&counts->problems[0], workers, 4);
    options.other_count = COUNTS - 1;
    options.others = counts->list + 1;
    return options;
}

/* Each by itself: the fastest step, and the smallest limit. */
static void search_each(const struct counts *counts, struct weir_planner_options options,
                        double steps[COUNTS], uint64_t *least) {
    struct weir_planner *planner = problem_planner();
    struct weir_planner_result result;
    options.other_count = 0;
    options.others = NULL;
    *least = UINT64_MAX;
    for (uint32_t i = 0; i < COUNTS; i++) {
        options.micro_batches = counts->list[i].micro_batches;
        options.costs = counts->list[i].costs;
        int status = weir_planner_search(planner, &options, NULL, &result);
        steps[i] = status == WEIR_OK ? result.winner->step : HUGE_VAL;
        if (result.smallest_limit < *least) *least = result.smallest_limit;
        if (status != WEIR_OK) EXPECT_STATUS(status, WEIR_ERR_MEMORY_LIMIT);
    }
    weir_planner_destroy(planner);
}

static double least_of(const double *values) {
    double least = HUGE_VAL;
    for (uint32_t i = 0; i < COUNTS; i++) least = fmin(least, values[i]);
    return least;
}

static void compare_with_each(struct weir_planner *planner, const struct counts *counts,
                              const struct weir_planner_options *options) {
    struct weir_planner_result result;
    double steps[COUNTS];
    uint64_t least;
    search_each(counts, *options, steps, &least);
    int status = weir_planner_search(planner, options, NULL, &result);
    if (!(least_of(steps) < HUGE_VAL)) {
        EXPECT_STATUS(status, WEIR_ERR_MEMORY_LIMIT);
        EXPECT_EQ_UINT(result.smallest_limit, least);
        return;
    }
    if (!EXPECT_STATUS(status, WEIR_OK)) return;
    EXPECT(result.winner->step == least_of(steps));
    for (uint32_t i = 0; i < COUNTS; i++)
        if (result.winner->micro_batches == counts->list[i].micro_batches)
            EXPECT(result.winner->step == steps[i]);
}

static void test_the_best_of_several_counts_wins(void) {
    static struct counts room;
    struct counts *counts = &room;
    struct weir_planner *planner = problem_planner();
    for (uint32_t i = 0; i < 40; i++) {
        bool quick = i % 8 != 0; /* else a space that is searched whole */
        uint32_t workers = 2 + (quick ? i % 3 : 0);
        uint32_t layers = quick ? 2 * workers + (uint32_t)test_random_below(9) : 3;
        struct weir_planner_options options = make_counts(counts, layers, workers);
        struct weir_planner_result result;
        options.effort = quick ? WEIR_PLANNER_QUICK : WEIR_PLANNER_FULL;
        compare_with_each(planner, counts, &options);
        CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
        for (int k = 0; k < 3; k++) {
            double part = test_random_unit();
            options.memory_limit = 1 + (uint64_t)((double)result.front[0].bytes * part);
            compare_with_each(planner, counts, &options);
        }
        CHECK_HELPERS();
    }
    weir_planner_destroy(planner);
}

static void test_what_was_asked_for_stays_unless_it_is_slower(void) {
    static struct counts counts;
    struct weir_planner *planner = problem_planner();
    struct weir_planner_result result;
    uint32_t changed = 0;
    for (uint32_t i = 0; i < 24; i++) {
        struct weir_planner_options options = make_counts(&counts, 4, 2); /* searched whole */
        if (i % 2 == 0) options.schedule = "1f1b";
        double steps[COUNTS];
        uint64_t least;
        search_each(&counts, options, steps, &least);
        options.step_slack = i < 12 ? 0 : 0.02 * i;
        CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
        bool stays = steps[0] <= least_of(steps) * (1 + options.step_slack);
        EXPECT((result.winner->micro_batches == counts.list[0].micro_batches) == stays);
        EXPECT(result.winner->step <= least_of(steps) * (1 + options.step_slack));
        EXPECT_EQ_UINT(result.plain->micro_batches, counts.list[0].micro_batches);
        changed += !stays;
        CHECK_HELPERS();
    }
    EXPECT(changed > 0 && changed < 24);
    weir_planner_destroy(planner);
}

static void expect_refused(struct weir_planner *planner, const struct weir_planner_options *options,
                           const char *reason) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_planner_result result;
    faults.allocator = test_allocator();
    EXPECT_STATUS(weir_planner_search(planner, options, &faults, &result), WEIR_ERR_ARGUMENT);
    if (reason != NULL && EXPECT(faults.kept > 0)) EXPECT_CONTAINS(faults.lines[0], reason);
    weir_faults_clean_up(&faults);
}

static void test_counts_that_cannot_be_are_refused(void) {
    static struct counts counts;
    struct weir_planner *planner = problem_planner();
    struct weir_planner_result result;
    struct weir_planner_options options = make_counts(&counts, 6, 2);
    counts.list[2].micro_batches = 0;
    expect_refused(planner, &options, "no micro-batch");
    counts.list[2].micro_batches = 8;
    counts.problems[3].costs.layer_count = 5;
    expect_refused(planner, &options, "of 5 layers for 16 micro-batches, of 6 for 4");
    counts.problems[3].costs.layer_count = 6;
    counts.list[1].costs = NULL;
    expect_refused(planner, &options, NULL);
    options.others = NULL;
    expect_refused(planner, &options, NULL);
    options.other_count = 0;
    /* dualpipe-v takes no fewer micro-batches than stages: only what it takes is searched */
    options = make_counts(&counts, 6, 2);
    options.schedule = "dualpipe-v";
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    for (uint32_t i = 0; i < result.front_count; i++) EXPECT(result.front[i].micro_batches >= 4);
    weir_planner_destroy(planner);
}

/* ---- what a plan takes ---- */

/* 64 micro-batches were asked for; half as many, and twice, may be. */
static void test_quick_plans_over_several_counts_take_few_steps(void) {
    enum { STEPS_MOST = 16000000, TRIES_MOST = 90 };
    static struct problem problems[3];
    struct weir_planner *planner = NULL;
    struct weir_planner_result result = {.tries = 0};
    CHECK_OK(weir_planner_new(NULL, &planner)); /* no watching allocator */
    problem_fill(&problems[0], 32);
    problem_scale(&problems[0], 2, 0.1, &problems[1]);
    problem_scale(&problems[0], 0.5, 0.1, &problems[2]);
    struct weir_planner_chunks others[] = {{32, &problems[1].costs, NULL},
                                           {128, &problems[2].costs, NULL}};
    struct weir_planner_options options = problem_options(&problems[0], 8, 64);
    options.effort = WEIR_PLANNER_QUICK;
    options.other_count = 2;
    options.others = others;
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    options.memory_limit = (result.smallest_limit + result.front[0].bytes) / 2;
    uint64_t begin = test_steps();
    EXPECT_STATUS(weir_planner_search(planner, &options, NULL, &result), WEIR_OK);
    uint64_t steps = test_steps() - begin;
    printf("8 workers, 32, 64 or 128 micro-batches, 32 layers: %llu steps, %u tries\n",
           (unsigned long long)steps, result.tries);
    EXPECT(steps <= STEPS_MOST && result.tries <= TRIES_MOST);
    weir_planner_destroy(planner);
}

WEIR_TEST_SUITE(planner_chunks, TEST(no_step_is_below_its_bound),
                TEST(the_best_of_several_counts_wins),
                TEST(what_was_asked_for_stays_unless_it_is_slower),
                TEST(counts_that_cannot_be_are_refused),
                TEST(quick_plans_over_several_counts_take_few_steps))

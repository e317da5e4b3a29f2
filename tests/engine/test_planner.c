/* SPDX-License-Identifier: MIT */
/*
 * Goal: the planner's winner is the best there is, its limit holds, and what it
 * says is true. Method: a search in which everything is fixed is one try; small
 * spaces are searched by making all of them here, one by one, and a try's step
 * is simulated a second time. Exact bytes come from a formula of the test's
 * own. The time of plans is printed.
 */
#include "harness.h"
#include "engine/planner_problems.h"
#include "schedule/action.h"
#include "steps.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 6, SHARING = 4, WORKERS_MOST = 4 };

/* ---- everything, one by one ---- */

struct brute {
    struct weir_planner *planner;
    const struct weir_planner_options *options; /* but for what is fixed */
    const struct weir_planner_result *found;    /* to be beaten by nothing */
    uint64_t limit;
    double best;
    uint64_t least;
    uint32_t tries, beaten; /* not by the front: 0 */
};

static void judge(struct brute *brute, const struct weir_planner_choice *choice) {
    bool covered = false;
    for (uint32_t i = 0; i < brute->found->front_count; i++) {
        const struct weir_planner_choice *front = &brute->found->front[i];
        covered |= front->step <= choice->step && front->bytes <= choice->bytes;
    }
    brute->tries++;
    brute->beaten += !covered;
    if (choice->bytes < brute->least) brute->least = choice->bytes;
    if (choice->bytes <= brute->limit && choice->step < brute->best) brute->best = choice->step;
}

/* All modes of each stage, all times of recompute; false: the schedule does not
 * take it. */
static bool try_modes(struct brute *brute, struct weir_planner_options *fixed) {
    enum weir_checkpoint modes[LAYERS];
    uint32_t all = 1;
    for (uint32_t s = 0; s < fixed->stages; s++) all *= 3;
    fixed->stage_checkpoint = modes;
    for (uint32_t code = 0; code < 2 * all; code++) {
        struct weir_planner_result result;
        uint32_t rest = code / 2;
        for (uint32_t s = 0; s < fixed->stages; s++, rest /= 3)
            modes[s] = (enum weir_checkpoint)(WEIR_CHECKPOINT_ALWAYS + rest % 3);
        fixed->recompute = code % 2 == 0 ? WEIR_RECOMPUTE_EARLY : WEIR_RECOMPUTE_LATE;
        int status = weir_planner_search(brute->planner, fixed, NULL, &result);
        if (status == WEIR_ERR_ARGUMENT) return false;
        if (!EXPECT_STATUS(status, WEIR_OK)) return false;
        EXPECT_EQ_UINT(result.front_count, 1);
        judge(brute, result.winner);
    }
    return true;
}

static bool try_partitions(struct brute *brute, struct weir_planner_options *fixed, uint32_t *sizes,
                           uint32_t stage, uint32_t left) {
    if (stage + 1 == fixed->stages) {
        sizes[stage] = left;
        fixed->balance = sizes;
        return try_modes(brute, fixed);
    }
    for (sizes[stage] = 1; sizes[stage] + fixed->stages - stage - 1 <= left; sizes[stage]++)
        if (!try_partitions(brute, fixed, sizes, stage + 1, left - sizes[stage])) return false;
    return true;
}

static void try_all(struct brute *brute) {
    uint32_t layers = brute->options->costs->layer_count, sizes[LAYERS];
    uint32_t workers = brute->options->workers;
    for (uint32_t i = 0; weir_schedule_name(i) != NULL; i++) {
        if (weir_schedule_is_searched(weir_schedule_name(i))) continue;
        for (uint32_t stages = workers; stages <= SHARING * workers && stages <= layers; stages++) {
            struct weir_planner_options fixed = *brute->options;
            fixed.memory_limit = 0;
            fixed.schedule = weir_schedule_name(i);
            fixed.stages = stages;
            (void)try_partitions(brute, &fixed, sizes, 0, layers);
        }
    }
}

static void check_front(const struct weir_planner_result *result, uint64_t limit) {
    EXPECT(result->front_count > 0);
    for (uint32_t i = 0; i < result->front_count; i++) {
        const struct weir_planner_choice *at = &result->front[i], *before = at - 1;
        EXPECT(at->fits == (limit == 0 || at->bytes <= limit));
        if (i > 0) EXPECT(at->step > before->step && at->bytes < before->bytes);
    }
}

static void beat_the_winner(uint32_t layers, uint32_t workers, uint32_t micro_batches,
                            bool differ) {
    struct problem problem, other;
    struct weir_worker_cost costs[WORKERS_MOST];
    struct weir_planner *planner = problem_planner();
    struct weir_planner_result result;
    problem_fill(&problem, layers);
    struct weir_planner_options options = problem_options(&problem, workers, micro_batches);
    if (differ) problem_differ(&problem, &other, workers, costs);
    if (differ) options.worker_costs = costs;
    options.any_order = true;
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    /* a limit in the midst of the front */
    options.memory_limit = result.front[result.front_count / 2].bytes;
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    struct brute brute = {.planner = problem_planner(),
                          .options = &options,
                          .found = &result,
                          .limit = options.memory_limit,
                          .best = HUGE_VAL,
                          .least = UINT64_MAX};
    try_all(&brute);
    check_front(&result, options.memory_limit);
    EXPECT(result.winner->step == brute.best && result.winner->bytes <= options.memory_limit);
    EXPECT_EQ_UINT(result.smallest_limit, brute.least);
    EXPECT_EQ_UINT(brute.beaten, 0);
    printf("%u layers, %u workers, %u micro-batches: %u tries here, %u there, "
           "front of %u\n",
           layers, workers, micro_batches, brute.tries, result.tries, result.front_count);
    weir_planner_destroy(brute.planner);
    weir_planner_destroy(planner);
}

static void test_no_pipeline_of_a_small_space_beats_the_winner(void) {
    static const uint32_t cases[][3] = {{3, 2, 3}, {4, 2, 2}, {5, 2, 4}, {6, 3, 3}, {4, 3, 5}};
    for (uint32_t i = 0; i < 5; i++) {
        beat_the_winner(cases[i][0], cases[i][1], cases[i][2], false);
        CHECK_HELPERS();
    }
}

static void test_nor_where_workers_differ(void) {
    static const uint32_t cases[][3] = {{3, 2, 3}, {5, 2, 2}, {4, 3, 4}};
    for (uint32_t i = 0; i < 3; i++) {
        beat_the_winner(cases[i][0], cases[i][1], cases[i][2], true);
        CHECK_HELPERS();
    }
}

/* ---- a try ---- */

static double simulated(const struct weir_planner_options *options,
                        const struct weir_planner_choice *choice) {
    struct weir_table_options table_options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_simulate_options simulate = WEIR_SIMULATE_OPTIONS_INIT;
    struct weir_simulator *simulator;
    struct weir_stage_costs *stages;
    struct weir_table *table;
    struct weir_prediction prediction = {.step = -1};
    uint32_t workers[SHARING * WORKERS_MOST];
    table_options.allocator = test_allocator();
    table_options.schedule = choice->schedule;
    table_options.stages = choice->stages;
    table_options.workers = choice->workers;
    table_options.micro_batches = choice->micro_batches;
    table_options.stage_checkpoint = choice->checkpoint;
    table_options.recompute_late = choice->recompute_late;
    EXPECT_STATUS(weir_table_new(&table_options, NULL, &table), WEIR_OK);
    EXPECT_STATUS(weir_stage_costs_new(options->costs, choice->stages, test_allocator(), &stages),
                  WEIR_OK);
    weir__table_workers(table, workers);
    EXPECT_STATUS(weir_stage_costs_fill_on(stages, choice->balance, choice->stages,
                                           options->worker_costs, workers),
                  WEIR_OK);
    EXPECT_STATUS(weir_stage_costs_simulate(stages, WEIR_CHECKPOINT_DEFAULT, choice->checkpoint,
                                            choice->micro_batches, &simulate),
                  WEIR_OK);
    EXPECT_STATUS(weir_simulator_new(test_allocator(), &simulator), WEIR_OK);
    simulate.table = table;
    simulate.link = options->link;
    simulate.links = options->links;
    simulate.host_seconds = options->host_seconds;
    simulate.recompute_late = choice->recompute_late;
    simulate.micro_batch_scale = options->micro_batch_scale;
    EXPECT_STATUS(weir_simulate(simulator, &simulate, NULL, &prediction), WEIR_OK);
    weir_simulator_destroy(simulator);
    weir_stage_costs_destroy(stages);
    weir_table_destroy(table);
    return prediction.step;
}

static void check_parts(const struct weir_planner_choice *choice) {
    const struct weir_planner_parts *parts = &choice->parts;
    double sum = parts->work + parts->recompute + parts->bubble + parts->imbalance + parts->copies +
                 parts->host;
    EXPECT_NEAR(sum, choice->step, 1e-9 * choice->step);
    EXPECT(parts->work > 0 && parts->recompute >= 0);
}

static void test_steps_are_the_simulators_and_their_parts_add_up(void) {
    static const double scale[] = {1, 1, 1, 0.5, 1, 1, 1, 1, 0.25};
    static const struct weir_link_cost links[] = {{0, 0}, {1e-3, 0}, {0, 1e-8}, {0, 0}};
    struct problem problem, other;
    struct weir_worker_cost costs[WORKERS_MOST];
    struct weir_planner *planner = problem_planner();
    struct weir_planner_result result;
    for (uint32_t i = 0; i < 6; i++) {
        problem_fill(&problem, 7 + i);
        struct weir_planner_options options = problem_options(&problem, 2 + i % 2, 4 + i);
        if (i >= 3) problem_differ(&problem, &other, options.workers, costs);
        if (i >= 3) options.worker_costs = costs;
        if (i == 4) options.links = links;
        options.host_seconds = 1e-5 * i;
        options.micro_batch_scale = i % 2 == 0 ? NULL : scale;
        options.recompute = i % 3 == 0 ? WEIR_RECOMPUTE_LATE : WEIR_RECOMPUTE_ANY;
        CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
        for (uint32_t k = 0; k < result.front_count; k++)
            EXPECT_NEAR(simulated(&options, &result.front[k]), result.front[k].step, 1e-12);
        check_parts(result.winner);
        check_parts(result.runner_up);
        check_parts(result.plain);
        EXPECT_NEAR(simulated(&options, result.plain), result.plain->step, 1e-12);
        EXPECT_EQ_STR(result.plain->schedule, "1f1b");
        EXPECT(strcmp(result.runner_up->schedule, result.winner->schedule) != 0 ||
               result.runner_up->stages != result.winner->stages);
        EXPECT(result.runner_up->step >= result.winner->step);
        CHECK_HELPERS();
    }
    weir_planner_destroy(planner);
}

/* ---- exact bytes ---- */

/* Half to nearly all of the estimate, by the choice, so that the order of tries
 * is another one. */
static int other_bytes(void *context, const struct weir_planner_choice *choice, uint64_t *bytes) {
    uint32_t hash = (uint32_t)strlen(choice->schedule) + choice->recompute_late;
    uint32_t *asks = context;
    for (uint32_t s = 0; s < choice->stages; s++)
        hash = hash * 31 + choice->balance[s] * 4 + (uint32_t)choice->checkpoint[s];
    *bytes = choice->bytes / 2 + choice->bytes / 40 * (hash % 19);
    ++*asks;
    return choice->stages == 4 && hash % 5 == 0 ? WEIR_ERR_CONFIG : WEIR_OK;
}

static void try_limits(struct weir_planner *planner, struct weir_planner_options options) {
    struct weir_planner_result result;
    uint64_t bytes, least;
    uint32_t asks = 0, before = 0;
    options.memory = other_bytes;
    options.memory_context = &asks;
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    EXPECT_EQ_UINT(result.asks, asks);
    EXPECT(asks <= 48 + 27);
    uint64_t most = result.front[0].bytes;
    least = result.smallest_limit;
    for (uint32_t i = 0; i <= 4; i++) {
        options.memory_limit = i == 0 ? least : least + (most - least) * i / 4;
        CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
        CHECK_STATUS(other_bytes(&before, result.winner, &bytes), WEIR_OK);
        EXPECT(result.winner->exact && result.winner->fits && result.winner->bytes <= bytes * 2);
        EXPECT(result.winner->bytes <= options.memory_limit);
        check_front(&result, options.memory_limit);
        if (options.effort == WEIR_PLANNER_FULL) EXPECT_EQ_UINT(result.smallest_limit, least);
    }
    /* what is tried towards a limit may need less than the least of all others */
    options.memory_limit = least - 1;
    int status = weir_planner_search(planner, &options, NULL, &result);
    if (status == WEIR_OK)
        EXPECT(result.winner->exact && result.winner->bytes <= options.memory_limit);
    else
        EXPECT_EQ_INT(status, WEIR_ERR_MEMORY_LIMIT);
    /* what is refused names a limit that does */
    options.memory_limit = 1;
    CHECK_STATUS(weir_planner_search(planner, &options, NULL, &result), WEIR_ERR_MEMORY_LIMIT);
    EXPECT(result.winner == NULL && result.smallest_limit > options.memory_limit);
    options.memory_limit = result.smallest_limit;
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    EXPECT(result.winner->bytes <= options.memory_limit);
}

static void test_limits_hold_and_the_smallest_is_enough(void) {
    struct weir_planner *planner = problem_planner();
    struct problem problem;
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t workers = 2 + i % 3;
        problem_fill(&problem, 2 * workers + (uint32_t)test_random_below(3));
        struct weir_planner_options options = problem_options(&problem, workers, 2 * workers);
        options.effort = i % 2 == 0 ? WEIR_PLANNER_QUICK : WEIR_PLANNER_FULL;
        try_limits(planner, options);
        CHECK_HELPERS();
    }
    weir_planner_destroy(planner);
}

/* ---- quick ones ---- */

static void expect_least_is_enough(struct weir_planner *planner,
                                   struct weir_planner_options options) {
    struct weir_planner_result result;
    options.memory_limit = 1;
    CHECK_STATUS(weir_planner_search(planner, &options, NULL, &result), WEIR_ERR_MEMORY_LIMIT);
    options.memory_limit = result.smallest_limit;
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    EXPECT(result.winner->bytes <= options.memory_limit);
    EXPECT(result.smallest_limit <= options.memory_limit);
    /* what is tried towards a limit may be smaller, but is not what is named */
    uint64_t least = options.memory_limit;
    for (uint64_t i = 1; i <= 15; i++) {
        options.memory_limit = least * i / 16;
        int status = weir_planner_search(planner, &options, NULL, &result);
        if (status == WEIR_ERR_MEMORY_LIMIT) EXPECT_EQ_UINT(result.smallest_limit, least);
    }
}

/* The winner is the best of those of all schedules. */
static void expect_best_of_schedules(struct weir_planner *planner,
                                     struct weir_planner_options options) {
    struct weir_planner_result result;
    double best = HUGE_VAL;
    int status = weir_planner_search(planner, &options, NULL, &result);
    double step = status == WEIR_OK ? result.winner->step : HUGE_VAL;
    for (uint32_t i = 0; weir_schedule_name(i) != NULL; i++) {
        options.schedule = weir_schedule_name(i);
        if (weir_schedule_is_searched(options.schedule)) continue;
        status = weir_planner_search(planner, &options, NULL, &result);
        if (status == WEIR_OK && result.winner->step < best) best = result.winner->step;
    }
    EXPECT(step == best);
}

static void test_quick_searches_find_the_best_of_their_tries(void) {
    struct weir_planner *planner = problem_planner();
    struct problem problem;
    uint32_t asks = 0;
    for (uint32_t i = 0; i < 60; i++) {
        uint32_t workers = 2 + i % 4;
        struct weir_planner_result result;
        problem_fill(&problem, 2 * workers + (uint32_t)test_random_below(12));
        struct weir_planner_options options = problem_options(&problem, workers, 3 * workers);
        options.effort = WEIR_PLANNER_QUICK;
        options.any_order = true;
        expect_least_is_enough(planner, options);
        CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
        options.memory_limit = (uint64_t)((double)result.front[0].bytes * test_random_unit());
        expect_best_of_schedules(planner, options);
        options.memory = other_bytes;
        options.memory_context = &asks;
        expect_least_is_enough(planner, options);
        CHECK_HELPERS();
    }
    weir_planner_destroy(planner);
}

/* ---- the same again ---- */

static bool same(const struct weir_planner_choice *a, const struct weir_planner_choice *b) {
    return strcmp(a->schedule, b->schedule) == 0 && a->stages == b->stages && a->step == b->step &&
           a->bytes == b->bytes && a->recompute_late == b->recompute_late &&
           memcmp(a->balance, b->balance, a->stages * sizeof a->balance[0]) == 0 &&
           memcmp(a->checkpoint, b->checkpoint, a->stages * sizeof a->checkpoint[0]) == 0;
}

static void test_a_search_gives_the_same_again(void) {
    struct weir_planner *first = problem_planner(), *second = problem_planner();
    struct problem problem, other;
    for (int effort = WEIR_PLANNER_QUICK; effort <= WEIR_PLANNER_FULL; effort++) {
        struct weir_planner_result a, b;
        problem_fill(&problem, 20);
        problem_fill(&other, 5);
        struct weir_planner_options options = problem_options(&problem, 4, 8);
        struct weir_planner_options between = problem_options(&other, 2, 3);
        options.effort = between.effort = (enum weir_planner_effort)effort;
        options.memory_limit = UINT64_MAX / 2;
        CHECK_OK(weir_planner_search(first, &options, NULL, &a));
        CHECK_OK(weir_planner_search(second, &between, NULL, &b));
        CHECK_OK(weir_planner_search(second, &options, NULL, &b));
        CHECK_EQ_UINT(a.front_count, b.front_count);
        CHECK_EQ_UINT(a.tries, b.tries);
        for (uint32_t i = 0; i < a.front_count; i++) EXPECT(same(&a.front[i], &b.front[i]));
        EXPECT(same(a.winner, b.winner) && same(a.runner_up, b.runner_up));
    }
    weir_planner_destroy(first);
    weir_planner_destroy(second);
}

static void test_slack_takes_what_is_smaller(void) {
    struct weir_planner *planner = problem_planner();
    struct weir_planner_result result;
    struct problem problem;
    problem_fill(&problem, 12);
    struct weir_planner_options options = problem_options(&problem, 3, 6);
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    uint64_t bytes = result.winner->bytes;
    double most = result.winner->step * 1.2, step = result.winner->step;
    for (uint32_t i = 0; i < result.front_count; i++)
        if (result.front[i].step <= most) bytes = result.front[i].bytes;
    options.step_slack = 0.2;
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    EXPECT_EQ_UINT(result.winner->bytes, bytes);
    EXPECT(result.winner->step >= step && result.winner->step <= most);
    weir_planner_destroy(planner);
}

static void test_gradients_add_up_in_one_order_unless_asked(void) {
    struct weir_planner *planner = problem_planner();
    struct weir_planner_result result;
    struct problem problem;
    problem_fill(&problem, 6);
    struct weir_planner_options options = problem_options(&problem, 2, 4);
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    for (uint32_t i = 0; i < result.front_count; i++) {
        EXPECT(strcmp(result.front[i].schedule, "gpipe") != 0);
        EXPECT(strcmp(result.front[i].schedule, "looped-bfs") != 0);
    }
    options.schedule = "gpipe";
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    EXPECT_EQ_STR(result.winner->schedule, "gpipe");
    weir_planner_destroy(planner);
}

/* ---- what is fixed stays ---- */

static void test_what_is_fixed_stays(void) {
    static const uint32_t balance[] = {3, 1, 2, 2};
    static const enum weir_checkpoint modes[] = {WEIR_CHECKPOINT_NEVER, WEIR_CHECKPOINT_ALWAYS,
                                                 WEIR_CHECKPOINT_DEFAULT, WEIR_CHECKPOINT_NEVER};
    struct weir_planner *planner = problem_planner();
    struct weir_planner_result result;
    struct problem problem;
    problem_fill(&problem, 8);
    struct weir_planner_options options = problem_options(&problem, 2, 6), free = options;
    options.schedule = "zb-v";
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    for (uint32_t i = 0; i < result.front_count; i++)
        EXPECT_EQ_STR(result.front[i].schedule, "zb-v");
    options = free, options.stages = 4, options.balance = balance;
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    for (uint32_t i = 0; i < result.front_count; i++)
        EXPECT_EQ_BYTES(result.front[i].balance, balance, sizeof balance);
    options.stage_checkpoint = modes, options.recompute = WEIR_RECOMPUTE_LATE;
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    EXPECT(result.winner->checkpoint[0] == modes[0] && result.winner->checkpoint[1] == modes[1]);
    EXPECT(result.winner->recompute_late);
    options = free, options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    CHECK_OK(weir_planner_search(planner, &options, NULL, &result));
    double recompute = problem.costs.task_seconds * result.winner->stages;
    for (uint32_t i = 0; i < 8; i++) recompute += problem.layers[i].seconds[WEIR_KIND_R];
    EXPECT_NEAR(result.winner->parts.recompute, recompute * 6 / 2, 1e-12);
    for (uint32_t i = 0; i < result.front_count; i++)
        EXPECT(result.front[i].checkpoint[0] == WEIR_CHECKPOINT_ALWAYS);
    weir_planner_destroy(planner);
}

static void expect_refused(struct weir_planner *planner, const struct weir_planner_options *options,
                           const char *reason) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_planner_result result;
    faults.allocator = test_allocator();
    EXPECT_STATUS(weir_planner_search(planner, options, &faults, &result), WEIR_ERR_ARGUMENT);
    if (EXPECT(faults.kept > 0)) EXPECT_CONTAINS(faults.lines[0], reason);
    weir_faults_clean_up(&faults);
}

static void test_what_cannot_be_is_refused_with_its_reason(void) {
    static const uint32_t balance[] = {3, 1};
    struct weir_planner *planner = problem_planner();
    struct problem problem;
    problem_fill(&problem, 5);
    const struct weir_planner_options valid = problem_options(&problem, 2, 4);
    struct weir_planner_options options = valid;
    options.workers = 6;
    expect_refused(planner, &options, "6 workers for 5 layers");
    options = valid, options.micro_batches = 0;
    expect_refused(planner, &options, "no micro-batch");
    options = valid, options.schedule = "zb-w";
    expect_refused(planner, &options, "zb-w");
    options = valid, options.schedule = "zb-v", options.stages = 5;
    expect_refused(planner, &options, "zb-v has 2 per worker");
    options = valid, options.stages = 2, options.balance = balance;
    expect_refused(planner, &options, "does not give 5 layers");
    options.stages = 0;
    expect_refused(planner, &options, "give both");
    options = valid, options.stages = 1;
    expect_refused(planner, &options, "1 stage on 2 workers");
    options = valid, options.step_slack = NAN;
    expect_refused(planner, &options, "slack");
    const struct weir_worker_cost costs[] = {{0, 1}, {1, 1}};
    options = valid, options.worker_costs = costs;
    expect_refused(planner, &options, "worker 1: no costs of its kind");
    weir_planner_destroy(planner);
}

/* Where all that is lost is why a schedule does not take so many stages,
 * nothing is. */
static void test_every_failing_allocation_is_a_status(void) {
    struct problem problem;
    struct weir_planner *whole = problem_planner();
    struct weir_planner_result expected;
    problem_fill(&problem, 8);
    struct weir_planner_options options = problem_options(&problem, 2, 2);
    options.effort = WEIR_PLANNER_QUICK;
    options.memory_limit = UINT64_MAX / 2;
    CHECK_OK(weir_planner_search(whole, &options, NULL, &expected));
    uint32_t failures = 0;
    for (uint64_t k = 1;; k++) {
        struct weir_planner *planner = NULL;
        struct weir_planner_result result;
        test_allocator_fail_at(k, false);
        int status = weir_planner_new(test_allocator(), &planner);
        if (status == WEIR_OK) status = weir_planner_search(planner, &options, NULL, &result);
        bool fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        if (status == WEIR_OK)
            EXPECT(same(result.winner, expected.winner));
        else
            EXPECT_STATUS(status, WEIR_ERR_OUT_OF_MEMORY);
        failures += status != WEIR_OK;
        weir_planner_destroy(planner);
        if (!fired) break;
        CHECK_HELPERS();
    }
    EXPECT(failures > 100);
    weir_planner_destroy(whole);
}

/* ---- what a plan takes ---- */

/* Of one plan, within the limit that makes it try most: between the smallest and the fastest. */
static uint64_t plan_steps(struct weir_planner *planner, struct problem *problem, uint32_t workers,
                           uint32_t micro_batches, uint32_t *tries) {
    struct weir_planner_options options = problem_options(problem, workers, micro_batches);
    struct weir_planner_result result = {.tries = 0};
    options.effort = WEIR_PLANNER_QUICK;
    options.memory_limit = UINT64_MAX / 2;
    if (!EXPECT_STATUS(weir_planner_search(planner, &options, NULL, &result), WEIR_OK)) return 0;
    options.memory_limit = (result.smallest_limit + result.front[0].bytes) / 2;
    uint64_t begin = test_steps();
    EXPECT_STATUS(weir_planner_search(planner, &options, NULL, &result), WEIR_OK);
    *tries = result.tries;
    uint64_t steps = test_steps() - begin;
    EXPECT(steps > 0);
    return steps;
}

/* Four times what they were when this was written: 2 ms and 0.2 s then. */
static void test_quick_plans_take_few_steps(void) {
    enum { STEPS_SMALL = 14000000, STEPS_LARGE = 1200000000, TRIES_MOST = 60 };
    static struct problem problem;
    struct weir_planner *planner = NULL;
    uint32_t small_tries = 0, large_tries = 0;
    CHECK_OK(weir_planner_new(NULL, &planner)); /* no watching allocator */
    problem_fill(&problem, 32);
    uint64_t small = plan_steps(planner, &problem, 8, 64, &small_tries);
    problem_fill(&problem, PROBLEM_LAYERS_MOST);
    uint64_t large = plan_steps(planner, &problem, 64, 512, &large_tries);
    printf("8 workers, 64 micro-batches, 32 layers: %llu steps, %u tries; 64, 512, "
           "256: %llu, %u\n",
           (unsigned long long)small, small_tries, (unsigned long long)large, large_tries);
    EXPECT(small <= STEPS_SMALL && small_tries <= TRIES_MOST);
    EXPECT(large <= STEPS_LARGE && large_tries <= TRIES_MOST);
    weir_planner_destroy(planner);
}

WEIR_TEST_SUITE(planner, TEST(no_pipeline_of_a_small_space_beats_the_winner),
                TEST(nor_where_workers_differ),
                TEST(steps_are_the_simulators_and_their_parts_add_up),
                TEST(limits_hold_and_the_smallest_is_enough),
                TEST(quick_searches_find_the_best_of_their_tries),
                TEST(a_search_gives_the_same_again), TEST(slack_takes_what_is_smaller),
                TEST(gradients_add_up_in_one_order_unless_asked), TEST(what_is_fixed_stays),
                TEST(what_cannot_be_is_refused_with_its_reason),
                TEST(every_failing_allocation_is_a_status), TEST(quick_plans_take_few_steps))

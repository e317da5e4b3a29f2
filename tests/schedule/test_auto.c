/* SPDX-License-Identifier: MIT */
/*
 * Goal: the search's table is sound, keeps its limits, is never slower than a named schedule that
 * keeps them too, and in small cases is the best there is.
 * Method: an optimum found another way: all rows of each worker are listed, and all combinations of
 * them are run by a few lines that know F, B, I and W alone; a checker of limits that walks rows;
 * random times, copies, limits, skips and checkpoint modes.
 */
#include "harness.h"

#include "schedule/auto/auto.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STAGES_MAX 8

/** A search and the arrays that its options point to. */
struct trial {
    struct weir_search_options options;
    struct weir_simulate_options costs;
    double seconds[STAGES_MAX * WEIR_KIND_COUNT];
    uint64_t saved[STAGES_MAX], kept[STAGES_MAX], borders[STAGES_MAX];
    enum weir_checkpoint modes[STAGES_MAX];
    uint32_t readers[2][STAGES_MAX];
    struct weir_skip_route skips[2];
};

static void begin_trial(struct trial *t, uint32_t stages, uint32_t workers,
                        uint32_t micro_batches) {
    memset(t, 0, sizeof *t);
    t->options = (struct weir_search_options)WEIR_SEARCH_OPTIONS_INIT;
    t->costs = (struct weir_simulate_options)WEIR_SIMULATE_OPTIONS_INIT;
    t->options.allocator = test_allocator();
    t->options.costs = &t->costs;
    t->options.stages = stages;
    t->options.workers = workers;
    t->options.micro_batches = micro_batches;
    t->costs.stage_seconds = t->seconds;
    for (uint32_t s = 0; s < stages; s++) {
        for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) {
            t->seconds[s * WEIR_KIND_COUNT + k] = k == WEIR_KIND_B ? 2.0 : 1.0;
        }
    }
}

static double random_time(void) {
    return 0.25 + 0.25 * (double)test_random_below(8);
}

static void draw_times(struct trial *t) {
    for (uint32_t i = 0; i < t->options.stages * WEIR_KIND_COUNT; i++) {
        t->seconds[i] = random_time();
    }
    for (uint32_t s = 0; s < t->options.stages; s++) {
        double *own = &t->seconds[s * WEIR_KIND_COUNT];
        own[WEIR_KIND_B] = own[WEIR_KIND_I] + own[WEIR_KIND_W];
        if (test_random_below(3) == 0) own[WEIR_KIND_B] *= 0.75;
    }
    if (test_random_below(2) == 0) t->costs.link.latency = 0.25 * (double)test_random_below(4);
}

static struct weir_simulator *simulator_new(void) {
    struct weir_simulator *simulator = NULL;
    EXPECT_STATUS(weir_simulator_new(test_allocator(), &simulator), WEIR_OK);
    return simulator;
}

static double step_of(struct weir_simulator *simulator, const struct trial *t,
                      const struct weir_table *table, struct weir_prediction *prediction) {
    struct weir_simulate_options costs = t->costs;
    costs.table = table;
    EXPECT_STATUS(weir_simulate(simulator, &costs, NULL, prediction), WEIR_OK);
    return prediction->step;
}

/* ---- limits, by walking rows ---- */

static void expect_limits(const struct trial *t, const struct weir_table *table) {
    for (uint32_t w = 0; w < table->worker_count; w++) {
        uint64_t bytes = 0, activations = 0;
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            const struct weir_action *action = &table->actions[a];
            uint64_t saved = t->saved[action->stage], kept = t->kept[action->stage];
            bool again = false;
            for (uint32_t b = table->lines[w]; b < table->lines[w + 1]; b++) {
                const struct weir_action *other = &table->actions[b];
                again = again || (other->kind == WEIR_KIND_R && other->stage == action->stage &&
                                  other->micro_batch == action->micro_batch);
            }
            bool ends = action->kind == WEIR_KIND_B || action->kind == WEIR_KIND_W;
            if (action->kind == WEIR_KIND_F) bytes += kept + (again ? 0 : saved), activations++;
            if (action->kind == WEIR_KIND_R) bytes += saved;
            if (t->options.memory_limit > 0) EXPECT(bytes <= t->options.memory_limit);
            if (t->options.activation_limit > 0) EXPECT(activations <= t->options.activation_limit);
            if (ends) bytes -= kept + saved, activations--;
        }
        EXPECT_EQ_UINT(bytes, 0);
        EXPECT_EQ_UINT(activations, 0);
    }
}

static void expect_ascending(const struct weir_table *table) {
    uint32_t summed[STAGES_MAX] = {0};
    for (uint32_t a = 0; a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        if (action->kind != WEIR_KIND_B && action->kind != WEIR_KIND_W) continue;
        EXPECT_EQ_UINT(action->micro_batch, summed[action->stage]++);
    }
}

/* ---- the best of all rows, one stage per worker ---- */

#define BRUTE_STAGES 3
#define BRUTE_BATCHES 3
#define ROWS_MAX 4096
#define ROW_MAX (3 * BRUTE_BATCHES)

/** All rows of one worker, each a text of F, B, I and W; a kind's micro-batches ascend. */
struct all_rows {
    uint32_t count;
    char rows[ROWS_MAX][ROW_MAX + 1];
};

struct brute {
    const struct trial *t;
    struct all_rows *all; /**< [worker] */
    uint32_t micro_batches, limit;
    double best;
    uint64_t tables;
};

static void list_rows(struct brute *brute, struct all_rows *all, char *row, uint32_t length,
                      const uint32_t *done) {
    uint32_t m = brute->micro_batches, back = done[1] + done[2];
    if (done[0] == m && back == m && done[2] == done[3]) {
        row[length] = 0;
        EXPECT(all->count < ROWS_MAX);
        if (all->count < ROWS_MAX) memcpy(all->rows[all->count++], row, length + 1);
        return;
    }
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t next[4] = {done[0], done[1], done[2], done[3]};
        uint32_t alive = done[0] - done[1] - done[3];
        bool can = k == 0   ? done[0] < m && alive < brute->limit
                   : k == 3 ? done[3] < done[2]
                            : back < done[0];
        bool ascends = k != 1 || done[2] == done[3]; /* gradients are summed in order */
        if (!can || !ascends) continue;
        next[k]++;
        row[length] = "FBIW"[k];
        list_rows(brute, all, row, length + 1, next);
    }
}

/* Runs one row per stage; false where they wait for each other. */
static bool run_rows(const struct brute *brute, const char *const *rows, double *step) {
    const struct trial *t = brute->t;
    double forward[BRUTE_STAGES][BRUTE_BATCHES], gradient[BRUTE_STAGES][BRUTE_BATCHES];
    double free[BRUTE_STAGES] = {0};
    uint32_t at[BRUTE_STAGES] = {0}, f[BRUTE_STAGES] = {0}, g[BRUTE_STAGES] = {0};
    uint32_t p = t->options.stages;
    bool moved = true, whole = true;
    *step = 0.0;
    while (moved) {
        moved = false;
        for (uint32_t s = 0; s < p; s++) {
            char kind = rows[s][at[s]];
            double ready = 0.0;
            if (kind == 0) continue;
            if (kind == 'F') {
                if (s > 0 && f[s - 1] <= f[s]) continue;
                if (s > 0) ready = forward[s - 1][f[s]] + t->costs.link.latency;
            } else if (kind != 'W') {
                if (s + 1 < p && g[s + 1] <= g[s]) continue;
                if (s + 1 < p) ready = gradient[s + 1][g[s]] + t->costs.link.latency;
            }
            enum weir_kind k = kind == 'F'   ? WEIR_KIND_F
                               : kind == 'B' ? WEIR_KIND_B
                               : kind == 'I' ? WEIR_KIND_I
                                             : WEIR_KIND_W;
            free[s] = (free[s] > ready ? free[s] : ready) + t->seconds[s * WEIR_KIND_COUNT + k];
            if (kind == 'F') forward[s][f[s]++] = free[s];
            if (kind == 'B' || kind == 'I') gradient[s][g[s]++] = free[s];
            at[s]++;
            moved = true;
        }
    }
    for (uint32_t s = 0; s < p; s++) {
        whole = whole && rows[s][at[s]] == 0;
        *step = free[s] > *step ? free[s] : *step;
    }
    return whole;
}

static void combine(struct brute *brute, uint32_t s, const char **rows) {
    double step;
    if (s == brute->t->options.stages) {
        brute->tables++;
        if (run_rows(brute, rows, &step) && step < brute->best) brute->best = step;
        return;
    }
    for (uint32_t r = 0; r < brute->all[s].count; r++) {
        rows[s] = brute->all[s].rows[r];
        combine(brute, s + 1, rows);
    }
}

static double best_of_all(const struct trial *t) {
    static struct all_rows all[BRUTE_STAGES];
    const char *rows[BRUTE_STAGES];
    char row[ROW_MAX + 1];
    uint32_t none[4] = {0};
    struct brute brute = {.t = t,
                          .all = all,
                          .micro_batches = t->options.micro_batches,
                          .limit = t->options.activation_limit,
                          .best = INFINITY};
    if (brute.limit == 0) brute.limit = UINT32_MAX;
    for (uint32_t s = 0; s < t->options.stages; s++) {
        all[s].count = 0;
        list_rows(&brute, &all[s], row, 0, none);
    }
    combine(&brute, 0, rows);
    return brute.best;
}

static void test_small_cases_are_optimal(void) {
    enum { CASES = 120 };
    struct weir_simulator *simulator = simulator_new();
    uint32_t equal = 0, proven = 0, equal_quick = 0;
    for (uint32_t i = 0; i < CASES; i++) {
        struct trial t;
        struct weir_search_result result;
        uint32_t p = 1 + (uint32_t)test_random_below(BRUTE_STAGES);
        uint32_t m = 1 + (uint32_t)test_random_below(p == 3 ? 2 : BRUTE_BATCHES);
        begin_trial(&t, p, p, i % 40 == 0 ? BRUTE_BATCHES : m);
        draw_times(&t);
        t.options.activation_limit = (uint32_t)test_random_below(4);
        double best = best_of_all(&t);
        for (uint32_t quick = 0; quick < 2; quick++) {
            t.options.effort = quick > 0 ? 1 : 0;
            CHECK_OK(weir_search(simulator, &t.options, NULL, &result));
            EXPECT_STATUS(weir_table_check(result.table, test_allocator(), NULL), WEIR_OK);
            EXPECT(result.prediction.step >= best - 1e-9);
            EXPECT(result.bound <= best + 1e-9);
            expect_limits(&t, result.table);
            bool same = result.prediction.step <= best + 1e-9;
            EXPECT(same || !result.optimal);
            if (quick == 0) equal += same, proven += result.optimal;
            if (quick == 1) equal_quick += same;
            weir_table_destroy(result.table);
        }
    }
    printf("    auto is the best of all tables in %u of %d cases, proven in %u; with the least "
           "effort in %u\n",
           equal, CASES, proven, equal_quick);
    EXPECT(equal * 20 >= CASES * 19);
    EXPECT(proven * 10 >= CASES * 9);
    EXPECT(equal_quick * 10 >= CASES * 6);
    weir_simulator_destroy(simulator);
}

/* Branch and bound by itself, without a step that is known: no better table to hide behind. */
static void test_branch_and_bound_finds_the_best_from_nothing(void) {
    static const uint32_t workers[] = {0, 1, 2};
    for (uint32_t i = 0; i < 80; i++) {
        struct trial t;
        struct weir__auto_problem problem;
        struct weir__auto_bench bench;
        uint32_t p = 1 + (uint32_t)test_random_below(BRUTE_STAGES);
        begin_trial(&t, p, p, 1 + (uint32_t)test_random_below(p == 3 ? 2 : BRUTE_BATCHES));
        draw_times(&t);
        t.options.activation_limit = (uint32_t)test_random_below(4);
        double best = best_of_all(&t);
        CHECK_OK(weir__auto_problem_init(&problem, &t.options, &t.costs, workers));
        CHECK_OK(weir__auto_bench_init(&bench, &problem, 5000000));
        EXPECT(weir__auto_prove(&problem, &bench));
        EXPECT_NEAR(bench.best.step, best, 1e-9);
        EXPECT(problem.bound <= best + 1e-9);
        weir__auto_bench_clean_up(&bench, &problem);
        weir__auto_problem_clean_up(&problem);
    }
}

/* ---- limits ---- */

/* Up to three stages per worker, in any order, and too many actions to try all tables. */
static void draw_placement(struct trial *t, uint32_t *workers) {
    uint32_t p = 2 + (uint32_t)test_random_below(2),
             stages = 2 * p + (uint32_t)test_random_below(3);
    begin_trial(t, stages, p, 6);
    draw_times(t);
    for (uint32_t s = 0; s < stages; s++) {
        workers[s] = s < p ? s : (uint32_t)test_random_below(p);
    }
    t->options.stage_workers = workers;
    t->options.effort = 1;
    t->options.checkpoint = (enum weir_checkpoint)(1 + test_random_below(3));
    t->costs.saved_bytes = t->saved;
    t->costs.kept_bytes = t->kept;
    for (uint32_t s = 0; s < stages; s++) {
        t->saved[s] = 1 + test_random_below(9);
        t->kept[s] = test_random_below(4);
    }
}

/* What a worker needs for one micro-batch: all forward, then back, each with its R right before. */
static uint64_t least_limit(const struct trial *t, const uint32_t *workers) {
    uint32_t m = t->options.micro_batches;
    uint32_t most_again = weir_checkpoint_count(t->options.checkpoint, m) > 0;
    uint32_t least_again = weir_checkpoint_count(t->options.checkpoint, m) == m;
    uint64_t least = 0;
    for (uint32_t w = 0; w < t->options.workers; w++) {
        for (uint32_t again = least_again; again <= most_again; again++) {
            uint64_t now = 0;
            for (uint32_t s = 0; s < t->options.stages; s++) {
                if (workers[s] == w) now += t->kept[s] + (again ? 0 : t->saved[s]);
            }
            least = now > least ? now : least;
            for (uint32_t s = t->options.stages; s-- > 0;) {
                if (workers[s] != w) continue;
                now += again ? t->saved[s] : 0;
                least = now > least ? now : least;
                now -= t->kept[s] + t->saved[s];
            }
        }
    }
    return least;
}

static void test_every_limit_that_can_be_kept_is_kept(void) {
    struct weir_simulator *simulator = simulator_new();
    for (uint32_t i = 0; i < 200; i++) {
        struct trial t;
        struct weir_search_result result;
        uint32_t workers[STAGES_MAX];
        draw_placement(&t, workers);
        uint64_t least = least_limit(&t, workers);
        t.options.memory_limit = least + test_random_below(8);
        t.options.effort = 1 + test_random_below(3000);
        CHECK_OK(weir_search(simulator, &t.options, NULL, &result));
        EXPECT_STATUS(weir_table_check(result.table, test_allocator(), NULL), WEIR_OK);
        expect_limits(&t, result.table);
        weir_table_destroy(result.table);
        t.options.memory_limit = least - 1;
        EXPECT_STATUS(weir_search(simulator, &t.options, NULL, &result), WEIR_ERR_MEMORY_LIMIT);
    }
    weir_simulator_destroy(simulator);
}

/* A search that only falls back on names is none: at a tight limit it gains over them. */
static void test_a_tight_limit_is_used_up(void) {
    struct weir_simulator *simulator = simulator_new();
    for (uint32_t p = 2; p <= 4; p++) {
        struct weir_search_result result;
        struct trial t;
        begin_trial(&t, 2 * p, p, 3 * p);
        t.costs.link.latency = 0.25;
        t.options.activation_limit = 2 * p - 1;
        CHECK_OK(weir_search(simulator, &t.options, NULL, &result));
        EXPECT(result.name == NULL);
        EXPECT_EQ_UINT(result.prediction.workers[0].peak_activations, 2 * p - 1);
        expect_limits(&t, result.table);
        weir_table_destroy(result.table);
    }
    weir_simulator_destroy(simulator);
}

/* ---- random flows ---- */

static void draw_skips(struct trial *t) {
    uint32_t stages = t->options.stages;
    t->costs.skips = t->skips;
    while (stages > 1 && t->costs.skip_count < 2 && test_random_below(2) == 0) {
        uint32_t k = t->costs.skip_count++, count = 0;
        uint32_t source = (uint32_t)test_random_below(stages - 1);
        for (uint32_t s = source + 1; s < stages; s++) {
            if (test_random_below(3) == 0 || (s + 1 == stages && count == 0)) {
                t->readers[k][count++] = s;
            }
        }
        bool differentiable = test_random_below(4) > 0;
        t->skips[k] = (struct weir_skip_route){source, count, t->readers[k], 8, differentiable};
    }
}

static void draw_trial(struct trial *t) {
    uint32_t workers = 1 + (uint32_t)test_random_below(4);
    uint32_t stages = test_random_below(2) == 0 ? 2 * workers : workers;
    begin_trial(t, stages, workers, 1 + (uint32_t)test_random_below(9));
    draw_times(t);
    draw_skips(t);
    t->costs.border_bytes = t->borders;
    t->costs.saved_bytes = t->saved;
    t->costs.kept_bytes = t->kept;
    t->costs.link.seconds_per_byte = 0.01 * (double)test_random_below(5);
    t->costs.host_seconds = test_random_below(3) == 0 ? 0.125 : 0.0;
    t->costs.recompute_late = test_random_below(4) == 0;
    for (uint32_t s = 0; s < stages; s++) {
        t->borders[s] = test_random_below(10);
        t->saved[s] = test_random_below(10);
        t->kept[s] = test_random_below(4);
        t->modes[s] = (enum weir_checkpoint)test_random_below(4);
    }
    t->options.checkpoint = (enum weir_checkpoint)(1 + test_random_below(3));
    if (test_random_below(2) == 0) t->options.stage_checkpoint = t->modes;
    t->options.whole_backward = test_random_below(5) == 0;
    t->options.effort = 1 + test_random_below(3000);
    if (test_random_below(3) > 0) t->options.memory_limit = 1 + test_random_below(120);
    if (test_random_below(4) == 0) {
        t->options.activation_limit = 1 + (uint32_t)test_random_below(8);
    }
}

/* No named schedule that keeps the limits and the options is faster. */
static void expect_no_better_name(struct weir_simulator *simulator, const struct trial *t,
                                  double step) {
    const char *name;
    for (uint32_t i = 0; (name = weir_schedule_name(i)) != NULL; i++) {
        struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
        struct weir_prediction named;
        struct weir_table *table = NULL;
        bool fits = strcmp(name, "auto") != 0, splits = false;
        options.allocator = test_allocator();
        options.schedule = name;
        options.stages = t->options.stages;
        options.workers = t->options.workers;
        options.micro_batches = t->options.micro_batches;
        options.checkpoint = t->options.checkpoint;
        options.stage_checkpoint = t->options.stage_checkpoint;
        options.recompute_late = t->costs.recompute_late;
        if (!fits || weir_table_new(&options, NULL, &table) != WEIR_OK) continue;
        for (uint32_t a = 0; a < table->action_count; a++) {
            splits = splits || table->actions[a].kind == WEIR_KIND_I;
        }
        double own = step_of(simulator, t, table, &named);
        for (uint32_t w = 0; w < named.worker_count; w++) {
            uint64_t bytes = t->options.memory_limit, activations = t->options.activation_limit;
            fits = fits && (bytes == 0 || named.workers[w].peak_bytes <= bytes);
            fits = fits && (activations == 0 || named.workers[w].peak_activations <= activations);
        }
        fits = fits && !(splits && t->options.whole_backward);
        if (fits && !t->options.ascending) EXPECT(step <= own);
        weir_table_destroy(table);
    }
}

static void expect_sound(const struct trial *t, const struct weir_table *table) {
    struct weir__flow flow = {.stage_count = t->options.stages,
                              .skip_count = t->costs.skip_count,
                              .skips = t->skips,
                              .recompute_late = t->costs.recompute_late};
    EXPECT_STATUS(weir__table_check_flow(table, &flow, test_allocator(), NULL), WEIR_OK);
    for (uint32_t a = 0; a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        EXPECT(!t->options.whole_backward || action->kind != WEIR_KIND_I);
        if (action->kind != WEIR_KIND_R || !t->costs.recompute_late) continue;
        EXPECT(action[1].kind == WEIR_KIND_B || action[1].kind == WEIR_KIND_I);
        EXPECT(action[1].stage == action->stage && action[1].micro_batch == action->micro_batch);
    }
    expect_limits(t, table);
}

static void test_random_searches_are_sound_and_never_beaten_by_name(void) {
    struct weir_simulator *simulator = simulator_new();
    uint32_t found = 0, better = 0;
    for (uint32_t i = 0; i < 150; i++) {
        struct trial t;
        struct weir_search_result result, again;
        struct weir_prediction prediction;
        struct weir_faults faults = WEIR_FAULTS_INIT;
        draw_trial(&t);
        faults.allocator = test_allocator();
        int status = weir_search(simulator, &t.options, &faults, &result);
        if (status == WEIR_ERR_MEMORY_LIMIT) {
            EXPECT(faults.count == 1);
            EXPECT_CONTAINS(faults.lines[0], "give a limit of");
            weir_faults_clean_up(&faults);
            continue;
        }
        CHECK_OK(status);
        double step = result.prediction.step;
        found++;
        better += result.name == NULL;
        expect_sound(&t, result.table);
        if (result.name == NULL || t.options.ascending) expect_ascending(result.table);
        EXPECT_NEAR(step_of(simulator, &t, result.table, &prediction), step, 0.0);
        expect_no_better_name(simulator, &t, step);
        EXPECT(result.bound <= step);
        CHECK_OK(weir_search(simulator, &t.options, NULL, &again));
        CHECK_EQ_UINT(again.table->action_count, result.table->action_count);
        EXPECT(memcmp(again.table->actions, result.table->actions,
                      again.table->action_count * sizeof *again.table->actions) == 0);
        EXPECT_EQ_UINT(again.work, result.work);
        weir_table_destroy(again.table);
        weir_table_destroy(result.table);
    }
    EXPECT(found >= 50);
    EXPECT(better * 4 >= found);
    weir_simulator_destroy(simulator);
}

/* ---- what it should reach ---- */

static void test_equal_times_on_a_v_leave_no_idle_time_in_the_window(void) {
    struct weir_simulator *simulator = simulator_new();
    for (uint32_t p = 2; p <= 4; p++) {
        struct trial t;
        struct weir_search_result result;
        begin_trial(&t, 2 * p, p, 2 * p + 1);
        t.options.activation_limit = 2 * p;
        CHECK_OK(weir_search(simulator, &t.options, NULL, &result));
        EXPECT_NEAR(result.prediction.bubble_steady, 0.0, 1e-12);
        EXPECT(result.optimal);
        expect_limits(&t, result.table);
        weir_table_destroy(result.table);
    }
    weir_simulator_destroy(simulator);
}

static void test_unequal_times_gain_over_every_name(void) {
    struct weir_simulator *simulator = simulator_new();
    struct weir_search_result result;
    struct trial t;
    begin_trial(&t, 8, 4, 16);
    for (uint32_t s = 0; s < 8; s++) {
        double *own = &t.seconds[s * WEIR_KIND_COUNT];
        own[WEIR_KIND_F] = 1.0 + 0.125 * (s % 3);
        own[WEIR_KIND_I] = 1.25;
        own[WEIR_KIND_W] = 0.75 + 0.0625 * (s % 2);
        own[WEIR_KIND_B] = own[WEIR_KIND_I] + own[WEIR_KIND_W];
    }
    t.costs.link.latency = 0.125;
    t.options.activation_limit = 6;
    CHECK_OK(weir_search(simulator, &t.options, NULL, &result));
    EXPECT(result.name == NULL);
    expect_sound(&t, result.table);
    expect_no_better_name(simulator, &t, result.prediction.step);
    weir_table_destroy(result.table);
    weir_simulator_destroy(simulator);
}

static void test_many_workers_take_no_longer_than_their_actions(void) {
    struct weir_simulator *simulator = simulator_new();
    struct weir_search_options options = WEIR_SEARCH_OPTIONS_INIT;
    struct weir_search_result result;
    options.allocator = test_allocator();
    options.stages = options.workers = 3000;
    options.micro_batches = 2;
    options.effort = 1;
    CHECK_OK(weir_search(simulator, &options, NULL, &result));
    EXPECT_EQ_UINT(result.table->worker_count, 3000);
    weir_table_destroy(result.table);
    weir_simulator_destroy(simulator);
}

/* ---- what is refused ---- */

static void expect_refused(const struct weir_search_options *options, int status,
                           const char *line) {
    struct weir_simulator *simulator = simulator_new();
    struct weir_search_result result;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    EXPECT_STATUS(weir_search(simulator, options, &faults, &result), status);
    EXPECT(faults.count >= 1);
    if (faults.count >= 1) EXPECT_CONTAINS(faults.lines[0], line);
    EXPECT_STATUS(weir_search(simulator, options, NULL, &result), status);
    weir_faults_clean_up(&faults);
    weir_simulator_destroy(simulator);
}

static void test_what_cannot_be_is_refused_by_name(void) {
    struct trial t;
    uint32_t workers[] = {0, 0}, beyond[] = {0, 5};
    begin_trial(&t, 4, 2, 4);
    t.options.activation_limit = 1;
    expect_refused(&t.options, WEIR_ERR_MEMORY_LIMIT,
                   "worker 0 needs 2 activations for one micro-batch alone, which is more than its "
                   "limit: give a limit of 2 or more");
    begin_trial(&t, 2, 3, 4);
    expect_refused(&t.options, WEIR_ERR_ARGUMENT, "no more workers than stages");
    begin_trial(&t, 2, 2, 4);
    t.options.stage_workers = workers;
    expect_refused(&t.options, WEIR_ERR_ARGUMENT, "worker 1 has no stage");
    t.options.stage_workers = beyond;
    expect_refused(&t.options, WEIR_ERR_ARGUMENT, "stage 1 is given to worker 5");
    begin_trial(&t, 2, 2, UINT32_MAX);
    expect_refused(&t.options, WEIR_ERR_ARGUMENT, "ask for at most 2097152 micro-batches");
    begin_trial(&t, 2, 2, 4);
    t.seconds[3] = -1.0;
    expect_refused(&t.options, WEIR_ERR_ARGUMENT, "not negative");
    begin_trial(&t, 2, 2, 4);
    t.costs.skip_count = 1;
    expect_refused(&t.options, WEIR_ERR_ARGUMENT, "skip_count is 1 but skips is NULL");
    t.costs.skips = t.skips;
    t.skips[0] = (struct weir_skip_route){0, 1, beyond + 1, 8, true};
    expect_refused(&t.options, WEIR_ERR_ARGUMENT, "skip 0: its readers must be stages");
    t.options.size = 4;
    expect_refused(&t.options, WEIR_ERR_ARGUMENT, "size");
}

/* A named schedule's refusal may lose its text, which nobody reads; nothing else goes on. */
static void test_every_failed_allocation_is_reported(void) {
    struct weir_simulator *simulator = simulator_new();
    struct trial t;
    begin_trial(&t, 4, 2, 3);
    t.options.effort = 1;
    bool fired = true;
    uint32_t reported = 0;
    for (uint64_t k = 1; fired && k < 2000; k++) {
        struct weir_search_result result = {0};
        test_allocator_fail_at(k, false);
        int status = weir_search(simulator, &t.options, NULL, &result);
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        EXPECT(status == WEIR_OK || (fired && status == WEIR_ERR_OUT_OF_MEMORY));
        reported += status != WEIR_OK;
        if (status == WEIR_OK) weir_table_destroy(result.table);
    }
    EXPECT(!fired);
    EXPECT(reported > 100);
    weir_simulator_destroy(simulator);
}

/* ---- among the schedules ---- */

static void test_auto_is_a_schedule(void) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_search_options search = WEIR_SEARCH_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_table *table = NULL;
    faults.allocator = test_allocator();
    options.allocator = test_allocator();
    options.schedule = "auto";
    options.stages = 4;
    options.workers = 2;
    options.micro_batches = 5;
    CHECK_OK(weir_table_new(&options, &faults, &table));
    EXPECT_STATUS(weir_table_check(table, test_allocator(), NULL), WEIR_OK);
    weir_table_destroy(table);
    for (options.micro_batches = 1; options.micro_batches < 9; options.micro_batches++) {
        uint32_t workers[4];
        CHECK_OK(weir_table_new(&options, &faults, &table));
        weir__table_workers(table, workers);
        for (uint32_t s = 0; s < 4; s++) EXPECT_EQ_UINT(workers[s], s < 2 ? s : 3 - s);
        weir_table_destroy(table);
    }
    options.search = &search;
    search.activation_limit = 1;
    EXPECT_STATUS(weir_table_new(&options, &faults, &table), WEIR_ERR_ARGUMENT);
    EXPECT(faults.count == 1);
    if (faults.count == 1) EXPECT_CONTAINS(faults.lines[0], "give a limit of 2 or more");
    weir_faults_clean_up(&faults);
}

WEIR_TEST_SUITE(auto, TEST(small_cases_are_optimal),
                TEST(branch_and_bound_finds_the_best_from_nothing),
                TEST(every_limit_that_can_be_kept_is_kept), TEST(a_tight_limit_is_used_up),
                TEST(random_searches_are_sound_and_never_beaten_by_name),
                TEST(equal_times_on_a_v_leave_no_idle_time_in_the_window),
                TEST(unequal_times_gain_over_every_name),
                TEST(many_workers_take_no_longer_than_their_actions),
                TEST(what_cannot_be_is_refused_by_name), TEST(every_failed_allocation_is_reported),
                TEST(auto_is_a_schedule))

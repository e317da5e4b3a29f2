/* SPDX-License-Identifier: MIT */
/*
 * Goal: schedules give the rows that their papers draw, for every count, and refuse what cannot be.
 * Method: rows against texts and formulas; all small counts through the validator and the replay;
 * properties that the rest relies on (order of accumulation per stage, makespan) for all of them.
 */
#include "schedule/schedule_facts.h"

#include <stdio.h>
#include <string.h>

static const char *const schedules[] = {"gpipe", "1f1b"};

static void expect_csv(const char *schedule, struct schedule_counts counts,
                       enum weir_checkpoint checkpoint, const char *expected) {
    char text[4096] = "";
    struct weir_table *table = schedule_table(schedule, counts, checkpoint);
    if (table != NULL) {
        weir_table_format(table, false, text, sizeof text);
    }
    EXPECT_EQ_STR(text, expected);
    weir_table_destroy(table);
}

/* ---- checkpoint modes ---- */

// PI-1
static void test_modes_checkpoint_two_one_and_none_of_two(void) {
    CHECK_EQ_UINT(weir_checkpoint_count(WEIR_CHECKPOINT_ALWAYS, 2), 2);
    CHECK_EQ_UINT(weir_checkpoint_count(WEIR_CHECKPOINT_EXCEPT_LAST, 2), 1);
    CHECK_EQ_UINT(weir_checkpoint_count(WEIR_CHECKPOINT_NEVER, 2), 0);
    CHECK_EQ_UINT(weir_checkpoint_count(WEIR_CHECKPOINT_DEFAULT, 2), 1);
    CHECK_EQ_UINT(weir_checkpoint_count(WEIR_CHECKPOINT_ALWAYS, 1), 1);
    CHECK_EQ_UINT(weir_checkpoint_count(WEIR_CHECKPOINT_EXCEPT_LAST, 1), 0);
    CHECK_EQ_UINT(weir_checkpoint_count(WEIR_CHECKPOINT_EXCEPT_LAST, 0), 0);
    expect_csv("gpipe", (struct schedule_counts){1, 1, 2}, WEIR_CHECKPOINT_ALWAYS,
               "0F0,0F1,0R1,0B1,0R0,0B0,0U\n");
    expect_csv("gpipe", (struct schedule_counts){1, 1, 2}, WEIR_CHECKPOINT_EXCEPT_LAST,
               "0F0,0F1,0B1,0R0,0B0,0U\n");
    expect_csv("gpipe", (struct schedule_counts){1, 1, 2}, WEIR_CHECKPOINT_NEVER,
               "0F0,0F1,0B1,0B0,0U\n");
}

// PI-1
static void test_every_mode_accepts_one_micro_batch(void) {
    struct schedule_counts one = {1, 1, 1};
    expect_csv("1f1b", one, WEIR_CHECKPOINT_ALWAYS, "0F0,0R0,0B0,0U\n");
    expect_csv("1f1b", one, WEIR_CHECKPOINT_EXCEPT_LAST, "0F0,0B0,0U\n");
    expect_csv("1f1b", one, WEIR_CHECKPOINT_NEVER, "0F0,0B0,0U\n");
}

// PI-1
static void test_unknown_mode_is_refused_with_the_three_names(void) {
    enum weir_checkpoint mode = WEIR_CHECKPOINT_DEFAULT;
    CHECK_STATUS(weir_checkpoint_parse("sometimes", &mode), WEIR_ERR_ARGUMENT);
    CHECK_STATUS(weir_checkpoint_parse(NULL, &mode), WEIR_ERR_ARGUMENT);
    CHECK_EQ_INT(mode, WEIR_CHECKPOINT_DEFAULT);
    struct weir_table_options options =
        schedule_options("1f1b", (struct schedule_counts){2, 2, 2}, (enum weir_checkpoint)17);
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_table *table = NULL;
    EXPECT_STATUS(weir_table_new(&options, &faults, &table), WEIR_ERR_ARGUMENT);
    EXPECT_FAULTS(&faults, "choose always, except_last or never");
    weir_faults_clean_up(&faults);
}

static void test_mode_names_are_read_as_written(void) {
    static const enum weir_checkpoint modes[] = {
        WEIR_CHECKPOINT_ALWAYS, WEIR_CHECKPOINT_EXCEPT_LAST, WEIR_CHECKPOINT_NEVER};
    for (int i = 0; i < 3; i++) {
        enum weir_checkpoint mode = WEIR_CHECKPOINT_DEFAULT;
        CHECK_OK(weir_checkpoint_parse(weir_checkpoint_name(modes[i]), &mode));
        CHECK_EQ_INT(mode, modes[i]);
    }
    CHECK_EQ_STR(weir_checkpoint_name(WEIR_CHECKPOINT_DEFAULT), "except_last");
}

static void test_a_stage_may_have_its_own_mode(void) {
    static const enum weir_checkpoint own[] = {WEIR_CHECKPOINT_NEVER, WEIR_CHECKPOINT_DEFAULT,
                                               WEIR_CHECKPOINT_EXCEPT_LAST};
    struct weir_table_options options =
        schedule_options("gpipe", (struct schedule_counts){3, 3, 2}, WEIR_CHECKPOINT_ALWAYS);
    char text[512];
    options.stage_checkpoint = own;
    struct weir_table *table = NULL;
    CHECK_OK(weir_table_new(&options, NULL, &table));
    weir_table_format(table, false, text, sizeof text);
    EXPECT_EQ_STR(text, "0F0,0F1,0B1,0B0,0U\n"
                        "1F0,1F1,1R1,1B1,1R0,1B0,1U\n"
                        "2F0,2F1,2B1,2R0,2B0,2U\n");
    weir_table_destroy(table);
}

/* ---- GPipe ---- */

/* Replays a default flow with one time per kind; false (and the test failed) if that fails. The
 * caller gives room for as many starts and ends as the table has actions. */
static double replay(const struct weir_table *table, const double time_of[WEIR_KIND_COUNT],
                     double copy_time, double *start) {
    struct weir__flow flow = {.stage_count = table->stage_count};
    struct weir__deps deps = {0};
    double makespan = -1.0;
    uint32_t count = table->action_count;
    double *duration = weir__acquire(test_allocator(), count, sizeof *duration);
    double *end = weir__acquire(test_allocator(), count, sizeof *end);
    for (uint32_t a = 0; a < count; a++) {
        duration[a] = time_of[table->actions[a].kind];
    }
    EXPECT_STATUS(weir__deps_new(table, &flow, test_allocator(), &deps), WEIR_OK);
    uint32_t edges = deps.edge_count;
    double *copy = weir__acquire(test_allocator(), edges, sizeof *copy);
    for (uint32_t e = 0; e < edges; e++) {
        copy[e] = copy_time;
    }
    int status =
        weir__table_replay(table, &deps, duration, copy, start, end, &makespan, test_allocator());
    EXPECT_STATUS(status, WEIR_OK);
    weir__release(test_allocator(), copy, edges, sizeof *copy);
    weir__deps_clean_up(&deps);
    weir__release(test_allocator(), end, count, sizeof *end);
    weir__release(test_allocator(), duration, count, sizeof *duration);
    return makespan;
}

static const double unit_times[WEIR_KIND_COUNT] = {
    [WEIR_KIND_F] = 1, [WEIR_KIND_R] = 1, [WEIR_KIND_B] = 2};

/* In cycle k stage j is at micro-batch k - j: F(i, j) begins at i + j in units of a forward. */
static void expect_clock_cycles(uint32_t micro_batches, uint32_t stages) {
    struct weir_table *table = schedule_table(
        "gpipe", (struct schedule_counts){stages, stages, micro_batches}, WEIR_CHECKPOINT_NEVER);
    CHECK(table != NULL);
    double *start = weir__acquire(test_allocator(), table->action_count, sizeof *start);
    uint32_t forwards = 0;
    replay(table, unit_times, 0.0, start);
    for (uint32_t a = 0; a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        if (action->kind == WEIR_KIND_F) {
            EXPECT_NEAR(start[a], action->micro_batch + action->stage, 0);
            forwards++;
        }
    }
    EXPECT_EQ_UINT(forwards, (uint64_t)micro_batches * stages);
    weir__release(test_allocator(), start, table->action_count, sizeof *start);
    weir_table_destroy(table);
}

// PI-10
static void test_forwards_run_in_clock_cycles(void) {
    static const uint32_t pairs[][2] = {{1, 1}, {1, 3}, {3, 1}, {3, 3}, {4, 2}};
    for (size_t i = 0; i < WEIR__COUNT_OF(pairs); i++) {
        expect_clock_cycles(pairs[i][0], pairs[i][1]);
    }
}

/* The position of an action in its table, or UINT32_MAX. */
static uint32_t find(const struct weir_table *table, enum weir_kind kind, uint32_t stage,
                     uint32_t micro_batch) {
    for (uint32_t a = 0; a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        if (action->kind == kind && action->stage == stage && action->micro_batch == micro_batch) {
            return a;
        }
    }
    return UINT32_MAX;
}

static bool has_edge(const struct weir__deps *deps, uint32_t from, uint32_t to) {
    for (uint32_t e = deps->begin[to]; e < deps->begin[to + 1]; e++) {
        if (deps->edges[e].from == from) return true;
    }
    return false;
}

// PI-10
static void test_forward_depends_on_stage_before_and_micro_batch_before(void) {
    struct weir_table *table =
        schedule_table("gpipe", (struct schedule_counts){2, 2, 4}, WEIR_CHECKPOINT_ALWAYS);
    struct weir__flow flow = {.stage_count = 2};
    struct weir__deps deps;
    CHECK(table != NULL);
    CHECK_OK(weir__deps_new(table, &flow, test_allocator(), &deps));
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t first = find(table, WEIR_KIND_F, 0, i), second = find(table, WEIR_KIND_F, 1, i);
        EXPECT(has_edge(&deps, first, second));
        EXPECT_EQ_UINT(deps.begin[first], deps.begin[first + 1]);
        EXPECT_EQ_UINT(deps.begin[second + 1] - deps.begin[second], 1);
        for (uint32_t s = 0; s < 2 && i > 0; s++) {
            EXPECT(find(table, WEIR_KIND_F, s, i - 1) < find(table, WEIR_KIND_F, s, i));
        }
    }
    weir__deps_clean_up(&deps);
    weir_table_destroy(table);
}

// PI-11
static void test_gpipe_backward_runs_in_reverse(void) {
    expect_csv("gpipe", (struct schedule_counts){3, 3, 3}, WEIR_CHECKPOINT_EXCEPT_LAST,
               "0F0,0F1,0F2,0B2,0R1,0B1,0R0,0B0,0U\n"
               "1F0,1F1,1F2,1B2,1R1,1B1,1R0,1B0,1U\n"
               "2F0,2F1,2F2,2B2,2R1,2B1,2R0,2B0,2U\n");
    expect_csv("gpipe", (struct schedule_counts){4, 2, 2}, WEIR_CHECKPOINT_NEVER,
               "0F0,0F1,2F0,2F1,2B1,2B0,0B1,0B0,0U,2U\n"
               "1F0,1F1,3F0,3F1,3B1,3B0,1B1,1B0,1U,3U\n");
}

/* ---- 1F1B ---- */

static void test_1f1b_warms_up_alternates_and_cools_down(void) {
    expect_csv("1f1b", (struct schedule_counts){3, 3, 4}, WEIR_CHECKPOINT_NEVER,
               "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3,0U\n"
               "1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3,1U\n"
               "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3,2U\n");
    expect_csv("1f1b", (struct schedule_counts){2, 2, 3}, WEIR_CHECKPOINT_EXCEPT_LAST,
               "0F0,0F1,0R0,0B0,0F2,0R1,0B1,0B2,0U\n"
               "1F0,1R0,1B0,1F1,1R1,1B1,1F2,1B2,1U\n");
}

static void test_1f1b_with_few_micro_batches_has_a_short_warm_up(void) {
    expect_csv("1f1b", (struct schedule_counts){4, 4, 2}, WEIR_CHECKPOINT_NEVER,
               "0F0,0F1,0B0,0B1,0U\n1F0,1F1,1B0,1B1,1U\n2F0,2F1,2B0,2B1,2U\n"
               "3F0,3B0,3F1,3B1,3U\n");
}

static void test_one_stage_runs_as_the_schedule_says(void) {
    struct schedule_counts alone = {1, 1, 3};
    expect_csv("1f1b", alone, WEIR_CHECKPOINT_NEVER, "0F0,0B0,0F1,0B1,0F2,0B2,0U\n");
    expect_csv("gpipe", alone, WEIR_CHECKPOINT_NEVER, "0F0,0F1,0F2,0B2,0B1,0B0,0U\n");
}

// CK-1
static void test_one_worker_recomputes_each_segment_before_its_backward(void) {
    expect_csv("1f1b", (struct schedule_counts){2, 1, 1}, WEIR_CHECKPOINT_ALWAYS,
               "0F0,1F0,1R0,1B0,0R0,0B0,0U,1U\n");
    expect_csv("gpipe", (struct schedule_counts){2, 1, 1}, WEIR_CHECKPOINT_ALWAYS,
               "0F0,1F0,1R0,1B0,0R0,0B0,0U,1U\n");
    expect_csv("1f1b", (struct schedule_counts){2, 1, 2}, WEIR_CHECKPOINT_NEVER,
               "0F0,1F0,1B0,0B0,0F1,1F1,1B1,0B1,0U,1U\n");
}

static void test_1f1b_keeps_at_most_p_minus_s_in_flight(void) {
    for (uint32_t p = 1; p <= 6; p++) {
        struct weir_table *table =
            schedule_table("1f1b", (struct schedule_counts){p, p, 9}, WEIR_CHECKPOINT_NEVER);
        CHECK(table != NULL);
        for (uint32_t w = 0; w < p; w++) {
            uint32_t held = 0, peak = 0;
            for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
                held += table->actions[a].kind == WEIR_KIND_F;
                held -= table->actions[a].kind == WEIR_KIND_B;
                peak = held > peak ? held : peak;
            }
            EXPECT_EQ_UINT(peak, p - w);
        }
        weir_table_destroy(table);
    }
}

/* ---- every count ---- */

typedef void visit_fn(const char *schedule, struct schedule_counts counts,
                      enum weir_checkpoint checkpoint, const struct weir_table *table);

/* All tables of up to 8 stages on all numbers of workers, with up to 11 micro-batches. */
static void for_every_table(visit_fn *visit) {
    for (size_t k = 0; k < WEIR__COUNT_OF(schedules); k++) {
        for (uint32_t n = 1; n <= 8; n++) {
            for (uint32_t p = 1; p <= n; p++) {
                for (uint32_t m = 1; m <= 11; m++) {
                    enum weir_checkpoint mode = (enum weir_checkpoint)(1 + (n + p + m) % 3);
                    struct schedule_counts counts = {n, p, m};
                    struct weir_table *table = schedule_table(schedules[k], counts, mode);
                    CHECK(table != NULL);
                    visit(schedules[k], counts, mode, table);
                    weir_table_destroy(table);
                    CHECK_HELPERS();
                }
            }
        }
    }
}

static void expect_proven(const char *schedule, struct schedule_counts counts,
                          enum weir_checkpoint checkpoint, const struct weir_table *table) {
    struct weir_faults faults = {.allocator = test_allocator()};
    (void)checkpoint;
    if (!EXPECT_STATUS(weir_table_check(table, test_allocator(), &faults), WEIR_OK)) {
        TEST_FAIL("%s, %u stages on %u workers, %u micro-batches: %s", schedule,
                  (unsigned)counts.stages, (unsigned)counts.workers, (unsigned)counts.micro_batches,
                  faults.lines[0]);
    }
    weir_faults_clean_up(&faults);
}

static void test_every_table_is_proven(void) {
    for_every_table(expect_proven);
}

static void expect_loop_order(const char *schedule, struct schedule_counts counts,
                              enum weir_checkpoint checkpoint, const struct weir_table *table) {
    uint32_t workers[8];
    (void)schedule;
    (void)checkpoint;
    weir__table_workers(table, workers);
    for (uint32_t s = 0; s < counts.stages; s++) {
        EXPECT_EQ_UINT(workers[s], s % counts.workers);
    }
    for (uint32_t a = 0; a < table->action_count; a++) {
        EXPECT_EQ_UINT(weir__table_worker_of(table, a), workers[table->actions[a].stage]);
    }
}

static void test_stages_stand_in_loop_order(void) {
    for_every_table(expect_loop_order);
}

/* The bits of a gradient depend on the order of accumulation, so no count may change it. */
static void expect_order_of_accumulation(const char *schedule, struct schedule_counts counts,
                                         enum weir_checkpoint checkpoint,
                                         const struct weir_table *table) {
    bool reverse = strcmp(schedule, "gpipe") == 0;
    uint32_t forward[8] = {0}, backward[8] = {0}, last = counts.micro_batches - 1;
    (void)checkpoint;
    for (uint32_t a = 0; a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        uint32_t *seen = action->kind == WEIR_KIND_F ? forward : backward;
        if (action->kind == WEIR_KIND_F || action->kind == WEIR_KIND_B) {
            uint32_t place = seen[action->stage]++;
            bool turned = reverse && action->kind == WEIR_KIND_B;
            EXPECT_EQ_UINT(action->micro_batch, turned ? last - place : place);
        }
    }
}

static void test_order_of_accumulation_does_not_depend_on_counts(void) {
    for_every_table(expect_order_of_accumulation);
}

static void expect_recompute_just_before_backward(const char *schedule,
                                                  struct schedule_counts counts,
                                                  enum weir_checkpoint checkpoint,
                                                  const struct weir_table *table) {
    struct weir_table_options options = schedule_options(schedule, counts, checkpoint);
    struct weir_table *late = NULL;
    uint32_t recomputes = 0;
    options.recompute_late = true;
    CHECK_OK(weir_table_new(&options, NULL, &late));
    EXPECT_EQ_UINT(late->action_count, table->action_count);
    for (uint32_t a = 0; a < late->action_count; a++) {
        const struct weir_action *action = &late->actions[a];
        if (action->kind == WEIR_KIND_R) {
            recomputes++;
            EXPECT_EQ_INT(action[1].kind, WEIR_KIND_B);
            EXPECT_EQ_INT(action[1].stage, action->stage);
            EXPECT_EQ_UINT(action[1].micro_batch, action->micro_batch);
        }
    }
    EXPECT_EQ_UINT(recomputes, (uint64_t)counts.stages *
                                   weir_checkpoint_count(checkpoint, counts.micro_batches));
    weir_table_destroy(late);
}

static void test_late_recompute_stands_just_before_its_backward(void) {
    for_every_table(expect_recompute_just_before_backward);
}

/* Not longer than the same work merged into one stage per worker: (m + p - 1) (1 + 2) times the
 * largest number of stages that a worker holds. */
static void expect_no_loss_to_sharing(const char *schedule, struct schedule_counts counts,
                                      enum weir_checkpoint checkpoint,
                                      const struct weir_table *table) {
    double recompute = checkpoint == WEIR_CHECKPOINT_ALWAYS ? 1.0 : 0.0;
    double held = (counts.stages + counts.workers - 1) / counts.workers;
    double bound = (counts.micro_batches + counts.workers - 1) * (3.0 + recompute) * held;
    double *start = weir__acquire(test_allocator(), table->action_count, sizeof *start);
    double makespan = replay(table, unit_times, 0.0, start);
    weir__release(test_allocator(), start, table->action_count, sizeof *start);
    if (checkpoint != WEIR_CHECKPOINT_EXCEPT_LAST && !EXPECT(makespan <= bound)) {
        TEST_FAIL("%s, %u stages on %u workers, %u micro-batches: %g above %g", schedule,
                  (unsigned)counts.stages, (unsigned)counts.workers, (unsigned)counts.micro_batches,
                  makespan, bound);
    }
}

static void test_sharing_a_worker_costs_no_time(void) {
    for_every_table(expect_no_loss_to_sharing);
}

static double makespan_of(const char *schedule, struct schedule_counts counts, double unit,
                          double copy) {
    struct weir_table *table = schedule_table(schedule, counts, WEIR_CHECKPOINT_NEVER);
    const double times[WEIR_KIND_COUNT] = {[WEIR_KIND_F] = unit, [WEIR_KIND_B] = 2 * unit};
    if (table == NULL) return -1;
    double *start = weir__acquire(test_allocator(), table->action_count, sizeof *start);
    double makespan = replay(table, times, copy, start);
    weir__release(test_allocator(), start, table->action_count, sizeof *start);
    weir_table_destroy(table);
    return makespan;
}

static void test_makespans_are_the_textbooks(void) {
    for (size_t k = 0; k < WEIR__COUNT_OF(schedules); k++) {
        for (uint32_t p = 1; p <= 6; p++) {
            for (uint32_t m = 1; m <= 12; m++) {
                double makespan =
                    makespan_of(schedules[k], (struct schedule_counts){p, p, m}, 1.0, 0.0);
                CHECK_NEAR(makespan, (m + p - 1) * 3.0, 0);
            }
        }
    }
}

static void test_four_stages_on_two_workers_keep_up_with_two(void) {
    for (size_t k = 0; k < WEIR__COUNT_OF(schedules); k++) {
        for (uint32_t m = 1; m <= 64; m++) {
            double two = makespan_of(schedules[k], (struct schedule_counts){2, 2, m}, 1.0, 0.0);
            double four = makespan_of(schedules[k], (struct schedule_counts){4, 2, m}, 0.5, 0.0);
            CHECK(four > 0 && four <= 1.1 * two);
        }
    }
}

/* In the steady phase of a loop no copy stands in the way: only those of the ends do. */
static void test_a_loop_hides_copies(void) {
    struct schedule_counts small = {4, 2, 8}, large = {4, 2, 64};
    double steady = makespan_of("1f1b", large, 1.0, 0.1) - makespan_of("1f1b", small, 1.0, 0.1);
    CHECK_NEAR(steady, 56 * 2 * 3.0, 1e-9);
}

/* What a loop's warm-up keeps, and one more. */
static void expect_bounded_loop(const char *schedule, struct schedule_counts counts,
                                enum weir_checkpoint checkpoint, const struct weir_table *table) {
    uint32_t turns = (counts.stages + counts.workers - 1) / counts.workers;
    uint32_t rounds = counts.micro_batches / counts.workers;
    uint32_t round =
        rounds > 0 ? (counts.micro_batches + rounds - 1) / rounds : counts.micro_batches;
    (void)checkpoint;
    if (strcmp(schedule, "1f1b") != 0) return;
    for (uint32_t w = 0; w < counts.workers; w++) {
        uint32_t held = 0, behind = counts.workers - 1 - w;
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            held += table->actions[a].kind == WEIR_KIND_F;
            held -= table->actions[a].kind == WEIR_KIND_B;
            EXPECT(held <= (turns == 1 ? behind : (turns - 1) * round + 2 * behind) + 1);
        }
    }
}

static void test_a_loop_keeps_a_round_and_its_warm_up(void) {
    for_every_table(expect_bounded_loop);
}

/* ---- inference ---- */

static void expect_infer(const struct weir_table *training, uint32_t micro_batches) {
    struct weir_table *infer = NULL;
    struct weir__flow flow = {.stage_count = training->stage_count, .infer = true};
    uint32_t workers[8], own[8], seen[8] = {0};
    CHECK_OK(weir__table_new_infer(training, micro_batches, test_allocator(), &infer));
    EXPECT_STATUS(weir__table_check_flow(infer, &flow, test_allocator(), NULL), WEIR_OK);
    weir__table_workers(training, workers);
    weir__table_workers(infer, own);
    EXPECT_EQ_BYTES(workers, own, training->stage_count * sizeof *own);
    EXPECT_EQ_UINT(infer->action_count, (uint64_t)training->stage_count * micro_batches);
    for (uint32_t a = 0; a < infer->action_count; a++) {
        EXPECT_EQ_UINT(infer->actions[a].micro_batch, seen[infer->actions[a].stage]++);
    }
    weir_table_destroy(infer);
}

static void expect_infer_tables(const char *schedule, struct schedule_counts counts,
                                enum weir_checkpoint checkpoint, const struct weir_table *table) {
    (void)schedule;
    (void)checkpoint;
    expect_infer(table, counts.micro_batches);
    expect_infer(table, 1);
    expect_infer(table, counts.micro_batches + 3);
}

static void test_inference_runs_forwards_in_order_on_the_same_workers(void) {
    for_every_table(expect_infer_tables);
}

/* ---- refusals ---- */

static void expect_refused(struct weir_table_options options, const char *reason) {
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_table *table = NULL;
    EXPECT_STATUS(weir_table_new(&options, &faults, &table), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_table_new(&options, NULL, &table), WEIR_ERR_ARGUMENT);
    if (EXPECT(faults.kept > 0)) {
        EXPECT_CONTAINS(faults.lines[0], reason);
    }
    EXPECT(table == NULL);
    weir_faults_clean_up(&faults);
}

static void test_impossible_counts_name_the_nearest_valid(void) {
    enum weir_checkpoint mode = WEIR_CHECKPOINT_DEFAULT;
    expect_refused(schedule_options("1f1b", (struct schedule_counts){0, 0, 1}, mode),
                   "the nearest is 1");
    expect_refused(schedule_options("1f1b", (struct schedule_counts){65536, 0, 1}, mode),
                   "the nearest is 65535");
    expect_refused(schedule_options("1f1b", (struct schedule_counts){2, 0, 0}, mode),
                   "the nearest is 1");
    expect_refused(schedule_options("1f1b", (struct schedule_counts){1, 0, UINT32_MAX}, mode),
                   "the nearest is 2147483648");
    expect_refused(schedule_options("1f1b", (struct schedule_counts){4, 5, 8}, mode),
                   "at most 4 workers or at least 5 stages");
    expect_refused(schedule_options("gpipe", (struct schedule_counts){65535, 0, 65535}, mode),
                   "at most 10922 micro-batches");
    expect_refused(
        schedule_options("gpipe", (struct schedule_counts){1, 1, UINT32_C(1) << 31}, mode),
        "too many actions for one table");
}

static void test_unknown_schedule_lists_the_known(void) {
    struct schedule_counts counts = {2, 2, 2};
    expect_refused(schedule_options("1f2b", counts, WEIR_CHECKPOINT_DEFAULT),
                   "there is no schedule '1f2b': choose one of gpipe, 1f1b");
    expect_refused(schedule_options(NULL, counts, WEIR_CHECKPOINT_DEFAULT),
                   "there is no schedule ''");
    CHECK_EQ_STR(weir_schedule_name(0), "gpipe");
    CHECK_EQ_STR(weir_schedule_name(1), "1f1b");
    uint32_t count = 0;
    while (weir_schedule_name(count) != NULL) count++;
    CHECK_EQ_STR(weir_schedule_name(count - 1), "auto");
}

static void test_all_reasons_are_listed(void) {
    static const enum weir_checkpoint own[] = {WEIR_CHECKPOINT_NEVER, (enum weir_checkpoint)9};
    struct weir_table_options options =
        schedule_options("none", (struct schedule_counts){2, 3, 0}, (enum weir_checkpoint)8);
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_table *table = NULL;
    options.stage_checkpoint = own;
    EXPECT_STATUS(weir_table_new(&options, &faults, &table), WEIR_ERR_ARGUMENT);
    EXPECT_FAULTS(&faults, "there is no schedule 'none'", "0 micro-batches",
                  "3 workers for 2 stages", "checkpoint mode 8 is unknown",
                  "checkpoint mode 9 of stage 1 is unknown");
    weir_faults_clean_up(&faults);
}

static void test_options_of_another_size_are_refused(void) {
    struct weir_table_options options =
        schedule_options("gpipe", (struct schedule_counts){2, 2, 2}, WEIR_CHECKPOINT_NEVER);
    struct weir_table *table = NULL;
    options.size = offsetof(struct weir_table_options, checkpoint);
    CHECK_STATUS(weir_table_new(&options, NULL, &table), WEIR_ERR_ARGUMENT);
    options.size = sizeof options + 1;
    CHECK_STATUS(weir_table_new(&options, NULL, &table), WEIR_ERR_ARGUMENT);
    options.size = 0;
    CHECK_STATUS(weir_table_new(&options, NULL, &table), WEIR_ERR_ARGUMENT);
    CHECK_STATUS(weir_table_new(NULL, NULL, &table), WEIR_ERR_ARGUMENT);
}

static void test_no_workers_given_means_one_per_stage(void) {
    struct weir_table *table =
        schedule_table("1f1b", (struct schedule_counts){3, 0, 2}, WEIR_CHECKPOINT_NEVER);
    CHECK(table != NULL);
    EXPECT_EQ_UINT(table->worker_count, 3);
    weir_table_destroy(table);
    weir_table_destroy(NULL);
}

static void test_lack_of_memory_leaves_nothing(void) {
    struct weir_table_options options =
        schedule_options("1f1b", (struct schedule_counts){4, 2, 20}, WEIR_CHECKPOINT_ALWAYS);
    uint64_t k = 0;
    for (bool fired = true; fired; k++) {
        struct weir_table *table = NULL, *infer = NULL;
        test_allocator_fail_at(k + 1, false);
        int status = weir_table_new(&options, NULL, &table);
        if (status == WEIR_OK) {
            status = weir__table_new_infer(table, 20, test_allocator(), &infer);
        }
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        EXPECT_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        weir_table_destroy(table);
        weir_table_destroy(infer);
        CHECK_HELPERS();
    }
    CHECK(k > 8);
}

WEIR_TEST_SUITE(
    schedule, TEST(modes_checkpoint_two_one_and_none_of_two),
    TEST(every_mode_accepts_one_micro_batch), TEST(unknown_mode_is_refused_with_the_three_names),
    TEST(mode_names_are_read_as_written), TEST(a_stage_may_have_its_own_mode),
    TEST(forwards_run_in_clock_cycles),
    TEST(forward_depends_on_stage_before_and_micro_batch_before),
    TEST(gpipe_backward_runs_in_reverse), TEST(1f1b_warms_up_alternates_and_cools_down),
    TEST(1f1b_with_few_micro_batches_has_a_short_warm_up),
    TEST(one_stage_runs_as_the_schedule_says),
    TEST(one_worker_recomputes_each_segment_before_its_backward),
    TEST(1f1b_keeps_at_most_p_minus_s_in_flight), TEST(every_table_is_proven),
    TEST(stages_stand_in_loop_order), TEST(order_of_accumulation_does_not_depend_on_counts),
    TEST(late_recompute_stands_just_before_its_backward), TEST(sharing_a_worker_costs_no_time),
    TEST(makespans_are_the_textbooks), TEST(four_stages_on_two_workers_keep_up_with_two),
    TEST(a_loop_hides_copies), TEST(a_loop_keeps_a_round_and_its_warm_up),
    TEST(inference_runs_forwards_in_order_on_the_same_workers),
    TEST(impossible_counts_name_the_nearest_valid), TEST(unknown_schedule_lists_the_known),
    TEST(all_reasons_are_listed), TEST(options_of_another_size_are_refused),
    TEST(no_workers_given_means_one_per_stage), TEST(lack_of_memory_leaves_nothing))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: dependencies are what the kinds say, the validator accepts exactly the tables that can run
 * and do everything once, and names what is wrong. Method: tables written as CSV by hand; then
 * random tables and mutations of good ones, judged a second time by executing them naively, by
 * definition.
 */
#include "harness.h"

#include "schedule/action.h"

#include <stdio.h>
#include <string.h>

/* The table of a text, nothing added but U; NULL (and the test failed) if it is refused. */
static struct weir_table *table_of(const char *text) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table = NULL;
    options.allocator = test_allocator();
    options.stages = options.micro_batches = 0;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    int status = weir_table_parse(&options, text, strlen(text), NULL, NULL, &table);
    EXPECT_STATUS(status, WEIR_OK);
    return table;
}

static uint32_t find(const struct weir_table *table, const char *name) {
    char text[24];
    for (uint32_t a = 0; a < table->action_count; a++) {
        if (strcmp(weir__action_text(&table->actions[a], text), name) == 0) return a;
    }
    TEST_FAIL("there is no %s", name);
    return 0;
}

/* ---- kinds ---- */

/* A new kind without its entry, or with half of one, has no time, no colour or another's phase. */
static void test_every_kind_has_its_own_facts(void) {
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) {
        const struct weir__kind_facts *kind = &weir__kinds[k];
        CHECK(kind->name != NULL && kind->units > 0.0);
        CHECK(kind->background >= 41 && kind->background <= 47);
        CHECK(kind->exported || !kind->plain);
        CHECK(kind->phase == WEIR_PHASE_COUNT || kind->reads != 0);
        for (uint32_t other = 0; other < k; other++) {
            CHECK(kind->letter != weir__kinds[other].letter);
            CHECK(kind->phase == WEIR_PHASE_COUNT || kind->phase != weir__kinds[other].phase);
        }
    }
}

/* Who asks for a pass's kind gets one of that pass. */
static void test_every_pass_has_its_kinds(void) {
    for (int pass = 0; pass < WEIR__PASSES; pass++) {
        enum weir_kind whole = weir__pass_kind((enum weir__pass)pass, true);
        enum weir_kind alone = weir__pass_kind((enum weir__pass)pass, false);
        CHECK_EQ_INT(weir__pass_of(whole), pass);
        CHECK_EQ_INT(weir__pass_of(alone), pass);
        CHECK(!weir__is_whole(alone));
        CHECK_EQ_INT(weir__is_whole(whole), pass == WEIR__PASS_GRADIENT);
    }
}

/* ---- dependencies ---- */

static const char *const causes[] = {"border", "gradient", "skip", "local", "memory"};

/* What an action waits for, in the order of the edges: "0F1 border, 2B1 gradient". */
static void describe(const struct weir_table *table, const struct weir__deps *deps,
                     const char *name, char *text, size_t capacity) {
    uint32_t action = find(table, name);
    size_t used = 0;
    text[0] = 0;
    for (uint32_t e = deps->begin[action]; e < deps->begin[action + 1] && used < capacity; e++) {
        char from[24];
        weir__action_text(&table->actions[deps->edges[e].from], from);
        used += (size_t)snprintf(text + used, capacity - used, "%s%s %s", used > 0 ? ", " : "",
                                 from, causes[deps->edges[e].cause]);
    }
}

static void expect_waits(const struct weir_table *table, const struct weir__flow *flow,
                         const char *name, const char *expected) {
    char text[512];
    struct weir__deps deps;
    CHECK_STATUS(weir__table_check_flow(table, flow, test_allocator(), NULL), WEIR_OK);
    CHECK_OK(weir__deps_new(table, flow, test_allocator(), &deps));
    describe(table, &deps, name, text, sizeof text);
    if (!EXPECT_EQ_STR(text, expected)) {
        TEST_FAIL("of %s", name);
    }
    weir__deps_clean_up(&deps);
}

static void test_neighbours_wait_for_each_other(void) {
    struct weir_table *table = table_of("0F0,0R0,0B0\n1F0,1I0,1W0\n2F0,2R0,2B0\n");
    struct weir__flow flow = {.stage_count = 3};
    CHECK(table != NULL);
    expect_waits(table, &flow, "0F0", "");
    expect_waits(table, &flow, "1F0", "0F0 border");
    expect_waits(table, &flow, "2R0", "1F0 border");
    expect_waits(table, &flow, "2B0", "");
    expect_waits(table, &flow, "1I0", "2B0 gradient");
    expect_waits(table, &flow, "1W0", "");
    expect_waits(table, &flow, "0R0", "");
    expect_waits(table, &flow, "0B0", "1I0 gradient");
    weir_table_destroy(table);
}

static void test_late_recompute_waits_for_the_gradient(void) {
    static const uint32_t readers[] = {2};
    static const struct weir_skip_route skip = {0, 1, readers, 0, true};
    struct weir_table *table = table_of("0F0,0R0,0B0\n1F0,1R0,1B0\n2F0,2R0,2B0\n");
    struct weir__flow flow = {
        .stage_count = 3, .skip_count = 1, .skips = &skip, .recompute_late = true};
    CHECK(table != NULL);
    expect_waits(table, &flow, "0R0", "1B0 gradient, 2B0 skip");
    expect_waits(table, &flow, "1R0", "0F0 border, 2B0 gradient");
    expect_waits(table, &flow, "2R0", "1F0 border, 0F0 skip");
    weir_table_destroy(table);
}

static void test_no_gradient_crosses_an_integer_border(void) {
    static const bool differentiable[] = {true, false};
    struct weir_table *table = table_of("0F0,0B0\n1F0,1B0\n2F0,2B0\n");
    struct weir__flow flow = {.stage_count = 3, .border_differentiable = differentiable};
    CHECK(table != NULL);
    expect_waits(table, &flow, "0B0", "1B0 gradient");
    expect_waits(table, &flow, "1B0", "");
    expect_waits(table, &flow, "2F0", "1F0 border");
    weir_table_destroy(table);
}

static void test_running_sums_go_from_reader_to_reader(void) {
    static const uint32_t readers[] = {1, 2, 3};
    static const struct weir_skip_route skip = {0, 3, readers, 0, true};
    struct weir_table *table = table_of("0F0,0B0\n1F0,1B0\n2F0,2B0\n3F0,3B0\n");
    struct weir__flow flow = {.stage_count = 4, .skip_count = 1, .skips = &skip};
    CHECK(table != NULL);
    expect_waits(table, &flow, "1F0", "0F0 border, 0F0 skip");
    expect_waits(table, &flow, "3F0", "2F0 border, 0F0 skip");
    expect_waits(table, &flow, "3B0", "");
    expect_waits(table, &flow, "2B0", "3B0 gradient, 3B0 skip");
    expect_waits(table, &flow, "0B0", "1B0 gradient, 1B0 skip");
    weir_table_destroy(table);
}

static void test_skip_gradient_returns_straight_to_its_source(void) {
    static const uint32_t far[] = {3}, near[] = {2};
    static const struct weir_skip_route skips[] = {
        {0, 1, far, 0, true}, {0, 1, far, 0, true}, {1, 1, near, 0, false}};
    struct weir_table *table = table_of("0F0,0B0\n1F0,1B0\n2F0,2B0\n3F0,3R0,3B0\n");
    struct weir__flow flow = {.stage_count = 4, .skip_count = 3, .skips = skips};
    CHECK(table != NULL);
    expect_waits(table, &flow, "0B0", "1B0 gradient, 3B0 skip");
    expect_waits(table, &flow, "1B0", "2B0 gradient");
    expect_waits(table, &flow, "2F0", "1F0 border, 1F0 skip");
    expect_waits(table, &flow, "3F0", "2F0 border, 0F0 skip");
    expect_waits(table, &flow, "3R0", "2F0 border, 0F0 skip");
    weir_table_destroy(table);
}

static void test_update_waits_for_every_gradient(void) {
    struct weir_table *table = table_of("0F0,2F0,2B0,0B0\n1F0,1I0,1W0\n");
    struct weir__flow flow = {.stage_count = 3};
    CHECK(table != NULL);
    expect_waits(table, &flow, "0U", "1W0 gradient");
    expect_waits(table, &flow, "2U", "");
    expect_waits(table, &flow, "1U", "0B0 gradient");
    weir_table_destroy(table);
}

/* The table with N of each row's stages before its first U, as the pipe runs it. */
static struct weir_table *with_norms(const struct weir_table *table) {
    struct weir__table_builder builder;
    struct weir_table *lowered = NULL;
    weir__table_begin(&builder, test_allocator(), table->stage_count, table->worker_count,
                      table->micro_batch_count);
    for (uint32_t w = 0; w < table->worker_count; w++) {
        weir__table_line(&builder);
        for (int updates = 0; updates < 2; updates++) {
            for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
                const struct weir_action *action = &table->actions[a];
                bool update = action->kind == WEIR_KIND_U;
                if (update && updates == 0) {
                    weir__table_add(&builder, WEIR_KIND_N, action->stage, 0);
                } else if (update == (updates == 1)) {
                    weir__table_add(&builder, (enum weir_kind)action->kind, action->stage,
                                    action->micro_batch);
                }
            }
        }
    }
    EXPECT_STATUS(weir__table_finish(&builder, &lowered), WEIR_OK);
    return lowered;
}

static void test_with_norms_the_update_waits_for_them(void) {
    struct weir_table *plain = table_of("0F0,2F0,2B0,0B0\n1F0,1B0\n");
    struct weir__flow flow = {.stage_count = 3};
    CHECK(plain != NULL);
    struct weir_table *table = with_norms(plain);
    weir_table_destroy(plain);
    CHECK(table != NULL);
    char text[256];
    weir_table_format(table, false, text, sizeof text);
    EXPECT_EQ_STR(text, "0F0,2F0,2B0,0B0,0U,2U\n1F0,1B0,1U\n");
    expect_waits(table, &flow, "0N", "");
    expect_waits(table, &flow, "0U", "1N gradient");
    expect_waits(table, &flow, "2U", "");
    expect_waits(table, &flow, "1U", "2N gradient");
    weir_table_destroy(table);
}

/* ---- the replay ---- */

static void test_replay_times_an_example(void) {
    /* copies of activations take 0.5, of gradients 0.25:
     *   worker 0   0F0 0-1, 0F1 1-2, 0B0 4.75-6.75, 0B1 7.75-9.75
     *   worker 1   1F0 1.5-2.5, 1B0 2.5-4.5, 1F1 4.5-5.5, 1B1 5.5-7.5 */
    struct weir_table *table = table_of("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    struct weir__flow flow = {.stage_count = 2};
    struct weir__deps deps;
    double duration[10], copy[16], start[10], end[10], makespan = 0;
    CHECK(table != NULL);
    CHECK_OK(weir__deps_new(table, &flow, test_allocator(), &deps));
    EXPECT(deps.edge_count <= 16);
    for (uint32_t a = 0; a < table->action_count; a++) {
        static const double times[] = {[WEIR_KIND_F] = 1, [WEIR_KIND_B] = 2, [WEIR_KIND_U] = 9};
        duration[a] = times[table->actions[a].kind];
    }
    for (uint32_t e = 0; e < deps.edge_count; e++) {
        copy[e] = deps.edges[e].cause == WEIR__CAUSE_BORDER ? 0.5 : 0.25;
    }
    EXPECT_STATUS(
        weir__table_replay(table, &deps, duration, copy, start, end, &makespan, test_allocator()),
        WEIR_OK);
    EXPECT_NEAR(start[find(table, "1F0")], 1.5, 0);
    EXPECT_NEAR(start[find(table, "1B0")], 2.5, 0);
    EXPECT_NEAR(start[find(table, "0B0")], 4.75, 0);
    EXPECT_NEAR(start[find(table, "1B1")], 5.5, 0);
    EXPECT_NEAR(end[find(table, "0B1")], 9.75, 0);
    EXPECT_NEAR(makespan, 9.75, 0);
    EXPECT_NEAR(start[find(table, "1U")], 10.0, 0);
    weir__deps_clean_up(&deps);
    weir_table_destroy(table);
}

static void test_replay_refuses_a_deadlock(void) {
    /* a table that is sound but for an edge that somebody added */
    struct weir_table *table = table_of("0F0,0B0\n");
    struct weir__edge edge = {.from = 1, .cause = WEIR__CAUSE_MEMORY};
    uint32_t begin[] = {0, 1, 1, 1};
    struct weir__deps deps = {.action_count = 3, .edge_count = 1, .begin = begin, .edges = &edge};
    double times[3] = {1, 1, 1}, start[3], end[3], makespan = -1;
    CHECK(table != NULL);
    EXPECT_STATUS(
        weir__table_replay(table, &deps, times, NULL, start, end, &makespan, test_allocator()),
        WEIR_ERR_SCHEDULE);
    EXPECT_NEAR(makespan, -1, 0);
    weir_table_destroy(table);
}

/* ---- what the validator says ---- */

static void expect_faults(const char *csv, const char *expected) {
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_table *table = table_of(csv);
    char text[4096] = "";
    size_t used = 0;
    CHECK(table != NULL);
    int status = weir_table_check(table, test_allocator(), &faults);
    for (uint32_t i = 0; i < faults.kept; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\n", faults.lines[i]);
    }
    EXPECT_STATUS(status, expected[0] != 0 ? WEIR_ERR_SCHEDULE : WEIR_OK);
    EXPECT_STATUS(weir_table_check(table, test_allocator(), NULL), status);
    EXPECT_EQ_STR(text, expected);
    weir_faults_clean_up(&faults);
    weir_table_destroy(table);
}

static void test_missing_actions_are_named(void) {
    expect_faults("0F0,0B0,0F1,0B1\n", "");
    expect_faults("0F0,0B0,0B1\n", "0F1 is missing\n");
    expect_faults("0F0,0F1,0B1\n1B0,1F0,1F1\n", "0B0 is missing\n1B0 stands before 1F0\n"
                                                "1B1 is missing\n");
    expect_faults("0F0,0I0,0F1,0W1\n", "0W0 is missing: 0I0 does half of a backward\n"
                                       "0I1 is missing: 0W1 does half of a backward\n");
    expect_faults("0F0,0B0\n2F0,2B0\n", "stage 1 has no action\n");
}

static void test_work_done_twice_is_named(void) {
    expect_faults("0F0,0B0,0W0\n",
                  "0B0 and 0W0 do the same work: it is one B, or one I then one W\n");
    expect_faults("0F0,0F0,0B0\n", "0F0 stands twice: worker 0 and worker 0\n");
    expect_faults("0F0,0B0,0U,0U\n", "0U stands twice: worker 0 and worker 0\n");
    expect_faults("0F0,0F1,0B0\n0B1\n", "stage 0 stands in the lines of worker 0 and worker 1 "
                                        "(0B1): give all its actions to one worker\n");
    expect_faults("0F0,0R0,0R0,0B0\n", "0R0 stands twice: worker 0 and worker 0\n");
}

static void test_order_within_a_micro_batch_is_named(void) {
    expect_faults("0R0,0F0,0B0\n", "0R0 stands before 0F0\n");
    expect_faults("0F0,0B0,0R0\n", "0B0 stands before 0R0\n");
    expect_faults("0F0,0W0,0I0\n", "0W0 stands before 0I0\n");
    expect_faults("0F0,0U,0B0\n", "worker 0: 0B0 stands behind 0U: updates end a line\n");
}

static void test_a_worker_without_work_is_named(void) {
    expect_faults("0F0,0B0\n,,\n", "worker 1 has nothing to do: leave its line out\n");
}

static void test_waiting_in_a_circle_is_named(void) {
    expect_faults("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
                  "deadlock: worker 0 waits at 0B0 for 1B0, which stands behind 1F1; worker 1 "
                  "waits at 1F1 for 0F1, which stands behind 0B0\n");
    expect_faults("0F0,1B0,1F0,0B0\n", "1B0 stands before 1F0\n");
    expect_faults("1F0,0F0,1B0,0B0\n",
                  "deadlock: worker 0 waits at 1F0 for 0F0, which stands behind 1F0\n");
}

static void test_every_circle_is_told_once(void) {
    expect_faults("1F0,0F0,1B0,0B0\n3F0,2F0,3B0,2B0\n",
                  "deadlock: worker 0 waits at 1F0 for 0F0, which stands behind 1F0\n"
                  "deadlock: worker 1 waits at 3F0 for 2F0, which stands behind 3F0\n");
    /* workers 2 and 3 wait for the circle of 0 and 1, and are not part of it */
    expect_faults("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n2F0,2F1,2B0,2B1\n3F0,3F1,3B0,3B1\n",
                  "deadlock: worker 0 waits at 0B0 for 1B0, which stands behind 1F1; worker 1 "
                  "waits at 1F1 for 0F1, which stands behind 0B0\n");
}

static void test_deadlock_is_told_beside_what_is_missing(void) {
    expect_faults("0F0,0B0,0F1,0B1\n1F0,1F1,1B0\n",
                  "1B1 is missing\ndeadlock: worker 0 waits at 0B0 for 1B0, which stands behind "
                  "1F1; worker 1 waits at 1F1 for 0F1, which stands behind 0B0\n");
}

static void test_long_circles_are_cut(void) {
    enum { WORKERS = 40 };
    char text[WORKERS * 40];
    size_t used = 0;
    for (uint32_t s = 0; s < WORKERS; s++) {
        /* worker 0 wants the gradient of all before it begins the second micro-batch */
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 s == 0 ? "%uF0,%uB0,%uF1,%uB1\n" : "%uF0,%uF1,%uB0,%uB1\n",
                                 (unsigned)s, (unsigned)s, (unsigned)s, (unsigned)s);
    }
    struct weir_table *table = table_of(text);
    struct weir_faults faults = {.allocator = test_allocator()};
    CHECK(table != NULL);
    EXPECT_STATUS(weir_table_check(table, test_allocator(), &faults), WEIR_ERR_SCHEDULE);
    if (EXPECT_EQ_UINT(faults.kept, 1)) {
        EXPECT_CONTAINS(faults.lines[0], "deadlock: worker 0 waits at 0B0 for 1B0");
    }
    weir_faults_clean_up(&faults);
    weir_table_destroy(table);
}

static void test_numbers_out_of_range_are_named(void) {
    static const struct weir_action actions[] = {{0, 0, WEIR_KIND_F}, {0, 0, WEIR_KIND_B},
                                                 {1, 0, WEIR_KIND_F}, {0, 3, WEIR_KIND_F},
                                                 {0, 0, 99},          {1, 0, WEIR_KIND_U}};
    static const uint32_t rows[] = {0, 6};
    struct weir_table table = {1, 1, 1, 6, rows, actions};
    struct weir_faults faults = {.allocator = test_allocator()};
    EXPECT_STATUS(weir_table_check(&table, test_allocator(), &faults), WEIR_ERR_SCHEDULE);
    if (EXPECT_EQ_UINT(faults.kept, 4)) {
        EXPECT_CONTAINS(faults.lines[0], "0F1 is of micro-batch 1, the last one is 0");
        EXPECT_CONTAINS(faults.lines[1], "3F0 is of stage 3, the last one is 0");
        EXPECT_CONTAINS(faults.lines[2], "there is no kind 99");
        EXPECT_CONTAINS(faults.lines[3], "0U is of micro-batch 1, the last one is 0");
    }
    weir_faults_clean_up(&faults);
}

static void test_counts_that_make_no_table_are_named(void) {
    static const struct weir_action action = {0, 0, WEIR_KIND_F};
    static const uint32_t good[] = {0, 1}, bad[] = {0, 2};
    struct weir_table empty = {0, 1, 1, 1, good, &action};
    struct weir_table torn = {1, 1, 1, 1, bad, &action};
    struct weir_table sparse = {60000, 1, 60000, 1, good, &action};
    struct weir_faults faults = {.allocator = test_allocator()};
    EXPECT_STATUS(weir_table_check(&empty, test_allocator(), &faults), WEIR_ERR_SCHEDULE);
    EXPECT_STATUS(weir_table_check(&torn, test_allocator(), &faults), WEIR_ERR_SCHEDULE);
    EXPECT_STATUS(weir_table_check(&sparse, test_allocator(), &faults), WEIR_ERR_SCHEDULE);
    if (EXPECT_EQ_UINT(faults.kept, 3)) {
        EXPECT_CONTAINS(faults.lines[0], "at least one of each");
        EXPECT_CONTAINS(faults.lines[1], "the lines do not divide the table's 1 action");
        EXPECT_CONTAINS(faults.lines[2], "need at least 7200000000 actions, the table has 1");
    }
    weir_faults_clean_up(&faults);
    CHECK_STATUS(weir_table_check(NULL, test_allocator(), NULL), WEIR_ERR_ARGUMENT);
}

static void test_inference_allows_forwards_only(void) {
    struct weir_table *table = table_of("0F0,0B0\n");
    struct weir__flow flow = {.stage_count = 1, .infer = true};
    struct weir_faults faults = {.allocator = test_allocator()};
    CHECK(table != NULL);
    EXPECT_STATUS(weir__table_check_flow(table, &flow, test_allocator(), &faults),
                  WEIR_ERR_SCHEDULE);
    if (EXPECT_EQ_UINT(faults.kept, 2)) {
        EXPECT_CONTAINS(faults.lines[0], "0B0: only forwards run in inference");
        EXPECT_CONTAINS(faults.lines[1], "0U: only forwards run in inference");
    }
    weir_faults_clean_up(&faults);
    weir_table_destroy(table);
}

static void test_a_flow_of_other_stages_is_refused(void) {
    struct weir_table *table = table_of("0F0,0B0\n");
    struct weir__flow flow = {.stage_count = 2};
    CHECK(table != NULL);
    EXPECT_STATUS(weir__table_check_flow(table, &flow, test_allocator(), NULL), WEIR_ERR_SCHEDULE);
    weir_table_destroy(table);
}

static void test_lack_of_memory_is_reported(void) {
    static const uint32_t readers[] = {1};
    static const struct weir_skip_route skip = {0, 1, readers, 0, true};
    struct weir_table *good = table_of("0F0,0B0\n1F0,1B0\n");
    struct weir_table *bad = table_of("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
    struct weir__flow flow = {.stage_count = 2, .skip_count = 1, .skips = &skip};
    CHECK(good != NULL && bad != NULL);
    uint64_t k = 0;
    for (bool fired = true; fired; k++) {
        struct weir__deps deps = {0};
        double times[6] = {0}, start[6], end[6];
        test_allocator_fail_at(k + 1, false);
        int status = weir__table_check_flow(bad, &flow, test_allocator(), NULL);
        status = status == WEIR_ERR_SCHEDULE ? WEIR_OK : status;
        if (status == WEIR_OK) status = weir__deps_new(good, &flow, test_allocator(), &deps);
        if (status == WEIR_OK) {
            status =
                weir__table_replay(good, &deps, times, NULL, start, end, NULL, test_allocator());
        }
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        EXPECT_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        weir__deps_clean_up(&deps);
    }
    EXPECT(k > 30);
    weir_table_destroy(good);
    weir_table_destroy(bad);
}

WEIR_TEST_SUITE(table, TEST(every_kind_has_its_own_facts), TEST(every_pass_has_its_kinds),
                TEST(neighbours_wait_for_each_other), TEST(late_recompute_waits_for_the_gradient),
                TEST(no_gradient_crosses_an_integer_border),
                TEST(running_sums_go_from_reader_to_reader),
                TEST(skip_gradient_returns_straight_to_its_source),
                TEST(update_waits_for_every_gradient), TEST(with_norms_the_update_waits_for_them),
                TEST(replay_times_an_example), TEST(replay_refuses_a_deadlock),
                TEST(missing_actions_are_named), TEST(work_done_twice_is_named),
                TEST(order_within_a_micro_batch_is_named), TEST(a_worker_without_work_is_named),
                TEST(waiting_in_a_circle_is_named), TEST(every_circle_is_told_once),
                TEST(deadlock_is_told_beside_what_is_missing), TEST(long_circles_are_cut),
                TEST(numbers_out_of_range_are_named), TEST(counts_that_make_no_table_are_named),
                TEST(inference_allows_forwards_only), TEST(a_flow_of_other_stages_is_refused),
                TEST(lack_of_memory_is_reported))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: every schedule has the bubble and the peak of activations that its paper states, exactly.
 * Method: tables of many sizes, replayed at tF = tI = tW = 1, B = 2, without R and copies; the
 * formulas of the head comments in src/schedule. The table of the log shows what was measured.
 */
#include "schedule/schedule_facts.h"
#include "steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { P_MAX = 9 };

static struct schedule_facts facts_of(const char *schedule, uint32_t stages, uint32_t workers,
                                      uint32_t micro_batches) {
    struct schedule_facts facts = {0};
    schedule_facts_of(schedule, (struct schedule_counts){stages, workers, micro_batches}, &facts);
    return facts;
}

/* 1 - busy / all, the division last: as exact as the formula's own. */
static void expect_bubble(struct schedule_facts facts, double lost, double all) {
    EXPECT_NEAR(facts.bubble, lost / all, 4 * 0x1p-52);
}

static void test_gpipe_loses_p_minus_1_turns_and_keeps_all(void) {
    for (uint32_t p = 1; p <= P_MAX; p++)
        for (uint32_t m = 1; m <= 3 * p; m++) {
            struct schedule_facts facts = facts_of("gpipe", p, p, m);
            expect_bubble(facts, p - 1, m + p - 1);
            for (uint32_t s = 0; s < p; s++) CHECK_EQ_UINT(facts.peak[s], m);
        }
}

static void test_1f1b_loses_the_same_and_keeps_p_minus_s(void) {
    for (uint32_t p = 1; p <= P_MAX; p++)
        for (uint32_t m = 1; m <= 3 * p; m++) {
            struct schedule_facts facts = facts_of("1f1b", p, p, m);
            expect_bubble(facts, p - 1, m + p - 1);
            for (uint32_t s = 0; s < p; s++) CHECK_EQ_UINT(facts.peak[s], p - s < m ? p - s : m);
        }
}

static void test_interleaved_loses_a_vth_of_it(void) {
    for (uint32_t p = 1; p <= 6; p++)
        for (uint32_t v = 1; v <= 4; v++)
            for (uint32_t m = p; m <= 5 * p && !test_has_failed(); m += p)
                expect_bubble(facts_of("interleaved", p * v, p, m), p - 1, v * m + p - 1);
}

static void test_looped_bfs_loses_the_same_and_keeps_all(void) {
    for (uint32_t p = 1; p <= 6; p++)
        for (uint32_t v = 1; v <= 4; v++)
            for (uint32_t m = p; m <= 3 * p; m++) {
                struct schedule_facts facts = facts_of("looped-bfs", p * v, p, m);
                expect_bubble(facts, p - 1, v * m + p - 1);
                for (uint32_t w = 0; w < p; w++) CHECK_EQ_UINT(facts.peak[w], v * m);
                CHECK_HELPERS();
            }
}

static void test_zb_h1_is_idle_for_a_third_of_it_and_keeps_p(void) {
    for (uint32_t p = 1; p <= P_MAX; p++)
        for (uint32_t m = p; m <= 4 * p; m++) {
            struct schedule_facts facts = facts_of("zb-h1", p, p, m);
            CHECK_NEAR(facts.idle_most, p - 1.0, 0); /* (p - 1)(tF + tI - tW) */
            CHECK_NEAR(facts.makespan, 3.0 * m + p - 1.0, 0);
            CHECK_EQ_UINT(facts.peak_most, p);
        }
}

static void test_zb_h2_is_never_idle_and_keeps_2p_minus_1(void) {
    for (uint32_t p = 1; p <= P_MAX; p++)
        for (uint32_t m = 2 * p - 1; m <= 5 * p; m++) {
            struct schedule_facts facts = facts_of("zb-h2", p, p, m);
            CHECK_NEAR(facts.idle_most, 0.0, 0); /* (p - 1)(tF + tI - 2 tW) */
            CHECK_EQ_UINT(facts.peak[0], 2 * p - 1);
            CHECK_EQ_UINT(facts.peak_most, 2 * p - 1);
        }
}

static void test_zb_v_is_never_idle_and_keeps_2p_halves(void) {
    for (uint32_t p = 1; p <= P_MAX; p++)
        for (uint32_t m = 2 * p - 1; m <= 5 * p; m++) {
            struct schedule_facts facts = facts_of("zb-v", 2 * p, p, m);
            CHECK_NEAR(facts.idle_most, 0.0, 0);
            CHECK_NEAR(facts.makespan, 6.0 * m + p - 1.0, 0);
            CHECK_EQ_UINT(facts.peak_most, m == 1 ? 2 : 2 * p);
        }
}

/* Where the V turns, one stage that takes as long as two others, and cannot be interrupted. */
static void test_zb_v_turns_in_one_stage(void) {
    for (uint32_t p = 2; p <= P_MAX && !test_has_failed(); p++)
        for (uint32_t m = 2 * p - 1; m <= 5 * p; m++) {
            const struct schedule_counts counts = {2 * p - 1, p, m};
            struct weir_table *table = schedule_table("zb-v", counts, WEIR_CHECKPOINT_NEVER);
            double durations[3 * (2 * P_MAX) * (5 * P_MAX) + 2 * P_MAX];
            double start[WEIR__COUNT_OF(durations)], end[WEIR__COUNT_OF(durations)];
            struct schedule_facts facts = {0};
            if (table == NULL || !EXPECT(table->action_count <= WEIR__COUNT_OF(durations))) return;
            for (uint32_t a = 0; a < table->action_count; a++) {
                const struct weir_action *action = &table->actions[a];
                double one = schedule_unit_times[action->kind];
                durations[a] = action->stage == p - 1 ? 2 * one : one;
            }
            double step = schedule_replay(table, durations, start, end);
            EXPECT(schedule_measure(table, schedule_unit_times, &facts));
            EXPECT_NEAR(step, 6.0 * m + 3.0 * p - 2.0, 0);
            EXPECT_EQ_UINT(facts.peak[p - 1], p);
            EXPECT_EQ_UINT(facts.peak_most, 2 * p);
            weir_table_destroy(table);
        }
}

static void test_v_half_keeps_half_and_v_min_a_third(void) {
    for (uint32_t p = 2; p <= 16; p++)
        for (uint32_t m = 3 * p; m <= 5 * p; m += 1 + p / 3) {
            struct schedule_facts half = facts_of("v-half", 2 * p, p, m);
            struct schedule_facts min = facts_of("v-min", 2 * p, p, m);
            CHECK_EQ_UINT(half.peak_most, (p + 2) / 2 * 2);
            CHECK_EQ_UINT(min.peak_most, (p + 4) / 3 * 2);
            /* idle: about a half and two thirds of 1f1b's 6 (p - 1) */
            CHECK_NEAR(half.idle_most, p % 2 == 0 ? 3.0 * p - 3.0 : 3.0 * p - 4.0, 0);
            CHECK_NEAR(min.idle_most, p % 3 == 0 ? 4.0 * p - 3.0 : 4.0 * p - 5.0, 0);
        }
}

static void test_dualpipe_v_loses_what_zb_v_does_and_keeps_2p_plus_1(void) {
    for (uint32_t p = 1; p <= P_MAX; p++)
        for (uint32_t m = 2 * p; m <= 5 * p; m++) {
            struct schedule_facts facts = facts_of("dualpipe-v", 2 * p, p, m);
            CHECK_NEAR(facts.makespan, 6.0 * m + p - 1.0, 0);
            CHECK_EQ_UINT(facts.peak_most, 2 * p + 1);
        }
}

static void test_few_micro_batches_take_no_longer_than_their_path(void) {
    static const char *const names[] = {"zb-h1", "zb-h2", "zb-v"};
    for (uint32_t p = 1; p <= P_MAX; p++)
        for (uint32_t k = 0; k < 3; k++) {
            uint32_t stages = k == 2 ? 2 * p : p;
            struct schedule_facts facts = facts_of(names[k], stages, p, 1);
            CHECK_NEAR(facts.makespan, p == 1 ? 3.0 * stages : 2.0 * stages + 1.0, 0);
        }
}

/* The rows without U, and without W if `whole` is false, as text. */
static void format_rows(const struct weir_table *table, bool whole, char *text, size_t capacity) {
    size_t used = 0;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        bool first = true;
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1] && used < capacity; a++) {
            uint8_t kind = table->actions[a].kind;
            char cell[24];
            if (kind == WEIR_KIND_U || (kind == WEIR_KIND_W && !whole)) continue;
            used += (size_t)snprintf(text + used, capacity - used, "%s%s", first ? "" : ",",
                                     weir__action_text(&table->actions[a], cell));
            first = false;
        }
        if (used < capacity) used += (size_t)snprintf(text + used, capacity - used, "\n");
    }
}

/* tests/golden/paper_schedules.csv: small tables drawn by the rules of the papers' figures; of some
 * F and I alone, because their W may stand in several places at the end. */
static void test_small_tables_are_those_of_the_papers(void) {
    struct schedule_section section;
    uint32_t count = 0;
    char *golden = schedule_golden("tests/golden/paper_schedules.csv");
    for (const char *at = golden; (at = schedule_section(at, &section)) != NULL; count++) {
        char text[2048] = "", expected[2048];
        struct weir_table *table =
            schedule_table(section.name,
                           (struct schedule_counts){section.workers * section.virtual_stages,
                                                    section.workers, section.micro_batches},
                           WEIR_CHECKPOINT_NEVER);
        snprintf(expected, sizeof expected, "%.*s", (int)section.bytes, section.text);
        if (table != NULL) format_rows(table, strchr(expected, 'W') != NULL, text, sizeof text);
        EXPECT_EQ_STR(text, expected);
        weir_table_destroy(table);
    }
    free(golden);
    EXPECT_EQ_UINT(count, 11);
}

/* For each action of the table. */
static double filling_steps(const char *schedule, struct schedule_counts counts,
                            enum weir_checkpoint mode) {
    struct weir_table_options options = schedule_options(schedule, counts, mode);
    struct weir_table *table = NULL;
    options.allocator = NULL;
    uint64_t begin = test_steps();
    if (!EXPECT_STATUS(weir_table_new(&options, NULL, &table), WEIR_OK)) return 0.0;
    double steps = (double)(test_steps() - begin) / table->action_count;
    weir_table_destroy(table);
    EXPECT(steps > 0);
    return steps;
}

/* A planner fills tables by the hundred: what an action takes does not grow with their number. */
static void test_tables_are_filled_in_few_steps(void) {
    static const enum weir_checkpoint modes[] = {WEIR_CHECKPOINT_NEVER, WEIR_CHECKPOINT_ALWAYS};
    static const double most[] = {50, 900}; /* three times what they were when this was written */
    for (uint32_t k = 0; weir_schedule_name(k) != NULL; k++) {
        const char *name = weir_schedule_name(k);
        uint32_t v = weir_schedule_virtual_stages(name);
        if (weir_schedule_is_searched(name)) continue;
        for (int i = 0; i < 2; i++) {
            double small = filling_steps(name, (struct schedule_counts){8 * v, 8, 64}, modes[i]);
            double large = filling_steps(name, (struct schedule_counts){64 * v, 64, 512}, modes[i]);
            printf("  %-12s %-6s p = 8, m = 64: %6.1f steps an action, p = 64, m = 512: %6.1f\n",
                   name, i == 0 ? "never" : "always", small, large);
            EXPECT(small <= most[i] && large <= most[i]);
            EXPECT(large <= 1.5 * small);
        }
    }
}

static void test_the_closed_forms_as_measured(void) {
    static const struct {
        const char *name;
        uint32_t per_worker;
    } list[] = {{"gpipe", 1}, {"1f1b", 1},      {"interleaved", 2}, {"looped-bfs", 2},
                {"zb-h1", 1}, {"zb-h2", 1},     {"zb-v", 2},        {"v-half", 2},
                {"v-min", 2}, {"dualpipe-v", 2}};
    printf(
        "  p = 4, m = 16, tF = tI = tW = 1 per whole stage: step, bubble, idle in window, peak\n");
    for (size_t k = 0; k < WEIR__COUNT_OF(list); k++) {
        uint32_t v = list[k].per_worker;
        struct schedule_facts facts = facts_of(list[k].name, 4 * v, 4, 16);
        CHECK_HELPERS();
        printf("  %-12s %6.1f  %.4f  %5.1f  %5.1f\n", list[k].name, facts.makespan / v,
               facts.bubble, facts.idle_most / v, (double)facts.peak_most / v);
    }
}

WEIR_TEST_SUITE(schedule_forms, TEST(gpipe_loses_p_minus_1_turns_and_keeps_all),
                TEST(1f1b_loses_the_same_and_keeps_p_minus_s), TEST(interleaved_loses_a_vth_of_it),
                TEST(looped_bfs_loses_the_same_and_keeps_all),
                TEST(zb_h1_is_idle_for_a_third_of_it_and_keeps_p),
                TEST(zb_h2_is_never_idle_and_keeps_2p_minus_1),
                TEST(zb_v_is_never_idle_and_keeps_2p_halves), TEST(zb_v_turns_in_one_stage),
                TEST(v_half_keeps_half_and_v_min_a_third),
                TEST(dualpipe_v_loses_what_zb_v_does_and_keeps_2p_plus_1),
                TEST(few_micro_batches_take_no_longer_than_their_path),
                TEST(small_tables_are_those_of_the_papers), TEST(tables_are_filled_in_few_steps),
                TEST(the_closed_forms_as_measured))

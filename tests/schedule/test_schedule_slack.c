/* SPDX-License-Identifier: MIT */
/*
 * Goal: R in slack costs nothing and gains where there is something to gain: never a longer step,
 * never more saved at once, whatever activations weigh. Method: tables whose R stand directly
 * before their backward, replayed with random times per stage and kind, before and after; what a
 * worker saves is counted from the rows with random weights per stage.
 */
#include "schedule/schedule_facts.h"

#include <stdio.h>
#include <string.h>

enum { STAGES = 16, RUNS = 3000 };

/* One time per stage and kind, and what a stage's activation weighs: what B or W ends, and what I
 * does, where the backward is split. */
struct costs {
    double seconds[STAGES * WEIR_KIND_COUNT];
    uint32_t weight[STAGES], for_input[STAGES];
};

static void random_costs(struct costs *costs) {
    for (uint32_t k = 0; k < STAGES * WEIR_KIND_COUNT; k++)
        costs->seconds[k] = (double)(1 + test_random_below(test_random_below(3) == 0 ? 1 : 6));
    for (uint32_t s = 0; s < STAGES; s++) {
        costs->weight[s] = 1 + (uint32_t)test_random_below(5);
        costs->for_input[s] = (uint32_t)test_random_below(6);
    }
}

static double makespan_of(const struct weir_table *table, const struct costs *costs) {
    const struct weir_allocator *allocator = test_allocator();
    size_t count = table->action_count;
    double *times = weir__acquire(allocator, 3 * count, sizeof *times);
    for (size_t a = 0; a < count; a++)
        times[a] = costs->seconds[table->actions[a].stage * WEIR_KIND_COUNT +
                                  (size_t)table->actions[a].kind];
    double makespan = schedule_replay(table, times, times + count, times + 2 * count);
    weir__release(allocator, times, 3 * count, sizeof *times);
    return makespan;
}

/* The most that the worker has saved at once, from R, or F where there is none, to B, or I and W.
 */
static uint32_t saved_most(const struct weir_table *table, uint32_t worker,
                           const struct costs *costs) {
    uint32_t live = 0, most = 0;
    for (uint32_t a = table->lines[worker]; a < table->lines[worker + 1]; a++) {
        const struct weir_action *action = &table->actions[a];
        uint32_t weight = costs->weight[action->stage], for_input = costs->for_input[action->stage];
        bool recomputed = false;
        for (uint32_t b = a; action->kind == WEIR_KIND_F && b < table->lines[worker + 1]; b++)
            recomputed |= table->actions[b].kind == WEIR_KIND_R &&
                          table->actions[b].stage == action->stage &&
                          table->actions[b].micro_batch == action->micro_batch;
        if (action->kind == WEIR_KIND_R || (action->kind == WEIR_KIND_F && !recomputed))
            live += weight + for_input;
        most = live > most ? live : most;
        if (action->kind == WEIR_KIND_B || action->kind == WEIR_KIND_I) live -= for_input;
        if (action->kind == WEIR_KIND_B || action->kind == WEIR_KIND_W) live -= weight;
    }
    return most;
}

/* The rows without R, as text: what a pass must leave alone. */
static void format_plain(const struct weir_table *table, char *text, size_t capacity) {
    size_t bytes = weir_table_format(table, true, text, capacity);
    EXPECT(bytes < capacity);
}

/* A random schedule's table with its R directly before their backward. */
static struct weir_table *random_table(char *name) {
    struct weir_table *table = NULL;
    uint32_t count = 0;
    while (weir_schedule_name(count) != NULL) count++;
    while (table == NULL) {
        const char *schedule = weir_schedule_name((uint32_t)test_random_below(count));
        struct schedule_counts counts = {.workers = 1 + (uint32_t)test_random_below(5),
                                         .micro_batches = 1 + (uint32_t)test_random_below(10)};
        counts.stages = counts.workers * (1 + (uint32_t)test_random_below(3));
        struct weir_table_options options =
            schedule_options(schedule, counts, (enum weir_checkpoint)(1 + test_random_below(2)));
        options.recompute_late = true;
        int status = weir_table_new(&options, NULL, &table);
        EXPECT(status == WEIR_OK || status == WEIR_ERR_ARGUMENT);
        snprintf(name, 64, "%s of %u on %u, %u micro-batches", schedule, counts.stages,
                 counts.workers, counts.micro_batches);
    }
    return table;
}

static void expect_no_loss(struct weir_table *table, const struct costs *costs, const char *name,
                           uint32_t *shorter) {
    static char before[1 << 14], after[1 << 14];
    uint32_t most[STAGES];
    double makespan = makespan_of(table, costs);
    for (uint32_t w = 0; w < table->worker_count; w++) most[w] = saved_most(table, w, costs);
    format_plain(table, before, sizeof before);
    EXPECT_STATUS(weir__recompute_in_slack(table, costs->seconds, test_allocator()), WEIR_OK);
    EXPECT_STATUS(weir_table_check(table, test_allocator(), NULL), WEIR_OK);
    format_plain(table, after, sizeof after);
    EXPECT_EQ_STR(after, before);
    double now = makespan_of(table, costs);
    bool good = EXPECT(now <= makespan);
    for (uint32_t w = 0; w < table->worker_count; w++)
        good &= EXPECT(saved_most(table, w, costs) <= most[w]);
    if (!good) TEST_FAIL("%s: %g, before %g", name, now, makespan);
    *shorter += now < makespan;
}

static void test_no_step_gets_longer_and_no_peak_higher(void) {
    static struct costs costs;
    uint32_t shorter = 0;
    char name[64];
    for (uint32_t run = 0; run < RUNS && !test_has_failed(); run++) {
        struct weir_table *table = random_table(name);
        random_costs(&costs);
        expect_no_loss(table, &costs, name, &shorter);
        weir_table_destroy(table);
    }
    printf("  %u of %u random steps are shorter with R in slack\n", shorter, RUNS);
    EXPECT(shorter > RUNS / 50);
}

/* The first stage's forward is slow, so the second waits before its forwards: there is room for an
 * R, which else would stand between a gradient and the first stage. */
static void test_a_wait_before_a_forward_takes_the_recomputation(void) {
    static struct costs costs;
    struct weir_table_options options =
        schedule_options("zb-h1", (struct schedule_counts){3, 3, 2}, WEIR_CHECKPOINT_ALWAYS);
    struct weir_table *table = NULL;
    char text[512];
    for (uint32_t c = 0; c < STAGES * WEIR_KIND_COUNT; c++) costs.seconds[c] = 1;
    costs.seconds[WEIR_KIND_F] = 4;
    options.recompute_late = true;
    CHECK_OK(weir_table_new(&options, NULL, &table));
    EXPECT_NEAR(makespan_of(table, &costs), 16, 0);
    CHECK_OK(weir__recompute_in_slack(table, costs.seconds, test_allocator()));
    EXPECT_NEAR(makespan_of(table, &costs), 15, 0);
    weir_table_format(table, false, text, sizeof text);
    EXPECT_CONTAINS(text, "\n1F0,1R0,1F1,1I0,");
    weir_table_destroy(table);
}

static double step_of(const char *schedule, struct schedule_counts counts,
                      enum weir_checkpoint mode) {
    struct weir_table *table = schedule_table(schedule, counts, mode);
    struct schedule_facts facts = {0};
    if (table != NULL) schedule_measure(table, schedule_unit_times, &facts);
    weir_table_destroy(table);
    return table != NULL ? facts.makespan * counts.workers / counts.stages : 0;
}

/* All in F of a whole stage. */
static void test_zero_bubble_with_always_stays_within_its_third(void) {
    static const char *const names[] = {"zb-h1", "zb-h2", "zb-v"};
    double worst = 0;
    for (uint32_t p = 1; p <= 8; p++)
        for (uint32_t m = 1; m <= 32; m++) {
            struct schedule_counts two = {2 * p, p, m}, one = {p, p, m};
            struct weir_table *table =
                schedule_try("interleaved", two, WEIR_CHECKPOINT_ALWAYS, NULL);
            double loop = table != NULL ? step_of("interleaved", two, WEIR_CHECKPOINT_ALWAYS) : 0;
            weir_table_destroy(table);
            for (int k = 0; k < 3; k++) {
                struct schedule_counts counts = k == 2 ? two : one;
                double never = step_of(names[k], counts, WEIR_CHECKPOINT_NEVER);
                double always = step_of(names[k], counts, WEIR_CHECKPOINT_ALWAYS);
                worst = always / never > worst ? always / never : worst;
                CHECK(always <= 1.35 * never);
                /* H1 and H2 with half as many stages: their warm-up is of whole stages */
                if (k == 2 || m >= p) CHECK(loop == 0 || always <= loop);
            }
        }
    printf("  the most that always costs zb-h1, zb-h2 and zb-v: %.4f of never\n", worst);
}

/* The peak of what is saved is what R directly before its backward gives. */
static void test_always_saves_as_little_as_late_recomputation(void) {
    for (uint32_t k = 0; weir_schedule_name(k) != NULL; k++)
        for (uint32_t p = 1; p <= 5; p++) {
            const char *name = weir_schedule_name(k);
            struct schedule_counts counts = {p * weir_schedule_virtual_stages(name), p, 4 * p};
            struct weir_table_options options =
                schedule_options(name, counts, WEIR_CHECKPOINT_ALWAYS);
            struct schedule_facts early = {0}, late = {0};
            struct weir_table *table = schedule_table(name, counts, WEIR_CHECKPOINT_ALWAYS);
            CHECK(table != NULL);
            schedule_measure(table, schedule_unit_times, &early);
            weir_table_destroy(table);
            options.recompute_late = true;
            CHECK_OK(weir_table_new(&options, NULL, &table));
            schedule_measure(table, schedule_unit_times, &late);
            weir_table_destroy(table);
            EXPECT(early.makespan <= late.makespan);
            for (uint32_t w = 0; w < p; w++) EXPECT(early.saved_peak[w] <= late.saved_peak[w]);
            CHECK_HELPERS();
        }
}

static void test_lack_of_memory_leaves_a_sound_table(void) {
    struct weir_table_options options =
        schedule_options("zb-v", (struct schedule_counts){6, 3, 7}, WEIR_CHECKPOINT_ALWAYS);
    uint64_t k = 0;
    for (bool fired = true; fired; k++) {
        struct weir_table *table = NULL;
        test_allocator_fail_at(k + 1, false);
        int status = weir_table_new(&options, NULL, &table);
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        EXPECT_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        EXPECT(fired == (table == NULL));
        weir_table_destroy(table);
        CHECK_HELPERS();
    }
    CHECK(k > 20);
}

WEIR_TEST_SUITE(schedule_slack, TEST(no_step_gets_longer_and_no_peak_higher),
                TEST(a_wait_before_a_forward_takes_the_recomputation),
                TEST(zero_bubble_with_always_stays_within_its_third),
                TEST(always_saves_as_little_as_late_recomputation),
                TEST(lack_of_memory_leaves_a_sound_table))

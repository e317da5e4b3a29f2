/* SPDX-License-Identifier: MIT */
/*
 * Goal: what torch.distributed.pipelining exports loads and is judged rightly, and no table of ours
 * takes longer than its class at equal costs. Method: its exports (tests/golden/make_schedules.py),
 * each parsed, proven and replayed next to our schedule of the same counts, at B = 2 F and B = F.
 */
#include "schedule/schedule_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A class, and what we have for it where it has so many stages per worker (0: any). */
static const struct {
    const char *name, *schedule;
    uint32_t virtual_stages;
} classes[] = {
    {"ScheduleInterleaved1F1B", "interleaved", 0}, {"ScheduleLoopedBFS", "looped-bfs", 0},
    {"ScheduleInterleavedZeroBubble", "zb-h1", 1}, {"ScheduleZBVZeroBubble", "zb-v", 0},
    {"ScheduleDualPipeV", "dualpipe-v", 0},        {"ScheduleGPipe", "gpipe", 0}};

/* NULL, with the faults, if it cannot be read or run. */
static struct weir_table *load(const struct schedule_section *section, struct weir_faults *faults) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table = NULL;
    options.allocator = test_allocator();
    options.stages = section->workers * section->virtual_stages;
    options.workers = section->workers;
    options.micro_batches = section->micro_batches;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    if (weir_table_parse(&options, section->text, section->bytes, faults, NULL, &table) == WEIR_OK)
        if (weir_table_check(table, test_allocator(), faults) != WEIR_OK) {
            weir_table_destroy(table);
            table = NULL;
        }
    return table;
}

static const char *schedule_of(const struct schedule_section *section) {
    for (size_t k = 0; k < WEIR__COUNT_OF(classes); k++)
        if (strcmp(classes[k].name, section->name) == 0 &&
            (classes[k].virtual_stages == 0 ||
             classes[k].virtual_stages == section->virtual_stages))
            return classes[k].schedule;
    return NULL;
}

/* Returns whether there is a schedule of ours to compare with. */
static bool compare(const struct schedule_section *section, const struct weir_table *theirs) {
    static const double equal[WEIR_KIND_COUNT] = {
        [WEIR_KIND_F] = 1, [WEIR_KIND_B] = 1, [WEIR_KIND_I] = 1, [WEIR_KIND_W] = 1};
    const double *const times[] = {schedule_unit_times, equal};
    struct schedule_counts counts = {section->workers * section->virtual_stages, section->workers,
                                     section->micro_batches};
    const char *schedule = schedule_of(section);
    if (schedule == NULL) return false;
    struct weir_table *ours = schedule_table(schedule, counts, WEIR_CHECKPOINT_NEVER);
    for (int k = 0; k < 2 && ours != NULL; k++) {
        struct schedule_facts own, other;
        schedule_measure(ours, times[k], &own);
        schedule_measure(theirs, times[k], &other);
        if (!EXPECT(own.makespan <= other.makespan))
            TEST_FAIL("%s, %u workers, %u micro-batches, V %u: %g, theirs %g", schedule,
                      section->workers, section->micro_batches, section->virtual_stages,
                      own.makespan, other.makespan);
    }
    weir_table_destroy(ours);
    return true;
}

static void test_exports_load_run_and_are_no_faster_than_ours(void) {
    struct schedule_section section;
    uint32_t loaded = 0, compared = 0;
    char *text = schedule_golden("tests/golden/torch_schedules.csv");
    for (const char *at = text; (at = schedule_section(at, &section)) != NULL;) {
        struct weir_faults faults = {.allocator = test_allocator()};
        if (strcmp(section.name, "Schedule1F1B") == 0) continue;
        struct weir_table *table = load(&section, &faults);
        if (!EXPECT(table != NULL))
            TEST_FAIL("%s, %u workers, %u micro-batches: %s", section.name, section.workers,
                      section.micro_batches, faults.kept > 0 ? faults.lines[0] : "no reason");
        compared += table != NULL && compare(&section, table);
        loaded++;
        weir_faults_clean_up(&faults);
        weir_table_destroy(table);
    }
    free(text);
    EXPECT(loaded >= 300 && compared >= 250);
}

/* Of the last stage its order has no F of micro-batch 0, and one too many at the end. */
static void test_the_faulty_1f1b_export_is_refused_with_the_action_named(void) {
    struct schedule_section section;
    uint32_t refused = 0;
    char *text = schedule_golden("tests/golden/torch_schedules.csv");
    for (const char *at = text; (at = schedule_section(at, &section)) != NULL;) {
        struct weir_faults faults = {.allocator = test_allocator()};
        char missing[32];
        if (strcmp(section.name, "Schedule1F1B") != 0) continue;
        uint32_t counted = section.micro_batches;
        snprintf(missing, sizeof missing, "%uF0 is missing", section.workers - 1);
        section.micro_batches = 0; /* as --check reads it */
        struct weir_table *table = load(&section, &faults);
        bool named = false;
        for (uint32_t i = 0; i < faults.kept; i++)
            named |= strstr(faults.lines[i], missing) != NULL;
        EXPECT(table == NULL);
        if (!EXPECT(named))
            TEST_FAIL("%u workers, %u micro-batches: %s", section.workers, counted,
                      faults.kept > 0 ? faults.lines[0] : "accepted");
        refused++;
        weir_faults_clean_up(&faults);
        weir_table_destroy(table);
    }
    free(text);
    EXPECT(refused >= 20);
}

WEIR_TEST_SUITE(schedule_torch, TEST(exports_load_run_and_are_no_faster_than_ours),
                TEST(the_faulty_1f1b_export_is_refused_with_the_action_named))

/* SPDX-License-Identifier: MIT */
/* Tables made, replayed and counted for the tests of schedules. */
#include "schedule/schedule_facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const double schedule_unit_times[WEIR_KIND_COUNT] = {
    [WEIR_KIND_F] = 1, [WEIR_KIND_R] = 1, [WEIR_KIND_B] = 2, [WEIR_KIND_I] = 1, [WEIR_KIND_W] = 1};

const char *schedule_any(void) {
    uint32_t count = 0;
    while (weir_schedule_name(count) != NULL &&
           !weir_schedule_is_searched(weir_schedule_name(count)))
        count++;
    return weir_schedule_name((uint32_t)test_random_below(count));
}

struct weir_table_options schedule_options(const char *schedule, struct schedule_counts counts,
                                           enum weir_checkpoint checkpoint) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    options.allocator = test_allocator();
    options.schedule = schedule;
    options.stages = counts.stages;
    options.workers = counts.workers;
    options.micro_batches = counts.micro_batches;
    options.checkpoint = checkpoint;
    return options;
}

struct weir_table *schedule_try(const char *schedule, struct schedule_counts counts,
                                enum weir_checkpoint checkpoint, char *reason) {
    struct weir_table_options options = schedule_options(schedule, counts, checkpoint);
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_table *table = NULL;
    int status = weir_table_new(&options, &faults, &table);
    EXPECT_STATUS(status, faults.count > 0 ? WEIR_ERR_ARGUMENT : WEIR_OK);
    if (reason != NULL) snprintf(reason, 256, "%s", faults.kept > 0 ? faults.lines[0] : "");
    weir_faults_clean_up(&faults);
    return table;
}

struct weir_table *schedule_table(const char *schedule, struct schedule_counts counts,
                                  enum weir_checkpoint checkpoint) {
    char reason[256];
    struct weir_table *table = schedule_try(schedule, counts, checkpoint, reason);
    struct weir_faults faults = {.allocator = test_allocator()};
    if (table != NULL && weir_table_check(table, test_allocator(), &faults) != WEIR_OK) {
        snprintf(reason, sizeof reason, "%s", faults.kept > 0 ? faults.lines[0] : "no reason");
        weir_table_destroy(table);
        table = NULL;
    }
    weir_faults_clean_up(&faults);
    if (table == NULL)
        TEST_FAIL("%s of %u stages, %u workers, %u micro-batches: %s", schedule, counts.stages,
                  counts.workers, counts.micro_batches, reason);
    return table;
}

double schedule_replay(const struct weir_table *table, const double *duration, double *start,
                       double *end) {
    struct weir__flow flow = {.stage_count = table->stage_count};
    struct weir__deps deps;
    double makespan = -1.0;
    if (!EXPECT_STATUS(weir__deps_new(table, &flow, test_allocator(), &deps), WEIR_OK)) return -1;
    int status =
        weir__table_replay(table, &deps, duration, NULL, start, end, &makespan, test_allocator());
    EXPECT_STATUS(status, WEIR_OK);
    weir__deps_clean_up(&deps);
    return status == WEIR_OK ? makespan : -1.0;
}

static bool is_recomputed(const struct weir_table *table, uint32_t at, uint32_t end) {
    const struct weir_action *action = &table->actions[at];
    for (uint32_t a = at; a < end; a++) {
        const struct weir_action *later = &table->actions[a];
        if (later->kind == WEIR_KIND_R && later->stage == action->stage &&
            later->micro_batch == action->micro_batch)
            return true;
    }
    return false;
}

/* Live activations of a row, by its order: what a worker does is one thing after another. */
static uint32_t peak_of(const struct weir_table *table, uint32_t worker, bool saved) {
    uint32_t live = 0, peak = 0, end = table->lines[worker + 1];
    for (uint32_t a = table->lines[worker]; a < end; a++) {
        const struct weir_action *action = &table->actions[a];
        bool forward = action->kind == WEIR_KIND_F;
        live += saved ? action->kind == WEIR_KIND_R || (forward && !is_recomputed(table, a, end))
                      : forward;
        peak = live > peak ? live : peak;
        live -= action->kind == WEIR_KIND_B || action->kind == WEIR_KIND_W;
    }
    EXPECT_EQ_UINT(live, 0);
    return peak;
}

static void measure_worker(const struct weir_table *table, uint32_t w, const double *start,
                           const double *end, double *busy, struct schedule_facts *facts) {
    double first = -1, last = 0, own = 0;
    for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
        if (!weir__kinds[table->actions[a].kind].in_step) continue;
        first = first < 0 ? start[a] : first;
        last = end[a];
        own += end[a] - start[a];
    }
    double idle = last - first - own;
    *busy += own;
    facts->idle_most = idle > facts->idle_most ? idle : facts->idle_most;
    facts->peak[w] = peak_of(table, w, false);
    facts->saved_peak[w] = peak_of(table, w, true);
    facts->peak_most = facts->peak[w] > facts->peak_most ? facts->peak[w] : facts->peak_most;
}

bool schedule_measure(const struct weir_table *table, const double time_of[WEIR_KIND_COUNT],
                      struct schedule_facts *facts) {
    const struct weir_allocator *allocator = test_allocator();
    uint32_t count = table->action_count;
    double *times = weir__acquire(allocator, 3 * (size_t)count, sizeof *times);
    double *start = times + count, *end = start + count, busy = 0;
    *facts = (struct schedule_facts){0};
    for (uint32_t a = 0; a < count; a++) times[a] = time_of[table->actions[a].kind];
    facts->makespan = schedule_replay(table, times, start, end);
    for (uint32_t w = 0; w < table->worker_count && facts->makespan >= 0; w++)
        measure_worker(table, w, start, end, &busy, facts);
    facts->bubble = 1.0 - busy / (table->worker_count * facts->makespan);
    weir__release(allocator, times, 3 * (size_t)count, sizeof *times);
    return facts->makespan >= 0;
}

bool schedule_facts_of(const char *schedule, struct schedule_counts counts,
                       struct schedule_facts *facts) {
    struct weir_table *table = schedule_table(schedule, counts, WEIR_CHECKPOINT_NEVER);
    bool good = table != NULL && schedule_measure(table, schedule_unit_times, facts);
    weir_table_destroy(table);
    return good;
}

char *schedule_golden(const char *path) {
    const size_t room = 1 << 20;
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, room);
    size_t bytes = file != NULL && text != NULL ? fread(text, 1, room - 1, file) : 0;
    if (!EXPECT(bytes > 0 && bytes < room - 1)) TEST_FAIL("%s cannot be read", path);
    if (file != NULL) fclose(file);
    return text;
}

const char *schedule_section(const char *at, struct schedule_section *section) {
    *section = (struct schedule_section){0};
    if (at == NULL ||
        sscanf(at, "# %63s %" SCNu32 " %" SCNu32 " %" SCNu32, section->name, &section->workers,
               &section->micro_batches, &section->virtual_stages) != 4)
        return NULL;
    section->text = strchr(at, '\n') + 1;
    const char *end = strchr(section->text, '#');
    section->bytes = end != NULL ? (size_t)(end - section->text) : strlen(section->text);
    return section->text + section->bytes;
}

/* SPDX-License-Identifier: MIT */
/*
 * The list of schedules, and what is asked of all of them before one fills a table. A schedule is
 * one file and one entry here.
 */
#include "schedule/schedules.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STAGES_MAX UINT16_MAX
#define MICRO_BATCHES_MAX (UINT32_C(1) << 31)
/* Offsets into a table are 32 bits wide: F, R, B (or I and W) each, and U per stage. */
#define ACTIONS_MAX UINT32_C(0x7fffffff)
#define ACTIONS_PER_CELL 3u

static const struct weir__named_schedule *const schedules[] = {
    &weir__schedule_gpipe,      &weir__schedule_1f1b,   &weir__schedule_interleaved,
    &weir__schedule_looped_bfs, &weir__schedule_zb_h1,  &weir__schedule_zb_h2,
    &weir__schedule_zb_v,       &weir__schedule_v_half, &weir__schedule_v_min,
    &weir__schedule_dualpipe_v, &weir__schedule_auto,
};

const char *weir_schedule_name(uint32_t index) {
    return index < WEIR__COUNT_OF(schedules) ? schedules[index]->name : NULL;
}

static const struct weir__named_schedule *find_schedule(const char *name) {
    for (size_t i = 0; name != NULL && i < WEIR__COUNT_OF(schedules); i++) {
        if (strcmp(name, schedules[i]->name) == 0) return schedules[i];
    }
    return NULL;
}

bool weir_schedule_is_searched(const char *name) {
    const struct weir__named_schedule *schedule = find_schedule(name);
    return schedule != NULL && schedule->searched;
}

uint32_t weir_schedule_virtual_stages(const char *name) {
    const struct weir__named_schedule *schedule = find_schedule(name);
    return schedule != NULL ? weir__default_sharing(schedule) : 0;
}

bool weir_schedule_can_share(const char *name, uint32_t count) {
    const struct weir__named_schedule *schedule = find_schedule(name);
    return schedule != NULL && weir__can_share(schedule, count);
}

/* "gpipe, 1f1b" */
static void list_schedules(char *text, size_t capacity) {
    assert(capacity > 0);
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < WEIR__COUNT_OF(schedules) && used < capacity; i++) {
        int length =
            snprintf(text + used, capacity - used, "%s%s", i > 0 ? ", " : "", schedules[i]->name);
        used += length > 0 ? (size_t)length : 0;
    }
}

/* The list, and what was meant. */
static void refuse_name(const char *name, struct weir_faults *faults) {
    const char *known[WEIR__COUNT_OF(schedules) + 1] = {NULL};
    char names[128];
    for (size_t i = 0; i < WEIR__COUNT_OF(schedules); i++) known[i] = schedules[i]->name;
    const char *near = weir__nearest(name, known);
    list_schedules(names, sizeof names);
    weir_faults_add(faults, "there is no schedule '%.64s': choose one of %s%s%s%s", name, names,
                    near != NULL ? " (did you mean " : "", near != NULL ? near : "",
                    near != NULL ? "?)" : "");
}

static void check_counts(const struct weir_table_options *options, struct weir_faults *faults) {
    if (options->stages < 1 || options->stages > STAGES_MAX) {
        weir_faults_add(faults, "%" PRIu32 " stages: ask for 1 to %u; the nearest is %u",
                        options->stages, STAGES_MAX, options->stages < 1 ? 1u : STAGES_MAX);
    }
    if (options->micro_batches < 1 || options->micro_batches > MICRO_BATCHES_MAX) {
        weir_faults_add(
            faults, "%" PRIu32 " micro-batches: ask for 1 to %" PRIu32 "; the nearest is %" PRIu32,
            options->micro_batches, MICRO_BATCHES_MAX,
            options->micro_batches < 1 ? 1u : MICRO_BATCHES_MAX);
    }
    uint64_t cells = (uint64_t)options->stages * options->micro_batches;
    if (options->stages <= STAGES_MAX && options->micro_batches <= MICRO_BATCHES_MAX &&
        cells > (ACTIONS_MAX - options->stages) / ACTIONS_PER_CELL) {
        uint32_t most = (ACTIONS_MAX - options->stages) / ACTIONS_PER_CELL / options->stages;
        weir_faults_add(faults,
                        "%" PRIu32 " stage%s and %" PRIu32
                        " micro-batches are too many actions for "
                        "one table: with so many stages ask for at most %" PRIu32 " micro-batch%s",
                        options->stages, weir__s(options->stages), options->micro_batches, most,
                        weir__es(most));
    }
}

static uint32_t workers_of(const struct weir__named_schedule *schedule,
                           const struct weir_table_options *options) {
    assert(schedule != NULL);
    return options->workers > 0 ? options->workers
                                : options->stages / weir__default_sharing(schedule);
}

int weir__table_options_check(const struct weir_table_options *options,
                              struct weir_faults *faults) {
    const struct weir__named_schedule *schedule = find_schedule(options->schedule);
    struct weir_faults own = {.allocator = options->allocator};
    struct weir_faults *list = faults != NULL ? faults : &own;
    uint32_t before = list->count;
    if (schedule == NULL) refuse_name(options->schedule != NULL ? options->schedule : "", list);
    check_counts(options, list);
    if (options->stages >= 1 && options->stages <= STAGES_MAX)
        weir__sharing_check(schedule, options, list);
    weir__checkpoint_check(options, list);
    if (schedule != NULL && schedule->check != NULL && list->count == before) {
        struct weir_table_options whole = *options;
        whole.workers = workers_of(schedule, options);
        schedule->check(&whole, list);
    }
    bool refused = list->count > before;
    weir_faults_clean_up(&own);
    return refused ? WEIR_ERR_ARGUMENT : WEIR_OK;
}

void weir__table_options_infer(struct weir_table_options *options) {
    const struct weir__named_schedule *schedule = find_schedule(options->schedule);
    if (schedule == NULL || schedule->check == NULL) return;
    struct weir_faults faults = {.allocator = options->allocator};
    struct weir_table_options other = *options;
    check_counts(options, &faults);
    if (faults.count == 0) weir__sharing_check(schedule, options, &faults);
    if (faults.count == 0) {
        other.workers = workers_of(schedule, options);
        schedule->check(&other, &faults);
        if (faults.count > 0) {
            other.schedule = schedule->infers_as;
            *options = other;
        }
    }
    weir_faults_clean_up(&faults);
}

int weir_table_new(const struct weir_table_options *options, struct weir_faults *faults,
                   struct weir_table **table) {
    if (!weir__is_sized(options) || table == NULL) {
        weir_faults_add(faults, "weir_table_new: an argument is NULL, or " WEIR__BEGIN_WITH,
                        "WEIR_TABLE_OPTIONS_INIT");
        return WEIR_ERR_ARGUMENT;
    }
    struct weir_table_options own = *options;
    int status = weir__table_options_check(&own, faults);
    if (status != WEIR_OK) return status;
    const struct weir__named_schedule *schedule = find_schedule(own.schedule);
    own.workers = workers_of(schedule, &own);
    assert(schedule != NULL && own.workers > 0);
    struct weir__table_builder builder;
    weir__table_begin(&builder, own.allocator, own.stages, own.workers, own.micro_batches);
    builder.no_backward = own.no_backward;
    schedule->fill(&own, &builder);
    status = weir__table_finish(&builder, table);
    if (status != WEIR_OK || own.recompute_late || schedule->places_recompute) return status;
    status = weir__recompute_in_slack(*table, NULL, own.allocator);
    if (status != WEIR_OK) {
        weir_table_destroy(*table);
        *table = NULL;
    }
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * The table of schedules, and what is asked of all of them before one fills a table. A schedule is
 * one file and one row here.
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

static const struct weir__schedule *const schedules[] = {
    &weir__schedule_gpipe,
    &weir__schedule_1f1b,
};

const char *weir_schedule_name(uint32_t index) {
    return index < WEIR__COUNT_OF(schedules) ? schedules[index]->name : NULL;
}

static const struct weir__schedule *find_schedule(const char *name) {
    for (size_t i = 0; name != NULL && i < WEIR__COUNT_OF(schedules); i++) {
        if (strcmp(name, schedules[i]->name) == 0) {
            return schedules[i];
        }
    }
    return NULL;
}

/* "gpipe, 1f1b" */
static void list_schedules(char *text, size_t capacity) {
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < WEIR__COUNT_OF(schedules) && used < capacity; i++) {
        int length =
            snprintf(text + used, capacity - used, "%s%s", i > 0 ? ", " : "", schedules[i]->name);
        used += length > 0 ? (size_t)length : 0;
    }
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
    if (options->workers > options->stages && options->stages >= 1) {
        weir_faults_add(faults,
                        "%" PRIu32 " workers for %" PRIu32 " stages: a worker needs a stage of its "
                        "own; ask for at most %" PRIu32 " workers or at least %" PRIu32 " stages",
                        options->workers, options->stages, options->stages, options->workers);
    }
    uint64_t cells = (uint64_t)options->stages * options->micro_batches;
    if (options->stages <= STAGES_MAX && options->micro_batches <= MICRO_BATCHES_MAX &&
        cells > (ACTIONS_MAX - options->stages) / ACTIONS_PER_CELL) {
        uint32_t most = (ACTIONS_MAX - options->stages) / ACTIONS_PER_CELL / options->stages;
        weir_faults_add(faults,
                        "%" PRIu32 " stages and %" PRIu32 " micro-batches are too many actions for "
                        "one table: with so many stages ask for at most %" PRIu32 " micro-batches",
                        options->stages, options->micro_batches, most);
    }
}

int weir__table_options_read(const struct weir_table_options *options,
                             struct weir_table_options *out) {
    if (options == NULL || options->size < sizeof options->size ||
        options->size > sizeof *options) {
        return WEIR_ERR_ARGUMENT;
    }
    *out = (struct weir_table_options)WEIR_TABLE_OPTIONS_INIT;
    memcpy(out, options, options->size);
    out->size = sizeof *out;
    return WEIR_OK;
}

static int check_options(const struct weir_table_options *options,
                         const struct weir__schedule *schedule, struct weir_faults *faults) {
    struct weir_faults own = {.allocator = options->allocator};
    struct weir_faults *list = faults != NULL ? faults : &own;
    uint32_t before = list->count;
    int status = WEIR_OK;
    if (schedule == NULL) {
        char names[128];
        list_schedules(names, sizeof names);
        weir_faults_add(list, "there is no schedule '%.64s': choose one of %s",
                        options->schedule != NULL ? options->schedule : "", names);
    }
    check_counts(options, list);
    weir__checkpoint_check(options, list);
    if (schedule != NULL && schedule->check != NULL && list->count == before) {
        status = schedule->check(options, list);
    }
    if (status == WEIR_OK && list->count > before) {
        status = WEIR_ERR_ARGUMENT;
    }
    weir_faults_clean_up(&own);
    return status;
}

int weir_table_new(const struct weir_table_options *options, struct weir_faults *faults,
                   struct weir_table **table) {
    struct weir_table_options own;
    int status = weir__table_options_read(options, &own);
    if (status != WEIR_OK || table == NULL) {
        weir_faults_add(faults, "weir_table_new: an argument is NULL, or the options' size is not "
                                "that of this library");
        return WEIR_ERR_ARGUMENT;
    }
    const struct weir__schedule *schedule = find_schedule(own.schedule);
    status = check_options(&own, schedule, faults);
    if (status != WEIR_OK) {
        return status;
    }
    own.workers = own.workers == 0 ? own.stages : own.workers;
    struct weir__table_builder builder;
    weir__table_begin(&builder, own.allocator, own.stages, own.workers, own.micro_batches);
    builder.no_backward = own.no_backward;
    schedule->fill(&own, &builder);
    return weir__table_finish(&builder, table);
}

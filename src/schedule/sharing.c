/* SPDX-License-Identifier: MIT */
/*
 * How many stages each worker has under a schedule, and what is said where that cannot be.
 */
#include "schedule/schedules.h"

#include <inttypes.h>

uint32_t weir__default_sharing(const struct weir__named_schedule *schedule) {
    bool one = schedule->sharing == WEIR__SHARING_ONE || schedule->sharing == WEIR__SHARING_ANY;
    return one ? 1 : 2;
}

static bool has_two(const struct weir__named_schedule *schedule) {
    return schedule->sharing == WEIR__SHARING_TWO || schedule->sharing == WEIR__SHARING_V;
}

bool weir__can_share(const struct weir__named_schedule *schedule, uint32_t count) {
    bool one = schedule->sharing == WEIR__SHARING_ONE;
    bool exact = one || has_two(schedule);
    return exact ? count == (one ? 1 : 2) : count > 0;
}

/* Where only the number of stages is given: two per worker. */
static void check_stages(const struct weir__named_schedule *schedule, uint32_t stages,
                         struct weir_faults *faults) {
    assert(stages > 0);
    bool exact = has_two(schedule);
    if (stages == 1) {
        weir_faults_add(faults, "1 stage: %s has %s2 per worker; the nearest is 2 stages",
                        schedule->name, exact ? "" : "by default ");
    } else if (stages % 2 != 0) {
        weir_faults_add(faults,
                        "%" PRIu32 " stages: %s has %s2 per worker; the nearest are %" PRIu32
                        " and %" PRIu32 " stages%s",
                        stages, schedule->name, exact ? "" : "by default ", stages - 1, stages + 1,
                        exact ? "" : ", or name a number of workers that divides them");
    }
}

/* Where both are given and the schedule wants `each` stages per worker. */
static void check_exact(const struct weir__named_schedule *schedule,
                        const struct weir_table_options *options, uint32_t each,
                        struct weir_faults *faults) {
    assert(each > 0 && options->workers > 0);
    uint32_t stages = options->stages, workers = options->workers;
    uint64_t wanted = (uint64_t)workers * each;
    if (wanted == stages) return;
    if (stages % each == 0) {
        weir_faults_add(faults,
                        "%" PRIu32 " worker%s for %" PRIu32 " stage%s: %s has %" PRIu32
                        " per worker; ask for %" PRIu32 " worker%s or %" PRIu64 " stage%s",
                        workers, weir__s(workers), stages, weir__s(stages), schedule->name, each,
                        stages / each, weir__s(stages / each), wanted, weir__s(wanted));
    } else {
        weir_faults_add(faults,
                        "%" PRIu32 " stage%s on %" PRIu32 " worker%s: %s has %" PRIu32
                        " per worker; ask for %" PRIu64 " stage%s",
                        stages, weir__s(stages), workers, weir__s(workers), schedule->name, each,
                        wanted, weir__s(wanted));
    }
}

/* Where any number of stages will do. */
static void check_some(const struct weir_table_options *options, struct weir_faults *faults) {
    if (options->workers > options->stages) {
        weir_faults_add(faults,
                        "%" PRIu32 " workers for %" PRIu32
                        " stage%s: a worker needs a stage of its "
                        "own; ask for at most %" PRIu32 " worker%s or at least %" PRIu32 " stages",
                        options->workers, options->stages, weir__s(options->stages),
                        options->stages, weir__s(options->stages), options->workers);
    }
}

static void check_even(const struct weir__named_schedule *schedule,
                       const struct weir_table_options *options, struct weir_faults *faults) {
    assert(options->workers > 0);
    uint32_t stages = options->stages, workers = options->workers, rest = stages % workers;
    if (workers > stages) {
        check_some(options, faults);
    } else if (rest != 0) {
        weir_faults_add(faults,
                        "%" PRIu32 " stages on %" PRIu32
                        " workers: %s has as many on each worker; the nearest are %" PRIu32
                        " and %" PRIu64 " stages",
                        stages, workers, schedule->name, stages - rest,
                        (uint64_t)stages - rest + workers);
    }
}

void weir__sharing_check(const struct weir__named_schedule *schedule,
                         const struct weir_table_options *options, struct weir_faults *faults) {
    assert(options->stages > 0);
    bool given = options->workers > 0;
    if (schedule == NULL) {
        check_some(options, faults);
        return;
    }
    switch (schedule->sharing) {
    case WEIR__SHARING_ANY: check_some(options, faults); break;
    case WEIR__SHARING_ONE:
        if (given) check_exact(schedule, options, 1, faults);
        break;
    case WEIR__SHARING_V:
        if (given && (uint64_t)options->workers * 2 == (uint64_t)options->stages + 1) break;
        /* fall through */
    case WEIR__SHARING_TWO:
        if (given)
            check_exact(schedule, options, 2, faults);
        else
            check_stages(schedule, options->stages, faults);
        break;
    case WEIR__SHARING_EVEN:
        if (given)
            check_even(schedule, options, faults);
        else
            check_stages(schedule, options->stages, faults);
        break;
    }
}

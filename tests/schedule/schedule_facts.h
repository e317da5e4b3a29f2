/* SPDX-License-Identifier: MIT */
/*
 * What the tests of schedules measure on a table: a replay with one time per kind, and counts of
 * activations from the rows alone. Memory is the test's.
 */
#ifndef WEIR_TESTS_SCHEDULE_FACTS_H
#define WEIR_TESTS_SCHEDULE_FACTS_H

#include "harness.h"

#include "schedule/action.h"

enum { FACTS_WORKERS_MAX = 64 };

struct schedule_counts {
    uint32_t stages, workers, micro_batches; /* workers 0: the schedule's default */
};

struct schedule_facts {
    double makespan;
    double idle_most; /* of any worker, between its first start and last end */
    double bubble;    /* 1 - busy time / (workers * makespan) */
    uint32_t peak_most;
    uint32_t peak[FACTS_WORKERS_MAX];       /* activations, from F to B or W */
    uint32_t saved_peak[FACTS_WORKERS_MAX]; /* from R, or F where there is none, to B or W */
};

/* F = R = I = W = 1, B = 2. */
extern const double schedule_unit_times[WEIR_KIND_COUNT];

/* The name of a random schedule; not "auto". */
const char *schedule_any(void);
struct weir_table_options schedule_options(const char *schedule, struct schedule_counts counts,
                                           enum weir_checkpoint checkpoint);
/* NULL if the schedule refuses; the reason, if there is one, into `reason` (>= 256, or NULL). */
struct weir_table *schedule_try(const char *schedule, struct schedule_counts counts,
                                enum weir_checkpoint checkpoint, char *reason);
/* NULL, and the test failed, if it is refused or not proven. */
struct weir_table *schedule_table(const char *schedule, struct schedule_counts counts,
                                  enum weir_checkpoint checkpoint);
/* False, and the test failed, if the table does not run through. No skips, no copies. */
bool schedule_measure(const struct weir_table *table, const double time_of[WEIR_KIND_COUNT],
                      struct schedule_facts *facts);
/* A replay with a time per action; start and end have room for all. Returns the makespan. */
double schedule_replay(const struct weir_table *table, const double *duration, double *start,
                       double *end);
/* Makes, measures and destroys one without checkpoints, at unit times. */
bool schedule_facts_of(const char *schedule, struct schedule_counts counts,
                       struct schedule_facts *facts);

/* A table of a golden file, behind a line `# NAME workers micro-batches stages-per-worker ...`. */
struct schedule_section {
    char name[64];
    uint32_t workers, micro_batches, virtual_stages;
    const char *text;
    size_t bytes;
};

/* The file's text, released by free; NULL, and the test failed, if it cannot be read. */
char *schedule_golden(const char *path);
/* The section that begins at `at`, and where the next one does; NULL behind the last. */
const char *schedule_section(const char *at, struct schedule_section *section);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * A small pipe for the tests of snapshots and pages, whose last step's stamps can be replaced by
 * those of a simulation: plain loops over the table, with the dependencies written out by hand, so
 * that nothing of the library's own replays is in them.
 */
#ifndef WEIR_TESTS_REPORT_PIPE_H
#define WEIR_TESTS_REPORT_PIPE_H

#include "harness.h"

#include "pipe/run/pipe.h"
#include "weir_report.h"

enum { REPORT_STAGES_MOST = 4, REPORT_ROWS = 12, REPORT_ACTIONS_MOST = 1024 };

struct report_options {
    uint32_t stages, workers, chunks;
    const char *schedule;
    enum weir_checkpoint checkpoint;
    bool copies; /* between workers, which take `delay` ns more */
    uint64_t delay;
    const char *const *names; /* of stages, or NULL */
    uint32_t trace_actions;
};

struct report_pipe {
    struct weir_pipe *pipe;
    struct report_options options;
    int failure;      /* what forward returns on the last stage */
    uint64_t updates; /* done, as steps say; inference says nothing */
};

bool report_pipe_new(struct report_pipe *p, const struct report_options *options);
void report_pipe_destroy(struct report_pipe *p);
/** A training step of `rows` rows; `last`: with norm and update. Returns its status. */
int report_pipe_step(struct report_pipe *p, int64_t rows, bool last);
int report_pipe_infer(struct report_pipe *p);

/** What the simulation knows, by action of the table; in ns. */
struct report_times {
    const struct weir_table *table;
    const struct weir__row_plan *plan; /* for its waits for memory */
    double duration[REPORT_ACTIONS_MOST];
    double copying[REPORT_ACTIONS_MOST]; /* before the action, by its worker */
    double host[REPORT_ACTIONS_MOST];    /* before it, for no reason */
    double delay;                        /* of what crosses to another worker */
    double start[REPORT_ACTIONS_MOST], end[REPORT_ACTIONS_MOST];
};

/** Whole random numbers, up to `most` for a duration; the first action of worker 0 begins at 0. */
void report_times_draw(struct report_times *times, const struct report_pipe *p, uint32_t most);
/** Fills start and end; returns the last end of an action that is neither N nor U. */
double report_times_simulate(struct report_times *times);
/** The last step becomes the simulated one, whose time 0 is `origin`. */
void report_times_stamp(const struct report_times *times, const struct report_pipe *p,
                        uint64_t origin);

/** A text being written by a weir_write_fn, in the test's memory. */
struct report_sink {
    char *text; /* ended by 0 */
    size_t used, capacity;
    uint32_t calls, fail_at; /* this call and every later one fails with 70 + its number; 0: none */
};
struct report_sink report_sink_new(void);
void report_sink_destroy(struct report_sink *sink);
int report_sink_write(void *context, const char *text, size_t bytes);

#endif

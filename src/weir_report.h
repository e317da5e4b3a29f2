/* SPDX-License-Identifier: MIT */
/**
 * A training step taken apart, and the page that shows it.
 *
 * A snapshot is one kept step of a pipe as plain data: every action with what it waited for, the
 * time lost by each worker, what the step would have taken if something were different, memory over
 * time, and where the workers ran. It is a copy: the pipe may run on, or be destroyed. The report
 * is a page of HTML made from a snapshot and from what the caller adds (curves, figures, tables,
 * the command line). It is one file without links: it needs no network, opens from a disk, in
 * light and dark, and prints.
 *
 * Errors and statuses are those of weir.h. Life: (1) weir_snapshot_new between two steps; (2)
 * weir_report_html, any number of times, from any thread; (3) weir_snapshot_destroy.
 *
 * @code
 *   struct weir_snapshot *snapshot;
 *   struct weir_report_options options = WEIR_REPORT_OPTIONS_INIT;
 *   struct weir_report_series losses = {.name = "training", .x = steps, .y = loss, .count = n};
 *   struct weir_report_chart chart = {.title = "Loss", .x_name = "update", .series = &losses,
 *                                     .series_count = 1};
 *   int status = weir_snapshot_new(pipe, 0, NULL, &snapshot);
 *   if (status != WEIR_OK) snapshot = NULL;               // the page then says that there is none
 *   options.title = "my run", options.snapshot = snapshot;
 *   options.charts = &chart, options.chart_count = 1;
 *   status = weir_report_html(&options, write_to_file, file);
 *   weir_snapshot_destroy(snapshot);
 * @endcode
 */
#ifndef WEIR_REPORT_H
#define WEIR_REPORT_H

#include "weir.h"

#ifdef __cplusplus
#pragma GCC system_header
extern "C" {
#endif

/* ---- a step, taken apart --------------------------------------------------------------------- */

/** What if: X(NAME, text). Each answer is a replay of the step's table and dependencies with its
 * measured times, of which one thing is changed; what an action took to start once it could have
 * (host) counts as part of it, a copy's time is on the worker that made it, or between two. */
#define WEIR_WHAT_IF_MAP(X)                                                                        \
    X(MEASURED, "as measured")                   /* nothing: gives the makespan again */           \
    X(EQUAL_STAGES, "with equal stages")         /* scaled so that all stages take their mean */   \
    X(STEADY_TIMES, "with steady times")         /* medians over a stage's actions of a kind */    \
    X(FREE_COPIES, "with free copies")           /* neither copying nor being on the way */        \
    X(FREE_HOST, "without host time")            /* what is ready starts at once */                \
    X(FREE_RECOMPUTE, "with free recomputation") /* R takes no time */                             \
    X(NO_WAITING, "without any waiting")         /* all work, evenly spread: no replay */

enum weir_what_if {
#define WEIR_WHAT_IF_ENUM(name, text) WEIR_WHAT_IF_##name,
    WEIR_WHAT_IF_MAP(WEIR_WHAT_IF_ENUM)
#undef WEIR_WHAT_IF_ENUM
        WEIR_WHAT_IF_COUNT
};

/** "with equal stages" … Static storage. */
const char *weir_what_if_text(enum weir_what_if question);

/** What an action waited for last: X(NAME, text). */
#define WEIR_CAUSE_MAP(X)                                                                          \
    X(NOTHING, "nothing")                                                                          \
    X(ACTIVATIONS, "activations")                                                                  \
    X(GRADIENT, "gradient")                                                                        \
    X(SKIP, "skip")                                                                                \
    X(MEMORY, "memory still in use")                                                               \
    X(ALL_GRADIENTS, "every worker's gradients")                                                   \
    X(COPY, "a copy")

enum weir_cause {
#define WEIR_CAUSE_ENUM(name, text) WEIR_CAUSE_##name,
    WEIR_CAUSE_MAP(WEIR_CAUSE_ENUM)
#undef WEIR_CAUSE_ENUM
        WEIR_CAUSE_COUNT
};

/** "activations" … Static storage. */
const char *weir_cause_text(enum weir_cause cause);

#define WEIR_NO_ACTION UINT32_MAX

/** An action of the step. Times are ns since the snapshot's origin. What passed before it adds up:
 * waiting + copy + host = start - waited. */
struct weir_snapshot_action {
    struct weir_action action;
    uint32_t worker;
    uint64_t waited, start, end; /**< as in struct weir_trace_event */
    uint64_t waiting; /**< ns until other workers had produced what it needs, and left its memory */
    uint64_t copy;    /**< ns from then until it was here */
    uint64_t host;    /**< ns from then until it started */
    int32_t waited_for; /**< the worker whose action was waited for last, or -1 */
    uint32_t awaited;   /**< that action, an index in the snapshot's, or WEIR_NO_ACTION; of a copy
                             that brings something, the action that made it */
    enum weir_cause cause;
};

/** The bytes in use on a worker from `ns` (since the origin) until the next point. */
struct weir_snapshot_memory {
    uint64_t ns;
    uint64_t activations, borders, portals, workspace;
};

struct weir_snapshot_worker {
    struct weir_place place;
    uint32_t threads; /**< that its calls may use */
    struct weir_device_plan plan;
    uint32_t action_begin, action_end; /**< its actions, in order */
    uint64_t lasting; /**< bytes that live as long as the pipe: parameters, gradients … */
    uint64_t peak;    /**< bytes: the most that was in use at once, the lasting ones included */
    uint64_t peak_ns; /**< when that was first */
    uint32_t memory_count;
    const struct weir_snapshot_memory *memory; /**< ascending; the first is at 0 */
};

struct weir_snapshot_stage {
    const char *name; /**< NULL: it has none */
    uint32_t worker;
    double busy;                    /**< ns of all its actions in the step */
    double median[WEIR_KIND_COUNT]; /**< ns of its actions of a kind; 0 where there are none */
    uint32_t count[WEIR_KIND_COUNT];
    uint64_t parameter_bytes;
};

/** What the simulator (weir_predict.h) says of the step: its table where every action takes the
 * median of its stage and kind over the *other* kept steps of this row count, in the orders that
 * the pipe's memory gives; what crosses with a delay (link_delay_ns) is on its way so long. Host
 * time and what workers copy themselves are not in it. Times are ns. */
struct weir_snapshot_prediction {
    uint32_t step_count; /**< other steps; 0: none was kept, and nothing is predicted */
    double makespan;
    double bubble;
    const struct weir_worker_time *workers; /**< [worker_count], or NULL */
};

/** One step. All of it is the snapshot's and read-only. */
struct weir_snapshot {
    uint64_t step; /**< number of the step on its pipe, as in the trace */
    uint64_t
        update;   /**< its update's number from 1; 0: the caller counts none (weir_step.update) */
    bool typical; /**< it was chosen as the median of those kept */
    int64_t rows;
    uint32_t micro_batch_count;
    uint32_t kept_count;          /**< complete steps of this row count that the trace kept … */
    double kept_least, kept_most; /**< … and their shortest and longest makespan, ns */
    uint64_t span;  /**< ns from the origin, the step's first moment, to the last action's end */
    uint64_t first; /**< ns since the origin when the makespan begins */
    struct weir_step_report report;
    struct weir_snapshot_prediction predicted;
    double what_if[WEIR_WHAT_IF_COUNT]; /**< makespans in ns */
    uint32_t worker_count, stage_count, action_count;
    const struct weir_snapshot_worker *workers;
    const struct weir_snapshot_stage *stages;
    const struct weir_snapshot_action *actions; /**< by worker, then in the order they ran */
    const char *schedule; /**< its name; "a table" where the pipe was given one */
    enum weir_checkpoint checkpoint;
    bool recompute_late;
    bool copies; /**< crossings between workers are copied */
    bool spins;  /**< workers spin while they wait */
};

/** Takes a kept training step apart. `step` is its number, or 0 for the median by makespan of the
 * kept steps with the largest row count (the later of two in the middle), so that the step is a
 * typical one; trace_actions of the pipe's options says how many are kept. Not during a step.
 * `allocator` NULL is the default. WEIR_ERR_NOT_FOUND: no such step is kept whole; WEIR_ERR_BUSY: a
 * step is in progress, or the watchdog gave up on the last one. The snapshot is the caller's:
 * weir_snapshot_destroy. */
int weir_snapshot_new(const struct weir_pipe *pipe, uint64_t step,
                      const struct weir_allocator *allocator, struct weir_snapshot **snapshot);
/** Accepts NULL. */
void weir_snapshot_destroy(struct weir_snapshot *snapshot);

/* ---- the page -------------------------------------------------------------------------------- */

/* Every text is UTF-8, or becomes it: other bytes and control characters show as U+FFFD. Nothing in
 * a text can be markup. Arrays and texts are borrowed for the call. */

enum weir_report_form {
    WEIR_REPORT_LINE,
    WEIR_REPORT_POINTS,
    WEIR_REPORT_LEVEL /**< a horizontal line at y[0]; `x` is not read */
};

/** A curve. A value that is not finite leaves a gap. A point takes some 40 bytes of the page:
 * average neighbours where there are more than a few thousand. */
struct weir_report_series {
    const char *name;
    const double *x, *y;
    uint32_t count;
    enum weir_report_form form;
};

struct weir_report_chart {
    const char *title;
    const char *unit;   /**< of y; NULL: none */
    const char *x_name; /**< "update" */
    const struct weir_report_series *series;
    uint32_t series_count; /**< up to 4 are told apart */
    bool small;            /**< three of them stand side by side */
};

struct weir_report_fact {
    const char *name, *value;
    bool strong; /**< stands out from its neighbours */
};

struct weir_report_table {
    const char *title;
    const struct weir_report_fact *facts;
    uint32_t fact_count;
};

struct weir_report_options {
    size_t size;
    const char *title;                      /**< NULL: "Weir" */
    const char *summary;                    /**< a line or two below it, or NULL */
    const char *warning;                    /**< what went wrong, shown prominently, or NULL */
    const struct weir_snapshot *snapshot;   /**< NULL: the page says that no step was completed */
    const char *const *stage_notes;         /**< one text per stage, or NULL */
    const struct weir_report_fact *figures; /**< a few key figures */
    uint32_t figure_count;
    uint32_t chart_count;
    const struct weir_report_chart *charts;
    const struct weir_report_table *tables; /**< configuration, versions … */
    uint32_t table_count;
    const char *command; /**< the command that repeats the run, or NULL */
    double planned_step; /**< the step's makespan as a plan had it before the run, ns; 0: none */
};
#define WEIR_REPORT_OPTIONS_INIT                                                                   \
    { .size = sizeof(struct weir_report_options) }

/**
 * Writes the page. Allocates nothing; a failure of `write` ends it and is returned.
 *
 * For programs, <script type="application/json" id="data"> holds an object: `step`, `rows`, `span`,
 * `first`, `kinds` and `causes` (names by number), `makespan`, `what_if` {text: ns},
 * `predicted` (null, or {steps, makespan, bubble, workers: [{busy, idle, …}]}), `planned_step`,
 * `workers: [{busy, idle, dependency, copy, imbalance, host, lasting, planned, peak, memory}]` with
 * times in ns, sizes in bytes and `memory: [[ns, activations, borders, portals, workspace]]`,
 * `actions: [[worker, kind, stage, micro-batch, waited, start, end, waiting, copy, host, waited for
 * (worker), awaited (action), cause]]` (-1: none), and `charts: [[{name, x, y}]]`, where null is
 * what was not finite.
 */
int weir_report_html(const struct weir_report_options *options, weir_write_fn *write,
                     void *context);

#ifdef __cplusplus
}
#endif
#endif

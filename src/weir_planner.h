/* SPDX-License-Identifier: MIT */
/**
 * The planner: the pipeline with the shortest predicted step within a memory limit, and what other
 * limits would give.
 *
 * It tries schedules, stages per worker (so placements: loop or V), partitions, checkpoint modes
 * stage by stage, when to recompute, and what numbers of micro-batches it is given. Each try makes
 * the table and simulates a step with the layers' costs, borders, skips and links
 * (weir_simulate.h). Workers and their threads are given. Results depend on the number of
 * micro-batches, so another than the first is chosen only where it is faster by more than
 * `step_slack`, or alone fits. They also depend on the order in which gradients add up, so that of
 * 1f1b is kept, unless a schedule is fixed: all else that it changes leaves every bit of the
 * results as it was.
 *
 * Memory is estimated from the simulation: what lasts, what is alive between forward and backward,
 * what crosses, and the largest workspace; where `memory` is given, whatever is listed, refused or
 * chosen goes by its answer, and the estimate only says in which order to ask.
 *
 * How long it takes, on one core of some 18 million simulated actions a second: QUICK, estimates
 * alone: 8 workers, 64 micro-batches, 32 layers 1.5 to 3 ms; 64, 512, 256 layers 0.2 to 0.5 s: a
 * plan may change with every step. FULL: 0.1 s for 2 workers and 8 micro-batches, 1 to 3 s for 8
 * and 64, and each ask for memory comes on top. Other numbers of micro-batches take as long again,
 * each, but QUICK leaves out those that cannot be faster than what it has.
 *
 * Errors and statuses are those of weir.h. Life: (1) weir_planner_new; (2) weir_planner_search, any
 * number of times; (3) weir_planner_destroy. One thread at a time. Same options, same answer: no
 * clock and no random number has a part in it.
 *
 * @code
 *   struct weir_planner *planner;
 *   struct weir_planner_options options = WEIR_PLANNER_OPTIONS_INIT;
 *   struct weir_planner_result result;
 *   int status = weir_planner_new(NULL, &planner);
 *   options.costs = &profile->costs, options.workers = 4, options.micro_batches = 8;
 *   options.memory_limit = UINT64_C(6) << 30;
 *   status = weir_planner_search(planner, &options, &faults, &result);
 *   if (status == WEIR_OK) printf("%s: %g s\n", result.winner->schedule, result.winner->step);
 *   if (status == WEIR_ERR_MEMORY_LIMIT) printf("%llu would do\n", result.smallest_limit);
 *   weir_planner_destroy(planner);
 * @endcode
 */
#ifndef WEIR_PLANNER_H
#define WEIR_PLANNER_H

#include "weir_balance.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A step's seconds, per worker in the mean; they add up to the step. */
struct weir_planner_parts {
    double work;      /**< F and B (or I and W) */
    double recompute; /**< R */
    double bubble;    /**< idle were all tasks of a kind equal: the schedule's own */
    double imbalance; /**< idle for stages that differ; may be negative */
    double copies;    /**< idle for crossings */
    double host;      /**< idle for starting tasks */
};

/** A pipeline that was tried. */
struct weir_planner_choice {
    const char *schedule; /**< of weir_schedule_name */
    uint32_t stages, workers, micro_batches;
    const uint32_t *balance;                /**< [stages]: layers */
    const enum weir_checkpoint *checkpoint; /**< [stages] */
    bool recompute_late;
    double step;                     /**< predicted seconds */
    uint64_t bytes;                  /**< of the worker that needs most */
    bool exact;                      /**< `bytes` is what `memory` said, not an estimate */
    bool fits;                       /**< within the limit */
    struct weir_planner_parts parts; /**< of winner, runner-up and plain; else 0 */
    double bubble;                   /**< as in struct weir_prediction; where `parts` is filled */
    uint64_t moved_bytes;            /**< between workers in a step; where `parts` is filled */
};

/** The exact bytes of the worker that needs most. WEIR_OK; WEIR_ERR_OUT_OF_MEMORY ends the search;
 * any other status: the choice cannot be, and is left out. Same choice, same answer. */
typedef int weir_planner_memory_fn(void *context, const struct weir_planner_choice *choice,
                                   uint64_t *bytes);

enum weir_planner_effort {
    /** Tens of tries: each schedule with the fewest stages per worker that it takes, cut evenly by
     * time, with the checkpoint modes that the limit asks for. For plans between steps. */
    WEIR_PLANNER_QUICK,
    /** (QUICK all the same where workers times micro-batches are above 4,096.) Every number of
     * stages per worker up to 4; where few enough, every partition with every
     * checkpoint mode per stage, so that the winner is the best there is by estimate; else from
     * even cuts downhill in step and memory. */
    WEIR_PLANNER_FULL
};

/** A number of micro-batches that may be chosen. */
struct weir_planner_chunks {
    uint32_t micro_batches;
    const struct weir_layer_costs *costs; /**< for the rows of one of them; the same list of layers,
                                               so as many */
    const double *micro_batch_scale;      /**< as in struct weir_simulate_options; NULL: 1 */
};

enum weir_planner_recompute { WEIR_RECOMPUTE_ANY, WEIR_RECOMPUTE_EARLY, WEIR_RECOMPUTE_LATE };

/** All borrowed, for the call only. */
struct weir_planner_options {
    size_t size;
    const struct weir_layer_costs *costs; /**< for the rows of one micro-batch */
    uint32_t workers;                     /**< 1 … layers */
    uint32_t micro_batches;               /**< at least 1 */
    uint64_t memory_limit;                /**< bytes per worker; 0: none */
    const double *micro_batch_scale;      /**< as in struct weir_simulate_options; NULL: 1 */
    double step_slack; /**< of those that fit and take at most so much longer than the fastest
                            (0.01: a hundredth), the winner is the smallest, of `micro_batches`
                            where there is one; 0 … 1 */
    struct weir_link_cost link; /**< between workers */
    double host_seconds;        /**< before each action */
    enum weir_planner_effort effort;
    weir_planner_memory_fn *memory; /**< NULL: estimates decide */
    void *memory_context;
    uint32_t memory_asks; /**< how often `memory` may be asked for the front; 0: 48. Winner,
                               runner-up, plain and refusal ask up to 33 more times */
    /* What is fixed, instead of being searched. */
    const char *schedule; /**< or NULL */
    bool any_order;       /**< also schedules that add up gradients in another order than ascending
                               micro-batches, as gpipe does; one that is fixed may */
    uint32_t stages;      /**< or 0 */
    const uint32_t *balance;                      /**< [stages], or NULL */
    enum weir_checkpoint checkpoint;              /**< of all stages, or DEFAULT */
    const enum weir_checkpoint *stage_checkpoint; /**< [stages], or NULL */
    enum weir_planner_recompute recompute;
    /* What may be instead of `micro_batches`, `costs` and `micro_batch_scale`. */
    uint32_t other_count;                     /**< up to WEIR_PLANNER_OTHERS_MOST */
    const struct weir_planner_chunks *others; /**< each another number of micro-batches */
};
#define WEIR_PLANNER_OTHERS_MOST 31
#define WEIR_PLANNER_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(struct weir_planner_options), 0, 1, 1, 0, 0, 0.0, {0.0, 0.0}, 0.0,                  \
            WEIR_PLANNER_FULL, 0, 0, 0, 0, false, 0, 0, WEIR_CHECKPOINT_DEFAULT, 0,                \
            WEIR_RECOMPUTE_ANY, 0, 0                                                               \
    }

/** The planner's, valid until its next call. */
struct weir_planner_result {
    /** No other try is both as fast and as small: from the fastest to the smallest, each slower and
     * smaller than the one before. Those beyond the limit stand at its beginning. */
    uint32_t front_count;
    const struct weir_planner_choice *front;
    const struct weir_planner_choice
        *winner; /**< the fastest that fits, but for step_slack; NULL: none */
    const struct weir_planner_choice *runner_up; /**< that fits, of another schedule, or number of
                                                      stages or micro-batches; NULL: none */
    const struct weir_planner_choice *plain; /**< 1f1b, a stage per worker, cut evenly by time, all
                                                  but the last micro-batch checkpointed (or as
                                                  `checkpoint` says); NULL: it cannot be */
    uint64_t smallest_limit; /**< the least of all tries, but those made towards a limit: as
                                memory_limit it is enough */
    uint32_t tries;          /**< simulated */
    uint32_t asks;           /**< of `memory` */
};

struct weir_planner;

/** `allocator` NULL: the default. WEIR_ERR_OUT_OF_MEMORY. */
int weir_planner_new(const struct weir_allocator *allocator, struct weir_planner **planner);
/** Accepts NULL. */
void weir_planner_destroy(struct weir_planner *planner);
/** Searches. WEIR_ERR_MEMORY_LIMIT: nothing fits; *result is filled in, without a winner, and
 * smallest_limit says what would do. WEIR_ERR_ARGUMENT: options that cannot be, or nothing that the
 * fixed ones leave can run; every reason in `faults` (may be NULL). WEIR_ERR_OUT_OF_MEMORY,
 * WEIR_ERR_OVERFLOW. */
int weir_planner_search(struct weir_planner *planner, const struct weir_planner_options *options,
                        struct weir_faults *faults, struct weir_planner_result *result);

#ifdef __cplusplus
}
#endif
#endif

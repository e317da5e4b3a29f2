/* SPDX-License-Identifier: MIT */
/**
 * Balance: what each layer of a list costs, where the list is best cut into stages, and what the
 * stages then cost. Nothing here knows networks: layers are numbers. weir_profile.h measures them
 * on a model; a trainer of one's own fills them in itself.
 *
 * A partition is written as the sizes of its parts, in layers, as `--balance` takes them. Parts are
 * stages; several may share a worker, as a placement says, and then the worker's sum counts.
 *
 * Errors and statuses are those of weir.h. All functions are pure: same numbers, same answer; from
 * any thread.
 *
 * @code
 *   double weights[12];
 *   struct weir_balance_options by = WEIR_BALANCE_OPTIONS_INIT;
 *   by.checkpoint = WEIR_CHECKPOINT_ALWAYS, by.micro_batches = 8;
 *   weir_layer_weights(&profile->costs, &by, weights);
 *   struct weir_partition_options cut = WEIR_PARTITION_OPTIONS_INIT;
 *   cut.weights = weights, cut.count = 12, cut.parts = 4;
 *   uint32_t sizes[4];
 *   int status = weir_partition(&cut, sizes, NULL);
 *   struct weir_stage_costs *stages;
 *   status = weir_stage_costs_new(&profile->costs, 4, NULL, &stages);
 *   status = weir_stage_costs_fill(stages, sizes, 4);     // stages->list[2].seconds[WEIR_KIND_F]
 *   weir_stage_costs_destroy(stages);
 * @endcode
 */
#ifndef WEIR_PLANNER_H
#define WEIR_PLANNER_H

#include "weir_predict.h"

#ifdef __cplusplus
#pragma GCC system_header
extern "C" {
#endif

/* ---- what layers cost ------------------------------------------------------------------------ */

/** A layer's share of a stage. Times in seconds and sizes in bytes, of one micro-batch unless they
 * say otherwise. */
struct weir_layer_cost {
    /** Of F (keeping activations), R, B, I and W. What a layer does not have is 0. N and U, which
     * come once per step, are not measured and 0. */
    double seconds[WEIR_KIND_COUNT];
    double forward_checkpoint; /**< F of a checkpointed micro-batch */
    double recompute_last;     /**< R where the layer is its stage's last: what only later layers
                                    read is left out */
    uint64_t saved;            /**< made by this layer and kept from F (or R) to B (or I) */
    uint64_t saved_output;    /**< of `saved`, its output: where a stage ends after this layer it is
                                 the border's and not saved */
    uint64_t weight_saved;    /**< kept from I to W */
    uint64_t border;          /**< its output */
    uint64_t border_gradient; /**< its output's gradient; 0: none flows */
    uint64_t workspace;       /**< the most that a call takes */
    uint64_t parameters, gradients, optimizer; /**< as long as the pipe lives */
    uint64_t trainable;                        /**< of `parameters`, what learns */
    uint64_t copied; /**< parameters tied to an earlier layer's, which do not count above … */
    uint32_t copied_from; /**< … but in a stage without that layer, which has a copy */
    bool copied_learns;   /**< with optimizer state */
    bool no_backward;     /**< nothing learns here or before, and nothing before wants a gradient */
    bool joined; /**< where one stage holds both, it runs within a later layer's kernel, and its
                      time is counted there */
};

/** A list of layers, whoever's memory it is. */
struct weir_layer_costs {
    uint32_t layer_count;
    const struct weir_layer_cost *layers;
    uint32_t skip_count;
    const struct weir_skip_route *skips; /**< of layers, all with names; ascending sources */
    double task_seconds;                 /**< what an action costs besides its layers */
    uint32_t optimizer_arrays;           /**< optimizer bytes per byte that learns */
    uint32_t rank_count;                 /**< processes that were measured; 0: all are as one */
    const double *rank_paces; /**< [rank_count]: how long a rank takes for what the layers' times
                                   are of, as a part of those; above 0 */
    /** The same layers on the next kind of worker, GPUs beside CPUs, say; NULL: there is none. It
     * has as many layers. Skips are the first list's; a border may be held on one kind alone, as a
     * last layer's output is. */
    const struct weir_layer_costs *other;
};

/** How a worker differs from others: what its stages take is its kind's, times its pace. */
struct weir_worker_cost {
    uint32_t kind; /**< 0: the list itself; 1: its `other`, and so on */
    double pace;   /**< seconds by those of its kind: 2 takes twice as long; 0: 1 */
};

/** What each of so many workers, of all replicas, takes for what the layers' times are of: its
 * rank's pace, where ranks have the workers as struct weir_rank_links says; else 1. Whoever cuts,
 * simulates or plans has it from here. WEIR_ERR_ARGUMENT: there are fewer workers than ranks. */
int weir_worker_paces(const struct weir_layer_costs *costs, uint32_t workers, double *paces);

/* ---- weights ---- */

enum weir_balance_by { WEIR_BALANCE_BY_TIME, WEIR_BALANCE_BY_SIZE };

/** What a layer weighs. */
struct weir_balance_options {
    size_t size;
    enum weir_balance_by by;
    enum weir_checkpoint checkpoint;
    uint32_t micro_batches; /**< of a step: how many of them are checkpointed */
    bool split;             /**< backward is I and W, not B */
    bool infer;             /**< forward alone */
    uint32_t alive; /**< by size: micro-batches whose activations are there at once; 0: all */
    double parameter_scale; /**< by size: weight of a byte of parameters; < 0: what there is of
                                 parameters, gradients and optimizer state, each byte once */
};
#define WEIR_BALANCE_OPTIONS_INIT                                                                  \
    { .size = sizeof(struct weir_balance_options), .micro_batches = 1, .parameter_scale = -1.0 }

/** A number per layer, in weights[layer_count].
 * By time: the seconds of an average micro-batch: F and B (or I and W), and R as often as the mode
 * checkpoints. By size: bytes: parameters, gradients and optimizer state (or parameters times
 * `parameter_scale`), and of each micro-batch alive what is kept: activations, or, where it is
 * checkpointed, the output, with one micro-batch's activations besides. A skip counts at its
 * source. WEIR_ERR_ARGUMENT: options of another version, or no micro-batch; by
 * size, a skip that ends before it begins. */
int weir_layer_weights(const struct weir_layer_costs *costs,
                       const struct weir_balance_options *options, double *weights);
/** What each layer weighs on each worker, for a partition `by_worker`, in weights[worker *
 * layer_count + layer]. A pace counts by time alone. As weir_layer_weights; WEIR_ERR_ARGUMENT also
 * for a kind without costs, or a pace below 0. */
int weir_worker_weights(const struct weir_layer_costs *costs,
                        const struct weir_worker_cost *workers, uint32_t worker_count,
                        const struct weir_balance_options *options, double *weights);

/* ---- where to cut ---------------------------------------------------------------------------- */

/** LOOP gives stage s to worker s mod P; V goes forth and back: 0 … P-1, P-1 … 0, 0 …. */
enum weir_placement { WEIR_PLACEMENT_LOOP, WEIR_PLACEMENT_V };
/** Which worker runs a stage, of `workers` (at least 1). */
uint32_t weir_placement_worker(enum weir_placement placement, uint32_t workers, uint32_t stage);

struct weir_partition_options {
    size_t size;
    const struct weir_allocator *allocator;
    const double *weights; /**< of layers; finite, none below 0 */
    bool by_worker;        /**< weights[worker * count + layer]: on each worker others */
    uint32_t count;        /**< layers */
    uint32_t parts;        /**< stages: 1 … count */
    uint32_t workers;      /**< 0: one per stage */
    enum weir_placement placement;
    const uint32_t *stage_workers; /**< [parts], below `workers`: a placement of one's own, as a
                                        table has it; NULL: `placement` */
    uint32_t budget; /**< how many partitions may be looked at: weir_partition_search's scores,
                          and where several parts share a worker; 0: 50,000 */
};
#define WEIR_PARTITION_OPTIONS_INIT                                                                \
    { .size = sizeof(struct weir_partition_options), .parts = 1 }

struct weir_partition_result {
    double largest;  /**< the heaviest worker's weight */
    double score;    /**< weir_partition_search: the best score */
    bool exact;      /**< proven: none is better */
    uint32_t looked; /**< partitions that were looked at; 0 where none had to be */
};

/** The partition whose heaviest worker is as light as it can be, into sizes[parts]. With one part
 * per worker it is always exact, in time parts * count * log(count); among equals the last part is
 * as large as it can be, then the one before it. Where parts share workers it is exact as far as
 * `budget` reaches (all of 12 layers on 4 stages by far), else the best that was found from there
 * by moving layers. `result` may be NULL. WEIR_ERR_ARGUMENT: parts below 1 or above count, workers
 * above parts, weights that are none; WEIR_ERR_OUT_OF_MEMORY. */
int weir_partition(const struct weir_partition_options *options, uint32_t *sizes,
                   struct weir_partition_result *result);

/** Is given a partition; anything but 0 ends the walk. */
typedef int weir_partition_visit_fn(void *context, const uint32_t *sizes, double largest);
/** Visits every partition whose heaviest worker weighs at most `largest` (HUGE_VAL: every one), in
 * lexicographic order of sizes. Returns what a visit returned if that is not 0. Their number may
 * be astronomic: `budget` does not count here, `visit` ends it. */
int weir_partition_each(const struct weir_partition_options *options, double largest,
                        weir_partition_visit_fn *visit, void *context);

/** What a partition is worth, the less the better: predicted seconds, say. HUGE_VAL: it cannot be,
 * for memory, say. Must give the same answer for the same sizes. */
typedef double weir_partition_score_fn(void *context, const uint32_t *sizes);
/** The partition with the least score, into sizes[parts]. Where all of them are within the budget
 * all are scored (exact; among equals the first in lexicographic order); else it goes downhill from
 * weir_partition's, moving a layer from any part to any other. WEIR_ERR_NOT_FOUND: every score is
 * HUGE_VAL (sizes are weir_partition's then). Else as weir_partition. */
int weir_partition_search(const struct weir_partition_options *options,
                          weir_partition_score_fn *score, void *context, uint32_t *sizes,
                          struct weir_partition_result *result);

/* ---- what stages cost ------------------------------------------------------------------------ */

/** A stage: its layers' sums, but for what its ends change. As in struct weir_layer_cost. Where no
 * gradient leaves the stage at its beginning, I takes no time and W all. */
struct weir_stage_cost {
    uint32_t layer_first, layer_count;
    double seconds[WEIR_KIND_COUNT];
    double forward_checkpoint;
    uint64_t saved;        /**< from F (or R) to B (or I) */
    uint64_t weight_saved; /**< from I to W */
    uint64_t border;       /**< outputs; of the last stage the model's */
    uint64_t border_gradient;
    uint64_t workspace;
    uint64_t parameters, gradients, optimizer;
    bool no_backward; /**< only F of it: no R, B, I or W, and nothing saved */
};

/** Stages for one partition after the other, in the same memory: a search fills it thousands of
 * times. Read-only but through weir_stage_costs_fill; one thread at a time. */
struct weir_stage_costs {
    uint32_t stage_count;
    const struct weir_stage_cost *list;
    uint32_t skip_count;
    const struct weir_skip_route *skips; /**< of stages, in the layers' order */
};

/** Room for up to `stages` stages of these layers, whose memory must outlive it. The caller's:
 * weir_stage_costs_destroy. WEIR_ERR_ARGUMENT: no layer, no stage, or more stages than layers;
 * a skip that ends before it begins, or skips without their list. WEIR_ERR_OUT_OF_MEMORY. */
int weir_stage_costs_new(const struct weir_layer_costs *layers, uint32_t stages,
                         const struct weir_allocator *allocator, struct weir_stage_costs **costs);
/** For a partition of `stages` parts; allocates nothing. WEIR_ERR_ARGUMENT: sizes below 1, or that
 * do not add up to the layers, or too many; nothing has changed then. */
int weir_stage_costs_fill(struct weir_stage_costs *costs, const uint32_t *sizes, uint32_t stages);
/** The same where workers differ: stage s costs what it does on workers[stage_workers[s]].
 * `workers` NULL: none differs. WEIR_ERR_ARGUMENT also for a kind without costs. */
int weir_stage_costs_fill_on(struct weir_stage_costs *costs, const uint32_t *sizes, uint32_t stages,
                             const struct weir_worker_cost *workers, const uint32_t *stage_workers);
/** Points `options` at what the stages cost a simulated step: stage_seconds, borders, skips, saved
 * and kept bytes, no_backward; all else stays. F is the mean over a step's `micro_batches`, as many
 * of them checkpointed as the stage's mode says (`stage_checkpoint`: one per stage, or NULL). The
 * arrays are the costs' own, valid until the next fill or simulate. WEIR_ERR_ARGUMENT: nothing was
 * filled in yet, or no micro-batch. */
int weir_stage_costs_simulate(struct weir_stage_costs *costs, enum weir_checkpoint checkpoint,
                              const enum weir_checkpoint *stage_checkpoint, uint32_t micro_batches,
                              struct weir_simulate_options *options);
/** Accepts NULL. */
void weir_stage_costs_destroy(struct weir_stage_costs *costs);

/* ---- the planner ----------------------------------------------------------------------------- */

/**
 * The planner: the pipeline with the shortest predicted step within a memory limit, and what other
 * limits would give.
 *
 * It tries schedules, stages per worker (so placements: loop or V), partitions, checkpoint modes
 * stage by stage, when to recompute, and what numbers of micro-batches it is given. Each try makes
 * the table and simulates a step with the layers' costs, borders, skips and links
 * (weir_predict.h). Workers and their threads are given. Results depend on the number of
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

/** A step's seconds, per worker in the mean; they add up to the step. */
struct weir_planner_parts {
    double work;      /**< F and B (or I and W) */
    double recompute; /**< R */
    double bubble;    /**< idle were all tasks of a kind equal: the schedule's own */
    double imbalance; /**< idle for stages that differ; may be negative */
    double copies;    /**< idle for crossings */
    double host;      /**< idle for starting tasks */
    double shared;    /**< behind the last backward, for gradients and parameters of replicas */
};

/** A pipeline that was tried. */
struct weir_planner_choice {
    const char *schedule;                    /**< of weir_schedule_name */
    uint32_t stages, workers, micro_batches; /**< of a replica */
    const uint32_t *balance;                 /**< [stages]: layers */
    const enum weir_checkpoint *checkpoint;  /**< [stages] */
    bool recompute_late;
    double step;    /**< predicted seconds; with replicas until all of them have all parameters */
    uint64_t bytes; /**< of the worker that needs most */
    bool exact;     /**< `bytes` is what `memory` said, not an estimate */
    bool fits;      /**< within the limit */
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
     * stages per worker up to 4, and with up to 16 layers those that workers share unevenly; where
     * few enough, every partition with every checkpoint mode per stage, so that the winner is the
     * best there is, and `is_smallest` says that no smaller limit will do; else from even cuts
     * downhill in step and memory. */
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
    const struct weir_layer_costs *costs;        /**< for the rows of one micro-batch */
    uint32_t workers;                            /**< 1 … layers */
    uint32_t micro_batches;                      /**< at least 1 */
    uint64_t memory_limit;                       /**< bytes per worker; 0: none */
    const double *micro_batch_scale;             /**< as in struct weir_simulate_options; NULL: 1 */
    const struct weir_worker_cost *worker_costs; /**< [workers]: how they differ; NULL: they do
                                                      not. All costs have the kinds */
    double step_slack; /**< of those that fit and take at most so much longer than the fastest
                            (0.01: a hundredth), the winner is the smallest, of `micro_batches`
                            where there is one; 0 … 1 */
    struct weir_link_cost link;          /**< between workers */
    const struct weir_link_cost *links;  /**< or by [from * workers + to], if not NULL */
    const struct weir_rank_links *ranks; /**< between workers of different ranks, of all replicas;
                                              NULL: one process, or one for each */
    /** What replicas and groups of gradients cost, but for the bytes, which the stages' are; NULL:
     * one of each. Everything else here is of one replica. Both decide no more than is said here:
     * whether another number of replicas is better, or other groups (which decide bits), two
     * searches tell. */
    const struct weir_shared_costs *shared;
    double host_seconds; /**< before each action */
    enum weir_planner_effort effort;
    weir_planner_memory_fn *memory; /**< NULL: estimates decide */
    void *memory_context;
    uint32_t memory_asks; /**< how often `memory` may be asked for the front; 0: 48, and where
                               everything can be tried up to 1,000 times each for the least limit
                               and for the fastest that fits. Winner, runner-up, plain and refusal
                               ask up to 33 more times */
    /* What is fixed, instead of being searched. */
    const char *schedule;    /**< or NULL */
    const char *order;       /**< as weir_table_order says it: of the schedules, only those that
                                  add gradients up so; NULL: ascending. One that is fixed may have
                                  any */
    bool any_order;          /**< also schedules of another order, as gpipe has it */
    uint32_t stages;         /**< or 0 */
    const uint32_t *balance; /**< [stages], or NULL */
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
        .size = sizeof(struct weir_planner_options), .workers = 1, .micro_batches = 1,             \
        .effort = WEIR_PLANNER_FULL                                                                \
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
    bool is_smallest;        /**< no smaller one would do: nothing fits, everything was tried, and
                                memory asked of all that could need less */
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

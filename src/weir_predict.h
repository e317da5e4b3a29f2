/* SPDX-License-Identifier: MIT */
/**
 * The simulator: what a step takes, by its table and by what its tasks and crossings cost.
 *
 * It runs the same action table as the executor, by the same dependencies: a worker takes its row's
 * actions from the left, each as soon as the worker is free and everything that the action reads is
 * there. Nothing is sampled; the same costs give the same prediction. It is exact where a formula
 * is known. For p stages, one per worker, m micro-batches, tF = tI = tW (B = I + W), no recompute,
 * copies or host time:
 *
 *   bubble           gpipe, 1f1b: (p - 1) / (m + p - 1)         arXiv 1811.06965, 2104.04473
 *                    interleaved, V stages a worker, m mod p = 0: (p - 1) / (V m + p - 1)
 *                                                               arXiv 2104.04473
 *   idle in window   zb-h1: (p - 1)(tF + tI - tW); zb-h2: (p - 1)(tF + tI - 2 tW); zb-v: 0
 *                                                               arXiv 2401.10241
 *   activations      gpipe: m; 1f1b: p - s at worker s; zb-h2: 2p - 1 at worker 0; zb-v: 2p of
 *                    stages of half size; v-half and v-min: about 1/2 and 1/3 of 1f1b's bytes
 *                                                               arXiv 2401.10241, 2405.15362
 *   zb-h2, zb-v, dualpipe-v, V stages a worker: bubble (p - 1) / (3 V m + p - 1); dualpipe-v keeps
 *                    2p + 1 activations of half size            arXiv 2401.10241, 2412.19437
 *   late recompute   costs (p - 1) tF more than early under gpipe; copies that it waits for come
 *                    on top
 *
 * Errors and statuses are those of weir.h. Life: (1) weir_simulator_new; (2) weir_simulate, any
 * number of times, for any tables: buffers are kept and grow to the largest, so a search over
 * tables allocates a few times only; (3) weir_simulator_destroy. A simulator is used by one thread
 * at a time; different ones do not know of each other.
 *
 * @code
 *   struct weir_simulator *simulator;
 *   struct weir_simulate_options options = WEIR_SIMULATE_OPTIONS_INIT;
 *   struct weir_prediction prediction;
 *   int status = weir_simulator_new(NULL, &simulator);
 *   options.table = table;
 *   options.kind_seconds[WEIR_KIND_F] = 1e-3, options.kind_seconds[WEIR_KIND_B] = 2e-3;
 *   options.link.latency = 5e-6, options.link.seconds_per_byte = 1e-10;
 *   options.border_bytes = bytes;                         // stage_count - 1 of them
 *   status = weir_simulate(simulator, &options, NULL, &prediction);
 *   printf("%g s, bubble %g\n", prediction.step, prediction.bubble);
 *   weir_simulator_destroy(simulator);
 * @endcode
 *
 * Speed: 17 million actions of 1f1b a second on one core of a Zen 4 (bench_simulate). Memory beside
 * the table: 16 bytes per (stage, micro-batch), and as many per action where `start` and `end` are
 * wanted. Over ranks it takes about four times as long, for messages want an order, and three times
 * the memory. Replicas take as long, and as much, as so many tables.
 */
#ifndef WEIR_PREDICT_PUBLIC_H
#define WEIR_PREDICT_PUBLIC_H

#include "weir.h"

#ifdef __cplusplus
#pragma GCC system_header
extern "C" {
#endif

/* ---- what things cost ------------------------------------------------------------------------ */

/** A crossing of n bytes arrives latency + n * seconds_per_byte after its producer's end. The
 * workers go on meanwhile, and crossings do not hinder each other, but between ranks. */
struct weir_link_cost {
    double latency;
    double seconds_per_byte;
};

/** Workers on several processes, as struct weir_world deals them out: rank r of R has the workers w
 * with w * R / workers == r, rounded down. What crosses between ranks takes the bytes' time on the
 * sender's way out, one message after the other in the order in which their producers end (of one
 * producer: the border, then skips in their order and by reader); from one worker to another,
 * though, messages go in the order in which they are read, and one that is made before its turn
 * waits for it. The next may begin when the latency is still to come, as in LogGP (Alexandrov et
 * al. 1995). Between hosts the way out is the
 * host's, which its ranks share, as they share its network card; within one the rank's own. What a
 * worker reads of a skip in several stages crosses once. */
struct weir_rank_links {
    uint32_t rank_count;                /**< 1 … workers */
    const struct weir_link_cost *costs; /**< [from * rank_count + to]; from = to is not read */
    const uint32_t
        *hosts; /**< [rank]: its host's number, below rank_count; NULL: each has its own */
};

/** What stages share (weir_shared.h): groups of gradients, and replicas of the table's pipe. All
 * replicas run the table with the same costs, each on ranks of its own.
 *
 * A group's sum is added to another's in the gradient's action that completes it; all but the first
 * are memory of their own until then. When the last gradient of a stage is complete each slice goes
 * to the replica that owns it, to the lowest replica first; on one rank the highest stage goes
 * first, and a lower one behind it. The owner's norm adds up what has arrived (which is memory from
 * the last gradient on) and takes what N takes, every update waits for all norms, and an update
 * takes the slice's part of what U takes. Then the slice's parameters go to all others, in the
 * order of the rank's updates. These are messages between ranks as others; where there are no
 * `ranks`, each replica is one, and they do not hinder each other. A slice is cut from all of a
 * stage's bytes at once, and what else ranks tell each other (norms, losses) takes no time. */
struct weir_shared_costs {
    uint32_t replicas;              /**< at least 1; they divide ranks->rank_count */
    uint32_t groups;                /**< of a replica's micro-batches: a power of two, none empty */
    const uint64_t *gradient_bytes; /**< [stage_count]: of one group; NULL: 0 */
    const uint64_t *parameter_bytes; /**< [stage_count]: that learn; NULL: as gradient_bytes */
    double add_seconds_per_byte;     /**< of adding so many bytes to as many others */
    struct weir_link_cost link;      /**< between replicas, where there are no `ranks` */
};

/** Everything is borrowed for the call only. Times are seconds, finite and not negative. */
struct weir_simulate_options {
    size_t size;
    const struct weir_table *table; /**< passed weir_table_check, or made by weir_table_new */

    double kind_seconds[WEIR_KIND_COUNT]; /**< a task's time, in every stage */
    const double *stage_seconds;     /**< or, if not NULL, by [stage * WEIR_KIND_COUNT + kind] */
    const double *micro_batch_scale; /**< [micro-batch]: factor of its tasks' times, for rows that
                                          do not divide evenly; NULL: 1 */
    const double *worker_paces; /**< [worker, of all replicas]: and of its tasks', for machines that
                                     are not alike; NULL: 1 */
    double host_seconds;        /**< before each action: its worker is busy with starting it */
    double noise;  /**< each task's time is multiplied by a number of its own, uniform in
                        1 - noise … 1 + noise; 0 … 1 */
    uint64_t seed; /**< of the noise, which depends on it and on the action alone */

    struct weir_link_cost link; /**< between different workers; within one, crossing is free */
    const struct weir_link_cost *links;  /**< or by [from * worker_count + to], if not NULL */
    const struct weir_rank_links *ranks; /**< these between workers of different ranks instead, of
                                              all replicas; NULL: one process, or one for each */
    const struct weir_shared_costs *shared; /**< NULL: one replica, one group */
    const uint64_t *border_bytes;           /**< [stage_count - 1], of one micro-batch; NULL: 0 */
    const bool *border_differentiable; /**< [stage_count - 1]; NULL: all. The gradient is as large
                                            as the value */
    /** As the portals carry them: straight from the source to each *worker* that reads, once. The
     * gradient goes from reader to reader in descending order, then to the source. */
    uint32_t skip_count;
    const struct weir_skip_route *skips;

    bool recompute_late;     /**< R waits for the gradient too */
    const bool *no_backward; /**< [stage_count], or NULL: stages that the table has only F of */
    uint32_t ahead; /**< F of a stage without backward starts when the next stage's F of so many
                         micro-batches before has ended, if another worker has that; 0: no limit */

    /** What else must have ended before action a starts, of any worker: the actions
     * order_from[order_begin[a]] to order_from[order_begin[a + 1] - 1]. A run's memory gives such
     * orders, where what one worker writes takes the place of what another one read. NULL: none,
     * as with several replicas it must be. */
    const uint32_t *order_begin; /**< [action_count + 1] */
    const uint32_t *order_from;

    const uint64_t *saved_bytes; /**< [stage_count]: from F, or R where there is one, to the end of
                                      B or W, per micro-batch; NULL: 0 */
    const uint64_t *kept_bytes;  /**< [stage_count]: from F in any case (inputs that backward or
                                      recompute reads); NULL: 0 */

    bool no_causes;    /**< leave `dependency` and `imbalance` 0: they can cost a second run */
    bool want_actions; /**< fill `start` and `end` */
};
#define WEIR_SIMULATE_OPTIONS_INIT                                                                 \
    { .size = sizeof(struct weir_simulate_options) }

/* ---- what comes of it ------------------------------------------------------------------------ */

/** A worker's step. busy + idle = the step; dependency + copy + imbalance + host = idle, as in
 * struct weir_worker_time (there in nanoseconds): `copy` producer's end to data ready; `host`
 * inputs ready to start; `dependency` idle time of the same table when every kind takes its mean
 * time, without copies and host time; `imbalance` the rest, which may be negative. */
struct weir_predicted_worker {
    double busy, idle, dependency, copy, imbalance, host;
    double window;             /**< last end - first start, of actions in the step */
    uint64_t peak_activations; /**< see below */
    uint64_t peak_bytes;       /**< saved_bytes and kept_bytes, and what `shared` adds to a stage's
                                    gradients, most at once */
};

/** A predicted step. Times begin with the first action's start. N and U are left out of everything
 * but `total`, `start` and `end`. One stage's saved activation of one micro-batch counts 1 from
 * the start of its F to the end of its B or W; what ends at an instant is freed before what starts
 * then; stages that the table has no B or W of save nothing. With several replicas the lists have
 * all of them, one behind the other, and the numbers count all. */
struct weir_prediction {
    double step;          /**< makespan */
    double total;         /**< the same with N, U and what replicas send each other */
    uint64_t actions;     /**< in the step */
    double bubble;        /**< 1 - sum of busy / (workers * step) */
    double bubble_steady; /**< the largest (window - busy) / window of the workers */
    uint64_t moved_bytes; /**< between workers in a step: borders, skips and their gradients */
    uint64_t transfers;   /**< so many crossings */
    uint32_t skip_copies; /**< of them, skips' values going to another worker, per micro-batch */
    uint32_t worker_count, stage_count, replicas; /**< of the table, and how many run it */
    const struct weir_predicted_worker *workers;  /**< [replicas * worker_count] */
    const uint64_t *stage_peak_activations;       /**< [replicas * stage_count] */
    const double *start, *end;                    /**< [replicas * actions of the table], or NULL */
};

struct weir_simulator;

/** `allocator` NULL: the default. WEIR_ERR_OUT_OF_MEMORY. */
int weir_simulator_new(const struct weir_allocator *allocator, struct weir_simulator **simulator);
/** Accepts NULL. */
void weir_simulator_destroy(struct weir_simulator *simulator);
/** Predicts a step. The arrays of *prediction are the simulator's, valid until its next call.
 * WEIR_ERR_ARGUMENT: costs that cannot be, named in `faults` (may be NULL). WEIR_ERR_SCHEDULE: the
 * table cannot run to its end, and `faults` says why: one that weir_table_check passes may still
 * wait for itself where R waits for the gradient. WEIR_ERR_OVERFLOW: times that add up to no finite
 * number. WEIR_ERR_OUT_OF_MEMORY. */
int weir_simulate(struct weir_simulator *simulator, const struct weir_simulate_options *options,
                  struct weir_faults *faults, struct weir_prediction *prediction);

/* ---- to look at ------------------------------------------------------------------------------ */

/** Draws a prediction made with want_actions, as weir_pipe_trace_text draws a run. `table` is the
 * one that was simulated; at most 1e9 s (WEIR_ERR_OVERFLOW). A failure of `write` ends it and is
 * returned. WEIR_ERR_OUT_OF_MEMORY. */
int weir_prediction_text(const struct weir_table *table, const struct weir_prediction *prediction,
                         const struct weir_allocator *allocator, uint32_t columns, bool colour,
                         weir_write_fn *write, void *context);
/** The same as Chrome trace events (JSON), which Perfetto opens: a track per worker. */
int weir_prediction_chrome(const struct weir_table *table, const struct weir_prediction *prediction,
                           weir_write_fn *write, void *context);

/* ---- the search for a schedule --------------------------------------------------------------- */

/**
 * The search for a schedule: of all tables that do the work within a memory limit, one whose
 * predicted step is short. It is what the schedule "auto" is made by.
 *
 * It begins with every named schedule that fits the counts, the placement and the limit; so what it
 * gives is never slower than the best of them, and of two equally fast tables it prefers the one
 * that keeps less. From there it places actions one at a time, looking at what arrives next, in
 * orders of preference that it derives from the best table so far and disturbs; small cases it
 * searches to the end by branch and bound, and then says so. Each backward is whole (B) or split
 * (I, W), whichever is better; R stand where their worker would otherwise wait, as early as the
 * limit allows. Micro-batches of a stage run, and their gradients are summed, in ascending order,
 * but where a named schedule that nothing beats has it otherwise.
 *
 * Errors and statuses are those of weir.h. One call, no state between calls: same options, same
 * table, bit for bit, on any machine of the same floating-point arithmetic; the work is counted in
 * actions, never in time. From any thread.
 *
 * @code
 *   struct weir_simulate_options costs = WEIR_SIMULATE_OPTIONS_INIT;   // its `table` is not read
 *   struct weir_search_options options = WEIR_SEARCH_OPTIONS_INIT;
 *   struct weir_search_result result;
 *   costs.stage_seconds = seconds, costs.saved_bytes = saved;
 *   options.costs = &costs, options.stages = 8, options.workers = 4, options.micro_batches = 16;
 *   options.memory_limit = bytes;
 *   int status = weir_search(simulator, &options, NULL, &result);
 *   printf("%g s\n", result.prediction.step);
 *   weir_table_destroy(result.table);
 * @endcode
 */

/** Borrowed for the call only. */
struct weir_search_options {
    size_t size;
    const struct weir_allocator *allocator; /**< of the table and the search; NULL: the default */
    uint32_t stages, workers, micro_batches;
    const uint32_t
        *stage_workers; /**< [stages]: the worker of each; NULL: loop order or, where
                             stages are twice the workers, V order, whichever is faster */
    enum weir_checkpoint checkpoint;
    const enum weir_checkpoint *stage_checkpoint; /**< [stages], or NULL */
    const struct weir_simulate_options
        *costs; /**< its `table`, `noise`, `shared`, `want_actions` and
                     `no_causes` are not read, and `ranks` are those of one replica. NULL: F, R, I
                   and W take 1, B takes 2; no bytes */
    uint64_t
        memory_limit; /**< of each worker's peak_bytes, as the simulator counts them; 0: none */
    const uint64_t *memory_limits; /**< or [workers], if not NULL */
    uint32_t activation_limit;     /**< of each worker's peak_activations; 0: none */
    bool whole_backward;           /**< B alone, never I and W */
    bool ascending;  /**< no named schedule either that sums gradients in another order:
                          the bits are then those of 1f1b */
    uint64_t effort; /**< about how many actions may be placed; 0: 120,000. At least each
                          named schedule and a few orders are tried */
};
#define WEIR_SEARCH_OPTIONS_INIT                                                                   \
    {                                                                                              \
        .size = sizeof(struct weir_search_options), .stages = 1, .workers = 1, .micro_batches = 1, \
        .checkpoint = WEIR_CHECKPOINT_NEVER                                                        \
    }

struct weir_search_result {
    struct weir_table *table;          /**< the caller's: weir_table_destroy */
    struct weir_prediction prediction; /**< of it; arrays are the simulator's, as weir_simulate's */
    double bound;                      /**< no table of this placement has a shorter step */
    bool optimal;                      /**< nor than this one's: proven */
    const char *name; /**< the named schedule that the table is, or NULL. Static storage */
    uint64_t work;    /**< actions placed */
};

/** WEIR_ERR_ARGUMENT: counts or costs that cannot be, or more (stage, micro-batch) than 2^22;
 * WEIR_ERR_MEMORY_LIMIT: no table can stay within the limit; the worker and the smallest limit that
 * would do are named in `faults` (may be NULL). WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_OVERFLOW. */
int weir_search(struct weir_simulator *simulator, const struct weir_search_options *options,
                struct weir_faults *faults, struct weir_search_result *result);

/* ---- tables over links ----------------------------------------------------------------------- */

/**
 * A table over links: what weir_table_check proves of actions, with sends and receives spelled out
 * as a runtime without shared memory has them, where each blocks its worker.
 *
 * Lowering. What an action gives to another worker is one message (over the border, and one for all
 * its skips). The sender sends it directly after the action; of several, first to the worker with
 * the lowest number, and to one worker in the order in which that reads. The receiver receives
 * before the action that reads it first:
 *
 *   WEIR_RECEIVE_IN_ORDER   where a replay of the table (all actions take one unit, B two) has it
 *                           sent, as torch.distributed.pipelining places receives by a simulation.
 *                           Sends and receives then follow one order that all workers agree on
 *                           (receives of what is sent during an action stand before that action's
 *                           own sends), so a table that weir_table_check proves runs over links of
 *                           any depth
 *   WEIR_RECEIVE_LATE       directly before that action, border before skips: what a runtime does
 *                           that receives when it needs something. 1f1b then deadlocks over links
 *                           of depth 0
 *
 * A link leads from one worker to another and carries all messages between them; a receive takes
 * the message that it names. Over a link of depth 0 (rendezvous) a send ends when its receive has
 * begun; of depth d it ends when at most d messages are on the link. Whether a program comes to its
 * end then does not depend on how fast who is. Updates and norms are collective and left out.
 *
 * @code
 *   struct weir_links_options options = WEIR_LINKS_OPTIONS_INIT;
 *   options.depth = 1, options.receive = WEIR_RECEIVE_LATE;
 *   int status = weir_table_check_links(table, &options, &faults);
 * @endcode
 */

enum weir_receive { WEIR_RECEIVE_IN_ORDER, WEIR_RECEIVE_LATE };

#define WEIR_LINKS_UNBOUNDED UINT32_MAX

/** Borrowed for the call only. */
struct weir_links_options {
    size_t size;
    const struct weir_allocator *allocator;
    uint32_t depth; /**< of all links: 0, 1 … or WEIR_LINKS_UNBOUNDED */
    enum weir_receive receive;
    const bool *border_differentiable; /**< [stage_count - 1]; NULL: all */
    const bool *no_backward;           /**< [stage_count], or NULL */
    uint32_t skip_count;
    const struct weir_skip_route *skips; /**< their bytes are not read */
    bool recompute_late;
};
#define WEIR_LINKS_OPTIONS_INIT                                                                    \
    { .size = sizeof(struct weir_links_options) }

/** Proves a training table executable over links. WEIR_ERR_SCHEDULE with every fault of
 * weir_table_check, or else every circle of workers that wait for each other, naming the actions
 * whose results they wait to send and to receive; WEIR_ERR_ARGUMENT, WEIR_ERR_OUT_OF_MEMORY,
 * WEIR_ERR_OVERFLOW. From any thread. */
int weir_table_check_links(const struct weir_table *table, const struct weir_links_options *options,
                           struct weir_faults *faults);

#ifdef __cplusplus
}
#endif
#endif

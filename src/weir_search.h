/* SPDX-License-Identifier: MIT */
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
#ifndef WEIR_SEARCH_H
#define WEIR_SEARCH_H

#include "weir_simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

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
        *costs; /**< its `table`, `noise`, `want_actions` and
                     `no_causes` are not read. NULL: F, R, I and W take 1, B takes 2; no bytes */
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
        sizeof(struct weir_search_options), 0, 1, 1, 1, 0, WEIR_CHECKPOINT_NEVER, 0, 0, 0, 0, 0,   \
            false, false, 0                                                                        \
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

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT */
/** Inside src/balance: cutting a list of weights. */
#ifndef WEIR_BALANCE_INSIDE_H
#define WEIR_BALANCE_INSIDE_H

#include "base/base.h"
#include "base/pool.h"
#include "schedule/action.h"
#include "weir_planner.h"

/** Sizes of the parts of an optimal block partition: the largest sum of `costs`, times its part's
 * pace, is as small as it can be; among equals, earlier parts are as small as they can be.
 * 1 <= part_count <= count. `paces` NULL: all 1. */
int weir__block_partition(const struct weir_allocator *allocator, const double *costs,
                          uint32_t count, uint32_t part_count, const double *paces,
                          uint32_t *sizes);

/** Whether every skip has its readers, ascending layers after its source; `readers`: of all. */
bool weir__layer_skips_are_valid(const struct weir_layer_costs *layers, size_t *readers);

/** A micro-batch's forward on average, where that part of them is checkpointed. */
static inline double weir__mean_forward(const struct weir_stage_cost *stage, double part) {
    return (1 - part) * weir__pass_seconds(stage->seconds, WEIR__PASS_FORWARD) +
           part * stage->forward_checkpoint;
}

/** All partitions in lexicographic order, but those with a worker above the bound, which are
 * passed over as early as can be seen. */
struct weir__cuts {
    uint32_t count, parts, workers;
    const double *prefix;   /**< [count + 1] */
    const uint32_t *worker; /**< [parts] */
    const bool *closes;     /**< [parts]: its worker has no later part */
    double *paces;          /**< [workers] */
    double bound;
    bool strict;    /**< the bound itself is too much */
    uint32_t *ends; /**< [parts]: where each part ends */
    double *before; /**< [parts]: its worker's weight before it */
    double *load;   /**< [workers]: times their paces */
    double *closed; /**< [parts + 1]: weight, without paces, of the workers done before it */
    double *open;   /**< [parts + 1]: what those that are not take of a bound of 1 */
    int64_t depth;  /**< the part that moves; -1: done */
    uint64_t moves; /**< made so far */
};

/** In `pool`. `workers` is not 0. WEIR_ERR_OUT_OF_MEMORY. */
int weir__cuts_init(struct weir__cuts *cuts, struct weir__pool *pool,
                    const struct weir_partition_options *options, uint32_t workers);
/** Goes to the next partition; false after the last, or when `moves` has reached `moves_max`. */
bool weir__cuts_next(struct weir__cuts *cuts, uint64_t moves_max);
/** The present partition's sizes, and its heaviest worker. */
void weir__cuts_sizes(const struct weir__cuts *cuts, uint32_t *sizes);
double weir__cuts_largest(const struct weir__cuts *cuts);

/** The heaviest worker of a partition, with `load[workers]` as room. */
double weir__partition_largest(const struct weir__cuts *cuts, const uint32_t *sizes, double *load);

#endif

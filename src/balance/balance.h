/* SPDX-License-Identifier: MIT */
/** Inside src/balance: cutting a list of weights. */
#ifndef WEIR_BALANCE_INSIDE_H
#define WEIR_BALANCE_INSIDE_H

#include "base/base.h"
#include "base/pool.h"
#include "schedule/action.h"
#include "weir_planner.h"

/** The layers on a kind of worker; NULL: there are no costs of it. */
const struct weir_layer_costs *weir__costs_of(const struct weir_layer_costs *costs, uint32_t kind);
/** Whether there are costs of its kind, for as many layers, and its pace is a number. */
bool weir__worker_cost_is_valid(const struct weir_layer_costs *costs,
                                const struct weir_worker_cost *worker);
/** A worker's seconds by its kind's. */
static inline double weir__pace(const struct weir_worker_cost *worker) {
    return worker->pace > 0 ? worker->pace : 1;
}

/** The workers of a partition, and who has a part. */
static inline uint32_t weir__part_workers(const struct weir_partition_options *options) {
    return options->workers == 0 ? options->parts : options->workers;
}
uint32_t weir__part_worker(const struct weir_partition_options *options, uint32_t part);
/** What the first layers weigh together, [set * (count + 1) + layers], with a set for each worker
 * where weights are by worker; in `pool`, or NULL. */
double *weir__weight_sums(struct weir__pool *pool, const struct weir_partition_options *options);
/** A worker's. */
static inline const double *weir__worker_sums(const struct weir_partition_options *options,
                                              const double *sums, uint32_t worker) {
    return options->by_worker ? sums + (size_t)worker * (options->count + 1) : sums;
}

/** Sizes of the parts of an optimal block partition, each with a worker of its own: the largest sum
 * of weights, *largest, is as small as it can be; among equals, earlier parts are as small as they
 * can be. */
int weir__block_partition(const struct weir_partition_options *options, uint32_t *sizes,
                          double *largest);

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
    const double **sums;    /**< [parts] of [count + 1]: what the first layers weigh on its worker */
    const double *least;    /**< [count + 1]: each layer where it is lightest */
    const uint32_t *worker; /**< [parts] */
    const bool *closes;     /**< [parts]: its worker has no later part */
    double bound;
    bool strict;    /**< the bound itself is too much */
    uint32_t *ends; /**< [parts]: where each part ends */
    double *before; /**< [parts]: its worker's weight before it */
    double *load;   /**< [workers] */
    double *placed; /**< [parts + 1]: what all parts before it weigh … */
    double *closed; /**< [parts + 1]: … and those of workers that are done */
    uint32_t *open; /**< [parts + 1]: workers that are not */
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

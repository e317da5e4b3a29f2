/* SPDX-License-Identifier: MIT */
/**
 * A pipe's description, checked and copied: what everything else in pipe/ reads. Made from
 * weir_pipe_options, before any table or memory; every fault of the description is listed.
 */
#ifndef WEIR_SETUP_H
#define WEIR_SETUP_H

#include "base/pool.h"
#include "device/device.h"
#include "pipe/describe/groups.h"
#include "schedule/action.h"
#include "skip/skip.h"

/** A stage with what follows from its place. */
struct weir__stage_setup {
    struct weir_stage stage;      /**< texts and arrays are the setup's own */
    uint32_t border_count;        /**< inputs that are the previous stage's outputs */
    uint32_t entering_count;      /**< pipe inputs that enter here, after the border's */
    const uint32_t *entering;     /**< their numbers */
    const uint32_t *skip_routes;  /**< per skip use: its route, WEIR__NO_ROUTE if empty */
    const uint32_t *skip_readers; /**< per read or pop: its place among the route's readers */
    uint32_t tied_count;
    const uint32_t *ties; /**< numbers of the setup's ties that it takes part in */
};

/** All uses of a parameter that stages share; the first is its owner's. */
struct weir__tie_use {
    uint32_t stage;
    size_t offset; /**< in the stage's gradients */
};
struct weir__tie_group {
    const char *name;
    size_t bytes; /**< of each use */
    uint32_t use_count;
    struct weir__tie_use *uses;
};

enum { WEIR__RANK_GPUS_MAX = 16 };

/** GPUs of a rank of a world, which all ranks know (pipe/run/ranks/gpus.c). Of those that its
 * driver shows it has some: "cuda:0" is the first of them. */
struct weir__rank_gpus {
    uint64_t keys[WEIR__RANK_GPUS_MAX]; /**< of each shown: equal on two ranks if it is one GPU */
    uint64_t list;                      /**< of all keys */
    uint32_t shown, wants;              /**< wants: it has workers on GPUs */
    uint32_t nccl;                      /**< its NCCL's version, as ncclGetVersion says; 0: none */
    uint32_t first, count, sharers;     /**< its own; ranks that share those that are shown */
};

struct weir__setup {
    struct weir__pool pool;
    struct weir_pipe_options options; /**< arrays and texts are the setup's own */
    struct weir__stage_setup *stages;
    uint32_t route_count;
    struct weir_skip_route *routes; /**< a name is "namespace:name", or just that, for messages */
    struct weir_tensor *route_tensors;
    uint32_t tie_count;
    struct weir__tie_group *ties;
    size_t *input_row_bytes;  /**< per pipe input: of one row; of the whole if replicated */
    size_t *output_row_bytes; /**< per output of the last stage */
    bool estimate;            /**< arenas are what lives at once at most: nothing is packed */
    const struct weir__device_facts *devices; /**< [options.device_count]; none: all CPU */
    const size_t *arena_bytes; /**< per worker, once the arenas are there: further plans fit in */
    const uint64_t *reach; /**< [options.device_count]: weir__device_reach, where workers' devices
                                have memories of their own that differ; NULL: they do not */
    const struct weir__rank_gpus *gpus; /**< [rank of the world]; NULL: as they are named */
    uint32_t cores;                  /**< in a world: the fewest that a rank has (world/cores.h) */
    const struct weir_table *placed; /**< and on whose workers: the pipe's first table */
    struct weir__flow flow;          /**< what the schedule's dependencies are derived from */
};

/** Checks and copies. On failure nothing is left behind and `faults` has every reason. */
int weir__setup_init(struct weir__setup *setup, const struct weir_pipe_options *options,
                     struct weir_faults *faults);
void weir__setup_clean_up(struct weir__setup *setup);
static inline uint32_t weir__setup_input_count(const struct weir__setup *setup, uint32_t stage) {
    assert(stage < setup->options.stage_count);
    return setup->stages[stage].border_count + setup->stages[stage].entering_count;
}
/** What the worker runs on. */
static inline struct weir__device_facts weir__setup_device(const struct weir__setup *setup,
                                                           uint32_t worker) {
    bool named = worker < setup->options.device_count;
    return named ? setup->devices[worker] : (struct weir__device_facts){0, true};
}
/** The rank that has the worker, of `workers` in the table, among those of its replica. */
static inline uint32_t weir__setup_rank(const struct weir__setup *setup, uint32_t worker,
                                        uint32_t workers) {
    assert(worker < workers);
    if (setup->options.world == NULL) return 0;
    uint32_t ranks = setup->options.world->rank_count / weir__replicas(&setup->options);
    return weir__dealt_rank(ranks, workers, worker);
}
/** Whether both reach the same memory by the same addresses. */
static inline bool weir__setup_shares(const struct weir__setup *setup, uint32_t a, uint32_t b,
                                      uint32_t workers) {
    return weir__setup_rank(setup, a, workers) == weir__setup_rank(setup, b, workers) &&
           weir__setup_device(setup, a).memory == weir__setup_device(setup, b).memory;
}
/** Whether copies of a lane, between two devices with memories of their own, probably pass through
 * pinned memory: the reader's does not reach the source's. Sure when they are open. */
static inline bool weir__setup_hops(const struct weir__setup *setup, uint32_t reader,
                                    uint32_t source) {
    if (setup->reach == NULL || reader >= setup->options.device_count) return false;
    uint32_t memory = weir__setup_device(setup, source).memory;
    return memory < 64 && (setup->reach[reader] >> memory & 1) == 0;
}
/** A worker of a replica. */
struct weir__seat {
    uint32_t replica, worker;
};
/** What the rank of a seat has; where ranks have met. */
static inline const struct weir__rank_gpus *weir__setup_gpus_of(const struct weir__setup *setup,
                                                                struct weir__seat seat,
                                                                uint32_t workers) {
    assert(setup->gpus != NULL && setup->options.world != NULL);
    uint32_t ranks = setup->options.world->rank_count / weir__replicas(&setup->options);
    return &setup->gpus[seat.replica * ranks + weir__setup_rank(setup, seat.worker, workers)];
}
/** The GPU there; 0: it has none. */
static inline uint64_t weir__setup_gpu(const struct weir__setup *setup, struct weir__seat seat,
                                       uint32_t workers) {
    uint32_t memory = weir__setup_device(setup, seat.worker).memory;
    const struct weir__rank_gpus *of = weir__setup_gpus_of(setup, seat, workers);
    return memory == 0 || memory > of->count ? 0 : of->keys[of->first + memory - 1];
}
/** Whether what goes between two seats of different ranks goes by NCCL: both have GPUs, which are
 * not one, and the same NCCL. As far as known, before ranks have met: then GPUs do. */
static inline bool weir__setup_joins(const struct weir__setup *setup, struct weir__seat a,
                                     struct weir__seat b, uint32_t workers) {
    bool gpus = weir__setup_device(setup, a.worker).memory > 0 &&
                weir__setup_device(setup, b.worker).memory > 0;
    if (setup->gpus == NULL || !gpus) return gpus;
    const struct weir__rank_gpus *of = weir__setup_gpus_of(setup, a, workers);
    const struct weir__rank_gpus *other = weir__setup_gpus_of(setup, b, workers);
    return of->nccl > 0 && of->nccl == other->nccl &&
           weir__setup_gpu(setup, a, workers) != weir__setup_gpu(setup, b, workers);
}
/** The same of two workers of this replica. */
static inline bool weir__setup_by_nccl(const struct weir__setup *setup, uint32_t a, uint32_t b,
                                       uint32_t workers) {
    uint32_t own = weir__replica(&setup->options);
    return weir__setup_joins(setup, (struct weir__seat){own, a}, (struct weir__seat){own, b},
                             workers);
}
/** Whether input k is in a mask like inputs_kept. */
static inline bool weir__input_bit(uint64_t mask, uint32_t k) {
    return mask >> (k < 63 ? k : 63) & 1;
}
/** The tensor of a stage's input. */
const struct weir_tensor *weir__setup_input(const struct weir__setup *setup, uint32_t stage,
                                            uint32_t input);
/** "stage 2 (decoder)" into text; returns text. */
const char *weir__setup_stage_text(const struct weir__setup *setup, uint32_t stage, char text[96]);

/** MB-2 for another row count: every input must give as many micro-batches as the mini-batch. */
int weir__setup_check_rows(const struct weir__setup *setup, int64_t rows,
                           struct weir_faults *faults);

/**
 * A replica's training table for `rows` rows, as the options ask for it: from CSV or by a
 * schedule's name, without N. Of `options` stage_count counts, and the stages themselves do not:
 * what a table depends on of them are `no_backward` (one per stage, or NULL) and whether some stage
 * has its backward `whole` only. Whether it can run is not checked. `table` is the caller's.
 */
int weir__make_table(const struct weir_pipe_options *options, uint32_t replica, int64_t rows,
                     const bool *no_backward, bool whole, struct weir_faults *faults,
                     struct weir_table **table);
/** The same of a setup, proven to run. */
int weir__setup_table(const struct weir__setup *setup, uint32_t replica, int64_t rows,
                      struct weir_faults *faults, struct weir_table **table);

#endif

/* SPDX-License-Identifier: MIT */
/** Inside the planner: what is tried (planner_walk.c), and towards a limit (planner_limit.c), how
 * (planner_try.c), what need not be tried (planner_bound.c), what is kept of it (planner_keep.c),
 * what is certain of it (planner_exact.c), and what comes of it (planner.c). */
#ifndef WEIR_BALANCE_PLANNER_H
#define WEIR_BALANCE_PLANNER_H

#include "balance/balance.h"
#include "weir_planner.h"

/** A number of micro-batches. */
struct weir__chunks {
    uint32_t micro_batches;
    const struct weir_layer_costs *layers;
    const double *scale;             /**< or NULL */
    double scale_sum, least, most;   /**< of `scale` */
    struct weir_stage_costs *stages; /**< of the last cut that was filled in */
};

/** What a stage takes at least. */
struct weir__share {
    double forward, gradient; /**< of one micro-batch: F, and what gives a gradient on */
    double work;              /**< of a step: F, R and what gives gradients on */
    double rest;              /**< of a step: what else there is of backward */
};

/** A schedule with a number of stages and of micro-batches, on the search's workers. */
struct weir__shape {
    const char *schedule;
    uint32_t stages;
    uint32_t chunks;   /**< of planner->chunks; 0: what was asked for */
    bool split;        /**< its tables have I and W */
    uint32_t *workers; /**< [stages] */
    uint32_t *points;  /**< what is kept of it, ascending steps and falling estimates */
    uint32_t count;    /**< of them */
    uint32_t capacity;
    bool complete;      /**< everything of it was tried */
    double exact_ratio; /**< exact bytes by estimate, of the last that was asked for; 0: unknown */
};

/** What is tried: a shape's partition, modes and recompute. */
struct weir__try {
    uint32_t shape;
    const uint32_t *sizes;
    const enum weir_checkpoint *modes;
    bool late;
};

/** What came of it. */
struct weir__point {
    struct weir__try tried; /**< its arrays are the point's own */
    double step;
    uint64_t estimate;
    uint64_t least; /**< no exact bytes are below */
    uint64_t bytes; /**< exact, or the estimate where nobody can be asked; 0: not asked yet */
    bool asked, refused;
    bool base; /**< stays, whatever is better */
};

struct weir_planner {
    const struct weir_allocator *allocator;
    struct weir_simulator *simulator;
    struct weir__pool pool; /**< of one search and its result */
    /* the present search's */
    const struct weir_planner_options *options;
    struct weir__chunks *chunks;
    uint32_t chunk_count;
    struct weir_stage_costs *costs; /**< of the shape that was filled in last */
    uint32_t stages_most;
    struct weir__shape *shapes;
    uint32_t shape_count;
    struct weir__point *points;
    uint32_t point_count, point_capacity;
    double *weights; /**< [layers], or [worker * layers + layer] where workers differ */
    uint32_t *sizes;             /**< [stages_most]: room for a partition */
    enum weir_checkpoint *modes; /**< [stages_most]: and for modes */
    bool late;                   /**< recompute of the coming tries */
    uint32_t replicas;
    struct weir_shared_costs shared;    /**< for the simulator */
    uint64_t *saved, *kept, *gradients; /**< [stages_most]: for it too */
    uint64_t *lasting, *largest;        /**< [workers]: for the estimate */
    struct weir__share *shares;         /**< [stages_most]: for a bound */
    bool *no_backward;                  /**< [stages_most]: the present table's */
    enum weir_checkpoint *table_modes;
    struct weir_table *table; /**< the last try's, or NULL */
    uint32_t table_shape;
    bool table_late;
    uint64_t actions_left;  /**< of the budget */
    uint64_t actions_floor; /**< where the present shape's share of it ends */
    uint32_t tries, asks;
    int status; /**< of a try within a callback; sticky */
};

/** Sets up and frees what belongs to one search. */
int weir__planner_begin(struct weir_planner *planner, const struct weir_planner_options *options);
void weir__planner_end(struct weir_planner *planner);

/** Few tries: asked for, or because each takes long. */
bool weir__planner_is_quick(const struct weir_planner_options *options);
/** Finds the shapes that can be. `most`: stages per worker. */
int weir__planner_shapes(struct weir_planner *planner, uint32_t most, struct weir_faults *faults);
/** Tries all that its effort says, and keeps what is worth it. */
int weir__planner_walk(struct weir_planner *planner);

/** Tries what may be faster than `fastest` and within the limit, and was not tried yet. */
int weir__planner_approach(struct weir_planner *planner, double fastest);

/** The shape's number of micro-batches. */
static inline const struct weir__chunks *weir__planner_chunks_at(const struct weir_planner *planner,
                                                                 uint32_t shape) {
    return &planner->chunks[planner->shapes[shape].chunks];
}
/** Fills a cut into planner->costs. As weir_stage_costs_fill. */
int weir__planner_fill(struct weir_planner *planner, uint32_t shape, const uint32_t *sizes);
/** Seconds that no order of the actions of the shape with planner->costs can fall below; `modes`
 * NULL: whatever they are. */
double weir__planner_bound(struct weir_planner *planner, uint32_t shape,
                           const enum weir_checkpoint *modes);

/** What a stage has as long as the pipe lives: of the optimizer's state its replica's part. */
static inline uint64_t weir__planner_lasting(const struct weir_planner *planner,
                                             const struct weir_stage_cost *stage) {
    return stage->parameters + stage->gradients + stage->optimizer / planner->replicas;
}

/** Whether checkpoint modes are not fixed. */
bool weir__planner_modes_are_free(const struct weir_planner *planner);
/** A try of planner->sizes, modes and late. */
struct weir__try weir__planner_present(const struct weir_planner *planner, uint32_t shape);
/** For cutting its layers; weights are planner->weights. */
struct weir_partition_options weir__planner_cut_options(const struct weir_planner *planner,
                                                        uint32_t shape);
/** From the even cut without checkpoints to modes whose estimate is within `limit`, or to all that
 * can be; planner->sizes and modes stand there then. WEIR_ERR_NOT_FOUND: even without checkpoints
 * it is not faster than `fastest`. */
int weir__planner_stride(struct weir_planner *planner, uint32_t shape, uint64_t limit,
                         double fastest);

/** Simulates. `prediction` may be NULL; else it has its causes. *step is HUGE_VAL where the table
 * cannot be. */
int weir__planner_try(struct weir_planner *planner, const struct weir__try *tried, double *step,
                      uint64_t *estimate, struct weir_prediction *prediction);
/** The partition that is even by time, for uniform `mode`, into planner->sizes. */
int weir__planner_cut(struct weir_planner *planner, uint32_t shape, enum weir_checkpoint mode);
/** Seconds of recompute in the filled-in costs' step, over all workers. */
double weir__planner_recompute_time(const struct weir_planner *planner,
                                    const struct weir__try *tried);

/** Keeps it, unless something of its shape is both as fast and as small. */
int weir__planner_keep(struct weir_planner *planner, const struct weir__try *tried, double step,
                       uint64_t estimate, bool base);
/** Tries, and keeps. */
int weir__planner_try_and_keep(struct weir_planner *planner, const struct weir__try *tried,
                               bool base, double *step, uint64_t *estimate);
/** For searches that want a number: tries, and keeps, the present modes with other sizes. False
 * where that cannot run, or planner->status tells of a failure, of this or an earlier call. */
bool weir__planner_evaluate(struct weir_planner *planner, uint32_t shape, const uint32_t *sizes,
                            double *step, uint64_t *estimate);
/** A point as others see it, without `exact` and `fits`. Its arrays are the point's. */
struct weir_planner_choice weir__planner_choose(const struct weir_planner *planner,
                                                const struct weir__point *point);
/** All that is kept, in ascending order, or only the base: the planner's list. */
enum weir__rank { WEIR__BY_STEP, WEIR__BY_ESTIMATE, WEIR__BY_LEAST };
int weir__planner_rank(struct weir_planner *planner, enum weir__rank by, bool base_only,
                       uint32_t **order, uint32_t *count);

/** Whether all that is searched was tried. */
bool weir__planner_is_complete(const struct weir_planner *planner);
/** Bytes that the exact ones of the last try are not below. */
uint64_t weir__planner_least(const struct weir_planner *planner, const struct weir__try *tried);
/** Asks until *least (0: unknown) is the least of all, which *proven tells. */
int weir__planner_prove_least(struct weir_planner *planner, uint64_t *least, bool *proven);
/** Asks until nothing faster than the fastest that fits can fit. */
int weir__planner_prove_fastest(struct weir_planner *planner);

/** Asks for a point's bytes, once. */
int weir__planner_ask(struct weir_planner *planner, struct weir__point *point);

#endif

/* SPDX-License-Identifier: MIT */
/* Towards a limit. Where there is too much to try, the front has gaps, and the limit may lie in
 * one. So each shape that was not tried completely first gets modes whose estimate is within the
 * limit. From there layers move, and single stages change their modes, while that makes the step
 * shorter and the estimate stays within. */
#include "balance/planner.h"

#include <math.h>

enum { MOVES_MOST = 200, ROUNDS = 2, FAVOURED = 6 };
static const uint64_t budget_actions = 10000000;

struct approach {
    struct weir_planner *planner;
    uint32_t shape;
    uint64_t limit; /* in estimates of this shape */
};

/* Seconds; beyond the limit so many more that the way leads back. */
static double worth(struct approach *approach, const uint32_t *sizes) {
    assert(approach->shape < approach->planner->shape_count);
    double step;
    uint64_t estimate;
    if (!weir__planner_evaluate(approach->planner, approach->shape, sizes, &step, &estimate))
        return HUGE_VAL;
    if (estimate <= approach->limit) return step;
    return 2 * step * ((double)estimate / (double)approach->limit);
}

static double worth_of_sizes(void *context, const uint32_t *sizes) {
    return worth(context, sizes);
}

static int move_layers(struct approach *approach, uint32_t moves) {
    assert(moves > 0);
    struct weir_planner *planner = approach->planner;
    struct weir_partition_options cut = weir__planner_cut_options(planner, approach->shape);
    if (planner->options->balance != NULL) return WEIR_OK;
    cut.budget = moves;
    int status = weir_partition_search(&cut, worth_of_sizes, approach, planner->sizes, NULL);
    if (status == WEIR_ERR_NOT_FOUND) status = WEIR_OK;
    return planner->status != WEIR_OK ? planner->status : status;
}

/* Each stage in turn takes the mode that is worth most. */
static int change_modes(struct approach *approach) {
    struct weir_planner *planner = approach->planner;
    uint32_t stages = planner->shapes[approach->shape].stages;
    assert(stages <= planner->stages_most);
    double best = worth(approach, planner->sizes);
    for (uint32_t s = 0; s < stages && planner->actions_left > planner->actions_floor; s++) {
        enum weir_checkpoint chosen = planner->modes[s];
        for (int m = WEIR_CHECKPOINT_ALWAYS; m <= WEIR_CHECKPOINT_NEVER; m++) {
            if ((int)chosen == m) continue;
            enum weir_checkpoint before = planner->modes[s];
            planner->modes[s] = (enum weir_checkpoint)m;
            double now = worth(approach, planner->sizes);
            if (now < best)
                best = now;
            else
                planner->modes[s] = before;
        }
    }
    return planner->status;
}

/* The share of the most promising of `left` shapes. */
static int approach_with(struct weir_planner *planner, uint32_t index, uint32_t left,
                         double fastest) {
    assert(left > 0 && index < planner->shape_count);
    const struct weir__shape *shape = &planner->shapes[index];
    uint64_t limit = planner->options->memory_limit;
    double ratio = shape->exact_ratio > 0 ? shape->exact_ratio : 1, most = (double)limit / ratio;
    struct approach approach = {planner, index, most < 0x1p64 ? (uint64_t)most : UINT64_MAX};
    uint64_t cells =
        (uint64_t)shape->stages * weir__planner_chunks_at(planner, index)->micro_batches;
    uint64_t share = planner->actions_left / (left < FAVOURED ? left : FAVOURED);
    uint64_t moves = share / (4 * cells + 200) / (2 * ROUNDS);
    planner->actions_floor = planner->actions_left - share;
    int status = weir__planner_stride(planner, index, approach.limit, fastest);
    if (status == WEIR_ERR_NOT_FOUND) return WEIR_OK;
    if (status != WEIR_OK) return status;
    if (moves > MOVES_MOST) moves = MOVES_MOST;
    for (int i = 0; i < ROUNDS; i++) {
        if ((status = change_modes(&approach)) != WEIR_OK) return status;
        if (moves == 0) continue;
        if ((status = move_layers(&approach, (uint32_t)moves)) != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static double fastest_of(const struct weir_planner *planner, uint32_t shape) {
    assert(shape < planner->shape_count);
    const struct weir__shape *at = &planner->shapes[shape];
    return at->count > 0 ? planner->points[at->points[0]].step : HUGE_VAL;
}

/* The shape with the fastest try, of those that are not done; UINT32_MAX: none. */
static uint32_t next_shape(const struct weir_planner *planner, const bool *done) {
    uint32_t next = UINT32_MAX;
    for (uint32_t i = 0; i < planner->shape_count; i++)
        if (!done[i] && (next == UINT32_MAX || fastest_of(planner, i) < fastest_of(planner, next)))
            next = i;
    return next;
}

int weir__planner_approach(struct weir_planner *planner, double fastest) {
    const struct weir_planner_options *options = planner->options;
    uint32_t left = 0;
    if (options->memory_limit == 0 || weir__planner_is_quick(options) ||
        !weir__planner_modes_are_free(planner))
        return WEIR_OK;
    bool *done = weir__pool_take(&planner->pool, planner->shape_count, sizeof *done);
    if (done == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    planner->actions_left = budget_actions;
    for (uint32_t i = 0; i < planner->shape_count; i++) {
        done[i] = planner->shapes[i].complete || fastest_of(planner, i) >= fastest;
        left += !done[i];
    }
    for (; left > 0; left--) {
        uint32_t next = next_shape(planner, done);
        assert(next < planner->shape_count);
        done[next] = true;
        int status = approach_with(planner, next, left, fastest);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

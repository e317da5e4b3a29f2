/* SPDX-License-Identifier: MIT */
/* What is kept: of each shape, what no other try of it beats in both step and estimate. Shapes are
 * kept apart, since an estimate may be further off for one schedule than for another. */
#include "balance/planner.h"

#include <math.h>
#include <string.h>

enum { KEPT_MOST = 128 };

/* Takes the shape's index of a point that went, or a new one. */
static int take_point(struct weir_planner *planner, uint32_t stages, uint32_t *index) {
    assert(stages > 0 && stages <= planner->stages_most);
    if (!weir__pool_grow(&planner->pool, &planner->points, planner->point_count,
                         &planner->point_capacity, sizeof planner->points[0]))
        return WEIR_ERR_OUT_OF_MEMORY;
    struct weir__point *point = &planner->points[planner->point_count];
    memset(point, 0, sizeof *point);
    point->tried.sizes = weir__pool_take(&planner->pool, stages, sizeof(uint32_t));
    point->tried.modes = weir__pool_take(&planner->pool, stages, sizeof(enum weir_checkpoint));
    if (point->tried.sizes == NULL || point->tried.modes == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    *index = planner->point_count++;
    return WEIR_OK;
}

static bool beats(const struct weir__point *point, double step, uint64_t estimate) {
    return point->step <= step && point->estimate <= estimate;
}

static void fill(struct weir__point *point, const struct weir__try *tried, uint32_t stages,
                 double step, uint64_t estimate, bool base) {
    assert(tried->sizes != NULL && tried->modes != NULL && step < HUGE_VAL);
    memcpy((void *)point->tried.sizes, tried->sizes, stages * sizeof tried->sizes[0]);
    memcpy((void *)point->tried.modes, tried->modes, stages * sizeof tried->modes[0]);
    point->tried.shape = tried->shape;
    point->tried.late = tried->late;
    point->step = step;
    point->estimate = estimate;
    point->base = base;
}

/* What is beaten by estimate may be the smallest when it is asked for. */
static bool keeps_all(const struct weir_planner *planner, const struct weir__shape *shape) {
    return shape->complete && planner->options->memory != NULL;
}

/* Drops what is beaten; returns the index of one of them, or UINT32_MAX. */
static uint32_t drop_beaten(struct weir_planner *planner, struct weir__shape *shape, double step,
                            uint64_t estimate) {
    assert(shape->count <= shape->capacity);
    uint32_t kept = 0, index = UINT32_MAX;
    for (uint32_t i = 0; i < shape->count; i++) {
        const struct weir__point *point = &planner->points[shape->points[i]];
        bool beaten =
            !point->base && !point->asked && step <= point->step && estimate <= point->estimate;
        if (beaten)
            index = shape->points[i];
        else
            shape->points[kept++] = shape->points[i];
    }
    shape->count = kept;
    return index;
}

int weir__planner_keep(struct weir_planner *planner, const struct weir__try *tried, double step,
                       uint64_t estimate, bool base) {
    assert(tried->shape < planner->shape_count);
    struct weir__shape *shape = &planner->shapes[tried->shape];
    bool all = keeps_all(planner, shape);
    if (step >= HUGE_VAL) return WEIR_OK;
    for (uint32_t i = 0; i < shape->count && !all; i++) {
        const struct weir__point *point = &planner->points[shape->points[i]];
        if (beats(point, step, estimate) && (point->base || !base)) return WEIR_OK;
    }
    uint32_t index = all ? UINT32_MAX : drop_beaten(planner, shape, step, estimate);
    /* full: only what is faster or smaller than all is worth more than what is there */
    if (index == UINT32_MAX && shape->count >= KEPT_MOST && !base && !all) {
        const struct weir__point *first = &planner->points[shape->points[0]];
        const struct weir__point *last = &planner->points[shape->points[shape->count - 1]];
        if (step >= first->step && estimate >= last->estimate) return WEIR_OK;
    }
    if (!weir__pool_grow(&planner->pool, &shape->points, shape->count, &shape->capacity,
                         sizeof(uint32_t)))
        return WEIR_ERR_OUT_OF_MEMORY;
    if (index == UINT32_MAX) {
        int status = take_point(planner, planner->stages_most, &index);
        if (status != WEIR_OK) return status;
    }
    assert(index < planner->point_count && shape->count < shape->capacity);
    fill(&planner->points[index], tried, shape->stages, step, estimate, base);
    if (planner->options->memory != NULL)
        planner->points[index].least = weir__planner_least(planner, tried);
    uint32_t at = shape->count++;
    for (; at > 0 && planner->points[shape->points[at - 1]].step > step; at--)
        shape->points[at] = shape->points[at - 1];
    shape->points[at] = index;
    return WEIR_OK;
}

int weir__planner_try_and_keep(struct weir_planner *planner, const struct weir__try *tried,
                               bool base, double *step, uint64_t *estimate) {
    int status = weir__planner_try(planner, tried, step, estimate, NULL);
    if (status != WEIR_OK) return status;
    return weir__planner_keep(planner, tried, *step, *estimate, base);
}

bool weir__planner_evaluate(struct weir_planner *planner, uint32_t shape, const uint32_t *sizes,
                            double *step, uint64_t *estimate) {
    assert(shape < planner->shape_count);
    struct weir__try tried = weir__planner_present(planner, shape);
    tried.sizes = sizes;
    if (planner->status != WEIR_OK) return false;
    planner->status = weir__planner_try_and_keep(planner, &tried, false, step, estimate);
    return planner->status == WEIR_OK && *step < HUGE_VAL;
}

struct weir_planner_choice weir__planner_choose(const struct weir_planner *planner,
                                                const struct weir__point *point) {
    assert(point->tried.sizes != NULL && point->tried.modes != NULL);
    const struct weir__shape *shape = &planner->shapes[point->tried.shape];
    return (struct weir_planner_choice){.schedule = shape->schedule,
                                        .stages = shape->stages,
                                        .workers = planner->options->workers,
                                        .micro_batches =
                                            planner->chunks[shape->chunks].micro_batches,
                                        .balance = point->tried.sizes,
                                        .checkpoint = point->tried.modes,
                                        .recompute_late = point->tried.late,
                                        .step = point->step,
                                        .bytes = point->bytes};
}

int weir__planner_ask(struct weir_planner *planner, struct weir__point *point) {
    assert(point->step < HUGE_VAL && (point->asked || !point->refused));
    const struct weir_planner_options *options = planner->options;
    struct weir__shape *shape = &planner->shapes[point->tried.shape];
    if (point->asked) return WEIR_OK;
    point->asked = true;
    point->bytes = point->estimate;
    if (options->memory == NULL) return WEIR_OK;
    struct weir_planner_choice choice = weir__planner_choose(planner, point);
    planner->asks++;
    int status = options->memory(options->memory_context, &choice, &point->bytes);
    if (status == WEIR_ERR_OUT_OF_MEMORY) return status;
    point->refused = status != WEIR_OK;
    if (!point->refused && point->estimate > 0)
        shape->exact_ratio = (double)point->bytes / (double)point->estimate;
    return WEIR_OK;
}

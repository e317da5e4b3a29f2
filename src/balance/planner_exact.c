/* SPDX-License-Identifier: MIT */
/* Where everything was tried and is kept, and memory can be asked for: the least limit and the
 * fastest that fits are those of the whole space. Nobody is asked about a try that its own bound
 * rules out. */
#include "balance/planner.h"

#include <math.h>

enum { PROOF_ASKS = 1000 };

bool weir__planner_is_complete(const struct weir_planner *planner) {
    bool complete = planner->shape_count > 0;
    for (uint32_t i = 0; i < planner->shape_count; i++) complete &= planner->shapes[i].complete;
    return complete;
}

static bool can_prove(const struct weir_planner *planner) {
    const struct weir_planner_options *options = planner->options;
    return options->memory != NULL && options->memory_asks == 0 &&
           weir__planner_is_complete(planner);
}

/* From the smallest bound on, until a bound is not below what is known. */
int weir__planner_prove_least(struct weir_planner *planner, uint64_t *least, bool *proven) {
    uint32_t *order, count, left = PROOF_ASKS;
    *proven = planner->options->memory == NULL && weir__planner_is_complete(planner);
    if (!can_prove(planner)) return WEIR_OK;
    int status = weir__planner_rank(planner, WEIR__BY_LEAST, false, &order, &count);
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < count; i++) {
        struct weir__point *point = &planner->points[order[i]];
        if (*least != 0 && point->least >= *least) break;
        if (!point->asked && left-- == 0) return WEIR_OK;
        if ((status = weir__planner_ask(planner, point)) != WEIR_OK) return status;
        if (!point->refused && (*least == 0 || point->bytes < *least)) *least = point->bytes;
    }
    *proven = true;
    return WEIR_OK;
}

/* From the fastest on, until one fits. */
int weir__planner_prove_fastest(struct weir_planner *planner) {
    uint64_t limit = planner->options->memory_limit;
    uint32_t *order, count, left = PROOF_ASKS;
    if (limit == 0) limit = UINT64_MAX;
    if (!can_prove(planner)) return WEIR_OK;
    int status = weir__planner_rank(planner, WEIR__BY_STEP, false, &order, &count);
    for (uint32_t i = 0; status == WEIR_OK && i < count; i++) {
        struct weir__point *point = &planner->points[order[i]];
        if (point->least > limit) continue;
        if (!point->asked && left-- == 0) break;
        status = weir__planner_ask(planner, point);
        if (!point->refused && point->bytes <= limit) break;
    }
    return status;
}

/* ---- the bound ---- */

/* Saved areas are whole from F, or R, to what frees the first part of them. Both are the worker's
 * own, so their order is the line's, whatever the times. */
static uint64_t saved_peak(const struct weir_planner *planner, const struct weir__try *tried,
                           uint32_t worker) {
    const struct weir_table *table = planner->table;
    const struct weir__chunks *chunks = weir__planner_chunks_at(planner, tried->shape);
    uint64_t alive = 0, peak = 0;
    for (uint32_t i = table->lines[worker]; i < table->lines[worker + 1]; i++) {
        const struct weir_action *action = &table->actions[i];
        const struct weir_stage_cost *stage = &planner->costs->list[action->stage];
        if (stage->no_backward) continue;
        uint32_t again = weir_checkpoint_count(tried->modes[action->stage], chunks->micro_batches);
        uint64_t saved = (uint64_t)((double)stage->saved * chunks->least);
        bool saves = action->kind == WEIR_KIND_R ||
                     (action->kind == WEIR_KIND_F && action->micro_batch >= again);
        if (saves) alive += saved;
        if (alive > peak) peak = alive;
        if (action->kind != WEIR_KIND_B && action->kind != WEIR_KIND_I) continue;
        assert(alive >= saved);
        alive -= saved;
    }
    return peak;
}

uint64_t weir__planner_least(const struct weir_planner *planner, const struct weir__try *tried) {
    const struct weir__shape *shape = &planner->shapes[tried->shape];
    assert(planner->table != NULL && planner->table_shape == tried->shape);
    assert(planner->costs->stage_count == shape->stages);
    uint64_t most = 0;
    for (uint32_t w = 0; w < planner->options->workers; w++) {
        uint64_t bytes = saved_peak(planner, tried, w);
        for (uint32_t s = 0; s < shape->stages; s++) {
            const struct weir_stage_cost *stage = &planner->costs->list[s];
            if (shape->workers[s] == w) bytes += weir__planner_lasting(planner, stage);
        }
        if (bytes > most) most = bytes;
    }
    return most;
}

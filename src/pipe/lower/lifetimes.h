/* SPDX-License-Identifier: MIT */
/**
 * What lifetimes.c builds blocks, copies and views with, shared with moves.c, which does the same
 * for portals. Lives as long as weir__prepared_lifetimes runs.
 */
#ifndef WEIR_LIFETIMES_H
#define WEIR_LIFETIMES_H

#include "pipe/lower/prepared.h"

enum { WEIR__AREA_LIVES = 3 }; /* of enum weir_area_life */

/* Areas side by side, and where they may be parted. */
struct stretch {
    size_t bytes;
    size_t *cuts;
    uint32_t cut_count;
};

/* The areas of one stage and size of micro-batch. A backward that is not split has those of the
 * first two lives in one block: `joined`. */
struct layout {
    struct stretch spans[WEIR__AREA_LIVES], joined;
    size_t *offsets; /* [further area] in the span of its life */
};

/* The areas of one stage and micro-batch. */
struct areas {
    const struct layout *layout;
    uint32_t blocks[WEIR__AREA_LIVES];
    size_t offsets[WEIR__AREA_LIVES]; /* of the spans in these */
    bool pointed[WEIR__AREA_LIVES];
};

/* Block numbers by place. `copies` is parallel to `blocks`: the reader's own, or WEIR__NO_BLOCK. */
struct crossing {
    uint32_t *blocks, *copies;
};

struct builder {
    struct weir__row_plan *prepared;
    const struct weir__setup *setup;
    const struct weir_stage_bytes *bytes;
    const bool *checkpointed; /* [stage][micro-batch] */
    const bool *split;        /* [stage][micro-batch]: I and W instead of B */
    uint32_t m;
    struct crossing *outputs;  /* per stage: [micro-batch][output] */
    struct crossing *grads;    /* per stage: [micro-batch][output] */
    struct crossing *entering; /* per stage: copies [micro-batch][entering input] */
    struct layout *layouts;    /* [stage * 2 + size], as bytes */
    struct areas *areas;       /* [stage][micro-batch] */
    struct crossing *values;   /* per route: blocks [micro-batch]; copies [micro-batch][reader] */
    struct crossing *sums;     /* per route: [micro-batch][reader] */
    uint32_t *portal_of;       /* per route and reader: its worker's portal within the tracker */
    uint32_t *grad_portal_of;  /* per route and reader */
    uint32_t *route_first;     /* per route: where its readers begin in the two above */
    uint32_t *whole;           /* per stage: the action that makes its gradients whole … */
    uint32_t *norm;            /* … and the one that takes their norm */
};

struct touching {
    uint32_t action, stage, i, worker, size;
    const struct weir__stage_setup *at;
    struct weir__views *views;
    bool first; /* F: views are pointed once, here */
};

static inline uint32_t weir__lifetimes_worker_of(const struct builder *b, uint32_t stage) {
    assert(stage < b->setup->flow.stage_count);
    return b->prepared->stage_worker[stage];
}

static inline int64_t weir__lifetimes_rows_of(const struct builder *b, uint32_t i) {
    return weir__prepared_views(b->prepared, 0, i)->rows;
}

/** So many places for block numbers, WEIR__NO_BLOCK in each; NULL without memory. */
uint32_t *weir__lifetimes_none(struct weir__pool *pool, size_t count);
/** A copy to the worker, for an action of its. */
void weir__lifetimes_copy(struct builder *b, uint32_t worker,
                          const struct weir__prepared_copy *copy);
/** Numbers the portals of every micro-batch. */
bool weir__lifetimes_trackers(struct builder *b);
/** What the action's portals do around its call. */
void weir__lifetimes_moves(struct builder *b, const struct touching *t,
                           const struct weir__kind_facts *kind);

#endif

/* SPDX-License-Identifier: MIT */
#include "pipe/lower/tie_copies.h"

/* ---- copies between memories ---- */

/* The lines stand in order in the table, and a stage's actions in one of them. */
static void find_writers(struct builder *b) {
    assert(b->whole != NULL && b->norm != NULL);
    const struct weir_table *table = b->prepared->table;
    for (uint32_t a = 0; a < table->action_count; a++) {
        uint32_t writes = weir__kinds[table->actions[a].kind].writes;
        bool whole = b->setup->flow.replicas && (writes & WEIR__NORMS) != 0;
        if ((writes & WEIR__PARAM_GRADS) || whole) b->whole[table->actions[a].stage] = a;
        if (writes & WEIR__NORMS) b->norm[table->actions[a].stage] = a;
    }
}

bool weir__ties_begin(struct builder *b) {
    assert(b->prepared->tie_copies == NULL && b->prepared->lasting != NULL);
    struct weir__pool *pool = &b->prepared->pool;
    uint32_t count = b->setup->tie_count, workers = b->prepared->table->worker_count;
    struct weir__tie_copies *copies = weir__pool_take(pool, count, sizeof *copies);
    b->whole = weir__pool_take(pool, b->setup->flow.stage_count, sizeof(uint32_t));
    b->norm = weir__pool_take(pool, b->setup->flow.stage_count, sizeof(uint32_t));
    if (pool->failed) return false;
    for (uint32_t t = 0; t < count; t++) {
        copies[t].arrived = weir__lifetimes_none(pool, b->setup->ties[t].use_count);
        copies[t].whole = weir__lifetimes_none(pool, workers);
    }
    b->prepared->tie_copies = copies;
    find_writers(b);
    return !pool->failed;
}

/* Whether one stage's worker reaches what is the other's. */
static bool reaches(const struct weir__row_plan *prepared, const struct weir__setup *setup,
                    uint32_t a, uint32_t b) {
    return weir__setup_shares(setup, prepared->stage_worker[a], prepared->stage_worker[b],
                              prepared->table->worker_count);
}

/* The use's gradient, which `made` writes last, into a block that the action reads. */
static void copy_use(struct builder *b, uint32_t action, const struct weir__tie_group *tie,
                     uint32_t use, uint32_t made, uint32_t *block) {
    assert(use < tie->use_count);
    assert(made < b->prepared->table->action_count && made != action);
    struct weir__memory *memory = &b->prepared->memory;
    uint32_t worker = weir__lifetimes_worker_of(b, b->prepared->table->actions[action].stage);
    if (*block == WEIR__NO_BLOCK) {
        *block = weir__memory_block(memory, WEIR__BLOCK_WORKSPACE, worker, tie->bytes);
        const struct weir__prepared_copy copy = {
            .action = action,
            .made = made,
            .from_block = b->prepared->lasting[tie->uses[use].stage].gradients,
            .from_offset = tie->uses[use].offset,
            .to_block = *block,
            .bytes = tie->bytes};
        if (*block == WEIR__NO_BLOCK) return;
        weir__lifetimes_copy(b, worker, &copy);
    }
    weir__memory_use(memory, *block, action);
}

static void copy_uses(struct builder *b, uint32_t action, uint32_t t) {
    const struct weir__tie_group *tie = &b->setup->ties[t];
    uint32_t *arrived = b->prepared->tie_copies[t].arrived;
    assert(tie->use_count > 1);
    for (uint32_t u = 1; u < tie->use_count; u++) {
        uint32_t stage = tie->uses[u].stage;
        if (!reaches(b->prepared, b->setup, stage, tie->uses[0].stage))
            copy_use(b, action, tie, u, b->whole[stage], &arrived[u]);
    }
}

void weir__ties_copy(struct builder *b, uint32_t action) {
    assert(action < b->prepared->table->action_count);
    const struct weir__call *call = &b->prepared->calls[action];
    const struct weir__kind_facts *kind = &weir__kinds[call->action.kind];
    uint32_t stage = call->action.stage, worker = weir__lifetimes_worker_of(b, stage);
    const struct weir__stage_setup *at = &b->setup->stages[stage];
    for (uint32_t i = 0; call->run != NULL && i < at->tied_count; i++) {
        uint32_t t = at->ties[i], owner = b->setup->ties[t].uses[0].stage;
        assert(t < b->setup->tie_count);
        bool apart = !reaches(b->prepared, b->setup, owner, stage);
        if ((kind->reads & WEIR__TIED_GRADS) && owner == stage) copy_uses(b, action, t);
        if ((kind->writes & WEIR__PARAMETERS) && apart)
            copy_use(b, action, &b->setup->ties[t], 0, b->norm[owner],
                     &b->prepared->tie_copies[t].whole[worker]);
    }
}

/* ---- in a prepared plan ---- */

/* Where the stage finds a use's gradient: where it lies, a copy, or nowhere. */
static void point_use(struct weir__row_plan *prepared, const struct weir__setup *setup,
                      uint32_t stage, uint32_t t, uint32_t u, void **where) {
    assert(t < setup->tie_count && u < setup->ties[t].use_count);
    const struct weir__tie_group *tie = &setup->ties[t];
    const struct weir__tie_use *use = &tie->uses[u];
    const struct weir__tie_copies *copies = &prepared->tie_copies[t];
    if (reaches(prepared, setup, use->stage, stage)) {
        weir__prepared_point(prepared, where, prepared->lasting[use->stage].gradients, use->offset);
        return;
    }
    uint32_t copy = tie->uses[0].stage == stage ? copies->arrived[u] : WEIR__NO_BLOCK;
    if (u == 0) copy = copies->whole[prepared->stage_worker[stage]];
    weir__prepared_point(prepared, where, copy, 0);
}

/* What the stage is given of one tie. */
static void take_tied(struct weir__row_plan *prepared, const struct weir__setup *setup,
                      uint32_t stage, uint32_t t, struct weir_tied *tied) {
    assert(t < setup->tie_count);
    const struct weir__tie_group *tie = &setup->ties[t];
    void **gradients = weir__pool_take(&prepared->pool, tie->use_count, sizeof *gradients);
    for (uint32_t u = 0; gradients != NULL && u < tie->use_count; u++)
        point_use(prepared, setup, stage, t, u, &gradients[u]);
    *tied = (struct weir_tied){tie->name, tie->use_count, gradients};
}

void weir__ties_take(struct weir__row_plan *prepared, const struct weir__setup *setup) {
    assert(prepared->lasting != NULL && prepared->bound.tied == NULL);
    struct weir__pool *pool = &prepared->pool;
    uint32_t stages = setup->options.stage_count;
    prepared->bound.tied = weir__pool_take(pool, stages, sizeof *prepared->bound.tied);
    for (uint32_t s = 0; !pool->failed && s < stages; s++) {
        const struct weir__stage_setup *at = &setup->stages[s];
        struct weir_tied *tied = weir__pool_take(pool, at->tied_count, sizeof *tied);
        for (uint32_t i = 0; tied != NULL && i < at->tied_count; i++)
            take_tied(prepared, setup, s, at->ties[i], &tied[i]);
        prepared->bound.tied[s] = tied;
    }
}

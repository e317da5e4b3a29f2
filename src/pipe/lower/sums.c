/* SPDX-License-Identifier: MIT */
/* Which sum of gradients each action adds to, and where sums of groups are added to each other: as
 * soon as both are complete. So of monotone orders log2(groups) sums and one are under way at a
 * time; of others as many as the order needs, for each is a block that lives from its group's first
 * gradient until it is added to another. */
#include "pipe/lower/prepared.h"

/* A stage's groups: leaves of a tree whose node n has the halves 2n and 2n + 1. */
struct grouping {
    struct weir__row_plan *prepared;
    const struct weir_stage *stage;
    const struct weir__lasting *lasting;
    uint32_t count;  /* groups: the j-th is node count + j */
    uint32_t *all;   /* [group]: its gradients … */
    uint32_t *left;  /* … and those that are still to come */
    uint32_t *block; /* [node] */
    bool *whole;     /* [node]: its sum is complete */
    bool begun;      /* some group is */
};

static bool lasts(const struct grouping *g, uint32_t block) {
    return block == g->lasting->gradients || g->lasting->groups != NULL;
}

static void use(const struct grouping *g, uint32_t block, uint32_t action) {
    if (!lasts(g, block)) weir__memory_use(&g->prepared->memory, block, action);
}

/* The first group's sum is what all others are added to. */
static void begin_group(struct grouping *g, uint32_t group, uint32_t worker) {
    uint32_t *block = &g->block[g->count + group];
    assert(*block == WEIR__NO_BLOCK && g->left[group] > 0);
    if (g->lasting->groups != NULL)
        *block = g->lasting->groups[group];
    else if (!g->begun)
        *block = g->lasting->gradients;
    else
        *block = weir__memory_block(&g->prepared->memory, WEIR__BLOCK_GRADIENTS, worker,
                                    g->stage->gradient_bytes);
    g->begun = true;
}

static void add_sum(struct grouping *g, uint32_t action, uint32_t into, uint32_t from) {
    struct weir__row_plan *p = g->prepared;
    const struct weir__group_sum added = {into, from};
    use(g, into, action);
    use(g, from, action);
    if (into != WEIR__NO_BLOCK) /* else nothing has gradients here, or there is no memory */
        (void)weir__pool_add(&p->pool, &p->sums, &p->sum_count, &p->sum_capacity, &added,
                             sizeof added);
}

/* Adds up what is complete now that a group is. A sum of two is the same bits either way round. */
static void climb(struct grouping *g, uint32_t action, uint32_t node) {
    g->whole[node] = true;
    while (node > 1 && g->whole[node ^ 1]) {
        uint32_t lower = node & ~UINT32_C(1), upper = lower + 1;
        bool last = g->block[upper] == g->lasting->gradients;
        uint32_t into = g->block[last ? upper : lower];
        add_sum(g, action, into, g->block[last ? lower : upper]);
        node /= 2;
        g->block[node] = into;
        g->whole[node] = true;
    }
    assert(node > 1 || g->block[node] == g->lasting->gradients ||
           g->prepared->memory.status != WEIR_OK);
}

static void visit(struct grouping *g, uint32_t action, uint32_t worker) {
    struct weir__call *call = &g->prepared->calls[action];
    uint32_t group = call->action.micro_batch / g->prepared->groups.size;
    assert(group < g->count && g->left[group] > 0);
    call->gradients_first = g->left[group] == g->all[group];
    if (call->gradients_first) begin_group(g, group, worker);
    call->gradients = g->block[g->count + group];
    use(g, call->gradients, action);
    if (--g->left[group] == 0) climb(g, action, g->count + group);
}

static bool init(struct grouping *g, struct weir__row_plan *prepared,
                 const struct weir__setup *setup, uint32_t s) {
    struct weir__pool *pool = &prepared->pool;
    const struct weir__groups *groups = &prepared->groups;
    uint32_t count = (groups->count - 1) / groups->size + 1;
    *g = (struct grouping){.prepared = prepared,
                           .stage = &setup->stages[s].stage,
                           .lasting = &prepared->lasting[s],
                           .count = count,
                           .all = weir__pool_take(pool, count, sizeof *g->all),
                           .left = weir__pool_take(pool, count, sizeof *g->left),
                           .block = weir__pool_take(pool, 2 * (size_t)count, sizeof *g->block),
                           .whole = weir__pool_take(pool, 2 * (size_t)count, sizeof *g->whole)};
    for (uint32_t n = 0; !pool->failed && n < 2 * count; n++) g->block[n] = WEIR__NO_BLOCK;
    return !pool->failed;
}

static bool is_gradient(const struct weir_action *action) {
    return weir__writes(action->kind, WEIR__PARAM_GRADS);
}

void weir__prepared_sums(struct weir__row_plan *prepared, const struct weir__setup *setup) {
    const struct weir_table *table = prepared->table;
    struct grouping *stages = weir__pool_take(&prepared->pool, table->stage_count, sizeof *stages);
    assert(prepared->lasting != NULL && prepared->calls != NULL);
    for (uint32_t s = 0; stages != NULL && s < table->stage_count; s++)
        if (!init(&stages[s], prepared, setup, s)) return;
    for (uint32_t a = 0; stages != NULL && a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        if (!is_gradient(action)) continue;
        uint32_t group = action->micro_batch / prepared->groups.size;
        stages[action->stage].all[group]++;
        stages[action->stage].left[group]++;
    }
    for (uint32_t a = 0; stages != NULL && a < table->action_count; a++) {
        struct weir__call *call = &prepared->calls[a];
        uint32_t s = call->action.stage;
        call->gradients = prepared->lasting[s].gradients;
        call->sum_begin = prepared->sum_count;
        if (is_gradient(&call->action)) visit(&stages[s], a, prepared->stage_worker[s]);
        call->sum_end = prepared->sum_count;
    }
}

/* ---- replicas ---- */

static size_t slice_bytes(const struct weir__setup *setup, const struct weir_stage *stage) {
    size_t sum = 0, begin, end;
    for (uint32_t k = 0; k < stage->section_count; k++) {
        weir_section_slice(&stage->sections[k], weir__replicas(&setup->options),
                           weir__replica(&setup->options), &begin, &end);
        sum += (end - begin + WEIR__ALIGNMENT - 1) / WEIR__ALIGNMENT * WEIR__ALIGNMENT;
    }
    return sum;
}

/* The longest slice that either of the two replicas has. */
static size_t longest_slice(const struct weir__setup *setup, const struct weir_stage *stage,
                            uint32_t replica) {
    const uint32_t both[] = {replica, weir__replica(&setup->options)};
    size_t most = 0, begin, end;
    for (uint32_t k = 0; k < stage->section_count; k++) {
        for (uint32_t i = 0; i < 2; i++) {
            weir_section_slice(&stage->sections[k], weir__replicas(&setup->options), both[i],
                               &begin, &end);
            if (end - begin > most) most = end - begin;
        }
    }
    return most;
}

size_t weir__prepared_replica_slot(const struct weir__row_plan *prepared,
                                   const struct weir__setup *setup, uint32_t worker,
                                   uint32_t replica) {
    size_t most = 0;
    assert(replica != weir__replica(&setup->options));
    for (uint32_t s = 0; prepared->arrivals != NULL && s < prepared->table->stage_count; s++) {
        bool learns = prepared->arrivals[s].gradient != WEIR__NO_ACTION;
        if (!learns || prepared->stage_worker[s] != worker) continue;
        size_t bytes = longest_slice(setup, &setup->stages[s].stage, replica);
        if (bytes > most) most = bytes;
    }
    if (most > WEIR__HOP_PIECE_BYTES) return WEIR__HOP_PIECE_BYTES;
    return (most + WEIR__ALIGNMENT - 1) / WEIR__ALIGNMENT * WEIR__ALIGNMENT;
}

static void note_action(struct weir__arrivals *arrivals, const struct weir_action *action,
                        uint32_t number) {
    if (is_gradient(action)) arrivals->gradient = number;
    if (weir__writes(action->kind, WEIR__NORMS)) arrivals->norm = number;
    if (weir__writes(action->kind, WEIR__PARAMETERS)) arrivals->update = number;
}

void weir__prepared_arrivals(struct weir__row_plan *prepared, const struct weir__setup *setup) {
    const struct weir_table *table = prepared->table;
    uint32_t others = weir__replicas(&setup->options) - 1;
    prepared->arrivals =
        weir__pool_take(&prepared->pool, table->stage_count, sizeof *prepared->arrivals);
    for (uint32_t s = 0; prepared->arrivals != NULL && s < table->stage_count; s++) {
        const struct weir_stage *stage = &setup->stages[s].stage;
        struct weir__arrivals *arrivals = &prepared->arrivals[s];
        *arrivals = (struct weir__arrivals){.block = WEIR__NO_BLOCK,
                                            .gradient = WEIR__NO_ACTION,
                                            .norm = WEIR__NO_ACTION,
                                            .update = WEIR__NO_ACTION};
        for (uint32_t w = prepared->stage_worker[s], a = table->lines[w]; a < table->lines[w + 1];
             a++)
            if (table->actions[a].stage == s) note_action(arrivals, &table->actions[a], a);
        size_t bytes;
        arrivals->each = slice_bytes(setup, stage);
        if (arrivals->gradient == WEIR__NO_ACTION) continue;
        assert(arrivals->norm != WEIR__NO_ACTION && arrivals->update != WEIR__NO_ACTION);
        if (!weir__multiply(arrivals->each, others, &bytes)) bytes = SIZE_MAX;
        arrivals->block = weir__memory_block(&prepared->memory, WEIR__BLOCK_GRADIENTS,
                                             prepared->stage_worker[s], bytes);
        weir__memory_use(&prepared->memory, arrivals->block, arrivals->gradient);
        weir__memory_use(&prepared->memory, arrivals->block, arrivals->norm);
    }
}

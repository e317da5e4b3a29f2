/* SPDX-License-Identifier: MIT */
/*
 * How far a stage without backward runs ahead. Its forwards depend on no backward, so only memory
 * holds it back. A replay without a limit lets it fill a slot per micro-batch. With a limit the
 * replay gives it a few slots, and the stage waits until one of them is free again.
 */
#include "schedule/index.h"

/** The edge that action `a` gets, or WEIR__NO_ACTION. */
static uint32_t held_by(const struct weir_table *table, const struct weir__table_index *index,
                        const bool *no_backward, uint32_t ahead, uint32_t a) {
    assert(a < table->action_count);
    const struct weir_action *action = &table->actions[a];
    uint32_t next = action->stage + 1u;
    if (!weir__writes(action->kind, WEIR__OUTPUTS) || next >= table->stage_count ||
        !weir__no_backward(no_backward, action->stage) || action->micro_batch < ahead ||
        index->worker[next] == index->worker[action->stage])
        return WEIR__NO_ACTION;
    return weir__table_index_writer(index, next, action->micro_batch - ahead, WEIR__OUTPUTS);
}

static void fill(const struct weir_table *table, const struct weir__table_index *index,
                 const struct weir__deps *deps, const bool *no_backward, uint32_t ahead,
                 struct weir__deps *held) {
    uint32_t count = 0;
    for (uint32_t a = 0; a < table->action_count; a++) {
        held->begin[a] = count;
        for (uint32_t e = deps->begin[a]; e < deps->begin[a + 1]; e++)
            held->edges[count++] = deps->edges[e];
        uint32_t from = held_by(table, index, no_backward, ahead, a);
        if (from != WEIR__NO_ACTION)
            held->edges[count++] = (struct weir__edge){from, WEIR__CAUSE_MEMORY};
    }
    held->begin[table->action_count] = count;
    assert(count <= held->edge_count);
}

int weir__deps_hold(const struct weir_table *table, const struct weir__deps *deps,
                    const bool *no_backward, uint32_t ahead, struct weir__deps *held) {
    assert(deps->action_count == table->action_count && ahead > 0);
    size_t edges;
    struct weir__table_index index;
    if (!weir__add(deps->edge_count, table->action_count, &edges) || edges > UINT32_MAX)
        return WEIR_ERR_OVERFLOW;
    int status = weir__table_index_init(&index, table, deps->allocator);
    if (status != WEIR_OK) return status;
    weir__table_index_fill(&index, table);
    *held = (struct weir__deps){.allocator = deps->allocator,
                                .action_count = table->action_count,
                                .edge_count = (uint32_t)edges};
    held->begin =
        weir__acquire(held->allocator, (size_t)held->action_count + 1, sizeof *held->begin);
    held->edges = weir__acquire(held->allocator, held->edge_count, sizeof *held->edges);
    if (held->begin != NULL && held->edges != NULL) {
        fill(table, &index, deps, no_backward, ahead, held);
    } else {
        weir__deps_clean_up(held);
        status = WEIR_ERR_OUT_OF_MEMORY;
    }
    weir__table_index_clean_up(&index);
    return status;
}

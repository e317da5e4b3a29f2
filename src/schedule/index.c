/* SPDX-License-Identifier: MIT */
/*
 * A dense array: a complete table fills most of it, and the callers make sure that a table is not
 * far from complete before they ask for one.
 */
#include "schedule/index.h"

int weir__table_index_init(struct weir__table_index *index, const struct weir_table *table,
                           const struct weir_allocator *allocator) {
    *index = (struct weir__table_index){.allocator = allocator,
                                        .stage_count = table->stage_count,
                                        .micro_batch_count = table->micro_batch_count};
    size_t cells = 0;
    if (!weir__multiply(table->stage_count, table->micro_batch_count, &cells) ||
        !weir__multiply(cells, WEIR_KIND_COUNT, &cells))
        return WEIR_ERR_OVERFLOW;
    index->cell_count = cells;
    index->at = weir__acquire(allocator, cells, sizeof *index->at);
    index->worker = weir__acquire(allocator, table->stage_count, sizeof *index->worker);
    if (index->at == NULL || index->worker == NULL) {
        weir__table_index_clean_up(index);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < cells; i++) index->at[i] = WEIR__NO_ACTION;
    for (uint32_t s = 0; s < table->stage_count; s++) index->worker[s] = UINT32_MAX;
    return WEIR_OK;
}

void weir__table_index_clean_up(struct weir__table_index *index) {
    weir__release(index->allocator, index->at, index->cell_count, sizeof *index->at);
    weir__release(index->allocator, index->worker, index->stage_count, sizeof *index->worker);
    *index = (struct weir__table_index){0};
}

static size_t cell_of(const struct weir__table_index *index, uint32_t stage, uint32_t micro_batch) {
    assert(stage < index->stage_count && micro_batch < index->micro_batch_count);
    return ((size_t)stage * index->micro_batch_count + micro_batch) * WEIR_KIND_COUNT;
}

uint32_t weir__table_index_put(struct weir__table_index *index, const struct weir_action *action,
                               uint32_t at) {
    assert(at != WEIR__NO_ACTION);
    assert(action->kind < WEIR_KIND_COUNT);
    size_t cell = cell_of(index, action->stage, action->micro_batch) + action->kind;
    uint32_t older = index->at[cell];
    if (older == WEIR__NO_ACTION) index->at[cell] = at;
    return older;
}

void weir__table_index_fill(struct weir__table_index *index, const struct weir_table *table) {
    assert(index->stage_count == table->stage_count);
    assert(index->micro_batch_count == table->micro_batch_count);
    for (uint32_t a = 0; a < table->action_count; a++)
        weir__table_index_put(index, &table->actions[a], a);
    weir__table_workers(table, index->worker);
}

uint32_t weir__table_index_get(const struct weir__table_index *index, uint32_t stage,
                               uint32_t micro_batch, enum weir_kind kind) {
    assert(kind < WEIR_KIND_COUNT);
    return index->at[cell_of(index, stage, micro_batch) + kind];
}

uint32_t weir__table_index_writer(const struct weir__table_index *index, uint32_t stage,
                                  uint32_t micro_batch, uint32_t effect) {
    assert(effect != 0 && (effect & (effect - 1)) == 0);
    const uint32_t *at = &index->at[cell_of(index, stage, micro_batch)];
    for (uint32_t kind = WEIR_KIND_COUNT; kind-- > 0;) {
        if (at[kind] != WEIR__NO_ACTION && (weir__kinds[kind].writes & effect) != 0)
            return at[kind];
    }
    return WEIR__NO_ACTION;
}

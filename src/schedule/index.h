/* SPDX-License-Identifier: MIT */
/**
 * Where each action of a table stands, by stage, micro-batch and kind; and who writes an effect.
 * Shared by the derivation of dependencies and the validator.
 */
#ifndef WEIR_SCHEDULE_INDEX_H
#define WEIR_SCHEDULE_INDEX_H

#include "schedule/action.h"

#define WEIR__NO_ACTION UINT32_MAX

struct weir__table_index {
    const struct weir_allocator *allocator;
    uint32_t stage_count, micro_batch_count;
    size_t cell_count;
    uint32_t *at;     /**< [stage][micro-batch][kind]: index in table->actions, or NO_ACTION */
    uint32_t *worker; /**< [stage]: the line that holds it, or UINT32_MAX */
};

/** An empty index for the table's counts. WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_OVERFLOW. */
int weir__table_index_init(struct weir__table_index *index, const struct weir_table *table,
                           const struct weir_allocator *allocator);
/** Accepts what init failed on. */
void weir__table_index_clean_up(struct weir__table_index *index);
/** Enters an action whose numbers are in range, unless there is one already: gives the older one's
 * index, or NO_ACTION if there was none. */
uint32_t weir__table_index_put(struct weir__table_index *index, const struct weir_action *action,
                               uint32_t at);
/** Enters all of a sound table. */
void weir__table_index_fill(struct weir__table_index *index, const struct weir_table *table);
uint32_t weir__table_index_get(const struct weir__table_index *index, uint32_t stage,
                               uint32_t micro_batch, enum weir_kind kind);
/** The action that writes `effect` (one bit, per micro-batch) of a stage and micro-batch: of the
 * kinds there, the last that says so. NO_ACTION if none does. */
uint32_t weir__table_index_writer(const struct weir__table_index *index, uint32_t stage,
                                  uint32_t micro_batch, uint32_t effect);

#endif

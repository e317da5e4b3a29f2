/* SPDX-License-Identifier: MIT */
/**
 * Walks a table in an order that its lines and dependencies allow: one action at a time, each line
 * from the left, no action before its predecessors. Linear in actions and edges. The validator asks
 * whether the walk reaches the end; the replay puts times on it.
 */
#ifndef WEIR_SCHEDULE_WALK_H
#define WEIR_SCHEDULE_WALK_H

#include "schedule/action.h"

struct weir__walk {
    const struct weir_table *table;
    const struct weir__deps *deps;
    const struct weir_allocator *allocator;
    uint32_t done_count;
    uint32_t ready_count;
    uint32_t *cursor;      /**< [worker]: its next action */
    uint32_t *edge;        /**< [worker]: the first edge of that action not known to be done */
    uint32_t *waits_for;   /**< [worker]: the action it is parked on, where it is parked */
    uint32_t *next_waiter; /**< [worker]: the next worker parked on the same action */
    uint32_t *ready;       /**< [worker]: a stack of workers to look at */
    uint32_t *waiters;     /**< [action]: the first worker parked on it, or UINT32_MAX */
    bool *done;            /**< [action] */
};

int weir__walk_init(struct weir__walk *walk, const struct weir_table *table,
                    const struct weir__deps *deps, const struct weir_allocator *allocator);
/** The next action; false at the end, or where every line is parked: then done_count is less than
 * the table's, and worker w, if its line is not finished, waits at cursor[w] for waits_for[w]. */
bool weir__walk_next(struct weir__walk *walk, uint32_t *action);
void weir__walk_clean_up(struct weir__walk *walk);

#endif

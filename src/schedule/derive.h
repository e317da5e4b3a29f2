/* SPDX-License-Identifier: MIT */
/**
 * The derivation behind weir__deps_new, also for tables that are not proven yet: edges that a
 * line's order contradicts are kept, and a walk gets stuck at them.
 */
#ifndef WEIR_SCHEDULE_DERIVE_H
#define WEIR_SCHEDULE_DERIVE_H

#include "schedule/index.h"

/** `index` holds all actions of the table, each stage in one line. Nobody waits for
 * what no action writes. */
int weir__deps_derive(const struct weir_table *table, const struct weir__table_index *index,
                      const struct weir__flow *flow, const struct weir_allocator *allocator,
                      struct weir__deps *deps);

#endif

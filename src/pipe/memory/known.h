/* SPDX-License-Identifier: MIT */
/**
 * What a worker knows of the others: from a table's dependencies alone, which of their actions have
 * ended when one of its own begins (vector clocks; Fidge, Mattern 1988). What is known needs no
 * wait.
 */
#ifndef WEIR_KNOWN_H
#define WEIR_KNOWN_H

#include "base/pool.h"
#include "schedule/action.h"

/** What begins when, and their order: by that, then by number. */
struct weir__by_start {
    double start;
    uint32_t number;
};
void weir__sort_by_start(struct weir__by_start *list, size_t count);

struct weir__known {
    const struct weir_table *table;
    uint32_t *clock; /**< [action * workers + worker]: so many of the worker's have ended */
};

/** Fills it; its memory is the pool's. `start`: a replay's, by which dependencies go forward.
 * WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_OVERFLOW. */
int weir__known_init(struct weir__known *known, struct weir__pool *pool,
                     const struct weir_table *table, const struct weir__deps *deps,
                     const double *start);
/** The worker's first action of a micro-batch that begins when `action`, another worker's, is known
 * to have ended; UINT32_MAX: none does. */
uint32_t weir__known_from(const struct weir__known *known, uint32_t worker, uint32_t action);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * A set of texts, each with a number, to find one that stands twice in constant time, whoever chose
 * the texts: where they fall in the table depends on a seed that is drawn anew for every set. What
 * the set answers does not. One thread at a time.
 */
#ifndef WEIR_NAME_SET_H
#define WEIR_NAME_SET_H

#include "base/pool.h"

#define WEIR__NO_NAME UINT32_MAX

struct weir__name_set {
    struct weir__pool *pool;
    struct weir__name_set_entry *entries; /**< the pool's */
    uint32_t capacity;                    /**< 0 or a power of two, at least twice the count */
    uint32_t count;
    uint64_t seed;
};

/** An empty set in the pool's memory, which must stay where it is; nothing to clean up. */
void weir__name_set_init(struct weir__name_set *names, struct weir__pool *pool);
/** The number of an equal text; WEIR__NO_NAME if there is none. */
uint32_t weir__name_set_find(const struct weir__name_set *names, const char *text);
/** Adds a text that is not there yet and lives as long as the set. False: out of memory, and
 * nothing has changed. */
bool weir__name_set_add(struct weir__name_set *names, const char *text, uint32_t number);

#endif

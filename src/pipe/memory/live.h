/* SPDX-License-Identifier: MIT */
/**
 * Bytes in use over time, from the moments at which they come and go: for the plan's blocks at the
 * times of a replay, and for reports at measured times. What ends at an instant is gone before what
 * starts then, so an instant has one sum, and the largest of all instants is the peak.
 */
#ifndef WEIR_LIVE_H
#define WEIR_LIVE_H

#include "base/base.h"

enum weir__block_class {
    WEIR__BLOCK_PARAMETERS,
    WEIR__BLOCK_GRADIENTS,
    WEIR__BLOCK_OPTIMIZER,
    WEIR__BLOCK_ACTIVATIONS,
    WEIR__BLOCK_BORDERS,
    WEIR__BLOCK_PORTALS,
    WEIR__BLOCK_WORKSPACE,
    WEIR__BLOCK_CLASS_COUNT
};

struct weir__moment {
    double time;
    int64_t bytes;    /**< + where they come, - where they go */
    uint8_t class_of; /**< enum weir__block_class */
};

/** From `time` on, until the next point. */
struct weir__live_point {
    double time;
    uint64_t sum;
    uint64_t live[WEIR__BLOCK_CLASS_COUNT];
};

void weir__live_sort(struct weir__moment *moments, uint32_t count);
/** Advances *point, zeroed before the first call, and *next, 0 before it, by an instant of the
 * sorted moments. False at their end. */
bool weir__live_next(const struct weir__moment *moments, uint32_t count, uint32_t *next,
                     struct weir__live_point *point);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * How many threads a worker of a rank has where nobody says it: one rule, for the engine, for
 * networks and for commands, so that all ranks plan the same memory. Statuses as in weir.h.
 */
#ifndef WEIR_WORLD_CORES_H
#define WEIR_WORLD_CORES_H

#include "base/base.h"
#include "weir_world.h"

/** The fewest cores that a rank has, at least 1: of those that it may use its even share, with the
 * ranks of its host that may use the same ones. So it is its own where a launcher has bound it, and
 * a part of the host's where it has not. Collective; blocks. The world's failures, another rank's
 * as WEIR_ERR_PEER, and WEIR_ERR_OUT_OF_MEMORY, each with a fault. */
int weir__world_cores(const struct weir_world *world, const struct weir_allocator *allocator,
                      struct weir_faults *faults, uint32_t *cores);
/** Of so many cores each, where `workers` are dealt to `ranks`: what the rank with the most workers
 * has for each, at least 1. A GPU's worker counts as others, though it has one thread. */
uint32_t weir__world_threads(uint32_t cores, uint32_t ranks, uint32_t workers);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * The memory plan: blocks with lifetimes, and where each lies in its worker's arena.
 *
 * A block lives from the action that first writes it to the last action that uses it, in the times
 * of a replay of the table. Blocks whose lifetimes do not overlap may share bytes. Actions of
 * different workers are not really ordered by the replay's times, so wherever a block follows
 * another on the same bytes, the plan names every ordering that must hold (weir__memory_handovers):
 * the executor waits for those that the derived dependencies do not already imply. All such
 * orderings go forward in the replay's time, so they can never form a cycle. Stages take other
 * times than a replay's, and then such a wait may cost more than the bytes are worth: so a block
 * that other workers read is held, where the arena is not far larger by it, until its own worker
 * knows by dependencies that they have.
 */
#ifndef WEIR_MEMORY_H
#define WEIR_MEMORY_H

#include "base/pool.h"
#include "pipe/memory/live.h"
#include "schedule/action.h"

#define WEIR__NO_BLOCK UINT32_MAX
#define WEIR__ALIGNMENT 64u

/** An action that touches a block; a list per block. */
struct weir__block_use {
    uint32_t action;
    uint32_t next; /**< index of the next use, or WEIR__NO_BLOCK */
};

struct weir__block {
    size_t bytes;      /**< a multiple of WEIR__ALIGNMENT */
    size_t offset;     /**< in its worker's arena; set by weir__memory_pack */
    double start, end; /**< replay times; a lasting block has -1 … HUGE_VAL */
    double late;  /**< `end`; of what other workers read: when they are known to have read it */
    double ahead; /**< held from here on, before its first use, for what arrives while other
                       work runs; HUGE_VAL: no earlier than its first use */
    uint32_t worker;
    uint32_t first;     /**< the action that writes it first; WEIR__NO_BLOCK: lasting */
    uint32_t uses;      /**< head of its uses */
    uint8_t class_of;   /**< enum weir__block_class */
    const size_t *cuts; /**< where it may be parted */
    uint32_t cut_count;
    uint32_t rest; /**< once it is parted: the block of what follows; else WEIR__NO_BLOCK */
};

/** All blocks of one prepared row count. */
struct weir__memory {
    struct weir__pool *pool;
    uint32_t block_count, block_capacity;
    struct weir__block *blocks;
    uint32_t use_count, use_capacity;
    struct weir__block_use *uses;
    uint32_t *by_worker;    /**< blocks by worker, in the order in which they were made … */
    uint32_t *worker_begin; /**< … and where each worker's begin, [worker_count + 1]; by pack */
    size_t all_bytes; /**< of all blocks; within INT64_MAX, so that no sum of some can overflow */
    int status;       /**< the first failure; sticky, and returned by weir__memory_pack */
};

void weir__memory_init(struct weir__memory *memory, struct weir__pool *pool);
/** Adds a block and returns its index, or WEIR__NO_BLOCK for zero bytes (and after a failure:
 * WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_OVERFLOW). */
uint32_t weir__memory_block(struct weir__memory *memory, enum weir__block_class class_of,
                            uint32_t worker, size_t bytes);
/** The action touches the block. The earliest by replay time becomes `first`. WEIR__NO_BLOCK is
 * ignored. */
void weir__memory_use(struct weir__memory *memory, uint32_t block, uint32_t action);

/** The block may be parted at these offsets, ascending multiples of WEIR__ALIGNMENT within it; they
 * are not copied. WEIR__NO_BLOCK is ignored. */
void weir__memory_may_part(struct weir__memory *memory, uint32_t block, const size_t *cuts,
                           uint32_t count);
/** Where in its worker's arena that byte of the block, or of what it has been parted into, lies. */
size_t weir__memory_at(const struct weir__memory *memory, uint32_t block, size_t offset);

/** Finds lifetimes from the replay's times and offsets that keep each worker's arena small; blocks
 * that may be parted are where that helps. Fills
 * arena_bytes[worker_count], on entry of each what the plan should fit into (tried harder for, not
 * promised) or 0, and least_bytes[worker_count]: the largest sum of bytes that live at once, below
 * which no arena can be. */
int weir__memory_pack(struct weir__memory *memory, const struct weir_table *table,
                      const struct weir__deps *deps, const double *start, const double *end,
                      size_t *arena_bytes, size_t *least_bytes);
/** The same without packing: lifetimes and what is the least. */
int weir__memory_least(struct weir__memory *memory, const struct weir_table *table,
                       const double *start, const double *end, size_t *least_bytes);
/** The moments of a worker's blocks, not sorted, into as many as twice all blocks; returns how
 * many. What lasts begins at 0 and does not end. */
uint32_t weir__memory_moments(const struct weir__memory *memory, uint32_t worker,
                              struct weir__moment *moments);
/** What each arena holds at the moment of its peak. totals[worker] is the arena's size, which may
 * be larger than this plan's own. */
int weir__memory_peaks(const struct weir__memory *memory, uint32_t worker_count,
                       const size_t *totals, struct weir_device_plan *devices);

/** `before` (a use of the block that leaves) must have ended when `after` (the first write of the
 * one that comes) starts. */
struct weir__handover {
    uint32_t before, after;
    uint32_t leaves, comes;
};
/** Every ordering that sharing bytes needs, in no order. In the pool. */
int weir__memory_handovers(const struct weir__memory *memory, uint32_t worker_count,
                           struct weir__handover **handovers, uint32_t *count);
/** The action that touches the block first by replay time: its writer. */
uint32_t weir__memory_first(const struct weir__memory *memory, uint32_t block, const double *start,
                            const double *end);

#endif

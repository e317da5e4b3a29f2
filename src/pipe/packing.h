/* SPDX-License-Identifier: MIT */
/**
 * Offline dynamic storage allocation: offsets for blocks whose lifetimes are known, so that blocks
 * that live at the same time never share bytes and the whole is small. That is NP-hard, and the
 * largest sum of live bytes (the bound) cannot always be reached: so a portfolio, the cheap and
 * usually good first, which ends once the bound is reached, or nearly.
 *
 * 1. As an allocator would: by time, and backwards in time, each at the lowest free offset.
 * 2. By decreasing size, by start and by decreasing lifetime, each at the lowest offset that is
 *    free during its whole life.
 * 3. Along the skyline: the lowest valley takes, of the blocks that fit in, the one that lives
 *    longest (Burke, Kendall, Whitwell 2004, for strips; Sekiyama et al., arXiv 1804.10001, for
 *    networks).
 * 4. Where that leaves more than a fiftieth of the bound: a local search over what the skyline
 *    prefers. It ranks types (size and group), not blocks, so that it finds a pipeline's rhythm
 *    whatever the number of micro-batches.
 *
 * The result depends on the items alone. Nothing is worse than n log n but steps whose work has a
 * bound of its own: (2) is left out for many items, and a valley looks at a few hundred blocks.
 */
#ifndef WEIR_PACKING_H
#define WEIR_PACKING_H

#include "base/pool.h"

struct weir__pack_item {
    size_t bytes;      /**< not 0; all together within INT64_MAX */
    double start, end; /**< lives in [start, end), 0 <= start < end */
    uint32_t group;    /**< items alike in bytes and group are one type */
    size_t offset;     /**< out */
};

/** Fills offsets. *bytes: on entry what the result should fit into (tried harder for, not
 * promised), or 0; on return the end of the highest item. *bound: the largest sum of bytes that
 * live at once. Scratch memory comes from the allocator. WEIR_ERR_OUT_OF_MEMORY. */
int weir__packing_run(struct weir__pack_item *items, uint32_t count,
                      const struct weir_allocator *allocator, size_t *bytes, size_t *bound);

/* ---- inside ---------------------------------------------------------------------------------- */

/** Items with times as ranks. Trial results are in `offsets`; the best in the items. */
struct weir__packing {
    struct weir__pool pool;
    struct weir__pack_item *items;
    uint32_t count, moment_count, type_count;
    uint32_t *from, *to;         /**< [item] ranks among the moments */
    uint32_t *by_start, *by_end; /**< items; the larger first where times are equal */
    uint32_t *by_size;           /**< items, the largest first */
    uint32_t *type;              /**< [item] the largest are type 0 */
    size_t *offsets;             /**< [item] */
    size_t bound, target, best;
};

/** Takes over the trial offsets if `bytes` is the smallest so far. */
void weir__packing_keep(struct weir__packing *packing, size_t bytes);
/** (3) and (4). */
int weir__packing_skyline(struct weir__packing *packing);

#endif

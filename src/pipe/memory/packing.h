/* SPDX-License-Identifier: MIT */
/**
 * Offline dynamic storage allocation: offsets for blocks whose lifetimes are known, so that blocks
 * that live at the same time never share bytes and the whole is small. That is NP-hard, and the
 * largest sum of live bytes (the bound) cannot always be reached: so a portfolio, the cheap and
 * usually good first, which ends once the bound is reached, or nearly: within 1 %.
 *
 * 1. As an allocator would: by time, and backwards in time, each at the lowest free offset.
 * 2. By decreasing size, by start and by decreasing lifetime, each at the lowest offset that is
 *    free during its whole life.
 * 3. Along the skyline: the lowest valley takes, of the blocks that fit in, the one that lives
 *    longest (Burke, Kendall, Whitwell 2004, for strips; Sekiyama et al., arXiv 1804.10001, for
 *    networks).
 * 4. If asked for, and where that leaves more than 3 %: a local search over what the skyline
 *    prefers. It ranks types (size and group), not blocks, so that it finds a pipeline's rhythm
 *    whatever the number of micro-batches.
 * 5. Where it still does: the best orders of (2) are repaired. Blocks that lie too high are placed
 *    earlier, again and again, as long as no more is too high than was before.
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

struct weir__pack_options {
    const struct weir_allocator *allocator; /**< of scratch memory */
    size_t beside; /**< bytes that lie beside the items: parts of the bound are parts of both */
    size_t fit;    /**< what the items should fit into (tried harder for, not promised), or 0 */
    bool search;   /**< with (4) and (5) */
};

/** Whether more than 3 % of the bound are lost: what is worth a search. */
bool weir__packing_is_far(const struct weir__pack_options *options, size_t bytes, size_t bound);
/** Fills offsets. *bytes: the end of the highest item. *bound: the largest sum of bytes that live
 * at once. WEIR_ERR_OUT_OF_MEMORY. */
int weir__packing_run(struct weir__pack_item *items, uint32_t count,
                      const struct weir__pack_options *options, size_t *bytes, size_t *bound);

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
    size_t *sizes;               /**< [item] rounded up to its class's largest */
    uint32_t *class_of;          /**< [item] */
    struct weir__lists *lists;   /**< once (2) has been tried */
    const struct weir__pack_options *options;
    size_t bound, best;
};

/** A stable sort; `other` is as large as `list`. */
struct weir__keyed {
    uint64_t key;
    uint32_t value;
};
void weir__packing_sort(struct weir__keyed *list, struct weir__keyed *other, uint32_t count);

/** Takes over the trial offsets if `bytes` is the smallest so far. */
void weir__packing_keep(struct weir__packing *packing, size_t bytes);
/** The end below which a packing is not far from the bound, and whether one is nearer than that. */
size_t weir__packing_goal(const struct weir__packing *packing);
bool weir__packing_is_good(const struct weir__packing *packing);

enum { WEIR__PACK_ROUNDINGS = 8 };
/** Fills `sizes` and `class_of`: sizes that are near each other, more so with every rounding,
 * become one, so that blocks of one class fit into each other's places and none leaves a gap that
 * nothing fits into. */
void weir__packing_round(struct weir__packing *packing, uint32_t rounding);
/** (2), for as many items as there is time for, and (5) after it. */
bool weir__packing_lists_can(const struct weir__packing *packing);
int weir__packing_lists(struct weir__packing *packing);
int weir__packing_repair(struct weir__packing *packing);
/** (3) and (4). */
int weir__packing_skyline(struct weir__packing *packing);

#endif

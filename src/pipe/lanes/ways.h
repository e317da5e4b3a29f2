/* SPDX-License-Identifier: MIT */
/**
 * Which way each crossing of a lane takes: a copy engine or a kernel, alone or together with
 * others.
 *
 * The way is chosen when a row count is prepared, from sizes and from whether the replay has other
 * work beside it, by a model that counts what a step loses:
 *
 *   engine  start + bytes / link                                for each crossing by itself
 *   kernel  start + bytes / min(link, blocks * what one moves)  for each launch
 *
 * Beside other work a kernel costs more: it begins when blocks of that work make room, and while
 * it runs it keeps blocks / processors of the device from it; so there it gets few blocks. And room
 * may be long in coming: cuBLASLt's products for the newer GPUs are persistent, one wave of blocks
 * that hold every processor to the end, which no stream's priority moves. So what runs beside other
 * work takes the engine, always, until kernels beside such products are measured. Where the device
 * is idle, by the figures below one crossing takes the engine, and several small ones from one
 * memory for one action a launch together. WEIR_COPY_BY_... of the options overrule that.
 *
 * Every crossing is one contiguous range of bytes: views have no gaps between rows, and the plan
 * gives the producer and each reader blocks for the same tensor, of one dtype and one order of
 * dimensions. So there is nothing to stride over, to transpose or to cast on the way. The device's
 * calls for those (weir__cuda_copy_rows, weir__cuda_nchw_to_nhwc, weir__cuda_cast and their like in
 * device/cuda_kernels.h) are for what stages do within their device's memory: net/cuda joins and
 * parts channels, changes layouts where images enter or leave, and casts parameters and borders.
 *
 * The figures are an H200's, by Weir's own bench (gpu-copy, gpu-beside), but for those of peers. A
 * plan is made without opening a device, so they hold for every GPU; a wrong one costs time, never
 * results. Starts are the alphas of its fits, of copies one behind the other, for the host's link
 * the mean of both directions; links its rates at 256 MiB. Peers are by NVIDIA's data sheet, less
 * what protocols take, with the host's starts.
 */
#ifndef WEIR_WAYS_H
#define WEIR_WAYS_H

#include "pipe/lower/prepared.h"

/** What lies between two memories. */
enum weir__link_kind {
    WEIR__LINK_OWN,  /**< one GPU's memory */
    WEIR__LINK_PEER, /**< another GPU's */
    WEIR__LINK_HOST, /**< pinned memory of the host's */
    WEIR__LINK_HOP   /**< another GPU's, that only the host reaches as well: two crossings of the
                          host's link. That those of pieces overlap is left out: what is so large
                          takes the engine anyhow */
};

struct weir__link_speed {
    double bytes_per_ns;       /**< in one direction */
    double block_bytes_per_ns; /**< that one block of a kernel moves */
    double engine_start_ns, kernel_start_ns;
    uint32_t blocks_alone;  /**< at most, where the device is idle: more fill the link no better */
    uint32_t blocks_beside; /**< at most, beside other work: more would slow it down by percents */
};

enum {
    WEIR__WAY_PROCESSORS = 132,
    WEIR__WAY_BLOCK_BYTES = 16 * 1024,  /**< a block is worth launching for so many */
    WEIR__WAY_TILE_BYTES = 16 * 1024,   /**< of a launch for several copies: a block for each */
    WEIR__WAY_BATCHED_MAX = 256 * 1024, /**< larger ones go alone */
    WEIR__UNIT_COPIES = 64              /**< what one launch takes */
};
/** What a launch for several copies takes to begin, beyond that for one: it has more arguments. */
#define WEIR__WAY_BATCH_START_NS 500.0
/** Until blocks of other work make room: what a wave of a matrix product's takes, or a part of it.
 */
#define WEIR__WAY_ROOM_NS 2000.0

const struct weir__link_speed *weir__link_speed(enum weir__link_kind kind);
/** Blocks for a kernel that copies so much by itself: enough to fill the link, or as many as
 * other work beside it (`busy`) hardly feels. */
uint32_t weir__way_blocks(enum weir__link_kind kind, uint64_t bytes, bool busy);
/** Predicted cost of one crossing, or of one launch with `blocks` for all of `bytes`; `busy`: other
 * work runs beside it. Nanoseconds. */
double weir__way_engine_ns(enum weir__link_kind kind, uint64_t bytes);
double weir__way_kernel_ns(enum weir__link_kind kind, uint64_t bytes, uint32_t blocks, bool busy);

/** Sets unit, next, by_kernel and blocks_max of every copy of a lane. After look-ahead has set when
 * they start; before waits are made. */
void weir__ways_choose(struct weir__row_plan *prepared, const struct weir__setup *setup);

/** What the worker's actions need by lanes. */
struct weir_plan_copies weir__ways_count(const struct weir__row_plan *prepared, uint32_t worker);

#endif

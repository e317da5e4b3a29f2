/* SPDX-License-Identifier: MIT */
/**
 * What writing and reading a net's files have in common, and what only the library's own programs
 * ask of a copy.
 */
#ifndef WEIR_NET_FILES_H
#define WEIR_NET_FILES_H

#include "io/file.h"
#include "weir_models.h"

/** Metadata of a training checkpoint: "step", "mini_batch", "seed"; and "skipped", of runs that
 * skipped any. */
enum { WEIR__PROGRESS_NUMBERS = 3 };
extern const char *const weir__progress_keys[WEIR__PROGRESS_NUMBERS];
extern const char weir__skipped_key[];
/** And of weights, too: how many heads each block of a GPT has, and of how many layers the blocks
 * are whose sums it mixes, if it does. */
extern const char weir__heads_key[], weir__residual_key[];

/** Removes what this rank wrote by weir_net_copy_save, of which nothing will come; before the next
 * take. */
void weir__net_copy_drop(const struct weir_net_copy *copy, const char *path);
/** The bytes of its numbers on this rank. */
uint64_t weir__net_copy_held(const struct weir_net_copy *copy);
/** Makes one file of a checkpoint, file or folder: the bytes that one process would have saved;
 * with `weights` parameters alone, as weir_net_save without progress. Takes the memory of one
 * tensor at a time. Statuses as io/archive.h. */
int weir__net_export(const struct weir__io *io, const char *from, const char *to, bool weights);

#endif

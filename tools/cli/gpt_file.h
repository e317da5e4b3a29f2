/* SPDX-License-Identifier: MIT */
/** The sizes of a GPT, from the weights themselves: what was trained need not be said again. */
#ifndef WEIR_TOOLS_GPT_FILE_H
#define WEIR_TOOLS_GPT_FILE_H

#include "cli/model_options.h"

/** The metadata's key of how many heads the attention has, which no shape tells. */
#define GPT_FILE_HEADS "heads"
/** And of how many layers the blocks are whose sums it mixes; not there if it mixes none. */
#define GPT_FILE_RESIDUAL "residual_block"

/** Where --model is gpt, fills in what no option says: --layers, --width, --context, --vocab,
 * --tied from the shapes of `path`'s tensors (Weir's, or GPT-2's export), --heads from its metadata
 * or, in GPT-2's sizes, as they have it. Every fault (no such file, other tensors, heads that
 * nobody tells, or other ones) is a line in `faults`. WEIR_ERR_OUT_OF_MEMORY, or a status for
 * faults. */
int gpt_file_fill(const char *path, const struct args *args, struct model_options *options,
                  struct weir_faults *faults);
/** Where --model is gpt and `path` tells its heads, others are a fault, given or not. A file that
 * cannot be read is none here. WEIR_ERR_OUT_OF_MEMORY, or a status for the fault. */
int gpt_file_check_heads(const char *path, const struct model_options *options,
                         struct weir_faults *faults);

#endif

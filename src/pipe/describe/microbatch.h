/* SPDX-License-Identifier: MIT */
/**
 * Scatter and gather: a mini-batch of rows split into micro-batches as torch.chunk does. Both are
 * views: a micro-batch's tensor is the mini-batch's memory from its first row on.
 */
#ifndef WEIR_MICROBATCH_H
#define WEIR_MICROBATCH_H

#include "base/base.h"

/** How many micro-batches `rows` (>= 1) in `chunks` (>= 1) make: ceil(rows / ceil(rows / chunks)),
 * which may be fewer than asked. */
uint32_t weir__chunk_count(int64_t rows, uint32_t chunks);
/** First row of micro-batch `index`; `rows` for index = count. All but the last are equally long.
 */
int64_t weir__chunk_first(int64_t rows, uint32_t chunks, uint32_t index);
/** Each micro-batch's rows as a part of the first one's, into parts[count]: what its tasks take of
 * the time that those of a whole one take. */
void weir__chunk_parts(int64_t rows, uint32_t chunks, double *parts);

#endif

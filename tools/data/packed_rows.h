/* SPDX-License-Identifier: MIT */
/**
 * Which documents share a row. They are taken in their order; each goes into the first of the open
 * rows that has room for it whole, and if none has, into a new row. A row that is full is closed; of
 * PACKED_ROWS_OPEN open ones the oldest is closed where one more is opened. So documents of a row
 * stand near each other in the data, their order within it is the data's, and a row depends on
 * nothing behind it.
 */
#ifndef WEIR_IO_PACKED_ROWS_H
#define WEIR_IO_PACKED_ROWS_H

#include "base/base.h"

enum { PACKED_ROWS_OPEN = 64 };

/** Gives each of `count` documents, which take places[] >= 1, its row: row_of[]. A row has
 * `context` places, and no document more than that. Returns the number of rows, which are numbered
 * in the order of their first documents. Depends on its arguments alone. */
uint64_t weir__packed_rows(const uint32_t *places, uint64_t count, uint32_t context,
                           uint64_t *row_of);

#endif

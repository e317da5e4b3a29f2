/* SPDX-License-Identifier: MIT */
/** What the targets of array files share. */
#ifndef WEIR_TESTS_FUZZ_ARRAYS_H
#define WEIR_TESTS_FUZZ_ARRAYS_H

#include "data/array.h"

#define FUZZ_ARRAY_BYTES_MAX 65536

/** Reads the file by the reader of its format and by weir__array_open, which must agree, and all
 * numbers of what was opened. Returns the bytes of data that it would have needed where nothing but
 * their number was wrong and they are at most FUZZ_ARRAY_BYTES_MAX; else 0. */
size_t fuzz_read_array(const uint8_t *bytes, size_t count,
                       int (*open)(const struct weir__io *io, const char *path,
                                   struct weir__array *array));

#endif

/* SPDX-License-Identifier: MIT */
/**
 * One read-only file in memory behind the system calls of io/file.h, whatever its path: readers get
 * any bytes without a disk. A mapping is a block of exactly the file's size, so that an address
 * sanitizer sees the first byte that is read beyond. One thread at a time.
 */
#ifndef WEIR_TESTS_IO_MEMORY_H
#define WEIR_TESTS_IO_MEMORY_H

#include "io/file.h"

/** The file's bytes from now on; the caller's, and must outlive the reading. */
void io_memory_file(const void *bytes, size_t count);
/** The table. What would write fails with EROFS. Static storage. */
const struct weir__io_calls *io_memory_calls(void);
/** Descriptors and mappings that are not given back. */
uint32_t io_memory_open_count(void);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * A file of data that stays open and is read in pieces, at any place: what the array and token
 * readers stand on. Nothing is mapped, so a disk that fails or a file that is cut short while it is
 * used gives a status that names the file, where a mapping would end the process.
 *
 * Statuses: WEIR_ERR_IO, WEIR_ERR_OUT_OF_MEMORY; the message names path, reason and a way out. An
 * open source is read-only and keeps no position, so any number of threads may read it at a time,
 * each with an io (that is, an error) of its own.
 */
#ifndef WEIR_IO_SOURCE_H
#define WEIR_IO_SOURCE_H

#include "io/file.h"

struct weir__source {
    const struct weir_allocator *allocator;
    const struct weir__io_calls *calls;
    char *path; /**< a copy, for messages */
    int descriptor;
    uint64_t begin; /**< of a part of a file: where that begins; else 0 */
    uint64_t bytes; /**< of the whole file when it was opened, or of the part */
};

/** Opens a regular file; a folder, pipe or device is refused. The source is in the caller's memory:
 * weir__source_close. Written only on success. */
int weir__source_open(const struct weir__io *io, const char *path, struct weir__source *source);
/** From now on it is a part of the file that lies within it, and `path` names it. On failure it
 * stays what it was. WEIR_ERR_OUT_OF_MEMORY. */
int weir__source_narrow(struct weir__source *source, const struct weir__io *io, const char *path,
                        uint64_t begin, uint64_t bytes);
/** Accepts a zeroed one. */
void weir__source_close(struct weir__source *source);
/** Reads exactly `bytes` bytes from `offset` on. Of `io` only the error is used. A file that has
 * become shorter: WEIR_ERR_IO. */
int weir__source_read(const struct weir__source *source, const struct weir__io *io, uint64_t offset,
                      void *memory, size_t bytes);
/** Hashes what makes these data others (weir__hash, going on from `hash`): the length, and either
 * all bytes, where they are at most 64 KiB times `blocks`, or `blocks` (at least 1) blocks of 64
 * KiB, evenly spread, the first and the last among them. Linear in what it reads. */
int weir__source_hash(const struct weir__source *source, const struct weir__io *io, uint32_t blocks,
                      uint64_t *hash);
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
/** Fails with "PATH: MESSAGE", for a file that is read but not liked; returns `status`. */
int weir__source_refuse(const struct weir__io *io, const char *path, int status, const char *format,
                        ...);

#endif

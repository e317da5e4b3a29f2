/* SPDX-License-Identifier: MIT */
/**
 * TensorBoard's event files: records of TFRecord (a length, its masked CRC-32C, the bytes, theirs),
 * each a protobuf message `Event` with scalars in a `Summary`. They grow while a run goes on, so
 * that TensorBoard can follow it: every record is whole, and one that a crash cut is the last one.
 */
#ifndef WEIR_TOOLS_EVENT_FILE_H
#define WEIR_TOOLS_EVENT_FILE_H

#include "io/file.h"

struct event_scalar {
    const char *tag; /**< at most 64 bytes */
    double value;
};
#define EVENT_SCALARS_MAX 8

/** Makes `path`, which must not exist, and says that what other files of the folder hold from
 * `first_step` on has not been: they are of a run that this one goes on from. Returns its
 * descriptor, which is the caller's to close, or -1 and `io`'s error. */
int event_file_open(const struct weir__io *io, const char *path, uint64_t first_step);
/** Adds a record of at most EVENT_SCALARS_MAX scalars. WEIR_ERR_IO. */
int event_file_add(const struct weir__io *io, int descriptor, const char *path, uint64_t step,
                   const struct event_scalar *scalars, uint32_t count);

/** CRC-32C (Castagnoli) of `bytes` bytes. */
uint32_t event_file_crc(const void *data, size_t bytes);

#endif

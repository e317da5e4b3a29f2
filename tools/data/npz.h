/* SPDX-License-Identifier: MIT */
/**
 * .npz files, as numpy.savez writes them: zip archives of .npy files, stored and not compressed. An
 * array in one is named ARCHIVE.npz/NAME.npy, and read in place.
 *
 * The reader trusts the archive's directory, at its end, as far as it fits the file (zip64 too),
 * and takes nothing else from the headers before the entries than their length; checksums are not
 * looked at. Statuses: data/source.h's; WEIR_ERR_FORMAT (no archive, or cut, or it contradicts
 * itself); WEIR_ERR_UNSUPPORTED (compressed, as numpy.savez_compressed does, or encrypted).
 */
#ifndef WEIR_IO_NPZ_H
#define WEIR_IO_NPZ_H

#include "data/folder.h"
#include "data/source.h"

/** Adds the name of each array of `path`, in the archive's order; after a failure some. */
int weir__npz_list(const struct weir__io *io, const char *path, struct weir__names *names);
/** Bytes of `path` that name the archive, where it is ARCHIVE.npz/NAME; else 0. */
size_t weir__npz_archive(const char *path);
/** Opens an array by such a name: a source of its .npy file alone. weir__source_close. */
int weir__npz_open(const struct weir__io *io, const char *path, struct weir__source *source);

#endif

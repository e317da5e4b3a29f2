/* SPDX-License-Identifier: MIT */
/** What lies in a folder, in an order that is the same on every machine. */
#ifndef WEIR_IO_FOLDER_H
#define WEIR_IO_FOLDER_H

#include "io/file.h"

/** Names of a folder's entries. */
struct weir__names {
    char **list; /**< owned */
    uint32_t count;
    uint32_t capacity;
};

/** Lists a folder: names without the path, sorted by their bytes; those that begin with a dot are
 * left out. The names are the caller's, zeroed before: weir__names_release, also after a failure.
 * WEIR_ERR_IO, WEIR_ERR_OUT_OF_MEMORY. */
int weir__folder_list(const struct weir__io *io, const char *path, struct weir__names *names);
/** Adds a copy of `name` behind the others. WEIR_ERR_OUT_OF_MEMORY. */
int weir__names_add(const struct weir__io *io, struct weir__names *names, const char *name);
/** Accepts a zeroed one. `io` as at the listing. */
void weir__names_release(const struct weir__io *io, struct weir__names *names);

#endif

/* SPDX-License-Identifier: MIT */
/** Whether a checkpoint lies where a run saves to, and is another than before. */
#ifndef WEIR_TOOLS_SAVED_H
#define WEIR_TOOLS_SAVED_H

#include <stdbool.h>
#include <stdint.h>

/** Which checkpoint is there; all zero: none. */
struct saved {
    uint64_t device, inode;
    int64_t seconds, nanoseconds;
};

/** Of a checkpoint that is whole: a file, or a folder with an index.json that commits it. `path`
 * may be NULL: none. */
struct saved saved_look(const char *path);
bool saved_is_there(const struct saved *saved);
bool saved_is_other(const struct saved *saved, const struct saved *than);

#endif

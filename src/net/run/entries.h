/* SPDX-License-Identifier: MIT */
/**
 * What a net has in files: its parameters under their own names, then their optimizer's arrays
 * under "optimizer.<parameter>.<array>". The list is the same on all ranks of a world; what of it
 * lies here is said entry by entry.
 */
#ifndef WEIR_NET_ENTRIES_H
#define WEIR_NET_ENTRIES_H

#include "base/name_set.h"
#include "net/run/net.h"

/** Where a net's numbers begin and end in a file. */
struct weir__slice {
    uint64_t begin, count; /**< elements */
};

/** A tensor of the net: a parameter, or one of its optimizer's arrays. */
struct weir__entry {
    struct weir_parameter parameter;
    const char *name;           /**< the entry's own */
    const char *filed;          /**< in a file to load; mostly the name */
    struct weir__slice held;    /**< what of it this rank has; no elements: it is another's */
    struct weir__slice written; /**< and writes */
    void *place;                /**< of the first element held, on its device; may be NULL */
    void *data; /**< the same, or the host's copy of it, where that is wanted or a GPU's memory */
    bool left;  /**< of a file to load: it has no such tensor, which is to stay */
};

/** All tensors, parameters first, in a pool. */
struct weir__entries {
    struct weir__pool pool;
    uint32_t count;
    struct weir__entry *list;
    struct weir__name_set names; /**< of the list, to find what is superfluous in a file */
};

/** Lists them, with the optimizer's where `all`. The caller's: clean up the pool, unless it fails:
 * WEIR_ERR_OUT_OF_MEMORY. */
int weir__entries_init(struct weir__entries *entries, const struct weir_net *net, bool all);
/** Files adapters under PEFT's names. False without memory. */
bool weir__entries_file_adapters(struct weir__entries *entries, const struct weir_net *net);
/** Fills `names`, by what is filed. False without memory. */
bool weir__entries_name(struct weir__entries *entries);
/** Gives what is held here memory that the host can touch: of its own where that is a GPU's, or
 * `copies` are wanted; but what is mapped stays where it is. WEIR_ERR_OUT_OF_MEMORY. */
int weir__entries_place(struct weir__entries *entries, const struct weir_net *net, bool copies);
/** Copies what is held into that memory, on this rank alone. Between steps. Fails as a device. */
int weir__entries_read(const struct weir__entries *entries, const struct weir_net *net,
                       struct weir_error *error);
/** Bytes of what this rank holds, but for what is mapped. */
uint64_t weir__entries_bytes(const struct weir__entries *entries);
/** Whether a name is of an optimizer's array. */
bool weir__entry_is_state(const char *name);
/** Bytes of so many elements. */
size_t weir__entry_bytes(const struct weir__entry *entry, uint64_t elements);

#endif

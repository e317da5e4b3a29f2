/* SPDX-License-Identifier: MIT */
/**
 * The index of a checkpoint's folder: its text, read and checked. Inside io/archive only.
 */
#ifndef WEIR_IO_ARCHIVE_INDEX_H
#define WEIR_IO_ARCHIVE_INDEX_H

#include "base/pool.h"
#include "io/archive.h"

#include <jansson.h>

/** A file that the index names. */
struct weir__part {
    const char *name; /**< no path */
    uint64_t bytes, digest;
    struct weir__safetensors *file; /**< NULL: not opened */
    bool *compared; /**< of each of its tensors, whether its digest was; the pool's */
};

/** Where elements `begin` to `end` - 1 of a tensor are. */
struct weir__extent {
    uint32_t part;
    uint64_t begin, end;
};

struct weir__index {
    struct weir__pool pool; /**< of what follows */
    json_t *root;           /**< owned: names, keys and values are its texts */
    struct weir__part *parts;
    uint32_t part_count;
    struct weir__safetensor *tensors; /**< by name; data NULL, but of transformers' */
    uint32_t *first_extents;          /**< [tensor_count + 1]: into `extents` */
    uint32_t tensor_count;
    struct weir__extent *extents;         /**< of each tensor ascending, without hole or overlap */
    struct weir__safetensors_text *texts; /**< by key */
    uint32_t text_count;
};

/** Reads the text of the index at `path`, which only messages name. In every case `index` is then
 * the caller's: weir__index_clean_up. */
int weir__index_read(const struct weir__io *io, const char *path, const char *text, size_t bytes,
                     struct weir__index *index);
/** The same of transformers' index (archive.h) of the parts in `folder`, which are opened. */
int weir__shards_read(const struct weir__io *io, const char *folder, const char *path,
                      const char *text, size_t bytes, struct weir__index *index);
/** Whether it leads to no other folder, and nothing hidden. */
bool weir__is_part_name(const char *name);
/** Closes the parts, too. Accepts a zeroed one. */
void weir__index_clean_up(struct weir__index *index);

/** By name, for qsort and bsearch. */
int weir__compare_tensors(const void *left, const void *right);
/** How many elements a tensor has. */
uint64_t weir__tensor_elements(const struct weir__safetensor *tensor);

#endif

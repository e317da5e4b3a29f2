/* SPDX-License-Identifier: MIT */
/**
 * Archives: training checkpoints and weights on the disk, as one safetensors file, or as a folder
 * of such files, the parts, which several processes write at once. Both are read alike: a list of
 * tensors and a metadata. (Sharded weights with an index are Hugging Face's; parts of tensors in
 * PyTorch's torch.distributed.checkpoint.)
 *
 * A folder holds parts and one index, a JSON object:
 *
 *     {"format": "weir checkpoint", "version": 1,
 *      "metadata": {"step": "12", …},                    as one file's __metadata__ would be
 *      "files": [{"name": "part-12-9f3a77c1-0.safetensors", "bytes": 4096,
 *                 "digest": "00c0ffee00c0ffee"}, …],
 *      "tensors": {"wte.weight": {"dtype": "F32", "shape": [256, 64],
 *                                 "pieces": [[0, 0, 8192], [1, 8192, 16384]]}, …}}
 *
 * A piece [file, begin, end) has elements begin to end - 1 of the flattened tensor, and a tensor's
 * pieces, in this order, cover it. In its part a piece stands under the tensor's name: a whole
 * tensor in its shape, another flat. The part's metadata have the XXH64 of each piece ("digest", of
 * a flat one "digest@begin"); a file's "digest" is that of its header alone, which so vouches for
 * all of it, while who reads one tensor reads no other.
 *
 * The index commits: it replaces the former one by rename(2) when all parts are on the disk. Parts
 * of a save have names that no other save gives, so one that ends half way leaves the former
 * checkpoint whole; what the index does not name is removed after the next commit.
 *
 * A folder without such an index may be one of Hugging Face's transformers, which is only read:
 * with model.safetensors, or with model.safetensors.index.json, whose "weight_map" names the file
 * in which each tensor lies, its shard. These have no digests.
 *
 * Statuses are io/file.h's and safetensors.h's, and WEIR_ERR_FORMAT for an index or a part that is
 * not what was saved. Everything blocks; any thread, one checkpoint by one thread at a time.
 */
#ifndef WEIR_IO_ARCHIVE_H
#define WEIR_IO_ARCHIVE_H

#include "io/safetensors.h"

#define WEIR__ARCHIVE_INDEX "weir-checkpoint.json"

/* ---- reading ---- */

struct weir__archive;

/** Opens a file or a folder. Of a folder the index is read and checked; each part is opened when
 * something of it is first asked for, but shards at once. The caller's: weir__archive_close. */
int weir__archive_open(const struct weir__io *io, const char *path, struct weir__archive **archive);
/** Whether a folder has weights that weir__archive_open would look at. */
bool weir__archive_has_weights(const struct weir__io *io, const char *folder);
/** Accepts NULL. */
void weir__archive_close(struct weir__archive *archive);
/** Whether the path is a folder with an index, or with parts of a first save and nothing else. */
bool weir__archive_is_folder(const struct weir__io *io, const char *path);
/** Whether it is one that may become so: an empty one too. */
bool weir__archive_takes(const struct weir__io *io, const char *path);

uint32_t weir__archive_count(const struct weir__archive *archive);
/** `index` < count. Of a folder's tensor `data` is NULL. */
const struct weir__safetensor *weir__archive_get(const struct weir__archive *archive,
                                                 uint32_t index);
/** By name; NULL if there is none. */
const struct weir__safetensor *weir__archive_find(const struct weir__archive *archive,
                                                  const char *name);
/** A value of the metadata, or NULL. */
const char *weir__archive_metadata(const struct weir__archive *archive, const char *key);
/** All of them; the checkpoint's. */
const struct weir__safetensors_text *weir__archive_texts(const struct weir__archive *archive,
                                                         uint32_t *count);
/** What lies at byte `offset` of a tensor: *data and *bytes (1 … the rest), valid until the close.
 * Where it is of a part, the whole piece has been compared with its digest, once; of a shard it is
 * as it lies there. */
int weir__archive_next(const struct weir__io *io, struct weir__archive *archive,
                       const struct weir__safetensor *tensor, size_t offset, const void **data,
                       size_t *bytes);
/** Gives back the memory that reading a tensor has taken; what `next` gave stays valid. */
void weir__archive_drop(const struct weir__archive *archive, const struct weir__safetensor *tensor);
/** Of all that it holds. Of a folder only the index is read for it, as that vouches for the rest;
 * of a file everything, and of shards their index and everything in each. */
uint64_t weir__archive_digest(const struct weir__archive *archive);

/* ---- writing a folder ---- */

enum { WEIR__PART_NAME_BYTES = 80 };
/** The name of a rank's part of a save; `token` is the save's own. */
void weir__part_name(uint64_t step, uint32_t token, uint32_t rank,
                     char name[WEIR__PART_NAME_BYTES]);

/** A piece to be written: `item` has its data in one place, and its shape if it is whole. */
struct weir__archive_piece {
    struct weir__safetensors_item item;
    bool whole;
    uint64_t begin, count; /**< elements, of one that is not */
};

/** Makes the folder, if there is none. Refused: a file, and a folder of other files, without an
 * index. */
int weir__archive_prepare(const struct weir__io *io, const char *folder);
/** Writes a part, whole or not at all, and flushes it to the disk. It is in no checkpoint yet. */
int weir__archive_write(const struct weir__io *io, const char *folder, const char *name,
                        const struct weir__archive_piece *pieces, uint32_t count);

/** What becomes a checkpoint: parts that are there, and what they are together. */
struct weir__archive_commit {
    const char *const *parts; /**< names */
    uint32_t part_count;
    const struct weir__safetensors_item *tensors; /**< names, dtypes and shapes alone */
    uint32_t tensor_count;
    const struct weir__safetensors_text *texts; /**< the metadata */
    uint32_t text_count;
};
/** Compares the parts' headers with that, writes the index, and removes what it does not name. On
 * failure the folder is the former checkpoint; but where only the removal failed, and the message
 * says so, it is the new one. */
int weir__archive_commit(const struct weir__io *io, const char *folder,
                         const struct weir__archive_commit *commit);
/** Makes the folder `to` the same checkpoint as `from`, by links to its parts, or copies where
 * there are no links; as a commit. */
int weir__archive_alias(const struct weir__io *io, const char *from, const char *to);
/** Removes a checkpoint of either kind, and nothing else that lies in a folder (which then stays).
 * That there is none is no failure. */
int weir__archive_remove(const struct weir__io *io, const char *path);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * A decoder as a Hugging Face folder: weights in safetensors, and the configuration, tokenizer and
 * licence of the folder that the model came from, byte for byte. Only config.json's own word for
 * the weights' dtype changes, where it has one.
 *
 * The folder is made beside its place, as OUT.partial, and renamed when all of it is on the disk.
 * One that is replaced waits as OUT.former until then, and is removed last.
 */
#ifndef WEIR_TOOLS_EXPORT_FOLDER_H
#define WEIR_TOOLS_EXPORT_FOLDER_H

#include "cmd/export_weights.h"

struct export_folder {
    const char *model;      /**< the folder whose other files are copied */
    const char *out;        /**< what is made */
    bool replaces;          /**< where there is one already */
    enum weir__stored type; /**< f32, f16 or bf16 */
    uint64_t shard_bytes;   /**< most of a file; 0: as `model` has its tensors, else 5 GB */
    const struct weir__safetensors_item *items; /**< in f32, f16 or bf16, with `next`, in order */
    uint32_t count;
};

/** A fault where `out` could not be made so. Now rather than when all is written. */
void export_folder_check(const struct weir__io *io, const struct export_folder *folder,
                         struct weir_faults *faults);
/** Makes it, whole or not at all. Statuses as io/file.h, what a `next` returned, and
 * WEIR_ERR_UNSUPPORTED: a number does not fit `type`. */
int export_folder_write(const struct weir__io *io, const struct export_folder *folder);
/** The type that the folder's config.json names; f32 where it names none. */
enum weir__stored export_folder_type(const char *model);

#endif

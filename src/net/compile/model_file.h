/* SPDX-License-Identifier: MIT */
/**
 * A model from its JSON form: the list of layers that `weir describe --json` writes and a person
 * may write by hand. Nothing in the file is trusted (at most 16 MiB, 1,048,576 values and 65,536
 * layers); every fault is a line in `faults` with the layer's index and name.
 *
 * {"input": {"dtype": "f32", "shape": [3, 32, 32]}, "target": {"dtype": "i64", "shape": []},
 *  "layers": [{"type": "linear", "out_features": 10, "name": "head", "frozen": true}, …],
 *  "loss": "cross_entropy", "ignore_index": -100, "freeze": ["h.0.*"],
 *  "lora": {"rank": 8, "alpha": 16, "dropout": 0.1, "rslora": false, "targets": ["all-linear"]}}
 *
 * `target` and `loss` may be missing or null, together: inference only. `freeze` lists patterns of
 * parameters that do not learn, as weir_model_freeze takes them, `lora` is weir_model_lora's.
 *
 *   {"type": "block", "repeat": 12, "namespace": "h", "layers": [{"type": "stash", …}, …]}
 *
 * is its layers, 12 times after one another, as if they stood there; so parameters have the index
 * in the whole list, and `describe` writes the list. Layers may be blocks. In repeat k the skips
 * that the block itself stashes are in the namespace "h.k", before their own ("h.k.own"); without a
 * namespace they are as written, which only one repeat can do. `frozen` freezes all of them.
 *
 * A member of a layer that is
 * null counts as missing, as do the ones that `describe` adds (output_shape, parameters, flops,
 * activation_bytes, stage); beside the layers these are parameters, stages and skips.
 */
#ifndef WEIR_IO_MODEL_FILE_H
#define WEIR_IO_MODEL_FILE_H

#include "io/file.h"
#include "weir_net.h"

/** Reads a file. The model is the caller's, in io->allocator's memory. WEIR_ERR_IO with io->error
 * filled where it cannot be read; else the faults say what is wrong: WEIR_ERR_FORMAT for what is no
 * JSON, WEIR_ERR_ARGUMENT for what is no model. Shapes are checked when the model is used. */
int weir__model_file_read(const struct weir__io *io, const char *path, struct weir_faults *faults,
                          struct weir_model **model);
/** The same from `bytes` bytes of text; `name` is for messages. */
int weir__model_text_read(const struct weir_allocator *allocator, const char *text, size_t bytes,
                          const char *name, struct weir_faults *faults, struct weir_model **model);

#endif

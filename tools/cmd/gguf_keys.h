/* SPDX-License-Identifier: MIT */
/** Keys and values of a GGUF file (version 3), written one behind the other. */
#ifndef WEIR_TOOLS_GGUF_KEYS_H
#define WEIR_TOOLS_GGUF_KEYS_H

#include "io/file.h"

enum gguf_type {
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_TEXT = 8,
    GGUF_ARRAY = 9
};

/** Begins with `io`; then keys are put. The first failure stays, later calls do nothing. */
struct gguf_keys {
    const struct weir__io *io;
    const char *prefix; /**< stands for a first '%' of a key: "llama" in "%.block_count" */
    struct weir__bytes bytes;
    uint64_t count;
    int status; /**< WEIR_ERR_OUT_OF_MEMORY */
};

void gguf_put_u32(struct gguf_keys *keys, const char *key, uint32_t value);
void gguf_put_f32(struct gguf_keys *keys, const char *key, double value);
void gguf_put_bool(struct gguf_keys *keys, const char *key, bool value);
void gguf_put_text(struct gguf_keys *keys, const char *key, const char *text, size_t bytes);
/** An array: then come `count` items of the type. */
void gguf_put_array(struct gguf_keys *keys, const char *key, enum gguf_type type, uint64_t count);
void gguf_item_text(struct gguf_keys *keys, const char *text, size_t bytes);
void gguf_item_i32(struct gguf_keys *keys, int32_t value);
/** What tensors are told by: name, dimensions from the fastest on, ggml's type, place. */
void gguf_put_tensor(struct gguf_keys *keys, const char *name, uint32_t rank, const int64_t *shape,
                     uint32_t type, uint64_t offset);
void gguf_keys_clean_up(struct gguf_keys *keys);

#endif

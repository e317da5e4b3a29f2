/* SPDX-License-Identifier: MIT */
/* Numbers are little-endian, as are all machines that Weir runs on. */
#include "cmd/gguf_keys.h"

#include <string.h>

static void put(struct gguf_keys *keys, const void *data, size_t bytes) {
    if (keys->status == WEIR_OK)
        keys->status = weir__bytes_append(keys->io, &keys->bytes, data, bytes);
}

static void put_number(struct gguf_keys *keys, uint64_t value, size_t bytes) {
    put(keys, &value, bytes);
}

void gguf_item_text(struct gguf_keys *keys, const char *text, size_t bytes) {
    put_number(keys, bytes, 8);
    put(keys, text, bytes);
}

static void put_key(struct gguf_keys *keys, const char *key, enum gguf_type type) {
    bool prefixed = key[0] == '%';
    size_t prefix = prefixed ? strlen(keys->prefix) : 0;
    key += prefixed;
    put_number(keys, prefix + strlen(key), 8);
    if (prefixed) put(keys, keys->prefix, prefix);
    put(keys, key, strlen(key));
    put_number(keys, type, 4);
    keys->count++;
}

void gguf_put_u32(struct gguf_keys *keys, const char *key, uint32_t value) {
    put_key(keys, key, GGUF_U32);
    put_number(keys, value, 4);
}

void gguf_put_f32(struct gguf_keys *keys, const char *key, double value) {
    float rounded = (float)value;
    put_key(keys, key, GGUF_F32);
    put(keys, &rounded, sizeof rounded);
}

void gguf_put_bool(struct gguf_keys *keys, const char *key, bool value) {
    put_key(keys, key, GGUF_BOOL);
    put_number(keys, value, 1);
}

void gguf_put_text(struct gguf_keys *keys, const char *key, const char *text, size_t bytes) {
    put_key(keys, key, GGUF_TEXT);
    gguf_item_text(keys, text, bytes);
}

void gguf_put_array(struct gguf_keys *keys, const char *key, enum gguf_type type, uint64_t count) {
    put_key(keys, key, GGUF_ARRAY);
    put_number(keys, type, 4);
    put_number(keys, count, 8);
}

void gguf_item_i32(struct gguf_keys *keys, int32_t value) {
    put_number(keys, (uint32_t)value, 4);
}

void gguf_put_tensor(struct gguf_keys *keys, const char *name, uint32_t rank, const int64_t *shape,
                     uint32_t type, uint64_t offset) {
    gguf_item_text(keys, name, strlen(name));
    put_number(keys, rank, 4);
    for (uint32_t i = rank; i-- > 0;) put_number(keys, (uint64_t)shape[i], 8);
    put_number(keys, type, 4);
    put_number(keys, offset, 8);
}

void gguf_keys_clean_up(struct gguf_keys *keys) {
    weir__bytes_release(keys->io->allocator, &keys->bytes);
}

/* SPDX-License-Identifier: MIT */
/*
 * The safetensors writer. Layout and header follow the reference's (wider dtypes first, then names;
 * compact JSON; spaces up to a multiple of 8), so every tensor is aligned to its dtype and two
 * writers of the same tensors make the same bytes.
 */
#include "io/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8
#define ALIGNMENT 8
#define NAME_SHOWN 64
#define METADATA "__metadata__"

struct saved_entry {
    const struct weir__safetensors_item *item;
    const struct weir__safetensors_dtype *dtype;
    size_t bytes;
};

struct saving {
    const struct weir__io *io;
    const char *path;
    struct saved_entry *entries;
    uint32_t entry_count;
    const struct weir__safetensors_text **texts;
    uint32_t text_count;
    json_t *header;
    struct weir__bytes bytes; /* length and header, as in the file */
};

static int fail_memory(const struct saving *saving) {
    return weir__io_fail(saving->io, ENOMEM, "write", saving->path);
}

static int bad_item(const struct saving *saving, const char *name, int status, const char *reason) {
    char shortened[96];
    return weir__fail(saving->io->error, status, "cannot write %s: '%.*s' %s",
                      weir__path_text(saving->path, shortened), NAME_SHOWN, name ? name : "(none)",
                      reason);
}

/* ---- checking what is given ---- */

static const struct weir__safetensors_dtype *dtype_of(enum weir_dtype dtype) {
    for (size_t i = 0; i < WEIR__SAFETENSORS_DTYPES && dtype != WEIR_DTYPE_COUNT; i++) {
        if (weir__safetensors_dtypes[i].dtype == dtype) return &weir__safetensors_dtypes[i];
    }
    return NULL;
}

static bool is_text(const char *text) {
    return text && weir__utf8_valid(text, strlen(text));
}

static int check_item(const struct saving *saving, const struct weir__safetensors_item *item,
                      struct saved_entry *entry) {
    *entry = (struct saved_entry){.item = item, .dtype = dtype_of(item->dtype)};
    if (!is_text(item->name) || strcmp(item->name, METADATA) == 0)
        return bad_item(saving, item->name, WEIR_ERR_ARGUMENT,
                        "is no name for a tensor: UTF-8 text other than " METADATA " is");
    if (!entry->dtype)
        return bad_item(saving, item->name, WEIR_ERR_ARGUMENT, "has an unknown dtype");
    if (item->rank > WEIR__SAFETENSORS_RANK_MAX)
        return bad_item(saving, item->name, WEIR_ERR_ARGUMENT, "has more than 8 dimensions");
    for (uint32_t i = 0; i < item->rank; i++) {
        if (item->shape[i] < 0)
            return bad_item(saving, item->name, WEIR_ERR_ARGUMENT, "has a size below 0");
    }
    if (weir__safetensors_bytes(entry->dtype, item->rank, item->shape, &entry->bytes))
        return bad_item(saving, item->name, WEIR_ERR_OVERFLOW, "has a size that overflows");
    if (entry->bytes > 0 && !item->data && !item->next)
        return bad_item(saving, item->name, WEIR_ERR_ARGUMENT, "comes without data");
    return WEIR_OK;
}

static int compare_entries(const void *left, const void *right) {
    const struct saved_entry *a = left, *b = right;
    if (a->dtype != b->dtype) return a->dtype > b->dtype ? -1 : 1;
    return strcmp(a->item->name, b->item->name);
}

static int compare_texts(const void *left, const void *right) {
    const struct weir__safetensors_text *const *a = left, *const *b = right;
    return strcmp((*a)->key, (*b)->key);
}

static int sort_items(struct saving *saving, const struct weir__safetensors_item *items) {
    saving->entries =
        weir__acquire(saving->io->allocator, saving->entry_count, sizeof *saving->entries);
    if (!saving->entries) return fail_memory(saving);
    for (uint32_t i = 0; i < saving->entry_count; i++) {
        int status = check_item(saving, &items[i], &saving->entries[i]);
        if (status != WEIR_OK) return status;
    }
    qsort(saving->entries, saving->entry_count, sizeof *saving->entries, compare_entries);
    return WEIR_OK;
}

static int sort_texts(struct saving *saving, const struct weir__safetensors_text *texts) {
    saving->texts = weir__acquire(saving->io->allocator, saving->text_count, sizeof *saving->texts);
    if (!saving->texts) return fail_memory(saving);
    for (uint32_t i = 0; i < saving->text_count; i++) {
        if (!is_text(texts[i].key) || !is_text(texts[i].value))
            return bad_item(saving, texts[i].key, WEIR_ERR_ARGUMENT,
                            "of the metadata is not UTF-8 text");
        saving->texts[i] = &texts[i];
    }
    qsort(saving->texts, saving->text_count, sizeof *saving->texts, compare_texts);
    return WEIR_OK;
}

/* ---- the header ---- */

static int add_metadata(struct saving *saving) {
    json_t *metadata = json_object();
    if (json_object_set_new(saving->header, METADATA, metadata) != 0) return fail_memory(saving);
    for (uint32_t i = 0; i < saving->text_count; i++) {
        const struct weir__safetensors_text *text = saving->texts[i];
        if (json_object_get(metadata, text->key))
            return bad_item(saving, text->key, WEIR_ERR_ARGUMENT, "of the metadata is given twice");
        if (json_object_set_new(metadata, text->key, json_string(text->value)) != 0)
            return fail_memory(saving);
    }
    return WEIR_OK;
}

static int add_tensor(struct saving *saving, const struct saved_entry *entry, size_t begin) {
    assert(begin <= INT64_MAX - entry->bytes);
    const struct weir__safetensors_item *item = entry->item;
    json_t *shape = json_array();
    bool done = shape != NULL;
    if (json_object_get(saving->header, item->name)) {
        json_decref(shape);
        return bad_item(saving, item->name, WEIR_ERR_ARGUMENT, "is given twice");
    }
    for (uint32_t i = 0; i < item->rank; i++) {
        done = done && json_array_append_new(shape, json_integer(item->shape[i])) == 0;
    }
    /* The pack takes the reference to shape also when it fails. */
    json_t *value =
        json_pack("{s:s, s:o, s:[I,I]}", "dtype", entry->dtype->name, "shape", shape,
                  "data_offsets", (json_int_t)begin, (json_int_t)(begin + entry->bytes));
    if (json_object_set_new(saving->header, item->name, value) != 0 || !done)
        return fail_memory(saving);
    return WEIR_OK;
}

static int build_header(struct saving *saving) {
    size_t end = 0, begin = 0;
    saving->header = json_object();
    if (!saving->header) return fail_memory(saving);
    int status = saving->text_count > 0 ? add_metadata(saving) : WEIR_OK;
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < saving->entry_count; i++) {
        const struct saved_entry *entry = &saving->entries[i];
        begin = end;
        if (!weir__add(begin, entry->bytes, &end) || end > INT64_MAX)
            return bad_item(saving, entry->item->name, WEIR_ERR_OVERFLOW,
                            "and those before it are too big together");
        if ((status = add_tensor(saving, entry, begin)) != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int format_header(struct saving *saving) {
    struct weir__bytes *bytes = &saving->bytes;
    size_t length = json_dumpb(saving->header, NULL, 0, JSON_COMPACT), padded = 0;
    if (length == 0) return fail_memory(saving);
    if (length > WEIR__SAFETENSORS_HEADER_MAX - ALIGNMENT)
        return bad_item(saving, "the header", WEIR_ERR_ARGUMENT,
                        "is over the format's limit of 100,000,000 bytes");
    if (!weir__round_up(length, ALIGNMENT, &padded)) return fail_memory(saving);
    assert(padded >= length && padded % ALIGNMENT == 0);
    int status = weir__bytes_reserve(saving->io, bytes, LENGTH_BYTES + padded);
    if (status != WEIR_OK) return status;
    for (int i = 0; i < LENGTH_BYTES; i++) bytes->data[i] = (char)(padded >> (8 * i) & 0xFF);
    memset(bytes->data + LENGTH_BYTES, ' ', padded);
    if (json_dumpb(saving->header, bytes->data + LENGTH_BYTES, padded, JSON_COMPACT) != length)
        return fail_memory(saving);
    bytes->count = LENGTH_BYTES + padded;
    return WEIR_OK;
}

/* ---- the data ---- */

static int write_pieces(const struct saving *saving, struct weir__file *file,
                        const struct saved_entry *entry) {
    for (size_t offset = 0; offset < entry->bytes;) {
        const void *data = NULL;
        size_t bytes = 0;
        int status = entry->item->next(entry->item->context, offset, &data, &bytes);
        if (status != WEIR_OK)
            return bad_item(saving, entry->item->name, status, "could not be fetched");
        assert(data && bytes > 0 && bytes <= entry->bytes - offset);
        status = weir__file_write(file, data, bytes);
        if (status != WEIR_OK) return status;
        offset += bytes;
    }
    return WEIR_OK;
}

static int write_file(struct saving *saving) {
    struct weir__file file;
    int status = weir__file_begin(saving->io, saving->path, &file);
    if (status != WEIR_OK) return status;
    status = weir__file_write(&file, saving->bytes.data, saving->bytes.count);
    for (uint32_t i = 0; status == WEIR_OK && i < saving->entry_count; i++) {
        const struct saved_entry *entry = &saving->entries[i];
        status = entry->item->data ? weir__file_write(&file, entry->item->data, entry->bytes)
                                   : write_pieces(saving, &file, entry);
    }
    if (status != WEIR_OK) {
        weir__file_abort(&file);
        return status;
    }
    return weir__file_commit(&file);
}

static void release(struct saving *saving) {
    const struct weir_allocator *allocator = saving->io->allocator;
    weir__bytes_release(allocator, &saving->bytes);
    json_decref(saving->header);
    weir__release(allocator, saving->texts, saving->text_count, sizeof *saving->texts);
    weir__release(allocator, saving->entries, saving->entry_count, sizeof *saving->entries);
}

int weir__safetensors_save(const struct weir__io *io, const char *path,
                           const struct weir__safetensors_item *items, uint32_t item_count,
                           const struct weir__safetensors_text *texts, uint32_t text_count) {
    assert(path != NULL);
    assert((item_count == 0 || items != NULL) && (text_count == 0 || texts != NULL));
    struct saving saving = {
        .io = io, .path = path, .entry_count = item_count, .text_count = text_count};
    int status = sort_items(&saving, items);
    if (status != WEIR_OK) goto out;
    if ((status = sort_texts(&saving, texts)) != WEIR_OK) goto out;
    if ((status = build_header(&saving)) != WEIR_OK) goto out;
    if ((status = format_header(&saving)) != WEIR_OK) goto out;
    status = write_file(&saving);
out:
    release(&saving);
    return status;
}

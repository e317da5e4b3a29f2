/* SPDX-License-Identifier: MIT */
/*
 * Reads an index as whatever a disk may hold under its name: what it says is checked here, once, so
 * that nobody behind has to ask whether a piece lies in its tensor or a name leads elsewhere.
 */
#include "io/archive_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, NAME_SHOWN = 64 };
static const char format_name[] = "weir checkpoint";

struct index_reading {
    const struct weir__io *io;
    const char *path;
    struct weir__index *index;
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct index_reading *reading,
                                                        const char *format, ...) {
    char reason[256], shortened[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return weir__fail(reading->io->error, WEIR_ERR_FORMAT, "%s: %s: give another checkpoint",
                      weir__path_text(reading->path, shortened), reason);
}

static int no_memory(const struct index_reading *reading) {
    char shortened[96];
    return weir__fail(reading->io->error, WEIR_ERR_OUT_OF_MEMORY, "cannot read %s: out of memory",
                      weir__path_text(reading->path, shortened));
}

static bool natural(const json_t *value, uint64_t *number) {
    assert(number != NULL);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *number = (uint64_t)json_integer_value(value);
    return true;
}

/* ---- files ---- */

bool weir__is_part_name(const char *name) {
    size_t length = name != NULL ? strlen(name) : 0;
    return length > 0 && length < WEIR__PART_NAME_BYTES && name[0] != '.' &&
           strchr(name, '/') == NULL;
}

static bool read_digest(const json_t *value, uint64_t *digest) {
    assert(digest != NULL);
    const char *text = json_string_value(value);
    if (text == NULL || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) return false;
    *digest = strtoull(text, NULL, 16);
    return true;
}

static int read_files(const struct index_reading *reading, const json_t *files) {
    struct weir__index *index = reading->index;
    assert(index->parts == NULL && index->part_count == 0);
    if (!json_is_array(files) || json_array_size(files) >= UINT32_MAX)
        return refuse(reading, "\"files\" is no list");
    size_t count = json_array_size(files);
    index->parts = weir__pool_take(&index->pool, count, sizeof *index->parts);
    if (index->parts == NULL) return no_memory(reading);
    for (size_t i = 0; i < count; i++) {
        const json_t *file = json_array_get(files, i);
        struct weir__part *part = &index->parts[i];
        part->name = json_string_value(json_object_get(file, "name"));
        if (!weir__is_part_name(part->name) ||
            !natural(json_object_get(file, "bytes"), &part->bytes) ||
            !read_digest(json_object_get(file, "digest"), &part->digest))
            return refuse(reading, "file %zu has no name, bytes and digest", i);
    }
    index->part_count = (uint32_t)count;
    return WEIR_OK;
}

/* ---- tensors ---- */

uint64_t weir__tensor_elements(const struct weir__safetensor *tensor) {
    assert(tensor->dtype < WEIR_DTYPE_COUNT);
    return tensor->bytes / weir_dtype_bytes(tensor->dtype);
}

static const struct weir__safetensors_dtype *find_dtype(const char *name) {
    for (uint32_t i = 0; name != NULL && i < WEIR__SAFETENSORS_DTYPES; i++) {
        const struct weir__safetensors_dtype *dtype = &weir__safetensors_dtypes[i];
        if (dtype->dtype < WEIR_DTYPE_COUNT && strcmp(dtype->name, name) == 0) return dtype;
    }
    return NULL;
}

static int read_facts(const struct index_reading *reading, const json_t *value,
                      struct weir__safetensor *tensor) {
    assert(tensor->name != NULL && tensor->rank == 0);
    const struct weir__safetensors_dtype *dtype =
        find_dtype(json_string_value(json_object_get(value, "dtype")));
    const json_t *shape = json_object_get(value, "shape");
    bool good = dtype != NULL && json_is_array(shape) &&
                json_array_size(shape) <= WEIR__SAFETENSORS_RANK_MAX;
    for (size_t i = 0; good && i < json_array_size(shape); i++) {
        uint64_t size = 0;
        good = natural(json_array_get(shape, i), &size);
        tensor->shape[i] = (int64_t)size;
    }
    if (!good) return refuse(reading, "'%.*s' has no dtype and shape", NAME_SHOWN, tensor->name);
    tensor->dtype = dtype->dtype;
    tensor->dtype_name = dtype->name;
    tensor->rank = (uint32_t)json_array_size(shape);
    if (weir__safetensors_bytes(dtype, tensor->rank, tensor->shape, &tensor->bytes) == WEIR_OK)
        return WEIR_OK;
    return refuse(reading, "'%.*s' has a size that overflows", NAME_SHOWN, tensor->name);
}

/* Each begins where the one before it ends. */
static int read_extents(const struct index_reading *reading, const json_t *pieces,
                        const struct weir__safetensor *tensor, uint32_t *used) {
    struct weir__index *index = reading->index;
    uint64_t at = 0, file = 0;
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        struct weir__extent *extent = &index->extents[(*used)++];
        const json_t *piece = json_array_get(pieces, i);
        bool good = json_array_size(piece) == 3 && natural(json_array_get(piece, 0), &file) &&
                    natural(json_array_get(piece, 1), &extent->begin) &&
                    natural(json_array_get(piece, 2), &extent->end);
        if (!good || file >= index->part_count)
            return refuse(reading, "'%.*s' has a piece that is no [file, begin, end]", NAME_SHOWN,
                          tensor->name);
        if (extent->begin != at || extent->end <= at)
            return refuse(reading, "pieces of '%.*s' overlap or leave a hole at element %llu",
                          NAME_SHOWN, tensor->name, (unsigned long long)at);
        extent->part = (uint32_t)file;
        at = extent->end;
    }
    if (at == weir__tensor_elements(tensor)) return WEIR_OK;
    return refuse(reading, "pieces of '%.*s' end at element %llu of %llu", NAME_SHOWN, tensor->name,
                  (unsigned long long)at, (unsigned long long)weir__tensor_elements(tensor));
}

static int compare_names(const void *left, const void *right) {
    const struct weir__safetensor *a = left, *b = right;
    return strcmp(a->name, b->name);
}

static size_t count_pieces(const json_t *tensors) {
    const char *name;
    json_t *value;
    size_t count = 0;
    json_object_foreach((json_t *)tensors, name, value) count +=
        json_array_size(json_object_get(value, "pieces"));
    return count;
}

static int read_tensors(const struct index_reading *reading, const json_t *tensors) {
    struct weir__index *index = reading->index;
    assert(index->tensors == NULL && index->tensor_count == 0);
    if (!json_is_object(tensors)) return refuse(reading, "\"tensors\" is no object");
    size_t count = json_object_size(tensors), pieces = count_pieces(tensors);
    if (count >= UINT32_MAX || pieces >= UINT32_MAX) return refuse(reading, "too many tensors");
    index->tensors = weir__pool_take(&index->pool, count, sizeof *index->tensors);
    index->first_extents = weir__pool_take(&index->pool, count + 1, sizeof *index->first_extents);
    index->extents = weir__pool_take(&index->pool, pieces, sizeof *index->extents);
    if (index->pool.failed) return no_memory(reading);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)tensors, name, value) {
        index->tensors[index->tensor_count++].name = name;
    }
    qsort(index->tensors, count, sizeof *index->tensors, compare_names);
    uint32_t used = 0;
    for (uint32_t i = 0; i < index->tensor_count; i++) {
        struct weir__safetensor *tensor = &index->tensors[i];
        value = json_object_get(tensors, tensor->name);
        int status = read_facts(reading, value, tensor);
        if (status != WEIR_OK) return status;
        status = read_extents(reading, json_object_get(value, "pieces"), tensor, &used);
        if (status != WEIR_OK) return status;
        index->first_extents[i + 1] = used;
    }
    assert(used == pieces);
    return WEIR_OK;
}

/* ---- the rest ---- */

static int compare_keys(const void *left, const void *right) {
    const struct weir__safetensors_text *a = left, *b = right;
    return strcmp(a->key, b->key);
}

static int read_texts(const struct index_reading *reading, const json_t *metadata) {
    struct weir__index *index = reading->index;
    const char *key;
    json_t *value;
    assert(index->texts == NULL && index->text_count == 0);
    if (!json_is_object(metadata) || json_object_size(metadata) >= UINT32_MAX)
        return refuse(reading, "\"metadata\" is no object");
    size_t count = json_object_size(metadata);
    index->texts = weir__pool_take(&index->pool, count, sizeof *index->texts);
    if (index->texts == NULL) return no_memory(reading);
    json_object_foreach((json_t *)metadata, key, value) {
        if (!json_is_string(value)) return refuse(reading, "metadata '%.60s' is no text", key);
        index->texts[index->text_count++] =
            (struct weir__safetensors_text){key, json_string_value(value)};
    }
    qsort(index->texts, count, sizeof *index->texts, compare_keys);
    return WEIR_OK;
}

static int read_head(const struct index_reading *reading, const json_t *root) {
    const char *format = json_string_value(json_object_get(root, "format"));
    uint64_t version = 0;
    char shortened[96];
    if (format == NULL || strcmp(format, format_name) != 0 ||
        !natural(json_object_get(root, "version"), &version))
        return refuse(reading, "it is not the index of a checkpoint");
    if (version == VERSION) return WEIR_OK;
    return weir__fail(reading->io->error, WEIR_ERR_UNSUPPORTED,
                      "%s has version %llu of the format, this Weir reads %d: take a newer Weir",
                      weir__path_text(reading->path, shortened), (unsigned long long)version,
                      VERSION);
}

int weir__index_read(const struct weir__io *io, const char *path, const char *text, size_t bytes,
                     struct weir__index *index) {
    assert(path != NULL && text != NULL && index != NULL);
    const struct index_reading reading = {io, path, index};
    json_error_t fault;
    *index = (struct weir__index){.part_count = 0};
    weir__pool_init(&index->pool, io->allocator);
    index->root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &fault);
    if (index->root == NULL && json_error_code(&fault) == json_error_out_of_memory)
        return no_memory(&reading);
    if (index->root == NULL)
        return refuse(&reading, "it is damaged at byte %d (%.120s)", fault.position, fault.text);
    int status = read_head(&reading, index->root);
    if (status != WEIR_OK) return status;
    status = read_files(&reading, json_object_get(index->root, "files"));
    if (status != WEIR_OK) return status;
    status = read_tensors(&reading, json_object_get(index->root, "tensors"));
    if (status != WEIR_OK) return status;
    return read_texts(&reading, json_object_get(index->root, "metadata"));
}

void weir__index_clean_up(struct weir__index *index) {
    for (uint32_t i = 0; i < index->part_count; i++) weir__safetensors_close(index->parts[i].file);
    json_decref(index->root);
    weir__pool_clean_up(&index->pool);
    *index = (struct weir__index){.part_count = 0};
}

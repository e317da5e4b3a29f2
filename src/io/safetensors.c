/* SPDX-License-Identifier: MIT */
/*
 * The safetensors reader. The header's JSON tree stays in memory as long as the file is open: names
 * and metadata are its strings. Everything is checked when the file is opened, so that whoever uses
 * a tensor later may trust its shape and pointer.
 */
#include "io/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian, and so must the machine be"
#endif

#define LENGTH_BYTES 8
#define TENSORS_MAX 1000000u
#define NAME_SHOWN 64

struct weir__safetensors {
    const struct weir_allocator *allocator;
    const struct weir__io_calls *calls;
    void *map;
    size_t map_bytes;
    json_t *header;
    uint32_t count;
    struct weir__safetensor *tensors;        /* by place in the buffer */
    const struct weir__safetensor **by_name; /* sorted */
};

/* What the steps of an opening share. */
struct opening {
    const struct weir__io *io;
    const char *path;
    struct weir__safetensors_limits limits;
    struct weir__safetensors *file;
    const char *buffer;
    size_t buffer_bytes;
};

const struct weir__safetensors_dtype weir__safetensors_dtypes[WEIR__SAFETENSORS_DTYPES] = {
    {"BOOL", 8, WEIR_BOOL},
    {"F4", 4, WEIR_DTYPE_COUNT},
    {"F6_E2M3", 6, WEIR_DTYPE_COUNT},
    {"F6_E3M2", 6, WEIR_DTYPE_COUNT},
    {"U8", 8, WEIR_U8},
    {"I8", 8, WEIR_DTYPE_COUNT},
    {"F8_E5M2", 8, WEIR_DTYPE_COUNT},
    {"F8_E4M3", 8, WEIR_DTYPE_COUNT},
    {"F8_E8M0", 8, WEIR_DTYPE_COUNT},
    {"F8_E4M3FNUZ", 8, WEIR_DTYPE_COUNT},
    {"F8_E5M2FNUZ", 8, WEIR_DTYPE_COUNT},
    {"I16", 16, WEIR_DTYPE_COUNT},
    {"U16", 16, WEIR_DTYPE_COUNT},
    {"F16", 16, WEIR_F16},
    {"BF16", 16, WEIR_BF16},
    {"I32", 32, WEIR_I32},
    {"U32", 32, WEIR_DTYPE_COUNT},
    {"F32", 32, WEIR_F32},
    {"C64", 64, WEIR_DTYPE_COUNT},
    {"F64", 64, WEIR_F64},
    {"I64", 64, WEIR_I64},
    {"U64", 64, WEIR_DTYPE_COUNT},
};

/* ---- messages ---- */

__attribute__((format(printf, 3, 4))) static int refuse(const struct opening *opening, int status,
                                                        const char *format, ...) {
    char reason[256], shortened[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    return weir__fail(opening->io->error, status, "%s: %s",
                      weir__path_text(opening->path, shortened), reason);
}

#define REFUSE(opening, ...) refuse(opening, WEIR_ERR_FORMAT, __VA_ARGS__)

const char *weir__safetensor_text(const struct weir__safetensor *tensor, char *text,
                                  size_t capacity) {
    assert(capacity > 0);
    int used = snprintf(text, capacity, "%s [", tensor->dtype_name);
    for (uint32_t i = 0; i < tensor->rank && used >= 0 && (size_t)used < capacity; i++) {
        used += snprintf(text + used, capacity - (size_t)used, "%s%lld", i ? ", " : "",
                         (long long)tensor->shape[i]);
    }
    if (used >= 0 && (size_t)used < capacity) {
        snprintf(text + used, capacity - (size_t)used, "]");
    }
    return text;
}

/* ---- the header's length and text ---- */

static bool is_continuation(unsigned char byte) {
    return (byte & 0xC0u) == 0x80u;
}

/* Bytes of the sequence at `text`, 0 if it is none. */
static size_t utf8_sequence(const unsigned char *text, size_t bytes) {
    unsigned char first = text[0];
    size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (length == 1) {
        return 1;
    }
    if (first < 0xC2 || first > 0xF4 || bytes < length) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if (!is_continuation(text[i])) {
            return 0;
        }
    }
    bool overlong = (first == 0xE0 && text[1] < 0xA0) || (first == 0xF0 && text[1] < 0x90);
    bool surrogate = first == 0xED && text[1] > 0x9F;
    bool beyond = first == 0xF4 && text[1] > 0x8F;
    return overlong || surrogate || beyond ? 0 : length;
}

bool weir__utf8_valid(const char *text, size_t bytes) {
    const unsigned char *at = (const unsigned char *)text;
    for (size_t i = 0; i < bytes;) {
        size_t length = utf8_sequence(at + i, bytes - i);
        if (length == 0) {
            return false;
        }
        i += length;
    }
    return true;
}

static uint64_t little_endian(const unsigned char *bytes) {
    uint64_t value = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) {
        value = value << 8 | bytes[i];
    }
    return value;
}

/* Rules 1 to 5; what follows the header is the buffer. */
static int find_header(struct opening *opening, const char **text, size_t *bytes) {
    const char *map = opening->file->map;
    size_t rest = opening->file->map_bytes - LENGTH_BYTES;
    uint64_t length = little_endian((const unsigned char *)map);
    if (length > opening->limits.header_bytes) {
        return REFUSE(opening, "the header has %llu bytes, more than the limit of %zu",
                      (unsigned long long)length, opening->limits.header_bytes);
    }
    if (length > rest) {
        return REFUSE(opening,
                      "the header has %llu bytes, but only %zu follow its length: the file is cut",
                      (unsigned long long)length, rest);
    }
    *text = map + LENGTH_BYTES;
    *bytes = (size_t)length;
    if (length == 0 || **text != '{') {
        return REFUSE(opening, "the header does not begin with '{': not a safetensors file");
    }
    if (!weir__utf8_valid(*text, *bytes)) {
        return REFUSE(opening, "the header is not UTF-8");
    }
    opening->buffer = *text + *bytes;
    opening->buffer_bytes = rest - *bytes;
    return WEIR_OK;
}

static int parse_header(struct opening *opening) {
    const char *text = NULL;
    size_t bytes = 0;
    json_error_t error;
    int status = find_header(opening, &text, &bytes);
    if (status) {
        return status;
    }
    opening->file->header = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (opening->file->header) {
        return WEIR_OK;
    }
    switch (json_error_code(&error)) {
    case json_error_out_of_memory:
        return refuse(opening, WEIR_ERR_OUT_OF_MEMORY, "out of memory for the header");
    case json_error_duplicate_key:
        return REFUSE(opening, "the header has a key twice, at byte %d: %.80s", error.position,
                      error.text);
    default:
        return REFUSE(opening, "the header is not JSON, at byte %d: %.80s", error.position,
                      error.text);
    }
}

/* ---- the entries ---- */

static int check_metadata(const struct opening *opening, json_t *metadata) {
    const char *key;
    json_t *value;
    if (metadata && !json_is_object(metadata)) {
        return REFUSE(opening, "'__metadata__' is not an object of texts");
    }
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value)) {
            return REFUSE(opening, "'__metadata__' has a value that is not text, at '%.*s'",
                          NAME_SHOWN, key);
        }
    }
    return WEIR_OK;
}

/* Exactly three keys: an unknown one may be the misspelling of one that is missing. */
static int check_keys(const struct opening *opening, const char *name, json_t *entry) {
    static const char *const wanted[] = {"dtype", "shape", "data_offsets"};
    const char *key;
    json_t *value;
    if (!json_is_object(entry)) {
        return REFUSE(opening, "tensor '%.*s' is not an object", NAME_SHOWN, name);
    }
    for (size_t i = 0; i < WEIR__COUNT_OF(wanted); i++) {
        if (!json_object_get(entry, wanted[i])) {
            return REFUSE(opening, "tensor '%.*s' has no '%s'", NAME_SHOWN, name, wanted[i]);
        }
    }
    json_object_foreach(entry, key, value) {
        if (strcmp(key, wanted[0]) && strcmp(key, wanted[1]) && strcmp(key, wanted[2])) {
            return REFUSE(opening, "tensor '%.*s' has the unknown key '%.*s'", NAME_SHOWN, name,
                          NAME_SHOWN, key);
        }
    }
    return WEIR_OK;
}

static const struct weir__safetensors_dtype *dtype_of(const char *name) {
    for (size_t i = 0; i < WEIR__SAFETENSORS_DTYPES; i++) {
        if (strcmp(weir__safetensors_dtypes[i].name, name) == 0) {
            return &weir__safetensors_dtypes[i];
        }
    }
    return NULL;
}

static int read_dtype(const struct opening *opening, struct weir__safetensor *tensor, json_t *text,
                      const struct weir__safetensors_dtype **dtype) {
    *dtype = json_is_string(text) ? dtype_of(json_string_value(text)) : NULL;
    if (!json_is_string(text)) {
        return REFUSE(opening, "tensor '%.*s' has a dtype that is not text", NAME_SHOWN,
                      tensor->name);
    }
    if (!*dtype) {
        return REFUSE(opening, "tensor '%.*s' has the unknown dtype '%.32s'", NAME_SHOWN,
                      tensor->name, json_string_value(text));
    }
    tensor->dtype_name = (*dtype)->name;
    tensor->dtype = (*dtype)->dtype;
    return WEIR_OK;
}

static int read_shape(const struct opening *opening, struct weir__safetensor *tensor,
                      json_t *shape) {
    size_t rank = json_array_size(shape);
    if (!json_is_array(shape)) {
        return REFUSE(opening, "tensor '%.*s' has a shape that is not a list", NAME_SHOWN,
                      tensor->name);
    }
    if (rank > WEIR__SAFETENSORS_RANK_MAX) {
        return refuse(opening, WEIR_ERR_UNSUPPORTED,
                      "tensor '%.*s' has %zu dimensions, more than the %d that Weir reads",
                      NAME_SHOWN, tensor->name, rank, WEIR__SAFETENSORS_RANK_MAX);
    }
    for (size_t i = 0; i < rank; i++) {
        json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0) {
            return REFUSE(opening, "tensor '%.*s' has a shape whose size %zu is no integer >= 0",
                          NAME_SHOWN, tensor->name, i);
        }
        tensor->shape[i] = json_integer_value(size);
    }
    tensor->rank = (uint32_t)rank;
    return WEIR_OK;
}

int weir__safetensors_bytes(const struct weir__safetensors_dtype *dtype, uint32_t rank,
                            const int64_t *shape, size_t *bytes) {
    size_t count = 1;
    for (uint32_t i = 0; i < rank; i++) {
        assert(shape[i] >= 0);
        if (!weir__multiply(count, (size_t)shape[i], &count)) {
            return WEIR_ERR_OVERFLOW;
        }
    }
    size_t bits = 0;
    if (!weir__multiply(count, dtype->bits, &bits)) {
        return WEIR_ERR_OVERFLOW;
    }
    if (bits % 8 != 0) {
        return WEIR_ERR_SHAPE;
    }
    *bytes = bits / 8;
    return WEIR_OK;
}

/* Rule 9 as far as one tensor goes: forwards, inside the buffer, and as long as the shape says. */
static int read_offsets(const struct opening *opening, struct weir__safetensor *tensor,
                        json_t *offsets) {
    json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second) ||
        json_integer_value(first) < 0 || json_integer_value(second) < 0) {
        return REFUSE(opening, "tensor '%.*s' has data_offsets that are not two integers >= 0",
                      NAME_SHOWN, tensor->name);
    }
    unsigned long long begin = (unsigned long long)json_integer_value(first);
    unsigned long long end = (unsigned long long)json_integer_value(second);
    if (begin > end) {
        return REFUSE(opening, "tensor '%.*s' has data_offsets [%llu, %llu] that run backwards",
                      NAME_SHOWN, tensor->name, begin, end);
    }
    if (end > opening->buffer_bytes) {
        return REFUSE(opening,
                      "tensor '%.*s' has data_offsets [%llu, %llu] outside the buffer of %zu bytes",
                      NAME_SHOWN, tensor->name, begin, end, opening->buffer_bytes);
    }
    if (end - begin != tensor->bytes) {
        char text[96];
        return REFUSE(opening,
                      "tensor '%.*s' is %s, %zu bytes, but its data_offsets [%llu, %llu] hold %llu",
                      NAME_SHOWN, tensor->name, weir__safetensor_text(tensor, text, sizeof(text)),
                      tensor->bytes, begin, end, end - begin);
    }
    tensor->data = opening->buffer + begin;
    return WEIR_OK;
}

static int read_tensor(const struct opening *opening, const char *name, json_t *entry,
                       struct weir__safetensor *tensor) {
    const struct weir__safetensors_dtype *dtype = NULL;
    char text[96];
    tensor->name = name;
    int status = check_keys(opening, name, entry);
    if (!status) {
        status = read_dtype(opening, tensor, json_object_get(entry, "dtype"), &dtype);
    }
    if (!status) {
        status = read_shape(opening, tensor, json_object_get(entry, "shape"));
    }
    if (status) {
        return status;
    }
    switch (weir__safetensors_bytes(dtype, tensor->rank, tensor->shape, &tensor->bytes)) {
    case WEIR_OK: return read_offsets(opening, tensor, json_object_get(entry, "data_offsets"));
    case WEIR_ERR_SHAPE:
        return REFUSE(opening, "tensor '%.*s' is %s, which is no whole number of bytes", NAME_SHOWN,
                      name, weir__safetensor_text(tensor, text, sizeof(text)));
    default:
        return REFUSE(opening, "tensor '%.*s' is %s, whose size in bytes overflows", NAME_SHOWN,
                      name, weir__safetensor_text(tensor, text, sizeof(text)));
    }
}

/* ---- the buffer ---- */

static int compare_places(const void *left, const void *right) {
    const struct weir__safetensor *a = left, *b = right;
    if (a->data != b->data) {
        return (const char *)a->data < (const char *)b->data ? -1 : 1;
    }
    if (a->bytes != b->bytes) {
        return a->bytes < b->bytes ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

static int compare_names(const void *left, const void *right) {
    const struct weir__safetensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

/* The rest of rule 9, and 10: in order of place, each tensor begins where the last one ended. */
static int check_cover(const struct opening *opening) {
    const struct weir__safetensors *file = opening->file;
    const char *expected = opening->buffer;
    for (uint32_t i = 0; i < file->count; i++) {
        const struct weir__safetensor *tensor = &file->tensors[i];
        const char *begin = tensor->data;
        if (begin < expected) {
            return REFUSE(opening, "tensors '%.*s' and '%.*s' overlap", NAME_SHOWN,
                          file->tensors[i - 1].name, NAME_SHOWN, tensor->name);
        }
        if (begin > expected) {
            return REFUSE(opening, "a hole of %zu bytes before tensor '%.*s'",
                          (size_t)(begin - expected), NAME_SHOWN, tensor->name);
        }
        expected = begin + tensor->bytes;
    }
    size_t rest = opening->buffer_bytes - (size_t)(expected - opening->buffer);
    if (rest > 0) {
        return REFUSE(opening, "the last %zu bytes belong to no tensor", rest);
    }
    return WEIR_OK;
}

/* Rules 6 to 10. */
static int read_entries(struct opening *opening) {
    struct weir__safetensors *file = opening->file;
    json_t *metadata = json_object_get(file->header, "__metadata__"), *entry;
    const char *name;
    size_t count = json_object_size(file->header) - (metadata ? 1 : 0);
    int status = check_metadata(opening, metadata);
    if (status) {
        return status;
    }
    if (count > opening->limits.tensors) {
        return refuse(opening, WEIR_ERR_UNSUPPORTED, "%zu tensors are more than the limit of %u",
                      count, opening->limits.tensors);
    }
    file->count = (uint32_t)count;
    file->tensors = weir__acquire(file->allocator, count, sizeof(*file->tensors));
    file->by_name = weir__acquire(file->allocator, count, sizeof(*file->by_name));
    if (!file->tensors || !file->by_name) {
        return refuse(opening, WEIR_ERR_OUT_OF_MEMORY, "out of memory for %zu tensors", count);
    }
    struct weir__safetensor *next = file->tensors;
    json_object_foreach(file->header, name, entry) {
        if (entry == metadata) {
            continue;
        }
        status = read_tensor(opening, name, entry, next++);
        if (status) {
            return status;
        }
    }
    qsort(file->tensors, count, sizeof(*file->tensors), compare_places);
    for (size_t i = 0; i < count; i++) {
        file->by_name[i] = &file->tensors[i];
    }
    qsort(file->by_name, count, sizeof(*file->by_name), compare_names);
    return check_cover(opening);
}

/* ---- opening and using ---- */

/* Maps the whole file; the descriptor is not needed afterwards. */
static int map_file(struct opening *opening) {
    const struct weir__io_calls *calls = opening->file->calls;
    struct stat facts;
    int descriptor = weir__io_open(opening->io, opening->path, O_RDONLY, 0);
    if (descriptor < 0) {
        return weir__io_fail(opening->io, errno, "open", opening->path);
    }
    int status = WEIR_OK;
    if (calls->fstat(descriptor, &facts) != 0) {
        status = weir__io_fail(opening->io, errno, "read", opening->path);
    } else if (S_ISDIR(facts.st_mode)) {
        status = weir__io_fail(opening->io, EISDIR, "read", opening->path);
    } else if (!S_ISREG(facts.st_mode)) {
        status = refuse(opening, WEIR_ERR_IO, "not a file but a pipe or device: name a file");
    } else if (facts.st_size < LENGTH_BYTES) {
        status = REFUSE(opening,
                        "%lld bytes are too few for a safetensors file, which begins "
                        "with 8 bytes of length",
                        (long long)facts.st_size);
    } else {
        opening->file->map = calls->map(descriptor, (size_t)facts.st_size);
        opening->file->map_bytes = (size_t)facts.st_size;
        if (!opening->file->map) {
            status = weir__io_fail(opening->io, errno, "map", opening->path);
        }
    }
    calls->close(descriptor); /* read only: a failure loses nothing */
    return status;
}

int weir__safetensors_open(const struct weir__io *io, const char *path,
                           const struct weir__safetensors_limits *limits,
                           struct weir__safetensors **file) {
    struct opening opening = {.io = io, .path = path};
    opening.limits.header_bytes = WEIR__SAFETENSORS_HEADER_MAX;
    opening.limits.tensors = TENSORS_MAX;
    if (limits && limits->header_bytes) {
        opening.limits.header_bytes = limits->header_bytes;
    }
    if (limits && limits->tensors) {
        opening.limits.tensors = limits->tensors;
    }
    opening.file = weir__acquire(io->allocator, 1, sizeof(*opening.file));
    if (!opening.file) {
        return weir__io_fail(io, ENOMEM, "open", path);
    }
    opening.file->allocator = io->allocator;
    opening.file->calls = weir__io_calls_of(io);
    int status = map_file(&opening);
    if (!status) {
        status = parse_header(&opening);
    }
    if (!status) {
        status = read_entries(&opening);
    }
    if (status) {
        weir__safetensors_close(opening.file);
        return status;
    }
    *file = opening.file;
    return WEIR_OK;
}

void weir__safetensors_close(struct weir__safetensors *file) {
    if (!file) {
        return;
    }
    weir__release(file->allocator, file->by_name, file->count, sizeof(*file->by_name));
    weir__release(file->allocator, file->tensors, file->count, sizeof(*file->tensors));
    json_decref(file->header);
    if (file->map) {
        file->calls->unmap(file->map, file->map_bytes);
    }
    weir__release(file->allocator, file, 1, sizeof(*file));
}

uint32_t weir__safetensors_count(const struct weir__safetensors *file) {
    return file->count;
}

const struct weir__safetensor *weir__safetensors_get(const struct weir__safetensors *file,
                                                     uint32_t index) {
    assert(index < file->count);
    return &file->tensors[index];
}

const struct weir__safetensor *weir__safetensors_find(const struct weir__safetensors *file,
                                                      const char *name) {
    const struct weir__safetensor wanted = {.name = name}, *key = &wanted;
    const struct weir__safetensor **found =
        bsearch(&key, file->by_name, file->count, sizeof(*file->by_name), compare_names);
    return found ? *found : NULL;
}

const char *weir__safetensors_metadata(const struct weir__safetensors *file, const char *key) {
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

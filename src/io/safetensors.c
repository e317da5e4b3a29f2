/* SPDX-License-Identifier: MIT */
/*
 * The safetensors reader: what is around the header and between its tensors. Everything is checked
 * when the file is opened, so that whoever uses a tensor later may trust its shape and pointer.
 * Sorting, for whatever stands twice or overlaps, is the one step that is not linear; no hash
 * table is, against a header made for it.
 */
#include "io/safetensors.h"

#include "io/safetensors_header.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian, and so must the machine be"
#endif

#define LENGTH_BYTES 8
#define TENSORS_MAX 1000000u
#define NAME_SHOWN 64
#define TEXT_BYTES 64 /* which tell a text */
#define WAY_OUT ": give weights that Weir or the package safetensors saved"

struct weir__safetensors {
    const struct weir_allocator *allocator;
    const struct weir__io_calls *calls;
    void *map;
    size_t map_bytes;
    size_t header_bytes;                     /* with the length before it */
    struct weir__safetensors_header header;  /* tensors by place in the buffer, metadata by key */
    const struct weir__safetensor **by_name; /* sorted; NULL until all is read */
};

/* What the steps of an opening share. */
struct opening {
    struct weir__safetensors_source source;
    size_t header_bytes_max;
    struct weir__safetensors *file;
};

#define REFUSE(opening, ...)                                                                       \
    weir__safetensors_refuse(&(opening)->source, WEIR_ERR_FORMAT, __VA_ARGS__)

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

/* ---- shapes ---- */

const char *weir__safetensor_text(const struct weir__safetensor *tensor, char *text,
                                  size_t capacity) {
    assert(capacity > 0);
    int used = snprintf(text, capacity, "%s [", tensor->dtype_name);
    for (uint32_t i = 0; i < tensor->rank && used >= 0 && (size_t)used < capacity; i++)
        used += snprintf(text + used, capacity - (size_t)used, "%s%lld", i ? ", " : "",
                         (long long)tensor->shape[i]);
    if (used >= 0 && (size_t)used < capacity) snprintf(text + used, capacity - (size_t)used, "]");
    return text;
}

int weir__safetensors_bytes(const struct weir__safetensors_dtype *dtype, uint32_t rank,
                            const int64_t *shape, size_t *bytes) {
    assert(rank <= WEIR__SAFETENSORS_RANK_MAX);
    size_t count = 1;
    for (uint32_t i = 0; i < rank; i++) {
        assert(shape[i] >= 0);
        if (!weir__multiply(count, (size_t)shape[i], &count)) return WEIR_ERR_OVERFLOW;
    }
    size_t bits = 0;
    if (!weir__multiply(count, dtype->bits, &bits)) return WEIR_ERR_OVERFLOW;
    if (bits % 8 != 0) return WEIR_ERR_SHAPE;
    *bytes = bits / 8;
    return WEIR_OK;
}

/* ---- the header's length and text ---- */

static bool is_continuation(unsigned char byte) {
    return (byte & 0xC0u) == 0x80u;
}

/* Bytes of the sequence at `text`, 0 if it is none. */
static size_t utf8_sequence(const unsigned char *text, size_t bytes) {
    assert(bytes > 0);
    unsigned char first = text[0];
    size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (length == 1) return 1;
    if (first < 0xC2 || first > 0xF4 || bytes < length) return 0;
    for (size_t i = 1; i < length; i++) {
        if (!is_continuation(text[i])) return 0;
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
        if (length == 0) return false;
        i += length;
    }
    return true;
}

static uint64_t little_endian(const unsigned char *bytes) {
    uint64_t value = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) value = value << 8 | bytes[i];
    return value;
}

static bool is_text(const char *map, size_t bytes) {
    size_t shown = bytes < TEXT_BYTES ? bytes : TEXT_BYTES;
    for (size_t i = 0; i < shown; i++) {
        unsigned char byte = (unsigned char)map[i];
        if ((byte < ' ' && (byte < '\t' || byte > '\r')) || byte == 0x7F) return false;
    }
    return true;
}

/* What a file is that has no header, and what to do about it; NULL where nothing says so. */
static const char *what_else(const char *map, size_t bytes) {
    static const struct {
        const char *begin, *what;
    } kinds[] = {
        {"PK\3\4", "it is one of torch.save: save the weights by safetensors.torch.save_file"},
        {"GGUF", "it is a GGUF file, which is not read: give the weights it was made from"},
        {"\x93NUMPY", "it is a NumPy array: save the weights by safetensors.numpy.save_file"},
        {"\x1F\x8B", "it is compressed by gzip: unpack it"},
        {"version https://git-lfs",
         "it is a pointer of Git LFS: fetch the file by 'git lfs pull'"}};
    assert(map != NULL && bytes >= LENGTH_BYTES);
    if (bytes > LENGTH_BYTES && map[LENGTH_BYTES] == '{') return NULL;
    if (map[0] == '\x80' && map[1] < 6) return kinds[0].what; /* without the archive around it */
    for (size_t i = 0; i < WEIR__COUNT_OF(kinds); i++) {
        size_t length = strlen(kinds[i].begin);
        if (bytes >= length && memcmp(map, kinds[i].begin, length) == 0) return kinds[i].what;
    }
    return is_text(map, bytes)
               ? "it is text: give weights, as Weir or the package safetensors saves"
               : NULL;
}

/* Rules 1 to 5; what follows the header is the buffer. */
static int find_header(struct opening *opening) {
    assert(opening->file->map_bytes >= LENGTH_BYTES);
    struct weir__safetensors_source *source = &opening->source;
    const char *map = opening->file->map;
    size_t rest = opening->file->map_bytes - LENGTH_BYTES;
    uint64_t length = little_endian((const unsigned char *)map);
    const char *other = what_else(map, opening->file->map_bytes);
    if (other) return REFUSE(opening, "not a safetensors file: %s", other);
    if (length > opening->header_bytes_max)
        return REFUSE(opening, "the header has %llu bytes, more than the limit of %zu" WAY_OUT,
                      (unsigned long long)length, opening->header_bytes_max);
    if (length > rest)
        return REFUSE(opening,
                      "the header has %llu byte%s, but only %zu follow its length: the file is cut",
                      (unsigned long long)length, weir__s(length), rest);
    source->text = map + LENGTH_BYTES;
    source->text_bytes = (size_t)length;
    if (length == 0 || source->text[0] != '{') {
        return REFUSE(opening,
                      "the header does not begin with '{': not a safetensors file" WAY_OUT);
    }
    if (!weir__utf8_valid(source->text, source->text_bytes))
        return REFUSE(opening, "the header is not UTF-8");
    opening->file->header_bytes = LENGTH_BYTES + source->text_bytes;
    source->buffer = source->text + source->text_bytes;
    source->buffer_bytes = rest - source->text_bytes;
    return WEIR_OK;
}

/* ---- the buffer ---- */

static int compare_places(const void *left, const void *right) {
    const struct weir__safetensor *a = left, *b = right;
    if (a->data != b->data) return (const char *)a->data < (const char *)b->data ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int compare_names(const void *left, const void *right) {
    const struct weir__safetensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static int compare_keys(const void *left, const void *right) {
    const struct weir__safetensors_text *a = left, *b = right;
    return strcmp(a->key, b->key);
}

/* The rest of rule 6, once names and keys are sorted. */
static int check_unique(const struct opening *opening) {
    const struct weir__safetensors *file = opening->file;
    const struct weir__safetensors_header *header = &file->header;
    for (uint32_t i = 1; i < header->tensor_count; i++) {
        if (compare_names(&file->by_name[i - 1], &file->by_name[i]) == 0)
            return REFUSE(opening, "the header has a key twice: '%.*s'", NAME_SHOWN,
                          file->by_name[i]->name);
    }
    for (uint32_t i = 1; i < header->metadata_count; i++) {
        if (compare_keys(&header->metadata[i - 1], &header->metadata[i]) == 0)
            return REFUSE(opening, "'__metadata__' has a key twice: '%.*s'", NAME_SHOWN,
                          header->metadata[i].key);
    }
    return WEIR_OK;
}

/* The rest of rule 9, and rule 10: each tensor begins where the one before it ends. */
static int check_cover(const struct opening *opening) {
    const struct weir__safetensors_header *header = &opening->file->header;
    const char *expected = opening->source.buffer;
    for (uint32_t i = 0; i < header->tensor_count; i++) {
        const struct weir__safetensor *tensor = &header->tensors[i];
        const char *begin = tensor->data;
        if (begin < expected)
            return REFUSE(opening, "tensors '%.*s' and '%.*s' overlap", NAME_SHOWN,
                          header->tensors[i - 1].name, NAME_SHOWN, tensor->name);
        if (begin > expected)
            return REFUSE(opening, "a hole of %zu byte%s before tensor '%.*s'",
                          (size_t)(begin - expected), weir__s(begin - expected), NAME_SHOWN,
                          tensor->name);
        expected = begin + tensor->bytes;
    }
    assert((size_t)(expected - opening->source.buffer) <= opening->source.buffer_bytes);
    size_t rest = opening->source.buffer_bytes - (size_t)(expected - opening->source.buffer);
    if (rest > 0)
        return REFUSE(opening, "the last %zu byte%s to no tensor", rest,
                      rest == 1 ? " belongs" : "s belong");
    return WEIR_OK;
}

/* Most files are in order already, and then this is linear. */
static void sort(void *list, uint32_t count, size_t bytes,
                 int (*compare)(const void *, const void *)) {
    const char *at = list;
    for (uint32_t i = 1; i < count; i++, at += bytes) {
        if (compare(at, at + bytes) > 0) {
            qsort(list, count, bytes, compare);
            return;
        }
    }
}

/* Rules 6 to 10. */
static int read_entries(struct opening *opening) {
    struct weir__safetensors *file = opening->file;
    struct weir__safetensors_header *header = &file->header;
    int status = weir__safetensors_header_read(&opening->source, header);
    if (status != WEIR_OK) return status;
    uint32_t count = header->tensor_count;
    file->by_name = weir__acquire(file->allocator, count, sizeof *file->by_name);
    if (!file->by_name)
        return weir__io_fail(opening->source.io, ENOMEM, "open", opening->source.path);
    sort(header->tensors, count, sizeof *header->tensors, compare_places);
    for (uint32_t i = 0; i < count; i++) file->by_name[i] = &header->tensors[i];
    sort(file->by_name, count, sizeof *file->by_name, compare_names);
    sort(header->metadata, header->metadata_count, sizeof *header->metadata, compare_keys);
    if ((status = check_unique(opening)) != WEIR_OK) return status;
    return check_cover(opening);
}

/* ---- opening and using ---- */

/* Maps the whole file; the descriptor is not needed afterwards. */
static int map_file(struct opening *opening) {
    const struct weir__io_calls *calls = opening->file->calls;
    const struct weir__safetensors_source *source = &opening->source;
    struct stat facts;
    /* Without O_NONBLOCK a pipe that nobody writes to would be waited for, and then refused. */
    int descriptor = weir__io_open(source->io, source->path, O_RDONLY | O_NONBLOCK, 0);
    if (descriptor < 0) return weir__io_fail(source->io, errno, "open", source->path);
    int status = WEIR_OK;
    if (calls->fstat(descriptor, &facts) != 0) {
        status = weir__io_fail(source->io, errno, "read", source->path);
    } else if (S_ISDIR(facts.st_mode)) {
        status = weir__io_fail(source->io, EISDIR, "read", source->path);
    } else if (!S_ISREG(facts.st_mode)) {
        status = weir__safetensors_refuse(source, WEIR_ERR_IO,
                                          "not a file but a pipe or device: name a file");
    } else if (facts.st_size < LENGTH_BYTES) {
        status = REFUSE(opening,
                        "%lld byte%s too few for a safetensors file, which begins "
                        "with 8 bytes of length",
                        (long long)facts.st_size, weir__s_are((uint64_t)facts.st_size));
    } else {
        opening->file->map = calls->map(descriptor, (size_t)facts.st_size);
        opening->file->map_bytes = (size_t)facts.st_size;
        if (!opening->file->map) status = weir__io_fail(source->io, errno, "map", source->path);
    }
    calls->close(descriptor); /* read only: a failure loses nothing */
    return status;
}

int weir__safetensors_open(const struct weir__io *io, const char *path,
                           const struct weir__safetensors_limits *limits,
                           struct weir__safetensors **file) {
    assert(path != NULL && file != NULL);
    bool limited = limits && limits->header_bytes;
    struct opening opening = {.source = {.io = io, .path = path, .tensors_max = TENSORS_MAX},
                              .header_bytes_max =
                                  limited ? limits->header_bytes : WEIR__SAFETENSORS_HEADER_MAX};
    if (limits && limits->tensors) opening.source.tensors_max = limits->tensors;
    opening.file = weir__acquire(io->allocator, 1, sizeof *opening.file);
    if (!opening.file) return weir__io_fail(io, ENOMEM, "open", path);
    opening.file->allocator = io->allocator;
    opening.file->calls = weir__io_calls_of(io);
    int status = map_file(&opening);
    if (status != WEIR_OK) goto fail;
    if ((status = find_header(&opening)) != WEIR_OK) goto fail;
    if ((status = read_entries(&opening)) != WEIR_OK) goto fail;
    *file = opening.file;
    return WEIR_OK;

fail:
    weir__safetensors_close(opening.file);
    return status;
}

void weir__safetensors_close(struct weir__safetensors *file) {
    if (!file) return;
    weir__release(file->allocator, file->by_name, file->header.tensor_count, sizeof *file->by_name);
    weir__safetensors_header_clean_up(&file->header);
    if (file->map) file->calls->unmap(file->map, file->map_bytes);
    weir__release(file->allocator, file, 1, sizeof *file);
}

uint32_t weir__safetensors_count(const struct weir__safetensors *file) {
    return file->header.tensor_count;
}

const struct weir__safetensor *weir__safetensors_get(const struct weir__safetensors *file,
                                                     uint32_t index) {
    assert(index < file->header.tensor_count);
    return &file->header.tensors[index];
}

const struct weir__safetensor *weir__safetensors_find(const struct weir__safetensors *file,
                                                      const char *name) {
    assert(name != NULL);
    const struct weir__safetensor wanted = {.name = name}, *key = &wanted;
    const struct weir__safetensor **found = bsearch(&key, file->by_name, file->header.tensor_count,
                                                    sizeof *file->by_name, compare_names);
    return found ? *found : NULL;
}

const char *weir__safetensors_metadata(const struct weir__safetensors *file, const char *key) {
    const struct weir__safetensors_text wanted = {.key = key}, *found = NULL;
    if (file->header.metadata_count > 0)
        found = bsearch(&wanted, file->header.metadata, file->header.metadata_count,
                        sizeof *file->header.metadata, compare_keys);
    return found ? found->value : NULL;
}

const struct weir__safetensors_text *weir__safetensors_texts(const struct weir__safetensors *file,
                                                             uint32_t *count) {
    *count = file->header.metadata_count;
    return file->header.metadata;
}

size_t weir__safetensors_size(const struct weir__safetensors *file) {
    return file->map_bytes;
}

uint64_t weir__safetensors_digest(const struct weir__safetensors *file, bool header) {
    assert(file->header_bytes <= file->map_bytes);
    return weir__xxh64(file->map, header ? file->header_bytes : file->map_bytes);
}

/* Pages that it shares with its neighbours stay. */
void weir__safetensors_drop(const struct weir__safetensors *file,
                            const struct weir__safetensor *tensor) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), begin = 0;
    size_t at = (size_t)((const char *)tensor->data - (const char *)file->map);
    size_t end = (at + tensor->bytes) / page * page;
    assert(at + tensor->bytes <= file->map_bytes);
    if (weir__round_up(at, page, &begin) && begin < end)
        file->calls->drop((char *)file->map + begin, end - begin);
}

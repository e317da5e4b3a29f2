/* SPDX-License-Identifier: MIT */
/*
 * Reads a safetensors header straight into its entries. A tree of JSON values would come first in
 * most programs; made of a hostile header (16 MiB of "{},") it took 79 times the header's memory
 * and 2.4 s, where this stops at the first value that is not what the format wants there.
 */
#include "io/safetensors_header.h"

#include "io/json_scan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAME_SHOWN 64
#define METADATA "__metadata__"
#define ENTRIES_FIRST 16u

/* The entry at hand, besides what struct weir__safetensor has room for. */
struct header_entry {
    const char *name;
    const struct weir__safetensors_dtype *dtype;
    int64_t begin, end;
    unsigned seen; /* bits of the members so far */
};

struct header_reader {
    const struct weir__safetensors_source *source;
    struct weir__safetensors_header *header;
    struct weir__json_scan scan;
    struct header_entry entry;
    bool metadata_seen;
};

/* ---- messages ---- */

int weir__safetensors_refuse(const struct weir__safetensors_source *source, int status,
                             const char *format, ...) {
    assert(status != WEIR_OK);
    char reason[256], shortened[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return weir__fail(source->io->error, status, "%s: %s", weir__path_text(source->path, shortened),
                      reason);
}

#define REFUSE(reader, ...) weir__safetensors_refuse((reader)->source, WEIR_ERR_FORMAT, __VA_ARGS__)

static int refuse_syntax(const struct header_reader *reader) {
    assert(reader->scan.fault);
    return REFUSE(reader, "the header is not JSON, at byte %zu: %s",
                  (size_t)(reader->scan.at - reader->scan.begin), reader->scan.fault);
}

/* Of the tensor at hand; `reason` goes on after its name. A value that is none is another fault. */
static int refuse_value(struct header_reader *reader, const char *reason) {
    if (!weir__json_value_begins(&reader->scan)) return refuse_syntax(reader);
    return REFUSE(reader, "tensor '%.*s' %s", NAME_SHOWN, reader->entry.name, reason);
}

/* ---- growing ---- */

/* Makes room for one more of `count` elements; a limit keeps the doubling from overflowing. */
static int grow(const struct header_reader *reader, void **array, uint32_t count,
                uint32_t *capacity, size_t bytes) {
    assert(count <= *capacity);
    if (count < *capacity) return WEIR_OK;
    const struct weir_allocator *allocator = reader->header->allocator;
    uint32_t doubled = *capacity ? *capacity * 2 : ENTRIES_FIRST;
    void *larger = doubled > *capacity ? weir__acquire(allocator, doubled, bytes) : NULL;
    if (!larger) return weir__io_fail(reader->source->io, ENOMEM, "open", reader->source->path);
    if (count > 0) memcpy(larger, *array, count * bytes);
    weir__release(allocator, *array, *capacity, bytes);
    *array = larger;
    *capacity = doubled;
    return WEIR_OK;
}

/* ---- metadata ---- */

static int read_text(struct header_reader *reader) {
    struct weir__safetensors_header *header = reader->header;
    struct weir__safetensors_text text;
    if (!weir__json_key(&reader->scan, &text.key)) return refuse_syntax(reader);
    if (weir__json_peek(&reader->scan) != '"' && weir__json_value_begins(&reader->scan))
        return REFUSE(reader, "'" METADATA "' has a value that is not text, at '%.*s'", NAME_SHOWN,
                      text.key);
    if (!weir__json_string(&reader->scan, &text.value)) return refuse_syntax(reader);
    void *array = header->metadata;
    int status = grow(reader, &array, header->metadata_count, &header->metadata_capacity,
                      sizeof *header->metadata);
    header->metadata = array;
    if (status != WEIR_OK) return status;
    header->metadata[header->metadata_count++] = text;
    return WEIR_OK;
}

static int read_metadata(struct header_reader *reader) {
    bool first = true;
    if (reader->metadata_seen) return REFUSE(reader, "the header has a key twice: '" METADATA "'");
    reader->metadata_seen = true;
    if (!weir__json_take(&reader->scan, '{'))
        return weir__json_value_begins(&reader->scan)
                   ? REFUSE(reader, "'" METADATA "' is not an object of texts")
                   : refuse_syntax(reader);
    while (weir__json_more(&reader->scan, '}', &first)) {
        int status = read_text(reader);
        if (status != WEIR_OK) return status;
    }
    return reader->scan.fault ? refuse_syntax(reader) : WEIR_OK;
}

/* ---- the members of a tensor ---- */

static const struct weir__safetensors_dtype *dtype_of(const char *name) {
    for (size_t i = 0; i < WEIR__SAFETENSORS_DTYPES; i++) {
        if (strcmp(weir__safetensors_dtypes[i].name, name) == 0)
            return &weir__safetensors_dtypes[i];
    }
    return NULL;
}

static int read_dtype(struct header_reader *reader, struct weir__safetensor *tensor) {
    const char *name;
    if (weir__json_peek(&reader->scan) != '"')
        return refuse_value(reader, "has a dtype that is not text");
    if (!weir__json_string(&reader->scan, &name)) return refuse_syntax(reader);
    reader->entry.dtype = dtype_of(name);
    if (!reader->entry.dtype)
        return REFUSE(reader, "tensor '%.*s' has the unknown dtype '%.32s'", NAME_SHOWN,
                      tensor->name, name);
    tensor->dtype_name = reader->entry.dtype->name;
    tensor->dtype = reader->entry.dtype->dtype;
    return WEIR_OK;
}

static int read_shape(struct header_reader *reader, struct weir__safetensor *tensor) {
    bool first = true;
    if (!weir__json_take(&reader->scan, '['))
        return refuse_value(reader, "has a shape that is not a list");
    while (weir__json_more(&reader->scan, ']', &first)) {
        if (tensor->rank == WEIR__SAFETENSORS_RANK_MAX)
            return weir__safetensors_refuse(
                reader->source, WEIR_ERR_UNSUPPORTED,
                "tensor '%.*s' has more than the %d dimensions that Weir reads", NAME_SHOWN,
                tensor->name, WEIR__SAFETENSORS_RANK_MAX);
        if (!weir__json_natural(&reader->scan, &tensor->shape[tensor->rank])) {
            char reason[80];
            snprintf(reason, sizeof reason,
                     "has a shape whose size %u is no integer >= 0 below 2^63", tensor->rank);
            return refuse_value(reader, reason);
        }
        tensor->rank++;
    }
    return reader->scan.fault ? refuse_syntax(reader) : WEIR_OK;
}

static int read_offsets(struct header_reader *reader, struct weir__safetensor *tensor) {
    static const char wrong[] = "has data_offsets that are not two integers >= 0 below 2^63";
    (void)tensor;
    int64_t *const places[] = {&reader->entry.begin, &reader->entry.end};
    uint32_t count = 0;
    bool first = true;
    if (!weir__json_take(&reader->scan, '[')) return refuse_value(reader, wrong);
    while (weir__json_more(&reader->scan, ']', &first)) {
        if (count == 2 || !weir__json_natural(&reader->scan, places[count]))
            return refuse_value(reader, wrong);
        count++;
    }
    if (reader->scan.fault) return refuse_syntax(reader);
    return count == 2 ? WEIR_OK
                      : REFUSE(reader, "tensor '%.*s' %s", NAME_SHOWN, reader->entry.name, wrong);
}

static const struct member {
    const char *name;
    int (*read)(struct header_reader *reader, struct weir__safetensor *tensor);
} members[] = {{"dtype", read_dtype}, {"shape", read_shape}, {"data_offsets", read_offsets}};
#define MEMBERS WEIR__COUNT_OF(members)

/* An unknown key is refused: it may be the misspelling of one that is missing. */
static int read_member(struct header_reader *reader, struct weir__safetensor *tensor) {
    assert(tensor->name == reader->entry.name);
    const char *key;
    unsigned m = 0;
    if (!weir__json_key(&reader->scan, &key)) return refuse_syntax(reader);
    while (m < MEMBERS && strcmp(members[m].name, key) != 0) m++;
    if (m == MEMBERS)
        return REFUSE(reader, "tensor '%.*s' has the unknown key '%.*s'", NAME_SHOWN, tensor->name,
                      NAME_SHOWN, key);
    if (reader->entry.seen & 1u << m)
        return REFUSE(reader, "tensor '%.*s' has a key twice: '%s'", NAME_SHOWN, tensor->name, key);
    reader->entry.seen |= 1u << m;
    return members[m].read(reader, tensor);
}

/* ---- a tensor ---- */

/* Rule 9 as far as one tensor goes: forwards, inside the buffer, and as long as the shape says. */
static int check_offsets(const struct header_reader *reader, struct weir__safetensor *tensor) {
    assert(reader->entry.begin >= 0 && reader->entry.end >= 0);
    unsigned long long begin = (unsigned long long)reader->entry.begin;
    unsigned long long end = (unsigned long long)reader->entry.end;
    char text[96];
    if (begin > end)
        return REFUSE(reader, "tensor '%.*s' has data_offsets [%llu, %llu] that run backwards",
                      NAME_SHOWN, tensor->name, begin, end);
    if (end > reader->source->buffer_bytes)
        return REFUSE(
            reader,
            "tensor '%.*s' has data_offsets [%llu, %llu] outside the buffer of %zu bytes: "
            "the file is cut, or damaged: get it once more",
            NAME_SHOWN, tensor->name, begin, end, reader->source->buffer_bytes);
    if (end - begin != tensor->bytes)
        return REFUSE(reader,
                      "tensor '%.*s' is %s, %zu bytes, but its data_offsets [%llu, %llu] hold %llu",
                      NAME_SHOWN, tensor->name, weir__safetensor_text(tensor, text, sizeof text),
                      tensor->bytes, begin, end, end - begin);
    tensor->data = reader->source->buffer + begin;
    return WEIR_OK;
}

static int check_tensor(const struct header_reader *reader, struct weir__safetensor *tensor) {
    char text[96];
    for (unsigned m = 0; m < MEMBERS; m++) {
        if (!(reader->entry.seen & 1u << m))
            return REFUSE(reader, "tensor '%.*s' has no '%s'", NAME_SHOWN, tensor->name,
                          members[m].name);
    }
    switch (
        weir__safetensors_bytes(reader->entry.dtype, tensor->rank, tensor->shape, &tensor->bytes)) {
    case WEIR_OK: return check_offsets(reader, tensor);
    case WEIR_ERR_SHAPE:
        return REFUSE(reader, "tensor '%.*s' is %s, which is no whole number of bytes", NAME_SHOWN,
                      tensor->name, weir__safetensor_text(tensor, text, sizeof text));
    default:
        return REFUSE(reader, "tensor '%.*s' is %s, whose size in bytes overflows", NAME_SHOWN,
                      tensor->name, weir__safetensor_text(tensor, text, sizeof text));
    }
}

static int read_members(struct header_reader *reader, struct weir__safetensor *tensor) {
    bool first = true;
    if (!weir__json_take(&reader->scan, '{')) return refuse_value(reader, "is not an object");
    while (weir__json_more(&reader->scan, '}', &first)) {
        int status = read_member(reader, tensor);
        if (status != WEIR_OK) return status;
    }
    return reader->scan.fault ? refuse_syntax(reader) : check_tensor(reader, tensor);
}

static int read_tensor(struct header_reader *reader, const char *name) {
    struct weir__safetensors_header *header = reader->header;
    if (header->tensor_count == reader->source->tensors_max)
        return weir__safetensors_refuse(reader->source, WEIR_ERR_UNSUPPORTED,
                                        "more tensors than the limit of %u",
                                        reader->source->tensors_max);
    void *array = header->tensors;
    int status = grow(reader, &array, header->tensor_count, &header->tensor_capacity,
                      sizeof *header->tensors);
    header->tensors = array;
    if (status != WEIR_OK) return status;
    reader->entry = (struct header_entry){.name = name};
    assert(header->tensor_count < header->tensor_capacity);
    struct weir__safetensor *tensor = &header->tensors[header->tensor_count++];
    *tensor = (struct weir__safetensor){.name = name};
    return read_members(reader, tensor);
}

/* ---- all of it ---- */

static int read_entries(struct header_reader *reader) {
    struct weir__json_scan *scan = &reader->scan;
    const char *name;
    bool first = true, begins = weir__json_take(scan, '{');
    assert(begins);
    (void)begins;
    while (weir__json_more(scan, '}', &first)) {
        if (!weir__json_key(scan, &name)) break;
        int status =
            strcmp(name, METADATA) == 0 ? read_metadata(reader) : read_tensor(reader, name);
        if (status != WEIR_OK) return status;
    }
    return scan->fault || !weir__json_ends(scan) ? refuse_syntax(reader) : WEIR_OK;
}

int weir__safetensors_header_read(const struct weir__safetensors_source *source,
                                  struct weir__safetensors_header *header) {
    struct header_reader reader = {.source = source, .header = header};
    *header = (struct weir__safetensors_header){.allocator = source->io->allocator,
                                                .text_bytes = source->text_bytes};
    header->texts = weir__acquire(header->allocator, source->text_bytes, 1);
    if (!header->texts) return weir__io_fail(source->io, ENOMEM, "open", source->path);
    weir__json_scan_init(&reader.scan, source->text, source->text_bytes, header->texts);
    return read_entries(&reader);
}

void weir__safetensors_header_clean_up(struct weir__safetensors_header *header) {
    weir__release(header->allocator, header->metadata, header->metadata_capacity,
                  sizeof *header->metadata);
    weir__release(header->allocator, header->tensors, header->tensor_capacity,
                  sizeof *header->tensors);
    weir__release(header->allocator, header->texts, header->text_bytes, 1);
    *header = (struct weir__safetensors_header){0};
}

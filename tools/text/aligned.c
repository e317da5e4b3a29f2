/* SPDX-License-Identifier: MIT */
#include "text/aligned.h"

#include "text/utf8.h"

#include <string.h>

bool text_reserve(const struct weir_allocator *allocator, void *array, size_t *capacity,
                  size_t count, size_t bytes) {
    assert(bytes > 0);
    void **place = array;
    if (count <= *capacity) return true;
    size_t larger = *capacity < 32 ? 64 : *capacity;
    while (larger < count)
        if (!weir__multiply(larger, 2, &larger)) return false;
    void *memory = weir__acquire(allocator, larger, bytes);
    if (memory == NULL) return false;
    if (*place != NULL) memcpy(memory, *place, *capacity * bytes);
    weir__release(allocator, *place, *capacity, bytes);
    *place = memory;
    *capacity = larger;
    return true;
}

void aligned_begin(struct aligned *text, bool wants_spans) {
    text->count = 0;
    text->wants_spans = wants_spans;
}

static int reserve(struct aligned *text, size_t more) {
    size_t count;
    if (!weir__add(text->count, more, &count)) return WEIR_ERR_OUT_OF_MEMORY;
    if (!text_reserve(text->allocator, &text->bytes, &text->capacity, count, 1))
        return WEIR_ERR_OUT_OF_MEMORY;
    if (text->wants_spans && !text_reserve(text->allocator, &text->spans, &text->span_capacity,
                                           count, sizeof text->spans[0]))
        return WEIR_ERR_OUT_OF_MEMORY;
    return WEIR_OK;
}

int aligned_add(struct aligned *text, const char *bytes, size_t count, struct text_span span) {
    int status = reserve(text, count);
    if (status != WEIR_OK || count == 0) return status;
    memcpy(text->bytes + text->count, bytes, count);
    for (size_t i = 0; i < count && text->wants_spans; i++) text->spans[text->count + i] = span;
    text->count += count;
    return WEIR_OK;
}

int aligned_copy(struct aligned *text, const struct aligned *from, size_t begin, size_t end) {
    assert(begin <= end && end <= from->count);
    int status = reserve(text, end - begin);
    if (status != WEIR_OK || begin == end) return status;
    memcpy(text->bytes + text->count, from->bytes + begin, end - begin);
    if (text->wants_spans)
        memcpy(text->spans + text->count, from->spans + begin,
               (end - begin) * sizeof text->spans[0]);
    text->count += end - begin;
    return WEIR_OK;
}

int aligned_add_plain(struct aligned *text, const char *bytes, size_t count, size_t offset) {
    int status = reserve(text, count);
    if (status != WEIR_OK || count == 0) return status;
    memcpy(text->bytes + text->count, bytes, count);
    for (size_t at = 0; at < count && text->wants_spans;) {
        size_t length = utf8_length((unsigned char)bytes[at]);
        struct text_span span = {(uint32_t)(offset + at), (uint32_t)(offset + at + length)};
        for (size_t i = 0; i < length; i++) text->spans[text->count + at + i] = span;
        at += length;
    }
    text->count += count;
    return WEIR_OK;
}

void aligned_clean_up(struct aligned *text) {
    weir__release(text->allocator, text->bytes, text->capacity, 1);
    weir__release(text->allocator, text->spans, text->span_capacity, sizeof text->spans[0]);
    *text = (struct aligned){.allocator = text->allocator};
}

/* SPDX-License-Identifier: MIT */
/**
 * Text that knows where it comes from: with each byte, on demand, the bytes of the original text
 * that it stands for. Grows; keeps its memory when it is emptied. One thread at a time.
 */
#ifndef WEIR_TEXT_ALIGNED_H
#define WEIR_TEXT_ALIGNED_H

#include "base/base.h"

/** Bytes begin … end - 1 of the original text. */
struct text_span {
    uint32_t begin, end;
};

struct aligned {
    const struct weir_allocator *allocator;
    char *bytes;             /**< owned */
    struct text_span *spans; /**< owned; one a byte where they are wanted, else NULL */
    size_t count, capacity, span_capacity;
    bool wants_spans;
};

/** Empties it. */
void aligned_begin(struct aligned *text, bool wants_spans);
/** Adds bytes that all stand for `span`. WEIR_ERR_OUT_OF_MEMORY. */
int aligned_add(struct aligned *text, const char *bytes, size_t count, struct text_span span);
/** Adds bytes of another text with their spans. WEIR_ERR_OUT_OF_MEMORY. */
int aligned_copy(struct aligned *text, const struct aligned *from, size_t begin, size_t end);
/** Adds a sound text that stands for itself from byte `offset` on, each character as a whole.
 * WEIR_ERR_OUT_OF_MEMORY. */
int aligned_add_plain(struct aligned *text, const char *bytes, size_t count, size_t offset);
/** Gives the memory back. Accepts a zeroed one. */
void aligned_clean_up(struct aligned *text);
/** Of a byte; of what is behind the last one, or where spans are not kept: 0, 0. */
static inline struct text_span aligned_span(const struct aligned *text, size_t at) {
    bool known = text->spans != NULL && text->wants_spans && at < text->count;
    return known ? text->spans[at] : (struct text_span){0, 0};
}

/** A growing array: room for `count` elements of `bytes` in all, at least doubled. `array` is where
 * the pointer to it is. False without memory. */
bool text_reserve(const struct weir_allocator *allocator, void *array, size_t *capacity,
                  size_t count, size_t bytes);

#endif

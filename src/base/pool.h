/* SPDX-License-Identifier: MIT */
/**
 * A pool: many small arrays with one life. What is built once and torn down as a whole (a pipe's
 * copied descriptions, a prepared row count's calls and views) is taken from a pool, so that a
 * failure half way needs no ladder of its own. Not thread-safe.
 */
#ifndef WEIR_POOL_H
#define WEIR_POOL_H

#include "base/base.h"

struct weir__pool_chunk;

struct weir__pool {
    const struct weir_allocator *allocator;
    struct weir__pool_chunk *chunks; /**< newest first */
    bool failed;                     /**< something could not be taken */
};

void weir__pool_init(struct weir__pool *pool, const struct weir_allocator *allocator);
/** `count` zeroed elements of `bytes`, 64-byte aligned, until clean_up; NULL without memory. Zero
 * elements give a valid pointer. */
void *weir__pool_take(struct weir__pool *pool, size_t count, size_t bytes);
/** A copy of `text` ("" for NULL), or NULL without memory. */
const char *weir__pool_text(struct weir__pool *pool, const char *text);
/** A copy of `count` elements, or NULL without memory. */
void *weir__pool_copy(struct weir__pool *pool, const void *source, size_t count, size_t bytes);
/** Makes room for one more element of `bytes` in an array, whose capacity doubles (the old one
 * stays in the pool). `array` is where the pointer to it is. False without memory. */
bool weir__pool_grow(struct weir__pool *pool, void *array, uint32_t count, uint32_t *capacity,
                     size_t bytes);
/** The same, and adds a copy of `element`. */
bool weir__pool_add(struct weir__pool *pool, void *array, uint32_t *count, uint32_t *capacity,
                    const void *element, size_t bytes);
/** Frees everything taken. */
void weir__pool_clean_up(struct weir__pool *pool);

#endif

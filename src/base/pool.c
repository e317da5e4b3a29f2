/* SPDX-License-Identifier: MIT */
/* Chunks of at least 16 KiB in a list; an array that does not fit the newest chunk opens another.
 */
#include "base/pool.h"

#include <string.h>

enum { CHUNK_BYTES = 16 << 10, ALIGNMENT = 64 };

struct weir__pool_chunk {
    struct weir__pool_chunk *next;
    size_t capacity; /* bytes of the whole block, this header included */
    size_t used;
};

void weir__pool_init(struct weir__pool *pool, const struct weir_allocator *allocator) {
    *pool = (struct weir__pool){.allocator = allocator};
}

static struct weir__pool_chunk *open_chunk(struct weir__pool *pool, size_t need) {
    size_t capacity = CHUNK_BYTES;
    if (need > CHUNK_BYTES - ALIGNMENT && !weir__add(need, ALIGNMENT, &capacity)) return NULL;
    struct weir__pool_chunk *chunk = weir__acquire(pool->allocator, capacity, 1);
    if (chunk == NULL) return NULL;
    chunk->next = pool->chunks;
    chunk->capacity = capacity;
    chunk->used = ALIGNMENT;
    pool->chunks = chunk;
    return chunk;
}

void *weir__pool_take(struct weir__pool *pool, size_t count, size_t bytes) {
    size_t need;
    bool fits = weir__multiply(count, bytes, &need) && weir__round_up(need, ALIGNMENT, &need);
    struct weir__pool_chunk *chunk = fits ? pool->chunks : NULL;
    if (fits && (chunk == NULL || chunk->capacity - chunk->used < need))
        chunk = open_chunk(pool, need);
    pool->failed |= chunk == NULL;
    if (chunk == NULL) return NULL;
    void *memory = (char *)chunk + chunk->used;
    chunk->used += need;
    assert(chunk->used <= chunk->capacity);
    return memory;
}

void *weir__pool_copy(struct weir__pool *pool, const void *source, size_t count, size_t bytes) {
    void *copy = weir__pool_take(pool, count, bytes);
    if (copy != NULL && count > 0) memcpy(copy, source, count * bytes);
    return copy;
}

const char *weir__pool_text(struct weir__pool *pool, const char *text) {
    if (text == NULL) text = "";
    return weir__pool_copy(pool, text, strlen(text) + 1, 1);
}

bool weir__pool_grow(struct weir__pool *pool, void *array, uint32_t count, uint32_t *capacity,
                     size_t bytes) {
    assert(count <= *capacity);
    if (count < *capacity) return true;
    if (*capacity > UINT32_MAX / 2) return false;
    uint32_t doubled = *capacity < 8 ? 16 : *capacity * 2;
    void *larger = weir__pool_take(pool, doubled, bytes);
    if (larger == NULL) return false;
    void *old;
    memcpy(&old, array, sizeof old);
    if (count > 0) memcpy(larger, old, count * bytes);
    memcpy(array, &larger, sizeof larger);
    *capacity = doubled;
    return true;
}

bool weir__pool_add(struct weir__pool *pool, void *array, uint32_t *count, uint32_t *capacity,
                    const void *element, size_t bytes) {
    if (!weir__pool_grow(pool, array, *count, capacity, bytes)) return false;
    char *first;
    memcpy(&first, array, sizeof first);
    memcpy(first + (*count)++ * bytes, element, bytes);
    return true;
}

void weir__pool_clean_up(struct weir__pool *pool) {
    while (pool->chunks != NULL) {
        struct weir__pool_chunk *chunk = pool->chunks;
        pool->chunks = chunk->next;
        weir__release(pool->allocator, chunk, chunk->capacity, 1);
    }
}

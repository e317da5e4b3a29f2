/* SPDX-License-Identifier: MIT */
/* Host memory through the caller's allocator. Everything is 64-byte aligned and zeroed: these are
 * structures made before the first step, not tensors, so clarity costs nothing. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

static void *default_acquire(void *context, size_t bytes, size_t alignment) {
    (void)context;
    size_t rounded;
    /* aligned_alloc wants a multiple of the alignment, and at least a pointer's. */
    if (alignment < sizeof(void *)) alignment = sizeof(void *);
    if (!weir__round_up(bytes, alignment, &rounded)) return NULL;
    return aligned_alloc(alignment, rounded);
}

static void default_release(void *context, void *memory, size_t bytes) {
    (void)context;
    (void)bytes;
    free(memory);
}

static const struct weir_allocator default_allocator = {
    .acquire = default_acquire,
    .release = default_release,
};

const struct weir_allocator *weir_allocator_default(void) {
    return &default_allocator;
}

/* Zero elements still need a pointer that is not NULL and of their own: one line of cache. */
static bool block_bytes(size_t count, size_t bytes, size_t *out) {
    size_t product;
    if (!weir__multiply(count, bytes, &product)) return false;
    *out = product == 0 ? WEIR__CACHE_LINE : product;
    return true;
}

void *weir__acquire(const struct weir_allocator *allocator, size_t count, size_t bytes) {
    if (allocator == NULL) allocator = &default_allocator;
    assert(allocator->acquire != NULL && allocator->release != NULL);
    size_t total;
    if (!block_bytes(count, bytes, &total)) return NULL;
    void *memory = allocator->acquire(allocator->context, total, WEIR__CACHE_LINE);
    if (memory == NULL) return NULL;
    assert((uintptr_t)memory % WEIR__CACHE_LINE == 0);
    return memset(memory, 0, total);
}

void weir__release(const struct weir_allocator *allocator, void *memory, size_t count,
                   size_t bytes) {
    if (memory == NULL) return;
    if (allocator == NULL) allocator = &default_allocator;
    size_t total = 0;
    bool fits = block_bytes(count, bytes, &total);
    assert(fits);
    (void)fits;
    allocator->release(allocator->context, memory, total);
}

int weir__text_copy(const struct weir_allocator *allocator, const char *text, char **out) {
    assert(out != NULL);
    if (text == NULL) {
        *out = NULL;
        return WEIR_OK;
    }
    size_t bytes = strlen(text) + 1;
    char *copy = weir__acquire(allocator, bytes, 1);
    if (copy == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    memcpy(copy, text, bytes);
    *out = copy;
    return WEIR_OK;
}

void weir__text_release(const struct weir_allocator *allocator, char *text) {
    if (text != NULL) weir__release(allocator, text, strlen(text) + 1, 1);
}

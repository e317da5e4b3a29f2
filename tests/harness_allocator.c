/* SPDX-License-Identifier: MIT */
/*
 * The watching allocator. A block is [padding | header | front guard][the caller's bytes][back
 * guard]; the header sits directly before the caller's bytes, so that a release finds it. All
 * state is protected by one mutex: tests are not about the allocator's speed.
 */
#include "harness.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 64
#define GUARD_VALUE 0xc3
#define FRESH_VALUE 0xa5
#define RELEASED_VALUE 0xdd
#define FILL_BYTES_MAX (1u << 20) /* arenas would cost too much to fill */
#define LEAKS_NAMED_MAX 5

#define MAGIC_LIVE 0x574549525f4c4956u
#define MAGIC_RELEASED 0x574549525f444541u

struct block {
    struct block *previous;
    struct block *next;
    void *base; /* what free() gets */
    size_t bytes;
    uint64_t number; /* which acquisition of the test this was, from 1 */
    uint64_t magic;
    unsigned char guard[GUARD_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static struct block *live;
static size_t live_blocks;
static size_t live_bytes;
static uint64_t count;
static uint64_t fail_at; /* absolute number of an acquisition; 0: none */
static bool fail_persistently;
static bool fired;

static bool should_fail(void) {
    if (fail_at == 0 || count < fail_at) return false;
    if (count > fail_at && !fail_persistently) return false;
    fired = true;
    return true;
}

static void fill(void *memory, int value, size_t bytes) {
    memset(memory, value, bytes < FILL_BYTES_MAX ? bytes : FILL_BYTES_MAX);
}

/* With `lock` held. */
static void *acquire_locked(size_t bytes, size_t alignment) {
    size_t front = (sizeof(struct block) + alignment - 1) & ~(alignment - 1);
    size_t total = front + bytes + GUARD_BYTES;
    void *base = NULL;
    if (total < bytes || posix_memalign(&base, alignment, total) != 0) return NULL;
    unsigned char *memory = (unsigned char *)base + front;
    struct block *block = (struct block *)(void *)memory - 1;
    *block = (struct block){
        .next = live, .base = base, .bytes = bytes, .number = count, .magic = MAGIC_LIVE};
    memset(block->guard, GUARD_VALUE, GUARD_BYTES);
    memset(memory + bytes, GUARD_VALUE, GUARD_BYTES);
    fill(memory, FRESH_VALUE, bytes);
    if (live) live->previous = block;
    live = block;
    live_blocks++;
    live_bytes += bytes;
    return memory;
}

static void *acquire(void *context, size_t bytes, size_t alignment) {
    (void)context;
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        TEST_FAIL("allocator: alignment %zu is not a power of two", alignment);
        return NULL;
    }
    if (alignment < _Alignof(max_align_t)) alignment = _Alignof(max_align_t);
    pthread_mutex_lock(&lock);
    count++;
    void *memory = should_fail() ? NULL : acquire_locked(bytes, alignment);
    pthread_mutex_unlock(&lock);
    return memory;
}

static bool guard_is_whole(const unsigned char *guard) {
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (guard[i] != GUARD_VALUE) return false;
    }
    return true;
}

static void verify(const struct block *block, size_t bytes) {
    if (block->bytes != bytes) {
        TEST_FAIL("allocator: acquisition %llu was of %zu bytes and is released as %zu",
                  (unsigned long long)block->number, block->bytes, bytes);
    }
    if (!guard_is_whole(block->guard)) {
        TEST_FAIL("allocator: written before the beginning of acquisition %llu (%zu bytes)",
                  (unsigned long long)block->number, block->bytes);
    }
    if (!guard_is_whole((const unsigned char *)(block + 1) + block->bytes)) {
        TEST_FAIL("allocator: written past the end of acquisition %llu (%zu bytes)",
                  (unsigned long long)block->number, block->bytes);
    }
}

/* With `lock` held. */
static void unlink_and_free(struct block *block) {
    if (block->previous) block->previous->next = block->next;
    if (block->next) block->next->previous = block->previous;
    if (live == block) live = block->next;
    live_blocks--;
    live_bytes -= block->bytes;
    fill(block + 1, RELEASED_VALUE, block->bytes);
    block->magic = MAGIC_RELEASED;
    free(block->base);
}

static void release(void *context, void *memory, size_t bytes) {
    (void)context;
    if (!memory) return;
    struct block *block = (struct block *)memory - 1;
    pthread_mutex_lock(&lock);
    struct block *found = live;
    while (found && found != block) found = found->next;
    if (!found) {
        TEST_FAIL("allocator: %p (%zu bytes) is released and not live", memory, bytes);
    } else {
        verify(block, bytes);
        unlink_and_free(block);
    }
    pthread_mutex_unlock(&lock);
}

const struct weir_allocator *test_allocator(void) {
    static const struct weir_allocator allocator = {.acquire = acquire, .release = release};
    return &allocator;
}

void test_allocator_fail_at(uint64_t k, bool persistent) {
    pthread_mutex_lock(&lock);
    fail_at = k == 0 ? 0 : count + k;
    fail_persistently = persistent;
    fired = false;
    pthread_mutex_unlock(&lock);
}

bool test_allocator_fired(void) {
    pthread_mutex_lock(&lock);
    bool result = fired;
    pthread_mutex_unlock(&lock);
    return result;
}

uint64_t test_allocator_count(void) {
    pthread_mutex_lock(&lock);
    uint64_t result = count;
    pthread_mutex_unlock(&lock);
    return result;
}

size_t test_allocator_live_blocks(void) {
    pthread_mutex_lock(&lock);
    size_t result = live_blocks;
    pthread_mutex_unlock(&lock);
    return result;
}

size_t test_allocator_live_bytes(void) {
    pthread_mutex_lock(&lock);
    size_t result = live_bytes;
    pthread_mutex_unlock(&lock);
    return result;
}

void test_allocator_reset(void) {
    pthread_mutex_lock(&lock);
    count = 0;
    fail_at = 0;
    fail_persistently = false;
    fired = false;
    pthread_mutex_unlock(&lock);
}

void test_allocator_finish(void) {
    pthread_mutex_lock(&lock);
    if (live) TEST_FAIL("leak: %zu blocks, %zu bytes", live_blocks, live_bytes);
    for (int named = 0; live; named++) {
        if (named < LEAKS_NAMED_MAX) {
            TEST_FAIL("leak: %zu bytes, acquisition %llu of the test", live->bytes,
                      (unsigned long long)live->number);
        }
        verify(live, live->bytes);
        unlink_and_free(live);
    }
    pthread_mutex_unlock(&lock);
}

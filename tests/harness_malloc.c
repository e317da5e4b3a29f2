/* SPDX-License-Identifier: MIT */
/*
 * What the whole process takes from the system while a test watches, its libraries included: the
 * program's malloc and mmap come before the C library's for all of them. Only with glibc, whose own
 * malloc has a second name, and without a sanitizer, which has one of its own.
 */
#include "harness.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_bool watching;
static atomic_uint_fast64_t blocks, largest, mappings;

void test_watch_memory(void) {
    atomic_store(&blocks, 0);
    atomic_store(&largest, 0);
    atomic_store(&mappings, 0);
    atomic_store(&watching, true);
}

struct test_memory_use test_memory_used(void) {
    atomic_store(&watching, false);
    return (struct test_memory_use){atomic_load(&blocks), atomic_load(&largest),
                                    atomic_load(&mappings)};
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_OWN_MALLOC 1
#endif
#endif

#if defined(__GLIBC__) && !defined(HAS_OWN_MALLOC)

bool test_can_watch_memory(void) {
    return !test_is_sanitized();
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static void note(size_t bytes) {
    if (!atomic_load_explicit(&watching, memory_order_relaxed)) return;
    atomic_fetch_add(&blocks, 1);
    uint_fast64_t before = atomic_load(&largest);
    while (before < bytes && !atomic_compare_exchange_weak(&largest, &before, bytes)) continue;
}

void *malloc(size_t bytes) {
    note(bytes);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    note(count * bytes);
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
    note(bytes);
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    note(bytes);
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    enum { NO_MEMORY = 12 };
    note(bytes);
    void *block = __libc_memalign(alignment, bytes);
    if (block == NULL) return NO_MEMORY;
    *memory = block;
    return 0;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (atomic_load_explicit(&watching, memory_order_relaxed)) atomic_fetch_add(&mappings, 1);
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}

#else

bool test_can_watch_memory(void) {
    return false;
}

#endif

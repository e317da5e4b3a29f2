/* SPDX-License-Identifier: MIT */
/* What the fuzz targets share; see fuzz.h. */
#include "fuzz/fuzz.h"

#include "io/io_memory.h"

#include <stdio.h>
#include <stdlib.h>

#define MEMORY_MAX 16

static struct {
    size_t live, peak, count;
    struct weir_error error;
    struct weir__io io;
} state;

void fuzz_fail(const char *file, int line, const char *text) {
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, text);
    abort();
}

static void *acquire(void *context, size_t bytes, size_t alignment) {
    void *memory = NULL;
    (void)context;
    if (posix_memalign(&memory, alignment < 8 ? 8 : alignment, bytes) != 0) return NULL;
    state.live += bytes;
    if (state.live > state.peak) state.peak = state.live;
    return memory;
}

static void release(void *context, void *memory, size_t bytes) {
    (void)context;
    FUZZ_CHECK(state.live >= bytes);
    state.live -= bytes;
    free(memory);
}

struct weir__io *fuzz_begin(const void *bytes, size_t count) {
    static const struct weir_allocator allocator = {.acquire = acquire, .release = release};
    io_memory_file(bytes, count);
    state.live = state.peak = 0;
    state.count = count;
    state.error = (struct weir_error){0};
    state.io = (struct weir__io){&allocator, io_memory_calls(), &state.error};
    return &state.io;
}

void fuzz_end(size_t fixed) {
    FUZZ_CHECK(state.live == 0);
    FUZZ_CHECK(io_memory_open_count() == 0);
    FUZZ_CHECK(state.peak <= MEMORY_MAX * state.count + fixed);
}

uint64_t fuzz_touch(const void *data, size_t count) {
    const unsigned char *at = data;
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += at[i];
    return sum;
}

/* SPDX-License-Identifier: MIT */
#include "cuda/emulated.h"

#include "real_gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CANARY = 0x5A };

/* ---- the library ---- */

struct emulation emulation_open(void) {
    struct emulation emulation = {0};
    const char *path = test_fake_cuda_path();
    if (path == NULL) return emulation;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* counted: it stays until the end */
    if (library == NULL) {
        TEST_FAIL("%s", dlerror());
        return emulation;
    }
    const size_t *count = dlsym(library, "fake_cuda_kernel_count");
    *(void **)&emulation.seed = dlsym(library, "fake_cuda_seed");
    *(void **)&emulation.fault = dlsym(library, "fake_cuda_fault");
    *(void **)&emulation.shape = dlsym(library, "fake_cuda_shape");
    const struct fake_cuda_kernel *kernels = dlsym(library, "fake_cuda_kernels");
    if (!EXPECT(count != NULL && kernels != NULL && emulation.seed != NULL &&
                emulation.fault != NULL && emulation.shape != NULL))
        return emulation;
    emulation.kernels = kernels;
    emulation.count = *count;
    emulation.seed(test_random_u64());
    return emulation;
}

const struct fake_cuda_kernel *emulation_find(const struct emulation *emulation, const char *name) {
    for (size_t i = 0; i < emulation->count; i++) {
        const char *symbol = emulation->kernels[i].name;
        if (strcmp(symbol, name) == 0) return &emulation->kernels[i];
        if (strncmp(symbol, "weir_", 5) == 0 && strcmp(symbol + 5, name) == 0)
            return &emulation->kernels[i];
    }
    return NULL;
}

bool emulation_run(const char *name, const struct weir__cuda_grid *grid, void **arguments) {
    if (test_gpu_is_real()) return real_gpu_run(name, grid, arguments);
    struct emulation emulation = emulation_open();
    const struct fake_cuda_kernel *kernel = emulation_find(&emulation, name);
    if (kernel == NULL) {
        TEST_FAIL("there is no emulated kernel %s", name);
        return false;
    }
    kernel->run(grid->blocks, grid->threads, grid->shared_bytes, arguments);
    const char *fault = emulation.fault();
    if (fault != NULL) TEST_FAIL("%s: %s", name, fault);
    return fault == NULL;
}

struct weir__cuda_grid emulation_grid(uint32_t blocks, uint32_t threads) {
    return (struct weir__cuda_grid){{blocks, 1, 1}, {threads, 1, 1}, 0};
}

/* ---- watched memory ---- */

struct watched watched_new(size_t bytes, size_t offset, bool at_front) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t whole = (bytes + 64 + page - 1) / page * page;
    struct watched watched = {.bytes = bytes, .mapped_bytes = whole + 2 * page};
    watched.mapped = mmap(NULL, watched.mapped_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!EXPECT(watched.mapped != MAP_FAILED)) return (struct watched){0};
    mprotect(watched.mapped, page, PROT_NONE);
    mprotect(watched.mapped + page + whole, page, PROT_NONE);
    memset(watched.mapped + page, CANARY, whole);
    if (test_gpu_is_real()) (void)real_gpu_pin(watched.mapped + page, whole);
    size_t last = whole - bytes; /* the last place at which it fits */
    size_t start = at_front ? offset % 64 : last - (last + 64 - offset % 64) % 64;
    watched.at = watched.mapped + page + start;
    return watched;
}

struct watched watched_random(size_t bytes, size_t alignment) {
    size_t offset = test_random_below(64 / alignment) * alignment;
    if (test_random_below(2) == 0) offset = 0;
    /* Half of the others end exactly where the crash begins. */
    size_t at_end = (64 - bytes % 64) % 64;
    if (test_random_below(2) == 0 && at_end % alignment == 0) offset = at_end;
    return watched_new(bytes, offset, test_random_below(2) == 0);
}

static void expect_canary(const unsigned char *at, const unsigned char *end, const char *side) {
    for (; at < end; at++) {
        if (*at == CANARY) continue;
        TEST_FAIL("a byte %s the range was written to", side);
        return;
    }
}

void watched_clean_up(struct watched *watched) {
    if (watched->mapped == NULL) return;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (test_gpu_is_real()) real_gpu_unpin(watched->mapped + page);
    expect_canary(watched->mapped + page, watched->at, "before");
    expect_canary(watched->at + watched->bytes, watched->mapped + watched->mapped_bytes - page,
                  "behind");
    munmap(watched->mapped, watched->mapped_bytes);
    *watched = (struct watched){0};
}

void watched_fill(struct watched *watched) {
    for (size_t i = 0; i < watched->bytes; i++) watched->at[i] = (unsigned char)test_random_u64();
}

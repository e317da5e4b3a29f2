/* SPDX-License-Identifier: MIT */
/*
 * CUDA kernels for tests: emulated, opening their library, running one by name, and memory whose
 * neighbourhood is watched; or, where tests run on a GPU, run there, in the same memory.
 */
#ifndef WEIR_TESTS_EMULATED_H
#define WEIR_TESTS_EMULATED_H

#include "device/cuda_kernels.h"
#include "fake_cuda/fake_kernels.h"
#include "harness.h"

/* What the library exports; `kernels` is NULL where there is none: skip then. */
struct emulation {
    const struct fake_cuda_kernel *kernels;
    size_t count;
    void (*seed)(uint64_t seed);
    const char *(*fault)(void);
    void (*shape)(uint32_t blocks[3], uint32_t threads[3]);
};

/* Opens it, once; every call seeds the orders from the test's random numbers. */
struct emulation emulation_open(void);
/* The kernel of this name, with or without weir_; NULL if there is none. */
const struct fake_cuda_kernel *emulation_find(const struct emulation *emulation, const char *name);
/* Runs a kernel, where tests run on a GPU there, in memory that is watched; fails the test if it is
 * not there or does what a GPU forbids. */
bool emulation_run(const char *name, const struct weir__cuda_grid *grid, void **arguments);
/* A launch in one dimension. */
struct weir__cuda_grid emulation_grid(uint32_t blocks, uint32_t threads);

/* `bytes` at an address that is `offset` modulo 64, between pages that crash: close to the one
 * before if `at_front`, else to the one behind; what lies between is 0x5A and must stay. */
struct watched {
    unsigned char *at;
    size_t bytes;
    unsigned char *mapped; /* with its two guard pages */
    size_t mapped_bytes;
};
/* All of it is 0x5A. A GPU reaches it, where tests run on one. */
struct watched watched_new(size_t bytes, size_t offset, bool at_front);
/* As watched_new, with offset and side at random. `alignment` (a power of two up to 64) divides the
 * offset. */
struct watched watched_random(size_t bytes, size_t alignment);
/* Fails the test if something was written outside. */
void watched_clean_up(struct watched *watched);
/* Random bytes. */
void watched_fill(struct watched *watched);

#endif

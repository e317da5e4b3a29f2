/* SPDX-License-Identifier: MIT */
/*
 * The machine's CUDA driver, but for memory: a program that opens this library instead
 * (WEIR_CUDA_DRIVER) gets managed memory from cuMemAlloc, which the host's code may touch as well.
 * So the engine's tests, whose stages are functions of the host, run on a real GPU's streams,
 * events, copies and kernels.
 *
 * Every other symbol is the real library's, found when it is first looked up: the one that
 * WEIR_TEST_CUDA_DRIVER names, or libcuda.so.1.
 */
#include "device/cuda_driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { ATTACH_GLOBAL = 1, UNAVAILABLE = 46 };

static void *find(const char *symbol) {
    const char *name = getenv("WEIR_TEST_CUDA_DRIVER");
    if (name == NULL || name[0] == '\0') name = "libcuda.so.1";
    void *driver = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); /* counted: it stays */
    return driver == NULL ? NULL : dlsym(driver, symbol);
}

static int allocate_managed(uint64_t *memory, size_t bytes) {
    int (*allocate)(uint64_t * memory, size_t bytes, unsigned flags);
    void *function = find("cuMemAllocManaged");
    memcpy(&allocate, &function, sizeof allocate);
    return function == NULL ? UNAVAILABLE : allocate(memory, bytes, ATTACH_GLOBAL);
}

typedef void any_fn(void);

static any_fn *resolve(const char *symbol) {
    any_fn *function;
    void *found = find(symbol);
    memcpy(&function, &found, sizeof function);
    if (strcmp(symbol, "cuMemAlloc_v2") == 0) function = (any_fn *)allocate_managed;
    return function;
}

/* dlsym calls the resolver of such a symbol and gives what it found. */
#define FORWARD(member, symbol, parameters)                                                        \
    static any_fn *resolve_##member(void) {                                                        \
        return resolve(#symbol);                                                                   \
    }                                                                                              \
    int symbol parameters __attribute__((ifunc("resolve_" #member)));
FORWARD(driver_get_version, cuDriverGetVersion, (int *version))
WEIR__CUDA_CALL_MAP(FORWARD)
FORWARD(launch_host, cuLaunchHostFunc,
        (struct CUstream_st * stream, void (*function)(void *context), void *context))

/* SPDX-License-Identifier: MIT */
#include "device/nvtx.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* dlsym gives an object's address; POSIX has functions' fit into it. */
static bool find(void *library, const char *symbol, void *function, size_t bytes) {
    void *address = dlsym(library, symbol);
    assert(bytes == sizeof address);
    memcpy(function, &address, bytes);
    return address != NULL;
}

static bool try_open(struct weir__nvtx *nvtx, const char *file) {
    struct weir__nvtx made = {.library = dlopen(file, RTLD_NOW | RTLD_LOCAL)};
    if (made.library == NULL) return false;
    if (find(made.library, "nvtxRangePushA", &made.push, sizeof made.push) &&
        find(made.library, "nvtxRangePop", &made.pop, sizeof made.pop)) {
        *nvtx = made;
        return true;
    }
    (void)dlclose(made.library);
    return false;
}

bool weir__nvtx_open(struct weir__nvtx *nvtx) {
    static const char *const files[] = {"libnvtx3interop.so.1", "libnvToolsExt.so.1"};
    const char *profiler = getenv("NVTX_INJECTION64_PATH"), *named = getenv("WEIR_NVTX");
    assert(nvtx != NULL);
    *nvtx = (struct weir__nvtx){0};
    if (profiler == NULL || profiler[0] == '\0') return true;
    if (named != NULL) return try_open(nvtx, named);
    bool opened = false;
    for (size_t f = 0; !opened && f < sizeof files / sizeof *files; f++)
        opened = try_open(nvtx, files[f]);
    return opened;
}

void weir__nvtx_close(struct weir__nvtx *nvtx) {
    assert(nvtx != NULL);
    *nvtx = (struct weir__nvtx){0};
}

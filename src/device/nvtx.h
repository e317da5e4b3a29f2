/* SPDX-License-Identifier: MIT */
/**
 * Ranges for NVIDIA's profilers (NVTX, Nsight Systems): each action of a worker is a range on its
 * thread, named as tables write it ("2F5": stage 2, forward, micro-batch 5), so that a profile
 * shows which action gave a GPU its work.
 *
 * A profiler that is attached names its own library in the environment's NVTX_INJECTION64_PATH.
 * Only then are ranges made: by the C interface of CUDA's NVTX library (libnvtx3interop.so.1,
 * libnvToolsExt.so.1, or the file that WEIR_NVTX names), which is opened at run time.
 */
#ifndef WEIR_NVTX_H
#define WEIR_NVTX_H

#include <stdbool.h>

/** Read-only once opened; any thread. Both calls concern the calling thread's ranges. */
struct weir__nvtx {
    void *library;             /**< NULL: no profiler, and no ranges */
    int (*push)(const char *); /**< begins a range of that name, which is copied */
    int (*pop)(void);          /**< ends the range that was begun last */
};

/** False: there is a profiler, but no library for ranges; a run needs none. */
bool weir__nvtx_open(struct weir__nvtx *nvtx);
/** Accepts one that is zero. The library stays loaded: the profiler may hold it. */
void weir__nvtx_close(struct weir__nvtx *nvtx);

#endif

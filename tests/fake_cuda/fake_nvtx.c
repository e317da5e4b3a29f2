/* SPDX-License-Identifier: MIT */
/* NVTX's symbols, and the profiler behind them: it keeps each range's name, thread and whether it
 * has ended. */
#include "fake_state.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEPTH_MAX = 16 };

int nvtxRangePushA(const char *name);
int nvtxRangePop(void);

static _Thread_local size_t open_ranges[DEPTH_MAX];
static _Thread_local int depth;

int nvtxRangePushA(const char *name) {
    fake_lock();
    int at = depth++;
    if (at < DEPTH_MAX && fake.nvtx_range_count < FAKE_RANGES_MAX) {
        struct weir_fake_cuda_range *range = &fake.nvtx_ranges[fake.nvtx_range_count];
        *range = (struct weir_fake_cuda_range){.thread = (int)syscall(SYS_gettid), .depth = at};
        snprintf(range->name, sizeof range->name, "%s", name);
        open_ranges[at] = fake.nvtx_range_count++;
    } else {
        fake_fault("nvtxRangePushA: more than %d ranges, or %d in each other", FAKE_RANGES_MAX,
                   DEPTH_MAX);
    }
    fake_unlock();
    return at;
}

int nvtxRangePop(void) {
    fake_lock();
    bool any = depth > 0;
    if (any && --depth < DEPTH_MAX) fake.nvtx_ranges[open_ranges[depth]].ended = true;
    if (!any) fake_fault("nvtxRangePop: none was begun on this thread");
    fake_unlock();
    return any ? depth : -2;
}

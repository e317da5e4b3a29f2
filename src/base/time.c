/* SPDX-License-Identifier: MIT */
/* The one clock of traces, delays and time limits. */
#include "base/base.h"

#include <time.h>

uint64_t weir__now_ns(void) {
    struct timespec now;
    int status = clock_gettime(CLOCK_MONOTONIC, &now);
    assert(status == 0); /* cannot fail: the clock is there and `now` is ours */
    (void)status;
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* SPDX-License-Identifier: MIT */
#include "steps.h"

static _Thread_local uint64_t steps;

/* What the compiler calls at the beginning of each basic block. */
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {
    steps++;
}

uint64_t test_steps(void) {
    return steps;
}

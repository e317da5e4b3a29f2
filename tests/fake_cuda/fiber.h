/* SPDX-License-Identifier: MIT */
/** Changing from one stack to another, on one thread. */
#ifndef WEIR_FAKE_CUDA_FIBER_H
#define WEIR_FAKE_CUDA_FIBER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Where a stack stands while another is in use; zero before. */
struct fiber_context {
    void *state;
};

/** The next switch to it calls `run`, which never returns, on that stack. May be called again, for
 * a fiber that stands still. */
void fiber_begin(struct fiber_context *fiber, char *stack, size_t bytes, void (*run)(void));
/** Returns when somebody switches to `from`. */
void fiber_switch(struct fiber_context *from, struct fiber_context *to);

#ifdef __cplusplus
}
#endif
#endif

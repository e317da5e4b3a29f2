/* SPDX-License-Identifier: MIT */
/**
 * Reading ahead: a thread of its own fills the next mini-batches while this one is trained on.
 *
 * Mini-batches come out in the order of their numbers, so what is read, and when, changes nothing
 * but the time. All memory is acquired at the beginning: as many batches as `depth` says, of which
 * the newest taken one is the caller's and the others are the thread's. The thread sleeps while all
 * are full; whoever takes a batch sleeps while none is.
 *
 * A failed fill is given to whoever takes that batch, after all batches before it; the thread then
 * ends. One thread at a time takes batches; new and destroy are that thread's too.
 */
#ifndef WEIR_IO_PREFETCH_H
#define WEIR_IO_PREFETCH_H

#include "base/base.h"

/** Fills one mini-batch, on the prefetcher's thread: 0, or a status with `error` filled. */
typedef int weir__prefetch_fill_fn(void *context, uint64_t number, void *input, void *target,
                                   struct weir_error *error);

struct weir__prefetch_options {
    const struct weir_allocator *allocator; /**< NULL: the default */
    weir__prefetch_fill_fn *fill;
    void *context;  /**< outlives the prefetcher; what it points to, nobody changes meanwhile */
    uint64_t first; /**< the number of the first mini-batch */
    uint32_t depth; /**< batches in all: 2 to 4 */
    size_t input_bytes, target_bytes;
};

/** A filled mini-batch; its memory is 64-byte aligned. */
struct weir__batch {
    uint64_t number;
    void *input;
    void *target;
};

struct weir__prefetch;

/** Acquires memory and starts the thread, which begins to read at once. The prefetcher is the
 * caller's: weir__prefetch_destroy. WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_SYSTEM (no thread); `error`
 * (may be NULL) says so. */
int weir__prefetch_new(const struct weir__prefetch_options *options, struct weir_error *error,
                       struct weir__prefetch **prefetch);
/** Stops the thread, after the fill that is under way, and joins it. Accepts NULL. */
void weir__prefetch_destroy(struct weir__prefetch *prefetch);
/** Gives the last batch back and waits for the next, which is valid until the following call.
 * Returns what its fill returned, with `error` (may be NULL) filled as there; from then on every
 * call returns the same. */
int weir__prefetch_next(struct weir__prefetch *prefetch, struct weir__batch *batch,
                        struct weir_error *error);

#endif

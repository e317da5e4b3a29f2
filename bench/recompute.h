/* SPDX-License-Identifier: MIT */
/**
 * What the recompute bench trains: something over two stages whose steps can be repeated and whose
 * gradients can be compared.
 */
#ifndef WEIR_BENCH_RECOMPUTE_H
#define WEIR_BENCH_RECOMPUTE_H

#include "harness.h"

enum { RECOMPUTE_STAGES = 2, RECOMPUTE_MICRO_BATCHES = 32, RECOMPUTE_COPIES_MOST = 5 };

struct recompute_subject {
    const char *name;
    /** Times of a copy that are measured, in forwards, ascending. */
    uint32_t copy_count;
    double copies[RECOMPUTE_COPIES_MOST];
    /** What all trials share: the same work. Made once, before the first of them. */
    void *(*new_context)(struct bench *bench);
    void (*destroy_context)(void *context);
    /** A pipe of RECOMPUTE_STAGES workers, built as `how` says in schedule, checkpoint,
     * recompute_late, link and link_delay_ns. */
    void *(*open)(struct bench *bench, void *context, const struct weir_pipe_options *how);
    struct weir_pipe *(*pipe)(void *trial);
    /** A training step without update, always of the same rows. Dies on a failure. */
    void (*step)(void *trial, struct weir_step_result *result);
    /** The last step's gradients: their bytes, copied to `out` unless that is NULL. */
    size_t (*gradients)(void *trial, unsigned char *out);
    void (*close)(void *trial);
};

/** Callbacks that keep a core busy for a time that is chosen (recompute_busy.c): F = R, B = 2 F,
 * and no memory traffic but some floats. */
extern const struct recompute_subject recompute_busy;
/** A small GPT (recompute_net.c). */
extern const struct recompute_subject recompute_net;

#endif

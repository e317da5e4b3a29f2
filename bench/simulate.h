/* SPDX-License-Identifier: MIT */
/** What the simulate bench trains: models of up to SIMULATE_STAGES_MOST stages on two workers. */
#ifndef WEIR_BENCH_SIMULATE_H
#define WEIR_BENCH_SIMULATE_H

#include "harness.h"

enum { SIMULATE_WORKERS = 2, SIMULATE_STAGES_MOST = 4, SIMULATE_MICRO_BATCHES = 8 };

struct simulate_subject {
    const char *name;
    /** What all trials share; the run's memory. */
    void *(*new_context)(struct bench *bench);
    void (*destroy_context)(void *context);
    /** A pipe of SIMULATE_MICRO_BATCHES, built as `how` says in schedule, workers, checkpoint and
     * threads. */
    void *(*open)(struct bench *bench, void *context, const struct weir_pipe_options *how,
                  uint32_t stages);
    struct weir_pipe *(*pipe)(void *trial);
    /** A training step without update, always of the same rows. Dies on a failure. */
    void (*step)(void *trial, struct weir_step_result *result);
    void (*close)(void *trial);
};

/** Callbacks that keep a core busy for times that are chosen, unequal from stage to stage. */
extern const struct simulate_subject simulate_busy;
/** A small GPT, and a small U-Net, whose skips cross. */
extern const struct simulate_subject simulate_gpt, simulate_unet;

#endif

/* SPDX-License-Identifier: MIT */
/**
 * What tests of pipes over ranks share: a random run that each rank builds with a model, options
 * and batches of its own.
 */
#ifndef WEIR_TESTS_ENGINE_RANKS_H
#define WEIR_TESTS_ENGINE_RANKS_H

#include "engine/engine_stages.h"

#include <stdatomic.h>

/** Copies the model, points a copy of the run's options at it, and fills `count` batches, step
 * after step. */
void engine_rank_open(const struct engine_random *run, const struct engine_model *model,
                      struct engine_model *own, struct weir_pipe_options *options,
                      struct engine_batch *batches, uint32_t count);
/** Cleans the batches up. */
void engine_rank_close(struct engine_batch *batches, uint32_t count);

/** An allocator of one rank's: test_allocator(), whose `fail_at`-th acquisition fails; 0: none. */
struct engine_scarce {
    struct weir_allocator allocator;
    _Atomic uint64_t count;
    uint64_t fail_at;
};
void engine_scarce_init(struct engine_scarce *scarce, uint64_t fail_at);
/** Whether one failed. */
bool engine_scarce_fired(struct engine_scarce *scarce);

#endif

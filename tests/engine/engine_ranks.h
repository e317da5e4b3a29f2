/* SPDX-License-Identifier: MIT */
/**
 * What tests of pipes over ranks share: a random run that ranks build, which are threads of a world
 * (threads_world.h), each with a model, options and batches of its own; what they all end with is
 * compared with the reference, bit for bit.
 */
#ifndef WEIR_TESTS_ENGINE_RANKS_H
#define WEIR_TESTS_ENGINE_RANKS_H

#include "engine/engine_stages.h"
#include "engine/threads_world.h"

#include <stdatomic.h>

enum { ENGINE_RANKS_MAX = 8, ENGINE_STEPS = 6, ENGINE_STATE_MAX = 64 };

/** What a rank has, and what it saw: of its own thread until all have ended. */
struct engine_rank {
    const struct engine_ranks *of;
    struct engine_model model;
    struct weir_pipe_options options;
    struct engine_batch seen[ENGINE_STEPS];
    struct weir_step_result results[ENGINE_STEPS];
    int statuses[ENGINE_STEPS], built;
    uint32_t done; /**< steps */
    bool has[ENGINE_STAGES_MAX];
    double parameters[ENGINE_STAGES_MAX][ENGINE_STATE_MAX]; /**< of stages that it has … */
    double optimizer[ENGINE_STAGES_MAX][ENGINE_STATE_MAX];
    double gathered[ENGINE_STAGES_MAX][ENGINE_STATE_MAX]; /**< … and of all */
    char said[256], exchange[256];
    uint64_t hops; /**< pinned bytes of all workers' plans */
};

/** Static, and all zero at first. */
struct engine_ranks {
    struct engine_model model; /**< with its `gpu`, if some workers are on one */
    struct engine_random run;
    struct threads_options how;
    struct engine_rank ranks[ENGINE_RANKS_MAX];
    const char *devices[ENGINE_STAGES_MAX];
    bool fired; /**< of the last run: threads_world_fired */
};

/** The steps: one infers and one keeps its gradients; where sums last, the first two are parts of
 * an update. */
enum { ENGINE_STEP_INFERS = 3, ENGINE_STEP_KEEPS = 4 };
struct weir_step engine_ranks_step(const struct engine_ranks *all, const struct engine_batch *batch,
                                   uint32_t k);

/** Gives so many ranks what they need, and takes it back. */
void engine_ranks_open(struct engine_ranks *all, uint32_t count);
void engine_ranks_close(struct engine_ranks *all, uint32_t count);
/** Runs the function on each rank, with its `struct engine_rank` in an array as the context. GPUs
 * go on by themselves meanwhile. What the world's run returns. */
int engine_ranks_run(struct engine_ranks *all, uint32_t count, threads_world_fn *function);

/** On a rank. The first fault is `said`. */
int engine_rank_build(struct engine_rank *rank, struct weir_world *world, struct weir_pipe **pipe);
/** All steps; then what the pipe ends with. */
int engine_rank_steps(struct engine_rank *rank, struct weir_pipe *pipe);
/** Only that. */
int engine_rank_look(struct engine_rank *rank, struct weir_pipe *pipe);
/** Functions of a run: to build and end; with all steps between; and with the same step twice, of
 * which the first may fail, after which they look. */
int engine_rank_try(void *context, struct weir_world *world);
int engine_rank_train(void *context, struct weir_world *world);
int engine_rank_repeat(void *context, struct weir_world *world);
/** A stage's callback fails once there, with 77. */
void engine_rank_fails(struct engine_rank *rank, enum weir_phase phase, uint32_t stage,
                       uint32_t micro_batch);

/** What so many ranks have seen and ended with, in all steps, is the reference's. Each number of
 * the optimizer's state is on one rank. */
bool engine_ranks_compare(struct engine_ranks *all, uint32_t count);
bool engine_ranks_expect_state(const struct engine_ranks *all,
                               const struct engine_reference *reference, uint32_t count);
/** Opens so many, trains, compares and closes them. Says of what fails which ranks they were. */
void engine_ranks_expect(struct engine_ranks *all, uint32_t count);
/** Some random run with replicas; returns with how many ranks. */
uint32_t engine_ranks_random(struct engine_ranks *all, uint32_t replicas);
/** Of so many stages and workers: 4 micro-batches of two rows, times replicas, in 1F1B. */
void engine_ranks_choose(struct engine_ranks *all, uint32_t stages, uint32_t replicas);

/** Puts the run on devices, some of which are GPUs: in a driver that is reset, with NCCL or
 * without. Ranks may have to share a GPU. */
void engine_ranks_use_gpus(struct engine_ranks *all, const struct weir_fake_cuda_control *gpu,
                           uint32_t count);
/** Puts workers 0 and 1 on these devices, all others on the first; with NCCL. */
void engine_ranks_name_gpus(struct engine_ranks *all, const struct weir_fake_cuda_control *gpu,
                            const char *first, const char *second);
/** From now on there is the fake's NCCL, or none. */
void engine_ranks_use_nccl(bool there);
/** Of whatever failed: the so many ranks have said why, or all went well; nothing is left on GPUs.
 */
void engine_ranks_expect_end(const struct engine_ranks *all, uint32_t count);

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

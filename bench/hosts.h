/* SPDX-License-Identifier: MIT */
/**
 * What the hosts bench is made of. It runs as ranks, all of which go through the same cases in the
 * same order and make the same calls; rank 0 alone measures the models, prints and writes.
 */
#ifndef WEIR_BENCH_HOSTS_H
#define WEIR_BENCH_HOSTS_H

#include "harness.h"
#include "training.h"
#include "weir_predict.h"
#include "weir_world.h"

enum { HOSTS_RANKS_MOST = 64, HOSTS_STAGES_MOST = 64, HOSTS_SKIPS_MOST = 16 };
enum { HOSTS_READERS_MOST = 4 };

/** The ranks, and what lies between them. */
struct hosts {
    struct bench *bench;
    struct weir_world world;
    bool one_host;                                                    /**< all of them are on it */
    struct weir_link_cost costs[HOSTS_RANKS_MOST * HOSTS_RANKS_MOST]; /**< measured */
    uint32_t numbers[HOSTS_RANKS_MOST];                               /**< of their hosts */
};

/** Waits for all ranks, asleep. */
void hosts_meet(const struct hosts *hosts);
/** What rank 0 has, to all. */
void hosts_tell(const struct hosts *hosts, void *data, size_t bytes);

/** Stages that sleep, and what crosses between them: bytes of a micro-batch. */
struct hosts_shape {
    char name[32], schedule[16]; /**< a name, or "": workers take stages in turns, and micro-batches
                                      all of them one after the other */
    uint32_t stages, workers, chunks;
    double seconds[HOSTS_STAGES_MOST][WEIR_KIND_COUNT];
    uint64_t borders[HOSTS_STAGES_MOST];
    uint32_t skip_count;
    struct hosts_skip {
        uint32_t source, reader_count, readers[HOSTS_READERS_MOST];
        uint64_t bytes;
        bool differentiable;
    } skips[HOSTS_SKIPS_MOST];
};

/* ---- stages that sleep (hosts_pipe.c) -------------------------------------------------------- */

struct hosts_stage {
    const struct hosts_shape *shape;
    uint32_t index;
    struct weir_tensor output;
    uint32_t use_count;
    struct weir_skip_use uses[HOSTS_SKIPS_MOST];
    uint32_t use_skips[HOSTS_SKIPS_MOST]; /**< which skip each use is of */
};

/** A pipe of such stages. Each value carries its stage and micro-batch at its ends, and whoever
 * reads it looks: a wrong one fails the step. */
struct hosts_pipe {
    struct hosts_shape shape;
    struct hosts_stage stages[HOSTS_STAGES_MOST];
    char names[HOSTS_SKIPS_MOST][8];
    float *inputs; /**< [chunks] */
    struct weir_pipe *pipe;
};

/** `world` NULL: all workers are threads of this process. Dies on a failure. */
void hosts_pipe_open(struct bench *bench, struct hosts_pipe *pipe, const struct hosts_shape *shape,
                     const struct weir_world *world);
/** A training step; its seconds. */
double hosts_pipe_step(struct hosts_pipe *pipe);
void hosts_pipe_close(struct hosts_pipe *pipe);

/* ---- models as shapes (hosts_shape.c) -------------------------------------------------------- */

/** The model of a job, cut for so many workers by estimated costs and measured: on rank 0, and told
 * to all. A thread for each stage, nothing recomputed. */
void hosts_shape_measure(const struct hosts *hosts, const struct training_job *job,
                         const char *name, const char *schedule, uint32_t workers, uint32_t chunks,
                         struct hosts_shape *shape);
/** The simulated step, over the measured links; `one_process`: over none. */
double hosts_shape_predict(const struct hosts *hosts, const struct hosts_shape *shape,
                           bool one_process);

#endif

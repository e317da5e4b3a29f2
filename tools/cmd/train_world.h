/* SPDX-License-Identifier: MIT */
/**
 * A training run over several processes: under mpiexec or srun each is a rank with its share of the
 * workers. All make the same calls on the net; rank 0 alone speaks and writes files. What others
 * have to say on stderr is held back, for it is mostly what rank 0 says too, and told if the run
 * fails there.
 */
#ifndef WEIR_TOOLS_TRAIN_WORLD_H
#define WEIR_TOOLS_TRAIN_WORLD_H

#include "cmd/train_lost.h"
#include "weir_world.h"

#include <stdio.h>

struct args;
struct train;

/** The bits of a step's flags that are an exit code. */
enum { TRAIN_WORLD_CODE = 255 };

/** Zeroed: one process, or not joined yet. */
struct train_world {
    struct weir_world world;
    bool joined;      /**< with one rank, too */
    uint32_t stopped; /**< the exit code of a rank that has been asked to end, which all learnt with
                           a step; 0: none has */
    bool agreed;      /**< the failure came from a step, and so to all ranks */
    struct train_lost lost;
    FILE *held; /**< of ranks but 0: what was written to stderr since `lost.errors` is kept */
};

/** Joins the launcher's world, if there is one; a loss then ends the process (train_lost.h); faults
 * say why it cannot be, or what cannot be done in one. On ranks but 0 output is silenced. */
int train_world_join(struct train *t, const struct args *args);
/** The world, or NULL where this process is alone. */
const struct weir_world *train_world(const struct train *t);
/** Whether this process writes files and speaks. */
bool train_world_leads(const struct train *t);
/** Whether all ranks, with their statuses, train by the same notes: on the same data, the same way.
 * Collective. */
int train_world_compare(struct train *t, int status);
/** The pipeline that rank 0 has searched, from there to all others: each would choose by its own
 * machine. Collective; where rank 0 fails before, that ends all. */
int train_world_give_pipeline(struct train *t);
int train_world_take_pipeline(struct train *t);
/** Leaves it with the exit code, which it returns; a failure ends all ranks, and this process. */
int train_world_leave(struct train *t, int code);

#endif

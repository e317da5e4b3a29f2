/* SPDX-License-Identifier: MIT */
/**
 * Groups of a mini-batch's micro-batches and replicas of the pipe (weir_shared.h): who has what.
 */
#ifndef WEIR_GROUPS_H
#define WEIR_GROUPS_H

#include "base/base.h"

/** Options as they are meant: 0 is resolved. */
static inline uint32_t weir__replicas(const struct weir_pipe_options *options) {
    return options->replicas > 0 ? options->replicas : 1;
}
static inline uint32_t weir__gradient_groups(const struct weir_pipe_options *options) {
    return options->gradient_groups > 0 ? options->gradient_groups : weir__replicas(options);
}
/** The rank's replica; 0 without a world. */
static inline uint32_t weir__replica(const struct weir_pipe_options *options) {
    if (options->world == NULL) return 0;
    uint32_t ranks = options->world->rank_count / weir__replicas(options);
    return ranks > 0 ? options->world->rank / ranks : 0;
}

/** What a replica has of a mini-batch's micro-batches. */
struct weir__groups {
    uint32_t whole; /**< micro-batches of the mini-batch */
    uint32_t first; /**< of them this replica has those from here on … */
    uint32_t count; /**< … and so many */
    uint32_t size;  /**< of a group; the last may have fewer */
};

/** Lists what is wrong with replicas, groups and the world's ranks. */
void weir__groups_check(const struct weir_pipe_options *options, struct weir_faults *faults);
/** Whether `rows` rows leave no group empty; else false, and a fault with what would do. */
bool weir__groups_check_rows(const struct weir_pipe_options *options, int64_t rows,
                             struct weir_faults *faults);
/** A replica's part of a mini-batch; nothing where groups are left empty. */
struct weir__groups weir__groups_of(const struct weir_pipe_options *options, uint32_t replica,
                                    int64_t rows);
/** The same for inference, by equal parts as torch.chunk makes them; where that leaves a replica
 * without, each has all. */
struct weir__groups weir__groups_infer(const struct weir_pipe_options *options, uint32_t replica,
                                       int64_t rows);

#endif

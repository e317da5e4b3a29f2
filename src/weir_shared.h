/* SPDX-License-Identifier: MIT */
/**
 * What stages share: parameters with each other, and gradients, over groups of micro-batches and
 * over replicas of the pipe.
 *
 * Groups. A mini-batch's m micro-batches form g contiguous groups (gradient_groups of
 * weir_pipe_options, a power of two), as torch.chunk splits: each of ceil(m / g), the last maybe
 * smaller, none empty. Within a group gradients add up as the table orders them; the groups' sums
 * are added by a balanced binary tree: a node is the sum of the groups' lower half and that of the
 * upper half. So g decides bits, as chunks does. With accumulation a group is of all mini-batches
 * of the update: its micro-batches of the first, then of the second, …; the tree comes last. Sums
 * of one group are the stage's own business (task.gradients); two groups' are added by its
 * `combine`. A stage's gradients are `gradient_bytes` for each group that is under way at a time:
 * the plan counts them.
 *
 * Replicas. In a world of R ranks `replicas` d copies of the pipe, of R / d ranks each, share a
 * mini-batch: replica k is the ranks [k R / d, (k + 1) R / d) and has the groups [k g / d, (k + 1)
 * g / d). So they own subtrees, and bits do not depend on d. Each slice of a stage's gradients (see
 * struct weir_section) is sent to the replica that owns it, which adds in the tree's order, takes
 * the norm, updates the parameters and has the optimizer's state of that slice alone; the others
 * are sent the parameters (ZeRO's stage 1: Rajbhandari et al., SC20, by direct reduce-scatter).
 * What a stage's norm and update do with replicas:
 *  - norm reads and adds up what is in own slices, and writes 0 to the norm_squares of others. So
 *    each of these is of a part that no slice's end cuts, whatever the number of replicas;
 *  - update writes the parameters of own slices, with tied gradients as with others.
 * weir_pipe_read reads from replica 0's ranks, weir_pipe_write writes on every replica's. Nothing
 * else of a stage knows of it: tasks name micro-batches, rows and losses of the whole
 * mini-batch. With no_update the gradients are given to all replicas in place of the parameters.
 */
#ifndef WEIR_SHARED_H
#define WEIR_SHARED_H

#include "weir_base.h"

#ifdef __cplusplus
#pragma GCC system_header
extern "C" {
#endif

/* ---- parameters that stages share ------------------------------------------------------------ */

/** A use of a parameter that stages share (tied weights): each of them holds a copy of it, and each
 * use has a gradient of its own, so that no sum depends on the partition. Uses of one name belong
 * together, in ascending order of stages and, within a stage, of its list. */
struct weir_tie {
    const char *name;
    size_t gradient_offset; /**< of this use's gradient, in the stage's gradients */
    size_t bytes;           /**< the same at every use */
};

/** All uses of one name: what norm and update of its stages get. The first use's stage owns the
 * sum: its norm, which runs when the gradients of all uses are complete, adds them up in this order
 * into the first and counts the parameter in its norm_squares; the other stages' norm leaves theirs
 * alone and counts 0. Update of every stage reads the first, so that the copies stay equal. */
struct weir_tied {
    const char *name;
    uint32_t use_count;
    void *const *gradients; /**< [use_count]; in other stages' memory, whatever the link. Where a
                                 device does not share it, they are copies: for the owner's norm of
                                 the others, for other stages' update of the first. What is for
                                 neither is NULL there, or not to be read */
};

/* ---- slices of gradients --------------------------------------------------------------------- */

/** Bytes: where slices may end, from their section's beginning, unless the section says it. */
enum { WEIR_SLICE_BLOCK = 65536 };

/** A range of a stage's gradients that is cut into slices by itself, so that equally long sections
 * are cut alike: what is added to each other (all uses of a parameter, tied or not) needs sections
 * of its own. Sections cover the gradients that replicas are to add, ascending, without overlap. A
 * stage that names none has one, of all, with parameters. */
struct weir_section {
    size_t offset, bytes;
    bool parameters; /**< at the same place in the stage's parameters lie those that update writes
                          for it; false: gradients alone, of a further use */
    const size_t *cuts; /**< where in it slices may end, ascending; NULL: at each WEIR_SLICE_BLOCK.
                             The stage's, as long as the pipe */
    uint32_t cut_count;
};

/** The replica's slice of a section: its bytes [*begin, *end), which may be none. */
void weir_section_slice(const struct weir_section *section, uint32_t replicas, uint32_t replica,
                        size_t *begin, size_t *end);

#ifdef __cplusplus
}
#endif
#endif

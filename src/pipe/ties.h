/* SPDX-License-Identifier: MIT */
/**
 * Parameters that stages share (struct weir_tie): which uses belong together, checked and copied,
 * and where their gradients lie once there are arenas.
 */
#ifndef WEIR_PIPE_TIES_H
#define WEIR_PIPE_TIES_H

#include "pipe/lifetimes.h"

/** Lists what is wrong with the ties of stages that are sound otherwise. */
void weir__ties_check(const struct weir_pipe_options *options, struct weir_faults *faults);
/** Groups the uses by name: setup->ties, the stages' lists and the flow's. After the stages were
 * copied; the ties have been checked. WEIR_ERR_OUT_OF_MEMORY. */
int weir__ties_init(struct weir__setup *setup);

/** Before any action is visited: no copies yet, but who writes gradients last. False without
 * memory, as the next. */
bool weir__ties_begin(struct builder *b);
/** The copies that the action needs of what lies in other memories: an owner's norm the others'
 * gradients, another stage's update the sum of all. */
bool weir__ties_copy(struct builder *b, uint32_t action);

/** Takes the arrays that norm and update will be given, and has them point into the arenas once
 * those are there. After the lifetimes, which know the gradients' blocks. False without memory. */
bool weir__ties_take(struct weir__prepared *prepared, const struct weir__setup *setup);

#endif

/* SPDX-License-Identifier: MIT */
/** Parameters that stages share: where their gradients lie, and which copies between memories they
 * need. */
#ifndef WEIR_PIPE_TIE_COPIES_H
#define WEIR_PIPE_TIE_COPIES_H

#include "pipe/lower/lifetimes.h"

/** Before any action is visited: no copies yet, but who writes gradients last. False without
 * memory. */
bool weir__ties_begin(struct builder *b);
/** The copies that the action needs of what lies in other memories: an owner's norm the others'
 * gradients, another stage's update the sum of all. */
void weir__ties_copy(struct builder *b, uint32_t action);

/** Takes the arrays that norm and update will be given, and has them point into the arenas once
 * those are there. After the lifetimes, which know the gradients' blocks. Without memory the pool
 * has failed. */
void weir__ties_take(struct weir__row_plan *prepared, const struct weir__setup *setup);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * A team: a thread and its helpers, who share what it does. The thread that made it, its *head*,
 * hands out work in numbered parts; whoever is free takes the next one. Who takes which part is
 * chance, so parts must be of the result, never of a sum: then no bit depends on the team.
 *
 * Helpers inherit the head's cores and signal mask. They spin for a while after a piece of work,
 * then sleep in a gate.
 */
#ifndef WEIR_TEAM_H
#define WEIR_TEAM_H

#include "base/base.h"

struct weir__team;

/** One part of the work. `member` is 0 (the head) up to the members asked for: each thread's own,
 * for memory that parts need while they run. */
typedef void weir__team_fn(void *context, uint32_t part, uint32_t member);

/** A team of `members` (2 or more), on the thread that will be its head. `spins`: whether helpers
 * and the head spin before they sleep. WEIR_ERR_OUT_OF_MEMORY, or WEIR_ERR_SYSTEM where the system
 * gives no thread. */
int weir__team_new(const struct weir_allocator *allocator, uint32_t members, bool spins,
                   struct weir__team **team);
/** From any thread, while nothing runs. Accepts NULL. */
void weir__team_destroy(struct weir__team *team);
/** 1 for NULL. */
uint32_t weir__team_members(const struct weir__team *team);
/** Runs parts 0 … parts - 1, by at most `members` of the team, and returns when all are done; what
 * they wrote is seen then. NULL, or one member: the caller runs them in order. Allocates nothing.
 * By the head only, and not within a part. */
void weir__team_run(struct weir__team *team, uint32_t members, uint32_t parts, weir__team_fn *run,
                    void *context);
#endif

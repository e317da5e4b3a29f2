/* SPDX-License-Identifier: MIT */
/** A rank that `weir launch` has started. */
#ifndef WEIR_TOOLS_LAUNCH_RANK_H
#define WEIR_TOOLS_LAUNCH_RANK_H

#include <stdbool.h>

/** In a process that `weir launch` has started (RANKS_LOST_VARIABLE) the rank becomes a child, and
 * the process waits for it, passes signals on (SIGUSR2 as SIGTERM: JOB_ENDS_BY_USR2), and ends with
 * its exit code, 128 and the number where a signal ended it. For a launcher that sees a process end
 * by a signal ends the others of its host at once, as MPICH's does, and those that live could not
 * say who was lost. Before there are threads. True: here nothing is left to do but to end with
 * *code; false: this is the rank, or there is no such launcher, or no process to be had. */
bool launch_rank_waits(int *code);

#endif

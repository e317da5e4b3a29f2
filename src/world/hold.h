/* SPDX-License-Identifier: MIT */
/**
 * An MPI over shared memory or UCX may read what a dead peer left, and get SIGSEGV or SIGBUS for it
 * (MPICH 5 does), before anybody can say which peer that was. So these signals are held up inside
 * its calls: whoever watches the peers ends the process meanwhile, or else it goes on to die of the
 * signal as it would have. Elsewhere they do what they did before.
 *
 * MPICH's launcher, told to leave the living alone, may send them SIGUSR1 when a process has
 * failed, by which they would die too. Until the ranks have met it is all that tells of it.
 * Internal.
 */
#ifndef WEIR_WORLD_HOLD_H
#define WEIR_WORLD_HOLD_H

#include "base/base.h"

/** Catches SIGSEGV and SIGBUS from now on, after MPI has set its own handlers; once in a process.
 */
void weir__hold_begin(double hold_seconds);
/** Catches SIGUSR1 from now on, before MPI starts, unless the program does. */
void weir__hold_hear_launcher(void);
/** Whether it has come. Any thread. */
bool weir__hold_has_heard(void);
/** Around a call of MPI, on its thread; not nested. */
void weir__hold_enter(void);
void weir__hold_leave(void);

#endif

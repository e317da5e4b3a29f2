/* SPDX-License-Identifier: MIT */
/**
 * Ctrl-C, SIGTERM (schedulers) and SIGHUP (closed terminals) in commands that work for long: once,
 * what is under way ends in good order (the step, the saves that were asked for, the summary; exit
 * code 128 + the signal's number: 130, 143, 129); twice, the process ends at once. A reader of our
 * output that goes away (SIGPIPE) counts as such a signal too. Signals within 50 ms of the first
 * are the same request: it may be sent to a process and to its group.
 */
#ifndef WEIR_TOOLS_INTERRUPT_H
#define WEIR_TOOLS_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

/** What SIGINT, SIGTERM and SIGHUP do: kept before a library starts that may take them, as an MPI
 * over UCX takes SIGHUP, and given back after. */
struct interrupt_kept {
    struct sigaction actions[3];
};
void interrupt_keep(struct interrupt_kept *kept);
void interrupt_give_back(const struct interrupt_kept *kept);

/** From now on these are counted. Before, they end the process, as nothing has been done yet. A
 * SIGHUP that is ignored (nohup) stays so. */
void interrupt_catch(void);
/** One came: to be asked between steps. */
bool interrupt_came(void);
/** Takes a Ctrl-C back, if that is what came: it has ended what it was meant for, and the next one
 * is the first again. */
void interrupt_take_back(void);
/** The exit code of a command that would end with `code`: another one where it is done, but was
 * interrupted. */
int interrupt_exit(int code);

#endif

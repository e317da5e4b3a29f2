/* SPDX-License-Identifier: MIT */
/**
 * Ctrl-C in commands that work for long: once, what is under way ends in good order (the step, the
 * saves that were asked for, the summary; exit code 130); twice, the process ends at once.
 */
#ifndef WEIR_TOOLS_INTERRUPT_H
#define WEIR_TOOLS_INTERRUPT_H

#include <stdbool.h>

/** From now on Ctrl-C is counted. Before, it ends the process, as nothing has been done yet. */
void interrupt_catch(void);
/** Ctrl-C was pressed: to be asked between steps. */
bool interrupt_came(void);

#endif

/* SPDX-License-Identifier: MIT */
/** Parameters that stages share (struct weir_tie): which uses belong together, checked and copied.
 */
#ifndef WEIR_PIPE_TIES_H
#define WEIR_PIPE_TIES_H

#include "pipe/describe/setup.h"

/** Lists what is wrong with the ties of stages that are sound otherwise. */
void weir__ties_check(const struct weir_pipe_options *options, struct weir_faults *faults);
/** Groups the uses by name: setup->ties, the stages' lists and the flow's. After the stages were
 * copied; the ties have been checked. WEIR_ERR_OUT_OF_MEMORY. */
int weir__ties_init(struct weir__setup *setup);

#endif

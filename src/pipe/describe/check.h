/* SPDX-License-Identifier: MIT */
/**
 * The checks of a pipe's description; each fault is a line that says how to mend it.
 */
#ifndef WEIR_PIPE_CHECK_H
#define WEIR_PIPE_CHECK_H

#include "base/base.h"

/** Lists what is wrong with options, stages and inputs, and, if anything is, with the schedule as
 * well. Skips are the setup's business. False: stages and inputs cannot be read at all. */
bool weir__check_options(const struct weir_pipe_options *options, struct weir_faults *faults);
/** A border tensor of `rows` rows: known dtype, shape and size; `what` names it. */
void weir__check_tensor(const struct weir_tensor *tensor, int64_t rows, const char *what,
                        struct weir_faults *faults);
/** MB-2: input `k` must give the micro-batches that the mini-batch's `rows` rows give. */
bool weir__check_rows(const struct weir_pipe_options *options, uint32_t k, int64_t rows,
                      struct weir_faults *faults);

#endif

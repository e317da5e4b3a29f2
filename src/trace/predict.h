/* SPDX-License-Identifier: MIT */
/** A prepared pipe as the simulator takes it: what a predicted step is compared with a run by. */
#ifndef WEIR_PREDICT_H
#define WEIR_PREDICT_H

#include "pipe/run/pipe.h"
#include "weir_predict.h"

/** Fills what follows from the pipe: table, borders and skips with the bytes of a first
 * micro-batch, links with their delay, when R waits, stages without backward, and what sharing
 * memory orders. Times are left as they are; pools and all else is borrowed: arrays live as long as
 * `pool`, setup and prepared. With the same times the simulator then gives the makespan of
 * weir__table_replay over prepared->orders. WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_OVERFLOW. */
int weir__predict_options(const struct weir__setup *setup, const struct weir__row_plan *prepared,
                          struct weir__pool *pool, struct weir_simulate_options *options);

#endif

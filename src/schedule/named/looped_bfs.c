/* SPDX-License-Identifier: MIT */
/*
 * Looped breadth first (Lamy-Poirier, arXiv 2211.05953): V stages per worker in loop order, each of
 * which runs all its micro-batches before the worker turns to the next stage; then the backwards
 * the same way back. The lines are those of gpipe on fewer workers than stages, in whose reverse
 * order of micro-batches the last forward is the first to be freed.
 *
 * At equal times (B = 2 F, no R, no copies) and m >= P the bubble, as a fraction of the step, is
 * (P - 1) / (V m + P - 1), as interleaved's, at V m activations alive on each worker.
 */
#include "schedule/schedules.h"

const struct weir__named_schedule weir__schedule_looped_bfs = {
    .name = "looped-bfs", .sharing = WEIR__SHARING_EVEN, .fill = weir__fill_breadth_first};

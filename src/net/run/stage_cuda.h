/* SPDX-License-Identifier: MIT */
/** Norm and update of a stage on a GPU: its parameters as spans of flat arrays, all of them in a
 * launch or few. The same arithmetic as on a CPU; sums of squares are added up in another order
 * (net/cuda/flat.h). */
#ifndef WEIR_NET_STAGE_CUDA_H
#define WEIR_NET_STAGE_CUDA_H

#include "net/run/net.h"

/** Makes the spans, in the network's pool. */
int weir__stage_init_cuda(struct weir__net_stage *stage, struct weir__network *network);
int weir__stage_norm_cuda(struct weir__net_stage *stage, const struct weir_task *task);
int weir__stage_update_cuda(struct weir__net_stage *stage, const struct weir_task *task);

#endif

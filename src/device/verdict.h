/* SPDX-License-Identifier: MIT */
/**
 * The verdict on a step's gradients. Every device forms it alone, from the same numbers, by this:
 * the host does (cpu.c), and a GPU's kernel (decide.cu), with the same bits.
 */
#ifndef WEIR_VERDICT_H
#define WEIR_VERDICT_H

#include "weir.h"

#include <math.h>

#ifdef __CUDACC__
#define WEIR__ANYWHERE __host__ __device__
#else
#define WEIR__ANYWHERE
#endif

/** By the sum of the stages' squares, added up in their order: norm = sqrt(sum); applies: that is
 * finite; and torch.nn.utils.clip_grad_norm_'s factor, where `clip_norm` is not 0. */
WEIR__ANYWHERE static inline void weir__judge_sum(double sum, double clip_norm,
                                                  struct weir_verdict *verdict) {
    const double norm = sqrt(sum), scale = clip_norm / (norm + 1e-6);
    const bool finite = isfinite(norm);
    verdict->gradient_scale = finite && clip_norm > 0.0 && scale < 1.0 ? scale : 1.0;
    verdict->norm = norm;
    verdict->applies = finite;
}

#endif

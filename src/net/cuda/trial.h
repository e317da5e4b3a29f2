/* SPDX-License-Identifier: MIT */
/**
 * Plans of libraries run once when a pipe is built, before its first step: code that the driver
 * loads when it is first launched, and what a library takes for itself, are there then, and a plan
 * that does not run is found out while there is another one. (Kernels of ours are loaded with their
 * set: device/cuda_modules.c.) Operands are memory of the trial's own, all zero, one over the
 * other: a net's numbers and its state are not touched. Where the GPU has no room for them nothing
 * is tried, and the device's ways say so (weir__cuda_way_note).
 *
 * A failure of the library's own says that the plan does not run: it is dropped and the next one is
 * tried. The driver's failures, and want of memory that a library has, are failures; behind the
 * driver's nothing is dropped, for an unhealthy GPU says nothing of a plan. `failure` is as of the
 * table's calls; `stream` the plan's.
 */
#ifndef WEIR_NET_CUDA_TRIAL_H
#define WEIR_NET_CUDA_TRIAL_H

#include "net/cuda/numerics.h"

/** Of products there is no next one: what fails is the run's status. */
int weir__cuda_try_matmul(const struct weir__cuda_library_use *use, const void *plan,
                          const struct weir__cuda_matmul *of, struct weir_stream *stream,
                          struct weir__cuda_failure *failure);
/** WEIR_ERR_UNSUPPORTED where the most rows have no plan that runs; for fewer that is the run's
 * status, since they must not take another way. The plan is fit to be destroyed in any case. */
int weir__cuda_try_convolution(const struct weir__cuda_library_use *use, void *plan,
                               const struct weir__cuda_convolution *of, struct weir_stream *stream,
                               struct weir__cuda_failure *failure);
/** As of a convolution. */
int weir__cuda_try_attention(const struct weir__cuda_library_use *use, void *plan,
                             const struct weir__cuda_attend *of, struct weir_stream *stream,
                             struct weir__cuda_failure *failure);

#endif

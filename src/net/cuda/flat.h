/* SPDX-License-Identifier: MIT */
/**
 * What is done to a stage's flat arrays on a GPU: sums of squares and updates of all parameters in
 * one launch for every WEIR__CUDA_SPANS of them. Everything is F32 and enqueued on `stream`.
 *
 * A span is one parameter: where it begins, the same in all arrays of the stage (parameters,
 * gradients, optimizer's), counted in numbers. `spans` is the caller's again when a call returns.
 */
#ifndef WEIR_NET_CUDA_FLAT_H
#define WEIR_NET_CUDA_FLAT_H

#include "net/cuda/kernels.h"
#include "net/cuda/flat_arguments.h"
#include "net/kernel.h"

struct weir__cuda_span {
    uint64_t first;
    uint64_t count;
    uint32_t result; /**< square sums: which of `squares` it is */
    uint32_t decays; /**< updates: 1 where weight decay applies, else 0 */
};

/* Thread: the stream's owner. A call's status is WEIR_OK, or that of a launch that failed; counts
 * of 0 are WEIR_OK without a launch. Spans must not overlap. */

/** Bytes of workspace of weir__cuda_square_sums. */
size_t weir__cuda_square_sums_workspace(const struct weir__cuda_span *spans, uint32_t count);
/** squares[span.result] = the sum of the span's squares, in double, in an order that depends on the
 * span's count alone (kernels/net/square_sums.cu). `squares` is the device's or pinned;
 * those that no span names are left as they are. */
int weir__cuda_square_sums(struct weir_stream *stream, const float *data,
                           const struct weir__cuda_span *spans, uint32_t count, double *squares,
                           void *workspace);
/** y += x. */
int weir__cuda_accumulate(struct weir_stream *stream, float *y, const float *x, uint64_t count);
/** weir__adamw_update's bits on every span, with verdict->gradient_scale (options' is not read);
 * nothing where !verdict->applies. `verdict` is the device's. */
int weir__cuda_adamw(struct weir_stream *stream, const struct weir__adamw_step *options,
                     const struct weir_verdict *verdict, const struct weir__cuda_span *spans,
                     uint32_t count, float *parameters, const float *gradients, float *exp_avg,
                     float *exp_avg_sq);
/** weir__sgd_update's, likewise; `momentum` may be NULL when its factor is 0. */
int weir__cuda_sgd(struct weir_stream *stream, const struct weir__sgd_step *options,
                   const struct weir_verdict *verdict, const struct weir__cuda_span *spans,
                   uint32_t count, float *parameters, const float *gradients, float *momentum);

#endif

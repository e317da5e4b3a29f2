/* SPDX-License-Identifier: MIT */
/**
 * The CUDA backend: a row for each op that enqueues kernels on call->stream and returns.
 *
 * Contracts beyond those of net/kernel.h:
 *  - dtype F32, or BF16: then activations and their gradients are stored as BF16, while parameters
 *    and their gradients, mean, rstd, lse, largest and total are F32 (weights of products may come
 * as BF16 in call->packed). All arithmetic is F32, rounded once where it is stored, but that
 *    attention of BF16 rounds shares, too, and gradients of scores, as operands of a product;
 *    losses are double;
 *  - all operands, the workspace and what they point to are memory that the device reaches. `loss`
 *    may be the host's pinned memory. Arguments are taken at the call;
 *  - results depend on the shape and on values: grids of what sums up are chosen by the shape,
 * never by the GPU's number of multiprocessors, and no sum's order depends on timing. A row of M is
 *    computed alike wherever it stands, whatever the number of rows;
 *  - a fused op rounds once, too: in F32 its bits are its parts', in BF16 they need not be. So what
 *    is fused must not depend on the partition: parts of one layer;
 *  - attention of BF16 is cuDNN's or ours (cudnn_attention.h says which), of other bits: by the
 *    shape but for its rows, the GPU and the libraries, so that all pipes of a net on a machine
 * have the same;
 *  - nothing is read back. An index out of range cannot be reported: nothing is read or written out
 *    of bounds for it, and what it would give is NaN, so that the step is refused as not finite.
 *    The net looks at the caller's indices before the step (net.h);
 *  - a failed launch is the device's status.
 */
#ifndef WEIR_NET_CUDA_H
#define WEIR_NET_CUDA_H

#include "net/cuda/kernels.h"
#include "net/cuda/norm_arguments.h"
#include "net/cuda/arguments.h"
#include "net/backend.h"

/** Sparse: rows that a family lacks have run NULL. */
extern const struct weir__kernel weir__cuda_pointwise[WEIR__OP_COUNT];
extern const struct weir__kernel weir__cuda_image[WEIR__OP_COUNT];
extern const struct weir__kernel weir__cuda_norm[WEIR__OP_COUNT];
extern const struct weir__kernel weir__cuda_image_norm[WEIR__OP_COUNT];
extern const struct weir__kernel weir__cuda_table[WEIR__OP_COUNT];
extern const struct weir__kernel weir__cuda_attention[WEIR__OP_COUNT];
extern const struct weir__kernel weir__cuda_product[WEIR__OP_COUNT];
/** Of parameters, their gradients and the optimizer's arrays, which are F32 always. */
extern const struct weir__flat_calls weir__cuda_flat_f32;

/** A launch along one line of `threads` (a multiple of 32 up to 1024): enough blocks for `items`
 * items, `per_block` to each, at least 1, at most blocks_max (0: as many as a grid may have). */
struct weir__cuda_grid weir__cuda_line(uint64_t items, uint64_t per_block, uint32_t threads,
                                       uint32_t blocks_max);
/** A launch over `layers` planes of rows x columns, for kernels that stride all three ways: blocks
 * of 256 threads, as many along a row as a power of two needs to span it; `rows_at_once` rows to a
 * thread. */
struct weir__cuda_grid weir__cuda_plane(uint64_t columns, uint64_t rows, uint32_t rows_at_once,
                                        uint64_t layers);

/** What kernels divide by `by`, 1 to 2^31, with. */
struct weir__cuda_divisor weir__cuda_divisor(uint32_t by);

/** The kernel that stores a shape's dtype: WEIR__CUDA_BY_DTYPE(gelu, shape). */
#define WEIR__CUDA_BY_DTYPE(name, shape)                                                           \
    ((shape)->dtype == WEIR_F32 ? WEIR__NET_KERNEL_##name##_f32 : WEIR__NET_KERNEL_##name##_bf16)

/**
 * Sums over rows, such as a bias's gradient, in two halves: blocks sum up parts of the rows, then
 * weir__cuda_fold adds the parts. So many rows are a part where a block has `1 / tiles` of the
 * columns: a multiple of 32; 256 blocks, two for each multiprocessor of an H200, have work if there
 * are rows enough. It follows from the shape alone.
 */
uint64_t weir__cuda_part_rows(uint64_t rows, uint64_t tiles);
/** Of that many rows; at least 1. */
uint64_t weir__cuda_parts(uint64_t rows, uint64_t part_rows);
int weir__cuda_fold(struct weir_stream *stream, const struct weir__cuda_fold *fold);

#endif

/* SPDX-License-Identifier: MIT */
/** A back end: what a stage's work is done by, as a table of calls. Stages and programs ask it
 * instead of what it is. All are constant, and of any thread but where a call says more. */
#ifndef WEIR_BACKEND_H
#define WEIR_BACKEND_H

#include "net/kernel.h"

struct weir__backend {
    /** Calls return before the work is done, in memory that the host must not touch, and cannot
     * tell what a number was. */
    bool on_gpu;
    /** Biases and sums are fused into what follows (net/compile/fuse.c). A CPU adds them while it
     * has a product's sums at hand. */
    bool fuses_sums;
    /** The kernel for an op at a dtype; NULL where there is none. */
    const struct weir__kernel *(*kernel)(enum weir__op_code op, enum weir_dtype dtype);
    /** What programs do besides ops: out[0] = in[0], or zeros; shape->width bytes. */
    struct weir__kernel move, zero;
    /** Readies the thread, a worker's, whose kernels may use so many threads and give their work to
     * `stream`. WEIR_OK, or what loading kernels gave. */
    int (*attach)(struct weir_stream *stream, uint32_t threads);
};

extern const struct weir__backend weir__backend_reference; /**< plain loops: F32, F64 */
/** A CPU's fastest: oneDNN's products where the build has them, else our vector kernels, else the
 * reference's, which has all of F64. */
extern const struct weir__backend weir__backend_vector;
extern const struct weir__backend weir__backend_cuda; /**< F32, BF16 (net/cuda/cuda.h) */

#endif

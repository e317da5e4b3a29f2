/* SPDX-License-Identifier: MIT */
/** A back end: what a stage's work is done by, as a table of calls. Stages and programs ask it
 * instead of what it is. All are constant, and of any thread but where a call says more. */
#ifndef WEIR_BACKEND_H
#define WEIR_BACKEND_H

#include "net/kernel.h"
#include "net/moments.h"
#include "weir_net.h"

/** A parameter in a stage's flat arrays: where it begins, the same in all of them (parameters,
 * gradients, the optimizer's), counted in numbers. */
struct weir__span {
    uint64_t first, count;
    uint32_t result; /**< squares: which of them it is */
    bool decays;     /**< updates: weight decay applies */
};

/** Spans, which do not overlap, and the stream of the worker that works on them. */
struct weir__spans {
    const struct weir__span *list;
    uint32_t count;
    struct weir_stream *stream;
};

/** An update as torch.optim's AdamW (decoupled weight decay) or SGD makes it. */
struct weir__update {
    const struct weir_optimizer *optimizer;
    double lr;             /**< instead of the optimizer's */
    uint64_t number;       /**< counts updates from 1 */
    double gradient_scale; /**< gradients are multiplied by this on a CPU; a GPU does not read it */
    const struct weir_verdict *verdict; /**< on a GPU, the device's: that has the factor, and says
                                             whether anything is done. A CPU does not read it */
    void *parameters;
    const void *gradients;
    void *first, *second; /**< the optimizer's arrays; NULL: it has not so many */
};

/** What is done to flat arrays of one dtype, on the thread of the stream's worker. No span, or a
 * count of 0, is WEIR_OK without a launch. What the calls take by pointer is the caller's again
 * when they return, but for arrays, workspace and squares on a GPU. WEIR_OK, or a launch that
 * failed. */
struct weir__flat_calls {
    /** y += x. */
    int (*accumulate)(struct weir_stream *stream, void *y, const void *x, uint64_t count);
    /** squares[span.result] = the sum of the span's squares in double, in an order that depends on
     * its count alone; other `squares` stay. These may be pinned memory. */
    int (*squares)(const struct weir__spans *spans, const void *data, double *squares,
                   void *workspace);
    size_t (*squares_workspace)(const struct weir__spans *spans); /**< bytes; NULL: none */
    /** By enum weir_optimizer_kind; NULL: no optimizer. Numbers between spans stay. */
    int (*update[WEIR_OPTIMIZER_SGD + 1])(const struct weir__spans *spans,
                                          const struct weir__update *update);
    /** weir__running_move, where the device's `verdict` says that the step applies; NULL: the host
     * does it. */
    int (*move_running)(struct weir_stream *stream, const struct weir_verdict *verdict,
                        const struct weir__running_numbers *numbers, double momentum);
};

struct weir__backend {
    /** Calls return before the work is done, in memory that the host must not touch, and cannot
     * tell what a number was. */
    bool on_gpu;
    /** Biases and sums are fused into what follows (net/compile/fuse.c). A CPU adds them while it
     * has a product's sums at hand. */
    bool fuses_sums;
    /** Kernels read operands that stand as "stored" in net/kernel.h at BF16, too. */
    bool reads_bf16;
    /** The kernel for an op at a dtype; NULL where there is none. */
    const struct weir__kernel *(*kernel)(enum weir__op_code op, enum weir_dtype dtype);
    /** What programs do besides ops: out[0] = in[0], or zeros; shape->width bytes. */
    struct weir__kernel move, zero;
    const struct weir__flat_calls *flat[WEIR_DTYPE_COUNT]; /**< by dtype; NULL: it has not that */
    /** Readies the thread, a worker's, whose kernels may use so many threads and give their work to
     * `stream`: on a CPU makes the stream's team. WEIR_OK, or what loading kernels or making
     * threads gave. */
    int (*attach)(struct weir_stream *stream, uint32_t threads);
};

/* A CPU's faster ones, which have F64 from this one: net/cpu/level.h. */
extern const struct weir__backend weir__backend_reference; /**< plain loops: F32, F64 */
extern const struct weir__backend weir__backend_cuda;      /**< F32, BF16 (net/cuda/cuda.h) */

#endif

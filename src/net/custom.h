/* SPDX-License-Identifier: MIT */
/** Ops of the user's own (weir_net.h) as nodes of the graph and rows of the kernel table. */
#ifndef WEIR_CUSTOM_H
#define WEIR_CUSTOM_H

#include "net/kernel.h"
#include "weir_net.h"

/** A use of an op. In its graph's pool; shared by the forward node and its gradient. */
struct weir__custom {
    const struct weir_op *op;
    const void *options;
    uint32_t input_count;
    uint32_t parameters;                 /**< bit i: input i is a parameter */
    uint32_t wanted;                     /**< bit i: its gradient is wanted */
    uint64_t counts[WEIR_OP_INPUTS_MAX]; /**< elements of a parameter */
};

/** Rows for `custom`: inputs -> output; and `custom_grad`: dy, the inputs (NULL where not kept),
 * the output (or NULL) -> the wanted gradients in order of the inputs, NULL for those that this
 * call is not asked for. F32 and F64. */
extern const struct weir__kernel weir__custom_kernel;
extern const struct weir__kernel weir__custom_grad_kernel;

#endif

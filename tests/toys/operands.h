/* SPDX-License-Identifier: MIT */
/** What net/kernel.h says of each op's operands, as data. For the tests and the benches. */
#ifndef WEIR_TESTS_KERNELS_OPERANDS_H
#define WEIR_TESTS_KERNELS_OPERANDS_H

#include "net/kernel.h"

/** Operands at most; sequences in the cache of a case; sources that residuals are mixed of. */
enum { KERNEL_INS = 13, KERNEL_OUTS = 5, KERNEL_SEQUENCES = 3, KERNEL_SOURCES = 4 };

/** OPERAND_CACHE stands among the outputs, though it is call->cache: `old` is what it held before,
 * the result what it holds after. */
enum operand_kind { OPERAND_NONE, OPERAND_REAL, OPERAND_INDEX, OPERAND_LOSS, OPERAND_CACHE };

struct operand {
    enum operand_kind kind;
    int64_t count;
    bool shared; /**< the same for all rows of the micro-batch */
    bool single; /**< F32 where the kernel's dtype is BF16: parameters, statistics */
    bool packed; /**< rounded to BF16 all the same, before it is used: a product's weights */
    bool wide;   /**< F64 whatever the kernel's dtype */
};

/** What net/kernel.h says of an op's operands. */
struct operands {
    struct operand in[KERNEL_INS], out[KERNEL_OUTS];
    bool accumulates; /**< outputs marked acc … */
    int written;      /**< … but for so many before them */
};

void kernel_operands(const struct weir__op_shape *shape, struct operands *operands);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * Levels: instruction sets that our own vector kernels (f32 and bf16) are compiled for, all of them
 * into one library, which takes the best that the processor has unless another is asked for.
 *
 * v2, v3, v4 are x86-64's as its psABI defines them (2: SSE4.2, 3: AVX2 and FMA, 4: AVX-512); neon
 * is aarch64. v4-bf16 is v4 with AVX512-BF16, which multiplies bf16 in pairs, at twice the speed;
 * all else is v4's. The width of a register is in no bit: sums are chains in ascending order or
 * sixteen lanes, products and sums are fused wherever v_fma stands, nothing is estimated and no
 * libm is asked. So v3, v4 and neon give the same bits on every machine. v2 fuses nothing: its bits
 * are its own, also on every machine. The same holds in bf16, whose numbers are widened to compute
 * with, but for the products of v4-bf16: the instruction adds the second product of a pair first,
 * and takes what is below 2^-126 for 0. So its bits in bf16 are its own.
 */
#ifndef WEIR_LEVEL_H
#define WEIR_LEVEL_H

#include "net/backend.h"

struct weir__level {
    const char *name;      /**< as options and WEIR_LEVEL have it */
    const char *bits;      /**< all that give the same in f32: "v3, v4 or neon" */
    const char *bits_bf16; /**< and in bf16 */
    const struct weir__kernel
        *rows; /**< [WEIR__OP_COUNT], f32: our own, empty where there is none */
    const struct weir__flat_calls *flat;
    const struct weir__backend *backend;
    int x86; /**< weir__x86_level that it needs */
};

/** Level `i` of those that were compiled, the slowest first; NULL from their count on. */
const struct weir__level *weir__level_at(uint32_t i);
/** Whether this processor has it. */
bool weir__level_runs(const struct weir__level *level);
/** The level called `name`; NULL: the one that the environment's WEIR_LEVEL names, else the
 * fastest that runs here. WEIR_ERR_ARGUMENT with a fault that lists those that run here: there is
 * none, or it does not run here. */
int weir__level_find(const char *name, struct weir_faults *faults,
                     const struct weir__level **level);

#endif

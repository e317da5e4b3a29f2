/* SPDX-License-Identifier: MIT */
/* Level v4-bf16: v4, with products of bf16 by pairs. */
#include "net/cpu/level.h"
#include "net/cpu/vector_calls.h"

extern const struct weir__level weir__v4_level;

static const struct weir__kernel products[] = {WEIR__PRODUCT_ROWS};

static const struct weir__kernel *kernel(enum weir__op_code op, enum weir_dtype dtype) {
    assert((unsigned)op < WEIR__OP_COUNT);
    bool ours = dtype == WEIR_BF16 && op < WEIR__COUNT_OF(products) && products[op].run != NULL;
    return ours ? &products[op] : weir__v4_level.backend->kernel(op, dtype);
}

extern const struct weir__kernel weir__v4_rows[WEIR__OP_COUNT];
extern const struct weir__flat_calls weir__v4_flat_f32;

static const struct weir__backend backend = {
    .reads_bf16 = true,
    .kernel = kernel,
    .flat = {[WEIR_F32] = &weir__v4_flat_f32, [WEIR_F64] = &weir__reference_flat_f64},
    .move = {.run = weir__cpu_move, .library = ""},
    .zero = {.run = weir__cpu_zero, .library = ""},
    .attach = weir__cpu_attach};

const struct weir__level VECTOR_F32(level) = {.name = "v4-bf16",
                                              .bits = "v3, v4 or neon",
                                              .bits_bf16 = "v4-bf16",
                                              .rows = weir__v4_rows,
                                              .flat = &weir__v4_flat_f32,
                                              .backend = &backend,
                                              .x86 = 5};

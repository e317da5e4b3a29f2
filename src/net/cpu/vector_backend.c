/* SPDX-License-Identifier: MIT */
/*
 * A level as a back end: which kernel serves which op. Op and dtype alone choose it, what depends
 * on the shape is decided inside the kernel, so a shape gives the same bits wherever it runs.
 */
#include "net/cpu/level.h"
#include "net/cpu/vector_calls.h"

#define TEXT_OF(level) TEXT(level)
#define TEXT(level) #level

#if defined(__FMA__) || defined(__aarch64__)
#define BITS "v3, v4 or neon"
#else
#define BITS TEXT_OF(WEIR_LEVEL)
#endif
#if defined(__AVX512F__)
#define X86 4
#elif defined(__AVX2__)
#define X86 3
#elif defined(__x86_64__)
#define X86 2
#else
#define X86 0
#endif

static const struct weir__kernel *kernel(enum weir__op_code op, enum weir_dtype dtype) {
    assert((unsigned)op < WEIR__OP_COUNT);
    if (dtype == WEIR_F32 && VECTOR_F32(rows)[op].run != NULL) return &VECTOR_F32(rows)[op];
    if (dtype == WEIR_BF16 && VECTOR_BF16(rows)[op].run != NULL) return &VECTOR_BF16(rows)[op];
    return weir__backend_reference.kernel(op, dtype);
}

static const struct weir__backend backend = {
    .reads_bf16 = true,
    .kernel = kernel,
    .flat = {[WEIR_F32] = &VECTOR_F32(flat_f32), [WEIR_F64] = &weir__reference_flat_f64},
    .move = {.run = weir__cpu_move, .library = ""},
    .zero = {.run = weir__cpu_zero, .library = ""},
    .attach = weir__cpu_attach};

const struct weir__level VECTOR(level) = {.name = TEXT_OF(WEIR_LEVEL),
                                          .bits = BITS,
                                          .bits_bf16 = BITS,
                                          .rows = VECTOR_F32(rows),
                                          .flat = &VECTOR_F32(flat_f32),
                                          .backend = &backend,
                                          .x86 = X86};

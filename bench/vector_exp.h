/* SPDX-License-Identifier: MIT */
/** The vector exponential of each level, as a roof. */
#ifndef WEIR_BENCH_VECTOR_EXP_H
#define WEIR_BENCH_VECTOR_EXP_H

#include <stdint.h>

/** to = exp(from), `count` a multiple of 64. */
typedef void exponentials_fn(float *to, const float *from, int64_t count);

/* In the order of weir__level_at; v4-bf16 takes v4's. */
#if defined(__x86_64__)
extern exponentials_fn weir__v2_exponentials, weir__v3_exponentials, weir__v4_exponentials;
#define EXPONENTIALS_BY_LEVEL                                                                      \
    { weir__v2_exponentials, weir__v3_exponentials, weir__v4_exponentials, weir__v4_exponentials }
#elif defined(__aarch64__)
extern exponentials_fn weir__neon_exponentials;
#define EXPONENTIALS_BY_LEVEL                                                                      \
    { weir__neon_exponentials }
#else
extern exponentials_fn weir__plain_exponentials;
#define EXPONENTIALS_BY_LEVEL                                                                      \
    { weir__plain_exponentials }
#endif

#endif

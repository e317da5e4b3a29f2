/* SPDX-License-Identifier: MIT */
/**
 * What C11 does not say and compilers say differently: hints, the processor's pause, vectors. All
 * of Weir's GNU-isms outside of numeric kernels stand here, so that a port has one file to read.
 */
#ifndef WEIR_PORTABLE_H
#define WEIR_PORTABLE_H

#include <stdint.h>

#if defined(__GNUC__)
#define WEIR__LIKELY(condition) (__builtin_expect(!!(condition), 1))
#define WEIR__UNLIKELY(condition) (__builtin_expect(!!(condition), 0))
#else
#define WEIR__LIKELY(condition) (condition)
#define WEIR__UNLIKELY(condition) (condition)
#endif

/** One turn of a loop that spins on memory: lets the other hardware thread run, and keeps the
 * processor from guessing ahead past the store that is waited for. */
static inline void weir__pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* `yield` does nothing on most cores */
#elif defined(__GNUC__)
    __asm__ volatile("" ::: "memory");
#endif
}

#if defined(__GNUC__) && !defined(__cplusplus)
#define WEIR__VECTOR 1
/** 32 bytes, the widest store that every AVX machine has; SSE2 does it in two. */
typedef uint64_t weir__vector __attribute__((vector_size(32), aligned(32), may_alias));
/** The same at any address. */
typedef uint64_t weir__vector_unaligned __attribute__((vector_size(32), aligned(1), may_alias));
#else
#define WEIR__VECTOR 0
#endif

#endif

/* SPDX-License-Identifier: MIT */
/**
 * What C11 does not say and compilers say differently: hints, the processor's pause. With
 * processor.c and past_cache.c all of Weir's GNU-isms outside of numeric kernels.
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

/** Asks for the line at `address`, which will be read soon and only once. Any address will do. */
static inline void weir__prefetch_once(const void *address) {
#if defined(__GNUC__)
    __builtin_prefetch(address, 0, 0);
#else
    (void)address;
#endif
}

#endif

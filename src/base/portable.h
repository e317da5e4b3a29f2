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

/** Asks for the line at `address`, which will be read soon and only once. Any address will do. */
static inline void weir__prefetch_once(const void *address) {
#if defined(__GNUC__)
    __builtin_prefetch(address, 0, 0);
#else
    (void)address;
#endif
}

/* ---- stores that pass the caches by ---- */

#if defined(__GNUC__) && defined(__SSE2__)
#define WEIR__STORES_PAST_CACHE 1
/* The widest that one instruction stores: copies in memory are 5 to 10% faster by whole lines than
 * by quarters. */
#if defined(__clang__) && defined(__AVX512F__)
#define WEIR__VECTOR_BYTES 64
#elif defined(__clang__) && defined(__AVX__)
#define WEIR__VECTOR_BYTES 32
#else
#define WEIR__VECTOR_BYTES 16
#endif
/** At most a line, which the processor, once it has all of it, writes without reading it first. */
typedef long long weir__vector __attribute__((vector_size(WEIR__VECTOR_BYTES), may_alias));

static inline void weir__store_past_cache(weir__vector *destination, weir__vector value) {
#if defined(__clang__)
    __builtin_nontemporal_store(value, destination);
#else
    __builtin_ia32_movntdq((weir__vector *)destination, value);
#endif
}
/** Such stores are ordered with nothing until this. */
static inline void weir__store_past_cache_end(void) {
    __builtin_ia32_sfence();
}
#else
#define WEIR__STORES_PAST_CACHE 0
#endif

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Asked of the instruction itself: the compilers' own functions for it need their run-time library,
 * which not every program that links Weir has.
 *
 * Bits as in Intel's and AMD's manuals (CPUID leaves 1, 7, 0x80000001; XCR0), levels up to 4 as
 * in the x86-64 psABI, section "Micro-Architecture Levels".
 */
#include "base/processor.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>

struct features {
    uint32_t basic, extended, amd; /* leaf 1 ecx, leaf 7 ebx, leaf 0x80000001 ecx */
    uint32_t more;                 /* leaf 7.1 eax */
    uint32_t saved;                /* XCR0: registers that the system keeps */
};

static struct features ask(void) {
    struct features found = {0};
    uint32_t a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) found.basic = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) found.extended = b;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) found.more = a;
    if (__get_cpuid(0x80000001, &a, &b, &c, &d)) found.amd = c;
    if (found.basic & 1u << 27) /* OSXSAVE */
        __asm__("xgetbv" : "=a"(found.saved), "=d"(d) : "c"(0));
    return found;
}

static bool has(uint32_t word, uint32_t bits) {
    return (word & bits) == bits;
}

static int find_level(void) {
    enum { XMM_YMM = 0x6, OPMASK_ZMM = 0xe0 };
    /* SSE3, SSSE3, CX16, SSE4.1, SSE4.2, POPCNT; LAHF */
    const uint32_t basic_2 = 1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23;
    /* FMA, MOVBE, AVX, F16C; BMI1, AVX2, BMI2; LZCNT */
    const uint32_t basic_3 = 1u << 12 | 1u << 22 | 1u << 28 | 1u << 29;
    const uint32_t extended_3 = 1u << 3 | 1u << 5 | 1u << 8;
    /* AVX512F, DQ, CD, BW, VL */
    const uint32_t extended_4 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
    const struct features f = ask();
    if (!has(f.basic, basic_2) || !has(f.amd, 1u << 0)) return 1;
    if (!has(f.basic, basic_3) || !has(f.extended, extended_3) || !has(f.amd, 1u << 5) ||
        !has(f.saved, XMM_YMM))
        return 2;
    if (!has(f.extended, extended_4) || !has(f.saved, OPMASK_ZMM)) return 3;
    return has(f.more, 1u << 5) ? 5 : 4; /* AVX512_BF16 */
}

/* Asking takes microseconds where the machine is a guest. */
int weir__x86_level(void) {
    static _Atomic int known;
    int level = atomic_load_explicit(&known, memory_order_relaxed);
    if (level > 0) return level;
    level = find_level();
    atomic_store_explicit(&known, level, memory_order_relaxed);
    return level;
}

#else

int weir__x86_level(void) {
    return 0;
}

#endif

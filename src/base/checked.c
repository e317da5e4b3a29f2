/* SPDX-License-Identifier: MIT */
/* Sizes come from users' shapes and files: each sum and product of them is checked. Portable C; the
 * compiler turns these into a flag test. */
#include "base/base.h"

bool weir__add(size_t a, size_t b, size_t *out) {
    if (a > SIZE_MAX - b) return false;
    *out = a + b;
    return true;
}

bool weir__multiply(size_t a, size_t b, size_t *out) {
    if (b != 0 && a > SIZE_MAX / b) return false;
    *out = a * b;
    return true;
}

bool weir__round_up(size_t a, size_t alignment, size_t *out) {
    assert(alignment != 0 && (alignment & (alignment - 1)) == 0);
    size_t sum;
    if (!weir__add(a, alignment - 1, &sum)) return false;
    *out = sum & ~(alignment - 1);
    return true;
}

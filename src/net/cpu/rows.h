/* SPDX-License-Identifier: MIT */
/**
 * What norms, softmax, losses and attention do to a row of numbers, or of floats: `each` is the
 * size of one. Rows are summed in two vectors of partial sums, whole pairs of vectors first. Always
 * inlined, as vector.h.
 */
#ifndef WEIR_CPU_ROWS_H
#define WEIR_CPU_ROWS_H

#include "net/cpu/vector.h"
#include "net/kernel.h"

#include <math.h>
#include <stdbool.h>

VECTOR_INLINE int64_t token_count(const struct weir__op_call *call) {
    return call->shape->rows * call->shape->tokens;
}

/** Of a vector that begins at number `first`, 0 to LANES. */
VECTOR_INLINE int64_t lanes_from(int64_t first, int64_t width) {
    return width - first < 0 ? 0 : width - first < LANES ? width - first : LANES;
}

VECTOR_INLINE vfloat row_at(const void *row, const size_t each, int64_t i, int64_t count) {
    return each == sizeof(float) ? v_load_some((const float *)row + i, count)
                                 : v_load_some((const number *)row + i, count);
}

/** The largest number; NaNs are passed over. */
VECTOR_INLINE float row_largest(const void *x, const size_t each, int64_t width) {
    vfloat largest = v_all(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) largest = v_max(row_at(x, each, i, LANES), largest);
    if (i < width) {
        vint inside = v_lane_numbers() < (int32_t)(width - i);
        vfloat rest = v_select(inside, row_at(x, each, i, width - i), v_all(-INFINITY));
        largest = v_max(rest, largest);
    }
    return v_largest(largest);
}

/** The sum of exp(x - largest); `to` takes the terms unless it is NULL, and may be x. */
VECTOR_INLINE float row_exponentials(const void *x, const size_t each, float largest, int64_t width,
                                     float *to) {
    vfloat even = v_all(0), odd = v_all(0);
    int64_t i = 0;
    for (; i + 2 * LANES <= width; i += 2 * LANES) {
        vfloat a = v_exp(row_at(x, each, i, LANES) - largest);
        vfloat b = v_exp(row_at(x, each, i + LANES, LANES) - largest);
        if (to != NULL) {
            v_store(to + i, a);
            v_store(to + i + LANES, b);
        }
        even += a;
        odd += b;
    }
    for (; i < width; i += LANES) {
        int64_t count = width - i < LANES ? width - i : LANES;
        vfloat p = v_exp(row_at(x, each, i, count) - largest);
        if (to != NULL) v_store_some(to + i, p, count);
        even += v_select(v_lane_numbers() < (int32_t)count, p, v_all(0));
    }
    return v_sum(even + odd);
}

/** The loss of a token whose logits have that largest and that total. */
VECTOR_INLINE double row_loss(const number *logits, int64_t target, float largest, float total) {
    double logit = (double)v_load_one(logits + target);
    return (double)v_log(v_all(total))[0] + ((double)largest - logit);
}

/** Its gradient times `share`, for all `count` logits, in their place, too. */
VECTOR_INLINE void row_loss_grad(number *to, const number *logits, int64_t count, int64_t target,
                                 float largest, float total, float share) {
    assert(target >= 0 && target < count);
    const float factor = share / total, mine = v_load_one(logits + target) - largest;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        v_store(to + i, v_exp(v_load(logits + i) - largest) * factor);
    if (i < count)
        v_store_some(to + i, v_exp(v_load_some(logits + i, count - i) - largest) * factor,
                     count - i);
    /* Made anew: p / weight - 1 / weight would cancel what is already rounded. */
    v_store_one(to + target, (v_exp(v_all(mine))[0] / total - 1) * share);
}

/** The sum of a * b. */
VECTOR_INLINE float row_product(const number *a, const number *b, int64_t width) {
    vfloat even = v_all(0), odd = v_all(0);
    int64_t i = 0;
    for (; i + 2 * LANES <= width; i += 2 * LANES) {
        even = v_fma(v_load(a + i), v_load(b + i), even);
        odd = v_fma(v_load(a + i + LANES), v_load(b + i + LANES), odd);
    }
    for (; i + LANES <= width; i += LANES) even = v_fma(v_load(a + i), v_load(b + i), even);
    if (i < width) odd = v_fma(v_load_some(a + i, width - i), v_load_some(b + i, width - i), odd);
    return v_sum(even + odd);
}

/** 1 / the root of x's mean square + eps, from the sum of squares; in double where these have no
 * sum in float. */
VECTOR_INLINE float row_rstd(const number *x, float sum, int64_t width, double eps) {
    double squares = (double)sum;
    if (!isfinite(sum)) {
        squares = 0;
        for (int64_t i = 0; i < width; i++) {
            double wide = (double)v_load_one(x + i);
            squares += wide * wide;
        }
    }
    return (float)(1 / sqrt(squares / (double)width + eps));
}

VECTOR_INLINE void row_narrow(number *to, const float *from, int64_t width) {
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) v_store(to + i, v_load(from + i));
    v_store_some(to + i, v_load_some(from + i, width - i), width - i);
}

/** The same, and then to = addend + what that gave; the two may be one. */
VECTOR_INLINE void row_narrow_add(number *to, const float *from, const number *addend,
                                  int64_t width) {
    for (int64_t i = 0; i < width; i += LANES) {
        int64_t count = lanes_from(i, width);
        vfloat narrowed = v_as_stored(v_load_some(from + i, count));
        v_store_some(to + i, v_load_some(addend + i, count) + narrowed, count);
    }
}

VECTOR_INLINE void row_widen(float *to, const number *from, int64_t width) {
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) v_store(to + i, v_load(from + i));
    v_store_some(to + i, v_load_some(from + i, width - i), width - i);
}

#endif

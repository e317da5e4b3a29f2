/* SPDX-License-Identifier: MIT */
/*
 * RMSNorm, but for its weight's gradient (vector_norm.c). A row is summed in two vectors of partial
 * sums.
 */
#include "net/cpu/rows.h"
#include "net/cpu/vector_calls.h"

#include <math.h>

/** The row's numbers i … at most 16, and 0 behind its end. */
VECTOR_INLINE vfloat numbers_of(const number *row, int64_t i, int64_t width) {
    return i + LANES <= width ? v_load(row + i) : v_load_some(row + i, lanes_from(i, width));
}

VECTOR_INLINE vfloat weights_of(const float *weight, int64_t i, int64_t width) {
    if (weight == NULL) return v_all(1);
    return i + LANES <= width ? v_load(weight + i) : v_load_some(weight + i, lanes_from(i, width));
}

/** sum of a[i] * b[i] */
VECTOR_INLINE float row_dot(const number *a, const number *b, const float *weight, int64_t width) {
    vfloat even = v_all(0), odd = v_all(0);
    assert(width >= 1);
    for (int64_t i = 0; i < width; i += 2 * LANES) {
        int64_t next = i + LANES;
        vfloat product = numbers_of(a, i, width) * numbers_of(b, i, width);
        even = weight == NULL ? even + product : v_fma(product, weights_of(weight, i, width), even);
        if (next >= width) break;
        product = numbers_of(a, next, width) * numbers_of(b, next, width);
        odd = weight == NULL ? odd + product : v_fma(product, weights_of(weight, next, width), odd);
    }
    return v_sum(even + odd);
}

int VECTOR(rms_norm)(const struct weir__op_call *call) {
    const number *x = call->in[0];
    const float *weight = call->shape->has_bias ? call->in[1] : NULL;
    number *y = call->out[0];
    float *rstds = call->out[1];
    int64_t width = call->shape->width, count = token_count(call);
    assert(call->shape->eps >= 0);
    for (int64_t m = 0; m < count; m++, x += width, y += width) {
        float rstd = row_rstd(x, row_dot(x, x, NULL, width), width, call->shape->eps);
        for (int64_t i = 0; i < width; i += LANES)
            v_store_some(y + i, numbers_of(x, i, width) * rstd * weights_of(weight, i, width),
                         lanes_from(i, width));
        rstds[m] = rstd;
    }
    return WEIR_OK;
}

int VECTOR(rms_norm_grad_input)(const struct weir__op_call *call) {
    const number *dy = call->in[0], *x = call->in[1];
    const float *rstds = call->in[2], *weight = call->shape->has_bias ? call->in[3] : NULL;
    number *dx = call->out[0];
    int64_t width = call->shape->width, count = token_count(call);
    assert(!call->shape->has_bias || weight != NULL);
    for (int64_t m = 0; m < count; m++, dy += width, x += width, dx += width) {
        float rstd = rstds[m];
        float mean = row_dot(dy, x, weight, width) * rstd / (float)width;
        for (int64_t i = 0; i < width; i += LANES) {
            vfloat d = numbers_of(dy, i, width) * weights_of(weight, i, width);
            vfloat normal = numbers_of(x, i, width) * rstd;
            v_store_some(dx + i, v_fma(normal, v_all(-mean), d) * rstd, lanes_from(i, width));
        }
    }
    return WEIR_OK;
}

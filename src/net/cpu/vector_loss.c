/* SPDX-License-Identifier: MIT */
/* Losses: a row's exponentials are summed lane by lane, rows in double. */
#include "net/cpu/vector.h"
#include "net/cpu/vector_calls.h"

#include <math.h>

VECTOR_INLINE float row_largest(const float *x, int64_t width) {
    vfloat largest = v_all(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) largest = v_max(v_load(x + i), largest);
    if (i < width) {
        vint inside = v_lane_numbers() < (int32_t)(width - i);
        vfloat rest = v_select(inside, v_load_some(x + i, width - i), v_all(-INFINITY));
        largest = v_max(rest, largest);
    }
    return v_largest(largest);
}

VECTOR_INLINE float row_exponentials(const float *x, float largest, int64_t width) {
    vfloat even = v_all(0), odd = v_all(0);
    int64_t i = 0;
    for (; i + 2 * LANES <= width; i += 2 * LANES) {
        even += v_exp(v_load(x + i) - largest);
        odd += v_exp(v_load(x + i + LANES) - largest);
    }
    for (; i < width; i += LANES) {
        int64_t count = width - i < LANES ? width - i : LANES;
        vfloat p = v_exp(v_load_some(x + i, count) - largest);
        even += v_select(v_lane_numbers() < (int32_t)count, p, v_all(0));
    }
    return v_sum(even + odd);
}

int weir__vector_cross_entropy(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const float *logits = call->in[0];
    const int64_t *target = call->in[1];
    float *lse = call->out[1];
    int64_t width = shape->width, count = shape->rows * shape->tokens;
    double sum = 0;
    for (int64_t m = 0; m < count; m++, logits += width) {
        bool ignored = target[m] == shape->ignore_index;
        if (!ignored && (target[m] < 0 || target[m] >= width))
            return weir__index_error(call, "target", m, target[m], width);
        float largest = row_largest(logits, width);
        float total = row_exponentials(logits, largest, width);
        lse[m] = largest + v_log(v_all(total))[0];
        if (!ignored) sum += (double)lse[m] - (double)logits[target[m]];
    }
    *(double *)call->out[0] = weir__weighted(sum, call->loss_weight);
    return WEIR_OK;
}

int weir__vector_cross_entropy_grad(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const float *logits = call->in[0], *lse = call->in[2];
    const int64_t *target = call->in[1];
    float *dlogits = call->out[0];
    int64_t width = shape->width, count = shape->rows * shape->tokens;
    float share = (float)(1 / call->loss_weight);
    for (int64_t m = 0; m < count; m++, logits += width, dlogits += width) {
        if (target[m] == shape->ignore_index) {
            memset(dlogits, 0, (size_t)width * sizeof(float));
            continue;
        }
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES)
            v_store(dlogits + i, v_exp(v_load(logits + i) - lse[m]) * share);
        if (i < width)
            v_store_some(dlogits + i, v_exp(v_load_some(logits + i, width - i) - lse[m]) * share,
                         width - i);
        /* Made anew: p / weight - 1 / weight would cancel what is already rounded. */
        float p = v_exp(v_all(logits[target[m]] - lse[m]))[0];
        dlogits[target[m]] = (p - 1) * share;
    }
    return WEIR_OK;
}

int weir__vector_mse(const struct weir__op_call *call) {
    const float *y = call->in[0], *target = call->in[1];
    int64_t count = call->shape->rows * call->shape->width;
    vdouble8 sum[2] = {{0}, {0}};
    for (int64_t i = 0; i < count; i += LANES) {
        int64_t lanes = count - i < LANES ? count - i : LANES;
        vdouble8 a[2], b[2];
        v_widen(v_load_some(y + i, lanes), &a[0], &a[1]);
        v_widen(v_load_some(target + i, lanes), &b[0], &b[1]);
        V_UNROLL
        for (int half = 0; half < 2; half++) {
            vdouble8 distance = a[half] - b[half];
            sum[half] += distance * distance;
        }
    }
    *(double *)call->out[0] = weir__weighted(v_sum8(sum[0] + sum[1]), call->loss_weight);
    return WEIR_OK;
}

int weir__vector_mse_grad(const struct weir__op_call *call) {
    const float *y = call->in[0], *target = call->in[1];
    float *dy = call->out[0];
    int64_t count = call->shape->rows * call->shape->width;
    float factor = (float)(2 / call->loss_weight);
    for (int64_t i = 0; i < count; i += LANES) {
        int64_t lanes = count - i < LANES ? count - i : LANES;
        vfloat distance = v_load_some(y + i, lanes) - v_load_some(target + i, lanes);
        v_store_some(dy + i, distance * factor, lanes);
    }
    return WEIR_OK;
}

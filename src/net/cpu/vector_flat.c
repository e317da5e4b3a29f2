/* SPDX-License-Identifier: MIT */
/*
 * Flat arrays. Sums of squares go in four chains of eight doubles, which hides the adder's latency;
 * the updates' loops are element by element, for the compiler to widen.
 */
#include "net/cpu/cpu.h"
#include "net/cpu/vector.h"

#include <math.h>

static double square_sum(const void *data, uint64_t count) {
    assert(data != NULL || count == 0);
    const float *x = data;
    vdouble8 sum[4] = {{0}, {0}, {0}, {0}};
    uint64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        vdouble8 a[4];
        v_widen(v_load(x + i), &a[0], &a[1]);
        v_widen(v_load(x + i + LANES), &a[2], &a[3]);
        V_UNROLL
        for (int v = 0; v < 4; v++) sum[v] += a[v] * a[v];
    }
    for (; i < count; i += LANES) {
        vdouble8 a[2];
        v_widen(v_load_some(x + i, count - i < LANES ? (int64_t)(count - i) : LANES), &a[0], &a[1]);
        sum[0] += a[0] * a[0];
        sum[1] += a[1] * a[1];
    }
    return v_sum8((sum[0] + sum[2]) + (sum[1] + sum[3]));
}

static void accumulate(void *restrict y, const void *restrict x, uint64_t count) {
    assert(y != x || count == 0);
    float *restrict to = y;
    const float *restrict from = x;
    for (uint64_t i = 0; i < count; i++) to[i] += from[i];
}

/** AdamW's factors, made in double and rounded once. */
struct factors {
    float scale, fresh1, beta2, fresh2, root2, eps, rate, decay;
};

VECTOR_INLINE void adamw_loop(const struct factors *f, uint64_t count, float *restrict w,
                              const float *restrict g, float *restrict m, float *restrict v) {
    const struct factors k = *f;
    for (uint64_t i = 0; i < count; i++) {
        float gradient = g[i] * k.scale;
        float first = m[i] + k.fresh1 * (gradient - m[i]);
        float second = v[i] * k.beta2 + k.fresh2 * gradient * gradient;
        m[i] = first;
        v[i] = second;
        w[i] = w[i] * k.decay - k.rate * (first / (__builtin_sqrtf(second) / k.root2 + k.eps));
    }
}

static void adamw(const struct weir__adamw_step *options, uint64_t count, void *parameter,
                  const void *gradient, void *exp_avg, void *exp_avg_sq) {
    assert(options->step >= 1);
    double correction1 = 1 - pow(options->beta1, (double)options->step);
    double correction2 = 1 - pow(options->beta2, (double)options->step);
    const struct factors factors = {.scale = (float)options->gradient_scale,
                                    .fresh1 = (float)(1 - options->beta1),
                                    .beta2 = (float)options->beta2,
                                    .fresh2 = (float)(1 - options->beta2),
                                    .root2 = (float)sqrt(correction2),
                                    .eps = (float)options->eps,
                                    .rate = (float)(options->lr / correction1),
                                    .decay = (float)(1 - options->lr * options->weight_decay)};
    adamw_loop(&factors, count, parameter, gradient, exp_avg, exp_avg_sq);
}

VECTOR_INLINE void sgd_loop(const struct weir__sgd_step *options, uint64_t count, float *restrict w,
                            const float *restrict g, float *restrict buffer, const bool first,
                            const bool nesterov) {
    float lr = (float)options->lr, factor = (float)options->momentum;
    float decay = (float)options->weight_decay, scale = (float)options->gradient_scale;
    for (uint64_t i = 0; i < count; i++) {
        float step = g[i] * scale + decay * w[i];
        float sum = first ? step : factor * buffer[i] + step;
        buffer[i] = sum;
        w[i] -= lr * (nesterov ? step + factor * sum : sum);
    }
}

static void sgd_plain(const struct weir__sgd_step *options, uint64_t count, float *restrict w,
                      const float *restrict g) {
    assert(options->momentum == 0);
    float lr = (float)options->lr, decay = (float)options->weight_decay;
    float scale = (float)options->gradient_scale;
    for (uint64_t i = 0; i < count; i++) w[i] -= lr * (g[i] * scale + decay * w[i]);
}

static void sgd(const struct weir__sgd_step *options, uint64_t count, void *parameter,
                const void *gradient, void *momentum) {
    assert(momentum != NULL || options->momentum == 0);
    if (options->momentum == 0)
        sgd_plain(options, count, parameter, gradient);
    else if (options->first && options->nesterov)
        sgd_loop(options, count, parameter, gradient, momentum, true, true);
    else if (options->first)
        sgd_loop(options, count, parameter, gradient, momentum, true, false);
    else if (options->nesterov)
        sgd_loop(options, count, parameter, gradient, momentum, false, true);
    else
        sgd_loop(options, count, parameter, gradient, momentum, false, false);
}

const struct weir__flat_calls weir__vector_flat_f32 = {
    .square_sum = square_sum, .accumulate = accumulate, .adamw = adamw, .sgd = sgd};

/* SPDX-License-Identifier: MIT */
/* Softmax, and losses: a row's exponentials are summed lane by lane, losses in double. */
#include "net/cpu/rows.h"
#include "net/cpu/vector_calls.h"

/* ---- softmax ---- */

int VECTOR(softmax)(const struct weir__op_call *call) {
    const number *x = call->in[0];
    number *y = call->out[0];
    int64_t width = call->shape->width, count = call->shape->rows * call->shape->tokens;
    for (int64_t m = 0; m < count; m++, x += width, y += width) {
        /* Exponentials wait in y for their sum, or, where it would round them, are made again. */
        float *terms = sizeof *y == sizeof *terms ? (void *)y : NULL;
        float largest = row_largest(x, sizeof *x, width);
        float share = 1 / row_exponentials(x, sizeof *x, largest, width, terms);
        for (int64_t i = 0; i < width; i += LANES) {
            int64_t lanes = width - i < LANES ? width - i : LANES;
            vfloat term = terms != NULL ? v_load_some(terms + i, lanes)
                                        : v_exp(v_load_some(x + i, lanes) - largest);
            v_store_some(y + i, term * share, lanes);
        }
    }
    return WEIR_OK;
}

int VECTOR(softmax_grad)(const struct weir__op_call *call) {
    const number *dy = call->in[0], *y = call->in[1];
    number *dx = call->out[0];
    int64_t width = call->shape->width, count = call->shape->rows * call->shape->tokens;
    for (int64_t m = 0; m < count; m++, dy += width, y += width, dx += width) {
        float product = row_product(dy, y, width);
        for (int64_t i = 0; i < width; i += LANES) {
            int64_t lanes = width - i < LANES ? width - i : LANES;
            vfloat distance = v_load_some(dy + i, lanes) - product;
            v_store_some(dx + i, v_load_some(y + i, lanes) * distance, lanes);
        }
    }
    return WEIR_OK;
}

/* ---- cross-entropy ---- */

/** Tokens of a part. */
enum { PART_TOKENS = 16 };

static void total_part(void *context, uint32_t part, uint32_t member) {
    const struct weir__op_call *call = context;
    float *largests = call->out[1], *totals = call->out[2];
    int64_t width = call->shape->width, count = call->shape->rows * call->shape->tokens;
    int64_t first = (int64_t)part * PART_TOKENS;
    const number *logits = (const number *)call->in[0] + first * width;
    (void)member;
    for (int64_t m = first; m < count && m < first + PART_TOKENS; m++, logits += width) {
        largests[m] = row_largest(logits, sizeof *logits, width);
        totals[m] = row_exponentials(logits, sizeof *logits, largests[m], width, NULL);
    }
}

int VECTOR(cross_entropy)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const number *logits = call->in[0];
    const int64_t *target = call->in[1];
    const float *largests = call->out[1], *totals = call->out[2];
    int64_t width = shape->width, count = shape->rows * shape->tokens;
    double sum = 0;
    int status = weir__check_targets(call, target, width);
    if (status != WEIR_OK) return status;
    weir__share(call, (count + PART_TOKENS - 1) / PART_TOKENS,
                WEIR__SHARED_EXPONENTIAL * (double)count * (double)width, total_part,
                (void *)(uintptr_t)call);
    for (int64_t m = 0; m < count; m++, logits += width)
        if (target[m] != shape->ignore_index)
            sum += row_loss(logits, target[m], largests[m], totals[m]);
    *(double *)call->out[0] = weir__weighted(sum, call->loss_weight);
    return WEIR_OK;
}

int VECTOR(cross_entropy_grad)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const number *logits = call->in[0];
    const int64_t *target = call->in[1];
    const float *largests = call->in[2], *totals = call->in[3];
    number *dlogits = call->out[0];
    int64_t width = shape->width, count = shape->rows * shape->tokens;
    float share = (float)(1 / call->loss_weight);
    for (int64_t m = 0; m < count; m++, logits += width, dlogits += width) {
        if (target[m] == shape->ignore_index)
            memset(dlogits, 0, (size_t)width * sizeof(number));
        else
            row_loss_grad(dlogits, logits, width, target[m], largests[m], totals[m], share);
    }
    return WEIR_OK;
}

/* ---- losses of single numbers ---- */

int VECTOR(mse)(const struct weir__op_call *call) {
    const number *y = call->in[0], *target = call->in[1];
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

int VECTOR(mse_grad)(const struct weir__op_call *call) {
    const number *y = call->in[0], *target = call->in[1];
    number *dy = call->out[0];
    int64_t count = call->shape->rows * call->shape->width;
    float factor = (float)(2 / call->loss_weight);
    for (int64_t i = 0; i < count; i += LANES) {
        int64_t lanes = count - i < LANES ? count - i : LANES;
        vfloat distance = v_load_some(y + i, lanes) - v_load_some(target + i, lanes);
        v_store_some(dy + i, distance * factor, lanes);
    }
    return WEIR_OK;
}

/** max(x, 0) - x t + log(1 + exp(-|x|)), in eight lanes of double but for the logarithm. */
VECTOR_INLINE void add_bce(vfloat x, vfloat t, vfloat rest, vdouble8 sum[2]) {
    vdouble8 wide_x[2], wide_t[2], wide_rest[2];
    const vdouble8 zero = {0};
    v_widen(x, &wide_x[0], &wide_x[1]);
    v_widen(t, &wide_t[0], &wide_t[1]);
    v_widen(rest, &wide_rest[0], &wide_rest[1]);
    V_UNROLL
    for (int half = 0; half < 2; half++) {
        /* max(x, 0) - x t = x (1 - t) above 0, and 0 where that factor is 0, also for an infinite
         * x; a NaN comes through by the rest. */
        vdouble8 share = (vdouble8)((wide_x[half] > zero) & (vlong8)(zero + 1.0)) - wide_t[half];
        vdouble8 product = (vdouble8)((vlong8)(wide_x[half] * share) & (share != zero));
        sum[half] += product + wide_rest[half];
    }
}

int VECTOR(bce_with_logits)(const struct weir__op_call *call) {
    const number *x = call->in[0], *target = call->in[1];
    int64_t count = call->shape->rows * call->shape->width;
    vdouble8 sum[2] = {{0}, {0}};
    for (int64_t i = 0; i < count; i += LANES) {
        int64_t lanes = count - i < LANES ? count - i : LANES;
        vfloat logit = v_load_some(x + i, lanes);
        vfloat rest = v_log_above_1(v_exp(-v_abs(logit)));
        rest = v_select(v_lane_numbers() < (int32_t)lanes, rest, v_all(0));
        add_bce(logit, v_load_some(target + i, lanes), rest, sum);
    }
    *(double *)call->out[0] = weir__weighted(v_sum8(sum[0] + sum[1]), call->loss_weight);
    return WEIR_OK;
}

int VECTOR(bce_with_logits_grad)(const struct weir__op_call *call) {
    const number *x = call->in[0], *target = call->in[1];
    number *dx = call->out[0];
    int64_t count = call->shape->rows * call->shape->width;
    float share = (float)(1 / call->loss_weight);
    for (int64_t i = 0; i < count; i += LANES) {
        int64_t lanes = count - i < LANES ? count - i : LANES;
        vfloat logit = v_load_some(x + i, lanes), t = v_load_some(target + i, lanes);
        /* Above 0 as (1 - t) - sigmoid(-x): sigmoid(x) - t would cancel for sure ones. */
        vfloat small = v_exp(-v_abs(logit)), inverse = 1.0f / (1.0f + small);
        vfloat excess =
            v_select(logit > v_all(0), (1.0f - t) - small * inverse, small * inverse - t);
        v_store_some(dx + i, excess * share, lanes);
    }
    return WEIR_OK;
}

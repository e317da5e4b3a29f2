/* SPDX-License-Identifier: MIT */
/*
 * Ops that treat each element by itself: whole vectors, then a rest through the same formula. Both
 * kinds of GELU are x times a share between 0 and 1 that is made without cancellation.
 */
#include "net/cpu/rows.h"
#include "net/cpu/vector_calls.h"

/* sqrt(8 / pi) and that times 0.044715 and thrice: tanh(z) = 2 * sigmoid(2 z) - 1. */
#define TWICE_ROOT 1.59576912f
#define TWICE_ROOT_CUBIC 0.0713548162726f
#define TWICE_ROOT_SLOPE 0.2140644488178f
#define ROOT_INVERSE 0.398942280401f /* 1 / sqrt(2 pi) */

/** An op of one or two operands; inlined into `each`. */
typedef vfloat formula_fn(vfloat a, vfloat b);

VECTOR_INLINE int each(const struct weir__op_call *call, const number *b, formula_fn *formula) {
    const number *a = call->in[0];
    number *y = call->out[0];
    int64_t count = call->shape->rows * call->shape->width, i = 0;
    for (; i + LANES <= count; i += LANES) v_store(y + i, formula(v_load(a + i), v_load(b + i)));
    if (i < count)
        v_store_some(y + i, formula(v_load_some(a + i, count - i), v_load_some(b + i, count - i)),
                     count - i);
    return WEIR_OK;
}

VECTOR_INLINE int each_of_one(const struct weir__op_call *call, formula_fn *formula) {
    return each(call, call->in[0], formula);
}

VECTOR_INLINE int each_of_two(const struct weir__op_call *call, formula_fn *formula) {
    return each(call, call->in[1], formula);
}

/* ---- GELU ---- */

VECTOR_INLINE vfloat gelu_tanh(vfloat x, vfloat unused) {
    (void)unused;
    vfloat spread;
    return x * v_sigmoid(x * v_fma(x * x, v_all(TWICE_ROOT_CUBIC), v_all(TWICE_ROOT)), &spread);
}

VECTOR_INLINE vfloat gelu_erf(vfloat x, vfloat unused) {
    (void)unused;
    vfloat density;
    return x * v_normal_share(x, &density);
}

VECTOR_INLINE vfloat gelu_tanh_grad(vfloat dy, vfloat x) {
    vfloat square = x * x, spread;
    vfloat share =
        v_sigmoid(x * v_fma(square, v_all(TWICE_ROOT_CUBIC), v_all(TWICE_ROOT)), &spread);
    vfloat slope = v_fma(square, v_all(TWICE_ROOT_SLOPE), v_all(TWICE_ROOT));
    return dy * v_fma(x * spread, slope, share);
}

VECTOR_INLINE vfloat gelu_erf_grad(vfloat dy, vfloat x) {
    vfloat density, share = v_normal_share(x, &density);
    return dy * v_fma(x * density, v_all(ROOT_INVERSE), share);
}

int VECTOR(gelu)(const struct weir__op_call *call) {
    return call->shape->gelu_tanh ? each_of_one(call, gelu_tanh) : each_of_one(call, gelu_erf);
}

int VECTOR(gelu_grad)(const struct weir__op_call *call) {
    return call->shape->gelu_tanh ? each_of_two(call, gelu_tanh_grad)
                                  : each_of_two(call, gelu_erf_grad);
}

/* ---- SiLU, sigmoid, tanh ---- */

VECTOR_INLINE vfloat silu(vfloat x, vfloat unused) {
    (void)unused;
    vfloat spread;
    return x * v_sigmoid(x, &spread);
}

VECTOR_INLINE vfloat silu_grad(vfloat dy, vfloat x) {
    vfloat spread, share = v_sigmoid(x, &spread);
    return dy * v_fma(x, spread, share);
}

VECTOR_INLINE vfloat sigmoid(vfloat x, vfloat unused) {
    (void)unused;
    vfloat spread;
    return v_sigmoid(x, &spread);
}

VECTOR_INLINE vfloat sigmoid_grad(vfloat dy, vfloat y) {
    return dy * (y * (1.0f - y));
}

VECTOR_INLINE vfloat tanh_of(vfloat x, vfloat unused) {
    (void)unused;
    return v_tanh(x);
}

VECTOR_INLINE vfloat tanh_grad(vfloat dy, vfloat y) {
    return dy * v_fma(-y, y, v_all(1));
}

int VECTOR(silu)(const struct weir__op_call *call) {
    return each_of_one(call, silu);
}

int VECTOR(silu_grad)(const struct weir__op_call *call) {
    return each_of_two(call, silu_grad);
}

VECTOR_INLINE vfloat swiglu(vfloat gate, vfloat up) {
    return silu(gate, gate) * up;
}

int VECTOR(swiglu)(const struct weir__op_call *call) {
    return each_of_two(call, swiglu);
}

int VECTOR(swiglu_grad)(const struct weir__op_call *call) {
    const number *dy = call->in[0], *gate = call->in[1], *up = call->in[2];
    number *dgate = call->out[0], *dup = call->out[1];
    int64_t count = call->shape->rows * call->shape->width;
    for (int64_t i = 0; i < count; i += LANES) {
        int64_t lanes = count - i < LANES ? count - i : LANES;
        vfloat d = v_load_some(dy + i, lanes), x = v_load_some(gate + i, lanes), spread;
        vfloat share = v_sigmoid(x, &spread);
        v_store_some(dgate + i, d * v_load_some(up + i, lanes) * v_fma(x, spread, share), lanes);
        v_store_some(dup + i, d * (x * share), lanes);
    }
    return WEIR_OK;
}

int VECTOR(sigmoid)(const struct weir__op_call *call) {
    return each_of_one(call, sigmoid);
}

int VECTOR(sigmoid_grad)(const struct weir__op_call *call) {
    return each_of_two(call, sigmoid_grad);
}

int VECTOR(tanh)(const struct weir__op_call *call) {
    return each_of_one(call, tanh_of);
}

int VECTOR(tanh_grad)(const struct weir__op_call *call) {
    return each_of_two(call, tanh_grad);
}

/* ---- leaky ReLU ---- */

/** Forward x is its own gate; of the gradient it is y. */
VECTOR_INLINE int leak(const struct weir__op_call *call, const number *gate) {
    const number *x = call->in[0];
    number *y = call->out[0];
    float slope = (float)call->shape->slope;
    int64_t count = call->shape->rows * call->shape->width, i = 0;
    for (; i + LANES <= count; i += LANES)
        v_store(y + i, v_leaky(v_load(gate + i), v_load(x + i), slope));
    if (i < count)
        v_store_some(
            y + i, v_leaky(v_load_some(gate + i, count - i), v_load_some(x + i, count - i), slope),
            count - i);
    return WEIR_OK;
}

int VECTOR(leaky_relu)(const struct weir__op_call *call) {
    return leak(call, call->in[0]);
}

int VECTOR(leaky_relu_grad)(const struct weir__op_call *call) {
    return leak(call, call->in[1]);
}

int VECTOR(scale)(const struct weir__op_call *call) {
    const number *x = call->in[0];
    number *y = call->out[0];
    vfloat factor = v_all((float)call->shape->slope);
    int64_t count = call->shape->rows * call->shape->width, i = 0;
    for (; i + LANES <= count; i += LANES) v_store(y + i, factor * v_load(x + i));
    if (i < count) v_store_some(y + i, factor * v_load_some(x + i, count - i), count - i);
    return WEIR_OK;
}

/* ---- the rest ---- */

/* Not x > 0 ? x : 0: a NaN must come through. */
VECTOR_INLINE vfloat relu(vfloat x, vfloat unused) {
    (void)unused;
    return v_select(x <= v_all(0), v_all(0), x);
}

VECTOR_INLINE vfloat relu_grad(vfloat dy, vfloat x) {
    return v_select(x <= v_all(0), v_all(0), dy);
}

VECTOR_INLINE vfloat sum(vfloat a, vfloat b) {
    return a + b;
}

VECTOR_INLINE vfloat product(vfloat a, vfloat b) {
    return a * b;
}

int VECTOR(relu)(const struct weir__op_call *call) {
    return each_of_one(call, relu);
}

int VECTOR(relu_grad)(const struct weir__op_call *call) {
    return each_of_two(call, relu_grad);
}

int VECTOR(add)(const struct weir__op_call *call) {
    return each_of_two(call, sum);
}

int VECTOR(multiply)(const struct weir__op_call *call) {
    return each_of_two(call, product);
}

int VECTOR(bias_add)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const number *x = call->in[0];
    const float *bias = call->in[1];
    number *y = call->out[0];
    assert(shape->out > 0 && shape->width % shape->out == 0);
    for (int64_t m = shape->rows * (shape->width / shape->out); m > 0; m--) {
        int64_t i = 0;
        for (; i + LANES <= shape->out; i += LANES)
            v_store(y + i, v_load(x + i) + v_load(bias + i));
        int64_t rest = shape->out - i;
        v_store_some(y + i, v_load_some(x + i, rest) + v_load_some(bias + i, rest), rest);
        x += shape->out;
        y += shape->out;
    }
    return WEIR_OK;
}

int VECTOR(narrow)(const struct weir__op_call *call) {
    row_narrow(call->out[0], call->in[0], call->shape->rows * call->shape->width);
    return WEIR_OK;
}

int VECTOR(widen)(const struct weir__op_call *call) {
    row_widen(call->out[0], call->in[0], call->shape->rows * call->shape->width);
    return WEIR_OK;
}

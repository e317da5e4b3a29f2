/* SPDX-License-Identifier: MIT */
/*
 * A product's cross-entropy without all of its logits, which exist some tokens at a time: a softmax
 * needs the whole row of each. While a slice's logits are there, its gradients are made of them, so
 * nothing is made anew; those of the weights are chains over tokens, which go on from slice to
 * slice where they lie.
 *
 * Weights are packed again in each slice unless they are kept packed, and those of the input's
 * gradient always: with so many tokens about a twentieth of a product.
 */
#include "net/cpu/product.h"
#include "net/cpu/rows.h"
#include "net/cpu/vector_calls.h"

#include <assert.h>

/** A slice holds as many numbers as so many tokens have logits: 96 MiB of 49,152 classes in F32.
 * Whole pairs of a gradient's depth. */
enum { SLICE_TOKENS = 512 };
/** Tokens of a part of what is shared. */
enum { PART_TOKENS = 16 };
_Static_assert(SLICE_TOKENS % 2 == 0, "pairs of the depth are not cut");

/** Tokens that are made at a time, and what the parts of their work share. */
struct head_slice {
    const struct weir__op_call *call; /* its workspace is the products' */
    const float *bias;                /* NULL: none */
    bool gradient;                    /* logits become theirs */
    number *logits;                   /* (tokens, classes) */
    double *losses;                   /* (tokens) */
    int64_t token, tokens, classes;
};

/** The op on the slice's product: all but the operands. */
static struct weir__matrix_product product_of(const struct weir__op_shape *shape,
                                              enum weir__op_code op) {
    struct weir__op_shape part = *shape;
    part.op = op;
    return VECTOR(product_of)(&part);
}

static const number *input_of(const struct head_slice *slice) {
    return (const number *)slice->call->in[0] + slice->token * slice->call->shape->in;
}

static void make_logits(const struct head_slice *slice) {
    const struct weir__op_call *call = slice->call;
    struct weir__matrix_product product = product_of(call->shape, WEIR__OP_linear);
    assert(slice->tokens >= 1 && slice->tokens <= SLICE_TOKENS);
    product.a = input_of(slice);
    product.b = call->in[1];
    product.packed = call->packed;
    product.bias = slice->bias;
    product.c = slice->logits;
    product.rows = slice->tokens;
    VECTOR(make_product)(call, &product);
}

/** PART_TOKENS tokens' losses, and the gradients of their logits by the mini-batch's. */
static void loss_part(void *context, uint32_t part, uint32_t member) {
    const struct head_slice *slice = context;
    const struct weir__op_call *call = slice->call;
    const int64_t *target = (const int64_t *)call->in[2] + slice->token;
    const float share = (float)(1 / call->loss_weight);
    const int64_t first = (int64_t)part * PART_TOKENS, width = slice->classes;
    number *logits = slice->logits + first * width;
    (void)member;
    for (int64_t m = first; m < slice->tokens && m < first + PART_TOKENS; m++, logits += width) {
        slice->losses[m] = 0;
        if (target[m] == call->shape->ignore_index) {
            if (slice->gradient) memset(logits, 0, (size_t)width * sizeof *logits);
            continue;
        }
        float largest = row_largest(logits, sizeof *logits, width);
        float total = row_exponentials(logits, sizeof *logits, largest, width, NULL);
        slice->losses[m] = row_loss(logits, target[m], largest, total);
        if (slice->gradient) row_loss_grad(logits, logits, width, target[m], largest, total, share);
    }
}

static void make_losses(struct head_slice *slice) {
    double work = WEIR__SHARED_EXPONENTIAL * (slice->gradient ? 2 : 1) * (double)slice->tokens *
                  (double)slice->classes;
    weir__share(slice->call, v_parts(slice->tokens, PART_TOKENS), work, loss_part, slice);
}

static void make_input_gradient(const struct head_slice *slice, number *dx) {
    const struct weir__op_call *call = slice->call;
    struct weir__matrix_product product = product_of(call->shape, WEIR__OP_linear_grad_input);
    product.a = slice->logits;
    product.b = call->in[1];
    product.c = dx + slice->token * call->shape->in;
    product.rows = slice->tokens;
    VECTOR(make_product)(call, &product);
}

static void make_weight_gradient(const struct head_slice *slice, float *dweight) {
    const struct weir__op_call *call = slice->call;
    struct weir__matrix_product product = product_of(call->shape, WEIR__OP_linear_grad_weight);
    const bool flip = call->shape->weight_in_out;
    product.a = flip ? input_of(slice) : slice->logits;
    product.b = flip ? slice->logits : input_of(slice);
    product.c = dweight;
    product.depth = slice->tokens;
    if (call->overwrite && slice->token == 0) product.mode = WEIR__PANEL_SET;
    VECTOR(make_product)(call, &product);
}

/** LANES classes of the bias's. */
static void bias_part(void *context, uint32_t part, uint32_t member) {
    const struct head_slice *slice = context;
    const int64_t first = (int64_t)part * LANES, lanes = lanes_from(first, slice->classes);
    const bool begins = slice->call->overwrite && slice->token == 0;
    const number *gradient = slice->logits + first;
    float *to = (float *)slice->call->out[3] + first;
    vfloat sum = begins ? v_all(0) : v_load_some(to, lanes);
    (void)member;
    for (int64_t m = 0; m < slice->tokens; m++, gradient += slice->classes)
        sum += v_load_some(gradient, lanes);
    v_store_some(to, sum, lanes);
}

static void make_bias_gradient(struct head_slice *slice) {
    double work = WEIR__SHARED_NUMBER * (double)slice->tokens * (double)slice->classes;
    weir__share(slice->call, v_parts(slice->classes, LANES), work, bias_part, slice);
}

/* ---- workspace: logits, losses, the products' ---- */

struct head_areas {
    size_t losses, products;
};

static size_t rounded_up(size_t bytes) {
    return (bytes + WEIR__CACHE_LINE - 1) / WEIR__CACHE_LINE * WEIR__CACHE_LINE;
}

static bool lay_out(const struct weir__op_shape *shape, struct head_areas *areas) {
    const size_t tokens = (size_t)v_least(shape->rows * shape->tokens, SLICE_TOKENS);
    if (!weir__multiply(tokens * sizeof(number), (size_t)shape->out, &areas->losses)) return false;
    areas->losses = rounded_up(areas->losses);
    return weir__add(areas->losses, rounded_up(tokens * sizeof(double)), &areas->products);
}

/** For products of at most a slice's tokens. */
static int measure(const struct weir__op_shape *shape, const enum weir__op_code *ops, int count,
                   size_t *workspace) {
    const int64_t tokens = v_least(shape->rows * shape->tokens, SLICE_TOKENS);
    struct head_areas areas;
    int64_t most = 0;
    size_t products;
    for (int i = 0; i < count; i++) {
        struct weir__matrix_product product = product_of(shape, ops[i]);
        *(ops[i] == WEIR__OP_linear_grad_weight ? &product.depth : &product.rows) = tokens;
        int64_t floats = VECTOR(product_floats)(&product);
        if (most < floats) most = floats;
    }
    bool fits = lay_out(shape, &areas) &&
                weir__multiply((size_t)most * sizeof(float), shape->threads, &products) &&
                weir__add(areas.products, products, workspace);
    return fits ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

int VECTOR(measure_linear_cross_entropy)(const struct weir__op_shape *shape, size_t *workspace) {
    static const enum weir__op_code ops[] = {WEIR__OP_linear};
    return measure(shape, ops, 1, workspace);
}

int VECTOR(measure_linear_cross_entropy_grad)(const struct weir__op_shape *shape,
                                              size_t *workspace) {
    static const enum weir__op_code ops[] = {WEIR__OP_linear, WEIR__OP_linear_grad_input,
                                             WEIR__OP_linear_grad_weight};
    return measure(shape, ops, shape->frozen ? 2 : 3, workspace);
}

/* ---- the ops ---- */

static void make_gradients(struct head_slice *slice) {
    const struct weir__op_call *call = slice->call;
    if (call->out[1] != NULL) make_input_gradient(slice, call->out[1]);
    if (call->shape->frozen || call->out[2] == NULL) return;
    make_weight_gradient(slice, call->out[2]);
    if (call->shape->has_bias) make_bias_gradient(slice);
}

/** Losses are added in the order of tokens. */
static int run(const struct weir__op_call *call, bool gradient) {
    const struct weir__op_shape *shape = call->shape;
    const int64_t count = token_count(call);
    struct weir__op_call inner = *call;
    struct head_areas areas;
    double sum = 0;
    int status = weir__check_targets(call, call->in[2], shape->out);
    if (status != WEIR_OK) return status;
    if (!lay_out(shape, &areas)) return WEIR_ERR_OVERFLOW;
    struct head_slice slice = {.call = &inner,
                               .bias = shape->has_bias ? call->in[3] : NULL,
                               .gradient = gradient,
                               .logits = call->workspace,
                               .losses = (void *)((char *)call->workspace + areas.losses),
                               .classes = shape->out};
    inner.workspace = (char *)call->workspace + areas.products;
    for (; slice.token < count; slice.token += SLICE_TOKENS) {
        slice.tokens = v_least(count - slice.token, SLICE_TOKENS);
        make_logits(&slice);
        make_losses(&slice);
        for (int64_t m = 0; m < slice.tokens; m++) sum += slice.losses[m];
        if (gradient) make_gradients(&slice);
    }
    if (call->out[0] != NULL) *(double *)call->out[0] = weir__weighted(sum, call->loss_weight);
    return WEIR_OK;
}

int VECTOR(linear_cross_entropy)(const struct weir__op_call *call) {
    return run(call, false);
}

int VECTOR(linear_cross_entropy_grad)(const struct weir__op_call *call) {
    return run(call, true);
}

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
    bool gradient;                    /* logits become theirs */
    number *logits;                   /* (tokens, classes) */
    double *losses;                   /* (tokens) */
    int64_t token, tokens, classes;
};

/** An op of products on the slice's tokens. */
static struct weir__op_shape part_of(const struct weir__op_shape *shape, enum weir__op_code op,
                                     int64_t tokens) {
    assert(tokens >= 0 && tokens <= SLICE_TOKENS);
    struct weir__op_shape part = *shape;
    part.op = op;
    part.rows = tokens;
    part.tokens = 1;
    return part;
}

/** Runs one; `packed`: the weights, or NULL. */
static void run_part(const struct head_slice *slice, enum weir__op_code op,
                     int (*run)(const struct weir__op_call *call), const void *const *in, void *out,
                     const void *packed) {
    const struct weir__op_shape shape = part_of(slice->call->shape, op, slice->tokens);
    struct weir__op_call part = *slice->call;
    part.shape = &shape;
    part.in = in;
    part.out = &out;
    part.packed = packed;
    part.overwrite = slice->call->overwrite && slice->token == 0;
    int status = run(&part);
    assert(status == WEIR_OK); /* products cannot fail */
    (void)status;
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

static int measure(const struct weir__op_shape *shape, const enum weir__op_code *ops, int count,
                   size_t *workspace) {
    const int64_t tokens = v_least(shape->rows * shape->tokens, SLICE_TOKENS);
    struct head_areas areas;
    size_t most = 0, bytes;
    for (int i = 0; i < count; i++) {
        const struct weir__op_shape part = part_of(shape, ops[i], tokens);
        int status = VECTOR(measure_product)(&part, &bytes);
        if (status != WEIR_OK) return status;
        if (most < bytes) most = bytes;
    }
    bool fits = lay_out(shape, &areas) && weir__add(areas.products, most, workspace);
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

/** As bias_grad, which a level of pairs alone does not have. */
static void make_bias_gradient(struct head_slice *slice) {
    double work = WEIR__SHARED_NUMBER * (double)slice->tokens * (double)slice->classes;
    weir__share(slice->call, v_parts(slice->classes, LANES), work, bias_part, slice);
}

static void make_logits(const struct head_slice *slice, const number *x) {
    const void *in[] = {x, slice->call->in[1],
                        slice->call->shape->has_bias ? slice->call->in[3] : NULL};
    run_part(slice, WEIR__OP_linear, VECTOR(linear), in, slice->logits, slice->call->packed);
}

/** Of the logits' gradients. */
static void make_gradients(struct head_slice *slice, const number *x) {
    const struct weir__op_call *call = slice->call;
    const void *of_input[] = {slice->logits, call->in[1]}, *of_weight[] = {x, slice->logits};
    const int64_t first = slice->token * call->shape->in;
    if (call->out[1] != NULL)
        run_part(slice, WEIR__OP_linear_grad_input, VECTOR(linear_grad_input), of_input,
                 (number *)call->out[1] + first, NULL);
    if (call->shape->frozen || call->out[2] == NULL) return;
    run_part(slice, WEIR__OP_linear_grad_weight, VECTOR(linear_grad_weight), of_weight,
             call->out[2], NULL);
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
                               .gradient = gradient,
                               .logits = call->workspace,
                               .losses = (void *)((char *)call->workspace + areas.losses),
                               .classes = shape->out};
    inner.workspace = (char *)call->workspace + areas.products;
    for (; slice.token < count; slice.token += SLICE_TOKENS) {
        slice.tokens = v_least(count - slice.token, SLICE_TOKENS);
        const number *x = (const number *)call->in[0] + slice.token * shape->in;
        make_logits(&slice, x);
        make_losses(&slice);
        for (int64_t m = 0; m < slice.tokens; m++) sum += slice.losses[m];
        if (gradient) make_gradients(&slice, x);
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

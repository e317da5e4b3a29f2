/* SPDX-License-Identifier: MIT */
/*
 * A product's cross-entropy without all of its logits. Forward takes tokens, some at a time, for it
 * wants the whole row of each. The gradients take classes instead, some at a time of all tokens:
 * the weight's rows, or columns, are whole then and need no room beside where they are added, and
 * of the input's gradient each slice goes on with the chains of the one before. So weights are
 * packed once in a call, and each number is one chain as it is without slices, whose bits do not
 * depend on how many there are.
 *
 * Where the weight does not learn, forward makes the input's gradient as well, while it has the
 * slice's logits: then nothing is made anew.
 *
 * Forward packs the weights again in each slice unless they are kept packed: about a tenth of the
 * slice's product.
 */
#include "net/cpu/product.h"
#include "net/cpu/rows.h"
#include "net/cpu/vector_calls.h"

#include <assert.h>

/** A slice holds as many numbers as so many tokens have logits: 48 MiB of 49,152 classes in F32. */
enum { SLICE_TOKENS = 256 };
/** Classes of a slice are a multiple of this: whole strips, tiles and pairs. */
enum { SLICE_CLASSES = WEIR__STRIP_ROWS };
/** Tokens of a part of what is shared, and classes of a bias. */
enum { PART_TOKENS = 16 };
_Static_assert(SLICE_CLASSES % 2 == 0, "pairs of the depth are not cut");

static const bool narrow = sizeof(number) < sizeof(float);

static int64_t parts_of(int64_t count, int64_t part) {
    return (count + part - 1) / part;
}

/** Tokens or classes that are made at a time, and what the parts of their work share. */
struct head_slice {
    const struct weir__op_call *call; /* its workspace is the products' */
    const float *bias;                /* NULL: none */
    number *logits;                   /* (tokens, classes); then their gradient */
    float *sums;                      /* (tokens, in), of the input's gradient; NULL: it has them */
    int64_t token, tokens, class, classes;
    const float *largests, *totals; /* of all tokens */
};

/** The op on the slice's product: all but the operands. */
static struct weir__matrix_product product_of(const struct weir__op_shape *shape,
                                              enum weir__op_code op) {
    struct weir__op_shape part = *shape;
    part.op = op;
    return VECTOR(product_of)(&part);
}

/** The weight from the slice's first class on. */
static const void *weight_of(const struct head_slice *slice) {
    const struct weir__op_shape *shape = slice->call->shape;
    size_t each = shape->stored == WEIR_BF16 ? sizeof(struct weir__bf16) : sizeof(float);
    int64_t first = slice->class * (shape->weight_in_out ? 1 : shape->in);
    return (const char *)slice->call->in[1] + (size_t)first * each;
}

static void make_logits(const struct head_slice *slice, const void *packed) {
    const struct weir__op_call *call = slice->call;
    struct weir__matrix_product product = product_of(call->shape, WEIR__OP_linear);
    assert(packed == NULL || slice->classes == call->shape->out);
    product.a = (const number *)call->in[0] + slice->token * call->shape->in;
    product.b = weight_of(slice);
    product.packed = packed;
    if (slice->bias != NULL) product.bias = slice->bias + slice->class;
    product.c = slice->logits;
    product.c_row = product.columns = slice->classes;
    product.rows = slice->tokens;
    VECTOR(make_product)(call, &product);
}

static double exponentials_of(const struct head_slice *slice) {
    return WEIR__SHARED_EXPONENTIAL * (double)slice->tokens * (double)slice->classes;
}

/* Logits become their gradients. */
static void gradient_part(void *context, uint32_t part, uint32_t member) {
    const struct head_slice *slice = context;
    const struct weir__op_call *call = slice->call;
    const int64_t *target = (const int64_t *)call->in[2] + slice->token;
    const float *largests = slice->largests + slice->token, *totals = slice->totals + slice->token;
    const float share = (float)(1 / call->loss_weight);
    int64_t first = (int64_t)part * PART_TOKENS, width = slice->classes;
    number *logits = slice->logits + first * width;
    (void)member;
    for (int64_t m = first; m < slice->tokens && m < first + PART_TOKENS; m++, logits += width) {
        if (target[m] == call->shape->ignore_index)
            memset(logits, 0, (size_t)width * sizeof *logits);
        else
            row_loss_grad(logits, logits, width, target[m] - slice->class, largests[m], totals[m],
                          share);
    }
}

/* ---- forward ---- */

static size_t rounded_up(size_t bytes) {
    return (bytes + WEIR__CACHE_LINE - 1) / WEIR__CACHE_LINE * WEIR__CACHE_LINE;
}

/** Of so many tokens' logits; false: too many. */
static bool slice_bytes(int64_t tokens, int64_t classes, size_t *bytes) {
    size_t each = sizeof(number);
    return weir__multiply((size_t)tokens, each, bytes) &&
           weir__multiply(*bytes, (size_t)classes, bytes);
}

int VECTOR(measure_linear_cross_entropy)(const struct weir__op_shape *shape, size_t *workspace) {
    struct weir__matrix_product product = product_of(shape, WEIR__OP_linear);
    struct weir__matrix_product dx = product_of(shape, WEIR__OP_linear_grad_input);
    product.rows = dx.rows = v_least(product.rows, SLICE_TOKENS);
    int64_t floats = VECTOR(product_floats)(&product), other = VECTOR(product_floats)(&dx);
    if (shape->derives && floats < other) floats = other;
    size_t products, each = (size_t)floats * sizeof(float);
    if (!slice_bytes(product.rows, shape->out, workspace)) return WEIR_ERR_OVERFLOW;
    *workspace = rounded_up(*workspace);
    bool fits = weir__multiply(each, shape->threads, &products) &&
                weir__add(*workspace, products, workspace);
    return fits ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

static void total_part(void *context, uint32_t part, uint32_t member) {
    const struct head_slice *slice = context;
    float *largests = slice->call->out[1], *totals = slice->call->out[2];
    int64_t first = (int64_t)part * PART_TOKENS, width = slice->classes;
    const number *logits = slice->logits + first * width;
    (void)member;
    for (int64_t i = first; i < slice->tokens && i < first + PART_TOKENS; i++, logits += width) {
        int64_t m = slice->token + i;
        largests[m] = row_largest(logits, sizeof *logits, width);
        totals[m] = row_exponentials(logits, sizeof *logits, largests[m], width, NULL);
    }
}

/** Its losses, in ascending order behind those before. */
static double add_losses(const struct head_slice *slice, double sum) {
    const struct weir__op_call *call = slice->call;
    const int64_t *target = call->in[2];
    const float *largests = call->out[1], *totals = call->out[2];
    for (int64_t i = 0; i < slice->tokens; i++) {
        int64_t m = slice->token + i;
        if (target[m] == call->shape->ignore_index) continue;
        sum += row_loss(slice->logits + i * slice->classes, target[m], largests[m], totals[m]);
    }
    return sum;
}

/** The input's, of the slice's tokens. */
static void derive(const struct head_slice *slice) {
    const struct weir__op_call *call = slice->call;
    struct weir__matrix_product product = product_of(call->shape, WEIR__OP_linear_grad_input);
    weir__share(call, parts_of(slice->tokens, PART_TOKENS), exponentials_of(slice), gradient_part,
                (void *)slice);
    product.a = slice->logits;
    product.b = weight_of(slice);
    product.c = (number *)call->out[3] + slice->token * call->shape->in;
    product.rows = slice->tokens;
    VECTOR(make_product)(call, &product);
}

int VECTOR(linear_cross_entropy)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const int64_t count = token_count(call);
    struct weir__op_call inner = *call;
    struct head_slice slice = {.call = &inner,
                               .logits = call->workspace,
                               .classes = shape->out,
                               .largests = call->out[1],
                               .totals = call->out[2]};
    if (shape->has_bias) slice.bias = call->in[3];
    size_t held;
    double sum = 0;
    int status = weir__check_targets(call, call->in[2], shape->out);
    if (status != WEIR_OK) return status;
    if (!slice_bytes(v_least(count, SLICE_TOKENS), shape->out, &held)) return WEIR_ERR_OVERFLOW;
    inner.workspace = (char *)call->workspace + rounded_up(held);
    for (; slice.token < count; slice.token += SLICE_TOKENS) {
        slice.tokens = v_least(count - slice.token, SLICE_TOKENS);
        make_logits(&slice, call->packed);
        weir__share(call, parts_of(slice.tokens, PART_TOKENS), exponentials_of(&slice), total_part,
                    &slice);
        sum = add_losses(&slice, sum);
        if (shape->derives && !call->infer) derive(&slice);
    }
    *(double *)call->out[0] = weir__weighted(sum, call->loss_weight);
    return WEIR_OK;
}

/* ---- gradients ---- */

/** Of a slice: all of them where there are few tokens. */
static int64_t classes_of(int64_t tokens, int64_t classes) {
    if (tokens <= SLICE_TOKENS) return classes;
    int64_t wanted = parts_of(SLICE_TOKENS * classes, tokens);
    return v_least(parts_of(wanted, SLICE_CLASSES) * SLICE_CLASSES, classes);
}

/** Where a gradient's workspace begins, in bytes, and its products'. */
struct head_areas {
    size_t sums, products;
};

/** No less for more tokens, whatever slices are rounded to: all calls of a node fit. */
static bool lay_out(const struct weir__op_shape *shape, struct head_areas *areas) {
    int64_t tokens = shape->rows * shape->tokens;
    size_t rounding, sums = 0;
    if (!slice_bytes(v_least(tokens, SLICE_TOKENS), shape->out, &areas->sums) ||
        !slice_bytes(tokens > SLICE_TOKENS ? tokens : 0, SLICE_CLASSES, &rounding) ||
        !weir__add(areas->sums, rounding, &areas->sums))
        return false;
    if (narrow && !weir__multiply((size_t)(tokens * shape->in), sizeof(float), &sums)) return false;
    areas->sums = rounded_up(areas->sums);
    return weir__add(areas->sums, rounded_up(sums), &areas->products);
}

/** Floats of the products' workspace, of one member. */
static int64_t product_floats(const struct weir__op_shape *shape) {
    struct weir__matrix_product logits = product_of(shape, WEIR__OP_linear);
    struct weir__matrix_product dx = product_of(shape, WEIR__OP_linear_grad_input);
    struct weir__matrix_product dw = product_of(shape, WEIR__OP_linear_grad_weight);
    dx.keeps_sums = true;
    dw.a_step = 0; /* any: its strips may be packed */
    int64_t most = VECTOR(product_floats)(&logits), other = VECTOR(product_floats)(&dx);
    if (most < other) most = other;
    other = VECTOR(product_floats)(&dw);
    return most < other ? other : most;
}

int VECTOR(measure_linear_cross_entropy_grad)(const struct weir__op_shape *shape,
                                              size_t *workspace) {
    struct head_areas areas;
    size_t products, each = (size_t)product_floats(shape) * sizeof(float);
    bool fits = lay_out(shape, &areas) && weir__multiply(each, shape->threads, &products) &&
                weir__add(areas.products, products, workspace);
    return fits ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

/** The input's: the chains of the slices before go on. */
static void add_input_gradient(const struct head_slice *slice) {
    const struct weir__op_call *call = slice->call;
    struct weir__matrix_product product = product_of(call->shape, WEIR__OP_linear_grad_input);
    product.a = slice->logits;
    product.a_row = product.depth = slice->classes;
    product.b = weight_of(slice);
    product.c = slice->sums != NULL ? (void *)slice->sums : call->out[0];
    product.keeps_sums = true;
    if (slice->class > 0) product.mode = WEIR__PANEL_CHAIN;
    VECTOR(make_product)(call, &product);
}

static void make_weight_gradient(const struct head_slice *slice) {
    const struct weir__op_call *call = slice->call;
    struct weir__matrix_product product = product_of(call->shape, WEIR__OP_linear_grad_weight);
    const bool flip = call->shape->weight_in_out;
    product.a = flip ? call->in[0] : slice->logits;
    product.b = flip ? slice->logits : call->in[0];
    product.c = (float *)call->out[1] + slice->class * (flip ? 1 : call->shape->in);
    if (flip)
        product.b_row = product.columns = slice->classes;
    else
        product.a_step = product.rows = slice->classes;
    if (call->overwrite) product.mode = WEIR__PANEL_SET;
    VECTOR(make_product)(call, &product);
}

/** LANES classes of the bias's. */
static void bias_part(void *context, uint32_t part, uint32_t member) {
    const struct head_slice *slice = context;
    int64_t first = (int64_t)part * LANES, lanes = lanes_from(first, slice->classes);
    const number *gradient = slice->logits + first;
    float *to = (float *)slice->call->out[2] + slice->class + first;
    vfloat sum = v_all(0);
    (void)member;
    for (int64_t m = 0; m < slice->tokens; m++, gradient += slice->classes)
        sum += v_load_some(gradient, lanes);
    v_store_some(to, slice->call->overwrite ? sum : v_load_some(to, lanes) + sum, lanes);
}

static void add_gradients(struct head_slice *slice) {
    const struct weir__op_call *call = slice->call;
    const bool learns = call->out[1] != NULL;
    weir__share(call, parts_of(slice->tokens, PART_TOKENS), exponentials_of(slice), gradient_part,
                slice);
    if (call->out[0] != NULL) add_input_gradient(slice);
    if (learns) make_weight_gradient(slice);
    if (!learns || !call->shape->has_bias) return;
    weir__share(call, parts_of(slice->classes, LANES),
                WEIR__SHARED_NUMBER * (double)slice->tokens * (double)slice->classes, bias_part,
                slice);
}

int VECTOR(linear_cross_entropy_grad)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const int64_t count = token_count(call), classes = classes_of(count, shape->out);
    struct weir__op_call inner = *call;
    struct head_slice slice = {.call = &inner,
                               .logits = call->workspace,
                               .tokens = count,
                               .largests = call->in[3],
                               .totals = call->in[4]};
    struct head_areas areas;
    if (shape->has_bias) slice.bias = call->in[5];
    if (!lay_out(shape, &areas)) return WEIR_ERR_OVERFLOW;
    inner.workspace = (char *)call->workspace + areas.products;
    if (narrow) slice.sums = (void *)((char *)call->workspace + areas.sums);
    for (; slice.class < shape->out; slice.class += classes) {
        slice.classes = v_least(shape->out - slice.class, classes);
        make_logits(&slice, NULL);
        add_gradients(&slice);
    }
    if (narrow && call->out[0] != NULL) row_narrow(call->out[0], slice.sums, count * shape->in);
    return WEIR_OK;
}

/* SPDX-License-Identifier: MIT */
#include "net_shapes.h"

#include "harness.h"

#include <math.h>
#include <string.h>

/* Random numbers, within 2 of 0, stand for variances. */
static const double BATCH_EPS = 3;

#define KIND(name, form)                                                                           \
    { WEIR__OP_##name, NET_##form, "", false }
#define BOTH(name)                                                                                 \
    {WEIR__OP_##name, NET_HIDDEN, "-tanh", false}, {                                               \
        WEIR__OP_##name, NET_HIDDEN, "-erf", true                                                  \
    }

const struct net_kind net_kinds[] = {
    BOTH(bias_gelu),
    BOTH(bias_gelu_grad),
    BOTH(gelu),
    BOTH(gelu_grad),
    KIND(bias_dropout_add, WIDTH),
    KIND(bias_grad, HIDDEN),
    KIND(layer_norm, TOKENS),
    KIND(layer_norm_grad_input, TOKENS),
    KIND(layer_norm_grad_weight, TOKENS),
    KIND(add_layer_norm, TOKENS),
    KIND(add_layer_norm_grad_input, TOKENS),
    KIND(rms_norm, TOKENS),
    KIND(rms_norm_grad_input, TOKENS),
    KIND(rms_norm_grad_weight, TOKENS),
    KIND(softmax, TOKENS),
    KIND(softmax_grad, TOKENS),
    KIND(cross_entropy, CLASSES),
    KIND(cross_entropy_grad, CLASSES),
    KIND(embedding, TABLE),
    KIND(embedding_grad, TABLE),
    KIND(position_add, PLACES),
    KIND(position_grad, PLACES),
    KIND(relu, HIDDEN),
    KIND(relu_grad, HIDDEN),
    KIND(silu, HIDDEN),
    KIND(silu_grad, HIDDEN),
    KIND(swiglu, HIDDEN),
    KIND(swiglu_grad, HIDDEN),
    KIND(rope, TOKENS),
    KIND(rope_grad, TOKENS),
    KIND(sigmoid, HIDDEN),
    KIND(sigmoid_grad, HIDDEN),
    KIND(tanh, HIDDEN),
    KIND(tanh_grad, HIDDEN),
    KIND(dropout, WIDTH),
    KIND(dropout_add, WIDTH),
    KIND(add, WIDTH),
    KIND(multiply, WIDTH),
    KIND(bias_add, HIDDEN),
    KIND(narrow, WIDTH),
    KIND(widen, WIDTH),
    KIND(instance_norm, PIXELS),
    KIND(instance_norm_grad_input, PIXELS),
    KIND(instance_norm_grad_weight, PIXELS),
    KIND(instance_norm_act, PIXELS),
    KIND(instance_norm_act_grad, PIXELS),
    KIND(batch_norm, BATCH),
    KIND(batch_norm_sums, BATCH),
    KIND(batch_norm_act, BATCH),
    KIND(batch_norm_act_sums, BATCH),
    KIND(batch_norm_grad_input, BATCH),
    KIND(dropout2d, PIXELS),
    KIND(scale, PLANE),
    KIND(leaky_relu, PLANE),
    KIND(leaky_relu_grad, PLANE),
    KIND(max_pool2d, POOL),
    KIND(max_pool2d_grad, POOL),
    KIND(avg_pool2d, POOL),
    KIND(avg_pool2d_grad, POOL),
    KIND(upsample, GROW),
    KIND(upsample_grad, GROW),
    KIND(concat, JOIN),
    KIND(concat_grad_a, JOIN),
    KIND(concat_grad_b, JOIN),
    KIND(transpose, TURN),
    KIND(mse, MASK),
    KIND(mse_grad, MASK),
    KIND(bce_with_logits, MASK),
    KIND(bce_with_logits_grad, MASK),
};
const uint32_t net_kind_count = WEIR__COUNT_OF(net_kinds);

/* Bound by arithmetic, of any number of operands, of a few tokens or channels, or the user's. */
static bool is_left_out(enum weir__op_code op) {
    switch (op) {
    case WEIR__OP_linear:
    case WEIR__OP_linear_grad_input:
    case WEIR__OP_linear_add:
    case WEIR__OP_linear_grad_input_add:
    case WEIR__OP_linear_grad_weight:
    case WEIR__OP_linear_cross_entropy:
    case WEIR__OP_linear_cross_entropy_grad:
    case WEIR__OP_attention:
    case WEIR__OP_attention_grad:
    case WEIR__OP_residual_mix:
    case WEIR__OP_residual_mix_grad:
    case WEIR__OP_residual_mix_grad_weight:
    case WEIR__OP_grouped_attention:
    case WEIR__OP_grouped_attention_grad:
    case WEIR__OP_grouped_attention_cached:
    case WEIR__OP_rope_cached:
    case WEIR__OP_attention_cached:
    case WEIR__OP_position_cached:
    case WEIR__OP_conv2d:
    case WEIR__OP_conv2d_grad_input:
    case WEIR__OP_conv2d_grad_weight:
    case WEIR__OP_batch_norm_grad_weight:
    case WEIR__OP_batch_norm_statistics:
    case WEIR__OP_custom:
    case WEIR__OP_custom_grad: return true;
    default: return false;
    }
}

void net_check_kinds(const struct weir__backend *backend) {
    for (enum weir__op_code op = 0; op < WEIR__OP_COUNT; op++) {
        bool here = is_left_out(op) || backend->kernel(op, WEIR_F32) == NULL;
        for (uint32_t i = 0; i < net_kind_count; i++) here |= net_kinds[i].op == op;
        if (!here) bench_die("%s is not among the kinds", weir__op_name(op));
    }
}

/* ---- shapes ---- */

static void set_matrix(struct weir__op_shape *shape, int64_t tokens, int64_t width) {
    shape->tokens = tokens;
    shape->width = width;
}

/* Heads of 64 numbers. */
static void set_heads(struct weir__op_shape *shape) {
    static const float frequencies[32] = {1, 0.75F, 0.5625F, 0.4219F, 0.3164F, 0.2373F, 0.178F};
    shape->heads = shape->width / 64;
    shape->frequencies = frequencies;
}

static void set_image(struct weir__op_shape *shape, enum net_form form,
                      const struct net_sizes *sizes) {
    struct weir__plane plane = {sizes->side, sizes->side};
    struct weir__plane half = {sizes->side / 2, sizes->side / 2}, two = {2, 2};
    shape->width = shape->in = shape->out = sizes->channels;
    if (form == NET_POOL)
        shape->window =
            (struct weir__window){.in = plane, .out = half, .kernel = two, .stride = two};
    if (form == NET_GROW)
        shape->window = (struct weir__window){.in = half, .out = plane, .stride = two};
    if (form == NET_JOIN) shape->window = (struct weir__window){.in = plane, .out = plane};
}

struct weir__op_shape net_shape(const struct net_kind *kind, enum weir_dtype dtype,
                                const struct net_sizes *sizes, int64_t rows) {
    int64_t tokens = sizes->tokens, pixels = sizes->side * sizes->side;
    struct weir__op_shape shape = {.op = kind->op,
                                   .dtype = dtype,
                                   .threads = 1,
                                   .rows = rows,
                                   .rows_max = rows,
                                   .tokens = 1,
                                   .ignore_index = -100,
                                   .gelu_tanh = !kind->erf,
                                   .eps = 1e-5,
                                   .p = 0.1,
                                   .slope = 0.01,
                                   .random_op = 1u << 8 | 3};
    switch (kind->form) {
    case NET_HIDDEN: set_matrix(&shape, tokens, tokens * sizes->hidden); break;
    case NET_WIDTH: set_matrix(&shape, tokens, tokens * sizes->width); break;
    case NET_TOKENS:
    case NET_TABLE:
    case NET_PLACES: set_matrix(&shape, tokens, sizes->width); break;
    case NET_CLASSES: set_matrix(&shape, tokens, sizes->vocabulary); break;
    case NET_BATCH: shape.eps = BATCH_EPS; shape.adds = shape.activates = true; /* fall through */
    case NET_PIXELS: set_matrix(&shape, pixels, sizes->channels); break;
    case NET_PLANE: shape.width = pixels * sizes->channels; break;
    case NET_MASK: shape.width = pixels; break;
    case NET_TURN: break;
    default: set_image(&shape, kind->form, sizes); break;
    }
    if (kind->form == NET_TOKENS) set_heads(&shape);
    if (kind->form == NET_HIDDEN) shape.out = sizes->hidden;
    if (kind->form == NET_WIDTH || kind->form == NET_TABLE) shape.out = sizes->width;
    if (kind->form == NET_TABLE) shape.in = sizes->vocabulary;
    if (kind->form == NET_PLACES) shape.table = tokens;
    if (kind->form == NET_TURN) shape.in = sizes->channels, shape.out = pixels;
    return shape;
}

/* ---- bytes ---- */

enum weir_dtype net_dtype(const struct operand *operand, enum weir_dtype dtype) {
    if (operand->kind == OPERAND_INDEX) return WEIR_I64;
    if (operand->kind == OPERAND_LOSS || operand->wide) return WEIR_F64;
    return operand->single ? WEIR_F32 : dtype;
}

size_t net_bytes(const struct operand *operand, enum weir_dtype dtype) {
    if (operand->kind == OPERAND_NONE) return 0;
    return (size_t)operand->count * weir_dtype_bytes(net_dtype(operand, dtype));
}

size_t net_traffic(const struct weir__op_shape *shape) {
    struct operands operands;
    size_t all = 0, each = weir_dtype_bytes(shape->dtype);
    size_t m = (size_t)(shape->rows * shape->tokens), numbers = m * (size_t)shape->width;
    kernel_operands(shape, &operands);
    for (int i = 0; i < KERNEL_INS; i++) all += net_bytes(&operands.in[i], shape->dtype);
    for (int i = 0; i < KERNEL_OUTS; i++) all += net_bytes(&operands.out[i], shape->dtype);
    switch (shape->op) {
    case WEIR__OP_embedding: return m * 8 + numbers * (4 + each); /* rows that are looked up */
    case WEIR__OP_concat_grad_a:
    case WEIR__OP_concat_grad_b: return 2 * net_bytes(&operands.out[0], shape->dtype);
    default: return all;
    }
}

/* ---- answers ---- */

bool net_is_by_rows(enum weir__op_code op) {
    return op != WEIR__OP_batch_norm && op != WEIR__OP_batch_norm_act &&
           op != WEIR__OP_batch_norm_grad_input;
}

double net_number(const void *numbers, enum weir_dtype dtype, int64_t i) {
    float value;
    if (dtype == WEIR_F64) return ((const double *)numbers)[i];
    if (dtype != WEIR_BF16) return (double)((const float *)numbers)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)numbers)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

double net_tolerance(const struct operands *operands, enum weir_dtype dtype) {
    int64_t longest = 0;
    for (int i = 0; i < KERNEL_INS; i++)
        if (operands->in[i].count > longest) longest = operands->in[i].count;
    return 0x1p-24 * (16 + 4 * sqrt((double)longest)) + (dtype == WEIR_BF16 ? 3 * 0x1p-8 : 0);
}

bool net_is_near(const struct operand *operand, enum weir_dtype dtype, const void *got,
                 const void *wanted, double tolerance) {
    enum weir_dtype own = net_dtype(operand, dtype), exact = own == WEIR_F64 ? own : WEIR_F32;
    double largest = 1;
    for (int64_t i = 0; i < operand->count; i++)
        largest = fmax(largest, fabs(net_number(wanted, exact, i)));
    for (int64_t i = 0; i < operand->count; i++)
        if (!(fabs(net_number(got, own, i) - net_number(wanted, exact, i)) <= tolerance * largest))
            return false;
    return true;
}

/* SPDX-License-Identifier: MIT */
#include "toys/operands.h"
#include "net/cpu/cpu.h"
#include "net/moments.h"

#include <stdio.h>
#include <stdlib.h>

/* Sizes in numbers: m = R*T, in_image = a micro-batch of `in` channels on the input's plane … */
struct sizes {
    int64_t rows, m, in, out, weight, width, elements, table, qkv, kv, kv_table, lse, c;
    int64_t in_image, out_image, kernel, in_pool, out_pool, joined, turned;
};

static int64_t pixels(struct weir__plane plane) {
    return plane.height * plane.width;
}

static struct sizes sizes_of(const struct weir__op_shape *shape) {
    int64_t m = shape->rows * shape->tokens, groups = shape->window.groups;
    int64_t in_plane = shape->rows * pixels(shape->window.in);
    int64_t out_plane = shape->rows * pixels(shape->window.out);
    int64_t group_in = groups > 0 ? shape->in / groups : 0;
    int64_t kv_width = shape->heads > 0 ? shape->width / shape->heads * shape->kv_heads : 0;
    return (struct sizes){
        .rows = shape->rows,
        .m = m,
        .in = m * shape->in,
        .out = m * shape->out,
        .weight = shape->in * shape->out,
        .width = m * shape->width,
        .elements = shape->rows * shape->width,
        .table = shape->table * shape->width,
        .qkv = 3 * m * shape->width,
        .kv = m * kv_width,
        .kv_table = shape->table * kv_width,
        .lse = m * shape->heads,
        .c = shape->width,
        .in_image = in_plane * shape->in,
        .out_image = out_plane * shape->out,
        .kernel = shape->out * group_in * pixels(shape->window.kernel),
        .in_pool = in_plane * shape->width,
        .out_pool = out_plane * shape->width,
        .joined = out_plane * (shape->in + shape->out),
        .turned = m * shape->in * shape->out,
    };
}

/* SHARED: the same for all rows. PACKED: so, and a product's. MOMENT: a row's statistics. INDEX:
 * one per token. DOCUMENTS: of packed rows. */
#define REAL(size)                                                                                 \
    { OPERAND_REAL, size, false, false, false }
#define SHARED(size)                                                                               \
    { OPERAND_REAL, size, true, true, false }
#define PACKED(size)                                                                               \
    { OPERAND_REAL, size, true, true, true }
#define MOMENT(size)                                                                               \
    { OPERAND_REAL, size, false, true, false }
#define WIDE(size)                                                                                 \
    { OPERAND_REAL, size, true, true, false, true }
#define INDEX                                                                                      \
    { OPERAND_INDEX, n.m, false, false, false }
#define DOCUMENTS                                                                                  \
    { shape->packed ? OPERAND_INDEX : OPERAND_NONE, shape->packed ? 2 * n.m : 0 }
#define LOSS                                                                                       \
    { OPERAND_LOSS, 1, false, false, false }
#define CACHE(table)                                                                               \
    { OPERAND_CACHE, 2 * KERNEL_SEQUENCES *(table), false, false, false }

/** Products. Operands of other ops are OPERAND_NONE, here and below. */
static struct operands operands_of_products(const struct weir__op_shape *shape) {
    struct sizes n = sizes_of(shape);
    int64_t bias = shape->has_bias ? shape->out : 0;
    const struct operands rows[WEIR__OP_COUNT] = {
        [WEIR__OP_linear] = {{REAL(n.in), PACKED(n.weight), PACKED(bias)}, {REAL(n.out)}, false},
        [WEIR__OP_linear_grad_input] = {{REAL(n.out), PACKED(n.weight)}, {REAL(n.in)}, false},
        [WEIR__OP_linear_add] = {{REAL(n.in), PACKED(n.weight), REAL(n.out), PACKED(bias)},
                                 {REAL(n.out)},
                                 false},
        [WEIR__OP_linear_grad_input_add] = {{REAL(n.out), PACKED(n.weight), REAL(n.in)},
                                            {REAL(n.in)},
                                            false},
        [WEIR__OP_linear_grad_weight] = {{REAL(n.in), REAL(n.out)}, {SHARED(n.weight)}, true},
        [WEIR__OP_bias_grad] = {{REAL(n.out)}, {SHARED(shape->out)}, true},
    };
    return rows[shape->op];
}

/** Tables, LayerNorm, attention. */
static struct operands operands_of_text(const struct weir__op_shape *shape) {
    struct sizes n = sizes_of(shape);
    int64_t affine = shape->has_bias ? n.c : 0;
    const struct operand tokens = {OPERAND_INDEX, shape->packed ? 2 * n.m : n.m};
    const struct operands rows[WEIR__OP_COUNT] = {
        [WEIR__OP_embedding] = {{tokens, SHARED(n.weight)}, {REAL(n.out)}, false},
        [WEIR__OP_embedding_grad] = {{tokens, REAL(n.out)}, {SHARED(n.weight)}, true},
        [WEIR__OP_position_add] = {{REAL(n.width), SHARED(n.table)}, {REAL(n.width)}, false},
        [WEIR__OP_position_grad] = {{REAL(n.width)}, {SHARED(n.table)}, true},
        [WEIR__OP_layer_norm] = {{REAL(n.width), SHARED(n.c), SHARED(n.c)},
                                 {REAL(n.width), MOMENT(n.m), MOMENT(n.m)},
                                 false},
        [WEIR__OP_layer_norm_grad_input] = {{REAL(n.width), REAL(n.width), MOMENT(n.m), MOMENT(n.m),
                                             SHARED(n.c)},
                                            {REAL(n.width)},
                                            false},
        [WEIR__OP_layer_norm_grad_weight] = {{REAL(n.width), REAL(n.width), MOMENT(n.m),
                                              MOMENT(n.m)},
                                             {SHARED(n.c), SHARED(n.c)},
                                             true},
        [WEIR__OP_add_layer_norm] = {{REAL(n.width), REAL(n.width), SHARED(n.c), SHARED(n.c)},
                                     {REAL(n.width), MOMENT(n.m), MOMENT(n.m), REAL(n.width)},
                                     false},
        [WEIR__OP_add_layer_norm_grad_input] = {{REAL(n.width), REAL(n.width), REAL(n.width),
                                                 MOMENT(n.m), MOMENT(n.m), SHARED(n.c)},
                                                {REAL(n.width)},
                                                false},
        [WEIR__OP_rms_norm] = {{REAL(n.width), SHARED(affine)},
                               {REAL(n.width), MOMENT(n.m)},
                               false},
        [WEIR__OP_rms_norm_grad_input] =
            {{REAL(n.width), REAL(n.width), MOMENT(n.m), SHARED(affine)}, {REAL(n.width)}, false},
        [WEIR__OP_rms_norm_grad_weight] = {{REAL(n.width), REAL(n.width), MOMENT(n.m)},
                                           {SHARED(n.c)},
                                           true},
        [WEIR__OP_attention] = {{REAL(n.qkv)}, {REAL(n.width), MOMENT(n.lse)}, false},
        [WEIR__OP_attention_grad] = {{REAL(n.width), REAL(n.qkv), REAL(n.width), MOMENT(n.lse)},
                                     {REAL(n.qkv)},
                                     false},
        [WEIR__OP_attention_cached] = {{REAL(3 * n.elements)},
                                       {REAL(n.elements), CACHE(n.table)},
                                       false},
        [WEIR__OP_position_cached] = {{REAL(n.elements), SHARED(n.table)},
                                      {REAL(n.elements)},
                                      false},
        [WEIR__OP_grouped_attention] = {{REAL(n.width), REAL(n.kv), REAL(n.kv), DOCUMENTS},
                                        {REAL(n.width), MOMENT(n.lse)},
                                        false},
        [WEIR__OP_grouped_attention_grad] = {{REAL(n.width), REAL(n.width), REAL(n.kv), REAL(n.kv),
                                              REAL(n.width), MOMENT(n.lse), DOCUMENTS},
                                             {REAL(n.width), REAL(n.kv), REAL(n.kv)},
                                             false},
        [WEIR__OP_grouped_attention_cached] = {{REAL(n.width), REAL(n.kv), REAL(n.kv)},
                                               {REAL(n.width), CACHE(n.kv_table)},
                                               false},
        [WEIR__OP_rope] = {{REAL(n.width), DOCUMENTS}, {REAL(n.width)}, false},
        [WEIR__OP_rope_grad] = {{REAL(n.width), DOCUMENTS}, {REAL(n.width)}, false},
        [WEIR__OP_rope_cached] = {{REAL(n.width)}, {REAL(n.width)}, false},
        [WEIR__OP_swiglu] = {{REAL(n.elements), REAL(n.elements)}, {REAL(n.elements)}, false},
        [WEIR__OP_swiglu_grad] = {{REAL(n.elements), REAL(n.elements), REAL(n.elements)},
                                  {REAL(n.elements), REAL(n.elements)},
                                  false},
    };
    return rows[shape->op];
}

/** Ops with as many operands as there are sources; every other one has a sum. */
static struct operands operands_of_sources(const struct weir__op_shape *shape) {
    struct sizes n = sizes_of(shape);
    const struct operand source = REAL(n.width), none = {.kind = OPERAND_REAL};
    struct operands mix = {
        {SHARED(n.c), SHARED(n.c)},
        {REAL(n.width), MOMENT(n.m * shape->sources), MOMENT(n.m * shape->sources)},
        false};
    struct operands grad = {{REAL(n.width), MOMENT(n.m * shape->sources),
                             MOMENT(n.m * shape->sources), SHARED(n.c), SHARED(n.c)},
                            {MOMENT(n.width)},
                            false};
    const struct operands weight = {
        {MOMENT(n.width), SHARED(n.c), SHARED(n.c)}, {SHARED(n.c), SHARED(n.c)}, true};
    for (int64_t s = 0; s < shape->sources && s < KERNEL_SOURCES; s++) {
        mix.in[2 + s] = grad.in[5 + s] = grad.out[1 + s] = source;
        grad.in[5 + shape->sources + s] = s % 2 == 0 ? source : none;
    }
    if (shape->op == WEIR__OP_residual_mix) return mix;
    if (shape->op == WEIR__OP_residual_mix_grad) return grad;
    return shape->op == WEIR__OP_residual_mix_grad_weight ? weight : (struct operands){0};
}

/** Ops that look at an image through a window. */
static struct operands operands_of_windows(const struct weir__op_shape *shape) {
    struct sizes n = sizes_of(shape);
    int64_t bias = shape->has_bias ? shape->out : 0;
    struct weir__op_shape product;
    bool is_product = shape->op == WEIR__OP_conv2d && weir__conv_as_product(shape, &product);
    const struct operand rounded = PACKED(bias), kept = SHARED(bias);
    const struct operands rows[WEIR__OP_COUNT] = {
        [WEIR__OP_conv2d] = {{REAL(n.in_image), PACKED(n.kernel), is_product ? rounded : kept},
                             {REAL(n.out_image)},
                             false},
        [WEIR__OP_conv2d_grad_input] = {{REAL(n.out_image), PACKED(n.kernel)},
                                        {REAL(n.in_image)},
                                        false},
        [WEIR__OP_conv2d_grad_weight] = {{REAL(n.in_image), REAL(n.out_image)},
                                         {SHARED(n.kernel)},
                                         true},
        [WEIR__OP_max_pool2d] = {{REAL(n.in_pool)}, {REAL(n.out_pool)}, false},
        [WEIR__OP_max_pool2d_grad] = {{REAL(n.out_pool), REAL(n.in_pool)},
                                      {REAL(n.in_pool)},
                                      false},
        [WEIR__OP_avg_pool2d] = {{REAL(n.in_pool)}, {REAL(n.out_pool)}, false},
        [WEIR__OP_avg_pool2d_grad] = {{REAL(n.out_pool)}, {REAL(n.in_pool)}, false},
        [WEIR__OP_upsample] = {{REAL(n.in_pool)}, {REAL(n.out_pool)}, false},
        [WEIR__OP_upsample_grad] = {{REAL(n.out_pool)}, {REAL(n.in_pool)}, false},
        [WEIR__OP_concat] = {{REAL(n.in_image), REAL(n.out_image)}, {REAL(n.joined)}, false},
        [WEIR__OP_concat_grad_a] = {{REAL(n.joined)}, {REAL(n.in_image)}, false},
        [WEIR__OP_concat_grad_b] = {{REAL(n.joined)}, {REAL(n.out_image)}, false},
    };
    return rows[shape->op];
}

/** Ops that treat channels or vectors. */
static struct operands operands_of_channels(const struct weir__op_shape *shape) {
    struct sizes n = sizes_of(shape);
    int64_t affine = shape->has_bias ? n.c : 0, moments = n.elements;
    int64_t running = shape->tracks ? n.c : 0, addend = shape->adds ? n.width : 0;
    const struct operands rows[WEIR__OP_COUNT] = {
        [WEIR__OP_softmax] = {{REAL(n.width)}, {REAL(n.width)}, false},
        [WEIR__OP_softmax_grad] = {{REAL(n.width), REAL(n.width)}, {REAL(n.width)}, false},
        [WEIR__OP_bias_add] = {{REAL(n.elements), SHARED(shape->out)}, {REAL(n.elements)}, false},
        [WEIR__OP_bias_gelu] = {{REAL(n.elements), SHARED(shape->out)}, {REAL(n.elements)}, false},
        [WEIR__OP_bias_gelu_grad] = {{REAL(n.elements), REAL(n.elements), SHARED(shape->out)},
                                     {REAL(n.elements)},
                                     false},
        [WEIR__OP_bias_dropout_add] = {{REAL(n.elements), SHARED(shape->out), REAL(n.elements)},
                                       {REAL(n.elements)},
                                       false},
        [WEIR__OP_transpose] = {{REAL(n.turned)}, {REAL(n.turned)}, false},
        [WEIR__OP_dropout2d] = {{REAL(n.width)}, {REAL(n.width)}, false},
        [WEIR__OP_instance_norm] = {{REAL(n.width), SHARED(affine), SHARED(affine)},
                                    {REAL(n.width), MOMENT(moments), MOMENT(moments)},
                                    false},
        [WEIR__OP_instance_norm_grad_input] = {{REAL(n.width), REAL(n.width), MOMENT(moments),
                                                MOMENT(moments), SHARED(affine)},
                                               {REAL(n.width)},
                                               false},
        [WEIR__OP_instance_norm_grad_weight] = {{REAL(n.width), REAL(n.width), MOMENT(moments),
                                                 MOMENT(moments)},
                                                {SHARED(n.c), SHARED(n.c)},
                                                true},
        [WEIR__OP_instance_norm_act] = {{REAL(n.width)},
                                        {REAL(n.width), MOMENT(moments), MOMENT(moments)},
                                        false},
        [WEIR__OP_instance_norm_act_grad] = {{REAL(n.width), REAL(n.width), REAL(n.width),
                                              MOMENT(moments), MOMENT(moments)},
                                             {REAL(n.width)},
                                             false},
        [WEIR__OP_batch_norm] = {{REAL(n.width), SHARED(affine), SHARED(affine), SHARED(running),
                                  SHARED(running)},
                                 {REAL(n.width), WIDE(n.c), WIDE(n.c)},
                                 false},
        [WEIR__OP_batch_norm_sums] = {{REAL(n.width), REAL(n.width), WIDE(n.c), WIDE(n.c)},
                                      {WIDE(n.c), WIDE(n.c)},
                                      false},
        [WEIR__OP_batch_norm_act] = {{REAL(n.width), SHARED(affine), SHARED(affine),
                                      SHARED(running), SHARED(running), REAL(addend)},
                                     {REAL(n.width), WIDE(n.c), WIDE(n.c)},
                                     false},
        [WEIR__OP_batch_norm_act_sums] = {{REAL(n.width), REAL(n.width), REAL(n.width), WIDE(n.c),
                                           WIDE(n.c)},
                                          {REAL(n.width), WIDE(n.c), WIDE(n.c)},
                                          false},
        [WEIR__OP_batch_norm_grad_input] = {{REAL(n.width), REAL(n.width), WIDE(n.c), WIDE(n.c),
                                             WIDE(n.c), WIDE(n.c), SHARED(affine)},
                                            {REAL(n.width)},
                                            false},
        [WEIR__OP_batch_norm_grad_weight] = {{WIDE(n.c), WIDE(n.c)},
                                             {SHARED(n.c), SHARED(n.c)},
                                             true},
        [WEIR__OP_batch_norm_statistics] = {{WIDE(n.c), WIDE(n.c), SHARED(n.c)},
                                            {SHARED(weir__moment_numbers(n.c))},
                                            true},
    };
    return rows[shape->op];
}

/** Losses over classes. */
static struct operands operands_of_classes(const struct weir__op_shape *shape) {
    struct sizes n = sizes_of(shape);
    int64_t bias = shape->has_bias ? shape->out : 0;
    int64_t learnt = shape->frozen ? 0 : n.weight, learnt_bias = shape->frozen ? 0 : bias;
    const struct operands rows[WEIR__OP_COUNT] = {
        [WEIR__OP_cross_entropy] = {{REAL(n.width), INDEX},
                                    {LOSS, MOMENT(n.m), MOMENT(n.m)},
                                    false},
        [WEIR__OP_cross_entropy_grad] = {{REAL(n.width), INDEX, MOMENT(n.m), MOMENT(n.m)},
                                         {REAL(n.width)},
                                         false},
        [WEIR__OP_linear_cross_entropy] = {{REAL(n.in), PACKED(n.weight), INDEX, PACKED(bias)},
                                           {LOSS},
                                           false},
        [WEIR__OP_linear_cross_entropy_grad] = {{REAL(n.in), PACKED(n.weight), INDEX, PACKED(bias)},
                                                {LOSS, REAL(n.in), SHARED(learnt),
                                                 SHARED(learnt_bias)},
                                                true,
                                                2},
    };
    return rows[shape->op];
}

/** How many operands an op has that works on numbers one by one. */
static const uint8_t elementwise[WEIR__OP_COUNT] = {
    [WEIR__OP_gelu] = 1,
    [WEIR__OP_relu] = 1,
    [WEIR__OP_leaky_relu] = 1,
    [WEIR__OP_scale] = 1,
    [WEIR__OP_silu] = 1,
    [WEIR__OP_sigmoid] = 1,
    [WEIR__OP_tanh] = 1,
    [WEIR__OP_dropout] = 1,
    [WEIR__OP_narrow] = 1,
    [WEIR__OP_widen] = 1,
    [WEIR__OP_gelu_grad] = 2,
    [WEIR__OP_relu_grad] = 2,
    [WEIR__OP_leaky_relu_grad] = 2,
    [WEIR__OP_silu_grad] = 2,
    [WEIR__OP_sigmoid_grad] = 2,
    [WEIR__OP_tanh_grad] = 2,
    [WEIR__OP_dropout_add] = 2,
    [WEIR__OP_add] = 2,
    [WEIR__OP_multiply] = 2,
    [WEIR__OP_mse] = 2,
    [WEIR__OP_mse_grad] = 2,
    [WEIR__OP_bce_with_logits] = 2,
    [WEIR__OP_bce_with_logits_grad] = 2,
    [WEIR__OP_custom] = 2,
    [WEIR__OP_custom_grad] = 2,
};

void kernel_operands(const struct weir__op_shape *shape, struct operands *operands) {
    struct sizes n = sizes_of(shape);
    *operands = operands_of_products(shape);
    if (operands->out[0].kind == OPERAND_NONE) *operands = operands_of_text(shape);
    if (operands->out[0].kind == OPERAND_NONE) *operands = operands_of_sources(shape);
    if (operands->out[0].kind == OPERAND_NONE) *operands = operands_of_windows(shape);
    if (operands->out[0].kind == OPERAND_NONE) *operands = operands_of_channels(shape);
    if (operands->out[0].kind == OPERAND_NONE) *operands = operands_of_classes(shape);
    if (operands->out[0].kind != OPERAND_NONE) return;
    if (elementwise[shape->op] == 0) {
        fprintf(stderr, "%s has no operands: list it in tests/toys/operands.c\n",
                weir__op_name(shape->op));
        abort();
    }
    bool loss = shape->op == WEIR__OP_mse || shape->op == WEIR__OP_bce_with_logits;
    *operands =
        (struct operands){.in = {REAL(n.elements), REAL(n.elements)}, .out = {REAL(n.elements)}};
    if (elementwise[shape->op] == 1) operands->in[1] = (struct operand)REAL(0);
    if (loss) operands->out[0] = (struct operand)LOSS;
    operands->in[0].single = shape->op == WEIR__OP_narrow;
    operands->out[0].single = shape->op == WEIR__OP_widen;
}

/* SPDX-License-Identifier: MIT */
/** Our own vector kernels, one name per op: what vector_table.c lists. */
#ifndef WEIR_VECTOR_CALLS_H
#define WEIR_VECTOR_CALLS_H

#include "net/cpu/cpu.h"
#include "net/cpu/vector.h"

/** Every op but the user's own; empty rows are left to the reference. */
extern const struct weir__kernel VECTOR_F32(rows)[WEIR__OP_COUNT],
    VECTOR_BF16(rows)[WEIR__OP_COUNT];
extern const struct weir__flat_calls VECTOR_F32(flat_f32);

/* vector_linear.c: products by packed panels */
int VECTOR(linear)(const struct weir__op_call *call);
int VECTOR(linear_grad_input)(const struct weir__op_call *call);
int VECTOR(linear_add)(const struct weir__op_call *call);
int VECTOR(linear_grad_input_add)(const struct weir__op_call *call);
int VECTOR(linear_grad_weight)(const struct weir__op_call *call);
int VECTOR(measure_product)(const struct weir__op_shape *shape, size_t *workspace);
int VECTOR(measure_pack_linear)(const struct weir__op_shape *shape, size_t *bytes);
int VECTOR(pack_linear)(const struct weir__op_call *call, void *packed);
int VECTOR(pack_linear_grad_input)(const struct weir__op_call *call, void *packed);

/* vector_linear_loss.c: a product's loss, slice by slice */
int VECTOR(linear_cross_entropy)(const struct weir__op_call *call);
int VECTOR(linear_cross_entropy_grad)(const struct weir__op_call *call);
int VECTOR(measure_linear_cross_entropy)(const struct weir__op_shape *shape, size_t *workspace);
int VECTOR(measure_linear_cross_entropy_grad)(const struct weir__op_shape *shape,
                                              size_t *workspace);

/** A product with weights, which are kept packed. */
#define WEIR__WEIGHTS_ROW(name, pack_)                                                             \
    [WEIR__OP_##name] = {.measure = VECTOR(measure_product),                                       \
                         .run = VECTOR(name),                                                      \
                         .measure_pack = VECTOR(measure_pack_linear),                              \
                         .pack = VECTOR(pack_),                                                    \
                         .packs_itself = true,                                                     \
                         .library = "vector"}
/** A product's loss, which may take the weights that the product itself keeps packed. */
#define WEIR__LOSS_ROW(name)                                                                       \
    [WEIR__OP_##name] = {.measure = VECTOR(measure_##name),                                        \
                         .run = VECTOR(name),                                                      \
                         .measure_pack = VECTOR(measure_pack_linear),                              \
                         .pack = VECTOR(pack_linear),                                              \
                         .shares_pack = true,                                                      \
                         .packs_itself = true,                                                     \
                         .library = "vector"}
/** Rows of a table: products, and what is made of them. */
#define WEIR__PRODUCT_ROWS                                                                         \
    WEIR__WEIGHTS_ROW(linear, pack_linear), WEIR__WEIGHTS_ROW(linear_add, pack_linear),            \
        WEIR__WEIGHTS_ROW(linear_grad_input, pack_linear_grad_input),                              \
        WEIR__WEIGHTS_ROW(linear_grad_input_add, pack_linear_grad_input),                          \
    [WEIR__OP_linear_grad_weight] = {.measure = VECTOR(measure_product),                           \
                                     .run = VECTOR(linear_grad_weight),                            \
                                     .library = "vector"},                                         \
    WEIR__LOSS_ROW(linear_cross_entropy), WEIR__LOSS_ROW(linear_cross_entropy_grad)

/* vector_conv_call.c */
int VECTOR(conv2d)(const struct weir__op_call *call);
int VECTOR(conv2d_grad_input)(const struct weir__op_call *call);
int VECTOR(conv2d_grad_weight)(const struct weir__op_call *call);
int VECTOR(measure_conv2d)(const struct weir__op_shape *shape, size_t *workspace);
int VECTOR(measure_conv2d_grad_weight)(const struct weir__op_shape *shape, size_t *workspace);
int VECTOR(measure_pack_conv2d)(const struct weir__op_shape *shape, size_t *bytes);
int VECTOR(pack_conv2d)(const struct weir__op_call *call, void *packed);

/* vector_norm.c: LayerNorm, and sums over columns */
int VECTOR(bias_grad)(const struct weir__op_call *call);
int VECTOR(layer_norm)(const struct weir__op_call *call);
int VECTOR(layer_norm_grad_input)(const struct weir__op_call *call);
int VECTOR(layer_norm_grad_weight)(const struct weir__op_call *call);
int VECTOR(rms_norm_grad_weight)(const struct weir__op_call *call);
int VECTOR(residual_mix_grad_weight)(const struct weir__op_call *call);

/* vector_gather.c: tables */
int VECTOR(embedding)(const struct weir__op_call *call);
int VECTOR(embedding_grad)(const struct weir__op_call *call);
int VECTOR(measure_embedding_grad)(const struct weir__op_shape *shape, size_t *workspace);
int VECTOR(position_add)(const struct weir__op_call *call);
int VECTOR(position_grad)(const struct weir__op_call *call);

int VECTOR(position_cached)(const struct weir__op_call *call);

/* vector_rms.c */
int VECTOR(rms_norm)(const struct weir__op_call *call);
int VECTOR(rms_norm_grad_input)(const struct weir__op_call *call);

/* vector_mix.c */
int VECTOR(residual_mix)(const struct weir__op_call *call);
int VECTOR(residual_mix_grad)(const struct weir__op_call *call);
int VECTOR(measure_residual_mix)(const struct weir__op_shape *shape, size_t *workspace);

/* vector_attention.c and vector_attention_grad.c */
int VECTOR(attention)(const struct weir__op_call *call);
int VECTOR(measure_attention)(const struct weir__op_shape *shape, size_t *workspace);
int VECTOR(attention_grad)(const struct weir__op_call *call);
int VECTOR(measure_attention_grad)(const struct weir__op_shape *shape, size_t *workspace);

/* vector_rope.c */
int VECTOR(rope)(const struct weir__op_call *call);
int VECTOR(rope_grad)(const struct weir__op_call *call);
int VECTOR(rope_cached)(const struct weir__op_call *call);
int VECTOR(measure_rope)(const struct weir__op_shape *shape, size_t *workspace);

/* vector_cached.c: attention of single tokens */
int VECTOR(attention_cached)(const struct weir__op_call *call);
int VECTOR(measure_attention_cached)(const struct weir__op_shape *shape, size_t *workspace);

/* vector_pointwise.c and vector_dropout.c */
int VECTOR(gelu)(const struct weir__op_call *call);
int VECTOR(gelu_grad)(const struct weir__op_call *call);
int VECTOR(relu)(const struct weir__op_call *call);
int VECTOR(relu_grad)(const struct weir__op_call *call);
int VECTOR(leaky_relu)(const struct weir__op_call *call);
int VECTOR(leaky_relu_grad)(const struct weir__op_call *call);
int VECTOR(scale)(const struct weir__op_call *call);
int VECTOR(silu)(const struct weir__op_call *call);
int VECTOR(silu_grad)(const struct weir__op_call *call);
int VECTOR(swiglu)(const struct weir__op_call *call);
int VECTOR(swiglu_grad)(const struct weir__op_call *call);
int VECTOR(sigmoid)(const struct weir__op_call *call);
int VECTOR(sigmoid_grad)(const struct weir__op_call *call);
int VECTOR(tanh)(const struct weir__op_call *call);
int VECTOR(tanh_grad)(const struct weir__op_call *call);
int VECTOR(add)(const struct weir__op_call *call);
int VECTOR(bias_add)(const struct weir__op_call *call);
int VECTOR(multiply)(const struct weir__op_call *call);
int VECTOR(narrow)(const struct weir__op_call *call);
int VECTOR(widen)(const struct weir__op_call *call);
int VECTOR(dropout)(const struct weir__op_call *call);
int VECTOR(measure_dropout)(const struct weir__op_shape *shape, size_t *workspace);
int VECTOR(dropout_add)(const struct weir__op_call *call);
/** dropout2d's masks of the micro-batch's row `row`: all ones or all zeros, as the bits of
 * `channels` floats. */
void VECTOR(keep_channels)(const struct weir__op_call *call, int64_t row, int64_t channels,
                           float *masks);

/* vector_instance_norm.c */
int VECTOR(dropout2d)(const struct weir__op_call *call);
int VECTOR(instance_norm)(const struct weir__op_call *call);
int VECTOR(measure_instance_norm)(const struct weir__op_shape *shape, size_t *workspace);
int VECTOR(instance_norm_grad_input)(const struct weir__op_call *call);
int VECTOR(instance_norm_grad_weight)(const struct weir__op_call *call);
int VECTOR(instance_norm_act)(const struct weir__op_call *call);
int VECTOR(instance_norm_act_grad)(const struct weir__op_call *call);

/* vector_batch_norm.c; the last two are the reference's, of doubles and F32 */
int VECTOR(batch_norm)(const struct weir__op_call *call);
int VECTOR(measure_batch_norm)(const struct weir__op_shape *shape, size_t *workspace);
int VECTOR(batch_norm_act)(const struct weir__op_call *call);
int VECTOR(batch_norm_sums)(const struct weir__op_call *call);
int VECTOR(batch_norm_act_sums)(const struct weir__op_call *call);
int VECTOR(batch_norm_grad_input)(const struct weir__op_call *call);
int VECTOR(batch_norm_grad_weight)(const struct weir__op_call *call);
int VECTOR(batch_norm_statistics)(const struct weir__op_call *call);

/* vector_pool.c */
int VECTOR(max_pool2d)(const struct weir__op_call *call);
int VECTOR(max_pool2d_grad)(const struct weir__op_call *call);
int VECTOR(measure_max_pool2d_grad)(const struct weir__op_shape *shape, size_t *workspace);
int VECTOR(avg_pool2d)(const struct weir__op_call *call);
int VECTOR(avg_pool2d_grad)(const struct weir__op_call *call);
int VECTOR(measure_avg_pool2d_grad)(const struct weir__op_shape *shape, size_t *workspace);

/* vector_image.c: numbers that move */
int VECTOR(transpose)(const struct weir__op_call *call);
int VECTOR(upsample)(const struct weir__op_call *call);
int VECTOR(upsample_grad)(const struct weir__op_call *call);
int VECTOR(concat)(const struct weir__op_call *call);
int VECTOR(concat_grad_a)(const struct weir__op_call *call);
int VECTOR(concat_grad_b)(const struct weir__op_call *call);

/* vector_loss.c: softmax and losses */
int VECTOR(softmax)(const struct weir__op_call *call);
int VECTOR(softmax_grad)(const struct weir__op_call *call);
int VECTOR(cross_entropy)(const struct weir__op_call *call);
int VECTOR(cross_entropy_grad)(const struct weir__op_call *call);
int VECTOR(mse)(const struct weir__op_call *call);
int VECTOR(mse_grad)(const struct weir__op_call *call);
int VECTOR(bce_with_logits)(const struct weir__op_call *call);
int VECTOR(bce_with_logits_grad)(const struct weir__op_call *call);

#endif

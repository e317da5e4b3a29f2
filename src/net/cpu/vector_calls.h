/* SPDX-License-Identifier: MIT */
/** Our own vector kernels, f32, one name per op: what vector_table.c lists. */
#ifndef WEIR_VECTOR_CALLS_H
#define WEIR_VECTOR_CALLS_H

#include "net/cpu/cpu.h"

/* vector_linear.c: products by packed panels */
int weir__vector_linear(const struct weir__op_call *call);
int weir__vector_linear_grad_input(const struct weir__op_call *call);
int weir__vector_linear_grad_weight(const struct weir__op_call *call);
int weir__vector_measure_linear(const struct weir__op_shape *shape, size_t *workspace);
int weir__vector_measure_linear_grad_input(const struct weir__op_shape *shape, size_t *workspace);
int weir__vector_measure_linear_grad_weight(const struct weir__op_shape *shape, size_t *workspace);

/* vector_conv.c and vector_conv_weight.c */
int weir__vector_conv2d(const struct weir__op_call *call);
int weir__vector_conv2d_grad_input(const struct weir__op_call *call);
int weir__vector_conv2d_grad_weight(const struct weir__op_call *call);
int weir__vector_measure_conv2d(const struct weir__op_shape *shape, size_t *workspace);
int weir__vector_measure_conv2d_grad_weight(const struct weir__op_shape *shape, size_t *workspace);
int weir__vector_measure_pack_conv2d(const struct weir__op_shape *shape, size_t *bytes);
int weir__vector_pack_conv2d(const struct weir__op_call *call, void *packed);

/* vector_norm.c: LayerNorm, and sums over columns */
int weir__vector_bias_grad(const struct weir__op_call *call);
int weir__vector_layer_norm(const struct weir__op_call *call);
int weir__vector_layer_norm_grad_input(const struct weir__op_call *call);
int weir__vector_layer_norm_grad_weight(const struct weir__op_call *call);

/* vector_gather.c: tables */
int weir__vector_embedding(const struct weir__op_call *call);
int weir__vector_embedding_grad(const struct weir__op_call *call);
int weir__vector_measure_embedding_grad(const struct weir__op_shape *shape, size_t *workspace);
int weir__vector_position_add(const struct weir__op_call *call);
int weir__vector_position_grad(const struct weir__op_call *call);

int weir__vector_position_cached(const struct weir__op_call *call);

/* vector_rms.c */
int weir__vector_rms_norm(const struct weir__op_call *call);
int weir__vector_rms_norm_grad_input(const struct weir__op_call *call);
int weir__vector_rms_norm_grad_weight(const struct weir__op_call *call);

/* vector_attention.c and vector_attention_grad.c */
int weir__vector_attention(const struct weir__op_call *call);
int weir__vector_measure_attention(const struct weir__op_shape *shape, size_t *workspace);
int weir__vector_attention_grad(const struct weir__op_call *call);
int weir__vector_measure_attention_grad(const struct weir__op_shape *shape, size_t *workspace);

/* vector_cached.c: attention of single tokens */
int weir__vector_attention_cached(const struct weir__op_call *call);
int weir__vector_measure_attention_cached(const struct weir__op_shape *shape, size_t *workspace);

/* vector_pointwise.c and vector_dropout.c */
int weir__vector_gelu(const struct weir__op_call *call);
int weir__vector_gelu_grad(const struct weir__op_call *call);
int weir__vector_relu(const struct weir__op_call *call);
int weir__vector_relu_grad(const struct weir__op_call *call);
int weir__vector_leaky_relu(const struct weir__op_call *call);
int weir__vector_leaky_relu_grad(const struct weir__op_call *call);
int weir__vector_silu(const struct weir__op_call *call);
int weir__vector_silu_grad(const struct weir__op_call *call);
int weir__vector_sigmoid(const struct weir__op_call *call);
int weir__vector_sigmoid_grad(const struct weir__op_call *call);
int weir__vector_tanh(const struct weir__op_call *call);
int weir__vector_tanh_grad(const struct weir__op_call *call);
int weir__vector_add(const struct weir__op_call *call);
int weir__vector_bias_add(const struct weir__op_call *call);
int weir__vector_multiply(const struct weir__op_call *call);
int weir__vector_copy(const struct weir__op_call *call);
int weir__vector_dropout(const struct weir__op_call *call);
int weir__vector_measure_dropout(const struct weir__op_shape *shape, size_t *workspace);
int weir__vector_dropout_add(const struct weir__op_call *call);
/** dropout2d's masks of the micro-batch's row `row`: all ones or all zeros, as the bits of
 * `channels` floats. */
void weir__vector_keep_channels(const struct weir__op_call *call, int64_t row, int64_t channels,
                                float *masks);

/* vector_instance_norm.c */
int weir__vector_dropout2d(const struct weir__op_call *call);
int weir__vector_instance_norm(const struct weir__op_call *call);
int weir__vector_measure_instance_norm(const struct weir__op_shape *shape, size_t *workspace);
int weir__vector_instance_norm_grad_input(const struct weir__op_call *call);
int weir__vector_instance_norm_grad_weight(const struct weir__op_call *call);
int weir__vector_instance_norm_act(const struct weir__op_call *call);
int weir__vector_instance_norm_act_grad(const struct weir__op_call *call);

/* vector_pool.c */
int weir__vector_max_pool2d(const struct weir__op_call *call);
int weir__vector_max_pool2d_grad(const struct weir__op_call *call);
int weir__vector_avg_pool2d(const struct weir__op_call *call);
int weir__vector_avg_pool2d_grad(const struct weir__op_call *call);
int weir__vector_measure_avg_pool2d_grad(const struct weir__op_shape *shape, size_t *workspace);

/* vector_image.c: numbers that move */
int weir__vector_transpose(const struct weir__op_call *call);
int weir__vector_upsample(const struct weir__op_call *call);
int weir__vector_upsample_grad(const struct weir__op_call *call);
int weir__vector_concat(const struct weir__op_call *call);
int weir__vector_concat_grad_a(const struct weir__op_call *call);
int weir__vector_concat_grad_b(const struct weir__op_call *call);

/* vector_loss.c: softmax and losses */
int weir__vector_softmax(const struct weir__op_call *call);
int weir__vector_softmax_grad(const struct weir__op_call *call);
int weir__vector_cross_entropy(const struct weir__op_call *call);
int weir__vector_cross_entropy_grad(const struct weir__op_call *call);
int weir__vector_mse(const struct weir__op_call *call);
int weir__vector_mse_grad(const struct weir__op_call *call);
int weir__vector_bce_with_logits(const struct weir__op_call *call);
int weir__vector_bce_with_logits_grad(const struct weir__op_call *call);

#endif

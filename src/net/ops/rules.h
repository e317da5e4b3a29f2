/* SPDX-License-Identifier: MIT */
/**
 * The rows of the op table, each defined beside its emitter in a file of this folder. Backward ops
 * that are neither differentiated nor in place need no row of their own.
 */
#ifndef WEIR_OPS_RULES_H
#define WEIR_OPS_RULES_H

#include "net/model/builder.h"

extern const struct weir__op_rule weir__rule_linear;
extern const struct weir__op_rule weir__rule_embedding;
extern const struct weir__op_rule weir__rule_position_add;
extern const struct weir__op_rule weir__rule_layer_norm;
extern const struct weir__op_rule weir__rule_linear_add;
extern const struct weir__op_rule weir__rule_add_layer_norm;
extern const struct weir__op_rule weir__rule_rms_norm;
extern const struct weir__op_rule weir__rule_residual_mix;
extern const struct weir__op_rule weir__rule_residual_mix_grad;
extern const struct weir__op_rule weir__rule_attention;
extern const struct weir__op_rule weir__rule_grouped_attention;
extern const struct weir__op_rule weir__rule_rope;
extern const struct weir__op_rule weir__rule_swiglu;
extern const struct weir__op_rule weir__rule_gelu;
extern const struct weir__op_rule weir__rule_relu;
extern const struct weir__op_rule weir__rule_dropout;
extern const struct weir__op_rule weir__rule_dropout_add;
extern const struct weir__op_rule weir__rule_bias_gelu;
extern const struct weir__op_rule weir__rule_bias_dropout_add;
extern const struct weir__op_rule weir__rule_add;
extern const struct weir__op_rule weir__rule_multiply;
extern const struct weir__op_rule weir__rule_narrow;
extern const struct weir__op_rule weir__rule_cross_entropy;
extern const struct weir__op_rule weir__rule_linear_cross_entropy;
extern const struct weir__op_rule weir__rule_linear_cross_entropy_grad;
extern const struct weir__op_rule weir__rule_mse;
extern const struct weir__op_rule weir__rule_bce_with_logits;
extern const struct weir__op_rule weir__rule_softmax;
extern const struct weir__op_rule weir__rule_leaky_relu;
extern const struct weir__op_rule weir__rule_silu;
extern const struct weir__op_rule weir__rule_scale;
extern const struct weir__op_rule weir__rule_sigmoid;
extern const struct weir__op_rule weir__rule_tanh;
extern const struct weir__op_rule weir__rule_dropout2d;
extern const struct weir__op_rule weir__rule_transpose;
extern const struct weir__op_rule weir__rule_conv2d;
extern const struct weir__op_rule weir__rule_conv2d_grad_input;
extern const struct weir__op_rule weir__rule_bias_add;
extern const struct weir__op_rule weir__rule_instance_norm;
extern const struct weir__op_rule weir__rule_instance_norm_act;
extern const struct weir__op_rule weir__rule_batch_norm;
extern const struct weir__op_rule weir__rule_batch_norm_act;
extern const struct weir__op_rule weir__rule_max_pool2d;
extern const struct weir__op_rule weir__rule_avg_pool2d;
extern const struct weir__op_rule weir__rule_upsample;
extern const struct weir__op_rule weir__rule_concat;
extern const struct weir__op_rule weir__rule_custom;

/** True if x is floating-point with a last dimension; else a fault that names `op`. */
bool weir__expects_features(struct weir_builder *builder, const char *op,
                            const struct weir_value *x);
/** True if x is there and has rows, as a parameter has not; else a fault that names `op`. */
bool weir__expects_rows(struct weir_builder *builder, const char *op, const struct weir_value *x);
/** True if x has rows of floating-point numbers; else a fault that names `op`. */
bool weir__expects_float(struct weir_builder *builder, const char *op, const struct weir_value *x);
/** True if x is a floating-point image [C, H, W]; else a fault that names `op`. */
bool weir__expects_image(struct weir_builder *builder, const char *op, const struct weir_value *x);
/** Fills in the output's plane; false where the kernel does not fit. */
bool weir__window_out(struct weir__window *window);
/** "f32 [3, 4]" of a value, into text; returns text. */
const char *weir__value_text(const struct weir_value *value, char text[96]);

#endif

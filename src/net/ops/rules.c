/* SPDX-License-Identifier: MIT */
/* The table of ops, and what the emitters share. */
#include "net/ops/rules.h"

static const struct weir__op_rule plain;

static const struct weir__op_rule in_place_first = {.in_place = 1};
static const struct weir__op_rule in_place_third = {.in_place = 1 << 2};

static const struct weir__op_rule *const rules[WEIR__OP_COUNT] = {
    [WEIR__OP_narrow] = &weir__rule_narrow,
    [WEIR__OP_linear] = &weir__rule_linear,
    [WEIR__OP_linear_add] = &weir__rule_linear_add,
    [WEIR__OP_linear_grad_input_add] = &in_place_third,
    [WEIR__OP_embedding] = &weir__rule_embedding,
    [WEIR__OP_position_add] = &weir__rule_position_add,
    [WEIR__OP_layer_norm] = &weir__rule_layer_norm,
    [WEIR__OP_add_layer_norm] = &weir__rule_add_layer_norm,
    [WEIR__OP_rms_norm] = &weir__rule_rms_norm,
    [WEIR__OP_residual_mix] = &weir__rule_residual_mix,
    [WEIR__OP_residual_mix_grad] = &weir__rule_residual_mix_grad,
    [WEIR__OP_attention] = &weir__rule_attention,
    [WEIR__OP_grouped_attention] = &weir__rule_grouped_attention,
    [WEIR__OP_rope] = &weir__rule_rope,
    [WEIR__OP_rope_grad] = &in_place_first,
    [WEIR__OP_rope_cached] = &in_place_first,
    [WEIR__OP_swiglu] = &weir__rule_swiglu,
    [WEIR__OP_softmax] = &weir__rule_softmax,
    [WEIR__OP_gelu] = &weir__rule_gelu,
    [WEIR__OP_relu] = &weir__rule_relu,
    [WEIR__OP_leaky_relu] = &weir__rule_leaky_relu,
    [WEIR__OP_silu] = &weir__rule_silu,
    [WEIR__OP_sigmoid] = &weir__rule_sigmoid,
    [WEIR__OP_tanh] = &weir__rule_tanh,
    [WEIR__OP_scale] = &weir__rule_scale,
    [WEIR__OP_dropout] = &weir__rule_dropout,
    [WEIR__OP_dropout_add] = &weir__rule_dropout_add,
    [WEIR__OP_bias_gelu] = &weir__rule_bias_gelu,
    [WEIR__OP_bias_dropout_add] = &weir__rule_bias_dropout_add,
    [WEIR__OP_dropout2d] = &weir__rule_dropout2d,
    [WEIR__OP_add] = &weir__rule_add,
    [WEIR__OP_multiply] = &weir__rule_multiply,
    [WEIR__OP_transpose] = &weir__rule_transpose,
    [WEIR__OP_conv2d] = &weir__rule_conv2d,
    [WEIR__OP_conv2d_grad_input] = &weir__rule_conv2d_grad_input,
    [WEIR__OP_bias_add] = &weir__rule_bias_add,
    [WEIR__OP_instance_norm] = &weir__rule_instance_norm,
    [WEIR__OP_instance_norm_act] = &weir__rule_instance_norm_act,
    [WEIR__OP_batch_norm] = &weir__rule_batch_norm,
    [WEIR__OP_batch_norm_act] = &weir__rule_batch_norm_act,
    [WEIR__OP_batch_norm_act_sums] = &in_place_first,
    [WEIR__OP_batch_norm_grad_input] = &in_place_first,
    [WEIR__OP_max_pool2d] = &weir__rule_max_pool2d,
    [WEIR__OP_avg_pool2d] = &weir__rule_avg_pool2d,
    [WEIR__OP_upsample] = &weir__rule_upsample,
    [WEIR__OP_concat] = &weir__rule_concat,
    [WEIR__OP_cross_entropy] = &weir__rule_cross_entropy,
    [WEIR__OP_linear_cross_entropy] = &weir__rule_linear_cross_entropy,
    [WEIR__OP_linear_cross_entropy_grad] = &weir__rule_linear_cross_entropy_grad,
    [WEIR__OP_mse] = &weir__rule_mse,
    [WEIR__OP_bce_with_logits] = &weir__rule_bce_with_logits,
    [WEIR__OP_position_cached] = &in_place_first,
    [WEIR__OP_custom] = &weir__rule_custom,
};

const struct weir__op_rule *weir__op_rule(enum weir__op_code op) {
    return (unsigned)op < WEIR__OP_COUNT && rules[op] != NULL ? rules[op] : &plain;
}

const char *weir__value_text(const struct weir_value *value, char text[96]) {
    struct weir_tensor tensor = weir_value_tensor(value);
    return weir__tensor_text(&tensor, text, 96);
}

bool weir__expects_rows(struct weir_builder *builder, const char *op, const struct weir_value *x) {
    if (builder->status != WEIR_OK) return false;
    if (x != NULL && x->batched) return true;
    weir_builder_fail(builder, WEIR_ERR_ARGUMENT, "%s takes a value with rows, but its input is %s",
                      op, x == NULL ? "absent" : "a parameter");
    return false;
}

bool weir__expects_float(struct weir_builder *builder, const char *op, const struct weir_value *x) {
    char text[96];
    if (!weir__expects_rows(builder, op, x)) return false;
    if (weir_dtype_is_float(x->dtype)) return true;
    weir_builder_fail(builder, WEIR_ERR_SHAPE,
                      "%s takes floating-point numbers, but its input is %s", op,
                      weir__value_text(x, text));
    return false;
}

bool weir__expects_features(struct weir_builder *builder, const char *op,
                            const struct weir_value *x) {
    char text[96];
    if (!weir__expects_float(builder, op, x)) return false;
    if (x->rank > 0) return true;
    weir_builder_fail(builder, WEIR_ERR_SHAPE,
                      "%s works on the last dimension of a row, but its input is %s", op,
                      weir__value_text(x, text));
    return false;
}

bool weir__expects_image(struct weir_builder *builder, const char *op, const struct weir_value *x) {
    char text[96];
    if (!weir__expects_float(builder, op, x)) return false;
    if (x->rank == 3) return true;
    weir_builder_fail(builder, WEIR_ERR_SHAPE,
                      "%s takes images [channels, height, width], but its input is %s", op,
                      weir__value_text(x, text));
    return false;
}

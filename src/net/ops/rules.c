/* SPDX-License-Identifier: MIT */
/* The table of ops, and what the emitters share. */
#include "net/ops/rules.h"

static const struct weir__op_rule plain;
/* Gradients that add to a parameter's. */
static const struct weir__op_rule adds_first = {.accumulates = 1};
static const struct weir__op_rule adds_both = {.accumulates = 3};

static const struct weir__op_rule *const rules[WEIR__OP_COUNT] = {
    [WEIR__OP_linear] = &weir__rule_linear,
    [WEIR__OP_linear_grad_input] = &plain,
    [WEIR__OP_linear_grad_weight] = &adds_first,
    [WEIR__OP_bias_grad] = &adds_first,
    [WEIR__OP_embedding] = &weir__rule_embedding,
    [WEIR__OP_embedding_grad] = &adds_first,
    [WEIR__OP_position_add] = &weir__rule_position_add,
    [WEIR__OP_position_grad] = &adds_first,
    [WEIR__OP_layer_norm] = &weir__rule_layer_norm,
    [WEIR__OP_layer_norm_grad_input] = &plain,
    [WEIR__OP_layer_norm_grad_weight] = &adds_both,
    [WEIR__OP_attention] = &weir__rule_attention,
    [WEIR__OP_attention_grad] = &plain,
    [WEIR__OP_gelu] = &weir__rule_gelu,
    [WEIR__OP_gelu_grad] = &plain,
    [WEIR__OP_relu] = &weir__rule_relu,
    [WEIR__OP_relu_grad] = &plain,
    [WEIR__OP_dropout] = &weir__rule_dropout,
    [WEIR__OP_dropout_add] = &weir__rule_dropout_add,
    [WEIR__OP_add] = &weir__rule_add,
    [WEIR__OP_copy] = &plain,
    [WEIR__OP_cross_entropy] = &weir__rule_cross_entropy,
    [WEIR__OP_cross_entropy_grad] = &plain,
    [WEIR__OP_mse] = &weir__rule_mse,
    [WEIR__OP_mse_grad] = &plain,
};

const struct weir__op_rule *weir__op_rule(enum weir__op op) {
    return (unsigned)op < WEIR__OP_COUNT && rules[op] != NULL ? rules[op] : &plain;
}

const char *weir__value_text(const struct weir_value *value, char text[96]) {
    struct weir_tensor tensor = weir__value_tensor(value);
    return weir__tensor_text(&tensor, text, 96);
}

bool weir__expects_float(struct weir_builder *builder, const char *op, const struct weir_value *x) {
    char text[96];
    if (builder->status != WEIR_OK) return false;
    if (weir_dtype_is_float(x->dtype)) return true;
    weir__builder_fail(builder, WEIR_ERR_SHAPE,
                       "%s takes floating-point numbers, but its input is %s", op,
                       weir__value_text(x, text));
    return false;
}

bool weir__expects_features(struct weir_builder *builder, const char *op,
                            const struct weir_value *x) {
    char text[96];
    if (!weir__expects_float(builder, op, x)) return false;
    if (x->rank > 0) return true;
    weir__builder_fail(builder, WEIR_ERR_SHAPE,
                       "%s works on the last dimension of a row, but its input is %s", op,
                       weir__value_text(x, text));
    return false;
}

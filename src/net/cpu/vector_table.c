/* SPDX-License-Identifier: MIT */
/* Our own vector kernels as one table. */
#include "net/cpu/vector_calls.h"

#define ROW(name) [WEIR__OP_##name] = {.run = weir__vector_##name, .library = "vector"}
#define ROW_MEASURED(name)                                                                         \
    [WEIR__OP_##name] = {                                                                          \
        .measure = weir__vector_measure_##name, .run = weir__vector_##name, .library = "vector"}
#define ROW_MEASURED_AS(name, other)                                                               \
    [WEIR__OP_##name] = {                                                                          \
        .measure = weir__vector_measure_##other, .run = weir__vector_##name, .library = "vector"}

const struct weir__kernel weir__vector_f32[WEIR__OP_COUNT] = {
    ROW_MEASURED(linear),
    ROW_MEASURED(linear_grad_input),
    ROW_MEASURED(linear_grad_weight),
    ROW(bias_grad),
    ROW(embedding),
    ROW_MEASURED(embedding_grad),
    ROW(position_add),
    ROW(position_grad),
    ROW(layer_norm),
    ROW(layer_norm_grad_input),
    ROW(layer_norm_grad_weight),
    ROW_MEASURED(attention),
    ROW_MEASURED(attention_grad),
    ROW(softmax),
    ROW(softmax_grad),
    ROW(gelu),
    ROW(gelu_grad),
    ROW(relu),
    ROW(relu_grad),
    ROW(leaky_relu),
    ROW(leaky_relu_grad),
    ROW(silu),
    ROW(silu_grad),
    ROW(sigmoid),
    ROW(sigmoid_grad),
    ROW(tanh),
    ROW(tanh_grad),
    ROW_MEASURED(dropout),
    ROW_MEASURED_AS(dropout_add, dropout),
    ROW_MEASURED_AS(dropout2d, instance_norm),
    ROW(add),
    ROW(copy),
    [WEIR__OP_narrow] = {.run = weir__vector_copy, .library = "vector"},
    [WEIR__OP_widen] = {.run = weir__vector_copy, .library = "vector"},
    ROW(transpose),
    ROW_MEASURED(instance_norm),
    ROW_MEASURED_AS(instance_norm_grad_input, instance_norm),
    ROW_MEASURED_AS(instance_norm_grad_weight, instance_norm),
    ROW_MEASURED_AS(instance_norm_act, instance_norm),
    ROW_MEASURED_AS(instance_norm_act_grad, instance_norm),
    ROW(max_pool2d),
    ROW(max_pool2d_grad),
    ROW(avg_pool2d),
    ROW_MEASURED(avg_pool2d_grad),
    ROW(upsample),
    ROW(upsample_grad),
    ROW(concat),
    ROW(concat_grad_a),
    ROW(concat_grad_b),
    ROW(cross_entropy),
    ROW(cross_entropy_grad),
    ROW(mse),
    ROW(mse_grad),
    ROW(bce_with_logits),
    ROW(bce_with_logits_grad),
    ROW_MEASURED(attention_cached),
    ROW(position_cached),
};

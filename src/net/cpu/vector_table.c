/* SPDX-License-Identifier: MIT */
/* Our own vector kernels as one table. */
#include "net/cpu/vector_calls.h"

#define ROW(name) [WEIR__OP_##name] = {.run = VECTOR(name), .library = "vector"}
#define ROW_MEASURED(name)                                                                         \
    [WEIR__OP_##                                                                                   \
        name] = {.measure = VECTOR(measure_##name), .run = VECTOR(name), .library = "vector"}
#define ROW_CUT(name, unit)                                                                        \
    [WEIR__OP_##name] = {.run = VECTOR(name), .cut = WEIR__CUT_##unit, .library = "vector"}
#define ROW_CUT_MEASURED(name, unit, measured)                                                     \
    [WEIR__OP_##name] = {.measure = VECTOR(measure_##measured),                                    \
                         .run = VECTOR(name),                                                      \
                         .cut = WEIR__CUT_##unit,                                                  \
                         .library = "vector"}
#define ROW_MEASURED_AS(name, other)                                                               \
    [WEIR__OP_##                                                                                   \
        name] = {.measure = VECTOR(measure_##other), .run = VECTOR(name), .library = "vector"}
/** Of two ops by one function. */
#define ROW_SAME_AS(name, other)                                                                   \
    [WEIR__OP_##                                                                                   \
        name] = {.measure = VECTOR(measure_##other), .run = VECTOR(other), .library = "vector"}
#define ROW_CONVOLUTION(name)                                                                      \
    [WEIR__OP_##name] = {.measure = VECTOR(measure_conv2d),                                        \
                         .run = VECTOR(name),                                                      \
                         .measure_pack = VECTOR(measure_pack_conv2d),                              \
                         .pack = VECTOR(pack_conv2d),                                              \
                         .library = "vector"}

const struct weir__kernel VECTOR(rows)[WEIR__OP_COUNT] = {
    WEIR__PRODUCT_ROWS,
    ROW_CONVOLUTION(conv2d),
    ROW_CONVOLUTION(conv2d_grad_input),
    ROW_MEASURED(conv2d_grad_weight),
    ROW(bias_grad),
    ROW(embedding),
    ROW_MEASURED(embedding_grad),
    ROW_CUT(position_add, ROWS),
    ROW(position_grad),
    ROW_CUT(layer_norm, TOKENS),
    ROW_CUT(layer_norm_grad_input, TOKENS),
    ROW(layer_norm_grad_weight),
    ROW_CUT(rms_norm, TOKENS),
    ROW_CUT(rms_norm_grad_input, TOKENS),
    ROW(rms_norm_grad_weight),
    ROW_CUT_MEASURED(residual_mix, TOKENS, residual_mix),
    ROW_CUT_MEASURED(residual_mix_grad, TOKENS, residual_mix),
    ROW(residual_mix_grad_weight),
    ROW_MEASURED(attention),
    ROW_MEASURED(attention_grad),
    ROW_SAME_AS(grouped_attention, attention),
    ROW_SAME_AS(grouped_attention_grad, attention_grad),
    ROW_MEASURED(rope),
    ROW_MEASURED_AS(rope_grad, rope),
    ROW_CUT(softmax, TOKENS),
    ROW_CUT(softmax_grad, TOKENS),
    ROW_CUT(gelu, NUMBERS),
    ROW_CUT(gelu_grad, NUMBERS),
    ROW_CUT(relu, NUMBERS),
    ROW_CUT(relu_grad, NUMBERS),
    ROW_CUT(leaky_relu, NUMBERS),
    ROW_CUT(leaky_relu_grad, NUMBERS),
    ROW_CUT(scale, NUMBERS),
    ROW_CUT(silu, NUMBERS),
    ROW_CUT(silu_grad, NUMBERS),
    ROW_CUT(swiglu, NUMBERS),
    ROW_CUT(swiglu_grad, NUMBERS),
    ROW_CUT(sigmoid, NUMBERS),
    ROW_CUT(sigmoid_grad, NUMBERS),
    ROW_CUT(tanh, NUMBERS),
    ROW_CUT(tanh_grad, NUMBERS),
    ROW_CUT_MEASURED(dropout, ROWS, dropout),
    ROW_CUT_MEASURED(dropout_add, ROWS, dropout),
    ROW_CUT_MEASURED(dropout2d, ROWS, instance_norm),
    ROW_CUT(add, NUMBERS),
    ROW_CUT(multiply, NUMBERS),
    ROW_CUT(bias_add, ROWS),
    ROW_CUT(narrow, NUMBERS),
    ROW_CUT(widen, NUMBERS),
    ROW_CUT(transpose, ROWS),
    ROW_CUT_MEASURED(instance_norm, ROWS, instance_norm),
    ROW_CUT_MEASURED(instance_norm_grad_input, ROWS, instance_norm),
    ROW_MEASURED_AS(instance_norm_grad_weight, instance_norm),
    ROW_CUT_MEASURED(instance_norm_act, ROWS, instance_norm),
    ROW_CUT_MEASURED(instance_norm_act_grad, ROWS, instance_norm),
    ROW_MEASURED(batch_norm),
    ROW_MEASURED_AS(batch_norm_act, batch_norm),
    ROW_MEASURED_AS(batch_norm_sums, batch_norm),
    ROW_MEASURED_AS(batch_norm_act_sums, batch_norm),
    ROW_MEASURED_AS(batch_norm_grad_input, batch_norm),
    ROW(batch_norm_grad_weight),
    ROW(batch_norm_statistics),
    ROW_CUT(max_pool2d, ROWS),
    ROW_CUT_MEASURED(max_pool2d_grad, ROWS, max_pool2d_grad),
    ROW_CUT(avg_pool2d, ROWS),
    ROW_CUT_MEASURED(avg_pool2d_grad, ROWS, avg_pool2d_grad),
    ROW_CUT(upsample, ROWS),
    ROW_CUT(upsample_grad, ROWS),
    ROW_CUT(concat, ROWS),
    ROW_CUT(concat_grad_a, ROWS),
    ROW_CUT(concat_grad_b, ROWS),
    ROW(cross_entropy),
    ROW_CUT(cross_entropy_grad, TOKENS),
    ROW(mse),
    ROW_CUT(mse_grad, NUMBERS),
    ROW(bce_with_logits),
    ROW_CUT(bce_with_logits_grad, NUMBERS),
    ROW_MEASURED(attention_cached),
    ROW_SAME_AS(grouped_attention_cached, attention_cached),
    ROW_MEASURED_AS(rope_cached, rope),
    ROW(position_cached),
};

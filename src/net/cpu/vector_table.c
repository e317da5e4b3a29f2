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
    ROW(gelu),
    ROW(gelu_grad),
    ROW(relu),
    ROW(relu_grad),
    ROW_MEASURED(dropout),
    ROW_MEASURED_AS(dropout_add, dropout),
    ROW(add),
    ROW(copy),
    ROW(cross_entropy),
    ROW(cross_entropy_grad),
    ROW(mse),
    ROW(mse_grad),
};

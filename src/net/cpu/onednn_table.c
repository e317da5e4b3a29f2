/* SPDX-License-Identifier: MIT */
/* oneDNN's kernels as one table. */
#include "net/cpu/onednn.h"

#define CONVOLUTION(name)                                                                          \
    [WEIR__OP_##name] = {.measure = VECTOR(onednn_measure),                                     \
                         .prepare = VECTOR(onednn_prepare),                                     \
                         .release = VECTOR(onednn_release),                                     \
                         .run = VECTOR(onednn_run),                                             \
                         .measure_pack = VECTOR(onednn_measure_pack),                           \
                         .pack = VECTOR(onednn_pack),                                           \
                         .library = "oneDNN"}

const struct weir__kernel VECTOR(onednn_f32)[WEIR__OP_COUNT] = {
    CONVOLUTION(conv2d),
    CONVOLUTION(conv2d_grad_input),
    CONVOLUTION(conv2d_grad_weight),
};

/* SPDX-License-Identifier: MIT */
/* oneDNN's kernels as one table. */
#include "net/cpu/onednn.h"

#define CONVOLUTION(name)                                                                          \
    [WEIR__OP_##name] = {.measure = weir__onednn_conv_measure,                                     \
                         .prepare = weir__onednn_conv_prepare,                                     \
                         .release = weir__onednn_conv_release,                                     \
                         .run = weir__onednn_conv_run,                                             \
                         .measure_pack = weir__onednn_conv_measure_pack,                           \
                         .pack = weir__onednn_conv_pack,                                           \
                         .library = "oneDNN"}

const struct weir__kernel weir__onednn_f32[WEIR__OP_COUNT] = {
    CONVOLUTION(conv2d),
    CONVOLUTION(conv2d_grad_input),
    CONVOLUTION(conv2d_grad_weight),
};

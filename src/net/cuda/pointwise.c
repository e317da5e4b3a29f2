/* SPDX-License-Identifier: MIT */
/* Activations, dropout, softmax, sums, transposition, column sums. */
#include "net/cuda/cuda.h"

enum { THREADS = 256, PER_BLOCK = THREADS * 8 };

static int gelu(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    void *y = call->out[0];
    const void *x = call->in[0];
    uint64_t count = (uint64_t)(shape->rows * shape->width);
    uint32_t by_tanh = shape->gelu_tanh;
    struct weir__cuda_grid grid = weir__cuda_line(count, PER_BLOCK, THREADS, 0);
    void *arguments[] = {&y, &x, &count, &by_tanh};
    bool single = shape->dtype == WEIR_F32;
    if (count == 0) return WEIR_OK;
    return weir__cuda_launch(call->stream,
                             single ? WEIR__CUDA_KERNEL_gelu_f32 : WEIR__CUDA_KERNEL_gelu_bf16,
                             &grid, arguments);
}

const struct weir__kernel weir__cuda_pointwise[WEIR__OP_COUNT] = {
    [WEIR__OP_gelu] = {.run = gelu, .library = "CUDA"},
};

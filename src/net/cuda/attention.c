/* SPDX-License-Identifier: MIT */
/* Attention, and with a cache. A head's size decides which of a kernel's variants is launched. */
#include "net/cuda/attention_arguments.h"
#include "net/cuda/cuda.h"

#include <math.h>

enum { TILE = 64, PITCH = TILE + 4, THREADS = 256, SIZES = 3 };

#define VARIANTS(name, type)                                                                       \
    {                                                                                              \
        WEIR__CUDA_KERNEL_##name##_64_##type, WEIR__CUDA_KERNEL_##name##_128_##type,               \
            WEIR__CUDA_KERNEL_##name##_256_##type                                                  \
    }

/** A kernel's variants, by dtype (F32, BF16) and head size. */
struct variants {
    enum weir__cuda_kernel by[2][SIZES];
};

static const struct variants forward = {{VARIANTS(attention, f32), VARIANTS(attention, bf16)}};
static const struct variants grad_q = {
    {VARIANTS(attention_grad_q, f32), VARIANTS(attention_grad_q, bf16)}};
static const struct variants grad_kv = {
    {VARIANTS(attention_grad_kv, f32), VARIANTS(attention_grad_kv, bf16)}};

static int64_t head_size(const struct weir__op_shape *shape) {
    assert(shape->heads > 0 && shape->width % shape->heads == 0);
    return shape->width / shape->heads;
}

static uint64_t block_count(const struct weir__op_shape *shape) {
    uint64_t tiles = ((uint64_t)shape->tokens + TILE - 1) / TILE;
    return tiles * (uint64_t)shape->heads * (uint64_t)shape->rows;
}

/** Heads of up to 256 numbers, and no more blocks than a launch may have. */
static int check(const struct weir__op_shape *shape) {
    static const int64_t size_max = 256, most = 1 << 20;
    if (head_size(shape) > size_max) return WEIR_ERR_UNSUPPORTED;
    bool fits = shape->rows <= INT32_MAX && shape->tokens <= INT32_MAX && shape->heads <= most &&
                block_count(shape) <= INT32_MAX;
    return fits ? WEIR_OK : WEIR_ERR_UNSUPPORTED;
}

static int measure(const struct weir__op_shape *shape, size_t *workspace) {
    *workspace = 0;
    return check(shape);
}

/** delta */
static int measure_grad(const struct weir__op_shape *shape, size_t *workspace) {
    *workspace = (size_t)(shape->rows * shape->heads * shape->tokens) * sizeof(float);
    return check(shape);
}

static int launch(const struct weir__op_call *call, const struct variants *variants,
                  struct weir__cuda_attention *pass) {
    const struct weir__op_shape *shape = call->shape;
    int64_t size = head_size(shape);
    int which = size <= 64 ? 0 : size <= 128 ? 1 : 2;
    struct weir__cuda_grid grid = {{(uint32_t)block_count(shape), 1, 1},
                                   {THREADS, 1, 1},
                                   (2 * TILE * PITCH + 2 * TILE) * sizeof(float)};
    pass->tokens = (uint32_t)shape->tokens;
    pass->heads = (uint32_t)shape->heads;
    pass->size = (uint32_t)size;
    pass->scale = (float)(1 / sqrt((double)size));
    if (grid.blocks[0] == 0) return WEIR_OK;
    return weir__cuda_launch(call->stream, variants->by[shape->dtype == WEIR_BF16][which], &grid,
                             (void *[]){pass});
}

static int attention(const struct weir__op_call *call) {
    struct weir__cuda_attention pass = {.qkv = call->in[0], .y = call->out[0], .lse = call->out[1]};
    return launch(call, &forward, &pass);
}

static int attention_grad(const struct weir__op_call *call) {
    struct weir__cuda_attention pass = {.qkv = call->in[1],
                                        .y = (void *)(uintptr_t)call->in[2],
                                        .lse = (float *)(uintptr_t)call->in[3],
                                        .dy = call->in[0],
                                        .dqkv = call->out[0],
                                        .delta = call->workspace};
    int status = launch(call, &grad_q, &pass);
    return status == WEIR_OK ? launch(call, &grad_kv, &pass) : status;
}

const struct weir__kernel weir__cuda_attention[WEIR__OP_COUNT] = {
    [WEIR__OP_attention] = {.measure = measure, .run = attention, .library = "CUDA"},
    [WEIR__OP_attention_grad] = {.measure = measure_grad, .run = attention_grad, .library = "CUDA"},
};

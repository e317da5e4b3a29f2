/* SPDX-License-Identifier: MIT */
/* Whose row of an op is tested. */
#include "kernels/kernels.h"
#include "cuda/kernel_gpu.h"
#include "net/cuda/cuda.h"

bool kernel_is_the_users(enum weir__op_code op) {
    return op == WEIR__OP_custom || op == WEIR__OP_custom_grad;
}

bool kernel_lacks_vector(enum weir__op_code op) {
    switch (op) {
    case WEIR__OP_bias_gelu:
    case WEIR__OP_bias_gelu_grad:
    case WEIR__OP_bias_dropout_add:
    case WEIR__OP_add_layer_norm:
    case WEIR__OP_add_layer_norm_grad_input: return true;
    default: return false;
    }
}

const char *kernel_backend_name(enum kernel_backend backend) {
    static const char *const names[] = {
        "f64 reference",    "f32 reference",     "f32 first level",  "f32 second level",
        "f32 vector",       "f32 fast",          "CUDA f32",         "CUDA bf16",
        "bf16 first level", "bf16 second level", "bf16 third level", "bf16 fourth level"};
    return names[backend];
}

bool kernel_is_bf16(enum kernel_backend backend) {
    return backend >= KERNEL_CUDA_BF16;
}

bool kernel_runs_here(enum kernel_backend backend) {
    return (backend != KERNEL_CUDA && backend != KERNEL_CUDA_BF16) || kernel_gpu_is_there();
}

const struct weir__backend *kernel_fast(void) {
    const struct weir__level *level;
    int status = weir__level_find(NULL, NULL, &level);
    assert(status == WEIR_OK);
    (void)status;
    return level->backend;
}

/** The n-th of our own that run here; the last one where there are not so many. */
static const struct weir__level *own_level(uint32_t n) {
    const struct weir__level *found = NULL, *level;
    for (uint32_t i = 0; (level = weir__level_at(i)) != NULL; i++) {
        if (!weir__level_runs(level)) continue;
        found = level;
        if (n-- == 0) break;
    }
    return found;
}

const struct weir__level *kernel_level(enum kernel_backend backend) {
    if (backend >= KERNEL_LEVEL_1_BF16) return own_level((uint32_t)backend - KERNEL_LEVEL_1_BF16);
    if (backend < KERNEL_LEVEL_1 || backend > KERNEL_VECTOR) return NULL;
    return own_level(backend == KERNEL_VECTOR ? UINT32_MAX : (uint32_t)backend - KERNEL_LEVEL_1);
}

const struct weir__kernel *kernel_of(enum weir__op_code op, enum kernel_backend backend) {
    const struct weir__level *level = kernel_level(backend);
    if (backend >= KERNEL_LEVEL_1_BF16) return level->backend->kernel(op, WEIR_BF16);
    if (level != NULL && level->rows[op].run != NULL) return &level->rows[op];
    if (backend == KERNEL_CUDA) return weir__backend_cuda.kernel(op, WEIR_F32);
    if (backend == KERNEL_CUDA_BF16) return weir__backend_cuda.kernel(op, WEIR_BF16);
    if (backend == KERNEL_FAST) return kernel_fast()->kernel(op, WEIR_F32);
    return weir__backend_reference.kernel(op, backend == KERNEL_F64 ? WEIR_F64 : WEIR_F32);
}

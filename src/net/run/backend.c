/* SPDX-License-Identifier: MIT */
/* Ops by name, and which back end's kernel serves which op. */
#include "net/cpu/cpu.h"
#include "net/cuda/cuda.h"
#include "net/custom.h"

static const char *const op_names[] = {
#define OP_NAME(name) #name,
    WEIR__OP_MAP(OP_NAME)
#undef OP_NAME
};
_Static_assert(WEIR__COUNT_OF(op_names) == WEIR__OP_COUNT, "every op has a name");

const char *weir__op_name(enum weir__op_code op) {
    assert((unsigned)op < WEIR__OP_COUNT);
    return op_names[op];
}

const struct weir__kernel *weir__kernel_for(enum weir__op_code op, enum weir_dtype dtype,
                                            enum weir__backend backend) {
    assert((unsigned)op < WEIR__OP_COUNT);
    if (backend == WEIR__BACKEND_CUDA) return weir__cuda_kernel_for(op, dtype);
    if (op == WEIR__OP_custom) return &weir__custom_kernel;
    if (op == WEIR__OP_custom_grad) return &weir__custom_grad_kernel;
    return weir__cpu_kernel_for(op, dtype, backend == WEIR__BACKEND_REFERENCE);
}

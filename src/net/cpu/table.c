/* SPDX-License-Identifier: MIT */
/* What all back ends of CPUs share, and the reference's. */
#include "base/team.h"
#include "device/device.h"
#include "net/cpu/cpu.h"
#include "net/custom.h"

#include <string.h>

int weir__cpu_move(const struct weir__op_call *call) {
    assert(call->shape->width >= 0);
    memcpy(call->out[0], call->in[0], (size_t)call->shape->width);
    return WEIR_OK;
}

int weir__cpu_zero(const struct weir__op_call *call) {
    assert(call->shape->width >= 0);
    memset(call->out[0], 0, (size_t)call->shape->width);
    return WEIR_OK;
}

int weir__cpu_attach(struct weir_stream *stream, uint32_t threads) {
    if (stream->team != NULL || threads <= 1) return WEIR_OK;
    return weir__team_new(stream->device->allocator, threads, stream->spins, &stream->team);
}

static const struct weir__kernel *kernel(enum weir__op_code op, enum weir_dtype dtype) {
    assert((unsigned)op < WEIR__OP_COUNT);
    if (dtype != WEIR_F32 && dtype != WEIR_F64) return NULL;
    if (op == WEIR__OP_custom) return &weir__custom_kernel;
    if (op == WEIR__OP_custom_grad) return &weir__custom_grad_kernel;
    return dtype == WEIR_F64 ? &weir__reference_f64[op] : &weir__reference_f32[op];
}

const struct weir__backend weir__backend_reference = {
    .kernel = kernel,
    .flat = {[WEIR_F32] = &weir__reference_flat_f32, [WEIR_F64] = &weir__reference_flat_f64},
    .move = {.run = weir__cpu_move, .library = ""},
    .zero = {.run = weir__cpu_zero, .library = ""},
    .attach = weir__cpu_attach};

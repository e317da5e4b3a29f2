/* SPDX-License-Identifier: MIT */
/* What all back ends of CPUs share, and the reference's. */
#include "base/team.h"
#include "device/device.h"
#include "net/cpu/cpu.h"
#include "net/custom.h"

#include <dlfcn.h>
#include <string.h>

#if !defined(WEIR_ONEDNN)
const char *weir__onednn_version(void) {
    return "";
}
#endif

/** OpenMP is asked for by name: nothing here needs one, and oneDNN may bring any. */
uint32_t weir__kernel_threads(uint32_t threads) {
    void (*set)(int);
    int (*get)(void);
    *(void **)&set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    *(void **)&get = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    if (set == NULL || get == NULL) return 0;
    int former = get();
    if (threads > 0) set((int)threads);
    return former > 0 ? (uint32_t)former : 0;
}

/** A thread's libraries get no threads of their own. And its malloc, which oneDNN calls in every
 * step, takes now what it takes from the system at a thread's first block. */
static void ready_thread(void *context, uint32_t part, uint32_t member) {
    (void)context, (void)part, (void)member;
    weir__kernel_threads(1);
    weir__release(NULL, weir__acquire(NULL, 1, 1), 1, 1);
}

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
    int status = WEIR_OK;
    if (stream->team == NULL && threads > 1)
        status = weir__team_new(stream->device->allocator, threads, stream->spins, &stream->team);
    if (status == WEIR_OK) weir__team_each(stream->team, ready_thread, NULL);
    return status;
}

static const struct weir__kernel *kernel(enum weir__op_code op, enum weir_dtype dtype) {
    assert((unsigned)op < WEIR__OP_COUNT);
    if (op == WEIR__OP_custom) return &weir__custom_kernel;
    if (op == WEIR__OP_custom_grad) return &weir__custom_grad_kernel;
    if (dtype == WEIR_F64) return &weir__reference_f64[op];
    return dtype == WEIR_F32 ? &weir__reference_f32[op] : NULL;
}

const struct weir__backend weir__backend_reference = {
    .kernel = kernel,
    .flat = {[WEIR_F32] = &weir__reference_flat_f32, [WEIR_F64] = &weir__reference_flat_f64},
    .move = {.run = weir__cpu_move, .library = ""},
    .zero = {.run = weir__cpu_zero, .library = ""},
    .attach = weir__cpu_attach};

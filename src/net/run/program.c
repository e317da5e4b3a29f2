/* SPDX-License-Identifier: MIT */
/* Running a program, and the states of its kernels. The loop is the hot path of small stages: it
 * adds offsets to bases and calls, and that is all. */
#include "net/compile/program.h"

#include "base/team.h"
#include "device/device.h"

static const void *resolve(const struct weir__program_run *run,
                           const struct weir__location *location) {
    return (const void *)(run->bases[location->base] + location->offset);
}

static bool holds(const struct weir__net_lasting *lasting, uint64_t weights) {
    bool owner_does = lasting->owner != NULL && lasting->owner->packed_of == weights;
    return weights != 0 && (lasting->packed_of == weights || owner_does);
}

static uint64_t weights_of(const struct weir__program_run *run,
                           const struct weir__net_lasting *lasting) {
    return lasting->frozen ? run->weights_given : run->weights;
}

/** Points the call at its node's lasting memory; weights are packed when they are new. */
static int take_lasting(const struct weir__program_run *run, const struct weir__node_call *node,
                        struct weir__op_call *call) {
    struct weir__net_lasting *lasting = node->lasting;
    assert(lasting->bytes > 0 && lasting->offset % WEIR__CACHE_LINE == 0);
    void *memory = (void *)(run->bases[WEIR__BASE_STATE] + lasting->offset);
    if (node->kernel->pack == NULL) {
        call->cache = memory;
        return WEIR_OK;
    }
    call->packed = memory;
    uint64_t weights = weights_of(run, lasting);
    if (holds(lasting, weights)) return WEIR_OK;
    lasting->packed_of = 0;
    int status = node->kernel->pack(call, memory);
    if (status != WEIR_OK) return status;
    lasting->packed_of = weights;
    bool whole = lasting->owner != NULL && lasting->owner->bytes == lasting->bytes;
    if (whole) lasting->owner->packed_of = weights;
    return WEIR_OK;
}

/** Before the i-th call. */
static int stamp(const struct weir__program_run *run, uint32_t i) {
    if (run->events != NULL)
        return run->call.stream->device->calls->event_record(run->call.stream, &run->events[i]);
    run->stamps[i] = weir__now_ns();
    return WEIR_OK;
}

/* ---- sharing a call ---- */

/** Below this a part is not worth a thread: some microseconds. */
enum { PART_BYTES_LEAST = 32 << 10, PARTS_PER_MEMBER = 2, UNITS_ALIGNED = 16 };

struct shared_call {
    const struct weir__planned_call *planned;
    const struct weir__op_call *call;
    int64_t units; /* of a part */
    _Atomic int status;
};

static void run_part(void *context, uint32_t part, uint32_t member) {
    struct shared_call *shared = context;
    const struct weir__planned_call *planned = shared->planned;
    const struct weir__node_call *node = planned->node;
    struct weir__op_call call = *shared->call;
    struct weir__op_shape shape = *call.shape;
    const void *in[WEIR__NODE_IN_MAX];
    void *out[WEIR__NODE_OUT_MAX];
    int64_t first = part * shared->units, left = planned->units - first;
    shape.rows = left < shared->units ? left : shared->units;
    shape.threads = 1;
    if (node->kernel->cut == WEIR__CUT_ROWS) call.row_first += first;
    if (node->kernel->cut == WEIR__CUT_TOKENS) shape.tokens = 1;
    if (node->kernel->cut == WEIR__CUT_NUMBERS) shape.width = 1;
    for (uint32_t k = 0; k < planned->in_count; k++)
        in[k] = (const void *)((uintptr_t)call.in[k] + (size_t)first * planned->in_unit[k]);
    for (uint32_t k = 0; k < planned->out_count; k++)
        out[k] = (void *)((uintptr_t)call.out[k] + (size_t)first * planned->out_unit[k]);
    call.in = in;
    call.out = out;
    call.shape = &shape;
    size_t each = node->workspace / node->shape.threads / WEIR__CACHE_LINE * WEIR__CACHE_LINE;
    call.workspace = (void *)((uintptr_t)call.workspace + member * each);
    int status = node->kernel->run(&call);
    if (status != WEIR_OK) atomic_store(&shared->status, status);
}

/** Units of a part: all where sharing gains nothing. */
static int64_t part_units(const struct weir__planned_call *planned, uint32_t threads) {
    size_t bytes = 0;
    int64_t units = planned->units, aligned = units > threads * UNITS_ALIGNED ? UNITS_ALIGNED : 1;
    for (uint32_t k = 0; k < planned->out_count; k++) bytes += (size_t)units * planned->out_unit[k];
    size_t parts = (size_t)threads * PARTS_PER_MEMBER;
    if (parts > bytes / PART_BYTES_LEAST) parts = bytes / PART_BYTES_LEAST;
    if (parts < 2) return units;
    int64_t each = (units + (int64_t)parts - 1) / (int64_t)parts;
    return (each + aligned - 1) / aligned * aligned;
}

static int run_kernel(const struct weir__planned_call *planned, const struct weir__op_call *call) {
    const struct weir__node_call *node = planned->node;
    uint32_t threads = node->shape.threads;
    if (planned->units < 2 || threads < 2 || call->stream->team == NULL)
        return node->kernel->run(call);
    struct shared_call shared = {planned, call, part_units(planned, threads), WEIR_OK};
    if (shared.units >= planned->units) return node->kernel->run(call);
    int64_t parts = (planned->units + shared.units - 1) / shared.units;
    weir__team_run(call->stream->team, threads, (uint32_t)parts, run_part, &shared);
    return atomic_load(&shared.status);
}

/** Without the rows before run->output_first. */
static int run_last_rows(const struct weir__program_run *run,
                         const struct weir__planned_call *planned, struct weir__op_call *call) {
    struct weir__node_call node = *planned->node;
    struct weir__planned_call fewer = *planned;
    size_t first = (size_t)run->output_first * planned->row_units;
    struct weir__op_call last = *call;
    const void *in[WEIR__NODE_IN_MAX];
    void *out[WEIR__NODE_OUT_MAX];
    assert(planned->row_units > 0 && run->output_first < node.shape.rows);
    node.shape.rows -= run->output_first;
    fewer.node = &node;
    if (fewer.units > 0) fewer.units -= (int64_t)first;
    for (uint32_t k = 0; k < planned->in_count; k++)
        in[k] = (const void *)((uintptr_t)call->in[k] + first * planned->in_unit[k]);
    for (uint32_t k = 0; k < planned->out_count; k++)
        out[k] = (void *)((uintptr_t)call->out[k] + first * planned->out_unit[k]);
    last.in = in;
    last.out = out;
    last.shape = &node.shape;
    last.row_first += run->output_first;
    return run_kernel(&fewer, &last);
}

/** Points the call at what it works on, by arrays of the caller. */
static int place_call(const struct weir__program_run *run, const struct weir__planned_call *planned,
                      const void **in, void **out, struct weir__op_call *call) {
    assert(planned->in_count <= WEIR__NODE_IN_MAX && planned->out_count <= WEIR__NODE_OUT_MAX);
    for (uint32_t k = 0; k < planned->in_count; k++) in[k] = resolve(run, &planned->in[k]);
    for (uint32_t k = 0; k < planned->out_count; k++)
        out[k] = (void *)resolve(run, &planned->out[k]);
    call->in = in;
    call->out = out;
    call->workspace = (void *)resolve(run, &planned->workspace);
    call->shape = &planned->node->shape;
    call->state = planned->node->state;
    call->packed = NULL;
    return planned->node->lasting == NULL ? WEIR_OK : take_lasting(run, planned->node, call);
}

static int run_call(const struct weir__program_run *run, const struct weir__planned_call *planned,
                    uint32_t i, struct weir__op_call *call) {
    const void *in[WEIR__NODE_IN_MAX];
    void *out[WEIR__NODE_OUT_MAX];
    int status = run->stamps == NULL ? WEIR_OK : stamp(run, i);
    if (status != WEIR_OK || (planned->to_output && !run->output_wanted)) return status;
    status = place_call(run, planned, in, out, call);
    if (status != WEIR_OK) return status;
    bool fewer = planned->row_units > 0 && run->output_first > 0;
    status = fewer ? run_last_rows(run, planned, call) : run_kernel(planned, call);
    return status == WEIR_OK && run->look != NULL ? weir__program_look(run, planned) : status;
}

int weir__program_run(const struct weir__program *program, const struct weir__program_run *run,
                      const struct weir__planned_call **failed) {
    struct weir__op_call call = run->call;
    for (uint32_t i = 0; i < program->call_count; i++) {
        int status = run_call(run, &program->calls[i], i, &call);
        if (status == WEIR_OK) continue;
        *failed = &program->calls[i];
        return status;
    }
    return run->stamps == NULL ? WEIR_OK : stamp(run, program->call_count);
}

/* ---- states ---- */

/** Takes as many threads, up to `threads`, as the workspace is enough for. It was planned before
 * the number of threads was known, and libraries need more for some numbers than for others. */
static int fit_threads(struct weir__node_call *node, uint32_t threads) {
    assert(threads >= 1 && node->kernel != NULL);
    for (uint32_t count = threads; count >= 1; count--) {
        node->shape.threads = count;
        size_t workspace = 0;
        int status = weir__kernel_workspace(node->kernel, &node->shape, &workspace);
        if (status != WEIR_OK) return status;
        if (workspace <= node->workspace) return WEIR_OK;
    }
    return WEIR_ERR_BACKEND;
}

static int prepare_node(struct weir__node_call *node, uint32_t threads,
                        struct weir_stream *stream) {
    int status = fit_threads(node, threads);
    if (status != WEIR_OK) return status;
    if (node->kernel->prepare != NULL)
        status = node->kernel->prepare(&node->shape, stream, &node->state);
    node->prepared = status == WEIR_OK;
    return status;
}

int weir__instance_prepare(struct weir__instance *instance, uint32_t node_count, uint32_t threads,
                           struct weir_stream *stream) {
    for (uint32_t i = 0; i < node_count; i++) {
        struct weir__node_call *node = &instance->nodes[i];
        if (node->kernel == NULL || node->prepared) continue;
        int status = prepare_node(node, threads, stream);
        if (status != WEIR_OK) return status;
    }
    instance->prepared = true;
    return WEIR_OK;
}

void weir__instance_release(struct weir__instance *instance, uint32_t node_count) {
    for (uint32_t i = 0; i < node_count; i++) {
        struct weir__node_call *node = &instance->nodes[i];
        if (!node->prepared) continue;
        if (node->kernel->release != NULL) node->kernel->release(node->state);
        node->state = NULL;
        node->prepared = false;
    }
    instance->prepared = false;
}

int weir__program_pack(const struct weir__program *program, const struct weir__program_run *run,
                       bool *packed) {
    *packed = false;
    for (uint32_t i = 0; i < program->call_count; i++) {
        const struct weir__planned_call *planned = &program->calls[i];
        const struct weir__net_lasting *lasting = planned->node->lasting;
        if (lasting == NULL || planned->node->kernel->pack == NULL) continue;
        if (holds(lasting, weights_of(run, lasting))) continue;
        struct weir__op_call call = run->call;
        const void *in[WEIR__NODE_IN_MAX];
        void *out[WEIR__NODE_OUT_MAX];
        *packed = true;
        return place_call(run, planned, in, out, &call);
    }
    return WEIR_OK;
}

/* SPDX-License-Identifier: MIT */
/*
 * The net's rows of CUDA as cases. Operands follow from the op's shape (toys/operands.h); inputs
 * of all ops lie in the same random numbers.
 *
 * Answers: a few tokens, or one image, against the CPU's reference kernels; then the first numbers
 * of the whole case against the bits of those few.
 */
#include "net/cuda/cuda.h"
#include "net_kernels.h"
#include "net_shapes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct net_sizes whole = {1024, 768, 3072, 50304, 192, 64};
static const struct net_sizes quick = {4, 64, 128, 96, 8, 8};
enum { TOKENS_CHECKED = 16 };

struct net_op {
    struct net_kernel kernel; /* first */
    const struct net_kind *kind;
    struct weir__op_shape shape, checked; /* checked: of the few */
    const struct weir__kernel *row;
    const void *in[KERNEL_INS];
    void *out[KERNEL_OUTS];
    void *workspace;
};

/* ---- bytes ---- */

/* As the kernel's head comment says: some read twice. */
static size_t traffic_of(const struct weir__op_shape *shape) {
    size_t each = weir_dtype_bytes(shape->dtype);
    size_t m = (size_t)(shape->rows * shape->tokens), numbers = m * (size_t)shape->width;
    switch (shape->op) {
    case WEIR__OP_embedding_grad: return net_traffic(shape) + m * 16 + (size_t)shape->in * 8;
    case WEIR__OP_instance_norm:
    case WEIR__OP_instance_norm_act: return 3 * numbers * each;
    case WEIR__OP_instance_norm_grad_input: return 5 * numbers * each;
    case WEIR__OP_instance_norm_act_grad: return 7 * numbers * each;
    default: return net_traffic(shape);
    }
}

/* ---- memory ---- */

static size_t take(struct net_areas *areas, enum net_area area, size_t *at, size_t bytes,
                   unsigned char **memory) {
    *memory = areas->memory[area] == NULL ? NULL : areas->memory[area] + *at;
    *at += (bytes + 255) / 256 * 256;
    if (*at > areas->bytes[area]) areas->bytes[area] = *at;
    return *at;
}

/* Lays the operands out; without memory it only finds how much there must be. */
static void place(struct net_op *op, struct net_areas *areas) {
    struct operands operands;
    size_t at[NET_AREAS] = {0}, workspace = 0, checked = 0;
    unsigned char *memory;
    kernel_operands(&op->shape, &operands);
    for (int i = 0; i < KERNEL_INS; i++) {
        enum weir_dtype dtype = net_dtype(&operands.in[i], op->shape.dtype);
        enum net_area area = dtype == WEIR_I64 ? NET_I64 : dtype == WEIR_BF16 ? NET_BF16 : NET_F32;
        take(areas, area, &at[area], net_bytes(&operands.in[i], op->shape.dtype), &memory);
        op->in[i] = memory;
    }
    for (int i = 0; i < KERNEL_OUTS; i++) {
        take(areas, NET_OUT, &at[NET_OUT], net_bytes(&operands.out[i], op->shape.dtype), &memory);
        op->out[i] = memory;
    }
    if (op->row->measure != NULL) {
        bench_check(op->row->measure(&op->shape, &workspace), op->kernel.label);
        bench_check(op->row->measure(&op->checked, &checked), op->kernel.label);
    }
    take(areas, NET_WORKSPACE, &at[NET_WORKSPACE], workspace > checked ? workspace : checked,
         &memory);
    op->workspace = memory;
}

static void fill(struct bench_gpu *gpu, const struct net_areas *areas, uint64_t tokens) {
    static const enum weir_dtype dtypes[] = {
        [NET_F32] = WEIR_F32, [NET_BF16] = WEIR_BF16, [NET_I64] = WEIR_I64};
    for (int a = NET_F32; a <= NET_I64; a++) {
        size_t count = areas->bytes[a] / weir_dtype_bytes(dtypes[a]);
        const struct gpu_numbers numbers = {areas->memory[a], count, dtypes[a], tokens};
        gpu_fill_numbers(gpu, &numbers, (uint64_t)a);
    }
}

/* ---- the work ---- */

static int run_shape(struct weir_stream *stream, const struct net_op *op,
                     const struct weir__op_shape *shape) {
    struct weir__op_call call = {.shape = shape,
                                 .in = op->in,
                                 .out = op->out,
                                 .workspace = op->workspace,
                                 .stream = stream,
                                 .overwrite = true,
                                 .seed = 1,
                                 .loss_weight = 1000.0};
    return op->row->run(&call);
}

static int run(struct weir_stream *stream, const struct net_kernel *kernel) {
    const struct net_op *op = (const struct net_op *)kernel;
    return run_shape(stream, op, &op->shape);
}

/* ---- answers ---- */

/* The host's, 64-byte aligned, for free(). */
static void *host_take(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (memory == NULL) bench_die("no memory for %zu bytes", bytes);
    return memory;
}

static void *read_back(struct bench_gpu *gpu, const void *from, size_t bytes) {
    void *memory = host_take(bytes);
    gpu_check(gpu, gpu->device->calls->stream_finish(gpu->stream), "a kernel");
    if (bytes > 0) gpu_copy(gpu, memory, from, bytes);
    return memory;
}

/* An input as the reference takes it: numbers as F32. */
static void *input_of(struct bench_gpu *gpu, const struct operand *operand, const void *from,
                      enum weir_dtype dtype) {
    enum weir_dtype own = net_dtype(operand, dtype);
    void *there = read_back(gpu, from, net_bytes(operand, dtype));
    if (own != WEIR_BF16) return there;
    float *wide = host_take((size_t)operand->count * sizeof *wide);
    for (int64_t i = 0; i < operand->count; i++) wide[i] = (float)net_number(there, own, i);
    free(there);
    return wide;
}

static void run_reference(struct bench_gpu *gpu, const struct net_op *op,
                          const struct operands *operands, void *const out[KERNEL_OUTS]) {
    const struct weir__kernel *row = weir__backend_reference.kernel(op->kind->op, WEIR_F32);
    struct weir__op_shape shape = op->checked;
    struct net_op reference = {.row = row};
    size_t workspace = 0;
    shape.dtype = WEIR_F32;
    if (row->measure != NULL) bench_check(row->measure(&shape, &workspace), op->kernel.label);
    reference.workspace = host_take(workspace);
    for (int i = 0; i < KERNEL_INS; i++)
        reference.in[i] = input_of(gpu, &operands->in[i], op->in[i], op->shape.dtype);
    memcpy(reference.out, out, sizeof reference.out);
    bench_check(run_shape(NULL, &reference, &shape), op->kernel.label);
    for (int i = 0; i < KERNEL_INS; i++) free((void *)(uintptr_t)reference.in[i]);
    free(reference.workspace);
}

static bool few_are_near(struct bench_gpu *gpu, const struct net_op *op,
                         const struct operands *operands, void *const got[KERNEL_OUTS]) {
    void *wanted[KERNEL_OUTS];
    bool near = true;
    double tolerance = net_tolerance(operands, op->shape.dtype);
    for (int i = 0; i < KERNEL_OUTS; i++)
        wanted[i] = host_take((size_t)operands->out[i].count * sizeof(double));
    run_reference(gpu, op, operands, wanted);
    for (int i = 0; i < KERNEL_OUTS; i++) {
        if (operands->out[i].kind != OPERAND_NONE)
            near &= net_is_near(&operands->out[i], op->shape.dtype, got[i], wanted[i], tolerance);
        free(wanted[i]);
    }
    return near;
}

/* What is made of a row does not depend on how many there are. */
static bool begins_with(struct bench_gpu *gpu, const struct net_op *op,
                        const struct operands *operands, void *const few[KERNEL_OUTS]) {
    bool same = true;
    for (int i = 0; i < KERNEL_OUTS; i++) {
        if (operands->out[i].kind != OPERAND_REAL || operands->out[i].shared) continue;
        size_t bytes = net_bytes(&operands->out[i], op->shape.dtype);
        void *there = read_back(gpu, op->out[i], bytes);
        same &= memcmp(there, few[i], bytes) == 0;
        free(there);
    }
    return same;
}

static void check(struct bench *bench, const struct net_op *op) {
    struct bench_gpu *gpu = bench->gpu;
    struct operands operands;
    void *few[KERNEL_OUTS];
    kernel_operands(&op->checked, &operands);
    gpu_check(gpu, run_shape(gpu->stream, op, &op->checked), op->kernel.label);
    for (int i = 0; i < KERNEL_OUTS; i++)
        few[i] = read_back(gpu, op->out[i], net_bytes(&operands.out[i], op->shape.dtype));
    bench_answer(bench, few_are_near(gpu, op, &operands, few),
                 "gpu-net-kernels/%s: a few are as the CPU's", op->kernel.label);
    gpu_check(gpu, run(gpu->stream, &op->kernel), op->kernel.label);
    if (net_is_by_rows(op->shape.op))
        bench_answer(bench, begins_with(gpu, op, &operands, few),
                     "gpu-net-kernels/%s: many begin with these few", op->kernel.label);
    for (int i = 0; i < KERNEL_OUTS; i++) free(few[i]);
}

/* ---- the cases ---- */

static int64_t rows_for(const struct net_kind *kind, enum weir_dtype dtype,
                        const struct net_sizes *sizes, size_t bytes) {
    struct weir__op_shape one = net_shape(kind, dtype, sizes, 1);
    struct weir__op_shape two = net_shape(kind, dtype, sizes, 2);
    size_t first = traffic_of(&one), each = traffic_of(&two) - first;
    return bytes <= first ? 1 : (int64_t)(1 + (bytes - first) / each);
}

static void init_op(struct net_op *op, const struct net_kind *kind, enum weir_dtype dtype,
                    const struct net_sizes *sizes, size_t bytes) {
    struct net_sizes few = *sizes;
    if (few.tokens > TOKENS_CHECKED) few.tokens = TOKENS_CHECKED;
    *op = (struct net_op){.kind = kind, .row = weir__backend_cuda.kernel(kind->op, dtype)};
    snprintf(op->kernel.label, sizeof op->kernel.label, "%s%s/%s", weir__op_name(kind->op),
             kind->suffix, dtype == WEIR_F32 ? "f32" : "bf16");
    if (op->row == NULL) bench_die("gpu-net-kernels/%s: there is no kernel", op->kernel.label);
    assert(op->row->prepare == NULL && op->row->measure_pack == NULL);
    op->shape = net_shape(kind, dtype, sizes, rows_for(kind, dtype, sizes, bytes));
    op->checked = net_shape(kind, dtype, &few, 1);
    op->kernel.bytes = traffic_of(&op->shape);
    op->kernel.run = run;
}

static bool is_cast(const struct net_kind *kind) {
    return kind->op == WEIR__OP_narrow || kind->op == WEIR__OP_widen;
}

void net_ops_init(struct bench *bench, size_t bytes, struct net_areas *areas,
                  struct net_kernels *kernels) {
    const struct net_sizes *sizes = bench->options.quick ? &quick : &whole;
    struct net_op *ops = bench_take(bench, 2 * (size_t)net_kind_count, sizeof *ops);
    uint32_t count = 0;
    net_check_kinds(&weir__backend_cuda);
    areas->bytes[NET_F32] = areas->bytes[NET_OUT] = bytes / 2;
    for (uint32_t i = 0; i < 2 * net_kind_count; i++) {
        const struct net_kind *kind = &net_kinds[i / 2];
        enum weir_dtype dtype = i % 2 == 0 ? WEIR_F32 : WEIR_BF16;
        if (is_cast(kind) && dtype == WEIR_F32) continue; /* a copy */
        if (weir__backend_cuda.kernel(kind->op, dtype) == NULL) continue;
        init_op(&ops[count], kind, dtype, sizes, bytes);
        place(&ops[count++], areas);
    }
    for (int a = 0; a < NET_AREAS; a++)
        areas->memory[a] = gpu_take(bench->gpu, bench->gpu->device, areas->bytes[a]);
    fill(bench->gpu, areas, (uint64_t)sizes->vocabulary);
    for (uint32_t i = 0; i < count; i++) {
        place(&ops[i], areas);
        check(bench, &ops[i]);
        net_kernels_add(kernels, &ops[i].kernel);
    }
}

void net_ops_clean_up(struct bench *bench, struct net_areas *areas) {
    for (int a = 0; a < NET_AREAS; a++)
        gpu_give(bench->gpu->device, areas->memory[a], areas->bytes[a]);
}

/* SPDX-License-Identifier: MIT */
/*
 * The net's rows of CUDA as cases. Operands follow from the op's shape (toys/operands.h); inputs
 * of all ops lie in the same random numbers.
 *
 * Answers: a few tokens, or one image, against the CPU's reference kernels; then the first numbers
 * of the whole case against the bits of those few.
 */
#include "toys/operands.h"
#include "net/cuda/cuda.h"
#include "net_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sizes {
    int64_t tokens, width, hidden, vocabulary, side, channels;
};
static const struct sizes whole = {1024, 768, 3072, 50304, 192, 64};
static const struct sizes quick = {4, 64, 128, 96, 8, 8};
enum { TOKENS_CHECKED = 16 };

/* How an op's sizes follow from the models'. */
enum form {
    HIDDEN,  /* numbers, or rows, of the MLP */
    WIDTH,   /* numbers of the residual stream */
    TOKENS,  /* rows of it */
    TABLE,   /* embedding */
    PLACES,  /* positions */
    CLASSES, /* logits of the vocabulary */
    PIXELS,  /* rows of the first level's images */
    PLANE,   /* numbers of those */
    POOL,
    GROW,
    JOIN,
    TURN,
    MASK /* logits of the U-Net's pixels */
};

struct kind {
    enum weir__op_code op;
    enum form form;
    const char *suffix; /* of the label */
    bool erf;
};

#define KIND(name, form)                                                                           \
    { WEIR__OP_##name, form, "", false }
#define BOTH(name)                                                                                 \
    {WEIR__OP_##name, HIDDEN, "-tanh", false}, {                                                   \
        WEIR__OP_##name, HIDDEN, "-erf", true                                                      \
    }

static const struct kind kinds[] = {
    BOTH(bias_gelu),
    BOTH(bias_gelu_grad),
    BOTH(gelu),
    BOTH(gelu_grad),
    KIND(bias_dropout_add, WIDTH),
    KIND(bias_grad, HIDDEN),
    KIND(layer_norm, TOKENS),
    KIND(layer_norm_grad_input, TOKENS),
    KIND(layer_norm_grad_weight, TOKENS),
    KIND(add_layer_norm, TOKENS),
    KIND(add_layer_norm_grad_input, TOKENS),
    KIND(rms_norm, TOKENS),
    KIND(rms_norm_grad_input, TOKENS),
    KIND(rms_norm_grad_weight, TOKENS),
    KIND(softmax, TOKENS),
    KIND(softmax_grad, TOKENS),
    KIND(cross_entropy, CLASSES),
    KIND(cross_entropy_grad, CLASSES),
    KIND(embedding, TABLE),
    KIND(embedding_grad, TABLE),
    KIND(position_add, PLACES),
    KIND(position_grad, PLACES),
    KIND(relu, HIDDEN),
    KIND(relu_grad, HIDDEN),
    KIND(silu, HIDDEN),
    KIND(silu_grad, HIDDEN),
    KIND(sigmoid, HIDDEN),
    KIND(sigmoid_grad, HIDDEN),
    KIND(tanh, HIDDEN),
    KIND(tanh_grad, HIDDEN),
    KIND(dropout, WIDTH),
    KIND(dropout_add, WIDTH),
    KIND(add, WIDTH),
    KIND(multiply, WIDTH),
    KIND(bias_add, HIDDEN),
    KIND(copy, WIDTH),
    KIND(narrow, WIDTH),
    KIND(widen, WIDTH),
    KIND(instance_norm, PIXELS),
    KIND(instance_norm_grad_input, PIXELS),
    KIND(instance_norm_grad_weight, PIXELS),
    KIND(instance_norm_act, PIXELS),
    KIND(instance_norm_act_grad, PIXELS),
    KIND(dropout2d, PIXELS),
    KIND(leaky_relu, PLANE),
    KIND(leaky_relu_grad, PLANE),
    KIND(max_pool2d, POOL),
    KIND(max_pool2d_grad, POOL),
    KIND(avg_pool2d, POOL),
    KIND(avg_pool2d_grad, POOL),
    KIND(upsample, GROW),
    KIND(upsample_grad, GROW),
    KIND(concat, JOIN),
    KIND(concat_grad_a, JOIN),
    KIND(concat_grad_b, JOIN),
    KIND(transpose, TURN),
    KIND(mse, MASK),
    KIND(mse_grad, MASK),
    KIND(bce_with_logits, MASK),
    KIND(bce_with_logits_grad, MASK),
};

struct net_op {
    struct net_kernel kernel; /* first */
    const struct kind *kind;
    struct weir__op_shape shape, checked; /* checked: of the few */
    const struct weir__kernel *row;
    const void *in[KERNEL_INS];
    void *out[KERNEL_OUTS];
    void *workspace;
};

/* ---- shapes ---- */

static void set_matrix(struct weir__op_shape *shape, int64_t tokens, int64_t width) {
    shape->tokens = tokens;
    shape->width = width;
}

static void set_image(struct weir__op_shape *shape, enum form form, const struct sizes *sizes) {
    struct weir__plane plane = {sizes->side, sizes->side};
    struct weir__plane half = {sizes->side / 2, sizes->side / 2}, two = {2, 2};
    shape->width = shape->in = shape->out = sizes->channels;
    if (form == POOL)
        shape->window =
            (struct weir__window){.in = plane, .out = half, .kernel = two, .stride = two};
    if (form == GROW)
        shape->window = (struct weir__window){.in = half, .out = plane, .stride = two};
    if (form == JOIN) shape->window = (struct weir__window){.in = plane, .out = plane};
}

static struct weir__op_shape shape_of(const struct kind *kind, enum weir_dtype dtype,
                                      const struct sizes *sizes, int64_t rows) {
    int64_t tokens = sizes->tokens, pixels = sizes->side * sizes->side;
    struct weir__op_shape shape = {.op = kind->op,
                                   .dtype = dtype,
                                   .threads = 1,
                                   .rows = rows,
                                   .rows_max = rows,
                                   .tokens = 1,
                                   .ignore_index = -100,
                                   .gelu_tanh = !kind->erf,
                                   .eps = 1e-5,
                                   .p = 0.1,
                                   .slope = 0.01,
                                   .random_op = 1u << 8 | 3};
    switch (kind->form) {
    case HIDDEN: set_matrix(&shape, tokens, tokens * sizes->hidden); break;
    case WIDTH: set_matrix(&shape, tokens, tokens * sizes->width); break;
    case TOKENS:
    case TABLE:
    case PLACES: set_matrix(&shape, tokens, sizes->width); break;
    case CLASSES: set_matrix(&shape, tokens, sizes->vocabulary); break;
    case PIXELS: set_matrix(&shape, pixels, sizes->channels); break;
    case PLANE: shape.width = pixels * sizes->channels; break;
    case MASK: shape.width = pixels; break;
    case TURN: break;
    default: set_image(&shape, kind->form, sizes); break;
    }
    if (kind->form == HIDDEN) shape.out = sizes->hidden;
    if (kind->form == WIDTH || kind->form == TABLE) shape.out = sizes->width;
    if (kind->form == TABLE) shape.in = sizes->vocabulary;
    if (kind->form == PLACES) shape.table = tokens;
    if (kind->form == TURN) shape.in = sizes->channels, shape.out = pixels;
    return shape;
}

/* ---- bytes ---- */

static enum weir_dtype dtype_of(const struct operand *operand, enum weir_dtype dtype) {
    if (operand->kind == OPERAND_INDEX) return WEIR_I64;
    if (operand->kind == OPERAND_LOSS) return WEIR_F64;
    return operand->single ? WEIR_F32 : dtype;
}

static size_t bytes_of(const struct operand *operand, enum weir_dtype dtype) {
    if (operand->kind == OPERAND_NONE) return 0;
    return (size_t)operand->count * weir_dtype_bytes(dtype_of(operand, dtype));
}

/* As the kernel's head comment says. */
static size_t traffic_of(const struct weir__op_shape *shape) {
    struct operands operands;
    size_t all = 0, each = weir_dtype_bytes(shape->dtype);
    size_t m = (size_t)(shape->rows * shape->tokens), numbers = m * (size_t)shape->width;
    kernel_operands(shape, &operands);
    for (int i = 0; i < KERNEL_INS; i++) all += bytes_of(&operands.in[i], shape->dtype);
    for (int i = 0; i < KERNEL_OUTS; i++) all += bytes_of(&operands.out[i], shape->dtype);
    switch (shape->op) {
    case WEIR__OP_embedding: return m * 8 + numbers * (4 + each); /* rows that are looked up */
    case WEIR__OP_embedding_grad: return all + m * 16 + (size_t)shape->in * 8;
    case WEIR__OP_instance_norm:
    case WEIR__OP_instance_norm_act: return 3 * numbers * each; /* inputs are read twice */
    case WEIR__OP_instance_norm_grad_input: return 5 * numbers * each;
    case WEIR__OP_instance_norm_act_grad: return 7 * numbers * each;
    case WEIR__OP_concat_grad_a:
    case WEIR__OP_concat_grad_b: return 2 * bytes_of(&operands.out[0], shape->dtype);
    default: return all;
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
        enum weir_dtype dtype = dtype_of(&operands.in[i], op->shape.dtype);
        enum net_area area = dtype == WEIR_I64 ? NET_I64 : dtype == WEIR_F32 ? NET_F32 : NET_BF16;
        take(areas, area, &at[area], bytes_of(&operands.in[i], op->shape.dtype), &memory);
        op->in[i] = memory;
    }
    for (int i = 0; i < KERNEL_OUTS; i++) {
        take(areas, NET_OUT, &at[NET_OUT], bytes_of(&operands.out[i], op->shape.dtype), &memory);
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

static float number_at(const void *numbers, enum weir_dtype dtype, int64_t i) {
    float value;
    if (dtype != WEIR_BF16) return ((const float *)numbers)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)numbers)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* An input as the reference takes it: numbers as F32. */
static void *input_of(struct bench_gpu *gpu, const struct operand *operand, const void *from,
                      enum weir_dtype dtype) {
    enum weir_dtype own = dtype_of(operand, dtype);
    void *there = read_back(gpu, from, bytes_of(operand, dtype));
    if (own != WEIR_BF16) return there;
    float *wide = host_take((size_t)operand->count * sizeof *wide);
    for (int64_t i = 0; i < operand->count; i++) wide[i] = number_at(there, own, i);
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

/* Rounding errors of random sign, over sums that are not longer than the op's largest operand; BF16
 * is rounded where it is stored, and where a part of a fused op would be: three times at most. */
static double tolerance_of(const struct operands *operands, enum weir_dtype dtype) {
    int64_t longest = 0;
    for (int i = 0; i < KERNEL_INS; i++)
        if (operands->in[i].count > longest) longest = operands->in[i].count;
    return 0x1p-24 * (16 + 4 * sqrt((double)longest)) + (dtype == WEIR_BF16 ? 3 * 0x1p-8 : 0);
}

/* Relative to the largest number, or 1. */
static bool is_near(const struct operand *operand, enum weir_dtype dtype, const void *got,
                    const void *wanted, double tolerance) {
    enum weir_dtype own = dtype_of(operand, dtype);
    const float *want = wanted;
    double largest = 1;
    if (operand->kind == OPERAND_LOSS) {
        double a = *(const double *)got, b = *(const double *)wanted;
        return fabs(a - b) <= tolerance * fmax(1, fabs(b));
    }
    for (int64_t i = 0; i < operand->count; i++) largest = fmax(largest, fabs((double)want[i]));
    for (int64_t i = 0; i < operand->count; i++)
        if (!(fabs((double)number_at(got, own, i) - (double)want[i]) <= tolerance * largest))
            return false;
    return true;
}

static bool few_are_near(struct bench_gpu *gpu, const struct net_op *op,
                         const struct operands *operands, void *const got[KERNEL_OUTS]) {
    void *wanted[KERNEL_OUTS];
    bool near = true;
    double tolerance = tolerance_of(operands, op->shape.dtype);
    for (int i = 0; i < KERNEL_OUTS; i++)
        wanted[i] = host_take((size_t)operands->out[i].count * sizeof(double));
    run_reference(gpu, op, operands, wanted);
    for (int i = 0; i < KERNEL_OUTS; i++) {
        if (operands->out[i].kind != OPERAND_NONE)
            near &= is_near(&operands->out[i], op->shape.dtype, got[i], wanted[i], tolerance);
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
        size_t bytes = bytes_of(&operands->out[i], op->shape.dtype);
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
        few[i] = read_back(gpu, op->out[i], bytes_of(&operands.out[i], op->shape.dtype));
    bench_answer(bench, few_are_near(gpu, op, &operands, few),
                 "gpu-net-kernels/%s: a few are as the CPU's", op->kernel.label);
    gpu_check(gpu, run(gpu->stream, &op->kernel), op->kernel.label);
    bench_answer(bench, begins_with(gpu, op, &operands, few),
                 "gpu-net-kernels/%s: many begin with these few", op->kernel.label);
    for (int i = 0; i < KERNEL_OUTS; i++) free(few[i]);
}

/* ---- the cases ---- */

/* Bound by arithmetic, or of a few tokens. */
static bool is_left_out(enum weir__op_code op) {
    switch (op) {
    case WEIR__OP_linear:
    case WEIR__OP_linear_grad_input:
    case WEIR__OP_linear_grad_weight:
    case WEIR__OP_attention:
    case WEIR__OP_attention_grad:
    case WEIR__OP_attention_cached:
    case WEIR__OP_position_cached:
    case WEIR__OP_conv2d:
    case WEIR__OP_conv2d_grad_input:
    case WEIR__OP_conv2d_grad_weight: return true;
    default: return weir__backend_cuda.kernel(op, WEIR_F32) == NULL;
    }
}

/* A row that is new must be put into the list of kinds, too. */
static void check_all_are_here(void) {
    for (enum weir__op_code op = 0; op < WEIR__OP_COUNT; op++) {
        bool here = is_left_out(op);
        for (size_t i = 0; i < WEIR__COUNT_OF(kinds); i++) here |= kinds[i].op == op;
        if (!here) bench_die("gpu-net-kernels: %s is not among the kinds", weir__op_name(op));
    }
}

static int64_t rows_for(const struct kind *kind, enum weir_dtype dtype, const struct sizes *sizes,
                        size_t bytes) {
    struct weir__op_shape one = shape_of(kind, dtype, sizes, 1);
    struct weir__op_shape two = shape_of(kind, dtype, sizes, 2);
    size_t first = traffic_of(&one), each = traffic_of(&two) - first;
    return bytes <= first ? 1 : (int64_t)(1 + (bytes - first) / each);
}

static void init_op(struct net_op *op, const struct kind *kind, enum weir_dtype dtype,
                    const struct sizes *sizes, size_t bytes) {
    struct sizes few = *sizes;
    if (few.tokens > TOKENS_CHECKED) few.tokens = TOKENS_CHECKED;
    *op = (struct net_op){.kind = kind, .row = weir__backend_cuda.kernel(kind->op, dtype)};
    snprintf(op->kernel.label, sizeof op->kernel.label, "%s%s/%s", weir__op_name(kind->op),
             kind->suffix, dtype == WEIR_F32 ? "f32" : "bf16");
    if (op->row == NULL) bench_die("gpu-net-kernels/%s: there is no kernel", op->kernel.label);
    assert(op->row->prepare == NULL && op->row->measure_pack == NULL);
    op->shape = shape_of(kind, dtype, sizes, rows_for(kind, dtype, sizes, bytes));
    op->checked = shape_of(kind, dtype, &few, 1);
    op->kernel.bytes = traffic_of(&op->shape);
    op->kernel.run = run;
}

static bool is_cast(const struct kind *kind) {
    return kind->op == WEIR__OP_narrow || kind->op == WEIR__OP_widen;
}

void net_ops_init(struct bench *bench, size_t bytes, struct net_areas *areas,
                  struct net_kernels *kernels) {
    enum { COUNT = 2 * WEIR__COUNT_OF(kinds) };
    const struct sizes *sizes = bench->options.quick ? &quick : &whole;
    struct net_op *ops = bench_take(bench, COUNT, sizeof *ops);
    uint32_t count = 0;
    check_all_are_here();
    areas->bytes[NET_F32] = areas->bytes[NET_OUT] = bytes / 2;
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct kind *kind = &kinds[i / 2];
        enum weir_dtype dtype = i % 2 == 0 ? WEIR_F32 : WEIR_BF16;
        if (is_cast(kind) && dtype == WEIR_F32) continue; /* a copy */
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

/* SPDX-License-Identifier: MIT */
/*
 * The level's rows as cases, at shapes of models. Inputs of all ops lie in the same random numbers,
 * for none changes them; a convolution's weights are packed in every call, and its multiply-adds
 * are those of its taps: by minimal filtering it takes fewer, and may pass the roof.
 *
 * Answers: one row of the micro-batch against the reference's kernel; then the whole case's first
 * row against the bits of that.
 */
#include "kernels.h"
#include "net/cpu/cpu.h"
#include "net_shapes.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS = 8, SIDE_LEAST = 3, CHANNELS = 16, ROWS_QUICK = 2, LINE = 256 };

struct model {
    const char *name;
    int64_t rows;
    struct net_sizes sizes;
};

enum { GPTS = 2 };
static const struct model models[] = {
    {"gpt-s", 16, {128, 256, 1024, 256, 0, 0}},
    {"gpt-m", 8, {256, 512, 2048, 256, 0, 0}},
    {"unet-96", 16, {.side = 96, .channels = CHANNELS}}, /* its first level */
    {"unet-24", 16, {.side = 24, .channels = 4 * CHANNELS}},
};
static const struct net_sizes quick_sizes = {8, 64, 128, 96, 8, 16};

/* In f32, indices, results, the kernel's own, packed weights. */
enum area { NUMBERS, INDICES, RESULTS, WORKSPACE, PACKED, AREAS };

struct op {
    struct kernel kernel; /* first */
    const struct weir__kernel *row;
    struct weir__op_shape shape, one; /* one: with one row */
    const void *in[KERNEL_INS];
    void *out[KERNEL_OUTS];
    void *workspace, *packed;
};

struct kernel_ops {
    struct op *list;
    uint32_t count;
    const struct kernels *kernels;
    unsigned char *memory[AREAS];
    size_t bytes[AREAS];
};

/* ---- the work ---- */

static int run_shape(const struct op *op, const struct weir__op_shape *shape) {
    const struct weir__op_call call = {.shape = shape,
                                       .in = op->in,
                                       .out = op->out,
                                       .workspace = op->workspace,
                                       .packed = op->packed,
                                       .overwrite = true,
                                       .seed = 1,
                                       .loss_weight = 1000.0};
    int status = op->packed == NULL ? WEIR_OK : op->row->pack(&call, op->packed);
    return status == WEIR_OK ? op->row->run(&call) : status;
}

static int run(const struct kernel *kernel) {
    const struct op *op = (const struct op *)kernel;
    return run_shape(op, &op->shape);
}

/* An attention's queries see the keys up to their own. */
static double attended(const struct weir__op_shape *shape) {
    double tokens = (double)shape->tokens;
    return (double)(shape->rows * shape->heads) * tokens * (tokens + 1) / 2;
}

static double multiply_adds_of(const struct weir__op_shape *shape) {
    switch (shape->op) {
    case WEIR__OP_linear:
    case WEIR__OP_linear_grad_input:
    case WEIR__OP_linear_grad_weight:
        return (double)(shape->rows * shape->tokens) * (double)shape->in * (double)shape->out;
    case WEIR__OP_conv2d:
    case WEIR__OP_conv2d_grad_input:
    case WEIR__OP_conv2d_grad_weight: return weir__conv_multiply_adds(shape, shape->rows);
    case WEIR__OP_attention: return 2 * attended(shape) * (double)(shape->width / shape->heads);
    case WEIR__OP_attention_grad:
        return 5 * attended(shape) * (double)(shape->width / shape->heads);
    default: return 0;
    }
}

static double exponentials_of(const struct weir__op_shape *shape) {
    struct operands operands;
    kernel_operands(shape, &operands);
    switch (shape->op) {
    case WEIR__OP_attention:
    case WEIR__OP_attention_grad: return attended(shape);
    case WEIR__OP_gelu:
    case WEIR__OP_gelu_grad:
    case WEIR__OP_silu:
    case WEIR__OP_silu_grad:
    case WEIR__OP_swiglu:
    case WEIR__OP_swiglu_grad:
    case WEIR__OP_sigmoid:
    case WEIR__OP_tanh:
    case WEIR__OP_softmax:
    case WEIR__OP_cross_entropy:
    case WEIR__OP_cross_entropy_grad:
    case WEIR__OP_bce_with_logits:
    case WEIR__OP_bce_with_logits_grad: return (double)operands.in[0].count;
    default: return 0;
    }
}

/* ---- the list ---- */

static void add(struct kernel_ops *ops, const struct weir__op_shape *shape, const char *model,
                const char *suffix) {
    struct op *op = &ops->list[ops->count++];
    if (ops->count > KERNELS_MOST) bench_die("kernels: too many ops");
    *op = (struct op){.row = &ops->kernels->level->rows[shape->op], .shape = *shape, .one = *shape};
    op->one.rows = 1;
    snprintf(op->kernel.label, sizeof op->kernel.label, "%s/%s%s", model, weir__op_name(shape->op),
             suffix);
    if (op->row->run == NULL) bench_die("kernels/%s: there is no kernel", op->kernel.label);
    assert(op->row->prepare == NULL);
    op->kernel.bytes = net_traffic(shape);
    op->kernel.multiply_adds = multiply_adds_of(shape);
    op->kernel.exponentials = exponentials_of(shape);
    op->kernel.product = op->kernel.multiply_adds > 0 && op->kernel.exponentials == 0;
    op->kernel.run = run;
}

static void add_kinds(struct kernel_ops *ops, const struct model *model) {
    for (uint32_t i = 0; i < net_kind_count; i++) {
        const struct net_kind *kind = &net_kinds[i];
        bool cast = kind->op == WEIR__OP_narrow || kind->op == WEIR__OP_widen; /* copies */
        bool fits = (kind->form < NET_PIXELS) == (model->sizes.side == 0);
        if (cast || !fits || ops->kernels->level->rows[kind->op].run == NULL) continue;
        struct weir__op_shape shape = net_shape(kind, WEIR_F32, &model->sizes, model->rows);
        add(ops, &shape, model->name, kind->suffix);
    }
}

static void add_products(struct kernel_ops *ops, const struct model *model) {
    const struct net_sizes *sizes = &model->sizes;
    const struct {
        const char *suffix;
        int64_t in, out;
    } layers[] = {{"-qkv", sizes->width, 3 * sizes->width},
                  {"-project", sizes->width, sizes->width},
                  {"-up", sizes->width, sizes->hidden},
                  {"-down", sizes->hidden, sizes->width},
                  {"-head", sizes->width, sizes->vocabulary}};
    struct weir__op_shape shape = {.dtype = WEIR_F32,
                                   .threads = 1,
                                   .rows = model->rows,
                                   .rows_max = model->rows,
                                   .tokens = sizes->tokens};
    static const enum weir__op_code products[] = {WEIR__OP_linear, WEIR__OP_linear_grad_input,
                                                  WEIR__OP_linear_grad_weight};
    for (size_t i = 0; i < WEIR__COUNT_OF(layers); i++)
        for (size_t k = 0; k < WEIR__COUNT_OF(products); k++) {
            shape.op = products[k];
            shape.in = layers[i].in, shape.out = layers[i].out;
            shape.has_bias = shape.op == WEIR__OP_linear;
            add(ops, &shape, model->name, layers[i].suffix);
        }
    shape.width = sizes->width, shape.heads = HEADS;
    for (shape.op = WEIR__OP_attention; shape.op <= WEIR__OP_attention_grad; shape.op++)
        add(ops, &shape, model->name, "");
}

static void add_convolutions(struct kernel_ops *ops, const struct model *model, int64_t least) {
    const struct weir__plane one = {1, 1}, three = {3, 3};
    int64_t side = model->sizes.side, channels = model->sizes.channels;
    for (; side >= least; side /= 2, channels *= 2) {
        const struct weir__plane plane = {side, side};
        struct weir__op_shape shape = {.dtype = WEIR_F32,
                                       .threads = 1,
                                       .rows = model->rows,
                                       .rows_max = model->rows,
                                       .tokens = 1,
                                       .in = channels,
                                       .out = channels,
                                       .window = {.in = plane,
                                                  .out = plane,
                                                  .kernel = three,
                                                  .stride = one,
                                                  .padding = one,
                                                  .groups = 1}};
        char suffix[24];
        snprintf(suffix, sizeof suffix, "-%lld", (long long)channels);
        for (shape.op = WEIR__OP_conv2d; shape.op <= WEIR__OP_conv2d_grad_weight; shape.op++)
            add(ops, &shape, "unet", suffix);
    }
}

static void add_models(struct kernel_ops *ops, bool quick) {
    for (size_t i = 0; i < WEIR__COUNT_OF(models); i++) {
        struct model model = models[i];
        bool text = model.sizes.side == 0;
        if (quick) {
            model.rows = ROWS_QUICK;
            model.sizes = quick_sizes;
            if (text) model.sizes.side = 0;
        }
        add_kinds(ops, &model);
        if (text) add_products(ops, &model);
        if (model.sizes.channels == CHANNELS && i == GPTS)
            add_convolutions(ops, &model, quick ? model.sizes.side : SIDE_LEAST);
    }
}

/* ---- memory ---- */

/* Without memory it only finds how much there must be. */
static void *take(struct kernel_ops *ops, enum area area, size_t *at, size_t bytes) {
    unsigned char *memory = ops->memory[area] == NULL ? NULL : ops->memory[area] + *at;
    *at += (bytes + LINE - 1) / LINE * LINE;
    if (*at > ops->bytes[area]) ops->bytes[area] = *at;
    return memory;
}

static void place(struct kernel_ops *ops, struct op *op) {
    struct operands operands;
    size_t at[AREAS] = {0}, bytes = 0;
    kernel_operands(&op->shape, &operands);
    for (int i = 0; i < KERNEL_INS; i++) {
        enum area area = operands.in[i].kind == OPERAND_INDEX ? INDICES : NUMBERS;
        op->in[i] = take(ops, area, &at[area], net_bytes(&operands.in[i], WEIR_F32));
    }
    for (int i = 0; i < KERNEL_OUTS; i++)
        op->out[i] = take(ops, RESULTS, &at[RESULTS], net_bytes(&operands.out[i], WEIR_F32));
    bench_check(weir__kernel_workspace(op->row, &op->shape, &bytes), op->kernel.label);
    op->workspace = take(ops, WORKSPACE, &at[WORKSPACE], bytes);
    if (op->row->measure_pack == NULL || op->row->packs_itself) return;
    bench_check(op->row->measure_pack(&op->shape, &bytes), op->kernel.label);
    op->packed = bytes > 0 ? take(ops, PACKED, &at[PACKED], bytes) : NULL;
}

static void take_memory(struct bench *bench, struct kernel_ops *ops) {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < ops->count; i++) place(ops, &ops->list[i]);
    for (int a = 0; a < AREAS; a++) ops->memory[a] = kernels_take(ops->kernels, ops->bytes[a]);
    for (uint32_t i = 0; i < ops->count; i++) place(ops, &ops->list[i]);
    kernels_fill(bench, (float *)ops->memory[NUMBERS], ops->bytes[NUMBERS] / sizeof(float));
    for (size_t i = 0; i < WEIR__COUNT_OF(models); i++)
        if (models[i].sizes.vocabulary > 0 && (uint64_t)models[i].sizes.vocabulary < least)
            least = (uint64_t)models[i].sizes.vocabulary;
    if (bench->options.quick) least = (uint64_t)quick_sizes.vocabulary;
    for (size_t i = 0; i < ops->bytes[INDICES] / sizeof(int64_t); i++)
        ((int64_t *)ops->memory[INDICES])[i] = (int64_t)(bench_random(&bench->random) % least);
}

/* ---- answers ---- */

static void *copy_of(const void *memory, size_t bytes) {
    void *copy = malloc(bytes + 1);
    if (copy == NULL) bench_die("no memory for %zu bytes", bytes);
    if (bytes > 0) memcpy(copy, memory, bytes);
    return copy;
}

/* By the reference, in the same place: the kernel's results have been kept. */
static bool is_right(const struct op *op, const struct operands *operands,
                     void *const kept[KERNEL_OUTS]) {
    struct op reference = *op;
    size_t bytes = 0;
    bool right = true;
    reference.row = weir__backend_reference.kernel(op->shape.op, WEIR_F32);
    reference.packed = NULL;
    bench_check(weir__kernel_workspace(reference.row, &op->one, &bytes), op->kernel.label);
    reference.workspace = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (reference.workspace == NULL) bench_die("no memory for %zu bytes", bytes);
    bench_check(run_shape(&reference, &op->one), op->kernel.label);
    free(reference.workspace);
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (operands->out[i].kind != OPERAND_NONE)
            right &= net_is_near(&operands->out[i], WEIR_F32, kept[i], op->out[i],
                                 net_tolerance(operands, WEIR_F32));
    return right;
}

static bool begins_so(const struct op *op, const struct operands *operands,
                      void *const kept[KERNEL_OUTS]) {
    bool same = true;
    bench_check(run(&op->kernel), op->kernel.label);
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (operands->out[i].kind == OPERAND_REAL && !operands->out[i].shared)
            same &= memcmp(op->out[i], kept[i], net_bytes(&operands->out[i], WEIR_F32)) == 0;
    return same;
}

static void check(struct bench *bench, const struct op *op) {
    struct operands operands;
    void *kept[KERNEL_OUTS];
    kernel_operands(&op->one, &operands);
    bench_check(run_shape(op, &op->one), op->kernel.label);
    for (int i = 0; i < KERNEL_OUTS; i++)
        kept[i] = copy_of(op->out[i], net_bytes(&operands.out[i], WEIR_F32));
    bench_answer(bench, is_right(op, &operands, kept), "kernels/%s: a row is as the reference's",
                 op->kernel.label);
    if (net_is_by_rows(op->shape.op))
        bench_answer(bench, begins_so(op, &operands, kept), "kernels/%s: many begin with it",
                     op->kernel.label);
    for (int i = 0; i < KERNEL_OUTS; i++) free(kept[i]);
}

struct kernel_ops *kernel_ops_new(struct bench *bench, struct kernels *kernels) {
    struct kernel_ops *ops = bench_take(bench, 1, sizeof *ops);
    ops->list = bench_take(bench, KERNELS_MOST, sizeof *ops->list);
    ops->kernels = kernels;
    net_check_kinds(kernels->level->backend);
    add_models(ops, bench->options.quick);
    take_memory(bench, ops);
    for (uint32_t i = 0; i < ops->count; i++) {
        check(bench, &ops->list[i]);
        kernels_add(kernels, &ops->list[i].kernel);
    }
    return ops;
}

void kernel_ops_clean_up(struct kernel_ops *ops) {
    for (int a = 0; a < AREAS; a++) kernels_give(ops->kernels, ops->memory[a], ops->bytes[a]);
}

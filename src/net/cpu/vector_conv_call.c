/* SPDX-License-Identifier: MIT */
/*
 * The ops of convolutions. A 1x1 one is a product; with strides, one of the input's pixels that it
 * sees, gathered in workspace. The others' loops are over floats: numbers of another kind are
 * widened in workspace, all the micro-batch's, and the result narrowed from there.
 */
#include "net/cpu/rows.h"
#include "net/cpu/vector_conv.h"

typedef int measure_fn(const struct weir__op_shape *shape, size_t *workspace);
typedef int run_fn(const struct weir__op_call *call);

static bool stores_floats(void) {
    return sizeof(number) == sizeof(float);
}

/** Numbers in a micro-batch of the input's images, and of the output's. */
static int64_t count_in(const struct weir__op_shape *shape) {
    return shape->rows * shape->window.in.height * shape->window.in.width * shape->in;
}

static int64_t count_out(const struct weir__op_shape *shape) {
    return shape->rows * shape->window.out.height * shape->window.out.width * shape->out;
}

/* ---- 1x1 with strides ---- */

static bool is_dense(const struct weir__op_shape *shape) {
    return shape->window.stride.height == 1 && shape->window.stride.width == 1;
}

/** Of the pixels that are seen. */
static size_t seen_bytes(const struct weir__op_shape *shape) {
    struct weir__plane out = shape->window.out;
    return (size_t)v_up(shape->rows * out.height * out.width * shape->in, LANES) * sizeof(number);
}

/** All images' pixels on one side, and those that are seen side by side. */
struct seen_pixels {
    const struct weir__op_shape *shape;
    number *image, *seen;
};

/** One row of the output's pixels. */
static void gather_row(void *context, uint32_t part, uint32_t member) {
    const struct seen_pixels *pixels = context;
    const struct weir__window *w = &pixels->shape->window;
    int64_t channels = pixels->shape->in, row = part / w->out.height, y = part % w->out.height;
    int64_t line = row * w->in.height + y * w->stride.height;
    const number *from = pixels->image + line * w->in.width * channels;
    number *to = pixels->seen + (int64_t)part * w->out.width * channels;
    size_t bytes = (size_t)channels * sizeof *to;
    (void)member;
    for (int64_t x = 0; x < w->out.width; x++)
        memcpy(to + x * channels, from + x * w->stride.width * channels, bytes);
}

/** One image, of which the others are zeros. */
static void scatter_image(void *context, uint32_t part, uint32_t member) {
    const struct seen_pixels *pixels = context;
    const struct weir__window *w = &pixels->shape->window;
    int64_t channels = pixels->shape->in, numbers = w->in.height * w->in.width * channels;
    number *to = pixels->image + part * numbers;
    const number *from = pixels->seen + part * w->out.height * w->out.width * channels;
    (void)member;
    memset(to, 0, (size_t)numbers * sizeof *to);
    for (int64_t y = 0; y < w->out.height; y++)
        for (int64_t x = 0; x < w->out.width; x++, from += channels) {
            int64_t pixel = y * w->stride.height * w->in.width + x * w->stride.width;
            memcpy(to + pixel * channels, from, (size_t)channels * sizeof *to);
        }
}

/** `product` over the pixels that are seen, which stand behind its own workspace. */
static int run_strided(const struct weir__op_call *call, const struct weir__op_shape *product) {
    const struct weir__op_shape *shape = call->shape;
    const struct weir__window *w = &shape->window;
    const struct weir__kernel *kernel = &VECTOR(rows)[product->op];
    bool back = shape->op == WEIR__OP_conv2d_grad_input;
    size_t own;
    int status = kernel->measure(product, &own);
    if (status != WEIR_OK) return status;
    number *seen = (number *)(void *)((char *)call->workspace + own);
    struct seen_pixels pixels = {shape, back ? call->out[0] : (number *)call->in[0], seen};
    const void *ins[] = {back ? call->in[0] : seen, call->in[1],
                         shape->op == WEIR__OP_conv2d && shape->has_bias ? call->in[2] : NULL};
    void *outs[] = {back ? seen : call->out[0]};
    struct weir__op_call same = *call;
    same.shape = product;
    same.in = ins;
    same.out = outs;
    same.packed = NULL;
    double work = WEIR__SHARED_NUMBER * (double)(count_in(shape) / (back ? 1 : w->stride.height));
    if (!back) weir__share(call, shape->rows * w->out.height, work, gather_row, &pixels);
    status = kernel->run(&same);
    if (back) weir__share(call, shape->rows, work, scatter_image, &pixels);
    return status;
}

/* ---- all ---- */

static int measure_with(const struct weir__op_shape *shape, measure_fn *measure,
                        size_t *workspace) {
    struct weir__op_shape product;
    if (weir__conv_as_product(shape, &product)) {
        int status = VECTOR(rows)[product.op].measure(&product, workspace);
        if (status != WEIR_OK || is_dense(shape)) return status;
        bool fits = weir__add(*workspace, seen_bytes(shape), workspace);
        return fits ? WEIR_OK : WEIR_ERR_OVERFLOW;
    }
    int status = measure(shape, workspace);
    if (status != WEIR_OK || stores_floats()) return status;
    size_t images = (size_t)(count_in(shape) + count_out(shape)), bytes;
    bool fits =
        weir__multiply(images, sizeof(float), &bytes) && weir__add(*workspace, bytes, workspace);
    return fits ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

/** `run` with floats for the images, which begin `area` bytes into the workspace. */
static int run_widened(const struct weir__op_call *call, run_fn *run, size_t area) {
    const struct weir__op_shape *shape = call->shape;
    bool sums = shape->op == WEIR__OP_conv2d_grad_weight;
    bool back = shape->op == WEIR__OP_conv2d_grad_input;
    int64_t counts[] = {back ? count_out(shape) : count_in(shape),
                        back ? count_in(shape) : count_out(shape)};
    float *first = (float *)(void *)((char *)call->workspace + area), *second = first + counts[0];
    const void *ins[] = {first, sums ? second : call->in[1],
                         shape->has_bias && !sums && !back ? call->in[2] : NULL};
    void *outs[] = {sums ? call->out[0] : second};
    struct weir__op_call same = *call;
    same.in = ins;
    same.out = outs;
    row_widen(first, call->in[0], counts[0]);
    if (sums) row_widen(second, call->in[1], counts[1]);
    int status = run(&same);
    if (!sums) row_narrow(call->out[0], second, counts[1]);
    return status;
}

static int run_with(const struct weir__op_call *call, measure_fn *measure, run_fn *run) {
    struct weir__op_call same = *call;
    struct weir__op_shape product;
    if (weir__conv_as_product(call->shape, &product)) {
        if (!is_dense(call->shape)) return run_strided(call, &product);
        same.shape = &product;
        return VECTOR(rows)[product.op].run(&same);
    }
    if (stores_floats()) return run(call);
    size_t area;
    int status = measure(call->shape, &area);
    return status == WEIR_OK ? run_widened(call, run, area) : status;
}

int VECTOR(measure_conv2d)(const struct weir__op_shape *shape, size_t *workspace) {
    return measure_with(shape, VECTOR_F32(measure_conv_walks), workspace);
}

int VECTOR(conv2d)(const struct weir__op_call *call) {
    return run_with(call, VECTOR_F32(measure_conv_walks), VECTOR_F32(conv_walks));
}

int VECTOR(conv2d_grad_input)(const struct weir__op_call *call) {
    return VECTOR(conv2d)(call);
}

int VECTOR(measure_conv2d_grad_weight)(const struct weir__op_shape *shape, size_t *workspace) {
    return measure_with(shape, VECTOR_F32(measure_conv_weight), workspace);
}

int VECTOR(conv2d_grad_weight)(const struct weir__op_call *call) {
    return run_with(call, VECTOR_F32(measure_conv_weight), VECTOR_F32(conv_weight));
}

int VECTOR(measure_pack_conv2d)(const struct weir__op_shape *shape, size_t *bytes) {
    return VECTOR_F32(measure_pack_walks)(shape, bytes);
}

int VECTOR(pack_conv2d)(const struct weir__op_call *call, void *packed) {
    return VECTOR_F32(pack_walks)(call, !stores_floats(), packed);
}

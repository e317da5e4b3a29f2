/* SPDX-License-Identifier: MIT */
/*
 * The ops of convolutions. A 1x1 one is a product. The others' loops are over floats: numbers of
 * another kind are widened in workspace, all the micro-batch's, and the result narrowed from there.
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

static int measure_with(const struct weir__op_shape *shape, measure_fn *measure,
                        size_t *workspace) {
    struct weir__op_shape product;
    if (weir__conv_as_product(shape, &product))
        return VECTOR(rows)[product.op].measure(&product, workspace);
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

/* SPDX-License-Identifier: MIT */
/*
 * Which of oneDNN's convolutions serves a shape, in which format its weights are, and into which
 * parts a call is cut.
 */
#include "net/cpu/onednn_conv.h"

/* ---- a shape as a convolution ---------------------------------------------------------------- */

const int weir__conv_arguments[][WEIR__ROLE_COUNT] = {
    [WEIR__ONEDNN_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST,
                              DNNL_ARG_SCRATCHPAD},
    [WEIR__ONEDNN_BACKWARD_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS,
                                    DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD},
    [WEIR__ONEDNN_BACKWARD_WEIGHTS] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_BIAS,
                                       DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD},
};

enum weir__onednn_pass weir__conv_pass(const struct weir__op_shape *shape) {
    if (shape->op == WEIR__OP_conv2d) return WEIR__ONEDNN_FORWARD;
    if (shape->op == WEIR__OP_conv2d_grad_input) return WEIR__ONEDNN_BACKWARD_DATA;
    assert(shape->op == WEIR__OP_conv2d_grad_weight);
    return WEIR__ONEDNN_BACKWARD_WEIGHTS;
}

/** From one channel to one column: 3.7 gets some of these wrong. */
static bool is_thin(const struct weir__op_shape *shape) {
    return shape->in == 1 && shape->window.out.width == 1;
}

static int64_t most_rows(const struct weir__op_shape *shape) {
    return shape->rows_max > shape->rows ? shape->rows_max : shape->rows;
}

/** The channels that the innermost loops run over. */
static int64_t lanes(const struct weir__op_shape *shape) {
    return shape->op == WEIR__OP_conv2d_grad_input ? shape->in : shape->out;
}

bool weir__conv_has_bias(const struct weir__op_shape *shape) {
    return shape->op == WEIR__OP_conv2d && shape->has_bias;
}

static bool is_one(struct weir__plane plane) {
    return plane.height == 1 && plane.width == 1;
}

/** The same numbers by another pass, with kernels turned by half: y is the gradient of x in a
 * convolution from out to in channels (but for the bias), and the other way round; the gradient of
 * weights is its own with x and dy exchanged. */
static bool turn(const struct weir__op_shape *shape, struct weir__op_shape *turned) {
    static const enum weir__op_code others[] = {
        [WEIR__ONEDNN_FORWARD] = WEIR__OP_conv2d_grad_input,
        [WEIR__ONEDNN_BACKWARD_DATA] = WEIR__OP_conv2d,
        [WEIR__ONEDNN_BACKWARD_WEIGHTS] = WEIR__OP_conv2d_grad_weight,
    };
    const struct weir__window *window = &shape->window;
    struct weir__plane padding = {window->kernel.height - 1 - window->padding.height,
                                  window->kernel.width - 1 - window->padding.width};
    if (!is_one(window->stride) || window->groups > 1 || padding.height < 0 || padding.width < 0)
        return false;
    *turned = *shape;
    turned->op = others[weir__conv_pass(shape)];
    turned->has_bias = false;
    turned->in = shape->out;
    turned->out = shape->in;
    turned->window.in = window->out;
    turned->window.out = window->in;
    turned->window.padding = padding;
    return true;
}

/* ---- primitive descriptors ------------------------------------------------------------------- */

static dnnl_status_t describe_image(int64_t rows, int64_t channels, struct weir__plane plane,
                                    dnnl_memory_desc_t *to) {
    const dnnl_dims_t sizes = {rows, channels, plane.height, plane.width};
    const dnnl_dims_t strides = {plane.height * plane.width * channels, 1, plane.width * channels,
                                 channels};
    return weir__onednn_describe(to, 4, sizes, strides);
}

dnnl_status_t weir__conv_describe_weight(const struct weir__op_shape *shape, bool any,
                                         dnnl_memory_desc_t *to) {
    struct weir__plane kernel = shape->window.kernel;
    int64_t groups = shape->window.groups, in = shape->in / groups, out = shape->out / groups;
    assert(shape->in % groups == 0 && shape->out % groups == 0);
    int64_t taps = kernel.height * kernel.width;
    const dnnl_dims_t sizes = {groups, out, in, kernel.height, kernel.width};
    const dnnl_dims_t strides = {out * in * taps, in * taps, taps, kernel.width, 1};
    int skipped = groups > 1 ? 0 : 1;
    return weir__onednn_describe(to, 5 - skipped, sizes + skipped, any ? NULL : strides + skipped);
}

/** What is asked of the library. */
struct conv_request {
    const struct weir__op_shape *shape;
    int64_t rows;
    const_dnnl_primitive_desc_t like; /**< whose weights' format is to be taken; NULL: any */
    const char *const *names;         /**< how the implementation's name may begin */
};

static dnnl_status_t describe_operand(const struct conv_request *request, enum weir__role role,
                                      dnnl_memory_desc_t *to) {
    const struct weir__op_shape *shape = request->shape;
    static const dnnl_dims_t dense = {1};
    const dnnl_dims_t bias = {shape->out};
    switch (role) {
    case WEIR__ROLE_A: return describe_image(request->rows, shape->in, shape->window.in, to);
    case WEIR__ROLE_B:
        if (request->like == NULL) return weir__conv_describe_weight(shape, true, to);
        return weir__onednn_describe_argument(to, request->like, DNNL_ARG_WEIGHTS);
    case WEIR__ROLE_BIAS: return weir__onednn_describe(to, 1, bias, dense);
    default: return describe_image(request->rows, shape->out, shape->window.out, to);
    }
}

static dnnl_status_t describe(const struct conv_request *request, dnnl_engine_t engine,
                              dnnl_primitive_desc_t *to) {
    const struct weir__window *window = &request->shape->window;
    struct weir__onednn_convolution convolution = {
        .pass = weir__conv_pass(request->shape),
        .has_bias = weir__conv_has_bias(request->shape),
        .stride = {window->stride.height, window->stride.width},
        .padding = {window->padding.height, window->padding.width}};
    int described = 0;
    dnnl_primitive_attr_t attributes;
    dnnl_status_t status = weir__onednn_attributes(&attributes);
    if (status != dnnl_success) return status;
    for (; described <= WEIR__ROLE_C && status == dnnl_success; described++)
        status = describe_operand(request, (enum weir__role)described, &convolution.of[described]);
    if (status == dnnl_success)
        status =
            weir__onednn_describe_convolution(&convolution, engine, attributes, request->names, to);
    else
        described--;
    while (described > 0) weir__onednn_forget(&convolution.of[--described]);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

/** All that is made for the instruction set and neither allocates nor crawls. But for jit_1x1: in
 * 2.6 its gradient of weights writes past the end of its scratchpad for some strides. */
static const char *const serving[] = {"brg", "brd", "jit:", "jit_dw:", NULL};

/** The library takes the widest vectors first, and leaves half of each unused where there are at
 * most eight channels; narrower ones are never behind then, and up to twice as fast where wide ones
 * take two turns. */
static const char *const *preferred(const struct weir__op_shape *shape) {
    static const char *const forward[] = {"brgconv:avx2", NULL}, *const back[] = {"jit:avx2", NULL};
    if (shape->window.groups > 1 || lanes(shape) > 8) return NULL;
    return shape->op == WEIR__OP_conv2d ? forward : back;
}

/** The best implementation that serves; dnnl_unimplemented where there is none. */
static dnnl_status_t describe_best(struct conv_request request, dnnl_engine_t engine,
                                   dnnl_primitive_desc_t *to) {
    dnnl_status_t status = dnnl_unimplemented;
    request.names = preferred(request.shape);
    if (request.names != NULL) status = describe(&request, engine, to);
    if (status != dnnl_unimplemented) return status;
    request.names = serving;
    return describe(&request, engine, to);
}

/* ---- the plan of a shape --------------------------------------------------------------------- */

/** Below this many multiply-adds the plain loops serve: 5 us at most never make up for the half
 * millisecond that a primitive takes to make. */
#define LIBRARY_FROM 1024.0

enum {
    PARTS_WANTED = 8,
    /* of the gradient of weights: parts, pixels of each, and bytes of all their sums */
    SUMS_MOST = 4,
    SUM_PIXELS_LEAST = 512,
    SUM_BYTES_MOST = 4 << 20
};

void weir__conv_plan_clean_up(struct weir__conv_plan *plan) {
    if (plan->convolution != NULL) dnnl_primitive_desc_destroy(plan->convolution);
    if (plan->chief != NULL) dnnl_primitive_desc_destroy(plan->chief);
    if (plan->engine != NULL) dnnl_engine_destroy(plan->engine);
    *plan = (struct weir__conv_plan){.way = WEIR__CONV_LOOPS};
}

/** What 2.x has no fast kernel for, and for the opposite pass it has: on wide images it is at 75%
 * of the roof back to sixteen channels (turned: 97%), and at 48% forward to eight (turned: 80%).
 * NULL, or how the names of the implementations to turn to begin. */
static const char *const *turn_to(const struct weir__conv_plan *plan) {
    static const char *const forward_to[] = {"jit:avx2", NULL}, *const back_to[] = {"brg", NULL};
    bool forward = plan->shape.op == WEIR__OP_conv2d;
    int64_t channels = lanes(&plan->shape);
    if (channels > 16 || forward != (channels <= 8)) return NULL;
    if (weir__onednn_implemented_by(plan->chief, forward ? "brgconv:avx2" : "brg")) return NULL;
    return forward ? forward_to : back_to;
}

static dnnl_status_t turn_chief(struct weir__conv_plan *plan) {
    struct weir__op_shape turned;
    struct conv_request request = {&turned, most_rows(&plan->shape), NULL, turn_to(plan)};
    dnnl_primitive_desc_t chief;
    if (request.names == NULL || !turn(&plan->shape, &turned)) return dnnl_success;
    dnnl_status_t status = describe(&request, plan->engine, &chief);
    if (status == dnnl_unimplemented) return dnnl_success;
    if (status != dnnl_success) return status;
    dnnl_primitive_desc_destroy(plan->chief);
    plan->chief = chief;
    plan->shape = turned;
    plan->turned = true;
    return dnnl_success;
}

/** Each part for itself, whoever computes it: rows decide how many there are, threads never. As few
 * rows as leave some parts for each of a few threads. */
static int64_t part_rows_of(int64_t rows) {
    int64_t part = rows;
    while (part > 1 && (rows % part != 0 || rows / part < PARTS_WANTED)) part--;
    return part;
}

/** Each part of the gradient of weights has sums of its own, added in order afterwards: few, and
 * only where that is little work beside making them. No fewer for more rows. */
int64_t weir__conv_sums_most(const struct weir__op_shape *shape) {
    const struct weir__window *window = &shape->window;
    int64_t taps = window->kernel.height * window->kernel.width;
    int64_t weights = shape->out * (shape->in / window->groups) * taps, parts = 1;
    int64_t pixels = shape->rows * window->out.height * window->out.width;
    while (parts < SUMS_MOST && parts < shape->rows && pixels / (parts + 1) >= SUM_PIXELS_LEAST &&
           weights * (parts + 1) * (int64_t)sizeof(float) <= SUM_BYTES_MOST)
        parts++;
    return parts;
}

static int64_t sum_rows_of(const struct weir__op_shape *shape) {
    int64_t parts = weir__conv_sums_most(shape);
    while (shape->rows % parts != 0) parts--;
    return shape->rows / parts;
}

static dnnl_status_t plan_packed(struct weir__conv_plan *plan) {
    assert(plan->shape.op != WEIR__OP_conv2d_grad_weight);
    struct conv_request request = {&plan->shape, most_rows(&plan->shape), NULL, NULL};
    dnnl_status_t status = describe_best(request, plan->engine, &plan->chief);
    if (status == dnnl_success) status = turn_chief(plan);
    if (status != dnnl_success) return status;
    request.rows = plan->part_rows = part_rows_of(plan->shape.rows);
    request.like = plan->chief;
    status = describe_best(request, plan->engine, &plan->convolution);
    plan->takes_packed = status == dnnl_success;
    if (status != dnnl_unimplemented) return status;
    request.like = NULL;
    status = describe_best(request, plan->engine, &plan->convolution);
    /* Who packs for all row counts must be able to: there is no way back to the loops. */
    return status == dnnl_unimplemented ? dnnl_runtime_error : status;
}

/** With few output channels many lanes stay empty, unless those are of input channels. */
static dnnl_status_t plan_weight_gradient(struct weir__conv_plan *plan) {
    struct weir__op_shape turned;
    if (plan->shape.out <= 8 && plan->shape.in % 16 == 0 && turn(&plan->shape, &turned)) {
        plan->turned = true;
        plan->shape = turned;
    }
    plan->part_rows = sum_rows_of(&plan->shape);
    struct conv_request request = {&plan->shape, plan->part_rows, NULL, NULL};
    return describe_best(request, plan->engine, &plan->convolution);
}

static dnnl_status_t plan_primitives(struct weir__conv_plan *plan) {
    dnnl_status_t status = dnnl_engine_create(&plan->engine, dnnl_cpu, 0);
    if (status != dnnl_success) return status;
    return plan->shape.op == WEIR__OP_conv2d_grad_weight ? plan_weight_gradient(plan)
                                                         : plan_packed(plan);
}

int weir__conv_plan_init(const struct weir__op_shape *shape, struct weir__conv_plan *plan) {
    *plan = (struct weir__conv_plan){.way = WEIR__CONV_LOOPS};
    if (weir__conv_as_product(shape, &plan->shape)) {
        plan->way = WEIR__CONV_PRODUCT;
        return WEIR_OK;
    }
    if (weir__conv_multiply_adds(shape, most_rows(shape)) < LIBRARY_FROM || is_thin(shape))
        return WEIR_OK;
    plan->shape = *shape;
    /* The library plans for as many threads as the calling one may use at that moment. */
    uint32_t former = weir__kernel_threads(1);
    dnnl_status_t status = plan_primitives(plan);
    if (former != 0) weir__kernel_threads(former);
    if (status == dnnl_success)
        plan->way = WEIR__CONV_LIBRARY;
    else
        weir__conv_plan_clean_up(plan);
    return status == dnnl_unimplemented ? WEIR_OK : weir__onednn_status_of(status);
}

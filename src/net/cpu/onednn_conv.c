/* SPDX-License-Identifier: MIT */
/*
 * Convolutions by oneDNN's direct ones: images with channels last, as everywhere, and weights in
 * the blocked format that the library likes best. On one core of an AVX-512 machine it runs at
 * 90-115% of the roof (padding is not multiplied) where all channel counts are multiples of 16.
 *
 * Weights are packed once per step, in the format for the node's largest row count and one thread,
 * so that one copy serves whatever rows and threads a call has. Where the kernel for a call cannot
 * take it, the call packs for itself, in workspace. The gradient of weights is made in workspace,
 * in the library's format, and delivered from there.
 *
 * A 1x1 convolution without stride and padding is a product of the pixels with the weight, and left
 * to matmul. What the library has only slow kernels for, or such as allocate while they run, is
 * left to the plain loops, and so is what is too small for a library call.
 */
#include "net/cpu/onednn.h"

#include <string.h>

/* ---- a shape as a convolution ---------------------------------------------------------------- */

static const int arguments[][WEIR__ROLE_COUNT] = {
    [WEIR__ONEDNN_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST,
                              DNNL_ARG_SCRATCHPAD},
    [WEIR__ONEDNN_BACKWARD_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS,
                                    DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD},
    [WEIR__ONEDNN_BACKWARD_WEIGHTS] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_BIAS,
                                       DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD},
};

static enum weir__onednn_pass pass_of(const struct weir__op_shape *shape) {
    if (shape->op == WEIR__OP_conv2d) return WEIR__ONEDNN_FORWARD;
    if (shape->op == WEIR__OP_conv2d_grad_input) return WEIR__ONEDNN_BACKWARD_DATA;
    assert(shape->op == WEIR__OP_conv2d_grad_weight);
    return WEIR__ONEDNN_BACKWARD_WEIGHTS;
}

/** From one channel to one column: 3.7 gets some of these wrong. */
static bool is_thin(const struct weir__op_shape *shape) {
    return shape->in == 1 && shape->window.out.width == 1;
}

static double multiply_adds(const struct weir__op_shape *shape, int64_t rows) {
    const struct weir__window *window = &shape->window;
    double pixels = (double)window->out.height * (double)window->out.width;
    double taps = (double)window->kernel.height * (double)window->kernel.width;
    return (double)rows * pixels * taps * (double)shape->out * (double)(shape->in / window->groups);
}

static int64_t most_rows(const struct weir__op_shape *shape) {
    return shape->rows_max > shape->rows ? shape->rows_max : shape->rows;
}

/** The channels that the innermost loops run over. */
static int64_t lanes(const struct weir__op_shape *shape) {
    return shape->op == WEIR__OP_conv2d_grad_input ? shape->in : shape->out;
}

static bool has_bias(const struct weir__op_shape *shape) {
    return shape->op == WEIR__OP_conv2d && shape->has_bias;
}

static bool is_one(struct weir__plane plane) {
    return plane.height == 1 && plane.width == 1;
}

/** A 1x1 convolution as the op on (pixels, channels) that it is. */
static bool as_product(const struct weir__op_shape *shape, struct weir__op_shape *product) {
    const struct weir__window *window = &shape->window;
    bool padded = window->padding.height > 0 || window->padding.width > 0;
    if (!is_one(window->kernel) || !is_one(window->stride) || padded || window->groups > 1)
        return false;
    static const enum weir__op_code ops[] = {
        [WEIR__ONEDNN_FORWARD] = WEIR__OP_linear,
        [WEIR__ONEDNN_BACKWARD_DATA] = WEIR__OP_linear_grad_input,
        [WEIR__ONEDNN_BACKWARD_WEIGHTS] = WEIR__OP_linear_grad_weight,
    };
    *product = (struct weir__op_shape){.op = ops[pass_of(shape)],
                                       .dtype = shape->dtype,
                                       .threads = shape->threads,
                                       .rows = shape->rows,
                                       .rows_max = shape->rows_max,
                                       .tokens = window->out.height * window->out.width,
                                       .in = shape->in,
                                       .out = shape->out,
                                       .has_bias = shape->has_bias};
    return true;
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
    turned->op = others[pass_of(shape)];
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

/** In PyTorch's order, or in any. */
static dnnl_status_t describe_weight(const struct weir__op_shape *shape, bool any,
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
        if (request->like == NULL) return describe_weight(shape, true, to);
        return weir__onednn_describe_argument(to, request->like, DNNL_ARG_WEIGHTS);
    case WEIR__ROLE_BIAS: return weir__onednn_describe(to, 1, bias, dense);
    default: return describe_image(request->rows, shape->out, shape->window.out, to);
    }
}

static dnnl_status_t describe(const struct conv_request *request, dnnl_engine_t engine,
                              dnnl_primitive_desc_t *to) {
    const struct weir__window *window = &request->shape->window;
    struct weir__onednn_convolution convolution = {
        .pass = pass_of(request->shape),
        .has_bias = has_bias(request->shape),
        .stride = {window->stride.height, window->stride.width},
        .padding = {window->padding.height, window->padding.width}};
    int described = 0;
    dnnl_primitive_attr_t attributes;
    dnnl_status_t status = weir__onednn_attributes(false, &attributes);
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

enum conv_way { WAY_LOOPS, WAY_PRODUCT, WAY_LIBRARY };

/** How a shape is computed. Made alike by whoever needs to know. */
struct conv_plan {
    enum conv_way way;
    struct weir__op_shape shape; /**< of the product, or of what the library convolves */
    bool turned;                 /**< the latter is not the op, but see `turn` */
    bool takes_packed;
    dnnl_engine_t engine;
    /** For the most rows and one thread: its weights' format is that of packed ones. NULL for the
     * gradient of weights. */
    dnnl_primitive_desc_t chief;
    dnnl_primitive_desc_t convolution;
};

static void plan_clean_up(struct conv_plan *plan) {
    if (plan->convolution != NULL) dnnl_primitive_desc_destroy(plan->convolution);
    if (plan->chief != NULL) dnnl_primitive_desc_destroy(plan->chief);
    if (plan->engine != NULL) dnnl_engine_destroy(plan->engine);
    *plan = (struct conv_plan){.way = WAY_LOOPS};
}

/** What 2.x has no fast kernel for, and for the opposite pass it has: on wide images it is at 75%
 * of the roof back to sixteen channels (turned: 97%), and at 48% forward to eight (turned: 80%).
 * NULL, or how the names of the implementations to turn to begin. */
static const char *const *turn_to(const struct conv_plan *plan) {
    static const char *const forward_to[] = {"jit:avx2", NULL}, *const back_to[] = {"brg", NULL};
    bool forward = plan->shape.op == WEIR__OP_conv2d;
    int64_t channels = lanes(&plan->shape);
    if (channels > 16 || forward != (channels <= 8)) return NULL;
    if (weir__onednn_implemented_by(plan->chief, forward ? "brgconv:avx2" : "brg")) return NULL;
    return forward ? forward_to : back_to;
}

static dnnl_status_t turn_chief(struct conv_plan *plan) {
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

static dnnl_status_t plan_packed(struct conv_plan *plan) {
    assert(plan->shape.op != WEIR__OP_conv2d_grad_weight);
    struct conv_request request = {&plan->shape, most_rows(&plan->shape), NULL, NULL};
    weir__kernel_threads(1);
    dnnl_status_t status = describe_best(request, plan->engine, &plan->chief);
    if (status == dnnl_success) status = turn_chief(plan);
    if (status != dnnl_success) return status;
    weir__kernel_threads(plan->shape.threads);
    request.rows = plan->shape.rows;
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
static dnnl_status_t plan_weight_gradient(struct conv_plan *plan) {
    struct weir__op_shape turned;
    if (plan->shape.out <= 8 && plan->shape.in % 16 == 0 && turn(&plan->shape, &turned)) {
        plan->turned = true;
        plan->shape = turned;
    }
    struct conv_request request = {&plan->shape, plan->shape.rows, NULL, NULL};
    weir__kernel_threads(plan->shape.threads);
    return describe_best(request, plan->engine, &plan->convolution);
}

static dnnl_status_t plan_primitives(struct conv_plan *plan) {
    dnnl_status_t status = dnnl_engine_create(&plan->engine, dnnl_cpu, 0);
    if (status != dnnl_success) return status;
    return plan->shape.op == WEIR__OP_conv2d_grad_weight ? plan_weight_gradient(plan)
                                                         : plan_packed(plan);
}

static int plan_init(const struct weir__op_shape *shape, struct conv_plan *plan) {
    *plan = (struct conv_plan){.way = WAY_LOOPS};
    if (as_product(shape, &plan->shape)) {
        plan->way = WAY_PRODUCT;
        return WEIR_OK;
    }
    if (multiply_adds(shape, most_rows(shape)) < LIBRARY_FROM || is_thin(shape)) return WEIR_OK;
    plan->shape = *shape;
    /* The library plans for as many threads as the calling one may use at that moment. */
    uint32_t former = weir__kernel_threads(0);
    dnnl_status_t status = plan_primitives(plan);
    if (former != 0) weir__kernel_threads(former);
    if (status == dnnl_success)
        plan->way = WAY_LIBRARY;
    else
        plan_clean_up(plan);
    return status == dnnl_unimplemented ? WEIR_OK : weir__onednn_status_of(status);
}

/** What a primitive takes or makes as weights. */
static weir__onednn_view weights_of(const_dnnl_primitive_desc_t primitive) {
    weir__onednn_view weights =
        dnnl_primitive_desc_query_md(primitive, dnnl_query_exec_arg_md, DNNL_ARG_WEIGHTS);
    if (dnnl_memory_desc_get_size(weights) > 0) return weights;
    return dnnl_primitive_desc_query_md(primitive, dnnl_query_exec_arg_md, DNNL_ARG_DIFF_WEIGHTS);
}

static size_t weight_bytes(const_dnnl_primitive_desc_t primitive) {
    return (dnnl_memory_desc_get_size(weights_of(primitive)) + 63) / 64 * 64;
}

int weir__onednn_conv_measure(const struct weir__op_shape *shape, size_t *workspace) {
    struct conv_plan plan;
    int status = plan_init(shape, &plan);
    if (status != WEIR_OK) return status;
    if (plan.way == WAY_LOOPS) {
        status = weir__reference_f32[shape->op].measure(shape, workspace);
    } else if (plan.way == WAY_PRODUCT) {
        status = weir__onednn_matmul_measure(&plan.shape, workspace);
    } else {
        *workspace = weir__onednn_scratchpad_bytes(plan.convolution);
        if (!plan.takes_packed) *workspace += weight_bytes(plan.convolution);
    }
    plan_clean_up(&plan);
    return status;
}

int weir__onednn_conv_measure_pack(const struct weir__op_shape *shape, size_t *bytes) {
    struct conv_plan plan;
    *bytes = 0;
    int status = plan_init(shape, &plan);
    if (status != WEIR_OK) return status;
    if (plan.chief != NULL) *bytes = weight_bytes(plan.chief);
    plan_clean_up(&plan);
    return WEIR_OK;
}

/* ---- packing --------------------------------------------------------------------------------- */

/** From PyTorch's order to a primitive's. */
struct packer {
    bool turned;
    struct weir__onednn_weights weights;
    size_t bytes;
    dnnl_primitive_t reorder; /**< not where turned */
    dnnl_memory_t from, to;
};

static struct weir__onednn_weights weights_as(const struct conv_plan *plan,
                                              const_dnnl_primitive_desc_t primitive) {
    const struct weir__op_shape *shape = &plan->shape;
    struct weir__onednn_weights weights = {
        .groups = shape->window.groups, .kernel = shape->window.kernel, .turned = plan->turned};
    int64_t in = shape->in / weights.groups, out = shape->out / weights.groups;
    weights.in = plan->turned ? out : in;
    weights.out = plan->turned ? in : out;
    weir__onednn_layout_of(weights_of(primitive), &weights.layout);
    return weights;
}

static void packer_clean_up(struct packer *packer) {
    if (packer->to != NULL) dnnl_memory_destroy(packer->to);
    if (packer->from != NULL) dnnl_memory_destroy(packer->from);
    if (packer->reorder != NULL) dnnl_primitive_destroy(packer->reorder);
}

/** Leaves a failure's remains to packer_clean_up. */
static dnnl_status_t packer_init(const struct conv_plan *plan,
                                 const_dnnl_primitive_desc_t primitive, struct packer *packer) {
    dnnl_memory_desc_t plain;
    dnnl_primitive_desc_t reorder = NULL;
    weir__onednn_view to = weights_of(primitive);
    *packer = (struct packer){.turned = plan->turned,
                              .weights = weights_as(plan, primitive),
                              .bytes = dnnl_memory_desc_get_size(to)};
    if (packer->turned) return dnnl_success;
    dnnl_status_t status = describe_weight(&plan->shape, false, &plain);
    if (status != dnnl_success) return status;
    weir__onednn_view from = weir__onednn_view_of(&plain);
    status =
        dnnl_reorder_primitive_desc_create(&reorder, from, plan->engine, to, plan->engine, NULL);
    if (status != dnnl_success) goto out;
    if ((status = dnnl_primitive_create(&packer->reorder, reorder)) != dnnl_success) goto out;
    status = dnnl_memory_create(&packer->from, from, plan->engine, DNNL_MEMORY_NONE);
    if (status != dnnl_success) goto out;
    status = dnnl_memory_create(&packer->to, to, plan->engine, DNNL_MEMORY_NONE);
out:
    if (reorder != NULL) dnnl_primitive_desc_destroy(reorder);
    weir__onednn_forget(&plain);
    return status;
}

/** Setting a handle fills what pads its blocks with zeros: only where it is another one. */
static dnnl_status_t point(dnnl_memory_t memory, const void *data) {
    void *former = NULL;
    dnnl_status_t status = dnnl_memory_get_data_handle(memory, &former);
    if (status != dnnl_success || former == data) return status;
    /* Inputs are only read; the library's interface has no const. */
    return dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)data);
}

static dnnl_status_t packer_run(const struct packer *packer, dnnl_stream_t stream,
                                const float *plain, float *blocked) {
    assert(packer->turned || packer->reorder != NULL);
    if (packer->turned) {
        memset(blocked, 0, packer->bytes);
        weir__onednn_turn(&packer->weights, plain, blocked);
        return dnnl_success;
    }
    const dnnl_exec_arg_t list[] = {{DNNL_ARG_FROM, packer->from}, {DNNL_ARG_TO, packer->to}};
    dnnl_status_t status = point(packer->from, plain);
    if (status != dnnl_success) return status;
    if ((status = point(packer->to, blocked)) != dnnl_success) return status;
    status = dnnl_primitive_execute(packer->reorder, stream, 2, list);
    return status != dnnl_success ? status : dnnl_stream_wait(stream);
}

/* ---- state ----------------------------------------------------------------------------------- */

/** What a shape needs to run, made once; used by one thread at a time. */
struct onednn_convolution {
    struct conv_plan plan;
    void *product; /**< matmul's state */
    size_t scratchpad;
    bool has_bias;
    struct weir__onednn_weights weights; /**< of the gradient of weights */
    struct packer pack, repack;          /**< for the chief, and for the call's own format */
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[WEIR__ROLE_COUNT];
};

void weir__onednn_conv_release(void *state) {
    struct onednn_convolution *convolution = state;
    if (convolution == NULL) return;
    for (int role = 0; role < WEIR__ROLE_COUNT; role++)
        if (convolution->memory[role] != NULL) dnnl_memory_destroy(convolution->memory[role]);
    if (convolution->primitive != NULL) dnnl_primitive_destroy(convolution->primitive);
    packer_clean_up(&convolution->repack);
    packer_clean_up(&convolution->pack);
    if (convolution->stream != NULL) dnnl_stream_destroy(convolution->stream);
    weir__onednn_matmul_release(convolution->product);
    plan_clean_up(&convolution->plan);
    weir__release(NULL, convolution, 1, sizeof *convolution);
}

static dnnl_status_t make_memory(struct onednn_convolution *convolution) {
    const struct conv_plan *plan = &convolution->plan;
    const int *of = arguments[pass_of(&plan->shape)];
    for (int role = 0; role < WEIR__ROLE_COUNT; role++) {
        if (role == WEIR__ROLE_BIAS && !convolution->has_bias) continue;
        weir__onednn_view view =
            dnnl_primitive_desc_query_md(plan->convolution, dnnl_query_exec_arg_md, of[role]);
        dnnl_status_t status =
            dnnl_memory_create(&convolution->memory[role], view, plan->engine, DNNL_MEMORY_NONE);
        if (status != dnnl_success) return status;
    }
    return dnnl_success;
}

static dnnl_status_t make_primitives(struct onednn_convolution *convolution) {
    const struct conv_plan *plan = &convolution->plan;
    dnnl_status_t status =
        dnnl_stream_create(&convolution->stream, plan->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) return status;
    status = dnnl_primitive_create(&convolution->primitive, plan->convolution);
    if (status != dnnl_success) return status;
    if ((status = make_memory(convolution)) != dnnl_success) return status;
    if (plan->chief == NULL) {
        convolution->weights = weights_as(plan, plan->convolution);
        return dnnl_success;
    }
    status = packer_init(plan, plan->chief, &convolution->pack);
    if (status != dnnl_success || plan->takes_packed) return status;
    return packer_init(plan, plan->convolution, &convolution->repack);
}

int weir__onednn_conv_prepare(const struct weir__op_shape *shape, struct weir_stream *stream,
                              void **state) {
    struct conv_plan plan;
    *state = NULL;
    int status = plan_init(shape, &plan);
    if (status != WEIR_OK || plan.way == WAY_LOOPS) return status;
    struct onednn_convolution *convolution = weir__acquire(NULL, 1, sizeof *convolution);
    if (convolution == NULL) {
        plan_clean_up(&plan);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    convolution->plan = plan;
    if (plan.way == WAY_PRODUCT) {
        status = weir__onednn_matmul_prepare(&plan.shape, stream, &convolution->product);
    } else {
        convolution->scratchpad = weir__onednn_scratchpad_bytes(plan.convolution);
        convolution->has_bias = has_bias(&plan.shape);
        status = weir__onednn_status_of(make_primitives(convolution));
    }
    if (status != WEIR_OK)
        weir__onednn_conv_release(convolution);
    else
        *state = convolution;
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static int failed(const struct weir__op_call *call, dnnl_status_t status, const char *what) {
    return weir__fail(call->error, weir__onednn_status_of(status),
                      "oneDNN's %s failed with status %d", what, (int)status);
}

int weir__onednn_conv_pack(const struct weir__op_call *call, void *packed) {
    const struct onednn_convolution *convolution = call->state;
    if (convolution == NULL || convolution->plan.chief == NULL) return WEIR_OK;
    dnnl_status_t status = packer_run(&convolution->pack, convolution->stream, call->in[1], packed);
    return status == dnnl_success ? WEIR_OK : failed(call, status, "reorder of weights");
}

static int run_product(const struct weir__op_call *call,
                       const struct onednn_convolution *convolution) {
    struct weir__op_call product = *call;
    product.shape = &convolution->plan.shape;
    product.state = convolution->product;
    return weir__onednn_matmul_run(&product);
}

static int execute(const struct weir__op_call *call, const struct onednn_convolution *convolution,
                   const void *const data[WEIR__ROLE_COUNT]) {
    const int *of = arguments[pass_of(&convolution->plan.shape)];
    dnnl_exec_arg_t list[WEIR__ROLE_COUNT];
    int count = 0;
    dnnl_status_t status = dnnl_success;
    for (int role = 0; role < WEIR__ROLE_COUNT && status == dnnl_success; role++) {
        if (convolution->memory[role] == NULL) continue;
        status = point(convolution->memory[role], data[role]);
        list[count++] = (dnnl_exec_arg_t){of[role], convolution->memory[role]};
    }
    if (status == dnnl_success)
        status = dnnl_primitive_execute(convolution->primitive, convolution->stream, count, list);
    if (status == dnnl_success) status = dnnl_stream_wait(convolution->stream);
    return status == dnnl_success ? WEIR_OK : failed(call, status, "convolution");
}

static int run_weight_gradient(const struct weir__op_call *call,
                               const struct onednn_convolution *convolution, float *blocked) {
    assert(convolution->plan.shape.op == WEIR__OP_conv2d_grad_weight);
    bool turned = convolution->plan.turned;
    const void *const data[WEIR__ROLE_COUNT] = {[WEIR__ROLE_A] = call->in[turned ? 1 : 0],
                                                [WEIR__ROLE_B] = blocked,
                                                [WEIR__ROLE_C] = call->in[turned ? 0 : 1],
                                                [WEIR__ROLE_SCRATCHPAD] = call->workspace};
    int status = execute(call, convolution, data);
    if (status == WEIR_OK)
        weir__onednn_deliver(&convolution->weights, blocked, call->out[0], call->overwrite);
    return status;
}

/** Where the library's pass has none. */
static void add_bias(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const float *bias = call->in[2];
    float *y = call->out[0];
    int64_t pixels = shape->rows * shape->window.out.height * shape->window.out.width;
    for (int64_t pixel = 0; pixel < pixels; pixel++)
        for (int64_t o = 0; o < shape->out; o++) y[pixel * shape->out + o] += bias[o];
}

int weir__onednn_conv_run(const struct weir__op_call *call) {
    const struct onednn_convolution *convolution = call->state;
    if (convolution == NULL) return weir__reference_f32[call->shape->op].run(call);
    const struct conv_plan *plan = &convolution->plan;
    if (plan->way == WAY_PRODUCT) return run_product(call, convolution);
    float *own = (float *)((char *)call->workspace + convolution->scratchpad);
    if (plan->chief == NULL) return run_weight_gradient(call, convolution, own);
    if (!plan->takes_packed) {
        dnnl_status_t packed =
            packer_run(&convolution->repack, convolution->stream, call->in[1], own);
        if (packed != dnnl_success) return failed(call, packed, "reorder of weights");
    }
    assert(!plan->takes_packed || call->packed != NULL);
    bool back = plan->shape.op == WEIR__OP_conv2d_grad_input;
    const void *const data[WEIR__ROLE_COUNT] = {
        [WEIR__ROLE_A] = back ? call->out[0] : call->in[0],
        [WEIR__ROLE_B] = plan->takes_packed ? call->packed : own,
        [WEIR__ROLE_BIAS] = convolution->has_bias ? call->in[2] : NULL,
        [WEIR__ROLE_C] = back ? call->in[0] : call->out[0],
        [WEIR__ROLE_SCRATCHPAD] = call->workspace};
    int status = execute(call, convolution, data);
    if (status == WEIR_OK && plan->turned && has_bias(call->shape)) add_bias(call);
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * Convolutions by oneDNN's direct ones: images with channels last, as everywhere, and weights in
 * the blocked format that the library likes best. On one core of an AVX-512 machine it runs at
 * 90-115% of the roof (padding is not multiplied) where all channel counts are multiples of 16.
 *
 * The library always plans for one thread: for several it splits sums by their number. A call is
 * cut into parts of whole rows instead, as many as its rows say, and a team shares these. Each part
 * of the gradient of weights has sums of its own, which are added in order. On one thread that
 * costs 1% of a U-Net's step at most.
 *
 * Weights are packed once per step, in the format for the node's largest row count, so that one
 * copy serves whatever rows a call has. Where the kernel for a call cannot take it, the call packs
 * for itself, in workspace. The gradient of weights is made in workspace, in the library's format,
 * and delivered from there.
 *
 * dnnl_primitive_execute takes some blocks of at most 160 bytes from malloc for a table of its
 * arguments, and gives them back; the library has no other way to run.
 *
 * A 1x1 convolution without stride and padding is a product of the pixels with the weight, and left
 * to our own. What the library has only slow kernels for, or such as allocate while they run, is
 * left to the plain loops, and so is what is too small for a library call.
 */
#include "net/cpu/onednn_conv.h"

#include <string.h>

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

int VECTOR(onednn_measure)(const struct weir__op_shape *shape, size_t *workspace) {
    struct weir__conv_plan plan;
    int status = weir__conv_plan_init(shape, &plan);
    if (status != WEIR_OK) return status;
    if (plan.way == WEIR__CONV_LOOPS) {
        status = weir__reference_f32[shape->op].measure(shape, workspace);
    } else if (plan.way == WEIR__CONV_PRODUCT) {
        status = VECTOR(f32)[plan.shape.op].measure(&plan.shape, workspace);
    } else {
        size_t weights = plan.takes_packed ? 0 : weight_bytes(plan.convolution);
        if (plan.chief == NULL) weights *= (size_t)weir__conv_sums_most(&plan.shape);
        *workspace = shape->threads * weir__onednn_scratchpad_bytes(plan.convolution) + weights;
    }
    weir__conv_plan_clean_up(&plan);
    return status;
}

int VECTOR(onednn_measure_pack)(const struct weir__op_shape *shape, size_t *bytes) {
    struct weir__conv_plan plan;
    *bytes = 0;
    int status = weir__conv_plan_init(shape, &plan);
    if (status != WEIR_OK) return status;
    if (plan.chief != NULL) *bytes = weight_bytes(plan.chief);
    weir__conv_plan_clean_up(&plan);
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

static struct weir__onednn_weights weights_as(const struct weir__conv_plan *plan,
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
static dnnl_status_t packer_init(const struct weir__conv_plan *plan,
                                 const_dnnl_primitive_desc_t primitive, struct packer *packer) {
    dnnl_memory_desc_t plain;
    dnnl_primitive_desc_t reorder = NULL;
    weir__onednn_view to = weights_of(primitive);
    *packer = (struct packer){.turned = plan->turned,
                              .weights = weights_as(plan, primitive),
                              .bytes = dnnl_memory_desc_get_size(to)};
    if (packer->turned) return dnnl_success;
    dnnl_status_t status = weir__conv_describe_weight(&plan->shape, false, &plain);
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
        VECTOR(onednn_turn)(&packer->weights, plain, blocked);
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

/** A thread's own, for the parts that it computes. */
struct conv_lane {
    dnnl_stream_t stream;
    dnnl_memory_t memory[WEIR__ROLE_COUNT];
};

/** What a shape needs to run, made once; used by one team at a time. */
struct onednn_convolution {
    struct weir__conv_plan plan;
    size_t scratchpad;
    bool has_bias;
    struct weir__onednn_weights weights; /**< of the gradient of weights */
    struct packer pack, repack;          /**< for the chief, and for the call's own format */
    dnnl_primitive_t primitive;
    uint32_t lane_count;
    struct conv_lane lanes[];
};

static size_t convolution_bytes(uint32_t lanes) {
    return sizeof(struct onednn_convolution) + lanes * sizeof(struct conv_lane);
}

void VECTOR(onednn_release)(void *state) {
    struct onednn_convolution *convolution = state;
    if (convolution == NULL) return;
    for (uint32_t i = 0; i < convolution->lane_count; i++) {
        struct conv_lane *lane = &convolution->lanes[i];
        for (int role = 0; role < WEIR__ROLE_COUNT; role++)
            if (lane->memory[role] != NULL) dnnl_memory_destroy(lane->memory[role]);
        if (lane->stream != NULL) dnnl_stream_destroy(lane->stream);
    }
    if (convolution->primitive != NULL) dnnl_primitive_destroy(convolution->primitive);
    packer_clean_up(&convolution->repack);
    packer_clean_up(&convolution->pack);
    weir__conv_plan_clean_up(&convolution->plan);
    weir__release(NULL, convolution, 1, convolution_bytes(convolution->lane_count));
}

static dnnl_status_t lane_init(const struct onednn_convolution *convolution,
                               struct conv_lane *lane) {
    const struct weir__conv_plan *plan = &convolution->plan;
    const int *of = weir__conv_arguments[weir__conv_pass(&plan->shape)];
    dnnl_status_t status =
        dnnl_stream_create(&lane->stream, plan->engine, dnnl_stream_default_flags);
    for (int role = 0; role < WEIR__ROLE_COUNT && status == dnnl_success; role++) {
        if (role == WEIR__ROLE_BIAS && !convolution->has_bias) continue;
        weir__onednn_view view =
            dnnl_primitive_desc_query_md(plan->convolution, dnnl_query_exec_arg_md, of[role]);
        status = dnnl_memory_create(&lane->memory[role], view, plan->engine, DNNL_MEMORY_NONE);
    }
    return status;
}

static dnnl_status_t make_primitives(struct onednn_convolution *convolution) {
    const struct weir__conv_plan *plan = &convolution->plan;
    dnnl_status_t status = dnnl_primitive_create(&convolution->primitive, plan->convolution);
    for (uint32_t i = 0; i < convolution->lane_count && status == dnnl_success; i++)
        status = lane_init(convolution, &convolution->lanes[i]);
    if (status != dnnl_success) return status;
    if (plan->chief == NULL) {
        convolution->weights = weights_as(plan, plan->convolution);
        return dnnl_success;
    }
    status = packer_init(plan, plan->chief, &convolution->pack);
    if (status != dnnl_success || plan->takes_packed) return status;
    return packer_init(plan, plan->convolution, &convolution->repack);
}

int VECTOR(onednn_prepare)(const struct weir__op_shape *shape, struct weir_stream *stream,
                              void **state) {
    struct weir__conv_plan plan;
    (void)stream;
    *state = NULL;
    int status = weir__conv_plan_init(shape, &plan);
    if (status != WEIR_OK || plan.way != WEIR__CONV_LIBRARY) return status;
    struct onednn_convolution *convolution =
        weir__acquire(NULL, 1, convolution_bytes(shape->threads));
    if (convolution == NULL) {
        weir__conv_plan_clean_up(&plan);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    convolution->plan = plan;
    convolution->scratchpad = weir__onednn_scratchpad_bytes(plan.convolution);
    convolution->has_bias = weir__conv_has_bias(&plan.shape);
    convolution->lane_count = shape->threads;
    status = weir__onednn_status_of(make_primitives(convolution));
    if (status != WEIR_OK)
        VECTOR(onednn_release)(convolution);
    else
        *state = convolution;
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static int failed(const struct weir__op_call *call, dnnl_status_t status, const char *what) {
    return weir__fail(call->error, weir__onednn_status_of(status),
                      "oneDNN's %s failed with status %d", what, (int)status);
}

int VECTOR(onednn_pack)(const struct weir__op_call *call, void *packed) {
    const struct onednn_convolution *convolution = call->state;
    if (convolution == NULL || convolution->plan.chief == NULL) return WEIR_OK;
    dnnl_status_t status =
        packer_run(&convolution->pack, convolution->lanes[0].stream, call->in[1], packed);
    return status == dnnl_success ? WEIR_OK : failed(call, status, "reorder of weights");
}

/** One call's parts. */
struct conv_parts {
    const struct onednn_convolution *convolution;
    const char *data[WEIR__ROLE_COUNT]; /**< of the first part */
    size_t distances[WEIR__ROLE_COUNT]; /**< bytes from a part's to the next one's */
    _Atomic dnnl_status_t status;       /**< of a part that failed */
};

/** The first failure stays. */
static void note(struct conv_parts *parts, dnnl_status_t status) {
    dnnl_status_t none = dnnl_success;
    if (status != dnnl_success) atomic_compare_exchange_strong(&parts->status, &none, status);
}

static void run_part(void *context, uint32_t part, uint32_t member) {
    struct conv_parts *parts = context;
    const struct onednn_convolution *convolution = parts->convolution;
    const struct conv_lane *lane = &convolution->lanes[member];
    const int *of = weir__conv_arguments[weir__conv_pass(&convolution->plan.shape)];
    dnnl_exec_arg_t list[WEIR__ROLE_COUNT];
    int count = 0;
    dnnl_status_t status = dnnl_success;
    for (int role = 0; role < WEIR__ROLE_COUNT && status == dnnl_success; role++) {
        if (lane->memory[role] == NULL) continue;
        uint32_t place = role == WEIR__ROLE_SCRATCHPAD ? member : part;
        status = point(lane->memory[role], parts->data[role] + place * parts->distances[role]);
        list[count++] = (dnnl_exec_arg_t){of[role], lane->memory[role]};
    }
    if (status == dnnl_success)
        status = dnnl_primitive_execute(convolution->primitive, lane->stream, count, list);
    if (status == dnnl_success) status = dnnl_stream_wait(lane->stream);
    note(parts, status);
}

static size_t image_bytes(int64_t channels, struct weir__plane plane) {
    return (size_t)(channels * plane.height * plane.width) * sizeof(float);
}

/** All parts; the weights that each makes lie one behind the other. */
static int execute(const struct weir__op_call *call, const struct onednn_convolution *convolution,
                   const void *const data[WEIR__ROLE_COUNT]) {
    const struct weir__conv_plan *plan = &convolution->plan;
    const struct weir__op_shape *shape = &plan->shape;
    size_t rows = (size_t)plan->part_rows;
    struct conv_parts parts = {
        .convolution = convolution,
        .distances = {[WEIR__ROLE_A] = rows * image_bytes(shape->in, shape->window.in),
                      [WEIR__ROLE_C] = rows * image_bytes(shape->out, shape->window.out),
                      [WEIR__ROLE_B] = plan->chief == NULL ? weight_bytes(plan->convolution) : 0,
                      [WEIR__ROLE_SCRATCHPAD] = convolution->scratchpad}};
    for (int role = 0; role < WEIR__ROLE_COUNT; role++) parts.data[role] = data[role];
    /* What all parts read: pointing to it may write zeros to what pads it. */
    for (uint32_t i = 0; i < convolution->lane_count && plan->chief != NULL; i++)
        note(&parts, point(convolution->lanes[i].memory[WEIR__ROLE_B], data[WEIR__ROLE_B]));
    weir__share(call, shape->rows / plan->part_rows, weir__conv_multiply_adds(shape, shape->rows),
                run_part, &parts);
    dnnl_status_t status = atomic_load(&parts.status);
    return status == dnnl_success ? WEIR_OK : failed(call, status, "convolution");
}

/** Numbers that a thread adds up at a time. */
enum { ADDED_TOGETHER = 8192 };

/** The sums of all parts, on their way to the gradient. */
struct delivery {
    const struct onednn_convolution *convolution;
    float *blocked; /* the parts' sums, one behind the other */
    size_t numbers; /* of one part's */
    float *plain;
    bool overwrite;
};

/** Into the first part's, in order. */
static void add_sums(void *context, uint32_t part, uint32_t member) {
    const struct delivery *delivery = context;
    const struct weir__conv_plan *plan = &delivery->convolution->plan;
    size_t first = part * ADDED_TOGETHER, left = delivery->numbers - first;
    float *to = delivery->blocked + first;
    (void)member;
    for (int64_t i = 1; i < plan->shape.rows / plan->part_rows; i++)
        VECTOR(flat_f32).accumulate(NULL, to, to + (size_t)i * delivery->numbers,
                                         left < ADDED_TOGETHER ? left : ADDED_TOGETHER);
}

static void deliver_part(void *context, uint32_t part, uint32_t member) {
    const struct delivery *delivery = context;
    (void)member;
    VECTOR(onednn_deliver)(&delivery->convolution->weights, delivery->blocked, delivery->plain,
                         delivery->overwrite, part);
}

static int run_weight_gradient(const struct weir__op_call *call,
                               const struct onednn_convolution *convolution, float *blocked) {
    const struct weir__conv_plan *plan = &convolution->plan;
    assert(plan->shape.op == WEIR__OP_conv2d_grad_weight);
    size_t numbers = weight_bytes(plan->convolution) / sizeof(float);
    const void *const data[WEIR__ROLE_COUNT] = {[WEIR__ROLE_A] = call->in[plan->turned ? 1 : 0],
                                                [WEIR__ROLE_B] = blocked,
                                                [WEIR__ROLE_C] = call->in[plan->turned ? 0 : 1],
                                                [WEIR__ROLE_SCRATCHPAD] = call->workspace};
    int status = execute(call, convolution, data);
    if (status != WEIR_OK) return status;
    struct delivery delivery = {.convolution = convolution,
                                .blocked = blocked,
                                .numbers = numbers,
                                .plain = call->out[0],
                                .overwrite = call->overwrite};
    double work = 8.0 * (double)numbers; /* as long as memory takes */
    if (plan->shape.rows > plan->part_rows)
        weir__share(call, (int64_t)((numbers + ADDED_TOGETHER - 1) / ADDED_TOGETHER), work,
                    add_sums, &delivery);
    weir__share(call, VECTOR(onednn_deliveries)(&convolution->weights), work, deliver_part,
                &delivery);
    return WEIR_OK;
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

int VECTOR(onednn_run)(const struct weir__op_call *call) {
    const struct onednn_convolution *convolution = call->state;
    struct weir__op_shape product;
    if (weir__conv_as_product(call->shape, &product)) {
        struct weir__op_call same = *call;
        same.shape = &product;
        return VECTOR(f32)[product.op].run(&same);
    }
    if (convolution == NULL) return weir__reference_f32[call->shape->op].run(call);
    const struct weir__conv_plan *plan = &convolution->plan;
    float *own =
        (float *)((char *)call->workspace + convolution->lane_count * convolution->scratchpad);
    if (plan->chief == NULL) return run_weight_gradient(call, convolution, own);
    if (!plan->takes_packed) {
        dnnl_status_t packed =
            packer_run(&convolution->repack, convolution->lanes[0].stream, call->in[1], own);
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
    if (status == WEIR_OK && plan->turned && weir__conv_has_bias(call->shape)) add_bias(call);
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * Products by oneDNN's matmul primitive: at 94-100% of the roof for every shape of a GPT with plain
 * layouts of weights, both [out, in] and [in, out], which leaves nothing to gain from packed
 * weights, and ahead of its inner product (up to 20% in the gradients).
 *
 * A shape goes to our own products instead where it is too small for a library call, and where
 * oneDNN has no such kernel for the machine: without AVX-512, 2.x falls back to its gemm, which
 * allocates while it runs and computes a row differently at an edge. That one is 7% ahead of ours
 * and used for several threads only. The choice depends on the shape and the machine; `measure` and
 * `prepare` make it alike.
 */
#include "net/cpu/onednn.h"
#include "net/cpu/vector_calls.h"

/* ---- a shape as a product -------------------------------------------------------------------- */

static const int arguments[WEIR__ROLE_COUNT] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS,
                                                DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};

struct matrix {
    dnnl_dims_t sizes, strides;
};

static struct matrix matrix_of(int64_t rows, int64_t columns, int64_t row_stride,
                               int64_t column_stride) {
    return (struct matrix){{rows, columns}, {row_stride, column_stride}};
}

static void matrices_of(const struct weir__op_shape *shape, struct matrix of[WEIR__ROLE_COUNT]) {
    int64_t m = shape->rows * shape->tokens, in = shape->in, out = shape->out;
    bool flip = shape->weight_in_out;
    struct matrix x = matrix_of(m, in, in, 1), y = matrix_of(m, out, out, 1);
    of[WEIR__ROLE_BIAS] = matrix_of(1, out, out, 1);
    switch (shape->op) {
    case WEIR__OP_linear:
        of[WEIR__ROLE_A] = x;
        of[WEIR__ROLE_B] = flip ? matrix_of(in, out, out, 1) : matrix_of(in, out, 1, in);
        of[WEIR__ROLE_C] = y;
        return;
    case WEIR__OP_linear_grad_input:
        of[WEIR__ROLE_A] = y;
        of[WEIR__ROLE_B] = flip ? matrix_of(out, in, 1, out) : matrix_of(out, in, in, 1);
        of[WEIR__ROLE_C] = x;
        return;
    default:
        assert(shape->op == WEIR__OP_linear_grad_weight);
        of[WEIR__ROLE_A] = flip ? matrix_of(in, m, 1, in) : matrix_of(out, m, 1, out);
        of[WEIR__ROLE_B] = flip ? y : x;
        of[WEIR__ROLE_C] = flip ? matrix_of(in, out, out, 1) : matrix_of(out, in, in, 1);
    }
}

static bool has_bias(const struct weir__op_shape *shape) {
    return shape->op == WEIR__OP_linear && shape->has_bias;
}

/* ---- primitive descriptors ------------------------------------------------------------------- */

static dnnl_status_t make_descriptor(const struct weir__op_shape *shape, dnnl_engine_t engine,
                                     bool adds, dnnl_primitive_desc_t *to) {
    struct matrix matrices[WEIR__ROLE_COUNT];
    dnnl_memory_desc_t of[WEIR__ROLE_COUNT];
    int described = 0;
    dnnl_primitive_attr_t attributes;
    matrices_of(shape, matrices);
    dnnl_status_t status = weir__onednn_attributes(adds, &attributes);
    if (status != dnnl_success) return status;
    for (; described <= WEIR__ROLE_C && status == dnnl_success; described++) {
        const struct matrix *matrix = &matrices[described];
        status = weir__onednn_describe(&of[described], 2, matrix->sizes, matrix->strides);
    }
    if (status == dnnl_success)
        status = weir__onednn_describe_product(of, has_bias(shape), engine, attributes, to);
    else
        described--;
    while (described > 0) weir__onednn_forget(&of[--described]);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

/* ---- the plan of a shape --------------------------------------------------------------------- */

/** Below this many multiply-adds our own kernel is ahead: a library call costs 0.3 us more. */
#define LIBRARY_FROM 131072.0

/** How a shape is computed. Made alike by measure and prepare. */
struct matmul_plan {
    bool own; /**< by our own kernel; all else is empty then */
    dnnl_engine_t engine;
    dnnl_primitive_desc_t sets; /**< c = a b (+ bias) */
    dnnl_primitive_desc_t adds; /**< c += a b, the product made first; NULL: we add it */
    size_t scratchpad;          /**< bytes, for the larger of the two */
    size_t sum;                 /**< bytes of the product that we add; 0: none */
};

static void plan_clean_up(struct matmul_plan *plan) {
    if (plan->adds != NULL) dnnl_primitive_desc_destroy(plan->adds);
    if (plan->sets != NULL) dnnl_primitive_desc_destroy(plan->sets);
    if (plan->engine != NULL) dnnl_engine_destroy(plan->engine);
    *plan = (struct matmul_plan){.own = true};
}

/** The adding form only where it is known to finish the product before it adds. */
static dnnl_status_t plan_addition(const struct weir__op_shape *shape, struct matmul_plan *plan) {
    assert(shape->op == WEIR__OP_linear_grad_weight);
    dnnl_status_t status = make_descriptor(shape, plan->engine, true, &plan->adds);
    if (status == dnnl_unimplemented) status = dnnl_success;
    if (plan->adds == NULL || weir__onednn_implemented_by(plan->adds, "brg")) return status;
    dnnl_primitive_desc_destroy(plan->adds);
    plan->adds = NULL;
    return status;
}

/** Whether a primitive is better than our own product. */
static bool serves(const struct weir__op_shape *shape, const_dnnl_primitive_desc_t descriptor) {
    if (weir__onednn_implemented_by(descriptor, "brg")) return true;
    return shape->threads > 1 && !weir__onednn_implemented_by(descriptor, "ref");
}

static int plan_init(const struct weir__op_shape *shape, struct matmul_plan *plan) {
    double work = (double)shape->rows * (double)shape->tokens * (double)shape->in;
    *plan = (struct matmul_plan){.own = true};
    if (work * (double)shape->out < LIBRARY_FROM) return WEIR_OK;
    dnnl_status_t status = dnnl_engine_create(&plan->engine, dnnl_cpu, 0);
    if (status == dnnl_success) status = make_descriptor(shape, plan->engine, false, &plan->sets);
    if (status == dnnl_unimplemented || (status == dnnl_success && !serves(shape, plan->sets))) {
        plan_clean_up(plan);
        return WEIR_OK;
    }
    if (status == dnnl_success && shape->op == WEIR__OP_linear_grad_weight) {
        status = plan_addition(shape, plan);
        if (plan->adds == NULL) plan->sum = (size_t)(shape->in * shape->out) * sizeof(float);
    }
    if (status != dnnl_success) {
        plan_clean_up(plan);
        return weir__onednn_status_of(status);
    }
    plan->own = false;
    size_t sets = weir__onednn_scratchpad_bytes(plan->sets),
           adds = weir__onednn_scratchpad_bytes(plan->adds);
    plan->scratchpad = sets > adds ? sets : adds;
    return WEIR_OK;
}

/** oneDNN plans for as many threads as the calling one may use at that moment. */
static int plan_init_for_threads(const struct weir__op_shape *shape, struct matmul_plan *plan) {
    uint32_t former = weir__kernel_threads(shape->threads);
    int status = plan_init(shape, plan);
    if (former != 0) weir__kernel_threads(former);
    return status;
}

int weir__onednn_matmul_measure(const struct weir__op_shape *shape, size_t *workspace) {
    struct matmul_plan plan;
    int status = plan_init_for_threads(shape, &plan);
    if (status != WEIR_OK) return status;
    if (plan.own)
        status = weir__vector_f32[shape->op].measure(shape, workspace);
    else
        *workspace = plan.scratchpad + plan.sum;
    plan_clean_up(&plan);
    return status;
}

/* ---- state ----------------------------------------------------------------------------------- */

/** What a shape needs to run, made once; used by one thread at a time. */
struct matmul_product {
    struct matmul_plan plan;
    dnnl_stream_t stream;
    dnnl_primitive_t sets, adds;
    dnnl_memory_t memory[WEIR__ROLE_COUNT];
    dnnl_memory_t scratchpad_of_adds;
    bool has_bias;
};

void weir__onednn_matmul_release(void *state) {
    struct matmul_product *product = state;
    if (product == NULL) return;
    for (int role = 0; role < WEIR__ROLE_COUNT; role++)
        if (product->memory[role] != NULL) dnnl_memory_destroy(product->memory[role]);
    if (product->scratchpad_of_adds != NULL) dnnl_memory_destroy(product->scratchpad_of_adds);
    if (product->adds != NULL) dnnl_primitive_destroy(product->adds);
    if (product->sets != NULL) dnnl_primitive_destroy(product->sets);
    if (product->stream != NULL) dnnl_stream_destroy(product->stream);
    plan_clean_up(&product->plan);
    weir__release(NULL, product, 1, sizeof *product);
}

static dnnl_status_t make_memory(const struct matmul_product *product,
                                 dnnl_primitive_desc_t descriptor, enum weir__role role,
                                 dnnl_memory_t *to) {
    assert((unsigned)role < WEIR__ROLE_COUNT && *to == NULL);
    return dnnl_memory_create(
        to, dnnl_primitive_desc_query_md(descriptor, dnnl_query_exec_arg_md, arguments[role]),
        product->plan.engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t make_primitives(struct matmul_product *product) {
    const struct matmul_plan *plan = &product->plan;
    dnnl_status_t status =
        dnnl_stream_create(&product->stream, plan->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) return status;
    status = dnnl_primitive_create(&product->sets, plan->sets);
    for (int role = 0; role < WEIR__ROLE_COUNT && status == dnnl_success; role++)
        if (role != WEIR__ROLE_BIAS || product->has_bias)
            status =
                make_memory(product, plan->sets, (enum weir__role)role, &product->memory[role]);
    if (status != dnnl_success || plan->adds == NULL) return status;
    status = dnnl_primitive_create(&product->adds, plan->adds);
    if (status != dnnl_success) return status;
    return make_memory(product, plan->adds, WEIR__ROLE_SCRATCHPAD, &product->scratchpad_of_adds);
}

int weir__onednn_matmul_prepare(const struct weir__op_shape *shape, struct weir_stream *stream,
                                void **state) {
    struct matmul_plan plan;
    *state = NULL;
    int status = plan_init_for_threads(shape, &plan);
    if (status != WEIR_OK || plan.own) return status;
    struct matmul_product *product = weir__acquire(NULL, 1, sizeof *product);
    if (product == NULL) {
        plan_clean_up(&plan);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    product->plan = plan;
    product->has_bias = has_bias(shape);
    status = weir__onednn_status_of(make_primitives(product));
    if (status != WEIR_OK)
        weir__onednn_matmul_release(product);
    else
        *state = product;
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static int execute(const struct weir__op_call *call, const struct matmul_product *product,
                   bool adds, const void *const data[WEIR__ROLE_COUNT]) {
    assert(!adds || product->adds != NULL);
    dnnl_exec_arg_t list[WEIR__ROLE_COUNT];
    int count = 0;
    dnnl_status_t status = dnnl_success;
    for (int role = 0; role < WEIR__ROLE_COUNT && status == dnnl_success; role++) {
        if (role == WEIR__ROLE_BIAS && !product->has_bias) continue;
        bool other = adds && role == WEIR__ROLE_SCRATCHPAD;
        dnnl_memory_t memory = other ? product->scratchpad_of_adds : product->memory[role];
        /* Inputs are only read; the library's interface has no const. */
        status = dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)data[role]);
        list[count++] = (dnnl_exec_arg_t){arguments[role], memory};
    }
    if (status == dnnl_success)
        status = dnnl_primitive_execute(adds ? product->adds : product->sets, product->stream,
                                        count, list);
    if (status == dnnl_success) status = dnnl_stream_wait(product->stream);
    if (status == dnnl_success) return WEIR_OK;
    return weir__fail(call->error, weir__onednn_status_of(status),
                      "oneDNN's matmul failed with status %d", (int)status);
}

/** Where the library cannot add the finished product: it goes to workspace, and we add it. */
static int execute_and_add(const struct weir__op_call *call, const struct matmul_product *product,
                           const void *data[WEIR__ROLE_COUNT]) {
    assert(product->plan.sum > 0);
    float *to = call->out[0];
    const float *sum = (const float *)((char *)call->workspace + product->plan.scratchpad);
    data[WEIR__ROLE_C] = sum;
    int status = execute(call, product, false, data);
    if (status == WEIR_OK)
        weir__vector_flat_f32.accumulate(NULL, to, sum, product->plan.sum / sizeof(float));
    return status;
}

int weir__onednn_matmul_run(const struct weir__op_call *call) {
    const struct matmul_product *product = call->state;
    if (product == NULL) return weir__vector_f32[call->shape->op].run(call);
    bool weight = call->shape->op == WEIR__OP_linear_grad_weight;
    bool flip = weight && !call->shape->weight_in_out; /* a is dy then, which comes second */
    const void *data[WEIR__ROLE_COUNT] = {
        [WEIR__ROLE_A] = call->in[flip ? 1 : 0],
        [WEIR__ROLE_B] = call->in[flip ? 0 : 1],
        [WEIR__ROLE_BIAS] = product->has_bias ? call->in[2] : NULL,
        [WEIR__ROLE_C] = call->out[0],
        [WEIR__ROLE_SCRATCHPAD] = call->workspace,
    };
    if (!weight || call->overwrite) return execute(call, product, false, data);
    if (product->adds != NULL) return execute(call, product, true, data);
    return execute_and_add(call, product, data);
}

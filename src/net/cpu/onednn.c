/* SPDX-License-Identifier: MIT */
/*
 * Products by oneDNN's matmul primitive: at 94-100% of the roof for every shape of a GPT with plain
 * layouts of weights, both [out, in] and [in, out], which leaves nothing to gain from packed
 * weights, and ahead of its inner product (up to 20% in the gradients). This is the only file that
 * includes oneDNN's headers; what differs between its 2.x and 3.x stands in the first section.
 *
 * A shape goes to our own products instead where it is too small for a library call, and where
 * oneDNN has no such kernel for the machine: without AVX-512, 2.x falls back to its gemm, which
 * allocates while it runs and computes a row differently at an edge. That one is 7% ahead of ours
 * and used for several threads only. The choice depends on the shape and the machine; `measure` and
 * `prepare` make it alike.
 */
#include "net/cpu/vector_calls.h"

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_version.h>
#include <string.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

const char *weir__onednn_version(void) {
    return "oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(
        DNNL_VERSION_PATCH);
}

/* ---- 2.x and 3.x ----------------------------------------------------------------------------- */

/** The operands of c = a b (+ bias) as oneDNN describes memory; bias may be absent. */
enum role { ROLE_A, ROLE_B, ROLE_BIAS, ROLE_C, ROLE_SCRATCHPAD, ROLE_COUNT };

typedef dnnl_memory_desc_t description;

#if DNNL_VERSION_MAJOR < 3

/* Descriptions are structs that need no release. */

static dnnl_status_t describe(description *to, const dnnl_dims_t sizes, const dnnl_dims_t strides) {
    return dnnl_memory_desc_init_by_strides(to, 2, sizes, dnnl_f32, strides);
}

static void forget(description *of) {
    (void)of;
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *to, dnnl_engine_t engine,
                                      const description of[ROLE_COUNT], bool has_bias,
                                      const_dnnl_primitive_attr_t attributes) {
    dnnl_matmul_desc_t product;
    dnnl_status_t status = dnnl_matmul_desc_init(&product, &of[ROLE_A], &of[ROLE_B],
                                                 has_bias ? &of[ROLE_BIAS] : NULL, &of[ROLE_C]);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(to, &product, attributes, engine, NULL);
}

static dnnl_status_t append_sum(dnnl_post_ops_t operations) {
    return dnnl_post_ops_append_sum(operations, 1);
}

#else

/* Descriptions are objects. */

static dnnl_status_t describe(description *to, const dnnl_dims_t sizes, const dnnl_dims_t strides) {
    return dnnl_memory_desc_create_with_strides(to, 2, sizes, dnnl_f32, strides);
}

static void forget(description *of) {
    dnnl_memory_desc_destroy(*of);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *to, dnnl_engine_t engine,
                                      const description of[ROLE_COUNT], bool has_bias,
                                      const_dnnl_primitive_attr_t attributes) {
    return dnnl_matmul_primitive_desc_create(to, engine, of[ROLE_A], of[ROLE_B],
                                             has_bias ? of[ROLE_BIAS] : NULL, of[ROLE_C],
                                             attributes);
}

static dnnl_status_t append_sum(dnnl_post_ops_t operations) {
    return dnnl_post_ops_append_sum(operations, 1, 0, dnnl_f32);
}

#endif

/* ---- a shape as a product -------------------------------------------------------------------- */

static const int arguments[ROLE_COUNT] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS,
                                          DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};

struct matrix {
    dnnl_dims_t sizes, strides;
};

static struct matrix matrix_of(int64_t rows, int64_t columns, int64_t row_stride,
                               int64_t column_stride) {
    return (struct matrix){{rows, columns}, {row_stride, column_stride}};
}

static void matrices_of(const struct weir__op_shape *shape, struct matrix of[ROLE_COUNT]) {
    int64_t m = shape->rows * shape->tokens, in = shape->in, out = shape->out;
    bool flip = shape->weight_in_out;
    struct matrix x = matrix_of(m, in, in, 1), y = matrix_of(m, out, out, 1);
    of[ROLE_BIAS] = matrix_of(1, out, out, 1);
    switch (shape->op) {
    case WEIR__OP_linear:
        of[ROLE_A] = x;
        of[ROLE_B] = flip ? matrix_of(in, out, out, 1) : matrix_of(in, out, 1, in);
        of[ROLE_C] = y;
        return;
    case WEIR__OP_linear_grad_input:
        of[ROLE_A] = y;
        of[ROLE_B] = flip ? matrix_of(out, in, 1, out) : matrix_of(out, in, in, 1);
        of[ROLE_C] = x;
        return;
    default:
        assert(shape->op == WEIR__OP_linear_grad_weight);
        of[ROLE_A] = flip ? matrix_of(in, m, 1, in) : matrix_of(out, m, 1, out);
        of[ROLE_B] = flip ? y : x;
        of[ROLE_C] = flip ? matrix_of(in, out, out, 1) : matrix_of(out, in, in, 1);
    }
}

static bool has_bias(const struct weir__op_shape *shape) {
    return shape->op == WEIR__OP_linear && shape->has_bias;
}

static int status_of(dnnl_status_t status) {
    if (status == dnnl_success) return WEIR_OK;
    return status == dnnl_out_of_memory ? WEIR_ERR_OUT_OF_MEMORY : WEIR_ERR_BACKEND;
}

/* ---- primitive descriptors ------------------------------------------------------------------- */

/** Scratchpad from us, products in f32 whatever the environment says, and perhaps c += the sum. */
static dnnl_status_t make_attributes(bool adds, dnnl_primitive_attr_t *to) {
    dnnl_primitive_attr_t attributes;
    dnnl_post_ops_t operations = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attributes);
    if (status != dnnl_success) return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_fpmath_mode(attributes, dnnl_fpmath_mode_strict);
    if (status == dnnl_success && adds) {
        status = dnnl_post_ops_create(&operations);
        if (status == dnnl_success) status = append_sum(operations);
        if (status == dnnl_success)
            status = dnnl_primitive_attr_set_post_ops(attributes, operations);
        if (operations != NULL) dnnl_post_ops_destroy(operations);
    }
    if (status != dnnl_success)
        dnnl_primitive_attr_destroy(attributes);
    else
        *to = attributes;
    return status;
}

static dnnl_status_t make_descriptor(const struct weir__op_shape *shape, dnnl_engine_t engine,
                                     bool adds, dnnl_primitive_desc_t *to) {
    struct matrix matrices[ROLE_COUNT];
    description of[ROLE_COUNT];
    int described = 0;
    dnnl_primitive_attr_t attributes;
    matrices_of(shape, matrices);
    dnnl_status_t status = make_attributes(adds, &attributes);
    if (status != dnnl_success) return status;
    for (; described <= ROLE_C && status == dnnl_success; described++)
        status = describe(&of[described], matrices[described].sizes, matrices[described].strides);
    if (status == dnnl_success)
        status = describe_product(to, engine, of, has_bias(shape), attributes);
    else
        described--;
    while (described > 0) forget(&of[--described]);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

static bool implemented_by(const_dnnl_primitive_desc_t descriptor, const char *prefix) {
    const char *name = NULL;
    return dnnl_primitive_desc_query(descriptor, dnnl_query_impl_info_str, 0, (void *)&name) ==
               dnnl_success &&
           name != NULL && strncmp(name, prefix, strlen(prefix)) == 0;
}

static size_t scratchpad_bytes(const_dnnl_primitive_desc_t descriptor) {
    if (descriptor == NULL) return 0;
    return dnnl_memory_desc_get_size(
        dnnl_primitive_desc_query_md(descriptor, dnnl_query_scratchpad_md, 0));
}

/* ---- the plan of a shape --------------------------------------------------------------------- */

/** Below this many multiply-adds our own kernel is ahead: a library call costs 0.3 us more. */
#define LIBRARY_FROM 131072.0

/** How a shape is computed. Made alike by measure and prepare. */
struct plan {
    bool own; /**< by our own kernel; all else is empty then */
    dnnl_engine_t engine;
    dnnl_primitive_desc_t sets; /**< c = a b (+ bias) */
    dnnl_primitive_desc_t adds; /**< c += a b, the product made first; NULL: we add it */
    size_t scratchpad;          /**< bytes, for the larger of the two */
    size_t sum;                 /**< bytes of the product that we add; 0: none */
};

static void plan_clean_up(struct plan *plan) {
    if (plan->adds != NULL) dnnl_primitive_desc_destroy(plan->adds);
    if (plan->sets != NULL) dnnl_primitive_desc_destroy(plan->sets);
    if (plan->engine != NULL) dnnl_engine_destroy(plan->engine);
    *plan = (struct plan){.own = true};
}

/** The adding form only where it is known to finish the product before it adds. */
static dnnl_status_t plan_addition(const struct weir__op_shape *shape, struct plan *plan) {
    dnnl_status_t status = make_descriptor(shape, plan->engine, true, &plan->adds);
    if (status == dnnl_unimplemented) status = dnnl_success;
    if (plan->adds == NULL || implemented_by(plan->adds, "brg")) return status;
    dnnl_primitive_desc_destroy(plan->adds);
    plan->adds = NULL;
    return status;
}

/** Whether a primitive is better than our own product. */
static bool serves(const struct weir__op_shape *shape, const_dnnl_primitive_desc_t descriptor) {
    if (implemented_by(descriptor, "brg")) return true;
    return shape->threads > 1 && !implemented_by(descriptor, "ref");
}

static int plan_init(const struct weir__op_shape *shape, struct plan *plan) {
    double work = (double)shape->rows * (double)shape->tokens * (double)shape->in;
    *plan = (struct plan){.own = true};
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
        return status_of(status);
    }
    plan->own = false;
    size_t sets = scratchpad_bytes(plan->sets), adds = scratchpad_bytes(plan->adds);
    plan->scratchpad = ((sets > adds ? sets : adds) + 63) / 64 * 64;
    return WEIR_OK;
}

/** oneDNN plans for as many threads as the calling one may use at that moment. */
static int plan_init_for_threads(const struct weir__op_shape *shape, struct plan *plan) {
    uint32_t former = weir__kernel_threads(shape->threads);
    int status = plan_init(shape, plan);
    if (former != 0) weir__kernel_threads(former);
    return status;
}

static int measure(const struct weir__op_shape *shape, size_t *workspace) {
    struct plan plan;
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
struct product {
    struct plan plan;
    dnnl_stream_t stream;
    dnnl_primitive_t sets, adds;
    dnnl_memory_t memory[ROLE_COUNT];
    dnnl_memory_t scratchpad_of_adds;
    bool has_bias;
};

static void release(void *state) {
    struct product *product = state;
    if (product == NULL) return;
    for (int role = 0; role < ROLE_COUNT; role++)
        if (product->memory[role] != NULL) dnnl_memory_destroy(product->memory[role]);
    if (product->scratchpad_of_adds != NULL) dnnl_memory_destroy(product->scratchpad_of_adds);
    if (product->adds != NULL) dnnl_primitive_destroy(product->adds);
    if (product->sets != NULL) dnnl_primitive_destroy(product->sets);
    if (product->stream != NULL) dnnl_stream_destroy(product->stream);
    plan_clean_up(&product->plan);
    weir__release(NULL, product, 1, sizeof *product);
}

static dnnl_status_t make_memory(const struct product *product, dnnl_primitive_desc_t descriptor,
                                 enum role role, dnnl_memory_t *to) {
    return dnnl_memory_create(
        to, dnnl_primitive_desc_query_md(descriptor, dnnl_query_exec_arg_md, arguments[role]),
        product->plan.engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t make_primitives(struct product *product) {
    const struct plan *plan = &product->plan;
    dnnl_status_t status =
        dnnl_stream_create(&product->stream, plan->engine, dnnl_stream_default_flags);
    if (status == dnnl_success) status = dnnl_primitive_create(&product->sets, plan->sets);
    if (status == dnnl_success && plan->adds != NULL)
        status = dnnl_primitive_create(&product->adds, plan->adds);
    for (int role = 0; role < ROLE_COUNT && status == dnnl_success; role++)
        if (role != ROLE_BIAS || product->has_bias)
            status = make_memory(product, plan->sets, (enum role)role, &product->memory[role]);
    if (status == dnnl_success && plan->adds != NULL)
        status = make_memory(product, plan->adds, ROLE_SCRATCHPAD, &product->scratchpad_of_adds);
    return status;
}

static int prepare(const struct weir__op_shape *shape, void **state) {
    struct plan plan;
    *state = NULL;
    int status = plan_init_for_threads(shape, &plan);
    if (status != WEIR_OK || plan.own) return status;
    struct product *product = weir__acquire(NULL, 1, sizeof *product);
    if (product == NULL) {
        plan_clean_up(&plan);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    product->plan = plan;
    product->has_bias = has_bias(shape);
    status = status_of(make_primitives(product));
    if (status != WEIR_OK)
        release(product);
    else
        *state = product;
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static int execute(const struct weir__op_call *call, const struct product *product, bool adds,
                   const void *const data[ROLE_COUNT]) {
    dnnl_exec_arg_t list[ROLE_COUNT];
    int count = 0;
    dnnl_status_t status = dnnl_success;
    for (int role = 0; role < ROLE_COUNT && status == dnnl_success; role++) {
        if (role == ROLE_BIAS && !product->has_bias) continue;
        bool other = adds && role == ROLE_SCRATCHPAD;
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
    return weir__fail(call->error, status_of(status), "oneDNN's matmul failed with status %d",
                      (int)status);
}

/** Where the library cannot add the finished product: it goes to workspace, and we add it. */
static int execute_and_add(const struct weir__op_call *call, const struct product *product,
                           const void *data[ROLE_COUNT]) {
    float *to = call->out[0];
    const float *sum = (const float *)((char *)call->workspace + product->plan.scratchpad);
    data[ROLE_C] = sum;
    int status = execute(call, product, false, data);
    if (status == WEIR_OK) weir__accumulate(WEIR_F32, to, sum, product->plan.sum / sizeof(float));
    return status;
}

static int run(const struct weir__op_call *call) {
    const struct product *product = call->state;
    if (product == NULL) return weir__vector_f32[call->shape->op].run(call);
    bool weight = call->shape->op == WEIR__OP_linear_grad_weight;
    bool flip = weight && !call->shape->weight_in_out; /* a is dy then, which comes second */
    const void *data[ROLE_COUNT] = {
        [ROLE_A] = call->in[flip ? 1 : 0],
        [ROLE_B] = call->in[flip ? 0 : 1],
        [ROLE_BIAS] = product->has_bias ? call->in[2] : NULL,
        [ROLE_C] = call->out[0],
        [ROLE_SCRATCHPAD] = call->workspace,
    };
    if (!weight || call->overwrite) return execute(call, product, false, data);
    if (product->adds != NULL) return execute(call, product, true, data);
    return execute_and_add(call, product, data);
}

#define ROW(name)                                                                                  \
    [WEIR__OP_##name] = {.measure = measure,                                                       \
                         .prepare = prepare,                                                       \
                         .release = release,                                                       \
                         .run = run,                                                               \
                         .library = "oneDNN"}

const struct weir__kernel weir__onednn_f32[WEIR__OP_COUNT] = {
    ROW(linear),
    ROW(linear_grad_input),
    ROW(linear_grad_weight),
};

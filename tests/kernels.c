/* SPDX-License-Identifier: MIT */
#include "kernels.h"
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- operands ---- */

/* The rows of net/kernel.h: M, in, out … are the sizes below, I an index per token, L a loss. */
struct sizes {
    int64_t m, in, out, weight, width, elements, table, qkv, lse;
};

static struct sizes sizes_of(const struct weir__op_shape *shape) {
    int64_t m = shape->rows * shape->tokens;
    return (struct sizes){.m = m,
                          .in = m * shape->in,
                          .out = m * shape->out,
                          .weight = shape->in * shape->out,
                          .width = m * shape->width,
                          .elements = shape->rows * shape->width,
                          .table = shape->table * shape->width,
                          .qkv = 3 * m * shape->width,
                          .lse = m * shape->heads};
}

#define REAL(size)                                                                                 \
    { OPERAND_REAL, size }
#define INDEX                                                                                      \
    { OPERAND_INDEX, n.m }
#define LOSS                                                                                       \
    { OPERAND_LOSS, 1 }

static void operands_of_parameters(const struct weir__op_shape *shape, struct operands *operands) {
    struct sizes n = sizes_of(shape);
    int64_t bias = shape->has_bias ? shape->out : 0, c = shape->width;
    const struct operands rows[] = {
        [WEIR__OP_linear] = {{REAL(n.in), REAL(n.weight), REAL(bias)}, {REAL(n.out)}, false},
        [WEIR__OP_linear_grad_input] = {{REAL(n.out), REAL(n.weight)}, {REAL(n.in)}, false},
        [WEIR__OP_linear_grad_weight] = {{REAL(n.in), REAL(n.out)}, {REAL(n.weight)}, true},
        [WEIR__OP_bias_grad] = {{REAL(n.out)}, {REAL(shape->out)}, true},
        [WEIR__OP_embedding] = {{INDEX, REAL(n.weight)}, {REAL(n.out)}, false},
        [WEIR__OP_embedding_grad] = {{INDEX, REAL(n.out)}, {REAL(n.weight)}, true},
        [WEIR__OP_position_add] = {{REAL(n.width), REAL(n.table)}, {REAL(n.width)}, false},
        [WEIR__OP_position_grad] = {{REAL(n.width)}, {REAL(n.table)}, true},
        [WEIR__OP_layer_norm] = {{REAL(n.width), REAL(c), REAL(c)},
                                 {REAL(n.width), REAL(n.m), REAL(n.m)},
                                 false},
        [WEIR__OP_layer_norm_grad_input] =
            {{REAL(n.width), REAL(n.width), REAL(n.m), REAL(n.m), REAL(c)}, {REAL(n.width)}, false},
        [WEIR__OP_layer_norm_grad_weight] = {{REAL(n.width), REAL(n.width), REAL(n.m), REAL(n.m)},
                                             {REAL(c), REAL(c)},
                                             true},
        [WEIR__OP_attention] = {{REAL(n.qkv)}, {REAL(n.width), REAL(n.lse)}, false},
        [WEIR__OP_attention_grad] = {{REAL(n.width), REAL(n.qkv), REAL(n.width), REAL(n.lse)},
                                     {REAL(n.qkv)},
                                     false},
    };
    *operands = rows[shape->op];
}

static void operands_of_elements(const struct weir__op_shape *shape, struct operands *operands) {
    struct sizes n = sizes_of(shape);
    bool two = shape->op != WEIR__OP_gelu && shape->op != WEIR__OP_relu &&
               shape->op != WEIR__OP_dropout && shape->op != WEIR__OP_copy;
    *operands = (struct operands){
        {REAL(n.elements), REAL(two ? n.elements : 0)}, {REAL(n.elements)}, false};
    if (shape->op == WEIR__OP_cross_entropy)
        *operands = (struct operands){{REAL(n.width), INDEX}, {LOSS, REAL(n.m)}, false};
    if (shape->op == WEIR__OP_cross_entropy_grad)
        *operands = (struct operands){{REAL(n.width), INDEX, REAL(n.m)}, {REAL(n.width)}, false};
    if (shape->op == WEIR__OP_mse) operands->out[0] = (struct operand)LOSS;
}

void kernel_operands(const struct weir__op_shape *shape, struct operands *operands) {
    if (shape->op <= WEIR__OP_attention_grad)
        operands_of_parameters(shape, operands);
    else
        operands_of_elements(shape, operands);
}

/* ---- cases ---- */

static double *make_doubles(int64_t count) {
    return weir__acquire(test_allocator(), (size_t)count, sizeof(double));
}

static void release_doubles(double *numbers, int64_t count) {
    weir__release(test_allocator(), numbers, (size_t)count, sizeof(double));
}

static void fill(double *numbers, int64_t count) {
    for (int64_t i = 0; i < count; i++) numbers[i] = (float)(4 * test_random_unit() - 2);
}

static void fill_indices(const struct weir__op_shape *shape, int64_t *index, int64_t count) {
    bool loss = shape->op == WEIR__OP_cross_entropy || shape->op == WEIR__OP_cross_entropy_grad;
    for (int64_t i = 0; i < count; i++) {
        index[i] = (int64_t)test_random_below((uint64_t)(loss ? shape->width : shape->in));
        if (loss && test_random_below(5) == 0) index[i] = shape->ignore_index;
    }
}

static void take(struct kernel_case *test, int to, struct kernel_results *results, int from) {
    if (results->out[from] == NULL) return;
    for (int64_t i = 0; i < test->operands.in[to].count; i++)
        test->in[to][i] = results->out[from][i];
}

/** The forward op's outputs that a gradient takes, from the same inputs. */
static void fill_residuals(struct kernel_case *test) {
    struct kernel_case forward = *test;
    struct kernel_results results;
    enum weir__op op = test->shape.op;
    if (op == WEIR__OP_layer_norm_grad_input || op == WEIR__OP_layer_norm_grad_weight) {
        double *weight = make_doubles(test->shape.width); /* any: mean and rstd do not depend */
        forward.shape.op = WEIR__OP_layer_norm;
        forward.in[0] = test->in[1];
        forward.in[1] = forward.in[2] = weight;
        kernel_operands(&forward.shape, &forward.operands);
        CHECK_OK(kernel_run(&forward, KERNEL_F64, 0, &results));
        take(test, 2, &results, 1);
        take(test, 3, &results, 2);
        release_doubles(weight, test->shape.width);
    } else if (op == WEIR__OP_attention_grad) {
        forward.shape.op = WEIR__OP_attention;
        forward.in[0] = test->in[1];
        kernel_operands(&forward.shape, &forward.operands);
        CHECK_OK(kernel_run(&forward, KERNEL_F64, 0, &results));
        take(test, 2, &results, 0);
        take(test, 3, &results, 1);
    } else if (op == WEIR__OP_cross_entropy_grad) {
        forward.shape.op = WEIR__OP_cross_entropy;
        kernel_operands(&forward.shape, &forward.operands);
        CHECK_OK(kernel_run(&forward, KERNEL_F64, 0, &results));
        take(test, 2, &results, 1);
    } else {
        return;
    }
    kernel_results_clean_up(&results);
}

void kernel_case_empty(struct kernel_case *test, const struct weir__op_shape *shape) {
    *test = (struct kernel_case){.shape = *shape, .overwrite = true, .loss_weight = 1};
    test->shape.threads = 1;
    kernel_operands(shape, &test->operands);
    for (int i = 0; i < KERNEL_INS; i++) {
        struct operand operand = test->operands.in[i];
        if (operand.kind == OPERAND_REAL)
            test->in[i] = make_doubles(operand.count);
        else if (operand.kind == OPERAND_INDEX)
            test->index[i] =
                weir__acquire(test_allocator(), (size_t)operand.count, sizeof(int64_t));
    }
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (test->operands.out[i].kind == OPERAND_REAL)
            test->old[i] = make_doubles(test->operands.out[i].count);
}

void kernel_case_init(struct kernel_case *test, const struct weir__op_shape *shape) {
    kernel_case_empty(test, shape);
    test->seed = test_random_u64();
    test->mini_batch = test_random_below(1000);
    test->row_first = (int64_t)test_random_below(1000);
    test->loss_weight = 3;
    for (int i = 0; i < KERNEL_INS; i++) {
        if (test->in[i] != NULL) fill(test->in[i], test->operands.in[i].count);
        if (test->index[i] != NULL) fill_indices(shape, test->index[i], test->operands.in[i].count);
    }
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (test->old[i] != NULL) fill(test->old[i], test->operands.out[i].count);
    fill_residuals(test);
}

void kernel_case_clean_up(struct kernel_case *test) {
    for (int i = 0; i < KERNEL_INS; i++) {
        size_t count = (size_t)test->operands.in[i].count;
        release_doubles(test->in[i], (int64_t)count);
        weir__release(test_allocator(), test->index[i], count, sizeof(int64_t));
    }
    for (int i = 0; i < KERNEL_OUTS; i++)
        release_doubles(test->old[i], test->operands.out[i].count);
}

/* ---- running ---- */

const char *kernel_backend_name(enum kernel_backend backend) {
    static const char *const names[] = {"f64 reference", "f32 reference", "f32 vector", "f32 fast"};
    return names[backend];
}

const struct weir__kernel *kernel_of(enum weir__op op, enum kernel_backend backend) {
    if (backend == KERNEL_VECTOR) return &weir__vector_f32[op];
    return weir__kernel_for(op, backend == KERNEL_F64 ? WEIR_F64 : WEIR_F32,
                            backend != KERNEL_FAST);
}

/** A buffer that begins `shift` bytes into its memory. */
struct buffer {
    char *memory;
    size_t bytes, shift;
};

static void *buffer_init(struct buffer *buffer, size_t bytes, size_t shift) {
    buffer->bytes = bytes + shift;
    buffer->shift = shift;
    buffer->memory = weir__acquire(test_allocator(), buffer->bytes, 1);
    memset(buffer->memory, 0xA5, buffer->bytes);
    return buffer->memory + shift;
}

static void buffer_clean_up(struct buffer *buffer) {
    weir__release(test_allocator(), buffer->memory, buffer->bytes, 1);
}

static void to_dtype(void *to, const double *from, int64_t count, bool wide) {
    for (int64_t i = 0; i < count; i++) {
        if (wide)
            ((double *)to)[i] = from[i];
        else
            ((float *)to)[i] = (float)from[i];
    }
}

static void from_dtype(double *to, const void *from, int64_t count, bool wide) {
    for (int64_t i = 0; i < count; i++)
        to[i] = wide ? ((const double *)from)[i] : ((const float *)from)[i];
}

/** Everything that a call points to. */
struct memory {
    struct buffer in[KERNEL_INS], out[KERNEL_OUTS], workspace;
    const void *ins[KERNEL_INS];
    void *outs[KERNEL_OUTS];
    bool wide;
};

static void memory_init(struct memory *memory, const struct kernel_case *test, size_t shift) {
    size_t bytes = memory->wide ? sizeof(double) : sizeof(float);
    for (int i = 0; i < KERNEL_INS; i++) {
        struct operand operand = test->operands.in[i];
        size_t count = (size_t)operand.count;
        if (operand.kind == OPERAND_INDEX) {
            void *to = buffer_init(&memory->in[i], count * sizeof(int64_t), shift);
            memcpy(to, test->index[i], count * sizeof(int64_t));
            memory->ins[i] = to;
        } else if (operand.kind == OPERAND_REAL && count > 0) {
            void *to = buffer_init(&memory->in[i], count * bytes, shift);
            to_dtype(to, test->in[i], operand.count, memory->wide);
            memory->ins[i] = to;
        }
    }
    for (int i = 0; i < KERNEL_OUTS; i++) {
        struct operand operand = test->operands.out[i];
        if (operand.kind == OPERAND_NONE) continue;
        size_t element = operand.kind == OPERAND_LOSS ? sizeof(double) : bytes;
        memory->outs[i] = buffer_init(&memory->out[i], (size_t)operand.count * element, shift);
        if (test->operands.accumulates && !test->overwrite)
            to_dtype(memory->outs[i], test->old[i], operand.count, memory->wide);
    }
}

static void memory_clean_up(struct memory *memory) {
    for (int i = 0; i < KERNEL_INS; i++) buffer_clean_up(&memory->in[i]);
    for (int i = 0; i < KERNEL_OUTS; i++) buffer_clean_up(&memory->out[i]);
    buffer_clean_up(&memory->workspace);
}

static int call_kernel(const struct kernel_case *test, const struct weir__kernel *kernel,
                       size_t shift, struct memory *memory) {
    struct weir__op_shape shape = test->shape;
    shape.dtype = memory->wide ? WEIR_F64 : WEIR_F32;
    size_t workspace = 0;
    void *state = NULL;
    int status = kernel->measure != NULL ? kernel->measure(&shape, &workspace) : WEIR_OK;
    if (status == WEIR_OK && kernel->prepare != NULL) status = kernel->prepare(&shape, &state);
    if (status != WEIR_OK) return status;
    struct weir__op_call call = {.shape = &shape,
                                 .state = state,
                                 .in = memory->ins,
                                 .out = memory->outs,
                                 .workspace = buffer_init(&memory->workspace, workspace, shift),
                                 .overwrite = test->overwrite,
                                 .infer = test->infer,
                                 .seed = test->seed,
                                 .mini_batch = test->mini_batch,
                                 .row_first = test->row_first,
                                 .loss_weight = test->loss_weight,
                                 .error = test->error};
    status = kernel->run(&call);
    if (kernel->release != NULL) kernel->release(state);
    return status;
}

void kernel_results_init(struct kernel_results *results, const struct kernel_case *test) {
    *results = (struct kernel_results){.test = test};
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (test->operands.out[i].kind != OPERAND_NONE)
            results->out[i] = make_doubles(test->operands.out[i].count);
}

int kernel_run(const struct kernel_case *test, enum kernel_backend backend, size_t shift,
               struct kernel_results *results) {
    const struct weir__kernel *kernel = kernel_of(test->shape.op, backend);
    struct memory memory = {.wide = backend == KERNEL_F64};
    kernel_results_init(results, test);
    memory_init(&memory, test, shift);
    int status = call_kernel(test, kernel, shift, &memory);
    for (int i = 0; i < KERNEL_OUTS; i++) {
        struct operand operand = test->operands.out[i];
        if (operand.kind != OPERAND_NONE)
            from_dtype(results->out[i], memory.outs[i], operand.count,
                       memory.wide || operand.kind == OPERAND_LOSS);
    }
    memory_clean_up(&memory);
    return status;
}

void kernel_results_clean_up(struct kernel_results *results) {
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (results->out[i] != NULL)
            release_doubles(results->out[i], results->test->operands.out[i].count);
}

/* ---- comparing ---- */

double kernel_largest(const struct kernel_results *results, int output, double least) {
    double largest = least;
    for (int64_t i = 0; i < results->test->operands.out[output].count; i++)
        largest = fmax(largest, fabs(results->out[output][i]));
    return largest;
}

static void describe(const struct weir__op_shape *shape, char *text, size_t capacity) {
    snprintf(text, capacity,
             "%s rows %lld tokens %lld in %lld out %lld width %lld heads %lld table %lld%s%s",
             weir__op_name(shape->op), (long long)shape->rows, (long long)shape->tokens,
             (long long)shape->in, (long long)shape->out, (long long)shape->width,
             (long long)shape->heads, (long long)shape->table,
             shape->weight_in_out ? " in_out" : "", shape->gelu_tanh ? " tanh" : "");
}

static void expect_output(const struct kernel_results *got, const struct kernel_results *wanted,
                          int output, double bound, const char *what) {
    char text[256];
    for (int64_t i = 0; i < got->test->operands.out[output].count; i++) {
        double a = got->out[output][i], b = wanted->out[output][i];
        if (fabs(a - b) <= bound) continue;
        describe(&got->test->shape, text, sizeof text);
        TEST_FAIL("%s: %s: output %d, number %lld is %.17g, not %.17g: %.3g apart, at most %.3g",
                  what, text, output, (long long)i, a, b, fabs(a - b), bound);
        return;
    }
}

static double largest_rstd(const struct kernel_case *test) {
    double largest = 1;
    if (test->shape.op == WEIR__OP_layer_norm_grad_input ||
        test->shape.op == WEIR__OP_layer_norm_grad_weight)
        for (int64_t i = 0; i < test->operands.in[3].count; i++)
            largest = fmax(largest, test->in[3][i]);
    return largest;
}

/** Numbers in the longest sum that an op makes in its dtype. */
static double sum_length(const struct weir__op_shape *shape) {
    switch (shape->op) {
    case WEIR__OP_linear: return (double)shape->in;
    case WEIR__OP_linear_grad_input: return (double)shape->out;
    case WEIR__OP_linear_grad_weight:
    case WEIR__OP_bias_grad:
    case WEIR__OP_embedding_grad:
    case WEIR__OP_position_grad:
    case WEIR__OP_layer_norm_grad_weight: return (double)(shape->rows * shape->tokens);
    case WEIR__OP_attention:
    case WEIR__OP_attention_grad: return (double)(shape->tokens + shape->width / shape->heads);
    case WEIR__OP_layer_norm:
    case WEIR__OP_layer_norm_grad_input:
    case WEIR__OP_cross_entropy: return (double)shape->width;
    default: return 1;
    }
}

/** Terms may cancel: what counts is how large sums become on the way, for random signs the root of
 * the length, else their terms (about 1); in a LayerNorm's gradient terms are up to 2 * 2 /
 * deviation. */
static double least_magnitude(const struct kernel_case *test) {
    enum weir__op op = test->shape.op;
    if (op == WEIR__OP_layer_norm_grad_input) return 4 * largest_rstd(test);
    bool sum = op <= WEIR__OP_bias_grad || op == WEIR__OP_embedding_grad ||
               op == WEIR__OP_position_grad || op == WEIR__OP_layer_norm ||
               op == WEIR__OP_layer_norm_grad_weight;
    return sum ? sqrt(sum_length(&test->shape)) : 1;
}

void kernel_expect_near(const struct kernel_results *got, const struct kernel_results *wanted,
                        double tolerance, const char *what) {
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (got->test->operands.out[i].kind != OPERAND_NONE)
            expect_output(got, wanted, i,
                          tolerance * kernel_largest(wanted, i, least_magnitude(wanted->test)),
                          what);
}

void kernel_expect_same(const struct kernel_results *got, const struct kernel_results *wanted,
                        const char *what) {
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (got->test->operands.out[i].kind != OPERAND_NONE) expect_output(got, wanted, i, 0, what);
}

/** The largest 1 / deviation of a LayerNorm, at least 1. */
static double steepness(const struct kernel_results *wanted) {
    bool forward = wanted->test->shape.op == WEIR__OP_layer_norm;
    return forward ? kernel_largest(wanted, 2, 1) : largest_rstd(wanted->test);
}

double kernel_tolerance(const struct kernel_results *wanted) {
    double length = sum_length(&wanted->test->shape);
    return 0x1p-24 * (16 + 4 * sqrt(length)) * steepness(wanted);
}

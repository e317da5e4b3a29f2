/* SPDX-License-Identifier: MIT */
/*
 * Goal: a fused row has exactly its parts' bits, so that fusion changes no result. Method: the
 * parts run one after the other, on CUDA's emulation and on CPUs, each on what the one before it
 * stored; random shapes, f32 and bf16. Where a product's loss goes by slices, these have ragged
 * ends, and a team shares them.
 */
#include "harness.h"
#include "cuda/kernel_gpu.h"
#include "kernels/kernels.h"

#include <string.h>

#define NO_DRIVER "the fake CUDA driver was not built"
enum { CASES = 16 };
/** The input of a product's loss that is an index. */
enum { TARGET = 2 };

/** A chain of parts, whose results live until its end. */
struct chain {
    const struct kernel_case *fused;
    enum kernel_backend backend;
    struct kernel_case parts[6];
    struct kernel_results results[6];
    int count;
    const double *old; /* what the next part adds to; NULL: nothing */
};

/* Runs `op` on `ins`, with the fused case's shape, masks and indices; returns its outputs. */
static double *const *run_part(struct chain *chain, enum weir__op_code op,
                               struct weir__op_shape shape, const double *const *ins,
                               int in_count) {
    struct kernel_case *part = &chain->parts[chain->count];
    struct kernel_results *results = &chain->results[chain->count++];
    shape.op = op;
    kernel_case_empty(part, &shape);
    part->seed = chain->fused->seed;
    part->mini_batch = chain->fused->mini_batch;
    part->row_first = chain->fused->row_first;
    part->loss_weight = chain->fused->loss_weight;
    part->overwrite = chain->old == NULL;
    if (chain->old != NULL)
        memcpy(part->old[0], chain->old, (size_t)part->operands.out[0].count * sizeof(double));
    for (int i = 0; i < in_count; i++) {
        size_t count = (size_t)part->operands.in[i].count;
        if (part->index[i] != NULL)
            memcpy(part->index[i], chain->fused->index[TARGET], count * sizeof(int64_t));
        else if (count > 0)
            memcpy(part->in[i], ins[i], count * sizeof(double));
    }
    EXPECT_STATUS(kernel_run(part, chain->backend, 0, results), WEIR_OK);
    return results->out;
}

static void chain_clean_up(struct chain *chain) {
    for (int i = 0; i < chain->count; i++) {
        kernel_results_clean_up(&chain->results[i]);
        kernel_case_clean_up(&chain->parts[i]);
    }
}

/* Ops on single numbers count all of a row's as its width. */
static struct weir__op_shape flat(struct weir__op_shape shape) {
    shape.width *= shape.tokens;
    shape.tokens = 1;
    return shape;
}

static void norm_act(struct chain *chain, struct kernel_results *wanted) {
    struct weir__op_shape shape = chain->fused->shape;
    const double *x = chain->fused->in[0];
    shape.has_bias = false;
    const double *dropped = run_part(chain, WEIR__OP_dropout2d, shape, &x, 1)[0];
    double *const *norm = run_part(chain, WEIR__OP_instance_norm, shape, &dropped, 1);
    const double *normal = norm[0];
    double *const *y = run_part(chain, WEIR__OP_leaky_relu, flat(shape), &normal, 1);
    wanted->out[0] = y[0];
    wanted->out[1] = norm[1];
    wanted->out[2] = norm[2];
}

static void norm_act_grad(struct chain *chain, struct kernel_results *wanted) {
    struct weir__op_shape shape = chain->fused->shape;
    double *const *in = chain->fused->in; /* dy, y, x, mean, rstd */
    shape.has_bias = false;
    const double *leaky[] = {in[0], in[1]}, *x = in[2];
    const double *slope = run_part(chain, WEIR__OP_leaky_relu_grad, flat(shape), leaky, 2)[0];
    const double *dropped = run_part(chain, WEIR__OP_dropout2d, shape, &x, 1)[0];
    const double *norm[] = {slope, dropped, in[3], in[4]};
    const double *dx = run_part(chain, WEIR__OP_instance_norm_grad_input, shape, norm, 4)[0];
    wanted->out[0] = run_part(chain, WEIR__OP_dropout2d, shape, &dx, 1)[0];
}

static void add_norm(struct chain *chain, struct kernel_results *wanted) {
    struct weir__op_shape shape = chain->fused->shape;
    double *const *in = chain->fused->in; /* a, b, weight, bias */
    const double *terms[] = {in[0], in[1]};
    const double *sum = run_part(chain, WEIR__OP_add, flat(shape), terms, 2)[0];
    const double *norm[] = {sum, in[2], in[3]};
    double *const *out = run_part(chain, WEIR__OP_layer_norm, shape, norm, 3);
    for (int i = 0; i < 3; i++) wanted->out[i] = out[i];
    wanted->out[3] = chain->results[0].out[0];
}

static void add_norm_grad(struct chain *chain, struct kernel_results *wanted) {
    struct weir__op_shape shape = chain->fused->shape;
    double *const *in = chain->fused->in; /* dy, dsum, sum, mean, rstd, weight */
    const double *norm[] = {in[0], in[2], in[3], in[4], in[5]};
    const double *dx = run_part(chain, WEIR__OP_layer_norm_grad_input, shape, norm, 5)[0];
    const double *terms[] = {in[1], dx};
    wanted->out[0] = run_part(chain, WEIR__OP_add, flat(shape), terms, 2)[0];
}

static void drop_add(struct chain *chain, struct kernel_results *wanted) {
    struct weir__op_shape shape = chain->fused->shape;
    double *const *in = chain->fused->in; /* x, residual */
    const double *x = in[0];
    const double *terms[] = {in[1], run_part(chain, WEIR__OP_dropout, shape, &x, 1)[0]};
    wanted->out[0] = run_part(chain, WEIR__OP_add, shape, terms, 2)[0];
}

static void batch_act(struct chain *chain, struct kernel_results *wanted) {
    struct weir__op_shape shape = chain->fused->shape;
    double *const *in = chain->fused->in; /* x, weight, bias, running mean and variance, addend */
    const double *norm[] = {in[0], in[1], in[2], in[3], in[4]};
    double *const *out = run_part(chain, WEIR__OP_batch_norm, shape, norm, 5);
    const double *terms[] = {out[0], in[5]};
    for (int i = 0; i < 3; i++) wanted->out[i] = out[i];
    if (shape.adds) wanted->out[0] = run_part(chain, WEIR__OP_add, flat(shape), terms, 2)[0];
    const double *sum = wanted->out[0];
    if (shape.activates) wanted->out[0] = run_part(chain, WEIR__OP_relu, flat(shape), &sum, 1)[0];
}

static void batch_act_sums(struct chain *chain, struct kernel_results *wanted) {
    struct weir__op_shape shape = chain->fused->shape;
    double *const *in = chain->fused->in; /* dy, y, x, mean, variance */
    const double *relu[] = {in[0], in[1]};
    wanted->out[0] = run_part(chain, WEIR__OP_relu_grad, flat(shape), relu, 2)[0];
    const double *norm[] = {wanted->out[0], in[2], in[3], in[4]};
    double *const *sums = run_part(chain, WEIR__OP_batch_norm_sums, shape, norm, 4);
    wanted->out[1] = sums[0];
    wanted->out[2] = sums[1];
}

static void product_add(struct chain *chain, struct kernel_results *wanted) {
    struct weir__op_shape shape = chain->fused->shape, out = shape;
    double *const *in = chain->fused->in; /* x, weight, addend, bias */
    const double *product[] = {in[0], in[1], in[3]};
    out.width = shape.out;
    const double *terms[] = {in[2], run_part(chain, WEIR__OP_linear, shape, product, 3)[0]};
    wanted->out[0] = run_part(chain, WEIR__OP_add, flat(out), terms, 2)[0];
}

static void product_grad_add(struct chain *chain, struct kernel_results *wanted) {
    struct weir__op_shape shape = chain->fused->shape, in_shape = shape;
    double *const *in = chain->fused->in; /* dy, weight, addend */
    in_shape.width = shape.in;
    const double *terms[] = {
        in[2], run_part(chain, WEIR__OP_linear_grad_input, shape, (const double *const *)in, 2)[0]};
    wanted->out[0] = run_part(chain, WEIR__OP_add, flat(in_shape), terms, 2)[0];
}

static void head(struct chain *chain, struct kernel_results *wanted) {
    struct weir__op_shape shape = chain->fused->shape;
    double *const *in = chain->fused->in; /* x, weight, target, bias */
    const double *product[] = {in[0], in[1], in[3]};
    const double *logits[] = {run_part(chain, WEIR__OP_linear, shape, product, 3)[0], NULL};
    wanted->out[0] = run_part(chain, WEIR__OP_cross_entropy, shape, logits, 2)[0];
}

static void head_grad(struct chain *chain, struct kernel_results *wanted) {
    struct weir__op_shape shape = chain->fused->shape;
    const struct kernel_case *fused = chain->fused;
    double *const *in = fused->in; /* x, weight, target, bias */
    const double *product[] = {in[0], in[1], in[3]};
    const double *logits[] = {run_part(chain, WEIR__OP_linear, shape, product, 3)[0], NULL};
    double *const *out = run_part(chain, WEIR__OP_cross_entropy, shape, logits, 2);
    const double *loss[] = {logits[0], NULL, out[1], out[2]};
    const double *dlogits = run_part(chain, WEIR__OP_cross_entropy_grad, shape, loss, 4)[0];
    const double *of_input[] = {dlogits, in[1]}, *of_weight[] = {in[0], dlogits};
    wanted->out[0] = out[0];
    wanted->out[1] = run_part(chain, WEIR__OP_linear_grad_input, shape, of_input, 2)[0];
    if (shape.frozen) return;
    if (!fused->overwrite) chain->old = fused->old[2];
    wanted->out[2] = run_part(chain, WEIR__OP_linear_grad_weight, shape, of_weight, 2)[0];
    if (!shape.has_bias) return;
    if (!fused->overwrite) chain->old = fused->old[3];
    wanted->out[3] = run_part(chain, WEIR__OP_bias_grad, shape, &dlogits, 1)[0];
}

typedef void parts_fn(struct chain *chain, struct kernel_results *wanted);

static void check_backend(enum weir__op_code op, parts_fn *run_parts, enum kernel_backend backend) {
    for (int i = 0; i < CASES && !test_has_failed(); i++) {
        struct weir__op_shape shape = kernel_any_shape(op);
        struct kernel_case fused;
        struct kernel_results got, wanted = {.test = &fused};
        struct chain chain = {.fused = &fused, .backend = backend};
        if (op == WEIR__OP_linear_cross_entropy || op == WEIR__OP_linear_cross_entropy_grad)
            shape.threads = 1 + (uint32_t)(i % 2);
        kernel_case_init(&fused, &shape);
        if (kernel_is_bf16(backend)) kernel_case_narrow(&fused);
        fused.overwrite = !fused.operands.accumulates || test_random_below(2) == 0;
        EXPECT_STATUS(kernel_run(&fused, chain.backend, 0, &got), WEIR_OK);
        run_parts(&chain, &wanted);
        kernel_expect_same(&got, &wanted, kernel_backend_name(chain.backend));
        kernel_results_clean_up(&got);
        chain_clean_up(&chain);
        kernel_case_clean_up(&fused);
    }
}

static void check(enum weir__op_code op, parts_fn *run_parts) {
    static const enum kernel_backend on_cpu[] = {KERNEL_F32, KERNEL_F64, KERNEL_LEVEL_1_BF16,
                                                 KERNEL_LEVEL_3_BF16};
    for (size_t b = 0; b < WEIR__COUNT_OF(on_cpu); b++)
        if (kernel_of(op, on_cpu[b]) != NULL) check_backend(op, run_parts, on_cpu[b]);
    if (kernel_of(op, KERNEL_CUDA) == NULL) return;
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    check_backend(op, run_parts, KERNEL_CUDA);
    check_backend(op, run_parts, KERNEL_CUDA_BF16);
}

/* CUDA rounds less often here. */
static void test_dropout_add_has_its_parts_bits_on_cpus(void) {
    check_backend(WEIR__OP_dropout_add, drop_add, KERNEL_LEVEL_1_BF16);
    check_backend(WEIR__OP_dropout_add, drop_add, KERNEL_LEVEL_3_BF16);
}

static void test_instance_norm_act_has_its_parts_bits(void) {
    check(WEIR__OP_instance_norm_act, norm_act);
}

static void test_instance_norm_act_grad_has_its_parts_bits(void) {
    check(WEIR__OP_instance_norm_act_grad, norm_act_grad);
}

static void test_add_layer_norm_has_its_parts_bits(void) {
    check(WEIR__OP_add_layer_norm, add_norm);
}

static void test_add_layer_norm_grad_input_has_its_parts_bits(void) {
    check(WEIR__OP_add_layer_norm_grad_input, add_norm_grad);
}

static void test_batch_norm_act_has_its_parts_bits(void) {
    check(WEIR__OP_batch_norm_act, batch_act);
}

static void test_batch_norm_act_sums_has_its_parts_bits(void) {
    check(WEIR__OP_batch_norm_act_sums, batch_act_sums);
}

/* At every level that runs here. */
static void check_levels(enum weir__op_code op, parts_fn *run_parts) {
    static const enum kernel_backend levels[] = {
        KERNEL_F32,          KERNEL_F64,          KERNEL_LEVEL_1,
        KERNEL_LEVEL_2,      KERNEL_VECTOR,       KERNEL_LEVEL_1_BF16,
        KERNEL_LEVEL_2_BF16, KERNEL_LEVEL_3_BF16, KERNEL_LEVEL_4_BF16,
    };
    for (size_t b = 0; b < WEIR__COUNT_OF(levels); b++) check_backend(op, run_parts, levels[b]);
}

static void test_linear_add_has_its_parts_bits(void) {
    check_levels(WEIR__OP_linear_add, product_add);
}

static void test_linear_grad_input_add_has_its_parts_bits(void) {
    check_levels(WEIR__OP_linear_grad_input_add, product_grad_add);
}

static void test_linear_cross_entropy_has_its_parts_bits(void) {
    check_levels(WEIR__OP_linear_cross_entropy, head);
}

static void test_linear_cross_entropy_grad_has_its_parts_bits(void) {
    check_levels(WEIR__OP_linear_cross_entropy_grad, head_grad);
}

WEIR_TEST_SUITE(kernels_fused, TEST(dropout_add_has_its_parts_bits_on_cpus),
                TEST(instance_norm_act_has_its_parts_bits),
                TEST(instance_norm_act_grad_has_its_parts_bits),
                TEST(add_layer_norm_has_its_parts_bits),
                TEST(add_layer_norm_grad_input_has_its_parts_bits),
                TEST(batch_norm_act_has_its_parts_bits),
                TEST(batch_norm_act_sums_has_its_parts_bits), TEST(linear_add_has_its_parts_bits),
                TEST(linear_grad_input_add_has_its_parts_bits),
                TEST(linear_cross_entropy_has_its_parts_bits),
                TEST(linear_cross_entropy_grad_has_its_parts_bits))

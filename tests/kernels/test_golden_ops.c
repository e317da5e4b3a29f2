/* SPDX-License-Identifier: MIT */
/*
 * Goal: our numbers are PyTorch's. Method: golden/ops.safetensors (made by golden/make_ops.py)
 * holds inputs and f64 results of every op and of several steps of each optimizer; the f64
 * reference must meet them within 1e-12 of an output's largest number, f32 kernels within
 * kernel_tolerance().
 */
#include "harness.h"
#include "io/safetensors.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GOLDEN "tests/golden/ops.safetensors"
#define F64_TOLERANCE 1e-12

static struct weir__safetensors *open_golden(void) {
    struct weir_error error = {0};
    struct weir__io io = {.allocator = test_allocator(), .error = &error};
    struct weir__safetensors *file = NULL;
    if (!EXPECT_STATUS(weir__safetensors_open(&io, GOLDEN, NULL, &file), WEIR_OK))
        TEST_FAIL("%s", error.message);
    return file;
}

static const struct weir__safetensor *find(const struct weir__safetensors *file, const char *name,
                                           const char *part, int number) {
    char path[128];
    if (number >= 0)
        snprintf(path, sizeof path, "%s/%s%d", name, part, number);
    else
        snprintf(path, sizeof path, "%s/%s", name, part);
    return weir__safetensors_find(file, path);
}

/** A tensor's numbers as doubles; `count` must be its size. */
static void read_reals(const struct weir__safetensor *tensor, double *to, int64_t count) {
    CHECK(tensor != NULL);
    bool wide = tensor->dtype == WEIR_F64;
    CHECK(wide || tensor->dtype == WEIR_F32);
    CHECK_EQ_UINT(tensor->bytes, (size_t)count * weir_dtype_bytes(tensor->dtype));
    for (int64_t i = 0; i < count; i++) {
        float narrow;
        if (wide) {
            memcpy(&to[i], (const char *)tensor->data + 8 * i, 8);
        } else {
            memcpy(&narrow, (const char *)tensor->data + 4 * i, 4);
            to[i] = narrow;
        }
    }
}

static void read_integers(const struct weir__safetensor *tensor, int64_t *to, int64_t count) {
    CHECK(tensor != NULL);
    CHECK(tensor->dtype == WEIR_I64);
    CHECK_EQ_UINT(tensor->bytes, (size_t)count * sizeof(int64_t));
    memcpy(to, tensor->data, tensor->bytes);
}

/* ---- ops ---- */

static void read_places(const struct weir__safetensors *file, const char *name,
                        struct kernel_case *test) {
    int64_t places[64], rows = test->shape.rows;
    CHECK(2 * rows <= (int64_t)WEIR__COUNT_OF(places));
    read_integers(find(file, name, "places", -1), places, 2 * rows);
    for (int64_t r = 0; r < rows; r++) {
        test->sequence[r] = (uint32_t)places[r];
        test->place[r] = (uint32_t)places[rows + r];
    }
}

/** Fills the case that `name` (of `op`) describes, and what is wanted of it. */
static void read_case(const struct weir__safetensors *file, const char *name, enum weir__op_code op,
                      struct kernel_case *test, struct kernel_results *wanted) {
    enum { HALF_MOST = 32 };
    static float frequencies[HALF_MOST]; /* of one case at a time */
    int64_t n[30] = {0};
    double reals[4] = {0};
    read_integers(find(file, name, "shape", -1), n, 30);
    read_reals(find(file, name, "reals", -1), reals, 4);
    const struct weir__op_shape shape = {
        .op = op,
        .rows = n[0],
        .tokens = n[1],
        .in = n[2],
        .out = n[3],
        .width = n[4],
        .heads = n[5],
        .table = n[6],
        .ignore_index = n[7],
        .weight_in_out = n[8] != 0,
        .has_bias = n[9] != 0,
        .gelu_tanh = n[10] != 0,
        .eps = reals[0],
        .p = reals[1],
        .slope = reals[3],
        .window = {.groups = n[11],
                   .count_padding = n[12] != 0,
                   .adaptive = n[13] != 0,
                   .in = {n[14], n[15]},
                   .out = {n[16], n[17]},
                   .kernel = {n[18], n[19]},
                   .stride = {n[20], n[21]},
                   .padding = {n[22], n[23]}},
        .sees_all = n[24] != 0,
        .sources = n[25],
        .kv_heads = n[26],
        .reach = n[27],
        .adds = n[28] != 0,
        .activates = n[29] != 0,
        .frequencies = frequencies,
    };
    const struct weir__safetensor *given = find(file, name, "frequencies", -1);
    CHECK(given == NULL || given->bytes <= sizeof frequencies);
    if (given != NULL) memcpy(frequencies, given->data, given->bytes);
    kernel_case_empty(test, &shape);
    test->loss_weight = reals[2];
    kernel_results_init(wanted, test);
    for (int i = 0; i < KERNEL_INS; i++) {
        int64_t count = test->operands.in[i].count;
        if (test->index[i] != NULL) read_integers(find(file, name, "in", i), test->index[i], count);
        if (test->in[i] != NULL && count > 0)
            read_reals(find(file, name, "in", i), test->in[i], count);
    }
    for (int i = 0; i < KERNEL_OUTS; i++) {
        int64_t count = test->operands.out[i].count;
        if (wanted->out[i] != NULL) read_reals(find(file, name, "out", i), wanted->out[i], count);
        if (test->operands.out[i].kind == OPERAND_CACHE)
            read_reals(find(file, name, "cache", -1), test->old[i], count);
    }
    if (test->place != NULL) read_places(file, name, test);
}

/** Runs all cases of an op; returns how many there were. */
static int compare_op(const struct weir__safetensors *file, enum weir__op_code op,
                      enum kernel_backend backend) {
    int count = 0;
    for (;; count++) {
        char name[64];
        snprintf(name, sizeof name, "%s/%d", weir__op_name(op), count);
        if (find(file, name, "shape", -1) == NULL || test_has_failed()) return count;
        struct kernel_case test;
        struct kernel_results wanted, got;
        read_case(file, name, op, &test, &wanted);
        EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
        kernel_expect_near(&got, &wanted,
                           backend == KERNEL_F64 ? F64_TOLERANCE : kernel_tolerance(&wanted), name);
        kernel_results_clean_up(&got);
        kernel_results_clean_up(&wanted);
        kernel_case_clean_up(&test);
    }
}

static void compare_ops(enum kernel_backend backend) {
    struct weir__safetensors *file = open_golden();
    CHECK(file != NULL);
    for (enum weir__op_code op = 0; op < WEIR__OP_COUNT; op++) {
        if (kernel_is_the_users(op)) continue;
        /* Their masks are not PyTorch's; see test_kernel_dropout.c. */
        bool random =
            op == WEIR__OP_dropout || op == WEIR__OP_dropout_add || op == WEIR__OP_dropout2d;
        int count = compare_op(file, op, backend);
        /* See test_kernels_fused.c and test_kernel_dropout.c for their parts. */
        bool fused = op == WEIR__OP_linear_add || op == WEIR__OP_linear_grad_input_add ||
                     op == WEIR__OP_linear_cross_entropy ||
                     op == WEIR__OP_linear_cross_entropy_grad || op == WEIR__OP_bias_gelu ||
                     op == WEIR__OP_bias_gelu_grad || op == WEIR__OP_bias_dropout_add ||
                     op == WEIR__OP_add_layer_norm || op == WEIR__OP_add_layer_norm_grad_input;
        /* Copies at any dtype that PyTorch's numbers are compared in. */
        bool casts = op == WEIR__OP_narrow || op == WEIR__OP_widen;
        if (!random && !fused && !casts && count == 0)
            TEST_FAIL("no case of %s", weir__op_name(op));
    }
    weir__safetensors_close(file);
}

static void test_f64_reference_is_pytorchs(void) {
    compare_ops(KERNEL_F64);
}

static void test_f32_reference_is_pytorchs(void) {
    compare_ops(KERNEL_F32);
}

static void test_vector_kernels_are_pytorchs(void) {
    compare_ops(KERNEL_VECTOR);
}

static void test_fast_kernels_are_pytorchs(void) {
    compare_ops(KERNEL_FAST);
}

/* ---- optimizers ---- */

enum { COUNT = 37, STEPS = 6 };

/** A parameter under an optimizer, in f64 or f32. */
struct training {
    enum weir_dtype dtype;
    bool reference;
    double parameter[COUNT], gradient[COUNT], state[2][COUNT]; /* or floats */
};

static void set_numbers(const struct training *training, void *to, const double *from) {
    for (int i = 0; i < COUNT; i++) {
        if (training->dtype == WEIR_F64)
            ((double *)to)[i] = from[i];
        else
            ((float *)to)[i] = (float)from[i];
    }
}

static double number(const struct training *training, const void *from, int i) {
    return training->dtype == WEIR_F64 ? ((const double *)from)[i] : ((const float *)from)[i];
}

/** One step of the optimizer that `reals` describes, as make_ops.py lists them. The gradient that
 * is given is twice the wanted one, scaled back as clipping would. */
static void step(struct training *training, bool adamw, const double *reals, int number) {
    const struct weir__backend *backend =
        training->reference ? &weir__backend_reference : kernel_fast();
    struct weir_optimizer optimizer = {.kind = WEIR_OPTIMIZER_SGD,
                                       .momentum = reals[1],
                                       .weight_decay = reals[2],
                                       .nesterov = reals[3] != 0};
    if (adamw)
        optimizer = (struct weir_optimizer){.kind = WEIR_OPTIMIZER_ADAMW,
                                            .beta1 = reals[1],
                                            .beta2 = reals[2],
                                            .eps = reals[3],
                                            .weight_decay = reals[4]};
    const struct weir__update update = {.optimizer = &optimizer,
                                        .lr = reals[0],
                                        .number = (uint64_t)number + 1,
                                        .gradient_scale = 0.5,
                                        .parameters = training->parameter,
                                        .gradients = training->gradient,
                                        .first = training->state[0],
                                        .second = training->state[1]};
    const struct weir__span span = {.count = COUNT, .decays = true};
    const struct weir__spans spans = {&span, 1, NULL};
    EXPECT_STATUS(backend->flat[training->dtype]->update[optimizer.kind](&spans, &update), WEIR_OK);
}

/** Rounding adds up from step to step: a few roundings each, relative to the largest number. */
static double steps_tolerance(enum weir_dtype dtype, int steps) {
    return dtype == WEIR_F64 ? F64_TOLERANCE : 0x1p-24 * 8 * (1 + steps);
}

static void train(const struct weir__safetensors *file, const char *name, bool adamw,
                  struct training *training) {
    double reals[5] = {0}, start[COUNT], gradients[STEPS * COUNT], after[STEPS * COUNT];
    read_reals(find(file, name, "reals", -1), reals, adamw ? 5 : 4);
    read_reals(find(file, name, "start", -1), start, COUNT);
    read_reals(find(file, name, "gradients", -1), gradients, STEPS * COUNT);
    read_reals(find(file, name, "after", -1), after, STEPS * COUNT);
    CHECK_HELPERS();
    set_numbers(training, training->parameter, start);
    for (int i = 0; i < STEPS * COUNT; i++) gradients[i] *= 2;
    for (int s = 0; s < STEPS; s++) {
        set_numbers(training, training->gradient, &gradients[s * COUNT]);
        step(training, adamw, reals, s);
        for (int i = 0; i < COUNT; i++)
            CHECK_NEAR(number(training, training->parameter, i), after[s * COUNT + i],
                       4 * steps_tolerance(training->dtype, s));
    }
}

static void train_all(const char *algorithm, int count) {
    struct weir__safetensors *file = open_golden();
    CHECK(file != NULL);
    for (int i = 0; i < count; i++)
        for (int backend = 0; backend < 3; backend++) {
            char name[32];
            snprintf(name, sizeof name, "%s/%d", algorithm, i);
            struct training training = {.dtype = backend == 0 ? WEIR_F64 : WEIR_F32,
                                        .reference = backend == 1};
            train(file, name, strcmp(algorithm, "adamw") == 0, &training);
        }
    weir__safetensors_close(file);
}

static void test_adamw_is_pytorchs(void) {
    train_all("adamw", 3);
}

static void test_sgd_is_pytorchs(void) {
    train_all("sgd", 4);
}

WEIR_TEST_SUITE(golden_ops, TEST(f64_reference_is_pytorchs), TEST(f32_reference_is_pytorchs),
                TEST(vector_kernels_are_pytorchs), TEST(fast_kernels_are_pytorchs),
                TEST(adamw_is_pytorchs), TEST(sgd_is_pytorchs))

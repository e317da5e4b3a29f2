/* SPDX-License-Identifier: MIT */
/*
 * Goal: what net/kernel.h says beyond formulas: ignored targets, indices out of range, NaN and
 * large numbers, which kernel is chosen, the flat updates. Method: single cases; the updates
 * against their formulas in double over several steps.
 */
#include "harness.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const enum kernel_backend backends[] = {KERNEL_F64, KERNEL_F32, KERNEL_FAST};
#define FOR_BACKENDS(b) for (size_t b = 0; b < WEIR__COUNT_OF(backends); b++)

/* ---- ignored targets, indices out of range ---- */

static struct weir__op_shape loss_shape(enum weir__op_code op) {
    return (struct weir__op_shape){
        .op = op, .rows = 2, .tokens = 3, .width = 5, .ignore_index = -7};
}

static void test_ignored_targets_weigh_nothing(void) {
    FOR_BACKENDS(b)
    for (int weight = 0; weight < 2; weight++) {
        struct weir__op_shape forward = loss_shape(WEIR__OP_cross_entropy);
        struct weir__op_shape backward = loss_shape(WEIR__OP_cross_entropy_grad);
        struct kernel_case test, gradient;
        struct kernel_results got, dlogits;
        kernel_case_init(&test, &forward);
        kernel_case_init(&gradient, &backward);
        test.loss_weight = gradient.loss_weight = weight; /* 0: nothing in the whole mini-batch */
        for (int i = 0; i < 6; i++) test.index[1][i] = gradient.index[1][i] = -7;
        EXPECT_STATUS(kernel_run(&test, backends[b], 0, &got), WEIR_OK);
        EXPECT(got.out[0][0] == 0);
        EXPECT_STATUS(kernel_run(&gradient, backends[b], 0, &dlogits), WEIR_OK);
        for (int i = 0; i < 30; i++) EXPECT(dlogits.out[0][i] == 0);
        kernel_results_clean_up(&got);
        kernel_results_clean_up(&dlogits);
        kernel_case_clean_up(&test);
        kernel_case_clean_up(&gradient);
    }
}

/** The op fails with the index in its message. */
static void expect_index_error(enum weir__op_code op, int operand, int64_t index,
                               const char *part) {
    FOR_BACKENDS(b) {
        struct weir__op_shape shape = loss_shape(op);
        shape.in = shape.out = 5;
        struct kernel_case test;
        struct kernel_results got;
        struct weir_error error = {0};
        kernel_case_init(&test, &shape);
        test.index[operand][4] = index;
        test.error = &error;
        EXPECT_STATUS(kernel_run(&test, backends[b], 0, &got), WEIR_ERR_ARGUMENT);
        EXPECT_CONTAINS(error.message, part);
        kernel_results_clean_up(&got);
        kernel_case_clean_up(&test);
    }
}

static void test_indices_out_of_range_are_named(void) {
    expect_index_error(WEIR__OP_embedding, 0, 5, "token 4 of the micro-batch is 5");
    expect_index_error(WEIR__OP_embedding, 0, -1, "outside [0, 5)");
    expect_index_error(WEIR__OP_embedding_grad, 0, 5, "token 4 of the micro-batch is 5");
    expect_index_error(WEIR__OP_cross_entropy, 1, 5, "target 4 of the micro-batch is 5");
    expect_index_error(WEIR__OP_cross_entropy, 1, -8, "is -8, which is outside [0, 5)");
}

static void test_nan_passes_through(void) {
    static const enum weir__op_code ops[] = {WEIR__OP_relu,          WEIR__OP_gelu,
                                             WEIR__OP_add,           WEIR__OP_leaky_relu,
                                             WEIR__OP_scale,         WEIR__OP_silu,
                                             WEIR__OP_sigmoid,       WEIR__OP_tanh,
                                             WEIR__OP_softmax,       WEIR__OP_layer_norm,
                                             WEIR__OP_rms_norm,      WEIR__OP_attention,
                                             WEIR__OP_instance_norm, WEIR__OP_instance_norm_act,
                                             WEIR__OP_dropout2d,     WEIR__OP_bce_with_logits};
    FOR_BACKENDS(b)
    for (size_t i = 0; i < WEIR__COUNT_OF(ops); i++) {
        struct weir__op_shape shape = {
            .op = ops[i], .rows = 1, .tokens = 1, .width = 5, .heads = 1, .eps = 1e-5};
        struct kernel_case test;
        struct kernel_results got;
        kernel_case_init(&test, &shape);
        test.in[0][3] = NAN;
        EXPECT_STATUS(kernel_run(&test, backends[b], 0, &got), WEIR_OK);
        bool found = false;
        for (int64_t j = 0; j < test.operands.out[0].count; j++)
            found = found || isnan(got.out[0][j]);
        /* Attention's q: the only probability is 1 whatever the score, but lse shows it. */
        if (ops[i] == WEIR__OP_attention) found = found || isnan(got.out[1][0]);
        if (!EXPECT(found)) TEST_FAIL("%s", weir__op_name(ops[i]));
        kernel_results_clean_up(&got);
        kernel_case_clean_up(&test);
    }
}

/** What an op makes of one row of numbers. */
static void run_row(enum weir__op_code op, enum kernel_backend backend, int64_t count,
                    const double *a, const double *b, double *y) {
    struct weir__op_shape shape = {
        .op = op, .rows = 1, .tokens = 1, .width = count, .slope = 0.5, .eps = 1e-5};
    struct kernel_case test;
    struct kernel_results got;
    kernel_case_empty(&test, &shape);
    memcpy(test.in[0], a, (size_t)count * sizeof *a);
    if (b != NULL) memcpy(test.in[1], b, (size_t)count * sizeof *b);
    EXPECT_STATUS(kernel_run(&test, backend, 0, &got), WEIR_OK);
    memcpy(y, got.out[0], (size_t)test.operands.out[0].count * sizeof *y);
    kernel_results_clean_up(&got);
    kernel_case_clean_up(&test);
}

/** Squares that no float holds. */
static void test_an_rms_norm_of_large_numbers(void) {
    static const double x[] = {1e30, 0, -1e30, 0}, wanted[] = {1, 0, -1, 0};
    FOR_BACKENDS(b) {
        double y[4], root = 1 / sqrt(2);
        run_row(WEIR__OP_rms_norm, backends[b], 4, x, NULL, y);
        for (int i = 0; i < 4; i++) EXPECT_NEAR(y[i] * root, wanted[i], 0x1p-7);
    }
}

static void test_large_numbers_overflow_nothing(void) {
    static const double x[] = {-1000, 1000, -95, 95, 0}, one[] = {1, 1, 1, 1, 1}, none[5] = {0};
    FOR_BACKENDS(b) {
        double y[5];
        run_row(WEIR__OP_sigmoid, backends[b], 5, x, NULL, y);
        EXPECT(y[0] == 0 && y[1] == 1 && y[2] >= 0 && y[2] < 1e-38 && y[3] == 1 && y[4] == 0.5);
        run_row(WEIR__OP_tanh, backends[b], 5, x, NULL, y);
        EXPECT(y[0] == -1 && y[1] == 1 && y[4] == 0);
        run_row(WEIR__OP_silu, backends[b], 5, x, NULL, y);
        EXPECT(y[0] == 0 && y[1] == 1000 && y[3] == 95 && y[4] == 0);
        run_row(WEIR__OP_silu_grad, backends[b], 5, one, x, y);
        EXPECT(fabs(y[0]) < 1e-30 && y[1] == 1 && y[4] == 0.5);
        run_row(WEIR__OP_softmax, backends[b], 5, x, NULL, y);
        EXPECT(y[0] == 0 && y[1] == 1 && y[3] == 0);
        run_row(WEIR__OP_bce_with_logits, backends[b], 2, x, none, y);
        EXPECT_NEAR(y[0], 1000, 1e-3);
        run_row(WEIR__OP_bce_with_logits, backends[b], 2, x, one, y);
        EXPECT_NEAR(y[0], 1000, 1e-3);
        run_row(WEIR__OP_bce_with_logits_grad, backends[b], 5, x, one, y);
        EXPECT(y[0] == -1 && y[1] == 0 && y[4] == -0.5);
    }
}

static void test_relus_have_their_lower_slope_at_zero(void) {
    static const double zero[] = {0, -0.0, 2}, dy[] = {3, 3, 3};
    FOR_BACKENDS(b) {
        double dx[3];
        run_row(WEIR__OP_relu_grad, backends[b], 3, dy, zero, dx);
        EXPECT(dx[0] == 0 && dx[1] == 0 && dx[2] == 3);
        run_row(WEIR__OP_leaky_relu_grad, backends[b], 3, dy, zero, dx);
        EXPECT(dx[0] == 1.5 && dx[1] == 1.5 && dx[2] == 3);
    }
}

/* ---- which kernel ---- */

static void test_every_op_has_a_kernel(void) {
    for (enum weir__op_code op = 0; op < WEIR__OP_COUNT; op++) {
        if (kernel_is_the_users(op)) continue;
        CHECK_EQ_STR(kernel_fast()->kernel(op, WEIR_F64)->library, "reference");
        CHECK_EQ_STR(weir__backend_reference.kernel(op, WEIR_F32)->library, "reference");
        CHECK(kernel_fast()->kernel(op, WEIR_F64)->run != NULL);
        CHECK(weir__backend_reference.kernel(op, WEIR_F32)->run != NULL);
        CHECK(kernel_fast()->kernel(op, WEIR_F32)->run != NULL);
        CHECK((kernel_fast()->kernel(op, WEIR_BF16) == NULL) == kernel_lacks_vector(op));
    }
    CHECK_EQ_STR(weir__op_name(WEIR__OP_layer_norm_grad_input), "layer_norm_grad_input");
}

/** The list of exceptions is exact. */
static void test_every_op_not_listed_has_a_vector_kernel(void) {
    for (enum weir__op_code op = 0; op < WEIR__OP_COUNT; op++) {
        if (kernel_is_the_users(op)) continue;
        if (!EXPECT((kernel_level(KERNEL_VECTOR)->rows[op].run == NULL) == kernel_lacks_vector(op)))
            TEST_FAIL("%s: see kernel_lacks_vector", weir__op_name(op));
    }
}

/* ---- teams ---- */

/** Whoever shares the work: the same bits as alone. */
static void expect_one_result(const struct weir__op_shape *shape, bool overwrite) {
    struct kernel_case test;
    struct kernel_results wanted, alone, shared;
    kernel_case_init(&test, shape);
    test.overwrite = overwrite;
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
    EXPECT_STATUS(kernel_run(&test, KERNEL_FAST, 0, &alone), WEIR_OK);
    kernel_expect_near(&alone, &wanted, kernel_tolerance(&wanted), "one thread");
    for (uint32_t threads = 2; threads <= 5; threads++) {
        test.shape.threads = threads;
        EXPECT_STATUS(kernel_run(&test, KERNEL_FAST, 64, &shared), WEIR_OK);
        kernel_expect_same(&shared, &alone, "several threads");
        kernel_results_clean_up(&shared);
    }
    kernel_results_clean_up(&alone);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

static void test_threads_are_not_in_the_bits_of_products(void) {
    static const int64_t sides[] = {5, 33, 96, 130, 257, 515, 1024};
    static const enum weir__op_code ops[] = {WEIR__OP_linear, WEIR__OP_linear_grad_input,
                                             WEIR__OP_linear_grad_weight, WEIR__OP_linear_add,
                                             WEIR__OP_linear_grad_input_add};
    enum { COUNT = WEIR__COUNT_OF(sides), OPS = WEIR__COUNT_OF(ops) };
    for (int i = 0; i < 8 * OPS && !test_has_failed(); i++) {
        struct weir__op_shape shape = {.op = ops[i % OPS],
                                       .rows = 3,
                                       .tokens = 1 + (int64_t)test_random_below(200),
                                       .in = sides[test_random_below(COUNT)],
                                       .out = sides[test_random_below(COUNT)],
                                       .has_bias = test_random_below(2) == 0,
                                       .weight_in_out = test_random_below(2) == 0};
        expect_one_result(&shape, test_random_below(2) == 0);
    }
}

static void test_threads_are_not_in_the_bits_of_tables_and_sums(void) {
    static const enum weir__op_code ops[] = {
        WEIR__OP_embedding,     WEIR__OP_embedding_grad,         WEIR__OP_position_grad,
        WEIR__OP_cross_entropy, WEIR__OP_layer_norm_grad_weight, WEIR__OP_rms_norm_grad_weight};
    for (int i = 0; i < 18 && !test_has_failed(); i++) {
        int64_t width = 90 + (int64_t)test_random_below(400);
        struct weir__op_shape shape = {.op = ops[i % (int)WEIR__COUNT_OF(ops)],
                                       .rows = 4,
                                       .tokens = 150 + (int64_t)test_random_below(150),
                                       .in = 1 + (int64_t)test_random_below(700),
                                       .out = width,
                                       .width = width,
                                       .table = 300,
                                       .eps = 1e-5,
                                       .ignore_index = 1,
                                       .has_bias = true};
        expect_one_result(&shape, test_random_below(2) == 0);
    }
}

/* ---- flat arrays ---- */

enum { COUNT_MAX = 100, STEPS = 5 };
#define SCALE 0.7 /* of gradients */

/** Of an array of `count` numbers of a dtype. */
struct flat {
    enum weir_dtype dtype;
    int count;
    union {
        float narrow[COUNT_MAX];
        double wide[COUNT_MAX];
    } parameter, gradient, first, second;
};

#define GET(flat, member, i)                                                                       \
    ((flat)->dtype == WEIR_F64 ? (flat)->member.wide[i] : (double)(flat)->member.narrow[i])
#define SET(flat, member, i, value)                                                                \
    do {                                                                                           \
        if ((flat)->dtype == WEIR_F64)                                                             \
            (flat)->member.wide[i] = (value);                                                      \
        else                                                                                       \
            (flat)->member.narrow[i] = (float)(value);                                             \
    } while (0)

static void flat_init(struct flat *flat, enum weir_dtype dtype, int count) {
    memset(flat, 0, sizeof *flat);
    flat->dtype = dtype;
    flat->count = count;
    for (int i = 0; i < count; i++) SET(flat, parameter, i, (float)(test_random_unit() - 0.5));
}

static void new_gradient(struct flat *flat) {
    for (int i = 0; i < flat->count; i++) SET(flat, gradient, i, (float)(test_random_unit() - 0.5));
}

/** A few roundings in each of STEPS steps of numbers below 4. */
static double flat_tolerance(enum weir_dtype dtype) {
    return 4 * STEPS * 8 * (dtype == WEIR_F64 ? 0x1p-53 : 0x1p-24);
}

/** w, m and v of one number under AdamW, from the paper's formulas. */
static void adamw_by_hand(const struct weir_optimizer *o, uint64_t number, double g, double *w,
                          double *m, double *v) {
    g *= SCALE;
    *m = o->beta1 * *m + (1 - o->beta1) * g;
    *v = o->beta2 * *v + (1 - o->beta2) * g * g;
    double m_hat = *m / (1 - pow(o->beta1, (double)number));
    double v_hat = *v / (1 - pow(o->beta2, (double)number));
    *w = *w - o->lr * o->weight_decay * *w - o->lr * m_hat / (sqrt(v_hat) + o->eps);
}

static void update(struct flat *flat, const struct weir_optimizer *optimizer, bool reference,
                   uint64_t number) {
    const struct weir__backend *backend = reference ? &weir__backend_reference : kernel_fast();
    const struct weir__update update = {.optimizer = optimizer,
                                        .lr = optimizer->lr,
                                        .number = number,
                                        .gradient_scale = SCALE,
                                        .parameters = &flat->parameter,
                                        .gradients = &flat->gradient,
                                        .first = &flat->first,
                                        .second = &flat->second};
    const struct weir__span span = {.count = (uint64_t)flat->count, .decays = true};
    const struct weir__spans spans = {&span, 1, NULL};
    EXPECT_STATUS(backend->flat[flat->dtype]->update[optimizer->kind](&spans, &update), WEIR_OK);
}

static void check_adamw(enum weir_dtype dtype, bool reference, int count) {
    const struct weir_optimizer optimizer = {.kind = WEIR_OPTIMIZER_ADAMW,
                                             .lr = 0.03,
                                             .beta1 = 0.8,
                                             .beta2 = 0.95,
                                             .eps = 1e-6,
                                             .weight_decay = 0.1};
    struct flat flat;
    double w[COUNT_MAX], m[COUNT_MAX] = {0}, v[COUNT_MAX] = {0};
    flat_init(&flat, dtype, count);
    for (int i = 0; i < count; i++) w[i] = GET(&flat, parameter, i);
    for (uint64_t number = 1; number <= STEPS; number++) {
        new_gradient(&flat);
        update(&flat, &optimizer, reference, number);
        for (int i = 0; i < count; i++) {
            adamw_by_hand(&optimizer, number, GET(&flat, gradient, i), &w[i], &m[i], &v[i]);
            CHECK_NEAR(GET(&flat, parameter, i), w[i], flat_tolerance(dtype));
            CHECK_NEAR(GET(&flat, first, i), m[i], flat_tolerance(dtype));
            CHECK_NEAR(GET(&flat, second, i), v[i], flat_tolerance(dtype));
        }
    }
}

static void check_sgd(enum weir_dtype dtype, bool reference, int count, double momentum,
                      bool nesterov) {
    const struct weir_optimizer optimizer = {.kind = WEIR_OPTIMIZER_SGD,
                                             .lr = 0.1,
                                             .momentum = momentum,
                                             .weight_decay = 0.05,
                                             .nesterov = nesterov};
    struct flat flat;
    double w[COUNT_MAX], b[COUNT_MAX] = {0};
    flat_init(&flat, dtype, count);
    for (int i = 0; i < count; i++) w[i] = GET(&flat, parameter, i);
    for (uint64_t number = 1; number <= STEPS; number++) {
        new_gradient(&flat);
        update(&flat, &optimizer, reference, number);
        for (int i = 0; i < count; i++) {
            double g = SCALE * GET(&flat, gradient, i) + 0.05 * w[i];
            b[i] = number == 1 ? g : momentum * b[i] + g;
            w[i] -= 0.1 * (momentum == 0 ? g : nesterov ? g + momentum * b[i] : b[i]);
            CHECK_NEAR(GET(&flat, parameter, i), w[i], flat_tolerance(dtype));
        }
    }
}

static const int counts[] = {1, 2, 15, 16, 17, 31, 100};

static void test_adamw_follows_its_formulas(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(counts); i++) {
        check_adamw(WEIR_F64, false, counts[i]);
        check_adamw(WEIR_F32, true, counts[i]);
        check_adamw(WEIR_F32, false, counts[i]);
    }
}

static void test_sgd_follows_its_formulas(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(counts); i++)
        for (int kind = 0; kind < 3; kind++) {
            double momentum = kind == 0 ? 0 : 0.9;
            check_sgd(WEIR_F64, false, counts[i], momentum, kind == 2);
            check_sgd(WEIR_F32, true, counts[i], momentum, kind == 2);
            check_sgd(WEIR_F32, false, counts[i], momentum, kind == 2);
        }
}

static double square_sum(const struct weir__backend *backend, enum weir_dtype dtype,
                         const void *data, uint64_t count) {
    const struct weir__span span = {.count = count};
    const struct weir__spans spans = {&span, 1, NULL};
    double sum = -1, pieces[8];
    const struct weir__flat_calls *flat = backend->flat[dtype];
    EXPECT(flat->squares_workspace == NULL || flat->squares_workspace(&spans) <= sizeof pieces);
    EXPECT_STATUS(flat->squares(&spans, data, &sum, pieces), WEIR_OK);
    return sum;
}

static void check_square_sum(float *narrow, double *wide, uint64_t count) {
    double sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        narrow[i] = (float)(test_random_unit() * 1e20); /* its square is none of f32's */
        wide[i] = narrow[i];
        sum += wide[i] * wide[i];
    }
    double tolerance = sum * 0x1p-53 * (4 + (double)count);
    EXPECT_NEAR(square_sum(kernel_fast(), WEIR_F32, narrow, count), sum, tolerance);
    EXPECT_NEAR(square_sum(&weir__backend_reference, WEIR_F32, narrow, count), sum, tolerance);
    EXPECT_NEAR(square_sum(kernel_fast(), WEIR_F64, wide, count), sum, tolerance);
}

static void test_square_sums_are_in_double(void) {
    enum { COUNT = 10007, LARGE = 400003 };
    float *narrow = weir__acquire(test_allocator(), LARGE, sizeof(float));
    double *wide = weir__acquire(test_allocator(), LARGE, sizeof(double));
    for (uint64_t count = 0; count < 70; count++) check_square_sum(narrow, wide, count);
    check_square_sum(narrow, wide, COUNT);
    check_square_sum(narrow, wide, LARGE);
    weir__release(test_allocator(), narrow, LARGE, sizeof(float));
    weir__release(test_allocator(), wide, LARGE, sizeof(double));
}

/* Long spans are cut into pieces that a team shares: each number once, those between spans never.
 */
static void test_updates_reach_each_number_of_long_spans_once(void) {
    enum { COUNT = 400003 };
    static const struct weir__span spans[] = {{.first = 5, .count = 65536, .decays = false},
                                              {.first = 65550, .count = 0},
                                              {.first = 65550, .count = 334000},
                                              {.first = 399999, .count = 4}};
    const struct weir_optimizer optimizer = {.kind = WEIR_OPTIMIZER_SGD, .lr = 1};
    float *w = weir__acquire(test_allocator(), COUNT, sizeof *w);
    float *g = weir__acquire(test_allocator(), COUNT, sizeof *g);
    for (int i = 0; i < COUNT; i++) {
        w[i] = 0;
        g[i] = (float)i;
    }
    const struct weir__update update = {.optimizer = &optimizer,
                                        .lr = 1,
                                        .number = 1,
                                        .gradient_scale = 1,
                                        .parameters = w,
                                        .gradients = g};
    const struct weir__spans all = {spans, WEIR__COUNT_OF(spans), NULL};
    EXPECT_STATUS(kernel_fast()->flat[WEIR_F32]->update[optimizer.kind](&all, &update), WEIR_OK);
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        bool inside = false;
        for (size_t s = 0; s < WEIR__COUNT_OF(spans); s++)
            inside |= i >= (int)spans[s].first && i < (int)(spans[s].first + spans[s].count);
        wrong += w[i] != (inside ? -(float)i : 0);
    }
    CHECK_EQ_INT(wrong, 0);
    weir__release(test_allocator(), w, COUNT, sizeof *w);
    weir__release(test_allocator(), g, COUNT, sizeof *g);
}

static void test_accumulate_adds(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(counts); i++)
        for (int wide = 0; wide < 2; wide++) {
            struct flat flat;
            double sum[COUNT_MAX];
            flat_init(&flat, wide ? WEIR_F64 : WEIR_F32, counts[i]);
            new_gradient(&flat);
            for (int j = 0; j < counts[i]; j++) {
                double a = GET(&flat, parameter, j), b = GET(&flat, gradient, j);
                sum[j] = wide ? a + b : (float)a + (float)b;
            }
            EXPECT_STATUS(kernel_fast()->flat[flat.dtype]->accumulate(
                              NULL, &flat.parameter, &flat.gradient, (uint64_t)counts[i]),
                          WEIR_OK);
            for (int j = 0; j < counts[i]; j++) CHECK(GET(&flat, parameter, j) == sum[j]);
        }
}

WEIR_TEST_SUITE(kernel_cases,

                TEST(ignored_targets_weigh_nothing), TEST(indices_out_of_range_are_named),
                TEST(nan_passes_through), TEST(an_rms_norm_of_large_numbers),
                TEST(large_numbers_overflow_nothing), TEST(relus_have_their_lower_slope_at_zero),
                TEST(every_op_has_a_kernel), TEST(every_op_not_listed_has_a_vector_kernel),
                TEST(threads_are_not_in_the_bits_of_products),
                TEST(threads_are_not_in_the_bits_of_tables_and_sums),
                TEST(adamw_follows_its_formulas),
                TEST(updates_reach_each_number_of_long_spans_once), TEST(sgd_follows_its_formulas),
                TEST(square_sums_are_in_double), TEST(accumulate_adds))

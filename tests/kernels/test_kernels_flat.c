/* SPDX-License-Identifier: MIT */
/*
 * Goal: what CUDA does to flat arrays is what the CPU's reference does, bit for bit where it can
 * be, and nothing beside the spans. Method: the kernels' emulation, driven through the fake driver,
 * on ragged spans, aligned and not, whole tiles and parts of one; numbers between spans must stay.
 */
#include "harness.h"
#include "cuda/kernel_gpu.h"
#include "net/backend.h"
#include "net/cuda/flat_arguments.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define NO_DRIVER "the fake CUDA driver was not built"
enum { STEPS = 3, SPANS_MAX = 300, NUMBERS_MAX = 40000 };

/** Arrays of a stage on the host, twice: what the GPU makes, and what is wanted. */
struct arrays {
    uint32_t count;
    uint64_t numbers;
    struct weir__span spans[SPANS_MAX];
    float w[NUMBERS_MAX], g[NUMBERS_MAX], m[NUMBERS_MAX], v[NUMBERS_MAX];
    float wanted_w[NUMBERS_MAX], wanted_m[NUMBERS_MAX], wanted_v[NUMBERS_MAX];
};

/* Spans with gaps; every third begins anywhere, the others as a stage's parameters do. */
static struct arrays *arrays_new(const uint64_t *sizes, uint32_t kinds, uint32_t count) {
    struct arrays *arrays = weir__acquire(test_allocator(), 1, sizeof *arrays);
    memset(arrays, 0, sizeof *arrays);
    arrays->count = count;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = arrays->numbers + test_random_below(9);
        if (i % 3 != 0) at = (at + 15) / 16 * 16;
        arrays->spans[i] = (struct weir__span){
            .first = at, .count = sizes[i % kinds], .result = count - 1 - i, .decays = i % 2};
        arrays->numbers = at + sizes[i % kinds];
    }
    arrays->numbers += 7;
    assert(arrays->numbers <= NUMBERS_MAX);
    for (uint64_t i = 0; i < arrays->numbers; i++) {
        arrays->w[i] = (float)(2 * test_random_unit() - 1);
        arrays->g[i] = (float)(2 * test_random_unit() - 1);
        arrays->m[i] = (float)(2 * test_random_unit() - 1);
        arrays->v[i] = (float)test_random_unit();
    }
    return arrays;
}

static void arrays_destroy(struct arrays *arrays) {
    weir__release(test_allocator(), arrays, 1, sizeof *arrays);
}

static const uint64_t ragged[] = {1, 4096, 5, 8192, 0, 4100, 1023, 64, 9001, 3};
enum { KINDS = WEIR__COUNT_OF(ragged) };

/** The arrays and a verdict on a GPU. */
struct trial {
    struct kernel_gpu gpu;
    struct arrays *arrays;
    struct weir_verdict verdict;
};

static bool trial_init(struct trial *trial, struct arrays *arrays, struct weir_verdict verdict) {
    size_t bytes = arrays->numbers * sizeof(float);
    trial->arrays = arrays;
    trial->verdict = verdict;
    if (!kernel_gpu_init(&trial->gpu)) return false;
    kernel_gpu_add(&trial->gpu, arrays->w, bytes);
    kernel_gpu_add(&trial->gpu, arrays->g, bytes);
    kernel_gpu_add(&trial->gpu, arrays->m, bytes);
    kernel_gpu_add(&trial->gpu, arrays->v, bytes);
    kernel_gpu_add(&trial->gpu, &trial->verdict, sizeof trial->verdict);
    kernel_gpu_upload(&trial->gpu);
    memcpy(arrays->wanted_w, arrays->w, bytes);
    memcpy(arrays->wanted_m, arrays->m, bytes);
    memcpy(arrays->wanted_v, arrays->v, bytes);
    return true;
}

static void expect_wanted(const struct arrays *arrays) {
    size_t bytes = arrays->numbers * sizeof(float);
    EXPECT_EQ_BYTES(arrays->w, arrays->wanted_w, bytes);
    EXPECT_EQ_BYTES(arrays->m, arrays->wanted_m, bytes);
    EXPECT_EQ_BYTES(arrays->v, arrays->wanted_v, bytes);
}

/* ---- updates ---- */

/** Updates from the first to the last, on both. */
static void update_steps(struct trial *trial, const struct weir_optimizer *optimizer) {
    struct arrays *arrays = trial->arrays;
    struct kernel_gpu *gpu = &trial->gpu;
    const struct weir__spans spans = {arrays->spans, arrays->count, gpu->stream};
    struct weir__update there = {.optimizer = optimizer,
                                 .lr = optimizer->lr,
                                 .gradient_scale = -1,
                                 .verdict = kernel_gpu_at(gpu, &trial->verdict),
                                 .parameters = kernel_gpu_at(gpu, arrays->w),
                                 .gradients = kernel_gpu_at(gpu, arrays->g),
                                 .first = kernel_gpu_at(gpu, arrays->m),
                                 .second = kernel_gpu_at(gpu, arrays->v)};
    struct weir__update here = {.optimizer = optimizer,
                                .lr = optimizer->lr,
                                .gradient_scale = trial->verdict.gradient_scale,
                                .parameters = arrays->wanted_w,
                                .gradients = arrays->g,
                                .first = arrays->wanted_m,
                                .second = arrays->wanted_v};
    for (uint64_t number = 1; number <= STEPS; number++) {
        here.number = there.number = number;
        EXPECT_STATUS(weir__backend_cuda.flat[WEIR_F32]->update[optimizer->kind](&spans, &there),
                      WEIR_OK);
        if (trial->verdict.applies)
            EXPECT_STATUS(
                weir__backend_reference.flat[WEIR_F32]->update[optimizer->kind](&spans, &here),
                WEIR_OK);
    }
    EXPECT_STATUS(kernel_gpu_download(gpu), WEIR_OK);
    expect_wanted(arrays);
}

static void check_adamw(const uint64_t *sizes, uint32_t kinds, uint32_t count,
                        struct weir_verdict verdict) {
    const struct weir_optimizer optimizer = {.kind = WEIR_OPTIMIZER_ADAMW,
                                             .lr = 1e-2,
                                             .beta1 = 0.9,
                                             .beta2 = 0.99,
                                             .eps = 1e-8,
                                             .weight_decay = 0.1};
    struct trial trial;
    struct arrays *arrays = arrays_new(sizes, kinds, count);
    if (trial_init(&trial, arrays, verdict)) update_steps(&trial, &optimizer);
    kernel_gpu_clean_up(&trial.gpu);
    arrays_destroy(arrays);
}

static void test_adamw_has_the_references_bits(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    check_adamw(ragged, KINDS, KINDS, (struct weir_verdict){.gradient_scale = 0.3, .applies = 1});
    check_adamw(ragged, 1, 1, (struct weir_verdict){.gradient_scale = 1, .applies = 1});
}

static void test_a_refused_step_changes_nothing(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    check_adamw(ragged, KINDS, KINDS, (struct weir_verdict){.gradient_scale = 1, .applies = 0});
}

static void test_more_spans_than_a_launch_takes(void) {
    static const uint64_t small[] = {17, 1, 30};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    CHECK(SPANS_MAX > 2 * WEIR__CUDA_SPANS);
    check_adamw(small, 3, SPANS_MAX, (struct weir_verdict){.gradient_scale = 1, .applies = 1});
}

static void check_sgd(double momentum, bool nesterov, bool applies) {
    const struct weir_optimizer optimizer = {.kind = WEIR_OPTIMIZER_SGD,
                                             .lr = 0.1,
                                             .momentum = momentum,
                                             .weight_decay = 0.2,
                                             .nesterov = nesterov};
    struct trial trial;
    struct arrays *arrays = arrays_new(ragged, KINDS, KINDS);
    if (trial_init(&trial, arrays,
                   (struct weir_verdict){.gradient_scale = 0.7, .applies = applies}))
        update_steps(&trial, &optimizer);
    kernel_gpu_clean_up(&trial.gpu);
    arrays_destroy(arrays);
}

static void test_sgd_has_the_references_bits(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    check_sgd(0, false, true);
    check_sgd(0.9, false, true);
    check_sgd(0.9, true, true);
    check_sgd(0.9, true, false);
}

/* ---- sums ---- */

/* In long double, rounded once. */
static double squares_of(const struct arrays *arrays, const struct weir__span *span) {
    long double sum = 0;
    for (uint64_t i = 0; i < span->count; i++) {
        long double x = arrays->g[span->first + i];
        sum += x * x;
    }
    return (double)sum;
}

static void sum_squares(struct kernel_gpu *gpu, struct arrays *arrays, double *squares) {
    const struct weir__flat_calls *calls = weir__backend_cuda.flat[WEIR_F32];
    struct weir__spans spans = {arrays->spans, arrays->count, NULL};
    size_t bytes = calls->squares_workspace(&spans);
    char *workspace = weir__acquire(test_allocator(), bytes, 1);
    memset(workspace, 0xA5, bytes);
    if (kernel_gpu_init(gpu)) {
        kernel_gpu_add(gpu, arrays->g, arrays->numbers * sizeof(float));
        kernel_gpu_add(gpu, squares, SPANS_MAX * sizeof *squares);
        kernel_gpu_add(gpu, workspace, bytes);
        kernel_gpu_upload(gpu);
        spans.stream = gpu->stream;
        EXPECT_STATUS(calls->squares(&spans, kernel_gpu_at(gpu, arrays->g),
                                     kernel_gpu_at(gpu, squares), kernel_gpu_at(gpu, workspace)),
                      WEIR_OK);
        EXPECT_STATUS(kernel_gpu_download(gpu), WEIR_OK);
    }
    kernel_gpu_clean_up(gpu);
    weir__release(test_allocator(), workspace, bytes, 1);
}

static void check_squares(const uint64_t *sizes, uint32_t kinds, uint32_t count) {
    double squares[SPANS_MAX];
    struct arrays *arrays = arrays_new(sizes, kinds, count);
    struct kernel_gpu gpu;
    for (int i = 0; i < SPANS_MAX; i++) squares[i] = -1;
    sum_squares(&gpu, arrays, squares);
    for (uint32_t i = 0; i < count; i++) {
        double wanted = squares_of(arrays, &arrays->spans[i]);
        EXPECT_NEAR(squares[arrays->spans[i].result], wanted, wanted * 0x1p-50);
    }
    for (uint32_t i = count; i < SPANS_MAX; i++) EXPECT_NEAR(squares[i], -1, 0);
    arrays_destroy(arrays);
}

static void test_square_sums_are_near_exact(void) {
    static const uint64_t small[] = {17, 1, 30};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    check_squares(ragged, KINDS, KINDS);
    check_squares(small, 3, 2 * WEIR__CUDA_SPANS + 1);
}

/* The same numbers at another place, aligned otherwise. */
static void test_square_sums_depend_on_the_count_alone(void) {
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    enum { COUNT = 9001 };
    double squares[SPANS_MAX] = {0};
    struct kernel_gpu gpu;
    struct arrays *arrays = arrays_new(ragged, 1, 1);
    for (uint32_t i = 0; i < 3; i++) {
        arrays->spans[i] =
            (struct weir__span){.first = (COUNT + 3) * i + i, .count = COUNT, .result = i};
        for (uint64_t k = 0; k < COUNT; k++)
            arrays->g[arrays->spans[i].first + k] = (float)sin((double)k);
    }
    arrays->count = 3;
    arrays->numbers = arrays->spans[2].first + COUNT;
    sum_squares(&gpu, arrays, squares);
    EXPECT_EQ_BYTES(&squares[1], &squares[0], sizeof squares[0]);
    EXPECT_EQ_BYTES(&squares[2], &squares[0], sizeof squares[0]);
    arrays_destroy(arrays);
}

static void test_accumulate_adds(void) {
    static const uint64_t one[] = {9001};
    if (!kernel_gpu_is_there()) SKIP(NO_DRIVER);
    for (uint64_t shift = 0; shift < 2 && !test_has_failed(); shift++) {
        struct arrays *arrays = arrays_new(one, 1, 1);
        struct trial trial;
        if (trial_init(&trial, arrays, (struct weir_verdict){.applies = 1})) {
            struct kernel_gpu *gpu = &trial.gpu;
            float *w = kernel_gpu_at(gpu, arrays->w), *g = kernel_gpu_at(gpu, arrays->g);
            EXPECT_STATUS(
                weir__backend_cuda.flat[WEIR_F32]->accumulate(gpu->stream, w + shift, g, one[0]),
                WEIR_OK);
            EXPECT_STATUS(kernel_gpu_download(gpu), WEIR_OK);
            for (uint64_t i = 0; i < one[0]; i++) arrays->wanted_w[i + shift] += arrays->g[i];
            expect_wanted(arrays);
        }
        kernel_gpu_clean_up(&trial.gpu);
        arrays_destroy(arrays);
    }
}

WEIR_TEST_SUITE(kernels_flat, TEST(adamw_has_the_references_bits),
                TEST(a_refused_step_changes_nothing), TEST(more_spans_than_a_launch_takes),
                TEST(sgd_has_the_references_bits), TEST(square_sums_are_near_exact),
                TEST(square_sums_depend_on_the_count_alone), TEST(accumulate_adds))

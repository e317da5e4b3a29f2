/* SPDX-License-Identifier: MIT */
/*
 * Goal: what cuBLASLt is asked for is the product that numerics.h says, by one algorithm for all
 * row counts, and nothing is left behind. Method: in the library's place stands one of this file's,
 * which keeps to its rules (matrices by columns, descriptors of attributes) and computes on the
 * host; the library itself needs a GPU.
 */
#include "harness.h"
#include "net/cuda/cublaslt.h"

#include <stdlib.h>
#include <string.h>

/* ---- a library by columns ---- */

struct layout {
    int type;
    int64_t rows, columns, stride;
};

struct desc {
    int32_t transposed[2]; /* A, B */
    uint32_t epilogue;
    const float *bias;
};

struct preference {
    uint64_t workspace;
    uint32_t scheme, alignment[4];
};

/* What was asked, and what it says. */
static struct {
    int alive; /* descriptors */
    struct preference preference;
    int64_t heuristic_rows; /* of the last question */
    int heuristics, checks;
    bool none_unsplit; /* there is no algorithm of the scheme that splits no sum */
    int check_result;
    size_t check_workspace;
    int fail_at, calls;        /* the fail_at-th call fails */
    uint64_t algorithm, parts; /* of the last product */
    size_t workspace;
} lt;

static int enter(void) {
    return ++lt.calls == lt.fail_at ? 14 : 0;
}

static int make(void **to, size_t bytes) {
    int result = enter();
    if (result != 0) return result;
    *to = calloc(1, bytes);
    lt.alive++;
    return 0;
}

static int forget(void *made) {
    free(made);
    lt.alive--;
    return 0;
}

static int desc_create(void **desc, int compute, int scale) {
    EXPECT_EQ_INT(compute, WEIR__CUBLAS_COMPUTE_32F);
    EXPECT_EQ_INT(scale, WEIR__CUDA_R_32F);
    int result = make(desc, sizeof(struct desc));
    if (result == 0) ((struct desc *)*desc)->epilogue = 1;
    return result;
}

static int desc_set(void *to, int attribute, const void *value, size_t bytes) {
    struct desc *desc = to;
    int result = enter();
    if (attribute == WEIR__CUBLASLT_DESC_TRANSA) memcpy(&desc->transposed[0], value, bytes);
    if (attribute == WEIR__CUBLASLT_DESC_TRANSB) memcpy(&desc->transposed[1], value, bytes);
    if (attribute == WEIR__CUBLASLT_DESC_EPILOGUE) memcpy(&desc->epilogue, value, bytes);
    if (attribute == WEIR__CUBLASLT_DESC_BIAS_POINTER) memcpy(&desc->bias, value, bytes);
    return result;
}

static int layout_create(void **to, int type, uint64_t rows, uint64_t columns, int64_t stride) {
    int result = make(to, sizeof(struct layout));
    if (result == 0)
        *(struct layout *)*to = (struct layout){type, (int64_t)rows, (int64_t)columns, stride};
    return result;
}

static int preference_create(void **to) {
    return make(to, sizeof(struct preference));
}

static int preference_set(void *to, int attribute, const void *value, size_t bytes) {
    struct preference *preference = to;
    int first = WEIR__CUBLASLT_PREF_MIN_ALIGNMENT_A_BYTES;
    if (attribute == WEIR__CUBLASLT_PREF_MAX_WORKSPACE_BYTES)
        memcpy(&preference->workspace, value, bytes);
    else if (attribute == WEIR__CUBLASLT_PREF_REDUCTION_SCHEME_MASK)
        memcpy(&preference->scheme, value, bytes);
    else
        memcpy(&preference->alignment[attribute - first], value, bytes);
    return enter();
}

/* The library's d has our rows as its columns. */
static int heuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,
                     int wanted, struct weir__cublaslt_result *results, int *count) {
    EXPECT(handle == &lt && desc != NULL && a != NULL && b != NULL && c == d);
    EXPECT(wanted >= 2);
    lt.heuristics++;
    lt.preference = *(struct preference *)preference;
    lt.heuristic_rows = ((struct layout *)d)->columns;
    bool splits = lt.preference.scheme != WEIR__CUBLASLT_REDUCTION_NONE;
    for (uint64_t i = 0; i < 2; i++) { /* of those that may split, the first one does */
        results[i] = (struct weir__cublaslt_result){.workspace = 512};
        results[i].algorithm.data[0] = (uint64_t)lt.heuristic_rows;
        results[i].algorithm.data[1] = splits && i == 0 ? 4 : 1;
    }
    *count = lt.none_unsplit && !splits ? 0 : 2;
    return enter();
}

static int config_get(const struct weir__cublaslt_algorithm *algorithm, int attribute, void *value,
                      size_t bytes, size_t *written) {
    int32_t parts = (int32_t)algorithm->data[1];
    EXPECT_EQ_INT(attribute, WEIR__CUBLASLT_CONFIG_SPLITK_NUM);
    EXPECT_EQ_UINT(bytes, sizeof parts);
    memcpy(value, &parts, sizeof parts);
    *written = sizeof parts;
    return 0;
}

static int check(void *handle, void *desc, void *a, void *b, void *c, void *d,
                 const struct weir__cublaslt_algorithm *algorithm,
                 struct weir__cublaslt_result *result) {
    EXPECT(handle == &lt && desc != NULL && a != NULL && b != NULL && c == d);
    EXPECT(algorithm->data[0] > 0);
    lt.checks++;
    result->workspace = lt.check_workspace;
    return lt.check_result;
}

static float at(const float *matrix, const struct layout *layout, bool transposed, int64_t row,
                int64_t column) {
    return transposed ? matrix[row * layout->stride + column]
                      : matrix[column * layout->stride + row];
}

static int matmul(void *handle, void *with, const void *alpha, const void *a, void *a_layout,
                  const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                  void *d, void *d_layout, const struct weir__cublaslt_algorithm *algorithm,
                  void *workspace, size_t workspace_bytes, struct CUstream_st *stream) {
    const struct layout *of_a = a_layout, *of_b = b_layout, *of_d = d_layout;
    const struct desc *desc = with;
    int64_t k = desc->transposed[0] ? of_a->rows : of_a->columns;
    EXPECT(handle == &lt && c == d && c_layout == d_layout && workspace != NULL && stream == NULL);
    EXPECT_EQ_INT(desc->transposed[0] ? of_a->columns : of_a->rows, of_d->rows);
    EXPECT_EQ_INT(desc->transposed[1] ? of_b->rows : of_b->columns, of_d->columns);
    EXPECT_EQ_INT(desc->transposed[1] ? of_b->columns : of_b->rows, k);
    for (int64_t j = 0; j < of_d->columns; j++)
        for (int64_t i = 0; i < of_d->rows; i++) {
            float sum = 0, *to = &((float *)d)[j * of_d->stride + i];
            for (int64_t l = 0; l < k; l++)
                sum += at(a, of_a, desc->transposed[0] != 0, i, l) *
                       at(b, of_b, desc->transposed[1] != 0, l, j);
            float old = *(const float *)beta != 0 ? *to : 0;
            *to = *(const float *)alpha * sum + *(const float *)beta * old;
            if (desc->epilogue == WEIR__CUBLASLT_EPILOGUE_BIAS) *to += desc->bias[i];
        }
    lt.algorithm = algorithm->data[0];
    lt.parts = algorithm->data[1];
    lt.workspace = workspace_bytes;
    return enter();
}

static const char *status_name(int status) {
    return status == 14 ? "CUBLAS_STATUS_INTERNAL_ERROR" : "another";
}

static struct weir__cublaslt library(void) {
    memset(&lt, 0, sizeof lt);
    return (struct weir__cublaslt){.handle = &lt,
                                   .get_status_name = status_name,
                                   .desc_create = desc_create,
                                   .desc_destroy = forget,
                                   .desc_set = desc_set,
                                   .layout_create = layout_create,
                                   .layout_destroy = forget,
                                   .preference_create = preference_create,
                                   .preference_destroy = forget,
                                   .preference_set = preference_set,
                                   .heuristic = heuristic,
                                   .check = check,
                                   .config_get = config_get,
                                   .matmul = matmul};
}

/* ---- tests ---- */

enum { M = 3, N = 4, K = 5 };

static void fill(float *numbers, int count) {
    for (int i = 0; i < count; i++) numbers[i] = (float)(int)test_random_below(9) - 4;
}

/* Small whole numbers: any order of a sum gives the same bits. */
static void expect_product(const struct weir__cuda_matmul *of, const float *a, const float *b,
                           const float *bias, const float *old, const float *d) {
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = (bias != NULL ? bias[j] : 0) + (old != NULL ? old[i * N + j] : 0);
            for (int l = 0; l < K; l++)
                sum += (of->a_transposed ? a[l * M + i] : a[i * K + l]) *
                       (of->b_transposed ? b[j * K + l] : b[l * N + j]);
            EXPECT_EQ_INT((int)d[i * N + j], (int)sum);
        }
}

static void test_products_are_those_by_rows(void) {
    struct weir__cublaslt made = library();
    for (int form = 0; form < 16; form++) {
        struct weir__cuda_matmul of = {.m = M,
                                       .n = N,
                                       .k = K,
                                       .m_max = M,
                                       .a_transposed = form & 1,
                                       .b_transposed = form & 2,
                                       .has_bias = form & 4};
        bool adds = form & 8;
        float a[M * K], b[K * N], bias[N], d[M * N], old[M * N];
        void *plan = NULL;
        struct weir__cuda_failure failure = {0};
        if (adds && of.has_bias) continue;
        fill(a, M * K), fill(b, K * N), fill(bias, N), fill(old, M * N);
        memcpy(d, old, sizeof d);
        CHECK_OK(weir__cublaslt_matmul_new(&made, &of, &plan, &failure));
        const struct weir__cuda_matmul_call call = {.a = a,
                                                    .b = b,
                                                    .bias = of.has_bias ? bias : NULL,
                                                    .d = d,
                                                    .adds = adds,
                                                    .workspace = d};
        EXPECT_STATUS(weir__cublaslt_matmul_run(&made, plan, NULL, &call, &failure), WEIR_OK);
        expect_product(&of, a, b, call.bias, adds ? old : NULL, d);
        EXPECT_EQ_UINT(lt.workspace, 512);
        weir__cublaslt_matmul_destroy(&made, plan);
        EXPECT_EQ_INT(lt.alive, 0);
    }
}

static uint64_t algorithm_for(const struct weir__cublaslt *made, int64_t m, bool by_rows) {
    const struct weir__cuda_matmul of = {
        .m = m, .n = N, .k = K, .m_max = 7, .by_rows = by_rows, .has_bias = true};
    float numbers[64] = {0};
    void *plan = NULL;
    struct weir__cuda_failure failure = {0};
    EXPECT_STATUS(weir__cublaslt_matmul_new((void *)(uintptr_t)made, &of, &plan, &failure),
                  WEIR_OK);
    const struct weir__cuda_matmul_call call = {
        .a = numbers, .b = numbers, .bias = numbers, .d = numbers, .workspace = numbers};
    weir__cublaslt_matmul_run((void *)(uintptr_t)made, plan, NULL, &call, &failure);
    weir__cublaslt_matmul_destroy((void *)(uintptr_t)made, plan);
    EXPECT_EQ_INT(lt.alive, 0);
    return lt.algorithm;
}

static void test_one_algorithm_serves_all_row_counts(void) {
    struct weir__cublaslt made = library();
    EXPECT_EQ_UINT(algorithm_for(&made, 7, true), 7);
    EXPECT_EQ_INT(lt.checks, 0);
    EXPECT_EQ_UINT(algorithm_for(&made, 2, true), 7);
    EXPECT_EQ_INT(lt.checks, 1);
    lt.check_result = WEIR__CUBLAS_NOT_SUPPORTED; /* then the fewer rows have their own */
    EXPECT_EQ_UINT(algorithm_for(&made, 2, true), 2);
    lt.check_result = 0;
    lt.check_workspace = 1 << 20; /* more than was counted */
    EXPECT_EQ_UINT(algorithm_for(&made, 2, true), 2);
}

static void test_only_what_repeats_is_asked_for(void) {
    struct weir__cublaslt made = library();
    size_t bytes;
    struct weir__cuda_matmul of = {.m_max = 7, .n = N};
    algorithm_for(&made, 7, true);
    EXPECT_EQ_UINT(lt.preference.scheme, WEIR__CUBLASLT_REDUCTION_NONE);
    algorithm_for(&made, 7, false);
    EXPECT_EQ_UINT(lt.preference.scheme, WEIR__CUBLASLT_REDUCTION_COMPUTE_TYPE);
    EXPECT_EQ_UINT(lt.parts, 4);
    lt.none_unsplit = true; /* then one of the others that splits none either */
    algorithm_for(&made, 7, true);
    EXPECT_EQ_UINT(lt.parts, 1);
    EXPECT_STATUS(weir__cuda_matmul_workspace(&of, &bytes), WEIR_OK);
    EXPECT_EQ_UINT(lt.preference.workspace, bytes);
    for (int i = 0; i < 4; i++) EXPECT_EQ_UINT(lt.preference.alignment[i], 64);
}

static void test_whichever_call_fails_nothing_is_left(void) {
    struct weir__cublaslt made = library();
    const struct weir__cuda_matmul of = {.m = 2, .n = N, .k = K, .m_max = 7, .b_transposed = true};
    int k = 0;
    for (;;) {
        void *plan = NULL;
        struct weir__cuda_failure failure = {0};
        lt.calls = 0;
        lt.fail_at = ++k;
        int status = weir__cublaslt_matmul_new(&made, &of, &plan, &failure);
        if (status == WEIR_OK) {
            weir__cublaslt_matmul_destroy(&made, plan);
            EXPECT_EQ_INT(lt.alive, 0);
            break;
        }
        CHECK_STATUS(status, WEIR_ERR_BACKEND);
        EXPECT_EQ_STR(failure.name, "CUBLAS_STATUS_INTERNAL_ERROR");
        EXPECT(plan == NULL && failure.call != NULL);
        EXPECT_EQ_INT(lt.alive, 0);
    }
    EXPECT(k > 15);
}

static void test_a_missing_library_is_named(void) {
    struct weir_error error = {0};
    struct weir__cuda_failure failure = {0};
    struct weir__cuda_device device = {0};
    void *products = NULL;
    CHECK(setenv("WEIR_CUBLASLT", "/none/libcublasLt.so", 1) == 0);
    EXPECT_STATUS(weir__cublaslt_open(&device, &products, &failure, &error), WEIR_ERR_NOT_FOUND);
    unsetenv("WEIR_CUBLASLT");
    EXPECT(products == NULL);
    EXPECT_CONTAINS(error.message, "WEIR_CUBLASLT");
    EXPECT_CONTAINS(error.message, "/none/libcublasLt.so");
}

WEIR_TEST_SUITE(cublaslt, TEST(products_are_those_by_rows),
                TEST(one_algorithm_serves_all_row_counts), TEST(only_what_repeats_is_asked_for),
                TEST(whichever_call_fails_nothing_is_left), TEST(a_missing_library_is_named))

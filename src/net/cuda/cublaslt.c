/* SPDX-License-Identifier: MIT */
/*
 * Products by cuBLASLt. The library thinks in columns: a matrix of ours, row by row, is its
 * transpose there, and so what it computes is d^T = b^T a^T, with our b as its A and our a as its
 * B.
 *
 * The algorithm is the heuristic's first that may be used. Only algorithms whose result does not
 * depend on timing are asked for: those that do not split the sum, or (where rows need not be alike
 * whatever their number) that add up partial sums from the workspace in a step of its own.
 */
#include "net/cuda/cublaslt.h"

#include "device/gpus.h"

#include <dlfcn.h>
#include <string.h>

enum { ALIGNMENT = 64, CANDIDATES = 16 };

/** One product, ready to run. */
struct cublaslt_plan {
    void *desc, *a, *b, *d; /**< the library's A, B and D */
    struct weir__cublaslt_algorithm algorithm;
    size_t workspace;
    bool has_bias;
};

static int status_of(const struct weir__cublaslt *lt, const char *call, int result,
                     struct weir__cuda_failure *failure) {
    if (result == WEIR__CUBLAS_SUCCESS) return WEIR_OK;
    const char *name = lt->get_status_name(result);
    *failure = (struct weir__cuda_failure){call, result, name != NULL ? name : "unknown status"};
    if (result == WEIR__CUBLAS_ALLOC_FAILED) return WEIR_ERR_OUT_OF_MEMORY;
    return result == WEIR__CUBLAS_NOT_SUPPORTED ? WEIR_ERR_UNSUPPORTED : WEIR_ERR_BACKEND;
}

/* ---- the library ---- */

static int fail_missing(const char *symbol, struct weir_error *error) {
    return weir__fail(error, WEIR_ERR_UNSUPPORTED,
                      "this cuBLASLt is incomplete: it has no %s: install it anew, or correct "
                      "WEIR_CUBLASLT",
                      symbol);
}

int weir__cublaslt_find_functions(struct weir__cublaslt *lt, struct weir_error *error) {
    void *function;
    if ((function = dlsym(lt->library, "cublasLtGetStatusName")) == NULL)
        return fail_missing("cublasLtGetStatusName", error);
    memcpy(&lt->get_status_name, &function, sizeof function);
#define FIND(member, symbol, parameters)                                                           \
    if ((function = dlsym(lt->library, #symbol)) == NULL) return fail_missing(#symbol, error);     \
    memcpy(&lt->member, &function, sizeof function);
    WEIR__CUBLASLT_CALL_MAP(FIND)
#undef FIND
    return WEIR_OK;
}

struct products_start {
    struct weir__cublaslt *lt;
    struct weir__cuda_device *device;
    struct weir__cuda_failure *failure;
};

/** Whether a handle is made, too. */
static int start(void *context, void *opened, const struct weir__gpu_library_facts *facts,
                 struct weir_error *error) {
    const struct products_start *start = context;
    struct weir__cublaslt *lt = start->lt;
    lt->library = opened;
    int status = weir__cublaslt_find_functions(lt, error);
    if (status != WEIR_OK) return status;
    status = status_of(lt, "cublasLtCreate", lt->create(&lt->handle), start->failure);
    if (status != WEIR_OK)
        return weir__fail(error, status,
                          "cuBLASLt %s does not start on %s (%s): see what 'weir doctor' says",
                          facts->version, start->device->device.name, start->failure->name);
    weir__cuda_way_note(start->device, "products: cuBLASLt %s (%s)", facts->version, facts->file);
    return WEIR_OK;
}

int weir__cublaslt_open(struct weir__cuda_device *device, void **products,
                        struct weir__cuda_failure *failure, struct weir_error *error) {
    struct weir__cublaslt *lt = weir__acquire(NULL, 1, sizeof *lt);
    if (lt == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    struct products_start context = {lt, device, failure};
    const struct weir__gpu_library_trial trial = {start, &context};
    int status =
        weir__gpu_library_open(weir__gpu_library_named("cuBLASLt"), &trial, &lt->library, error);
    if (status == WEIR_OK)
        *products = lt;
    else
        weir__release(NULL, lt, 1, sizeof *lt);
    return status;
}

void weir__cublaslt_close(void *products) {
    struct weir__cublaslt *lt = products;
    (void)lt->destroy(lt->handle);
    (void)dlclose(lt->library);
    weir__release(NULL, lt, 1, sizeof *lt);
}

/* ---- plans ---- */

static int type_of(enum weir_dtype dtype) {
    return dtype == WEIR_BF16 ? WEIR__CUDA_R_16BF : WEIR__CUDA_R_32F;
}

/** Of a matrix of ours that lies as (rows, columns), row by row. */
static int layout_new(const struct weir__cublaslt *lt, enum weir_dtype dtype, int64_t rows,
                      int64_t columns, void **layout) {
    return lt->layout_create(layout, type_of(dtype), (uint64_t)columns, (uint64_t)rows, columns);
}

static int set_operation(const struct weir__cublaslt *lt, const struct weir__cuda_matmul *matmul,
                         void *desc) {
    int32_t transposed = WEIR__CUBLAS_OP_T;
    uint32_t epilogue = WEIR__CUBLASLT_EPILOGUE_BIAS;
    const void *somewhere =
        (const void *)(uintptr_t)ALIGNMENT; /* only its alignment is looked at */
    int result = 0;
    if (matmul->b_transposed)
        result = lt->desc_set(desc, WEIR__CUBLASLT_DESC_TRANSA, &transposed, sizeof transposed);
    if (result == 0 && matmul->a_transposed)
        result = lt->desc_set(desc, WEIR__CUBLASLT_DESC_TRANSB, &transposed, sizeof transposed);
    if (result == 0 && matmul->has_bias)
        result = lt->desc_set(desc, WEIR__CUBLASLT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (result == 0 && matmul->has_bias)
        result = lt->desc_set(desc, WEIR__CUBLASLT_DESC_BIAS_POINTER, &somewhere, sizeof somewhere);
    return result;
}

static void forget(const struct weir__cublaslt *lt, struct cublaslt_plan *plan) {
    if (plan->d != NULL) (void)lt->layout_destroy(plan->d);
    if (plan->b != NULL) (void)lt->layout_destroy(plan->b);
    if (plan->a != NULL) (void)lt->layout_destroy(plan->a);
    if (plan->desc != NULL) (void)lt->desc_destroy(plan->desc);
    *plan = (struct cublaslt_plan){0};
}

/** All but the algorithm. A cublasStatus_t; forget what was made in any case. */
static int describe(const struct weir__cublaslt *lt, const struct weir__cuda_matmul *matmul,
                    struct cublaslt_plan *plan) {
    int64_t m = matmul->m, n = matmul->n, k = matmul->k;
    bool flip_a = matmul->a_transposed, flip_b = matmul->b_transposed;
    plan->has_bias = matmul->has_bias;
    int result = lt->desc_create(&plan->desc, WEIR__CUBLAS_COMPUTE_32F, WEIR__CUDA_R_32F);
    if (result == 0) result = set_operation(lt, matmul, plan->desc);
    if (result == 0)
        result = layout_new(lt, matmul->input, flip_b ? n : k, flip_b ? k : n, &plan->a);
    if (result == 0)
        result = layout_new(lt, matmul->input, flip_a ? k : m, flip_a ? m : k, &plan->b);
    if (result != 0) return result;
    return layout_new(lt, matmul->output, m, n, &plan->d);
}

/** What an algorithm may be like. */
static int set_preference(const struct weir__cublaslt *lt, uint32_t scheme, uint64_t workspace,
                          void *preference) {
    uint32_t alignment = ALIGNMENT;
    int result = lt->preference_set(preference, WEIR__CUBLASLT_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                    sizeof workspace);
    if (result == 0)
        result = lt->preference_set(preference, WEIR__CUBLASLT_PREF_REDUCTION_SCHEME_MASK, &scheme,
                                    sizeof scheme);
    for (int i = WEIR__CUBLASLT_PREF_MIN_ALIGNMENT_A_BYTES;
         result == 0 && i <= WEIR__CUBLASLT_PREF_MIN_ALIGNMENT_D_BYTES; i++)
        result = lt->preference_set(preference, i, &alignment, sizeof alignment);
    return result;
}

static bool is_split(const struct weir__cublaslt *lt,
                     const struct weir__cublaslt_algorithm *algorithm) {
    int32_t parts = 0;
    size_t written = 0;
    int result =
        lt->config_get(algorithm, WEIR__CUBLASLT_CONFIG_SPLITK_NUM, &parts, sizeof parts, &written);
    return result != 0 || parts > 1;
}

/** The first algorithm of a reduction scheme; NOT_SUPPORTED where none may be used. */
static int ask_heuristic(const struct weir__cublaslt *lt, const struct weir__cuda_matmul *matmul,
                         const struct cublaslt_plan *plan, uint32_t scheme, size_t workspace,
                         struct weir__cublaslt_result *found) {
    struct weir__cublaslt_result results[CANDIDATES] = {{.status = 0}};
    void *preference = NULL;
    int count = 0;
    int result = lt->preference_create(&preference);
    if (result == 0) result = set_preference(lt, scheme, workspace, preference);
    if (result == 0)
        result = lt->heuristic(lt->handle, plan->desc, plan->a, plan->b, plan->d, plan->d,
                               preference, CANDIDATES, results, &count);
    if (preference != NULL) (void)lt->preference_destroy(preference);
    if (result != 0) return result;
    for (int i = 0; i < count; i++) {
        if (results[i].status != 0) continue;
        if (matmul->by_rows && is_split(lt, &results[i].algorithm)) continue;
        *found = results[i];
        return 0;
    }
    return WEIR__CUBLAS_NOT_SUPPORTED;
}

/** Where rows are to be alike, those that split no sum are asked for first. */
static int find_algorithm(const struct weir__cublaslt *lt, const struct weir__cuda_matmul *matmul,
                          const struct cublaslt_plan *plan, size_t workspace,
                          struct weir__cublaslt_result *found) {
    int result = WEIR__CUBLAS_NOT_SUPPORTED;
    if (matmul->by_rows)
        result = ask_heuristic(lt, matmul, plan, WEIR__CUBLASLT_REDUCTION_NONE, workspace, found);
    if (result == WEIR__CUBLAS_NOT_SUPPORTED)
        result = ask_heuristic(lt, matmul, plan, WEIR__CUBLASLT_REDUCTION_COMPUTE_TYPE, workspace,
                               found);
    return result;
}

/** Chosen for m_max rows, and taken for m where the library says that it serves. */
static int choose(const struct weir__cublaslt *lt, const struct weir__cuda_matmul *matmul,
                  size_t workspace, struct cublaslt_plan *plan) {
    struct weir__cublaslt_result found = {.status = WEIR__CUBLAS_NOT_SUPPORTED},
                                 checked = {.status = 0};
    struct cublaslt_plan largest = {NULL};
    struct weir__cuda_matmul most = *matmul;
    most.m = matmul->m_max;
    int result = describe(lt, &most, &largest);
    if (result == 0) result = find_algorithm(lt, &most, &largest, workspace, &found);
    forget(lt, &largest);
    if (result != 0) return result;
    if (matmul->m != matmul->m_max) {
        result = lt->check(lt->handle, plan->desc, plan->a, plan->b, plan->d, plan->d,
                           &found.algorithm, &checked);
        if (result == 0) found.workspace = checked.workspace;
        if (result != 0 || checked.workspace > workspace)
            result = find_algorithm(lt, matmul, plan, workspace, &found);
    }
    plan->algorithm = found.algorithm;
    plan->workspace = found.workspace;
    return result;
}

int weir__cublaslt_matmul_new(void *products, const struct weir__cuda_matmul *matmul, void **to,
                              struct weir__cuda_failure *failure) {
    const struct weir__cublaslt *lt = products;
    size_t workspace;
    int status = weir__cuda_matmul_workspace(matmul, &workspace);
    if (status != WEIR_OK) return status;
    struct cublaslt_plan *plan = weir__acquire(NULL, 1, sizeof *plan);
    if (plan == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int result = describe(lt, matmul, plan);
    status = status_of(lt, "cublasLtMatmulDescCreate", result, failure);
    if (status != WEIR_OK) goto fail;
    result = choose(lt, matmul, workspace, plan);
    status = status_of(lt, "cublasLtMatmulAlgoGetHeuristic", result, failure);
    if (status != WEIR_OK) goto fail;
    *to = plan;
    return WEIR_OK;

fail:
    weir__cublaslt_matmul_destroy(products, plan);
    return status;
}

void weir__cublaslt_matmul_destroy(void *products, void *plan) {
    if (plan == NULL) return;
    forget(products, plan);
    weir__release(NULL, plan, 1, sizeof(struct cublaslt_plan));
}

int weir__cublaslt_matmul_run(void *products, const void *prepared, struct CUstream_st *stream,
                              const struct weir__cuda_matmul_call *call,
                              struct weir__cuda_failure *failure) {
    const struct weir__cublaslt *lt = products;
    const struct cublaslt_plan *plan = prepared;
    const float alpha = 1, beta = call->adds ? 1 : 0;
    int result = 0;
    assert(!plan->has_bias || !call->adds);
    if (plan->has_bias)
        result = lt->desc_set(plan->desc, WEIR__CUBLASLT_DESC_BIAS_POINTER, &call->bias,
                              sizeof call->bias);
    if (result == 0)
        result = lt->matmul(lt->handle, plan->desc, &alpha, call->b, plan->a, call->a, plan->b,
                            &beta, call->d, plan->d, call->d, plan->d, &plan->algorithm,
                            call->workspace, plan->workspace, stream);
    return status_of(lt, "cublasLtMatmul", result, failure);
}

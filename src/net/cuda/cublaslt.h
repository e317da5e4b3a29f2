/* SPDX-License-Identifier: MIT */
/**
 * cuBLASLt as far as it is used, declared by ourselves and opened at run time, so that nothing of
 * CUDA is needed to build: the functions, and the numbers that they take. Both are the same in
 * versions 12 and 13; the least is 12.0. What the library keeps behind pointers is `void` here.
 *
 * Of its epilogues only the bias's is used, which costs nothing. Left alone, since they cost bits
 * or rules for what may be 2 or 3% of a GPT-2 124M's step by the bytes they save:
 *  - BGRADA and BGRADB, a bias's gradient beside its weight's, overwrite it where micro-batches add
 *    up, sum in an order that the algorithm has, and leave fewer algorithms to choose from;
 *  - GELU_AUX_BIAS and DGELU have GELU in the library's own arithmetic, so that F32 would not have
 *    its parts' bits, and join layers of a network, which may stand in two stages (cuda.h).
 */
#ifndef WEIR_NET_CUDA_CUBLASLT_H
#define WEIR_NET_CUDA_CUBLASLT_H

#include "net/cuda/numerics.h"

/** By cuBLASLt's numbers. */
enum {
    /* cublasStatus_t */
    WEIR__CUBLAS_SUCCESS = 0,
    WEIR__CUBLAS_ALLOC_FAILED = 3,
    WEIR__CUBLAS_NOT_SUPPORTED = 15,
    /* cublasComputeType_t, cudaDataType_t, cublasOperation_t */
    WEIR__CUBLAS_COMPUTE_32F = 68,
    WEIR__CUDA_R_32F = 0,
    WEIR__CUDA_R_16BF = 14,
    WEIR__CUBLAS_OP_T = 1,
    /* cublasLtMatmulDescAttributes_t */
    WEIR__CUBLASLT_DESC_TRANSA = 3,
    WEIR__CUBLASLT_DESC_TRANSB = 4,
    WEIR__CUBLASLT_DESC_EPILOGUE = 7,
    WEIR__CUBLASLT_DESC_BIAS_POINTER = 8,
    /* cublasLtEpilogue_t */
    WEIR__CUBLASLT_EPILOGUE_BIAS = 4,
    /* cublasLtMatmulPreferenceAttributes_t */
    WEIR__CUBLASLT_PREF_MAX_WORKSPACE_BYTES = 1,
    WEIR__CUBLASLT_PREF_REDUCTION_SCHEME_MASK = 3,
    WEIR__CUBLASLT_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    WEIR__CUBLASLT_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    WEIR__CUBLASLT_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    WEIR__CUBLASLT_PREF_MIN_ALIGNMENT_D_BYTES = 8,
    /* cublasLtMatmulAlgoConfigAttributes_t */
    WEIR__CUBLASLT_CONFIG_SPLITK_NUM = 2,
    /* cublasLtReductionScheme_t */
    WEIR__CUBLASLT_REDUCTION_NONE = 0,
    WEIR__CUBLASLT_REDUCTION_COMPUTE_TYPE = 2
};

/** cublasLtMatmulAlgo_t: what an algorithm is, copied about as it is. */
struct weir__cublaslt_algorithm {
    uint64_t data[8];
};

/** cublasLtMatmulHeuristicResult_t */
struct weir__cublaslt_result {
    struct weir__cublaslt_algorithm algorithm;
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};
_Static_assert(sizeof(struct weir__cublaslt_result) == 96, "as the library has it");

/** Every function that is used: X(member, symbol, parameters). All return a cublasStatus_t. */
#define WEIR__CUBLASLT_CALL_MAP(X)                                                                 \
    X(create, cublasLtCreate, (void **handle))                                                     \
    X(destroy, cublasLtDestroy, (void *handle))                                                    \
    X(desc_create, cublasLtMatmulDescCreate, (void **desc, int compute, int scale))                \
    X(desc_destroy, cublasLtMatmulDescDestroy, (void *desc))                                       \
    X(desc_set, cublasLtMatmulDescSetAttribute,                                                    \
      (void *desc, int attribute, const void *value, size_t bytes))                                \
    X(layout_create, cublasLtMatrixLayoutCreate,                                                   \
      (void **layout, int type, uint64_t rows, uint64_t columns, int64_t stride))                  \
    X(layout_destroy, cublasLtMatrixLayoutDestroy, (void *layout))                                 \
    X(preference_create, cublasLtMatmulPreferenceCreate, (void **preference))                      \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy, (void *preference))                     \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute,                                        \
      (void *preference, int attribute, const void *value, size_t bytes))                          \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic,                                                   \
      (void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted, \
       struct weir__cublaslt_result *results, int *count))                                         \
    X(check, cublasLtMatmulAlgoCheck,                                                              \
      (void *handle, void *desc, void *a, void *b, void *c, void *d,                               \
       const struct weir__cublaslt_algorithm *algorithm, struct weir__cublaslt_result *result))    \
    X(config_get, cublasLtMatmulAlgoConfigGetAttribute,                                            \
      (const struct weir__cublaslt_algorithm *algorithm, int attribute, void *value, size_t bytes, \
       size_t *written))                                                                           \
    X(matmul, cublasLtMatmul,                                                                      \
      (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,  \
       void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,   \
       const struct weir__cublaslt_algorithm *algorithm, void *workspace, size_t workspace_bytes,  \
       struct CUstream_st *stream))

struct weir__cublaslt {
    void *library;
    void *handle;
    const char *(*get_status_name)(int status);
#define WEIR__CUBLASLT_MEMBER(member, symbol, parameters) int(*member) parameters;
    WEIR__CUBLASLT_CALL_MAP(WEIR__CUBLASLT_MEMBER)
#undef WEIR__CUBLASLT_MEMBER
};

/** The table's calls (numerics.h). */
int weir__cublaslt_open(struct weir__cuda_device *device, void **products,
                        struct weir__cuda_failure *failure, struct weir_error *error);
void weir__cublaslt_close(void *products);
/** Fills the table of functions from `library`; WEIR_ERR_UNSUPPORTED, named in `error`. */
int weir__cublaslt_find_functions(struct weir__cublaslt *lt, struct weir_error *error);
int weir__cublaslt_matmul_new(void *products, const struct weir__cuda_matmul *matmul, void **plan,
                              struct weir__cuda_failure *failure);
void weir__cublaslt_matmul_destroy(void *products, void *plan);
int weir__cublaslt_matmul_run(void *products, const void *plan, struct CUstream_st *stream,
                              const struct weir__cuda_matmul_call *call,
                              struct weir__cuda_failure *failure);

#endif

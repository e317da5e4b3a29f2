/* SPDX-License-Identifier: MIT */
/**
 * Products, convolutions and attention on a GPU: one table of calls, and who stands behind it. On a
 * real GPU these are cuBLASLt (cublaslt.h) and cuDNN 9 (cudnn.h, cudnn_attention.h), opened at run
 * time, when a net first needs them; behind the fake driver it is the driver's own table (its
 * symbol `weir_fake_cuda_numerics`), which computes with the CPU's reference kernels.
 *
 * A plan is made for a shape when a pipe is built: the algorithm is chosen once, by the shape and
 * never by the clock, and is one that gives the same bits each time. Where the number of rows
 * varies, the algorithm is chosen for the largest and serves the smaller ones too, so that a row's
 * bits do not depend on how many there are.
 *
 * TF32 is off: F32 is multiplied as F32. BF16 is multiplied as it is and summed in F32.
 *
 * Calls return a status, and on a failure may fill `failure` (zeroed before): the library's result,
 * or, where failure->name is NULL, the driver's, whose status counts (weir__cuda_settle). Memory is
 * the device's, 64-byte aligned. Run calls enqueue and return, allocate nothing, and may be
 * captured into a graph. Thread: the stream's owner, with the device's context current; different
 * streams at the same time.
 */
#ifndef WEIR_NET_CUDA_NUMERICS_H
#define WEIR_NET_CUDA_NUMERICS_H

#include "device/cuda.h"
#include "net/kernel.h"

/* ---- products ---- */

/** d (m, n) = a (m, k) b (k, n) + bias (n), all row by row. */
struct weir__cuda_matmul {
    int64_t m, n, k;
    int64_t m_max;     /**< the largest m that shares the algorithm; m where none does */
    bool a_transposed; /**< a lies as (k, m) */
    bool b_transposed; /**< b lies as (n, k) */
    bool has_bias;
    bool by_rows; /**< rows of d are computed alike, whatever m: their sums are not split by what a
                       GPU has room for */
    enum weir_dtype input;  /**< of a and b: F32 or BF16 */
    enum weir_dtype output; /**< of d and the bias: F32 or BF16 */
};

struct weir__cuda_matmul_call {
    const void *a, *b, *bias; /**< bias: NULL without has_bias */
    void *d;
    bool adds;       /**< d += the product, which is made first; not with a bias */
    void *workspace; /**< weir__cuda_matmul_workspace bytes, 256-byte aligned */
};

/** Bytes that a plan may need: room for sixteen partial results, but 32 MiB at most, which is what
 * NVIDIA advises for Hopper; WEIR_ERR_OVERFLOW. */
int weir__cuda_matmul_workspace(const struct weir__cuda_matmul *matmul, size_t *bytes);

/* ---- convolutions ---- */

enum weir__cuda_convolution_kind {
    WEIR__CUDA_CONVOLVE,            /**< x, weight -> y */
    WEIR__CUDA_CONVOLVE_GRAD_INPUT, /**< y (its gradient), weight -> x (its gradient) */
    WEIR__CUDA_CONVOLVE_GRAD_WEIGHT /**< x, y (its gradient) -> weight (its gradient) */
};

/** Images lie channels last; the weight as (out, kernel height, kernel width, in / groups). Zero
 * padding. What a library may not have is WEIR_ERR_UNSUPPORTED: a weight's dtype that is not the
 * image's, a bias. */
struct weir__cuda_convolution {
    enum weir__cuda_convolution_kind kind;
    int64_t rows, rows_max; /**< rows_max: as m_max */
    int64_t in, out;        /**< channels */
    struct weir__window window;
    enum weir_dtype image;  /**< of x and y: F32 or BF16 */
    enum weir_dtype weight; /**< as `image`; or F32 where it is a gradient */
    bool has_bias;          /**< y = the sums + bias (out), rounded once; not of gradients */
};

struct weir__cuda_convolution_call {
    void *x, *weight, *y; /**< the result is overwritten */
    const float *bias;    /**< NULL without has_bias */
    void *workspace;      /**< weir__cuda_convolution_workspace bytes, 256-byte aligned */
};

/** Bytes that a plan may need: room for both images twice in F32 and for eight weights, but 256 MiB
 * at most; WEIR_ERR_OVERFLOW. Plans that need more are not chosen. */
int weir__cuda_convolution_workspace(const struct weir__cuda_convolution *convolution,
                                     size_t *bytes);

/* ---- attention ---- */

enum { WEIR__CUDA_ATTEND_SIZE = 128, WEIR__CUDA_ATTEND_STEP = 8 };

/** Causal attention of BF16, or its gradient, as net/kernel.h has them. A library need not have it:
 * WEIR_ERR_UNSUPPORTED; at most it has heads of a multiple of ATTEND_STEP numbers, up to
 * ATTEND_SIZE. Whether it has does not depend on the rows. */
struct weir__cuda_attend {
    bool backward;
    int64_t rows, rows_max; /**< rows_max: as m_max */
    int64_t tokens, heads, size;
};

struct weir__cuda_attend_call {
    const void *qkv; /**< (rows, tokens, 3, heads, size) */
    void *y;         /**< (rows, tokens, heads, size); only read by the backward pass */
    float *lse;      /**< (rows, heads, tokens); likewise */
    const void *dy;  /**< as y; backward only, as dqkv */
    void *dqkv;      /**< as qkv */
    void *workspace; /**< weir__cuda_attend_room's bytes, 256-byte aligned */
};

/** What a workspace is for. The backward pass takes as many rows at once as 128 MiB have room for,
 * in parts that are nearly alike: of their gradients of scores, (heads, tokens, tokens) of BF16 for
 * each row, in whole tiles of 64 x 128. Parts are of so many rows that the next one's numbers by
 * head and token are 16-byte aligned; where not even the fewest such rows have room, no scores are
 * kept, and all rows are one part. */
struct weir__cuda_attend_room {
    bool keeps_scores; /**< of the backward pass */
    int64_t at_once;   /**< rows; at least 1, at most rows_max: all of the forward pass */
    size_t delta;      /**< bytes of a number for each token and head of those rows */
    size_t plan;       /**< what a plan may need for itself */
    size_t bytes;      /**< of all of it, in this order */
};
/** WEIR_ERR_OVERFLOW. */
int weir__cuda_attend_room(const struct weir__cuda_attend *attend,
                           struct weir__cuda_attend_room *room);

/* ---- the table ---- */

struct weir__cuda_numerics {
    /** Opens the library for a device whose context is current. WEIR_ERR_NOT_FOUND where there is
     * none, WEIR_ERR_UNSUPPORTED where it is too old or broken: `error` (may be NULL) says what to
     * install. Under the device's lock. */
    int (*products_open)(struct weir__cuda_device *device, void **products,
                         struct weir__cuda_failure *failure, struct weir_error *error);
    void (*products_close)(void *products);
    /** The plan's owner destroys it before `products` is closed. `stream` is the one that it will
     * run on. */
    int (*matmul_new)(void *products, const struct weir__cuda_matmul *matmul, void **plan,
                      struct weir__cuda_failure *failure);
    void (*matmul_destroy)(void *products, void *plan);
    int (*matmul_run)(void *products, const void *plan, struct CUstream_st *stream,
                      const struct weir__cuda_matmul_call *call,
                      struct weir__cuda_failure *failure);

    /** As products_open. */
    int (*convolutions_open)(struct weir__cuda_device *device, void **convolutions,
                             struct weir__cuda_failure *failure, struct weir_error *error);
    void (*convolutions_close)(void *convolutions);
    /** As matmul_new; the plan runs on `stream` only. */
    int (*convolution_new)(void *convolutions, const struct weir__cuda_convolution *convolution,
                           struct CUstream_st *stream, void **plan,
                           struct weir__cuda_failure *failure);
    void (*convolution_destroy)(void *convolutions, void *plan);
    /** Of a plan that fails to run where it is tried (trial.h): drops what it is of, for all plans
     * of its shape, and makes the next one in its place. WEIR_ERR_UNSUPPORTED: there is none, or
     * no place to remember what is dropped; the plan is fit to be destroyed then. The most rows
     * decide for all: of a plan for fewer nothing is dropped, and there is no next one. */
    int (*convolution_next)(void *convolutions, void *plan, struct weir__cuda_failure *failure);
    /** Writes what it is computed by: "cuDNN's, engine 5". */
    void (*convolution_tell)(const void *plan, char *text, size_t capacity);
    int (*convolution_run)(void *convolutions, const void *plan,
                           const struct weir__cuda_convolution_call *call,
                           struct weir__cuda_failure *failure);
    /** After a plan of the library, of any shape, has run to its end where it was tried: what was
     * dropped before is so in later processes too. Until then they know of none, for it may have
     * been the GPU that failed. */
    void (*convolutions_keep)(void *convolutions);

    /** Of the convolutions' library; as convolution_new and the next ones. */
    int (*attention_new)(void *convolutions, const struct weir__cuda_attend *attend,
                         struct CUstream_st *stream, void **plan,
                         struct weir__cuda_failure *failure);
    void (*attention_destroy)(void *convolutions, void *plan);
    int (*attention_next)(void *convolutions, void *plan, struct weir__cuda_failure *failure);
    /** As convolution_tell. */
    void (*attention_tell)(const void *plan, char *text, size_t capacity);
    int (*attention_run)(void *convolutions, const void *plan,
                         const struct weir__cuda_attend_call *call,
                         struct weir__cuda_failure *failure);
};

/** cuBLASLt and cuDNN. */
extern const struct weir__cuda_numerics weir__cuda_libraries;

/* ---- a device's ---- */

enum weir__cuda_library { WEIR__CUDA_PRODUCTS, WEIR__CUDA_CONVOLUTIONS };

/** Whether what a row's `library` names is there to be opened: cuBLASLt and cuDNN are looked for,
 * with all their functions and the cuBLASLt that cuDNN needs, unless the driver is the fake one;
 * every other name is there. For who builds a net, before there is a device: statuses and `error`
 * as products_open. Any thread. */
int weir__cuda_library_check(const char *library, struct weir_error *error);

/** Opens the library for the device, unless it is open; it stays so until the device is closed.
 * Statuses and `error` as products_open. A CUDA device; any thread. */
int weir__cuda_library_need(struct weir__device *device, enum weir__cuda_library library,
                            struct weir_error *error);

struct weir__cuda_library_use {
    const struct weir__cuda_numerics *calls;
    void *library;
};
/** The device's table and library, opened if need be: for the rows. What is missing is kept for
 * `explain`. */
int weir__cuda_library_use(struct weir__device *device, enum weir__cuda_library library,
                           struct weir__cuda_library_use *use);
/** Likewise, for who can do without: `use` has library NULL where it is missing, old or broken. */
int weir__cuda_library_try(struct weir__device *device, enum weir__cuda_library library,
                           struct weir__cuda_library_use *use);

/** What a call of the table came to: its status, the driver's where the failure is its. Keeps the
 * failure for `explain`. */
int weir__cuda_settle(struct weir__cuda_device *device, int status,
                      const struct weir__cuda_failure *failure);

#endif

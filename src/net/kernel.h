/* SPDX-License-Identifier: MIT */
/**
 * Kernels: the numerics of the net library behind one table. Each op has a row per backend: the
 * reference (plain loops in f32 and f64, the oracle of the tests) and the CPU's fast ones (oneDNN
 * products, our own vector kernels; f32). A missing fast row falls back to the reference, and
 * weir_net_kernels says so.
 *
 * Contracts that hold for every kernel:
 *  - operands are contiguous, 64-byte aligned, and never overlap unless a row says "in place ok";
 *  - results depend on shapes, values, `threads` and the instruction set only: never on addresses,
 *    neighbours, or the number of calls before; a row of M is computed the same way whatever the
 *    task, so that chunk, partition and recompute give the same bits;
 *  - outputs are written with "=", except those marked "acc", which are "=" when call->overwrite
 * and
 *    "+=" otherwise (one rounding per micro-batch: the new sum is made first, then added once);
 *  - f32 sums over long ranges (norms, column sums, losses) accumulate in a fixed order written in
 *    the code; losses and norm squares accumulate in double;
 *  - no allocation, no lock, no I/O in run; threads > 1 may use OpenMP through oneDNN only.
 */
#ifndef WEIR_KERNEL_H
#define WEIR_KERNEL_H

#include "base/base.h"

/**
 * The ops: X(name). R = rows of the micro-batch, T = tokens per row (product of the leading
 * dimensions), M = R*T, C = width, V = classes.
 *
 *  linear            x (M, in), weight ((out, in), or (in, out) if weight_in_out), bias (out)?
 *                    -> y (M, out)
 *  linear_grad_input dy (M, out), weight -> dx (M, in)
 *  linear_grad_weight x (M, in), dy (M, out) -> dweight acc
 *  bias_grad         dy (M, out) -> dbias (out) acc
 *  embedding         index (M) i64, table (V, C) -> y (M, C). WEIR_ERR_ARGUMENT for an index
 * outside [0, V), naming it in call->error embedding_grad    index (M), dy (M, C) -> dtable (V, C)
 * acc; ascending order of M position_add      x (R, T, C), table (P, C), P >= T -> y (R, T, C); in
 * place ok position_grad     dy (R, T, C) -> dtable (P, C) acc; rows T.. are 0; ascending order of
 * R layer_norm        x (M, C), weight (C), bias (C) -> y (M, C), mean (M), rstd (M); biased
 * variance, eps inside the root layer_norm_grad_input   dy, x (M, C), mean, rstd (M), weight (C) ->
 * dx (M, C) layer_norm_grad_weight  dy, x (M, C), mean, rstd (M) -> dweight (C) acc, dbias (C) acc
 *  attention         qkv (R, T, 3C): per token q, k, v, each (heads, C / heads)
 *                    -> y (R, T, C), lse (R, heads, T). Causal; scores / sqrt(C / heads); never
 * more than a block of scores in workspace. lse = log of the sum of exp of the scaled scores
 *  attention_grad    dy (R, T, C), qkv, y, lse -> dqkv (R, T, 3C)
 *  gelu              x -> y, `approximate` tanh or erf; gelu_grad: dy, x -> dx
 *  relu              x -> y; in place ok; relu_grad: dy, x (or y) -> dx (0 where x <= 0)
 *  dropout           x (R, N) -> y = keep ? x / (1 - p) : 0; in place ok. keep of element e of row
 * r: word e % 4 of weir__random_words(seed, mini_batch, op, row_first + r, e / 4), as (word >> 8) *
 * 2^-24 >= p. Also its own gradient (dy -> dx). Identity when call->infer. scale = 1 / (1 - p) is
 * computed in double, rounded to the dtype dropout_add       x, residual (R, N) -> y = residual +
 * dropout(x); the same bits as its parts add               a, b -> y; in place ok copy x -> y
 *  cross_entropy     logits (M, V), target (M) i64 -> loss (1 double: sum over not ignored /
 * weight), lse (M). WEIR_ERR_ARGUMENT for a target outside [0, V) that is not ignored. Losses are 0
 * where the weight is 0 (PyTorch: NaN) cross_entropy_grad logits, target, lse -> dlogits = (softmax
 * - onehot) / weight, 0 where ignored mse               y, t (R, N) -> loss (sum of squares /
 * weight); weight counts elements mse_grad          y, t -> dy = 2 (y - t) / weight
 *
 * Residuals mean, rstd and lse have the kernel's dtype.
 */
#define WEIR__OP_MAP(X)                                                                            \
    X(linear)                                                                                      \
    X(linear_grad_input)                                                                           \
    X(linear_grad_weight)                                                                          \
    X(bias_grad)                                                                                   \
    X(embedding)                                                                                   \
    X(embedding_grad)                                                                              \
    X(position_add)                                                                                \
    X(position_grad)                                                                               \
    X(layer_norm)                                                                                  \
    X(layer_norm_grad_input)                                                                       \
    X(layer_norm_grad_weight)                                                                      \
    X(attention)                                                                                   \
    X(attention_grad)                                                                              \
    X(gelu)                                                                                        \
    X(gelu_grad)                                                                                   \
    X(relu)                                                                                        \
    X(relu_grad)                                                                                   \
    X(dropout)                                                                                     \
    X(dropout_add)                                                                                 \
    X(add)                                                                                         \
    X(copy)                                                                                        \
    X(cross_entropy)                                                                               \
    X(cross_entropy_grad)                                                                          \
    X(mse)                                                                                         \
    X(mse_grad)

enum weir__op {
#define WEIR__OP_ENUM(name) WEIR__OP_##name,
    WEIR__OP_MAP(WEIR__OP_ENUM)
#undef WEIR__OP_ENUM
        WEIR__OP_COUNT
};

/** Everything about a call that is known when the program is compiled. Unused members are 0. */
struct weir__op_shape {
    enum weir__op op;
    enum weir_dtype dtype;
    uint32_t threads;
    int64_t rows;    /**< R */
    int64_t tokens;  /**< T: rows of a matrix per row of the micro-batch */
    int64_t in, out; /**< linear; embedding: in = V, out = C */
    int64_t width;   /**< C, V of cross_entropy, N of element-wise ops: all elements of a
                          row, whatever `tokens` */
    int64_t heads;
    int64_t table; /**< rows of a table: V of embedding, P of position */
    int64_t ignore_index;
    bool weight_in_out; /**< GPT-2's Conv1D layout */
    bool has_bias;
    bool gelu_tanh;
    double eps;
    double p;           /**< dropout */
    uint32_t random_op; /**< layer << 8 | op in the layer */
};

/** One call. `in` and `out` as the op's row lists them; an absent bias is NULL. */
struct weir__op_call {
    const struct weir__op_shape *shape;
    void *state; /**< what `prepare` made, or NULL */
    const void *const *in;
    void *const *out;
    void *workspace;
    bool overwrite; /**< acc outputs: = instead of += */
    bool infer;
    uint64_t seed, mini_batch;
    int64_t row_first;
    double loss_weight;
    struct weir_error *error; /**< message may be filled; may be NULL */
};

/** A backend's row for an op. */
struct weir__kernel {
    /** Bytes of workspace for a shape; NULL: none. On the thread that builds. */
    int (*measure)(const struct weir__op_shape *shape, size_t *workspace);
    /** Makes a primitive for the shape, on the worker's thread; NULL: no state. Pairs with
     * `release`. Needs no allocator of ours: libraries have their own. */
    int (*prepare)(const struct weir__op_shape *shape, void **state);
    void (*release)(void *state);
    int (*run)(const struct weir__op_call *call);
    const char *library; /**< "reference", "vector", "oneDNN" */
};

/** The kernel for an op at a dtype, or NULL where there is none (f64 has only the reference).
 * `reference` forces the plain one. */
const struct weir__kernel *weir__kernel_for(enum weir__op op, enum weir_dtype dtype,
                                            bool reference);
const char *weir__op_name(enum weir__op op);
/** "oneDNN 2.6.3", or "" when built without. */
const char *weir__onednn_version(void);
/** Tells the worker's thread how many threads its library calls may use (omp_set_num_threads, where
 * an OpenMP is loaded); 0 only asks. Returns the former number, 0 if unknown. */
uint32_t weir__kernel_threads(uint32_t threads);

/* ---- what is not an op of the graph: sums of squares and updates over flat arrays ---- */

/** Sum of squares in double, fixed order: partial sums, eight or four times eight wide, folded at
 * the end. f32 or f64. */
double weir__square_sum(enum weir_dtype dtype, const void *data, uint64_t count, bool reference);
/** y += x. */
void weir__accumulate(enum weir_dtype dtype, void *y, const void *x, uint64_t count);

struct weir__adamw {
    double lr, beta1, beta2, eps, weight_decay;
    uint64_t step;         /**< 1 for the first update */
    double gradient_scale; /**< gradients are multiplied by this */
};
/** torch.optim.AdamW (decoupled weight decay), one array. */
void weir__adamw_update(enum weir_dtype dtype, const struct weir__adamw *options, uint64_t count,
                        void *parameter, const void *gradient, void *exp_avg, void *exp_avg_sq,
                        bool reference);
struct weir__sgd {
    double lr, momentum, weight_decay;
    bool nesterov;
    bool first; /**< the momentum buffer starts as the gradient */
    double gradient_scale;
};
/** torch.optim.SGD; `momentum` may be NULL when its factor is 0. */
void weir__sgd_update(enum weir_dtype dtype, const struct weir__sgd *options, uint64_t count,
                      void *parameter, const void *gradient, void *momentum, bool reference);

#endif

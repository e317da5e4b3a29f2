/* SPDX-License-Identifier: MIT */
/**
 * Kernels: what every op computes. Each op has an entry per back end (net/backend.h). Where a CPU's
 * fast one is missing, the reference serves (plain loops in f32 and f64, the oracle of the tests),
 * and weir_net_kernels says so.
 *
 * Contracts that hold for every kernel:
 *  - operands are contiguous, 64-byte aligned, and never overlap unless a row says "in place ok";
 *  - results depend on shapes, values and the level only: never on threads, addresses,
 *    neighbours, or the number of calls before; a row of M is computed the same way whatever the
 *    task, so that chunk, partition and recompute give the same bits;
 *  - outputs are written with "=", except those marked "acc", which are "=" when
 *    call->overwrite and "+=" otherwise (one rounding per micro-batch: the new sum is made
 *    first, then added once; but "chain": vector kernels begin with what is there, so that
 *    micro-batches one after the other give the bits of one that has all their rows. Where the
 *    depth goes by pairs (net/cpu/level.h), of an even number of M each);
 *  - f32 sums over long ranges (norms, column sums, losses) accumulate in a fixed order written in
 *    the code; losses and norm squares accumulate in double;
 *  - no allocation, no lock, no I/O in run;
 *  - threads share parts of the result, never of a sum: the stream's team (base/team.h), of which
 *    `threads` members at most take part.
 */
#ifndef WEIR_KERNEL_H
#define WEIR_KERNEL_H

#include "base/base.h"

/**
 * The ops: X(name). R = rows of the micro-batch, T = tokens per row (product of the leading
 * dimensions), M = R*T, C = width, V = classes. Residuals mean, rstd, lse, largest and total,
 * parameters and their gradients have the kernel's dtype, but F32 where that is BF16, to which
 * linear rounds its weight and bias, and a convolution its weight (as a product its bias, too)
 * before use. "acc": see above. "?": there only if has_bias; else call->in may end before it, and
 * it is not looked at. "stored": at shape->stored, F32 or BF16, where the back end reads that and
 * parameters are F32: BF16 is widened, which is exact, so the bits are those of the wider weights.
 *
 * Products and tables
 *
 * - linear: x (M, in), weight ((out, in), or (in, out) if weight_in_out; stored), bias (out)?
 *   -> y (M, out)
 * - linear_grad_input: dy (M, out), weight (stored) -> dx (M, in)
 * - linear_add: x (M, in), weight (as linear's; stored), addend (M, out), bias (out)? -> y (M, out)
 *   = addend + linear; in the addend's place ok. linear_grad_input_add: dy (M, out), weight
 *   (stored), addend (M, in) -> dx (M, in) = addend + linear_grad_input; in the addend's place ok.
 *   The same bits as their parts, the product being made first
 * - linear_grad_weight: x (M, in), dy (M, out) -> dweight acc, chain
 * - bias_grad: dy (M, out) -> dbias (out) acc, chain
 * - embedding: index (M) i64, table (V, C; stored) -> y (M, C). WEIR_ERR_ARGUMENT for an index
 *   outside [0, V), naming it in call->error. With `packed` the index is documents (R, 2, T), which
 *   is checked, too: see below
 * - embedding_grad: index (M), dy (M, C) -> dtable (V, C) acc; ascending order of M, on a GPU in
 *   eight parts of M where a row has more than 32
 * - position_add: x (R, T, C), table (P, C), P >= T -> y (R, T, C); in place ok
 * - position_grad: dy (R, T, C) -> dtable (P, C) acc; rows T.. are 0; ascending order of R
 *
 * Packed rows. With `packed` a row is several documents one after the other, and documents (R, 2,
 * T) i64 holds its tokens' numbers, then for each token the place in the row, from 0 on, of the
 * first token of its document: the token's own where one begins, else that of the token before.
 * Tokens see those of their own document only, and are counted from its first: so each document has
 * the numbers that it would have in a row of its own. Only embedding checks what stands there
 *
 * Normalisation and attention
 *
 * - layer_norm: x (M, C), weight (C), bias (C) -> y (M, C), mean (M), rstd (M); biased variance,
 *   eps inside the root. Squares that overflow are scaled; numbers that are all the same are their
 *   mean exactly
 * - layer_norm_grad_input: dy, x (M, C), mean, rstd (M), weight (C) -> dx (M, C)
 * - layer_norm_grad_weight: dy, x (M, C), mean, rstd (M) -> dweight (C) acc, dbias (C) acc
 * - add_layer_norm: a, b (M, C), weight (C), bias (C) -> y (M, C), mean (M), rstd (M), sum (M, C):
 *   sum = a + b, and layer_norm of that. The same bits as its parts
 * - add_layer_norm_grad_input: dy, dsum, sum (M, C), mean, rstd (M), weight (C) -> dx (M, C) =
 *   dsum + layer_norm_grad_input of dy and sum; dsum is what the sum's other readers gave. The same
 *   bits as its parts
 * - rms_norm: x (M, C), weight (C)? -> y (M, C), rstd (M) = 1 / sqrt(the squares' mean + eps);
 *   rms_norm_grad_input: dy, x (M, C), rstd (M), weight (C)? -> dx (M, C); rms_norm_grad_weight:
 *   dy, x, rstd -> dweight (C) acc. has_bias says that the weight is there
 * - residual_mix: weight (C), query (C), S sources x_s (M, C) -> y (M, C), share (M, S), rstd (M,
 * S): to each token's S vectors one head of attention, whose keys are rms_norm(x_s) with `weight`,
 *   whose query is `query`, and whose values are the sources: share = softmax over s of query .
 *   key_s, y = sum of share_s * x_s (block attention residuals, arXiv 2603.15031)
 * - residual_mix_grad: dy (M, C), share, rstd (M, S), weight, query, S sources x_s, S sums d_s (M,
 *   C) or NULL each -> pull (M, C), S gradients dx_s (M, C) = d_s + the source's, which is made
 *   first; d_s is what its other readers gave. With k_s = share_s * (dy . x_s - the mean of dy .
 *   x_t by shares): pull = sum of k_s * rstd_s * x_s, of parameters' dtype; dx_s may have d_s's
 *   memory
 * - residual_mix_grad_weight: pull (M, C), weight, query -> dweight (C) acc = query * the sum of
 *   pull over M, dquery (C) acc = weight * that sum
 * - attention: qkv (R, T, 3C): per token q, k, v, each (heads, C / heads) -> y (R, T, C),
 *   lse (R, heads, T). A query sees the keys up to its own, or, with sees_all, all; scores / sqrt(C
 *   / heads); never more than a block of scores in workspace. lse = log of the sum of exp of the
 *   scaled scores. In one number, as libraries keep it: what its rounding costs a gradient is what
 *   the rounding of the largest score itself does
 * - attention_grad: dy (R, T, C), qkv, y, lse -> dqkv (R, T, 3C)
 * - grouped_attention: q (R, T, C), k, v (R, T, D), D = kv_heads * C / heads, documents if packed
 *   -> y (R, T, C), lse (R, heads, T): each of kv_heads' keys and values serves heads / kv_heads
 *   heads in turn (GQA: Ainslie et al., 2023). A query sees the keys up to its own, with `reach` >
 * 0 the last `reach` of them alone. All else as attention: with kv_heads = heads the same bits.
 *   grouped_attention_grad: dy (R, T, C), q, k, v, y, lse, documents if packed -> dq (R, T, C), dk,
 *   dv (R, T, D)
 * - rope: x (R, T, C), documents if packed -> y: rotary position embedding (Su et al., 2021) in
 *   Hugging Face's order: numbers i and i + size / 2 of each head, size = C / heads, turn by the
 *   angle t * frequencies[i] of token t, that product rounded to F32, as models are trained. In
 *   place ok. rope_grad: dy, documents if packed -> dx, turned back; in place ok
 * - softmax: x (M, C) -> y over the last dimension; the largest of each M is subtracted first
 * - softmax_grad: dy, y (M, C) -> dx = y * (dy - sum(dy * y))
 *
 * Pointwise; N = width = all elements of a row
 *
 * - gelu: x -> y, `approximate` tanh or erf; gelu_grad: dy, x -> dx
 * - relu: x -> y; in place ok; relu_grad: dy, x (or y) -> dx (0 where x <= 0)
 * - leaky_relu: x -> y = x > 0 ? x : slope * x, slope >= 0; in place ok. leaky_relu_grad: dy, y
 *   -> dx = y > 0 ? dy : slope * dy
 * - scale: x -> y = slope * x; in place ok; its own gradient
 * - silu: x -> y = x * sigmoid(x); silu_grad: dy, x -> dx
 * - swiglu: gate, up -> y = silu(gate) * up (Shazeer, 2020); swiglu_grad: dy, gate, up -> dgate,
 * dup
 * - sigmoid: x -> y; in place ok; sigmoid_grad: dy, y -> dx. No overflow for any x
 * - tanh: x -> y; in place ok; tanh_grad: dy, y -> dx
 * - dropout: x (R, N) -> y = keep ? x / (1 - p) : 0; in place ok. keep of element e of row r: word
 *   e % 4 of weir__philox_words(seed, mini_batch, op, row_first + r, e / 4), as (word >> 8) *
 *   2^-24 >= p. Elements are counted in PyTorch's order: where `channels` > 0 the row lies in
 *   memory as (N / channels, channels), and the number at (pixel, c) is element c * (N / channels)
 *   + pixel. Also its own gradient (dy -> dx). Identity when call->infer. The scale 1 / (1 - p) is
 *   computed in double, rounded to the dtype
 * - dropout_add: x, residual (R, N) -> y = residual + dropout(x); the same bits as its parts
 * - dropout2d: x (R, T pixels, C) -> y: a whole channel of a row is kept or dropped; as dropout,
 *   with the channel as the element. In place ok; its own gradient
 * - add: a, b -> y; in place ok. multiply: a, b -> y = a * b; in place ok; its own gradient, from
 * dy and the other operand
 * - bias_add: x (R, N), bias (out) -> y = x + bias: N = tokens * out, the bias repeats; in place ok
 * - bias_gelu: x (R, N), bias (out) -> y = gelu(x + bias): N = tokens * out, the bias repeats.
 *   bias_gelu_grad: dy, x, bias -> dx, which is also the gradient of what the bias was added to.
 *   bias_dropout_add: x (R, N), bias (out), residual (R, N) -> y = residual + dropout(x + bias).
 *   The same bits as their parts, a product's bias being added last
 * - narrow: x (R, N), F32 where the kernel's dtype is BF16 -> y at the kernel's dtype; widen: the
 *   other way. Copies at other dtypes
 * - transpose: x (R, T, in, out) -> y (R, T, out, in): from PyTorch's order of an image to channels
 *   last (T = 1, in = channels, out = pixels), and back
 *
 * Images: (R, height, width, channels) in memory; window.in and window.out are the planes
 *
 * - conv2d: x (R, in plane, in), weight (out, in / groups, kernel) in PyTorch's order OIHW,
 *   bias (out)? -> y (R, out plane, out). Zero padding. May keep packed weights (see `pack`)
 * - conv2d_grad_input: dy (R, out plane, out), weight -> dx (R, in plane, in): conv_transpose2d
 *   forward, whose gradients are conv2d and conv2d_grad_weight
 * - conv2d_grad_weight: x, dy -> dweight (OIHW) acc, as a product chain. Of all three: what is
 * infinite or NaN may make NaN of results that do not read it, up to three pixels or taps away, and
 * so may numbers beyond a quarter of the largest (minimal filtering: net/cpu/vector_winograd.h)
 * - instance_norm: x (R, T pixels, C), weight (C)?, bias (C)? -> y, mean (R, C), rstd (R, C) over
 *   the pixels of each row and channel; biased variance, eps inside the root. has_bias says that
 *   weight and bias are both there
 * - instance_norm_grad_input: dy, x, mean, rstd, weight? -> dx
 * - instance_norm_grad_weight: dy, x, mean, rstd -> dweight (C) acc, dbias (C) acc
 * - instance_norm_act: x (R, T pixels, C) -> y, mean (R, C), rstd (R, C): leaky_relu(instance_norm(
 *   dropout2d(x))) with slope and p (p = 0: without dropout); no weight. The same bits as its parts
 * - instance_norm_act_grad: dy, y, x, mean, rstd -> dx: dropout2d(instance_norm_grad_input(
 *   leaky_relu_grad(dy, y), dropout2d(x), mean, rstd)); the same bits as its parts
 * - batch_norm: x (R, T pixels, C), weight (C)?, bias (C)?, running_mean (C), running_var (C)
 *   -> y, mean (C), variance (C): the last two double, over all rows of the call and their pixels;
 *   the variance is biased. y = (x - mean) / sqrt(variance + eps), and times weight plus bias.
 *   `tracks` says that the running numbers are there: then call->infer takes them for mean and
 *   variance, and leaves those outputs alone. WEIR_ERR_ROWS for one number per channel, but in
 *   inference. Sums are in double
 * - batch_norm_sums: dy, x, mean, variance -> sum of dy (C), sum of dy times the normal x (C);
 * double
 * - batch_norm_grad_input: dy, x, mean, variance, the two sums, weight? -> dx; in place ok
 * - batch_norm_act: as batch_norm, and behind its inputs an addend (R, T pixels, C) if `adds` ->
 *   y, mean, variance: y = batch_norm's + addend, and with `activates` relu of that; in place ok,
 *   in the addend's place too. The same bits as its parts
 * - batch_norm_act_sums: dy, y, x, mean, variance -> g = relu_grad(dy, y), and the two sums of
 *   batch_norm_sums by g; in place ok. The same bits as its parts
 * - batch_norm_grad_weight: the two sums -> dweight (C) acc, dbias (C) acc
 * - batch_norm_statistics: mean, variance, running_mean (C) -> moments (C, 2, WEIR__MOMENT_DIGITS)
 *   and the count, WEIR__MOMENT_DIGITS more, acc (net/moments.h): what R rows of T pixels add to
 *   the mini-batch's; with `plain`, what they add to the running numbers, behind which as many
 *   micro-batches follow as call->rows_total leaves rows
 * - max_pool2d: x (R, in plane, C) -> y (R, out plane, C); padding counts as -infinity; NaN wins.
 *   Every window of a pool holds a pixel: padding is at most half the kernel
 * - max_pool2d_grad: dy, x -> dx: each window's gradient goes to its first largest number in row
 *   order (a NaN is larger than any, the last NaN of a window counts, as in PyTorch)
 * - avg_pool2d: divided by the kernel's size if window.count_padding, else by the pixels inside;
 *   padding may be negative, and where a window then holds no pixel the mean is 0.
 *   avg_pool2d_grad: dy -> dx. With window.adaptive, output i averages inputs floor(i * in / out) …
 *   ceil((i + 1) * in / out) - 1 (adaptive_avg_pool2d), and kernel, stride and padding mean nothing
 * - upsample: x (R, in plane, C) -> y (R, out plane, C), nearest; out = in * window.stride;
 *   upsample_grad: dy -> dx
 * - concat: a (R, in plane, in), b (R, out plane, out) -> y (R, out plane, in + out): a's channels,
 *   with zeros to the right and below where its plane is smaller, then b's
 * - concat_grad_a: dy -> da; concat_grad_b: dy -> db
 *
 * Losses: one double, the sum / weight; 0 where the weight is 0 (PyTorch: NaN)
 *
 * - cross_entropy: logits (M, V), target (M) i64 -> loss (over those not ignored), largest (M):
 *   the largest of each M, total (M): the sum of exp(logits - largest). They stay apart: their log
 *   of sum of exp in one number would be rounded to the unit of the largest logit.
 *   WEIR_ERR_ARGUMENT for a target outside [0, V) that is not ignored
 * - cross_entropy_grad: logits, target, largest, total -> dlogits = (exp(logits - largest) / total
 * - onehot) / weight, 0 where ignored
 * - linear_cross_entropy: x (M, in), weight (as linear's; stored), target (M) i64, bias (out)? ->
 *   loss: cross_entropy of linear's y, V = out, of which a slice is in workspace at a time. The
 *   same bits as its parts
 * - linear_cross_entropy_grad: the same -> loss, dx (M, in), dweight and dbias (out) acc, chain:
 *   what cross_entropy, its gradient and linear's gradients make, while the slice is there. Without
 *   the last two where `frozen`; an output that is NULL is not asked for. The same bits as its
 *   parts
 * - mse: y, t (R, N) -> loss of the squares; weight counts elements. mse_grad: y, t -> dy = 2 (y -
 * t) / weight
 * - bce_with_logits: x, t (R, N) -> loss: max(x, 0) - x t + log(1 + exp(-|x|)); weight counts
 *   elements. An infinite x is taken as the limit: 0 where t agrees with it, else infinite.
 *   bce_with_logits_grad: x, t -> dx = (sigmoid(x) - t) / weight
 *
 * Inference of one token at a time: a row is one token of one sequence, which call->places names
 *
 * - attention_cached: qkv (R, 3C) -> y (R, C). Keeps keys and values in call->cache (sequences,
 *   P = table, 2C): first all rows' go to their place, then each row attends to the places 0 … its
 *   own of its sequence
 * - grouped_attention_cached: q (R, C), k, v (R, D) -> y (R, C), as attention_cached does; the
 * cache is (sequences, P, 2D). rope_cached: x (R, C) -> y, at its place; in place ok
 * - position_cached: x (R, C), table (P, C) -> y = x + the row of its place; in place ok
 *
 * The user's own
 *
 * - custom, custom_grad: shape->custom says what is done (weir_net.h)
 */
#define WEIR__OP_MAP(X)                                                                            \
    X(linear)                                                                                      \
    X(linear_grad_input)                                                                           \
    X(linear_add)                                                                                  \
    X(linear_grad_input_add)                                                                       \
    X(linear_grad_weight)                                                                          \
    X(bias_grad)                                                                                   \
    X(embedding)                                                                                   \
    X(embedding_grad)                                                                              \
    X(position_add)                                                                                \
    X(position_grad)                                                                               \
    X(layer_norm)                                                                                  \
    X(layer_norm_grad_input)                                                                       \
    X(layer_norm_grad_weight)                                                                      \
    X(add_layer_norm)                                                                              \
    X(add_layer_norm_grad_input)                                                                   \
    X(rms_norm)                                                                                    \
    X(rms_norm_grad_input)                                                                         \
    X(rms_norm_grad_weight)                                                                        \
    X(residual_mix)                                                                                \
    X(residual_mix_grad)                                                                           \
    X(residual_mix_grad_weight)                                                                    \
    X(attention)                                                                                   \
    X(attention_grad)                                                                              \
    X(grouped_attention)                                                                           \
    X(grouped_attention_grad)                                                                      \
    X(rope)                                                                                        \
    X(rope_grad)                                                                                   \
    X(softmax)                                                                                     \
    X(softmax_grad)                                                                                \
    X(gelu)                                                                                        \
    X(gelu_grad)                                                                                   \
    X(relu)                                                                                        \
    X(relu_grad)                                                                                   \
    X(leaky_relu)                                                                                  \
    X(leaky_relu_grad)                                                                             \
    X(silu)                                                                                        \
    X(silu_grad)                                                                                   \
    X(swiglu)                                                                                      \
    X(swiglu_grad)                                                                                 \
    X(sigmoid)                                                                                     \
    X(sigmoid_grad)                                                                                \
    X(tanh)                                                                                        \
    X(tanh_grad)                                                                                   \
    X(dropout)                                                                                     \
    X(dropout_add)                                                                                 \
    X(dropout2d)                                                                                   \
    X(bias_add)                                                                                    \
    X(bias_gelu)                                                                                   \
    X(bias_gelu_grad)                                                                              \
    X(bias_dropout_add)                                                                            \
    X(add)                                                                                         \
    X(multiply)                                                                                    \
    X(narrow)                                                                                      \
    X(widen)                                                                                       \
    X(transpose)                                                                                   \
    X(conv2d)                                                                                      \
    X(conv2d_grad_input)                                                                           \
    X(conv2d_grad_weight)                                                                          \
    X(instance_norm)                                                                               \
    X(instance_norm_grad_input)                                                                    \
    X(instance_norm_grad_weight)                                                                   \
    X(instance_norm_act)                                                                           \
    X(instance_norm_act_grad)                                                                      \
    X(batch_norm)                                                                                  \
    X(batch_norm_sums)                                                                             \
    X(batch_norm_grad_input)                                                                       \
    X(batch_norm_act)                                                                              \
    X(batch_norm_act_sums)                                                                         \
    X(batch_norm_grad_weight)                                                                      \
    X(batch_norm_statistics)                                                                       \
    X(max_pool2d)                                                                                  \
    X(max_pool2d_grad)                                                                             \
    X(avg_pool2d)                                                                                  \
    X(avg_pool2d_grad)                                                                             \
    X(upsample)                                                                                    \
    X(upsample_grad)                                                                               \
    X(concat)                                                                                      \
    X(concat_grad_a)                                                                               \
    X(concat_grad_b)                                                                               \
    X(cross_entropy)                                                                               \
    X(cross_entropy_grad)                                                                          \
    X(linear_cross_entropy)                                                                        \
    X(linear_cross_entropy_grad)                                                                   \
    X(mse)                                                                                         \
    X(mse_grad)                                                                                    \
    X(bce_with_logits)                                                                             \
    X(bce_with_logits_grad)                                                                        \
    X(attention_cached)                                                                            \
    X(grouped_attention_cached)                                                                    \
    X(rope_cached)                                                                                 \
    X(position_cached)                                                                             \
    X(scale)                                                                                       \
    X(custom)                                                                                      \
    X(custom_grad)

enum weir__op_code {
#define WEIR__OP_ENUM(name) WEIR__OP_##name,
    WEIR__OP_MAP(WEIR__OP_ENUM)
#undef WEIR__OP_ENUM
        WEIR__OP_COUNT
};

#define WEIR__SOURCES_MAX 64

struct weir__plane {
    int64_t height, width;
};

/** How an output image looks at its input. */
struct weir__window {
    struct weir__plane in, out, kernel, stride, padding;
    struct weir__plane gap; /**< conv2d: pixels between neighbouring taps, dilation less 1 */
    int64_t groups;         /**< conv2d */
    bool count_padding;     /**< avg_pool2d: PyTorch's count_include_pad */
    bool adaptive;          /**< avg_pool2d: windows follow from the planes */
};

struct weir__custom;

/** Everything about a call that is known when the program is compiled. Unused members are 0. */
struct weir__op_shape {
    enum weir__op_code op;
    enum weir_dtype dtype;
    enum weir_dtype stored; /**< of operands marked so; F32 is 0, as unused members are */
    uint32_t threads;       /**< how many at most share a call; each has its workspace */
    int64_t rows;           /**< R */
    int64_t tokens;         /**< T: rows of a matrix per row of the micro-batch */
    int64_t rows_max; /**< the most rows of any call of this node: packed weights are made for it */
    int64_t in, out;  /**< linear; embedding: in = V, out = C; channels of conv2d and concat */
    int64_t width;    /**< C, V of cross_entropy, N of element-wise ops: all elements of a
                           row, whatever `tokens` */
    int64_t heads;
    int64_t sources;          /**< S of residual_mix, 1 to WEIR__SOURCES_MAX */
    int64_t kv_heads;         /**< grouped_attention */
    int64_t reach;            /**< grouped_attention: keys that a query sees at most; 0: all */
    const float *frequencies; /**< rope: radians per token (C / heads / 2); lives as the network */
    int64_t table;            /**< rows of a table: V of embedding, P of position */
    int64_t ignore_index;
    bool weight_in_out; /**< GPT-2's Conv1D layout */
    bool has_bias;      /**< operands marked "?" are there */
    bool gelu_tanh;
    bool sees_all;        /**< attention */
    bool packed;          /**< embedding, rope, grouped_attention: rows hold several documents */
    bool tracks;          /**< batch_norm: the running numbers are there */
    bool adds, activates; /**< batch_norm_act */
    bool plain;           /**< batch_norm_statistics: they move with each micro-batch */
    bool frozen;          /**< linear_cross_entropy_grad: weight and bias do not learn */
    double eps;
    double momentum;  /**< batch_norm_statistics, plain; < 0: cumulative */
    double p;         /**< dropout */
    double slope;     /**< leaky_relu, scale */
    int64_t channels; /**< dropout of an image that lies channels last; else 0 */
    struct weir__window window;
    const struct weir__custom *custom; /**< the user's op and its operands (net/custom.h) */
    uint32_t random_op;                /**< layer << 8 | op in the layer */
};

/** Which token of which sequence each row of the mini-batch is, for inference with a cache. */
struct weir__places {
    const uint32_t *sequence, *place; /**< [row of the mini-batch] */
};

/** One call. `in` and `out` as the op's row lists them. */
struct weir__op_call {
    const struct weir__op_shape *shape;
    void *state; /**< what `prepare` made, or NULL */
    const void *const *in;
    void *const *out;
    void *workspace;
    const void *packed; /**< what `pack` made of the weights, or NULL: nothing is kept */
    void *cache;        /**< attention_cached: keys and values; lasts as long as the pipe */
    const struct weir__places *places; /**< the cached ops': where rows stand */
    struct weir_stream *stream;        /**< the worker's; a device's run gives its work to it */
    bool overwrite;                    /**< acc outputs: = instead of += */
    bool infer;
    uint64_t seed, mini_batch;
    int64_t row_first, rows_total; /**< of the mini-batch */
    double loss_weight;
    struct weir_error *error; /**< message may be filled; may be NULL */
};

/** How a call may be shared: as calls with fewer rows, each for some of the units of all operands
 * that have the row dimension. Those without are read by all parts, and nothing is added to. Such
 * kernels have no state. */
enum weir__cut {
    WEIR__CUT_NOT,     /**< the kernel itself shares its work, or nobody does */
    WEIR__CUT_ROWS,    /**< with row_first moved */
    WEIR__CUT_TOKENS,  /**< as rows of one token */
    WEIR__CUT_NUMBERS, /**< as rows of width 1 */
};

/** A backend's row for an op. */
struct weir__kernel {
    /** Bytes of workspace for a shape; NULL: none. On the thread that builds. */
    int (*measure)(const struct weir__op_shape *shape, size_t *workspace);
    /** Makes a primitive for the shape, on the worker's thread; NULL: no state. Pairs with
     * `release`. Needs no allocator of ours: libraries have their own. `stream` is the worker's.
     */
    int (*prepare)(const struct weir__op_shape *shape, struct weir_stream *stream, void **state);
    void (*release)(void *state);
    int (*run)(const struct weir__op_call *call);
    /** Packed weights, kept as long as the weights stay what they are; NULL: none. `measure_pack`
     * gives the bytes for a shape, 0 where `run` does without; `pack` fills `packed` from call->in
     * as run has it (parameters only are valid then), on the worker's thread, `state` prepared.
     * Neither depends on rows or threads (rows_max decides): whichever state packs, all of a node's
     * can run. */
    int (*measure_pack)(const struct weir__op_shape *shape, size_t *bytes);
    int (*pack)(const struct weir__op_call *call, void *packed);
    /** What rows of the same `pack` make of the same weights, in[1], begins with what this one
     * does: an earlier node's packed weights are this one's, too. */
    bool shares_pack;
    bool packs_itself; /**< `run` does without them too, at the price of packing: whether they are
                            kept is settled with the program (net/compile/lasting.c) */
    enum weir__cut cut;
    const char *library; /**< "reference", "vector", "CUDA", "cuBLASLt", "cuDNN" */
};

const char *weir__op_name(enum weir__op_code op);
/** What measure gives, for each of shape->threads parts at once where a call may be cut. */
int weir__kernel_workspace(const struct weir__kernel *kernel, const struct weir__op_shape *shape,
                           size_t *bytes);

/** What a micro-batch's moments are made of: mean * (mean - running mean), variance * (variance +
 * squares * (mean - running mean)^2), count. For all back ends, as the next one. */
struct weir__moment_weights {
    double mean, variance, squares, count;
};
struct weir__moment_weights weir__moment_weights_of(const struct weir__op_call *call);

/** WEIR_ERR_ROWS, and a message, for a batch norm of one number per channel, of which no variance
 * is known: PyTorch's fault, too. For all back ends (net/cpu/shared.c). */
int weir__check_batch(const struct weir__op_call *call);

#endif

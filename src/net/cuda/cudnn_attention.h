/* SPDX-License-Identifier: MIT */
/**
 * Attention by cuDNN: BF16, causal. All of it needs 9.18.1: before 9.16 the backward pass wants a
 * mask for tokens that are no multiple of 128, and before 9.18.1 it does not repeat on GPUs
 * of 10.x.
 *
 * The forward pass repeats as it is: a block of queries has its sums to itself. Of the backward
 * pass no engine's notes say whether it repeats, though dq is a sum over blocks that finish in any
 * order; what does repeat is known by how it is set:
 *  - 8.x and 9.0: the gradients of scores go through memory, (heads, tokens, tokens) of BF16 for
 *    each row, so that dq is one product. Rows are taken a few at once, for that to stay small;
 *  - 10.0 to 10.3: an engine adds the blocks up in order, without memory.
 * What none of it can, WEIR_ERR_UNSUPPORTED, is left to the kernels of ours: sequences too long for
 * memory on an 8.x or 9.0, other GPUs and versions, sizes that are no multiple of 8 or above 128,
 * single tokens, a machine without NVRTC, which compiles the plans. Every other failure is one: it
 * would pass, and the kernels have other bits.
 */
#ifndef WEIR_NET_CUDA_CUDNN_ATTENTION_H
#define WEIR_NET_CUDA_CUDNN_ATTENTION_H

#include "net/cuda/cudnn.h"

enum { WEIR__CUDNN_ATTENTION_LEAST = 91801 };

/** Whether it is for GPUs of that capability, 10 * major + minor. */
bool weir__cudnn_attends_on(int capability);

/** The tensors' names in a graph and a variant pack. */
enum {
    WEIR__CUDNN_ID_Q = 1,
    WEIR__CUDNN_ID_K = 2,
    WEIR__CUDNN_ID_V = 3,
    WEIR__CUDNN_ID_OUT = 4,
    WEIR__CUDNN_ID_LSE = 5,
    WEIR__CUDNN_ID_DOUT = 6,
    WEIR__CUDNN_ID_DQ = 7,
    WEIR__CUDNN_ID_DK = 8,
    WEIR__CUDNN_ID_DV = 9,
    WEIR__CUDNN_ID_DELTA = 10,
    WEIR__CUDNN_ID_SCALE = 20, /**< of the host's, as the next two */
    WEIR__CUDNN_ID_MASKED = 21,
    WEIR__CUDNN_ID_ONE = 22
};

/** For `rows` rows. cudnn_attention_graph.c */
int weir__cudnn_attention_graph(struct weir__cudnn_graph *graph, void *handle,
                                const struct weir__cuda_attend *attend, int64_t rows);

/** Two plans and what they have in common. */
struct weir__cudnn_attention {
    struct weir__cuda_attend attend;
    struct weir__cuda_attend_room room;
    int64_t at_once;                     /**< rows of a run of `whole` */
    struct weir__cudnn_plan whole, rest; /**< the rows that are left; NULL: none are */
    float scale, masked, one;            /**< what graphs take by value */
};
/** By the shape, the version and the GPU, or from disk. A cudnnStatus_t; clean_up if it is a
 * success. */
int weir__cudnn_attention_init(const struct weir__cudnn *cudnn, void *handle,
                               const struct weir__cuda_attend *attend,
                               struct weir__cudnn_attention *attention);
/** Whether the most rows were among it, which decide for all; then its engine is dropped. */
bool weir__cudnn_attention_drop(struct weir__cudnn *cudnn,
                                const struct weir__cudnn_attention *attention);
void weir__cudnn_attention_clean_up(const struct weir__cudnn *cudnn,
                                    struct weir__cudnn_attention *attention);

#endif

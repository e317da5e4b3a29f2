/* SPDX-License-Identifier: MIT */
/**
 * The net's ops as the benches of kernels time them, on CPUs and GPUs: which there are, their
 * shapes in models, the bytes they move and how near answers must be. Operands follow from the
 * shape (toys/operands.h).
 */
#ifndef WEIR_BENCH_NET_SHAPES_H
#define WEIR_BENCH_NET_SHAPES_H

#include "net/backend.h"
#include "toys/operands.h"

struct net_sizes {
    int64_t tokens, width, hidden, vocabulary, side, channels;
};

/** How an op's sizes follow from the models'. Images from NET_PIXELS on. */
enum net_form {
    NET_HIDDEN,  /**< numbers, or rows, of the MLP */
    NET_WIDTH,   /**< numbers of the residual stream */
    NET_TOKENS,  /**< rows of it */
    NET_TABLE,   /**< embedding */
    NET_PLACES,  /**< positions */
    NET_CLASSES, /**< logits of the vocabulary */
    NET_PIXELS,  /**< rows of the first level's images */
    NET_BATCH,   /**< the same, of all images at once */
    NET_PLANE,   /**< numbers of those */
    NET_POOL,
    NET_GROW,
    NET_JOIN,
    NET_TURN,
    NET_MASK /**< logits of the U-Net's pixels */
};

struct net_kind {
    enum weir__op_code op;
    enum net_form form;
    const char *suffix; /**< of the label */
    bool erf;
};

/** All ops but products and attention, and those of a few tokens or channels. */
extern const struct net_kind net_kinds[];
extern const uint32_t net_kind_count;
/** Dies where the back end has a kernel that is not among them: a row that is new must be put into
 * the list. */
void net_check_kinds(const struct weir__backend *backend);

struct weir__op_shape net_shape(const struct net_kind *kind, enum weir_dtype dtype,
                                const struct net_sizes *sizes, int64_t rows);

enum weir_dtype net_dtype(const struct operand *operand, enum weir_dtype dtype);
size_t net_bytes(const struct operand *operand, enum weir_dtype dtype);
/** Bytes that must be read and written, each once. */
size_t net_traffic(const struct weir__op_shape *shape);

/** What becomes of a row does not depend on the others. */
bool net_is_by_rows(enum weir__op_code op);

double net_number(const void *numbers, enum weir_dtype dtype, int64_t i);
/** Rounding errors of random sign, over sums that are not longer than the op's largest operand;
 * BF16 is rounded where it is stored, and where a part of a fused op would be: three times at
 * most. */
double net_tolerance(const struct operands *operands, enum weir_dtype dtype);
/** Relative to the largest number, or 1; `wanted` in F32, but what is F64 in any case. */
bool net_is_near(const struct operand *operand, enum weir_dtype dtype, const void *got,
                 const void *wanted, double tolerance);

/* ---- flat arrays (net_updates.c) ---- */

enum net_update { NET_SQUARES, NET_ACCUMULATE, NET_ADAMW, NET_SGD, NET_SGD_MOMENTUM, NET_UPDATES };

struct net_update_facts {
    const char *name;
    size_t bytes; /**< a number */
};
extern const struct net_update_facts net_updates[NET_UPDATES];

/** A GPT's parameters, each a span, as a stage of all layers has them. */
struct net_parameters {
    struct weir__span spans[4 + 12 * 12];
    uint32_t count;
    uint64_t numbers;
};
void net_parameters_init(struct net_parameters *parameters, uint32_t layers,
                         const struct net_sizes *sizes);

enum { NET_WEIGHT, NET_GRADIENT, NET_FIRST, NET_SECOND, NET_ARRAYS };

struct net_flat_arrays {
    float *arrays[NET_ARRAYS];
    double *squares; /**< by span */
    void *workspace;
    const struct weir_verdict *verdict; /**< on a GPU */
};
int net_update_run(const struct weir__flat_calls *calls, enum net_update update,
                   const struct weir__spans *spans, const struct net_flat_arrays *flat,
                   uint64_t numbers);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * What the CPU's back ends are made of (net/cpu/table.c): tables of kernels by dtype, in which rows
 * may be empty (run NULL), and of calls on flat arrays.
 */
#ifndef WEIR_CPU_H
#define WEIR_CPU_H

#include "base/team.h"
#include "net/backend.h"

/** Plain loops: every op. */
extern const struct weir__kernel weir__reference_f32[WEIR__OP_COUNT];
extern const struct weir__kernel weir__reference_f64[WEIR__OP_COUNT];

extern const struct weir__flat_calls weir__reference_flat_f32;
extern const struct weir__flat_calls weir__reference_flat_f64;

/* What every back end of CPUs does alike. */
int weir__cpu_move(const struct weir__op_call *call);
int weir__cpu_zero(const struct weir__op_call *call);
int weir__cpu_attach(struct weir_stream *stream, uint32_t threads);

/** Multiply-adds, or as much other work, that are worth another thread: some microseconds. */
#define WEIR__SHARED_LEAST 500000.0
/** As many take about as long as a number that comes from memory. */
#define WEIR__SHARED_NUMBER 8.0
/** What an exponential takes of a vector of them, in multiply-adds. */
#define WEIR__SHARED_EXPONENTIAL 16.0
/** Runs parts of the call's result (never of a sum), shared by the stream's team where their `work`
 * in all, in multiply-adds, is worth it: by shape->threads of it at most, so that `member` is below
 * that. Returns when all are done. */
void weir__share(const struct weir__op_call *call, int64_t parts, double work, weir__team_fn *run,
                 void *context);

/** Where one head of one row of the micro-batch finds its vectors: numbers from the beginning of an
 * attention's operands, which are q, k and v, or qkv for all three; and of their gradients. */
struct weir__head_place {
    int64_t q, k, v, y;
    int64_t step, kv_step;    /**< from token to token, of q, and of k and v */
    int k_operand, v_operand; /**< behind q's; 0: k and v lie in the same */
};
struct weir__head_place weir__head_place(const struct weir__op_shape *shape, int64_t row,
                                         int64_t head);
/** How many heads share their keys and values. */
int64_t weir__head_group(const struct weir__op_shape *shape);
/** One of the tokens whose keys `token` sees: the first, or one past the last. */
int64_t weir__keys_first(const struct weir__op_shape *shape, int64_t token);
int64_t weir__keys_end(const struct weir__op_shape *shape, int64_t token);

/** Of a micro-batch's token m: its number, by an embedding's index; and the place in the row of its
 * document's first token, by the documents of packed rows, else 0. */
int64_t weir__token_number(const struct weir__op_shape *shape, const int64_t *index, int64_t m);
int64_t weir__document_first(const struct weir__op_shape *shape, const int64_t *documents,
                             int64_t m);
/** Whether in[0] of packed rows is what net/kernel.h says; else WEIR_ERR_ARGUMENT, and call->error
 * names the token. */
int weir__check_documents(const struct weir__op_call *call);

/** A convolution's pass on so many rows. */
double weir__conv_multiply_adds(const struct weir__op_shape *shape, int64_t rows);
/** A 1x1 convolution as the op on (the output's pixels, channels) that it is; false: it is none.
 * With strides these are some of the input's pixels. */
bool weir__conv_as_product(const struct weir__op_shape *shape, struct weir__op_shape *product);

/** Fills call->error for an index outside [0, limit) and returns WEIR_ERR_ARGUMENT. `what` is
 * "token" or "target", `place` its number in the micro-batch. */
int weir__index_error(const struct weir__op_call *call, const char *what, int64_t place,
                      int64_t index, int64_t limit);
/** That for the first of a loss's targets, one per token, that is neither below `classes` nor
 * ignored; WEIR_OK without one. */
int weir__check_targets(const struct weir__op_call *call, const int64_t *target, int64_t classes);
/** The mean over `weight` of a sum; 0 where the whole mini-batch weighs nothing. */
double weir__weighted(double sum, double weight);
/** The smallest `word >> 8` that dropout keeps: keep is (word >> 8) >= this. */
uint32_t weir__dropout_threshold(double p);

#endif

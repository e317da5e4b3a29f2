/* SPDX-License-Identifier: MIT */
/**
 * What a net gives in f64 from the parameters that it has in f32, and how far rounding alone moves
 * that: the same step on the CPU's reference kernels, with every number that a net of some dtype
 * stores rounded to that dtype's digits as it is stored. Rounded at random to one of the two
 * numbers beside it (Monte Carlo arithmetic), samples show how a net carries errors of that size
 * on: through norms of small deviation, past kinks of ReLUs, into a pool's other winner.
 */
#ifndef WEIR_TESTS_NET_EXACT_H
#define WEIR_TESTS_NET_EXACT_H

#include "net/net_pipes.h"

struct net_rounding {
    uint32_t digits; /**< binary ones of activations, their gradients, products' weights, the input
                          and the target: 24 are F32's, 8 are BF16's; 0: nothing is rounded */
    uint64_t seed;   /**< 0: in f64, to nearest. Else in f32, for what its sums lose, and at random,
                          with errors of up to 2^-22 on top, for sums in other orders: each number
                          apart, or with an odd seed all alike, up from somewhere near the middle,
                          for numbers that are nearly equal err alike */
};

/** Trains as net_pipe_train does, on one stage of a CPU, from f32 data and the f32 values of the
 * same initial parameters. Of `options` it takes rows, chunks, schedule, clipping and the
 * optimizer. What results hold is F64, or F32 with a seed. Parameters' gradients and rows'
 * statistics, which are F32 whatever the dtype, are rounded to 24 digits. */
void net_exact_train(const struct net_problem *problem, const struct weir_net_options *options,
                     const struct trial_data *data, const struct net_rounding *rounding,
                     struct trial_result results[2]);

/** A tensor among `gradients` of a result: `count` numbers from `first` on. */
struct net_part {
    char name[64];
    size_t first, count;
    bool frozen; /**< it has no gradient */
};
enum { NET_PARTS_MAX = 160 };
struct net_parts {
    uint32_t count;
    struct net_part list[NET_PARTS_MAX];
};
void net_exact_parts(const struct net_problem *problem, const struct weir_net_options *options,
                     struct net_parts *parts);

/** Norms over numbers first … first + count - 1, in the 2-norm; `exact` is f64, `got` has `dtype`.
 */
double net_exact_distance(const void *got, enum weir_dtype dtype, const void *exact, size_t first,
                          size_t count);
double net_exact_norm(const void *exact, size_t first, size_t count);

#endif

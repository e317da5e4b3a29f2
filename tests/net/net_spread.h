/* SPDX-License-Identifier: MIT */
/**
 * How far from f64 a net of some dtype may be. The steps of net_exact.h are taken in f64; in f64
 * with all that is stored rounded to the nearest number of the dtype, which is D from that; and
 * eight times in f32 with all that is stored rounded at random: the root mean square of those
 * samples' distances says how the net carries rounding errors on. A net that computes as its dtype
 * should is trusted with
 *
 *     |got - f64| <= 8 rms + 2 D + u |f64|,    u = 2^-22 in F32, 2^-8 in BF16
 *
 * in the 2-norm of each tensor. D is for what only rounding to nearest does, as making numbers
 * equal that were not; the last term for what none of these do: gradients that a library rounds,
 * updates that do. The eight is for tensors of few numbers, whose distance may by chance be small
 * in all samples. A tensor whose 8 rms + 2 D is more than |f64| is nothing but rounding errors, as
 * a bias before a norm: there |f64| is the largest of the net's gradients.
 */
#ifndef WEIR_TESTS_NET_SPREAD_H
#define WEIR_TESTS_NET_SPREAD_H

#include "net/net_exact.h"

/** Distances from f64 of what is in two trial_results. */
struct net_distances {
    double loss[2], norm, output, input_grad;
    double gradients[NET_PARTS_MAX]; /**< by part; 0 where it is frozen */
};

struct net_spread {
    struct net_parts parts;
    struct trial_result exact[2];
    uint32_t digits; /**< of the dtype */
    bool has_input_grad;
    struct net_distances allowed; /**< 8 rms + 2 D */
};

/** Of the net as net_pipe_train trains it. For F32 or BF16. */
void net_spread_init(struct net_spread *spread, const struct net_problem *problem,
                     const struct weir_net_options *options, const struct trial_data *data,
                     enum weir_dtype dtype);
void net_spread_clean_up(struct net_spread *spread);
/** Fails the test, naming the tensor, where something is further from f64 than it may be. After the
 * two updates only the loss is looked at. */
void net_spread_check(const struct net_spread *spread, const struct trial_result got[2],
                      enum weir_dtype dtype);

#endif

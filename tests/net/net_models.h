/* SPDX-License-Identifier: MIT */
/** Random small models for tests of the net library: chains of pointwise layers, GPTs, decoders, and
 * image nets, with skips that nest, cross, and have many readers. Failures go to the harness. */
#ifndef WEIR_TESTS_NET_MODELS_H
#define WEIR_TESTS_NET_MODELS_H

#include "weir_net.h"

struct net_problem {
    struct weir_model *model; /**< test_allocator()'s; NULL where the test failed */
    struct weir_tensor input, target;
    int64_t classes, labels; /**< bounds of integer inputs and targets */
    bool packed;             /**< rows are of several documents */
};

/** Of all kinds; every third has frozen parameters. The caller destroys the model. */
void net_problem_init(struct net_problem *problem);
/** Of the kinds that run on GPUs: no decoders. */
void net_problem_init_for_gpus(struct net_problem *problem);
/** Prints the layers, by stage where `balance` (or NULL) says it. */
void net_problem_print(const struct net_problem *problem, uint32_t stages, const uint32_t *balance);

#endif

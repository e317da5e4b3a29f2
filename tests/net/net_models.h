/* SPDX-License-Identifier: MIT */
/** Random small models for tests of the net library: chains of pointwise layers, GPTs, decoders,
 * and image nets, with skips that nest, cross, and have many readers. Failures go to the harness.
 */
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
/** Such as GPUs have kernels for: a row is one document. */
void net_problem_init_for_gpus(struct net_problem *problem);
/** Two layers of two heads, with dropout. NULL where the test failed, as below. */
struct weir_model *net_small_gpt(uint32_t width, uint32_t context, uint32_t vocab);
/** As Qwen 2.5: two heads that share keys, biases, a tied embedding. */
struct weir_model *net_small_decoder(uint32_t layers, uint32_t width, uint32_t inner,
                                     uint32_t context, uint32_t vocab);
/** Prints the layers, by stage where `balance` (or NULL) says it. */
void net_problem_print(const struct net_problem *problem, uint32_t stages, const uint32_t *balance);

#endif

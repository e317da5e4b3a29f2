/* SPDX-License-Identifier: MIT */
/** Random pipelines for a net that add gradients up in the same order as another one. */
#ifndef WEIR_TESTS_NET_PIPES_H
#define WEIR_TESTS_NET_PIPES_H

#include "net/net_models.h"
#include "net/net_trial.h"

/** Whether a net may run on GPUs here; else the test is skipped. Behind the fake driver libraries
 * are the reference kernels; a real GPU needs the real ones, and the fake driver, where it stands
 * for a real one (test_gpu_mode.c), has neither. */
bool net_pipe_has_libraries(void);
/** Layers for each of `stages` stages. */
void net_pipe_balance(uint32_t layers, uint32_t stages, uint32_t *balance);
/** Any schedule and workers that can be had, if the schedule adds gradients in the same order:
 * `descending`, as gpipe does, or as 1f1b does. */
void net_pipe_schedule(struct weir_net_options *options, bool descending);
/** Whether all its backwards are whole: those that it splits itself have their W in an order that
 * another splitting might not keep. */
bool net_pipe_is_whole(const char *schedule);
enum weir_checkpoint net_pipe_checkpoint(void);
/** Prints layers and options. */
void net_pipe_print(const struct net_problem *problem, const struct weir_net_options *options);

/** Trains a net of these options: loss, outputs and gradients of a step, and of another one after
 * two updates. */
void net_pipe_train(const struct net_problem *problem, const struct weir_net_options *options,
                    const struct trial_data *data, struct trial_result results[2]);
/** The same with a net that the caller destroys. */
void net_pipe_train_net(const struct net_problem *problem, struct weir_net *net,
                        const struct trial_data *data, struct trial_result results[2]);
/** Data for the problem. */
void net_pipe_data(const struct net_problem *problem, const struct weir_net_options *options,
                   struct trial_data *data);

#endif

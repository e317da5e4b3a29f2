/* SPDX-License-Identifier: MIT */
/** What tests of the planner share: layers at random, from the harness' seed. */
#ifndef WEIR_TESTS_PLANNER_PROBLEMS_H
#define WEIR_TESTS_PLANNER_PROBLEMS_H

#include "weir_planner.h"

enum { PROBLEM_LAYERS_MOST = 256 };

struct problem {
    struct weir_layer_cost layers[PROBLEM_LAYERS_MOST];
    struct weir_skip_route skip;
    uint32_t readers[2];
    struct weir_layer_costs costs; /**< of the above, which must not move */
};

/** With a skip that two layers read, by half a chance, where there are enough. */
void problem_fill(struct problem *problem, uint32_t layers);
/** The same layers with as many times the rows; the part `fixed` of times does not grow by them. */
void problem_scale(const struct problem *from, double rows, double fixed, struct problem *problem);
/** Beside `problem`'s the costs of a second kind, `other`, of the same layers with times and bytes
 * of their own; and `count` workers of either, one at twice the time. */
void problem_differ(struct problem *problem, struct problem *other, uint32_t count,
                    struct weir_worker_cost *workers);
/** Links that cost something; everything else as it comes. */
struct weir_planner_options problem_options(const struct problem *problem, uint32_t workers,
                                            uint32_t micro_batches);
/** On test_allocator(). */
struct weir_planner *problem_planner(void);

#endif

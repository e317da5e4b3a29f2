/* SPDX-License-Identifier: MIT */
#include "engine/planner_problems.h"

#include "harness.h"

#include <string.h>

static double milliseconds(uint64_t most) {
    return 1e-3 * (double)(1 + test_random_below(most));
}

static void fill_layer(struct weir_layer_cost *layer) {
    double *seconds = layer->seconds;
    *layer = (struct weir_layer_cost){.saved = 64 * (1 + test_random_below(2000)),
                                      .saved_output = 64,
                                      .weight_saved = 64,
                                      .border = 64 * (1 + test_random_below(100)),
                                      .workspace = 64 * test_random_below(100),
                                      .parameters = 64 * test_random_below(200)};
    layer->border_gradient = layer->border;
    layer->gradients = layer->trainable = layer->parameters;
    layer->optimizer = 2 * layer->parameters;
    seconds[WEIR_KIND_F] = milliseconds(4);
    layer->forward_checkpoint = seconds[WEIR_KIND_F];
    seconds[WEIR_KIND_R] = layer->recompute_last = 0.5 * seconds[WEIR_KIND_F];
    seconds[WEIR_KIND_I] = milliseconds(4);
    seconds[WEIR_KIND_W] = milliseconds(4);
    seconds[WEIR_KIND_B] = seconds[WEIR_KIND_I] + seconds[WEIR_KIND_W];
}

void problem_fill(struct problem *problem, uint32_t layers) {
    memset(problem, 0, sizeof *problem);
    for (uint32_t i = 0; i < layers; i++) fill_layer(&problem->layers[i]);
    problem->costs = (struct weir_layer_costs){layers, problem->layers, 0, &problem->skip, 1e-5};
    if (layers < 4 || test_random_below(2) == 0) return;
    problem->readers[0] = 1 + (uint32_t)test_random_below(layers - 2);
    problem->readers[1] = layers - 1;
    problem->skip = (struct weir_skip_route){0, 2, problem->readers, 6400, true, "", "s"};
    problem->costs.skip_count = 1;
}

void problem_differ(struct problem *problem, struct problem *other, uint32_t count,
                    struct weir_worker_cost *workers) {
    *other = *problem;
    other->costs.layers = other->layers;
    for (uint32_t i = 0; i < problem->costs.layer_count; i++) {
        fill_layer(&other->layers[i]);
        other->layers[i].border = problem->layers[i].border;
        other->layers[i].border_gradient = problem->layers[i].border_gradient;
    }
    problem->costs.other = &other->costs;
    for (uint32_t w = 0; w < count; w++) workers[w] = (struct weir_worker_cost){w % 2, 1};
    workers[test_random_below(count)].pace = 2;
}

struct weir_planner_options problem_options(const struct problem *problem, uint32_t workers,
                                            uint32_t micro_batches) {
    struct weir_planner_options options = WEIR_PLANNER_OPTIONS_INIT;
    options.costs = &problem->costs;
    options.workers = workers;
    options.micro_batches = micro_batches;
    options.link.latency = 1e-4;
    options.link.seconds_per_byte = 1e-9;
    return options;
}

struct weir_planner *problem_planner(void) {
    struct weir_planner *planner = NULL;
    EXPECT_STATUS(weir_planner_new(test_allocator(), &planner), WEIR_OK);
    return planner;
}

void problem_scale(const struct problem *from, double rows, double fixed, struct problem *problem) {
    double times = fixed + (1 - fixed) * rows;
    *problem = *from;
    problem->skip.readers = problem->readers;
    problem->skip.bytes = (uint64_t)((double)from->skip.bytes * rows);
    problem->costs.layers = problem->layers;
    problem->costs.skips = &problem->skip;
    for (uint32_t i = 0; i < from->costs.layer_count; i++) {
        struct weir_layer_cost *layer = &problem->layers[i];
        for (int k = 0; k < WEIR_KIND_COUNT; k++) layer->seconds[k] *= times;
        layer->forward_checkpoint *= times;
        layer->recompute_last *= times;
        layer->saved = (uint64_t)((double)layer->saved * rows);
        layer->saved_output = (uint64_t)((double)layer->saved_output * rows);
        layer->border = layer->border_gradient = (uint64_t)((double)layer->border * rows);
        layer->workspace = (uint64_t)((double)layer->workspace * rows);
    }
}

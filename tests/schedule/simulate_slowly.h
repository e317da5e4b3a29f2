/* SPDX-License-Identifier: MIT */
/**
 * A simulation written another way, for tests: dependencies by searching the table for what each
 * action needs, times by going over all actions until nothing changes, live activations by sorting
 * all events. Over ranks, by looking for the next end of all, whose messages then get in line. Of
 * replicas, by a table that has them all. Quadratic and plain.
 */
#ifndef WEIR_TESTS_SIMULATE_SLOWLY_H
#define WEIR_TESTS_SIMULATE_SLOWLY_H

#include "weir_predict.h"

enum { SLOW_ACTIONS_MAX = 2048, SLOW_WORKERS_MAX = 16, SLOW_STAGES_MAX = 24, SLOW_SKIPS_MAX = 8 };

struct slow_worker {
    double busy, copy, host, window, model_idle;
    uint64_t peak_activations, peak_bytes;
};

struct slow_prediction {
    bool complete; /**< false: the rows wait for each other */
    double step, total;
    uint64_t moved_bytes;
    double start[SLOW_ACTIONS_MAX], end[SLOW_ACTIONS_MAX];
    struct slow_worker workers[SLOW_WORKERS_MAX];
    uint64_t stage_peaks[SLOW_STAGES_MAX];
};

/** Noise and micro_batch_scale are left out. */
void simulate_slowly(const struct weir_simulate_options *options, struct slow_prediction *out);

#endif

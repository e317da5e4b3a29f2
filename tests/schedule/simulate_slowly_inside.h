/* SPDX-License-Identifier: MIT */
/** Inside the simulation written another way: its state, and what groups and replicas add. */
#ifndef WEIR_TESTS_SIMULATE_SLOWLY_INSIDE_H
#define WEIR_TESTS_SIMULATE_SLOWLY_INSIDE_H

#include "schedule/simulate_slowly.h"

enum { SLOW_TURNS_MAX = 4096 };

/* What an action produces, the border's or a skip's, and its bytes. */
struct turn {
    uint32_t from, what;
    uint64_t bytes;
};

/** What is being simulated: times per action and copies or none. */
struct slow {
    const struct weir_simulate_options *options;
    const struct weir_table *table;
    double seconds[SLOW_ACTIONS_MAX];
    bool free_crossings;
    double host;
    double start[SLOW_ACTIONS_MAX], end[SLOW_ACTIONS_MAX]; /* NaN: not known */
    double produced[SLOW_ACTIONS_MAX], ready[SLOW_ACTIONS_MAX];
    /* over ranks: when a worker has what an action sends, the border's or a skip's; NaN: it was not
     * sent yet */
    double came[SLOW_ACTIONS_MAX][1 + SLOW_SKIPS_MAX][SLOW_WORKERS_MAX];
    bool sent[SLOW_ACTIONS_MAX];
    bool made[SLOW_ACTIONS_MAX][1 + SLOW_SKIPS_MAX];
    struct turn turns[SLOW_WORKERS_MAX][SLOW_TURNS_MAX]; /* of what a worker reads of others */
    uint32_t turn_count[SLOW_WORKERS_MAX];
    double way_out[SLOW_WORKERS_MAX]
                  [2]; /* a host's, and a rank's within its host: free from then */
    /* replicas: all of them in one table, whose stages lie `each` apart */
    const struct weir_shared_costs *shared;
    uint32_t replicas, each;
    struct weir_table all;
    uint32_t rows[SLOW_WORKERS_MAX + 1];
    struct weir_action actions[SLOW_ACTIONS_MAX];
    bool shared_out[2][SLOW_STAGES_MAX];            /* gradients, parameters: they are sent */
    double part[SLOW_STAGES_MAX][SLOW_WORKERS_MAX]; /* of a stage, when a replica has its slice */
    uint64_t sums_begun[SLOW_ACTIONS_MAX], sums_added[SLOW_ACTIONS_MAX];
    double gathered;
};

enum { BORDER, SKIPS };

/** The first action of one of the kinds, or -1. */
int64_t slow_find(const struct slow *s, const char *kinds, uint32_t stage, uint32_t micro_batch);
/** Of what a stage's gradients, or parameters, are, the bytes that a replica owns. */
uint64_t slow_slice(const struct slow *s, bool parameters, uint32_t stage, uint32_t replica);
/** Makes the table of all replicas, N before the first U of a line, from the highest stage on. */
void slow_expand(struct slow *s);
/** What a stage's gradients do to its groups' sums. */
void slow_sum_stage(struct slow *s, uint32_t stage);
/** What an action takes besides for that and for slices, whose owner alone updates them. */
void slow_share_seconds(struct slow *s, uint32_t action);

#endif

/* SPDX-License-Identifier: MIT */
/**
 * What `weir simulate` is made of: a case (a table and its costs), its prediction, and the forms
 * that people and programs get of it.
 */
#ifndef WEIR_TOOLS_SIMULATE_H
#define WEIR_TOOLS_SIMULATE_H

#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/pipe_costs.h"
#include "cli/step_options.h"
#include "weir_predict.h"

#include <jansson.h>

/** Costs as the command line gives them: the same for all stages. */
struct simulate_costs {
    double seconds[WEIR_KIND_COUNT];
    struct weir_link_cost link;
    const struct weir_rank_links *ranks; /**< NULL: one process */
    double host, noise;
    uint64_t border_bytes, activation_bytes, gradient_bytes, seed;
    uint32_t replicas, groups; /**< of gradients, of a replica */
    bool recompute_late;
};

/** Which table, of a replica. */
struct simulate_counts {
    const char *schedule;                             /**< a name, or FILE.csv */
    uint32_t stages, workers, virtual_stages, chunks; /**< 0: the schedule's default */
    enum weir_checkpoint checkpoint;
    bool recompute_late;
    /** A worker's share of the work stays the same: with V stages per worker each takes 1 / V of
     * the given times and bytes. So that schedules can be compared that cut a model differently. */
    bool same_share;
    const struct simulate_costs *costs; /**< what auto goes by */
    uint32_t activation_limit;          /**< of auto; 0: none */
};

/** A table, its costs by stage, and what comes of them. Zeroed, then simulate_case_init. */
struct simulate_case {
    const char *name;
    struct weir_table *table;
    double share; /**< of the given costs that a stage takes: 1, or 1 / V; of a measured
                       case always 1 / V, which its costs are of by themselves */
    struct pipe_step measured; /**< of a model; zero without. Its table is this one's */
    double *stage_seconds;     /**< [stage][kind] */
    uint64_t *border_bytes, *saved_bytes, *gradient_bytes;
    struct weir_shared_costs shared;
    struct weir_simulate_options options;
    struct weir_simulator *simulator;
    struct weir_prediction prediction;
};

/** Makes the table. Faults say what cannot be. Clean up in every case. */
int simulate_case_init(struct simulate_case *c, const struct simulate_counts *counts,
                       struct weir_faults *faults, struct weir_faults *notes);
/** Fills the options' costs from the command line's. */
void simulate_case_cost(struct simulate_case *c, const struct simulate_costs *costs);
/** What a model takes, as it was measured. */
struct simulate_model {
    const struct pipe_options *pipe;
    const struct args *args;
    const struct weir_model *model;
    const struct step_options *step;
    bool balance_by_time;           /**< unless a balance was asked for */
    struct weir_profile **profiles; /**< room for one per case; cases use them */
    uint32_t profile_count;
    FILE *notes;
};
/** A case of the model under a schedule, where a case of other counts would be made and cost: table
 * and costs by stage, with the link, host time and noise of `costs`. Measures where no profile
 * before it fits. Clean up in every case. */
int simulate_model_case(struct simulate_model *model, const char *schedule,
                        const struct simulate_costs *costs, struct simulate_case *c,
                        struct weir_faults *faults);

/** Predicts. */
int simulate_case_run(struct simulate_case *c, struct weir_faults *faults);
void simulate_case_clean_up(struct simulate_case *c);
/** The most activations of a worker, in shares of one stage per worker. */
double simulate_case_peak(const struct simulate_case *c);
/** The same in bytes. */
double simulate_case_peak_bytes(const struct simulate_case *c);

/** CLI.md's object; a new reference. */
json_t *simulate_json(const struct simulate_case *c);
/** Whether it is small enough for a timeline, which needs the times of all actions. */
bool simulate_is_drawn(const struct simulate_case *c);
/** Facts, timeline, and a line per worker. */
int simulate_print(const struct people *people, const struct simulate_case *c);

/** The cases as one picture with a common scale: self-contained SVG, light and dark. */
int simulate_svg(const char *path, const struct simulate_case *cases, uint32_t count,
                 struct weir_error *error);

/** Steps with noise, as multiples of the step without: of each case `seeds` of them, sorted. */
struct simulate_noise {
    double part; /**< each task's time is off by up to this part of it */
    uint32_t seeds;
    double *factors; /**< [case][seed] */
};
/** Fills the case's `seeds` factors. */
int simulate_with_noise(const struct simulate_case *c, double part, uint32_t seeds,
                        double *factors);
/** One line per case, aligned, each with a small timeline. */
void simulate_print_compared(const struct people *people, const struct simulate_case *cases,
                             uint32_t count, const struct simulate_noise *noise);

#endif

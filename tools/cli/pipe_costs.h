/* SPDX-License-Identifier: MIT */
/**
 * What a model costs on a pipeline: the profile that an option names or that is measured on the
 * spot, the balance that follows, and the step that is predicted. Everything is asked for after
 * pipe_options_fill, with rows and optimizer known.
 */
#ifndef WEIR_TOOLS_PIPE_COSTS_H
#define WEIR_TOOLS_PIPE_COSTS_H

#include "cli/pipe_options.h"
#include "weir_profile.h"

#include <stdio.h>

/** Puts a profile with times into `storage`, unless there is one: what --profile names, which must
 * be of this model and net; where that file is not there, or none is named, it is measured now,
 * which `notes` says, and kept in the file; but over several ranks that is refused. */
int pipe_profile(const struct pipe_options *options, const struct weir_model *model,
                 struct pipe_storage *storage, const struct weir_net_options *net, FILE *notes,
                 struct weir_faults *faults);

/** The faults of pipe_balance that are seen without measuring. */
int pipe_balance_check(const struct pipe_options *options, bool predicts,
                       struct weir_faults *faults);
/** Does what --balance-by says: points net->balance at sizes in `storage`, and prints them on
 * `notes` as --balance takes them. Nothing where it says nothing, or after a fault. A --profile
 * that nothing needs is a fault, unless `predicts`. */
int pipe_balance(const struct pipe_options *options, const struct weir_model *model, bool predicts,
                 struct pipe_storage *storage, struct weir_net_options *net, FILE *notes,
                 struct weir_faults *faults);

/** A step of a net, ready to be simulated. Zeroed, then pipe_step_init. */
struct pipe_step {
    struct weir_stage_costs *stages;
    struct weir_table *table;
    double *scale;                        /**< of each micro-batch's times */
    uint64_t *gradients;                  /**< of each stage */
    double *paces;                        /**< of each worker, of all replicas */
    struct weir_link_cost *links;         /**< between all workers, where they differ; or NULL */
    struct weir_shared_costs shared;      /**< what replicas and groups take */
    struct weir_simulate_options options; /**< points to the others */
};
/** Of the net, whose balance is set, with the profile's times; the profile must outlive it. Clean
 * up in every case. */
int pipe_step_init(struct pipe_step *step, const struct weir_profile *profile,
                   const struct weir_net_options *net, struct weir_faults *faults);
void pipe_step_clean_up(struct pipe_step *step);

/** Whether links, which may be NULL, are of as many ranks as the profile; else a fault. */
bool pipe_links_fit(const struct weir_profile *profile, const struct weir_rank_links *ranks,
                    struct weir_faults *faults);
/** Seconds of a step of the net, whose balance is set, with replicas until all have all parameters.
 * `ranks` as in struct weir_simulate_options. */
int pipe_predict(const struct weir_profile *profile, const struct weir_net_options *net,
                 const struct weir_rank_links *ranks, struct weir_faults *faults, double *seconds);

#endif

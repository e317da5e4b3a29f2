/* SPDX-License-Identifier: MIT */
/**
 * What a step is of, for commands that run none: shared by plan, profile and simulate.
 */
#ifndef WEIR_TOOLS_STEP_OPTIONS_H
#define WEIR_TOOLS_STEP_OPTIONS_H

#include "cli/model_options.h"
#include "weir_net.h"

struct step_options {
    uint32_t batch;
    uint32_t optimizer; /**< adamw, sgd, none */
    double momentum;
    bool packed;
};

/** --batch, the same wherever a step is run or planned. `place`: of its uint32_t. */
#define STEP_OPTION_BATCH(place)                                                                   \
    {                                                                                              \
        "batch", ARG_U32, (place), "a mini-batch's size, of which --chunks makes micro-batches",   \
            .value = "N", .fallback = "32", .unit = "rows", .least = 1, .most = 1048576            \
    }

/** The section's options; its values are a struct step_options. */
extern const struct arg_option step_option_list[];
extern const uint32_t step_option_count;

/** As model_options_build, with rows that --packed asks for. */
int step_options_build(const struct step_options *options, const struct model_options *model,
                       const struct args *args, struct weir_faults *faults,
                       struct weir_model **built);
/** Sets rows and optimizer. */
void step_options_fill(const struct step_options *options, struct weir_net_options *net);

#endif

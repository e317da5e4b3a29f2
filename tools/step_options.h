/* SPDX-License-Identifier: MIT */
/**
 * What a step is of, for commands that run none: shared by plan, profile and simulate.
 */
#ifndef WEIR_TOOLS_STEP_OPTIONS_H
#define WEIR_TOOLS_STEP_OPTIONS_H

#include "args.h"
#include "weir_net.h"

struct step_options {
    uint32_t batch;
    uint32_t optimizer; /**< adamw, sgd, none */
    double momentum;
};

/** The section's options; its values are a struct step_options. */
extern const struct arg_option step_option_list[];
extern const uint32_t step_option_count;

/** Sets rows and optimizer. */
void step_options_fill(const struct step_options *options, struct weir_net_options *net);

#endif

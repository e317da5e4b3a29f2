/* SPDX-License-Identifier: MIT */
/**
 * `--model` and what shapes it: shared by train, grad, init, describe and plan.
 */
#ifndef WEIR_TOOLS_MODEL_OPTIONS_H
#define WEIR_TOOLS_MODEL_OPTIONS_H

#include "args.h"
#include "weir_net.h"

struct model_options {
    const char *model;
    uint32_t layers, width, heads, context, vocab;
    bool tied;
    double dropout;
};

/** The section's options; its values are a struct model_options. */
extern const struct arg_option model_option_list[];
extern const uint32_t model_option_count;

/** Builds the list of layers. Faults name the option. The model is the caller's. */
int model_options_build(const struct model_options *options, struct weir_faults *faults,
                        struct weir_model **model);

#endif

/* SPDX-License-Identifier: MIT */
/** The skips of a model and the routes that they take over a partition, for `weir describe`. */
#ifndef WEIR_TOOLS_DESCRIBE_SKIPS_H
#define WEIR_TOOLS_DESCRIBE_SKIPS_H

#include "cli/json_text.h"
#include "weir_net.h"

#include <stdio.h>

/** Prints a line per skip: its layers, shape and bytes; with `stages` (of each layer) also where it
 * goes: within a stage, or by portal to each stage that reads it. Nothing for a model without. */
int describe_skips_print(FILE *to, const struct weir_model *model, enum weir_dtype dtype,
                         const uint32_t *stages, struct weir_faults *faults);
/** The same as JSON; NULL without memory. */
json_t *describe_skips_json(const struct weir_model *model, enum weir_dtype dtype,
                            const uint32_t *stages, struct weir_faults *faults);

#endif

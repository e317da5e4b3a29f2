/* SPDX-License-Identifier: MIT */
/** A model in the form of its file. */
#ifndef WEIR_TOOLS_MODEL_JSON_H
#define WEIR_TOOLS_MODEL_JSON_H

#include "weir_net.h"

#include <jansson.h>

/** The model file's form plus `parameters` and, per layer, `parameters`, `output_shape`, `flops`
 * and `activation_bytes`, from what weir_model_infer said, and `stage` where `stages` (of each
 * layer) is given. A new reference or NULL. */
json_t *model_json(const struct weir_model *model, const struct weir_layer_facts *facts,
                   const uint32_t *stages);

#endif

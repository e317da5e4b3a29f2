/* SPDX-License-Identifier: MIT */
/**
 * A folder as Hugging Face's transformers save it: config.json says which decoder its weights are.
 */
#ifndef WEIR_TOOLS_DECODER_CONFIG_H
#define WEIR_TOOLS_DECODER_CONFIG_H

#include "weir_models.h"

/** Whether `path` is a folder with a config.json. */
bool decoder_config_is(const char *path);

/**
 * Fills `options` from the config.json in `folder`, context but not: `most` becomes the most tokens
 * that the model was made for (max_position_embeddings). Model types: llama, mistral, qwen2, qwen3.
 *
 * Every field is taken, or known to change no number, or its value is the one that changes none;
 * else it is a fault that names it. WEIR_ERR_CONFIG, WEIR_ERR_IO.
 */
int decoder_config_read(const char *folder, struct weir_decoder_options *options, uint32_t *most,
                        struct weir_faults *faults);

#endif

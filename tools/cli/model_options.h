/* SPDX-License-Identifier: MIT */
/**
 * `--model` and what shapes it: shared by train, grad, init, describe and plan.
 */
#ifndef WEIR_TOOLS_MODEL_OPTIONS_H
#define WEIR_TOOLS_MODEL_OPTIONS_H

#include "cli/args.h"
#include "weir_net.h"

struct model_options {
    const char *model;
    uint32_t layers, width, heads, context, vocab;
    uint32_t residual_block; /**< 0: not given */
    uint32_t depth, num_convs, base_channels, in_channels, out_channels;
    uint32_t filters, classes;
    const char *image_size; /**< NULL: not given */
    bool tied, zero_init_residual;
    double dropout;
    struct arg_texts freeze;
    const char *adapter; /**< NULL: none */
    uint32_t lora_rank;  /**< 0: not given */
    double lora_alpha, lora_dropout;
    bool rslora;
    struct arg_texts lora_targets;
};

/** What the data say of a row, where there are data: their shape rules. */
struct model_data {
    const struct weir_tensor *input, *target; /**< NULL: unknown */
    bool packed; /**< rows hold several documents, as far as the model can take them */
};

/** The section's options; its values are a struct model_options. */
extern const struct arg_option model_option_list[];
extern const uint32_t model_option_count;

/** Loads --adapter's tensors, if it is given, into a net whose weights are there; as
 * weir_net_load_adapters. */
int model_options_load_adapter(const struct model_options *options, struct weir_net *net,
                               struct weir_faults *faults);
/** Whether --model names a folder of Hugging Face's transformers. */
bool model_options_is_folder(const struct model_options *options);
/** The --model folder, whose weights are taken where no others are given; NULL: there is none, or
 * it has none (and no adapters would stand beside them). */
const char *model_options_weights(const struct model_options *options);
/** Whether --model names a file. */
bool model_options_is_file(const struct model_options *options);
/** Builds the list of layers. Options that do not belong to the model are faults, which name the
 * option. `data` may be NULL. The model is the caller's. */
int model_options_build(const struct model_options *options, const struct args *args,
                        const struct model_data *data, struct weir_faults *faults,
                        struct weir_model **model);

#endif

/* SPDX-License-Identifier: MIT */
/** Adapters as folders of Hugging Face's PEFT: adapter_config.json beside
 * adapter_model.safetensors. */
#ifndef WEIR_TOOLS_ADAPTER_CONFIG_H
#define WEIR_TOOLS_ADAPTER_CONFIG_H

#include "weir_models.h"

#include <jansson.h>

/* Of the folder. */
#define ADAPTER_CONFIG "adapter_config.json"
#define ADAPTER_WEIGHTS "adapter_model.safetensors"

/** What a folder says. Zeroed, then cleaned up. */
struct adapter_config {
    json_t *root;          /**< owns the texts */
    const char **targets;  /**< owned */
    struct weir_lora lora; /**< its texts are those */
};

/** Reads FOLDER/adapter_config.json. Every field is taken, known to change no number, or its value
 * is the one that changes none; else it is a fault that names it. WEIR_ERR_CONFIG,
 * WEIR_ERR_OUT_OF_MEMORY. */
int adapter_config_read(const char *folder, struct adapter_config *config,
                        struct weir_faults *faults);
void adapter_config_clean_up(struct adapter_config *config);

/** Writes the folder's two files, and the folder if there is none. `base` (may be NULL) is the
 * folder of the model that is adapted. Statuses of io/file.h and weir_net_save_adapters. */
int adapter_save(const struct weir_net *net, const struct weir_model *model, const char *folder,
                 const char *base, struct weir_error *error);
/** Loads FOLDER's tensors into a net whose adapters are as the folder says. As
 * weir_net_load_adapters. */
int adapter_load(struct weir_net *net, const char *folder, struct weir_faults *faults);

#endif

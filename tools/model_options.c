/* SPDX-License-Identifier: MIT */
/* One table of options, one function per built-in model. */
#include "model_options.h"

#include <string.h>

#define AT(member) offsetof(struct model_options, member)

const struct arg_option model_option_list[] = {
    {.name = "model",
     .type = ARG_TEXT,
     .offset = AT(model),
     .value = "NAME",
     .fallback = "gpt",
     .help = "gpt: a byte-level GPT"},
    {.name = "layers",
     .type = ARG_U32,
     .offset = AT(layers),
     .value = "N",
     .fallback = "4",
     .least = 1,
     .most = 250,
     .help = "transformer blocks"},
    {.name = "width",
     .type = ARG_U32,
     .offset = AT(width),
     .value = "N",
     .fallback = "256",
     .least = 1,
     .most = 65536,
     .help = "numbers per token"},
    {.name = "heads",
     .type = ARG_U32,
     .offset = AT(heads),
     .value = "N",
     .fallback = "8",
     .least = 1,
     .most = 65536,
     .help = "attention heads; they divide the width"},
    {.name = "context",
     .type = ARG_U32,
     .offset = AT(context),
     .value = "N",
     .fallback = "128",
     .least = 1,
     .most = 1048576,
     .unit = "tokens",
     .help = "length of a row"},
    {.name = "vocab",
     .type = ARG_U32,
     .offset = AT(vocab),
     .value = "N",
     .fallback = "256",
     .least = 2,
     .most = 16777216,
     .help = "distinct tokens; 256 for bytes"},
    {.name = "tied",
     .type = ARG_FLAG,
     .offset = AT(tied),
     .help = "the head's weight is the token embedding (needs both in one stage)"},
    {.name = "untied", .type = ARG_UNFLAG, .offset = AT(tied), .help = "a head of its own"},
    {.name = "dropout",
     .type = ARG_REAL,
     .offset = AT(dropout),
     .value = "P",
     .fallback = "0",
     .least = 0,
     .most = 0.999,
     .help = "on the embedding and each residual branch"},
};
const uint32_t model_option_count = sizeof model_option_list / sizeof model_option_list[0];

int model_options_build(const struct model_options *options, struct weir_faults *faults,
                        struct weir_model **model) {
    static const char *const known[] = {"gpt", NULL};
    if (strcmp(options->model, "gpt") != 0) {
        const char *near = args_nearest(options->model, known);
        weir_faults_add(faults, "--model %s is not known: choose gpt%s", options->model,
                        near != NULL ? " (did you mean it?)" : "");
        return WEIR_ERR_ARGUMENT;
    }
    struct weir_gpt_options gpt = WEIR_GPT_OPTIONS_INIT;
    gpt.layers = options->layers;
    gpt.width = options->width;
    gpt.heads = options->heads;
    gpt.context = options->context;
    gpt.vocab = options->vocab;
    gpt.tied = options->tied;
    gpt.dropout = options->dropout;
    return weir_model_gpt(NULL, &gpt, faults, model);
}

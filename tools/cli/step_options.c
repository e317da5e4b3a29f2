/* SPDX-License-Identifier: MIT */
#include "cli/step_options.h"

#include <stddef.h>

#define AT(member) offsetof(struct step_options, member)

static const char *const optimizer_names[] = {"adamw", "sgd", "none", NULL};
static const enum weir_optimizer_kind optimizer_kinds[] = {WEIR_OPTIMIZER_ADAMW, WEIR_OPTIMIZER_SGD,
                                                           WEIR_OPTIMIZER_NONE};

const struct arg_option step_option_list[] = {
    STEP_OPTION_BATCH(AT(batch)),
    {"optimizer", ARG_CHOICE, AT(optimizer), "whose state is counted", .fallback = "adamw",
     .choices = optimizer_names},
    {"momentum", ARG_REAL, AT(momentum), "sgd: above 0 there is a buffer per parameter",
     .value = "X", .fallback = "0", .least = 0},
    {"packed", ARG_FLAG, AT(packed),
     "of a --model folder: rows that conversations share, as train has them on CPUs"},
};
const uint32_t step_option_count = sizeof step_option_list / sizeof step_option_list[0];

int step_options_build(const struct step_options *options, const struct model_options *model,
                       const struct args *args, struct weir_faults *faults,
                       struct weir_model **built) {
    const struct model_data data = {.packed = options->packed};
    if (options->packed && !model_options_is_folder(model))
        weir_faults_add(faults,
                        "--packed: rows of conversations are of a --model folder: name one, "
                        "or leave it away");
    return model_options_build(model, args, &data, faults, built);
}

void step_options_fill(const struct step_options *options, struct weir_net_options *net) {
    net->pipe.rows = options->batch;
    net->optimizer.kind = optimizer_kinds[options->optimizer];
    net->optimizer.momentum = options->momentum;
}

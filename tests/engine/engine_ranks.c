/* SPDX-License-Identifier: MIT */
#include "engine/engine_ranks.h"

void engine_rank_open(const struct engine_random *run, const struct engine_model *model,
                      struct engine_model *own, struct weir_pipe_options *options,
                      struct engine_batch *batches, uint32_t count) {
    *own = *model;
    struct weir_pipe_options fresh = engine_options(own);
    *options = run->options;
    options->stages = fresh.stages;
    options->inputs = fresh.inputs;
    options->bind = "none";
    for (uint32_t k = 0; k < count; k++) engine_batch_init(&batches[k], own, options->rows, 1 + k);
}

void engine_rank_close(struct engine_batch *batches, uint32_t count) {
    for (uint32_t k = 0; k < count; k++) engine_batch_clean_up(&batches[k]);
}

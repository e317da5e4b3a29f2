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

static void *acquire_scarce(void *context, size_t bytes, size_t alignment) {
    struct engine_scarce *scarce = context;
    const struct weir_allocator *whole = test_allocator();
    if (atomic_fetch_add(&scarce->count, 1) + 1 == scarce->fail_at) return NULL;
    return whole->acquire(whole->context, bytes, alignment);
}

static void release_scarce(void *context, void *memory, size_t bytes) {
    const struct weir_allocator *whole = test_allocator();
    (void)context;
    whole->release(whole->context, memory, bytes);
}

void engine_scarce_init(struct engine_scarce *scarce, uint64_t fail_at) {
    scarce->allocator = (struct weir_allocator){
        .context = scarce, .acquire = acquire_scarce, .release = release_scarce};
    atomic_init(&scarce->count, 0);
    scarce->fail_at = fail_at;
}

bool engine_scarce_fired(struct engine_scarce *scarce) {
    return scarce->fail_at > 0 && atomic_load(&scarce->count) >= scarce->fail_at;
}

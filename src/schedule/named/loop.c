/* SPDX-License-Identifier: MIT */
/*
 * What schedules share when several stages stand on one worker.
 */
#include "schedule/schedules.h"

uint32_t weir__loop_stages(uint32_t stages, uint32_t workers, uint32_t worker) {
    assert(workers > 0 && worker < workers && workers <= stages);
    return (stages - worker + workers - 1) / workers;
}

void weir__add_backward(struct weir__table_builder *builder,
                        const struct weir_table_options *options, uint32_t stage,
                        uint32_t micro_batch) {
    assert(stage < options->stages && micro_batch < options->micro_batches);
    if (weir__checkpointed(options, stage, micro_batch))
        weir__table_add(builder, WEIR_KIND_R, stage, micro_batch);
    weir__table_add(builder, WEIR_KIND_B, stage, micro_batch);
}

void weir__add_updates(struct weir__table_builder *builder,
                       const struct weir_table_options *options, uint32_t worker) {
    assert(worker < options->workers);
    for (uint32_t s = worker; s < options->stages; s += options->workers)
        weir__table_add(builder, WEIR_KIND_U, s, 0);
}

void weir__add_updates_v(struct weir__table_builder *builder,
                         const struct weir_table_options *options, uint32_t worker) {
    assert(worker < options->workers && options->stages <= 2 * options->workers);
    weir__table_add(builder, WEIR_KIND_U, worker, 0);
    if (options->stages > options->workers && options->stages - 1 - worker != worker)
        weir__table_add(builder, WEIR_KIND_U, options->stages - 1 - worker, 0);
}

struct weir__rounds weir__rounds_of(uint32_t micro_batches, uint32_t workers) {
    assert(workers > 0);
    uint32_t count = micro_batches / workers;
    count = count > 0 ? count : 1;
    return (struct weir__rounds){
        .count = count, .size = micro_batches / count, .extra = micro_batches % count};
}

uint32_t weir__round_size(const struct weir__rounds *rounds, uint32_t round) {
    assert(round < rounds->count);
    return rounds->size + (round < rounds->extra ? 1 : 0);
}

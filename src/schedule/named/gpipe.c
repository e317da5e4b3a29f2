/* SPDX-License-Identifier: MIT */
/*
 * GPipe: all forwards, then all backwards with the micro-batches in reverse order, each recomputed
 * right before it. The clock cycles of torchgpipe are not here: they follow from the dependencies.
 *
 * Several stages on one worker run stage by stage: while one worker is at its first stage's
 * micro-batches the others fill up behind it, so with at least as many micro-batches as workers
 * nobody waits but at the ends. Forwards sorted by stage, then backwards sorted the other way, are
 * a subsequence of one order of all actions that the dependencies allow: no line can block another.
 */
#include "schedule/schedules.h"

void weir__fill_breadth_first(const struct weir_table_options *options,
                              struct weir__table_builder *builder) {
    uint32_t workers = options->workers;
    assert(workers > 0 && workers <= options->stages);
    for (uint32_t w = 0; w < workers; w++) {
        weir__table_line(builder);
        for (uint32_t s = w; s < options->stages; s += workers) {
            for (uint32_t i = 0; i < options->micro_batches; i++)
                weir__table_add(builder, WEIR_KIND_F, s, i);
        }
        for (uint32_t k = weir__loop_stages(options->stages, workers, w); k-- > 0;) {
            for (uint32_t i = options->micro_batches; i-- > 0;)
                weir__add_backward(builder, options, w + k * workers, i);
        }
        weir__add_updates(builder, options, w);
    }
}

const struct weir__named_schedule weir__schedule_gpipe = {
    .name = "gpipe", .sharing = WEIR__SHARING_ANY, .fill = weir__fill_breadth_first};

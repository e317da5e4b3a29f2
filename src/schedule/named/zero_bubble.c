/* SPDX-License-Identifier: MIT */
/*
 * ZB-H1 and ZB-H2 (Qi et al., arXiv 2401.10241, sections 2.1 and 2.2): 1F1B with backward split.
 * Only I has somebody waiting for it; the W are put off into what would be idle time, as long as
 * memory allows. The forwards and input gradients stand as in 1F1B, after a warm-up of p - s
 * forwards on worker s of p in H1, 2 (p - s) - 1 in H2; at most p activations are alive on each
 * worker in H1, 2p - 1 in H2. (The paper puts W off by one micro-batch more on each later worker,
 * or two in H2, which is the same bound.)
 *
 * At equal times (tF = tI = tW, no R, no copies) the largest idle time inside a worker's own window
 * is (p - 1)(tF + tI - tW) in H1 for m >= p, and (p - 1)(tF + tI - 2 tW) = 0 in H2 for m >= 2p - 1.
 */
#include "schedule/schedules.h"

static void add_line(struct weir__table_builder *order, uint32_t stage, uint32_t micro_batches,
                     uint64_t warm_up) {
    assert(warm_up > 0);
    uint32_t forward = 0;
    weir__table_line(order);
    while (forward < micro_batches && forward < warm_up)
        weir__table_add(order, WEIR_KIND_F, stage, forward++);
    for (uint32_t i = 0; i < micro_batches; i++) {
        weir__table_add(order, WEIR_KIND_I, stage, i);
        if (forward < micro_batches) weir__table_add(order, WEIR_KIND_F, stage, forward++);
    }
}

static void fill(const struct weir_table_options *options, struct weir__table_builder *builder,
                 bool second) {
    assert(options->stages == options->workers);
    uint32_t workers = options->workers;
    struct weir__table_builder order;
    weir__table_begin(&order, builder->allocator, workers, workers, options->micro_batches);
    for (uint32_t s = 0; s < workers; s++) {
        uint32_t behind = workers - s;
        add_line(&order, s, options->micro_batches, second ? 2 * behind - 1 : behind);
    }
    weir__fill_weights(options, &order, second ? 2 * workers - 1 : workers, builder);
    weir__table_abandon(&order);
}

static void fill_h1(const struct weir_table_options *options, struct weir__table_builder *builder) {
    fill(options, builder, false);
}

static void fill_h2(const struct weir_table_options *options, struct weir__table_builder *builder) {
    fill(options, builder, true);
}

const struct weir__named_schedule weir__schedule_zb_h1 = {
    .name = "zb-h1", .sharing = WEIR__SHARING_ONE, .fill = fill_h1};
const struct weir__named_schedule weir__schedule_zb_h2 = {
    .name = "zb-h2", .sharing = WEIR__SHARING_ONE, .fill = fill_h2};

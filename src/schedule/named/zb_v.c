/* SPDX-License-Identifier: MIT */
/*
 * ZB-V (Qi et al., arXiv 2401.10241, section 6): two stages per worker in V order, so that the last
 * stage stands on the first worker and a micro-batch's backward begins where its forward ends.
 * Forwards are as early as 2p activations on each worker allow, the W put off into what would be
 * idle time. With f and F the forwards of worker w's first and second stage, i and I their input
 * gradients, a line reads
 *   f 2 (p - w) - 1 times, F f w times, F I p - w times, then f i F I until all are done.
 * Of 2p - 1 stages the last worker has one, which is its two in one: f stands for F, too, and I for
 * i. Since its actions are twice as long, a step then takes 2p - 1 units more.
 *
 * At equal times (tF = tI = tW, no R, no copies) no worker is idle inside its own window for
 * m >= 2p - 1; the peak is 2p activations, of stages half as large as those of 1F1B.
 */
#include "schedule/schedules.h"

/** One worker's line of the order: how far its four lists are. */
struct zb_v_line {
    struct weir__table_builder *order;
    uint32_t first, second; /**< stages */
    uint32_t micro_batches;
    uint32_t done[4];
};

enum list { F_FIRST, I_FIRST, F_SECOND, I_SECOND };

static void add(struct zb_v_line *line, enum list list) {
    bool first = list == F_FIRST || list == I_FIRST;
    bool forward = list == F_FIRST || list == F_SECOND;
    if (line->first == line->second && (list == F_SECOND || list == I_FIRST)) return;
    if (line->done[list] < line->micro_batches) {
        weir__table_add(line->order, forward ? WEIR_KIND_F : WEIR_KIND_I,
                        first ? line->first : line->second, line->done[list]++);
    }
}

static void add_line(struct zb_v_line *line, uint32_t worker, uint32_t workers) {
    assert(worker < workers);
    uint32_t behind = workers - worker;
    weir__table_line(line->order);
    for (uint32_t k = 0; k < 2 * behind - 1; k++) add(line, F_FIRST);
    for (uint32_t k = 0; k < worker; k++) {
        add(line, F_SECOND);
        add(line, F_FIRST);
    }
    for (uint32_t k = 0; k < behind; k++) {
        add(line, F_SECOND);
        add(line, I_SECOND);
    }
    for (uint32_t k = 0; k < line->micro_batches; k++) {
        add(line, F_FIRST);
        add(line, I_FIRST);
        add(line, F_SECOND);
        add(line, I_SECOND);
    }
}

static void fill(const struct weir_table_options *options, struct weir__table_builder *builder) {
    assert((options->stages + 1) / 2 == options->workers);
    uint32_t workers = options->workers;
    struct weir__table_builder order;
    weir__table_begin(&order, builder->allocator, options->stages, workers, options->micro_batches);
    for (uint32_t w = 0; w < workers; w++) {
        struct zb_v_line line = {.order = &order,
                                 .first = w,
                                 .second = options->stages - 1 - w,
                                 .micro_batches = options->micro_batches};
        add_line(&line, w, workers);
    }
    weir__fill_weights(options, &order, 2 * workers, builder);
    weir__table_abandon(&order);
}

const struct weir__named_schedule weir__schedule_zb_v = {
    .name = "zb-v", .sharing = WEIR__SHARING_V, .fill = fill};

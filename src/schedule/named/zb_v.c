/* SPDX-License-Identifier: MIT */
/*
 * ZB-V (Qi et al., arXiv 2401.10241, section 6): two stages per worker in V order, so that the last
 * stage stands on the first worker and a micro-batch's backward begins where its forward ends.
 * Forwards are as early as 2p activations on each worker allow, the W put off into what would be
 * idle time. With f and F the forwards of worker w's first and second stage, i and I their input
 * gradients, a row reads
 *   f 2 (p - w) - 1 times, F f w times, F I p - w times, then f i F I until all are done.
 *
 * At equal times (tF = tI = tW, no R, no copies) no worker is idle inside its own window for
 * m >= 2p - 1; the peak is 2p activations, of stages half as large as those of 1F1B.
 */
#include "schedule/schedules.h"

/** One worker's row of the order: how far its four lists are. */
struct zb_v_row {
    struct weir__table_builder *order;
    uint32_t first, second; /**< stages */
    uint32_t micro_batches;
    uint32_t done[4];
};

enum list { F_FIRST, I_FIRST, F_SECOND, I_SECOND };

static void add(struct zb_v_row *row, enum list list) {
    bool first = list == F_FIRST || list == I_FIRST;
    bool forward = list == F_FIRST || list == F_SECOND;
    if (row->done[list] < row->micro_batches) {
        weir__table_add(row->order, forward ? WEIR_KIND_F : WEIR_KIND_I,
                        first ? row->first : row->second, row->done[list]++);
    }
}

static void add_row(struct zb_v_row *row, uint32_t worker, uint32_t workers) {
    assert(worker < workers);
    uint32_t behind = workers - worker;
    weir__table_line(row->order);
    for (uint32_t k = 0; k < 2 * behind - 1; k++) {
        add(row, F_FIRST);
    }
    for (uint32_t k = 0; k < worker; k++) {
        add(row, F_SECOND);
        add(row, F_FIRST);
    }
    for (uint32_t k = 0; k < behind; k++) {
        add(row, F_SECOND);
        add(row, I_SECOND);
    }
    for (uint32_t k = 0; k < row->micro_batches; k++) {
        add(row, F_FIRST);
        add(row, I_FIRST);
        add(row, F_SECOND);
        add(row, I_SECOND);
    }
}

static void fill(const struct weir_table_options *options, struct weir__table_builder *builder) {
    assert(options->stages == 2 * options->workers);
    uint32_t workers = options->workers;
    struct weir__table_builder order;
    weir__table_begin(&order, builder->allocator, options->stages, workers, options->micro_batches);
    for (uint32_t w = 0; w < workers; w++) {
        struct zb_v_row row = {.order = &order,
                               .first = w,
                               .second = options->stages - 1 - w,
                               .micro_batches = options->micro_batches};
        add_row(&row, w, workers);
    }
    weir__fill_weights(options, &order, 2 * workers, builder);
    weir__table_abandon(&order);
}

const struct weir__named_schedule weir__schedule_zb_v = {
    .name = "zb-v", .sharing = WEIR__SHARING_TWO, .fill = fill};

/* SPDX-License-Identifier: MIT */
/*
 * DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1) in its V-shape form, which needs each
 * parameter once (github.com/deepseek-ai/DualPipe, "DualPipeV"): two stages per worker in V order,
 * and in the main phase a forward of one of them next to a backward of the other, so that a
 * worker's computation may hide its communication. With f and F the forwards of worker w's first
 * and second stage, b and B their backwards, i and I input gradients whose W come later, the oldest
 * first, and q = p - 1 - w, a row reads
 *   f 2q times, f F w + 1 times, I W F q times, f B F b m - 2p + w + 1 times, B F b q times,
 *   B b w + 1 times, W i q times, and the W that are left;
 * the second half of the B b are I i. At least as many micro-batches as stages fill it.
 *
 * At equal times (tF = tI = tW, B = I + W, no R, no copies), where nothing is gained from standing
 * next to each other, the step takes 6 m + p - 1 units of half a stage, and each worker keeps at
 * most 2p + 1 activations, of stages half as large as those of 1F1B.
 */
#include "schedule/schedules.h"

#include <inttypes.h>

enum { FIRST, SECOND };

struct row {
    const struct weir_table_options *options;
    struct weir__table_builder *builder;
    uint32_t stage[2];
    uint32_t forwards[2], backwards[2]; /**< so far, per stage */
    uint32_t owed; /**< no I of the builder before this, in this row, has its W to come */
};

static void add_forward(struct row *row, int which) {
    assert(row->forwards[which] < row->options->micro_batches);
    weir__table_add(row->builder, WEIR_KIND_F, row->stage[which], row->forwards[which]++);
}

static void add_backward(struct row *row, int which, bool split) {
    assert(row->backwards[which] < row->forwards[which]);
    uint32_t stage = row->stage[which], i = row->backwards[which]++;
    if (!split) {
        weir__add_backward(row->builder, row->options, stage, i);
        return;
    }
    if (weir__checkpointed(row->options, stage, i)) {
        weir__table_add(row->builder, WEIR_KIND_R, stage, i);
    }
    weir__table_add(row->builder, WEIR_KIND_I, stage, i);
}

/* False if none is owed. */
static bool add_weight(struct row *row) {
    const struct weir__table_builder *builder = row->builder;
    for (; !builder->failed && row->owed < builder->count; row->owed++) {
        struct weir_action action = builder->actions[row->owed];
        if (action.kind == WEIR_KIND_I) {
            row->owed++;
            weir__table_add(row->builder, WEIR_KIND_W, action.stage, action.micro_batch);
            return true;
        }
    }
    return false;
}

static void add_first_half(struct row *row, uint32_t behind, uint32_t worker) {
    for (uint32_t k = 0; k < 2 * behind; k++) {
        add_forward(row, FIRST);
    }
    for (uint32_t k = 0; k <= worker; k++) {
        add_forward(row, FIRST);
        add_forward(row, SECOND);
    }
    for (uint32_t k = 0; k < behind; k++) {
        add_backward(row, SECOND, true);
        add_weight(row);
        add_forward(row, SECOND);
    }
}

static void add_second_half(struct row *row, uint32_t behind, uint32_t worker) {
    for (uint32_t k = 0; k < behind; k++) {
        add_backward(row, SECOND, false);
        add_forward(row, SECOND);
        add_backward(row, FIRST, false);
    }
    for (uint32_t k = 0; k <= worker; k++) {
        add_backward(row, SECOND, 2 * k > worker);
        add_backward(row, FIRST, 2 * k + 1 > worker);
    }
    for (uint32_t k = 0; k < behind; k++) {
        add_weight(row);
        add_backward(row, FIRST, true);
    }
    while (add_weight(row)) {}
}

static void fill(const struct weir_table_options *options, struct weir__table_builder *builder) {
    assert(options->stages == 2 * options->workers);
    assert(options->micro_batches >= options->stages);
    uint32_t stages = options->stages, m = options->micro_batches;
    for (uint32_t w = 0; w < options->workers; w++) {
        uint32_t behind = options->workers - 1 - w;
        struct row row = {.options = options,
                          .builder = builder,
                          .stage = {w, stages - 1 - w},
                          .owed = builder->count};
        weir__table_line(builder);
        add_first_half(&row, behind, w);
        for (uint32_t k = 0; k < m - stages + w + 1; k++) {
            add_forward(&row, FIRST);
            add_backward(&row, SECOND, false);
            add_forward(&row, SECOND);
            add_backward(&row, FIRST, false);
        }
        add_second_half(&row, behind, w);
        assert(row.forwards[FIRST] == m && row.backwards[FIRST] == m);
        assert(row.forwards[SECOND] == m && row.backwards[SECOND] == m);
        weir__add_updates_v(builder, options, w);
    }
}

static void check(const struct weir_table_options *options, struct weir_faults *faults) {
    if (options->micro_batches < options->stages) {
        weir_faults_add(faults,
                        "%" PRIu32 " micro-batch%s for %" PRIu32
                        " stages: dualpipe-v needs as many micro-batches as stages; the nearest is "
                        "%" PRIu32,
                        options->micro_batches, weir__es(options->micro_batches), options->stages,
                        options->stages);
    }
}

const struct weir__named_schedule weir__schedule_dualpipe_v = {.name = "dualpipe-v",
                                                               .sharing = WEIR__SHARING_TWO,
                                                               .check = check,
                                                               .infers_as = "zb-v",
                                                               .fill = fill};

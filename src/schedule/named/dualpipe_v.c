/* SPDX-License-Identifier: MIT */
/*
 * DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1) in its V-shape form, which needs each
 * parameter once (github.com/deepseek-ai/DualPipe, "DualPipeV"): two stages per worker in V order,
 * and in the main phase a forward of one of them next to a backward of the other, so that a
 * worker's computation may hide its communication. With f and F the forwards of worker w's first
 * and second stage, b and B their backwards, i and I input gradients whose W come later, the oldest
 * first, and q = p - 1 - w, a line reads
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

struct line {
    const struct weir_table_options *options;
    struct weir__table_builder *builder;
    uint32_t stage[2];
    uint32_t forwards[2], backwards[2]; /**< so far, per stage */
    uint32_t owed; /**< no I of the builder before this, in this line, has its W to come */
};

static void add_forward(struct line *line, int which) {
    assert(line->forwards[which] < line->options->micro_batches);
    weir__table_add(line->builder, WEIR_KIND_F, line->stage[which], line->forwards[which]++);
}

static void add_backward(struct line *line, int which, bool split) {
    assert(line->backwards[which] < line->forwards[which]);
    uint32_t stage = line->stage[which], i = line->backwards[which]++;
    if (!split) {
        weir__add_backward(line->builder, line->options, stage, i);
        return;
    }
    if (weir__checkpointed(line->options, stage, i))
        weir__table_add(line->builder, WEIR_KIND_R, stage, i);
    weir__table_add(line->builder, WEIR_KIND_I, stage, i);
}

/* False if none is owed. */
static bool add_weight(struct line *line) {
    const struct weir__table_builder *builder = line->builder;
    for (; !builder->failed && line->owed < builder->count; line->owed++) {
        struct weir_action action = builder->actions[line->owed];
        if (action.kind == WEIR_KIND_I) {
            line->owed++;
            weir__table_add(line->builder, WEIR_KIND_W, action.stage, action.micro_batch);
            return true;
        }
    }
    return false;
}

static void add_first_half(struct line *line, uint32_t behind, uint32_t worker) {
    for (uint32_t k = 0; k < 2 * behind; k++) add_forward(line, FIRST);
    for (uint32_t k = 0; k <= worker; k++) {
        add_forward(line, FIRST);
        add_forward(line, SECOND);
    }
    for (uint32_t k = 0; k < behind; k++) {
        add_backward(line, SECOND, true);
        add_weight(line);
        add_forward(line, SECOND);
    }
}

static void add_second_half(struct line *line, uint32_t behind, uint32_t worker) {
    for (uint32_t k = 0; k < behind; k++) {
        add_backward(line, SECOND, false);
        add_forward(line, SECOND);
        add_backward(line, FIRST, false);
    }
    for (uint32_t k = 0; k <= worker; k++) {
        add_backward(line, SECOND, 2 * k > worker);
        add_backward(line, FIRST, 2 * k + 1 > worker);
    }
    for (uint32_t k = 0; k < behind; k++) {
        add_weight(line);
        add_backward(line, FIRST, true);
    }
    while (add_weight(line)) {}
}

static void fill(const struct weir_table_options *options, struct weir__table_builder *builder) {
    assert(options->stages == 2 * options->workers);
    assert(options->micro_batches >= options->stages);
    uint32_t stages = options->stages, m = options->micro_batches;
    for (uint32_t w = 0; w < options->workers; w++) {
        uint32_t behind = options->workers - 1 - w;
        struct line line = {.options = options,
                            .builder = builder,
                            .stage = {w, stages - 1 - w},
                            .owed = builder->count};
        weir__table_line(builder);
        add_first_half(&line, behind, w);
        for (uint32_t k = 0; k < m - stages + w + 1; k++) {
            add_forward(&line, FIRST);
            add_backward(&line, SECOND, false);
            add_forward(&line, SECOND);
            add_backward(&line, FIRST, false);
        }
        add_second_half(&line, behind, w);
        assert(line.forwards[FIRST] == m && line.backwards[FIRST] == m);
        assert(line.forwards[SECOND] == m && line.backwards[SECOND] == m);
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

/* SPDX-License-Identifier: MIT */
/*
 * 1F1B with a flush at the end (PipeDream-flush; Narayanan et al., arXiv 2104.04473): a warm-up of
 * forwards, then forward and backward in turn, then the backwards that are left. Stage s of p has
 * at most p - s micro-batches in flight, and backwards run in ascending order.
 *
 * With fewer workers than stages each worker walks its stages in loop order, a round of
 * micro-batches at a time, as that paper's interleaved schedule does, but for any number of
 * micro-batches and stages: rounds may be uneven (the first is the largest, so that no later one
 * needs a longer warm-up), and the loop's last turn may be short (the stages that are not there are
 * left out of the lines, which removes waiting and adds none). At equal times, F = 1 and B = 2, no
 * combination of up to 13 stages and 19 micro-batches takes longer than the same work merged into
 * one stage per worker. On one worker nothing overlaps: each micro-batch goes forth and back before
 * the next.
 */
#include "schedule/schedules.h"

/** Where a worker is in its list of forwards (or backwards): round by round, in each stage by stage
 * (`turn`, in loop order or its reverse), in each micro-batch by micro-batch. */
struct position {
    uint32_t round, first, turn, place;
};

struct loop {
    const struct weir_table_options *options;
    struct weir__table_builder *builder;
    struct weir__rounds rounds;
    uint32_t turns; /**< of the loop, the last one perhaps short */
    uint32_t worker;
};

static void advance(const struct loop *loop, struct position *position) {
    assert(position->round < loop->rounds.count && position->turn < loop->turns);
    uint32_t size = weir__round_size(&loop->rounds, position->round);
    if (++position->place < size) return;
    position->place = 0;
    if (++position->turn < loop->turns) return;
    position->turn = 0;
    position->first += size;
    position->round++;
}

static uint32_t stage_at(const struct loop *loop, uint32_t turn) {
    assert(turn < loop->turns);
    return loop->worker + turn * loop->options->workers;
}

static void add_next_forward(const struct loop *loop, struct position *position) {
    uint32_t stage = stage_at(loop, position->turn);
    if (stage < loop->options->stages)
        weir__table_add(loop->builder, WEIR_KIND_F, stage, position->first + position->place);
    advance(loop, position);
}

static void add_next_backward(const struct loop *loop, struct position *position) {
    uint32_t stage = stage_at(loop, loop->turns - 1 - position->turn);
    if (stage < loop->options->stages)
        weir__add_backward(loop->builder, loop->options, stage, position->first + position->place);
    advance(loop, position);
}

/* Forwards before the first backward. In a loop twice as many as the worker's distance to the last
 * one asks for, as the paper has it: once would do at equal times and without copies, and keep
 * fewer activations, but each copy would then stand in the critical path (3 to 7% with copies of a
 * tenth of a forward and unequal times). */
static uint64_t warm_up(const struct loop *loop, uint64_t total) {
    assert(loop->worker < loop->options->workers);
    uint64_t behind = loop->options->workers - 1 - loop->worker;
    uint64_t warm = behind;
    if (loop->turns > 1)
        warm = (uint64_t)(loop->turns - 1) * weir__round_size(&loop->rounds, 0) + 2 * behind;
    return warm < total ? warm : total;
}

static void fill_line(const struct loop *loop) {
    uint64_t total = (uint64_t)loop->turns * loop->options->micro_batches;
    uint64_t warm = warm_up(loop, total);
    struct position forward = {0}, backward = {0};
    for (uint64_t k = 0; k < warm; k++) add_next_forward(loop, &forward);
    for (uint64_t k = 0; k < total; k++) {
        if (k + warm < total) add_next_forward(loop, &forward);
        add_next_backward(loop, &backward);
    }
}

static void fill_alone(const struct weir_table_options *options,
                       struct weir__table_builder *builder) {
    for (uint32_t i = 0; i < options->micro_batches; i++) {
        for (uint32_t s = 0; s < options->stages; s++) weir__table_add(builder, WEIR_KIND_F, s, i);
        for (uint32_t s = options->stages; s-- > 0;) weir__add_backward(builder, options, s, i);
    }
}

void weir__fill_rounds(const struct weir_table_options *options,
                       struct weir__table_builder *builder) {
    struct loop loop = {.options = options,
                        .builder = builder,
                        .rounds = weir__rounds_of(options->micro_batches, options->workers),
                        .turns = weir__loop_stages(options->stages, options->workers, 0)};
    for (uint32_t w = 0; w < options->workers; w++) {
        loop.worker = w;
        weir__table_line(builder);
        if (options->workers == 1)
            fill_alone(options, builder);
        else
            fill_line(&loop);
        weir__add_updates(builder, options, w);
    }
}

const struct weir__named_schedule weir__schedule_1f1b = {
    .name = "1f1b", .sharing = WEIR__SHARING_ANY, .fill = weir__fill_rounds};

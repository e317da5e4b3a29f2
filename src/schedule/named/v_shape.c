/* SPDX-License-Identifier: MIT */
/*
 * V-Half and V-Min (Qi et al., arXiv 2405.15362, section 3.2 and appendix): two stages per worker
 * in V order, and one building block, the times of a micro-batch's four passes over the V, repeated
 * every 6 units of equal time. How long an activation of the block lives, summed over a worker's
 * two stages and divided by 6, is what the worker keeps. V-Half goes down the V at 2 units per
 * worker and back at 1, V-Min at 1 both ways; at p even, or divisible by 3, the pass back begins a
 * little later, or passes of different micro-batches would fall on the same time. Here a line is
 * the block's passes in the order of their times, and the W are put off into what would be idle
 * time as far as the peak allows; times themselves are left to the dependencies, which removes the
 * gaps that the repetition has at both ends.
 *
 * The peak of activations, in stages half as large as those of 1F1B, is twice floor((p + 2) / 2) in
 * V-Half and twice floor((p + 4) / 3) in V-Min: half and a third of 1F1B's 2p for large p. At equal
 * times, without R and copies, and for m >= 3p the largest idle time inside a worker's window is,
 * in units of half a stage, 3p - 3 (p even) or 3p - 4 in V-Half, and 4p - 3 (p divisible by 3) or
 * 4p - 5 in V-Min, for p > 1, against 1F1B's 6p - 6.
 */
#include "schedule/schedules.h"

#define INTERVAL 6u
#define PASSES 4u

/** When a worker's passes of micro-batch 0 are, in units. */
struct block {
    uint64_t
        at[PASSES]; /**< F of the first and of the second stage, I of the second, of the first */
};

static struct block block_of_half(uint64_t workers, uint64_t worker) {
    assert(worker < workers);
    uint64_t gap = workers % 2 == 0 ? 3 : 0;
    return (struct block){{2 * worker, 3 * workers - 2 - worker, 3 * workers + gap + 2 * worker - 1,
                           6 * workers + gap - 2 - worker}};
}

static struct block block_of_min(uint64_t workers, uint64_t worker) {
    assert(worker < workers);
    uint64_t gap = workers % 3 == 0 ? 2 : 0;
    return (struct block){{worker, 2 * workers - 1 - worker, 2 * workers + gap + worker,
                           4 * workers + gap - 1 - worker}};
}

/* Merges the four passes of all micro-batches by their times. */
static void add_line(const struct weir_table_options *options, struct block block, uint32_t worker,
                     struct weir__table_builder *order) {
    uint32_t done[PASSES] = {0}, left = PASSES * options->micro_batches;
    weir__table_line(order);
    for (; left > 0; left--) {
        uint32_t next = PASSES;
        for (uint32_t k = 0; k < PASSES; k++) {
            bool open = done[k] < options->micro_batches;
            if (open && (next == PASSES || block.at[k] < block.at[next])) next = k;
        }
        assert(next < PASSES);
        bool first = next == 0 || next == PASSES - 1;
        weir__table_add(order, next < 2 ? WEIR_KIND_F : WEIR_KIND_I,
                        first ? worker : options->stages - 1 - worker, done[next]++);
        block.at[next] += INTERVAL;
    }
}

static void fill(const struct weir_table_options *options, struct weir__table_builder *builder,
                 struct block (*block_of)(uint64_t workers, uint64_t worker), uint32_t most) {
    assert(options->stages == 2 * options->workers);
    struct weir__table_builder order;
    weir__table_begin(&order, builder->allocator, options->stages, options->workers,
                      options->micro_batches);
    for (uint32_t w = 0; w < options->workers; w++)
        add_line(options, block_of(options->workers, w), w, &order);
    weir__fill_weights(options, &order, most, builder);
    weir__table_abandon(&order);
}

static void fill_half(const struct weir_table_options *options,
                      struct weir__table_builder *builder) {
    fill(options, builder, block_of_half, (options->workers + 2) / 2 * 2);
}

static void fill_min(const struct weir_table_options *options,
                     struct weir__table_builder *builder) {
    fill(options, builder, block_of_min, (options->workers + 4) / 3 * 2);
}

const struct weir__named_schedule weir__schedule_v_half = {
    .name = "v-half", .sharing = WEIR__SHARING_TWO, .fill = fill_half};
const struct weir__named_schedule weir__schedule_v_min = {
    .name = "v-min", .sharing = WEIR__SHARING_TWO, .fill = fill_min};

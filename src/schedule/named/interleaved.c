/* SPDX-License-Identifier: MIT */
/*
 * Interleaved 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2): each worker holds V stages in
 * loop order and walks them a round of micro-batches at a time, in max(1, m / P) equal rounds; the
 * warm-up of worker w is (V - 1) rounds' worth and 2 (P - 1 - w) forwards more. The lines are those
 * of 1f1b on fewer workers than stages, where rounds may be uneven.
 *
 * At equal times (B = 2 F, no R, no copies) and m a multiple of P the bubble, as a fraction of the
 * step, is (P - 1) / (V m + P - 1).
 */
#include "schedule/schedules.h"

#include <inttypes.h>

static bool divisible(uint64_t micro_batches, uint32_t workers) {
    assert(workers > 0);
    uint64_t rounds = micro_batches / workers;
    return rounds < 2 || micro_batches % rounds == 0;
}

static void check(const struct weir_table_options *options, struct weir_faults *faults) {
    uint64_t below = options->micro_batches, above = below;
    if (divisible(below, options->workers)) return;
    while (!divisible(below, options->workers))
        below--; /* a multiple of the workers at the latest */
    while (!divisible(above, options->workers)) above++;
    uint32_t rounds = options->micro_batches / options->workers;
    weir_faults_add(faults,
                    "%" PRIu32 " micro-batches on %" PRIu32 " workers: interleaved runs them in "
                    "%" PRIu32 " equal round%s; the nearest are %" PRIu64 " and %" PRIu64,
                    options->micro_batches, options->workers, rounds, weir__s(rounds), below,
                    above);
}

const struct weir__named_schedule weir__schedule_interleaved = {.name = "interleaved",
                                                                .sharing = WEIR__SHARING_EVEN,
                                                                .check = check,
                                                                .infers_as = "1f1b",
                                                                .fill = weir__fill_rounds};

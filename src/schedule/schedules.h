/* SPDX-License-Identifier: MIT */
/**
 * The schedules there are, and what they share. Each is a pure function of its options. In loop
 * order worker w holds the stages w, w + P, w + 2P, ...; the options' `workers` is never 0 here.
 */
#ifndef WEIR_SCHEDULES_H
#define WEIR_SCHEDULES_H

#include "schedule/action.h"

extern const struct weir__schedule weir__schedule_gpipe;
extern const struct weir__schedule weir__schedule_1f1b;

/** The caller's options with defaults for what an older header did not have; WEIR_ERR_ARGUMENT if
 * `size` cannot be. */
int weir__table_options_read(const struct weir_table_options *options,
                             struct weir_table_options *out);
/** Unknown modes, each with the three names. `options->stages` says how many overrides there are.
 * */
void weir__checkpoint_check(const struct weir_table_options *options, struct weir_faults *faults);
/** How many stages the worker holds in loop order. */
uint32_t weir__loop_stages(uint32_t stages, uint32_t workers, uint32_t worker);
/** Appends B, with R before it where it is checkpointed. */
void weir__add_backward(struct weir__table_builder *builder,
                        const struct weir_table_options *options, uint32_t stage,
                        uint32_t micro_batch);
/** Appends U of the worker's stages in loop order. */
void weir__add_updates(struct weir__table_builder *builder,
                       const struct weir_table_options *options, uint32_t worker);

/**
 * Micro-batches in rounds of at least as many as there are workers (one round if there are fewer):
 * max(1, micro_batches / workers) rounds, as even as they can be, the larger ones first.
 */
struct weir__rounds {
    uint32_t count;
    uint32_t size;  /**< of the smaller rounds */
    uint32_t extra; /**< so many rounds have one more */
};
struct weir__rounds weir__rounds_of(uint32_t micro_batches, uint32_t workers);
uint32_t weir__round_size(const struct weir__rounds *rounds, uint32_t round);

#endif

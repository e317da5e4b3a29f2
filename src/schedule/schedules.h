/* SPDX-License-Identifier: MIT */
/**
 * The schedules there are, and what they share. Each is a pure function of its options. In loop
 * order worker w holds the stages w, w + P, w + 2P, ...; in V order w and 2P - 1 - w. The options'
 * `workers` is never 0 here.
 */
#ifndef WEIR_SCHEDULES_H
#define WEIR_SCHEDULES_H

#include "schedule/action.h"

extern const struct weir__named_schedule weir__schedule_gpipe;
extern const struct weir__named_schedule weir__schedule_1f1b;
extern const struct weir__named_schedule weir__schedule_interleaved;
extern const struct weir__named_schedule weir__schedule_looped_bfs;
extern const struct weir__named_schedule weir__schedule_zb_h1;
extern const struct weir__named_schedule weir__schedule_zb_h2;
extern const struct weir__named_schedule weir__schedule_zb_v;
extern const struct weir__named_schedule weir__schedule_v_half;
extern const struct weir__named_schedule weir__schedule_v_min;
extern const struct weir__named_schedule weir__schedule_dualpipe_v;
extern const struct weir__named_schedule weir__schedule_auto;

/** Unknown modes, each with the three names. `options->stages` says how many overrides there are.
 * */
void weir__checkpoint_check(const struct weir_table_options *options, struct weir_faults *faults);
/** Whether stages and workers are what the schedule, or, if NULL, any one can do; the nearest that
 * are, in the faults. There is a stage at least. */
void weir__sharing_check(const struct weir__named_schedule *schedule,
                         const struct weir_table_options *options, struct weir_faults *faults);
/** Stages per worker where no number of workers is given. */
uint32_t weir__default_sharing(const struct weir__named_schedule *schedule);
/** Whether each worker can have `count` stages. */
bool weir__can_share(const struct weir__named_schedule *schedule, uint32_t count);
/** gpipe's lines, in loop order. */
void weir__fill_breadth_first(const struct weir_table_options *options,
                              struct weir__table_builder *builder);
/** 1f1b's lines, in loop order round by round. */
void weir__fill_rounds(const struct weir_table_options *options,
                       struct weir__table_builder *builder);
/** How many stages the worker holds in loop order. */
uint32_t weir__loop_stages(uint32_t stages, uint32_t workers, uint32_t worker);
/** Appends B, with R before it where it is checkpointed. */
void weir__add_backward(struct weir__table_builder *builder,
                        const struct weir_table_options *options, uint32_t stage,
                        uint32_t micro_batch);
/** Appends U of the worker's stages in loop order. */
void weir__add_updates(struct weir__table_builder *builder,
                       const struct weir_table_options *options, uint32_t worker);

/** Appends U of the worker's one or two stages in V order. */
void weir__add_updates_v(struct weir__table_builder *builder,
                         const struct weir_table_options *options, uint32_t worker);
/**
 * Fills lines of F, I and W from an `order` of F and I alone. Of each stage both come in ascending
 * micro-batches; the stages are one per worker, or two in V order, whose last worker may have one
 * that is as large as two: then it keeps half as many. A worker follows its line and
 * puts a W, the oldest that it owes, only where it would wait at equal times: for another worker,
 * or because `most` activations are alive on it, counted from F to W. So a W never stands in
 * anybody's way, and no worker keeps more than `most`. An order and a bound that let nobody go on
 * are an error of the caller.
 */
void weir__fill_weights(const struct weir_table_options *options,
                        const struct weir__table_builder *order, uint32_t most,
                        struct weir__table_builder *builder);

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

/* SPDX-License-Identifier: MIT */
/*
 * Tastes. The first ones come from a block of one micro-batch's actions, repeated at the pace of
 * the busiest worker: forwards more or less early, weight gradients more or less late, backwards
 * split everywhere, where another worker waits for the gradient, or nowhere. From then on a table
 * is built by the latest starts of the table before it (so that what is critical comes first),
 * disturbed more and less by turns, and taken as the next one's start where it is not slower. The
 * disturbance is a hash of the round and the place, so that every run does the same.
 */
#include "schedule/auto/auto.h"

#include <math.h>
#include <string.h>

static double *order_of(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                        enum weir__pass pass) {
    assert(pass < WEIR__PASSES);
    return &bench->taste.order[pass * problem->cell_count];
}

static void swap_drafts(struct weir__auto_draft *a, struct weir__auto_draft *b) {
    struct weir__auto_draft kept = *a;
    *a = *b;
    *b = kept;
}

static void copy_draft(const struct weir__auto_draft *from, struct weir__auto_draft *to) {
    assert(from != to);
    memcpy(to->steps, from->steps, from->count * sizeof *from->steps);
    to->count = from->count;
    to->step = from->step;
    to->peak = from->peak;
}

/* The trial becomes the best, if it is. */
static void keep_better(struct weir__auto_bench *bench) {
    if (weir__auto_better(bench->trial.step, bench->trial.peak, &bench->best))
        copy_draft(&bench->trial, &bench->best);
}

static bool is_done(const struct weir__auto_problem *problem,
                    const struct weir__auto_bench *bench) {
    return bench->work >= bench->work_most || bench->best.step <= problem->bound ||
           bench->goal <= problem->bound;
}

void weir__auto_imitate(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                        const struct weir_table *table, const double *starts) {
    assert(table->stage_count == problem->stage_count);
    assert(table->micro_batch_count == problem->micro_batch_count);
    memset(bench->taste.split, 0, problem->cell_count);
    memset(bench->taste.order, 0, WEIR__PASSES * problem->cell_count * sizeof *bench->taste.order);
    for (uint32_t a = 0; a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        enum weir__pass pass = weir__pass_of(action->kind);
        if (pass == WEIR__PASSES) continue;
        size_t cell = weir__auto_cell(problem, action->stage, action->micro_batch);
        order_of(problem, bench, pass)[cell] = starts[a];
        if (weir__writes(action->kind, WEIR__WEIGHT_INPUTS)) bench->taste.split[cell] = 1;
    }
    bench->taste.patience = 0.25;
    weir__auto_build(problem, bench);
    keep_better(bench);
    bench->trial.step = INFINITY;
    weir__auto_adopt(problem, bench, table);
    keep_better(bench);
}

/* ---- a repeated block ---- */

/* A table this much slower than the best may become it by small changes, */
#define PROMISING 1.03
/* and one this much slower is left. */
#define DRIFT 1.02

enum split { SPLIT_WHERE_AWAITED, SPLIT_ALL, SPLIT_NONE };

/** How a block is repeated, in rounds. */
struct repeat_block {
    double advance, delay; /**< of F, and of W */
    enum split split;
    double patience;
};

static const struct repeat_block blocks[] = {
    {0.0, 1.0, SPLIT_WHERE_AWAITED, 0.0}, {1.0, 8.0, SPLIT_WHERE_AWAITED, 0.0},
    {0.0, 0.0, SPLIT_NONE, 0.0},          {64.0, 64.0, SPLIT_WHERE_AWAITED, 0.0},
    {2.0, 64.0, SPLIT_ALL, 0.5},          {0.0, 64.0, SPLIT_WHERE_AWAITED, 0.5},
    {1.0, 2.0, SPLIT_ALL, 0.0},           {2.0, 0.0, SPLIT_NONE, 0.5},
    {0.5, 1.0, SPLIT_WHERE_AWAITED, 0.5}, {64.0, 1.0, SPLIT_ALL, 0.5},
    {0.0, 64.0, SPLIT_ALL, 0.25},         {4.0, 4.0, SPLIT_WHERE_AWAITED, 0.25},
};

/* Does another worker wait for the gradient that the stage passes on? */
static bool is_awaited(const struct weir__auto_problem *problem, uint32_t s) {
    assert(s < problem->stage_count);
    const struct weir__auto_feeds *out = &problem->gradients_out;
    for (uint32_t f = out->begin[s]; f < out->begin[s + 1]; f++) {
        if (problem->stages[out->list[f].stage].worker != problem->stages[s].worker) return true;
    }
    return false;
}

/* One micro-batch alone on the way: into the first cells of `latest`, by stage. */
static void pass_alone(const struct weir__auto_problem *problem, double *forward,
                       double *gradient) {
    uint32_t stages = problem->stage_count;
    for (uint32_t s = 0; s < stages; s++) {
        forward[s] = weir__auto_arrival(&problem->values_in, forward, s) +
                     weir__pass_seconds(problem->stages[s].seconds, WEIR__PASS_FORWARD);
    }
    for (uint32_t s = stages; s-- > 0;) {
        double come = weir__auto_arrival(&problem->gradients_in, gradient, s);
        double at = come > forward[s] ? come : forward[s];
        gradient[s] = at + weir__pass_seconds(problem->stages[s].seconds, WEIR__PASS_GRADIENT);
    }
}

static void fill_block(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                       const struct repeat_block *block) {
    /* `latest` has at least 4 numbers per stage */
    double *forward = bench->latest, *gradient = bench->latest + problem->stage_count;
    pass_alone(problem, forward, gradient);
    bench->taste.patience = block->patience;
    for (uint32_t s = 0; s < problem->stage_count; s++) {
        const double *seconds = problem->stages[s].seconds;
        double begin = forward[s] - weir__pass_seconds(seconds, WEIR__PASS_FORWARD);
        double end = gradient[s] - weir__pass_seconds(seconds, WEIR__PASS_GRADIENT);
        bool split = block->split == SPLIT_ALL ||
                     (block->split == SPLIT_WHERE_AWAITED && is_awaited(problem, s));
        for (uint32_t i = 0; i < problem->micro_batch_count; i++) {
            size_t cell = weir__auto_cell(problem, s, i);
            double round = problem->round * i;
            double back = end + round;
            order_of(problem, bench, WEIR__PASS_FORWARD)[cell] =
                begin + round - block->advance * problem->round;
            order_of(problem, bench, WEIR__PASS_RECOMPUTE)[cell] =
                back - weir__pass_seconds(seconds, WEIR__PASS_RECOMPUTE);
            order_of(problem, bench, WEIR__PASS_GRADIENT)[cell] = back;
            order_of(problem, bench, WEIR__PASS_WEIGHT)[cell] =
                gradient[s] + round + block->delay * problem->round;
            bench->taste.split[cell] = split && !problem->options->whole_backward;
        }
    }
}

void weir__auto_begin(const struct weir__auto_problem *problem, struct weir__auto_bench *bench) {
    for (size_t k = 0; k < WEIR__COUNT_OF(blocks); k++) {
        if (k >= 4 && is_done(problem, bench)) return;
        fill_block(problem, bench, &blocks[k]);
        weir__auto_build(problem, bench);
        keep_better(bench);
    }
}

/* ---- from table to table ---- */

/* In [-1, 1): SplitMix64's finaliser of what names it. */
static double disturbance(uint64_t round, uint64_t place) {
    uint64_t x =
        (round + 1) * UINT64_C(0x9E3779B97F4A7C15) ^ (place + 1) * UINT64_C(0xD1342543DE82EF95);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return (double)((x ^ x >> 31) >> 11) * 0x1p-52 - 1.0;
}

/** How far a round goes from the latest starts, in rounds of the pipeline; how many backwards
 * change their kind; and the patience. */
static const struct {
    double noise, change, patience;
} temper[] = {
    {0.0, 0.0, 0.0},   {0.0, 0.0, 0.5},   {0.1, 0.0, 0.25},  {0.3, 0.02, 0.0},
    {0.05, 0.05, 0.5}, {1.0, 0.0, 0.25},  {0.2, 0.01, 0.75}, {0.5, 0.1, 0.5},
    {0.02, 0.0, 1.0},  {0.1, 0.02, 0.25}, {2.0, 0.05, 0.5},  {0.05, 0.0, 0.0},
};

static void mark_splits(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                        const struct weir__auto_draft *draft) {
    assert(draft->count <= problem->entry_count);
    for (uint32_t k = 0; k < draft->count; k++) {
        const struct weir__auto_step *step = &draft->steps[k];
        size_t cell = weir__auto_cell(problem, step->stage, step->micro_batch);
        if (weir__pass_of(step->kind) == WEIR__PASS_GRADIENT)
            bench->taste.split[cell] = !weir__is_whole(step->kind);
    }
}

static void follow(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                   uint64_t round) {
    size_t cells = problem->cell_count;
    uint64_t turn = round % WEIR__COUNT_OF(temper);
    double noise = temper[turn].noise * problem->round;
    memcpy(bench->taste.order, bench->latest, WEIR__PASSES * cells * sizeof *bench->latest);
    bench->taste.patience = temper[turn].patience;
    for (size_t k = 0; noise > 0.0 && k < WEIR__PASSES * cells; k++)
        bench->taste.order[k] += noise * disturbance(round, k);
    for (size_t k = 0; temper[turn].change > 0.0 && k < cells; k++) {
        double draw = disturbance(~round, k) * 0.5 + 0.5;
        bool change = draw < temper[turn].change && !problem->options->whole_backward;
        bench->taste.split[k] ^= change ? 1u : 0u;
    }
}

void weir__auto_improve(const struct weir__auto_problem *problem, struct weir__auto_bench *bench) {
    if (!(bench->best.step < INFINITY) || is_done(problem, bench)) return;
    weir__auto_polish(problem, bench, &bench->best);
    copy_draft(&bench->best, &bench->current);
    for (uint64_t round = 0; !is_done(problem, bench); round++) {
        weir__auto_find_latest(problem, bench, &bench->current);
        mark_splits(problem, bench, &bench->current);
        follow(problem, bench, round);
        weir__auto_build(problem, bench);
        if (bench->trial.step <= PROMISING * bench->best.step) {
            swap_drafts(&bench->trial, &bench->current);
            weir__auto_polish(problem, bench, &bench->current);
            swap_drafts(&bench->trial, &bench->current);
        }
        keep_better(bench);
        swap_drafts(&bench->trial, &bench->current);
        if (bench->current.step > DRIFT * bench->best.step || round % 16 == 15)
            copy_draft(&bench->best, &bench->current);
    }
}

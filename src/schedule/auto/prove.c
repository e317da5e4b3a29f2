/* SPDX-License-Identifier: MIT */
/*
 * Branch and bound. A table is built in the order of its starts (of workers, where starts are
 * equal), so each table comes up once. A branch ends where what is left cannot be done within the
 * best step known. It also ends where a worker idles although it could run a W or a backward first,
 * without delaying its next action and without keeping more: running that first is never worse.
 */
#include "schedule/auto/auto.h"

#include <math.h>

struct proof {
    const struct weir__auto_problem *problem;
    struct weir__auto_bench *bench;
    double *left;                     /**< [worker]: the least time of what is not placed */
    double *forward_by, *gradient_by; /**< [stage]: no earlier end of its last F, its last I or B */
    struct weir__auto_step steps[WEIR__AUTO_PROOF_ENTRIES];
    bool given_up;
};

/* By kind, in `room` where they are not the stage's. */
static const double *seconds_of(const struct weir__auto_problem *problem, uint32_t s, uint32_t i,
                                double room[WEIR_KIND_COUNT]) {
    const double *scale = problem->costs->micro_batch_scale, *own = problem->stages[s].seconds;
    if (scale == NULL) return own;
    for (uint32_t kind = 0; kind < WEIR_KIND_COUNT; kind++) room[kind] = own[kind] * scale[i];
    return room;
}

/* ---- what the rest takes at least ---- */

/* Of the stage: all that is left, and of it F alone, and all but W. */
static void rest_of(const struct proof *proof, uint32_t s, double *all, double *forward,
                    double *gradient) {
    assert(s < proof->problem->stage_count);
    const struct weir__auto_problem *problem = proof->problem;
    const struct weir__auto_progress *progress = &proof->bench->state.progress[s];
    const uint8_t *marks = &proof->bench->state.marks[weir__auto_cell(problem, s, 0)];
    bool whole = problem->options->whole_backward;
    double room[WEIR_KIND_COUNT];
    *all = *forward = *gradient = 0.0;
    for (uint32_t i = 0; i < problem->micro_batch_count; i++) {
        const double *own = seconds_of(problem, s, i, room);
        double least = weir__least_gradient(own, whole);
        if (i >= progress->forwards) *forward += weir__pass_seconds(own, WEIR__PASS_FORWARD);
        if (!problem->stages[s].backward) continue;
        if (i >= progress->recomputes && i < problem->stages[s].recomputed)
            *gradient += weir__pass_seconds(own, WEIR__PASS_RECOMPUTE);
        if (i >= progress->gradients) {
            *all += weir__least_backward(own, whole);
            *all -= least;
            *gradient += least;
        } else if (marks[i] == WEIR__AUTO_IS_SPLIT) {
            *all += weir__pass_seconds(own, WEIR__PASS_WEIGHT);
        }
    }
    *all += *forward + *gradient;
}

/* No table that begins as this one ends earlier. */
static double least_step(struct proof *proof) {
    const struct weir__auto_problem *problem = proof->problem;
    const struct weir__auto_state *state = &proof->bench->state;
    uint32_t last = problem->micro_batch_count - 1;
    double bound = 0.0, all, forward, gradient, room[WEIR_KIND_COUNT];
    for (uint32_t w = 0; w < problem->worker_count; w++) proof->left[w] = state->places[w].free;
    for (uint32_t s = 0; s < problem->stage_count; s++) {
        uint32_t w = problem->stages[s].worker;
        rest_of(proof, s, &all, &forward, &gradient);
        double begun = weir__auto_arrival(&problem->values_in, proof->forward_by, s) +
                       weir__pass_seconds(seconds_of(problem, s, last, room), WEIR__PASS_FORWARD);
        double own = state->places[w].free + forward;
        proof->forward_by[s] = begun > own ? begun : own;
        if (state->progress[s].forwards > last)
            proof->forward_by[s] = state->forward_end[weir__auto_cell(problem, s, last)];
        proof->left[w] += all;
        bound = proof->left[w] > bound ? proof->left[w] : bound;
        proof->gradient_by[s] = state->places[w].free + forward + gradient;
    }
    for (uint32_t s = problem->stage_count; s-- > 0;) {
        double least = weir__least_gradient(seconds_of(problem, s, last, room),
                                            problem->options->whole_backward);
        double come = weir__auto_arrival(&problem->gradients_in, proof->gradient_by, s);
        double end = proof->forward_by[s];
        if (problem->stages[s].backward) end = (come > end ? come : end) + least;
        if (proof->gradient_by[s] < end) proof->gradient_by[s] = end;
        if (state->progress[s].gradients > last)
            proof->gradient_by[s] = state->gradient_end[weir__auto_cell(problem, s, last)];
        bound = proof->gradient_by[s] > bound ? proof->gradient_by[s] : bound;
    }
    return bound;
}

/* ---- branching ---- */

/* Could the worker of `step` do, before it and without delaying it, a W or a backward? */
static bool wastes(struct proof *proof, const struct weir__auto_step *step) {
    const struct weir__auto_problem *problem = proof->problem;
    uint32_t w = problem->stages[step->stage].worker;
    double by = step->start - problem->costs->host_seconds;
    for (uint32_t k = problem->held_begin[w]; k < problem->held_begin[w + 1]; k++) {
        uint32_t s = problem->held[k];
        const double *seconds = problem->stages[s].seconds;
        bool halves =
            !problem->options->whole_backward &&
            weir__pass_seconds(seconds, WEIR__PASS_WEIGHT) <= weir__least_backward(seconds, true);
        for (uint32_t kind = 0; kind < WEIR_KIND_COUNT; kind++) {
            struct weir__auto_step other;
            enum weir__pass pass = weir__pass_of(kind);
            if (pass != WEIR__PASS_GRADIENT && pass != WEIR__PASS_WEIGHT) continue;
            if (weir__writes(kind, WEIR__WEIGHT_INPUTS) && !halves) continue;
            if (weir__auto_next(problem, &proof->bench->state, s, (enum weir_kind)kind, &other) &&
                other.end <= by && other.end > other.start)
                return true;
        }
    }
    return false;
}

static bool comes_later(const struct weir__auto_problem *problem,
                        const struct weir__auto_step *last, const struct weir__auto_step *step) {
    if (step->start < last->start) return false;
    if (step->start > last->start || !(last->end > last->start)) return true;
    return problem->stages[step->stage].worker >= problem->stages[last->stage].worker;
}

static void finish(struct proof *proof, uint32_t depth) {
    assert(depth <= WEIR__AUTO_PROOF_ENTRIES);
    struct weir__auto_draft *best = &proof->bench->best;
    double step = 0.0;
    for (uint32_t w = 0; w < proof->problem->worker_count; w++) {
        double free = proof->bench->state.places[w].free;
        step = free > step ? free : step;
    }
    if (!(step < best->step)) return;
    best->step = step;
    best->count = depth;
    for (uint32_t k = 0; k < depth; k++) best->steps[k] = proof->steps[k];
    best->peak = weir__auto_peak(proof->problem, &proof->bench->state);
}

static bool is_complete(const struct proof *proof) {
    const struct weir__auto_problem *problem = proof->problem;
    for (uint32_t s = 0; s < problem->stage_count; s++) {
        const struct weir__auto_progress *progress = &proof->bench->state.progress[s];
        if (progress->forwards < problem->micro_batch_count) return false;
        for (uint32_t i = 0; problem->stages[s].backward && i < problem->micro_batch_count; i++) {
            uint8_t marks = proof->bench->state.marks[weir__auto_cell(problem, s, i)];
            if ((marks & WEIR__AUTO_IS_FREED) == 0) return false;
        }
    }
    return true;
}

static void branch(struct proof *proof, uint32_t depth);

static void try_step(struct proof *proof, uint32_t depth, uint32_t s, enum weir_kind kind) {
    assert(depth < proof->problem->entry_count);
    const struct weir__auto_problem *problem = proof->problem;
    struct weir__auto_state *state = &proof->bench->state;
    struct weir__auto_undo undo;
    struct weir__auto_step step;
    if (!weir__auto_next(problem, state, s, kind, &step)) return;
    if (depth > 0 && !comes_later(problem, &proof->steps[depth - 1], &step)) return;
    if (wastes(proof, &step)) return;
    proof->steps[depth] = step;
    weir__auto_place_step(problem, state, &step, &undo);
    proof->bench->work++;
    branch(proof, depth + 1);
    weir__auto_take_back(problem, state, &step, &undo);
}

static void branch(struct proof *proof, uint32_t depth) {
    const struct weir__auto_problem *problem = proof->problem;
    static const enum weir_kind kinds[] = {WEIR_KIND_I, WEIR_KIND_B, WEIR_KIND_F, WEIR_KIND_R,
                                           WEIR_KIND_W};
    if (proof->bench->work >= proof->bench->work_most) proof->given_up = true;
    if (proof->given_up || !(least_step(proof) < proof->bench->best.step)) return;
    if (is_complete(proof)) {
        finish(proof, depth);
        return;
    }
    for (size_t k = 0; k < WEIR__COUNT_OF(kinds); k++) {
        if (weir__writes(kinds[k], WEIR__WEIGHT_INPUTS) && problem->options->whole_backward)
            continue;
        for (uint32_t s = problem->stage_count; s-- > 0;) {
            if (!weir__kinds[kinds[k]].of_backward || problem->stages[s].backward)
                try_step(proof, depth, s, kinds[k]);
        }
    }
}

bool weir__auto_prove(const struct weir__auto_problem *problem, struct weir__auto_bench *bench) {
    struct proof proof = {.problem = problem, .bench = bench};
    if (problem->entry_count > WEIR__AUTO_PROOF_ENTRIES) return false;
    assert(2 * problem->stage_count <= WEIR__PASSES * problem->cell_count);
    /* Nothing is built meanwhile, so the tastes' room is free: 4 numbers per cell. */
    proof.left = bench->latest_line;
    proof.forward_by = bench->latest;
    proof.gradient_by = bench->latest + problem->stage_count;
    weir__auto_state_reset(&bench->state, problem);
    branch(&proof, 0);
    return !proof.given_up;
}

/* SPDX-License-Identifier: MIT */
/*
 * A table being built from the left: what each stage could do next, and whether memory lets it.
 *
 * An action that keeps memory is refused if the micro-batches that have begun could then no longer
 * be finished, one after the other and the oldest first, each freeing what it kept (the banker's
 * rule). Stages take micro-batches in ascending order. So no action is refused that could run, and
 * a table that is begun can always be finished.
 */
#include "schedule/auto/auto.h"

void weir__auto_state_clean_up(struct weir__auto_state *state,
                               const struct weir__auto_problem *problem) {
    const struct weir_allocator *allocator = problem->allocator;
    weir__release(allocator, state->marks, problem->cell_count, sizeof *state->marks);
    weir__release(allocator, state->gradient_end, problem->cell_count, sizeof *state->gradient_end);
    weir__release(allocator, state->forward_end, problem->cell_count, sizeof *state->forward_end);
    weir__release(allocator, state->progress, problem->stage_count, sizeof *state->progress);
    weir__release(allocator, state->places, problem->worker_count, sizeof *state->places);
    *state = (struct weir__auto_state){0};
}

int weir__auto_state_init(struct weir__auto_state *state,
                          const struct weir__auto_problem *problem) {
    const struct weir_allocator *allocator = problem->allocator;
    size_t cells = problem->cell_count;
    *state = (struct weir__auto_state){
        .places = weir__acquire(allocator, problem->worker_count, sizeof *state->places),
        .progress = weir__acquire(allocator, problem->stage_count, sizeof *state->progress),
        .forward_end = weir__acquire(allocator, cells, sizeof *state->forward_end),
        .gradient_end = weir__acquire(allocator, cells, sizeof *state->gradient_end),
        .marks = weir__acquire(allocator, cells, sizeof *state->marks)};
    bool whole = state->places != NULL && state->progress != NULL && state->forward_end != NULL &&
                 state->gradient_end != NULL && state->marks != NULL;
    return whole ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

void weir__auto_state_reset(struct weir__auto_state *state,
                            const struct weir__auto_problem *problem) {
    for (uint32_t w = 0; w < problem->worker_count; w++)
        state->places[w] = (struct weir__auto_place){.free = -problem->costs->host_seconds};
    for (uint32_t s = 0; s < problem->stage_count; s++)
        state->progress[s] = (struct weir__auto_progress){0};
    for (size_t i = 0; i < problem->cell_count; i++) {
        state->forward_end[i] = state->gradient_end[i] = -1.0;
        state->marks[i] = 0;
    }
}

/* ---- memory ---- */

/** An action that is not placed yet, thought of as done. */
struct thought {
    uint32_t stage, micro_batch;
    bool forward; /**< or recompute */
};

/** What a micro-batch keeps on a worker, and what it needs on top at most to come to its end. */
struct holding {
    int64_t held, need;
};

static struct holding holding_of(const struct weir__auto_problem *problem,
                                 const struct weir__auto_state *state, uint32_t worker, int amount,
                                 uint32_t i, const struct thought *thought) {
    assert(worker < problem->worker_count && i < problem->micro_batch_count);
    uint32_t begin = problem->held_begin[worker], end = problem->held_begin[worker + 1];
    struct holding holding = {0, 0};
    int64_t now = 0;
    for (uint32_t k = begin; k < end; k++) {
        uint32_t s = problem->held[k];
        const struct weir__stage_facts *stage = &problem->stages[s];
        bool same = thought->stage == s && thought->micro_batch == i;
        bool later = weir__auto_recomputed(problem, s, i);
        if (i >= state->progress[s].forwards && !(same && thought->forward)) {
            now += stage->kept[amount] + (later ? 0 : stage->saved[amount]);
            holding.need = now > holding.need ? now : holding.need;
        } else if ((state->marks[weir__auto_cell(problem, s, i)] & WEIR__AUTO_IS_FREED) == 0) {
            bool again = i < state->progress[s].recomputes || (same && !thought->forward);
            holding.held += stage->kept[amount] + (later && !again ? 0 : stage->saved[amount]);
        }
    }
    for (uint32_t k = end; k-- > begin;) {
        uint32_t s = problem->held[k];
        const struct weir__stage_facts *stage = &problem->stages[s];
        if ((state->marks[weir__auto_cell(problem, s, i)] & WEIR__AUTO_IS_FREED) != 0) continue;
        bool same = thought->stage == s && thought->micro_batch == i && !thought->forward;
        bool again = i < state->progress[s].recomputes || same;
        now += weir__auto_recomputed(problem, s, i) && !again ? stage->saved[amount] : 0;
        holding.need = now > holding.need ? now : holding.need;
        now -= stage->kept[amount] + stage->saved[amount];
    }
    return holding;
}

static uint32_t newest_of(const struct weir__auto_problem *problem,
                          const struct weir__auto_state *state, uint32_t worker) {
    uint32_t newest = 0;
    for (uint32_t k = problem->held_begin[worker]; k < problem->held_begin[worker + 1]; k++) {
        uint32_t forwards = state->progress[problem->held[k]].forwards;
        newest = forwards > newest ? forwards : newest;
    }
    return newest;
}

static bool has_room(const struct weir__auto_problem *problem, const struct weir__auto_state *state,
                     uint32_t w, int amount, int64_t more, const struct thought *thought) {
    assert(w < problem->worker_count && more >= 0);
    const struct weir__auto_worker *worker = &problem->workers[w];
    const struct weir__auto_place *place = &state->places[w];
    if (worker->limit[amount] == INT64_MAX || more == 0) return true;
    int64_t left = worker->limit[amount] - place->used[amount] - more;
    uint32_t newest = newest_of(problem, state, w);
    if (left < 0) return false;
    for (uint32_t i = place->oldest; left < worker->alone[amount] && i <= newest; i++) {
        if (i >= problem->micro_batch_count) break;
        struct holding holding = holding_of(problem, state, w, amount, i, thought);
        if (holding.need > left) return false;
        left += holding.held;
    }
    return true;
}

static bool memory_allows(const struct weir__auto_problem *problem,
                          const struct weir__auto_state *state,
                          const struct weir__auto_step *step) {
    assert(weir__writes(step->kind, WEIR__SAVED));
    const struct weir__stage_facts *stage = &problem->stages[step->stage];
    struct thought thought = {step->stage, step->micro_batch,
                              weir__pass_of(step->kind) == WEIR__PASS_FORWARD};
    bool later = weir__auto_recomputed(problem, step->stage, step->micro_batch);
    for (int amount = 0; amount < WEIR__AMOUNTS; amount++) {
        int64_t more = weir__stage_begins(stage, step->kind, later, amount);
        if (!has_room(problem, state, stage->worker, amount, more, &thought)) return false;
    }
    return true;
}

/* ---- what can come next ---- */

bool weir__auto_has_values(const struct weir__auto_problem *problem,
                           const struct weir__auto_state *state, uint32_t s, uint32_t i,
                           double *ready) {
    uint32_t ahead = problem->stages[s].ahead;
    if (ahead != 0 && i >= ahead) {
        assert(s + 1 < problem->stage_count);
        double end = state->forward_end[weir__auto_cell(problem, s + 1, i - ahead)];
        if (end < 0.0) return false;
        *ready = end > *ready ? end : *ready;
    }
    return weir__auto_arrive(problem, &problem->values_in, state->forward_end, s, i, ready);
}

static bool gradient_ready(const struct weir__auto_problem *problem,
                           const struct weir__auto_state *state, const struct weir__auto_step *step,
                           double *ready) {
    const struct weir__auto_progress *progress = &state->progress[step->stage];
    assert(progress->recomputes <= problem->stages[step->stage].recomputed);
    uint32_t s = step->stage, i = step->micro_batch;
    if (i >= progress->forwards) return false;
    if (i < problem->stages[s].recomputed && i >= progress->recomputes) return false;
    return weir__auto_arrive(problem, &problem->gradients_in, state->gradient_end, s, i, ready);
}

static bool recompute_ready(const struct weir__auto_problem *problem,
                            const struct weir__auto_state *state, struct weir__auto_step *step,
                            double *ready) {
    uint32_t s = step->stage, i = step->micro_batch;
    if (i >= state->progress[s].forwards) return false;
    if (problem->costs->recompute_late &&
        !weir__auto_arrive(problem, &problem->gradients_in, state->gradient_end, s, i, ready))
        return false;
    return memory_allows(problem, state, step);
}

/* The oldest I that has no W. */
static bool owes_weight(const struct weir__auto_problem *problem,
                        const struct weir__auto_state *state, struct weir__auto_step *step) {
    const struct weir__auto_progress *progress = &state->progress[step->stage];
    assert(progress->weights <= progress->gradients);
    const uint8_t *marks = &state->marks[weir__auto_cell(problem, step->stage, 0)];
    uint32_t i = progress->weights;
    while (i < progress->gradients && (marks[i] & WEIR__AUTO_IS_SPLIT) == 0) i++;
    step->micro_batch = i;
    return i < progress->gradients;
}

bool weir__auto_next(const struct weir__auto_problem *problem, struct weir__auto_state *state,
                     uint32_t s, enum weir_kind kind, struct weir__auto_step *step) {
    assert(s < problem->stage_count && weir__pass_of(kind) < WEIR__PASSES);
    const struct weir__stage_facts *stage = &problem->stages[s];
    const struct weir__auto_progress *progress = &state->progress[s];
    uint32_t m = problem->micro_batch_count;
    double ready = 0.0;
    bool can;
    enum weir__pass pass = weir__pass_of(kind);
    *step = (struct weir__auto_step){.stage = s, .kind = kind};
    if (pass == WEIR__PASS_FORWARD) {
        step->micro_batch = progress->forwards;
        can = progress->forwards < m &&
              weir__auto_has_values(problem, state, s, step->micro_batch, &ready) &&
              memory_allows(problem, state, step);
    } else if (pass == WEIR__PASS_RECOMPUTE) {
        step->micro_batch = progress->recomputes;
        can = progress->recomputes < stage->recomputed &&
              recompute_ready(problem, state, step, &ready);
    } else if (pass == WEIR__PASS_WEIGHT) {
        can = owes_weight(problem, state, step);
    } else {
        /* A W that is owed comes before the next B: gradients are summed in ascending order. */
        bool owes = weir__is_whole(kind) && owes_weight(problem, state, step);
        step->micro_batch = progress->gradients;
        can = stage->backward && progress->gradients < m && !owes &&
              gradient_ready(problem, state, step, &ready);
    }
    if (!can) return false;
    const double *scale = problem->costs->micro_batch_scale;
    double seconds = stage->seconds[kind], free = state->places[stage->worker].free;
    if (scale != NULL) seconds *= scale[step->micro_batch];
    step->start = (free > ready ? free : ready) + problem->costs->host_seconds;
    step->end = step->start + seconds;
    return true;
}

/* ---- placing ---- */

static bool is_freed_by_all(const struct weir__auto_problem *problem,
                            const struct weir__auto_state *state, uint32_t worker, uint32_t i) {
    assert(worker < problem->worker_count);
    for (uint32_t k = problem->held_begin[worker]; k < problem->held_begin[worker + 1]; k++) {
        uint32_t s = problem->held[k];
        uint8_t marks = state->marks[weir__auto_cell(problem, s, i)];
        if (problem->stages[s].backward && (marks & WEIR__AUTO_IS_FREED) == 0) return false;
    }
    return true;
}

static void free_cell(const struct weir__auto_problem *problem, struct weir__auto_state *state,
                      const struct weir__auto_step *step) {
    const struct weir__stage_facts *stage = &problem->stages[step->stage];
    struct weir__auto_place *place = &state->places[stage->worker];
    state->marks[weir__auto_cell(problem, step->stage, step->micro_batch)] |= WEIR__AUTO_IS_FREED;
    for (int amount = 0; amount < WEIR__AMOUNTS; amount++) {
        place->used[amount] -= weir__stage_frees(stage, step->kind, amount);
        assert(place->used[amount] >= 0);
    }
    while (place->oldest < problem->micro_batch_count &&
           is_freed_by_all(problem, state, stage->worker, place->oldest))
        place->oldest++;
}

static void keep(const struct weir__auto_problem *problem, struct weir__auto_state *state,
                 const struct weir__auto_step *step) {
    const struct weir__stage_facts *stage = &problem->stages[step->stage];
    struct weir__auto_place *place = &state->places[stage->worker];
    bool later = weir__auto_recomputed(problem, step->stage, step->micro_batch);
    for (int amount = 0; amount < WEIR__AMOUNTS; amount++) {
        place->used[amount] += weir__stage_begins(stage, step->kind, later, amount);
        int64_t used = place->used[amount];
        place->peak[amount] = used > place->peak[amount] ? used : place->peak[amount];
    }
}

void weir__auto_place_step(const struct weir__auto_problem *problem, struct weir__auto_state *state,
                           const struct weir__auto_step *step, struct weir__auto_undo *undo) {
    assert(step->micro_batch < problem->micro_batch_count && undo != NULL);
    struct weir__auto_place *place = &state->places[problem->stages[step->stage].worker];
    struct weir__auto_progress *progress = &state->progress[step->stage];
    size_t cell = weir__auto_cell(problem, step->stage, step->micro_batch);
    uint32_t writes = weir__kinds[step->kind].writes;
    *undo = (struct weir__auto_undo){*place, *progress};
    place->free = step->end;
    if ((writes & WEIR__OUTPUTS) != 0) {
        state->forward_end[cell] = step->end;
        progress->forwards++;
        keep(problem, state, step);
    } else if ((writes & WEIR__SAVED) != 0) {
        progress->recomputes++;
        keep(problem, state, step);
    }
    if ((writes & WEIR__INPUT_GRADS) != 0) {
        state->gradient_end[cell] = step->end;
        state->marks[cell] |= (writes & WEIR__WEIGHT_INPUTS) != 0 ? WEIR__AUTO_IS_SPLIT : 0;
        progress->gradients++;
    } else if ((writes & WEIR__PARAM_GRADS) != 0) {
        progress->weights = step->micro_batch + 1;
    }
    if ((writes & WEIR__PARAM_GRADS) != 0) free_cell(problem, state, step);
}

void weir__auto_take_back(const struct weir__auto_problem *problem, struct weir__auto_state *state,
                          const struct weir__auto_step *step, const struct weir__auto_undo *undo) {
    size_t cell = weir__auto_cell(problem, step->stage, step->micro_batch);
    state->places[problem->stages[step->stage].worker] = undo->place;
    state->progress[step->stage] = undo->progress;
    uint32_t writes = weir__kinds[step->kind].writes;
    if ((writes & WEIR__OUTPUTS) != 0) state->forward_end[cell] = -1.0;
    if ((writes & WEIR__INPUT_GRADS) != 0) {
        state->gradient_end[cell] = -1.0;
        state->marks[cell] = 0;
    } else if ((writes & WEIR__PARAM_GRADS) != 0) {
        state->marks[cell] = WEIR__AUTO_IS_SPLIT;
    }
}

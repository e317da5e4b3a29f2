/* SPDX-License-Identifier: MIT */
/*
 * Building a table by a taste, which orders actions. The worker whose next action starts first
 * places it. A worker's next action is the one that comes first in the order among those that are
 * ready; or, with patience, one that comes before it and is known to be ready soon.
 */
#include "schedule/auto/auto.h"

#include <math.h>

/* ---- memory ---- */

static bool acquire_draft(const struct weir__auto_problem *problem,
                          struct weir__auto_draft *draft) {
    draft->step = INFINITY;
    draft->steps = weir__acquire(problem->allocator, problem->entry_count, sizeof *draft->steps);
    return draft->steps != NULL;
}

static void release_draft(const struct weir__auto_problem *problem,
                          struct weir__auto_draft *draft) {
    weir__release(problem->allocator, draft->steps, problem->entry_count, sizeof *draft->steps);
}

static bool acquire_times(const struct weir__auto_problem *problem,
                          struct weir__auto_times *times) {
    const struct weir_allocator *allocator = problem->allocator;
    times->ready = weir__acquire(allocator, problem->entry_count, sizeof *times->ready);
    times->start = weir__acquire(allocator, problem->entry_count, sizeof *times->start);
    times->end = weir__acquire(allocator, problem->entry_count, sizeof *times->end);
    times->order = weir__acquire(allocator, problem->entry_count, sizeof *times->order);
    return times->ready != NULL && times->start != NULL && times->end != NULL &&
           times->order != NULL;
}

static void release_times(const struct weir__auto_problem *problem,
                          struct weir__auto_times *times) {
    const struct weir_allocator *allocator = problem->allocator;
    weir__release(allocator, times->order, problem->entry_count, sizeof *times->order);
    weir__release(allocator, times->end, problem->entry_count, sizeof *times->end);
    weir__release(allocator, times->start, problem->entry_count, sizeof *times->start);
    weir__release(allocator, times->ready, problem->entry_count, sizeof *times->ready);
}

static bool acquire_lines(const struct weir__auto_problem *problem,
                          struct weir__auto_lines *lines) {
    const struct weir_allocator *allocator = problem->allocator;
    uint32_t workers = problem->worker_count;
    lines->begin = weir__acquire(allocator, (size_t)workers + 1, sizeof *lines->begin);
    lines->cursor = weir__acquire(allocator, workers, sizeof *lines->cursor);
    lines->free = weir__acquire(allocator, workers, sizeof *lines->free);
    lines->ready = weir__acquire(allocator, workers, sizeof *lines->ready);
    lines->awake = weir__acquire(allocator, workers, sizeof *lines->awake);
    lines->summed = weir__acquire(allocator, problem->stage_count, sizeof *lines->summed);
    lines->list = weir__acquire(allocator, problem->entry_count, sizeof *lines->list);
    bool times = acquire_times(problem, &lines->now);
    times = acquire_times(problem, &lines->next) && times;
    return times && lines->begin != NULL && lines->cursor != NULL && lines->free != NULL &&
           lines->ready != NULL && lines->awake != NULL && lines->summed != NULL &&
           lines->list != NULL;
}

static void release_lines(const struct weir__auto_problem *problem,
                          struct weir__auto_lines *lines) {
    const struct weir_allocator *allocator = problem->allocator;
    uint32_t workers = problem->worker_count;
    release_times(problem, &lines->next);
    release_times(problem, &lines->now);
    weir__release(allocator, lines->list, problem->entry_count, sizeof *lines->list);
    weir__release(allocator, lines->summed, problem->stage_count, sizeof *lines->summed);
    weir__release(allocator, lines->awake, workers, sizeof *lines->awake);
    weir__release(allocator, lines->ready, workers, sizeof *lines->ready);
    weir__release(allocator, lines->free, workers, sizeof *lines->free);
    weir__release(allocator, lines->cursor, workers, sizeof *lines->cursor);
    weir__release(allocator, lines->begin, (size_t)workers + 1, sizeof *lines->begin);
}

int weir__auto_bench_init(struct weir__auto_bench *bench, const struct weir__auto_problem *problem,
                          uint64_t work_most) {
    assert(problem->worker_count > 0 && problem->worker_count <= problem->stage_count);
    const struct weir_allocator *allocator = problem->allocator;
    size_t cells = problem->cell_count;
    *bench = (struct weir__auto_bench){.work_most = work_most, .goal = INFINITY};
    bool whole = weir__auto_state_init(&bench->state, problem) == WEIR_OK;
    bench->taste.order = weir__acquire(allocator, WEIR__PASSES * cells, sizeof *bench->taste.order);
    bench->taste.split = weir__acquire(allocator, cells, sizeof *bench->taste.split);
    bench->latest = weir__acquire(allocator, WEIR__PASSES * cells, sizeof *bench->latest);
    bench->latest_line =
        weir__acquire(allocator, problem->worker_count, sizeof *bench->latest_line);
    bench->offers = weir__acquire(allocator, (size_t)WEIR__PASSES * problem->stage_count,
                                  sizeof *bench->offers);
    for (bench->leaf_count = 1; bench->leaf_count < problem->worker_count;) bench->leaf_count *= 2;
    bench->winners =
        weir__acquire(allocator, 2 * (size_t)bench->leaf_count, sizeof *bench->winners);
    bench->choices = weir__acquire(allocator, problem->worker_count, sizeof *bench->choices);
    whole = acquire_draft(problem, &bench->best) && whole;
    whole = acquire_draft(problem, &bench->trial) && whole;
    whole = acquire_draft(problem, &bench->current) && whole;
    whole = acquire_lines(problem, &bench->lines) && whole;
    whole = whole && bench->taste.order != NULL && bench->taste.split != NULL &&
            bench->latest != NULL && bench->latest_line != NULL && bench->choices != NULL &&
            bench->winners != NULL && bench->offers != NULL;
    return whole ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

void weir__auto_bench_clean_up(struct weir__auto_bench *bench,
                               const struct weir__auto_problem *problem) {
    const struct weir_allocator *allocator = problem->allocator;
    size_t cells = problem->cell_count;
    release_lines(problem, &bench->lines);
    release_draft(problem, &bench->current);
    release_draft(problem, &bench->trial);
    release_draft(problem, &bench->best);
    weir__release(allocator, bench->winners, 2 * (size_t)bench->leaf_count, sizeof *bench->winners);
    weir__release(allocator, bench->choices, problem->worker_count, sizeof *bench->choices);
    weir__release(allocator, bench->offers, (size_t)WEIR__PASSES * problem->stage_count,
                  sizeof *bench->offers);
    weir__release(allocator, bench->latest_line, problem->worker_count, sizeof *bench->latest_line);
    weir__release(allocator, bench->latest, WEIR__PASSES * cells, sizeof *bench->latest);
    weir__release(allocator, bench->taste.split, cells, sizeof *bench->taste.split);
    weir__release(allocator, bench->taste.order, WEIR__PASSES * cells, sizeof *bench->taste.order);
    weir__auto_state_clean_up(&bench->state, problem);
}

/* ---- a worker's choice ---- */

static void offer(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                  uint32_t stage, enum weir__pass pass, bool whole) {
    assert(bench->offer_count < WEIR__PASSES * problem->stage_count);
    struct weir__auto_offer *offer = &bench->offers[bench->offer_count];
    enum weir_kind kind = weir__pass_kind(pass, whole);
    if (!weir__auto_next(problem, &bench->state, stage, kind, &offer->step)) return;
    size_t cell = weir__auto_cell(problem, stage, offer->step.micro_batch);
    offer->order = bench->taste.order[pass * problem->cell_count + cell];
    bench->offer_count++;
}

static void offer_stage(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                        uint32_t s) {
    assert(s < problem->stage_count);
    uint32_t i = bench->state.progress[s].gradients;
    offer(problem, bench, s, WEIR__PASS_FORWARD, false);
    if (!problem->stages[s].backward) return;
    offer(problem, bench, s, WEIR__PASS_RECOMPUTE, false);
    offer(problem, bench, s, WEIR__PASS_WEIGHT, false);
    if (i == problem->micro_batch_count) return;
    bool whole = bench->taste.split[weir__auto_cell(problem, s, i)] == 0;
    offer(problem, bench, s, WEIR__PASS_GRADIENT, whole);
}

/* Of what starts by `until`, what is liked best. There is something. */
static const struct weir__auto_offer *best_offer(const struct weir__auto_bench *bench,
                                                 double until) {
    const struct weir__auto_offer *best = NULL;
    for (uint32_t k = 0; k < bench->offer_count; k++) {
        const struct weir__auto_offer *offer = &bench->offers[k];
        if (offer->step.start > until) continue;
        bool better = best == NULL || offer->order < best->order ||
                      (!(offer->order > best->order) && offer->step.start < best->step.start);
        best = better ? offer : best;
    }
    assert(best != NULL);
    return best;
}

/* Of two workers, the one that starts first; UINT32_MAX is nobody. */
static uint32_t sooner(const struct weir__auto_bench *bench, uint32_t a, uint32_t b) {
    if (a == UINT32_MAX || b == UINT32_MAX) return a < b ? a : b;
    return bench->choices[b].start < bench->choices[a].start ? b : a;
}

static void play(struct weir__auto_bench *bench, uint32_t worker) {
    assert(worker < bench->leaf_count);
    for (uint32_t k = (bench->leaf_count + worker) / 2; k > 0; k /= 2)
        bench->winners[k] = sooner(bench, bench->winners[2 * k], bench->winners[2 * k + 1]);
}

static void find_choice(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                        uint32_t worker) {
    assert(worker < problem->worker_count);
    struct weir__auto_step *choice = &bench->choices[worker];
    double first = INFINITY;
    bench->offer_count = 0;
    for (uint32_t k = problem->held_begin[worker]; k < problem->held_begin[worker + 1]; k++)
        offer_stage(problem, bench, problem->held[k]);
    for (uint32_t k = 0; k < bench->offer_count; k++) {
        double start = bench->offers[k].step.start;
        first = start < first ? start : first;
    }
    if (bench->offer_count == 0) {
        *choice = (struct weir__auto_step){.start = INFINITY};
        return;
    }
    const struct weir__auto_offer *ready = best_offer(bench, first);
    double until = first + bench->taste.patience * (ready->step.end - ready->step.start);
    *choice = best_offer(bench, until)->step;
}

static void choose(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                   uint32_t worker) {
    find_choice(problem, bench, worker);
    play(bench, worker);
}

/* ---- building ---- */

/* Those who may have waited for what was placed choose anew. */
static void tell(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                 const struct weir__auto_step *step) {
    uint32_t s = step->stage;
    enum weir__pass pass = weir__pass_of(step->kind);
    bool forward = pass == WEIR__PASS_FORWARD;
    const struct weir__auto_feeds *feeds = forward ? &problem->values_out : &problem->gradients_out;
    choose(problem, bench, problem->stages[s].worker);
    if (!forward && pass != WEIR__PASS_GRADIENT) return;
    for (uint32_t f = feeds->begin[s]; f < feeds->begin[s + 1]; f++) {
        uint32_t worker = problem->stages[feeds->list[f].stage].worker;
        if (worker != problem->stages[s].worker) choose(problem, bench, worker);
    }
    if (forward && s > 0 && problem->stages[s - 1].ahead != 0)
        choose(problem, bench, problem->stages[s - 1].worker);
}

/* Everybody's first choice. */
static void begin_choices(const struct weir__auto_problem *problem,
                          struct weir__auto_bench *bench) {
    assert(bench->leaf_count >= problem->worker_count);
    for (uint32_t w = 0; w < bench->leaf_count; w++)
        bench->winners[bench->leaf_count + w] = w < problem->worker_count ? w : UINT32_MAX;
    for (uint32_t w = 0; w < problem->worker_count; w++) find_choice(problem, bench, w);
    for (uint32_t k = bench->leaf_count; k-- > 1;)
        bench->winners[k] = sooner(bench, bench->winners[2 * k], bench->winners[2 * k + 1]);
}

int64_t weir__auto_peak(const struct weir__auto_problem *problem,
                        const struct weir__auto_state *state) {
    int64_t sums[WEIR__AMOUNTS] = {0};
    for (uint32_t w = 0; w < problem->worker_count; w++) {
        for (int amount = 0; amount < WEIR__AMOUNTS; amount++)
            sums[amount] += state->places[w].peak[amount];
    }
    return sums[WEIR__BYTES] > 0 ? sums[WEIR__BYTES] : sums[WEIR__ACTIVATIONS];
}

void weir__auto_build(const struct weir__auto_problem *problem, struct weir__auto_bench *bench) {
    struct weir__auto_draft *draft = &bench->trial;
    struct weir__auto_undo undo;
    draft->count = 0;
    draft->step = 0.0;
    weir__auto_state_reset(&bench->state, problem);
    begin_choices(problem, bench);
    for (;;) {
        struct weir__auto_step step = bench->choices[bench->winners[1]];
        if (!(step.start < INFINITY)) break;
        assert(draft->count < problem->entry_count);
        weir__auto_place_step(problem, &bench->state, &step, &undo);
        draft->steps[draft->count++] = step;
        draft->step = step.end > draft->step ? step.end : draft->step;
        tell(problem, bench, &step);
    }
    bench->work += draft->count;
    draft->peak = weir__auto_peak(problem, &bench->state);
    for (uint32_t w = 0; w < problem->worker_count; w++) {
        bool held = false;
        for (uint32_t k = problem->held_begin[w]; k < problem->held_begin[w + 1]; k++)
            held = held || problem->stages[problem->held[k]].backward;
        bool done = !held || bench->state.places[w].oldest == problem->micro_batch_count;
        if (!done) draft->step = INFINITY;
    }
}

/* ---- what a draft can put up with ---- */

double weir__auto_latest(const struct weir__auto_problem *problem,
                         const struct weir__auto_feeds *out, const double *latest, uint32_t stage,
                         uint32_t micro_batch, double end) {
    for (uint32_t f = out->begin[stage]; f < out->begin[stage + 1]; f++) {
        const struct weir__auto_feed *feed = &out->list[f];
        size_t cell = weir__auto_cell(problem, feed->stage, micro_batch);
        double by = latest[cell] - feed->copy - problem->costs->host_seconds;
        end = by < end ? by : end;
    }
    return end;
}

void weir__auto_find_latest(const struct weir__auto_problem *problem,
                            struct weir__auto_bench *bench, const struct weir__auto_draft *draft) {
    assert(draft->count <= problem->entry_count);
    size_t cells = problem->cell_count;
    double *gradients = &bench->latest[WEIR__PASS_GRADIENT * cells];
    for (size_t i = 0; i < WEIR__PASSES * cells; i++) bench->latest[i] = draft->step;
    for (uint32_t w = 0; w < problem->worker_count; w++)
        bench->latest_line[w] = draft->step + problem->costs->host_seconds;
    for (uint32_t k = draft->count; k-- > 0;) {
        const struct weir__auto_step *step = &draft->steps[k];
        size_t cell = weir__auto_cell(problem, step->stage, step->micro_batch);
        enum weir__pass pass = weir__pass_of(step->kind);
        double *line = &bench->latest_line[problem->stages[step->stage].worker];
        double end = *line - problem->costs->host_seconds;
        if (pass == WEIR__PASS_FORWARD)
            end = weir__auto_latest(problem, &problem->values_out, bench->latest, step->stage,
                                    step->micro_batch, end);
        else if (pass == WEIR__PASS_GRADIENT)
            end = weir__auto_latest(problem, &problem->gradients_out, gradients, step->stage,
                                    step->micro_batch, end);
        *line = bench->latest[pass * cells + cell] = end - (step->end - step->start);
    }
}

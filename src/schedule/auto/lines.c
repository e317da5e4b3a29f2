/* SPDX-License-Identifier: MIT */
/*
 * Small changes to lines. A critical action may stand behind one that it does not need: then it
 * goes before that one, or that one goes into idle time further right. A backward is split, or made
 * whole again. A change stays if the step is shorter, or as short while the lines together end
 * earlier. Running the lines from the left costs an eighth of building a table.
 *
 * A whole backward is two entries of its line, the second of which is void, so that lines keep
 * their lengths.
 */
#include "schedule/auto/auto.h"

#include <math.h>
#include <string.h>

#define COST_PART 8u
#define GAPS_MAX 4u
#define EPSILON 1e-9

/* ---- lines from a draft, and back ---- */

static void put(struct weir__auto_lines *lines, uint32_t *at, const struct weir__auto_step *step,
                enum weir_kind kind, bool is_void) {
    lines->list[(*at)++] =
        (struct weir__auto_entry){step->stage, step->micro_batch, (uint8_t)kind, is_void};
}

/* Behind a whole backward. */
static void put_void(struct weir__auto_lines *lines, uint32_t *at,
                     const struct weir__auto_step *step, uint32_t kind) {
    if (weir__is_whole(kind)) put(lines, at, step, weir__pass_kind(WEIR__PASS_WEIGHT, false), true);
}

/* begin[w] of the lines, from how many entries each worker has. */
static void begin_lines(const struct weir__auto_problem *problem, struct weir__auto_lines *lines) {
    uint32_t m = problem->micro_batch_count, at = 0;
    for (uint32_t w = 0; w < problem->worker_count; w++) {
        lines->begin[w] = lines->cursor[w] = at;
        for (uint32_t k = problem->held_begin[w]; k < problem->held_begin[w + 1]; k++) {
            const struct weir__stage_facts *stage = &problem->stages[problem->held[k]];
            at += m + stage->recomputed + (stage->backward ? 2 * m : 0);
        }
    }
    lines->begin[problem->worker_count] = at;
    assert(at == problem->entry_count);
}

static void read_draft(const struct weir__auto_problem *problem,
                       const struct weir__auto_draft *draft, struct weir__auto_lines *lines) {
    assert(draft->count <= problem->entry_count);
    begin_lines(problem, lines);
    for (uint32_t k = 0; k < draft->count; k++) {
        const struct weir__auto_step *step = &draft->steps[k];
        uint32_t *at = &lines->cursor[problem->stages[step->stage].worker];
        put(lines, at, step, step->kind, false);
        put_void(lines, at, step, step->kind);
    }
}

void weir__auto_fill(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                     const struct weir__auto_draft *draft, struct weir__table_builder *builder) {
    const struct weir__auto_lines *lines = &bench->lines;
    bool late = problem->costs->recompute_late;
    read_draft(problem, draft, &bench->lines);
    for (uint32_t w = 0; w < problem->worker_count; w++) {
        weir__table_line(builder);
        for (uint32_t at = lines->begin[w]; at < lines->begin[w + 1]; at++) {
            const struct weir__auto_entry *entry = &lines->list[at];
            enum weir__pass pass = weir__pass_of(entry->kind);
            if (entry->is_void || (late && pass == WEIR__PASS_RECOMPUTE)) continue;
            if (late && pass == WEIR__PASS_GRADIENT &&
                weir__auto_recomputed(problem, entry->stage, entry->micro_batch))
                weir__table_add(builder, WEIR_KIND_R, entry->stage, entry->micro_batch);
            weir__table_add(builder, (enum weir_kind)entry->kind, entry->stage, entry->micro_batch);
        }
        for (uint32_t k = problem->held_begin[w]; k < problem->held_begin[w + 1]; k++)
            weir__table_add(builder, WEIR_KIND_U, problem->held[k], 0);
    }
}

static void write_draft(const struct weir__auto_lines *lines, struct weir__auto_draft *draft) {
    const struct weir__auto_times *now = &lines->now;
    draft->count = now->count;
    for (uint32_t k = 0; k < now->count; k++) {
        uint32_t at = now->order[k];
        const struct weir__auto_entry *entry = &lines->list[at];
        draft->steps[k] = (struct weir__auto_step){now->start[at], now->end[at], entry->stage,
                                                   entry->micro_batch, (enum weir_kind)entry->kind};
    }
    draft->step = now->step;
}

/* ---- running lines ---- */

static bool is_ready(const struct weir__auto_problem *problem, const struct weir__auto_state *state,
                     const struct weir__auto_entry *entry, double *ready) {
    uint32_t reads = weir__reads_of(entry->kind, problem->costs->recompute_late);
    size_t cell = weir__auto_cell(problem, entry->stage, entry->micro_batch);
    *ready = 0.0;
    if (weir__writes(entry->kind, WEIR__OUTPUTS))
        return weir__auto_has_values(problem, state, entry->stage, entry->micro_batch, ready);
    if (state->forward_end[cell] < 0.0) return false;
    if ((reads & WEIR__WEIGHT_INPUTS) != 0) return state->gradient_end[cell] >= 0.0;
    if ((reads & WEIR__OUTPUT_GRADS) == 0) return true;
    return weir__auto_arrive(problem, &problem->gradients_in, state->gradient_end, entry->stage,
                             entry->micro_batch, ready);
}

static void wake(struct weir__auto_lines *lines, uint32_t worker) {
    if (lines->awake[worker]) return;
    lines->awake[worker] = true;
    lines->ready[lines->ready_count++] = worker;
}

static void wake_readers(const struct weir__auto_problem *problem, struct weir__auto_lines *lines,
                         const struct weir__auto_feeds *out, uint32_t stage) {
    for (uint32_t f = out->begin[stage]; f < out->begin[stage + 1]; f++)
        wake(lines, problem->stages[out->list[f].stage].worker);
}

static void run_entry(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                      uint32_t at, double ready, double *free) {
    struct weir__auto_times *times = &bench->lines.next;
    const struct weir__auto_entry *entry = &bench->lines.list[at];
    const double *scale = problem->costs->micro_batch_scale;
    size_t cell = weir__auto_cell(problem, entry->stage, entry->micro_batch);
    uint32_t writes = weir__kinds[entry->kind].writes;
    double seconds = problem->stages[entry->stage].seconds[entry->kind];
    if (scale != NULL) seconds *= scale[entry->micro_batch];
    assert(times->count < problem->entry_count && !entry->is_void);
    times->ready[at] = ready;
    times->start[at] = (*free > ready ? *free : ready) + problem->costs->host_seconds;
    times->end[at] = *free = times->start[at] + seconds;
    times->order[times->count++] = at;
    if ((writes & WEIR__OUTPUTS) != 0) {
        bench->state.forward_end[cell] = *free;
        wake_readers(problem, &bench->lines, &problem->values_out, entry->stage);
        if (entry->stage > 0 && problem->stages[entry->stage - 1].ahead != 0)
            wake(&bench->lines, problem->stages[entry->stage - 1].worker);
    } else if ((writes & WEIR__INPUT_GRADS) != 0) {
        bench->state.gradient_end[cell] = *free;
        wake_readers(problem, &bench->lines, &problem->gradients_out, entry->stage);
    }
}

/* Into `next`. False where the lines let nobody go on. */
static bool run_lines(const struct weir__auto_problem *problem, struct weir__auto_bench *bench) {
    struct weir__auto_lines *lines = &bench->lines;
    uint32_t left = problem->entry_count;
    for (size_t i = 0; i < problem->cell_count; i++)
        bench->state.forward_end[i] = bench->state.gradient_end[i] = -1.0;
    lines->next.count = lines->ready_count = 0;
    for (uint32_t w = problem->worker_count; w-- > 0;) {
        lines->cursor[w] = lines->begin[w];
        lines->free[w] = -problem->costs->host_seconds;
        lines->awake[w] = false;
        wake(lines, w);
    }
    while (lines->ready_count > 0) {
        uint32_t w = lines->ready[--lines->ready_count], at = lines->cursor[w];
        double ready;
        for (; at < lines->begin[w + 1]; at++) {
            if (lines->list[at].is_void) continue;
            if (!is_ready(problem, &bench->state, &lines->list[at], &ready)) break;
            run_entry(problem, bench, at, ready, &lines->free[w]);
        }
        assert(at >= lines->cursor[w]);
        left -= at - lines->cursor[w];
        lines->cursor[w] = at;
        lines->awake[w] = false;
    }
    struct weir__auto_times *next = &lines->next;
    next->step = next->sum = 0.0;
    for (uint32_t w = 0; w < problem->worker_count; w++) {
        next->step = lines->free[w] > next->step ? lines->free[w] : next->step;
        next->sum += lines->free[w];
    }
    bench->work += problem->entry_count / COST_PART + 1;
    return left == 0;
}

/* ---- memory ---- */

static int64_t begins(const struct weir__auto_problem *problem,
                      const struct weir__auto_entry *entry, int amount) {
    bool later = weir__auto_recomputed(problem, entry->stage, entry->micro_batch);
    return weir__stage_begins(&problem->stages[entry->stage], entry->kind, later, amount);
}

static int64_t frees(const struct weir__auto_problem *problem, const struct weir__auto_entry *entry,
                     int amount) {
    if (entry->is_void) return 0;
    return weir__stage_frees(&problem->stages[entry->stage], entry->kind, amount);
}

static bool is_within(const struct weir__auto_problem *problem,
                      const struct weir__auto_lines *lines, uint32_t worker) {
    assert(worker < problem->worker_count);
    for (int amount = 0; amount < WEIR__AMOUNTS; amount++) {
        int64_t limit = problem->workers[worker].limit[amount], now = 0;
        if (limit == INT64_MAX) continue;
        for (uint32_t at = lines->begin[worker]; at < lines->begin[worker + 1]; at++) {
            now += begins(problem, &lines->list[at], amount);
            if (now > limit) return false;
            now -= frees(problem, &lines->list[at], amount);
        }
    }
    return true;
}

/* Are the gradients of each of the worker's stages summed in ascending micro-batches? */
static bool is_ascending(const struct weir__auto_problem *problem, struct weir__auto_lines *lines,
                         uint32_t worker) {
    for (uint32_t k = problem->held_begin[worker]; k < problem->held_begin[worker + 1]; k++)
        lines->summed[problem->held[k]] = 0;
    for (uint32_t at = lines->begin[worker]; at < lines->begin[worker + 1]; at++) {
        const struct weir__auto_entry *entry = &lines->list[at];
        bool sums = weir__writes(entry->kind, WEIR__PARAM_GRADS);
        if (sums && !entry->is_void && entry->micro_batch != lines->summed[entry->stage]++)
            return false;
    }
    return true;
}

/* ---- changes ---- */

/* Of one stage's two entries, must `first` stay before `second`? Those of a pass keep their order,
 * and so do those of a micro-batch. */
static bool is_bound(const struct weir__auto_entry *first, const struct weir__auto_entry *second) {
    if (first->stage != second->stage) return false;
    return first->micro_batch == second->micro_batch ||
           weir__pass_of(first->kind) == weir__pass_of(second->kind);
}

static void move_entry(struct weir__auto_lines *lines, uint32_t from, uint32_t to) {
    assert(from != to);
    struct weir__auto_entry moved = lines->list[from];
    if (to < from)
        memmove(&lines->list[to + 1], &lines->list[to], (from - to) * sizeof moved);
    else
        memmove(&lines->list[from], &lines->list[from + 1], (to - from) * sizeof moved);
    lines->list[to] = moved;
}

static bool may_move(const struct weir__auto_lines *lines, uint32_t from, uint32_t to) {
    for (uint32_t at = to; at < from; at++) {
        if (is_bound(&lines->list[at], &lines->list[from])) return false;
    }
    for (uint32_t at = from + 1; at <= to && from < to; at++) {
        if (is_bound(&lines->list[from], &lines->list[at])) return false;
    }
    return true;
}

static void take_next(struct weir__auto_lines *lines) {
    struct weir__auto_times kept = lines->now;
    lines->now = lines->next;
    lines->next = kept;
}

/* True, and `next` is `now`, if the lines as they are changed are better. */
static bool is_kept(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                    uint32_t worker) {
    struct weir__auto_lines *lines = &bench->lines;
    if (!is_ascending(problem, lines, worker) || !is_within(problem, lines, worker) ||
        !run_lines(problem, bench))
        return false;
    double step = lines->now.step, sum = lines->now.sum;
    bool shorter = lines->next.step < step - EPSILON * step;
    bool as_short = lines->next.step <= step && lines->next.sum < sum - EPSILON * sum;
    if (shorter || as_short) take_next(lines);
    return shorter || as_short;
}

static bool try_move(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                     uint32_t worker, uint32_t from, uint32_t to) {
    if (from == to || !may_move(&bench->lines, from, to)) return false;
    move_entry(&bench->lines, from, to);
    if (is_kept(problem, bench, worker)) return true;
    move_entry(&bench->lines, to, from);
    return false;
}

/* The void or real W of a backward's entry. */
static uint32_t weight_of(const struct weir__auto_lines *lines, uint32_t worker, uint32_t at) {
    assert(lines->begin[worker] <= at && at < lines->begin[worker + 1]);
    const struct weir__auto_entry *entry = &lines->list[at];
    for (uint32_t k = at + 1; k < lines->begin[worker + 1]; k++) {
        const struct weir__auto_entry *other = &lines->list[k];
        if (weir__pass_of(other->kind) == WEIR__PASS_WEIGHT && other->stage == entry->stage &&
            other->micro_batch == entry->micro_batch)
            return k;
    }
    return at;
}

static bool try_change(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                       uint32_t worker, uint32_t at) {
    struct weir__auto_lines *lines = &bench->lines;
    struct weir__auto_entry *entry = &lines->list[at];
    assert(weir__pass_of(entry->kind) == WEIR__PASS_GRADIENT);
    uint32_t weight = weight_of(lines, worker, at);
    if (problem->options->whole_backward || weight == at) return false;
    uint8_t before = entry->kind;
    bool split = !weir__is_whole(before);
    entry->kind = (uint8_t)weir__pass_kind(WEIR__PASS_GRADIENT, split);
    lines->list[weight].is_void = split;
    if (is_kept(problem, bench, worker)) return true;
    entry->kind = before;
    lines->list[weight].is_void = !split;
    return false;
}

/* What stands before the entry goes into one of the next waits of the line. */
static bool try_gaps(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                     uint32_t worker, uint32_t from) {
    struct weir__auto_lines *lines = &bench->lines;
    double end = lines->now.end[from];
    uint32_t gaps = 0;
    for (uint32_t at = from + 1; at < lines->begin[worker + 1] && gaps < GAPS_MAX; at++) {
        if (lines->list[at].is_void) continue;
        if (is_bound(&lines->list[from], &lines->list[at])) return false;
        bool waits = lines->now.start[at] > end + EPSILON;
        bool last = at + 1 == lines->begin[worker + 1];
        end = lines->now.end[at];
        if (!waits && !last) continue;
        gaps++;
        if (try_move(problem, bench, worker, from, last ? at : at - 1)) return true;
    }
    return false;
}

/* ---- the search ---- */

/* Where the entry would stand if it went as soon as it is ready. */
static uint32_t soonest(const struct weir__auto_lines *lines, uint32_t worker, uint32_t at) {
    uint32_t to = at;
    while (to > lines->begin[worker] && !is_bound(&lines->list[to - 1], &lines->list[at]) &&
           (lines->list[to - 1].is_void || lines->now.end[to - 1] > lines->now.ready[at] + EPSILON))
        to--;
    return to;
}

/* The entry before, voids left out; `at` itself if there is none. */
static uint32_t before(const struct weir__auto_lines *lines, uint32_t worker, uint32_t at) {
    for (uint32_t k = at; k-- > lines->begin[worker];) {
        if (!lines->list[k].is_void) return k;
    }
    return at;
}

/* Any change that helps at a critical entry. */
static bool relieve(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                    uint32_t worker, uint32_t at) {
    struct weir__auto_lines *lines = &bench->lines;
    bool back = weir__pass_of(lines->list[at].kind) == WEIR__PASS_GRADIENT;
    if (back && try_change(problem, bench, worker, at)) return true;
    uint32_t prior = before(lines, worker, at);
    if (prior == at || lines->now.ready[at] > lines->now.end[prior] - EPSILON) return false;
    if (try_move(problem, bench, worker, at, prior)) return true;
    uint32_t to = soonest(lines, worker, at);
    if (to < prior && try_move(problem, bench, worker, at, to)) return true;
    return !is_bound(&lines->list[prior], &lines->list[at]) &&
           try_gaps(problem, bench, worker, prior);
}

static bool is_critical(const struct weir__auto_problem *problem,
                        const struct weir__auto_bench *bench, uint32_t at) {
    const struct weir__auto_entry *entry = &bench->lines.list[at];
    size_t cell = weir__auto_cell(problem, entry->stage, entry->micro_batch);
    double latest = bench->latest[weir__pass_of(entry->kind) * problem->cell_count + cell];
    return !entry->is_void &&
           latest <= bench->lines.now.start[at] + EPSILON * bench->lines.now.step;
}

/* One change, looked for from the entry `first` on, over all lines. */
static bool change_once(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                        uint32_t *first) {
    struct weir__auto_lines *lines = &bench->lines;
    write_draft(lines, &bench->trial);
    weir__auto_find_latest(problem, bench, &bench->trial);
    for (uint32_t k = 0; k < problem->entry_count && bench->work < bench->work_most; k++) {
        uint32_t at = (*first + k) % problem->entry_count;
        if (!is_critical(problem, bench, at)) continue;
        uint32_t w = problem->stages[lines->list[at].stage].worker;
        if (relieve(problem, bench, w, at)) {
            *first = at;
            return true;
        }
    }
    return false;
}

static bool are_allowed(const struct weir__auto_problem *problem, struct weir__auto_lines *lines) {
    for (uint32_t w = 0; w < problem->worker_count; w++) {
        if (!is_within(problem, lines, w) || !is_ascending(problem, lines, w)) return false;
    }
    return true;
}

static int64_t peak_of(const struct weir__auto_problem *problem,
                       const struct weir__auto_lines *lines) {
    int64_t sums[WEIR__AMOUNTS] = {0};
    for (uint32_t w = 0; w < problem->worker_count; w++) {
        for (int amount = 0; amount < WEIR__AMOUNTS; amount++) {
            int64_t now = 0, most = 0;
            for (uint32_t at = lines->begin[w]; at < lines->begin[w + 1]; at++) {
                now += begins(problem, &lines->list[at], amount);
                most = now > most ? now : most;
                now -= frees(problem, &lines->list[at], amount);
            }
            sums[amount] += most;
        }
    }
    return sums[WEIR__BYTES] > 0 ? sums[WEIR__BYTES] : sums[WEIR__ACTIVATIONS];
}

void weir__auto_adopt(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                      const struct weir_table *table) {
    assert(table->worker_count == problem->worker_count);
    struct weir__auto_lines *lines = &bench->lines;
    uint32_t at = 0;
    for (uint32_t w = 0; w < problem->worker_count; w++) {
        lines->begin[w] = at;
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            const struct weir_action *action = &table->actions[a];
            struct weir__auto_step step = {.stage = action->stage,
                                           .micro_batch = action->micro_batch};
            if (weir__pass_of(action->kind) == WEIR__PASSES) continue;
            put(lines, &at, &step, (enum weir_kind)action->kind, false);
            put_void(lines, &at, &step, action->kind);
        }
    }
    lines->begin[problem->worker_count] = at;
    if (at != problem->entry_count || !are_allowed(problem, lines) || !run_lines(problem, bench))
        return;
    take_next(lines);
    write_draft(lines, &bench->trial);
    bench->trial.peak = peak_of(problem, lines);
}

/* An I directly before its W, which nobody misses if both are one B. */
static bool may_join(const struct weir__auto_problem *problem, const struct weir__auto_bench *bench,
                     uint32_t at) {
    const struct weir__auto_lines *lines = &bench->lines;
    const struct weir__auto_entry *entry = &lines->list[at], *next = &lines->list[at + 1];
    const double *seconds = problem->stages[entry->stage].seconds;
    double whole = weir__least_backward(seconds, true);
    const double *latest = &bench->latest[WEIR__PASS_GRADIENT * problem->cell_count];
    return weir__writes(entry->kind, WEIR__WEIGHT_INPUTS) &&
           weir__reads(next->kind, WEIR__WEIGHT_INPUTS) && entry->stage == next->stage &&
           entry->micro_batch == next->micro_batch &&
           whole <= weir__least_backward(seconds, false) &&
           lines->now.start[at] + whole <= weir__auto_latest(problem, &problem->gradients_out,
                                                             latest, entry->stage,
                                                             entry->micro_batch, INFINITY);
}

void weir__auto_join(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                     struct weir__auto_draft *draft) {
    struct weir__auto_lines *lines = &bench->lines;
    read_draft(problem, draft, lines);
    if (!run_lines(problem, bench)) return;
    take_next(lines);
    write_draft(lines, &bench->trial);
    weir__auto_find_latest(problem, bench, &bench->trial);
    for (uint32_t w = 0; w < problem->worker_count; w++) {
        for (uint32_t at = lines->begin[w]; at + 1 < lines->begin[w + 1]; at++) {
            if (!may_join(problem, bench, at)) continue;
            lines->list[at].kind = (uint8_t)weir__pass_kind(WEIR__PASS_GRADIENT, true);
            lines->list[at + 1].is_void = true;
        }
    }
    if (!run_lines(problem, bench) || lines->next.step > lines->now.step) return;
    take_next(lines);
    write_draft(lines, draft);
    draft->peak = peak_of(problem, lines);
}

void weir__auto_polish(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                       struct weir__auto_draft *draft) {
    struct weir__auto_lines *lines = &bench->lines;
    uint32_t first = 0;
    read_draft(problem, draft, lines);
    if (!run_lines(problem, bench)) return;
    take_next(lines);
    while (bench->work < bench->work_most && lines->now.step > problem->bound) {
        if (!change_once(problem, bench, &first)) break;
    }
    write_draft(lines, draft);
    draft->peak = peak_of(problem, lines);
}

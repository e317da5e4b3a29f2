/* SPDX-License-Identifier: MIT */
/*
 * The search's problem: costs by stage as the simulator understands them, who waits for whom, and
 * what a worker needs for one micro-batch alone, below which no limit can be.
 */
#include "schedule/auto/auto.h"

#include <string.h>

/* ---- what flows ---- */

typedef void feed_fn(struct weir__auto_problem *problem, uint32_t from, uint32_t to, uint64_t bytes,
                     bool gradient);

static void each_skip(struct weir__auto_problem *problem, const struct weir_skip_route *skip,
                      feed_fn *visit) {
    for (uint32_t r = 0; r < skip->reader_count; r++) {
        uint32_t reader = skip->readers[r];
        uint32_t to = r == 0 ? skip->source : skip->readers[r - 1];
        visit(problem, skip->source, reader, skip->bytes, false);
        if (skip->differentiable && problem->stages[reader].backward)
            visit(problem, reader, to, skip->bytes, true);
    }
}

static void each_feed(struct weir__auto_problem *problem, feed_fn *visit) {
    const struct weir_simulate_options *costs = problem->costs;
    for (uint32_t s = 0; s + 1 < problem->stage_count; s++) {
        uint64_t bytes = weir__border_bytes(costs, s);
        visit(problem, s, s + 1, bytes, false);
        uint32_t next = s + 1;
        while (next < problem->stage_count && !problem->stages[next].backward) next++;
        if (next == problem->stage_count || !weir__border_differentiable(costs, s)) continue;
        /* Past stages without backward nothing comes over the border, but what is not said of
         * skips may: their readers go first. */
        visit(problem, next, s, next == s + 1 ? bytes : 0, true);
        if (next != s + 1 && problem->stages[s].backward) problem->exact = false;
    }
    for (uint32_t i = 0; i < costs->skip_count; i++) each_skip(problem, &costs->skips[i], visit);
}

static void count_feed(struct weir__auto_problem *problem, uint32_t from, uint32_t to,
                       uint64_t bytes, bool gradient) {
    (void)bytes;
    (gradient ? &problem->gradients_in : &problem->values_in)->begin[to + 1]++;
    (gradient ? &problem->gradients_out : &problem->values_out)->begin[from + 1]++;
}

/* begin[s] serves as the place to write to; moved back afterwards. */
static void place_feed(struct weir__auto_problem *problem, uint32_t from, uint32_t to,
                       uint64_t bytes, bool gradient) {
    struct weir__auto_feeds *in = gradient ? &problem->gradients_in : &problem->values_in;
    struct weir__auto_feeds *out = gradient ? &problem->gradients_out : &problem->values_out;
    assert(in->begin[to] < problem->feed_room && out->begin[from] < problem->feed_room);
    double copy =
        weir__copy_seconds(problem->costs, problem->worker_count, problem->stages[from].worker,
                           problem->stages[to].worker, bytes);
    in->list[in->begin[to]++] = (struct weir__auto_feed){from, copy};
    out->list[out->begin[from]++] = (struct weir__auto_feed){to, copy};
}

static void sum_up(uint32_t *begin, uint32_t count) {
    for (uint32_t s = 0; s < count; s++) begin[s + 1] += begin[s];
}

static void move_back(uint32_t *begin, uint32_t count) {
    memmove(begin + 1, begin, count * sizeof *begin);
    begin[0] = 0;
}

static void fill_feeds(struct weir__auto_problem *problem) {
    struct weir__auto_feeds *all[] = {&problem->values_in, &problem->values_out,
                                      &problem->gradients_in, &problem->gradients_out};
    each_feed(problem, count_feed);
    for (size_t i = 0; i < WEIR__COUNT_OF(all); i++) sum_up(all[i]->begin, problem->stage_count);
    each_feed(problem, place_feed);
    for (size_t i = 0; i < WEIR__COUNT_OF(all); i++) move_back(all[i]->begin, problem->stage_count);
}

/* ---- stages and workers ---- */

static void fill_stage(struct weir__auto_problem *problem, uint32_t s,
                       const uint32_t *stage_workers) {
    assert(s < problem->stage_count && stage_workers[s] < problem->worker_count);
    const struct weir_search_options *options = problem->options;
    struct weir__stage_facts *stage = &problem->stages[s];
    bool crosses = s + 1 < problem->stage_count && stage_workers[s] != stage_workers[s + 1];
    bool backward = !weir__no_backward(problem->costs->no_backward, s);
    *stage = weir__stage_facts_of(problem->costs, s, stage_workers[s], backward, crosses);
    if (!backward) return;
    enum weir_checkpoint mode = options->checkpoint;
    if (options->stage_checkpoint != NULL &&
        options->stage_checkpoint[s] != WEIR_CHECKPOINT_DEFAULT)
        mode = options->stage_checkpoint[s];
    stage->recomputed = weir_checkpoint_count(mode, problem->micro_batch_count);
}

static void group(struct weir__auto_problem *problem) {
    uint32_t *begin = problem->held_begin;
    for (uint32_t s = 0; s < problem->stage_count; s++) begin[problem->stages[s].worker + 1]++;
    sum_up(begin, problem->worker_count);
    for (uint32_t s = 0; s < problem->stage_count; s++)
        problem->held[begin[problem->stages[s].worker]++] = s;
    move_back(begin, problem->worker_count);
}

/* Forward stage by stage, then back, each with its R right before: what is kept at most. */
static int64_t needed_alone(const struct weir__auto_problem *problem, uint32_t w, int amount,
                            uint32_t micro_batch) {
    assert(w < problem->worker_count && micro_batch < problem->micro_batch_count);
    int64_t now = 0, most;
    for (uint32_t k = problem->held_begin[w]; k < problem->held_begin[w + 1]; k++) {
        uint32_t s = problem->held[k];
        const struct weir__stage_facts *stage = &problem->stages[s];
        bool later = weir__auto_recomputed(problem, s, micro_batch);
        now += stage->kept[amount] + (later ? 0 : stage->saved[amount]);
    }
    most = now;
    for (uint32_t k = problem->held_begin[w + 1]; k-- > problem->held_begin[w];) {
        uint32_t s = problem->held[k];
        const struct weir__stage_facts *stage = &problem->stages[s];
        now += weir__auto_recomputed(problem, s, micro_batch) ? stage->saved[amount] : 0;
        most = now > most ? now : most;
        now -= stage->kept[amount] + stage->saved[amount];
    }
    assert(now == 0);
    return most;
}

static int64_t limit_of(const struct weir_search_options *options, uint32_t w, int amount) {
    uint64_t limit = options->activation_limit;
    if (amount == WEIR__BYTES)
        limit = options->memory_limits != NULL ? options->memory_limits[w] : options->memory_limit;
    return limit == 0 || limit > INT64_MAX ? INT64_MAX : (int64_t)limit;
}

static void fill_limits(struct weir__auto_problem *problem, uint32_t w) {
    struct weir__auto_worker *worker = &problem->workers[w];
    for (int amount = 0; amount < WEIR__AMOUNTS; amount++) {
        int64_t first = needed_alone(problem, w, amount, 0);
        int64_t last = needed_alone(problem, w, amount, problem->micro_batch_count - 1);
        worker->limit[amount] = limit_of(problem->options, w, amount);
        worker->alone[amount] = first > last ? first : last;
        problem->feasible = problem->feasible && worker->alone[amount] <= worker->limit[amount];
    }
}

/* ---- bounds ---- */

/* The least work of a worker, and of one of its rounds. */
static double least_work(struct weir__auto_problem *problem, uint32_t w, double scales) {
    double work = 0.0, round = 0.0;
    for (uint32_t k = problem->held_begin[w]; k < problem->held_begin[w + 1]; k++) {
        const struct weir__stage_facts *stage = &problem->stages[problem->held[k]];
        double once = weir__pass_seconds(stage->seconds, WEIR__PASS_FORWARD);
        double again = weir__pass_seconds(stage->seconds, WEIR__PASS_RECOMPUTE);
        if (stage->backward)
            once += weir__least_backward(stage->seconds, problem->options->whole_backward);
        round += once;
        work += once * scales;
        if (stage->recomputed > 0) round += again;
        for (uint32_t i = 0; i < stage->recomputed; i++) {
            const double *scale = problem->costs->micro_batch_scale;
            work += again * (scale != NULL ? scale[i] : 1.0);
        }
    }
    problem->round = round > problem->round ? round : problem->round;
    return work;
}

/* A worker cannot begin before the first micro-batch is there, and then has its work to do. */
static void find_bound(struct weir__auto_problem *problem) {
    assert(problem->micro_batch_count > 0);
    const double *scale = problem->costs->micro_batch_scale;
    double scales = 0.0, least = scale != NULL ? scale[0] : 1.0, arrival = 0.0;
    for (uint32_t i = 0; i < problem->micro_batch_count; i++) {
        double own = scale != NULL ? scale[i] : 1.0;
        scales += own;
        least = own < least ? own : least;
    }
    for (uint32_t w = 0; w < problem->worker_count; w++)
        problem->workers[w].work = least_work(problem, w, scales);
    for (uint32_t s = 0; s < problem->stage_count; s++) {
        uint32_t w = problem->stages[s].worker;
        bool first = problem->held[problem->held_begin[w]] == s;
        double bound = arrival + problem->workers[w].work;
        if (first && bound > problem->bound) problem->bound = bound;
        arrival += least * weir__pass_seconds(problem->stages[s].seconds, WEIR__PASS_FORWARD);
    }
}

/* ---- memory ---- */

static bool acquire_feeds(struct weir__auto_problem *problem, struct weir__auto_feeds *feeds) {
    feeds->begin =
        weir__acquire(problem->allocator, (size_t)problem->stage_count + 1, sizeof *feeds->begin);
    feeds->list = weir__acquire(problem->allocator, problem->feed_room, sizeof *feeds->list);
    return feeds->begin != NULL && feeds->list != NULL;
}

static void release_feeds(struct weir__auto_problem *problem, struct weir__auto_feeds *feeds) {
    weir__release(problem->allocator, feeds->list, problem->feed_room, sizeof *feeds->list);
    weir__release(problem->allocator, feeds->begin, (size_t)problem->stage_count + 1,
                  sizeof *feeds->begin);
}

void weir__auto_problem_clean_up(struct weir__auto_problem *problem) {
    const struct weir_allocator *allocator = problem->allocator;
    release_feeds(problem, &problem->gradients_out);
    release_feeds(problem, &problem->gradients_in);
    release_feeds(problem, &problem->values_out);
    release_feeds(problem, &problem->values_in);
    weir__release(allocator, problem->held, problem->stage_count, sizeof *problem->held);
    weir__release(allocator, problem->held_begin, (size_t)problem->worker_count + 1,
                  sizeof *problem->held_begin);
    weir__release(allocator, problem->workers, problem->worker_count, sizeof *problem->workers);
    weir__release(allocator, problem->stages, problem->stage_count, sizeof *problem->stages);
    *problem = (struct weir__auto_problem){0};
}

static bool acquire(struct weir__auto_problem *problem) {
    const struct weir_allocator *allocator = problem->allocator;
    problem->stages = weir__acquire(allocator, problem->stage_count, sizeof *problem->stages);
    problem->workers = weir__acquire(allocator, problem->worker_count, sizeof *problem->workers);
    problem->held_begin =
        weir__acquire(allocator, (size_t)problem->worker_count + 1, sizeof *problem->held_begin);
    problem->held = weir__acquire(allocator, problem->stage_count, sizeof *problem->held);
    bool feeds = acquire_feeds(problem, &problem->values_in);
    feeds = acquire_feeds(problem, &problem->values_out) && feeds;
    feeds = acquire_feeds(problem, &problem->gradients_in) && feeds;
    feeds = acquire_feeds(problem, &problem->gradients_out) && feeds;
    return feeds && problem->stages != NULL && problem->workers != NULL &&
           problem->held_begin != NULL && problem->held != NULL;
}

/* All amounts together, which sums must be able to hold. */
static bool amounts_fit(const struct weir__auto_problem *problem) {
    const struct weir_simulate_options *costs = problem->costs;
    size_t total = 0;
    for (uint32_t s = 0; s < problem->stage_count; s++) {
        size_t once = 0;
        if (!weir__add(costs->saved_bytes != NULL ? costs->saved_bytes[s] : 0,
                       costs->kept_bytes != NULL ? costs->kept_bytes[s] : 0, &once) ||
            !weir__multiply(once, problem->micro_batch_count, &once) ||
            !weir__add(total, once, &total))
            return false;
    }
    return total <= (size_t)INT64_MAX / 4;
}

static bool count_room(struct weir__auto_problem *problem) {
    uint64_t room = problem->stage_count;
    for (uint32_t i = 0; i < problem->costs->skip_count; i++)
        room += problem->costs->skips[i].reader_count;
    problem->feed_room = (uint32_t)room;
    return room <= UINT32_MAX;
}

int weir__auto_problem_init(struct weir__auto_problem *problem,
                            const struct weir_search_options *options,
                            const struct weir_simulate_options *costs,
                            const uint32_t *stage_workers) {
    assert(options->workers > 0 && options->workers <= options->stages);
    assert(options->micro_batches > 0 && stage_workers != NULL);
    *problem = (struct weir__auto_problem){.allocator = options->allocator,
                                           .options = options,
                                           .costs = costs,
                                           .stage_count = options->stages,
                                           .worker_count = options->workers,
                                           .micro_batch_count = options->micro_batches,
                                           .exact = costs->ranks == NULL && !costs->recompute_late,
                                           .feasible = true};
    problem->cell_count = (size_t)problem->stage_count * problem->micro_batch_count;
    if (!amounts_fit(problem) || !count_room(problem)) return WEIR_ERR_OVERFLOW;
    if (!acquire(problem)) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t s = 0; s < problem->stage_count; s++) {
        fill_stage(problem, s, stage_workers);
        problem->entry_count += problem->micro_batch_count + problem->stages[s].recomputed;
        problem->entry_count += problem->stages[s].backward ? 2 * problem->micro_batch_count : 0;
    }
    group(problem);
    fill_feeds(problem);
    for (uint32_t w = 0; w < problem->worker_count; w++) fill_limits(problem, w);
    find_bound(problem);
    return WEIR_OK;
}

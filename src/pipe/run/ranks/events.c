/* SPDX-License-Identifier: MIT */
/* What rank 0 is told so that it can show the work of all, or of its replica's: where the others'
 * workers are, and after each step when their actions were, on its own clock.
 *
 * Ranks of one host read one clock. Another rank's is compared (world/links.h), and since clocks
 * drift apart, again and again: by one of these ranks in each step. */
#include "pipe/run/ranks.h"
#include "world/links.h"
#include "world/wait.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct weir__rank_clock {
    uint64_t kernel;       /* where it runs */
    struct weir__clock is; /* on rank 0 … */
    uint64_t when;         /* … since then, by its clock */
};

enum { PINGS = 8, DRIFT_PPM = 50 };

/* ---- clocks ---- */

/* Of the kernel whose clock this process reads, since it was started, and of its host's name: more
 * than one name of a host costs messages, and no more. */
static uint64_t kernel_of(const struct weir_world *world) {
    char boot[WEIR__BOOT_ID_BYTES], space[64] = "";
    uint64_t hash = weir__hash(WEIR__HASH_BEGIN, world->host, strlen(world->host));
    if (!weir__boot_id(boot))
        hash = weir__hash(hash, &world->rank, sizeof world->rank); /* nobody's but its own */
    if (readlink("/proc/self/ns/time", space, sizeof space - 1) < 0) space[0] = '\0';
    hash = weir__hash(hash, boot, strlen(boot));
    return weir__hash(hash, space, strlen(space));
}

static bool shares_clock(const struct weir__ranks *ranks, uint32_t rank) {
    return ranks->clocks[rank].kernel == ranks->clocks[0].kernel;
}

/* How wrong it was known to be, and what it may have drifted since. */
static uint64_t error_of(const struct weir__ranks *ranks, uint32_t rank) {
    const struct weir__rank_clock *clock = &ranks->clocks[rank];
    assert(rank < ranks->world->rank_count && ranks->clocks != NULL);
    if (shares_clock(ranks, rank)) return 0;
    return clock->is.error_ns + (weir__now_ns() - clock->when) / 1000000 * DRIFT_PPM;
}

/* Whether `now` says more than what was known: an earlier comparison still may, where this one took
 * long on a busy machine; but not of a clock that has jumped, as where its host was asleep. */
static bool is_news(const struct weir__ranks *ranks, uint32_t rank, const struct weir__clock *now) {
    const struct weir__rank_clock *known = &ranks->clocks[rank];
    if (known->when == 0) return true;
    uint64_t error = error_of(ranks, rank);
    int64_t moved = now->offset_ns - known->is.offset_ns;
    return now->error_ns < error || (uint64_t)(moved < 0 ? -moved : moved) > now->error_ns + error;
}

static int compare_with(struct weir__ranks *ranks, uint32_t rank) {
    assert(rank > 0 && rank < ranks->world->rank_count);
    const struct weir__links_how how = {0};
    struct weir__rank_clock *clock = &ranks->clocks[rank], now = {.when = weir__now_ns()};
    if (ranks->world->rank != 0 && ranks->world->rank != rank) return WEIR_OK;
    int status = weir__clock_compare(ranks->world, &how, rank, PINGS, &now.is);
    if (status != WEIR_OK || ranks->world->rank != 0) return status;
    now.kernel = clock->kernel;
    if (is_news(ranks, rank, &now.is)) *clock = now;
    return WEIR_OK;
}

/* One of the replica's with clocks of their own, in turn. */
static int compare_next(struct weir__ranks *ranks, uint64_t step) {
    uint32_t count = 0, at = 0;
    for (uint32_t r = 1; r < ranks->ranks_per_replica; r++) count += !shares_clock(ranks, r);
    if (count == 0) return WEIR_OK;
    for (uint32_t r = 1; r < ranks->ranks_per_replica; r++) {
        if (shares_clock(ranks, r)) continue;
        if (at++ == step % count) return compare_with(ranks, r);
    }
    return WEIR_OK;
}

/* ---- meeting ---- */

int weir__ranks_take_clocks(struct weir_pipe *pipe) {
    struct weir__ranks *ranks = pipe->ranks;
    uint32_t count = ranks->world->rank_count;
    assert(ranks->gathered == NULL && ranks->clocks == NULL);
    ranks->gathered = weir__pool_take(&pipe->setup.pool, 2 * (size_t)count, sizeof(uint64_t));
    ranks->clocks = weir__pool_take(&pipe->setup.pool, count, sizeof *ranks->clocks);
    return pipe->setup.pool.failed ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK;
}

static int find_clocks(struct weir_pipe *pipe) {
    struct weir__ranks *ranks = pipe->ranks;
    uint32_t count = ranks->world->rank_count;
    uint64_t *kernels = ranks->gathered;
    memset(kernels, 0, count * sizeof *kernels);
    kernels[ranks->world->rank] = kernel_of(ranks->world);
    int status = weir__world_gather_in(ranks->world, kernels, kernels + count,
                                       count * sizeof *kernels, NULL);
    for (uint32_t r = 0; r < count; r++) ranks->clocks[r].kernel = kernels[r];
    for (uint32_t r = 1; r < count && status == WEIR_OK; r++)
        if (!shares_clock(ranks, r)) status = compare_with(ranks, r);
    return status;
}

struct told_place {
    struct weir_place place;
    uint32_t threads;
};

/* Where the workers of a rank are, which rank 0 did not know. */
static int tell_places(struct weir_pipe *pipe) {
    const struct weir_world *world = pipe->ranks->world;
    struct told_place told;
    int status = WEIR_OK;
    if (pipe->ranks->replica > 0) return WEIR_OK;
    assert(pipe->placements != NULL);
    for (uint32_t w = 0; w < pipe->worker_count && status == WEIR_OK; w++) {
        uint32_t rank = weir__rank_of(pipe, w);
        struct weir__worker_place *placement = &pipe->placements[w];
        struct weir_place *place = &placement->place;
        uint32_t tag = weir__talk_tag(WEIR__TALK_PLACE, w);
        if (rank == world->rank) {
            place->rank = rank;
            snprintf(place->host, sizeof place->host, "%s", world->host);
            told = (struct told_place){*place, placement->threads};
            if (rank != 0) status = weir__world_send(world, 0, tag, &told, sizeof told);
        } else if (world->rank == 0) {
            status = weir__world_expect(world, rank, tag, &told, sizeof told);
            if (status != WEIR_OK) return status;
            *place = told.place;
            placement->threads = told.threads;
        }
    }
    return status;
}

int weir__ranks_meet(struct weir_pipe *pipe) {
    if (pipe->ranks == NULL) return WEIR_OK;
    assert(pipe->ranks->clocks != NULL);
    int status = find_clocks(pipe);
    return status != WEIR_OK ? status : tell_places(pipe);
}

/* ---- after a step ---- */

/* Of a whole step. */
static uint32_t count_events(const struct weir_pipe *pipe, const struct weir__row_plan *plan,
                             uint32_t w) {
    uint32_t length = plan->table->lines[w + 1] - plan->table->lines[w];
    assert(plan->tail[w] <= length);
    return pipe->command.step.accumulate_last ? length : plan->tail[w];
}

/* On rank 0's clock. Where that makes a time negative the event is from before its start. */
static uint64_t move_time(uint64_t ns, int64_t ahead) {
    return ahead > 0 && (uint64_t)ahead > ns ? 0 : ns - (uint64_t)ahead;
}

static struct weir_trace_event *event_at(const struct weir__worker *worker, uint64_t number) {
    return &worker->events[number % worker->event_capacity];
}

static uint32_t tag_of_events(const struct weir_pipe *pipe, uint32_t w) {
    return weir__talk_tag(WEIR__TALK_EVENTS, pipe->step_count + w);
}

static int take_events(struct weir_pipe *pipe, uint32_t w, uint32_t count) {
    struct weir__worker *worker = &pipe->workers[w];
    uint32_t rank = weir__rank_of(pipe, w);
    struct weir_trace_event *events = pipe->ranks->events;
    assert(count <= pipe->ranks->event_capacity && count <= worker->event_capacity);
    int64_t ahead = pipe->ranks->clocks[rank].is.offset_ns;
    int status = weir__world_expect(pipe->ranks->world, rank, tag_of_events(pipe, w), events,
                                    count * sizeof *events);
    if (status != WEIR_OK) return status;
    worker->step_first_event = worker->event_count;
    for (uint32_t i = 0; i < count; i++) {
        struct weir_trace_event *event = event_at(worker, worker->event_count++);
        *event = events[i];
        event->waited = move_time(event->waited, ahead);
        event->start = move_time(event->start, ahead);
        event->end = move_time(event->end, ahead);
    }
    /* the most of any step: their events are shown together */
    uint64_t error = error_of(pipe->ranks, rank);
    struct weir_place *place = &pipe->placements[w].place;
    if (error > place->clock_error_ns) place->clock_error_ns = error;
    return WEIR_OK;
}

static int give_events(struct weir_pipe *pipe, uint32_t w, uint32_t count) {
    const struct weir__worker *worker = &pipe->workers[w];
    struct weir_trace_event *events = pipe->ranks->events;
    assert(worker->event_count - worker->step_first_event == count);
    for (uint32_t i = 0; i < count; i++)
        events[i] = *event_at(worker, worker->step_first_event + i);
    return weir__world_send(pipe->ranks->world, 0, tag_of_events(pipe, w), events,
                            count * sizeof *events);
}

int weir__ranks_tell_events(struct weir_pipe *pipe) {
    const struct weir__row_plan *plan = pipe->command.plan;
    struct weir__ranks *ranks = pipe->ranks;
    if (ranks == NULL || ranks->replica > 0) return WEIR_OK;
    assert(plan != NULL && pipe->command.kind == WEIR__COMMAND_RUN);
    int status = compare_next(ranks, pipe->step_count);
    for (uint32_t w = 0; w < pipe->worker_count && status == WEIR_OK; w++) {
        uint32_t count = count_events(pipe, plan, w);
        bool here = weir__is_here(pipe, w);
        if (here && ranks->world->rank != 0) status = give_events(pipe, w, count);
        if (!here && ranks->world->rank == 0) status = take_events(pipe, w, count);
    }
    return status;
}

/* SPDX-License-Identifier: MIT */
/* One lock for all: ranks see more of each other than MPI promises, but memory of requests is
 * touched in calls of its own rank only, so whoever gives a world up after a failure may free it.
 */
#include "base/base.h"
#include "engine/threads_inside.h"
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAP_NS = 50000 };
#define SECOND_NS UINT64_C(1000000000)

/* ---- failures and faults --------------------------------------------------------------------- */

void *threads_take(size_t count, size_t bytes) {
    void *memory = calloc(count + 1, bytes);
    if (memory == NULL) abort(); /* of a test's machine */
    return memory;
}

int threads_refuse(struct threads_rank *rank, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(rank->reason, sizeof rank->reason, format, arguments);
    va_end(arguments);
    rank->failed = true;
    return WEIR_ERR_PEER;
}

static void record(struct threads_rank *rank, const char *text) {
    struct threads_world *world = rank->owner;
    weir_faults_add(&world->faults, "rank %u: %s", rank->world.rank, text);
    if (!world->options.keeps_faults) TEST_FAIL("rank %u: %s", rank->world.rank, text);
}

int threads_misuse(struct threads_rank *rank, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(rank->reason, sizeof rank->reason, format, arguments);
    va_end(arguments);
    record(rank, rank->reason);
    return WEIR_ERR_ARGUMENT;
}

/* Nobody's calls succeed any more. The first reason stays. */
__attribute__((format(printf, 2, 3))) static void end_all(struct threads_world *world,
                                                          const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (world->over[0] == 0) vsnprintf(world->over, sizeof world->over, format, arguments);
    va_end(arguments);
}

/* Then requests stay under way, and messages unreceived. */
static bool is_broken(const struct threads_world *world) {
    bool broken = world->over[0] != 0;
    for (uint32_t r = 0; r < world->options.ranks; r++) broken |= world->ranks[r].failed;
    return broken;
}

bool threads_come_in(struct threads_rank *rank) {
    bool alone = !atomic_exchange_explicit(&rank->inside, true, memory_order_relaxed);
    if (alone) rank->touched++;
    pthread_mutex_lock(&rank->owner->lock);
    if (alone) return true;
    record(rank, "a call while another thread is in one");
    pthread_mutex_unlock(&rank->owner->lock);
    return false;
}

void threads_go_out(struct threads_rank *rank) {
    pthread_mutex_unlock(&rank->owner->lock);
    rank->touched++;
    atomic_store_explicit(&rank->inside, false, memory_order_relaxed);
}

int threads_admit(struct threads_rank *rank, enum threads_call kind) {
    struct threads_world *world = rank->owner;
    const struct threads_options *options = &world->options;
    uint64_t any = ++rank->calls[THREADS_ANY], same = ++rank->calls[kind];
    bool drops = options->drop_call > 0 && rank->world.rank == options->drop_rank;
    bool fails = options->fail_call > 0 && rank->world.rank == options->fail_rank;
    snprintf(rank->reason, sizeof rank->reason, "an old reason: this one was given back");
    if (rank->closed) return threads_misuse(rank, "a call after close");
    if (drops && any >= options->drop_call) world->fired = rank->dropped = true;
    if (rank->dropped) return threads_refuse(rank, "rank %u was dropped", rank->world.rank);
    if (world->over[0] != 0) return threads_refuse(rank, "%s", world->over);
    if (rank->failed) return threads_refuse(rank, "a call of this rank failed before");
    if (!fails || (options->fail_kind == THREADS_ANY ? any : same) != options->fail_call)
        return WEIR_OK;
    if (options->fail_kind != THREADS_ANY && options->fail_kind != kind) return WEIR_OK;
    world->fired = true;
    return threads_refuse(rank, "call %u of rank %u was to fail", options->fail_call,
                          rank->world.rank);
}

/* ---- calls of all ranks ---------------------------------------------------------------------- */

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

static void open_channels(struct threads_world *world, uint32_t count) {
    size_t ranks = world->options.ranks, pairs = ranks * ranks;
    if (count <= world->channels) return;
    struct threads_way *ways = threads_take(count * pairs, sizeof *ways);
    if (world->ways != NULL) memcpy(ways, world->ways, world->channels * pairs * sizeof *ways);
    free(world->ways);
    world->ways = ways;
    world->channels = count;
}

/* Waits, as messages go on, until all ranks have come. False: they never will. */
static bool gather(struct threads_rank *rank, const char *what, uint32_t count) {
    struct threads_world *world = rank->owner;
    uint64_t before = world->gatherings;
    if (world->gathered == 0) world->gathers_for = what, world->gathers_count = count;
    if (strcmp(what, world->gathers_for) != 0 || count != world->gathers_count)
        threads_misuse(rank, "%s(%u) where another came for %s(%u)", what, count,
                       world->gathers_for, world->gathers_count);
    rank->waits = what;
    if (++world->gathered == world->options.ranks) {
        open_channels(world, world->gathers_count);
        world->gathered = 0;
        world->gatherings++;
    }
    while (world->gatherings == before && world->over[0] == 0) {
        threads_progress(rank);
        pthread_mutex_unlock(&world->lock);
        nap();
        pthread_mutex_lock(&world->lock);
    }
    rank->waits = NULL;
    return world->gatherings != before;
}

static int open_all(struct threads_rank *rank, uint32_t count) {
    int status = threads_admit(rank, THREADS_OPEN);
    if (status != WEIR_OK) return status;
    return gather(rank, "open", count) ? WEIR_OK : threads_refuse(rank, "%s", rank->owner->over);
}

static int world_open(void *context, uint32_t count) {
    if (!threads_come_in(context)) return WEIR_ERR_ARGUMENT;
    int status = open_all(context, count);
    threads_go_out(context);
    return status;
}

/* What must not be at the end: a rank's requests, or, of NULL, messages. */
static void expect_none(struct threads_world *world, const struct threads_rank *rank) {
    char text[THREADS_TEXT_BYTES];
    int begin = snprintf(text, sizeof text, "%s at close: ", rank ? "under way" : "not received");
    for (struct threads_operation *each = world->operations; each != NULL; each = each->next) {
        bool is_left = rank != NULL ? each->rank == rank && each->request != NULL
                                    : !each->receives && each->place != THREADS_RECEIVED;
        if (!is_left || is_broken(world)) continue;
        threads_describe(each, text + begin, sizeof text - (size_t)begin);
        record(each->rank, text);
    }
}

static void close_all(struct threads_rank *rank) {
    struct threads_world *world = rank->owner;
    if (rank->closed) {
        threads_misuse(rank, "closed twice");
        return;
    }
    expect_none(world, rank);
    bool last = world->gathered + 1 == world->options.ranks;
    if (!rank->dropped && world->over[0] == 0) (void)gather(rank, "close", 0);
    rank->closed = true;
    if (last) expect_none(world, NULL);
}

static void world_close(void *context) {
    if (!threads_come_in(context)) return;
    close_all(context);
    threads_go_out(context);
}

static void world_abort(void *context, int exit_status) {
    struct threads_rank *rank = context;
    struct threads_world *world = rank->owner;
    if (!threads_come_in(rank)) return;
    if (!rank->dropped && !world->aborted) {
        world->aborted = true;
        world->abort_rank = rank->world.rank;
        world->abort_status = exit_status;
        end_all(world, "rank %u ended all with exit status %d", rank->world.rank, exit_status);
    }
    threads_go_out(rank);
}

static const char *world_reason(void *context) {
    struct threads_rank *rank = context;
    if (!threads_come_in(rank)) return "";
    threads_go_out(rank);
    return rank->reason;
}

/* ---- worlds ---------------------------------------------------------------------------------- */

static const struct weir_world_calls calls = {.size = sizeof calls,
                                              .open = world_open,
                                              .send = threads_send,
                                              .receive = threads_receive,
                                              .test = threads_test,
                                              .cancel = threads_cancel,
                                              .reason = world_reason,
                                              .abort = world_abort,
                                              .close = world_close};

static void init_rank(struct threads_world *world, uint32_t number) {
    struct threads_rank *rank = &world->ranks[number];
    uint32_t ranks = world->options.ranks, per_host = world->options.ranks_per_host;
    if (per_host == 0 || per_host > ranks) per_host = ranks;
    uint32_t host = number / per_host, rest = ranks - host * per_host;
    rank->owner = world;
    rank->world = (struct weir_world){.size = sizeof rank->world,
                                      .calls = &calls,
                                      .context = rank,
                                      .rank = number,
                                      .rank_count = ranks,
                                      .host_rank = number % per_host,
                                      .host_count = rest < per_host ? rest : per_host,
                                      .name = "threads"};
    snprintf(rank->world.host, sizeof rank->world.host, "host-%u", host);
}

struct threads_world *threads_world_new(const struct threads_options *options) {
    struct threads_world *world = threads_take(1, sizeof *world);
    assert(options->ranks > 0);
    world->options = *options;
    world->ranks = threads_take(options->ranks, sizeof *world->ranks);
    pthread_mutex_init(&world->lock, NULL);
    for (uint32_t r = 0; r < options->ranks; r++) init_rank(world, r);
    open_channels(world, options->channels);
    return world;
}

void threads_world_destroy(struct threads_world *world) {
    if (world == NULL) return;
    while (world->operations != NULL) threads_drop(world->operations);
    weir_faults_clean_up(&world->faults);
    pthread_mutex_destroy(&world->lock);
    free(world->ways);
    free(world->ranks);
    free(world);
}

struct weir_world *threads_world_rank(struct threads_world *world, uint32_t rank) {
    assert(rank < world->options.ranks);
    return &world->ranks[rank].world;
}

const struct weir_faults *threads_world_faults(const struct threads_world *world) {
    return &world->faults;
}

struct threads_counts threads_world_counts(const struct threads_world *world) {
    return world->counts;
}

bool threads_world_fired(const struct threads_world *world) {
    return world->fired;
}

bool threads_world_aborted(const struct threads_world *world, uint32_t *rank, int *exit_status) {
    *rank = world->abort_rank;
    *exit_status = world->abort_status;
    return world->aborted;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void *rank_main(void *argument) {
    struct threads_rank *rank = argument;
    struct threads_world *world = rank->owner;
    int status = world->function(world->context, &rank->world);
    if (status == WEIR_OK && !rank->closed) world_close(rank);
    pthread_mutex_lock(&world->lock);
    rank->returned = true;
    if (world->first_failure == WEIR_OK) world->first_failure = status;
    if (status != WEIR_OK && !rank->dropped && !world->options.no_launcher)
        end_all(world, "rank %u ended with %s", rank->world.rank, weir_status_name(status));
    pthread_mutex_unlock(&world->lock);
    return NULL;
}

/* Whether all ranks returned in time. */
static bool wait_for_all(struct threads_world *world, uint32_t limit_s) {
    uint64_t until = weir__now_ns() + limit_s * SECOND_NS;
    for (;; nap()) {
        bool all = true;
        pthread_mutex_lock(&world->lock);
        for (uint32_t r = 0; r < world->options.ranks; r++) all &= world->ranks[r].returned;
        pthread_mutex_unlock(&world->lock);
        if (all || weir__now_ns() >= until) return all;
    }
}

static void dump(const struct threads_world *world) {
    char text[THREADS_TEXT_BYTES];
    for (uint32_t r = 0; r < world->options.ranks; r++) {
        const struct threads_rank *rank = &world->ranks[r];
        TEST_FAIL("rank %u %s after %llu calls%s%s", r, rank->returned ? "returned" : "goes on",
                  (unsigned long long)rank->calls[THREADS_ANY], rank->waits ? ", waits in " : "",
                  rank->waits ? rank->waits : "");
        for (struct threads_operation *each = world->operations; each != NULL; each = each->next) {
            if (each->rank != rank) continue;
            threads_describe(each, text, sizeof text);
            TEST_FAIL("rank %u: %s%s", r, text, each->request == NULL ? " (ended)" : "");
        }
    }
}

int threads_world_run(struct threads_world *world, threads_world_fn *function, void *context) {
    uint32_t limit_s = world->options.limit_s > 0 ? world->options.limit_s : THREADS_LIMIT_S;
    world->function = function;
    world->context = context;
    for (uint32_t r = 0; r < world->options.ranks; r++) {
        struct threads_rank *rank = &world->ranks[r];
        if (pthread_create(&rank->thread, NULL, rank_main, rank) != 0) abort();
    }
    if (!wait_for_all(world, limit_s)) {
        pthread_mutex_lock(&world->lock);
        TEST_FAIL("the ranks did not end within %u s", limit_s);
        dump(world);
        end_all(world, "the test's limit of %u s", limit_s);
        pthread_mutex_unlock(&world->lock);
        if (!wait_for_all(world, limit_s)) abort(); /* the runner names the test */
    }
    for (uint32_t r = 0; r < world->options.ranks; r++) pthread_join(world->ranks[r].thread, NULL);
    return world->first_failure;
}

int threads_world_once(const struct threads_options *options, threads_world_fn *function,
                       void *context) {
    struct threads_world *world = threads_world_new(options);
    int status = threads_world_run(world, function, context);
    threads_world_destroy(world);
    return status;
}

/* SPDX-License-Identifier: MIT */
/* Which GPUs the ranks have, and how what is between them is joined.
 *
 * Ranks whose drivers show the same GPUs share them evenly, in the order of ranks; a launcher that
 * shows each rank its own has done that already. Where there are fewer GPUs than ranks, some ranks
 * have the same one. NCCL refuses two ranks on one GPU, and other versions than its own: such pairs
 * are known beforehand, and go through pinned memory and the world. */
#include "device/gpus.h"
#include "pipe/run/ranks.h"
#include "world/links.h"
#include "world/wait.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* How long pairs may take to be joined: NCCL looks at the host's links and networks then. */
#define JOIN_LIMIT_NS (UINT64_C(120) * 1000000000)

/* ---- the survey ---- */

/* Of the table that will be; 0: there will be none. */
static uint32_t count_workers(const struct weir__setup *setup) {
    struct weir_pipe_options options = setup->options;
    struct weir_table *table = NULL;
    options.log = NULL; /* it is for the pipe's */
    if (options.workers > 0 && options.table_csv == NULL) return options.workers;
    int status = weir__make_table(&options, weir__replica(&options), options.rows,
                                  setup->flow.no_backward, false, NULL, &table);
    uint32_t count = status == WEIR_OK ? table->worker_count : 0;
    weir_table_destroy(table);
    return count;
}

static bool wants_gpus(const struct weir__setup *setup) {
    const struct weir_world *world = setup->options.world;
    uint32_t ranks = world->rank_count / weir__replicas(&setup->options);
    uint32_t workers = count_workers(setup);
    bool wants = false;
    for (uint32_t w = 0; !wants && ranks > 0 && w < workers; w++)
        wants = !weir__setup_device(setup, w).synchronous &&
                weir__setup_rank(setup, w, workers) == world->rank % ranks;
    return wants;
}

/* Of the running kernel: hosts' names may be several for one machine. */
static uint64_t machine_key(const struct weir_world *world) {
    char boot[WEIR__BOOT_ID_BYTES];
    const char *known_by = weir__boot_id(boot) ? boot : world->host;
    return weir__hash(WEIR__HASH_BEGIN, known_by, strlen(known_by));
}

/* Of the one that pairs would be opened with, by the same trial. */
static uint32_t nccl_version(void) {
    struct weir__nccl nccl;
    uint32_t version = weir__nccl_open(&nccl, NULL) == WEIR_OK ? nccl.version : 0;
    weir__nccl_close(&nccl);
    return version;
}

/* A driver that is missing is refused where its GPU is to be opened. */
static void look(const struct weir__setup *setup, struct weir__rank_gpus *own) {
    const struct weir_world *world = setup->options.world;
    struct weir__gpus found;
    own->wants = wants_gpus(setup);
    if (!own->wants || weir__gpus_survey(&found, NULL) != WEIR_OK) return;
    own->shown = found.count < WEIR__RANK_GPUS_MAX ? found.count : WEIR__RANK_GPUS_MAX;
    own->list = WEIR__HASH_BEGIN;
    for (uint32_t g = 0; g < own->shown; g++) {
        const char *pci = found.gpu[g].pci;
        own->keys[g] = weir__hash(machine_key(world), pci, strlen(pci));
        own->list = weir__hash(own->list, &own->keys[g], sizeof own->keys[g]);
    }
    own->nccl = nccl_version();
}

/* The rank's, among those that see the same GPUs. */
static void deal(struct weir__rank_gpus *all, uint32_t ranks, uint32_t rank) {
    struct weir__rank_gpus *own = &all[rank];
    uint32_t number = 0, shown = own->shown;
    own->sharers = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        bool shares = all[r].wants && all[r].shown > 0 && all[r].list == own->list;
        number += shares && r < rank;
        own->sharers += shares;
    }
    if (shown == 0) return;
    assert(own->sharers > 0 && number < own->sharers);
    own->first = (uint32_t)((uint64_t)number * shown / own->sharers);
    uint32_t end = (uint32_t)((uint64_t)(number + 1) * shown / own->sharers);
    own->count = end > own->first ? end - own->first : 1;
}

static bool names_gpus(const struct weir__setup *setup) {
    bool any = false;
    for (uint32_t d = 0; !any && d < setup->options.device_count; d++)
        any = !weir__setup_device(setup, d).synchronous;
    return any;
}

int weir__ranks_survey(const struct weir_world *world, struct weir__setup *setup, int status,
                       struct weir_faults *faults) {
    if (world == NULL || world->rank >= world->rank_count) return status;
    assert(status != WEIR_OK || setup != NULL);
    uint32_t ranks = world->rank_count;
    struct weir__rank_gpus *all = NULL;
    struct weir_error error = {0};
    if (status == WEIR_OK) {
        all = weir__pool_take(&setup->pool, 2 * (size_t)ranks, sizeof *all);
        status = all != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
    }
    if ((status = weir__world_agree(world, status, 0, "pipes", faults)) != WEIR_OK) return status;
    bool any = names_gpus(setup);
    if (any) look(setup, &all[world->rank]);
    status = weir__world_gather_in(world, all, all + ranks, ranks * sizeof *all, &error);
    if (status != WEIR_OK) weir_faults_add(faults, "%.200s", error.message);
    if (status != WEIR_OK || !any) return status;
    for (uint32_t r = 0; r < ranks; r++) deal(all, ranks, r);
    setup->gpus = all;
    return WEIR_OK;
}

/* ---- what is said of it ---- */

static void say_version(uint32_t version, char text[24]) {
    snprintf(text, 24, version > 0 ? "%u.%u.%u" : "none", version / 10000, version / 100 % 100,
             version % 100);
}

/* Of two seats with GPUs on different ranks. Whether they exchange in the slower way. */
static bool say_pair(struct weir_pipe *pipe, struct weir__seat a, struct weir__seat b) {
    char *text = pipe->ranks->exchange_text, own[24], other[24];
    size_t capacity = sizeof pipe->ranks->exchange_text;
    uint32_t ranks[] = {weir__rank_in(pipe, a.replica, a.worker),
                        weir__rank_in(pipe, b.replica, b.worker)};
    assert(ranks[0] != ranks[1]);
    uint32_t nccl = pipe->setup.gpus[ranks[0]].nccl, others = pipe->setup.gpus[ranks[1]].nccl;
    say_version(nccl, own);
    say_version(others, other);
    if (weir__setup_joins(&pipe->setup, a, b, pipe->worker_count)) {
        snprintf(text, capacity, "GPUs of different ranks exchange by NCCL %s", own);
        return false;
    }
    if (nccl == 0 || others == 0)
        snprintf(text, capacity,
                 "GPUs of different ranks exchange through the host's memory and MPI, which is "
                 "slower than NCCL: it is not found on rank %u (install NVIDIA's libnccl2, or name "
                 "its file in WEIR_NCCL)",
                 ranks[nccl == 0 ? 0 : 1]);
    else if (nccl != others)
        snprintf(text, capacity,
                 "GPUs of ranks %u and %u exchange through the host's memory and MPI, for they "
                 "have NCCL %s and %s: install one version",
                 ranks[0], ranks[1], own, other);
    else
        snprintf(text, capacity,
                 "ranks %u and %u exchange through the host's memory and MPI, for they share a "
                 "GPU, which NCCL refuses",
                 ranks[0], ranks[1]);
    return true;
}

static bool joins(struct weir_pipe *pipe, struct weir__seat a, struct weir__seat b) {
    return weir__setup_joins(&pipe->setup, a, b, pipe->worker_count);
}

static bool is_gpus(const struct weir_pipe *pipe, uint32_t worker) {
    return !weir__setup_device(&pipe->setup, worker).synchronous;
}

/* Whether something is so of two GPUs that exchange what the plan's replicas do: asked of one pair
 * after the other until it is, on all ranks of the same ones. */
static bool any_pair(struct weir_pipe *pipe, const struct weir__row_plan *plan,
                     bool (*is_so)(struct weir_pipe *, struct weir__seat, struct weir__seat)) {
    uint32_t replicas = pipe->ranks->replicas, workers = pipe->worker_count;
    bool any = false;
    assert(pipe->setup.gpus != NULL);
    for (uint32_t r = 0; r < replicas; r++) {
        for (uint32_t l = 0; !any && l < plan->lane_count; l++) {
            const struct weir__lane *lane = &plan->lanes[l];
            bool up = lane->from < lane->worker; /* the lower worker is asked of first */
            if (lane->of_ranks && lane->from != WEIR__FROM_CALLER && is_gpus(pipe, lane->worker) &&
                is_gpus(pipe, lane->from))
                any = is_so(pipe, (struct weir__seat){r, up ? lane->from : lane->worker},
                            (struct weir__seat){r, up ? lane->worker : lane->from});
        }
        for (uint32_t q = r + 1; plan->arrivals != NULL && q < replicas; q++)
            for (uint32_t w = 0; !any && w < workers; w++)
                any = is_gpus(pipe, w) &&
                      is_so(pipe, (struct weir__seat){r, w}, (struct weir__seat){q, w});
    }
    return any;
}

const char *weir_pipe_exchange(const struct weir_pipe *pipe) {
    return pipe->ranks != NULL ? pipe->ranks->exchange_text : "";
}

/* ---- pairs ---- */

/* A pair to be: from one rank to another, one of which is this. */
struct pairing {
    struct weir__copy_stream *stream;
    uint32_t from, to, tag;
};

static int receive_id(struct weir_pipe *pipe, const struct pairing *pairing,
                      struct weir__nccl_id *id, struct weir_error *error) {
    const struct weir_world *world = pipe->ranks->world;
    struct weir_arrival arrival = {0};
    int status = weir__world_receive(world, pairing->from, id, sizeof *id, &arrival);
    if (status != WEIR_OK) return status;
    if (arrival.tag != pairing->tag)
        return weir__fail(error, WEIR_ERR_PEER,
                          "rank %u is at something else: every rank must make the same calls, in "
                          "one order",
                          pairing->from);
    if (arrival.bytes == sizeof *id) return WEIR_OK;
    return weir__fail(error, WEIR_ERR_PEER, "rank %u makes no NCCL id", pairing->from);
}

/* The sender's rank makes the id; the other gets it. Where this rank has failed before, an empty
 * one is sent. */
static int share_id(struct weir_pipe *pipe, const struct pairing *pairing, int status,
                    struct weir__nccl_id *id, struct weir_error *error) {
    const struct weir_world *world = pipe->ranks->world;
    if (world->rank != pairing->from) {
        int got = receive_id(pipe, pairing, id, status == WEIR_OK ? error : NULL);
        return status != WEIR_OK ? status : got;
    }
    int made = status == WEIR_OK ? weir__nccl_make_id(&pipe->ranks->nccl, id, error) : status;
    int sent =
        weir__world_send(world, pairing->to, pairing->tag, id, made == WEIR_OK ? sizeof *id : 0);
    return made != WEIR_OK ? made : sent;
}

static int begin_pair(struct weir_pipe *pipe, const struct pairing *pairing,
                      struct weir_error *error) {
    struct weir__copy_stream *stream = pairing->stream;
    struct weir__nccl_id id;
    assert(stream->pair == NULL && stream->device != NULL);
    bool opens = pipe->ranks->nccl.library == NULL;
    int opened = opens ? weir__nccl_open(&pipe->ranks->nccl, error) : WEIR_OK;
    int status = share_id(pipe, pairing, opened, &id, error);
    if (status != WEIR_OK) return status;
    return weir__nccl_pair_new(&pipe->ranks->nccl, stream->device, &id, !stream->sends,
                               &stream->pair, error);
}

/* If it is one that is by NCCL, and not there yet. What came first counts. */
static int try_pair(struct weir_pipe *pipe, const struct pairing *pairing, int status,
                    struct weir_error *error) {
    const struct weir__copy_stream *stream = pairing->stream;
    struct weir_error later = {0};
    if (stream == NULL || stream->pair != NULL || stream->hop.device != NULL) return status;
    int begun = begin_pair(pipe, pairing, status == WEIR_OK ? error : &later);
    return status != WEIR_OK ? status : begun;
}

/* This rank's end of what a worker sends from one replica to another; NULL: it has none. */
static struct weir__copy_stream *find_twin(struct weir_pipe *pipe, uint32_t worker, uint32_t from,
                                           uint32_t to) {
    bool sends = from == pipe->ranks->replica;
    struct weir__copy_stream *s = NULL;
    assert(from != to);
    if (weir__is_here(pipe, worker) && (sends || to == pipe->ranks->replica))
        s = pipe->workers[worker].rank_streams;
    while (s != NULL && !(s->of_replicas && s->sends == sends && s->from == (sends ? to : from)))
        s = s->next;
    return s;
}

/* All of this rank begin, in one order of all ranks: those of lanes, then those between replicas.
 * After a failure the others' still get their ids. */
static int begin_pairs(struct weir_pipe *pipe, const struct weir__row_plan *plan,
                       struct weir_error *error) {
    uint32_t replicas = pipe->ranks->replicas;
    int status = WEIR_OK;
    assert(plan->bound.streams != NULL || plan->lane_count == 0);
    for (uint32_t l = 0; l < plan->lane_count; l++) {
        const struct weir__lane *lane = &plan->lanes[l];
        if (!lane->of_ranks) continue;
        const struct pairing pairing = {plan->bound.streams[l], weir__rank_of(pipe, lane->from),
                                        weir__rank_of(pipe, lane->worker),
                                        weir__talk_tag(WEIR__TALK_PAIR, l)};
        status = try_pair(pipe, &pairing, status, error);
    }
    for (uint32_t i = 0; i < replicas * replicas; i++) {
        uint32_t from = i / replicas, to = i % replicas;
        for (uint32_t w = 0; from != to && w < pipe->worker_count; w++) {
            const struct pairing pairing = {
                find_twin(pipe, w, from, to), weir__rank_in(pipe, from, w),
                weir__rank_in(pipe, to, w), weir__talk_tag(WEIR__TALK_TWIN, w)};
            status = try_pair(pipe, &pairing, status, error);
        }
    }
    return status;
}

enum joining { JOINING, JOINED, FAILED };

/* Whether all of this rank are joined. */
static int poll_pairs(const struct weir_pipe *pipe, uint64_t until, enum joining *own,
                      struct weir_error *error) {
    bool joined = true;
    *own = FAILED;
    for (uint32_t w = pipe->ranks->first; w < pipe->ranks->end; w++) {
        for (struct weir__copy_stream *s = pipe->workers[w].rank_streams; s != NULL; s = s->next) {
            bool ready = true;
            int status = s->pair != NULL ? weir__nccl_pair_poll(s->pair, &ready, error) : WEIR_OK;
            if (status != WEIR_OK) return status;
            joined = joined && ready;
        }
    }
    if (!joined && weir__now_ns() > until)
        return weir__fail(error, WEIR_ERR_PEER,
                          "NCCL does not join two ranks' GPUs: see what NCCL_DEBUG=INFO says");
    *own = joined ? JOINED : JOINING;
    return WEIR_OK;
}

/* One failure ends it for all, for whom the failed rank's pairs would wait. */
static int ask_all(struct weir_pipe *pipe, enum joining own, enum joining *all,
                   struct weir_error *error) {
    const struct weir_world *world = pipe->ranks->world;
    unsigned char *states = (unsigned char *)pipe->ranks->gathered;
    bool joined = true, failed = false;
    assert(own <= FAILED && world->rank < world->rank_count);
    memset(states, 0, world->rank_count);
    states[world->rank] = (unsigned char)own;
    int status =
        weir__world_gather_in(world, states, states + world->rank_count, world->rank_count, error);
    for (uint32_t r = 0; r < world->rank_count; r++) {
        joined = joined && states[r] == JOINED;
        failed = failed || states[r] == FAILED;
    }
    *all = failed ? FAILED : joined ? JOINED : JOINING;
    return status;
}

static int join_pairs(struct weir_pipe *pipe, int status, struct weir_error *error) {
    static const struct timespec slice = {.tv_nsec = 200000};
    uint64_t until = weir__now_ns() + JOIN_LIMIT_NS;
    enum joining own = status == WEIR_OK ? JOINING : FAILED, all = JOINING;
    while (all == JOINING) {
        if (own == JOINING) status = poll_pairs(pipe, until, &own, error);
        int asked = ask_all(pipe, own, &all, status == WEIR_OK ? error : NULL);
        if (asked != WEIR_OK) return asked;
        if (all == JOINING) (void)nanosleep(&slice, NULL);
    }
    return status;
}

int weir__ranks_begin_pulse(struct weir_pipe *pipe) {
    struct weir__ranks *ranks = pipe->ranks;
    const struct weir_world *world = ranks->world;
    assert(ranks->channels > WEIR__PULSE_CHANNEL);
    if (ranks->pulsing || pipe->host == NULL || world->rank_count == 1) return WEIR_OK;
    const struct weir_message message = {.peer = (world->rank + 1) % world->rank_count,
                                         .channel = WEIR__PULSE_CHANNEL};
    int status = world->calls->receive(world->context, &message, &ranks->pulse);
    ranks->pulsing = status == WEIR_OK;
    return status;
}

int weir__ranks_connect(struct weir_pipe *pipe, const struct weir__row_plan *plan,
                        struct weir_faults *faults) {
    struct weir_error error = {0};
    if (pipe->setup.gpus == NULL) return WEIR_OK;
    if (!pipe->ranks->slow) pipe->ranks->slow = any_pair(pipe, plan, say_pair);
    if (!any_pair(pipe, plan, joins)) return WEIR_OK;
    int status = begin_pairs(pipe, plan, &error);
    status = join_pairs(pipe, status, &error);
    if (status != WEIR_OK && error.message[0] != '\0')
        weir_faults_add(faults, "rank %u: %.200s", pipe->ranks->world->rank, error.message);
    return weir__world_agree(pipe->ranks->world, status, 0, "pairs of GPUs", faults);
}

void weir__ranks_abort(struct weir_pipe *pipe) {
    for (uint32_t w = 0; pipe->workers != NULL && w < pipe->worker_count; w++)
        for (struct weir__copy_stream *s = pipe->workers[w].rank_streams; s != NULL; s = s->next)
            if (s->pair != NULL) weir__nccl_pair_abort(s->pair);
}

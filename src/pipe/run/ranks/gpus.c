/* SPDX-License-Identifier: MIT */
/* Which GPUs the ranks have, and how what is between them is joined.
 *
 * Ranks whose drivers show the same GPUs share them evenly, in the order of ranks; a launcher that
 * shows each rank its own has done that already. Where there are fewer GPUs than ranks, some ranks
 * have the same one. NCCL refuses two ranks on one GPU, and other versions than its own: such pairs
 * are known beforehand, and go through pinned memory and the world. */
#include "device/gpus.h"
#include "pipe/run/ranks.h"
#include "world/wait.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* How long pairs may take to be joined: NCCL looks at the host's links and networks then. */
#define JOIN_LIMIT_NS (UINT64_C(120) * 1000000000)

/* ---- the survey ---- */

static bool is_gpu(const struct weir__setup *setup, uint32_t device) {
    return !setup->devices[device].synchronous;
}

/* As far as it is known before there is a table: with a device for each worker. */
static bool wants_gpus(const struct weir__setup *setup) {
    const struct weir_world *world = setup->options.world;
    uint32_t count = setup->options.device_count;
    assert(count == 0 || setup->devices != NULL);
    uint32_t ranks = world->rank_count / weir__replicas(&setup->options);
    bool wants = count > 0 && count < ranks && is_gpu(setup, 0);
    for (uint32_t d = 0; !wants && ranks > 0 && d < count; d++)
        wants = is_gpu(setup, d) && weir__dealt_rank(ranks, count, d) == world->rank % ranks;
    return wants;
}

/* Of the running kernel: hosts' names may be several for one machine. */
static uint64_t machine_key(const struct weir_world *world) {
    char boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file == NULL || fgets(boot, sizeof boot, file) == NULL)
        snprintf(boot, sizeof boot, "%s", world->host);
    if (file != NULL) fclose(file);
    return weir__hash(WEIR__HASH_BEGIN, boot, strlen(boot));
}

static uint32_t nccl_version(void) {
    struct weir__gpu_library_facts facts;
    unsigned major = 0, minor = 0, patch = 0;
    weir__gpu_library_find(weir__gpu_library_named("NCCL"), &facts);
    if (facts.state != WEIR__LIBRARY_FOUND) return 0;
    (void)sscanf(facts.version, "%u.%u.%u", &major, &minor, &patch);
    return major * 10000 + minor * 100 + patch;
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
    for (uint32_t d = 0; !any && d < setup->options.device_count; d++) any = is_gpu(setup, d);
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

/* Of two workers on GPUs of different ranks. */
static void say_pair(struct weir_pipe *pipe, uint32_t a, uint32_t b) {
    char *text = pipe->ranks->exchange_text, own[24], other[24];
    size_t capacity = sizeof pipe->ranks->exchange_text;
    uint32_t ranks[] = {weir__rank_of(pipe, a), weir__rank_of(pipe, b)};
    assert(ranks[0] != ranks[1]);
    uint32_t nccl = pipe->setup.gpus[ranks[0]].nccl, others = pipe->setup.gpus[ranks[1]].nccl;
    say_version(nccl, own);
    say_version(others, other);
    if (weir__setup_by_nccl(&pipe->setup, a, b, pipe->worker_count)) {
        snprintf(text, capacity, "GPUs of different ranks exchange by NCCL %s", own);
    } else if (nccl == 0 || others == 0) {
        snprintf(text, capacity,
                 "GPUs of different ranks exchange through the host's memory and MPI, which is "
                 "slower than NCCL: it is not found on rank %u (install NVIDIA's libnccl2, or name "
                 "its file in WEIR_NCCL)",
                 ranks[nccl == 0 ? 0 : 1]);
    } else if (nccl != others) {
        snprintf(text, capacity,
                 "GPUs of ranks %u and %u exchange through the host's memory and MPI, for they "
                 "have NCCL %s and %s: install one version",
                 ranks[0], ranks[1], own, other);
    } else {
        snprintf(text, capacity,
                 "ranks %u and %u exchange through the host's memory and MPI, for they share a "
                 "GPU, which NCCL refuses",
                 ranks[0], ranks[1]);
    }
}

/* The worst there is. */
static void say_all(struct weir_pipe *pipe, const struct weir__row_plan *plan) {
    bool slow = false;
    for (uint32_t l = 0; !slow && l < plan->lane_count; l++) {
        const struct weir__lane *lane = &plan->lanes[l];
        if (!lane->of_ranks || weir__setup_device(&pipe->setup, lane->worker).synchronous ||
            weir__setup_device(&pipe->setup, lane->from).synchronous)
            continue;
        say_pair(pipe, lane->from, lane->worker);
        slow = !weir__setup_by_nccl(&pipe->setup, lane->from, lane->worker, pipe->worker_count);
    }
}

const char *weir_pipe_exchange(const struct weir_pipe *pipe) {
    return pipe->ranks != NULL ? pipe->ranks->exchange_text : "";
}

/* ---- pairs ---- */

static int receive_id(struct weir_pipe *pipe, const struct weir__lane *lane, uint32_t tag,
                      struct weir__nccl_id *id, struct weir_error *error) {
    const struct weir_world *world = pipe->ranks->world;
    struct weir_arrival arrival = {0};
    uint32_t peer = weir__rank_of(pipe, lane->from);
    int status = weir__world_receive(world, peer, id, sizeof *id, &arrival);
    if (status != WEIR_OK) return status;
    if (arrival.tag != tag)
        return weir__fail(error, WEIR_ERR_PEER,
                          "rank %u is at something else: every rank must make the same calls, in "
                          "one order",
                          peer);
    if (arrival.bytes == sizeof *id) return WEIR_OK;
    return weir__fail(error, WEIR_ERR_PEER, "rank %u makes no NCCL id", peer);
}

/* The sender's rank makes the id; the other gets it. Where this rank has failed before, an empty
 * one is sent. */
static int share_id(struct weir_pipe *pipe, const struct weir__lane *lane, uint32_t tag, int status,
                    struct weir__nccl_id *id, struct weir_error *error) {
    const struct weir_world *world = pipe->ranks->world;
    if (world->rank != weir__rank_of(pipe, lane->from)) {
        int got = receive_id(pipe, lane, tag, id, status == WEIR_OK ? error : NULL);
        return status != WEIR_OK ? status : got;
    }
    int made = status == WEIR_OK ? weir__nccl_make_id(&pipe->ranks->nccl, id, error) : status;
    int sent = weir__world_send(world, weir__rank_of(pipe, lane->worker), tag, id,
                                made == WEIR_OK ? sizeof *id : 0);
    return made != WEIR_OK ? made : sent;
}

static int begin_pair(struct weir_pipe *pipe, const struct weir__row_plan *plan, uint32_t lane,
                      struct weir_error *error) {
    struct weir__copy_stream *stream = plan->bound.streams[lane];
    uint32_t tag = weir__talk_tag(WEIR__TALK_PAIR, lane);
    struct weir__nccl_id id;
    assert(stream->pair == NULL && stream->device != NULL);
    bool opens = pipe->ranks->nccl.library == NULL;
    int opened = opens ? weir__nccl_open(&pipe->ranks->nccl, error) : WEIR_OK;
    int status = share_id(pipe, &plan->lanes[lane], tag, opened, &id, error);
    if (status != WEIR_OK) return status;
    return weir__nccl_pair_new(&pipe->ranks->nccl, stream->device, &id, !stream->sends,
                               &stream->pair, error);
}

/* All of this rank begin, in the order of lanes, which all ranks have. After a failure the others'
 * still get their ids. */
static int begin_pairs(struct weir_pipe *pipe, const struct weir__row_plan *plan,
                       struct weir_error *error) {
    struct weir_error later = {0}; /* than the first */
    int status = WEIR_OK;
    assert(plan->bound.streams != NULL || plan->lane_count == 0);
    for (uint32_t l = 0; l < plan->lane_count; l++) {
        struct weir__copy_stream *stream = plan->bound.streams[l];
        if (!plan->lanes[l].of_ranks || stream == NULL || stream->pair != NULL) continue;
        if (stream->hop.device != NULL) continue;
        int begun = begin_pair(pipe, plan, l, status == WEIR_OK ? error : &later);
        status = status != WEIR_OK ? status : begun;
    }
    return status;
}

enum joining { JOINING, JOINED, FAILED };

/* Whether all of this rank are joined. */
static int poll_pairs(const struct weir__row_plan *plan, uint64_t until, enum joining *own,
                      struct weir_error *error) {
    bool joined = true;
    *own = FAILED;
    for (uint32_t l = 0; l < plan->lane_count; l++) {
        struct weir__copy_stream *stream = plan->bound.streams[l];
        bool ready = true;
        if (!plan->lanes[l].of_ranks || stream == NULL || stream->pair == NULL) continue;
        int status = weir__nccl_pair_poll(stream->pair, &ready, error);
        if (status != WEIR_OK) return status;
        joined = joined && ready;
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

static int join_pairs(struct weir_pipe *pipe, const struct weir__row_plan *plan, int status,
                      struct weir_error *error) {
    static const struct timespec slice = {.tv_nsec = 200000};
    uint64_t until = weir__now_ns() + JOIN_LIMIT_NS;
    enum joining own = status == WEIR_OK ? JOINING : FAILED, all = JOINING;
    while (all == JOINING) {
        if (own == JOINING) status = poll_pairs(plan, until, &own, error);
        int asked = ask_all(pipe, own, &all, status == WEIR_OK ? error : NULL);
        if (asked != WEIR_OK) return asked;
        if (all == JOINING) (void)nanosleep(&slice, NULL);
    }
    return status;
}

static bool needs_pairs(const struct weir_pipe *pipe, const struct weir__row_plan *plan) {
    bool needs = false;
    for (uint32_t l = 0; !needs && pipe->setup.gpus != NULL && l < plan->lane_count; l++)
        needs =
            plan->lanes[l].of_ranks && weir__setup_by_nccl(&pipe->setup, plan->lanes[l].worker,
                                                           plan->lanes[l].from, pipe->worker_count);
    return needs;
}

/* Once, on a rank with GPUs. */
static int begin_pulse(struct weir_pipe *pipe) {
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
    say_all(pipe, plan);
    int status = begin_pulse(pipe);
    if (status != WEIR_OK || !needs_pairs(pipe, plan)) return status;
    status = begin_pairs(pipe, plan, &error);
    status = join_pairs(pipe, plan, status, &error);
    if (status != WEIR_OK && error.message[0] != '\0')
        weir_faults_add(faults, "rank %u: %.200s", pipe->ranks->world->rank, error.message);
    return weir__world_agree(pipe->ranks->world, status, 0, "pairs of GPUs", faults);
}

void weir__ranks_abort(struct weir_pipe *pipe) {
    for (uint32_t w = 0; pipe->workers != NULL && w < pipe->worker_count; w++)
        for (struct weir__copy_stream *s = pipe->workers[w].rank_streams; s != NULL; s = s->next)
            if (s->pair != NULL) weir__nccl_pair_abort(s->pair);
}

/* SPDX-License-Identifier: MIT */
#include "world/allreduce.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A wait yields the processor so often, and then sleeps between its calls. */
enum { YIELDS = 20000, NAP_US = 200 };

/* ---- rounds ---- */

void weir__allreduce_begin(struct weir__allreduce *exchange) {
    assert(!exchange->under_way && exchange->merge != NULL);
    exchange->distance = 1;
    exchange->strange = false;
}

static uint32_t ranks_of(const struct weir_world *world, const struct weir__allreduce *exchange) {
    return exchange->count > 0 ? exchange->count : world->rank_count;
}

static int begin_round(const struct weir_world *world, struct weir__allreduce *exchange) {
    uint32_t ranks = ranks_of(world, exchange), far = exchange->distance;
    uint32_t own = world->rank - exchange->first;
    assert(far < ranks && own < ranks);
    const struct weir_message in = {.data = exchange->other,
                                    .bytes = exchange->bytes,
                                    .peer = exchange->first + (own + ranks - far) % ranks};
    const struct weir_message out = {.data = exchange->own,
                                     .bytes = exchange->bytes,
                                     .peer = exchange->first + (own + far) % ranks,
                                     .tag = exchange->tag};
    int status = world->calls->receive(world->context, &in, &exchange->receive);
    if (status != WEIR_OK) return status;
    status = world->calls->send(world->context, &out, &exchange->send);
    if (status != WEIR_OK) return status;
    exchange->under_way = true;
    exchange->sent = exchange->received = false;
    return WEIR_OK;
}

static int end_round(const struct weir_world *world, struct weir__allreduce *exchange) {
    assert(exchange->under_way);
    struct weir_arrival arrival = {0};
    int status = WEIR_OK;
    if (!exchange->received) {
        status =
            world->calls->test(world->context, &exchange->receive, &exchange->received, &arrival);
        if (status != WEIR_OK) return status;
        exchange->strange = exchange->received &&
                            (arrival.tag != exchange->tag || arrival.bytes != exchange->bytes);
        if (exchange->strange) return WEIR_ERR_PEER;
    }
    if (!exchange->sent)
        status = world->calls->test(world->context, &exchange->send, &exchange->sent, NULL);
    if (status != WEIR_OK || !exchange->sent || !exchange->received) return status;
    exchange->merge(exchange->own, exchange->other, exchange->bytes);
    exchange->under_way = false;
    exchange->distance *= 2;
    return WEIR_OK;
}

int weir__allreduce_go_on(const struct weir_world *world, struct weir__allreduce *exchange,
                          bool *over) {
    *over = false;
    while (exchange->distance < ranks_of(world, exchange)) {
        int status = exchange->under_way ? WEIR_OK : begin_round(world, exchange);
        if (status != WEIR_OK) return status;
        if ((status = end_round(world, exchange)) != WEIR_OK || exchange->under_way) return status;
    }
    *over = true;
    return WEIR_OK;
}

int weir__allreduce_wait(const struct weir_world *world, struct weir__allreduce *exchange) {
    const struct timespec nap = {.tv_nsec = NAP_US * 1000L};
    bool over = false;
    int status = world->calls->open(world->context, 1);
    weir__allreduce_begin(exchange);
    for (uint32_t turn = 0; !over && status == WEIR_OK; turn++) {
        status = weir__allreduce_go_on(world, exchange, &over);
        if (!over && turn >= YIELDS)
            (void)nanosleep(&nap, NULL);
        else if (!over)
            sched_yield();
    }
    return status;
}

void weir__allreduce_join(unsigned char *own, const unsigned char *other, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) own[i] |= other[i];
}

const char *weir__allreduce_reason(const struct weir_world *world,
                                   const struct weir__allreduce *exchange) {
    if (!exchange->strange) return world->calls->reason(world->context);
    return "another rank is at something else: every rank must make the same calls, in one order";
}

/* ---- agreeing ---- */

/* What a rank comes with. */
struct vote {
    uint64_t digest_least, digest_most;
    uint32_t failed; /* the first rank that did, and 1; 0: none */
    int32_t status;
    char why[240];
};

static void merge_votes(unsigned char *own, const unsigned char *other, size_t bytes) {
    struct vote mine, theirs;
    assert(bytes == sizeof mine);
    memcpy(&mine, own, bytes);
    memcpy(&theirs, other, bytes);
    if (theirs.digest_least < mine.digest_least) mine.digest_least = theirs.digest_least;
    if (theirs.digest_most > mine.digest_most) mine.digest_most = theirs.digest_most;
    if (theirs.failed != 0 && (mine.failed == 0 || theirs.failed < mine.failed)) {
        mine.failed = theirs.failed;
        mine.status = theirs.status;
        memcpy(mine.why, theirs.why, sizeof mine.why);
    }
    memcpy(own, &mine, bytes);
}

static int exchange_votes(const struct weir_world *world, uint32_t first, uint32_t count,
                          struct vote *vote, struct weir_faults *faults) {
    struct vote other;
    struct weir__allreduce exchange = {.own = (unsigned char *)vote,
                                       .tag = weir__talk_tag(WEIR__TALK_AGREE, 0),
                                       .other = (unsigned char *)&other,
                                       .bytes = sizeof *vote,
                                       .merge = merge_votes,
                                       .first = first,
                                       .count = count};
    int status = weir__allreduce_wait(world, &exchange);
    if (status != WEIR_OK)
        weir_faults_add(faults, "the ranks cannot be asked: %s",
                        weir__allreduce_reason(world, &exchange));
    return status;
}

static int agree(const struct weir_world *world, uint32_t first, uint32_t count, int status,
                 uint64_t digest, const char *what, struct weir_faults *faults) {
    struct vote vote = {.digest_least = status == WEIR_OK ? digest : UINT64_MAX,
                        .digest_most = status == WEIR_OK ? digest : 0,
                        .failed = status == WEIR_OK ? 0 : world->rank + 1,
                        .status = status};
    const char *why = faults != NULL && faults->kept > 0 ? faults->lines[faults->kept - 1]
                                                         : weir_status_text(status);
    snprintf(vote.why, sizeof vote.why, "%s", why);
    int told = exchange_votes(world, first, count, &vote, status == WEIR_OK ? faults : NULL);
    if (status != WEIR_OK) return status;
    if (told != WEIR_OK) return told;
    if (vote.failed != 0) {
        weir_faults_add(faults, "rank %u: %s", vote.failed - 1, vote.why);
        return WEIR_ERR_PEER;
    }
    if (vote.digest_least == vote.digest_most) return WEIR_OK;
    weir_faults_add(faults, "the ranks have different %s", what);
    return WEIR_ERR_CONFIG;
}

int weir__world_agree(const struct weir_world *world, int status, uint64_t digest, const char *what,
                      struct weir_faults *faults) {
    if (world == NULL) return status;
    return agree(world, 0, world->rank_count, status, digest, what, faults);
}

int weir__world_agree_among(const struct weir_world *world, uint32_t first, uint32_t count,
                            uint64_t digest, const char *what, struct weir_faults *faults) {
    assert(count > 0 && first + count <= world->rank_count);
    return agree(world, first, count, WEIR_OK, digest, what, faults);
}

/* ---- telling all ---- */

int weir__world_gather_in(const struct weir_world *world, void *data, void *room, size_t bytes,
                          struct weir_error *error) {
    struct weir__allreduce exchange = {.own = data,
                                       .other = room,
                                       .bytes = bytes,
                                       .merge = weir__allreduce_join,
                                       .tag = weir__talk_tag(WEIR__TALK_GATHER, bytes)};
    assert(data != NULL && room != NULL && bytes > 0);
    int status = weir__allreduce_wait(world, &exchange);
    if (status == WEIR_OK) return WEIR_OK;
    return weir__fail(error, status, "%.200s", weir__allreduce_reason(world, &exchange));
}

int weir__world_gather(const struct weir_world *world, const struct weir_allocator *allocator,
                       void *data, size_t bytes, struct weir_error *error) {
    void *room = weir__acquire(allocator, bytes, 1);
    if (room == NULL)
        return weir__fail(error, WEIR_ERR_OUT_OF_MEMORY, "%s",
                          weir_status_text(WEIR_ERR_OUT_OF_MEMORY));
    int status = weir__world_gather_in(world, data, room, bytes, error);
    weir__release(allocator, room, bytes, 1);
    return status;
}

int weir__world_share(const struct weir_world *world, uint64_t *number) {
    if (world == NULL) return WEIR_OK;
    uint64_t told = world->rank == 0 ? *number : 0, other;
    struct weir__allreduce exchange = {.own = (unsigned char *)&told,
                                       .other = (unsigned char *)&other,
                                       .bytes = sizeof told,
                                       .merge = weir__allreduce_join,
                                       .tag = weir__talk_tag(WEIR__TALK_GATHER, sizeof told)};
    int status = weir__allreduce_wait(world, &exchange);
    if (status == WEIR_OK) *number = told;
    return status;
}

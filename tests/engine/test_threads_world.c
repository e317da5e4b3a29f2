/* SPDX-License-Identifier: MIT */
/*
 * Goal: the world of threads keeps what weir_world.h promises, does what it permits, and finds what
 * callers may not do. Method: ranks that exchange numbered messages on all ways, on threads of
 * their own under many seeds; and for what must happen in a given order, one thread that calls for
 * all ranks.
 */
#include "engine/threads_inside.h"
#include "harness.h"

#include "base/base.h"

#include <sched.h>
#include <string.h>

enum { RANKS = 3, CHANNELS = 3, MESSAGES = 5, BYTES_MAX = 40, SEEDS = 200, TURNS = 200, DELAY = 6 };

static struct threads_world *new_world(const struct threads_options *options) {
    struct threads_options own = *options;
    if (own.ranks == 0) own.ranks = 2;
    if (own.channels == 0) own.channels = 1;
    return threads_world_new(&own);
}

static int open_as(struct weir_world *world, uint32_t count) {
    return world->calls->open(world->context, count);
}

static int send_to(struct weir_world *world, uint32_t peer, const void *data, size_t bytes,
                   struct weir_request *request) {
    struct weir_message message = {.data = (void *)(uintptr_t)data, .bytes = bytes, .peer = peer};
    return world->calls->send(world->context, &message, request);
}

static int receive_from(struct weir_world *world, uint32_t peer, void *data, size_t bytes,
                        struct weir_request *request) {
    struct weir_message message = {.data = data, .bytes = bytes, .peer = peer};
    return world->calls->receive(world->context, &message, request);
}

static int test_of(struct weir_world *world, struct weir_request *request, bool *ended) {
    return world->calls->test(world->context, request, ended, NULL);
}

static const char *reason_of(struct weir_world *world) {
    return world->calls->reason(world->context);
}

/* A bounded number of tests; whether it ended. */
static bool ends(struct weir_world *world, struct weir_request *request) {
    bool ended = false;
    for (int i = 0; i < TURNS && !ended; i++)
        if (!EXPECT_STATUS(test_of(world, request, &ended), WEIR_OK)) return false;
    return ended;
}

/* Tests a send of rank 0 and its receive at rank 1 in turn; the first failure. */
static int drive(struct threads_world *world, struct weir_request *sending,
                 struct weir_request *receiving) {
    struct weir_world *zero = threads_world_rank(world, 0), *one = threads_world_rank(world, 1);
    bool sent = false, came = false;
    int status = WEIR_OK;
    for (int i = 0; i < TURNS && !(sent && came); i++) {
        if (!sent) status = test_of(zero, sending, &sent);
        if (status != WEIR_OK) return status;
        if (!came) status = test_of(one, receiving, &came);
        if (status != WEIR_OK) return status;
    }
    EXPECT(sent && came);
    return WEIR_OK;
}

/* ---- on threads ------------------------------------------------------------------------------ */

/* One of the messages of a way, at its sender or its receiver. */
struct parcel {
    struct weir_request request;
    struct weir_message message;
    uint32_t number;
    bool receives, begun, ended;
    uint8_t data[BYTES_MAX];
};

enum { PARCELS = 2 * (RANKS - 1) * CHANNELS * MESSAGES };

/* By what both ends know. */
static void fill_parcel(const struct parcel *parcel, uint32_t from, uint32_t to, uint8_t *data,
                        struct weir_arrival *arrival) {
    uint32_t words[4], channel = parcel->message.channel;
    weir__philox_words(0, from, to, channel, parcel->number, words);
    *arrival = (struct weir_arrival){words[0] % (WEIR_TAG_MOST + 1), words[1] % (BYTES_MAX + 1)};
    for (size_t i = 0; i < arrival->bytes; i++) data[i] = (uint8_t)(words[2] + i);
}

static int begin_parcel(struct weir_world *world, struct parcel *parcel) {
    const struct weir_world_calls *calls = world->calls;
    struct weir_message *message = &parcel->message;
    struct weir_arrival arrival;
    parcel->begun = true;
    message->data = parcel->data;
    message->bytes = BYTES_MAX;
    if (parcel->receives) return calls->receive(world->context, message, &parcel->request);
    fill_parcel(parcel, world->rank, message->peer, parcel->data, &arrival);
    message->bytes = arrival.bytes;
    message->tag = arrival.tag;
    return calls->send(world->context, message, &parcel->request);
}

static int end_parcel(struct weir_world *world, struct parcel *parcel) {
    uint8_t wanted[BYTES_MAX];
    struct weir_arrival arrival, expected;
    int status = world->calls->test(world->context, &parcel->request, &parcel->ended, &arrival);
    if (status != WEIR_OK || !parcel->ended || !parcel->receives) return status;
    fill_parcel(parcel, parcel->message.peer, world->rank, wanted, &expected);
    bool same = EXPECT_EQ_UINT(arrival.tag, expected.tag) &&
                EXPECT_EQ_UINT(arrival.bytes, expected.bytes) &&
                EXPECT_EQ_BYTES(parcel->data, wanted, expected.bytes);
    return same ? WEIR_OK : WEIR_ERR_FORMAT;
}

static uint32_t list_parcels(const struct weir_world *world, struct parcel *parcels) {
    uint32_t count = 0;
    for (uint32_t number = 0; number < MESSAGES; number++)
        for (uint32_t way = 0; way < 2 * RANKS * CHANNELS; way++) {
            struct parcel *parcel = &parcels[count];
            *parcel = (struct parcel){.number = number, .receives = way % 2 == 1};
            parcel->message.peer = way / 2 % RANKS;
            parcel->message.channel = way / 2 / RANKS;
            count += parcel->message.peer != world->rank;
        }
    return count;
}

/* All of a rank's messages: begun in order, tested in any. */
static int exchange(void *context, struct weir_world *world) {
    struct parcel parcels[PARCELS + 1];
    uint64_t *random = &((uint64_t *)context)[world->rank];
    uint32_t count = list_parcels(world, parcels), begun = 0, ended = 0;
    int status = open_as(world, CHANNELS);
    while (status == WEIR_OK && ended < count) {
        *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        if (begun < count && (*random >> 62) == 0) {
            status = begin_parcel(world, &parcels[begun++]);
            continue;
        }
        struct parcel *parcel = &parcels[(*random >> 33) % count];
        if (!parcel->begun || parcel->ended) continue;
        status = end_parcel(world, parcel);
        ended += parcel->ended;
    }
    return status;
}

static void add(struct threads_counts *sum, const struct threads_counts *counts) {
    sum->copied += counts->copied;
    sum->late += counts->late;
    sum->unexpected += counts->unexpected;
    sum->overtaken += counts->overtaken;
}

static void test_each_way_keeps_its_order_and_nothing_else_does(void) {
    struct threads_counts sum = {0};
    uint64_t messages = RANKS * (RANKS - 1) * CHANNELS * MESSAGES;
    for (uint64_t seed = 0; seed < SEEDS && !test_has_failed(); seed++) {
        uint64_t random[RANKS] = {seed, ~seed, seed << 20};
        struct threads_world *world =
            threads_world_new(&(struct threads_options){.ranks = RANKS,
                                                        .seed = seed,
                                                        .delay = seed % 4 == 0 ? 0 : DELAY,
                                                        .delay_us = seed % 8 == 1 ? 100 : 0});
        EXPECT_STATUS(threads_world_run(world, exchange, random), WEIR_OK);
        struct threads_counts counts = threads_world_counts(world);
        EXPECT_EQ_UINT(counts.sent, messages);
        EXPECT_EQ_UINT(counts.received, messages);
        add(&sum, &counts);
        threads_world_destroy(world);
    }
    EXPECT(sum.copied > SEEDS * messages / 3 && sum.copied < SEEDS * messages * 2 / 3);
    EXPECT(sum.late > SEEDS * messages / 10);
    EXPECT(sum.unexpected > SEEDS * messages / 10);
    EXPECT(sum.overtaken > SEEDS * messages / 10);
}

/* Polls for what never comes. */
static int wait_in_vain(void *context, struct weir_world *world) {
    struct weir_request request;
    char data[4];
    bool ended = false;
    int status = receive_from(world, (world->rank + 1) % world->rank_count, data, 4, &request);
    (void)context;
    while (status == WEIR_OK && !ended) status = test_of(world, &request, &ended);
    return status;
}

/* The last does what `context` says, the others wait. */
static int end_all_others(void *context, struct weir_world *world) {
    const char *how = context;
    bool last = world->rank + 1 == world->rank_count;
    if (!last && world->rank == 1) return open_as(world, 2);
    if (!last) return wait_in_vain(NULL, world);
    if (strcmp(how, "fail") == 0) return WEIR_ERR_IO;
    world->calls->abort(world->context, 3);
    return WEIR_OK;
}

static void test_abort_ends_all_that_wait(void) {
    uint32_t rank;
    int exit_status;
    struct threads_world *world = new_world(&(struct threads_options){.ranks = 3});
    EXPECT(!threads_world_aborted(world, &rank, &exit_status));
    EXPECT_STATUS(threads_world_run(world, end_all_others, "abort"), WEIR_ERR_PEER);
    EXPECT(threads_world_aborted(world, &rank, &exit_status));
    EXPECT_EQ_UINT(rank, 2);
    EXPECT_EQ_INT(exit_status, 3);
    for (uint32_t r = 0; r < 2; r++)
        EXPECT_EQ_STR(reason_of(threads_world_rank(world, r)),
                      "rank 2 ended all with exit status 3");
    threads_world_destroy(world);
}

static void test_a_rank_that_ends_with_a_failure_ends_the_others(void) {
    uint32_t rank;
    int exit_status;
    struct threads_world *world = new_world(&(struct threads_options){.ranks = 3});
    EXPECT_STATUS(threads_world_run(world, end_all_others, "fail"), WEIR_ERR_IO);
    EXPECT(!threads_world_aborted(world, &rank, &exit_status));
    EXPECT_EQ_STR(reason_of(threads_world_rank(world, 0)), "rank 2 ended with ERR_IO");
    threads_world_destroy(world);
}

/* Rank 0 goes on until it has seen for long that the other failed. */
static int outlive(void *context, struct weir_world *world) {
    struct threads_world *threads = context;
    struct weir_request request;
    char data[4];
    bool ended = false, returned = false;
    if (world->rank == 1) return WEIR_ERR_IO;
    int status = receive_from(world, 1, data, sizeof data, &request);
    for (int i = 0; i < TURNS && status == WEIR_OK; i += returned) {
        status = test_of(world, &request, &ended);
        pthread_mutex_lock(&threads->lock);
        returned = threads->ranks[1].returned;
        pthread_mutex_unlock(&threads->lock);
    }
    EXPECT_STATUS(status, WEIR_OK);
    world->calls->abort(world->context, 1);
    return status;
}

static void test_without_a_launcher_nobody_is_told(void) {
    struct threads_world *world = new_world(&(struct threads_options){.no_launcher = true});
    EXPECT_STATUS(threads_world_run(world, outlive, world), WEIR_ERR_IO);
    threads_world_destroy(world);
}

static void test_a_run_that_hangs_says_what_each_rank_waits_for(void) {
    char last[256];
    struct threads_world *world = new_world(&(struct threads_options){.limit_s = 1});
    test_expect_failures_begin();
    int status = threads_world_run(world, wait_in_vain, NULL);
    EXPECT_EQ_INT(test_expect_failures_end(last, sizeof last), 5);
    EXPECT_STATUS(status, WEIR_ERR_PEER);
    EXPECT_CONTAINS(last, "rank 1: receive from 0 on channel 0, 4 bytes, tag 0: nothing was sent");
    EXPECT_EQ_STR(reason_of(threads_world_rank(world, 0)), "the test's limit of 1 s");
    threads_world_destroy(world);
}

/* ---- in one order ---------------------------------------------------------------------------- */

/* Of three ranks the first sends to the second; what it receives from the third never comes, but is
 * something to call for. */
struct sending {
    struct threads_world *world;
    struct weir_world *zero, *one;
    struct weir_request request, received, idle;
    uint32_t data, got, none;
};

static void begin_sending(struct sending *sending, uint64_t seed) {
    struct threads_options options = {.ranks = 3, .seed = seed, .delay = DELAY};
    sending->world = new_world(&options);
    sending->zero = threads_world_rank(sending->world, 0);
    sending->one = threads_world_rank(sending->world, 1);
    sending->data = 5, sending->got = 6;
    EXPECT_STATUS(receive_from(sending->zero, 2, &sending->none, 4, &sending->idle), WEIR_OK);
    EXPECT_STATUS(send_to(sending->zero, 1, &sending->data, 4, &sending->request), WEIR_OK);
}

static bool send_ends_alone(uint64_t seed) {
    struct sending sending;
    begin_sending(&sending, seed);
    bool alone = ends(sending.zero, &sending.request);
    if (alone) sending.data = 7; /* is the caller's again */
    EXPECT_STATUS(receive_from(sending.one, 0, &sending.got, 4, &sending.received), WEIR_OK);
    EXPECT_EQ_UINT(sending.got, UINT32_MAX);
    bool came = ends(sending.one, &sending.received);
    EXPECT(!came || alone);
    if (!alone) EXPECT(ends(sending.zero, &sending.request));
    EXPECT(!ends(sending.zero, &sending.idle));
    EXPECT(came || ends(sending.one, &sending.received));
    EXPECT_EQ_UINT(sending.got, 5);
    threads_world_destroy(sending.world);
    return alone;
}

static void test_a_send_ends_before_or_after_its_receive_begins(void) {
    uint32_t alone = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) alone += send_ends_alone(seed);
    EXPECT(alone > SEEDS / 3 && alone < SEEDS * 2 / 3);
}

/* One that was copied and has ended, too. */
static void test_messages_move_in_calls_of_their_ends_only(void) {
    uint32_t held = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct sending sending;
        bool ended;
        begin_sending(&sending, seed);
        EXPECT_STATUS(receive_from(sending.one, 0, &sending.got, 4, &sending.received), WEIR_OK);
        EXPECT_STATUS(test_of(sending.zero, &sending.request, &ended), WEIR_OK);
        bool came = ends(sending.one, &sending.received);
        held += ended && !came;
        for (int i = 0; i < TURNS && !came; i++) { /* any call of the sender's will do */
            EXPECT_STATUS(test_of(sending.zero, &sending.idle, &came), WEIR_OK);
            EXPECT_STATUS(test_of(sending.one, &sending.received, &came), WEIR_OK);
        }
        EXPECT(came);
        threads_world_destroy(sending.world);
    }
    EXPECT(held > SEEDS / 10);
}

/* What is seen of 16 bytes with room for 24 before the end: nothing, a part, all. */
static void look_early(uint64_t seed, uint32_t seen[3]) {
    struct threads_world *world =
        new_world(&(struct threads_options){.seed = seed, .delay = DELAY});
    struct weir_world *zero = threads_world_rank(world, 0), *one = threads_world_rank(world, 1);
    struct weir_request sending, receiving, idle;
    uint8_t data[16], got[24], none;
    bool ended = false, sent = false, never;
    memset(data, 1, sizeof data);
    EXPECT_STATUS(receive_from(zero, 1, &none, 1, &idle), WEIR_OK);
    EXPECT_STATUS(receive_from(one, 0, got, sizeof got, &receiving), WEIR_OK);
    EXPECT_STATUS(send_to(zero, 1, data, sizeof data, &sending), WEIR_OK);
    for (int i = 0; i < TURNS && !ended; i++) {
        seen[got[0] == 1 ? 2 : got[sizeof data - 1] == 1 ? 1 : 0]++;
        EXPECT(got[0] == 0xFF || got[0] == 1);
        EXPECT_EQ_UINT(got[sizeof data], 0xFF);
        EXPECT_STATUS(sent ? test_of(zero, &idle, &never) : test_of(zero, &sending, &sent), 0);
        EXPECT_STATUS(test_of(one, &receiving, &ended), WEIR_OK);
    }
    EXPECT_EQ_BYTES(got, data, sizeof data);
    threads_world_destroy(world);
}

static void test_the_memory_of_a_receive_is_no_number_until_its_end(void) {
    uint32_t seen[3] = {0};
    for (uint64_t seed = 0; seed < SEEDS; seed++) look_early(seed, seen);
    EXPECT(seen[0] > SEEDS);
    EXPECT(seen[1] > SEEDS / 10);
    EXPECT_EQ_UINT(seen[2], 0);
}

static void test_a_receive_with_too_little_room_fails(void) {
    struct threads_world *world = new_world(&(struct threads_options){0});
    struct weir_world *zero = threads_world_rank(world, 0), *one = threads_world_rank(world, 1);
    struct weir_request sending, receiving;
    char data[8] = "1234567", got[7];
    bool ended = false;
    EXPECT_STATUS(receive_from(one, 0, got, sizeof got, &receiving), WEIR_OK);
    EXPECT_STATUS(send_to(zero, 1, data, sizeof data, &sending), WEIR_OK);
    EXPECT_STATUS(drive(world, &sending, &receiving), WEIR_ERR_PEER);
    EXPECT_EQ_STR(reason_of(one), "8 bytes came from rank 0 on channel 0 for room of 7");
    EXPECT_STATUS(test_of(one, &receiving, &ended), WEIR_ERR_PEER);
    EXPECT_EQ_STR(reason_of(one), "a call of this rank failed before");
    threads_world_destroy(world);
}

static void test_a_receive_is_cancelled_until_its_message_came(void) {
    struct threads_world *world = new_world(&(struct threads_options){0});
    struct weir_world *zero = threads_world_rank(world, 0), *one = threads_world_rank(world, 1);
    struct weir_request sending, first, second;
    uint32_t data = 5, got;
    bool ended = false;
    EXPECT_STATUS(receive_from(one, 0, &got, sizeof got, &first), WEIR_OK);
    EXPECT_STATUS(one->calls->cancel(one->context, &first, &ended), WEIR_OK);
    EXPECT(ended);
    EXPECT_STATUS(receive_from(one, 0, &got, sizeof got, &second), WEIR_OK);
    EXPECT_STATUS(send_to(zero, 1, &data, sizeof data, &sending), WEIR_OK);
    EXPECT_STATUS(one->calls->cancel(one->context, &second, &ended), WEIR_OK);
    EXPECT(!ended);
    EXPECT_STATUS(drive(world, &sending, &second), WEIR_OK);
    EXPECT_EQ_UINT(got, 5);
    EXPECT_EQ_UINT(threads_world_counts(world).cancelled, 1);
    threads_world_destroy(world);
}

/* A message that was sent has not come for that; the next receive gets it then. */
static void test_what_a_cancelled_receive_waited_for_is_the_next_ones(void) {
    uint32_t cancelled = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct threads_world *world =
            new_world(&(struct threads_options){.ranks = 3, .seed = seed, .delay = 1});
        struct weir_world *zero = threads_world_rank(world, 0), *one = threads_world_rank(world, 1);
        struct weir_request sending, first, second;
        uint32_t data = 5, before, after;
        bool ended = false;
        EXPECT_STATUS(receive_from(one, 0, &before, sizeof before, &first), WEIR_OK);
        EXPECT_STATUS(receive_from(one, 0, &after, sizeof after, &second), WEIR_OK);
        EXPECT_STATUS(send_to(zero, 1, &data, sizeof data, &sending), WEIR_OK);
        EXPECT_STATUS(one->calls->cancel(one->context, &first, &ended), WEIR_OK);
        cancelled += ended;
        EXPECT_STATUS(drive(world, &sending, ended ? &second : &first), WEIR_OK);
        EXPECT_EQ_UINT(ended ? after : before, 5);
        threads_world_destroy(world);
    }
    EXPECT(cancelled > SEEDS / 10 && cancelled < SEEDS * 9 / 10);
}

/* ---- failures by request --------------------------------------------------------------------- */

/* Calls of one kind until one fails, three of each; returns how many did not. */
static uint32_t count_calls(struct threads_world *world, enum threads_call kind) {
    struct weir_world *one = threads_world_rank(world, 1);
    struct weir_request requests[3], others[3];
    uint32_t count = 0, data[3];
    bool ended;
    for (int status = WEIR_OK; count < 3; count++) {
        struct weir_request *request = &requests[count];
        if (kind != THREADS_SEND) status = receive_from(one, 0, &data[count], 4, request);
        if (kind == THREADS_SEND) status = send_to(one, 0, &count, 0, &others[count]);
        if (kind == THREADS_TEST) status = test_of(one, request, &ended);
        if (kind == THREADS_CANCEL) status = one->calls->cancel(one->context, request, &ended);
        if (status == WEIR_OK) continue;
        EXPECT_STATUS(status, WEIR_ERR_PEER);
        EXPECT_CONTAINS(reason_of(one), "of rank 1 was to fail");
        EXPECT_STATUS(receive_from(one, 0, &data[count], 4, request), WEIR_ERR_PEER);
        break;
    }
    return count;
}

static void test_a_given_call_fails(void) {
    for (enum threads_call kind = THREADS_SEND; kind < THREADS_CALL_COUNT; kind++)
        for (uint32_t k = 1; k <= 4; k++) {
            struct threads_world *world = new_world(
                &(struct threads_options){.fail_rank = 1, .fail_call = k, .fail_kind = kind});
            EXPECT_EQ_UINT(count_calls(world, kind), k - 1);
            EXPECT(threads_world_fired(world) == (k <= 3));
            threads_world_destroy(world);
        }
    struct threads_world *alone = threads_world_new(
        &(struct threads_options){.ranks = 1, .fail_call = 2, .fail_kind = THREADS_OPEN});
    EXPECT_STATUS(open_as(threads_world_rank(alone, 0), 1), WEIR_OK);
    EXPECT_STATUS(open_as(threads_world_rank(alone, 0), 1), WEIR_ERR_PEER);
    threads_world_destroy(alone);
    struct threads_world *any =
        new_world(&(struct threads_options){.fail_rank = 1, .fail_call = 4});
    EXPECT_EQ_UINT(count_calls(any, THREADS_TEST), 1); /* the second receive's test */
    threads_world_destroy(any);
}

static void test_nobody_hears_of_a_rank_that_is_dropped(void) {
    struct threads_world *world =
        new_world(&(struct threads_options){.drop_rank = 1, .drop_call = 2});
    struct weir_world *zero = threads_world_rank(world, 0), *one = threads_world_rank(world, 1);
    struct weir_request sending, receiving;
    uint32_t data = 5, got, rank;
    int exit_status;
    bool ended;
    EXPECT_STATUS(receive_from(zero, 1, &got, sizeof got, &receiving), WEIR_OK);
    EXPECT_STATUS(receive_from(one, 0, &data, sizeof data, &sending), WEIR_OK);
    EXPECT(!threads_world_fired(world));
    EXPECT_STATUS(send_to(one, 0, &data, sizeof data, &sending), WEIR_ERR_PEER);
    EXPECT(threads_world_fired(world));
    EXPECT_EQ_STR(reason_of(one), "rank 1 was dropped");
    one->calls->abort(one->context, 1);
    EXPECT(!threads_world_aborted(world, &rank, &exit_status));
    EXPECT_STATUS(test_of(one, &sending, &ended), WEIR_ERR_PEER);
    EXPECT(!ends(zero, &receiving));
    one->calls->close(one->context); /* does not wait */
    threads_world_destroy(world);
}

/* ---- misuse ---------------------------------------------------------------------------------- */

static struct threads_world *new_misused(uint64_t seed) {
    return new_world(&(struct threads_options){.seed = seed, .keeps_faults = true});
}

static void test_messages_that_cannot_be_are_found(void) {
    struct threads_world *world = new_misused(0);
    struct weir_world *one = threads_world_rank(world, 1);
    struct weir_request request, other;
    struct weir_message message = {.peer = 0, .channel = 1};
    uint32_t data;
    bool ended;
    EXPECT_STATUS(one->calls->send(one->context, &message, &other), WEIR_ERR_ARGUMENT);
    message = (struct weir_message){.peer = 0, .tag = WEIR_TAG_MOST + 1};
    EXPECT_STATUS(one->calls->send(one->context, &message, &other), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(send_to(one, 1, &data, 0, &other), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(receive_from(one, 2, &data, 0, &other), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(receive_from(one, 0, NULL, 1, &other), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(receive_from(one, 0, &data, 4, &request), WEIR_OK);
    EXPECT_STATUS(receive_from(one, 0, &data, 4, &request), WEIR_ERR_ARGUMENT);
    other = request;
    EXPECT_STATUS(test_of(one, &other, &ended), WEIR_ERR_ARGUMENT);
    memset(&request, 0, sizeof request);
    EXPECT_STATUS(test_of(one, &request, &ended), WEIR_ERR_ARGUMENT);
    EXPECT_EQ_STR(reason_of(one), "a request was written to");
    EXPECT_FAULTS(threads_world_faults(world), "rank 1: channel 1 of 1", "rank 1: tag 32768",
                  "rank 1: peer 1 of 2", "rank 1: peer 2 of 2", "rank 1: bytes without memory",
                  "rank 1: a request that is under way is begun",
                  "rank 1: a request that is not under way", "rank 1: a request was written to");
    threads_world_destroy(world);
}

static void test_a_send_cannot_be_cancelled(void) {
    struct threads_world *world = new_misused(0);
    struct weir_world *zero = threads_world_rank(world, 0);
    struct weir_request request;
    bool ended;
    EXPECT_STATUS(send_to(zero, 1, NULL, 0, &request), WEIR_OK);
    EXPECT_STATUS(zero->calls->cancel(zero->context, &request, &ended), WEIR_ERR_ARGUMENT);
    EXPECT(!ended);
    EXPECT_FAULTS(threads_world_faults(world), "rank 0: a send is cancelled");
    threads_world_destroy(world);
}

/* By its sender, whether its bytes were copied or not; and by its receiver. */
static void write_early(uint64_t seed, bool sender) {
    struct threads_world *world = new_misused(seed);
    struct weir_world *zero = threads_world_rank(world, 0), *one = threads_world_rank(world, 1);
    struct weir_request sending, receiving;
    uint32_t data = 5, got;
    EXPECT_STATUS(receive_from(one, 0, &got, sizeof got, &receiving), WEIR_OK);
    EXPECT_STATUS(send_to(zero, 1, &data, sizeof data, &sending), WEIR_OK);
    *(sender ? &data : &got) = 4;
    EXPECT_STATUS(drive(world, &sending, &receiving), sender ? WEIR_OK : WEIR_ERR_ARGUMENT);
    EXPECT_FAULTS(threads_world_faults(world), sender ? "rank 0: a send's memory was written to"
                                                      : "rank 1: a receive's memory was written");
    threads_world_destroy(world);
}

static void test_memory_that_is_written_to_before_the_end_is_found(void) {
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        write_early(seed, true);
        write_early(seed, false);
    }
}

static void *open_on_a_thread(void *context) {
    EXPECT_STATUS(open_as(context, 2), WEIR_OK);
    return NULL;
}

static void test_two_threads_in_calls_of_one_rank_are_found(void) {
    struct threads_world *world = new_misused(0);
    struct weir_world *zero = threads_world_rank(world, 0), *one = threads_world_rank(world, 1);
    struct weir_request request;
    pthread_t thread;
    CHECK_EQ_INT(pthread_create(&thread, NULL, open_on_a_thread, zero), 0);
    for (bool inside = false; !inside; sched_yield()) {
        pthread_mutex_lock(&world->lock);
        inside = world->gathered == 1;
        pthread_mutex_unlock(&world->lock);
    }
    EXPECT_STATUS(send_to(zero, 1, NULL, 0, &request), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(open_as(one, 2), WEIR_OK);
    pthread_join(thread, NULL);
    EXPECT_STATUS(send_to(zero, 1, NULL, 0, &request), WEIR_OK);
    EXPECT_FAULTS(threads_world_faults(world), "rank 0: a call while another thread is in one");
    threads_world_destroy(world);
}

static int open_differently(void *context, struct weir_world *world) {
    (void)context;
    return open_as(world, 3 + world->rank);
}

static void test_collective_calls_that_differ_are_found(void) {
    struct threads_world *world = new_misused(0);
    EXPECT_STATUS(threads_world_run(world, open_differently, NULL), WEIR_OK);
    CHECK_EQ_UINT(threads_world_faults(world)->count, 1);
    EXPECT_CONTAINS(threads_world_faults(world)->lines[0], "where another came for open(");
    threads_world_destroy(world);
}

/* Rank 0's send is copied, so that it may end; the other's receive waits for another channel. */
static int forget(void *context, struct weir_world *world) {
    struct weir_request *requests = context;
    struct weir_message message = {.peer = 0, .channel = 1};
    int status = open_as(world, 2);
    if (status != WEIR_OK) return status;
    if (world->rank == 1) return world->calls->receive(world->context, &message, &requests[1]);
    status = send_to(world, 1, NULL, 0, &requests[0]);
    EXPECT(ends(world, &requests[0]));
    return status;
}

static uint64_t copying_seed(void) {
    uint64_t seed = 0;
    while (!send_ends_alone(seed)) seed++;
    return seed;
}

static void test_what_is_left_at_close_is_found(void) {
    struct weir_request requests[2];
    struct threads_world *world = new_misused(copying_seed());
    struct weir_world *one = threads_world_rank(world, 1);
    EXPECT_STATUS(threads_world_run(world, forget, requests), WEIR_OK);
    EXPECT_STATUS(send_to(one, 0, NULL, 0, &requests[0]), WEIR_ERR_ARGUMENT);
    one->calls->close(one->context);
    EXPECT_FAULTS(threads_world_faults(world),
                  "rank 1: under way at close: receive from 0 on channel 1",
                  "rank 0: not received at close: send to 1 on channel 0",
                  "rank 1: a call after close", "rank 1: closed twice");
    threads_world_destroy(world);
}

/* ---- worlds ---------------------------------------------------------------------------------- */

static void test_ranks_know_their_hosts(void) {
    static const uint32_t host_ranks[] = {0, 1, 0, 1, 0}, host_counts[] = {2, 2, 2, 2, 1};
    static const char *const hosts[] = {"host-0", "host-0", "host-1", "host-1", "host-2"};
    struct threads_world *world =
        new_world(&(struct threads_options){.ranks = 5, .ranks_per_host = 2});
    for (uint32_t r = 0; r < 5; r++) {
        const struct weir_world *rank = threads_world_rank(world, r);
        EXPECT_EQ_UINT(rank->size, sizeof *rank);
        EXPECT_EQ_UINT(rank->rank, r);
        EXPECT_EQ_UINT(rank->rank_count, 5);
        EXPECT_EQ_UINT(rank->host_rank, host_ranks[r]);
        EXPECT_EQ_UINT(rank->host_count, host_counts[r]);
        EXPECT_EQ_STR(rank->host, hosts[r]);
    }
    threads_world_destroy(world);
}

WEIR_TEST_SUITE(
    threads_world, TEST(each_way_keeps_its_order_and_nothing_else_does),
    TEST(abort_ends_all_that_wait), TEST(a_rank_that_ends_with_a_failure_ends_the_others),
    TEST(without_a_launcher_nobody_is_told), TEST(a_run_that_hangs_says_what_each_rank_waits_for),
    TEST(a_send_ends_before_or_after_its_receive_begins),
    TEST(messages_move_in_calls_of_their_ends_only),
    TEST(the_memory_of_a_receive_is_no_number_until_its_end),
    TEST(a_receive_with_too_little_room_fails), TEST(a_receive_is_cancelled_until_its_message_came),
    TEST(what_a_cancelled_receive_waited_for_is_the_next_ones), TEST(a_given_call_fails),
    TEST(nobody_hears_of_a_rank_that_is_dropped), TEST(messages_that_cannot_be_are_found),
    TEST(a_send_cannot_be_cancelled), TEST(memory_that_is_written_to_before_the_end_is_found),
    TEST(two_threads_in_calls_of_one_rank_are_found), TEST(collective_calls_that_differ_are_found),
    TEST(what_is_left_at_close_is_found), TEST(ranks_know_their_hosts))

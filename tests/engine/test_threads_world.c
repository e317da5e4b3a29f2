/* SPDX-License-Identifier: MIT */
/*
 * Goal: the world of threads keeps the order of weir_world.h and no other, and ends ranks as
 * processes end: by abort, by their launcher, or never. Method: ranks on threads of their own,
 * which exchange numbered messages on all ways under many seeds, or wait for each other in vain.
 */
#include "engine/threads_inside.h"
#include "engine/world_calls.h"
#include "harness.h"

#include "base/base.h"

#include <sched.h>
#include <string.h>
#include <time.h>

enum { RANKS = 3, CHANNELS = 3, MESSAGES = 5, BYTES_MAX = 40, SEEDS = 200, TURNS = 200, DELAY = 6 };

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
    if (status == WEIR_OK && !parcel->ended) EXPECT_EQ_UINT(arrival.tag, UINT32_MAX);
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
    int status = world_open(world, CHANNELS);
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

/* One message; its sender closes as soon as its send has ended. */
static int send_and_close(void *context, struct weir_world *world) {
    struct weir_request request;
    uint32_t data = 5;
    bool ended = false;
    (void)context;
    int status = world->rank == 0 ? world_send(world, 1, &data, sizeof data, &request)
                                  : world_receive(world, 0, &data, sizeof data, &request);
    while (status == WEIR_OK && !ended) status = world_test(world, &request, &ended);
    EXPECT_EQ_UINT(data, 5);
    return status;
}

static void test_messages_go_on_while_their_sender_closes(void) {
    for (uint64_t seed = 0; seed < 20 && !test_has_failed(); seed++) {
        struct threads_world *world = threads_world_new(&(struct threads_options){
            .ranks = 2, .channels = 1, .limit_s = 5, .seed = seed, .delay = 50});
        EXPECT_STATUS(threads_world_run(world, send_and_close, NULL), WEIR_OK);
        threads_world_destroy(world);
    }
}

/* Polls for what never comes. */
static int wait_in_vain(void *context, struct weir_world *world) {
    struct weir_request request;
    char data[4];
    bool ended = false;
    int status = world_receive(world, (world->rank + 1) % world->rank_count, data, 4, &request);
    (void)context;
    while (status == WEIR_OK && !ended) status = world_test(world, &request, &ended);
    return status;
}

/* The last does what `context` says, the others wait. */
static int end_all_others(void *context, struct weir_world *world) {
    const char *how = context;
    bool last = world->rank + 1 == world->rank_count;
    if (!last && world->rank == 1) return world_open(world, 2);
    if (!last) return wait_in_vain(NULL, world);
    if (strcmp(how, "fail") == 0) return WEIR_ERR_IO;
    world->calls->abort(world->context, 3);
    return WEIR_OK;
}

static void test_abort_ends_all_that_wait(void) {
    uint32_t rank;
    int exit_status;
    struct threads_world *world =
        threads_world_new(&(struct threads_options){.ranks = 3, .channels = 1});
    EXPECT(!threads_world_aborted(world, &rank, &exit_status));
    EXPECT_STATUS(threads_world_run(world, end_all_others, "abort"), WEIR_ERR_PEER);
    EXPECT(threads_world_aborted(world, &rank, &exit_status));
    EXPECT_EQ_UINT(rank, 2);
    EXPECT_EQ_INT(exit_status, 3);
    for (uint32_t r = 0; r < 2; r++)
        EXPECT_EQ_STR(world_reason(threads_world_rank(world, r)),
                      "rank 2 ended all with exit status 3");
    threads_world_destroy(world);
}

static void test_a_rank_that_ends_with_a_failure_ends_the_others(void) {
    uint32_t rank;
    int exit_status;
    struct threads_world *world =
        threads_world_new(&(struct threads_options){.ranks = 3, .channels = 1});
    EXPECT_STATUS(threads_world_run(world, end_all_others, "fail"), WEIR_ERR_IO);
    EXPECT(!threads_world_aborted(world, &rank, &exit_status));
    EXPECT_EQ_STR(world_reason(threads_world_rank(world, 0)), "rank 2 ended with ERR_IO");
    threads_world_destroy(world);
}

/* Rank 0 goes on until it has seen for long that the other failed. */
static int outlive(void *context, struct weir_world *world) {
    struct threads_world *threads = context;
    struct weir_request request;
    char data[4];
    bool ended = false, returned = false;
    if (world->rank == 1) return WEIR_ERR_IO;
    int status = world_receive(world, 1, data, sizeof data, &request);
    for (int i = 0; i < TURNS && status == WEIR_OK; i += returned) {
        status = world_test(world, &request, &ended);
        pthread_mutex_lock(&threads->lock);
        returned = threads->ranks[1].returned;
        pthread_mutex_unlock(&threads->lock);
    }
    EXPECT_STATUS(status, WEIR_OK);
    world->calls->abort(world->context, 1);
    return status;
}

static void wait_until_one_gathered(struct threads_world *world) {
    for (bool inside = false; !inside; sched_yield()) {
        pthread_mutex_lock(&world->lock);
        inside = world->gathered == 1;
        pthread_mutex_unlock(&world->lock);
    }
}

/* Rank 0 closes with a send under way, as it must after a failure, and gives its memory back. The
 * other receives that meanwhile. */
static int fail_and_close(void *context, struct weir_world *world) {
    struct weir_request request;
    uint8_t data[BYTES_MAX] = {1};
    bool ended;
    if (world->rank == 1) {
        EXPECT_STATUS(world_receive(world, 0, data, sizeof data, &request), WEIR_OK);
        wait_until_one_gathered(context);
        EXPECT_STATUS(world_test(world, &request, &ended), WEIR_OK);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        world->calls->close(world->context);
        return WEIR_OK;
    }
    EXPECT_STATUS(world_send(world, 1, data, sizeof data, &request), WEIR_OK);
    EXPECT_STATUS(world_test(world, &request, &ended), WEIR_ERR_PEER);
    memset(data, 0, sizeof data);
    world->calls->close(world->context);
    return WEIR_OK;
}

static void test_memory_of_requests_may_be_given_back_after_a_failure(void) {
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct threads_world *world = threads_world_new(
            &(struct threads_options){.ranks = 2, .channels = 1, .seed = seed, .fail_call = 2});
        EXPECT_STATUS(threads_world_run(world, fail_and_close, world), WEIR_OK);
        threads_world_destroy(world);
    }
}

static void test_without_a_launcher_nobody_is_told(void) {
    struct threads_world *world = threads_world_new(
        &(struct threads_options){.ranks = 2, .channels = 1, .no_launcher = true});
    EXPECT_STATUS(threads_world_run(world, outlive, world), WEIR_ERR_IO);
    threads_world_destroy(world);
}

static void test_a_run_that_hangs_says_what_each_rank_waits_for(void) {
    char last[256];
    struct threads_world *world =
        threads_world_new(&(struct threads_options){.ranks = 2, .channels = 1, .limit_s = 1});
    test_expect_failures_begin();
    int status = threads_world_run(world, wait_in_vain, NULL);
    EXPECT_EQ_INT(test_expect_failures_end(last, sizeof last), 5);
    EXPECT_STATUS(status, WEIR_ERR_PEER);
    EXPECT_CONTAINS(last, "rank 1: receive from 0 on channel 0, 4 bytes, tag 0: nothing was sent");
    EXPECT_EQ_STR(world_reason(threads_world_rank(world, 0)), "the test's limit of 1 s");
    threads_world_destroy(world);
}

static void *open_on_a_thread(void *context) {
    EXPECT_STATUS(world_open(context, 2), WEIR_OK);
    return NULL;
}

static void test_two_threads_in_calls_of_one_rank_are_found(void) {
    struct threads_world *world = threads_world_new(
        &(struct threads_options){.ranks = 2, .channels = 1, .keeps_faults = true});
    struct weir_world *zero = threads_world_rank(world, 0), *one = threads_world_rank(world, 1);
    struct weir_request request;
    pthread_t thread;
    CHECK_EQ_INT(pthread_create(&thread, NULL, open_on_a_thread, zero), 0);
    wait_until_one_gathered(world);
    EXPECT_STATUS(world_send(zero, 1, NULL, 0, &request), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(world_open(one, 2), WEIR_OK);
    pthread_join(thread, NULL);
    EXPECT_STATUS(world_send(zero, 1, NULL, 0, &request), WEIR_OK);
    EXPECT_FAULTS(threads_world_faults(world), "rank 0: a call while another thread is in one");
    threads_world_destroy(world);
}

static int open_differently(void *context, struct weir_world *world) {
    (void)context;
    return world_open(world, 3 + world->rank);
}

static void test_collective_calls_that_differ_are_found(void) {
    struct threads_world *world = threads_world_new(
        &(struct threads_options){.ranks = 2, .channels = 1, .keeps_faults = true});
    EXPECT_STATUS(threads_world_run(world, open_differently, NULL), WEIR_OK);
    CHECK_EQ_UINT(threads_world_faults(world)->count, 1);
    EXPECT_CONTAINS(threads_world_faults(world)->lines[0], "where another came for open(");
    threads_world_destroy(world);
}

/* Rank 0's send ends, but nobody receives it; the other's receive waits for another channel. */
static int forget(void *context, struct weir_world *world) {
    struct weir_request *requests = context;
    struct weir_message message = {.peer = 0, .channel = 1};
    if (world->rank == 1) return world->calls->receive(world->context, &message, &requests[1]);
    int status = world_send(world, 1, NULL, 0, &requests[0]);
    EXPECT(world_ends(world, &requests[0], TURNS));
    return status;
}

/* Its first message's bytes are copied. */
static struct threads_world *new_copying(void) {
    struct threads_options options = {.ranks = 2, .channels = 2, .keeps_faults = true};
    for (bool copied = false; !copied; options.seed += !copied) {
        struct weir_request request;
        struct threads_world *world = threads_world_new(&options);
        EXPECT_STATUS(world_send(threads_world_rank(world, 0), 1, NULL, 0, &request), WEIR_OK);
        copied = threads_world_counts(world).copied == 1;
        threads_world_destroy(world);
    }
    return threads_world_new(&options);
}

static void test_what_is_left_at_close_is_found(void) {
    struct weir_request requests[2];
    struct threads_world *world = new_copying();
    struct weir_world *one = threads_world_rank(world, 1);
    EXPECT_STATUS(threads_world_run(world, forget, requests), WEIR_OK);
    EXPECT_STATUS(world_send(one, 0, NULL, 0, &requests[0]), WEIR_ERR_ARGUMENT);
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
        threads_world_new(&(struct threads_options){.ranks = 5, .ranks_per_host = 2});
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

WEIR_TEST_SUITE(threads_world, TEST(each_way_keeps_its_order_and_nothing_else_does),
                TEST(messages_go_on_while_their_sender_closes), TEST(abort_ends_all_that_wait),
                TEST(a_rank_that_ends_with_a_failure_ends_the_others),
                TEST(memory_of_requests_may_be_given_back_after_a_failure),
                TEST(without_a_launcher_nobody_is_told),
                TEST(a_run_that_hangs_says_what_each_rank_waits_for),
                TEST(two_threads_in_calls_of_one_rank_are_found),
                TEST(collective_calls_that_differ_are_found), TEST(what_is_left_at_close_is_found),
                TEST(ranks_know_their_hosts))

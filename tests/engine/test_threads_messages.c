/* SPDX-License-Identifier: MIT */
/*
 * Goal: messages of the world of threads are as late as weir_world.h permits, calls fail where they
 * are asked to, and what callers may not do is found. Method: one thread calls for all ranks, so
 * that all happens in a given order, under many seeds.
 */
#include "engine/threads_world.h"
#include "engine/world_calls.h"
#include "harness.h"

#include <string.h>

enum { SEEDS = 200, TURNS = 200, DELAY = 6 };

static struct threads_world *new_world(const struct threads_options *options) {
    struct threads_options own = *options;
    if (own.ranks == 0) own.ranks = 2;
    own.channels = 1;
    return threads_world_new(&own);
}

/* Tests a send of rank 0 and its receive at rank 1 in turn; the first failure. */
static int drive(struct threads_world *world, struct weir_request *sending,
                 struct weir_request *receiving) {
    struct weir_world *zero = threads_world_rank(world, 0), *one = threads_world_rank(world, 1);
    bool sent = false, came = false;
    int status = WEIR_OK;
    for (int i = 0; i < TURNS && !(sent && came); i++) {
        if (!sent) status = world_test(zero, sending, &sent);
        if (status != WEIR_OK) return status;
        if (!came) status = world_test(one, receiving, &came);
        if (status != WEIR_OK) return status;
    }
    EXPECT(sent && came);
    return WEIR_OK;
}

/* Of three ranks the first sends to the second; what it receives from the third never comes, but is
 * something to call for. */
struct sending {
    struct threads_world *world;
    struct weir_world *zero, *one;
    struct weir_request request, received, idle;
    uint32_t data, got, none;
};

static void begin_sending(struct sending *sending, const struct threads_options *options) {
    struct threads_options own = *options;
    own.ranks = 3;
    sending->world = new_world(&own);
    sending->zero = threads_world_rank(sending->world, 0);
    sending->one = threads_world_rank(sending->world, 1);
    sending->data = 5, sending->got = 6;
    EXPECT_STATUS(world_receive(sending->zero, 2, &sending->none, 4, &sending->idle), WEIR_OK);
    EXPECT_STATUS(world_send(sending->zero, 1, &sending->data, 4, &sending->request), WEIR_OK);
}

static bool send_ends_alone(uint64_t seed) {
    struct sending sending;
    begin_sending(&sending, &(struct threads_options){.seed = seed, .delay = DELAY});
    bool alone = world_ends(sending.zero, &sending.request, TURNS);
    if (alone) sending.data = 7; /* is the caller's again */
    EXPECT(!world_ends(sending.zero, &sending.idle, TURNS));
    EXPECT_EQ_UINT(threads_world_counts(sending.world).unexpected, 0);
    EXPECT_STATUS(world_receive(sending.one, 0, &sending.got, 4, &sending.received), WEIR_OK);
    EXPECT_EQ_UINT(sending.got, UINT32_MAX);
    bool came = world_ends(sending.one, &sending.received, TURNS);
    EXPECT(!came || alone);
    if (!alone) EXPECT(world_ends(sending.zero, &sending.request, TURNS));
    EXPECT(!world_ends(sending.zero, &sending.idle, TURNS));
    EXPECT(came || world_ends(sending.one, &sending.received, TURNS));
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
    uint32_t held = 0, late = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct sending sending;
        bool ended;
        begin_sending(&sending, &(struct threads_options){.seed = seed, .delay = DELAY});
        EXPECT_STATUS(world_receive(sending.one, 0, &sending.got, 4, &sending.received), WEIR_OK);
        EXPECT_STATUS(world_test(sending.zero, &sending.request, &ended), WEIR_OK);
        bool came = world_ends(sending.one, &sending.received, TURNS);
        held += ended && !came;
        late += !ended && threads_world_counts(sending.world).copied == 1;
        for (int i = 0; i < TURNS && !came; i++) { /* any call of the sender's will do */
            EXPECT_STATUS(world_test(sending.zero, &sending.idle, &came), WEIR_OK);
            EXPECT_STATUS(world_test(sending.one, &sending.received, &came), WEIR_OK);
        }
        EXPECT(came);
        threads_world_destroy(sending.world);
    }
    EXPECT(held > SEEDS / 10);
    EXPECT(late > SEEDS / 10);
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
    EXPECT_STATUS(world_receive(zero, 1, &none, 1, &idle), WEIR_OK);
    EXPECT_STATUS(world_receive(one, 0, got, sizeof got, &receiving), WEIR_OK);
    EXPECT_STATUS(world_send(zero, 1, data, sizeof data, &sending), WEIR_OK);
    for (int i = 0; i < TURNS && !ended; i++) {
        seen[got[0] == 1 ? 2 : got[sizeof data - 1] == 1 ? 1 : 0]++;
        EXPECT(got[0] == 0xFF || got[0] == 1);
        EXPECT_EQ_UINT(got[sizeof data], 0xFF);
        EXPECT_STATUS(sent ? world_test(zero, &idle, &never) : world_test(zero, &sending, &sent),
                      0);
        EXPECT_STATUS(world_test(one, &receiving, &ended), WEIR_OK);
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
    EXPECT_STATUS(world_receive(one, 0, got, sizeof got, &receiving), WEIR_OK);
    EXPECT_STATUS(world_send(zero, 1, data, sizeof data, &sending), WEIR_OK);
    EXPECT_STATUS(drive(world, &sending, &receiving), WEIR_ERR_PEER);
    EXPECT_EQ_STR(world_reason(one), "8 bytes came from rank 0 on channel 0 for room of 7");
    EXPECT_STATUS(world_test(one, &receiving, &ended), WEIR_ERR_PEER);
    EXPECT_EQ_STR(world_reason(one), "a call of this rank failed before");
    threads_world_destroy(world);
}

static void test_a_receive_is_cancelled_until_its_message_came(void) {
    struct threads_world *world = new_world(&(struct threads_options){0});
    struct weir_world *zero = threads_world_rank(world, 0), *one = threads_world_rank(world, 1);
    struct weir_request sending, first, second;
    uint32_t data = 5, got;
    bool ended = false;
    EXPECT_STATUS(world_receive(one, 0, &got, sizeof got, &first), WEIR_OK);
    EXPECT_STATUS(world_cancel(one, &first, &ended), WEIR_OK);
    EXPECT(ended);
    EXPECT_STATUS(world_receive(one, 0, &got, sizeof got, &second), WEIR_OK);
    EXPECT_STATUS(world_send(zero, 1, &data, sizeof data, &sending), WEIR_OK);
    EXPECT_STATUS(world_cancel(one, &second, &ended), WEIR_OK);
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
        EXPECT_STATUS(world_receive(one, 0, &before, sizeof before, &first), WEIR_OK);
        EXPECT_STATUS(world_receive(one, 0, &after, sizeof after, &second), WEIR_OK);
        EXPECT_STATUS(world_send(zero, 1, &data, sizeof data, &sending), WEIR_OK);
        EXPECT_STATUS(world_cancel(one, &first, &ended), WEIR_OK);
        cancelled += ended;
        EXPECT_STATUS(drive(world, &sending, ended ? &second : &first), WEIR_OK);
        EXPECT_EQ_UINT(ended ? after : before, 5);
        threads_world_destroy(world);
    }
    EXPECT(cancelled > SEEDS / 10 && cancelled < SEEDS * 9 / 10);
}

/* How many tests of a receive say no where its sender calls as often. */
static uint64_t count_late(uint64_t seed, uint32_t delay_us) {
    struct sending sending;
    bool came = false, never;
    begin_sending(&sending, &(struct threads_options){.seed = seed, .delay_us = delay_us});
    EXPECT_STATUS(world_receive(sending.one, 0, &sending.got, 4, &sending.received), WEIR_OK);
    while (!came && !test_has_failed()) {
        EXPECT_STATUS(world_test(sending.zero, &sending.idle, &never), WEIR_OK);
        EXPECT_STATUS(world_test(sending.one, &sending.received, &came), WEIR_OK);
    }
    EXPECT_EQ_UINT(sending.got, 5);
    uint64_t late = threads_world_counts(sending.world).late;
    threads_world_destroy(sending.world);
    return late;
}

static void test_messages_take_time_where_that_is_wanted(void) {
    uint32_t late = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        EXPECT_EQ_UINT(count_late(seed, 0), 0);
        late += count_late(seed, 200) > 0;
    }
    EXPECT(late > SEEDS / 2);
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
        if (kind != THREADS_SEND) status = world_receive(one, 0, &data[count], 4, request);
        if (kind == THREADS_SEND) status = world_send(one, 0, &count, 0, &others[count]);
        if (kind == THREADS_TEST) status = world_test(one, request, &ended);
        if (kind == THREADS_CANCEL) status = world_cancel(one, request, &ended);
        if (status == WEIR_OK) continue;
        EXPECT_STATUS(status, WEIR_ERR_PEER);
        EXPECT_CONTAINS(world_reason(one), "of rank 1 was to fail");
        EXPECT_STATUS(world_receive(one, 0, &data[count], 4, request), WEIR_ERR_PEER);
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
    EXPECT_STATUS(world_open(threads_world_rank(alone, 0), 1), WEIR_OK);
    EXPECT_STATUS(world_open(threads_world_rank(alone, 0), 1), WEIR_ERR_PEER);
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
    EXPECT_STATUS(world_receive(zero, 1, &got, sizeof got, &receiving), WEIR_OK);
    EXPECT_STATUS(world_receive(one, 0, &data, sizeof data, &sending), WEIR_OK);
    EXPECT(!threads_world_fired(world));
    EXPECT_STATUS(world_send(one, 0, &data, sizeof data, &sending), WEIR_ERR_PEER);
    EXPECT(threads_world_fired(world));
    EXPECT_EQ_STR(world_reason(one), "rank 1 was dropped");
    one->calls->abort(one->context, 1);
    EXPECT(!threads_world_aborted(world, &rank, &exit_status));
    EXPECT_STATUS(world_test(one, &sending, &ended), WEIR_ERR_PEER);
    EXPECT(!world_ends(zero, &receiving, TURNS));
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
    uint32_t data = 0;
    bool ended;
    EXPECT_STATUS(one->calls->send(one->context, &message, &other), WEIR_ERR_ARGUMENT);
    message = (struct weir_message){.peer = 0, .tag = WEIR_TAG_MOST + 1};
    EXPECT_STATUS(one->calls->send(one->context, &message, &other), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(world_send(one, 1, &data, 0, &other), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(world_receive(one, 2, &data, 0, &other), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(world_receive(one, 0, NULL, 1, &other), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(world_receive(one, 0, &data, 4, &request), WEIR_OK);
    EXPECT_STATUS(world_receive(one, 0, &data, 4, &request), WEIR_ERR_ARGUMENT);
    other = request;
    EXPECT_STATUS(world_test(one, &other, &ended), WEIR_ERR_ARGUMENT);
    memset(&request, 0, sizeof request);
    EXPECT_STATUS(world_test(one, &request, &ended), WEIR_ERR_ARGUMENT);
    EXPECT_EQ_STR(world_reason(one), "a request was written to");
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
    EXPECT_STATUS(world_send(zero, 1, NULL, 0, &request), WEIR_OK);
    EXPECT_STATUS(world_cancel(zero, &request, &ended), WEIR_ERR_ARGUMENT);
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
    EXPECT_STATUS(world_receive(one, 0, &got, sizeof got, &receiving), WEIR_OK);
    EXPECT_STATUS(world_send(zero, 1, &data, sizeof data, &sending), WEIR_OK);
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

WEIR_TEST_SUITE(threads_messages, TEST(a_send_ends_before_or_after_its_receive_begins),
                TEST(messages_move_in_calls_of_their_ends_only),
                TEST(messages_take_time_where_that_is_wanted),
                TEST(the_memory_of_a_receive_is_no_number_until_its_end),
                TEST(a_receive_with_too_little_room_fails),
                TEST(a_receive_is_cancelled_until_its_message_came),
                TEST(what_a_cancelled_receive_waited_for_is_the_next_ones),
                TEST(a_given_call_fails), TEST(nobody_hears_of_a_rank_that_is_dropped),
                TEST(messages_that_cannot_be_are_found), TEST(a_send_cannot_be_cancelled),
                TEST(memory_that_is_written_to_before_the_end_is_found))

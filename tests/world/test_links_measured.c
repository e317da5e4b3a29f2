/* SPDX-License-Identifier: MIT */
/*
 * Goal: ranks find what the ways between them cost, and their clocks' offsets within what they say.
 * Method: fits of made-up times; ranks that are threads, whose messages are held back as long as a
 * link would take, each direction another.
 */
#include "engine/threads_world.h"
#include "harness.h"

#include "base/base.h"
#include "world/links.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { RANKS_MOST = 9 };

/* ---- the fit ---- */

static void test_a_fit_finds_the_line_that_times_lie_on(void) {
    double bytes[WEIR__LINK_SIZES], seconds[WEIR__LINK_SIZES];
    for (uint32_t i = 0; i < WEIR__LINK_SIZES; i++) {
        bytes[i] = (double)weir__link_size(i);
        seconds[i] = 20e-6 + bytes[i] / 1.25e8;
    }
    EXPECT_NEAR(bytes[WEIR__LINK_SIZES - 1], 4.0 * 1024 * 1024, 0.0);
    struct weir_link_cost cost = weir__link_fit(bytes, seconds, WEIR__LINK_SIZES);
    EXPECT_NEAR(cost.latency, 20e-6, 1e-12);
    EXPECT_NEAR(1.0 / cost.seconds_per_byte, 1.25e8, 1.0);
    for (uint32_t i = 0; i < WEIR__LINK_SIZES; i++) seconds[i] *= i % 2 == 0 ? 1.1 : 0.9;
    cost = weir__link_fit(bytes, seconds, WEIR__LINK_SIZES);
    EXPECT_NEAR(cost.latency, 20e-6, 2e-6);
    EXPECT_NEAR(1.0 / cost.seconds_per_byte, 1.25e8, 1.5e7);
}

/* As over a link of 1 Gbit/s, which lends to a burst what small messages need. */
static void test_a_few_sizes_that_go_otherwise_bend_no_fit(void) {
    double bytes[WEIR__LINK_SIZES], seconds[WEIR__LINK_SIZES];
    for (uint32_t i = 0; i < WEIR__LINK_SIZES; i++) {
        bytes[i] = (double)weir__link_size(i);
        seconds[i] = bytes[i] <= 256 ? 6.5e-6 : bytes[i] <= 2048 ? 11.5e-6 : bytes[i] / 1.2e8;
    }
    struct weir_link_cost cost = weir__link_fit(bytes, seconds, WEIR__LINK_SIZES);
    EXPECT_NEAR(1.0 / cost.seconds_per_byte, 1.2e8, 2.4e6);
    EXPECT(cost.latency < 7e-6);
}

static double errors_of(const double *seconds, double latency, double slope) {
    double sum = 0;
    for (uint32_t i = 0; i < WEIR__LINK_SIZES; i++)
        sum += fabs((latency + (double)weir__link_size(i) * slope) / seconds[i] - 1);
    return sum;
}

/* Of random times, against random lines. */
static void test_no_line_is_nearer_than_the_fit(void) {
    double bytes[WEIR__LINK_SIZES], seconds[WEIR__LINK_SIZES];
    for (uint32_t i = 0; i < WEIR__LINK_SIZES; i++) {
        bytes[i] = (double)weir__link_size(i);
        seconds[i] = (1e-5 + bytes[i] / 1e8) * (0.3 + 2 * test_random_unit());
    }
    struct weir_link_cost cost = weir__link_fit(bytes, seconds, WEIR__LINK_SIZES);
    double least = errors_of(seconds, cost.latency, cost.seconds_per_byte);
    for (int k = 0; k < 20000 && !test_has_failed(); k++)
        EXPECT(errors_of(seconds, 4e-5 * test_random_unit(), 4e-8 * test_random_unit()) >=
               least * (1 - 1e-12));
}

static void test_a_fit_is_never_below_zero(void) {
    static const double bytes[] = {8, 1024, 1048576};
    static const double falls[] = {3e-6, 2e-6, 1e-6}, bends[] = {1e-9, 1e-6, 4e-3};
    struct weir_link_cost cost = weir__link_fit(bytes, falls, 3);
    EXPECT_NEAR(cost.seconds_per_byte, 0.0, 0.0);
    EXPECT_NEAR(cost.latency, 1e-6, 1e-15); /* off by 2/3, 1/2 and nothing; at 2 us by 1/3 and 1 */
    cost = weir__link_fit(bytes, bends, 3);
    EXPECT(cost.latency >= 0.0 && cost.seconds_per_byte > 0.0);
    cost = weir__link_fit(bytes, falls, 1);
    EXPECT_NEAR(cost.latency, 3e-6, 1e-15);
}

/* ---- links of known costs ---- */

/* Time goes on by messages alone, and ranks tell it differently. */
static atomic_uint_fast64_t clock_ns;
static _Thread_local uint64_t ahead_ns;

static uint64_t now(void) {
    return atomic_load(&clock_ns) + ahead_ns;
}

/* A rank's world whose messages take as long as a link would. */
struct slow_world {
    struct weir_world *inner;
    struct weir_world world;
    struct weir_world_calls calls;
    const struct weir_link_cost *costs; /* [from * ranks + to] */
};

static int slow_open(void *context, uint32_t count) {
    struct slow_world *slow = context;
    return slow->inner->calls->open(slow->inner->context, count);
}

static int slow_send(void *context, const struct weir_message *message,
                     struct weir_request *request) {
    struct slow_world *slow = context;
    const struct weir_link_cost *cost =
        &slow->costs[slow->world.rank * slow->world.rank_count + message->peer];
    double seconds = cost->latency + (double)message->bytes * cost->seconds_per_byte;
    atomic_fetch_add(&clock_ns, (uint64_t)(seconds * 1e9));
    return slow->inner->calls->send(slow->inner->context, message, request);
}

static int slow_receive(void *context, const struct weir_message *message,
                        struct weir_request *request) {
    struct slow_world *slow = context;
    return slow->inner->calls->receive(slow->inner->context, message, request);
}

static int slow_test(void *context, struct weir_request *request, bool *ended,
                     struct weir_arrival *arrival) {
    struct slow_world *slow = context;
    return slow->inner->calls->test(slow->inner->context, request, ended, arrival);
}

static const char *slow_reason(void *context) {
    struct slow_world *slow = context;
    return slow->inner->calls->reason(slow->inner->context);
}

static void slow_init(struct slow_world *slow, struct weir_world *world,
                      const struct weir_link_cost *costs) {
    slow->inner = world;
    slow->world = *world;
    slow->calls = (struct weir_world_calls){.size = sizeof slow->calls,
                                            .open = slow_open,
                                            .send = slow_send,
                                            .receive = slow_receive,
                                            .test = slow_test,
                                            .reason = slow_reason};
    slow->world.calls = &slow->calls;
    slow->world.context = slow;
    slow->costs = costs;
}

/* What the ranks are, and what each found. */
struct measuring {
    struct weir_link_cost real[RANKS_MOST * RANKS_MOST];
    struct weir_link_cost found[RANKS_MOST][RANKS_MOST * RANKS_MOST];
    struct weir__clock clocks[RANKS_MOST][RANKS_MOST];
    struct weir__links_how how;
    uint64_t ahead_ns[RANKS_MOST];
    struct weir_faults faults[RANKS_MOST];
};

static int measure(void *context, struct weir_world *world) {
    struct measuring *m = context;
    struct slow_world slow;
    slow_init(&slow, world, m->real);
    return weir__links_measure(&slow.world, &m->how, m->found[world->rank],
                               &m->faults[world->rank]);
}

static int compare_clocks(void *context, struct weir_world *world) {
    struct measuring *m = context;
    struct slow_world slow;
    slow_init(&slow, world, m->real);
    ahead_ns = m->ahead_ns[world->rank];
    return weir__clocks_compare(&slow.world, &m->how, m->clocks[world->rank],
                                &m->faults[world->rank]);
}

static struct measuring measuring;

static int run(uint32_t ranks, threads_world_fn *function) {
    const struct threads_options options = {.ranks = ranks, .seed = 1};
    struct threads_world *world = threads_world_new(&options);
    int status = threads_world_run(world, function, &measuring);
    threads_world_destroy(world);
    return status;
}

static void set_links(uint32_t ranks, double latency) {
    memset(&measuring, 0, sizeof measuring);
    measuring.how = (struct weir__links_how){.now = now};
    for (uint32_t from = 0; from < ranks; from++)
        for (uint32_t to = 0; to < ranks; to++)
            measuring.real[from * ranks + to] =
                (struct weir_link_cost){latency, from < to ? 1.0 / 50e6 : 1.0 / 200e6};
}

static void test_both_ways_of_a_pair_are_measured(void) {
    set_links(2, 1e-3);
    CHECK_OK(run(2, measure));
    const struct weir_link_cost *out = &measuring.found[0][1], *in = &measuring.found[0][2];
    EXPECT_NEAR(out->latency, 1e-3, 1e-6); /* by half: the two ways' cannot be told apart */
    EXPECT_NEAR(in->latency, 1e-3, 1e-6);
    EXPECT_NEAR(1.0 / out->seconds_per_byte, 50e6, 1e5);
    EXPECT_NEAR(1.0 / in->seconds_per_byte, 200e6, 1e5);
    EXPECT(memcmp(measuring.found[0], measuring.found[1], sizeof measuring.found[0]) == 0);
    EXPECT_NEAR(measuring.found[0][0].latency, 0.0, 0.0);
}

/* One at a time, an odd number of them, and all at once. */
static void test_every_pair_is_measured_and_all_know(void) {
    static const uint32_t counts[] = {1, 3, 4, RANKS_MOST};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        uint32_t ranks = counts[i];
        set_links(ranks, 1e-3);
        measuring.how.size_ns = 1;
        CHECK_OK(run(ranks, measure));
        for (uint32_t r = 0; r < ranks * ranks; r++) {
            const struct weir_link_cost *cost = &measuring.found[0][r];
            bool self = r / ranks == r % ranks;
            EXPECT((cost->latency + cost->seconds_per_byte > 0.0) == !self);
        }
        for (uint32_t r = 1; r < ranks; r++)
            EXPECT(memcmp(measuring.found[0], measuring.found[r], sizeof measuring.found[0]) == 0);
    }
}

/* Of messages that take 2 ms one way and nothing the other, half of that cannot be known, and is
 * not claimed to be. */
static void test_clocks_are_as_far_apart_as_is_said(void) {
    enum { RANKS = 3 };
    set_links(RANKS, 0.0);
    for (uint32_t r = 0; r < RANKS * RANKS; r++) measuring.real[r].seconds_per_byte = 0.0;
    for (uint32_t to = 1; to < RANKS; to++) {
        measuring.real[to].latency = 2e-3;
        measuring.ahead_ns[to] = to * UINT64_C(5000000000);
    }
    CHECK_OK(run(RANKS, compare_clocks));
    EXPECT_EQ_INT(measuring.clocks[0][0].offset_ns, 0);
    EXPECT_EQ_UINT(measuring.clocks[0][0].error_ns, 0);
    for (uint32_t r = 1; r < RANKS; r++) {
        struct weir__clock clock = measuring.clocks[0][r];
        EXPECT_EQ_INT(clock.offset_ns, (int64_t)(measuring.ahead_ns[r] + 1000000));
        EXPECT_EQ_UINT(clock.error_ns, 1000000);
        EXPECT(memcmp(measuring.clocks[0], measuring.clocks[r], sizeof measuring.clocks[0]) == 0);
    }
}

static void test_a_lost_rank_is_told(void) {
    const struct threads_options options = {
        .ranks = 2, .seed = 1, .fail_rank = 1, .fail_call = 40, .keeps_faults = true};
    struct threads_world *world = threads_world_new(&options);
    set_links(2, 0.0);
    measuring.how.size_ns = 1;
    EXPECT_STATUS(threads_world_run(world, measure, &measuring), WEIR_ERR_PEER);
    if (EXPECT_EQ_UINT(measuring.faults[1].kept, 1))
        EXPECT_CONTAINS(measuring.faults[1].lines[0], "cannot measure its links");
    for (uint32_t r = 0; r < 2; r++) weir_faults_clean_up(&measuring.faults[r]);
    threads_world_destroy(world);
}

WEIR_TEST_SUITE(links_measured, TEST(a_fit_finds_the_line_that_times_lie_on),
                TEST(a_few_sizes_that_go_otherwise_bend_no_fit),
                TEST(no_line_is_nearer_than_the_fit), TEST(a_fit_is_never_below_zero),
                TEST(both_ways_of_a_pair_are_measured), TEST(every_pair_is_measured_and_all_know),
                TEST(clocks_are_as_far_apart_as_is_said), TEST(a_lost_rank_is_told))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: two Weir processes on one machine do not bind to the same cores, and a process that dies
 * takes its claims along. Method: children that hold claims while this process plans, on made-up
 * machines whose cores have names of this test's own, so that no other Weir process here matters.
 */
#include "base/base.h"
#include "harness.h"
#include "engine/place_plans.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* A made-up machine whose cores are claimed like real ones, under names that no other run has. */
static struct weir__machine *claimable(uint32_t base) {
    struct weir__machine *machine = NULL;
    setenv("HWLOC_SYNTHETIC", "pack:2 core:4 pu:1", 1);
    int status = weir__machine_new(test_allocator(), &machine);
    unsetenv("HWLOC_SYNTHETIC");
    if (status != WEIR_OK) return NULL;
    machine->synthetic = false;
    for (uint32_t i = 0; i < machine->core_count; i++) machine->cores[i].id = base + i;
    return machine;
}

/* A child that plans and then holds its claims until its standard input, a pipe, is closed. */
struct holder {
    pid_t child;
    int release; /* close it, and the child goes */
};

static void hold(uint32_t base, const char *bind, uint32_t workers, uint32_t threads, int ready,
                 int release) {
    static struct weir__worker_place placements[PLACE_WORKERS_MAX];
    struct weir__machine *machine = claimable(base);
    char answer = 'n', ignored;
    if (machine != NULL && place_plan(machine, bind, workers, threads, placements) == WEIR_OK) {
        answer = placements[0].exclusive ? 'y' : 'n';
    }
    if (write(ready, &answer, 1) != 1) _exit(1);
    while (read(release, &ignored, 1) > 0) continue;
    _exit(0);
}

/* Starts a holder and waits until it holds. */
static struct holder start_holder(uint32_t base, const char *bind, uint32_t workers,
                                  uint32_t threads) {
    struct holder holder = {-1, -1};
    int ready[2], release[2];
    if (!EXPECT(pipe(ready) == 0) || !EXPECT(pipe(release) == 0)) return holder;
    fflush(NULL);
    holder.child = fork();
    if (holder.child == 0) {
        close(ready[0]);
        close(release[1]);
        hold(base, bind, workers, threads, ready[1], release[0]);
    }
    close(ready[1]);
    close(release[0]);
    char answer = 0;
    EXPECT(holder.child > 0 && read(ready[0], &answer, 1) == 1 && answer == 'y');
    close(ready[0]);
    holder.release = release[1];
    return holder;
}

/* Lets it go in an orderly way, or kills it. */
static void end_holder(struct holder *holder, bool kill_it) {
    if (kill_it && holder->child > 0) EXPECT_EQ_INT(kill(holder->child, SIGKILL), 0);
    close(holder->release);
    int status;
    if (holder->child > 0) EXPECT(waitpid(holder->child, &status, 0) == holder->child);
}

static uint32_t claim_base(void) {
    return 1000000 + (uint32_t)getpid() % 100000 * 10000 + (uint32_t)test_random_below(900) * 10;
}

static void test_cores_of_another_process_are_avoided(void) {
    uint32_t base = claim_base();
    struct holder holder = start_holder(base, "auto", 1, 3); /* 0-2 */
    struct weir__machine *machine = claimable(base);
    CHECK(machine != NULL);
    place_expect(machine, "auto", 2, 2, "4-5|6-7");
    place_expect(machine, "auto", 1, 1, "3");
    place_expect(machine, "auto", 2, 3, "-|-");
    place_expect(machine, "auto", 2, 0, "-|-");
    place_expect(machine, "auto", 5, 1, "3|4|5|6|7");
    end_holder(&holder, false);
    place_expect(machine, "auto", 2, 0, "0-3|4-7");
    weir__machine_destroy(machine);
}

static void test_a_killed_process_leaves_no_claim(void) {
    uint32_t base = claim_base();
    struct holder holder = start_holder(base, "auto", 2, 4);
    struct weir__machine *machine = claimable(base);
    CHECK(machine != NULL);
    place_expect(machine, "auto", 1, 1, "-");
    end_holder(&holder, true);
    place_expect(machine, "auto", 2, 4, "0-3|4-7");
    weir__machine_destroy(machine);
}

static void test_a_list_claims_but_does_not_yield(void) {
    uint32_t base = claim_base();
    struct holder holder = start_holder(base, "4-5", 2, 1);
    struct weir__machine *machine = claimable(base);
    CHECK(machine != NULL);
    place_expect(machine, "auto", 1, 4, "0-3");
    place_expect(machine, "auto", 3, 2, "0-1|2-3|6-7");
    static struct weir__worker_place placements[2];
    EXPECT_STATUS(place_plan(machine, "5,6", 2, 1, placements), WEIR_OK);
    EXPECT(placements[0].place.bound && !placements[0].exclusive && placements[1].exclusive);
    end_holder(&holder, false);
    weir__machine_destroy(machine);
}

/* "11000000": which of the cores' names are taken, seen from outside. */
static const char *claimed(uint32_t base) {
    static char text[9];
    for (uint32_t i = 0; i < 8; i++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int length =
            snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "weir-core-%u", base + i);
        socklen_t bytes =
            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)length;
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        text[i] = bind(fd, (struct sockaddr *)&address, bytes) == 0 ? '0' : '1';
        close(fd);
    }
    return text;
}

static void test_only_what_is_bound_is_claimed(void) {
    uint32_t base = claim_base();
    struct weir__machine *machine = claimable(base);
    CHECK(machine != NULL);
    EXPECT_EQ_STR(claimed(base), "00000000");
    place_expect(machine, "auto", 2, 4, "0-3|4-7");
    EXPECT_EQ_STR(claimed(base), "11111111");
    place_expect(machine, "auto", 1, 2, "0-1");
    EXPECT_EQ_STR(claimed(base), "11000000");
    place_expect(machine, "6", 1, 1, "6");
    EXPECT_EQ_STR(claimed(base), "00000010");
    place_expect_refused(machine, "5,5", 1, 1, "twice");
    EXPECT_EQ_STR(claimed(base), "00000000");
    place_expect(machine, "auto", 1, 1, "0");
    place_expect(machine, "none", 1, 1, "-");
    EXPECT_EQ_STR(claimed(base), "00000000");
    place_expect(machine, "auto", 3, 3, "-|-|-");
    EXPECT_EQ_STR(claimed(base), "00000000");
    place_expect(machine, "auto", 1, 1, "0");
    weir__place_unclaim(machine);
    EXPECT_EQ_STR(claimed(base), "00000000");
    place_expect(machine, "auto", 1, 1, "0");
    weir__machine_destroy(machine);
    EXPECT_EQ_STR(claimed(base), "00000000");
}

/* All or nothing: a plan that fails for a stranger's core keeps none of the free ones. */
static void test_a_plan_that_finds_too_few_cores_claims_none(void) {
    uint32_t base = claim_base();
    struct holder holder = start_holder(base, "auto", 1, 3);
    struct weir__machine *machine = claimable(base);
    CHECK(machine != NULL);
    place_expect(machine, "auto", 2, 3, "-|-");
    EXPECT_EQ_STR(claimed(base), "11100000");
    end_holder(&holder, false);
    EXPECT_EQ_STR(claimed(base), "00000000");
    weir__machine_destroy(machine);
}

/* The middle of what would be chosen first is taken: the rest is chosen around it. */
static void test_workers_go_together_around_taken_cores(void) {
    uint32_t base = claim_base();
    struct holder holder = start_holder(base, "1", 1, 1);
    struct weir__machine *machine = claimable(base);
    CHECK(machine != NULL);
    place_expect(machine, "auto", 2, 1, "0|2");
    place_expect(machine, "auto", 2, 2, "4-5|6-7");
    weir__machine_destroy(machine);
    EXPECT_EQ_STR(claimed(base), "01000000");
    end_holder(&holder, false);
    holder = start_holder(base, "4", 1, 1);
    machine = claimable(base);
    CHECK(machine != NULL);
    EXPECT_EQ_STR(claimed(base), "00001000");
    place_expect(machine, "auto", 1, 4, "0-3");
    place_expect(machine, "5-7", 1, 3, "5-7");
    place_expect(machine, "auto", 2, 3, "0-2|5-7");
    end_holder(&holder, false);
    weir__machine_destroy(machine);
}

static void test_pipes_of_one_process_differ_or_share(void) {
    uint32_t base = claim_base();
    struct weir__machine *first = claimable(base), *second = claimable(base);
    CHECK(first != NULL && second != NULL);
    place_expect(first, "auto", 1, 4, "0-3");
    place_expect(second, "auto", 1, 4, "4-7");
    place_expect(second, "auto", 3, 2, "0-1|2-3|4-5");
    static struct weir__worker_place placements[2];
    EXPECT_STATUS(place_plan(second, "auto", 2, 4, placements), WEIR_OK);
    EXPECT(placements[0].exclusive && placements[1].exclusive);
    weir__machine_destroy(first);
    EXPECT_EQ_STR(claimed(base), "11111111"); /* the second holds what the first gave up */
    weir__machine_destroy(second);
    EXPECT_EQ_STR(claimed(base), "00000000");
}

WEIR_TEST_SUITE(claim, TEST(cores_of_another_process_are_avoided),
                TEST(a_killed_process_leaves_no_claim), TEST(a_list_claims_but_does_not_yield),
                TEST(only_what_is_bound_is_claimed),
                TEST(a_plan_that_finds_too_few_cores_claims_none),
                TEST(workers_go_together_around_taken_cores),
                TEST(pipes_of_one_process_differ_or_share))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: a team does each part exactly once, is done when it says so, and its members are told apart
 * by their memory. Method: two parts that meet; teams of all small sizes that spin and that sleep;
 * many pieces of work one behind the other, so that helpers wake late; slots that only one member
 * at a time may use.
 */
#include "base/team.h"
#include "harness.h"

#include <pthread.h>

enum { MEMBERS_MOST = 5, PARTS_MOST = 40, PIECES = 3000 };

struct work {
    uint32_t members;
    uint32_t piece;
    uint32_t done[PARTS_MOST]; /* the piece that did it last, each by one thread */
    atomic_uint inside[MEMBERS_MOST], runs, wrong;
};

static void do_part(void *context, uint32_t part, uint32_t member) {
    struct work *work = context;
    if (member >= work->members || atomic_fetch_add(&work->inside[member], 1) != 0 ||
        work->done[part] == work->piece)
        atomic_fetch_add(&work->wrong, 1);
    work->done[part] = work->piece;
    atomic_fetch_add(&work->runs, 1);
    atomic_fetch_sub(&work->inside[member], 1);
}

static void run_pieces(struct weir__team *team, uint32_t members) {
    struct work work = {.members = members};
    for (work.piece = 1; work.piece <= PIECES && !test_has_failed(); work.piece++) {
        uint32_t parts = (uint32_t)test_random_below(PARTS_MOST + 1);
        atomic_store(&work.runs, 0);
        weir__team_run(team, members, parts, do_part, &work);
        EXPECT_EQ_UINT(atomic_load(&work.runs), parts);
        for (uint32_t i = 0; i < parts; i++) EXPECT_EQ_UINT(work.done[i], work.piece);
    }
    EXPECT_EQ_UINT(atomic_load(&work.wrong), 0);
}

static void test_each_part_is_done_once(void) {
    run_pieces(NULL, 1);
    for (uint32_t members = 2; members <= MEMBERS_MOST; members++) {
        struct weir__team *team;
        CHECK_OK(weir__team_new(test_allocator(), members, members % 2 == 0, &team));
        EXPECT_EQ_UINT(weir__team_members(team), members);
        for (uint32_t most = 1; most <= members; most++) run_pieces(team, most);
        weir__team_destroy(team);
    }
}

struct meeting {
    struct weir__gate here[2];
    atomic_uint met;
};

/* Says that it is here, and waits for the other part to say so. */
static void meet(void *context, uint32_t part, uint32_t member) {
    const uint64_t bound_ns = UINT64_C(20000000000);
    struct meeting *meeting = context;
    (void)member;
    weir__gate_advance(&meeting->here[part], 1);
    if (weir__gate_wait(&meeting->here[1 - part], 1, 0, bound_ns))
        atomic_fetch_add(&meeting->met, 1);
}

static void test_parts_run_at_the_same_time(void) {
    struct meeting meeting = {0};
    struct weir__team *team;
    CHECK_OK(weir__team_new(test_allocator(), 2, false, &team));
    weir__team_run(team, 2, 2, meet, &meeting);
    EXPECT_EQ_UINT(atomic_load(&meeting.met), 2);
    weir__team_destroy(team);
}

static void test_a_team_without_memory_is_refused(void) {
    struct weir__team *team = NULL;
    test_allocator_fail_at(1, false);
    CHECK_STATUS(weir__team_new(test_allocator(), 2, false, &team), WEIR_ERR_OUT_OF_MEMORY);
    CHECK_EQ_PTR(team, NULL);
}

WEIR_TEST_SUITE(team, TEST(each_part_is_done_once), TEST(parts_run_at_the_same_time),
                TEST(a_team_without_memory_is_refused))

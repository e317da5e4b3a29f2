/* SPDX-License-Identifier: MIT */
/*
 * Goal: a rank that dies, stops or ends all is known to the others, by one name and soon; one that
 * ends well is not; and strangers change nothing. Method: processes of this test's own, which find
 * each other on shared memory in MPI's place, and die, stop and say goodbye there.
 */
#include "harness.h"

#include "world/beats.h"
#include "world/hold.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, RANKS_MOST = 20, LIMIT_MS = 20000, TURN_MS = 2 };

/* What the processes share. */
struct board {
    struct weir__door doors[RANKS_MOST];
    _Atomic uint32_t seen, come, met, go; /* seen: doors may be looked at */
    struct weir_lost lost[RANKS_MOST];
    _Atomic uint32_t told[RANKS_MOST];
    uint32_t unreached[RANKS_MOST];
};

static struct board *board;
static pid_t processes[RANKS_MOST];
static uint32_t ranks = RANKS;

static void sleep_ms(unsigned ms) {
    usleep(ms * 1000);
}

static bool reaches(_Atomic uint32_t *value, uint32_t wanted) {
    for (unsigned ms = 0; atomic_load(value) < wanted && ms < LIMIT_MS; ms += TURN_MS)
        sleep_ms(TURN_MS);
    return atomic_load(value) >= wanted;
}

/* ---- as a rank, in a process of its own, where nothing is checked but by what it writes ---- */

static void hear(void *context, const struct weir_lost *lost) {
    uint32_t rank = *(const uint32_t *)context;
    board->lost[rank] = *lost;
    atomic_fetch_add(&board->told[rank], 1);
}

/* What a rank does when all have met and the test says go. */
typedef void rank_fn(uint32_t rank, struct weir__beats *beats);

static void be(uint32_t rank, double timeout, rank_fn *act) {
    struct weir__beats *beats;
    uint32_t first;
    const struct weir__beats_options options = {
        .host = "here", .peer_timeout = timeout, .lost = hear, .context = &rank};
    if (weir__beats_begin(&options, &beats) != WEIR_OK) _exit(9);
    board->doors[rank] = *weir__beats_door(beats);
    atomic_fetch_add(&board->come, 1);
    if (!reaches(&board->seen, 1) || !reaches(&board->come, ranks)) _exit(8);
    (void)weir__beats_meet(beats, rank, ranks, board->doors, &board->unreached[rank], &first);
    weir__beats_settle(beats);
    atomic_fetch_add(&board->met, 1);
    if (!reaches(&board->go, 1)) _exit(7);
    act(rank, beats);
    _exit(0);
}

/* Their doors are there, but nobody goes to them yet. */
static void make_ranks(double timeout, rank_fn *act) {
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    fflush(NULL);
    for (uint32_t r = 0; r < ranks; r++) {
        processes[r] = fork();
        if (processes[r] == 0) be(r, timeout, act);
        CHECK(processes[r] > 0);
    }
    EXPECT(reaches(&board->come, ranks));
}

static void begin_ranks(double timeout, rank_fn *act) {
    make_ranks(timeout, act);
    CHECK_HELPERS();
    atomic_store(&board->seen, 1);
    EXPECT(reaches(&board->met, ranks));
}

static void end_ranks(void) {
    for (uint32_t r = 0; r < ranks; r++) {
        (void)kill(processes[r], SIGKILL);
        (void)waitpid(processes[r], NULL, 0);
    }
    munmap(board, sizeof *board);
}

/* Waits until its own thread has told of a lost rank. */
static void stay(uint32_t rank, struct weir__beats *beats) {
    (void)beats;
    (void)reaches(&board->told[rank], 1);
    sleep_ms(LIMIT_MS); /* the test ends it */
}

/* Joins MPI for ever. */
static void be_early(double start_timeout) {
    struct weir__beats *beats;
    uint32_t rank = 0;
    const struct weir__beats_options options = {.host = "here",
                                                .peer_timeout = 100,
                                                .start_timeout = start_timeout,
                                                .lost = hear,
                                                .context = &rank};
    if (weir__beats_begin(&options, &beats) != WEIR_OK) _exit(9);
    stay(rank, beats);
    _exit(0);
}

/* ---- what is told ---- */

static void expect_lost(uint32_t by, uint32_t rank, enum weir_lost_how how, const char *text) {
    if (!EXPECT(reaches(&board->told[by], 1))) return;
    const struct weir_lost *lost = &board->lost[by];
    EXPECT_EQ_UINT(lost->rank, rank);
    EXPECT_EQ_INT(lost->how, how);
    EXPECT_EQ_STR(lost->host, "here");
    EXPECT_CONTAINS(lost->text, text);
}

static void test_who_does_not_come_is_missed_after_the_starts_time_out(void) {
    const double timeout = 1.5; /* longer than it sleeps between two looks */
    ranks = 1;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    fflush(NULL);
    uint64_t from = weir__now_ns();
    processes[0] = fork();
    if (processes[0] == 0) be_early(timeout);
    CHECK(processes[0] > 0);
    if (EXPECT(reaches(&board->told[0], 1))) EXPECT_EQ_INT(board->lost[0].how, WEIR_LOST_ABSENT);
    EXPECT((double)(weir__now_ns() - from) >= timeout * 1e9);
    end_ranks();
    ranks = RANKS;
}

static void kill_one(uint32_t victim) {
    uint32_t first = victim == 0 ? 1 : 0;
    begin_ranks(60, stay);
    atomic_store(&board->go, 1);
    CHECK_HELPERS();
    uint64_t from = weir__now_ns();
    CHECK(kill(processes[victim], SIGKILL) == 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        if (r == victim) continue;
        expect_lost(r, victim, WEIR_LOST_DEAD, "is lost: its process has ended");
        EXPECT_EQ_INT(board->lost[r].speaks, r == first);
        EXPECT_EQ_UINT(board->lost[r].count, 1);
    }
    EXPECT(weir__now_ns() - from < UINT64_C(5000000000)); /* long before the time-out: by its end */
    end_ranks();
}

static void test_a_dead_rank_is_named_by_all_and_told_by_the_lowest(void) {
    for (uint32_t victim = 0; victim < RANKS && !test_has_failed(); victim++) kill_one(victim);
}

static void test_a_stopped_rank_is_silent_and_hears_so_when_it_goes_on(void) {
    begin_ranks(2, stay); /* a busy machine leaves out beats, too */
    atomic_store(&board->go, 1);
    CHECK_HELPERS();
    CHECK(kill(processes[1], SIGSTOP) == 0);
    expect_lost(0, 1, WEIR_LOST_SILENT, "rank 1 on here is lost: nothing was heard of it for ");
    expect_lost(2, 1, WEIR_LOST_SILENT, "rank 1 on here is lost: nothing was heard of it for ");
    EXPECT(board->lost[0].seconds >= 2 && board->lost[0].seconds <= 3);
    EXPECT(board->lost[0].speaks && !board->lost[2].speaks);
    EXPECT_EQ_UINT(atomic_load(&board->told[1]), 0);
    CHECK(kill(processes[1], SIGCONT) == 0);
    expect_lost(1, 1, WEIR_LOST_SILENT, "this process, rank 1 on here, is lost");
    EXPECT(!board->lost[1].speaks);
    end_ranks();
}

/* A host's four ranks of twenty, of which the lowest that lives hears but three; long enough that
 * they do not stop within what all losses are gathered for. */
static void test_where_many_ranks_fall_silent_the_lowest_of_the_others_speaks(void) {
    enum { SILENT = 4 };
    ranks = RANKS_MOST;
    begin_ranks(2, stay);
    atomic_store(&board->go, 1);
    for (uint32_t r = 0; r < SILENT && !test_has_failed(); r++)
        CHECK(kill(processes[r], SIGSTOP) == 0);
    for (uint32_t r = SILENT; r < ranks && EXPECT(reaches(&board->told[r], 1)); r++) {
        EXPECT_EQ_INT(board->lost[r].how, WEIR_LOST_SILENT);
        EXPECT(board->lost[r].rank < SILENT);
    }
    EXPECT(board->lost[SILENT].speaks);
    end_ranks();
    ranks = RANKS;
}

/* Longer than the time-out. */
static void part(uint32_t rank, struct weir__beats *beats) {
    if (rank != 1) sleep_ms(2200);
    weir__beats_end(beats);
    if (rank == 1) sleep_ms(2200);
}

static void test_who_says_goodbye_is_not_lost(void) {
    begin_ranks(1.5, part);
    atomic_store(&board->go, 1);
    for (uint32_t r = 0; r < RANKS; r++) {
        int status = -1;
        EXPECT(waitpid(processes[r], &status, 0) == processes[r]);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        EXPECT_EQ_UINT(atomic_load(&board->told[r]), 0);
        EXPECT_EQ_UINT(board->unreached[r], 0);
    }
    munmap(board, sizeof *board);
}

static void end_all(uint32_t rank, struct weir__beats *beats) {
    if (rank == 2) {
        weir__beats_abort(beats, 77);
        _exit(77);
    }
    stay(rank, beats);
}

static void test_who_ends_all_is_heard_with_its_exit_status(void) {
    begin_ranks(5, end_all);
    atomic_store(&board->go, 1);
    for (uint32_t r = 0; r < 2; r++) {
        expect_lost(r, 2, WEIR_LOST_ABORTED, "rank 2 on here has ended the run (exit 77)");
        EXPECT_EQ_INT(board->lost[r].exit_status, 77);
        EXPECT(!board->lost[r].speaks); /* that rank did */
    }
    end_ranks();
}

/* ---- who cannot be met ---- */

/* Rank 0 cannot be come to, as where no socket can be had; the others know each other. */
static void begin_closed(void) {
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    fflush(NULL);
    for (uint32_t r = 0; r < RANKS; r++) {
        processes[r] = fork();
        if (processes[r] != 0) continue;
        if (r == 0) {
            atomic_fetch_add(&board->come, 1);
            atomic_fetch_add(&board->met, 1);
            sleep_ms(LIMIT_MS);
            _exit(0);
        }
        be(r, 5, stay);
    }
    atomic_store(&board->seen, 1);
    EXPECT(reaches(&board->met, RANKS));
}

static void test_who_has_no_door_is_left_to_others_to_miss(void) {
    begin_closed();
    EXPECT_EQ_UINT(board->unreached[1], 1);
    EXPECT_EQ_UINT(board->unreached[2], 1);
    atomic_store(&board->go, 1);
    CHECK_HELPERS();
    CHECK(kill(processes[0], SIGKILL) == 0);
    sleep_ms(300);
    EXPECT_EQ_UINT(atomic_load(&board->told[1]) + atomic_load(&board->told[2]), 0);
    CHECK(kill(processes[2], SIGKILL) == 0); /* and the others are watched over all the same */
    expect_lost(1, 2, WEIR_LOST_DEAD, "rank 2 on here is lost");
    end_ranks();
}

/* Somebody who scans ports, or a job that was given the same port. */
static void disturb(uint32_t port, const void *data, size_t bytes) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (uint32_t i = 0; i < 40; i++) {
        int stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(stranger >= 0);
        if (connect(stranger, (struct sockaddr *)&to, sizeof to) == 0 && bytes > 0)
            (void)send(stranger, data, bytes, MSG_NOSIGNAL);
        close(stranger);
    }
}

static void disturb_all(void) {
    static const enum weir__word_kind kinds[] = {WEIR__WORD_BEAT, WEIR__WORD_LOST,
                                                 WEIR__WORD_ABORT};
    for (uint32_t r = 0; r < RANKS; r++) {
        disturb(board->doors[r].port, NULL, 0);
        disturb(board->doors[r].port, "GET / HTTP/1.0\r\n\r\n", 18);
        for (uint32_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            /* as rank 2 would, but for the token */
            const struct weir__word words[] = {{.kind = WEIR__WORD_HELLO, .rank = 2, .number = 99},
                                               {.kind = kinds[k]}};
            disturb(board->doors[r].port, words, sizeof words);
        }
    }
}

/* Before the ranks go to each other's doors, and after. */
static void test_strangers_change_nothing(void) {
    make_ranks(5, stay);
    disturb_all();
    atomic_store(&board->seen, 1);
    EXPECT(reaches(&board->met, RANKS));
    disturb_all();
    atomic_store(&board->go, 1);
    sleep_ms(300);
    for (uint32_t r = 0; r < RANKS; r++) {
        EXPECT_EQ_UINT(atomic_load(&board->told[r]), 0);
        EXPECT_EQ_UINT(board->unreached[r], 0);
    }
    CHECK_HELPERS();
    CHECK(kill(processes[0], SIGKILL) == 0);
    expect_lost(1, 0, WEIR_LOST_DEAD, "rank 0 on here");
    end_ranks();
}

/* ---- what a dead peer's memory does to MPI ---- */

/* Milliseconds until the process died of it. */
static uint64_t crash(bool inside, int number) {
    uint64_t from = weir__now_ns();
    int status = 0;
    fflush(NULL);
    pid_t process = fork();
    if (process == 0) {
        const struct rlimit no_core = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)signal(number, SIG_DFL);
        weir__hold_begin(0.5); /* which becomes a second */
        if (inside) weir__hold_enter();
        (void)raise(number);
        (void)raise(number); /* the instruction is tried again */
        _exit(0);
    }
    EXPECT(process > 0 && waitpid(process, &status, 0) == process);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == number);
    return (weir__now_ns() - from) / 1000000;
}

static void test_a_crash_inside_mpi_is_held_up_and_none_else(void) {
    if (test_is_sanitized()) SKIP("a sanitizer has these signals");
    EXPECT(crash(true, SIGSEGV) >= 1000);
    EXPECT(crash(true, SIGBUS) >= 1000);
    EXPECT(crash(false, SIGSEGV) < 1000);
}

WEIR_TEST_SUITE(world_beats, TEST(a_dead_rank_is_named_by_all_and_told_by_the_lowest),
                TEST(a_stopped_rank_is_silent_and_hears_so_when_it_goes_on),
                TEST(where_many_ranks_fall_silent_the_lowest_of_the_others_speaks),
                TEST(who_says_goodbye_is_not_lost),
                TEST(who_does_not_come_is_missed_after_the_starts_time_out),
                TEST(who_ends_all_is_heard_with_its_exit_status),
                TEST(who_has_no_door_is_left_to_others_to_miss), TEST(strangers_change_nothing),
                TEST(a_crash_inside_mpi_is_held_up_and_none_else))

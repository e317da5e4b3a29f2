/* SPDX-License-Identifier: MIT */
/*
 * Goal: the world of MPI keeps what weir_world.h promises, over whatever MPI is here. Method: a
 * test starts this program again by mpiexec, to run that test as each of the ranks; there it joins
 * the world and checks its side. Without an mpiexec and a library the tests are skipped, or fail
 * where the build brought them (--mpi). A rank whose checks fail ends all.
 */
#include "harness.h"

#include "weir_world.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AS_RANK "WEIR_TEST_AS_RANK"

enum { OUTPUT_BYTES = 1 << 16 };

/* ---- starting ---- */

static char output[OUTPUT_BYTES];

/* What a shell sets first. Launchers ask for more than they need: that nothing is root's, and that
 * there are as many cores. */
static const char *environment(void) {
    static char text[1024];
    const char *folder = test_mpi_path();
    char path[768] = "";
    if (folder != NULL) snprintf(path, sizeof path, "unset WEIR_MPI; PATH='%s/bin':$PATH;", folder);
    snprintf(text, sizeof text,
             "%s export " AS_RANK "=1 HYDRA_LAUNCHER=fork OMPI_ALLOW_RUN_AS_ROOT=1 "
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
             "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe;",
             path);
    return text;
}

/* Exit status of a test of this suite, run again with this before it. */
static int run_again(const char *before, const char *name) {
    char self[1024];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (!EXPECT(length > 0)) return -1;
    self[length] = 0;
    return test_shell(output, sizeof output,
                      "{ %s %s '%s' %s --jobs 1 --timeout %u --seed %llu world_mpi/%s; }",
                      environment(), before, self, test_is_full() ? "--full" : "",
                      test_is_full() ? 300u : 60u, (unsigned long long)test_random_u64(), name);
}

static bool is_rank(void) {
    return getenv(AS_RANK) != NULL;
}

/* Ends the test, which is one of `what`. */
static void lack(const char *what) {
    if (test_mpi_path() != NULL) {
        TEST_FAIL("%s", what);
    } else {
        test_skip("%s", what);
    }
}

/* False: the test has ended, since there is no MPI. */
static bool launch(const char *function, uint32_t rank_count, int *code) {
    char before[32];
    *code = 0;
    if (test_is_sanitized()) {
        test_skip("a sanitizer looks into MPI's own memory too");
        return false;
    }
    if (test_shell(output, sizeof output, "{ %s command -v mpiexec; }", environment()) != 0) {
        lack("there is no mpiexec");
        return false;
    }
    snprintf(before, sizeof before, "mpiexec -n %u", rank_count);
    *code = run_again(before, function + strlen("test_"));
    if (strstr(output, "no MPI for ranks") == NULL) return true;
    lack("an mpiexec, but no library: see WEIR_MPI in weir_world.h");
    return false;
}

/* False, and the test says why: no MPI, or it fails. */
static bool enter(struct weir_world *world) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    int status = weir_world_mpi(test_allocator(), NULL, &faults, world);
    for (uint32_t i = 0; i < faults.kept; i++) printf("  %s\n", faults.lines[i]);
    weir_faults_clean_up(&faults);
    if (status == WEIR_ERR_NOT_FOUND || status == WEIR_ERR_UNSUPPORTED) {
        test_skip("no MPI for ranks");
        return false;
    }
    return EXPECT_STATUS(status, WEIR_OK);
}

static void leave(struct weir_world *world) {
    fflush(stdout);
    if (test_has_failed()) world->calls->abort(world->context, 1);
    world->calls->close(world->context);
}

/* Runs `body` as each of so many ranks. */
static void on_ranks(uint32_t rank_count, const char *function, void (*body)(struct weir_world *)) {
    struct weir_world world;
    int code;
    if (is_rank()) {
        if (!enter(&world)) return;
        if (EXPECT_EQ_UINT(world.rank_count, rank_count)) body(&world);
        leave(&world);
    } else if (launch(function, rank_count, &code)) {
        EXPECT_EQ_INT(code, 0); /* what runs nothing has another */
        if (test_has_failed()) puts(output);
    }
}

/* ---- messages ---- */

static int wait_for(struct weir_world *world, struct weir_request *request,
                    struct weir_arrival *arrival) {
    bool ended = false;
    int status = WEIR_OK;
    while (status == WEIR_OK && !ended) { /* the runner's clock ends a test that hangs */
        status = world->calls->test(world->context, request, &ended, arrival);
        if (!ended) sched_yield();
    }
    return status;
}

static void open_channels(struct weir_world *world, uint32_t count) {
    CHECK_OK(world->calls->open(world->context, count));
}

static unsigned char byte_at(uint32_t tag, size_t i) {
    return (unsigned char)(tag * 37u + i + i / 251u);
}

static void fill(unsigned char *data, size_t bytes, uint32_t tag) {
    for (size_t i = 0; i < bytes; i++) data[i] = byte_at(tag, i);
}

static void expect_filled(const unsigned char *data, size_t bytes, uint32_t tag) {
    size_t i = 0;
    while (i < bytes && data[i] == byte_at(tag, i)) i++;
    EXPECT_EQ_UINT(i, bytes);
}

/* Sends or receives one, and waits. */
static void pass_one(struct weir_world *world, bool sends, struct weir_message message,
                     struct weir_arrival *arrival) {
    struct weir_request request;
    memset(&request, 0xa5, sizeof request);
    CHECK_OK(sends ? world->calls->send(world->context, &message, &request)
                   : world->calls->receive(world->context, &message, &request));
    CHECK_OK(wait_for(world, &request, arrival));
}

/* ---- the tests ---- */

enum { CHANNELS = 3, MESSAGES = 24, MESSAGE_BYTES = 40000 };

struct mail {
    unsigned char data[CHANNELS][MESSAGES][MESSAGE_BYTES];
    struct weir_request requests[CHANNELS][MESSAGES];
    size_t bytes[CHANNELS][MESSAGES];
};

/* Begins all of one channel, its next one at each call. */
static void begin_next(struct weir_world *world, struct mail *mail, uint32_t channel,
                       uint32_t number, bool sends) {
    struct weir_message message = {
        .data = mail->data[channel][number],
        .bytes = sends ? mail->bytes[channel][number] : MESSAGE_BYTES,
        .peer = 1 - world->rank,
        .channel = channel,
        .tag = channel * MESSAGES + number,
    };
    struct weir_request *request = &mail->requests[channel][number];
    if (sends) fill(message.data, message.bytes, message.tag);
    CHECK_OK(sends ? world->calls->send(world->context, &message, request)
                   : world->calls->receive(world->context, &message, request));
}

/* Channels are begun in another order at each end, and tests look at the last message first. */
static void pass_mail(struct weir_world *world, struct mail *mail, bool sends) {
    for (uint32_t c = 0; c < CHANNELS; c++)
        for (uint32_t i = 0; i < MESSAGES; i++)
            mail->bytes[c][i] = (size_t)test_random_below(i % 4 == 0 ? MESSAGE_BYTES : 64);
    for (uint32_t i = 0; i < MESSAGES; i++)
        for (uint32_t c = 0; c < CHANNELS; c++) {
            begin_next(world, mail, sends ? c : CHANNELS - 1 - c, i, sends);
            CHECK_HELPERS();
        }
    for (uint32_t c = 0; c < CHANNELS; c++)
        for (uint32_t i = MESSAGES; i-- > 0;) {
            struct weir_arrival arrival = {0};
            CHECK_OK(wait_for(world, &mail->requests[c][i], &arrival));
            if (sends) continue;
            CHECK_EQ_UINT(arrival.tag, c * MESSAGES + i);
            CHECK_EQ_UINT(arrival.bytes, mail->bytes[c][i]);
            expect_filled(mail->data[c][i], arrival.bytes, arrival.tag);
            CHECK_HELPERS();
        }
}

static void channels_body(struct weir_world *world) {
    struct mail *mail = malloc(sizeof *mail);
    open_channels(world, CHANNELS);
    if (EXPECT(mail != NULL) && !test_has_failed()) pass_mail(world, mail, world->rank == 0);
    if (!test_has_failed()) pass_mail(world, mail, world->rank == 1);
    free(mail);
}

static void test_channels_keep_their_order_and_do_not_meet(void) {
    on_ranks(2, __func__, channels_body);
}

static void sizes_body(struct weir_world *world) {
    static const size_t sizes[] = {0, 1, 63, 4096, 65537, 1 << 20, 8 << 20, (size_t)2200 << 20};
    size_t count = sizeof sizes / sizeof *sizes, chosen = test_count(count - 1, count);
    unsigned char *data = malloc(sizes[chosen - 1] + 7);
    CHECK(data != NULL);
    open_channels(world, 1);
    for (size_t i = 0; i < chosen && !test_has_failed(); i++) {
        uint32_t tag = i % 2 == 0 ? WEIR_TAG_MOST : (uint32_t)i;
        struct weir_arrival arrival = {0};
        bool sends = world->rank == 0;
        if (sends) fill(data, sizes[i], tag);
        struct weir_message message = {.data = sizes[i] > 0 ? data : NULL,
                                       .bytes = sizes[i] + (sends || i % 2 == 0 ? 0 : 7),
                                       .peer = 1 - world->rank,
                                       .tag = tag};
        pass_one(world, sends, message, &arrival);
        if (sends) continue;
        EXPECT_EQ_UINT(arrival.bytes, sizes[i]);
        EXPECT_EQ_UINT(arrival.tag, tag);
        expect_filled(data, sizes[i], tag);
    }
    free(data);
}

static void test_messages_of_any_size_arrive_whole(void) {
    on_ranks(2, __func__, sizes_body);
}

enum { CROWD = 4 };

/* Everyone receives from everyone, by receives that were begun before. */
static void crowd_body(struct weir_world *world) {
    struct weir_request requests[2][CROWD];
    uint32_t numbers[2][CROWD] = {{0}};
    open_channels(world, 1);
    open_channels(world, 2); /* what is open stays */
    open_channels(world, 1);
    CHECK_HELPERS();
    for (uint32_t way = 0; way < 2; way++)
        for (uint32_t peer = 0; peer < CROWD; peer++) {
            numbers[way][peer] = way == 1 ? 100 * world->rank + peer : UINT32_MAX;
            struct weir_message message = {.data = &numbers[way][peer],
                                           .bytes = sizeof(uint32_t),
                                           .peer = peer,
                                           .channel = 1,
                                           .tag = world->rank};
            if (peer == world->rank) continue;
            CHECK_OK(way == 1
                         ? world->calls->send(world->context, &message, &requests[1][peer])
                         : world->calls->receive(world->context, &message, &requests[0][peer]));
        }
    for (uint32_t peer = 0; peer < CROWD; peer++) {
        struct weir_arrival arrival;
        if (peer == world->rank) continue;
        CHECK_OK(wait_for(world, &requests[0][peer], &arrival));
        EXPECT_EQ_UINT(arrival.tag, peer);
        EXPECT_EQ_UINT(numbers[0][peer], 100 * peer + world->rank);
        CHECK_OK(wait_for(world, &requests[1][peer], NULL));
    }
}

static void test_every_rank_reaches_every_other(void) {
    on_ranks(CROWD, __func__, crowd_body);
}

static void short_body(struct weir_world *world) {
    char data[64] = "longer than its room";
    open_channels(world, 1);
    struct weir_message message = {
        .data = data, .bytes = world->rank == 0 ? sizeof data : 10, .peer = 1 - world->rank};
    struct weir_request request;
    struct weir_arrival arrival;
    bool sends = world->rank == 0;
    CHECK_HELPERS();
    int status = sends ? world->calls->send(world->context, &message, &request)
                       : world->calls->receive(world->context, &message, &request);
    if (status == WEIR_OK) status = wait_for(world, &request, &arrival);
    EXPECT_STATUS(status, sends ? WEIR_OK : WEIR_ERR_PEER);
    if (sends) return;
    const char *reason = world->calls->reason(world->context);
    EXPECT_CONTAINS(reason, "a receive from rank 0 on channel 0: MPI_");
    EXPECT_CONTAINS(reason, "runcate");
    EXPECT(strchr(reason, '\n') == NULL);
}

static void test_a_message_too_long_for_its_room_is_an_error(void) {
    on_ranks(2, __func__, short_body);
}

/* Rank 1 ends a receive to which nothing came, and then one that has its message. */
static void cancel_receives(struct weir_world *world) {
    char data[16] = "";
    struct weir_message in = {.data = data, .bytes = sizeof data};
    struct weir_message go = {.peer = 0, .tag = 9};
    struct weir_request request, other;
    struct weir_arrival arrival = {0};
    bool ended = false;
    CHECK_OK(world->calls->receive(world->context, &in, &request));
    CHECK_OK(world->calls->cancel(world->context, &request, &ended));
    CHECK(ended);
    pass_one(world, true, go, NULL);
    /* The first message is for this one, and the second has come once a third has. */
    pass_one(world, false, in, &arrival);
    EXPECT_EQ_UINT(arrival.tag, 1);
    CHECK_OK(world->calls->receive(world->context, &in, &request));
    in.channel = 1;
    CHECK_OK(world->calls->receive(world->context, &in, &other));
    CHECK_OK(wait_for(world, &other, &arrival));
    EXPECT_EQ_UINT(arrival.tag, 3);
    CHECK_OK(world->calls->cancel(world->context, &request, &ended));
    EXPECT(!ended);
    CHECK_OK(wait_for(world, &request, &arrival));
    EXPECT_EQ_UINT(arrival.tag, 2);
    EXPECT_EQ_UINT(arrival.bytes, sizeof "two");
    EXPECT_EQ_STR(data, "two");
}

static void cancel_body(struct weir_world *world) {
    open_channels(world, 2);
    CHECK_HELPERS();
    if (world->rank == 1) {
        cancel_receives(world);
        return;
    }
    struct weir_arrival arrival = {0};
    struct weir_message go = {.peer = 1};
    pass_one(world, false, go, &arrival);
    EXPECT_EQ_UINT(arrival.tag, 9);
    pass_one(world, true, (struct weir_message){.peer = 1, .tag = 1}, NULL);
    pass_one(world, true,
             (struct weir_message){.data = (char[]){"two"}, .bytes = 4, .peer = 1, .tag = 2}, NULL);
    pass_one(world, true, (struct weir_message){.peer = 1, .tag = 3, .channel = 1}, NULL);
}

static void test_a_receive_is_cancelled_unless_its_message_came(void) {
    on_ranks(2, __func__, cancel_body);
}

/* Rank 1 has no memory for channels at first, and then for more of them: each time all have them
 * when they ask again. */
static void scarce_body(struct weir_world *world) {
    for (uint32_t count = 1; count <= 4; count += 3) {
        char data[8] = "";
        struct weir_message message = {.data = data, .bytes = 4, .peer = 1 - world->rank};
        if (world->rank == 1) test_allocator_fail_at(1, false);
        int status = world->calls->open(world->context, count);
        EXPECT_STATUS(status, world->rank == 1 ? WEIR_ERR_OUT_OF_MEMORY : WEIR_ERR_PEER);
        EXPECT_CONTAINS(world->calls->reason(world->context), "rank 1 has no memory for");
        if (world->rank == 1) EXPECT(test_allocator_fired());
        open_channels(world, count);
        CHECK_HELPERS();
        message.channel = count - 1;
        if (world->rank == 0) strcpy(data, "all");
        pass_one(world, world->rank == 0, message, NULL);
        EXPECT_EQ_STR(data, "all");
    }
}

static void test_channels_that_one_rank_has_no_memory_for_none_opens(void) {
    on_ranks(2, __func__, scarce_body);
}

static void places_body(struct weir_world *world) {
    EXPECT_EQ_UINT(world->size, sizeof *world);
    EXPECT_EQ_UINT(world->calls->size, sizeof *world->calls);
    EXPECT_EQ_UINT(world->host_rank, world->rank);
    EXPECT_EQ_UINT(world->host_count, 3);
    EXPECT_CONTAINS(world->name, "MPI");
    EXPECT(strpbrk(world->name, "\n\t") == NULL && strstr(world->name, "  ") == NULL);
    EXPECT(world->host[0] != '\0');
}

static void test_ranks_of_a_host_are_numbered(void) {
    on_ranks(3, __func__, places_body);
}

/* The other world holds its own channels; the one that started MPI ends it. */
static void second_body(struct weir_world *world) {
    struct weir_world second, third;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    uint32_t number = world->rank;
    CHECK_OK(weir_world_mpi(test_allocator(), NULL, &faults, &second));
    open_channels(&second, 1);
    CHECK_HELPERS();
    struct weir_message message = {
        .data = &number, .bytes = sizeof number, .peer = 1 - second.rank};
    pass_one(&second, second.rank == 0, message, NULL);
    EXPECT_EQ_UINT(number, 0);
    second.calls->close(second.context);
    open_channels(world, 1); /* MPI goes on */
    CHECK_HELPERS();
    struct weir_world first = *world;
    first.calls->close(first.context);
    EXPECT_STATUS(weir_world_mpi(test_allocator(), NULL, &faults, &third), WEIR_ERR_PEER);
    EXPECT_FAULTS(&faults, "starts only once");
    weir_faults_clean_up(&faults);
}

static void test_mpi_ends_with_the_world_that_started_it(void) {
    struct weir_world world;
    if (!is_rank()) {
        on_ranks(2, __func__, NULL);
    } else if (enter(&world)) {
        second_body(&world);
        if (test_has_failed()) exit(1);
    }
}

static void abort_body(struct weir_world *world) {
    struct weir_request request;
    struct weir_message message = {.peer = 1};
    open_channels(world, 1);
    if (world->rank == 1) world->calls->abort(world->context, 7);
    CHECK_OK(world->calls->receive(world->context, &message, &request));
    /* that rank may be heard of before this process is ended */
    EXPECT_STATUS(wait_for(world, &request, NULL), WEIR_ERR_PEER);
    EXPECT_CONTAINS(world->calls->reason(world->context), "has ended the run (exit 7)");
    if (!test_has_failed()) sleep(20);
    TEST_FAIL("the wait has ended");
}

static void test_abort_ends_those_that_wait(void) {
    int code;
    if (is_rank()) {
        on_ranks(2, __func__, abort_body);
    } else if (launch(__func__, 2, &code)) {
        EXPECT_EQ_INT(code, 7);
        EXPECT(strstr(output, "FAIL") == NULL);
        if (test_has_failed()) puts(output);
    }
}

/* As under another MPI's launcher: each is alone, and the first would do all work itself. */
static void refuse_world(void) {
    struct weir_world world;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    int status = weir_world_mpi(test_allocator(), NULL, &faults, &world);
    if (status == WEIR_ERR_NOT_FOUND || status == WEIR_ERR_UNSUPPORTED) {
        puts("no MPI for ranks");
    } else {
        EXPECT_STATUS(status, WEIR_ERR_PEER);
        TEST_RETURN_UNLESS(
            EXPECT_FAULTS(&faults, "the launcher started 4 processes (PMI_SIZE)", "WEIR_MPI"));
        EXPECT_CONTAINS(faults.lines[0], "finds a world of 1");
    }
    weir_faults_clean_up(&faults);
}

static void test_the_wrong_mpi_is_refused(void) {
    if (is_rank()) {
        refuse_world();
    } else if (test_is_sanitized()) {
        SKIP("a sanitizer looks into MPI's own memory too");
    } else {
        int code = run_again("PMI_RANK=1 PMI_SIZE=4", "the_wrong_mpi_is_refused");
        if (strstr(output, "no MPI for ranks") != NULL) {
            lack("there is no MPI library: see WEIR_MPI in weir_world.h");
            return;
        }
        EXPECT_EQ_INT(code, 0);
        if (test_has_failed()) puts(output);
    }
}

WEIR_TEST_SUITE(world_mpi, TEST(channels_keep_their_order_and_do_not_meet),
                TEST(messages_of_any_size_arrive_whole), TEST(every_rank_reaches_every_other),
                TEST(a_message_too_long_for_its_room_is_an_error),
                TEST(a_receive_is_cancelled_unless_its_message_came),
                TEST(channels_that_one_rank_has_no_memory_for_none_opens),
                TEST(ranks_of_a_host_are_numbered), TEST(mpi_ends_with_the_world_that_started_it),
                TEST(abort_ends_those_that_wait), TEST(the_wrong_mpi_is_refused))

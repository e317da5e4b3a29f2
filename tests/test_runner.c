/* SPDX-License-Identifier: MIT */
/*
 * Goal: whatever a test does to its process, it is named, and the last line counts it; with several
 * jobs the others go on. Method: a process that runs a list of made-up tests, some of which crash,
 * hang or leave; what it prints is read to the end.
 */
#include "runner.h"

#include "harness.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void passes(void) {
    CHECK(true);
}

static void fails(void) {
    CHECK(false);
}

static void is_skipped(void) {
    SKIP("nothing to do");
}

static void crashes(void) {
    raise(SIGSEGV);
}

static void hangs(void) {
    for (;;) pause();
}

static void leaves(void) {
    exit(3);
}

static void is_killed(void) {
    raise(SIGKILL);
}

static void prints_its_seed(void) {
    printf("random %llu\n", (unsigned long long)test_random_u64());
}

/* A line at a time, so that another process's lines could come between. */
static void prints_long_lines(void) {
    char line[1001];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    for (int i = 0; i < 200; i++) printf("%s\n", line);
}

/* Runs them in a process of their own; its output, the caller's to free, and its exit status. */
static char *output_of(const struct runner_test *tests, size_t count,
                       const struct runner_options *options, int *status) {
    const size_t room = 1 << 21;
    char *output = calloc(1, room);
    int ends[2];
    if (!EXPECT(output != NULL) || !EXPECT(pipe(ends) == 0)) return output;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        runner_run(tests, count, options);
        _exit(runner_end());
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t got;
    while ((got = read(ends[0], output + used, room - 1 - used)) > 0) used += (size_t)got;
    close(ends[0]);
    EXPECT(child > 0 && waitpid(child, status, 0) == child && WIFEXITED(*status));
    *status = WEXITSTATUS(*status);
    return output;
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), least = strlen(end);
    return length >= least && EXPECT_EQ_STR(text + length - least, end);
}

static struct runner_options options_of(unsigned jobs) {
    return (struct runner_options){.timeout_s = 60, .repeat = 1, .jobs = jobs};
}

static void test_outcomes_are_counted(void) {
    static const struct runner_test tests[] = {{"a/passes", passes, false},
                                               {"a/fails", fails, false},
                                               {"a/is_skipped", is_skipped, false},
                                               {"b/passes", passes, true}};
    for (unsigned jobs = 1; jobs <= 3; jobs++) {
        struct runner_options options = options_of(jobs);
        int status = -1;
        options.slowest = 2;
        char *output = output_of(tests, 4, &options, &status);
        CHECK(output != NULL);
        EXPECT_EQ_INT(status, 1);
        EXPECT_CONTAINS(output, "ok a/passes (");
        EXPECT_CONTAINS(output, "FAIL a/fails: ");
        EXPECT_CONTAINS(output, "skip a/is_skipped: nothing to do\n");
        EXPECT_CONTAINS(output, "ok b/passes (");
        EXPECT_CONTAINS(output, "the slowest:\n");
        EXPECT(ends_with(output, "\n2 passed, 1 failed, 1 skipped\n"));
        free(output);
    }
}

static void test_one_that_ends_its_process_is_named_and_the_others_go_on(void) {
    if (test_is_sanitized()) SKIP("a sanitizer tells of crashes in its own words");
    static const struct runner_test tests[] = {
        {"a/passes", passes, false}, {"a/crashes", crashes, false},     {"a/hangs", hangs, false},
        {"a/leaves", leaves, false}, {"a/is_killed", is_killed, false}, {"z/passes", passes, true}};
    struct runner_options options = options_of(2);
    int status = -1;
    options.timeout_s = 1;
    char *output = output_of(tests, 6, &options, &status);
    CHECK(output != NULL);
    EXPECT_EQ_INT(status, 1);
    EXPECT_CONTAINS(output, "FAIL a/crashes: crashed, signal 11\n");
    EXPECT_CONTAINS(output, "FAIL a/hangs: did not end, seconds 1\n");
    EXPECT_CONTAINS(output, "FAIL a/leaves: its process ended, exit status 3\n");
    EXPECT_CONTAINS(output, "FAIL a/is_killed: its process ended, signal 9\n");
    EXPECT_CONTAINS(output, "ok z/passes (");
    EXPECT(ends_with(output, "\n2 passed, 4 failed, 0 skipped\n"));
    free(output);
}

/* All in one process, which a crash ends: the totals are those up to it. */
static void test_with_one_job_the_totals_follow_a_crash(void) {
    if (test_is_sanitized()) SKIP("a sanitizer tells of crashes in its own words");
    static const struct runner_test tests[] = {
        {"a/passes", passes, true}, {"a/crashes", crashes, false}, {"z/passes", passes, false}};
    struct runner_options options = options_of(1);
    int status = -1;
    char *output = output_of(tests, 3, &options, &status);
    CHECK(output != NULL);
    EXPECT_EQ_INT(status, 1);
    EXPECT(ends_with(output, "FAIL a/crashes: crashed, signal 11\n1 passed, 1 failed, 0 "
                             "skipped\n"));
    free(output);
}

static void test_each_repetition_has_the_next_seed(void) {
    static const struct runner_test tests[] = {{"a/prints", prints_its_seed, false}};
    for (unsigned jobs = 1; jobs <= 2; jobs++) {
        struct runner_options options = options_of(jobs);
        int status = -1;
        options.repeat = 2;
        char *output = output_of(tests, 1, &options, &status);
        CHECK(output != NULL);
        EXPECT_EQ_INT(status, 0);
        const char *first = strstr(output, "random "), *second = NULL;
        if (first != NULL) second = strstr(first + 1, "random ");
        EXPECT(second != NULL && strncmp(first, second, strcspn(first, "\n") + 1) != 0);
        free(output);
    }
}

static void test_lines_of_several_jobs_are_whole(void) {
    static const struct runner_test tests[] = {{"a/prints", prints_long_lines, false},
                                               {"b/prints", prints_long_lines, false},
                                               {"c/prints", prints_long_lines, false}};
    struct runner_options options = options_of(3);
    int status = -1, lines = 0;
    char *output = output_of(tests, 3, &options, &status);
    CHECK(output != NULL);
    for (const char *line = output; *line; line += strcspn(line, "\n") + 1) {
        if (*line == 'x') EXPECT_EQ_UINT(strcspn(line, "\n"), 1000);
        lines += *line == 'x';
    }
    EXPECT_EQ_INT(lines, 600);
    EXPECT(ends_with(output, "\n3 passed, 0 failed, 0 skipped\n"));
    free(output);
}

static atomic_int *running; /* of all processes */

static void naps(void) {
    atomic_fetch_add(running, 1);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    atomic_fetch_sub(running, 1);
}

static void naps_alone(void) {
    EXPECT_EQ_INT(atomic_fetch_add(running, 1), 0);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    EXPECT_EQ_INT(atomic_fetch_sub(running, 1), 1);
}

static void test_what_is_alone_runs_beside_nothing(void) {
    static const struct runner_test tests[] = {{"a/naps", naps, false},
                                               {"b/naps_alone", naps_alone, true},
                                               {"c/naps", naps, false},
                                               {"d/naps_alone", naps_alone, true}};
    struct runner_options options = options_of(4);
    int status = -1;
    void *shared =
        mmap(NULL, sizeof *running, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    running = shared;
    char *output = output_of(tests, 4, &options, &status);
    munmap(shared, sizeof *running);
    CHECK(output != NULL);
    EXPECT(ends_with(output, "\n4 passed, 0 failed, 0 skipped\n"));
    free(output);
}

static void test_nothing_to_run_is_no_success(void) {
    struct runner_options options = options_of(2);
    int status = -1;
    char *output = output_of(NULL, 0, &options, &status);
    EXPECT_EQ_INT(status, 1);
    EXPECT_EQ_STR(output, "0 passed, 0 failed, 0 skipped\n");
    free(output);
}

WEIR_TEST_SUITE(runner, TEST(outcomes_are_counted),
                TEST(one_that_ends_its_process_is_named_and_the_others_go_on),
                TEST(with_one_job_the_totals_follow_a_crash),
                TEST(each_repetition_has_the_next_seed), TEST(lines_of_several_jobs_are_whole),
                TEST(what_is_alone_runs_beside_nothing), TEST(nothing_to_run_is_no_success))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: the harness catches what it promises to catch; a harness that passes everything would make
 * every other test worthless. Method: provoke each failure between test_expect_failures_begin and
 * _end, which keep it from this run's result, and look at what was reported.
 */
#include "harness.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_checks_accept_what_holds(void) {
    static const char same[] = "same";
    char copy[sizeof same];
    memcpy(copy, same, sizeof same);
    CHECK(1 + 1 == 2);
    CHECK_EQ_INT(INT64_MIN, INT64_MIN);
    CHECK_EQ_UINT(UINT64_MAX, UINT64_MAX);
    CHECK_EQ_STR(same, copy);
    CHECK_EQ_STR(NULL, NULL);
    CHECK_EQ_PTR(same, &same[0]);
    CHECK_EQ_BYTES(same, copy, sizeof same);
    CHECK_NEAR(1.0, 1.25, 0.25);
    CHECK_NEAR(INFINITY, INFINITY, 0);
    CHECK_STATUS(WEIR_ERR_SKIP, WEIR_ERR_SKIP);
    CHECK_CONTAINS("haystack", "stack");
    char *lines[] = {"one fault", "another"};
    CHECK(EXPECT_FAULTS((&(struct weir_faults){.lines = lines, .kept = 2, .count = 2}), "one",
                        "another"));
    CHECK_HELPERS();
}

static void test_failed_checks_print_both_values(void) {
    char last[256];
    test_expect_failures_begin();
    bool accepted = EXPECT_EQ_INT(3, -4);
    CHECK_EQ_INT(test_expect_failures_end(last, sizeof last), 1);
    CHECK(!accepted);
    CHECK_EQ_STR(last, "3 == -4: 3 and -4");

    test_expect_failures_begin();
    accepted = EXPECT_EQ_BYTES("abc", "abd", 3);
    CHECK_EQ_INT(test_expect_failures_end(last, sizeof last), 1);
    CHECK_CONTAINS(last, "byte 2 of 3 is 0x63 and 0x64");

    test_expect_failures_begin();
    accepted = EXPECT_STATUS(WEIR_OK, WEIR_ERR_SKIP);
    CHECK_EQ_INT(test_expect_failures_end(last, sizeof last), 1);
    CHECK_CONTAINS(last, "ERR_SKIP");
}

static void test_checks_refuse_what_does_not_hold(void) {
    static const char text[] = "text";
    test_expect_failures_begin();
    bool accepted = EXPECT(false);
    accepted |= EXPECT_EQ_UINT(1, UINT64_MAX);
    accepted |= EXPECT_EQ_STR("a", "b");
    accepted |= EXPECT_EQ_STR("a", NULL);
    accepted |= EXPECT_EQ_PTR(text, NULL);
    accepted |= EXPECT_NEAR(1.0, 1.26, 0.25);
    accepted |= EXPECT_NEAR(NAN, NAN, 1);
    accepted |= EXPECT_NEAR(INFINITY, 1, 1);
    accepted |= EXPECT_CONTAINS("hay", "needle");
    accepted |= EXPECT_CONTAINS(NULL, "needle");
    char *lines[] = {"one fault"};
    struct weir_faults faults = {.lines = lines, .kept = 1, .count = 1};
    accepted |= EXPECT_FAULTS(&faults, "two");
    accepted |= EXPECT_FAULTS(&faults, "one", "two"); /* fails by its count, too */
    CHECK_EQ_INT(test_expect_failures_end(NULL, 0), 13);
    CHECK(!accepted);
}

static void return_at_second(int *reached) {
    *reached = 1;
    CHECK(*reached == 2);
    *reached = 3;
}

static void test_failed_check_returns(void) {
    int reached = 0;
    test_expect_failures_begin();
    return_at_second(&reached);
    CHECK_EQ_INT(test_expect_failures_end(NULL, 0), 1);
    CHECK_EQ_INT(reached, 1);
}

static void test_allocator_aligns_fills_and_counts(void) {
    const struct weir_allocator *allocator = test_allocator();
    for (size_t alignment = 1; alignment <= 1 << 21; alignment *= 2) {
        unsigned char *memory = allocator->acquire(allocator->context, 100, alignment);
        CHECK(memory);
        EXPECT_EQ_UINT((uintptr_t)memory % alignment, 0);
        EXPECT_EQ_UINT(memory[0], 0xa5);
        EXPECT_EQ_UINT(test_allocator_live_bytes(), 100);
        allocator->release(allocator->context, memory, 100);
    }
    allocator->release(allocator->context, NULL, 7);
    CHECK_EQ_UINT(test_allocator_count(), 22);
    CHECK_EQ_UINT(test_allocator_live_blocks(), 0);
}

static void test_allocator_names_leaks(void) {
    const struct weir_allocator *allocator = test_allocator();
    char last[256];
    test_expect_failures_begin();
    CHECK(allocator->acquire(allocator->context, 123, 16));
    test_allocator_finish();
    CHECK_EQ_INT(test_expect_failures_end(last, sizeof last), 2);
    CHECK_CONTAINS(last, "123 bytes, acquisition 1");
    CHECK_EQ_UINT(test_allocator_live_blocks(), 0);
}

static void test_allocator_catches_wrong_sizes_and_overruns(void) {
    const struct weir_allocator *allocator = test_allocator();
    static const struct {
        int offset;
        size_t released_bytes;
        const char *message;
    } cases[] = {{0, 11, "was of 10 bytes and is released as 11"},
                 {10, 10, "past the end"},
                 {73, 10, "past the end"},
                 {-1, 10, "before the beginning"},
                 {-64, 10, "before the beginning"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char last[256];
        test_expect_failures_begin();
        volatile unsigned char *memory = allocator->acquire(allocator->context, 10, 8);
        memory[cases[i].offset] = 1;
        allocator->release(allocator->context, (void *)memory, cases[i].released_bytes);
        CHECK_EQ_INT(test_expect_failures_end(last, sizeof last), 1);
        CHECK_CONTAINS(last, cases[i].message);
    }
}

static void test_allocator_catches_a_second_release(void) {
    const struct weir_allocator *allocator = test_allocator();
    unsigned char unknown[256] = {0};
    char last[256];
    test_expect_failures_begin();
    allocator->release(allocator->context, unknown + 200, 8);
    CHECK_EQ_INT(test_expect_failures_end(last, sizeof last), 1);
    CHECK_CONTAINS(last, "not live");
}

/* A bit for each of `count` acquisitions that succeeded. */
static unsigned pattern_of_successes(int count) {
    const struct weir_allocator *allocator = test_allocator();
    unsigned pattern = 0;
    for (int i = 0; i < count; i++) {
        void *memory = allocator->acquire(allocator->context, 8, 8);
        pattern |= (memory ? 1u : 0u) << i;
        allocator->release(allocator->context, memory, 8);
    }
    return pattern;
}

static void test_allocator_fails_at_the_kth(void) {
    CHECK_EQ_UINT(pattern_of_successes(3), 0x7);
    test_allocator_fail_at(2, false);
    CHECK(!test_allocator_fired());
    CHECK_EQ_UINT(pattern_of_successes(4), 0xd);
    CHECK(test_allocator_fired());
    test_allocator_fail_at(3, true);
    CHECK_EQ_UINT(pattern_of_successes(5), 0x3);
    test_allocator_fail_at(0, true);
    CHECK_EQ_UINT(pattern_of_successes(2), 0x3);
    CHECK(!test_allocator_fired());
    test_allocator_fail_at(9, false);
    CHECK_EQ_UINT(pattern_of_successes(8), 0xff);
    CHECK(!test_allocator_fired());
}

static void *allocate_often(void *argument) {
    const struct weir_allocator *allocator = argument;
    for (size_t i = 0; i < 1000; i++) {
        void *memory = allocator->acquire(allocator->context, i, 64);
        if (!EXPECT(memory)) return NULL;
        allocator->release(allocator->context, memory, i);
    }
    return NULL;
}

static void test_allocator_works_from_several_threads(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        CHECK_EQ_INT(pthread_create(&threads[i], NULL, allocate_often, (void *)test_allocator()),
                     0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK_EQ_UINT(test_allocator_count(), 4000);
    CHECK_EQ_UINT(test_allocator_live_blocks(), 0);
}

static char *removed_directory(char *path, size_t capacity) {
    const char *directory = test_temporary_directory();
    snprintf(path, capacity, "%s/file", directory ? directory : "");
    return path;
}

static void test_temporary_directories_are_fresh_and_different(void) {
    const char *first = test_temporary_directory();
    const char *second = test_temporary_directory();
    CHECK(first && second);
    CHECK(strcmp(first, second) != 0);
    struct stat stat_result;
    CHECK_EQ_INT(stat(first, &stat_result), 0);
    CHECK(S_ISDIR(stat_result.st_mode));
    char path[512];
    FILE *file = fopen(removed_directory(path, sizeof path), "w");
    CHECK(file);
    fclose(file);
    char output[256];
    CHECK_EQ_INT(test_shell(output, sizeof output, "ls %s %s", first, second), 0);
    CHECK_CONTAINS(output, first);
}

static void test_random_numbers_stay_in_their_range(void) {
    bool seen[10] = {false};
    for (int i = 0; i < 1000; i++) {
        uint64_t below = test_random_below(10);
        CHECK(below < 10);
        seen[below] = true;
        double unit = test_random_unit();
        CHECK(unit >= 0 && unit < 1);
    }
    for (int i = 0; i < 10; i++) CHECK(seen[i]);
}

static void test_shell_gives_output_and_exit_status(void) {
    char output[64];
    CHECK_EQ_INT(test_shell(output, sizeof output, "echo %s; exit %d", "words", 3), 3);
    CHECK_EQ_STR(output, "words\n");
    CHECK_EQ_INT(test_shell(output, sizeof output, "kill -9 $$"), 128 + 9);
    char tiny[4];
    CHECK_EQ_INT(test_shell(tiny, sizeof tiny, "echo abcdef"), 0);
    CHECK_EQ_STR(tiny, "abc");
}

/* This program again, by its own name. */
static void test_options_may_stand_behind_names(void) {
    char self[512], output[256];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(length > 0);
    self[length] = '\0';
    CHECK_EQ_INT(
        test_shell(output, sizeof output, "'%s' harness/checks_acc --repeat 2 --list", self), 0);
    CHECK_EQ_STR(output, "harness/checks_accept_what_holds\nharness/checks_accept_what_holds\n");
    CHECK_EQ_INT(test_shell(output, sizeof output, "'%s' harness/checks_acc --repeats 2", self), 2);
    CHECK_CONTAINS(output, "tests: --repeats: unknown option");
}

WEIR_TEST_SUITE(harness, TEST(checks_accept_what_holds), TEST(failed_checks_print_both_values),
                TEST(checks_refuse_what_does_not_hold), TEST(failed_check_returns),
                TEST(allocator_aligns_fills_and_counts), TEST(allocator_names_leaks),
                TEST(allocator_catches_wrong_sizes_and_overruns),
                TEST(allocator_catches_a_second_release), TEST(allocator_fails_at_the_kth),
                TEST(allocator_works_from_several_threads),
                TEST(temporary_directories_are_fresh_and_different),
                TEST(random_numbers_stay_in_their_range), TEST(shell_gives_output_and_exit_status),
                TEST(options_may_stand_behind_names))

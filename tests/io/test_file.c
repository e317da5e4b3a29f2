/* SPDX-License-Identifier: MIT */
/*
 * Goal: a file is read whole or refused, and written whole or not at all, whatever the system does.
 * Method: every system call and every allocation fails once, fails from there on, does one byte
 * only, or is interrupted, for every k; after each the old file must be as it was, with nothing
 * leaked.
 */
#include "harness.h"
#include "io/file.h"
#include "io/io_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BIG ((size_t)100000) /* more than the writer gathers */

static const char old_text[] = "the old file";
static const char new_text[] = "the new file, which is longer";

struct place {
    char path[512];
    char partial[520];
    struct weir_error error;
    struct weir__io io;
};

static void place_init(struct place *place) {
    memset(place, 0, sizeof(*place));
    const char *directory = test_temporary_directory();
    io_make_file(directory, "file", old_text, strlen(old_text), place->path);
    snprintf(place->partial, sizeof(place->partial), "%s.partial", place->path);
    place->io = (struct weir__io){test_allocator(), io_faults_calls(), &place->error};
    io_faults_at(0, false, IO_FAULT_FAIL, 0);
}

static bool is_absent(const char *path) {
    return access(path, F_OK) != 0;
}

/* Writes in pieces of several sizes: gathered ones and large ones. */
static int write_pieces(const struct weir__io *io, const char *path, const char *data,
                        size_t bytes) {
    struct weir__file file;
    size_t step = 1;
    int status = weir__file_begin(io, path, &file);
    for (size_t done = 0; done < bytes && !status; done += step, step *= 3) {
        size_t piece = bytes - done < step ? bytes - done : step;
        status = weir__file_write(&file, data + done, piece);
    }
    if (status) {
        weir__file_abort(&file);
        return status;
    }
    return weir__file_commit(&file);
}

static void test_written_file_replaces_the_old_one(void) {
    struct place place;
    place_init(&place);
    static const size_t sizes[] = {0, 1, 65535, 65536, 65537, BIG};
    char *data = malloc(BIG);
    CHECK(data);
    for (size_t i = 0; i < BIG; i++) data[i] = (char)(i * 7 % 251);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        EXPECT_STATUS(write_pieces(&place.io, place.path, data, sizes[i]), WEIR_OK);
        EXPECT(io_file_is(place.path, data, sizes[i]));
        EXPECT(is_absent(place.partial));
    }
    free(data);
}

static void test_file_appears_at_the_commit_only(void) {
    struct place place;
    struct weir__file file;
    place_init(&place);
    CHECK_OK(weir__file_begin(&place.io, place.path, &file));
    EXPECT_STATUS(weir__file_write(&file, new_text, strlen(new_text)), WEIR_OK);
    EXPECT(io_file_is(place.path, old_text, strlen(old_text)));
    EXPECT(!is_absent(place.partial));
    EXPECT_STATUS(weir__file_commit(&file), WEIR_OK);
    EXPECT(io_file_is(place.path, new_text, strlen(new_text)));
    EXPECT(is_absent(place.partial));
}

static void test_aborted_file_never_appears(void) {
    struct place place;
    struct weir__file file;
    place_init(&place);
    CHECK_OK(weir__file_begin(&place.io, place.path, &file));
    EXPECT_STATUS(weir__file_write(&file, new_text, strlen(new_text)), WEIR_OK);
    weir__file_abort(&file);
    weir__file_abort(&file);
    EXPECT(io_file_is(place.path, old_text, strlen(old_text)));
    EXPECT(is_absent(place.partial));
}

/* After a failure the old file stands, or, if only the folder's flush failed, the new one. */
static void check_after(struct place *place, int status, bool partial_may_stay) {
    if (status == WEIR_OK) {
        EXPECT(io_file_is(place->path, new_text, strlen(new_text)));
        return;
    }
    EXPECT_STATUS(status, WEIR_ERR_IO);
    EXPECT_CONTAINS(place->error.message, "weir-test");
    EXPECT_CONTAINS(place->error.message, ": ");
    bool replaced = strstr(place->error.message, "is written") != NULL;
    EXPECT(replaced ? io_file_is(place->path, new_text, strlen(new_text))
                    : io_file_is(place->path, old_text, strlen(old_text)));
    EXPECT(partial_may_stay || is_absent(place->partial));
}

/* Over every k, until none is hit; returns how many saves failed. */
static int fail_every_call(struct place *place, bool persistent, enum io_fault fault, int number) {
    int failed = 0;
    for (uint64_t k = 1; k < 200; k++) {
        char path[512];
        io_make_file(test_temporary_directory(), "file", old_text, strlen(old_text), path);
        snprintf(place->path, sizeof(place->path), "%s", path);
        snprintf(place->partial, sizeof(place->partial), "%s.partial", path);
        place->error.message[0] = 0;
        int before = io_open_descriptors();
        io_faults_at(k, persistent, fault, number);
        int status = write_pieces(&place->io, place->path, new_text, strlen(new_text));
        bool fired = io_faults_fired();
        io_faults_at(0, false, fault, 0);
        check_after(place, status, persistent);
        EXPECT_EQ_INT(io_open_descriptors(), before);
        EXPECT_EQ_UINT(test_allocator_live_blocks(), 0);
        failed += status != WEIR_OK;
        if (!fired || test_has_failed()) {
            EXPECT(!fired);
            EXPECT_STATUS(status, WEIR_OK);
            break;
        }
    }
    return failed;
}

/* The calls of a save: stat, realpath, unlink of a left-over, open twice, write, flush, close,
 * rename, flush of the folder, close. All matter but the unlink and the last close, and a folder
 * that cannot be flushed at all. */
static void test_old_file_survives_any_failing_call(void) {
    struct place place;
    place_init(&place);
    EXPECT_EQ_INT(fail_every_call(&place, false, IO_FAULT_FAIL, ENOSPC), 9);
    EXPECT_EQ_INT(fail_every_call(&place, false, IO_FAULT_FAIL, EINVAL), 8);
    EXPECT_EQ_INT(fail_every_call(&place, true, IO_FAULT_FAIL, EIO), 10);
}

static void test_file_that_takes_nothing_is_an_error(void) {
    struct place place;
    place_init(&place);
    EXPECT_EQ_INT(fail_every_call(&place, false, IO_FAULT_FULL, 0), 1);
    EXPECT_EQ_INT(fail_every_call(&place, true, IO_FAULT_FULL, 0), 6);
    io_faults_at(1, true, IO_FAULT_FULL, 0);
    CHECK_STATUS(write_pieces(&place.io, place.path, new_text, 5), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "No space left on device");
}

static void test_short_and_interrupted_calls_go_unnoticed(void) {
    struct place place;
    place_init(&place);
    EXPECT_EQ_INT(fail_every_call(&place, false, IO_FAULT_SHORT, 0), 0);
    EXPECT_EQ_INT(fail_every_call(&place, true, IO_FAULT_SHORT, 0), 0);
    EXPECT_EQ_INT(fail_every_call(&place, false, IO_FAULT_INTERRUPT, 0), 0);
}

/* Two opens, a write and two flushes can be interrupted. */
static void test_endless_interruptions_end(void) {
    struct place place;
    place_init(&place);
    EXPECT_EQ_INT(fail_every_call(&place, true, IO_FAULT_INTERRUPT, 0), 10);
}

static void test_old_file_survives_any_failing_allocation(void) {
    struct place place;
    place_init(&place);
    for (uint64_t k = 1, fired = 1; fired; k++) {
        for (int persistent = 0; persistent < 2; persistent++) {
            int before = io_open_descriptors();
            test_allocator_fail_at(k, persistent);
            int status = write_pieces(&place.io, place.path, new_text, strlen(new_text));
            fired = test_allocator_fired();
            test_allocator_fail_at(0, false);
            CHECK_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
            CHECK_EQ_INT(io_open_descriptors(), before);
            CHECK(is_absent(place.partial));
            CHECK(!fired || io_file_is(place.path, old_text, strlen(old_text)));
        }
    }
}

static void test_a_file_gets_another_name_whole_or_not_at_all(void) {
    struct place place;
    char other[512], link[512];
    place_init(&place);
    io_make_file(test_temporary_directory(), "other", new_text, strlen(new_text), other);
    uint64_t k = 0;
    for (bool fired = true; fired;) {
        io_faults_at(++k, false, IO_FAULT_FAIL, EIO);
        bool done = weir__file_alias(&place.io, other, place.path);
        fired = io_faults_fired();
        io_faults_at(0, false, IO_FAULT_FAIL, 0);
        const char *text = done ? new_text : old_text;
        CHECK(io_file_is(place.path, text, strlen(text)));
        CHECK(is_absent(place.partial));
        CHECK(unlink(place.path) == 0);
        io_make_file(test_temporary_directory(), "file", old_text, strlen(old_text), place.path);
    }
    CHECK(k > 2); /* to link, to rename, and none */
    CHECK(io_file_is(other, new_text, strlen(new_text)));
    /* where a link leads is replaced, as in a save */
    snprintf(link, sizeof link, "%s/link", test_temporary_directory());
    CHECK(symlink(place.path, link) == 0);
    CHECK(weir__file_alias(&place.io, other, link));
    CHECK(io_file_is(place.path, new_text, strlen(new_text)));
    CHECK(weir__file_alias(&place.io, other, place.path)); /* its own name already */
    CHECK(is_absent(place.partial));
    CHECK(!weir__file_alias(&place.io, other, "/dev/null"));
    CHECK(!weir__file_alias(&place.io, "/nowhere", place.path));
}

static void test_failure_stays_until_the_commit(void) {
    struct place place;
    struct weir__file file;
    place_init(&place);
    CHECK_OK(weir__file_begin(&place.io, place.path, &file));
    char *data = calloc(1, BIG);
    CHECK(data);
    io_faults_at(1, false, IO_FAULT_FAIL, ENOSPC);
    EXPECT_STATUS(weir__file_write(&file, data, BIG), WEIR_ERR_IO);
    EXPECT_STATUS(weir__file_write(&file, "x", 1), WEIR_ERR_IO);
    EXPECT_STATUS(weir__file_commit(&file), WEIR_ERR_IO);
    EXPECT_CONTAINS(place.error.message, "No space left on device: make room");
    EXPECT(io_file_is(place.path, old_text, strlen(old_text)));
    free(data);
}

static void test_left_over_partial_is_replaced(void) {
    struct place place;
    char path[512];
    place_init(&place);
    const char *directory = test_temporary_directory();
    io_make_file(directory, "file.partial", "left", 4, path);
    snprintf(path, sizeof(path), "%s/file", directory);
    CHECK_OK(write_pieces(&place.io, path, new_text, strlen(new_text)));
    CHECK(io_file_is(path, new_text, strlen(new_text)));
}

/* A link planted under the partial's name must not lead the writer elsewhere. */
static void test_partial_that_is_a_link_is_not_followed(void) {
    struct place place;
    place_init(&place);
    char other[512];
    io_make_file(test_temporary_directory(), "other", old_text, strlen(old_text), other);
    CHECK_EQ_INT(symlink(other, place.partial), 0);
    CHECK_OK(write_pieces(&place.io, place.path, new_text, strlen(new_text)));
    CHECK(io_file_is(other, old_text, strlen(old_text)));
    CHECK(io_file_is(place.path, new_text, strlen(new_text)));
}

static void test_link_to_a_file_stays_a_link(void) {
    struct place place;
    place_init(&place);
    char link[512];
    snprintf(link, sizeof(link), "%s/link", test_temporary_directory());
    CHECK_EQ_INT(symlink(place.path, link), 0);
    CHECK_OK(write_pieces(&place.io, link, new_text, strlen(new_text)));
    struct stat facts;
    CHECK_EQ_INT(lstat(link, &facts), 0);
    CHECK(S_ISLNK(facts.st_mode));
    CHECK(io_file_is(place.path, new_text, strlen(new_text)));
    /* also a link to a link, and to a file that is not there yet */
    char outer[512];
    snprintf(outer, sizeof outer, "%s/outer", test_temporary_directory());
    CHECK_EQ_INT(symlink(link, outer), 0);
    CHECK_EQ_INT(unlink(place.path), 0);
    CHECK_OK(write_pieces(&place.io, outer, new_text, strlen(new_text)));
    CHECK(lstat(outer, &facts) == 0 && S_ISLNK(facts.st_mode));
    CHECK(lstat(link, &facts) == 0 && S_ISLNK(facts.st_mode));
    CHECK(io_file_is(place.path, new_text, strlen(new_text)));
    CHECK(unlink(link) == 0 && symlink(outer, link) == 0); /* a circle */
    CHECK_STATUS(write_pieces(&place.io, outer, new_text, strlen(new_text)), WEIR_ERR_IO);
}

static void test_permissions_of_the_old_file_are_kept(void) {
    struct place place;
    place_init(&place);
    CHECK_EQ_INT(chmod(place.path, 0600), 0);
    CHECK_OK(write_pieces(&place.io, place.path, new_text, strlen(new_text)));
    struct stat facts;
    CHECK_EQ_INT(stat(place.path, &facts), 0);
    CHECK_EQ_INT(facts.st_mode & 0777, 0600);
}

/* A pipe of the test's own: a writer that got this wrong would replace a device of the machine. */
static void test_pipe_or_device_is_written_straight(void) {
    struct place place;
    struct stat facts;
    char path[512], partial[520], got[64] = "";
    place_init(&place);
    snprintf(path, sizeof(path), "%s/pipe", test_temporary_directory());
    snprintf(partial, sizeof(partial), "%s.partial", path);
    CHECK_EQ_INT(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    CHECK(reader >= 0);
    int status = write_pieces(&place.io, path, new_text, strlen(new_text));
    ssize_t bytes = read(reader, got, sizeof(got) - 1);
    close(reader);
    CHECK_OK(status);
    CHECK_EQ_INT(bytes, (int)strlen(new_text));
    CHECK_EQ_STR(got, new_text);
    CHECK_EQ_INT(stat(path, &facts), 0);
    CHECK(S_ISFIFO(facts.st_mode));
    CHECK(is_absent(partial));
}

static void test_folder_and_missing_folder_are_refused(void) {
    struct place place;
    struct weir__file file;
    char path[512];
    place_init(&place);
    CHECK_STATUS(weir__file_begin(&place.io, test_temporary_directory(), &file), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "Is a directory: name a file");
    snprintf(path, sizeof(path), "%s/none/file", test_temporary_directory());
    CHECK_STATUS(weir__file_begin(&place.io, path, &file), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "none/file.partial: No such file or directory: check");
}

static void test_long_path_leaves_room_for_the_reason(void) {
    struct place place;
    struct weir__file file;
    char path[600];
    place_init(&place);
    memset(path, 'a', sizeof(path));
    memcpy(path, "/none/", 6);
    path[sizeof(path) - 1] = 0;
    memcpy(path + 580, "/end.safetensors", 16);
    path[596] = 0;
    CHECK_STATUS(weir__file_begin(&place.io, path, &file), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "cannot create ...");
    CHECK_CONTAINS(place.error.message, "/end.safetensors.partial: No such file");
}

static void test_whole_file_is_read_under_its_limit(void) {
    struct place place;
    struct weir__bytes bytes;
    size_t length = strlen(old_text);
    place_init(&place);
    for (size_t limit = length; limit < length + 2; limit++) {
        CHECK_OK(weir__file_read(&place.io, place.path, limit, &bytes));
        EXPECT_EQ_UINT(bytes.count, length);
        EXPECT_EQ_STR(bytes.data, old_text);
        weir__bytes_release(test_allocator(), &bytes);
    }
    CHECK_STATUS(weir__file_read(&place.io, place.path, length - 1, &bytes), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "more than 11 bytes");
    CHECK_STATUS(weir__file_read(&place.io, "/none", 10, &bytes), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "cannot open /none: No such file or directory: check");
    CHECK_STATUS(weir__file_read(&place.io, "/", 10, &bytes), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "Is a directory");
    CHECK_STATUS(weir__file_read(&place.io, "/dev/zero", 1000, &bytes), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "more than 1000 bytes");
}

static void test_pipe_is_read_to_its_end(void) {
    struct place place;
    struct weir__bytes bytes;
    int ends[2];
    char path[64];
    place_init(&place);
    CHECK_EQ_INT(pipe(ends), 0);
    CHECK_EQ_INT(write(ends[1], new_text, strlen(new_text)), (int)strlen(new_text));
    close(ends[1]);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[0]);
    int status = weir__file_read(&place.io, path, 1000, &bytes);
    close(ends[0]);
    CHECK_OK(status);
    EXPECT_EQ_STR(bytes.data, new_text);
    weir__bytes_release(test_allocator(), &bytes);
}

static void read_under_faults(struct place *place, bool persistent, enum io_fault fault) {
    for (uint64_t k = 1, fired = 1; fired && k < 100; k++) {
        struct weir__bytes bytes = {0};
        int before = io_open_descriptors();
        io_faults_at(k, persistent, fault, EIO);
        int status = weir__file_read(&place->io, place->path, 100, &bytes);
        fired = io_faults_fired();
        io_faults_at(0, false, fault, 0);
        if (status) {
            EXPECT_STATUS(status, WEIR_ERR_IO);
            EXPECT_CONTAINS(place->error.message, "/file: ");
        } else {
            EXPECT_EQ_STR(bytes.data, old_text);
        }
        weir__bytes_release(test_allocator(), &bytes);
        CHECK_EQ_INT(io_open_descriptors(), before);
    }
}

static void test_reading_survives_any_failing_call(void) {
    struct place place;
    place_init(&place);
    for (int persistent = 0; persistent < 2; persistent++) {
        read_under_faults(&place, persistent, IO_FAULT_FAIL);
        read_under_faults(&place, persistent, IO_FAULT_SHORT);
        read_under_faults(&place, persistent, IO_FAULT_INTERRUPT);
    }
}

static void test_reading_survives_any_failing_allocation(void) {
    struct place place;
    struct weir__bytes bytes;
    place_init(&place);
    test_allocator_fail_at(1, false);
    CHECK_STATUS(weir__file_read(&place.io, place.path, 100, &bytes), WEIR_ERR_OUT_OF_MEMORY);
    test_allocator_fail_at(2, false);
    CHECK_OK(weir__file_read(&place.io, place.path, 100, &bytes));
    CHECK(!test_allocator_fired());
    test_allocator_fail_at(0, false);
    weir__bytes_release(test_allocator(), &bytes);
}

WEIR_TEST_SUITE(
    file, TEST(written_file_replaces_the_old_one), TEST(file_appears_at_the_commit_only),
    TEST(aborted_file_never_appears), TEST(old_file_survives_any_failing_call),
    TEST(short_and_interrupted_calls_go_unnoticed), TEST(endless_interruptions_end),
    TEST(file_that_takes_nothing_is_an_error), TEST(old_file_survives_any_failing_allocation),
    TEST(a_file_gets_another_name_whole_or_not_at_all), TEST(failure_stays_until_the_commit),
    TEST(left_over_partial_is_replaced), TEST(partial_that_is_a_link_is_not_followed),
    TEST(link_to_a_file_stays_a_link), TEST(permissions_of_the_old_file_are_kept),
    TEST(pipe_or_device_is_written_straight), TEST(folder_and_missing_folder_are_refused),
    TEST(long_path_leaves_room_for_the_reason), TEST(whole_file_is_read_under_its_limit),
    TEST(pipe_is_read_to_its_end), TEST(reading_survives_any_failing_call),
    TEST(reading_survives_any_failing_allocation))

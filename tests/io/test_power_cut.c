/* SPDX-License-Identifier: MIT */
/*
 * Goal: whenever the power goes, a saved file is the old one or the new one, whole, and a save that
 * said it was done is there. Method: saves are recorded call by call; after each of them the disk
 * is had in many of the states that it may be in (power_cut.h), every one of which must hold one of
 * the two versions that are right at that moment, and must take the next save. Disks that lie about
 * their flushes show that the states tell.
 */
#include "harness.h"

#include "io/safetensors.h"
#include "io/io_faults.h"
#include "io/io_memory.h"
#include "io/power_cut.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSIONS 4
#define NUMBERS 30000 /* 120 KB: more than a writer gathers */
#define DRAWS 24

/* One version of a file, as the disk should give it back. */
struct version {
    char *bytes;
    size_t count;
    uint32_t begun, done; /* steps before the first, and after the last of its saving */
};

struct history {
    char path[512];
    struct weir_error error;
    struct weir__io io;
    struct version versions[VERSIONS];
    uint32_t first, count; /* versions[first] is the oldest one that there can be */
    uint32_t wrong;        /* states that hold none of the right ones */
    char first_wrong[128];
};

/* Versions differ in every tensor and in length. */
static int save_version(struct history *history, uint32_t number) {
    static float numbers[NUMBERS];
    char step[16];
    for (uint32_t i = 0; i < NUMBERS; i++) numbers[i] = (float)(number * NUMBERS + i);
    snprintf(step, sizeof step, "%u", number);
    struct weir__safetensors_text text = {"step", step};
    struct weir__safetensors_item items[] = {
        {.name = "a", .dtype = WEIR_F32, .rank = 1, .shape = {7}, .data = numbers},
        {.name = "b",
         .dtype = WEIR_F32,
         .rank = 2,
         .shape = {100, number % 2 ? 300 : 200},
         .data = numbers},
        {.name = "c", .dtype = WEIR_F32, .rank = 1, .shape = {500}, .data = numbers}};
    return weir__safetensors_save(&history->io, history->path, items, 3, &text, 1);
}

static void keep_version(struct history *history, uint32_t number) {
    struct weir__bytes bytes;
    struct weir__io io = {.allocator = test_allocator()};
    struct version *version = &history->versions[number];
    if (!EXPECT_STATUS(weir__file_read(&io, history->path, 1 << 20, &bytes), WEIR_OK)) return;
    version->bytes = malloc(bytes.count);
    version->count = bytes.count;
    if (EXPECT(version->bytes)) memcpy(version->bytes, bytes.data, bytes.count);
    weir__bytes_release(test_allocator(), &bytes);
}

/* Saves all versions; the first one before the recording, unless the file is to be new. */
static void record(struct history *history, bool old_file, bool left_over, enum power_cut_lie lie) {
    memset(history, 0, sizeof *history);
    const char *directory = test_temporary_directory();
    char partial[512];
    snprintf(history->path, sizeof history->path, "%s/model", directory);
    history->io = (struct weir__io){.allocator = test_allocator(), .error = &history->error};
    history->first = old_file ? 0 : 1;
    history->count = VERSIONS;
    if (old_file) {
        EXPECT_STATUS(save_version(history, 0), WEIR_OK);
        keep_version(history, 0);
    }
    if (left_over) io_make_file(directory, "model.partial", "left over", 9, partial);
    power_cut_begin(history->path, lie);
    history->io.calls = power_cut_calls();
    for (uint32_t v = 1; v < VERSIONS && !test_has_failed(); v++) {
        history->versions[v].begun = power_cut_steps();
        EXPECT_STATUS(save_version(history, v), WEIR_OK);
        history->versions[v].done = power_cut_steps();
        keep_version(history, v);
    }
}

static void forget(struct history *history) {
    for (uint32_t v = 0; v < VERSIONS; v++) free(history->versions[v].bytes);
    power_cut_end();
}

/* The version that the file is; -1: none, -2: no file. */
static int version_of(const struct history *history, const struct power_cut_file *file) {
    if (!file->exists) return -2;
    for (uint32_t v = history->first; v < history->count; v++) {
        const struct version *version = &history->versions[v];
        if (file->count == version->count &&
            memcmp(file->bytes, version->bytes, version->count) == 0) {
            return (int)v;
        }
    }
    return -1;
}

/* What is done is there; what is begun may be. */
static bool is_right(const struct history *history, uint32_t step, int version) {
    int done = history->first == 0 ? 0 : -2, begun = done;
    for (int v = 1; v < (int)history->count; v++) {
        if (history->versions[v].done <= step) done = v;
        if (history->versions[v].begun < step) begun = v;
    }
    return version != -1 && (version == done || version == begun);
}

static bool opens(const struct power_cut_file *file) {
    struct weir_error error = {0};
    struct weir__io io = {test_allocator(), io_memory_calls(), &error};
    struct weir__safetensors *opened = NULL;
    io_memory_file(file->bytes, file->count);
    int status = weir__safetensors_open(&io, "model", NULL, &opened);
    weir__safetensors_close(opened);
    return status == WEIR_OK;
}

static void check_state(struct history *history, uint32_t step, enum power_cut_part part,
                        size_t sector) {
    struct power_cut_file file, partial;
    if (!power_cut_recover(step, part, sector, &file, &partial)) return;
    int version = version_of(history, &file);
    bool right = is_right(history, step, version);
    if (!right && history->wrong++ == 0) {
        snprintf(history->first_wrong, sizeof history->first_wrong,
                 "cut behind step %u, part %d, sectors of %zu: version %d, %zu bytes", step,
                 (int)part, sector, version, file.count);
    }
    if (version >= 0) EXPECT(opens(&file));
    power_cut_file_release(&file);
    power_cut_file_release(&partial);
}

static void check_every_state(struct history *history) {
    static const size_t sectors[] = {512, 4096};
    for (uint32_t step = 0; step <= power_cut_steps() && !test_has_failed(); step++) {
        for (int part = 0; part < POWER_CUT_PARTS; part++) {
            for (uint32_t draw = 0; draw < DRAWS; draw++) {
                check_state(history, step, (enum power_cut_part)part, sectors[draw % 2]);
            }
        }
    }
}

/* ---- the tests ---- */

static void check_history(bool old_file, bool left_over) {
    static struct history history;
    record(&history, old_file, left_over, POWER_CUT_HONEST);
    EXPECT(power_cut_steps() > 3 * 8);
    check_every_state(&history);
    if (history.wrong > 0) TEST_FAIL("%u wrong states; %s", history.wrong, history.first_wrong);
    forget(&history);
}

static void test_a_power_cut_leaves_the_old_file_or_the_new_one(void) {
    check_history(true, false);
}

static void test_a_power_cut_leaves_no_file_or_the_new_one(void) {
    check_history(false, false);
}

static void test_a_left_over_partial_file_does_not_matter(void) {
    check_history(true, true);
}

static void put(const struct power_cut_file *file, const char *path) {
    remove(path);
    if (!file->exists) return;
    FILE *stream = fopen(path, "wb");
    if (!EXPECT(stream)) return;
    EXPECT_EQ_UINT(fwrite(file->bytes, 1, file->count, stream), file->count);
    fclose(stream);
}

/* After any cut the machine comes up, and the run saves again. */
static void test_the_next_save_succeeds_whatever_the_cut_left(void) {
    static struct history history;
    char partial[600];
    record(&history, true, false, POWER_CUT_HONEST);
    uint32_t steps = history.versions[1].done;
    snprintf(partial, sizeof partial, "%s.partial", history.path);
    struct power_cut_file files[64][2];
    CHECK(steps < 64);
    for (uint32_t step = 0; step <= steps; step++) {
        CHECK(power_cut_recover(step, POWER_CUT_JUNK, 512, &files[step][0], &files[step][1]));
    }
    history.io.calls = NULL;
    for (uint32_t step = 0; step <= steps; step++) {
        put(&files[step][0], history.path);
        put(&files[step][1], partial);
        EXPECT_STATUS(save_version(&history, 2), WEIR_OK);
        EXPECT(io_file_is(history.path, history.versions[2].bytes, history.versions[2].count));
        EXPECT(access(partial, F_OK) != 0);
        power_cut_file_release(&files[step][0]);
        power_cut_file_release(&files[step][1]);
    }
    forget(&history);
}

/* Without the flush before the rename, or the one after it, states must turn out wrong: else none
 * of the above would say anything. */
static void test_a_disk_that_lies_is_found_out(void) {
    static const enum power_cut_lie lies[] = {POWER_CUT_NO_FLUSH, POWER_CUT_NO_FOLDER_FLUSH};
    for (size_t i = 0; i < 2; i++) {
        static struct history history;
        record(&history, true, false, lies[i]);
        check_every_state(&history);
        EXPECT(history.wrong > 100);
        forget(&history);
        CHECK_HELPERS();
    }
}

WEIR_TEST_SUITE(power_cut, TEST(a_power_cut_leaves_the_old_file_or_the_new_one),
                TEST(a_power_cut_leaves_no_file_or_the_new_one),
                TEST(a_left_over_partial_file_does_not_matter),
                TEST(the_next_save_succeeds_whatever_the_cut_left),
                TEST(a_disk_that_lies_is_found_out))

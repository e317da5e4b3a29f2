/* SPDX-License-Identifier: MIT */
/*
 * Goal: a malformed file of any format is refused with the status that says so and a message that
 * names what is wrong; nothing is leaked and nothing outside the file is read. Method: tables of
 * malformed files, and sound ones cut at every byte. What big ones may cost: test_hostile.c.
 */
#include "io/malformed.h"

#include "io/io_memory.h"

#include <stdlib.h>
#include <string.h>

#define FILES_MIN 150

static char message[1 << 16];

/* Blocks, descriptors and mappings must be as before. */
static int read_bytes(const struct malformed_set *set, const char *bytes, size_t count) {
    struct weir__io io = {.allocator = test_allocator(), .calls = io_memory_calls()};
    message[0] = 0;
    io_memory_file(bytes, count);
    int status = set->read(&io, "a/file", message, sizeof message);
    EXPECT_EQ_UINT(io_memory_open_count(), 0);
    EXPECT_EQ_UINT(test_allocator_live_blocks(), 0);
    return status;
}

static void check_refused(const struct malformed_set *set, const struct malformed *malformed) {
    size_t count = 0;
    char *bytes = malformed_bytes(set, malformed, &count);
    if (!bytes) return;
    EXPECT_STATUS(read_bytes(set, bytes, count), malformed->status);
    EXPECT_CONTAINS(message, malformed->part);
    if (test_has_failed()) TEST_FAIL("%s: %s", set->format, malformed->name);
    free(bytes);
}

static void test_every_malformed_file_is_refused_by_its_status(void) {
    const struct malformed_set *set;
    size_t count = 0;
    for (size_t s = 0; (set = malformed_set_at(s)) != NULL; s++) {
        for (size_t i = 0; i < set->count; i++) {
            check_refused(set, &set->list[i]);
            CHECK_HELPERS();
        }
        count += set->count;
    }
    CHECK(count >= FILES_MIN);
}

static void test_no_two_malformed_files_are_the_same(void) {
    const struct malformed_set *set;
    for (size_t s = 0; (set = malformed_set_at(s)) != NULL; s++) {
        for (size_t i = 0; i < set->count; i++) {
            const struct malformed *a = &set->list[i];
            for (size_t j = 0; j < i; j++) {
                const struct malformed *b = &set->list[j];
                CHECK(strcmp(a->name, b->name) != 0);
                bool same = a->raw == b->raw && a->zeros == b->zeros &&
                            a->text_bytes == b->text_bytes &&
                            memcmp(a->text, b->text, a->text_bytes) == 0;
                if (same) TEST_FAIL("%s: '%s' is '%s'", set->format, a->name, b->name);
            }
        }
    }
}

static void test_a_file_cut_at_any_byte_is_refused(void) {
    const struct malformed_set *set;
    for (size_t s = 0; (set = malformed_set_at(s)) != NULL; s++) {
        size_t count = 0;
        if (!set->whole) continue;
        char *bytes = malformed_bytes(set, set->whole, &count);
        CHECK(bytes);
        EXPECT_STATUS(read_bytes(set, bytes, count), WEIR_OK);
        for (size_t cut = 0; cut < count && !test_has_failed(); cut++) {
            EXPECT_STATUS(read_bytes(set, bytes, cut), WEIR_ERR_FORMAT);
            if (test_has_failed()) TEST_FAIL("%s: cut at %zu of %zu", set->format, cut, count);
        }
        free(bytes);
    }
}

/* The same with the k-th allocation failing: the file is still refused, or memory is short. */
static void test_lack_of_memory_is_no_way_in(void) {
    const struct malformed_set *set;
    for (size_t s = 0; (set = malformed_set_at(s)) != NULL; s++) {
        for (size_t i = 0; i < set->count; i++) {
            size_t count = 0;
            char *bytes = malformed_bytes(set, &set->list[i], &count);
            CHECK(bytes);
            for (uint64_t k = 1, fired = 1; fired && !test_has_failed(); k++) {
                test_allocator_fail_at(k, k % 2);
                int status = read_bytes(set, bytes, count);
                fired = test_allocator_fired();
                test_allocator_fail_at(0, false);
                EXPECT(status == set->list[i].status ||
                       (fired && status == WEIR_ERR_OUT_OF_MEMORY));
            }
            if (test_has_failed()) TEST_FAIL("%s: %s", set->format, set->list[i].name);
            free(bytes);
            CHECK_HELPERS();
        }
    }
}

WEIR_TEST_SUITE(malformed, TEST(every_malformed_file_is_refused_by_its_status),
                TEST(no_two_malformed_files_are_the_same), TEST(a_file_cut_at_any_byte_is_refused),
                TEST(lack_of_memory_is_no_way_in))

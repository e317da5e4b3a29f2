/* SPDX-License-Identifier: MIT */
/*
 * Goal: documents share rows by the rule of data/packed_rows.h, and always in the same way. Method:
 * small cases by hand, one of them frozen, and random ones against the rule written down again, row
 * by row without a list of open ones.
 */
#include "harness.h"
#include "data/packed_rows.h"

enum { MOST = 2000 };

static void expect_rows(const uint32_t *places, uint64_t count, uint32_t context,
                        const uint64_t *wanted, uint64_t rows) {
    uint64_t row_of[16];
    CHECK(count <= WEIR__COUNT_OF(row_of));
    EXPECT_EQ_UINT(weir__packed_rows(places, count, context, row_of), rows);
    for (uint64_t i = 0; i < count; i++) EXPECT_EQ_UINT(row_of[i], wanted[i]);
}

static void test_each_goes_into_the_first_row_with_room(void) {
    static const uint32_t places[] = {6, 5, 4, 5, 10, 1, 9, 2, 8};
    static const uint64_t wanted[] = {0, 1, 0, 1, 2, 3, 3, 4, 4};
    expect_rows(places, WEIR__COUNT_OF(places), 10, wanted, 5);
}

static void test_no_document_takes_no_row(void) {
    expect_rows(NULL, 0, 10, NULL, 0);
}

/* A row is open as long as 64 are: the first one takes the last of these, but not one later. */
static void test_rows_that_are_long_open_are_closed(void) {
    for (uint32_t more = 0; more < 2; more++) {
        uint32_t places[PACKED_ROWS_OPEN + 2];
        uint64_t row_of[PACKED_ROWS_OPEN + 2], count = PACKED_ROWS_OPEN + more + 1;
        for (uint64_t i = 0; i + 1 < count; i++) places[i] = 6;
        places[count - 1] = 4;
        EXPECT_EQ_UINT(weir__packed_rows(places, count, 10, row_of), count - 1);
        EXPECT_EQ_UINT(row_of[count - 1], more);
    }
}

/* Rows that have room, counted from the newest. */
static uint64_t open_after(const uint32_t *room, uint64_t rows, uint64_t row) {
    uint64_t open = 0;
    for (uint64_t r = row + 1; r < rows; r++) open += room[r] > 0;
    return open;
}

static void check_random(void) {
    static uint32_t places[MOST], room[MOST];
    static bool closed[MOST];
    static uint64_t row_of[MOST];
    uint32_t context = 1 + (uint32_t)test_random_below(300);
    uint64_t count = test_random_below(MOST + 1), rows = 0;
    uint64_t most = 1 + test_random_below(context);
    for (uint64_t i = 0; i < count; i++) places[i] = 1 + (uint32_t)test_random_below(most);
    uint64_t made = weir__packed_rows(places, count, context, row_of);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t row = 0;
        while (row < rows && (closed[row] || room[row] < places[i])) row++;
        if (row == rows) {
            for (uint64_t r = 0; r < rows; r++)
                closed[r] |= open_after(room, rows, r) + 1 >= PACKED_ROWS_OPEN;
            room[rows] = context;
            closed[rows++] = false;
        }
        CHECK_EQ_UINT(row_of[i], row);
        room[row] -= places[i];
    }
    CHECK_EQ_UINT(made, rows);
}

static void test_random_documents_follow_the_rule(void) {
    for (int i = 0; i < 40 && !test_has_failed(); i++) check_random();
}

WEIR_TEST_SUITE(packed_rows, TEST(each_goes_into_the_first_row_with_room),
                TEST(no_document_takes_no_row), TEST(rows_that_are_long_open_are_closed),
                TEST(random_documents_follow_the_rule))

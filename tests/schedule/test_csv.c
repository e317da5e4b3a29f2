/* SPDX-License-Identifier: MIT */
/*
 * Goal: tables are read in PyTorch's notation and written so that they read back the same; bad text
 * is refused with row and cell, and no text does harm. Method: texts as
 * torch.distributed.pipelining writes them, each fault by hand, then random and mutated texts.
 */
#include "schedule/schedule_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** What a text became. */
struct outcome {
    int status;
    char csv[2048];    /**< the table written again, or "" */
    char faults[2048]; /**< one per line */
    char notes[1024];
};

static void join(const struct weir_faults *faults, char *text, size_t capacity) {
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < faults->kept && used < capacity; i++) {
        used += (size_t)snprintf(text + used, capacity - used, "%s\n", faults->lines[i]);
    }
}

static struct weir_table_options anything(enum weir_checkpoint checkpoint) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    options.allocator = test_allocator();
    options.stages = options.micro_batches = 0;
    options.checkpoint = checkpoint;
    return options;
}

/* The text is copied without a zero at its end, so that a reader that goes on is caught. */
static void parse(const struct weir_table_options *options, const char *text, size_t bytes,
                  struct outcome *outcome) {
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_faults notes = {.allocator = test_allocator()};
    struct weir_table *table = NULL;
    char *copy = malloc(bytes > 0 ? bytes : 1);
    memset(outcome, 0, sizeof *outcome);
    if (!EXPECT(copy != NULL)) return;
    memcpy(copy, text, bytes);
    outcome->status = weir_table_parse(options, copy, bytes, &faults, &notes, &table);
    EXPECT_EQ_INT(outcome->status == WEIR_OK, table != NULL);
    EXPECT_EQ_INT(outcome->status == WEIR_OK, faults.count == 0);
    if (table != NULL) {
        weir_table_format(table, false, outcome->csv, sizeof outcome->csv);
    }
    join(&faults, outcome->faults, sizeof outcome->faults);
    join(&notes, outcome->notes, sizeof outcome->notes);
    weir_table_destroy(table);
    weir_faults_clean_up(&faults);
    weir_faults_clean_up(&notes);
    free(copy);
}

static void expect_reads(const char *text, enum weir_checkpoint checkpoint, const char *expected) {
    struct weir_table_options options = anything(checkpoint);
    struct outcome outcome;
    parse(&options, text, strlen(text), &outcome);
    EXPECT_STATUS(outcome.status, WEIR_OK);
    EXPECT_EQ_STR(outcome.faults, "");
    EXPECT_EQ_STR(outcome.csv, expected);
}

static void expect_fault(const char *text, const char *expected) {
    struct weir_table_options options = anything(WEIR_CHECKPOINT_NEVER);
    struct outcome outcome;
    parse(&options, text, strlen(text), &outcome);
    EXPECT_STATUS(outcome.status, WEIR_ERR_FORMAT);
    EXPECT_EQ_STR(outcome.faults, expected);
    EXPECT_EQ_STR(outcome.csv, "");
}

/* ---- what is read ---- */

static void test_pytorch_tables_are_read(void) {
    const enum weir_checkpoint never = WEIR_CHECKPOINT_NEVER;
    /* as ScheduleGPipe and Schedule1F1B would dump them: a row per rank, blanks for waiting */
    expect_reads("0F0,0F1,,,,0B0,0B1\r\n,1F0,1F1,1B0,1B1,,\r\n", never,
                 "0F0,0F1,0B0,0B1,0U\n1F0,1F1,1B0,1B1,1U\n");
    /* a zero-bubble V, two stages a rank: I, then W */
    expect_reads("0F0,,,3F0,3I0,3W0,0I0,0W0\n,1F0,2F0,,,2I0,1I0,2W0,1W0\n", never,
                 "0F0,3F0,3I0,3W0,0I0,0W0,0U,3U\n1F0,2F0,2I0,1I0,2W0,1W0,1U,2U\n");
    expect_reads("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n", never, "0F0,0F1,0B0,0B1,0U\n");
    expect_reads(" ( 0F0 ; 0B0 ) OVERLAP_F_B ", never, "0F0,0B0,0U\n");
}

static void test_communication_is_skipped_with_a_note(void) {
    static const char text[] =
        "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0RESHARD,0REDUCE_GRAD\n"
        "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1WAIT_REDUCE_GRAD\n";
    struct weir_table_options options = anything(WEIR_CHECKPOINT_NEVER);
    struct outcome outcome;
    parse(&options, text, strlen(text), &outcome);
    CHECK_OK(outcome.status);
    CHECK_EQ_STR(outcome.csv, "0F0,0F1,0B0,0B1,0U\n1F0,1B0,1F1,1B1,1U\n");
    CHECK_CONTAINS(outcome.notes, "2 SEND_F cells are skipped: communication follows from");
    CHECK_CONTAINS(outcome.notes, "2 RECV_F cells");
    CHECK_CONTAINS(outcome.notes, "2 SEND_B cells");
    CHECK_CONTAINS(outcome.notes, "2 RECV_B cells");
    CHECK_CONTAINS(outcome.notes, "2 UNSHARD cells");
    CHECK_CONTAINS(outcome.notes, "1 RESHARD cells");
    CHECK_CONTAINS(outcome.notes, "1 REDUCE_GRAD cells");
    CHECK_CONTAINS(outcome.notes, "1 WAIT_REDUCE_GRAD cells");
    struct weir_table *table = NULL;
    CHECK_OK(weir_table_parse(&options, text, strlen(text), NULL, NULL, &table));
    weir_table_destroy(table);
}

static void test_spaces_quotes_and_line_ends_do_not_matter(void) {
    const enum weir_checkpoint never = WEIR_CHECKPOINT_NEVER;
    const char *expected = "0F0,0B0,0U\n1F0,1B0,1U\n";
    expect_reads("0F0,0B0\n1F0,1B0\n", never, expected);
    expect_reads("0F0,0B0\r\n1F0,1B0", never, expected);
    expect_reads("\"0F0\",\"0B0\"\n \"1F0\" ,\t\"1B0\"\r\n", never, expected);
    expect_reads("\n  0F0 ,, 0B0 ,,\n\r\n \n1F0,\"\",1B0\n\n", never, expected);
    expect_reads("\xEF\xBB\xBF"
                 "0F0,0B0\n1F0,1B0\n",
                 never, expected);
    expect_reads("\"(0F0;0B0)OVERLAP_F_B\"\n1F0,1B0", never, expected);
    expect_reads("000F0,0B00000000000\n1F0,1B0", never, expected);
}

static void test_missing_recomputes_go_before_their_backward(void) {
    expect_reads("0F0,0F1,0B0,0B1\n1F0,1F1,1I0,1I1,1W0,1W1\n", WEIR_CHECKPOINT_ALWAYS,
                 "0F0,0F1,0R0,0B0,0R1,0B1,0U\n1F0,1F1,1R0,1I0,1R1,1I1,1W0,1W1,1U\n");
    expect_reads("0F0,0F1,0B0,0B1\n1F0,1F1,1I0,1I1,1W0,1W1\n", WEIR_CHECKPOINT_DEFAULT,
                 "0F0,0F1,0R0,0B0,0B1,0U\n1F0,1F1,1R0,1I0,1I1,1W0,1W1,1U\n");
}

static void test_a_text_with_recomputes_is_taken_as_it_is(void) {
    static const char text[] = "0F0,0F1,0R0,0B0,0B1,0U\n1F0,1B0,1F1,1B1,1U\n";
    expect_reads(text, WEIR_CHECKPOINT_ALWAYS, text);
    expect_reads(text, WEIR_CHECKPOINT_NEVER, text);
}

static void test_missing_updates_go_to_the_end_of_the_row(void) {
    expect_reads("0F0,2F0,2B0,0B0\n1F0,1B0,1U\n", WEIR_CHECKPOINT_NEVER,
                 "0F0,2F0,2B0,0B0,0U,2U\n1F0,1B0,1U\n");
    expect_reads("0F0,2F0,2B0,0B0,2U\n1F0,1B0\n", WEIR_CHECKPOINT_NEVER,
                 "0F0,2F0,2B0,0B0,2U,0U\n1F0,1B0,1U\n");
}

static void test_per_stage_modes_add_their_recomputes(void) {
    static const enum weir_checkpoint own[] = {WEIR_CHECKPOINT_NEVER, WEIR_CHECKPOINT_ALWAYS};
    static const char text[] = "0F0,0B0\n1F0,1B0\n";
    struct weir_table_options options = anything(WEIR_CHECKPOINT_NEVER);
    struct outcome outcome;
    options.stage_checkpoint = own;
    parse(&options, text, strlen(text), &outcome);
    CHECK_STATUS(outcome.status, WEIR_ERR_ARGUMENT);
    CHECK_CONTAINS(outcome.faults, "checkpoint modes per stage need the number of stages");
    options.stages = 2;
    parse(&options, text, strlen(text), &outcome);
    CHECK_OK(outcome.status);
    CHECK_EQ_STR(outcome.csv, "0F0,0B0,0U\n1F0,1R0,1B0,1U\n");
}

static void test_largest_numbers_are_read(void) {
    struct weir_table_options options = anything(WEIR_CHECKPOINT_NEVER);
    struct weir_table *table = NULL;
    static const char text[] = "65534F2147483647";
    CHECK_OK(weir_table_parse(&options, text, strlen(text), NULL, NULL, &table));
    EXPECT_EQ_UINT(table->stage_count, 65535);
    EXPECT_EQ_UINT(table->micro_batch_count, UINT32_C(1) << 31);
    EXPECT_STATUS(weir_table_check(table, test_allocator(), NULL), WEIR_ERR_SCHEDULE);
    weir_table_destroy(table);
}

/* ---- what is refused ---- */

static void test_bad_cells_are_named_by_row_and_cell(void) {
    expect_fault("0F0,0Q1\n", "line 1, cell 2: '0Q1' has no kind that is known: F, R, B, I, W or "
                              "U, as in 2F0\n");
    expect_fault("0F0\n\n1F0,,1f1\n", "line 3, cell 3: '1f1' has no kind that is known: F, R, B, "
                                      "I, W or U, as in 2F0\n");
    expect_fault("F0\n", "line 1, cell 1: 'F0' does not begin with a stage of 0 to 65534, as in "
                         "2F0\n");
    expect_fault("65535F0\n", "line 1, cell 1: '65535F0' does not begin with a stage of 0 to "
                              "65534, as in 2F0\n");
    expect_fault("0F\n", "line 1, cell 1: '0F' needs a micro-batch of 0 to 2147483647, as in "
                         "2F0\n");
    expect_fault("0F2147483648\n", "line 1, cell 1: '0F2147483648' needs a micro-batch of 0 to "
                                   "2147483647, as in 2F0\n");
    expect_fault("0F99999999999999999999999\n",
                 "line 1, cell 1: '0F99999999999999999999999' needs a micro-batch of 0 to "
                 "2147483647, as in 2F0\n");
    expect_fault("0F18446744073709551616\n",
                 "line 1, cell 1: '0F18446744073709551616' needs a micro-batch of 0 to "
                 "2147483647, as in 2F0\n");
    expect_fault("0F0 0B0\n", "line 1, cell 1: '0F0 0B0' goes on where it should end, as in 2F0 "
                              "or 2U\n");
    expect_fault("0U1\n", "line 1, cell 1: '0U1' goes on where it should end, as in 2F0 or 2U\n");
    expect_fault("0N\n", "line 1, cell 1: '0N' has no kind that is known: F, R, B, I, W or U, as "
                         "in 2F0\n");
    expect_fault("-1F0\n", "line 1, cell 1: '-1F0' does not begin with a stage of 0 to 65534, as "
                           "in 2F0\n");
    expect_fault("0SEND_F0x\n", "line 1, cell 1: '0SEND_F0x' does not end with a micro-batch, as "
                                "in 2SEND_F0\n");
    expect_fault("0WAIT_F0\n", "line 1, cell 1: '0WAIT_F0' has no kind that is known: F, R, B, I, "
                               "W or U, as in 2F0\n");
}

static void test_bad_overlaps_and_quotes_are_named(void) {
    expect_fault("(0F0;0B0\n", "line 1, cell 1: '(0F0;0B0' is no overlap, which reads "
                               "(0F7;7B3)OVERLAP_F_B\n");
    expect_fault("(0F0;0B0)OVERLAP\n", "line 1, cell 1: '(0F0;0B0)OVERLAP' is no overlap, which "
                                       "reads (0F7;7B3)OVERLAP_F_B\n");
    expect_fault("(0F0;0Z0)OVERLAP_F_B\n", "line 1, cell 1: '0Z0' has no kind that is known: F, "
                                           "R, B, I, W or U, as in 2F0\n");
    expect_fault("((0F0)OVERLAP_F_B)OVERLAP_F_B\n",
                 "line 1, cell 1: '((0F0)OVERLAP_F_B)OVERLAP_F_B' is no overlap, which reads "
                 "(0F7;7B3)OVERLAP_F_B\n");
    expect_fault("0F0,\"0B0\n", "line 1, cell 2: '\"0B0' has no closing quote\n");
    expect_fault("\"0F0\"x,0B0\n", "line 1, cell 1: 'x' stands behind a closing quote\n");
    expect_fault("\"0F0,0B0\"\n", "line 1, cell 1: '0F0,0B0' goes on where it should end, as in "
                                  "2F0 or 2U\n");
}

static void test_every_bad_cell_is_listed_and_shown_safely(void) {
    expect_fault("a,0F0,\x01\xff\n0B0,0123456789012345678901234567890123456789012345\n",
                 "line 1, cell 1: 'a' does not begin with a stage of 0 to 65534, as in 2F0\n"
                 "line 1, cell 3: '?\?' does not begin with a stage of 0 to 65534, as in 2F0\n"
                 "line 2, cell 2: '0123456789012345678901234567890123456789' does not begin with "
                 "a stage of 0 to 65534, as in 2F0\n");
}

static void test_a_text_without_actions_is_refused(void) {
    expect_fault("", "the table has no action of a micro-batch\n");
    expect_fault("\n ,,\n", "the table has no action of a micro-batch\n");
    expect_fault("0U\n", "the table has no action of a micro-batch\n");
    expect_fault("0SEND_F0\n", "the table has no action of a micro-batch\n");
}

static void test_tables_for_other_counts_are_refused_with_both(void) {
    static const char text[] = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n";
    struct weir_table_options options = anything(WEIR_CHECKPOINT_NEVER);
    struct outcome outcome;
    options.stages = 3;
    options.workers = 1;
    options.micro_batches = 8;
    parse(&options, text, strlen(text), &outcome);
    CHECK_STATUS(outcome.status, WEIR_ERR_CONFIG);
    CHECK_EQ_STR(outcome.faults, "the table is for 2 stages, the run has 3\n"
                                 "the table is for 2 workers, the run has 1\n"
                                 "the table is for 2 micro-batches, the run has 8\n");
    options.stages = options.workers = options.micro_batches = 2;
    parse(&options, text, strlen(text), &outcome);
    CHECK_OK(outcome.status);
}

static void test_bad_arguments_are_refused(void) {
    struct weir_table_options options = anything((enum weir_checkpoint)7);
    struct weir_table *table = NULL;
    struct outcome outcome;
    parse(&options, "0F0", 3, &outcome);
    CHECK_STATUS(outcome.status, WEIR_ERR_ARGUMENT);
    CHECK_CONTAINS(outcome.faults, "choose always, except_last or never");
    options = anything(WEIR_CHECKPOINT_NEVER);
    CHECK_STATUS(weir_table_parse(&options, NULL, 0, NULL, NULL, &table), WEIR_ERR_ARGUMENT);
    CHECK_STATUS(weir_table_parse(NULL, "0F0", 3, NULL, NULL, &table), WEIR_ERR_ARGUMENT);
    CHECK_STATUS(weir_table_parse(&options, "0F0", (size_t)1 << 40, NULL, NULL, &table),
                 WEIR_ERR_ARGUMENT);
}

/* ---- writing ---- */

static void test_written_tables_read_back_the_same(void) {
    uint32_t written = 0;
    for (uint32_t run = 0; run < 1000; run++) {
        struct weir_table_options options = anything((enum weir_checkpoint)(1 + run % 3));
        struct weir_table *table = NULL;
        static char text[16384];
        struct outcome outcome;
        options.schedule = schedule_any();
        options.recompute_late =
            true; /* the R that come back stand directly before their backward */
        options.stages = 1 + (uint32_t)test_random_below(5);
        options.workers = 1 + (uint32_t)test_random_below(options.stages);
        options.micro_batches = 1 + (uint32_t)test_random_below(8);
        if (weir_table_new(&options, NULL, &table) != WEIR_OK) continue; /* other counts */
        written++;
        size_t bytes = weir_table_format(table, false, text, sizeof text);
        CHECK_EQ_UINT(bytes, strlen(text));
        parse(&options, text, bytes, &outcome);
        EXPECT_EQ_STR(outcome.csv, text);
        /* without R and U, which come back by the options */
        static char plain[16384];
        bytes = weir_table_format(table, true, plain, sizeof plain);
        EXPECT(strchr(plain, 'R') == NULL && strchr(plain, 'U') == NULL);
        parse(&options, plain, bytes, &outcome);
        EXPECT_EQ_STR(outcome.csv, text);
        weir_table_destroy(table);
        CHECK_HELPERS();
    }
    CHECK(written > 300);
}

static void test_format_counts_beyond_its_room(void) {
    struct weir_table_options options = anything(WEIR_CHECKPOINT_NEVER);
    struct weir_table *table = NULL;
    char text[16];
    CHECK_OK(weir_table_parse(&options, "0F0,0B0", 7, NULL, NULL, &table));
    EXPECT_EQ_UINT(weir_table_format(table, false, NULL, 0), 11);
    memset(text, 'x', sizeof text);
    EXPECT_EQ_UINT(weir_table_format(table, false, text, 1), 11);
    EXPECT_EQ_STR(text, "");
    EXPECT_EQ_INT(text[1], 'x');
    EXPECT_EQ_UINT(weir_table_format(table, false, text, 11), 11);
    EXPECT_EQ_STR(text, "0F0,0B0,0U");
    EXPECT_EQ_UINT(weir_table_format(table, false, text, 12), 11);
    EXPECT_EQ_STR(text, "0F0,0B0,0U\n");
    weir_table_destroy(table);
}

/* ---- any text ---- */

static void test_random_texts_do_no_harm(void) {
    static const char *const parts[] = {
        "0", "1",      "7",     "65534",       "F",          "B",    "I",    "W",    "U",
        "R", ",",      ",",     "\n",          "\r",         "(",    ")",    ";",    "\"",
        " ", "SEND_F", "WAIT_", "OVERLAP_F_B", "4294967296", "\xff", "0F0,", "0B0,", "1F1\n"};
    struct weir_table_options options = anything(WEIR_CHECKPOINT_DEFAULT);
    uint32_t read = 0;
    for (uint32_t run = 0; run < 20000; run++) {
        char text[256];
        struct outcome outcome;
        size_t bytes = 0;
        for (uint64_t k = test_random_below(14); k > 0; k--) {
            const char *part = parts[test_random_below(WEIR__COUNT_OF(parts))];
            memcpy(&text[bytes], part, strlen(part));
            bytes += strlen(part);
        }
        parse(&options, text, bytes, &outcome);
        EXPECT(outcome.status == WEIR_OK || outcome.status == WEIR_ERR_FORMAT);
        read += outcome.status == WEIR_OK;
        CHECK_HELPERS();
    }
    CHECK(read > 20);
}

static void test_mutated_texts_do_no_harm(void) {
    static const char good[] =
        "0F0,0F1,0SEND_F1,\"0R0\",0B0,0B1,0U\r\n1F0,1B0,(1F1;1B1)OVERLAP_F_B\n";
    struct weir_table_options options = anything(WEIR_CHECKPOINT_DEFAULT);
    for (uint32_t run = 0; run < 20000; run++) {
        char text[sizeof good];
        struct outcome outcome;
        size_t bytes = sizeof good - 1 - test_random_below(4);
        memcpy(text, good, sizeof good);
        for (uint64_t k = 1 + test_random_below(3); k > 0; k--) {
            text[test_random_below(bytes)] = (char)test_random_below(256);
        }
        parse(&options, text, bytes, &outcome);
        EXPECT(outcome.status == WEIR_OK || outcome.status == WEIR_ERR_FORMAT);
        CHECK_HELPERS();
    }
}

static void test_lack_of_memory_is_reported(void) {
    static const char text[] = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n";
    struct weir_table_options options = anything(WEIR_CHECKPOINT_ALWAYS);
    uint64_t k = 0;
    for (bool fired = true; fired; k++) {
        struct weir_table *table = NULL;
        test_allocator_fail_at(k + 1, false);
        int status = weir_table_parse(&options, text, strlen(text), NULL, NULL, &table);
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        CHECK_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        weir_table_destroy(table);
    }
    CHECK(k > 5);
}

WEIR_TEST_SUITE(csv, TEST(pytorch_tables_are_read), TEST(communication_is_skipped_with_a_note),
                TEST(spaces_quotes_and_line_ends_do_not_matter),
                TEST(missing_recomputes_go_before_their_backward),
                TEST(a_text_with_recomputes_is_taken_as_it_is),
                TEST(missing_updates_go_to_the_end_of_the_row),
                TEST(per_stage_modes_add_their_recomputes), TEST(largest_numbers_are_read),
                TEST(bad_cells_are_named_by_row_and_cell), TEST(bad_overlaps_and_quotes_are_named),
                TEST(every_bad_cell_is_listed_and_shown_safely),
                TEST(a_text_without_actions_is_refused),
                TEST(tables_for_other_counts_are_refused_with_both),
                TEST(bad_arguments_are_refused), TEST(written_tables_read_back_the_same),
                TEST(format_counts_beyond_its_room), TEST(random_texts_do_no_harm),
                TEST(mutated_texts_do_no_harm), TEST(lack_of_memory_is_reported))

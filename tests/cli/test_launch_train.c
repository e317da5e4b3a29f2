/* SPDX-License-Identifier: MIT */
/*
 * Goal: a `train` command that is started again says what fewer ranks can do, and its start is
 * waited for as long as its ranks wait for each other. Method: the words that it is made of; its
 * sources belong to the command and are compiled in here. That such jobs go on is
 * test_cli_faults.c's.
 */
#include "harness.h"

#include "../../tools/cli/saved.c"
#include "../../tools/cmd/launch_job.c"
#include "../../tools/cmd/launch_train.c"

#include <stdio.h>
#include <string.h>

enum { GIVEN = 16 };

static void read_words(const char *text, char copy[256], char *words[GIVEN],
                       struct launch_train *train, uint32_t ranks) {
    int count = 0;
    snprintf(copy, 256, "%s", text);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        if (EXPECT(count < GIVEN)) words[count++] = word;
    launch_train_read(train, count, words, ranks);
}

static void test_a_start_is_waited_for_as_ranks_do(void) {
    static const struct {
        const char *words;
        double seconds;
    } cases[] = {{"--steps 3", 60},
                 {"--peer-timeout 20", 120},
                 {"--peer-timeout=0.5", 10},
                 {"--start-timeout 0 --peer-timeout 3", 18},
                 {"--start-timeout 86400 --peer-timeout 3", 86400},
                 {"--start-timeout 2.5", 2.5},
                 {"--start-timeout inf", 60}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct launch_train train;
        char copy[256], *words[GIVEN];
        read_words(cases[i].words, copy, words, &train, 2);
        EXPECT_NEAR(train.start_timeout, cases[i].seconds, 0);
    }
}

/* The words of a start with so many of three ranks, with blanks between them. */
static void expect_words(const char *given, uint32_t ranks, const char *wanted) {
    static struct launch_words command;
    struct launch_train train;
    char copy[256], texts[3][16], text[512] = "", *words[GIVEN];
    command.count = 0;
    read_words(given, copy, words, &train, 3);
    struct launch_share share = launch_train_share(&train, ranks);
    CHECK(launch_train_add(&train, &share, texts, &command));
    for (uint32_t i = 0; i < command.count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? " " : "", command.list[i]);
    }
    EXPECT_EQ_STR(text, wanted);
}

static void test_fewer_ranks_do_not_search_by_links(void) {
    const char *searching = "--links l --plan auto --gradient-groups 2 --lr 1";
    expect_words(searching, 3,
                 "train --links l --plan auto --gradient-groups 2 --lr 1 --workers 3");
    expect_words(searching, 2, "train --lr 1 --replicas 1 --gradient-groups 2 --workers 3");
    expect_words("--plan auto --lr 1", 2, "train --plan auto --lr 1 --workers 3");
}

WEIR_TEST_SUITE(launch_train, TEST(a_start_is_waited_for_as_ranks_do),
                TEST(fewer_ranks_do_not_search_by_links))

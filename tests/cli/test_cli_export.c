/* SPDX-License-Identifier: MIT */
/*
 * Goal: a checkpoint's folder becomes the file that one process would have saved, or its weights,
 * and serves like one wherever a file is taken; what is not whole is refused and leaves nothing.
 * Method: the installed command; one process goes on in a folder that is there, so that needs no
 * MPI.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#define RUN CLI_TRAIN " --plan given --data ."
#define LONGER RUN " --steps 8 --lr-schedule constant"

/* Folder `d` and file `f` of the same run of six updates, and the file `w` of its weights. */
static bool make(const char *text) {
    struct cli_run run;
    if (!test_install_prefix()) return false;
    EXPECT(cli_do(text, "mkdir d && touch d/weir-checkpoint.json"));
    cli_run_in(text, &run, "train " RUN " --steps 6 --save-every 2 --save d");
    EXPECT_EQ_INT(run.code, 0);
    cli_run_in(text, &run, "train " RUN " --steps 6 --save f --save-weights w");
    EXPECT_EQ_INT(run.code, 0);
    return !test_has_failed();
}

static void test_a_folder_becomes_the_file_of_one_process(void) {
    struct cli_run run;
    const char *text = cli_text();
    if (!make(text)) SKIP("no installed command: run by 'zig build test'");
    CLI_CODE_IN(text, &run, 0, "export --load d --out a");
    CLI_CODE_IN(text, &run, 0, "export --load d/ --out b --weights-only --format safetensors");
    CLI_CODE_IN(text, &run, 0, "export --load f --out c --weights-only");
    CLI_CODE_IN(text, &run, 0, "export --load f --out e");
    CHECK(cli_do(text, "cmp a f && cmp b w && cmp c w && cmp e f"));
}

static void test_a_folder_serves_as_a_file_does(void) {
    struct cli_run run, other;
    const char *text = cli_text();
    if (!make(text)) SKIP("no installed command: run by 'zig build test'");
    CLI_CODE_IN(text, &run, 0, "eval --load d --data .");
    CLI_CODE_IN(text, &other, 0, "eval --load f --data .");
    CHECK_EQ_BYTES(run.output, other.output, 6); /* the loss; rates follow */
    CLI_CODE_IN(text, &run, 0, "generate --load d --prompt the --tokens 8 --seed 3");
    CLI_CODE_IN(text, &run, 0, "train " RUN " --load d --steps 1");
    CLI_CODE_IN(text, &run, 0, "train " LONGER " --resume d --save g");
    CLI_CODE_IN(text, &run, 0, "train " LONGER " --resume f --save h");
    CHECK(cli_do(text, "cmp g h"));
    /* and the run goes on in it */
    CLI_CODE_IN(text, &run, 0, "train " LONGER " --resume d/");
    CLI_CODE_IN(text, &run, 0, "export --load d --out i");
    CHECK(cli_do(text, "cmp i h && [ $(ls d | wc -l) = 2 ]"));
}

static void test_what_is_not_whole_is_refused_and_leaves_nothing(void) {
    struct cli_run run;
    const char *text = cli_text();
    if (!make(text)) SKIP("no installed command: run by 'zig build test'");
    CHECK(cli_do(text, "for i in 1 2 3; do cp -r d d$i; done; truncate -s -4 d1/part-*; "
                       "rm d2/part-*; rm d3/*.json; echo old > out"));
    CLI_CODE_IN(text, &run, 1, "export --load d1 --out out");
    CHECK_CONTAINS(run.output, "weir: export: d1/part-6-");
    CLI_CODE_IN(text, &run, 1, "export --load d2 --out out");
    CHECK_CONTAINS(run.output, "cannot open d2/part-6-");
    CLI_CODE_IN(text, &run, 1, "export --load d3 --out out");
    CHECK_CONTAINS(run.output, "no save to it was ever complete");
    CHECK(cli_do(text, "[ $(cat out) = old ] && [ ! -e out.partial ]"));
    CLI_CODE_IN(text, &run, 2, "export --load none --out d");
    CHECK_CONTAINS(run.output, "--load none: No such file");
    CHECK_CONTAINS(run.output, "--out d is a folder");
    CLI_CODE_IN(text, &run, 2, "export");
    CHECK_CONTAINS(run.output, "--load is missing");
    CHECK_CONTAINS(run.output, "--out is missing");
    CLI_CODE_IN(text, &run, 2, "export --load f --out f");
    CHECK_CONTAINS(run.output, "is an input file");
}

/* The index is text, but not what a run in that folder is to learn. */
static void test_data_beside_a_folder_stay_what_they_were(void) {
    struct cli_run run;
    const char *text = cli_text();
    if (!make(text)) SKIP("no installed command: run by 'zig build test'");
    CLI_CODE_IN(text, &run, 0, "train " RUN " --steps 7 --resume d");
    CHECK(strstr(run.output, "the data (fingerprint") == NULL);
}

WEIR_TEST_SUITE(cli_export, TEST(a_folder_becomes_the_file_of_one_process),
                TEST(a_folder_serves_as_a_file_does),
                TEST(what_is_not_whole_is_refused_and_leaves_nothing),
                TEST(data_beside_a_folder_stay_what_they_were))

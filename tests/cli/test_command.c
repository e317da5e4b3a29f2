/* SPDX-License-Identifier: MIT */
/*
 * Goal: the installed command keeps what its page promises: exit codes, where text goes, and files
 * that appear whole or not at all. Method: the binary is run as a person would.
 */
#include "harness.h"
#include "io/io_faults.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct run {
    char output[8192];
    int code;
};

/* Runs `weir ARGUMENTS` by sh; redirections may stand in them. Skips without an installed command.
 */
#define RUN(run, ...)                                                                              \
    do {                                                                                           \
        if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");         \
        char arguments_[1024];                                                                     \
        snprintf(arguments_, sizeof(arguments_), __VA_ARGS__);                                     \
        (run)->code = test_shell((run)->output, sizeof((run)->output), "{ '%s/bin/weir' %s; }",    \
                                 test_install_prefix(), arguments_);                               \
    } while (0)

static void test_bare_command_prints_usage_on_stderr(void) {
    struct run run;
    RUN(&run, "2>&1 >/dev/null");
    CHECK_EQ_INT(run.code, 2);
    CHECK_CONTAINS(run.output, "usage: weir SUBCOMMAND");
    CHECK_CONTAINS(run.output, "schedule");
}

static void test_help_and_version_are_results(void) {
    struct run run;
    RUN(&run, "--help 2>/dev/null");
    CHECK_EQ_INT(run.code, 0);
    CHECK_CONTAINS(run.output, "usage: weir SUBCOMMAND");
    RUN(&run, "--version 2>/dev/null");
    CHECK_EQ_INT(run.code, 0);
    CHECK_CONTAINS(run.output, weir_version());
    CHECK_CONTAINS(run.output, "back-ends: cpu");
    RUN(&run, "schedule --chunks x --help 2>/dev/null");
    CHECK_EQ_INT(run.code, 0);
    CHECK_CONTAINS(run.output, "--chunks M");
    CHECK_CONTAINS(run.output, "(default 8)");
}

/* What a descriptor that was closed could do: the file that is opened next gets its number. */
static void test_closed_standard_descriptors_do_no_harm(void) {
    struct run run;
    const char *directory = test_temporary_directory();
    RUN(&run, "schedule --stages 1 --chunks 1 --csv %s/t.csv <&- >&- 2>&-", directory);
    CHECK_EQ_INT(run.code, 0);
    RUN(&run, "schedule --check %s/t.csv", directory);
    CHECK_EQ_INT(run.code, 0);
}

static void test_text_that_cannot_be_written_fails_the_command(void) {
    struct run run;
    RUN(&run, "--help 2>&1 >/dev/full");
    CHECK_EQ_INT(run.code, 1);
    CHECK_CONTAINS(run.output, "weir: cannot write stdout: No space left on device");
    RUN(&run, "schedule --help 2>&1 >/dev/full");
    CHECK_EQ_INT(run.code, 1);
}

static void test_unknown_subcommand_suggests_the_nearest(void) {
    struct run run;
    RUN(&run, "shcedule 2>&1 >/dev/null");
    CHECK_EQ_INT(run.code, 2);
    CHECK_CONTAINS(run.output, "weir: shcedule: no such subcommand: did you mean 'weir schedule'?");
    RUN(&run, "xyzzyxyzzy 2>&1 >/dev/null");
    CHECK_EQ_INT(run.code, 2);
    CHECK_CONTAINS(run.output, "'weir --help' lists them");
}

static void test_schedule_prints_only_the_table_on_stdout(void) {
    struct run run;
    RUN(&run, "schedule --stages 2 --chunks 2 2>/dev/null");
    CHECK_EQ_INT(run.code, 0);
    CHECK_EQ_STR(run.output, "0F0,0F1,0B0,0B1,0U\n1F0,1B0,1F1,1B1,1U\n");
    RUN(&run,
        "schedule --schedule gpipe --stages 2 --chunks 2 --checkpoint always --csv - 2>/dev/null");
    CHECK_EQ_STR(run.output, "0F0,0F1,0R1,0B1,0R0,0B0,0U\n1F0,1F1,1R1,1B1,1R0,1B0,1U\n");
    RUN(&run, "schedule --stages 2 --workers 1 --chunks 1 --plain --checkpoint always 2>/dev/null");
    CHECK_EQ_STR(run.output, "0F0,1F0,1B0,0B0\n");
    RUN(&run, "schedule --stages 2 --chunks 2 2>&1 >/dev/full");
    CHECK_EQ_INT(run.code, 1);
    CHECK_CONTAINS(run.output, "weir: schedule: cannot write stdout: No space left on device");
}

static void test_schedule_file_is_whole_and_can_be_checked(void) {
    struct run run;
    const char *directory = test_temporary_directory();
    RUN(&run, "schedule --schedule gpipe --stages 3 --chunks 4 --csv %s/t.csv 2>/dev/null",
        directory);
    CHECK_EQ_INT(run.code, 0);
    CHECK_EQ_STR(run.output, "gpipe: 3 stages on 3 workers, 4 micro-batches, 27 actions\n"
                             "gradients add up in descending order of micro-batches\n");
    RUN(&run, "schedule --check %s/t.csv", directory);
    CHECK_EQ_INT(run.code, 0);
    CHECK_CONTAINS(run.output, "3 stages on 3 workers, 4 micro-batches, 27 actions");
    CHECK_CONTAINS(run.output, "complete, nothing twice, no deadlock");
    RUN(&run, "schedule --check %s/t.csv --stages 2 --chunks 9", directory);
    CHECK_EQ_INT(run.code, 2);
    CHECK_CONTAINS(run.output, "the table is for 3 stages, the run has 2");
    CHECK_CONTAINS(run.output, "the table is for 4 micro-batches, the run has 9");
}

static void test_schedule_check_lists_every_fault(void) {
    static const char bad[] = "0F0,0F1,0B0,0Q1\n1B0,1F0,hello,1F1\n";
    static const char stuck[] = "0F0,0B0,0SEND_F1,0F1,0B1\n1F1,1B1,1F0,1B0\n";
    char path[512];
    struct run run;
    io_make_file(test_temporary_directory(), "bad.csv", bad, strlen(bad), path);
    RUN(&run, "schedule --check %s 2>&1 >/dev/null", path);
    CHECK_EQ_INT(run.code, 2);
    CHECK_CONTAINS(run.output, "bad.csv: line 1, cell 4: '0Q1'");
    CHECK_CONTAINS(run.output, "bad.csv: line 2, cell 3: 'hello'");
    io_make_file(test_temporary_directory(), "stuck.csv", stuck, strlen(stuck), path);
    RUN(&run, "schedule --check %s 2>&1 >/dev/null", path);
    CHECK_EQ_INT(run.code, 2);
    CHECK_CONTAINS(run.output, "weir: schedule: note: 1 SEND_F cells are skipped");
    CHECK_CONTAINS(run.output, "stuck.csv: ");
    RUN(&run, "schedule --check /none --plain 2>&1 >/dev/null");
    CHECK_EQ_INT(run.code, 2);
    CHECK_CONTAINS(run.output, "--plain does not go with --check");
    CHECK_CONTAINS(run.output, "cannot open /none: No such file or directory: check the path");
}

static void test_schedule_refuses_with_every_fault_and_no_file(void) {
    struct run run;
    char path[512];
    snprintf(path, sizeof(path), "%s/t.csv", test_temporary_directory());
    RUN(&run, "schedule --schedule zigzag --stages 2 --workers 3 --csv %s 2>&1 >/dev/null", path);
    CHECK_EQ_INT(run.code, 2);
    CHECK_CONTAINS(run.output, "weir: schedule: there is no schedule 'zigzag'");
    CHECK_CONTAINS(run.output, "weir: schedule: 3 workers for 2 stages");
    CHECK(access(path, F_OK) != 0);
    RUN(&run, "schedule --stagez 2 --chunks 0 --csv 2>&1 >/dev/null");
    CHECK_EQ_INT(run.code, 2);
    CHECK_CONTAINS(run.output, "unknown option --stagez: did you mean --stages?");
    CHECK_CONTAINS(run.output, "--chunks 0: too small: give at least 1");
    CHECK_CONTAINS(run.output, "--csv needs a value");
    RUN(&run, "schedule --csv /none/t.csv 2>&1 >/dev/null");
    CHECK_EQ_INT(run.code, 2);
    CHECK_CONTAINS(run.output, "weir: schedule: --csv /none/t.csv: its folder: No such file");
}

WEIR_TEST_SUITE(command, TEST(bare_command_prints_usage_on_stderr),
                TEST(help_and_version_are_results), TEST(closed_standard_descriptors_do_no_harm),
                TEST(text_that_cannot_be_written_fails_the_command),
                TEST(unknown_subcommand_suggests_the_nearest),
                TEST(schedule_prints_only_the_table_on_stdout),
                TEST(schedule_file_is_whole_and_can_be_checked),
                TEST(schedule_check_lists_every_fault),
                TEST(schedule_refuses_with_every_fault_and_no_file))

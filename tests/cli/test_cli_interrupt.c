/* SPDX-License-Identifier: MIT */
/*
 * Goal: Ctrl-C, SIGTERM and SIGHUP once end what is under way in good order, with what was asked
 * for and exit code 128 + n; twice end at once. Method: the installed command on a pseudo-terminal,
 * where the key is pressed, with signals from outside, and behind a pipe that nobody reads, where
 * only the second time helps. Signals at random moments: test_cli_kill.c.
 */
#include "cli/cli_terminal.h"
#include "cli/interrupt.h"
#include "io/io_faults.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLACE " --threads-per-stage 1 --bind none"
#define TERMINAL "NO_COLOR=1 TERM=xterm"
#define NEEDS_COMMAND                                                                              \
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'")

static struct cli_terminal terminal;

static const char *make_weights(const char *model) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    cli_run_at(__FILE__, __LINE__, &run, "init %s --out %s/w", model, folder);
    cli_code_at(__FILE__, __LINE__, &run, 0);
    return folder;
}

/* ---- once ---- */

static void test_training_ends_with_its_files_and_summary(void) {
    NEEDS_COMMAND;
    const char *text = cli_text();
    char path[512], line[64];
    CHECK(cli_terminal_start(&terminal, TERMINAL,
                             "train " CLI_TRAIN " --data %s/0.txt --steps 100000000 --lr 1e-6 "
                             "--log-every 100 --save %s/a --save-weights %s/w --trace %s/t --json "
                             "%s/j --report %s/r.html",
                             text, text, text, text, text, text));
    bool shown = cli_terminal_wait(&terminal, "    200 ");
    cli_terminal_interrupt(&terminal);
    CHECK_EQ_INT(cli_terminal_end(&terminal), 130);
    CHECK(shown);
    snprintf(path, sizeof path, "%s/a", text);
    int64_t saved = cli_saved_step(path);
    CHECK(saved >= 200);
    snprintf(line, sizeof line, "interrupted after %lld of 100000000 updates", (long long)saved);
    CHECK_CONTAINS(terminal.output, line);
    CHECK_CONTAINS(terminal.output, "\nvalidation ");
    static const char *const files[] = {"w", "t", "j", "r.html"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", text, files[i]);
        if (access(path, R_OK) != 0) TEST_FAIL("%s is missing", files[i]);
    }
}

static void test_a_text_ends_where_it_is(void) {
    NEEDS_COMMAND;
    const char *folder = make_weights("--layers 4 --width 64 --heads 2 --context 200000");
    char path[512];
    CHECK(cli_terminal_start(&terminal, TERMINAL,
                             "generate --load %s/w --prompt abc --json %s/j" PLACE, folder,
                             folder));
    bool shown = cli_terminal_wait_bytes(&terminal, 40);
    cli_terminal_interrupt(&terminal);
    CHECK_EQ_INT(cli_terminal_end(&terminal), 130);
    CHECK(shown && strncmp(terminal.output, "abc", 3) == 0);
    CHECK_CONTAINS(terminal.output, " tokens/s): interrupted\n");
    snprintf(path, sizeof path, "%s/j", folder);
    json_t *lines = cli_json_lines(path);
    const json_t *text = json_array_get(lines, 0);
    EXPECT_EQ_UINT(json_array_size(lines), 2);
    EXPECT_EQ_STR(json_string_value(json_object_get(text, "end")), "interrupted");
    EXPECT(json_array_size(json_object_get(text, "tokens")) > 0);
    EXPECT(json_is_true(
        json_object_get(json_object_get(json_array_get(lines, 1), "summary"), "interrupted")));
    json_decref(lines);
}

static void test_an_evaluation_says_how_far_it_came(void) {
    NEEDS_COMMAND;
    static char text[4000000];
    const char *folder = make_weights("--layers 2 --width 16 --heads 2 --context 8");
    char path[512];
    memset(text, 'a', sizeof text);
    io_make_file(folder, "text", text, sizeof text, path);
    CHECK(cli_terminal_start(&terminal, TERMINAL,
                             "eval --load %s/w --data %s/text --batch 50 --json %s/j" PLACE, folder,
                             folder, folder));
    bool shown = cli_terminal_wait(&terminal, " of 499999 rows");
    cli_terminal_interrupt(&terminal);
    CHECK_EQ_INT(cli_terminal_end(&terminal), 130);
    CHECK(shown);
    CHECK_CONTAINS(terminal.output, " of 499999 rows\n");
    CHECK_CONTAINS(terminal.output, "interrupted after ");
    snprintf(path, sizeof path, "%s/j", folder);
    json_t *found = cli_json(path);
    EXPECT(json_is_true(json_object_get(found, "interrupted")));
    EXPECT(cli_number(found, "rows") >= 50 && cli_number(found, "rows") < 499999);
    EXPECT(cli_number(found, "loss") > 0);
    json_decref(found);
}

/* ---- the other signals ---- */

#define ENDLESS "train " CLI_TRAIN " --data %s/0.txt --steps 100000000 --lr 1e-6"

/* A run that saves to `path`; it is under way when its first line has come. */
static pid_t start_endless(const char *text, const char *path, int *output) {
    int ends[2];
    char first;
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    pid_t process = cli_start(ends[1], ENDLESS " --save %s --json -", text, path);
    close(ends[1]);
    EXPECT_EQ_INT(read(ends[0], &first, 1), 1);
    *output = ends[0];
    return process;
}

/* Reads on until the run has ended. */
static int read_to_the_end(pid_t process, int output) {
    char some[4096];
    while (read(output, some, sizeof some) > 0) continue;
    close(output);
    return cli_wait(process);
}

static void test_schedulers_and_closed_terminals_lose_nothing(void) {
    NEEDS_COMMAND;
    static const int signals[] = {SIGTERM, SIGHUP};
    const char *text = cli_text();
    char path[512];
    for (int i = 0; i < 2; i++) {
        int output;
        snprintf(path, sizeof path, "%s/a%d", text, i);
        pid_t process = start_endless(text, path, &output);
        CHECK(process > 0);
        kill(process, signals[i]);
        CHECK_EQ_INT(read_to_the_end(process, output), 128 + signals[i]);
        CHECK(cli_saved_step(path) >= 1);
    }
}

static void test_one_request_may_be_several_signals(void) {
    NEEDS_COMMAND;
    const char *text = cli_text();
    char path[512];
    int output;
    snprintf(path, sizeof path, "%s/a", text);
    pid_t process = start_endless(text, path, &output);
    CHECK(process > 0);
    kill(process, SIGTERM); /* all of them are delivered, one by one */
    kill(process, SIGHUP);
    kill(process, SIGINT);
    int code = read_to_the_end(process, output);
    CHECK(code == 143 || code == 129 || code == 130);
    CHECK(cli_saved_step(path) >= 1);
}

static void test_a_hangup_that_is_ignored_stays_so(void) {
    NEEDS_COMMAND;
    const char *text = cli_text();
    char path[512];
    int output;
    snprintf(path, sizeof path, "%s/a", text);
    void (*former)(int) = signal(SIGHUP, SIG_IGN); /* handed down, as nohup does */
    pid_t process = start_endless(text, path, &output);
    signal(SIGHUP, former);
    CHECK(process > 0);
    kill(process, SIGHUP);
    cli_sleep_ms(100);
    kill(process, SIGTERM);
    CHECK_EQ_INT(read_to_the_end(process, output), 143);
    CHECK(cli_saved_step(path) >= 1);
}

static void test_a_reader_that_leaves_costs_no_training(void) {
    NEEDS_COMMAND;
    const char *text = cli_text();
    char path[512];
    int output;
    snprintf(path, sizeof path, "%s/a", text);
    void (*former)(int) = signal(SIGPIPE, SIG_DFL); /* whoever runs the tests may ignore it */
    pid_t process = start_endless(text, path, &output);
    signal(SIGPIPE, former);
    CHECK(process > 0);
    close(output);
    CHECK_EQ_INT(cli_wait(process), 128 + SIGPIPE);
    CHECK(cli_saved_step(path) >= 1);
}

static int run_with_broken_pipes(void) {
    signal(SIGPIPE, SIG_DFL);
    interrupt_catch();
    raise(SIGINT);
    bool caught = interrupt_came();
    raise(SIGPIPE); /* the reader is gone of the same Ctrl-C */
    interrupt_take_back();
    bool forgotten = !interrupt_came();
    raise(SIGPIPE);
    return caught && forgotten ? interrupt_exit(0) : 1;
}

static void test_a_pipe_may_break_after_a_request_was_taken_back(void) {
    pid_t process = fork();
    if (process == 0) _exit(run_with_broken_pipes());
    CHECK(process > 0);
    CHECK_EQ_INT(cli_wait(process), 128 + SIGPIPE);
}

/* ---- twice ---- */

/* The command writes more than a pipe holds, and nobody reads: it can end by a second signal only.
 */
static void check_twice(const char *arguments, int first_signal, int second) {
    siginfo_t state = {.si_pid = 0};
    int ends[2];
    char first;
    CHECK(pipe(ends) == 0);
    pid_t process = cli_start(ends[1], "%s", arguments);
    close(ends[1]);
    CHECK(process > 0);
    EXPECT_EQ_INT(read(ends[0], &first, 1), 1); /* it is writing */
    kill(process, first_signal);
    cli_sleep_ms(100);
    waitid(P_PID, (id_t)process, &state, WEXITED | WNOHANG | WNOWAIT);
    EXPECT_EQ_INT(state.si_pid, 0); /* it lives on */
    kill(process, second);
    EXPECT_EQ_INT(cli_wait(process), 128 + second);
    close(ends[0]);
}

static void test_a_second_time_ends_at_once(void) {
    NEEDS_COMMAND;
    const char *folder = make_weights("--layers 1 --width 8 --heads 1 --context 300");
    char path[512], arguments[2048];
    FILE *file;
    snprintf(path, sizeof path, "%s/prompts", folder);
    CHECK((file = fopen(path, "w")) != NULL);
    for (int i = 0; i < 2000; i++) fprintf(file, "%0200d\n", i);
    fclose(file);
    snprintf(arguments, sizeof arguments,
             "generate --load %s/w --tokens 1 --batch 2000 --prompt-file %s" PLACE, folder, path);
    check_twice(arguments, SIGINT, SIGINT);
    check_twice(arguments, SIGTERM, SIGHUP);
}

WEIR_TEST_SUITE(cli_interrupt, TEST(training_ends_with_its_files_and_summary),
                TEST(a_text_ends_where_it_is), TEST(an_evaluation_says_how_far_it_came),
                TEST(schedulers_and_closed_terminals_lose_nothing),
                TEST(one_request_may_be_several_signals), TEST(a_hangup_that_is_ignored_stays_so),
                TEST(a_reader_that_leaves_costs_no_training),
                TEST(a_pipe_may_break_after_a_request_was_taken_back),
                TEST(a_second_time_ends_at_once))

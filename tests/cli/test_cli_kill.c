/* SPDX-License-Identifier: MIT */
/*
 * Goal: whatever stops a run, a kill at any moment or a full disk, the checkpoint under its name is
 * whole, and training goes on from it as if nothing had been. Method: a tiny model that saves after
 * every update is killed by SIGKILL at random moments, again and again; each file is read by
 * another reader than Weir's, resumed, and the last one compared with a run that nobody stopped.
 * A thousand kills: `zig build test -- --repeat 50 cli_kill/a_killed`.
 */
#include "cli/cli.h"
#include "io/io_faults.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KILLS 20
#define TRAIN "train " CLI_TRAIN " --data %s/0.txt --lr-schedule constant"

/* ---- another reader ---- */

static uint64_t dtype_bytes(const char *dtype) {
    return strcmp(dtype, "F32") == 0 ? 4 : strcmp(dtype, "F64") == 0 ? 8 : 0;
}

/* The bytes that an entry's shape wants, if its offsets hold just those; else UINT64_MAX. */
static uint64_t entry_bytes(const json_t *entry) {
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    uint64_t bytes = dtype ? dtype_bytes(dtype) : 0;
    for (size_t i = 0; i < json_array_size(shape); i++) {
        bytes *= (uint64_t)json_integer_value(json_array_get(shape, i));
    }
    uint64_t begin = (uint64_t)json_integer_value(json_array_get(offsets, 0));
    uint64_t end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
    return bytes > 0 && end - begin == bytes ? bytes : UINT64_MAX;
}

static int64_t header_step(const json_t *header, uint64_t buffer) {
    const char *name;
    json_t *entry;
    uint64_t sum = 0;
    json_object_foreach((json_t *)header, name, entry) {
        if (strcmp(name, "__metadata__") != 0) sum += entry_bytes(entry);
    }
    const json_t *step = json_object_get(json_object_get(header, "__metadata__"), "step");
    if (sum == buffer && json_is_string(step)) return strtoll(json_string_value(step), NULL, 10);
    TEST_FAIL("the header wants %llu bytes, the file has %llu", (unsigned long long)sum,
              (unsigned long long)buffer);
    return -2;
}

/* The step of a checkpoint; -1: there is no file; -2 and the test failed: it is torn. */
static int64_t whole_step(const char *path) {
    size_t bytes = 0;
    uint64_t length = 0;
    json_error_t error;
    if (access(path, F_OK) != 0) return -1;
    char *text = cli_read(path, &bytes);
    if (text && bytes >= 8) memcpy(&length, text, 8);
    if (!text || bytes < 8 || length > bytes - 8) {
        TEST_FAIL("%zu bytes, a header of %llu", bytes, (unsigned long long)length);
        free(text);
        return -2;
    }
    json_t *header = json_loadb(text + 8, length, JSON_REJECT_DUPLICATES, &error);
    int64_t step = header ? header_step(header, bytes - 8 - length) : -2;
    if (!header) TEST_FAIL("the header is no JSON: %s", error.text);
    json_decref(header);
    free(text);
    return step;
}

/* ---- SIGKILL ---- */

struct killed {
    const char *text; /* folder */
    char path[512], partial[520];
    int64_t reached; /* the file's step; -1: none yet */
};

/* However slow the machine is at the moment. */
static void wait_for_a_save(const struct killed *killed) {
    enum { LIMIT_MS = 60000 };
    for (int ms = 0; ms < LIMIT_MS; ms++) {
        if (whole_step(killed->path) > killed->reached) return;
        cli_sleep_ms(1);
    }
}

/* Starts or resumes, and kills after a while, every other time when it has saved. */
static void run_and_kill(struct killed *killed, bool saved) {
    char resume[600] = "";
    if (killed->reached > 0) snprintf(resume, sizeof resume, "--resume %s", killed->path);
    pid_t process =
        cli_start(-1, TRAIN " --steps 100000000 --save %s --save-every 1 --json %s/j %s",
                  killed->text, killed->path, killed->text, resume);
    CHECK(process > 0);
    if (saved) wait_for_a_save(killed);
    cli_sleep_ms((unsigned)test_random_below(saved ? 20 : 150));
    kill(process, SIGKILL);
    CHECK_EQ_INT(cli_wait(process), 128 + SIGKILL);
    int64_t step = whole_step(killed->path);
    CHECK(step >= killed->reached && step != 0);
    CHECK(!saved || step > killed->reached);
    CHECK_EQ_INT(cli_saved_step(killed->path), step);
    killed->reached = step;
}

static void test_a_killed_run_leaves_a_whole_checkpoint(void) {
    struct cli_run run;
    struct killed killed = {.text = cli_text(), .reached = -1};
    char straight[512], lines[512];
    snprintf(lines, sizeof lines, "%s/j", killed.text);
    snprintf(killed.path, sizeof killed.path, "%s/a", killed.text);
    snprintf(killed.partial, sizeof killed.partial, "%s.partial", killed.path);
    snprintf(straight, sizeof straight, "%s/b", killed.text);
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    for (uint32_t i = 0; i < KILLS; i++) {
        run_and_kill(&killed, i % 2 == 0);
        CHECK_HELPERS();
    }
    /* The lines for programs are whole or not there. */
    CHECK(access(lines, F_OK) != 0);
    long long end = (long long)killed.reached + 1;
    CLI_CODE(&run, 0, TRAIN " --steps %lld --resume %s --save %s --json %s/j", killed.text, end,
             killed.path, killed.path, killed.text);
    CHECK(access(killed.partial, F_OK) != 0);
    CLI_CODE(&run, 0, TRAIN " --steps %lld --save %s", killed.text, end, straight);
    CHECK(cli_same_files(straight, killed.path));
}

/* ---- SIGTERM and SIGHUP ---- */

/* Starts or resumes, and asks to end after a while. */
static void run_and_ask(struct killed *run) {
    static const char *const saves[] = {"", "--save-every 1", "--save-every 3 --keep 2"};
    char resume[600] = "";
    int signal_number = test_random_below(2) == 0 ? SIGTERM : SIGHUP;
    if (run->reached >= 0) snprintf(resume, sizeof resume, "--resume %s", run->path);
    pid_t process = cli_start(-1, TRAIN " --steps 100000000 --save %s %s %s", run->text, run->path,
                              saves[test_random_below(3)], resume);
    CHECK(process > 0);
    CHECK(cli_catches(process, signal_number));
    cli_sleep_ms((unsigned)test_random_below(40));
    kill(process, signal_number);
    CHECK_EQ_INT(cli_wait(process), 128 + signal_number);
    int64_t step = whole_step(run->path);
    CHECK(step >= 0 && step >= run->reached);
    CHECK_EQ_INT(cli_saved_step(run->path), step);
    run->reached = step;
}

static void test_a_run_that_is_asked_to_end_loses_no_update(void) {
    struct cli_run run;
    struct killed asked = {.text = cli_text(), .reached = -1};
    char straight[512];
    size_t count = test_count(40, 1000);
    snprintf(asked.path, sizeof asked.path, "%s/a", asked.text);
    snprintf(straight, sizeof straight, "%s/b", asked.text);
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    for (size_t i = 0; i < count; i++) {
        run_and_ask(&asked);
        CHECK_HELPERS();
    }
    long long end = (long long)asked.reached + 1;
    CLI_CODE(&run, 0, TRAIN " --steps %lld --resume %s", asked.text, end, asked.path);
    CLI_CODE(&run, 0, TRAIN " --steps %lld --save %s", asked.text, end, straight);
    CHECK(cli_same_files(straight, asked.path));
}

/* ---- a full disk ---- */

/* In a name space of its own, with a small disk mounted on %s/disk; skips where that needs rights
 * that are not there. What the shell prints is in run->output. */
static bool on_a_small_disk(const char *text, unsigned kib, const char *script,
                            struct cli_run *run) {
    static const char mount[] = "unshare -m sh -c 'mkdir -p %s/disk && "
                                "mount -t tmpfs -o size=%uk none %s/disk && %s'";
    if (test_shell(run->output, sizeof run->output, mount, text, kib, text, "true") != 0) {
        return false;
    }
    run->code = test_shell(run->output, sizeof run->output, mount, text, kib, text, script);
    return true;
}

static void test_a_full_disk_leaves_the_old_checkpoint(void) {
    struct cli_run run;
    const char *text = cli_text();
    char script[3000], path[512];
    snprintf(path, sizeof path, "%s/a", text);
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    CLI_CODE(&run, 0, TRAIN " --steps 2 --save %s", text, path);
    size_t bytes = 0;
    free(cli_read(path, &bytes));
    CHECK(bytes > 8192);
    /* Room for the old file and half of a new one. */
    snprintf(script, sizeof script,
             "cp %s/a %s/disk/a; %s/bin/weir " TRAIN
             " --steps 4 --resume %s/disk/a --save %s/disk/a; echo \"code $?\"; ls %s/disk; "
             "cmp %s/a %s/disk/a && echo same",
             text, text, test_install_prefix(), text, text, text, text, text, text);
    unsigned kib = (unsigned)(bytes / 1024 * 3 / 2);
    if (!on_a_small_disk(text, kib, script, &run)) SKIP("no rights to mount a small disk");
    CHECK_CONTAINS(run.output, "disk/a.partial: No space left on device: make room");
    CHECK_CONTAINS(run.output, "code 1\na\nsame\n");
}

/* The limit of a shell, whose signal would end the process. */
static void test_a_limit_on_files_leaves_the_old_checkpoint(void) {
    struct cli_run run;
    const char *text = cli_text();
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    CLI_CODE(&run, 0, TRAIN " --steps 2 --save %s/a", text, text);
    /* whoever runs the tests may ignore the signal, which is handed down */
    void (*former)(int) = signal(SIGXFSZ, SIG_DFL);
    run.code = test_shell(run.output, sizeof run.output,
                          "( cp %s/a %s/b; ulimit -f 8; %s/bin/weir " TRAIN
                          " --steps 4 --resume %s/a --save %s/a; echo \"code $?\"; "
                          "cmp %s/a %s/b && echo same; ls %s/*.partial )",
                          text, text, test_install_prefix(), text, text, text, text, text, text);
    signal(SIGXFSZ, former);
    CHECK_CONTAINS(run.output, "a.partial: File too large: raise 'ulimit -f' or choose a place");
    CHECK_CONTAINS(run.output, "code 1\nsame\nls: ");
}

WEIR_TEST_SUITE(cli_kill, TEST(a_killed_run_leaves_a_whole_checkpoint),
                TEST(a_run_that_is_asked_to_end_loses_no_update),
                TEST(a_full_disk_leaves_the_old_checkpoint),
                TEST(a_limit_on_files_leaves_the_old_checkpoint))

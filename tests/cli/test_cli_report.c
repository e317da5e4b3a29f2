/* SPDX-License-Identifier: MIT */
/*
 * Goal: `weir train --report` leaves a page that says what the run's other outputs say, however the
 * run ends. Method: the installed command on a tiny model; the page's own data are compared with
 * the trace and the JSON lines of the same run.
 */
#include "cli/cli.h"
#include "engine/html.h"
#include "io/io_faults.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *read_page(const char *directory, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    char *page = cli_read(path, NULL);
    if (page == NULL) TEST_FAIL("cannot read %s", path);
    char *outline = page != NULL ? html_outline(page) : NULL;
    free(outline);
    return page;
}

static json_t *read_json(const char *directory, const char *name, bool lines) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return lines ? cli_json_lines(path) : cli_json(path);
}

static int64_t whole(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static double at(const json_t *array, size_t index) {
    return json_number_value(json_array_get(array, index));
}

/* ---- the same facts as elsewhere ---- */

static void check_action(const json_t *data, const json_t *action, const json_t *event,
                         double *origin) {
    const json_t *args = json_object_get(event, "args");
    const json_t *kind = json_array_get(json_object_get(data, "kinds"), (size_t)at(action, 1));
    double start = cli_number(event, "ts") * 1e3, dur = cli_number(event, "dur") * 1e3;
    if (isnan(*origin)) *origin = start - at(action, 5);
    CHECK_EQ_INT((int64_t)at(action, 0), whole(event, "tid"));
    CHECK_EQ_STR(json_string_value(json_array_get(kind, 0)),
                 json_string_value(json_object_get(args, "kind")));
    CHECK_EQ_INT((int64_t)at(action, 2), whole(args, "stage"));
    CHECK_EQ_INT((int64_t)at(action, 3), whole(args, "micro_batch"));
    CHECK_NEAR(at(action, 5), start - *origin, 0.01); /* ns; the trace has whole ones in us */
    CHECK_NEAR(at(action, 6) - at(action, 5), dur, 0.01);
    CHECK_NEAR(at(action, 5) - at(action, 4), cli_number(args, "waited_us") * 1e3, 0.01);
    CHECK_EQ_INT((int64_t)at(action, 10), whole(args, "waited_for"));
}

static void check_events(const json_t *data, const json_t *trace) {
    const json_t *actions = json_object_get(data, "actions");
    json_t *event;
    size_t index, row = 0;
    double origin = NAN;
    json_array_foreach(json_object_get(trace, "traceEvents"), index, event) {
        const json_t *args = json_object_get(event, "args");
        if (json_object_get(args, "kind") == NULL) continue;
        if (whole(args, "step") != whole(data, "step")) continue;
        check_action(data, json_array_get(actions, row++), event, &origin);
        CHECK_HELPERS();
    }
    CHECK_EQ_UINT(row, json_array_size(actions));
    CHECK_EQ_UINT(row, 2 * (3 + 2 + 3) + 4); /* F, R, B on two stages, N, U */
}

static void check_lost_times(const json_t *data) {
    double makespan = cli_number(data, "makespan"), idle = 0.0;
    json_t *worker;
    size_t index;
    json_array_foreach(json_object_get(data, "workers"), index, worker) {
        double lost = cli_number(worker, "dependency") + cli_number(worker, "copy") +
                      cli_number(worker, "imbalance") + cli_number(worker, "host");
        CHECK_NEAR(lost, cli_number(worker, "idle"), 1e-6 * makespan);
        CHECK_NEAR(cli_number(worker, "busy") + cli_number(worker, "idle"), makespan,
                   1e-6 * makespan);
        CHECK(cli_number(worker, "peak") <= cli_number(worker, "planned"));
        idle += cli_number(worker, "idle");
    }
    CHECK_EQ_UINT(index, 2);
    const json_t *answers = json_object_get(data, "what_if");
    CHECK_NEAR(cli_number(answers, "as measured"), makespan, 1e-6 * makespan);
    CHECK_NEAR(cli_number(answers, "without any waiting"), makespan - idle / 2, 1e-6 * makespan);
    CHECK(cli_number(answers, "without host time") <= makespan);
}

/* The page's prediction is the summary's, from all other steps that the trace holds; and what the
 * workers were busy with is what any replay of it takes at least. */
static void check_predicted(const json_t *data, const json_t *lines) {
    const json_t *summary = json_object_get(json_array_get(lines, 30), "summary");
    const json_t *predicted = json_object_get(data, "predicted");
    double makespan = cli_number(predicted, "makespan");
    CHECK_EQ_INT(whole(predicted, "steps"), 29);
    CHECK_NEAR(cli_number(summary, "predicted_step"), makespan * 1e-9, 1e-8 * makespan * 1e-9);
    CHECK_NEAR(cli_number(summary, "typical_step"), cli_number(data, "makespan") * 1e-9,
               1e-8 * cli_number(data, "makespan") * 1e-9);
    json_t *worker;
    size_t index;
    json_array_foreach(json_object_get(predicted, "workers"), index, worker) {
        CHECK_NEAR(cli_number(worker, "busy") + cli_number(worker, "idle"), makespan,
                   1e-6 * makespan);
    }
    CHECK_EQ_UINT(index, 2);
}

static void check_curve(const json_t *series, const json_t *lines, const char *key) {
    const json_t *x = json_object_get(series, "x"), *y = json_object_get(series, "y");
    CHECK_EQ_UINT(json_array_size(x), 30);
    for (size_t i = 0; i < 30; i++) {
        double value = cli_number(json_array_get(lines, i), key);
        CHECK_NEAR(at(x, i), (double)i + 1, 0.0);
        CHECK_NEAR(at(y, i), value, 1e-8 * fabs(value));
    }
}

static void check_curves(const json_t *data, const json_t *lines) {
    const json_t *charts = json_object_get(data, "charts");
    const json_t *loss = json_array_get(charts, 0), *checks = json_array_get(loss, 1);
    const json_t *summary = json_object_get(json_array_get(lines, 30), "summary");
    check_curve(json_array_get(loss, 0), lines, "loss");
    check_curve(json_array_get(json_array_get(charts, 1), 0), lines, "grad_norm");
    check_curve(json_array_get(json_array_get(charts, 2), 0), lines, "lr");
    check_curve(json_array_get(json_array_get(charts, 3), 0), lines, "seconds");
    CHECK_EQ_UINT(json_array_size(json_object_get(checks, "x")), 3);
    CHECK_NEAR(at(json_object_get(checks, "x"), 1), 20, 0.0);
    CHECK_NEAR(at(json_object_get(checks, "x"), 2), 30, 0.0);
    CHECK_NEAR(at(json_object_get(checks, "y"), 2), cli_number(summary, "validation_loss"), 1e-8);
}

static void test_the_page_says_what_trace_and_json_say(void) {
    struct cli_run run;
    const char *text = cli_text(), *out = test_temporary_directory();
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --plan given --data %s/0.txt --steps 30 --eval-every 10 "
             "--trace %s/t --json %s/j --report %s/r.html",
             text, out, out, out);
    CHECK_CONTAINS(run.output, "\nreport      ");
    char *page = read_page(out, "r.html");
    CHECK(page != NULL);
    json_t *data = html_data(page), *trace = read_json(out, "t", false);
    json_t *lines = read_json(out, "j", true);
    check_events(data, trace);
    check_lost_times(data);
    check_predicted(data, lines);
    check_curves(data, lines);
    EXPECT_EQ_UINT(html_count(page, "<h1><bdi>weir train: gpt</bdi></h1>"), 1);
    EXPECT_EQ_UINT(html_count(page, "<bdi>layers 0–2</bdi>"), 1);
    EXPECT_EQ_UINT(html_count(page, "<bdi>layer 3</bdi>"), 1);
    json_decref(data);
    json_decref(trace);
    json_decref(lines);
    free(page);
    CHECK(test_shell(run.output, sizeof run.output, "ls %s/*.partial", out) != 0);
}

/* ---- the command ---- */

static void check_same_losses(const json_t *a, const json_t *b) {
    CHECK_EQ_UINT(json_array_size(a), json_array_size(b));
    for (size_t i = 0; i + 1 < json_array_size(a); i++)
        CHECK_NEAR(cli_number(json_array_get(a, i), "loss"),
                   cli_number(json_array_get(b, i), "loss"), 0.0);
}

static void test_the_command_repeats_the_run(void) {
    struct cli_run run;
    const char *text = cli_text(), *out = test_temporary_directory();
    char path[512];
    CLI_CODE(&run, 0,
             "--version >/dev/null; mkdir '%s/a b'; cd '%s/a b'; cp %s/0.txt \"it's\"; "
             "WEIR_WAIT=park '%s/bin/weir' train " CLI_TRAIN
             " --dropout 0.1 --seed 7 --data=\"it's\" --steps 4 --json j --report r",
             out, out, text, test_install_prefix());
    snprintf(path, sizeof path, "%s/a b", out);
    char *page = read_page(path, "r");
    CHECK(page != NULL);
    char *command = html_text_of(page, "command");
    json_t *first = read_json(path, "j", true);
    EXPECT_CONTAINS(command, "/a b' && WEIR_WAIT=park weir train ");
    EXPECT_CONTAINS(command, " '--data=it'\\''s' ");
    io_make_file(out, "again", command, strlen(command), path);
    CHECK_EQ_INT(test_shell(run.output, sizeof run.output,
                            "rm '%s/a b/j'; cd /; PATH='%s/bin':\"$PATH\" sh '%s'", out,
                            test_install_prefix(), path),
                 0);
    snprintf(path, sizeof path, "%s/a b", out);
    json_t *second = read_json(path, "j", true);
    check_same_losses(first, second);
    json_decref(first);
    json_decref(second);
    free(command);
    free(page);
}

/* The name holds a slash, so it is three folders and a file. */
static void test_names_cannot_break_the_page(void) {
    static const char name[] = "<\"/script><script>alert(1)<\x1b[31m\xff&amp;/script>";
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE(&run, 0,
             "--version >/dev/null; mkdir -p '%s/%s'; cp %s/0.txt '%s/%s/x'; cd %s; "
             "'%s/bin/weir' train " CLI_TRAIN " --steps 2 --report r --data '%s/x'",
             text, name, text, text, name, text, test_install_prefix(), name);
    char *page = read_page(text, "r");
    CHECK(page != NULL);
    EXPECT_EQ_UINT(html_count(page, "<script"), 2);
    EXPECT_CONTAINS(page, "&lt;&quot;/script&gt;&lt;script&gt;alert(1)&lt;");
    char *command = html_text_of(page, "command");
    EXPECT_CONTAINS(command, "--data $'<\"/script><script>alert(1)<\\033[31m\\377&amp;/script>/x'");
    free(command);
    free(page);
}

/* ---- runs that end otherwise ---- */

static void test_a_run_that_fails_late_leaves_a_page(void) {
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE(&run, 1, "train " CLI_TRAIN " --data %s/0.txt --steps 5 --lr 1e30 --report %s/r", text,
             text);
    CHECK_CONTAINS(run.output, "weir: train: update 2: its gradient is not finite: layer ");
    char *page = read_page(text, "r");
    CHECK(page != NULL);
    EXPECT_CONTAINS(page, "The run failed after 1 of 5 updates: update 2: its gradient is not");
    json_t *data = html_data(page);
    EXPECT_EQ_INT(whole(data, "step"), 1); /* the last that was whole */
    json_decref(data);
    free(page);
}

static void test_an_interrupted_run_leaves_a_page(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *text = cli_text();
    char first[16] = "", warning[96];
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t process = cli_start(ends[1],
                              "train " CLI_TRAIN " --data %s/0.txt --steps 100000000 --lr 1e-6 "
                              "--log-every 1000000000 --json %s/j --report %s/r",
                              text, text, text);
    close(ends[1]);
    CHECK(process > 0);
    CHECK(read(ends[0], first, 8) == 8); /* its first table; the steps follow at once */
    cli_sleep_ms(700);
    kill(process, SIGINT);
    CHECK_EQ_INT(cli_wait(process), 130);
    close(ends[0]);
    char *page = read_page(text, "r");
    json_t *lines = read_json(text, "j", true);
    CHECK(page != NULL);
    snprintf(warning, sizeof warning, "The run was interrupted after %zu of 100000000 updates.",
             json_array_size(lines) - 1);
    EXPECT_CONTAINS(page, warning);
    json_t *data = html_data(page);
    size_t points = json_array_size(json_object_get(
        json_array_get(json_array_get(json_object_get(data, "charts"), 0), 0), "x"));
    EXPECT(points > 0 && points <= 4096);
    EXPECT(json_object_get(data, "actions") != NULL);
    json_decref(data);
    json_decref(lines);
    free(page);
}

static void test_a_run_of_no_steps_leaves_a_page(void) {
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE(&run, 0, "train " CLI_TRAIN " --data %s/0.txt --steps 0 --report %s/r", text, text);
    char *page = read_page(text, "r");
    CHECK(page != NULL);
    EXPECT_CONTAINS(page, "No training step was traced");
    free(page);
}

static void test_a_path_that_cannot_be_written_is_refused_first(void) {
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE(&run, 2, "train " CLI_TRAIN " --data %s/0.txt --save %s/a --report %s/none/r.html",
             text, text, text);
    CHECK_CONTAINS(run.output, "weir: train: --report ");
    CHECK_CONTAINS(run.output, "/none/r.html: its folder: No such file");
    CHECK(strstr(run.output, "planned memory") == NULL);
    CLI_CODE(&run, 2, "train " CLI_TRAIN " --data %s/0.txt --report %s", text, text);
    CHECK_CONTAINS(run.output, " is a folder: give a file in it");
    CLI_CODE(&run, 2, "train " CLI_TRAIN " --data %s/0.txt --report - --json -", text);
    CHECK_CONTAINS(run.output, "--report - and --json -: only one of them can have stdout");
}

static void test_the_page_can_go_to_standard_output(void) {
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE(&run, 0, "train " CLI_TRAIN " --data %s/0.txt --steps 2 --report - >%s/r", text, text);
    CHECK_CONTAINS(run.output, "validation "); /* the text for people: on stderr */
    char *page = read_page(text, "r");
    CHECK(page != NULL);
    free(page);
}

/* Of two mini-batches an update, and options that nobody gave. */
static void test_the_page_says_updates_and_what_the_run_took(void) {
    static const char *const wanted[] = {"<dt><bdi>stages</bdi></dt><dd><bdi>2</bdi>",
                                         "<dt><bdi>balance</bdi></dt><dd><bdi>3,1</bdi>",
                                         "<dt><bdi>workers</bdi></dt><dd><bdi>2</bdi>",
                                         "<dt><bdi>device</bdi></dt><dd><bdi>cpu</bdi>",
                                         "<dt><bdi>virtual-stages</bdi></dt><dd><bdi>1</bdi>",
                                         "; update "};
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --plan given --data %s/0.txt --steps 6 --accumulate 2 --report "
             "%s/r",
             text, text);
    CHECK_CONTAINS(run.output, "\nthe last update, its last mini-batch\nupdate 6: ");
    char *page = read_page(text, "r");
    CHECK(page != NULL);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) EXPECT_CONTAINS(page, wanted[i]);
    const char *update = strstr(page, "; update ");
    EXPECT(update != NULL && strtol(update + 9, NULL, 10) <= 6);
    free(page);
}

WEIR_TEST_SUITE(cli_report, TEST(the_page_says_updates_and_what_the_run_took),
                TEST(the_page_says_what_trace_and_json_say), TEST(the_command_repeats_the_run),
                TEST(names_cannot_break_the_page), TEST(a_run_that_fails_late_leaves_a_page),
                TEST(an_interrupted_run_leaves_a_page), TEST(a_run_of_no_steps_leaves_a_page),
                TEST(a_path_that_cannot_be_written_is_refused_first),
                TEST(the_page_can_go_to_standard_output))

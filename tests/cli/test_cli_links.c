/* SPDX-License-Identifier: MIT */
/*
 * Goal: `simulate` and `plan` go by a file of links and count replicas, or say what is wrong.
 * Method: the installed command, on files made up here; doctor's own file is test_cli_ranks.c's.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static struct cli_run run;

static json_t *json_in(const char *folder, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return cli_json(path);
}

static double step_in(const char *folder, const char *name) {
    json_t *root = json_in(folder, name);
    double step = json_real_value(json_object_get(root, "step"));
    json_decref(root);
    return step;
}

#define PAIRS                                                                                      \
    "{\"from\": 0, \"to\": 1, \"alpha\": 0.25, \"bandwidth\": 0.5},"                               \
    "{\"from\": 1, \"to\": 0, \"alpha\": 0.5, \"bandwidth\": 0.5}"

/* Eight messages of 2 s each way, one after the other, beside tasks of 1. */
static void test_simulate_goes_by_a_file_of_links(void) {
    const char *folder = test_temporary_directory();
    cli_write(folder, "pairs.json", "{\"ranks\": [{}, {}], \"links\": [" PAIRS "]}");
    cli_write(folder, "others.json",
              "{\"ranks\": 2, \"links\": [{\"alpha\": 0.25, \"bandwidth\": 0.5}]}");
    CLI_CODE_IN(folder, &run, 0,
                "simulate --schedule gpipe --chunks 8 --time F=1,B=1 --border-bytes 1 "
                "--links pairs.json --json out.json");
    EXPECT_NEAR(step_in(folder, "out.json"), 1 + 16.25 + 1 + 1 + 16.5 + 1, 1e-9);
    CLI_CODE_IN(folder, &run, 0,
                "simulate --schedule gpipe --chunks 8 --time F=1,B=1 --border-bytes 1 "
                "--links others.json --json out.json");
    EXPECT_NEAR(step_in(folder, "out.json"), 1 + 16.25 + 1 + 1 + 16.25 + 1, 1e-9);
}

static void test_files_of_links_that_cannot_be_are_refused(void) {
    static const struct {
        const char *text, *why;
    } files[] = {
        {"{", "(it must be JSON)"},
        {"{\"links\": []}", "it names no ranks"},
        {"{\"ranks\": [{}, {}]}", "it has no links"},
        {"{\"ranks\": 3, \"links\": [" PAIRS "]}", "there is no link from rank 0 to 2"},
        {"{\"ranks\": 1, \"links\": [" PAIRS "]}", "must be two of ranks 0 to 0"},
        {"{\"ranks\": 2, \"links\": [" PAIRS ", " PAIRS "]}", "another one from rank 0 to 1"},
        {"{\"ranks\": 2, \"links\": [{\"alpha\": 1, \"bandwidth\": 0}]}",
         "link 0: give \"alpha\", seconds from 0 on, and \"bandwidth\""},
        {"{\"ranks\": 2, \"links\": [{\"alpha\": -1, \"bandwidth\": 1}]}",
         "link 0: give \"alpha\""},
    };
    const char *folder = test_temporary_directory();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        cli_write(folder, "links.json", files[i].text);
        CLI_CODE_IN(folder, &run, 2, "simulate --links links.json");
        EXPECT_CONTAINS(run.output, "--links links.json: ");
        EXPECT_CONTAINS(run.output, files[i].why);
    }
    CLI_CODE_IN(folder, &run, 2, "simulate --links none.json");
    EXPECT_CONTAINS(run.output, "--links none.json: ");
    cli_write(folder, "links.json", "{\"ranks\": 2, \"links\": [" PAIRS "]}");
    CLI_CODE_IN(folder, &run, 2, "simulate --links links.json --workers 1");
    EXPECT_CONTAINS(run.output, "links of 2 ranks for 1 worker");
    CLI_CODE_IN(folder, &run, 2, "plan " CLI_MODEL " --links links.json");
    EXPECT_CONTAINS(run.output, "nothing is predicted without times");
}

/* Slower links make a longer step, of the same plan or another. */
static void test_plan_goes_by_links(void) {
    const char *folder = test_temporary_directory();
    cli_write(folder, "fast.json",
              "{\"ranks\": 2, \"links\": [{\"alpha\": 0, \"bandwidth\": 1e15}]}");
    cli_write(folder, "slow.json",
              "{\"ranks\": 2, \"links\": [{\"alpha\": 1, \"bandwidth\": 1e15}]}");
    CLI_CODE_IN(folder, &run, 0,
                "plan " CLI_MODEL " --search --links fast.json --json fast.out --chunks 2");
    CLI_CODE_IN(folder, &run, 0,
                "plan " CLI_MODEL " --search --links slow.json --json slow.out --chunks 2");
    EXPECT(step_in(folder, "fast.out") < 1.0);
    EXPECT(step_in(folder, "slow.out") > 2.0);
}

/* Two replicas of a worker each: 4 micro-batches, then slices of a second, norm, half an update. */
static void test_simulate_counts_what_replicas_share(void) {
    const char *folder = test_temporary_directory();
    cli_write(folder, "links.json",
              "{\"ranks\": 2, \"links\": [{\"alpha\": 0.25, \"bandwidth\": 65536}]}");
    CLI_CODE_IN(folder, &run, 0,
                "simulate --schedule 1f1b --chunks 8 --time F=1,B=2,N=0.5,U=1 --replicas 2 "
                "--gradient-bytes 128KiB --links links.json --json out.json");
    json_t *root = json_in(folder, "out.json");
    EXPECT_NEAR(json_real_value(json_object_get(root, "step")), 4 * 3.0, 1e-9);
    EXPECT_NEAR(json_real_value(json_object_get(root, "total")), 12 + 1.25 + 0.5 + 0.5 + 1.25,
                1e-9);
    EXPECT_EQ_UINT(json_array_size(json_object_get(root, "workers")), 2);
    EXPECT_EQ_UINT(json_integer_value(json_object_get(root, "replicas")), 2);
    json_decref(root);
    CLI_CODE_IN(folder, &run, 0,
                "simulate --schedule 1f1b --chunks 8 --time F=1,B=2,N=0.5,U=1 --replicas 2 "
                "--workers 2 --gradient-groups 4 --gradient-bytes 128KiB --copy 3");
    EXPECT_CONTAINS(run.output, "2 replicas of it: 19 s until all have all parameters");
    CLI_CODE_IN(folder, &run, 2, "simulate --replicas 3 --workers 4");
    EXPECT_CONTAINS(run.output, "two by two: give a power of two");
    EXPECT_CONTAINS(run.output, "those of all 3 replicas");
    CLI_CODE_IN(folder, &run, 2, "simulate --replicas 2 --schedule auto --links links.json");
    EXPECT_CONTAINS(run.output, "knows no links between replicas");
}

static void expect_found(const char *folder, const char *name, uint32_t replicas,
                         uint32_t threads) {
    json_t *root = json_in(folder, name), *pipeline = json_object_get(root, "pipeline");
    EXPECT_EQ_UINT(json_integer_value(json_object_get(pipeline, "replicas")), replicas);
    EXPECT_EQ_UINT(json_integer_value(json_object_get(pipeline, "workers")), 2);
    if (threads > 0)
        EXPECT_EQ_UINT(json_integer_value(json_object_get(pipeline, "threads_per_stage")), threads);
    json_decref(root);
}

/* Gradients that cost nothing are shared; those that take seconds are not. */
static void test_plan_searches_how_many_replicas(void) {
    const char *folder = test_temporary_directory();
    cli_write(folder, "near.json",
              "{\"ranks\": [{\"host\": \"a\"}, {\"host\": \"a\"}], \"links\": "
              "[{\"alpha\": 0, \"bandwidth\": 1e15}]}");
    cli_write(folder, "far.json",
              "{\"ranks\": 2, \"links\": [{\"alpha\": 0, \"bandwidth\": 1e4}]}");
    CLI_CODE_IN(folder, &run, 0,
                "plan " CLI_MODEL " --search --links near.json --chunks 2 --json near.out");
    EXPECT_CONTAINS(run.output, "groups    2 instead of 1");
    EXPECT_CONTAINS(run.output, "repeat    --replicas 2 --gradient-groups 2 ");
    expect_found(folder, "near.out", 2, 0);
    CLI_CODE_IN(folder, &run, 0,
                "plan " CLI_MODEL " --search --links far.json --chunks 2 --json far.out");
    expect_found(folder, "far.out", 1, 0);
    CLI_CODE_IN(folder, &run, 0,
                "plan " CLI_MODEL " --search --ranks 2 --chunks 2 --gradient-groups 1 "
                "--json one.out");
    expect_found(folder, "one.out", 1, 0);
    CLI_CODE_IN(folder, &run, 0,
                "plan " CLI_MODEL " --search --ranks 2 --chunks 2 --gradient-groups 2 "
                "--json two.out");
    EXPECT(strstr(run.output, "groups    2") == NULL); /* they are given: bits are */
    CLI_CODE_IN(folder, &run, 2, "plan " CLI_MODEL " --ranks 2");
    EXPECT_CONTAINS(run.output, "--ranks goes with --search");
    CLI_CODE_IN(folder, &run, 2, "plan " CLI_MODEL " --ranks 2 --search --links far.json");
    EXPECT_CONTAINS(run.output, "give one of them");
}

/* Each host has this one's cores for its own workers. */
static void test_threads_follow_from_the_hosts_that_links_name(void) {
    const char *folder = test_temporary_directory();
    uint32_t threads[2];
    cli_write(folder, "0.json",
              "{\"ranks\": [{\"host\": \"a\"}, {\"host\": \"a\"}], \"links\": "
              "[{\"alpha\": 0, \"bandwidth\": 1e15}]}");
    cli_write(folder, "1.json", "{\"ranks\": 2, \"links\": [{\"alpha\": 0, \"bandwidth\": 1e15}]}");
    for (int i = 0; i < 2; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d.out", i);
        CLI_CODE_IN(folder, &run, 0,
                    "plan --layers 2 --width 16 --heads 2 --context 8 --bind none --search "
                    "--links %d.json --chunks 2 --replicas 1 "
                    "--json %d.out",
                    i, i);
        json_t *root = json_in(folder, name), *pipeline = json_object_get(root, "pipeline");
        threads[i] = (uint32_t)json_integer_value(json_object_get(pipeline, "threads_per_stage"));
        json_decref(root);
    }
    EXPECT(threads[1] >= threads[0]);
    if (threads[1] > 1) EXPECT_EQ_UINT(threads[0], threads[1] / 2);
}

WEIR_TEST_SUITE(cli_links, TEST(simulate_goes_by_a_file_of_links),
                TEST(files_of_links_that_cannot_be_are_refused), TEST(plan_goes_by_links),
                TEST(simulate_counts_what_replicas_share), TEST(plan_searches_how_many_replicas),
                TEST(threads_follow_from_the_hosts_that_links_name))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: `simulate` and `plan` go by a file of links, or say what is wrong with it. Method: the
 * installed command, on files made up here; doctor's own file is test_cli_ranks.c's.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static struct cli_run run;

static void write_text(const char *folder, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    EXPECT(fputs(text, file) >= 0);
    EXPECT(fclose(file) == 0);
}

static double step_in(const char *folder, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *root = json_load_file(path, 0, NULL);
    double step = json_real_value(json_object_get(root, "step"));
    EXPECT(root != NULL);
    json_decref(root);
    return step;
}

#define PAIRS                                                                                      \
    "{\"from\": 0, \"to\": 1, \"alpha\": 0.25, \"bandwidth\": 0.5},"                               \
    "{\"from\": 1, \"to\": 0, \"alpha\": 0.5, \"bandwidth\": 0.5}"

/* Eight messages of 2 s each way, one after the other, beside tasks of 1. */
static void test_simulate_goes_by_a_file_of_links(void) {
    const char *folder = test_temporary_directory();
    write_text(folder, "pairs.json", "{\"ranks\": [{}, {}], \"links\": [" PAIRS "]}");
    write_text(folder, "others.json",
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
        write_text(folder, "links.json", files[i].text);
        CLI_CODE_IN(folder, &run, 2, "simulate --links links.json");
        EXPECT_CONTAINS(run.output, "--links links.json: ");
        EXPECT_CONTAINS(run.output, files[i].why);
    }
    CLI_CODE_IN(folder, &run, 2, "simulate --links none.json");
    EXPECT_CONTAINS(run.output, "--links none.json: ");
    write_text(folder, "links.json", "{\"ranks\": 2, \"links\": [" PAIRS "]}");
    CLI_CODE_IN(folder, &run, 2, "simulate --links links.json --workers 1");
    EXPECT_CONTAINS(run.output, "links of 2 ranks for 1 worker");
    CLI_CODE_IN(folder, &run, 2, "plan " CLI_MODEL " --links links.json");
    EXPECT_CONTAINS(run.output, "nothing is predicted without times");
}

/* Slower links make a longer step, of the same plan or another. */
static void test_plan_goes_by_links(void) {
    const char *folder = test_temporary_directory();
    write_text(folder, "fast.json",
               "{\"ranks\": 2, \"links\": [{\"alpha\": 0, \"bandwidth\": 1e15}]}");
    write_text(folder, "slow.json",
               "{\"ranks\": 2, \"links\": [{\"alpha\": 1, \"bandwidth\": 1e15}]}");
    CLI_CODE_IN(folder, &run, 0,
                "plan " CLI_MODEL " --search --links fast.json --json fast.out --chunks 2");
    CLI_CODE_IN(folder, &run, 0,
                "plan " CLI_MODEL " --search --links slow.json --json slow.out --chunks 2");
    EXPECT(step_in(folder, "fast.out") < 1.0);
    EXPECT(step_in(folder, "slow.out") > 2.0);
}

WEIR_TEST_SUITE(cli_links, TEST(simulate_goes_by_a_file_of_links),
                TEST(files_of_links_that_cannot_be_are_refused), TEST(plan_goes_by_links))

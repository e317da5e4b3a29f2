/* SPDX-License-Identifier: MIT */
/*
 * Goal: `weir schedule` searches by the times and limits that it is given, and judges tables over
 * links. Method: the installed command.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static const char *write_table(const char *text) {
    static char path[512];
    const char *folder = test_temporary_directory();
    cli_write(folder, "t.csv", text);
    snprintf(path, sizeof path, "%s/t.csv", folder);
    return path;
}

static void test_auto_keeps_the_limit_and_goes_by_the_times(void) {
    struct cli_run first, second;
    CLI(&first, "schedule --schedule auto --stages 2 --chunks 3 --activation-limit 1");
    CHECK(cli_code_at(__FILE__, __LINE__, &first, 0));
    CHECK_CONTAINS(first.output, "0F0,0B0,0F1,0B1,0F2,0B2,0U");
    CLI(&first, "schedule --schedule auto --stages 3 --chunks 4 --time W=0.5,B=1.5");
    CHECK(cli_code_at(__FILE__, __LINE__, &first, 0));
    CLI(&second, "schedule --schedule auto --stages 3 --chunks 4 --time W=0.5,B=1.5");
    CHECK_EQ_STR(first.output, second.output);
    const char *path = write_table("");
    CLI_CODE(&second, 0, "schedule --schedule auto --stages 3 --chunks 4 --csv %s", path);
    CLI_CODE(&second, 0, "schedule --check %s", path);
    CLI(&first, "schedule --schedule auto --stages 4 --workers 2 --activation-limit 1");
    CHECK(cli_code_at(__FILE__, __LINE__, &first, 2));
    CHECK_CONTAINS(first.output, "give a limit of 2 or more");
    CLI(&first, "schedule --schedule gpipe --activation-limit 1");
    CHECK(cli_code_at(__FILE__, __LINE__, &first, 2));
    CHECK_CONTAINS(first.output, "--activation-limit goes with --schedule auto");
}

static void test_simulate_searches_by_its_costs(void) {
    struct cli_run run;
    CLI(&run, "simulate --schedule auto --workers 2 --stages 4 --chunks 5 --activation-limit 4 "
              "--copy 0.25");
    CHECK(cli_code_at(__FILE__, __LINE__, &run, 0));
    CHECK_CONTAINS(run.output, "auto: 4 stages on 2 workers, 5 micro-batches");
    CLI(&run, "simulate --schedule zb-v --activation-limit 4");
    CHECK(cli_code_at(__FILE__, __LINE__, &run, 2));
    CHECK_CONTAINS(run.output, "--activation-limit goes with --schedule auto");
}

static void test_links_are_judged_and_named(void) {
    struct cli_run run;
    const char *path = write_table("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    static const char circle[] = "deadlock over links of depth 0: worker 0 waits to send 0F1 to "
                                 "worker 1; worker 1 waits to send 1B0 to worker 0";
    CLI(&run, "schedule --check %s", path);
    CHECK(cli_code_at(__FILE__, __LINE__, &run, 0));
    CHECK_CONTAINS(run.output, "links of depth 0: no deadlock; with late receives:");
    CHECK_CONTAINS(run.output, circle);
    CHECK_CONTAINS(run.output, "links of depth 1: no deadlock, also with late receives");
    CHECK_CONTAINS(run.output, "unbounded links: no deadlock, also with late receives");
    CLI(&run, "schedule --check %s --links 1 --receive late", path);
    CHECK(cli_code_at(__FILE__, __LINE__, &run, 0));
    CHECK(strstr(run.output, "depth 0") == NULL);
    CLI(&run, "schedule --check %s --links 0 --receive late", path);
    CHECK(cli_code_at(__FILE__, __LINE__, &run, 2));
    CHECK_CONTAINS(run.output, circle);
    CLI(&run, "schedule --links 0");
    CHECK(cli_code_at(__FILE__, __LINE__, &run, 2));
    CHECK_CONTAINS(run.output, "--links goes with --check");
}

WEIR_TEST_SUITE(cli_schedule, TEST(auto_keeps_the_limit_and_goes_by_the_times),
                TEST(simulate_searches_by_its_costs), TEST(links_are_judged_and_named))

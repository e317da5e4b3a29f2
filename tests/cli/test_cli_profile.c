/* SPDX-License-Identifier: MIT */
/*
 * Goal: `weir profile` measures once what --balance-by, --profile and the plan's predicted step use
 * later, and what is chosen can be repeated with --balance. Method: the installed command on a tiny
 * model, whose files are read back, changed, and given to other shapes; measured times are not
 * judged, but those in a file written here are.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROFILE "profile " CLI_MODEL " --batch 6 --chunks 3 --seconds 0 --steps 7"

/* The path of a profile of CLI_MODEL with 2 rows per micro-batch. */
static const char *make_profile(char path[512]) {
    struct cli_run run;
    snprintf(path, 512, "%s/profile.json", test_temporary_directory());
    cli_run_at(__FILE__, __LINE__, &run, PROFILE " --out %s", path);
    return cli_code_at(__FILE__, __LINE__, &run, 0) ? path : NULL;
}

static void write_json(const char *path, json_t *value) {
    EXPECT(json_dump_file(value, path, 0) == 0);
    json_decref(value);
}

static void test_a_profile_is_a_table_and_a_file(void) {
    static const char *const seconds[] = {"forward",       "forward_checkpoint", "recompute",
                                          "backward",      "backward_input",     "backward_weight",
                                          "recompute_last"};
    struct cli_run run;
    char path[512];
    snprintf(path, sizeof path, "%s/p.json", test_temporary_directory());
    CLI_CODE(&run, 0, PROFILE " --out - >%s", path);
    CHECK_CONTAINS(run.output, "gpt_block"); /* the table: on stderr */
    CHECK_CONTAINS(run.output, "2 rows, f32");
    json_t *root = cli_json(path), *layers = json_object_get(root, "layers"), *layer;
    size_t index;
    EXPECT_EQ_UINT(json_array_size(layers), CLI_LAYERS);
    json_array_foreach(layers, index, layer) {
        for (int i = 0; i < 7; i++) EXPECT(cli_number(layer, seconds[i]) >= 0);
        EXPECT(cli_number(layer, "forward") > 0 && cli_number(layer, "backward") > 0);
        EXPECT(cli_number(layer, "parameters") > 0 && cli_number(layer, "border") > 0);
    }
    EXPECT(cli_number(root, "rows") == 2 && cli_number(root, "threads") == 1);
    EXPECT(cli_number(json_object_get(root, "whole"), "forward") > 0);
    json_decref(root);
}

/* The list behind "--balance " in what was printed. */
static const char *printed_balance(const char *output, char text[64]) {
    const char *at = strstr(output, "--balance ");
    if (at == NULL || sscanf(at, "--balance %63[0-9,]", text) != 1) {
        TEST_FAIL("no balance in '%s'", output);
        return "1";
    }
    return text;
}

static void test_a_balance_by_time_can_be_repeated(void) {
    struct cli_run run;
    char data[512], balance[64];
    const char *folder = test_temporary_directory();
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    cli_make_data(folder, "d", 6, 6, data);
    CLI_CODE(&run, 0, "init --layers 2 --width 16 --heads 2 --context 8 --vocab 32 --out %s/w",
             folder);
    CLI_CODE(&run, 0,
             "grad " CLI_MODEL " --vocab 32 --weights %s/w --data %s --chunks 3 --out %s/a "
             "--stages 2 --balance-by time",
             folder, data, folder);
    CHECK_CONTAINS(run.output, "balance by time");
    printed_balance(run.output, balance);
    CLI_CODE(&run, 0,
             "grad " CLI_MODEL " --vocab 32 --weights %s/w --data %s --chunks 3 --out %s/b "
             "--balance %s",
             folder, data, folder, balance);
    char a[512], b[512];
    snprintf(a, sizeof a, "%s/a", folder);
    snprintf(b, sizeof b, "%s/b", folder);
    cli_same_files(a, b);
}

/* Doubled forward times of a layer move the cut; so the file was read, and by its times. */
static void test_times_come_from_the_file(void) {
    static const struct {
        double seconds[CLI_LAYERS];
        const char *balance;
    } cases[] = {{{1, 1, 1, 1}, "--balance 2,2\n"},
                 {{3, 1, 1, 1}, "--balance 1,3\n"},
                 {{1, 1, 1, 3}, "--balance 3,1\n"}};
    struct cli_run run;
    char path[512];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    CHECK(make_profile(path) != NULL);
    for (int i = 0; i < 3; i++) {
        json_t *root = cli_json(path), *layers = json_object_get(root, "layers");
        for (size_t k = 0; k < CLI_LAYERS; k++) {
            json_t *layer = json_array_get(layers, k);
            json_object_set_new(layer, "forward", json_real(cases[i].seconds[k]));
            json_object_set_new(layer, "backward", json_real(2 * cases[i].seconds[k]));
        }
        json_object_set_new(root, "task", json_real(0));
        write_json(path, root);
        CLI_CODE(&run, 0,
                 "plan " CLI_MODEL " --batch 6 --chunks 3 --stages 2 --checkpoint never "
                 "--balance-by time --profile %s --json %s.plan",
                 path, path);
        CHECK_CONTAINS(run.output, cases[i].balance);
        CHECK(strstr(run.output, "measuring") == NULL);
        char name[600];
        snprintf(name, sizeof name, "%s.plan", path);
        json_t *plan = cli_json(name);
        /* Stages of 2 and 2 or 3 and 3 seconds forward, twice that backward; 1F1B of 3 */
        double each = i == 0 ? 2 : 3;
        EXPECT_NEAR(cli_number(plan, "step"), (3 + 1) * 3 * each, 1e-9);
        json_decref(plan);
    }
}

static void test_a_missing_profile_is_made_and_kept(void) {
    struct cli_run run;
    char path[512];
    snprintf(path, sizeof path, "%s/new.json", test_temporary_directory());
    CLI_CODE(&run, 0, "plan " CLI_MODEL " --batch 6 --chunks 3 --profile %s", path);
    CHECK_CONTAINS(run.output, "measuring");
    CHECK_CONTAINS(run.output, "predicted step");
    CLI_CODE(&run, 0, "plan " CLI_MODEL " --batch 6 --chunks 3 --profile %s --schedule gpipe",
             path);
    CHECK(strstr(run.output, "measuring") == NULL);
    CHECK_CONTAINS(run.output, "predicted step");
}

static void test_every_schedule_is_predicted(void) {
    struct cli_run run;
    char path[512];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    snprintf(path, sizeof path, "%s/p.json", test_temporary_directory());
    cli_run_at(__FILE__, __LINE__, &run,
               "profile " CLI_MODEL " --batch 8 --chunks 4 --seconds 0 --steps 7 --out %s", path);
    CHECK(cli_code_at(__FILE__, __LINE__, &run, 0));
    for (uint32_t i = 0; weir_schedule_name(i) != NULL; i++) {
        const char *name = weir_schedule_name(i);
        CLI_CODE(&run, 0,
                 "plan " CLI_MODEL " --batch 8 --chunks 4 --workers 2 --profile %s --schedule %s "
                 "--balance-by time --json - 2>&1 >%s.plan",
                 path, name, path);
        char plan_path[600];
        snprintf(plan_path, sizeof plan_path, "%s.plan", path);
        json_t *plan = cli_json(plan_path);
        EXPECT(cli_number(plan, "step") > 0);
        json_decref(plan);
        if (test_has_failed()) TEST_FAIL("with %s", name);
        CHECK_HELPERS();
    }
}

static void test_a_balance_by_size_needs_no_times(void) {
    struct cli_run run;
    CLI_CODE(&run, 0, "plan " CLI_MODEL " --batch 6 --chunks 3 --stages 2 --balance-by size");
    CHECK_CONTAINS(run.output, "balance by size: --balance ");
    CHECK(strstr(run.output, "measuring") == NULL);
    CHECK(strstr(run.output, "predicted") == NULL);
}

static void test_training_and_inference_are_balanced_by_their_own_times(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *text = cli_text();
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --data %s --steps 1 --stages 2 --balance-by time --save-weights "
             "%s/w",
             text, folder);
    CHECK_CONTAINS(run.output, "balance by time: --balance ");
    CLI_CODE(&run, 0,
             "eval " CLI_MODEL " --batch 5 --chunks 3 --data %s --load %s/w --stages 2 "
             "--balance-by time --profile %s/i",
             text, folder, folder);
    CHECK_CONTAINS(run.output, "balance by time: --balance ");
    CLI_CODE(&run, 0,
             "generate --heads 2 --threads-per-stage 1 --bind none --prompt ab --tokens 2 "
             "--load %s/w --stages 2 --balance-by time",
             folder);
    CHECK_CONTAINS(run.output, "balance by time: --balance ");
    CLI_CODE(&run, 2,
             "train " CLI_TRAIN " --data %s --steps 1 --stages 2 --balance-by time --profile %s/i",
             text, folder);
    CHECK_CONTAINS(run.output, "inference");
}

static void test_what_does_not_fit_is_refused(void) {
    struct cli_run run;
    char path[512];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    CHECK(make_profile(path) != NULL);
    CLI_CODE(&run, 2, "plan " CLI_MODEL " --batch 12 --chunks 3 --profile %s", path);
    CHECK_CONTAINS(run.output, "2 rows per micro-batch, not 4");
    CHECK_CONTAINS(run.output, path);
    CLI_CODE(&run, 2, "plan " CLI_MODEL " --batch 6 --chunks 3 --dropout 0.5 --profile %s", path);
    CHECK_CONTAINS(run.output, "another model");
    CLI_CODE(&run, 2, "plan " CLI_MODEL " --batch 6 --chunks 3 --threads-per-stage 2 --profile %s",
             path);
    CHECK_CONTAINS(run.output, "1 threads per stage, not 2");
    CLI_CODE(&run, 2, "plan " CLI_MODEL " --batch 6 --chunks 3 --profile /proc/none");
    CHECK_CONTAINS(run.output, "--profile /proc/none: ");
    CLI_CODE(&run, 2, "plan " CLI_MODEL " --balance 2,2 --balance-by time");
    CHECK_CONTAINS(run.output, "give one of them");
    CLI_CODE(&run, 2, "train " CLI_TRAIN " --plan given --data %s --profile %s", cli_text(), path);
    CHECK_CONTAINS(run.output, "nothing here needs times");
    CLI_CODE(&run, 2, PROFILE " --profile %s", path);
    CHECK_CONTAINS(run.output, "--out FILE");
    CLI_CODE(&run, 2, PROFILE " --out /nowhere/at/all");
    CHECK_CONTAINS(run.output, "/nowhere/at/all");
    json_t *root = cli_json(path);
    json_object_set_new(root, "layers", json_null());
    write_json(path, root);
    CLI_CODE(&run, 2, "plan " CLI_MODEL " --batch 6 --chunks 3 --profile %s", path);
    CHECK_CONTAINS(run.output, "layers must be");
}

WEIR_TEST_SUITE(cli_profile, TEST(a_profile_is_a_table_and_a_file),
                TEST(a_balance_by_time_can_be_repeated), TEST(times_come_from_the_file),
                TEST(a_missing_profile_is_made_and_kept), TEST(every_schedule_is_predicted),
                TEST(a_balance_by_size_needs_no_times),
                TEST(training_and_inference_are_balanced_by_their_own_times),
                TEST(what_does_not_fit_is_refused))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: bf16 on CPUs, as a person asks for it: training follows f32's losses, whatever the pipeline
 * gives the same bits, checkpoints go on and tell of another dtype and of a level with other bits,
 * and every command that runs a model, plans for it or measures it takes --dtype bf16. Method: the
 * installed command with small models, at every level that runs here.
 */
#include "cli/cli.h"
#include "net/cpu/level.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TRAIN "train " CLI_TRAIN " --seed 4 --data 0.txt --lr-schedule constant "
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* NULL from the count of those that run here on. */
static const struct weir__level *level_at(uint32_t i) {
    const struct weir__level *level = weir__level_at(i);
    return level != NULL && weir__level_runs(level) ? level : NULL;
}

static void test_losses_follow_those_of_f32(void) {
    enum { STEPS = 40 };
    const struct weir__level *level;
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE_IN(text, &run, 0, TRAIN "--steps %d --lr 0.01 --json f32", STEPS);
    EXPECT(cli_loss_of_line(text, "f32", STEPS - 1) < cli_loss_of_line(text, "f32", 0) - 1);
    for (uint32_t l = 0; (level = level_at(l)) != NULL; l++) {
        CLI_CODE_IN(text, &run, 0,
                    TRAIN "--steps %d --lr 0.01 --stages 3 --dtype bf16 --level %s --json bf16",
                    STEPS, level->name);
        for (size_t i = 0; i < STEPS; i++) {
            double single = cli_loss_of_line(text, "f32", i),
                   half = cli_loss_of_line(text, "bf16", i);
            if (!(fabs(half - single) <= 0.02 * single) || half == single)
                TEST_FAIL("%s, step %zu: %g, f32 %g", level->name, i, half, single);
        }
    }
}

static void test_bits_are_those_of_any_pipeline(void) {
    static const char *const pipelines[] = {"--stages 3 --workers 2 --checkpoint always",
                                            "--stages 4 --schedule zb-v --recompute late",
                                            "--balance 1,3 --checkpoint never"};
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE_IN(text, &run, 0, TRAIN "--dropout 0.1 --steps 3 --dtype bf16 --save one");
    for (size_t i = 0; i < COUNT(pipelines); i++) {
        CLI_CODE_IN(text, &run, 0, TRAIN "--dropout 0.1 --steps 3 --dtype bf16 --save other %s",
                    pipelines[i]);
        if (!cli_do(text, "cmp one other")) TEST_FAIL("with %s", pipelines[i]);
    }
    CLI_CODE_IN(text, &run, 0, TRAIN "--dropout 0.1 --steps 2 --dtype bf16 --save begun");
    CLI_CODE_IN(text, &run, 0,
                TRAIN "--dropout 0.1 --steps 3 --dtype bf16 --resume begun --save other");
    CHECK(strstr(run.output, "warning") == NULL);
    CHECK(cli_do(text, "cmp one other"));
}

/* Parameters and the optimizer are f32 in both: a warning says that bits change. */
static void test_a_checkpoint_goes_between_bf16_and_f32(void) {
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE_IN(text, &run, 0, TRAIN "--steps 2 --dtype bf16 --save a");
    CLI_CODE_IN(text, &run, 0, TRAIN "--steps 3 --resume a --save b --json single");
    CHECK_CONTAINS(run.output, "--dtype is f32, but a was trained with bf16");
    CLI_CODE_IN(text, &run, 0, TRAIN "--steps 4 --dtype bf16 --resume b --json half");
    CHECK_CONTAINS(run.output, "--dtype is bf16, but b was trained with f32");
    CLI_CODE_IN(text, &run, 0, TRAIN "--steps 4 --json all");
    CHECK_NEAR(cli_loss_of_line(text, "single", 0), cli_loss_of_line(text, "all", 2), 0.02);
    CHECK_NEAR(cli_loss_of_line(text, "half", 0), cli_loss_of_line(text, "all", 3), 0.02);
}

static void resume_at(const struct weir__level *began, const struct weir__level *on, bool half) {
    struct cli_run run;
    char said[128];
    const char *text = cli_text(), *dtype = half ? "bf16" : "f32";
    const char *then = half ? began->bits_bf16 : began->bits,
               *now = half ? on->bits_bf16 : on->bits;
    CLI_CODE_IN(text, &run, 0, TRAIN "--steps 1 --dtype %s --level %s --save c", dtype,
                began->name);
    CLI_CODE_IN(text, &run, 0, TRAIN "--steps 2 --dtype %s --level %s --resume c", dtype, on->name);
    snprintf(said, sizeof said, "%s computes here, but %s trained c", now, then);
    EXPECT((strstr(run.output, said) != NULL) == (strcmp(now, then) != 0));
    if (test_has_failed()) printf("  %s: from %s to %s\n", dtype, began->name, on->name);
}

static void test_a_level_of_other_bits_is_told_when_a_run_is_resumed(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    for (uint32_t i = 1; level_at(i) != NULL && !test_has_failed(); i++)
        for (int half = 0; half < 2; half++) resume_at(level_at(i - 1), level_at(i), half == 1);
}

static void test_bf16_continues_judges_and_predicts(void) {
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE_IN(text, &run, 0, TRAIN "--steps 3 --save-weights w");
    for (int i = 0; i < 3; i++) {
        const char *how = i == 0 ? "--dtype f32" : "--dtype bf16";
        int stages = i == 2 ? 3 : 1;
        CLI_CODE_IN(text, &run, 0,
                    "generate --load w --prompt 'int' --tokens 5 --temperature 0 --stages %d %s "
                    "--json g%d >text%d",
                    stages, how, i, i);
        CLI_CODE_IN(text, &run, 0, "eval --load w --data 0.txt --batch 3 --json e%d --stages %d %s",
                    i, stages, how);
        CLI_CODE_IN(text, &run, 0,
                    "predict --load w --data 0.txt --batch 3 --out p%d.npy --stages %d %s", i,
                    stages, how);
    }
    CHECK(cli_do(text, "cmp text1 text2 && cmp p1.npy p2.npy && ! cmp -s p0.npy p1.npy"));
    CHECK(cli_do(text, "head -c 80 p1.npy | grep -q \"'<f4'\""));
    char path[600];
    double losses[3];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/e%d", text, i);
        json_t *found = cli_json(path);
        losses[i] = cli_number(found, "loss");
        json_decref(found);
    }
    EXPECT(losses[1] == losses[2] && losses[1] != losses[0]);
    EXPECT_NEAR(losses[1], losses[0], 0x1p-6 * losses[0]);
}

static double planned(const char *dtype) {
    struct cli_run run;
    char path[600];
    const char *folder = test_temporary_directory();
    snprintf(path, sizeof path, "%s/plan", folder);
    cli_run_at(__FILE__, __LINE__, &run,
               "plan " CLI_MODEL " --batch 8 --chunks 2 --stages 2 --checkpoint never --dtype %s "
               "--json %s",
               dtype, path);
    if (!cli_code_at(__FILE__, __LINE__, &run, 0)) return NAN;
    json_t *found = cli_json(path);
    double bytes = 0;
    const json_t *devices = json_object_get(found, "devices");
    for (size_t i = 0; i < json_array_size(devices); i++)
        bytes += cli_number(json_array_get(devices, i), "activations");
    json_decref(found);
    return bytes;
}

static void test_bf16_is_planned_measured_and_simulated(void) {
    struct cli_run run;
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = test_temporary_directory();
    double half = planned("bf16"), single = planned("f32");
    EXPECT(half > 0.5 * single && half < 0.65 * single); /* rows' statistics stay f32 */
    CLI_CODE_IN(folder, &run, 0,
                "profile " CLI_MODEL " --batch 4 --chunks 2 --dtype bf16 --seconds 0 --steps 7 "
                "--out p");
    CHECK_CONTAINS(run.output, "2 rows, bf16");
    CLI_CODE_IN(folder, &run, 0,
                "plan " CLI_MODEL " --batch 4 --chunks 2 --stages 2 --dtype bf16 --balance-by time "
                "--profile p");
    CLI_CODE_IN(folder, &run, 2,
                "plan " CLI_MODEL " --batch 4 --chunks 2 --stages 2 --balance-by time --profile p "
                "");
    CHECK_CONTAINS(run.output, "bf16");
    CLI_CODE_IN(folder, &run, 0,
                "simulate --model gpt " CLI_MODEL " --batch 4 --chunks 2 --stages 2 --dtype bf16");
}

static void test_what_is_not_finite_is_traced_to_its_layer(void) {
    struct cli_run run;
    CLI_CODE_IN(cli_text(), &run, 1, TRAIN "--steps 3 --stages 2 --dtype bf16 --lr 1e30");
    CHECK_CONTAINS(run.output, "update 2: its gradient is not finite: layer ");
    CHECK_CONTAINS(run.output, " is the first that gives a number that is not finite: lower");
}

WEIR_TEST_SUITE(cli_bf16, TEST(losses_follow_those_of_f32), TEST(bits_are_those_of_any_pipeline),
                TEST(a_checkpoint_goes_between_bf16_and_f32),
                TEST(a_level_of_other_bits_is_told_when_a_run_is_resumed),
                TEST(bf16_continues_judges_and_predicts),
                TEST(what_is_not_finite_is_traced_to_its_layer),
                TEST(bf16_is_planned_measured_and_simulated))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: `weir eval` says of a file what is true of it. Method: a small GPT is trained; its loss on
 * a text is that of train's own validation on the same text, and the same over other stages, chunks
 * and batches within rounding. What is missing or does not fit is refused with the reason.
 */
#include "cli.h"
#include "harness.h"

#include <stdio.h>
#include <string.h>

#define MODEL "--layers 1 --width 16 --heads 2 --context 8"

static double number_of(const char *path, const char *key) {
    json_t *root = cli_json(path);
    double value = root == NULL ? 0 : json_number_value(json_object_get(root, key));
    EXPECT(root != NULL && json_is_number(json_object_get(root, key)));
    json_decref(root);
    return value;
}

static void test_the_loss_is_that_of_validation_whatever_the_pipeline(void) {
    static struct cli_run run;
    const char *folder = test_temporary_directory();
    char path[512];
    CHECK(folder != NULL);
    CLI_CODE(&run, 0,
             "train " MODEL " --data '%s' --eval-data README.md --eval-batches 100000 --steps 3 "
             "--batch 4 --chunks 2 --stages 2 --sample 0 --save '%s/w.st' --bind none",
             cli_text(), folder);
    const char *at = strstr(run.output, "validation  ");
    CHECK(at != NULL);
    double loss = 0;
    CHECK(sscanf(at, "validation  %lf", &loss) == 1);
    static const char *const pipes[] = {"--stages 1 --batch 4", "--stages 3 --chunks 3 --batch 7"};
    double losses[2];
    for (int i = 0; i < 2; i++) {
        CLI_CODE(&run, 0,
                 "eval " MODEL
                 " --load '%s/w.st' --data README.md %s --bind none --json '%s/e.json'",
                 folder, pipes[i], folder);
        snprintf(path, sizeof path, "%s/e.json", folder);
        losses[i] = number_of(path, "loss");
        EXPECT_NEAR(number_of(path, "bits"), losses[i] / 0.6931471805599453, 1e-9);
        EXPECT(number_of(path, "rows") > 1000);
    }
    EXPECT_NEAR(losses[0], loss, 1e-3);
    EXPECT_NEAR(losses[1], losses[0], 1e-6);
}

static void test_what_is_missing_or_does_not_fit_is_refused(void) {
    static struct cli_run run;
    const char *folder = test_temporary_directory();
    CHECK(folder != NULL);
    CLI_CODE(&run, 2, "eval");
    EXPECT_CONTAINS(run.output, "--load is missing: give the weights' file");
    EXPECT_CONTAINS(run.output, "--data is missing: give --data PATH...");
    CLI_CODE(&run, 2, "eval --load '%s/none.st' --data README.md", folder);
    EXPECT_CONTAINS(run.output, "none.st");
    CLI_CODE(&run, 0, "init " MODEL " --out '%s/w.st'", folder);
    CLI_CODE(&run, 2,
             "eval --layers 2 --width 16 --heads 2 --context 8 --load '%s/w.st' "
             "--data README.md",
             folder);
    EXPECT_CONTAINS(run.output, "h.1.");
}

WEIR_TEST_SUITE(cli_eval, TEST(the_loss_is_that_of_validation_whatever_the_pipeline),
                TEST(what_is_missing_or_does_not_fit_is_refused))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: the command's networks run on GPUs: `train`, its files and what goes on from them, in f32
 * and bf16; layers are measured there, and plans made by that or by estimates; and
 * what GPUs cannot do is refused. Method: the installed command on the fake driver,
 * whose kernels are emulated; files are compared byte by byte.
 */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRAIN "train " CLI_TRAIN " --steps 3 --seed 4 --schedule 1f1b --data %s "

/* False, and the test is skipped, where there is no driver to run on. */
#define TAKE_FAKE_GPUS()                                                                           \
    do {                                                                                           \
        if (test_fake_cuda_path() == NULL) SKIP("the fake CUDA driver was not built");             \
        CHECK(setenv("WEIR_CUDA_DRIVER", test_fake_cuda_path(), 1) == 0);                          \
        CHECK(setenv("WEIR_FAKE_CUDA_GPUS", "2", 1) == 0);                                         \
    } while (0)

static double last_loss(const char *folder, const char *name) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *lines = cli_json_lines(path);
    double loss = NAN;
    if (lines != NULL) loss = cli_number(json_array_get(lines, 2), "loss");
    json_decref(lines);
    return loss;
}

static void test_weights_do_not_depend_on_how_many_gpus_train_them(void) {
    struct cli_run run;
    char one[600], two[600];
    TAKE_FAKE_GPUS();
    const char *folder = test_temporary_directory();
    CLI_CODE(&run, 0,
             TRAIN "--stages 1 --device cuda --save-weights %s/one.safetensors --json %s/one",
             cli_text(), folder, folder);
    CLI_CODE(&run, 0,
             TRAIN "--stages 3 --device cuda:0,cuda:1,cuda:0 --checkpoint always --save-weights "
                   "%s/two.safetensors --json %s/two",
             cli_text(), folder, folder);
    snprintf(one, sizeof one, "%s/one.safetensors", folder);
    snprintf(two, sizeof two, "%s/two.safetensors", folder);
    CHECK(cli_same_files(one, two));
    CLI_CODE(&run, 0, TRAIN "--stages 2 --device cpu --json %s/cpu", cli_text(), folder);
    CHECK_NEAR(last_loss(folder, "two"), last_loss(folder, "cpu"), 1e-4);
    CLI_CODE(&run, 0, TRAIN "--stages 2 --device cuda:1,cpu --json %s/mixed", cli_text(), folder);
    CHECK_NEAR(last_loss(folder, "mixed"), last_loss(folder, "cpu"), 1e-4);
}

static void test_what_a_gpu_began_a_cpu_goes_on_with(void) {
    struct cli_run run;
    TAKE_FAKE_GPUS();
    const char *folder = test_temporary_directory();
    CLI_CODE(&run, 0, TRAIN "--stages 2 --device cuda --save %s/c.safetensors", cli_text(), folder);
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --steps 5 --seed 4 --schedule 1f1b --data %s --stages 2 "
             "--resume %s/c.safetensors --json %s/cpu",
             cli_text(), folder, folder);
    CHECK_CONTAINS(run.output, "5");
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --steps 5 --seed 4 --schedule 1f1b --data %s --stages 1 "
             "--device cuda:1 --resume %s/c.safetensors --json %s/gpu",
             cli_text(), folder, folder);
}

static void test_bf16_trains(void) {
    struct cli_run run;
    TAKE_FAKE_GPUS();
    const char *folder = test_temporary_directory();
    CLI_CODE(&run, 0, TRAIN "--stages 2 --device cuda:0,cuda:1 --dtype bf16 --json %s/bf16",
             cli_text(), folder);
    CLI_CODE(&run, 0, TRAIN "--stages 2 --json %s/f32", cli_text(), folder);
    CHECK_NEAR(last_loss(folder, "bf16"), last_loss(folder, "f32"), 0.02);
}

static void test_layers_are_measured_on_a_gpu(void) {
    struct cli_run run;
    TAKE_FAKE_GPUS();
    const char *folder = test_temporary_directory();
    CLI_CODE(&run, 0,
             "profile " CLI_MODEL " --batch 4 --chunks 2 --device cuda --dtype bf16 --seconds 0 "
             "--steps 7 --out %s/p",
             folder);
    CHECK_CONTAINS(run.output, "2 rows, bf16");
    char path[600];
    snprintf(path, sizeof path, "%s/p", folder);
    json_t *root = cli_json(path);
    EXPECT(strcmp(json_string_value(json_object_get(root, "device")), "cuda") == 0);
    EXPECT(cli_number(root, "threads") == 1);
    json_decref(root);
    CLI_CODE(&run, 0,
             "plan " CLI_MODEL " --batch 4 --chunks 2 --stages 2 --device cuda --dtype bf16 "
             "--balance-by time --profile %s/p",
             folder);
    CHECK_CONTAINS(run.output, "predicted step");
    CLI_CODE(&run, 2, "plan " CLI_MODEL " --batch 4 --chunks 2 --stages 2 --profile %s/p", folder);
    CHECK_CONTAINS(run.output, "the profile is of device 'cuda', not 'cpu': measure again");
}

static void test_a_plan_is_searched_for_gpus(void) {
    struct cli_run run;
    TAKE_FAKE_GPUS();
    CLI_CODE(&run, 0,
             "plan " CLI_MODEL " --batch 4 --workers 2 --device cuda:0,cuda:1 --dtype bf16 "
             "--search --memory-limit 64MiB");
    CHECK_CONTAINS(run.output, "estimated from FLOPs and bytes, as an H100 takes for them");
    CHECK_CONTAINS(run.output, "cuda:1");
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --steps 2 --seed 4 --data %s --workers 2 --device cuda --plan "
             "auto",
             cli_text());
    CHECK_CONTAINS(run.output, "measured in");
}

static void test_what_gpus_cannot_do_is_refused(void) {
    static const char words[] = "layers' times are those of one kind of device";
    struct cli_run run;
    TAKE_FAKE_GPUS();
    CLI_CODE(&run, 2, "profile " CLI_MODEL " --batch 4 --device cuda --dtype f64");
    CHECK_CONTAINS(run.output, "--dtype f64 is the CPU's");
    CLI_CODE(&run, 2, "profile " CLI_MODEL " --batch 4 --workers 2 --device cuda,cpu");
    CHECK_CONTAINS(run.output, words);
    CLI_CODE(&run, 2, "plan " CLI_MODEL " --batch 4 --workers 2 --device cuda,cpu --search");
    CHECK_CONTAINS(run.output, words);
}

WEIR_TEST_SUITE(cli_gpu, TEST(weights_do_not_depend_on_how_many_gpus_train_them),
                TEST(what_a_gpu_began_a_cpu_goes_on_with), TEST(bf16_trains),
                TEST(layers_are_measured_on_a_gpu), TEST(a_plan_is_searched_for_gpus),
                TEST(what_gpus_cannot_do_is_refused))

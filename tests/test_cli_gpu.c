/* SPDX-License-Identifier: MIT */
/*
 * Goal: the command's networks run on GPUs: `train`, its files and what goes on from them, in f32
 * and bf16; and what GPUs cannot do is refused. Method: the installed command on the fake driver,
 * whose kernels are emulated; files are compared byte by byte.
 */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

static void test_what_gpus_cannot_do_is_refused(void) {
    struct cli_run run;
    TAKE_FAKE_GPUS();
    CLI_CODE(&run, 2, "profile " CLI_MODEL " --batch 4 --device cuda");
    CHECK_CONTAINS(run.output, "--device cuda: a profile is a CPU's: leave the GPU out");
}

WEIR_TEST_SUITE(cli_gpu, TEST(weights_do_not_depend_on_how_many_gpus_train_them),
                TEST(what_a_gpu_began_a_cpu_goes_on_with), TEST(bf16_trains),
                TEST(what_gpus_cannot_do_is_refused))

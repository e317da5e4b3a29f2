/* SPDX-License-Identifier: MIT */
/*
 * Goal: what cannot be is refused before any work, with exit code 2, every fault on a line of its
 * own and the nearest valid values named, and no file appears. Method: the installed command, given
 * one wrong thing each, then several at once.
 */
#include "cli/cli.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct refusal {
    const char *options;
    const char *message;
};

static const struct refusal of_pipelines[] = {
    {"--stages 5", "--stages 5: the model has 4 layers: choose 1 to 4"},
    {"--balance 1,2", "--balance adds up to 3 layers, the model has 4"},
    {"--balance 2,0,2", "--balance"},
    {"--balance 2,2 --stages 3", "--stages 3 but --balance names 2 stages"},
    {"--stages 2 --workers 3", "--workers 3: there are 2 stages: choose 1 to 2"},
    {"--workers 9", "--workers 9: the model has 4 layers: choose 1 to 4"},
    {"--schedule gpip", "there is no schedule 'gpip': choose one of gpipe, 1f1b"},
    {"--schedule gpip", "(did you mean gpipe?)"},
    {"--schedule zb-v --stages 3", "3 stages: zb-v has 2 per worker; the nearest are 2 and 4"},
    {"--schedule zb-v --stages 4 --workers 4", "ask for 2 workers or 8 stages"},
    {"--schedule zb-v --stages 4 --virtual-stages 4", "--virtual-stages 4: zb-v has 2 per worker"},
    {"--schedule zb-v --stages 4 --virtual-stages 1", "zb-v has 2 per worker: use 2"},
    {"--schedule zb-v --stages 2 --workers 3", "zb-v has 2 per worker; ask for 1 worker or 6"},
    {"--schedule zb-h1 --stages 4 --workers 2", "zb-h1 has 1 per worker; ask for 4 workers or 2"},
    {"--schedule zb-h2 --virtual-stages 2", "zb-h2 has 1 per worker: use 1"},
    {"--schedule interleaved --stages 4 --virtual-stages 3", "ask for 3 or 6 stages"},
    {"--schedule interleaved --stages 2 --virtual-stages 3", "ask for 3 stages"},
    {"--schedule interleaved --workers 2 --stages 4 --virtual-stages 4",
     "--virtual-stages 4 and --workers 2 are not 4 stages: ask for 8 stages or 1 worker"},
    {"--schedule interleaved --workers 2 --stages 4 --virtual-stages 1",
     "--virtual-stages 1 and --workers 2 are not 4 stages: ask for 2 stages or 4 workers"},
    {"--schedule interleaved --workers 3", "--workers 3: the model has 4 layers: choose 1 to 2"},
    {"--schedule dualpipe-v --stages 4 --chunks 3", "dualpipe-v needs as many micro-batches"},
    {"--schedule interleaved --stages 4 --batch 5 --chunks 5", "the nearest are 4 and 6"},
    {"--schedule zb-w", "there is no schedule 'zb-w'"},
    {"--schedule /none/t.csv", "--schedule /none/t.csv: cannot open"},
    {"--dtype f16", "--dtype f16"},
    {"--device cuda", "--device cuda: WEIR_CUDA_DRIVER names a library that does not open"},
    {"--device cpu,cuda:1", "--device cuda:1: WEIR_CUDA_DRIVER names"},
    {"--checkpoint sometimes", "always, except_last, never"},
    {"--chunks 0", "--chunks 0: too small"},
    {"--stages 0", "--stages 0: too small"},
    {"--stagse 2", "unknown option --stagse: did you mean --stages?"},
    {"--model gptt", "--model gptt is not known (did you mean gpt?): choose gpt, gpt2-124m, "},
    {"--heads 3", "--width 16 is not a multiple of --heads 3"},
    {"--dropout 1.5", "--dropout 1.5"},
};

static const struct refusal of_training[] = {
    {"--data /none/text", "/none/text: No such file or directory: check the path"},
    {"--save-every 2", "--save-every needs a file: give --save FILE"},
    {"--save /none/a", "--save /none/a: its folder: No such file or directory"},
    {"--save -", "--save '-' is no file: give its name"},
    {"--save-weights /", "--save-weights / is a folder"},
    {"--resume /none/a", "cannot open /none/a: No such file or directory"},
    {"--resume /proc/self/cmdline", "/proc/self/cmdline"},
    {"--optimizer adam", "adamw"},
    {"--optimizer sgd --nesterov", "--nesterov needs --momentum above 0"},
    {"--momentum 0.9", "--momentum means nothing to --optimizer adamw: leave it away, or give "
                       "--optimizer sgd"},
    {"--nesterov", "--nesterov means nothing to --optimizer adamw"},
    {"--optimizer sgd --beta2 0.9", "--beta2 means nothing to --optimizer sgd: leave it away, or "
                                    "give --optimizer adamw"},
    {"--beta1 1", "--beta1 1: give a number from 0 on and below 1, like 0.9"},
    {"--beta2 1", "--beta2 1: give a number from 0 on and below 1, like 0.999"},
    {"--tied --untied", "--tied and --untied: give one of them"},
    {"--vocab 100", "the model's vocabulary has 100: use at least 256 (--vocab)"},
    {"--batch 0", "--batch 0: too small"},
    {"--bind 4000", "no core 4000"},
    {"--plan given --memory-limit 1KiB", "more than the limit of 1024: raise the limit to"},
    {"--memory-limit 1KiB", "no pipeline that was tried"},
    {"--plan given --virtual-stages 2", "--virtual-stages 2: 1f1b has one stage per worker"},
    {"--lr fast", "--lr"},
    {"--context 20000", "context"},
};

static void check_refusals(const char *command, const struct refusal *refusals, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct cli_run run;
        CLI(&run, "%s %s 2>&1 >/dev/null", command, refusals[i].options);
        if (run.code != 2) TEST_FAIL("%s: exit code %d", refusals[i].options, run.code);
        char begin[32];
        snprintf(begin, sizeof begin, "weir: %.*s: ", (int)strcspn(command, " "), command);
        CHECK(strncmp(run.output, begin, strlen(begin)) == 0);
        CHECK_CONTAINS(run.output, refusals[i].message);
    }
}

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static void test_train_and_plan_refuse_pipelines_that_cannot_be(void) {
    char command[600];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    CHECK(setenv("WEIR_CUDA_DRIVER", "/none/driver", 1) == 0); /* wherever there is a GPU */
    snprintf(command, sizeof command, "train " CLI_TRAIN " --steps 1 --data %s", cli_text());
    check_refusals(command, of_pipelines, COUNT(of_pipelines));
    check_refusals("plan " CLI_MODEL, of_pipelines, COUNT(of_pipelines));
}

static void test_train_refuses_what_it_could_not_do(void) {
    char command[600];
    snprintf(command, sizeof command, "train --data %s " CLI_TRAIN, cli_text());
    check_refusals(command, of_training, COUNT(of_training));
}

/* Two checks find it. */
static void test_a_fault_is_listed_once(void) {
    static const char *const commands[] = {"train", "plan", "describe", "init --out w"};
    struct cli_run run;
    for (size_t i = 0; i < COUNT(commands); i++) {
        CLI_CODE(&run, 2, "%s --freeze zz", commands[i]);
        const char *found = strstr(run.output, "no parameter matches the pattern 'zz'");
        CHECK(found != NULL);
        CHECK(strstr(found + 1, "no parameter matches") == NULL);
    }
}

// PI-3
static void test_every_fault_is_listed_and_no_file_appears(void) {
    static const char *const messages[] = {"--save-every needs a file",
                                           "--save-weights /none/w: its folder",
                                           "/none/text: No such file",
                                           "--balance adds up to 6 layers, the model has 4",
                                           "there is no schedule 'zigzag'",
                                           "--dtype f64 is the CPU's",
                                           "--device cuda: WEIR_CUDA_DRIVER names",
                                           "--workers 3: there are 2 stages"};
    struct cli_run run;
    const char *folder = test_temporary_directory();
    CHECK(setenv("WEIR_CUDA_DRIVER", "/none/driver", 1) == 0);
    CLI_CODE(&run, 2,
             "train " CLI_TRAIN
             " --data /none/text --save-every 1 --save-weights /none/w --balance "
             "3,3 --schedule zigzag --dtype f64 --device cuda --workers 3 --json %s/j --trace %s/t",
             folder, folder);
    for (uint32_t i = 0; i < COUNT(messages); i++) CHECK_CONTAINS(run.output, messages[i]);
    CHECK_EQ_INT(test_shell(run.output, sizeof run.output, "ls %s | wc -l", folder), 0);
    CHECK_EQ_INT(run.output[0], '0');
}

/* No driver, no GPU, a GPU that is not there, a dtype that it has not. */
static void test_a_gpu_that_cannot_be_used_is_refused_with_the_way_out(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    static const struct refusal without[] = {
        {"--device cuda", "train: --device cuda: the NVIDIA driver finds no GPU: see what "
                          "'nvidia-smi' says"},
        {"--device gpu", "--device gpu: there is no such kind of device: use cpu or cuda"},
        {"--device cuda:x", "--device cuda:x: a device is named by its kind and perhaps a number"}};
    static const struct refusal with[] = {
        {"--device cuda:3", "--device cuda:3: there is no GPU 3: there are 2"},
        {"--device cuda --dtype f64", "--dtype f64 is the CPU's: use f32 or bf16 on a GPU"}};
    char command[600];
    snprintf(command, sizeof command, "train " CLI_TRAIN " --steps 1 --data %s", cli_text());
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    static const struct refusal bare[] = {
        {"--device cuda", "--device cuda: there is no GPU to use, for there is no NVIDIA driver"},
        {"--device cuda", "install the driver (CUDA 12.0 or newer), or use cpu"}};
    if (driver == NULL) check_refusals(command, bare, COUNT(bare));
    if (test_fake_cuda_path() == NULL) SKIP("the fake CUDA driver was not built");
    CHECK(setenv("WEIR_CUDA_DRIVER", test_fake_cuda_path(), 1) == 0);
    CHECK(setenv("WEIR_FAKE_CUDA_GPUS", "0", 1) == 0);
    check_refusals(command, without, COUNT(without));
    CHECK(unsetenv("WEIR_FAKE_CUDA_GPUS") == 0);
    check_refusals(command, with, COUNT(with));
}

/* Kinds and numbers are written in one way; as many as there are workers, one for all, or more. */
static void test_devices_are_named_by_kind_and_number(void) {
    static const char unlike[] = "a device is named by its kind and perhaps a number, like cpu, "
                                 "cuda or cuda:1";
    static const char no_list[] = "not a list: separate up to 256 names by single commas";
    static const struct refusal bad[] = {
        {"--device cuda:", unlike},
        {"--device CUDA:0", unlike},
        {"--device cuda:-1", unlike},
        {"--device cuda:1234567", unlike},
        {"--device 'cuda: 1'", unlike},
        {"--device cuda:0:1", unlike},
        {"--device cuda1", unlike},
        {"--device ''", no_list},
        {"--device cuda:0,", no_list},
        {"--device ,cpu", no_list},
        {"--device cuda:0,,cpu", no_list},
        {"--device cpu,gpu:0", "--device gpu:0: there is no such kind of device: use cpu or cuda"},
        {"--device cuda:0,cuda:2", "--device cuda:2: there is no GPU 2: there are 2"},
        {"--stages 3 --device cuda:0,cpu", "2 devices for a table of 3 workers: name at least 3"}};
    static const char *const good[] = {"cuda",          "cuda:1",     "cpu,cuda:1", "cuda:0,cpu",
                                       "cuda:1,cuda:0", "cuda:1,cpu", "cpu"};
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    if (test_fake_cuda_path() == NULL) SKIP("the fake CUDA driver was not built");
    CHECK(setenv("WEIR_CUDA_DRIVER", test_fake_cuda_path(), 1) == 0);
    check_refusals("plan " CLI_MODEL, bad, COUNT(bad));
    for (uint32_t i = 0; i < COUNT(good); i++) {
        struct cli_run run;
        char first[64];
        CLI_CODE(&run, 0, "plan " CLI_MODEL " --stages 2 --device %s", good[i]);
        snprintf(first, sizeof first, " %.*s/0 ", (int)strcspn(good[i], ","), good[i]);
        CHECK_CONTAINS(run.output, first);
    }
}

static void test_help_shows_units_and_defaults_everywhere(void) {
    static const struct refusal helps[] = {
        {"train", "default 16"},     {"grad", "--masks"},        {"init", "--out FILE"},
        {"describe", "--json FILE"}, {"plan", "--memory-limit"}, {"doctor", "--workers P"},
        {"launch", "--restarts"},    {"eval", "cuda:N"},         {"generate", "f32|bf16"}};
    for (uint32_t i = 0; i < COUNT(helps); i++) {
        struct cli_run run;
        CLI_CODE(&run, 0, "%s --help 2>/dev/null", helps[i].options);
        CHECK_CONTAINS(run.output, helps[i].message);
        CHECK_CONTAINS(run.output, "default");
    }
}

WEIR_TEST_SUITE(cli_refuse, TEST(train_and_plan_refuse_pipelines_that_cannot_be),
                TEST(train_refuses_what_it_could_not_do),
                TEST(every_fault_is_listed_and_no_file_appears), TEST(a_fault_is_listed_once),
                TEST(a_gpu_that_cannot_be_used_is_refused_with_the_way_out),
                TEST(devices_are_named_by_kind_and_number),
                TEST(help_shows_units_and_defaults_everywhere))

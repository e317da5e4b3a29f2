/* SPDX-License-Identifier: MIT */
/*
 * Goal: the command's networks run on GPUs: `train`, its files and what goes on from them, in f32
 * and bf16; layers are measured there, and plans made by that or by estimates; and
 * what GPUs cannot do is refused. Method: the installed command on the fake driver,
 * whose kernels are emulated; files are compared byte by byte.
 */
#include "cli/cli.h"

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
    return cli_loss_of_line(folder, name, 2);
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
    char early[600], later[600];
    TAKE_FAKE_GPUS();
    const char *folder = test_temporary_directory();
    CLI_CODE(&run, 0, TRAIN "--stages 2 --device cuda --save %s/c --save-every 1 --keep 2",
             cli_text(), folder);
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --steps 5 --seed 4 --schedule 1f1b --data %s --stages 2 "
             "--resume %s/c --save %s/d",
             cli_text(), folder, folder);
    CHECK_CONTAINS(run.output, " computes here, but Weir ");
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --steps 3 --seed 4 --schedule 1f1b --data %s --stages 1 "
             "--device cuda:1 --resume %s/c-2 --save %s/e",
             cli_text(), folder, folder);
    CHECK_CONTAINS(run.output, "Fake GPU 1 computes here, but Weir ");
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --steps 3 --seed 4 --schedule 1f1b --data %s --stages 1 "
             "--device cuda:0 --resume %s/c-2 --save %s/c",
             cli_text(), folder, folder);
    CHECK(strstr(run.output, "warning") == NULL);
    /* what was copied between updates is what the GPU had then */
    snprintf(early, sizeof early, "%s/c", folder);
    snprintf(later, sizeof later, "%s/c-3", folder);
    CHECK(cli_same_files(early, later));
}

static void test_what_is_not_finite_is_traced_to_its_layer(void) {
    static const char *const dtypes[] = {"f32", "bf16"};
    struct cli_run run;
    TAKE_FAKE_GPUS();
    for (int i = 0; i < 2; i++) {
        CLI_CODE(&run, 1, TRAIN "--stages 2 --device cuda --dtype %s --lr 1e30", cli_text(),
                 dtypes[i]);
        CHECK_CONTAINS(run.output, "update 2: its gradient is not finite: layer ");
        CHECK_CONTAINS(run.output, " is the first that gives a number that is not finite: lower");
    }
}

static void test_bf16_trains(void) {
    struct cli_run run;
    TAKE_FAKE_GPUS();
    const char *folder = test_temporary_directory();
    CLI_CODE(&run, 0, TRAIN "--stages 2 --device cuda:0,cuda:1 --dtype bf16 --json %s/bf16",
             cli_text(), folder);
    CHECK_CONTAINS(run.output, "pipe      cuda:0: memory: ");
    CHECK_CONTAINS(run.output, "pipe      cuda:0: attention, 8 tokens, 2 heads of 8: Weir's, on");
    CLI_CODE(&run, 0, TRAIN "--stages 2 --json %s/f32", cli_text(), folder);
    CHECK_NEAR(last_loss(folder, "bf16"), last_loss(folder, "f32"), 0.02);
}

#define PLACE " --threads-per-stage 1 --bind none "
#define BF16 "--dtype bf16 --schedule 1f1b --seed 4 --data %s " CLI_TRAIN

static void test_bf16_goes_on_as_if_never_stopped(void) {
    struct cli_run run;
    char whole[600], parts[600];
    TAKE_FAKE_GPUS();
    const char *folder = test_temporary_directory(), *text = cli_text();
    CLI_CODE(&run, 0,
             "train " BF16 " --steps 2 --stages 1 --device cuda --lr-schedule constant "
             "--save %s/c.safetensors",
             text, folder);
    CLI_CODE(&run, 0,
             "train " BF16 " --steps 3 --stages 2 --device cuda:1,cuda:0 --lr-schedule constant "
             "--resume %s/c.safetensors --save-weights %s/parts.safetensors",
             text, folder, folder);
    CLI_CODE(&run, 0,
             "train " BF16 " --steps 3 --stages 1 --device cuda --lr-schedule constant "
             "--save-weights %s/whole.safetensors",
             text, folder);
    snprintf(whole, sizeof whole, "%s/whole.safetensors", folder);
    snprintf(parts, sizeof parts, "%s/parts.safetensors", folder);
    CHECK(cli_same_files(whole, parts));
}

/* Parameters and the optimizer are f32 there as well: only a warning says that bits change. */
static void test_a_checkpoint_goes_between_bf16_and_f32(void) {
    struct cli_run run;
    TAKE_FAKE_GPUS();
    const char *folder = test_temporary_directory(), *text = cli_text();
    CLI_CODE(&run, 0, "train " BF16 " --steps 2 --device cuda --save %s/a", text, folder);
    CLI_CODE(&run, 0, TRAIN "--resume %s/a --save %s/b --json %s/cpu", text, folder, folder,
             folder);
    CHECK_CONTAINS(run.output, "--dtype is f32, but ");
    CHECK_CONTAINS(run.output, "was trained with bf16");
    CLI_CODE(&run, 0, "train " BF16 " --steps 4 --device cuda --resume %s/b --json %s/gpu", text,
             folder, folder);
    CHECK_CONTAINS(run.output, "--dtype is bf16, but ");
    CHECK_CONTAINS(run.output, "was trained with f32");
    CLI_CODE(&run, 0, TRAIN "--steps 4 --json %s/all", text, folder);
    CHECK_NEAR(cli_loss_of_line(folder, "cpu", 0), cli_loss_of_line(folder, "all", 2), 0.02);
    CHECK_NEAR(cli_loss_of_line(folder, "gpu", 0), cli_loss_of_line(folder, "all", 3), 0.02);
}

/* A checkpoint of bf16, FOLDER/c, of a model that has learnt (on a CPU first) the text FOLDER/ab.
 */
static bool learn_ab(const char *folder) {
    static const char how[] = CLI_TRAIN " --seed 4 --lr 0.01 --warmup 5 --lr-schedule constant";
    struct cli_run run;
    char text[801] = "";
    for (int i = 0; i < 800; i++) text[i] = "ab"[i % 2];
    int code = test_shell(run.output, sizeof run.output, "printf %%s %s >%s/ab", text, folder);
    if (!EXPECT_EQ_INT(code, 0)) return false;
    cli_run_at(__FILE__, __LINE__, &run, "train %s --data %s/ab --steps 60 --save %s/a", how,
               folder, folder);
    if (!cli_code_at(__FILE__, __LINE__, &run, 0)) return false;
    cli_run_at(__FILE__, __LINE__, &run,
               "train %s --data %s/ab --steps 61 --resume %s/a --save %s/c --device cuda "
               "--dtype bf16",
               how, folder, folder, folder);
    return cli_code_at(__FILE__, __LINE__, &run, 0);
}

static void test_bf16_continues_texts(void) {
    static const char *const pipes[] = {"--stages 1 --device cuda --dtype bf16",
                                        "--stages 2 --device cuda:0,cuda:1 --dtype bf16",
                                        "--stages 3 --device cuda:1 --chunks 1 --dtype bf16",
                                        "--stages 2 --device cuda:1,cpu", "--stages 1"};
    struct cli_run run;
    TAKE_FAKE_GPUS();
    const char *folder = test_temporary_directory();
    CHECK(learn_ab(folder));
    for (size_t i = 0; i < sizeof pipes / sizeof *pipes; i++) {
        CLI_CODE(&run, 0,
                 "generate --load %s/c --prompt ab --prompt b --tokens 6 --temperature 0 "
                 "--json - %s" PLACE " 2>/dev/null",
                 folder, pipes[i]);
        CHECK_CONTAINS(run.output, "{\"prompt\":\"ab\",\"text\":\"ababab\"");
        CHECK_CONTAINS(run.output, "{\"prompt\":\"b\",\"text\":\"ababab\"");
    }
}

/* The loss of 11 rows of what was learnt, and of something else. */
static double judged(const char *folder, const char *options) {
    struct cli_run run;
    char path[600];
    snprintf(path, sizeof path, "%s/judged", folder);
    cli_run_at(__FILE__, __LINE__, &run,
               "eval --load %s/c --data %s/text --batch 3 --json %s %s" PLACE, folder, folder, path,
               options);
    if (!cli_code_at(__FILE__, __LINE__, &run, 0)) return NAN;
    json_t *found = cli_json(path);
    double loss = cli_number(found, "loss");
    EXPECT_EQ_INT((int64_t)cli_number(found, "rows"), 11);
    json_decref(found);
    return loss;
}

static void test_bf16_judges_text(void) {
    struct cli_run run;
    TAKE_FAKE_GPUS();
    const char *folder = test_temporary_directory();
    CHECK(learn_ab(folder));
    CHECK_EQ_INT(test_shell(run.output, sizeof run.output,
                            "head -c 80 %s/ab >%s/text && printf 'and else.' >>%s/text", folder,
                            folder, folder),
                 0);
    double cpu = judged(folder, ""), single = judged(folder, "--device cuda");
    double half = judged(folder, "--device cuda --dtype bf16 --stages 1");
    double pipe = judged(folder, "--device cuda:1,cuda:0 --dtype bf16 --stages 2");
    EXPECT_NEAR(single, cpu, 1e-4);
    EXPECT_NEAR(half, single, 0x1p-6 * single);
    EXPECT(half != single); /* it was bf16 */
    EXPECT(half == pipe);
}

/* ---- plans ---- */

/* What people are told under a title, and the JSON under a key: in each row, and by each name. */
struct told {
    const char *title, *key;
    const char *rows[4][2];
};
static const struct told copies_told = {"copies of a step",
                                        "copies",
                                        {{"by engine", "by_engine"},
                                         {"by kernel", "by_kernel"},
                                         {"batched", "batched"},
                                         {"launches", "launches"}}};
static const struct told pinned_told = {
    "pinned on the host",
    "pinned",
    {{"staging", "staging"}, {"hops", "hops"}, {"numbers", "numbers"}}};

/* The lines as the JSON has them. */
static void expect_told(const struct told *told, const char *output, const json_t *devices) {
    char text[512];
    size_t used = (size_t)snprintf(text, sizeof text, "\n%-19s", told->title), index;
    const json_t *device;
    json_array_foreach(devices, index, device) used +=
        (size_t)snprintf(text + used, sizeof text - used, " %15s",
                         json_string_value(json_object_get(device, "name")));
    used += (size_t)snprintf(text + used, sizeof text - used, "\n");
    for (size_t i = 0; i < 4 && told->rows[i][0] != NULL; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%-19s", told->rows[i][0]);
        json_array_foreach(devices, index, device) {
            const json_t *numbers = json_object_get(device, told->key);
            used += (size_t)snprintf(text + used, sizeof text - used, " %15.0f",
                                     cli_number(numbers, told->rows[i][1]));
        }
        used += (size_t)snprintf(text + used, sizeof text - used, "\n");
    }
    EXPECT_CONTAINS(output, text);
}

/* Tensors that come to the device, by whatever copies them. */
static double copies_of(const json_t *device) {
    const json_t *copies = json_object_get(device, "copies");
    return cli_number(copies, "by_engine") + cli_number(copies, "by_kernel") +
           cli_number(copies, "batched");
}

/* Of three micro-batches, tokens and gradients come to the first stage, what it puts out and
 * targets to the second; a CPU has the targets. */
static void test_a_plan_counts_copies_to_gpus(void) {
    static const struct {
        const char *devices;
        double copies[2];
    } cases[] = {{"cuda:0,cuda:1", {6, 6}}, {"cuda:1,cpu", {6, 3}}, {"cpu,cuda", {3, 6}}};
    struct cli_run run;
    TAKE_FAKE_GPUS();
    const char *folder = test_temporary_directory();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/plan", folder);
        CLI_CODE(&run, 0,
                 "plan " CLI_MODEL " --batch 5 --chunks 3 --stages 2 --device %s --json %s",
                 cases[i].devices, path);
        json_t *plan = cli_json(path);
        const json_t *devices = json_object_get(plan, "devices");
        for (size_t d = 0; d < 2; d++)
            EXPECT(copies_of(json_array_get(devices, d)) == cases[i].copies[d]);
        expect_told(&copies_told, run.output, devices);
        expect_told(&pinned_told, run.output, devices);
        json_decref(plan);
    }
    CLI_CODE(&run, 0, "plan " CLI_MODEL " --batch 5 --chunks 3 --stages 2 --device cpu");
    CHECK_CONTAINS(run.output, "receive slots");
    CHECK(strstr(run.output, "copies of a step") == NULL);
    CHECK(strstr(run.output, "pinned on the host") == NULL);
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
    CLI_CODE(&run, 2,
             "plan " CLI_MODEL " --batch 4 --chunks 2 --stages 2 --device cuda:0,cuda:1 "
             "--dtype bf16 --balance-by time --profile %s/p",
             folder);
    CHECK_CONTAINS(run.output, "--device: the profile's times are those of 'Fake GPU 0', and "
                               "cuda:1 is 'Fake GPU 1': name GPUs of one kind");
    CLI_CODE(&run, 0,
             "profile " CLI_MODEL " --batch 4 --chunks 2 --device cuda --seconds 0 --steps 7 "
             "--out %s/single",
             folder);
    CLI_CODE(&run, 2,
             "train " CLI_TRAIN " --steps 2 --data %s --stages 2 --device cuda,cpu "
             "--balance-by time --profile %s/single",
             cli_text(), folder);
    CHECK_CONTAINS(run.output,
                   "the profile is of device 'cuda', not 'cpu and cuda': measure again");
}

enum { SLOWER = 1024 };

/* All times, which alone are no whole numbers. */
static void slow_down(json_t *value) {
    const char *key;
    json_t *part;
    size_t i;
    json_array_foreach(value, i, part) slow_down(part);
    json_object_foreach(value, key, part) {
        if (json_is_real(part) && strcmp(key, "spread") != 0)
            json_real_set(part, json_real_value(part) * SLOWER);
        slow_down(part);
    }
}

/* What two workers, a GPU and a CPU, are busy for by the profile FOLDER/NAME. */
static void simulate_both(const char *folder, const char *name, double busy[2]) {
    static struct cli_run run;
    char path[600];
    cli_run_in(folder, &run,
               "simulate --model gpt " CLI_MODEL " --batch 4 --chunks 2 --workers 2 "
               "--device cuda,cpu --balance 1,3 --profile %s --json simulated",
               name);
    cli_code_at(__FILE__, __LINE__, &run, 0);
    snprintf(path, sizeof path, "%s/simulated", folder);
    json_t *root = cli_json(path), *workers = json_object_get(root, "workers");
    for (size_t w = 0; w < 2; w++) busy[w] = cli_number(json_array_get(workers, w), "busy");
    EXPECT(cli_number(root, "step") >= fmax(busy[0], busy[1]));
    json_decref(root);
}

/* Each worker is given its own kind's times. */
static void check_simulated(const char *folder) {
    double busy[2] = {0}, slow[2] = {0};
    char path[600];
    snprintf(path, sizeof path, "%s/p", folder);
    json_t *root = cli_json(path);
    slow_down(json_object_get(root, "other"));
    snprintf(path, sizeof path, "%s/slow", folder);
    EXPECT(json_dump_file(root, path, 0) == 0);
    json_decref(root);
    simulate_both(folder, "p", busy);
    simulate_both(folder, "slow", slow);
    EXPECT(busy[0] > 0 && busy[1] > 0);
    EXPECT_NEAR(slow[0], SLOWER * busy[0], 1e-9 * slow[0]);
    EXPECT_NEAR(slow[1], busy[1], 0);
}

/* Both are measured, and balances, plans, searches and simulations go by both. */
static void test_layers_are_measured_on_cpus_and_gpus(void) {
    struct cli_run run;
    char path[600];
    TAKE_FAKE_GPUS();
    const char *folder = test_temporary_directory();
    CLI_CODE(&run, 0,
             "profile " CLI_MODEL " --batch 4 --chunks 2 --workers 2 --device cuda,cpu --seconds 0 "
             "--steps 7 --out %s/p",
             folder);
    CHECK_CONTAINS(run.output, "Fake GPU 0, 2 rows, f32");
    CHECK_CONTAINS(run.output, " thread, 2 rows, f32");
    snprintf(path, sizeof path, "%s/p", folder);
    json_t *root = cli_json(path), *other = json_object_get(root, "other");
    EXPECT_EQ_STR(json_string_value(json_object_get(root, "device")), "cpu");
    EXPECT_EQ_STR(json_string_value(json_object_get(other, "device")), "cuda");
    json_decref(root);
    CLI_CODE(&run, 0,
             "plan " CLI_MODEL " --batch 4 --chunks 2 --stages 2 --device cuda,cpu "
             "--balance-by time --profile %s/p",
             folder);
    CHECK_CONTAINS(run.output, "balance by time: --balance ");
    CHECK_CONTAINS(run.output, "predicted step");
    check_simulated(folder);
    CLI_CODE(&run, 0,
             "plan " CLI_MODEL " --batch 4 --chunks 2 --workers 2 --device cuda,cpu --search "
             "--profile %s/p",
             folder);
    CHECK_CONTAINS(run.output, "/p");
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --steps 2 --seed 4 --data %s --workers 2 --device cuda,cpu "
             "--plan auto",
             cli_text());
    CHECK_CONTAINS(run.output, "estimated from this machine's roofs and, on GPUs, from FLOPs and "
                               "bytes, as an H100 takes for them");
}

static void test_a_plan_is_searched_for_gpus(void) {
    struct cli_run run;
    TAKE_FAKE_GPUS();
    CLI_CODE(&run, 0,
             "plan " CLI_MODEL " --batch 4 --workers 2 --device cuda:0,cuda:1 --dtype bf16 "
             "--search --memory-limit 64MiB");
    CHECK_CONTAINS(run.output, "estimated from FLOPs and bytes, as an H100 takes for them");
    CHECK_CONTAINS(run.output, "cuda:1");
    CLI_CODE(&run, 0, "plan " CLI_MODEL " --batch 4 --workers 1 --device cuda --search");
    CHECK_CONTAINS(run.output, "--threads-per-stage 1\n"); /* however many cores there are */
    CLI_CODE(&run, 0, "train " CLI_TRAIN " --steps 2 --seed 4 --data %s --workers 2 --device cuda",
             cli_text());
    EXPECT(strstr(run.output, "\nplan      --") == NULL); /* who knows what memory they have? */
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --steps 2 --seed 4 --data %s --workers 2 --device cuda "
             "--memory-limit 64MiB",
             cli_text());
    CHECK_CONTAINS(run.output, "costs estimated from FLOPs and bytes, as an H100 takes for them");
    /* on CPUs and GPUs the cut decides bits */
    CLI_CODE(&run, 0, "train " CLI_TRAIN " --steps 2 --data %s --stages 2 --device cuda,cpu",
             cli_text());
    EXPECT(strstr(run.output, "\nplan      --") == NULL);
}

static void test_what_gpus_cannot_do_is_refused(void) {
    struct cli_run run;
    TAKE_FAKE_GPUS();
    CLI_CODE(&run, 2, "profile " CLI_MODEL " --batch 4 --device cuda --dtype f64");
    CHECK_CONTAINS(run.output, "--dtype f64 is the CPU's");
    CLI_CODE(&run, 2, "profile " CLI_MODEL " --batch 4 --workers 2 --device cuda,cpu --dtype f64");
    CHECK_CONTAINS(run.output, "--dtype f64 is the CPU's");
}

WEIR_TEST_SUITE(cli_gpu, TEST(weights_do_not_depend_on_how_many_gpus_train_them),
                TEST(what_a_gpu_began_a_cpu_goes_on_with),
                TEST(what_is_not_finite_is_traced_to_its_layer), TEST(bf16_trains),
                TEST(layers_are_measured_on_a_gpu), TEST(layers_are_measured_on_cpus_and_gpus),
                TEST(a_plan_is_searched_for_gpus), TEST(bf16_goes_on_as_if_never_stopped),
                TEST(a_checkpoint_goes_between_bf16_and_f32), TEST(bf16_continues_texts),
                TEST(bf16_judges_text), TEST(a_plan_counts_copies_to_gpus),
                TEST(what_gpus_cannot_do_is_refused))

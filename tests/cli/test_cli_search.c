/* SPDX-License-Identifier: MIT */
/*
 * Goal: `plan --search` and `train --plan auto` find a pipeline within a limit that gpipe without
 * checkpoints is far from, stay within it, and say what they chose, so that it can be run again bit
 * for bit. Method: the installed command on a small GPT and a small U-Net; the limit is what lasts,
 * the workspace and two fifths of all else that gpipe/never would take.
 */
#include "cli/cli.h"
#include "io/data_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACE "--threads-per-stage 1 --bind none"
#define GPT "--layers 4 --width 64 --heads 4 --context 64 --vocab 256 --batch 16 --chunks 8 " PLACE
#define UNET                                                                                       \
    "--model unet --depth 2 --num-convs 1 --base-channels 8 --image-size 32 --batch 16 --chunks "  \
    "8 " PLACE
enum { IMAGES = 48, SIDE = 32, CHANNELS = 3 };

static const char *image_folder(void) {
    static uint8_t images[IMAGES * CHANNELS * SIDE * SIDE], masks[IMAGES * SIDE * SIDE];
    const char *folder = test_temporary_directory();
    for (size_t i = 0; i < sizeof images; i++) images[i] = (uint8_t)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof masks; i++) masks[i] = (uint8_t)(i / 5 % 2);
    data_make_npy(folder, "train_images.npy", "|u1", "48, 3, 32, 32", images, sizeof images);
    data_make_npy(folder, "train_masks.npy", "|u1", "48, 1, 32, 32", masks, sizeof masks);
    return folder;
}

/* The largest of the devices' totals, or of the limits that follow from their parts. */
static double most_of(const json_t *plan, double part) {
    const json_t *devices = json_object_get(plan, "devices"), *device;
    double most = 0;
    size_t index;
    EXPECT(json_array_size(devices) > 0);
    json_array_foreach(devices, index, device) {
        double moving = cli_number(device, "activations") + cli_number(device, "borders") +
                        cli_number(device, "portals");
        double lasting = cli_number(device, "parameters") + cli_number(device, "gradients") +
                         cli_number(device, "optimizer") + cli_number(device, "workspace");
        double bytes = part < 1 ? lasting + part * moving : cli_number(device, "total");
        most = fmax(most, bytes);
    }
    return most;
}

/* What options need: a limit leaves out what is kept just to save time. */
static double planned(const char *options, double part) {
    struct cli_run run;
    char path[512];
    double most = -1;
    snprintf(path, sizeof path, "%s/p", test_temporary_directory());
    cli_run_at(__FILE__, __LINE__, &run, "plan %s --memory-limit 1TiB --json %s", options, path);
    if (!cli_code_at(__FILE__, __LINE__, &run, 0)) return most;
    json_t *plan = cli_json(path);
    most = most_of(plan, part);
    json_decref(plan);
    return most;
}

static double tight_limit(const char *model) {
    char options[512];
    snprintf(options, sizeof options, "%s --schedule gpipe --checkpoint never", model);
    return floor(planned(options, 0.4));
}

/* ---- plan --search ---- */

static void check_front(const json_t *plan, double limit) {
    const json_t *front = json_object_get(plan, "front"), *choice;
    double step = 0, bytes = HUGE_VAL;
    size_t index;
    EXPECT(json_array_size(front) > 1);
    json_array_foreach(front, index, choice) {
        EXPECT(cli_number(choice, "step") > step && cli_number(choice, "bytes") < bytes);
        step = cli_number(choice, "step");
        bytes = cli_number(choice, "bytes");
        EXPECT(json_is_true(json_object_get(choice, "fits")) == (bytes <= limit));
    }
}

static void check_search(const char *model, double limit) {
    struct cli_run run;
    char path[512], options[2048];
    snprintf(path, sizeof path, "%s/p", test_temporary_directory());
    CLI_CODE(&run, 0, "plan %s --search --memory-limit %.0f --json %s", model, limit, path);
    CHECK_CONTAINS(run.output, "chosen");
    CHECK_CONTAINS(run.output, "runner-up");
    CHECK_CONTAINS(run.output, "repeat    --schedule ");
    json_t *plan = cli_json(path);
    const json_t *why = json_object_get(json_object_get(plan, "why"), "chosen");
    const char *repeat = json_string_value(json_object_get(plan, "options"));
    EXPECT(most_of(plan, 1) <= limit && most_of(plan, 1) == cli_number(why, "bytes"));
    EXPECT(cli_number(plan, "step") > 0 && cli_number(plan, "step") == cli_number(why, "step"));
    EXPECT(strcmp(json_string_value(json_object_get(why, "schedule")),
                  json_string_value(
                      json_object_get(json_object_get(plan, "pipeline"), "schedule"))) == 0);
    check_front(plan, limit);
    /* the options that it names give the same plan */
    snprintf(options, sizeof options, "%s %s", model, repeat);
    EXPECT(planned(options, 1) == most_of(plan, 1));
    json_decref(plan);
}

static void test_a_search_stays_within_a_tight_limit(void) {
    static const char *const models[] = {GPT, UNET};
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    for (int i = 0; i < 2; i++) {
        double limit = tight_limit(models[i]);
        CHECK(limit > 0);
        check_search(models[i], limit);
        CHECK_HELPERS();
    }
}

static void test_a_refusal_names_a_limit_that_is_enough(void) {
    static const char *const models[] = {GPT, UNET " --schedule 1f1b", GPT " --checkpoint never"};
    struct cli_run run;
    for (int i = 0; i < 3; i++) {
        CLI_CODE(&run, 2, "plan %s --search --memory-limit 4096", models[i]);
        CHECK_CONTAINS(run.output, "the smallest limit ");
        CHECK_CONTAINS(run.output, " would do is ");
        uint64_t limit = strtoull(strstr(run.output, "would do is ") + 12, NULL, 10);
        bool proven = strstr(run.output, "the smallest limit that would do is ") != NULL;
        EXPECT(proven || i == 1); /* of the many layers of the U-Net not all is tried */
        CLI_CODE(&run, 0, "plan %s --search --memory-limit %llu", models[i],
                 (unsigned long long)limit);
        if (!proven) continue;
        CLI_CODE(&run, 2, "plan %s --search --memory-limit %llu", models[i],
                 (unsigned long long)limit - 1);
    }
}

static void test_what_is_given_stays(void) {
    struct cli_run run;
    CLI_CODE(&run, 0,
             "plan " GPT " --search --schedule zb-v --checkpoint always,never,never,never");
    CHECK_CONTAINS(run.output, "repeat    --schedule zb-v --workers 2");
    CHECK_CONTAINS(run.output, "--checkpoint always,never,never,never");
    CLI_CODE(&run, 0, "plan " GPT " --search --balance 2,1,1,2 --workers 2 --recompute late");
    CHECK_CONTAINS(run.output, "--balance 2,1,1,2");
    CHECK_CONTAINS(run.output, "--recompute late");
    CLI_CODE(&run, 0, "plan " GPT " --search --virtual-stages 3 --schedule interleaved");
    CHECK_CONTAINS(run.output,
                   "repeat    --schedule interleaved --workers 2 --balance 1,1,1,1,1,1");
    CLI_CODE(&run, 2, "plan " GPT " --search --balance-by time");
    CHECK_CONTAINS(run.output, "--balance-by: the search chooses");
    CLI_CODE(&run, 2, "plan " GPT " --checkpoint never,always,never");
    CHECK_CONTAINS(run.output, "--checkpoint names 3 modes for 2 stages");
    CLI_CODE(&run, 2, "plan " GPT " --checkpoint never,alwys");
    CHECK_CONTAINS(run.output,
                   "alwys: not one of always, except_last, never: did you mean always?");
}

/* ---- chunks ---- */

#define FREE                                                                                       \
    "--layers 4 --width 64 --heads 4 --context 64 --vocab 256 --batch 16 --threads-per-stage 1 "   \
    "--bind none"

static uint32_t chunks_of(const json_t *choice) {
    return (uint32_t)cli_number(choice, "micro_batches");
}

static void test_chunks_are_searched_unless_they_are_given(void) {
    struct cli_run run;
    char path[512];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    snprintf(path, sizeof path, "%s/p", test_temporary_directory());
    CLI_CODE(&run, 0, "plan " GPT " --search --json %s", path);
    json_t *plan = cli_json(path);
    uint64_t kept = (uint64_t)cli_number(plan, "smallest_limit");
    const json_t *front = json_object_get(plan, "front"), *choice;
    size_t index;
    json_array_foreach(front, index, choice) EXPECT_EQ_UINT(chunks_of(choice), 8);
    json_decref(plan);
    CHECK_CONTAINS(run.output, "for       2 workers, 8 micro-batches, no memory limit");
    /* a row at a time needs less than two */
    CLI_CODE(&run, 0, "plan " FREE " --search --memory-limit %llu --json %s",
             (unsigned long long)kept - 1, path);
    CHECK_CONTAINS(run.output, "chunks    16 instead of 8: gradients round in another order");
    CHECK_CONTAINS(run.output, " --chunks 16 ");
    plan = cli_json(path);
    EXPECT_EQ_UINT((uint32_t)cli_number(json_object_get(plan, "pipeline"), "chunks"), 16);
    EXPECT_EQ_UINT(chunks_of(json_object_get(json_object_get(plan, "why"), "chosen")), 16);
    EXPECT_EQ_UINT((uint32_t)cli_number(plan, "micro_batches_asked"), 8);
    EXPECT(most_of(plan, 1) < (double)kept);
    json_decref(plan);
    CLI_CODE(&run, 2, "plan " GPT " --search --memory-limit %llu", (unsigned long long)kept - 1);
    /* what is chosen is in the list, also where others are as fast and smaller */
    for (int limit = 0; limit < 4; limit++) {
        CLI_CODE(&run, 0, "plan " FREE " --search --memory-limit %llu",
                 (unsigned long long)kept * (8 + (unsigned)limit) / 8);
        CHECK_CONTAINS(run.output, "  chosen  ");
    }
}

/* ---- train --plan auto ---- */

static void train(const char *model, const char *data, const char *options, const char *json,
                  struct cli_run *run) {
    cli_run_at(__FILE__, __LINE__, run,
               "train %s --data %s --steps 3 --eval-batches 1 --sample 0 --json %s %s", model, data,
               json, options);
    EXPECT(cli_code_at(__FILE__, __LINE__, run, 0));
}

/* The options that the run says it chose. */
static void chosen_options(const struct cli_run *run, char options[2048]) {
    const char *line = strstr(run->output, "plan      --schedule");
    options[0] = '\0';
    if (!EXPECT(line != NULL)) return;
    size_t length = strcspn(line + 10, "(\n");
    snprintf(options, 2048, "%.*s", (int)length, line + 10);
}

static void expect_same_steps(const char *a, const char *b) {
    json_t *first = cli_json_lines(a), *second = cli_json_lines(b);
    EXPECT_EQ_UINT(json_array_size(first), 4);
    for (size_t i = 0; i < 3; i++) {
        const json_t *x = json_array_get(first, i), *y = json_array_get(second, i);
        EXPECT(cli_number(x, "loss") == cli_number(y, "loss"));
        EXPECT(cli_number(x, "grad_norm") == cli_number(y, "grad_norm"));
    }
    json_decref(first);
    json_decref(second);
}

static void check_training(const char *model, const char *data) {
    struct cli_run run;
    char options[2048], limited[256], with[4096], paths[3][512];
    for (int i = 0; i < 3; i++)
        snprintf(paths[i], sizeof paths[i], "%s/j%d", test_temporary_directory(), i);
    double limit = tight_limit(model);
    snprintf(limited, sizeof limited, "--plan auto --memory-limit %.0f", limit);
    train(model, data, limited, paths[0], &run);
    CHECK_CONTAINS(run.output, "; costs ");
    chosen_options(&run, options);
    snprintf(with, sizeof with, "%s %s", model, options);
    EXPECT(planned(with, 1) <= limit);
    /* chosen by hand: the same run, and the same bits as a plain pipeline with those threads */
    snprintf(with, sizeof with, "%s --memory-limit %.0f", options, limit);
    train(model, data, with, paths[1], &run);
    expect_same_steps(paths[0], paths[1]);
    train(model, data, "--stages 1", paths[2], &run);
    expect_same_steps(paths[0], paths[2]);
}

static void test_training_by_a_search_stays_within_and_can_be_repeated(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    check_training(GPT, cli_text());
    CHECK_HELPERS();
    check_training(UNET, image_folder());
}

/* ---- without --plan ---- */

static void line_of(const struct cli_run *run, const char *begin, char line[2048]) {
    const char *at = strstr(run->output, begin);
    snprintf(line, 2048, "%.*s", at != NULL ? (int)strcspn(at, "\n") : 0, at != NULL ? at : "");
}

#define PLAIN "--layers 4 --width 64 --heads 4 --context 64 --vocab 256 --batch 16"

/* By kept roofs, so the same again; and the bits are those of any pipeline. */
static void test_a_pipeline_is_searched_unless_it_is_given(void) {
    struct cli_run run;
    char paths[3][512], lines[2][2048], with[2048];
    for (int i = 0; i < 3; i++)
        snprintf(paths[i], sizeof paths[i], "%s/j%d", test_temporary_directory(), i);
    for (int i = 0; i < 2; i++) {
        train(PLAIN, cli_text(), "", paths[i], &run);
        line_of(&run, "plan      --schedule ", lines[i]);
    }
    EXPECT_CONTAINS(lines[0], " --chunks 8 ");
    EXPECT_CONTAINS(lines[0], "costs estimated from this machine's roofs; runner-up ");
    EXPECT_EQ_STR(lines[0], lines[1]);
    train(PLAIN, cli_text(), "--plan given", paths[2], &run);
    EXPECT(strstr(run.output, "\nplan      --") == NULL);
    EXPECT_CONTAINS(run.output, "pipeline  1f1b, 2 stages on 2 workers, ");
    expect_same_steps(paths[0], paths[2]);
    /* what it says it chose is what runs where that is given */
    snprintf(with, sizeof with, "--plan given %.*s", (int)strcspn(lines[0] + 10, "("),
             lines[0] + 10);
    train(PLAIN, cli_text(), with, paths[1], &run);
    expect_same_steps(paths[1], paths[2]);
}

static void test_each_option_that_is_given_is_fixed(void) {
    static const struct {
        const char *given, *shown;
    } cases[] = {{"--schedule zb-h1", "--schedule zb-h1 "},
                 {"--workers 1", " --workers 1 "},
                 {"--stages 3", "3 stages on 3 workers"},
                 {"--balance 1,5", " --balance 1,5 "},
                 {"--checkpoint always", " --checkpoint always "},
                 {"--recompute late --checkpoint always", " --recompute late "},
                 {"--chunks 4", " --chunks 4 "},
                 {"--threads-per-stage 1", " --threads-per-stage 1 "}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cli_run run;
        CLI_CODE(&run, 0, "train " PLAIN " --data %s --steps 1 --eval-batches 1 --sample 0 %s",
                 cli_text(), cases[i].given);
        CHECK_CONTAINS(run.output, "plan      --schedule ");
        CHECK_CONTAINS(run.output, cases[i].shown);
    }
}

/* A table, or a cut by measured times, is a pipeline that is asked for. */
static void test_what_leaves_nothing_to_search_is_run_as_given(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    CLI_CODE(&run, 0, "schedule --schedule gpipe --stages 2 --chunks 8 --csv %s/t.csv", folder);
    CLI_CODE(&run, 0,
             "train " PLAIN " --data %s --steps 1 --eval-batches 1 --sample 0 --stages 2 "
             "--schedule %s/t.csv",
             cli_text(), folder);
    EXPECT(strstr(run.output, "\nplan      --") == NULL);
    CLI_CODE(&run, 0,
             "train " PLAIN " --data %s --steps 1 --eval-batches 1 --sample 0 --balance-by size",
             cli_text());
    EXPECT(strstr(run.output, "\nplan      --") == NULL);
    CLI_CODE(&run, 0,
             "train " PLAIN " --data %s --steps 1 --eval-batches 1 --sample 0 --stages 1 --bind 0",
             cli_text());
    EXPECT(strstr(run.output, "\nplan      --") == NULL);
    CLI_CODE(&run, 2, "train " PLAIN " --data %s --steps 1 --plan auto --balance-by size",
             cli_text());
    CHECK_CONTAINS(run.output, "--balance-by: the search chooses the layers");
}

/* On eight cores dualpipe-v's two stages per worker are too many for a few layers. */
static void test_what_many_workers_cannot_do_fewer_do(void) {
    struct cli_run run;
    CHECK(setenv("HWLOC_SYNTHETIC", "pu:8", 1) == 0);
    CLI_CODE(&run, 0,
             "train " PLAIN " --data %s --steps 0 --eval-batches 1 --sample 0 --bind none "
             "--layers 9 --schedule dualpipe-v",
             cli_text());
    CHECK(unsetenv("HWLOC_SYNTHETIC") == 0);
    CHECK_CONTAINS(run.output, "plan      --schedule dualpipe-v --workers ");
}

/* Roofs that need not be kept, and a resumed run, which needs no word of its pipeline. */
static void test_a_resumed_run_is_searched_with_the_same_bits(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
#define RESUMED "train " PLAIN " --data %s --eval-batches 1 --sample 0 --lr-schedule constant "
    CLI_CODE(&run, 0, RESUMED "--chunks 4 --plan given --steps 4 --save %s/whole", cli_text(),
             folder);
    CLI_CODE(&run, 0, RESUMED "--chunks 4 --steps 2 --save %s/part", cli_text(), folder);
    CLI_CODE(&run, 0, RESUMED "--resume %s/part --steps 4 --save %s/part", cli_text(), folder,
             folder);
    CHECK_CONTAINS(run.output, " --chunks 4 ");
    EXPECT(strstr(run.output, "bit for bit") == NULL);
    CHECK(cli_do(folder, "cmp whole part"));
}

static void test_a_search_goes_by_a_profile(void) {
    struct cli_run run;
    char path[512], plan_path[512], lines_path[512];
    const char *folder = test_temporary_directory();
    snprintf(path, sizeof path, "%s/profile", folder);
    snprintf(plan_path, sizeof plan_path, "%s/plan", folder);
    snprintf(lines_path, sizeof lines_path, "%s/lines", folder);
    CLI_CODE(&run, 0, "plan " GPT " --search --profile %s --json %s", path, plan_path);
    CHECK_CONTAINS(run.output, "costs of ");
    CLI_CODE(&run, 0,
             "train " GPT " --plan auto --profile %s --data %s --steps 1 --sample 0 "
             "--eval-batches 1 --json %s --report %s/page",
             path, cli_text(), lines_path, folder);
    CHECK_CONTAINS(run.output, "; costs of ");
    json_t *plan = cli_json(plan_path), *lines = cli_json_lines(lines_path);
    const json_t *summary = json_object_get(json_array_get(lines, 1), "summary");
    EXPECT_NEAR(cli_number(summary, "planned_step"), cli_number(plan, "step"), 1e-12);
    json_decref(plan);
    json_decref(lines);
    EXPECT(test_shell(run.output, sizeof run.output, "grep -q 'the step, by the plan' '%s/page'",
                      folder) == 0);
}

/* What was begun goes on with its chunks, whatever a search would rather have. */
static void test_a_resumed_run_keeps_its_chunks(void) {
    struct cli_run run;
    char saved[512];
    snprintf(saved, sizeof saved, "%s/saved", test_temporary_directory());
    cli_run_at(__FILE__, __LINE__, &run,
               "train " FREE " --chunks 2 --data %s --steps 1 --eval-batches 1 --sample 0 --save "
               "%s --lr-schedule constant",
               cli_text(), saved);
    CHECK(cli_code_at(__FILE__, __LINE__, &run, 0));
    CLI_CODE(&run, 0,
             "train " FREE " --plan auto --resume %s --data %s --steps 2 --eval-batches 1 "
             "--sample 0 --lr-schedule constant",
             saved, cli_text());
    CHECK_CONTAINS(run.output, " --chunks 2 ");
    CHECK_CONTAINS(run.output, "16 rows in 2 micro-batches");
    EXPECT(strstr(run.output, "bit for bit") == NULL);
}

/* ---- other commands ---- */

#define TINY CLI_MODEL " --vocab 32"

static void test_a_searched_gradient_has_the_plain_ones_bits(void) {
    const char *folder = test_temporary_directory();
    char data[512], searched[512], plain[512];
    struct cli_run run;
    cli_make_data(folder, "d", 5, 5, data);
    snprintf(searched, sizeof searched, "%s/searched", folder);
    snprintf(plain, sizeof plain, "%s/plain", folder);
    CLI_CODE(&run, 0, "init --layers 2 --width 16 --heads 2 --context 8 --vocab 32 --out %s/w",
             folder);
    CLI_CODE(&run, 0, "grad " TINY " --stages 1 --chunks 3 --weights %s/w --data %s --out %s",
             folder, data, plain);
    CLI_CODE(&run, 0, "grad " TINY " --plan auto --chunks 3 --weights %s/w --data %s --out %s",
             folder, data, searched);
    CHECK_CONTAINS(run.output, "plan      --schedule ");
    CHECK(cli_same_files(plain, searched));
    /* chunks stay, given or not */
    CLI_CODE(&run, 0, "grad " TINY " --plan auto --weights %s/w --data %s --out %s", folder, data,
             searched);
    CHECK_CONTAINS(run.output, " --chunks 8 ");
    CLI_CODE(&run, 2,
             "grad " TINY " --plan auto --memory-limit 100 --weights %s/w --data %s --out %s",
             folder, data, searched);
    CHECK_CONTAINS(run.output, "weir: grad: --memory-limit 100: no pipeline");
}

static void test_commands_that_do_not_search_say_why(void) {
    struct cli_run run;
    CLI_CODE(&run, 2, "eval --plan auto");
    CHECK_CONTAINS(run.output, "weir: eval: --plan: a pipeline is searched for training, and this "
                               "infers: give --workers");
    CLI_CODE(&run, 2, "generate --plan auto");
    CHECK_CONTAINS(run.output, "weir: generate: --plan: a pipeline is searched for training");
    CLI_CODE(&run, 2, "simulate --plan=auto");
    CHECK_CONTAINS(run.output, "weir: simulate: --plan: only train and grad search");
    CLI_CODE(&run, 2, "simulate --plam auto");
    CHECK_CONTAINS(run.output, "unknown option --plam");
}

static void test_training_without_room_is_refused_before_it_begins(void) {
    struct cli_run run;
    CLI_CODE(&run, 2, "train " GPT " --plan auto --memory-limit 4096 --data %s --steps 1",
             cli_text());
    CHECK_CONTAINS(run.output, "weir: train: --memory-limit 4096: no pipeline");
    CHECK_CONTAINS(run.output, "the smallest limit that would do is ");
}

WEIR_TEST_SUITE(
    cli_search, TEST(a_search_stays_within_a_tight_limit),
    TEST(a_refusal_names_a_limit_that_is_enough), TEST(what_is_given_stays),
    TEST(chunks_are_searched_unless_they_are_given), TEST(a_resumed_run_keeps_its_chunks),
    TEST(a_pipeline_is_searched_unless_it_is_given), TEST(each_option_that_is_given_is_fixed),
    TEST(what_leaves_nothing_to_search_is_run_as_given), TEST(what_many_workers_cannot_do_fewer_do),
    TEST(a_resumed_run_is_searched_with_the_same_bits),
    TEST(training_by_a_search_stays_within_and_can_be_repeated), TEST(a_search_goes_by_a_profile),
    TEST(a_searched_gradient_has_the_plain_ones_bits), TEST(commands_that_do_not_search_say_why),
    TEST(training_without_room_is_refused_before_it_begins))

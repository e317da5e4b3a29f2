/* SPDX-License-Identifier: MIT */
/*
 * Goal: `weir eval` judges all rows of its data once, each as much as the others, whatever the
 * pipeline; what does not fit is refused. Method: losses and counts that the tests know, or that
 * `weir grad` computes from the same rows.
 */
#include "cli/cli.h"
#include "io/data_files.h"
#include "io/io_faults.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "--layers 2 --width 16 --heads 2 --context 8"
#define PLACE " --threads-per-stage 1 --bind none"
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* ---- text and tokens ---- */

enum { ROWS = 7, CONTEXT = 8, BYTES = ROWS * CONTEXT + 4 };

static uint8_t byte_at(uint32_t i) {
    return (uint8_t)(32 + (i * 2654435761u >> 16) % 90);
}

/* The rows of a text of BYTES bytes as tensors for `weir grad`: the last three bytes are no row. */
static void make_rows(const char *folder, char path[512]) {
    static int64_t inputs[ROWS * CONTEXT], targets[ROWS * CONTEXT];
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__safetensors_item items[] = {
        {.name = "input", .dtype = WEIR_I64, .rank = 2, .shape = {ROWS, CONTEXT}, .data = inputs},
        {.name = "target",
         .dtype = WEIR_I64,
         .rank = 2,
         .shape = {ROWS, CONTEXT},
         .data = targets}};
    for (uint32_t i = 0; i < ROWS * CONTEXT; i++) {
        inputs[i] = byte_at(i);
        targets[i] = byte_at(i + 1);
    }
    snprintf(path, 512, "%s/rows", folder);
    EXPECT_STATUS(weir__safetensors_save(&io, path, items, 2, NULL, 0), WEIR_OK);
}

/* The loss that `weir grad` found. */
static double loss_of(const char *path) {
    struct weir__safetensors *file = cli_open(path);
    const struct weir__safetensor *loss =
        file != NULL ? weir__safetensors_find(file, "loss") : NULL;
    double value = NAN;
    if (loss != NULL && EXPECT_EQ_UINT(loss->bytes, 8)) memcpy(&value, loss->data, 8);
    weir__safetensors_close(file);
    return value;
}

static void test_a_texts_loss_is_the_mean_over_its_rows(void) {
    static const char *const pipes[] = {"--batch 3 --stages 2 --chunks 2", "--stages 4 --chunks 7",
                                        "--batch 1 --stages 1", "--batch 100 --schedule gpipe"};
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    struct cli_run run;
    char path[512], text[BYTES];
    const char *folder = test_temporary_directory();
    for (uint32_t i = 0; i < BYTES; i++) text[i] = (char)byte_at(i);
    io_make_file(folder, "text", text, BYTES, path);
    make_rows(folder, path);
    CLI_CODE(&run, 0, "init " MODEL " --out %s/w", folder);
    CLI_CODE(&run, 0, "grad " MODEL " --dtype f64 --weights %s/w --data %s --out %s/g" PLACE,
             folder, path, folder);
    snprintf(path, sizeof path, "%s/g", folder);
    double loss = loss_of(path);
    snprintf(path, sizeof path, "%s/j", folder);
    for (size_t i = 0; i < COUNT(pipes) && !test_has_failed(); i++) {
        CLI_CODE(&run, 0, "eval --load %s/w --data %s/text --dtype f64 --json %s %s" PLACE, folder,
                 folder, path, pipes[i]);
        json_t *found = cli_json(path);
        EXPECT_NEAR(cli_number(found, "loss"), loss, 1e-12 * loss);
        EXPECT_NEAR(cli_number(found, "bits_per_byte"), loss / log(2), 1e-12 * loss);
        EXPECT_EQ_INT((int64_t)cli_number(found, "rows"), ROWS);
        EXPECT_EQ_INT((int64_t)cli_number(found, "bytes"), ROWS * CONTEXT);
        EXPECT(cli_number(found, "seconds") > 0 && cli_number(found, "bytes_per_second") > 0);
        EXPECT(json_is_false(json_object_get(found, "interrupted")));
        json_decref(found);
        char line[64];
        snprintf(line, sizeof line, "%.4f nats/byte (%.4f bits) over 56 bytes, ", loss,
                 loss / log(2));
        CHECK(strncmp(run.output, line, strlen(line)) == 0);
    }
}

static void test_tokens_are_judged_in_their_order(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    struct cli_run run;
    const char *folder = test_temporary_directory();
    data_make_tokens(folder, "a.bin", 100, 3, 2);
    CLI_CODE(&run, 0, "init " MODEL " --vocab 300 --out %s/w", folder);
    CLI_CODE(&run, 0, "eval --load %s/w --data %s/a.bin --json -" PLACE " 2>/dev/null", folder,
             folder);
    CHECK_CONTAINS(run.output, "\"rows\": 12,");
    CHECK_CONTAINS(run.output, "\"tokens\": 96,");
    CHECK_CONTAINS(run.output, "\"bits_per_token\": ");
    CHECK_CONTAINS(run.output, "\"tokens_per_second\": ");
    /* of several files in a folder those count that names mark */
    data_make_tokens(folder, "a_val.bin", 20, 3, 2);
    CLI_CODE(&run, 0, "eval --load %s/w --data %s" PLACE, folder, folder);
    CHECK_CONTAINS(run.output, " nats/token, perplexity ");
    CHECK_CONTAINS(run.output, " over 16 tokens, ");
}

/* ---- images ---- */

/* A model that gives what it is given, with its weights in FOLDER/w. */
static void make_echo(const char *folder, int64_t width, const char *target, const char *loss) {
    char model[512], path[512];
    float weight[16] = {0}, bias[4] = {0};
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__safetensors_item items[2] = {
        {.name = "1.weight", .dtype = WEIR_F32, .rank = 2, .shape = {width, width}, .data = weight},
        {.name = "1.bias", .dtype = WEIR_F32, .rank = 1, .shape = {width}, .data = bias}};
    for (int64_t i = 0; i < width; i++) weight[i * width + i] = 1;
    int bytes = snprintf(model, sizeof model,
                         "{\"input\": {\"dtype\": \"f32\", \"shape\": [%d]}, \"target\": %s, "
                         "\"loss\": \"%s\", \"layers\": [{\"type\": \"identity\"}, {\"type\": "
                         "\"linear\", \"out_features\": %d}]}",
                         (int)width, target, loss, (int)width);
    io_make_file(folder, "model.json", model, (size_t)bytes, path);
    snprintf(path, sizeof path, "%s/w", folder);
    EXPECT_STATUS(weir__safetensors_save(&io, path, items, 2, NULL, 0), WEIR_OK);
}

static json_t *eval(const char *folder, const char *options) {
    struct cli_run run;
    char path[512];
    snprintf(path, sizeof path, "%s/j", folder);
    cli_run_at(__FILE__, __LINE__, &run,
               "eval --model %s/model.json --load %s/w --data %s/x.npy %s/y.npy --json %s %s" PLACE,
               folder, folder, folder, folder, path, options);
    return cli_code_at(__FILE__, __LINE__, &run, 0) ? cli_json(path) : NULL;
}

static void test_classes_are_judged_by_accuracy(void) {
    static const char *const pipes[] = {"", "--batch 2 --stages 2 --chunks 2", "--batch 4"};
    static const double x[7][3] = {{2, 1, 0},  {0, 0, 0},  {-1, 3, 2}, {0, 1, 1},
                                   {5, -5, 0}, {0, 0, .5}, {1, 1, 2}};
    static const int64_t y[7] = {0, 0, 2, 1, 0, 1, 2}; /* five are right, two of them by a tie */
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = test_temporary_directory();
    double loss = 0;
    for (int i = 0; i < 7; i++)
        loss += (log(exp(x[i][0]) + exp(x[i][1]) + exp(x[i][2])) - x[i][y[i]]) / 7;
    make_echo(folder, 3, "{\"dtype\": \"i64\", \"shape\": []}", "cross_entropy");
    data_make_npy(folder, "x.npy", "<f8", "7, 3", x, sizeof x);
    data_make_npy(folder, "y.npy", "<i8", "7,", y, sizeof y);
    for (size_t i = 0; i < COUNT(pipes) && !test_has_failed(); i++) {
        json_t *found = eval(folder, pipes[i]);
        EXPECT_NEAR(cli_number(found, "accuracy"), 5.0 / 7, 1e-12);
        EXPECT_NEAR(cli_number(found, "loss"), loss, 1e-6);
        EXPECT_EQ_INT((int64_t)cli_number(found, "samples"), 7);
        EXPECT(json_object_get(found, "iou") == NULL);
        json_decref(found);
    }
}

static void test_masks_are_judged_by_their_overlap(void) {
    static const char *const pipes[] = {"", "--batch 3 --chunks 1", "--batch 2 --stages 1"};
    /* logits above 0: 1 0, 1 1, 0 0, 0 1; masks 1 1, 1 0, 0 0, 0 1: both 3, either 5, right 6 */
    static const float x[8] = {1, -1, 2, 3, -1, -2, -3, 4};
    static const uint8_t y[8] = {255, 255, 255, 0, 0, 0, 0, 255};
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = test_temporary_directory();
    double loss = 0;
    for (int i = 0; i < 8; i++) loss += log1p(exp((double)(y[i] ? -x[i] : x[i]))) / 8;
    make_echo(folder, 2, "{\"dtype\": \"f32\", \"shape\": [2]}", "bce_with_logits");
    data_make_npy(folder, "x.npy", "<f4", "4, 2", x, sizeof x);
    data_make_npy(folder, "y.npy", "|u1", "4, 2", y, sizeof y);
    for (size_t i = 0; i < COUNT(pipes) && !test_has_failed(); i++) {
        json_t *found = eval(folder, pipes[i]);
        EXPECT_NEAR(cli_number(found, "iou"), 3.0 / 5, 1e-12);
        EXPECT_NEAR(cli_number(found, "pixel_accuracy"), 6.0 / 8, 1e-12);
        EXPECT_NEAR(cli_number(found, "loss"), loss, 1e-6);
        EXPECT(json_object_get(found, "accuracy") == NULL);
        json_decref(found);
    }
}

static void test_other_targets_are_judged_by_the_loss_alone(void) {
    static const float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {1, 2, 3, 4, 5, 0};
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = test_temporary_directory();
    make_echo(folder, 2, "{\"dtype\": \"f32\", \"shape\": [2]}", "mse");
    data_make_npy(folder, "x.npy", "<f4", "3, 2", x, sizeof x);
    data_make_npy(folder, "y.npy", "<f4", "3, 2", y, sizeof y);
    json_t *found = eval(folder, "--batch 2");
    EXPECT_NEAR(cli_number(found, "loss"), 6.0, 1e-6);
    EXPECT(json_object_get(found, "iou") == NULL && json_object_get(found, "accuracy") == NULL);
    json_decref(found);
}

static void test_labels_that_are_all_ignored_are_no_zero_by_zero(void) {
    static const float x[6] = {1, 2, 3, 4, 5, 6};
    static const int64_t y[3] = {-100, -100, -100};
    struct cli_run run;
    const char *folder = test_temporary_directory();
    make_echo(folder, 2, "{\"dtype\": \"i64\", \"shape\": []}", "cross_entropy");
    data_make_npy(folder, "x.npy", "<f4", "3, 2", x, sizeof x);
    data_make_npy(folder, "y.npy", "<i8", "3,", y, sizeof y);
    CLI_CODE(&run, 1, "eval --model %s/model.json --load %s/w --data %s/x.npy %s/y.npy --json %s/j",
             folder, folder, folder, folder, folder);
    CHECK_CONTAINS(run.output, "weir: eval: every target is the ignored label -100: give data");
    CHECK(test_shell(run.output, sizeof run.output, "ls %s/j", folder) != 0);
}

/* As `generate`: what cannot be judged is no score. */
static void test_weights_that_are_not_finite_are_no_score(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory(), *text = cli_text();
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --data %s/0.txt --steps 1 --lr 1e38 --warmup 0 --save-weights "
             "%s/w",
             text, folder);
    CLI_CODE(&run, 1, "eval --load %s/w --data %s/0.txt --heads 2 --json %s/j" PLACE, folder, text,
             folder);
    CHECK_CONTAINS(run.output, "weir: eval: the loss is not finite: the weights are damaged, their "
                               "training had diverged");
    CHECK(test_shell(run.output, sizeof run.output, "ls %s/j", folder) != 0);
}

/* A million rows of these would be terabytes: memory is for those that there are. */
static void test_batch_may_be_larger_than_the_data(void) {
    static const char model[] =
        "{\"input\": {\"dtype\": \"f32\", \"shape\": [400000]}, \"target\": {\"dtype\": \"f32\", "
        "\"shape\": [1]}, \"loss\": \"mse\", \"layers\": [{\"type\": \"linear\", "
        "\"out_features\": 1}]}";
    static float x[2 * 400000];
    struct cli_run run;
    char path[512];
    const char *folder = test_temporary_directory();
    io_make_file(folder, "model.json", model, sizeof model - 1, path);
    data_make_npy(folder, "x.npy", "<f4", "2, 400000", x, sizeof x);
    data_make_npy(folder, "y.npy", "<f4", "2, 1", x, 2 * sizeof x[0]);
    CLI_CODE(&run, 0, "init --model %s/model.json --out %s/w", folder, folder);
    json_t *found = eval(folder, "--batch 1048576");
    EXPECT_EQ_INT((int64_t)cli_number(found, "rows"), 2);
    json_decref(found);
}

/* What `train` says at its end of the same rows, held out by their names, from its checkpoint. */
static void test_a_checkpoint_is_judged_as_train_does(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    struct cli_run run;
    char path[512], output[512];
    const char *folder = test_temporary_directory();
    int made = test_shell(output, sizeof output, "'%s/examples/make_shapes' %s/shapes 12 7 16 3",
                          test_install_prefix(), folder);
    if (made != 0) SKIP("no installed examples: run by 'zig build test'");
    snprintf(path, sizeof path, "%s/j", folder);
#define UNET "--model unet --depth 2 --num-convs 1 --base-channels 4"
    CLI_CODE(&run, 0,
             "train " UNET " --data %s/shapes --steps 3 --batch 4 --save %s/a --json %s" PLACE,
             folder, folder, path);
    json_t *lines = cli_json_lines(path);
    const json_t *summary = json_object_get(json_array_get(lines, 3), "summary");
    CLI_CODE(&run, 0, "eval " UNET " --data %s/shapes --batch 4 --load %s/a --json %s" PLACE,
             folder, folder, path);
    json_t *found = cli_json(path);
    EXPECT_EQ_INT((int64_t)cli_number(found, "samples"), 7);
    EXPECT_NEAR(cli_number(found, "loss"), cli_number(summary, "validation_loss"), 1e-6);
    EXPECT_NEAR(cli_number(found, "iou"), cli_number(summary, "iou"), 1e-3);
    EXPECT_NEAR(cli_number(found, "pixel_accuracy"), cli_number(summary, "pixel_accuracy"), 1e-3);
    json_decref(found);
    json_decref(lines);
}

/* The same of rows whose classes are told apart, by batch norm's running numbers. */
static void expect_same_verdict(const char *model, const char *shape) {
    struct cli_run run;
    char path[512], output[512];
    const char *folder = test_temporary_directory();
    int made =
        test_shell(output, sizeof output, "'%s/examples/make_shapes' --stripes %s/%s 12 7 %s",
                   test_install_prefix(), folder, shape, shape);
    if (made != 0) SKIP("no installed examples: run by 'zig build test'");
    snprintf(path, sizeof path, "%s/j", folder);
    CLI_CODE(&run, 0,
             "train --model %s --classes 4 --data %s/%s --steps 3 --batch 6 --chunks 2 --stages 2 "
             "--checkpoint always --save %s/a --json %s" PLACE,
             model, folder, shape, folder, path);
    CHECK_CONTAINS(run.output, "train_labels.npy u8 [12]: 12 samples, 7 more held out");
    json_t *lines = cli_json_lines(path);
    const json_t *summary = json_object_get(json_array_get(lines, 3), "summary");
    CLI_CODE(&run, 0,
             "eval --model %s --classes 4 --data %s/%s --batch 4 --load %s/a --json %s" PLACE,
             model, folder, shape, folder, path);
    json_t *found = cli_json(path);
    double loss = cli_number(summary, "validation_loss");
    EXPECT_EQ_INT((int64_t)cli_number(found, "samples"), 7);
    EXPECT_NEAR(cli_number(found, "loss"), loss, 1e-5 * loss);
    EXPECT_NEAR(cli_number(found, "accuracy"), cli_number(summary, "accuracy"), 1e-6);
    json_decref(found);
    json_decref(lines);
}

static void test_a_classifier_is_judged_as_train_does(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    expect_same_verdict("resnet101 --zero-init-residual", "33");
    expect_same_verdict("amoebanetd --layers 3 --filters 16", "224");
}

/* ---- refusals ---- */

struct refusal {
    const char *options, *message;
};

static void test_what_cannot_be_evaluated_is_refused(void) {
    static const struct refusal refusals[] = {
        {"", "--load is missing: give a file of weights"},
        {"--load w", "--data is missing: give PATH..."},
        {"--load /none --data text", "--load /none: No such file or directory: check the path"},
        {"--load w --data /none", "/none: No such file or directory: check the path"},
        {"--load w --data short", "has 5 bytes, but a row of context 8 has 9: name more text or"},
        {"--load text --data text", "text: "},
        {"--load w --data text --layers 1", "tensor 'h.1.ln_1.weight' F32 [16] is not the model's"},
        {"--load w --data text --json /none/j", "--json /none/j: its folder: No such file"},
        {"--load w --data text --batch 0", "--batch 0: too small: give at least 1"},
        {"--load w --data text --stages 9", "--stages 9: the model has 4 layers: choose 1 to 4"},
        {"--load w --data text --model m.json",
         "the model has no loss: there is nothing to evaluate"},
        {"--load w --data text --model unet", "the data are text, bytes in rows, but the model"},
        {"--load w --data text --dat x", "unknown option --dat: did you mean --data?"},
    };
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    static const char model[] = "{\"input\": {\"dtype\": \"i64\", \"shape\": [8]}, \"layers\": "
                                "[{\"type\": \"identity\"}]}";
    struct cli_run run;
    char path[512];
    const char *folder = test_temporary_directory();
    io_make_file(folder, "text", "a text of a few bytes and one or two more", 41, path);
    io_make_file(folder, "short", "short", 5, path);
    io_make_file(folder, "m.json", model, sizeof model - 1, path);
    CLI_CODE(&run, 0, "init " MODEL " --out %s/w", folder);
    for (size_t i = 0; i < COUNT(refusals); i++) {
        CLI(&run, "--version >/dev/null; cd %s && '%s/bin/weir' eval %s 2>&1 >/dev/null", folder,
            test_install_prefix(), refusals[i].options);
        if (run.code != 2) TEST_FAIL("%s: exit code %d", refusals[i].options, run.code);
        if (strncmp(run.output, "weir: eval: ", 12) != 0) TEST_FAIL("%s", run.output);
        EXPECT_CONTAINS(run.output, refusals[i].message);
    }
}

static void test_every_fault_is_listed_and_no_file_appears(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    static const char *const messages[] = {
        "--load /none/w: No such file", "/none/text: No such file or directory",
        "there is no schedule 'zb-w'", "--balance adds up to 7 layers, the model has 6",
        "--chunks 0: too small"};
    struct cli_run run;
    const char *folder = test_temporary_directory();
    CLI_CODE(
        &run, 2,
        "eval --load /none/w --data /none/text --schedule zb-w --balance 3,4 --chunks 0 --json "
        "%s/j",
        folder);
    for (size_t i = 0; i < COUNT(messages); i++) CHECK_CONTAINS(run.output, messages[i]);
    CHECK(test_shell(run.output, sizeof run.output, "ls %s/j", folder) != 0);
}

WEIR_TEST_SUITE(cli_eval, TEST(a_texts_loss_is_the_mean_over_its_rows),
                TEST(tokens_are_judged_in_their_order), TEST(classes_are_judged_by_accuracy),
                TEST(masks_are_judged_by_their_overlap),
                TEST(other_targets_are_judged_by_the_loss_alone),
                TEST(labels_that_are_all_ignored_are_no_zero_by_zero),
                TEST(weights_that_are_not_finite_are_no_score),
                TEST(batch_may_be_larger_than_the_data), TEST(a_checkpoint_is_judged_as_train_does),
                TEST(a_classifier_is_judged_as_train_does),
                TEST(what_cannot_be_evaluated_is_refused),
                TEST(every_fault_is_listed_and_no_file_appears))

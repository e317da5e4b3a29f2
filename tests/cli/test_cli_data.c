/* SPDX-License-Identifier: MIT */
/*
 * Goal: `train` learns from images, masks and tokens as from text: what is held out is scored by
 * the metric that fits, a resumed run ends with the same bytes, also from the middle of a pass, and
 * whatever would make it end with others is said. Method: data that the examples make, small
 * models, files compared.
 */
#include "cli/cli.h"
#include "io/data_files.h"
#include "io/io_faults.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLACE "--threads-per-stage 1 --bind none"

/* Two linear layers for 28 x 28 pixels and ten classes. */
static const char digits_model[] =
    "{\"input\": {\"dtype\": \"f32\", \"shape\": [1, 28, 28]},"
    " \"target\": {\"dtype\": \"i64\", \"shape\": []}, \"loss\": \"cross_entropy\","
    " \"layers\": [{\"type\": \"flatten\"}, {\"type\": \"linear\", \"out_features\": 24},"
    " {\"type\": \"gelu\"}, {\"type\": \"dropout\", \"p\": 0.1},"
    " {\"type\": \"linear\", \"out_features\": 10}]}";

/* Runs an example's program; false (and the test skipped) where there is none. */
static bool make(const char *program, const char *arguments) {
    char output[512];
    if (!test_install_prefix()) return false;
    int code = test_shell(output, sizeof output, "'%s/examples/%s' %s", test_install_prefix(),
                          program, arguments);
    return EXPECT_EQ_INT(code, 0);
}

/* A folder with model.json and digits/, 1,000 images to train on and 90 held out. */
static const char *make_digits(void) {
    char path[512], arguments[600];
    const char *folder = test_temporary_directory();
    io_make_file(folder, "model.json", digits_model, sizeof digits_model - 1, path);
    snprintf(arguments, sizeof arguments, "%s/digits 1000 90 5", folder);
    return make("make_digits", arguments) ? folder : NULL;
}

#define DIGITS "train --model %s/model.json --data %s/digits " PLACE
#define NEEDS(condition)                                                                           \
    if (!(condition)) SKIP("no installed examples: run by 'zig build test'")

static json_t *summary_of(json_t *lines) {
    return json_object_get(json_array_get(lines, json_array_size(lines) - 1), "summary");
}

/* ---- metrics ---- */

static void test_images_are_learnt_and_scored_by_accuracy(void) {
    struct cli_run run;
    const char *folder = make_digits();
    char path[512];
    NEEDS(folder);
    snprintf(path, sizeof path, "%s/lines", folder);
    CLI_CODE(&run, 0,
             DIGITS " --epochs 8 --batch 50 --eval-every 100 --json %s --stages 2 --chunks 3",
             folder, folder, path);
    CHECK_CONTAINS(run.output, "train-images-idx3-ubyte u8 [1000, 28, 28] / 255 and "
                               "train-labels-idx1-ubyte u8 [1000]: 1000 samples, 90 more held out");
    CHECK_CONTAINS(run.output, "f32 [1, 28, 28] to f32 [10], cross_entropy");
    CHECK_CONTAINS(run.output, " samples/s ");
    CHECK_CONTAINS(run.output, "    100 validation loss ");
    CHECK_CONTAINS(run.output, "% over 90 samples");
    CHECK(strstr(run.output, "sample\n") == NULL);
    json_t *lines = cli_json_lines(path);
    EXPECT_EQ_UINT(json_array_size(lines), 161);
    const json_t *first = json_array_get(lines, 0), *scored = json_array_get(lines, 99);
    EXPECT(cli_number(first, "samples_per_second") > 0);
    EXPECT(json_object_get(first, "tokens_per_second") == NULL);
    EXPECT(json_object_get(first, "accuracy") == NULL);
    EXPECT(cli_number(scored, "accuracy") > 0.2 && cli_number(scored, "validation_loss") > 0);
    const json_t *summary = summary_of(lines);
    double accuracy = cli_number(summary, "accuracy");
    EXPECT(accuracy > 0.35 && accuracy <= 1);
    EXPECT_NEAR(accuracy * 90, round(accuracy * 90), 1e-9);
    EXPECT(json_object_get(summary, "bigram_loss") == NULL);
    EXPECT(cli_number(summary, "samples_per_second") > 0);
    json_decref(lines);
}

/* The model of the README; run in the project's folder. */
static void test_example_s_model_takes_the_example_s_digits(void) {
    struct cli_run run;
    const char *folder = make_digits();
    NEEDS(folder);
    CLI_CODE(&run, 0,
             "train --model examples/digits.json --data %s/digits --steps 2 --batch 8 --stages 3 "
             "--workers 2 --eval-batches 2 " PLACE,
             folder);
    CHECK_CONTAINS(run.output, "examples/digits.json: 12 layers, f32 [1, 28, 28] to f32 [10]");
    CHECK_CONTAINS(run.output, "% over 16 samples");
}

/* 90 images are held out: a rest of 5 or 3 rows makes as many micro-batches, which the schedules
 * refuse to train, and a table of 6 as well. */
static void test_a_rest_that_no_schedule_trains_is_judged(void) {
    static const char *const how[] = {"--schedule interleaved --stages 4 --batch 85",
                                      "--schedule dualpipe-v --stages 4 --batch 87",
                                      "--schedule %s/t.csv --stages 2 --batch 85"};
    struct cli_run run;
    const char *folder = make_digits();
    NEEDS(folder);
    CLI_CODE(&run, 0, "schedule --schedule 1f1b --stages 2 --chunks 6 --csv %s/t.csv", folder);
    for (int k = 0; k < 3; k++) {
        char options[512];
        snprintf(options, sizeof options, how[k], folder);
        CLI_CODE(&run, 0, DIGITS " --steps 1 --chunks 6 %s", folder, folder, options);
        CHECK_CONTAINS(run.output, "% over 90 samples");
    }
}

/* As those of PyTorch's tables. */
static void test_what_a_table_has_besides_is_said(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    CHECK(cli_do(folder, "printf '0F0,0SEND_F0,0F1,0B0,0B1\\n1RECV_F0,1F0,1B0,1F1,1B1\\n' >t.csv"));
    CLI_CODE(&run, 0,
             "train " CLI_MODEL " --data %s --batch 2 --chunks 2 --eval-batches 1 --sample 0 "
             "--steps 1 --schedule %s/t.csv --stages 2 " PLACE,
             cli_text(), folder);
    CHECK_CONTAINS(run.output, "pipe      1 SEND_F cells are skipped: communication follows");
    CHECK_CONTAINS(run.output, "pipe      1 RECV_F cells are skipped");
}

static void test_masks_are_scored_by_their_overlap(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    char path[512], arguments[600];
    snprintf(arguments, sizeof arguments, "%s/shapes 40 9 24 3", folder);
    NEEDS(make("make_shapes", arguments));
    snprintf(path, sizeof path, "%s/lines", folder);
    CLI_CODE(&run, 0,
             "train --model unet --depth 2 --num-convs 1 --base-channels 4 --dropout 0 --data "
             "%s/shapes --steps 12 --batch 8 --stages 3 --workers 2 --checkpoint always --json %s "
             "--eval-every 5 --eval-batches 1 " PLACE,
             folder, path);
    CHECK_CONTAINS(run.output, "f32 [3, 24, 24] to f32 [1, 24, 24], bce_with_logits");
    CHECK_CONTAINS(run.output,
                   "train_images.npy u8 [40, 3, 24, 24] / 255 and train_masks.npy u8 [40, 1,");
    CHECK_CONTAINS(run.output, ", IoU ");
    CHECK_CONTAINS(run.output, "% over 8 samples");
    json_t *lines = cli_json_lines(path);
    EXPECT_EQ_UINT(json_array_size(lines), 13);
    const json_t *scored[] = {json_array_get(lines, 4), summary_of(lines)};
    for (int i = 0; i < 2; i++) {
        double iou = cli_number(scored[i], "iou"), right = cli_number(scored[i], "pixel_accuracy");
        EXPECT(iou >= 0 && iou <= 1 && right > 0 && right <= 1);
        EXPECT_NEAR(right * 8 * 576, round(right * 8 * 576), 1e-6);
    }
    json_decref(lines);
}

/* Weights that always answer "no mask" and one that answers "all": both scores are known. */
static void test_overlap_is_what_counting_gives(void) {
    static const char model[] =
        "{\"input\": {\"dtype\": \"f32\", \"shape\": [2]}, \"target\": {\"dtype\": \"f32\", "
        "\"shape\": [2]}, \"loss\": \"bce_with_logits\", \"layers\": [{\"type\": \"identity\"}, "
        "{\"type\": \"linear\", \"out_features\": 2}]}";
    static const float weight[4] = {1, 0, 0, 1}, bias[2] = {0, 0};
    /* logits above 0: 1 0, 1 1, 0 0, 0 1; masks 1 1, 1 0, 0 0, 0 1: both 3, either 5, right 6 */
    static const float x[8] = {1, -1, 2, 3, -1, -2, -3, 4};
    static const uint8_t y[8] = {255, 255, 255, 0, 0, 0, 0, 255};
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__safetensors_item items[2] = {
        {.name = "1.weight", .dtype = WEIR_F32, .rank = 2, .shape = {2, 2}, .data = weight},
        {.name = "1.bias", .dtype = WEIR_F32, .rank = 1, .shape = {2}, .data = bias}};
    static const struct weir__safetensors_text texts[3] = {
        {"step", "0"}, {"mini_batch", "0"}, {"seed", "1"}};
    struct cli_run run;
    char path[512], lines_path[512];
    const char *folder = test_temporary_directory();
    io_make_file(folder, "model.json", model, sizeof model - 1, path);
    data_make_npy(folder, "x.npy", "<f4", "4, 2", x, sizeof x);
    data_make_npy(folder, "y.npy", "|u1", "4, 2", y, sizeof y);
    snprintf(path, sizeof path, "%s/w", folder);
    snprintf(lines_path, sizeof lines_path, "%s/lines", folder);
    EXPECT_STATUS(weir__safetensors_save(&io, path, items, 2, texts, 3), WEIR_OK);
    CLI_CODE(&run, 0,
             "train --model %s/model.json --data %s/x.npy %s/y.npy --eval-data %s/x.npy %s/y.npy "
             "--optimizer sgd --steps 0 --batch 3 --chunks 1 --resume %s --json %s " PLACE,
             folder, folder, folder, folder, folder, path, lines_path);
    json_t *lines = cli_json_lines(lines_path);
    const json_t *summary = summary_of(lines);
    EXPECT_NEAR(cli_number(summary, "iou"), 3.0 / 5, 1e-12);
    EXPECT_NEAR(cli_number(summary, "pixel_accuracy"), 6.0 / 8, 1e-12);
    double loss = 0;
    for (int i = 0; i < 8; i++) loss += log1p(exp(y[i] ? -x[i] : x[i])) / 8;
    EXPECT_NEAR(cli_number(summary, "validation_loss"), loss, 1e-6);
    json_decref(lines);
}

static void test_tokens_are_learnt_in_nats_per_token(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    char path[512];
    data_make_tokens(folder, "a_000.bin", 3000, 0, 0);
    data_make_tokens(folder, "a_val_000.bin", 99, 0, 0);
    snprintf(path, sizeof path, "%s/lines", folder);
    CLI_CODE(&run, 0, "train " CLI_TRAIN " --vocab 300 --data %s --epochs 0.1 --json %s", folder,
             path);
    CHECK_CONTAINS(run.output, "3000 in 1 file, rows of 8, 12 rows held out");
    CHECK_CONTAINS(run.output, " nats/token, perplexity ");
    CHECK_CONTAINS(run.output, " over 40 tokens");
    json_t *lines = cli_json_lines(path);
    EXPECT_EQ_UINT(json_array_size(lines), 9); /* 374 windows / 10 / 5 rows, rounded up */
    EXPECT(cli_number(json_array_get(lines, 0), "tokens_per_second") > 0);
    EXPECT(cli_number(summary_of(lines), "validation_loss") > 0);
    EXPECT(json_object_get(summary_of(lines), "bigram_loss") == NULL);
    json_decref(lines);
}

/* ---- mini-batches ---- */

static const char ignoring_model[] =
    "{\"input\": {\"dtype\": \"f32\", \"shape\": [3]}, \"target\": {\"dtype\": \"i64\", "
    "\"shape\": []}, \"loss\": \"cross_entropy\", \"ignore_index\": 7, \"layers\": ["
    "{\"type\": \"linear\", \"out_features\": 4}, {\"type\": \"identity\"}]}";

/* Updates of samples of which every fifth is ignored; the lines, or NULL. */
static json_t *train_ignoring(const char *folder, const float x[120], int label,
                              const char *options) {
    struct cli_run run;
    int32_t y[40];
    char path[512];
    for (int i = 0; i < 40; i++) y[i] = i % 5 == 4 ? 7 : label < 0 ? i % 4 : label;
    io_make_file(folder, "model.json", ignoring_model, sizeof ignoring_model - 1, path);
    data_make_npy(folder, "x.npy", "<f4", "40, 3", x, 120 * sizeof x[0]);
    data_make_npy(folder, "y.npy", "<i4", "40,", y, sizeof y);
    snprintf(path, sizeof path, "%s/lines", folder);
    cli_run_at(__FILE__, __LINE__, &run,
               "train --model %s/model.json --data %s/x.npy %s/y.npy %s --chunks 1 "
               "--json %s " PLACE,
               folder, folder, folder, options, path);
    return cli_code_at(__FILE__, __LINE__, &run, 0) ? cli_json_lines(path) : NULL;
}

/* Samples are counted from the beginning, so two mini-batches of 4 hold what one of 8 does. */
static void test_mini_batches_add_up_to_the_samples_in_them(void) {
    const char *folder = test_temporary_directory();
    float x[120];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    for (int i = 0; i < 120; i++) x[i] = (float)(i * 37 % 11) / 11;
    json_t *whole = train_ignoring(folder, x, -1, "--steps 9 --batch 8");
    json_t *halves = train_ignoring(folder, x, -1, "--steps 9 --batch 4 --accumulate 2");
    for (uint32_t i = 0; i < 9; i++) {
        const json_t *a = json_array_get(whole, i), *b = json_array_get(halves, i);
        EXPECT_NEAR(cli_number(a, "loss"), cli_number(b, "loss"), 1e-5);
        EXPECT_NEAR(cli_number(a, "grad_norm"), cli_number(b, "grad_norm"), 1e-5);
    }
    json_decref(whole);
    json_decref(halves);
}

/* Of equal samples with equal labels every mean is the same, however many are ignored. */
static void test_ignored_labels_weigh_nothing(void) {
    const char *folder = test_temporary_directory();
    float x[120];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    for (int i = 0; i < 120; i++) x[i] = 1;
    json_t *lines = train_ignoring(folder, x, 2, "--steps 9 --batch 4 --accumulate 2 --lr 0");
    const json_t *summary = summary_of(lines);
    double loss = cli_number(json_array_get(lines, 0), "loss");
    for (uint32_t i = 1; i < 9; i++)
        EXPECT_NEAR(cli_number(json_array_get(lines, i), "loss"), loss, 1e-6);
    EXPECT_NEAR(cli_number(summary, "validation_loss"), loss, 1e-6);
    json_decref(lines);
    /* the one ignored sample that is held out, alone in its mini-batch */
    lines = train_ignoring(folder, x, 2, "--steps 0 --batch 1");
    EXPECT_NEAR(cli_number(summary_of(lines), "validation_loss"), loss, 1e-6);
    json_decref(lines);
    lines = train_ignoring(folder, x, 2, "--steps 20 --batch 4 --lr 1 --optimizer sgd --warmup 0");
    EXPECT(cli_number(summary_of(lines), "accuracy") == 1);
    json_decref(lines);
    struct cli_run run;
    CLI_CODE(&run, 1, "train --model %s/model.json --data %s/x.npy %s/y.npy --batch 1 " PLACE,
             folder, folder, folder);
    CHECK_CONTAINS(run.output, ": every target is the ignored label 7: raise --batch or");
}

/* ---- numbers ---- */

/* DIRECTORY/a.npy, DIRECTORY/b.npy and DIRECTORY/mse.json: 100 samples of four numbers, a target
 * each. */
static void make_numbers(const char *folder) {
    static const char model[] = "{\"input\": {\"dtype\": \"f32\", \"shape\": [4]}, \"target\": "
                                "{\"dtype\": \"f32\", \"shape\": [1]}, \"layers\": [{\"type\": "
                                "\"linear\", \"out_features\": 1}], \"loss\": \"mse\"}";
    float numbers[400];
    char path[512];
    for (int i = 0; i < 400; i++) numbers[i] = (float)(1 + i % 7);
    data_make_npy(folder, "a.npy", "<f4", "100, 4", numbers, sizeof numbers);
    data_make_npy(folder, "b.npy", "<f4", "100, 1", numbers, 400);
    io_make_file(folder, "mse.json", model, sizeof model - 1, path);
}

#define NUMBERS "train --model %s/mse.json --data %s/a.npy %s/b.npy --batch 10 " PLACE " "

/* 1.1 is no whole number of bits, and 100 times it is more than 110. */
static void test_rounding_makes_no_update(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    make_numbers(folder);
    CLI_CODE(&run, 0, NUMBERS "--eval-data %s/a.npy %s/b.npy --epochs 1.1 --json - 2>/dev/null",
             folder, folder, folder, folder, folder);
    CHECK_CONTAINS(run.output, "{\"summary\":{\"steps\":11,");
}

static void test_a_loss_beyond_all_measure_is_reported(void) {
    struct cli_run run;
    char path[512];
    const char *folder = test_temporary_directory();
    make_numbers(folder);
    CLI_CODE(&run, 0,
             NUMBERS "--steps 2 --optimizer sgd --lr 1e15 --warmup 0 --clip 0 --report %s/r",
             folder, folder, folder, folder);
    snprintf(path, sizeof path, "%s/r", folder);
    char *page = cli_read(path, NULL), *figure;
    CHECK(page != NULL);
    figure = strstr(page, "<dt>validation loss</dt><dd>");
    if (EXPECT(figure != NULL)) {
        figure[strcspn(figure + 4, "\n") + 4] = '\0';
        EXPECT_CONTAINS(figure, "e+6");
        EXPECT(strlen(figure) < 60);
    }
    free(page);
}

/* ---- resuming ---- */

/* Straight through, and from a checkpoint after `half` updates, over other stages. */
static void check_resumes(const char *folder, const char *options, const char *whole, int updates,
                          int half) {
    struct cli_run run;
    char a[512], b[512], c[512];
    snprintf(a, sizeof a, "%s/straight", folder);
    snprintf(b, sizeof b, "%s/half", folder);
    snprintf(c, sizeof c, "%s/resumed", folder);
    CLI_CODE(&run, 0, "%s --lr-schedule constant %s --save %s", options, whole, a);
    CHECK_EQ_INT(cli_saved_step(a), updates);
    CLI_CODE(&run, 0, "%s --lr-schedule constant --steps %d --save %s", options, half, b);
    CLI_CODE(&run, 0,
             "%s --lr-schedule constant %s --resume %s --save %s --stages 4 --workers 2 "
             "--checkpoint always",
             options, whole, b, c);
    CHECK(strstr(run.output, "warning") == NULL);
    CHECK(cli_same_files(a, c));
}

/* 1,000 images in updates of 96: 32 of them in three passes, half way in the second. */
static void test_images_resume_in_the_middle_of_a_pass(void) {
    char options[1200];
    const char *folder = make_digits();
    NEEDS(folder);
    snprintf(options, sizeof options,
             DIGITS " --batch 48 --accumulate 2 --chunks 3 --eval-batches 1", folder, folder);
    check_resumes(folder, options, "--epochs 3", 32, 13);
}

/* 62 windows of 8, of which 6 are held out, in mini-batches of 5: 23 in two passes. */
static void test_tokens_resume_in_the_middle_of_a_pass(void) {
    char options[1200];
    const char *folder = test_temporary_directory();
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    data_make_tokens(folder, "a.bin", 500, 0, 1);
    snprintf(options, sizeof options,
             "train " CLI_TRAIN " --vocab 500 --data %s/a.bin --dropout 0.1", folder);
    check_resumes(folder, options, "--epochs 2", 23, 8);
}

#define TEXT "train " CLI_TRAIN " --dropout 0.1 --data %s/0.txt"

static void test_what_breaks_the_bits_of_a_resumed_run_is_said(void) {
    static const struct {
        const char *options, *warning;
    } cases[] = {
        {"--batch 6 --chunks 3", "--batch is 6, but FILE was trained with 5"},
        {"--accumulate 2", "--accumulate is 2, but FILE was trained with 1"},
        {"--lr 0.5", "--lr is 0.5, but FILE was trained with 0.002"},
        {"--lr-schedule constant", "--lr-schedule is constant, but FILE was trained with cosine"},
        {"--warmup 7", "--warmup is 7, but FILE was trained with 20"},
        {"--weight-decay 0", "--weight-decay is 0, but FILE was trained with 0.1"},
        {"--beta1 0.8", "--beta1 is 0.8, but FILE was trained with 0.9"},
        {"--beta2 0.9", "--beta2 is 0.9, but FILE was trained with 0.95"},
        {"--eps 1e-6", "--eps is 1e-06, but FILE was trained with 1e-08"},
        {"--clip 0", "--clip is 0, but FILE was trained with 1"},
        {"--on-nonfinite skip", "--on-nonfinite is skip, but FILE was trained with stop"},
        {"--chunks 2", "--chunks is 2, but FILE was trained with 3"},
        {"--dtype f64", "--dtype is f64, but FILE was trained with f32"},
        {"--steps 6", ""}, /* in the warm-up the end changes no rate */
        {"--dropout 0.2", "layer 0 (gpt_embedding) has other numbers (a dropout's p, an eps) than"},
        {"--eval-data TEXT/1.txt", ""},
        {"--log-every 2 --stages 1 --checkpoint never --threads-per-stage 3", ""},
    };
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE(&run, 0, TEXT " --steps 5 --save %s/a --save-every 3", text, text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char options[256], warning[256];
        if (test_shell(options, sizeof options, "printf '%%s' '%s' | sed 's|TEXT|%s|'",
                       cases[i].options, text) != 0)
            TEST_FAIL("no sed");
        if (test_shell(warning, sizeof warning, "printf '%%s' \"%s\" | sed 's|FILE|%s/a|'",
                       cases[i].warning, text) != 0)
            TEST_FAIL("no sed");
        CLI_CODE(&run, 0, TEXT " --steps 5 --resume %s/a --save %s/b %s", text, text, text,
                 options);
        bool none = cases[i].warning[0] == '\0';
        EXPECT_EQ_UINT(cli_count(run.output, "weir: train: warning: "), none ? 0 : 1);
        if (!none) {
            CHECK_CONTAINS(run.output, warning);
            CHECK_CONTAINS(run.output, ": this run will not be bit for bit as if never stopped");
        }
        if (test_has_failed()) TEST_FAIL("with %s", options);
        CHECK_HELPERS();
    }
    CLI_CODE(&run, 0, "train " CLI_TRAIN " --dropout 0.1 --data %s/1.txt --steps 5 --resume %s/a",
             text, text);
    EXPECT_EQ_UINT(cli_count(run.output, "weir: train: warning: "), 1);
    CHECK_CONTAINS(run.output, "warning: the data (fingerprint ");
    CHECK_CONTAINS(run.output, "/a was trained on (");
}

static void test_another_model_is_refused(void) {
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE(&run, 0, TEXT " --steps 1 --save %s/a", text, text);
    CLI_CODE(&run, 2, TEXT " --steps 2 --resume %s/a --heads 4", text, text);
    CHECK_CONTAINS(run.output, "/a was trained with another model: layer 1 (gpt_block) differs: "
                               "give the model that it began with");
    CHECK(strstr(run.output, "warning") == NULL);
    CLI_CODE(&run, 2, TEXT " --steps 2 --resume %s/a --layers 3", text, text);
    CHECK_CONTAINS(run.output, "was trained with a model of 4 layers, this one has 5: give the");
    CLI_CODE(&run, 2, TEXT " --steps 2 --resume %s/a --context 9", text, text);
    CHECK_CONTAINS(run.output, "was trained with another model: layer 0 (gpt_embedding) differs");
}

/* The file at `path` again, but with another value of a note; NULL: without any notes. */
static void change_note(const char *path, const char *to, const char *key, const char *value) {
    static const char *const keys[] = {"step",     "mini_batch", "seed",         "model",
                                       "numerics", "level",      "option.batch", "option.chunks"};
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__safetensors *file = cli_open(path);
    struct weir__safetensors_item items[128];
    struct weir__safetensors_text texts[9];
    if (file == NULL) return;
    uint32_t count = weir__safetensors_count(file), notes = 0;
    if (!EXPECT(count <= 128)) count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct weir__safetensor *t = weir__safetensors_get(file, i);
        items[i] = (struct weir__safetensors_item){
            .name = t->name, .dtype = t->dtype, .rank = t->rank, .data = t->data};
        memcpy(items[i].shape, t->shape, sizeof items[i].shape);
    }
    for (size_t i = 0; i < (value ? sizeof keys / sizeof keys[0] : 3); i++) {
        const char *old = weir__safetensors_metadata(file, keys[i]);
        EXPECT(old != NULL);
        texts[notes].key = keys[i];
        texts[notes++].value = value && strcmp(keys[i], key) == 0 ? value : old;
    }
    EXPECT_STATUS(weir__safetensors_save(&io, to, items, count, texts, notes), WEIR_OK);
    weir__safetensors_close(file);
}

static void test_notes_are_taken_as_they_are_found(void) {
    static const struct {
        const char *key, *value;
        int code;
        const char *text;
    } cases[] = {{NULL, NULL, 0, "after 1 updates"},
                 {"numerics", "abacus", 0, " computes here, but abacus trained "},
                 {"level", "v9", 0, " computes here, but v9 trained "},
                 {"option.batch", "many", 0, "--batch is 5, but "},
                 {"model", "", 2, "was trained with a model of 0 layers, this one has 4"},
                 {"model", "0123", 2, "was trained with a model of 0 layers, this one has 4"}};
    struct cli_run run;
    char a[512], b[512];
    const char *text = cli_text();
    snprintf(a, sizeof a, "%s/a", text);
    snprintf(b, sizeof b, "%s/b", text);
    CLI_CODE(&run, 0, TEXT " --steps 1 --save %s", text, a);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        change_note(a, b, cases[i].key, cases[i].value);
        CLI_CODE(&run, cases[i].code, TEXT " --steps 1 --resume %s", text, b);
        CHECK_CONTAINS(run.output, cases[i].text);
        EXPECT_EQ_UINT(cli_count(run.output, "warning"), cases[i].code == 0 && cases[i].key);
    }
}

/* ---- refusals and failures ---- */

static void test_data_and_model_must_fit(void) {
    struct cli_run run;
    const char *folder = make_digits();
    NEEDS(folder);
    CLI_CODE(&run, 2, "train --data %s/digits", folder);
    CHECK_CONTAINS(run.output, "its samples are u8 [28, 28], but the model's input is i64 [128]");
    CLI_CODE(&run, 2,
             "train --model unet --depth 2 --num-convs 1 --base-channels 4 --data %s/digits",
             folder);
    CHECK_CONTAINS(run.output, "its samples are u8 [], but the model's target is f32 [1, 28, 28]");
    CLI_CODE(&run, 2, "train --model %s/model.json --data %s/model.json", folder, folder);
    CHECK_CONTAINS(run.output,
                   "the data are text, bytes in rows, but the model takes the input f32");
    CLI_CODE(&run, 2, "train --model %s/model.json --data %s/digits %s/model.json", folder, folder,
             folder);
    CHECK_CONTAINS(run.output, "digits is arrays, but ");
    CLI_CODE(&run, 2, "train --model %s/model.json --chunks 3 --stages 9", folder);
    CHECK_CONTAINS(run.output, "--stages 9: the model has 5 layers");
    CHECK_CONTAINS(run.output, "--data is missing: give a .npy or IDX file of inputs and one of");
    CLI_CODE(&run, 2, "train --eval-data %s/digits", folder);
    CHECK_CONTAINS(run.output, "--eval-data needs --data: give both");
}

static void test_a_model_that_cannot_learn_is_refused(void) {
    static const char model[] =
        "{\"input\": {\"dtype\": \"f32\", \"shape\": [3]}, \"target\": {\"dtype\": \"f32\", "
        "\"shape\": [3]}, \"loss\": \"mse\", \"layers\": [{\"type\": \"relu\"}]}";
    static const float x[12] = {0};
    struct cli_run run;
    char path[512];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = test_temporary_directory();
    io_make_file(folder, "m.json", model, sizeof model - 1, path);
    data_make_npy(folder, "x.npy", "<f4", "4, 3", x, sizeof x);
    data_make_npy(folder, "y.npy", "<f4", "4, 3", x, sizeof x);
    CLI_CODE(&run, 2, "train --model %s/m.json --data %s/x.npy %s/y.npy --batch 2 " PLACE, folder,
             folder, folder);
    EXPECT_EQ_STR(run.output,
                  "weir: train: the model has no parameters: there is nothing to train\n");
}

static void test_file_that_is_cut_during_a_run_ends_it_with_its_name(void) {
    struct cli_run run;
    char lines[512];
    const char *folder = make_digits();
    NEEDS(folder);
    snprintf(lines, sizeof lines, "%s/lines", folder);
    CLI_CODE(&run, 1,
             DIGITS " --steps 100000000 --log-every 100000 --batch 8 --json - >%s & process=$!; "
                    "while ! test -s %s; do sleep 0.01; done; "
                    "truncate -s 1000 %s/digits/train-images-idx3-ubyte; wait $process",
             folder, folder, lines, lines, folder);
    CHECK_CONTAINS(run.output, "weir: train: ");
    CHECK_CONTAINS(run.output, "train-images-idx3-ubyte: it was cut: byte ");
    CHECK_CONTAINS(run.output, " of 784016 is not there any more");
}

/* JSON is UTF-8, file names are bytes: messages write them out. */
static void test_name_that_is_no_utf8_reaches_the_summary(void) {
    struct cli_run run;
    char lines[512];
    const char *folder = test_temporary_directory();
    make_numbers(folder);
    snprintf(lines, sizeof lines, "%s/lines", folder);
    CLI_CODE(&run, 1,
             "--version >/dev/null; cd %s; mv a.npy $(printf '\\377'); "
             "'%s/bin/weir' train --model mse.json --data $(printf '\\377') b.npy --batch 10 " PLACE
             " --steps 100000000 --log-every 100000 --json - >lines & process=$!; "
             "while ! test -s %s; do sleep 0.01; done; truncate -s 1000 %s/$(printf '\\377'); "
             "wait $process; code=$?; tail -n 1 %s; exit $code",
             folder, test_install_prefix(), lines, folder, lines);
    CHECK_CONTAINS(run.output, "\"failed\":\"\\\\xff: it was cut: byte ");
}

WEIR_TEST_SUITE(cli_data, TEST(images_are_learnt_and_scored_by_accuracy),
                TEST(example_s_model_takes_the_example_s_digits),
                TEST(a_rest_that_no_schedule_trains_is_judged),
                TEST(what_a_table_has_besides_is_said), TEST(masks_are_scored_by_their_overlap),
                TEST(overlap_is_what_counting_gives), TEST(tokens_are_learnt_in_nats_per_token),
                TEST(mini_batches_add_up_to_the_samples_in_them),
                TEST(ignored_labels_weigh_nothing), TEST(rounding_makes_no_update),
                TEST(a_loss_beyond_all_measure_is_reported),
                TEST(images_resume_in_the_middle_of_a_pass),
                TEST(tokens_resume_in_the_middle_of_a_pass),
                TEST(what_breaks_the_bits_of_a_resumed_run_is_said), TEST(another_model_is_refused),
                TEST(notes_are_taken_as_they_are_found), TEST(data_and_model_must_fit),
                TEST(a_model_that_cannot_learn_is_refused),
                TEST(file_that_is_cut_during_a_run_ends_it_with_its_name),
                TEST(name_that_is_no_utf8_reaches_the_summary))

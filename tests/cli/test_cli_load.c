/* SPDX-License-Identifier: MIT */
/*
 * Goal: training starts from weights: those of `init`, of a run, or of PyTorch, all or part of
 * them, and says which it did not find. Method: the installed command without updates, or a few;
 * what it saves is compared with what it was given, number by number.
 */
#include "cli/cli.h"
#include "io/data_files.h"
#include "io/io_faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRAIN "train " CLI_TRAIN " --data %s/0.txt --lr-schedule constant --seed 5"
#define INIT "init --layers 2 --width 16 --heads 2 --context 8 --out %s/%s --seed %d"

static void test_weights_begin_a_run(void) {
    struct cli_run run;
    const char *text = cli_text();
    char a[512], b[512];
    snprintf(a, sizeof a, "%s/a", text);
    snprintf(b, sizeof b, "%s/b", text);
    CLI_CODE(&run, 0, INIT, text, "w", 5);
    CLI_CODE(&run, 0, TRAIN " --steps 3 --save %s", text, a);
    CLI_CODE(&run, 0, TRAIN " --steps 3 --save %s --load %s/w", text, b, text);
    char line[700];
    snprintf(line, sizeof line, "\nstarts from %s/w: all 29 tensors of the model\n", text);
    CHECK_CONTAINS(run.output, line);
    CHECK(cli_same_files(a, b)); /* what the seed draws is what init wrote */
    /* of a run's checkpoint the weights alone are taken */
    CLI_CODE(&run, 0, TRAIN " --steps 0 --load %s --save-weights %s/c", text, a, text);
    CLI_CODE(&run, 0, TRAIN " --steps 3 --save-weights %s/d", text, text);
    snprintf(a, sizeof a, "%s/c", text);
    snprintf(b, sizeof b, "%s/d", text);
    CHECK(cli_same_files(a, b));
    /* what is frozen stays as it was loaded */
    CLI_CODE(&run, 0, INIT, text, "other", 9);
    CLI_CODE(&run, 0, TRAIN " --steps 3 --load %s/other --freeze 'h.*,wte.*' --save-weights %s/e",
             text, text, text);
    struct weir__safetensors *given = NULL, *kept = NULL;
    snprintf(a, sizeof a, "%s/other", text);
    snprintf(b, sizeof b, "%s/e", text);
    CHECK((given = cli_open(a)) != NULL && (kept = cli_open(b)) != NULL);
    for (uint32_t i = 0; i < weir__safetensors_count(given); i++) {
        const struct weir__safetensor *x = weir__safetensors_get(given, i);
        const struct weir__safetensor *y = weir__safetensors_find(kept, x->name);
        bool frozen = strncmp(x->name, "h.", 2) == 0 || strncmp(x->name, "wte", 3) == 0;
        bool same = y != NULL && memcmp(x->data, y->data, x->bytes) == 0;
        if (same != frozen) TEST_FAIL("%s %s", x->name, same ? "stayed" : "changed");
    }
    weir__safetensors_close(given);
    weir__safetensors_close(kept);
}

/* A linear layer's weight [2, 3] and bias [2], as another program may have written them. */
static void write_weights(const char *path, enum weir_dtype dtype, const void *weight,
                          const void *bias, bool extra) {
    static const float number = 1;
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__safetensors_item items[] = {
        {.name = "0.weight", .dtype = dtype, .rank = 2, .shape = {2, 3}, .data = weight},
        {.name = "0.bias", .dtype = dtype, .rank = 1, .shape = {2}, .data = bias},
        {.name = "1.extra", .dtype = WEIR_F32, .rank = 1, .shape = {1}, .data = &number}};
    struct weir__safetensors_text text = {"format", "pt"};
    if (bias == NULL) items[1] = items[2];
    uint32_t count = bias == NULL && !extra ? 1 : 2 + (bias != NULL && extra);
    EXPECT_STATUS(weir__safetensors_save(&io, path, items, count, &text, 1), WEIR_OK);
}

static void check_weights(const char *path, const float *weight, const float *bias) {
    struct weir__safetensors *file = cli_open(path);
    if (file == NULL) return;
    const struct weir__safetensor *w = weir__safetensors_find(file, "0.weight");
    const struct weir__safetensor *b = weir__safetensors_find(file, "0.bias");
    if (EXPECT(w != NULL && b != NULL)) {
        EXPECT_EQ_BYTES(w->data, weight, 6 * sizeof *weight);
        if (bias != NULL) EXPECT_EQ_BYTES(b->data, bias, 2 * sizeof *bias);
    }
    weir__safetensors_close(file);
}

/* One, the least above 0, the largest, and others, as IEEE 754 says them. */
static const float numbers[6] = {1.0f, 0x1p-24f, 65504.0f, -2.0f, 0x1p-15f, -0.0f};
static const uint16_t halves[6] = {0x3c00, 0x0001, 0x7bff, 0xc000, 0x0200, 0x8000};
static const float wide[6] = {1.0f, 0x1p-126f, 0x1.fep127f, -2.0f, 3.0f, -0.0f};
static const uint16_t brains[6] = {0x3f80, 0x0080, 0x7f7f, 0xc000, 0x4040, 0x8000};

static const char *make_model(char path[512]) {
    static const char model[] =
        "{\"input\": {\"dtype\": \"f32\", \"shape\": [3]}, \"target\": {\"dtype\": \"f32\", "
        "\"shape\": [2]}, \"layers\": [{\"type\": \"linear\", \"out_features\": 2}], \"loss\": "
        "\"mse\"}";
    static const float rows[8 * 3];
    const char *folder = test_temporary_directory();
    io_make_file(folder, "m.json", model, strlen(model), path);
    data_make_npy(folder, "x_inputs.npy", "<f4", "8, 3", rows, sizeof rows);
    data_make_npy(folder, "x_targets.npy", "<f4", "8, 2", rows, 8 * 2 * sizeof rows[0]);
    return folder;
}

#define TINY                                                                                       \
    "train --model %s/m.json --data %s/x_inputs.npy %s/x_targets.npy --batch 1 --chunks 1 "        \
    "--stages 1 --steps 0 --threads-per-stage 1 --bind none --save-weights %s/out --load %s/w "

static void test_files_of_pytorch_are_read_in_their_precision(void) {
    struct cli_run run;
    char path[512], out[512];
    const char *f = make_model(path);
    snprintf(path, sizeof path, "%s/w", f);
    snprintf(out, sizeof out, "%s/out", f);
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    write_weights(path, WEIR_F16, halves, halves + 2, false);
    CLI_CODE(&run, 0, TINY, f, f, f, f, f);
    check_weights(out, numbers, numbers + 2);
    write_weights(path, WEIR_BF16, brains, brains + 3, false);
    CLI_CODE(&run, 0, TINY, f, f, f, f, f);
    check_weights(out, wide, wide + 3);
    write_weights(path, WEIR_F32, wide, wide + 1, false);
    CLI_CODE(&run, 0, TINY, f, f, f, f, f);
    check_weights(out, wide, wide + 1);
    write_weights(path, WEIR_I32, wide, wide + 1, false);
    CLI_CODE(&run, 2, TINY, f, f, f, f, f);
    CHECK_CONTAINS(run.output, "/w: tensor '0.weight' is I32 [2, 3], but the model has f32 [2, 3]");
}

static void test_a_part_is_loaded_where_that_is_wanted(void) {
    struct cli_run run;
    char path[512], out[512];
    const char *f = make_model(path);
    snprintf(path, sizeof path, "%s/w", f);
    snprintf(out, sizeof out, "%s/out", f);
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    write_weights(path, WEIR_F32, wide, NULL, true);
    CLI_CODE(&run, 2, TINY, f, f, f, f, f);
    CHECK_CONTAINS(run.output, "/w: tensor '0.bias' f32 [2] is missing");
    CHECK_CONTAINS(run.output, "/w: tensor '1.extra' F32 [1] is not the model's");
    CLI_CODE(&run, 0, TINY "--load-strict false --seed 7", f, f, f, f, f);
    CHECK_CONTAINS(run.output, "\nstarts from what ");
    CHECK_CONTAINS(run.output, "/w: '0.bias' f32 [2] is missing and stays as it is\n");
    CHECK_CONTAINS(run.output, "/w: '1.extra' F32 [1] is left over\n");
    check_weights(out, wide, NULL);
    struct weir__safetensors *file = cli_open(out);
    float bias[2];
    memcpy(bias, weir__safetensors_find(file, "0.bias")->data, sizeof bias);
    weir__safetensors_close(file);
    CLI_CODE(&run, 0, "init --model %s/m.json --seed 7 --out %s", f, out);
    CHECK((file = cli_open(out)) != NULL); /* as the seed draws it */
    EXPECT_EQ_BYTES(weir__safetensors_find(file, "0.bias")->data, bias, sizeof bias);
    weir__safetensors_close(file);
    CLI_CODE(&run, 2, TINY "--load-strict false --resume %s", f, f, f, f, f, out);
    CHECK_CONTAINS(run.output, "--load and --resume: a resumed run has its weights");
    write_weights(path, WEIR_I32, wide, NULL, false); /* of no use, as a head of another size */
    CLI_CODE(&run, 2, TINY "--load-strict false", f, f, f, f, f);
    CHECK_CONTAINS(run.output, "f32 [2, 3]: a layer of another \"name\" in the model file keeps");
    static const double exact[6];
    write_weights(path, WEIR_F64, exact, NULL, false);
    CHECK_EQ_INT(
        test_shell(run.output, sizeof run.output, "sed -i 's/0.weight/9.weight/' %s", path), 0);
    CLI_CODE(&run, 2, TINY "--load-strict false", f, f, f, f, f);
    CHECK_CONTAINS(run.output, "/w: none of its tensors is the model's");
}

/* Heads change no shape, so that only the metadata tell. */
static void test_other_heads_are_refused(void) {
    struct cli_run run;
    const char *text = cli_text();
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    CLI_CODE(&run, 0, INIT, text, "w", 5);
    CLI_CODE(&run, 2, "eval --load %s/w --data %s/0.txt --heads 8", text, text);
    CHECK_CONTAINS(run.output, "--heads 8, but ");
    CHECK_CONTAINS(run.output, "/w was trained with 2: leave --heads away");
    CLI_CODE(&run, 2, TRAIN " --steps 1 --load %s/w --heads 4", text, text);
    CHECK_CONTAINS(run.output, "--heads 4, but ");
    CHECK_CONTAINS(run.output, "/w was trained with 2: give --heads 2");
    CLI_CODE(&run, 2,
             "train --layers 2 --width 16 --context 8 --data %s/0.txt --steps 1 --load %s/w", text,
             text);
    CHECK_CONTAINS(run.output, "--heads 8, but ");
    CHECK_CONTAINS(run.output, "/w was trained with 2: give --heads 2");
}

WEIR_TEST_SUITE(cli_load, TEST(weights_begin_a_run), TEST(other_heads_are_refused),
                TEST(files_of_pytorch_are_read_in_their_precision),
                TEST(a_part_is_loaded_where_that_is_wanted))

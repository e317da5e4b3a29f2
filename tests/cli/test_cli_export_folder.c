/* SPDX-License-Identifier: MIT */
/*
 * Goal: a decoder's checkpoint becomes a folder of the same layout, whole or not at all, whose
 * weights are those of the checkpoint. Method: the installed command makes a small model and reads
 * back what it exported; that transformers do too is golden/gguf_oracle.py's.
 */
#include "cli/cli.h"
#include "io/safetensors.h"

#include <stdio.h>
#include <string.h>

static struct cli_run run;

#define CONFIG                                                                                     \
    "{\"model_type\": \"llama\", \"hidden_size\": 16, \"intermediate_size\": 24, "                 \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "           \
    "\"head_dim\": 4, \"vocab_size\": 300, \"max_position_embeddings\": 64, \"rms_norm_eps\": "    \
    "1e-05, \"rope_theta\": 1000.0, \"hidden_act\": \"silu\",\n  \"torch_dtype\":  "               \
    "\"float32\", \"tie_word_embeddings\": true}"

/* A folder `model` without weights, a text, and the weights `w`. */
static const char *make(void) {
    const char *folder = test_temporary_directory();
    EXPECT(cli_do(folder,
                  "mkdir model && echo '%s' > model/config.json && "
                  "echo '{\"temperature\": 0.5}' > model/generation_config.json && "
                  "echo tokens > model/special_tokens_map.json && echo card > "
                  "model/README.md && seq 1 300 > text",
                  CONFIG));
    cli_run_in(folder, &run, "init --model model --out w --seed 3");
    EXPECT_EQ_INT(run.code, 0);
    return folder;
}

#define EVAL "--data text --context 24 --json "
/* Fails the test unless both files of results have one loss. */
static void same_loss(const char *folder, const char *a, const char *b) {
    EXPECT(cli_do(folder, "grep '\"loss\"' %s > x; grep '\"loss\"' %s | cmp x -", a, b));
}

static void test_a_checkpoint_becomes_a_folder(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = make();
    CLI_CODE_IN(folder, &run, 0,
                "train --model model --data text --context 24 --batch 4 --steps 2 --eval-batches 1 "
                "--sample 0 --bind none --threads-per-stage 1 --save saved");
    CLI_CODE_IN(folder, &run, 0, "export --model model --load saved --format hf --out out/");
    EXPECT(cli_do(folder,
                  "for f in config generation_config special_tokens_map; do cmp model/$f.json "
                  "out/$f.json || exit 1; done; [ $(ls out | wc -l) = 4 ]"));
    CLI_CODE_IN(folder, &run, 0, "eval --model model --load saved " EVAL "a");
    CLI_CODE_IN(folder, &run, 0, "eval --model out --load out " EVAL "b");
    same_loss(folder, "a", "b");
    CLI_CODE_IN(folder, &run, 0, "export --model out --out one --weights-only");
    CLI_CODE_IN(folder, &run, 0, "export --load saved --out two --weights-only");
    CLI_CODE_IN(folder, &run, 0, "export --model out --load two --format hf --out again");
    EXPECT(cli_do(folder, "cmp out/model.safetensors again/model.safetensors"));
}

static void test_weights_and_configuration_take_another_type(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = make();
    static const char *const types[][2] = {{"bf16", "bfloat16"}, {"f16", "float16"}};
    for (size_t i = 0; i < 2; i++) {
        CLI_CODE_IN(folder, &run, 0, "export --model model --load w --format hf --out %s --type %s",
                    types[i][0], types[i][0]);
        EXPECT(cli_do(folder,
                      "sed 's/\"float32\"/\"%s\"/' model/config.json | cmp - "
                      "%s/config.json",
                      types[i][1], types[i][0]));
        CLI_CODE_IN(folder, &run, 0, "export --model %s --format hf --out wide-%s --type f32",
                    types[i][0], types[i][0]);
        EXPECT(cli_do(folder, "cmp model/config.json wide-%s/config.json", types[i][0]));
        CLI_CODE_IN(folder, &run, 0, "export --model wide-%s --format hf --out same-%s --type %s",
                    types[i][0], types[i][0], types[i][0]);
        EXPECT(cli_do(folder, "cmp %s/model.safetensors same-%s/model.safetensors", types[i][0],
                      types[i][0]));
        CLI_CODE_IN(folder, &run, 0, "eval --model %s --load %s " EVAL "a", types[i][0],
                    types[i][0]);
    }
}

static void test_weights_are_divided_into_files(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = make();
    CLI_CODE_IN(folder, &run, 0,
                "export --model model --load w --format hf --out parts --shard-size 8000");
    EXPECT(cli_do(folder, "[ ! -e parts/model.safetensors ] && "
                          "[ -e parts/model-00001-of-00003.safetensors ] && "
                          "[ $(ls parts/*.safetensors | wc -l) = 3 ]"));
    CLI_CODE_IN(folder, &run, 0, "eval --model model --load w " EVAL "a");
    CLI_CODE_IN(folder, &run, 0, "eval --model parts --load parts " EVAL "b");
    same_loss(folder, "a", "b");
    CLI_CODE_IN(folder, &run, 0, "export --model parts --format hf --out again");
    EXPECT(cli_do(folder, "diff -r parts again"));
    CLI_CODE_IN(folder, &run, 0, "export --model parts --format hf --out whole --shard-size 1MiB");
    EXPECT(cli_do(folder, "[ -e whole/model.safetensors ] && [ $(ls whole | wc -l) = 4 ]"));
}

/* Saves `w` again as FOLDER/NAME: without the tensor `left_out`, with `value` in a norm. */
static void change(const char *folder, const char *name, const char *left_out, float value) {
    static float norm[16];
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__safetensors_item items[32];
    uint32_t count = 0;
    char path[512];
    snprintf(path, sizeof path, "%s/w", folder);
    struct weir__safetensors *file = cli_open(path);
    CHECK(file != NULL);
    for (uint32_t i = 0; i < weir__safetensors_count(file); i++) {
        const struct weir__safetensor *from = weir__safetensors_get(file, i);
        if (strcmp(from->name, left_out) == 0) continue;
        items[count] = (struct weir__safetensors_item){
            .name = from->name, .dtype = from->dtype, .rank = from->rank, .data = from->data};
        memcpy(items[count].shape, from->shape, sizeof items[count].shape);
        norm[3] = value;
        if (strcmp(from->name, "model.norm.weight") == 0) items[count].data = norm;
        count++;
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    EXPECT_STATUS(weir__safetensors_save(&io, path, items, count, NULL, 0), WEIR_OK);
    weir__safetensors_close(file);
}

static void test_a_folder_that_is_there_stays_until_it_is_replaced(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = make();
    change(folder, "large", "", 70000);
#define EXPORT "export --model model --format hf --out out "
    CLI_CODE_IN(folder, &run, 0, EXPORT "--load w");
    CHECK(cli_do(folder, "cp -r out before"));
    CLI_CODE_IN(folder, &run, 2, EXPORT "--load large");
    EXPECT_CONTAINS(run.output, "is there already: name another, or give --overwrite");
    CLI_CODE_IN(folder, &run, 1, EXPORT "--load large --overwrite --type f16");
    EXPECT_CONTAINS(run.output, "'model.norm.weight' has a number that is too large");
    EXPECT(cli_do(folder, "diff -r out before && [ ! -e out.partial ]"));
    CLI_CODE_IN(folder, &run, 0, EXPORT "--load large --overwrite");
    EXPECT(cli_do(folder, "! cmp -s out/model.safetensors before/model.safetensors && "
                          "[ ! -e out.partial ] && [ ! -e out.former ]"));
    CHECK(cli_do(folder, "mkdir out/more"));
    CLI_CODE_IN(folder, &run, 2, EXPORT "--load w --overwrite");
    EXPECT_CONTAINS(run.output, "has more than a model's files");
    CHECK(cli_do(folder, "mv out out.former"));
    CLI_CODE_IN(folder, &run, 2, EXPORT "--load w");
    EXPECT_CONTAINS(run.output, "an export that was cut off would have replaced");
    CHECK(cli_do(folder, "rm -r out.former && mkdir out && mkdir out.partial && touch "
                         "out.partial/left"));
    CLI_CODE_IN(folder, &run, 0, EXPORT "--load w");
    EXPECT(cli_do(folder, "diff -r out before && [ ! -e out.partial ]"));
}

static void test_what_is_no_decoder_of_the_folder_is_refused(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = make();
    static const struct {
        const char *arguments, *why;
        int code;
    } cases[] = {
        {"--load part --out out", "'model.layers.1.mlp.up_proj.weight' is missing", 1},
        {"--load other --out out", "'model.layers.0.mlp.gate_proj.weight' has another shape", 1},
        {"--load w", "--out is missing", 2},
        {"--load w --out model", "is an input", 2},
        {"--load none --out out", "--load none: No such file", 2},
        {"--load w --out text", "name a folder that is not there yet", 2},
        {"--load w --out none/out", "cannot make the folder", 1},
    };
    change(folder, "part", "model.layers.1.mlp.up_proj.weight", 1);
    CHECK(cli_do(folder, "mkdir other && sed 's/: 24/: 25/' model/config.json > "
                         "other/config.json"));
    CLI_CODE_IN(folder, &run, 0, "init --model other --out o --seed 3");
    CHECK(cli_do(folder, "rm -r other && mv o other"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CLI_CODE_IN(folder, &run, cases[i].code, "export --model model --format hf %s",
                    cases[i].arguments);
        EXPECT_CONTAINS(run.output, cases[i].why);
        EXPECT(cli_do(folder, "[ ! -e out ] && [ ! -e out.partial ]"));
    }
    CLI_CODE_IN(folder, &run, 2, "export --format hf --load w --out out");
    EXPECT_CONTAINS(run.output, "--model is missing");
    CLI_CODE_IN(folder, &run, 2, "export --load w --out out --type f16");
    EXPECT_CONTAINS(run.output, "--type means nothing to --format safetensors");
    CLI_CODE_IN(folder, &run, 2, "export --model gpt --format hf --load w --out out");
    EXPECT_CONTAINS(run.output, "is no folder with a config.json");
}

WEIR_TEST_SUITE(cli_export_folder, TEST(a_checkpoint_becomes_a_folder),
                TEST(weights_and_configuration_take_another_type),
                TEST(weights_are_divided_into_files),
                TEST(a_folder_that_is_there_stays_until_it_is_replaced),
                TEST(what_is_no_decoder_of_the_folder_is_refused))

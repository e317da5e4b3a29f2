/* SPDX-License-Identifier: MIT */
/*
 * Goal: adapters are trained, resumed, written as PEFT has them, loaded, and put into the weights;
 * what is wrong with a folder of them is named. Method: the installed command on a small model's
 * folder that is made up here; a model with adapters and the merged one give the same loss. That
 * the numbers are PEFT's is test_golden_nets.c's.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct cli_run run;

#define CONFIG                                                                                     \
    "{\"model_type\": \"qwen2\", \"hidden_size\": 16, \"intermediate_size\": 24, "                 \
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "           \
    "\"vocab_size\": 256, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, "               \
    "\"rope_theta\": 1000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": true}"

/* FOLDER/model, its weights, and FOLDER/text. */
static const char *make_folder(void) {
    const char *folder = cli_make_model(CONFIG, NULL);
    EXPECT(cli_do(folder, "for i in $(seq 200); do echo \"line $i of a text\"; done > text"));
    return folder;
}

#define TRAIN                                                                                      \
    "train --model model --data text --context 8 --batch 5 --chunks 2 --eval-batches 1 --sample "  \
    "0 --threads-per-stage 1 --bind none --plan given --lr 0.1 --warmup 0 --lr-schedule constant "
#define LORA                                                                                       \
    "--lora-rank 2 --lora-alpha 3 --lora-dropout 0.1 --rslora --lora-targets q_proj,'mlp.*' "

static double loss_of(const char *folder, const char *options) {
    char path[512];
    cli_run_in(folder, &run, "eval %s --data text --context 8 --bind none --json loss.json",
               options);
    if (!EXPECT_EQ_INT(run.code, 0)) TEST_FAIL("%s", run.output);
    snprintf(path, sizeof path, "%s/loss.json", folder);
    json_t *root = cli_json(path);
    double loss = json_number_value(json_object_get(root, "loss"));
    json_decref(root);
    return loss;
}

static void test_adapters_are_trained_loaded_and_merged(void) {
    const char *folder = make_folder();
    CLI_CODE_IN(folder, &run, 0, TRAIN LORA "--steps 4 --save-adapter adapter --stages 2");
    double plain = loss_of(folder, "--model model --load model");
    double adapted = loss_of(folder, "--model model --load model --adapter adapter");
    EXPECT(fabs(plain - adapted) > 1e-3 * plain);
    CLI_CODE_IN(folder, &run, 0, "merge --model model --adapter adapter --out merged --type f32");
    double merged = loss_of(folder, "--model merged --load merged");
    /* a product's rounding, in a sum of some hundred */
    EXPECT_NEAR(merged, adapted, 1e-5 * adapted);
    CLI_CODE_IN(folder, &run, 0,
                "generate --model model --load model --adapter adapter --prompt-ids 65,66 "
                "--tokens 5 --temperature 0 --context 16 --bind none");
    CLI_CODE_IN(folder, &run, 0,
                TRAIN "--adapter adapter --steps 0 --save-adapter again --save-weights w");
    EXPECT(cli_do(folder, "cmp adapter/adapter_model.safetensors again/adapter_model.safetensors"));
    CLI_CODE_IN(folder, &run, 2, "merge --model model --adapter adapter --out merged");
    CLI_CODE_IN(folder, &run, 0,
                "merge --model model --adapter adapter --out merged --type bf16 --overwrite");
    EXPECT_NEAR(loss_of(folder, "--model merged --load merged"), adapted, 0.01 * adapted);
}

static void test_a_resumed_run_goes_on_bit_for_bit(void) {
    const char *folder = make_folder();
    CLI_CODE_IN(folder, &run, 0, TRAIN LORA "--steps 4 --save-adapter whole --save whole.ck");
    CLI_CODE_IN(folder, &run, 0, TRAIN LORA "--steps 2 --save half.ck --stages 3");
    CLI_CODE_IN(folder, &run, 0, TRAIN LORA "--steps 4 --resume half.ck --save-adapter half");
    EXPECT(cli_do(folder, "cmp whole.ck half.ck && cmp whole/adapter_model.safetensors "
                          "half/adapter_model.safetensors && diff -r whole half"));
    CLI_CODE_IN(folder, &run, 2, TRAIN "--lora-rank 2 --steps 5 --resume half.ck");
    EXPECT_CONTAINS(run.output, "half.ck");
}

static json_t *plan_of(const char *folder, const char *options) {
    char path[512];
    cli_run_in(folder, &run,
               "plan --model model --context 8 --batch 5 --chunks 2 --stages 1 "
               "--threads-per-stage 1 --json p %s",
               options);
    if (!EXPECT_EQ_INT(run.code, 0)) TEST_FAIL("%s", run.output);
    snprintf(path, sizeof path, "%s/p", folder);
    return cli_json(path);
}

static double number_of(const json_t *plan, const char *key) {
    return cli_number(json_array_get(json_object_get(plan, "devices"), 0), key);
}

/* An embedding of 256 x 16; three layers of q and o 16 x 16, k and v 8 x 16, and 24 x 16 thrice. */
static void test_frozen_matrices_stay_in_the_models_folder(void) {
    const double matrices = 4.0 * (256 * 16 + 3 * (2 * 256 + 2 * 128 + 3 * 384));
    const char *folder = make_folder();
    char path[512];
    json_t *full = plan_of(folder, ""), *adapted = plan_of(folder, LORA);
    EXPECT(number_of(full, "mapped") == 0);
    EXPECT(number_of(adapted, "mapped") == matrices);
    EXPECT(number_of(adapted, "parameters") < number_of(full, "parameters") - 0.8 * matrices);
    CLI_CODE_IN(folder, &run, 0, TRAIN LORA "--stages 1 --steps 1 --json j");
    snprintf(path, sizeof path, "%s/j", folder);
    json_t *lines = cli_json_lines(path);
    const json_t *summary = json_object_get(json_array_get(lines, 1), "summary");
    EXPECT(cli_number(summary, "planned_bytes") == number_of(adapted, "total"));
    json_decref(lines);
    json_decref(full);
    json_decref(adapted);
}

#define BASE "{\"peft_type\": \"LORA\", \"r\": 2, \"target_modules\": [\"q_proj\"]"

static void test_configs_that_are_not_known_are_refused(void) {
    static const struct {
        const char *config, *why;
    } cases[] = {
        {"[]", "no JSON object"},
        {"{\"peft_type\": \"IA3\"}", "\"peft_type\" is only known as \"LORA\""},
        {BASE ", \"use_dora\": true}", "\"use_dora\" is only known as false"},
        {BASE ", \"bias\": \"all\"}", "\"bias\" is only known as \"none\""},
        {BASE ", \"rank_pattern\": {\"q_proj\": 4}}", "\"rank_pattern\" is only known as {}"},
        {BASE ", \"alpha_pattern\": {\"q_proj\": 4}}", "\"alpha_pattern\" is only known"},
        {BASE ", \"modules_to_save\": [\"lm_head\"]}", "\"modules_to_save\" is only known"},
        {BASE ", \"layers_to_transform\": [0]}", "\"layers_to_transform\" is only known"},
        {BASE ", \"init_lora_weights\": \"pissa\"}", "\"init_lora_weights\" is only known"},
        {BASE ", \"tomorrows_field\": 0}", "\"tomorrows_field\" is not known"},
        {BASE ", \"lora_dropout\": 1}", "\"lora_dropout\" is not from 0"},
        {BASE ", \"lora_alpha\": 0}", "\"lora_alpha\" is not above 0"},
        {BASE ", \"use_rslora\": 1}", "\"use_rslora\" is neither"},
        {"{\"peft_type\": \"LORA\", \"r\": 0, \"target_modules\": [\"q_proj\"]}", "\"r\" is not"},
        {"{\"peft_type\": \"LORA\", \"r\": 2}", "\"target_modules\" is neither"},
        {"{\"peft_type\": \"LORA\", \"r\": 2, \"target_modules\": \".*q_proj\"}",
         "\"target_modules\" is neither"},
        {"{\"peft_type\": \"LORA\", \"r\": 2, \"target_modules\": [\"c_attn\"]}",
         "no product is named like 'c_attn'"},
        {BASE "}", "adapter_model.safetensors"},
    };
    const char *folder = make_folder();
    CHECK(cli_do(folder, "mkdir adapter"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cli_write(folder, "adapter/adapter_config.json", cases[i].config);
        cli_run_in(folder, &run,
                   "eval --model model --load model --adapter adapter --data text --context 8");
        EXPECT(run.code == 2 || run.code == 1);
        EXPECT_CONTAINS(run.output, cases[i].why);
    }
    CLI_CODE_IN(folder, &run, 2, "describe --model model --lora-alpha 3");
    EXPECT_CONTAINS(run.output, "--lora-alpha goes with --lora-rank");
    CLI_CODE_IN(folder, &run, 2, "describe --model model --lora-rank 3 --adapter adapter");
    EXPECT_CONTAINS(run.output, "--lora-rank: the --adapter says it");
    CLI_CODE_IN(folder, &run, 2, TRAIN "--save-adapter a --steps 0");
    EXPECT_CONTAINS(run.output, "--save-adapter: there are none");
    CLI_CODE_IN(folder, &run, 0, "describe --model model --lora-rank 3 --json model.json");
    CLI_CODE_IN(folder, &run, 0, "describe --model ./model.json --json again.json");
    EXPECT(cli_do(folder, "cmp model.json again.json"));
}

/* A byte that is changed or gone: read, or refused. */
static void test_damaged_configs_crash_nothing(void) {
    static const char config[] = BASE ", \"lora_alpha\": 8, \"lora_dropout\": 0.0, \"bias\": "
                                      "\"none\", \"use_rslora\": false, \"rank_pattern\": {}}";
    const char *folder = make_folder();
    CHECK(cli_do(folder, "mkdir adapter"));
    for (int i = 0; i < 40; i++) {
        char text[sizeof config];
        memcpy(text, config, sizeof config);
        size_t at = test_random_below(sizeof config - 1), count = sizeof config - 1 - at;
        if (test_random_below(2) == 0)
            text[at] = (char)(1 + test_random_below(255));
        else
            memmove(text + at, text + at + 1, count);
        cli_write(folder, "adapter/adapter_config.json", text);
        cli_run_in(folder, &run, "describe --model model --adapter adapter --context 8");
        if (!EXPECT(run.code == 0 || run.code == 2)) TEST_FAIL("%s", text);
    }
}

WEIR_TEST_SUITE(cli_lora, TEST(adapters_are_trained_loaded_and_merged),
                TEST(a_resumed_run_goes_on_bit_for_bit),
                TEST(frozen_matrices_stay_in_the_models_folder),
                TEST(configs_that_are_not_known_are_refused), TEST(damaged_configs_crash_nothing))

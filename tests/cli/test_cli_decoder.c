/* SPDX-License-Identifier: MIT */
/*
 * Goal: a folder of Hugging Face's transformers is read as it is, or what is wrong with it is said.
 * Method: the installed command on config.json files made up here, and on weights that it makes
 * itself; that the numbers are transformers' is test_golden_nets.c's and golden/hf_oracle.py's.
 */
#include "cli/cli.h"
#include "io/safetensors.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct cli_run run;

/* Writes FOLDER/model/NAME. */
static void write_file(const char *folder, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/model", folder);
    CHECK(mkdir(path, 0777) == 0 || errno == EEXIST);
    cli_write(path, name, text);
}

#define CONFIG(type, width, inner, layers, heads, kv_heads, size, vocab, theta, more)              \
    "{\"model_type\": \"" type "\", \"hidden_size\": " #width ", \"intermediate_size\": " #inner   \
    ", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads                       \
    ", \"num_key_value_heads\": " #kv_heads ", \"head_dim\": " #size ", \"vocab_size\": " #vocab   \
    ", \"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-5, \"rope_theta\": " #theta         \
    ", \"hidden_act\": \"silu\"" more "}"
#define TIED ", \"tie_word_embeddings\": true"
#define LLAMA3                                                                                     \
    ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 32.0, \"low_freq_factor\": 1.0, " \
    "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}"

/* The sizes and counts that their makers published. */
static void test_published_decoders_have_their_parameters(void) {
    static const struct {
        const char *config;
        int64_t parameters;
    } models[] = {
        {CONFIG("llama", 576, 1536, 30, 9, 3, 64, 49152, 100000.0, TIED), 134515008},
        {CONFIG("llama", 960, 2560, 32, 15, 5, 64, 49152, 100000.0, TIED), 361821120},
        {CONFIG("llama", 2048, 8192, 16, 32, 8, 64, 128256, 500000.0, TIED LLAMA3), 1235814400},
        {CONFIG("qwen2", 896, 4864, 24, 14, 2, 64, 151936, 1000000.0,
                TIED ", \"use_sliding_window\": false, \"sliding_window\": 32768"),
         494032768},
        {CONFIG("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 1000000,
                TIED ", \"attention_bias\": false"),
         596049920},
        {CONFIG("llama", 4096, 11008, 32, 32, 32, 128, 32000, 10000.0, ""), 6738415616},
        {CONFIG("mistral", 4096, 14336, 32, 32, 8, 128, 32000, 10000.0,
                ", \"sliding_window\": 4096"),
         7241732096},
    };
    const char *folder = test_temporary_directory();
    char path[512];
    snprintf(path, sizeof path, "%s/out.json", folder);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        write_file(folder, "config.json", models[i].config);
        CLI_CODE_IN(folder, &run, 0, "describe --model model --json out.json");
        json_t *root = cli_json(path);
        EXPECT_EQ_INT(json_integer_value(json_object_get(root, "parameters")),
                      models[i].parameters);
        json_decref(root);
    }
}

#define SMALL(type, more) CONFIG(type, 16, 24, 2, 4, 2, 4, 300, 1000.0, more)

static void test_configs_that_are_not_known_are_refused(void) {
    static const struct {
        const char *config, *why;
    } configs[] = {
        {"[]", "no JSON object"},
        {"{\"model_type\": \"gemma2\"}", "\"model_type\" \"gemma2\" is not known"},
        {"{\"model_type\": \"llama\"}", "\"hidden_size\" is missing"},
        {SMALL("llama", ", \"logit_softcap\": 30.0"), "\"logit_softcap\" is not known"},
        {SMALL("llama", ", \"scale_residuals\": false"), "\"scale_residuals\" is not known"},
        {SMALL("llama", ", \"logit_softcap\": null"), "\"logit_softcap\" is not known"},
        {SMALL("llama", ", \"hidden_size\": 16"), "no JSON object: "},
        {SMALL("llama", ", \"attention_dropout\": 0.1"),
         "\"attention_dropout\" is only known as 0.0"},
        {SMALL("llama", ", \"tie_word_embeddings\": 1"), "is neither true nor false"},
        {SMALL("llama", ", \"quantization_config\": {}"), "\"quantization_config\" is only known"},
        {SMALL("llama", ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0}"),
         "\"rope_scaling\" is of a type that is not known"},
        {SMALL("llama", ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": \"2\"}"),
         "\"factor\" is not a number"},
        {SMALL("llama", ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0, "
                        "\"partial_rotary_factor\": 0.5}"),
         "\"partial_rotary_factor\" is only known as 1.0"},
        {SMALL("llama", ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0, "
                        "\"low_freq_factor\": 1.0}"),
         "\"low_freq_factor\" is not known of such positions"},
        {SMALL("llama", LLAMA3 ", \"rope_parameters\": {\"rope_type\": \"default\"}"),
         "stands beside \"rope_parameters\""},
        {SMALL("mistral", ""), "\"sliding_window\" is missing"},
        {"{\"model_type\": \"qwen3\", \"num_attention_heads\": 4, \"hidden_size\": 16}",
         "\"head_dim\" is missing"},
        {SMALL("qwen2", ", \"mlp_bias\": true"), "\"mlp_bias\" is not known"},
        {SMALL("qwen2", ", \"use_sliding_window\": true, \"sliding_window\": 8, "
                        "\"max_window_layers\": 1"),
         "\"max_window_layers\" gives only some layers a window"},
        {SMALL("qwen3", ", \"layer_types\": [\"full_attention\", \"linear_attention\"]"),
         "\"layer_types\" is not the same for all layers"},
        {CONFIG("llama", 16, 24, 2, 4, 3, 4, 300, 1000.0, ""), "4 heads share 3 of keys"},
        {CONFIG("llama", 16, 24, 2, 4, 2, 5, 300, 1000.0, ""), "the last is even"},
        {SMALL("qwen3", ", \"layer_types\": [\"full_attention\"]"),
         "\"layer_types\" is not the same"},
        {CONFIG("llama", 16, 24, 5000, 4, 2, 4, 300, 1000.0, ""), "is above 4096"},
        {CONFIG("llama", 16, 24, 0, 4, 2, 4, 300, 1000.0, ""),
         "\"num_hidden_layers\" is not a whole number from 1 on"},
        {CONFIG("llama", 16, 24, 2, 4, 2, 4, 300, 0.5, ""), "rope_theta is above 1"},
    };
    const char *folder = test_temporary_directory();
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        write_file(folder, "config.json", configs[i].config);
        CLI_CODE_IN(folder, &run, 2, "describe --model model");
        EXPECT_CONTAINS(run.output, configs[i].why);
    }
    write_file(folder, "config.json", SMALL("llama", ""));
    CLI_CODE_IN(folder, &run, 2, "describe --model model --width 16");
    EXPECT_CONTAINS(run.output, "--width means nothing to --model model");
    CLI_CODE_IN(folder, &run, 2, "describe --model model --context 8193");
    EXPECT_CONTAINS(run.output, "was made for at most 8192 tokens");
}

/* A byte that is changed or gone: read, or refused. */
static void test_damaged_configs_crash_nothing(void) {
    static const char config[] = SMALL("llama", TIED LLAMA3);
    const char *folder = test_temporary_directory();
    for (int i = 0; i < 60; i++) {
        char text[sizeof config];
        memcpy(text, config, sizeof config);
        size_t at = test_random_below(sizeof config - 1), count = sizeof config - 1 - at;
        if (test_random_below(2) == 0)
            text[at] = (char)(1 + test_random_below(255));
        else
            memmove(text + at, text + at + 1, count);
        write_file(folder, "config.json", text);
        cli_run_in(folder, &run, "describe --model model --context 8");
        if (!EXPECT(run.code == 0 || run.code == 2)) TEST_FAIL("%s", text);
    }
}

#define LIES(name, file) "\"" name "\": \"model-" file ".safetensors\""
#define PART(name) LIES(name, "1")
#define BLOCK(name) PART("model.layers.0." name ".weight") ", "
#define NORMS BLOCK("input_layernorm") BLOCK("post_attention_layernorm")
#define ATTENTION                                                                                  \
    BLOCK("self_attn.q_proj")                                                                      \
    BLOCK("self_attn.k_proj")                                                                      \
    BLOCK("self_attn.v_proj")                                                                      \
    LIES("model.layers.0.self_attn.o_proj.weight", "2") ", "
#define MLP BLOCK("mlp.gate_proj") BLOCK("mlp.up_proj") BLOCK("mlp.down_proj")
#define PARTS NORMS ATTENTION MLP PART("model.embed_tokens.weight") ", " PART("model.norm.weight")

static const char one_layer[] =
    CONFIG("mistral", 16, 24, 1, 4, 2, 4, 300, 1000.0, TIED ", \"sliding_window\": 5");

static void test_weights_are_read_in_one_file_or_in_shards(void) {
    static const struct {
        const char *index, *why; /* NULL: it is right */
    } indexes[] = {
        {"{\"metadata\": {}, \"weight_map\": {" PARTS "}}", NULL},
        {"{\"weight_map\": {" PARTS ", " PART("lm_head.weight") "}}",
         "'lm_head.weight' is not in the file that it names"},
        {"{\"weight_map\": {\"model.norm.weight\": \"../weights.safetensors\"}}",
         "'model.norm.weight' lies in no file's name"},
        {"{\"weight_map\": {\"model.norm.weight\": \"none.safetensors\"}}", "none.safetensors"},
        {"{\"weight_map\": {" PART("model.norm.weight") "}}",
         "tensor 'model.embed_tokens.weight' f32 [300, 16] is missing"},
        {"{\"weight_map\": []}", "'weight_map' is no list of tensors"},
        {"{", "is no JSON"},
    };
    const char *folder = test_temporary_directory();
    write_file(folder, "config.json", one_layer);
    CLI_CODE_IN(folder, &run, 0, "init --model model --out weights.safetensors --seed 3");
    CHECK(cli_do(folder, "echo 'a text of some bytes, not many' > text"));
    CLI_CODE_IN(folder, &run, 2, "eval --model model --load model --data text --context 8");
    EXPECT_CONTAINS(run.output, "without model.safetensors");
    CLI_CODE_IN(folder, &run, 0,
                "eval --model model --load weights.safetensors --data text --context 8 --json a");
    CHECK(cli_do(folder, "cp weights.safetensors model/model-1.safetensors; "
                         "cp weights.safetensors model/model-2.safetensors"));
    for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++) {
        write_file(folder, "model.safetensors.index.json", indexes[i].index);
        CLI_CODE_IN(folder, &run, indexes[i].why == NULL ? 0 : 2,
                    "eval --model model --data text --context 8 --json b");
        if (indexes[i].why != NULL) EXPECT_CONTAINS(run.output, indexes[i].why);
        if (indexes[i].why == NULL)
            EXPECT(cli_do(folder, "grep '\"loss\"' a > x; grep '\"loss\"' b | cmp x -"));
    }
    CHECK(cli_do(folder, "mv model/model-1.safetensors model/model.safetensors"));
    CLI_CODE_IN(folder, &run, 0, "eval --model model --data text --context 8 --json b");
    EXPECT(cli_do(folder, "grep '\"loss\"' a > x; grep '\"loss\"' b | cmp x -"));
}

/* Saves FOLDER/weights.safetensors as FOLDER/more.safetensors with what transformers' files may
 * have besides: angles, and a head that is the embedding, or one byte away from it. */
static void add_leftovers(const char *folder, bool same) {
    static float angles[2] = {1, 0.5F}, head[300 * 16];
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__safetensors_item items[32];
    char path[512];
    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    struct weir__safetensors *file = cli_open(path);
    CHECK(file != NULL);
    uint32_t count = weir__safetensors_count(file);
    CHECK(count + 2 <= sizeof items / sizeof items[0]);
    for (uint32_t i = 0; i < count; i++) {
        const struct weir__safetensor *from = weir__safetensors_get(file, i);
        items[i] = (struct weir__safetensors_item){
            .name = from->name, .dtype = from->dtype, .rank = from->rank, .data = from->data};
        memcpy(items[i].shape, from->shape, sizeof items[i].shape);
    }
    const struct weir__safetensor *tied = weir__safetensors_find(file, "model.embed_tokens.weight");
    CHECK(tied != NULL && tied->bytes == sizeof head);
    memcpy(head, tied->data, sizeof head);
    if (!same) ((unsigned char *)head)[sizeof head - 1] ^= 1;
    items[count++] = (struct weir__safetensors_item){
        .name = "lm_head.weight", .dtype = WEIR_F32, .rank = 2, .shape = {300, 16}, .data = head};
    items[count++] =
        (struct weir__safetensors_item){.name = "model.layers.0.self_attn.rotary_emb.inv_freq",
                                        .dtype = WEIR_F32,
                                        .rank = 1,
                                        .shape = {2},
                                        .data = angles};
    snprintf(path, sizeof path, "%s/more.safetensors", folder);
    EXPECT_STATUS(weir__safetensors_save(&io, path, items, count, NULL, 0), WEIR_OK);
    weir__safetensors_close(file);
}

static void test_what_transformers_files_have_besides_is_passed_over(void) {
    const char *folder = test_temporary_directory();
    write_file(folder, "config.json", one_layer);
    CLI_CODE_IN(folder, &run, 0, "init --model model --out weights.safetensors --seed 3");
    CHECK(cli_do(folder, "echo 'a text of some bytes, not many' > text"));
    add_leftovers(folder, true);
    CLI_CODE_IN(folder, &run, 0,
                "eval --model model --load more.safetensors --data text --context 8 --json a");
    add_leftovers(folder, false);
    CLI_CODE_IN(folder, &run, 2,
                "eval --model model --load more.safetensors --data text --context 8 --json a");
    EXPECT_CONTAINS(run.output, "tensor 'lm_head.weight' F32 [300, 16] is not the model's");
    EXPECT(strstr(run.output, "inv_freq") == NULL);
}

/* Who fine-tunes all of a model must not begin with drawn numbers. */
static void test_training_goes_on_with_the_folders_weights(void) {
    static const char train[] =
        "train --model model --data text --context 8 --batch 2 --chunks 1 --steps 1 --stages 1 "
        "--eval-batches 1 --sample 0 --bind none --threads-per-stage 1 --save-weights";
    const char *folder = test_temporary_directory();
    write_file(folder, "config.json", one_layer);
    CHECK(cli_do(folder, "seq 1 100 > text"));
    CLI_CODE_IN(folder, &run, 0, "init --model model --out model/model.safetensors --seed 3");
    CLI_CODE_IN(folder, &run, 0, "%s own", train);
    EXPECT_CONTAINS(run.output, "starts from model: all ");
    CHECK(cli_do(folder, "mv model/model.safetensors other.safetensors"));
    CLI_CODE_IN(folder, &run, 0, "%s given --load other.safetensors", train);
    CLI_CODE_IN(folder, &run, 0, "%s drawn", train);
    EXPECT_CONTAINS(run.output, "weights drawn by --seed: the folder has none");
    EXPECT(cli_do(folder, "cmp own given"));
    EXPECT(cli_do(folder, "! cmp -s own drawn"));
}

/* Keys and values that are kept, stage by stage, of a text longer than the window; one that is
 * given whole is continued as one of which a part was drawn. */
static void test_a_decoder_trains_and_continues_texts(void) {
    const char *folder = test_temporary_directory();
    write_file(folder, "config.json", SMALL("mistral", TIED ", \"sliding_window\": 5"));
    CHECK(cli_do(folder, "seq 1 300 > text"));
    CLI_CODE_IN(folder, &run, 0,
                "train --model model --data text --context 24 --batch 4 --chunks 2 --steps 3 "
                "--stages 2 --eval-batches 1 --sample 0 --bind none --threads-per-stage 1 "
                "--json log --save saved.safetensors");
    /* drawn as small as transformers draws: it begins with what knowing nothing costs */
    EXPECT_NEAR(cli_loss_of_line(folder, "log", 0), log(300), 0.05);
    CLI_CODE_IN(folder, &run, 0,
                "generate --model model --load saved.safetensors --context 24 --prompt-ids 5,6,7 "
                "--tokens 12 --temperature 0 --bind none --json one");
    CLI_CODE_IN(folder, &run, 0,
                "generate --model model --load saved.safetensors --context 24 --prompt-ids 5,6,7 "
                "--tokens 12 --temperature 0 --bind none --stages 2 --json two");
    EXPECT(cli_do(folder, "grep '\"end\"' one > x && grep '\"end\"' two | cmp x -"));
}

#define ON_GPUS " --device cuda:0,cuda:1 --stages 2 "
#define LEARN                                                                                      \
    "train --model model --data text --context 24 --batch 4 --chunks 2 --steps %d --lr 0.01 "      \
    "--warmup 0 --lr-schedule constant --eval-batches 1 --sample 0 --bind none "                   \
    "--threads-per-stage 1 "

/* The mean of what losses are from those on the CPU, by their size. */
static double distance_from_cpu(const char *folder, const char *name, size_t steps) {
    double sum = 0;
    for (size_t i = 0; i < steps; i++) {
        double wanted = cli_loss_of_line(folder, "cpu", i);
        sum += fabs(cli_loss_of_line(folder, name, i) - wanted) / wanted;
    }
    return sum / (double)steps;
}

/* In BF16 a unit of its rounding; of a window that is not kept it is five. */

static void test_a_decoder_does_the_same_on_gpus(void) {
    enum { STEPS = 12 };
    if (test_fake_cuda_path() == NULL) SKIP("the fake CUDA driver was not built");
    CHECK(setenv("WEIR_CUDA_DRIVER", test_fake_cuda_path(), 1) == 0);
    CHECK(setenv("WEIR_FAKE_CUDA_GPUS", "2", 1) == 0);
    const char *folder = test_temporary_directory();
    write_file(folder, "config.json",
               CONFIG("qwen3", 32, 48, 2, 4, 2, 8, 300, 1000.0,
                      TIED ", \"use_sliding_window\": true, \"sliding_window\": 5, "
                           "\"max_window_layers\": 0"));
    CHECK(cli_do(folder, "seq 1 300 > text"));
    CLI_CODE_IN(folder, &run, 0, LEARN "--save cpu.safetensors --json cpu", STEPS);
    CLI_CODE_IN(folder, &run, 0, LEARN ON_GPUS "--save gpu.safetensors --json gpu", STEPS);
    CLI_CODE_IN(folder, &run, 0, LEARN ON_GPUS "--dtype bf16 --json half", STEPS);
    EXPECT_CONTAINS(run.output, "attention, 24 tokens, 4 heads of 8 by 2 of keys: Weir's, on tens");
    EXPECT(cli_loss_of_line(folder, "cpu", STEPS - 1) < cli_loss_of_line(folder, "cpu", 0) / 2);
    EXPECT_NEAR(distance_from_cpu(folder, "gpu", STEPS), 0, 1e-6);
    EXPECT_NEAR(distance_from_cpu(folder, "half", STEPS), 0, 0x1p-8);
    static const char *const ways[] = {"", ON_GPUS, " --device cuda --dtype bf16", NULL};
    for (int i = 0; ways[i] != NULL; i++)
        CLI_CODE_IN(folder, &run, 0,
                    "generate --model model --load gpu.safetensors --context 24 --prompt-ids 5,6,7 "
                    "--tokens 12 --temperature 0 --bind none --json way%d %s",
                    i, ways[i]);
    EXPECT(cli_do(folder, "grep '\"end\"' way0 > x && grep '\"end\"' way1 | cmp x -"));
}

WEIR_TEST_SUITE(cli_decoder, TEST(published_decoders_have_their_parameters),
                TEST(configs_that_are_not_known_are_refused), TEST(damaged_configs_crash_nothing),
                TEST(weights_are_read_in_one_file_or_in_shards),
                TEST(what_transformers_files_have_besides_is_passed_over),
                TEST(training_goes_on_with_the_folders_weights),
                TEST(a_decoder_trains_and_continues_texts), TEST(a_decoder_does_the_same_on_gpus))

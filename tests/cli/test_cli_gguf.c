/* SPDX-License-Identifier: MIT */
/*
 * Goal: a GGUF file has the model's numbers, tokens and sizes where its format says, or there is
 * none. Method: a reader of the format's own, from its description; tensors against the safetensors
 * that they came from. That other readers take it is golden/gguf_oracle.py's.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cli_run run;

#define CONFIG(type, vocab, more)                                                                  \
    "{\"model_type\": \"" type "\", \"hidden_size\": 32, \"intermediate_size\": 48, "              \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "           \
    "\"vocab_size\": " vocab ", \"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5, "        \
    "\"rope_theta\": 1000.0, \"hidden_act\": \"silu\", \"eos_token_id\": 602" more "}"
#define TIED ", \"tie_word_embeddings\": true"
#define LLAMA3                                                                                     \
    ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "  \
    "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64}"

/* ---- a reader ---- */

struct reader {
    char *data;
    size_t bytes, at;
    size_t keys, tensors; /* where they begin */
    uint64_t key_count, tensor_count;
    size_t base; /* of tensors' data */
};

static uint64_t number(struct reader *r, size_t bytes) {
    uint64_t value = 0;
    if (!EXPECT(bytes <= r->bytes - r->at)) abort();
    memcpy(&value, r->data + r->at, bytes);
    r->at += bytes;
    return value;
}

static const char *text(struct reader *r, size_t *length) {
    *length = (size_t)number(r, 8);
    const char *at = r->data + r->at;
    if (!EXPECT(*length <= r->bytes - r->at)) abort();
    r->at += *length;
    return at;
}

static void pass(struct reader *r, uint64_t type) {
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    size_t length;
    if (type == 8) {
        (void)text(r, &length);
    } else if (type == 9) {
        uint64_t item = number(r, 4);
        for (uint64_t left = number(r, 8); left > 0; left--) pass(r, item);
    } else {
        (void)number(r, sizes[type]);
    }
}

/* Stands before the value of a key; its type, or 99. */
static uint64_t find_key(struct reader *r, const char *wanted) {
    r->at = r->keys;
    for (uint64_t k = 0; k < r->key_count; k++) {
        size_t length;
        const char *key = text(r, &length);
        uint64_t type = number(r, 4);
        if (length == strlen(wanted) && memcmp(key, wanted, length) == 0) return type;
        pass(r, type);
    }
    return 99;
}

static uint64_t u32_of(struct reader *r, const char *key) {
    return find_key(r, key) == 4 ? number(r, 4) : UINT64_MAX;
}

static bool text_is(struct reader *r, const char *key, const char *wanted) {
    size_t length;
    if (find_key(r, key) != 8) return false;
    const char *at = text(r, &length);
    return length == strlen(wanted) && memcmp(at, wanted, length) == 0;
}

struct found {
    uint64_t rank, shape[4], type;
    const char *data;
};

static bool find_tensor(struct reader *r, const char *wanted, struct found *found) {
    r->at = r->tensors;
    for (uint64_t t = 0; t < r->tensor_count; t++) {
        size_t length;
        const char *name = text(r, &length);
        found->rank = number(r, 4);
        for (uint64_t i = 0; i < found->rank; i++) found->shape[i] = number(r, 8);
        found->type = number(r, 4);
        uint64_t offset = number(r, 8);
        EXPECT(offset % 32 == 0 && r->base + offset < r->bytes);
        found->data = r->data + r->base + offset;
        if (length == strlen(wanted) && memcmp(name, wanted, length) == 0) return true;
    }
    return false;
}

static void open_file(struct reader *r, const char *folder, const char *name) {
    char path[512];
    struct found found;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    *r = (struct reader){.data = NULL};
    r->data = cli_read(path, &r->bytes);
    CHECK(r->data != NULL && r->bytes > 24 && memcmp(r->data, "GGUF", 4) == 0);
    r->at = 4;
    EXPECT_EQ_UINT(number(r, 4), 3);
    r->tensor_count = number(r, 8);
    r->key_count = number(r, 8);
    r->keys = r->at;
    (void)find_key(r, "");
    r->tensors = r->at;
    r->base = r->tensors;
    (void)find_tensor(r, "", &found);
    r->base = (r->at + 31) / 32 * 32;
}

/* ---- tests ---- */

static void check_f32(struct reader *r, struct weir__safetensors *file, const char *name,
                      const char *gguf, uint32_t heads) {
    struct found found;
    const struct weir__safetensor *tensor = weir__safetensors_find(file, name);
    CHECK(tensor != NULL && find_tensor(r, gguf, &found));
    EXPECT_EQ_UINT(found.type, 0);
    EXPECT_EQ_UINT(found.rank, tensor->rank);
    for (uint32_t i = 0; i < tensor->rank; i++)
        EXPECT_EQ_UINT(found.shape[tensor->rank - 1 - i], (uint64_t)tensor->shape[i]);
    size_t rows = (size_t)tensor->shape[0], width = tensor->bytes / rows;
    for (size_t row = 0; row < rows; row++) {
        size_t size = heads > 0 ? rows / heads : 1, in = row % size;
        size_t from = heads > 0 ? row - in + in / 2 + (in % 2) * (size / 2) : row;
        EXPECT(memcmp(found.data + row * width, (const char *)tensor->data + from * width, width) ==
               0);
    }
}

static void test_a_file_has_the_model(void) {
    const char *folder = cli_make_model(CONFIG("qwen2", "640", TIED), "qwen");
    struct reader r;
    char path[512];
    size_t length;
    cli_write(folder, "model/tokenizer_config.json",
              "{\"eos_token\": \"<|im_end|>\", \"pad_token\": {\"content\": \"<|endoftext|>\"}, "
              "\"chat_template\": [{\"name\": \"tools\", \"template\": \"{{ y }}\"}, "
              "{\"name\": \"default\", \"template\": \"{{ x }}\"}]}");
    CLI_CODE_IN(folder, &run, 0, "export --model model/ --format gguf --type f32 --out m.gguf");
    open_file(&r, folder, "m.gguf");
    CHECK_HELPERS();
    EXPECT(text_is(&r, "general.architecture", "qwen2"));
    EXPECT(text_is(&r, "general.name", "model"));
    EXPECT(text_is(&r, "tokenizer.ggml.model", "gpt2"));
    EXPECT(text_is(&r, "tokenizer.ggml.pre", "qwen2"));
    EXPECT(text_is(&r, "tokenizer.chat_template", "{{ x }}"));
    EXPECT_EQ_UINT(u32_of(&r, "qwen2.block_count"), 2);
    EXPECT_EQ_UINT(u32_of(&r, "qwen2.context_length"), 512);
    EXPECT_EQ_UINT(u32_of(&r, "qwen2.feed_forward_length"), 48);
    EXPECT_EQ_UINT(u32_of(&r, "qwen2.attention.head_count_kv"), 2);
    EXPECT_EQ_UINT(u32_of(&r, "tokenizer.ggml.eos_token_id"), 602);
    EXPECT_EQ_UINT(u32_of(&r, "tokenizer.ggml.padding_token_id"), 600);
    EXPECT_EQ_UINT(u32_of(&r, "tokenizer.ggml.bos_token_id"), UINT64_MAX);
    CHECK_EQ_UINT(find_key(&r, "tokenizer.ggml.tokens"), 9);
    CHECK(number(&r, 4) == 8 && number(&r, 8) == 640);
    for (int i = 0; i < 602; i++) (void)text(&r, &length);
    const char *token = text(&r, &length);
    EXPECT(length == 10 && memcmp(token, "<|im_end|>", 10) == 0);
    CHECK_EQ_UINT(find_key(&r, "tokenizer.ggml.token_type"), 9);
    CHECK(number(&r, 4) == 5 && number(&r, 8) == 640);
    for (int i = 0; i < 640; i++) {
        uint64_t kind = number(&r, 4);
        if (i < 600 || i == 602 || i >= 608) EXPECT_EQ_UINT(kind, i < 600 ? 1 : i == 602 ? 3 : 5);
    }
    snprintf(path, sizeof path, "%s/model/model.safetensors", folder);
    struct weir__safetensors *file = cli_open(path);
    EXPECT_EQ_UINT(r.tensor_count, weir__safetensors_count(file));
    check_f32(&r, file, "model.embed_tokens.weight", "token_embd.weight", 0);
    check_f32(&r, file, "model.layers.1.self_attn.q_proj.weight", "blk.1.attn_q.weight", 0);
    check_f32(&r, file, "model.layers.1.self_attn.k_proj.bias", "blk.1.attn_k.bias", 0);
    check_f32(&r, file, "model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight", 0);
    check_f32(&r, file, "model.norm.weight", "output_norm.weight", 0);
    weir__safetensors_close(file);
    free(r.data);
}

static void test_llamas_heads_are_in_its_order(void) {
    const char *folder = cli_make_model(CONFIG("llama", "620", LLAMA3), "smollm");
    struct reader r;
    struct found found;
    char path[512];
    CLI_CODE_IN(folder, &run, 0, "export --model model --format gguf --out m.gguf");
    open_file(&r, folder, "m.gguf");
    CHECK_HELPERS();
    EXPECT(text_is(&r, "general.architecture", "llama"));
    EXPECT(text_is(&r, "tokenizer.ggml.pre", "smollm"));
    snprintf(path, sizeof path, "%s/model/model.safetensors", folder);
    struct weir__safetensors *file = cli_open(path);
    check_f32(&r, file, "model.layers.1.self_attn.q_proj.weight", "blk.1.attn_q.weight", 4);
    check_f32(&r, file, "model.layers.1.self_attn.k_proj.weight", "blk.1.attn_k.weight", 2);
    check_f32(&r, file, "model.layers.1.self_attn.v_proj.weight", "blk.1.attn_v.weight", 0);
    check_f32(&r, file, "lm_head.weight", "output.weight", 0);
    weir__safetensors_close(file);
    CHECK(find_tensor(&r, "rope_freqs.weight", &found));
    CHECK_EQ_UINT(found.shape[0], 4);
    float factors[4];
    memcpy(factors, found.data, sizeof factors);
    /* a turn of the first takes 2 pi, of the last 2 pi 1000^(3/4) = 1117 tokens, above 64 */
    EXPECT_NEAR(factors[0], 1, 0);
    EXPECT_NEAR(factors[3], 8, 1e-6);
    free(r.data);
}

/* A normal half's value. */
static double half(const char *at) {
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    EXPECT((bits >> 10 & 31) > 0 && (bits >> 10 & 31) < 31);
    double size = ldexp(1024 + (bits & 1023), (bits >> 10 & 31) - 25);
    return bits >> 15 ? -size : size;
}

/* The scale is a half, off by 2^-11 of itself at most, and a number is off by half of it, and by
 * what that makes of 127 of it. */
static void check_block(const char *stored, const char *from) {
    const signed char *bytes = (const signed char *)stored + 2;
    float numbers[32];
    double most = 0, scale = half(stored);
    memcpy(numbers, from, sizeof numbers);
    for (int i = 0; i < 32; i++) most = fmax(most, fabs((double)numbers[i]));
    EXPECT_NEAR(scale, most / 127, most / 127 * 0x1.01p-11);
    for (int i = 0; i < 32; i++)
        EXPECT_NEAR(bytes[i] * scale, (double)numbers[i], scale * (0.5 + 128 * 0x1.01p-11));
}

static void test_blocks_of_bytes_are_near_the_numbers(void) {
    const char *folder = cli_make_model(CONFIG("qwen2", "640", TIED), "qwen");
    struct reader r;
    struct found found;
    char path[512];
    CLI_CODE_IN(folder, &run, 0, "export --model model --format gguf --type q8_0 --out m.gguf");
    EXPECT_CONTAINS(run.output, "2 matrices of rows that 32 does not divide stay f16");
    open_file(&r, folder, "m.gguf");
    CHECK_HELPERS();
    EXPECT_EQ_UINT(u32_of(&r, "general.file_type"), 7);
    CHECK(find_tensor(&r, "blk.0.ffn_down.weight", &found));
    EXPECT_EQ_UINT(found.type, 1);
    CHECK(find_tensor(&r, "blk.0.attn_q.bias", &found));
    EXPECT_EQ_UINT(found.type, 0);
    CHECK(find_tensor(&r, "blk.1.ffn_up.weight", &found));
    CHECK_EQ_UINT(found.type, 8);
    snprintf(path, sizeof path, "%s/model/model.safetensors", folder);
    struct weir__safetensors *file = cli_open(path);
    const struct weir__safetensor *tensor =
        weir__safetensors_find(file, "model.layers.1.mlp.up_proj.weight");
    for (size_t block = 0; block < tensor->bytes / 128; block++)
        check_block(found.data + block * 34, (const char *)tensor->data + block * 128);
    weir__safetensors_close(file);
    free(r.data);
}

/* As the tokenizer takes them, words are split and nothing is put before a text. */
static void test_flags_that_are_missing_are_as_for_the_tokenizer(void) {
    const char *folder = cli_make_model(CONFIG("llama", "700", ""), "gpt2");
    CLI_CODE_IN(folder, &run, 0, "export --model model --format gguf --out m.gguf");
    CHECK(cli_do(folder, "grep -q '\"use_regex\": *true' model/tokenizer.json"));
    CHECK(cli_do(folder, "sed -i 's/, *\"use_regex\": *true//g' model/tokenizer.json && "
                         "! grep -q use_regex model/tokenizer.json"));
    CLI_CODE_IN(folder, &run, 0, "export --model model --format gguf --out n.gguf");
    EXPECT(cli_do(folder, "cmp m.gguf n.gguf"));
}

static void test_what_llama_cpp_would_read_otherwise_is_refused(void) {
    const char *folder = cli_make_model(CONFIG("llama", "700", ""), "llama2");
    CLI_CODE_IN(folder, &run, 1, "export --model model --format gguf --out m.gguf");
    EXPECT_CONTAINS(run.output, "model/tokenizer.json: llama.cpp has no such pre_tokenizer");
    EXPECT(cli_do(folder, "test ! -e m.gguf && test ! -e m.gguf.partial"));
    static const char *const other_splits[] = {"s/p{N}|/p{N}{1,4}|/", "s/Isolated/Removed/"};
    for (size_t i = 0; i < sizeof other_splits / sizeof *other_splits; i++) {
        CHECK(cli_do(".", "cp tests/golden/tokenizers/qwen.json %s/model/tokenizer.json", folder));
        CLI_CODE_IN(folder, &run, 0, "export --model model --format gguf --out m.gguf");
        CHECK(cli_do(folder,
                     "cp model/tokenizer.json before && sed -i '%s' model/tokenizer.json "
                     "&& ! cmp -s before model/tokenizer.json",
                     other_splits[i]));
        CLI_CODE_IN(folder, &run, 1, "export --model model --format gguf --out m.gguf");
        EXPECT_CONTAINS(run.output, "model/tokenizer.json: llama.cpp has no such pre_tokenizer");
    }
    folder = cli_make_model(CONFIG("llama", "600", ""), "qwen");
    CLI_CODE_IN(folder, &run, 1, "export --model model --format gguf --out m.gguf");
    EXPECT_CONTAINS(run.output, "the tokenizer has 608 tokens, the model's vocabulary 600");
    folder = cli_make_model(CONFIG("qwen3", "640", ", \"attention_bias\": true, \"head_dim\": 8"),
                            "qwen");
    CLI_CODE_IN(folder, &run, 1, "export --model model --format gguf --out m.gguf");
    EXPECT_CONTAINS(run.output, "llama.cpp has no qwen3 with such biases");
    folder = cli_make_model(CONFIG("qwen2", "640", LLAMA3), "qwen");
    CLI_CODE_IN(folder, &run, 1, "export --model model --format gguf --out m.gguf");
    EXPECT_CONTAINS(run.output, "llama.cpp has no qwen2 with a rope_type of llama3");
    CLI_CODE_IN(folder, &run, 2, "export --model model --format hf --type q8_0 --out m");
    EXPECT_CONTAINS(run.output, "--type q8_0: safetensors have no such numbers");
}

WEIR_TEST_SUITE(cli_gguf, TEST(a_file_has_the_model), TEST(llamas_heads_are_in_its_order),
                TEST(blocks_of_bytes_are_near_the_numbers),
                TEST(flags_that_are_missing_are_as_for_the_tokenizer),
                TEST(what_llama_cpp_would_read_otherwise_is_refused))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: conversations become the numbers that transformers makes of them, and of these just the
 * replies with the token that ends each are learnt. Method: random conversations in each form
 * (tests/golden/make_chats.py); of what is learnt, the text.
 */
#include "harness.h"
#include "io/io_memory.h"
#include "text/chat_template.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/golden/tokenizers/"

struct family {
    const char *file;
    struct tokenizer *tokenizer;
    struct text_encoder *encoder;
};

static struct weir__io test_io(struct weir_error *error) {
    return (struct weir__io){test_allocator(), NULL, error};
}

/* The file with the names of the tokens that Llama 3's templates write; they are shorter. */
static void name_tokens(struct weir__bytes *file) {
    static const char *const names[] = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
    for (int i = 0; i < 3; i++) {
        char old[40];
        int length = snprintf(old, sizeof old, "<|reserved_special_token_%d|>", i);
        for (char *at; (at = strstr(file->data, old)) != NULL;) {
            size_t shorter = strlen(names[i]);
            memcpy(at, names[i], shorter);
            memmove(at + shorter, at + length, strlen(at + length) + 1);
        }
    }
    file->count = strlen(file->data);
}

static void open_family(struct family *family, const char *name) {
    struct weir_error error = {0};
    struct weir__io io = test_io(&error);
    struct weir__bytes file = {0};
    char path[96];
    snprintf(path, sizeof path, FOLDER "%s.json", name);
    CHECK_OK(weir__file_read(&io, path, 1 << 20, &file));
    name_tokens(&file);
    io_memory_file(file.data, file.count);
    io.calls = io_memory_calls();
    CHECK_OK(tokenizer_open(&io, "t.json", &family->tokenizer));
    CHECK_OK(text_encoder_new(family->tokenizer, &family->encoder));
    weir__bytes_release(io.allocator, &file);
    family->file = name;
}

static void close_family(struct family *family) {
    text_encoder_destroy(family->encoder);
    tokenizer_close(family->tokenizer);
}

static size_t messages_of(const json_t *list, struct chat_message *messages) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i), *text = json_object_get(one, "content");
        EXPECT(chat_role_find(json_string_value(json_object_get(one, "role")), &messages[i].role));
        messages[i].text = json_string_value(text);
        messages[i].bytes = json_string_length(text);
    }
    return json_array_size(list);
}

static void compare(const struct chat_tokens *tokens, const json_t *ids, size_t line) {
    bool same = tokens->count == json_array_size(ids);
    for (size_t i = 0; same && i < tokens->count; i++)
        same = tokens->ids[i] == (uint32_t)json_integer_value(json_array_get(ids, i));
    if (!same) printf("line %zu\n", line);
    EXPECT(same);
}

/* Each reply's last learnt token, and no other one that is learnt, ends the turn. */
static void check_learnt(const struct family *family, const struct chat_template *form,
                         const struct chat_message *messages, size_t count,
                         const struct chat_tokens *tokens) {
    uint32_t end = tokenizer_find(family->tokenizer, chat_template_end(form));
    size_t replies = 0, ends = 0;
    for (size_t i = 0; i < count; i++) replies += messages[i].role == CHAT_ASSISTANT;
    for (size_t i = 0; i < tokens->count; i++) {
        bool last = tokens->learnt[i] && (i + 1 == tokens->count || !tokens->learnt[i + 1]);
        ends += last;
        EXPECT((tokens->learnt[i] && tokens->ids[i] == end) == last);
    }
    EXPECT_EQ_UINT(ends, replies);
}

static void check_line(const struct family *families, const json_t *root, size_t line) {
    struct weir_error error = {0};
    struct weir__io io = test_io(&error);
    struct chat_message messages[16];
    struct chat_tokens tokens = {0};
    size_t count = messages_of(json_object_get(root, "messages"), messages);
    const char *name = json_string_value(json_object_get(root, "form"));
    const struct chat_template *form = chat_template_named(name);
    CHECK(form != NULL);
    const struct family *family = &families[name[0] == 'l' ? 0 : name[0] == 'q' ? 1 : 2];
    CHECK_OK(chat_template_check(&io, form, family->tokenizer));
    CHECK_OK(chat_encode(&io, form, family->encoder, messages, count, false, &tokens));
    compare(&tokens, json_object_get(root, "ids"), line);
    check_learnt(family, form, messages, count, &tokens);
    CHECK_OK(chat_encode(&io, form, family->encoder, messages, count, true, &tokens));
    compare(&tokens, json_object_get(root, "prompt"), line);
    chat_tokens_clean_up(&io, &tokens);
}

static void test_conversations_have_the_numbers_of_transformers(void) {
    static const char *const names[] = {"llama3", "qwen", "smollm"};
    struct family families[3];
    FILE *file = fopen("tests/golden/chats.golden", "r");
    CHECK(file != NULL);
    for (int i = 0; i < 3; i++) open_family(&families[i], names[i]);
    size_t lines = 0;
    json_t *root;
    json_error_t error;
    while ((root = json_loadf(file, JSON_DISABLE_EOF_CHECK, &error)) != NULL) {
        check_line(families, root, ++lines);
        json_decref(root);
    }
    fclose(file);
    EXPECT(lines >= 40);
    for (int i = 0; i < 3; i++) close_family(&families[i]);
}

static void test_what_is_no_known_template_is_refused(void) {
    struct weir_error error = {0};
    struct weir__io io = {test_allocator(), io_memory_calls(), &error};
    const struct chat_template *form;
    struct family family;
    struct chat_tokens tokens = {0};
    enum chat_role role;
    static const char text[] = "{{ bos_token }}";
    open_family(&family, "smollm");
    io_memory_file(text, sizeof text - 1);
    EXPECT_STATUS(chat_template_find(&io, "f", &form), WEIR_ERR_UNSUPPORTED);
    EXPECT(strstr(error.message, "f/chat_template.jinja") != NULL);
    EXPECT(strstr(error.message, "--template (" CHAT_TEMPLATE_NAMES ")") != NULL);
    EXPECT(chat_template_named("chatml") == NULL);
    EXPECT(!chat_role_find("tool", &role));
    form = chat_template_named("llama3");
    EXPECT_STATUS(chat_template_check(&io, form, family.tokenizer), WEIR_ERR_UNSUPPORTED);
    EXPECT(strstr(error.message, "writes <|begin_of_text|>") != NULL);
    EXPECT_STATUS(chat_encode(&io, form, family.encoder, NULL, 0, true, &tokens),
                  WEIR_ERR_ARGUMENT);
    close_family(&family);
}

/* Text of any bytes, with what a template looks for among them. */
static size_t hostile(char text[64]) {
    static const char *const parts[] = {
        "<think>",      "</think>", "\n",   "<|im_end|>",      " ",
        "\xE2\x80\xA8", "\xE3",     "\xC2", "<tool_response>", "e\xCC\x81"};
    size_t bytes = 0;
    for (uint64_t left = test_random_below(5); left > 0; left--) {
        const char *part = parts[test_random_below(10)];
        memcpy(text + bytes, part, strlen(part));
        bytes += strlen(part);
    }
    if (bytes > 0 && test_random_below(2) == 0)
        text[test_random_below(bytes)] = (char)test_random_below(256);
    return bytes;
}

static void test_a_thousand_hostile_conversations_are_written(void) {
    static const char *const names[] = {"qwen2.5", "qwen3", "smollm2"};
    struct weir_error error = {0};
    struct weir__io io = test_io(&error);
    struct family family;
    struct chat_tokens tokens = {0};
    open_family(&family, "qwen");
    for (int round = 0; round < 1000; round++) {
        char text[6][64];
        struct chat_message messages[6];
        size_t count = 1 + test_random_below(6), replies = 0, ends = 0;
        for (size_t i = 0; i < count; i++) {
            size_t bytes = hostile(text[i]);
            messages[i] =
                (struct chat_message){(enum chat_role)test_random_below(3), text[i], bytes};
            replies += messages[i].role == CHAT_ASSISTANT;
        }
        const struct chat_template *form = chat_template_named(names[round % 3]);
        CHECK_OK(chat_encode(&io, form, family.encoder, messages, count, false, &tokens));
        uint32_t end = tokenizer_find(family.tokenizer, chat_template_end(form));
        for (size_t i = 0; i < tokens.count; i++) ends += tokens.learnt[i] && tokens.ids[i] == end;
        EXPECT(ends >= replies && (replies > 0 || ends == 0));
    }
    chat_tokens_clean_up(&io, &tokens);
    close_family(&family);
}

WEIR_TEST_SUITE(chat_template, TEST(conversations_have_the_numbers_of_transformers),
                TEST(a_thousand_hostile_conversations_are_written),
                TEST(what_is_no_known_template_is_refused))

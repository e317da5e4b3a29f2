/* SPDX-License-Identifier: MIT */
/*
 * Goal: text becomes the tokens that the library tokenizers gives, which stand for the same bytes
 * and become the same text again. Method: small tokenizers in the layouts of six families and what
 * the library makes of hostile text with them, written once by tests/golden/make_tokenizers.py;
 * failed allocations; and for long words the steps that it takes.
 */
#include "harness.h"
#include "steps.h"
#include "text/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const families[] = {"gpt2", "gpt2-prefix", "llama3", "qwen", "smollm", "llama2"};
enum { FAMILIES = sizeof families / sizeof families[0] };

static void path_of(const char *family, const char *ending, char path[128]) {
    snprintf(path, 128, "tests/golden/tokenizers/%s%s", family, ending);
}

/* NULL, and the test failed, where it does not open. */
static struct tokenizer *open_family(const char *family) {
    struct weir_error error = {0};
    const struct weir__io io = {.allocator = test_allocator(), .error = &error};
    struct tokenizer *tokenizer = NULL;
    char path[128];
    path_of(family, ".json", path);
    if (tokenizer_open(&io, path, &tokenizer) != WEIR_OK) TEST_FAIL("%s: %s", path, error.message);
    return tokenizer;
}

static size_t from_hex(const char *hex, char *bytes) {
    size_t count = strlen(hex) / 2;
    for (size_t i = 0; i < count; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        bytes[i] = (char)strtol(pair, NULL, 16);
    }
    return count;
}

/* ---- what the library gives ---- */

struct expected {
    char text[8192], back[16384];
    size_t text_bytes, back_bytes;
    unsigned flags;
    const json_t *ids, *places;
};

static void read_line(const json_t *line, struct expected *expected) {
    expected->text_bytes = from_hex(json_string_value(json_array_get(line, 0)), expected->text);
    expected->back_bytes = from_hex(json_string_value(json_array_get(line, 5)), expected->back);
    expected->flags = (json_is_true(json_array_get(line, 1)) ? TEXT_ADD_SPECIAL : 0u) |
                      (json_is_true(json_array_get(line, 2)) ? TEXT_SPECIAL_AS_TEXT : 0u);
    expected->ids = json_array_get(line, 3);
    expected->places = json_array_get(line, 4);
}

static void check_tokens(struct text_encoder *encoder, const struct expected *expected) {
    struct text_tokens tokens;
    unsigned flags = expected->flags | TEXT_SPANS;
    CHECK_OK(text_encode(encoder, expected->text, expected->text_bytes, flags, &tokens));
    CHECK_EQ_UINT(tokens.count, json_array_size(expected->ids));
    for (size_t i = 0; i < tokens.count; i++) {
        CHECK_EQ_INT(tokens.ids[i], json_integer_value(json_array_get(expected->ids, i)));
        CHECK_EQ_INT(tokens.spans[i].begin,
                     json_integer_value(json_array_get(expected->places, 2 * i)));
        CHECK_EQ_INT(tokens.spans[i].end,
                     json_integer_value(json_array_get(expected->places, 2 * i + 1)));
    }
    /* without spans the text is not copied */
    CHECK_OK(text_encode(encoder, expected->text, expected->text_bytes, expected->flags, &tokens));
    CHECK_EQ_UINT(tokens.count, json_array_size(expected->ids));
    for (size_t i = 0; i < tokens.count; i++)
        CHECK_EQ_INT(tokens.ids[i], json_integer_value(json_array_get(expected->ids, i)));
    CHECK(tokens.spans == NULL);
}

/* Token by token; every part is sound by itself. */
static void check_text(struct text_decoder *decoder, const struct expected *expected) {
    size_t at = 0, bytes;
    const char *text;
    for (size_t i = 0; i <= json_array_size(expected->ids); i++) {
        uint32_t id = (uint32_t)json_integer_value(json_array_get(expected->ids, i));
        if (i < json_array_size(expected->ids))
            CHECK_OK(text_decoder_put(decoder, id, &text, &bytes));
        else
            CHECK_OK(text_decoder_end(decoder, &text, &bytes));
        CHECK(at + bytes <= expected->back_bytes);
        if (bytes > 0) CHECK_EQ_BYTES(text, expected->back + at, bytes);
        CHECK(bytes == 0 || ((unsigned char)text[0] & 0xc0) != 0x80);
        at += bytes;
    }
    CHECK_EQ_UINT(at, expected->back_bytes);
}

static void check_family(const char *family) {
    struct tokenizer *tokenizer = open_family(family);
    struct text_encoder *encoder = NULL;
    struct text_decoder *decoder = NULL;
    struct expected *expected = calloc(1, sizeof *expected);
    char path[128], *line = NULL;
    size_t room = 0, lines = 0;
    path_of(family, ".golden", path);
    FILE *file = fopen(path, "r");
    CHECK(tokenizer && file && expected);
    EXPECT_STATUS(text_encoder_new(tokenizer, &encoder), WEIR_OK);
    EXPECT_STATUS(text_decoder_new(tokenizer, false, &decoder), WEIR_OK);
    while (!test_has_failed() && getline(&line, &room, file) > 0) {
        json_t *root = json_loads(line, 0, NULL);
        read_line(root, expected);
        check_tokens(encoder, expected);
        check_text(decoder, expected);
        json_decref(root);
        lines++;
        if (test_has_failed()) TEST_FAIL("%s: line %zu", path, lines);
    }
    EXPECT(lines > 20);
    fclose(file);
    free(line);
    free(expected);
    text_decoder_destroy(decoder);
    text_encoder_destroy(encoder);
    tokenizer_close(tokenizer);
}

static void test_text_becomes_the_librarys_tokens_and_text_again(void) {
    for (size_t i = 0; i < FAMILIES; i++) {
        check_family(families[i]);
        CHECK_HELPERS();
    }
}

/* ---- tokens ---- */

static void test_tokens_are_known_by_name_and_number(void) {
    struct tokenizer *tokenizer = open_family("qwen");
    struct tokenizer_token token;
    CHECK(tokenizer);
    uint32_t end = tokenizer_find(tokenizer, "<|im_end|>"),
             tool = tokenizer_find(tokenizer, "<think>");
    uint32_t blank = tokenizer_find(tokenizer, "\u0120");
    EXPECT_EQ_UINT(tokenizer_size(tokenizer), 608);
    EXPECT(tokenizer_get(tokenizer, end, &token) && token.added && token.special);
    EXPECT_EQ_STR(token.text, "<|im_end|>");
    EXPECT(tokenizer_get(tokenizer, tool, &token) && token.added && !token.special);
    EXPECT(tokenizer_get(tokenizer, blank, &token) && !token.added && token.piece_bytes == 1);
    EXPECT(token.piece[0] == ' ');
    EXPECT_EQ_UINT(tokenizer_find(tokenizer, "<|nothing|>"), TOKENIZER_NONE);
    EXPECT(!tokenizer_get(tokenizer, 608, &token) && !tokenizer_get(tokenizer, UINT32_MAX, &token));
    tokenizer_close(tokenizer);
    tokenizer_close(NULL);
}

static void test_special_tokens_may_give_nothing(void) {
    struct tokenizer *tokenizer = open_family("qwen");
    struct text_decoder *decoder = NULL;
    const char *text;
    size_t bytes;
    CHECK(tokenizer);
    EXPECT_STATUS(text_decoder_new(tokenizer, true, &decoder), WEIR_OK);
    uint32_t end = tokenizer_find(tokenizer, "<|im_end|>"),
             tool = tokenizer_find(tokenizer, "<think>");
    EXPECT_STATUS(text_decoder_put(decoder, end, &text, &bytes), WEIR_OK);
    EXPECT_EQ_UINT(bytes, 0);
    EXPECT_STATUS(text_decoder_put(decoder, tool, &text, &bytes), WEIR_OK);
    EXPECT_EQ_UINT(bytes, 7);
    EXPECT_STATUS(text_decoder_put(decoder, 608, &text, &bytes), WEIR_ERR_NOT_FOUND);
    text_decoder_destroy(decoder);
    text_decoder_destroy(NULL);
    tokenizer_close(tokenizer);
}

/* A byte of a character that needs two is held back; a blank that Strip takes is not told. */
static void test_parts_of_a_character_are_held_back(void) {
    struct tokenizer *tokenizer = open_family("llama2");
    struct text_decoder *decoder = NULL;
    const char *text;
    size_t bytes;
    CHECK(tokenizer);
    EXPECT_STATUS(text_decoder_new(tokenizer, false, &decoder), WEIR_OK);
    uint32_t first = tokenizer_find(tokenizer, "<0xC5>"),
             second = tokenizer_find(tokenizer, "<0x93>");
    uint32_t blank = tokenizer_find(tokenizer, "\u2581");
    EXPECT_STATUS(text_decoder_put(decoder, blank, &text, &bytes), WEIR_OK);
    EXPECT_EQ_UINT(bytes, 0);
    EXPECT_STATUS(text_decoder_put(decoder, first, &text, &bytes), WEIR_OK);
    EXPECT_EQ_UINT(bytes, 0);
    EXPECT_STATUS(text_decoder_put(decoder, second, &text, &bytes), WEIR_OK);
    EXPECT_EQ_UINT(bytes, 0);
    EXPECT_STATUS(text_decoder_put(decoder, blank, &text, &bytes), WEIR_OK);
    EXPECT(bytes == 3 && memcmp(text, "\u0153 ", 3) == 0);
    EXPECT_STATUS(text_decoder_put(decoder, first, &text, &bytes), WEIR_OK);
    EXPECT_STATUS(text_decoder_end(decoder, &text, &bytes), WEIR_OK);
    EXPECT(bytes == 3 && memcmp(text, "\ufffd", 3) == 0);
    text_decoder_destroy(decoder);
    tokenizer_close(tokenizer);
}

/* ---- memory ---- */

static int try_all(const char *path) {
    const struct weir__io io = {.allocator = test_allocator()};
    static const char text[] =
        "Cafe\u0301 <|im_end|>\xff 12 two\n words and a longer one: internationalisation";
    struct tokenizer *tokenizer = NULL;
    struct text_encoder *encoder = NULL;
    struct text_decoder *decoder = NULL;
    struct text_tokens tokens;
    const char *back;
    size_t bytes;
    int status = tokenizer_open(&io, path, &tokenizer);
    if (status != WEIR_OK) return status;
    status = text_encoder_new(tokenizer, &encoder);
    if (status != WEIR_OK) goto end;
    status = text_encode(encoder, text, sizeof text - 1, TEXT_ADD_SPECIAL | TEXT_SPANS, &tokens);
    if (status != WEIR_OK) goto end;
    status = text_decoder_new(tokenizer, false, &decoder);
    for (size_t i = 0; status == WEIR_OK && i < tokens.count; i++)
        status = text_decoder_put(decoder, tokens.ids[i], &back, &bytes);
end:
    text_decoder_destroy(decoder);
    text_encoder_destroy(encoder);
    tokenizer_close(tokenizer);
    return status;
}

static void test_without_memory_nothing_is_left(void) {
    static const char *const tried[] = {"qwen", "llama2", "gpt2-prefix"};
    for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
        uint64_t k = 1;
        char path[128];
        path_of(tried[i], ".json", path);
        CHECK_OK(try_all(path));
        for (bool fired = true; fired; k++) {
            test_allocator_fail_at(k, false);
            int status = try_all(path);
            fired = test_allocator_fired();
            test_allocator_fail_at(0, false);
            CHECK_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
            CHECK_EQ_UINT(test_allocator_live_blocks(), 0);
        }
        CHECK(k > 20);
    }
}

/* ---- long words ---- */

enum { LONG = 1 << 13 };

/* Steps for `count` bytes of a text that repeats `part`. */
static uint64_t steps_for(struct text_encoder *encoder, const char *part, size_t count) {
    char *text = malloc(count);
    struct text_tokens tokens;
    for (size_t i = 0; i < count; i++) text[i] = part[i % strlen(part)];
    uint64_t before = test_steps();
    EXPECT_STATUS(text_encode(encoder, text, count, TEXT_SPANS, &tokens), WEIR_OK);
    free(text);
    return test_steps() - before;
}

static void test_a_long_word_takes_no_longer_than_its_length(void) {
    static const char *const parts[] = {"a",     "kalomi",        "\u4e2d", " ",
                                        "<|im_", "a\u0316\u0301", "\xff"};
    for (size_t f = 0; f < FAMILIES; f++) {
        struct tokenizer *tokenizer = open_family(families[f]);
        struct text_encoder *encoder = NULL;
        CHECK(tokenizer);
        EXPECT_STATUS(text_encoder_new(tokenizer, &encoder), WEIR_OK);
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            uint64_t less = steps_for(encoder, parts[i], LONG);
            uint64_t more = steps_for(encoder, parts[i], 4 * LONG);
            if (more > 6 * less + 10000)
                TEST_FAIL("%s: %zu: %llu steps, then %llu", families[f], i,
                          (unsigned long long)less, (unsigned long long)more);
        }
        text_encoder_destroy(encoder);
        tokenizer_close(tokenizer);
    }
}

WEIR_TEST_SUITE(tokenizer, TEST(text_becomes_the_librarys_tokens_and_text_again),
                TEST(tokens_are_known_by_name_and_number), TEST(special_tokens_may_give_nothing),
                TEST(parts_of_a_character_are_held_back), TEST(without_memory_nothing_is_left),
                TEST(a_long_word_takes_no_longer_than_its_length))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: a reply is the text of its tokens up to what ends it, and nothing is given out that is not
 * part of it. Method: texts as bytes and by tokenizers, token by token, with stop strings of all
 * sorts; the stops are looked for again by a plain search in the whole text.
 */
#include "harness.h"
#include "text/reply.h"

#include <stdio.h>
#include <string.h>

#define FOLDER "tests/golden/tokenizers/"
enum { SHOWN = 512 };

static struct weir__io test_io(void) {
    return (struct weir__io){.allocator = test_allocator()};
}

static bool show(char *shown, const char *text, size_t bytes) {
    size_t used = strlen(shown);
    if (!EXPECT(used + bytes < SHOWN)) return false;
    memcpy(shown + used, text, bytes);
    shown[used + bytes] = '\0';
    return true;
}

/* Gives all tokens that it takes; what was shown, which must be what the reply holds. */
static void feed(struct reply *reply, const uint32_t *tokens, size_t count, char shown[SHOWN]) {
    const char *text;
    size_t bytes;
    shown[0] = '\0';
    reply_begin(reply);
    for (size_t i = 0; i < count && reply->end == REPLY_GOES_ON; i++) {
        CHECK_OK(reply_put(reply, tokens[i], &text, &bytes));
        if (!show(shown, text, bytes)) return;
    }
    CHECK_OK(reply_finish(reply, &text, &bytes));
    show(shown, text, bytes);
    CHECK_EQ_UINT(reply->text.count, strlen(shown));
    CHECK_EQ_BYTES(reply->text.data, shown, strlen(shown));
}

static void feed_bytes(struct reply *reply, const char *text, char shown[SHOWN]) {
    uint32_t tokens[SHOWN];
    for (size_t i = 0; text[i] != '\0'; i++) tokens[i] = (uint8_t)text[i];
    feed(reply, tokens, strlen(text), shown);
}

/* ---- stop strings ---- */

static void test_a_text_ends_before_the_first_stop(void) {
    static const char *const stops[] = {"\n\n", "abcX", "bc", "END"};
    static const struct {
        const char *text, *shown;
        bool stopped;
    } cases[] = {{"one\ntwo\n\nthree", "one\ntwo", true},
                 {"one\n", "one\n", false},
                 {"\n\n", "", true},
                 {"xabY", "xabY", false},
                 {"xabcX", "x", true},
                 {"xabcY", "xa", true},
                 {"xabc", "xa", true},
                 {"ENENDX", "EN", true},
                 {"EEEN", "EEEN", false},
                 {"", "", false}};
    struct weir__io io = test_io();
    struct reply reply;
    char shown[SHOWN];
    CHECK_OK(reply_init(&io, NULL, stops, 4, &reply));
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !test_has_failed(); i++) {
        feed_bytes(&reply, cases[i].text, shown);
        CHECK_EQ_STR(shown, cases[i].shown);
        CHECK_EQ_INT(reply.end, cases[i].stopped ? REPLY_STOP : REPLY_GOES_ON);
    }
    reply_clean_up(&reply);
}

/* Where the first of them begins; the text's length where there is none. */
static size_t find_first(const char *text, const char *const *stops, uint32_t count) {
    size_t first = strlen(text);
    for (uint32_t i = 0; i < count; i++) {
        const char *at = strstr(text, stops[i]);
        if (at != NULL && (size_t)(at - text) < first) first = (size_t)(at - text);
    }
    return first;
}

static void draw_text(char *text, size_t most) {
    size_t length = test_random_below(most);
    for (size_t i = 0; i < length; i++) text[i] = "ab"[test_random_below(2)];
    text[length] = '\0';
}

static void test_random_stops_are_found_wherever_they_are(void) {
    struct weir__io io = test_io();
    for (int i = 0; i < 2000 && !test_has_failed(); i++) {
        char text[40], stop[8] = "", shown[SHOWN];
        const char *stops[] = {stop};
        struct reply reply;
        draw_text(text, sizeof text);
        while (stop[0] == '\0') draw_text(stop, sizeof stop);
        CHECK_OK(reply_init(&io, NULL, stops, 1, &reply));
        feed_bytes(&reply, text, shown);
        size_t wanted = find_first(text, stops, 1);
        CHECK_EQ_UINT(strlen(shown), wanted);
        CHECK_EQ_BYTES(shown, text, wanted);
        CHECK_EQ_INT(reply.end, wanted < strlen(text) ? REPLY_STOP : REPLY_GOES_ON);
        reply_clean_up(&reply);
    }
}

/* A terminal would take the second half of "\u009b" for a control sequence of its own. */
static void test_characters_of_several_bytes_come_whole(void) {
    static const uint8_t text[] = "a\u00e9\xc2\x9b\U0001F600\xf0\x9f"
                                  "b\xc2";
    static const size_t told[] = {1, 0, 2, 0, 2, 0, 0, 0, 4, 0, 0, 3, 0};
    struct weir__io io = test_io();
    struct reply reply;
    const char *part;
    size_t bytes;
    CHECK_OK(reply_init(&io, NULL, NULL, 0, &reply));
    reply_begin(&reply);
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        CHECK_OK(reply_put(&reply, text[i], &part, &bytes));
        CHECK_EQ_UINT(bytes, told[i]);
    }
    CHECK_OK(reply_finish(&reply, &part, &bytes));
    CHECK_EQ_UINT(bytes, 1);
    reply_clean_up(&reply);
}

/* ---- tokenizers ---- */

static struct model_text open_family(const char *family) {
    struct weir_error error = {0};
    struct weir__io io = {.allocator = test_allocator(), .error = &error};
    struct model_text text = {.begin = TOKENIZER_NONE, .separator = TOKENIZER_NONE};
    char path[128];
    snprintf(path, sizeof path, FOLDER "%s.json", family);
    if (!EXPECT_STATUS(tokenizer_open(&io, path, &text.tokenizer), WEIR_OK))
        TEST_FAIL("%s", error.message);
    return text;
}

/* Of a text's tokens `whole` comes back, or what stands before the stop. */
static void check_family(const char *family, const char *text, const char *whole,
                         const char *stop) {
    struct weir__io io = test_io();
    struct model_text model = open_family(family);
    struct text_encoder *encoder = NULL;
    struct text_tokens tokens;
    struct reply reply;
    char shown[SHOWN];
    CHECK_OK(text_encoder_new(model.tokenizer, &encoder));
    CHECK_OK(text_encode(encoder, text, strlen(text), 0, &tokens));
    CHECK_OK(reply_init(&io, &model, &stop, stop != NULL, &reply));
    feed(&reply, tokens.ids, tokens.count, shown);
    size_t wanted = find_first(whole, &stop, stop != NULL);
    EXPECT_EQ_UINT(strlen(shown), wanted);
    EXPECT_EQ_BYTES(shown, whole, wanted);
    reply_clean_up(&reply);
    text_encoder_destroy(encoder);
    model_text_close(&model);
}

static void test_characters_of_several_tokens_come_whole(void) {
    static const char text[] = "h\u00e9 \U0001F600\U0001F601 ka lo\n\u4e2d\u56fd.";
    static const char *const stops[] = {NULL, "\U0001F601", "lo\n", "\u56fd", "\U0001F602"};
    static const char *const families[] = {"qwen", "llama3", "gpt2"};
    for (size_t f = 0; f < 3; f++)
        for (size_t i = 0; i < 5 && !test_has_failed(); i++)
            check_family(families[f], text, text, stops[i]);
}

/* Llama 2's text begins with a blank that the decoder takes off; a text that goes on keeps it. */
static void test_a_text_that_goes_on_keeps_its_first_blank(void) {
    check_family("llama2", "ka lo", " ka lo", NULL);
}

static void test_ends_and_unknown_numbers_are_no_text(void) {
    struct weir__io io = test_io();
    struct model_text model = open_family("qwen");
    uint32_t end = tokenizer_find(model.tokenizer, "<|im_end|>"),
             blank = tokenizer_find(model.tokenizer, "<|im_start|>"),
             letter = tokenizer_find(model.tokenizer, "a");
    const uint32_t tokens[] = {letter, 100000, blank, letter, end, letter};
    struct reply reply;
    char shown[SHOWN];
    CHECK_OK(reply_init(&io, &model, NULL, 0, &reply));
    feed(&reply, tokens, 4, shown);
    CHECK_EQ_STR(shown, "aa");
    model.ends[model.end_count++] = end;
    feed(&reply, tokens, 6, shown);
    CHECK_EQ_STR(shown, "aa");
    CHECK_EQ_INT(reply.end, REPLY_TOKEN);
    reply_clean_up(&reply);
    model_text_close(&model);
}

WEIR_TEST_SUITE(reply, TEST(a_text_ends_before_the_first_stop),
                TEST(random_stops_are_found_wherever_they_are),
                TEST(characters_of_several_bytes_come_whole),
                TEST(characters_of_several_tokens_come_whole),
                TEST(a_text_that_goes_on_keeps_its_first_blank),
                TEST(ends_and_unknown_numbers_are_no_text))

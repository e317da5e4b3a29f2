/* SPDX-License-Identifier: MIT */
/*
 * Goal: what is wrong with a line of conversations is said with file, line and a way out; whatever
 * the bytes, a file is read or refused. Method: a table of lines; a thousand files with bytes
 * changed, taken away and added; a failure of each allocation.
 */
#include "io/words_place.h"
#include "harness.h"

#include <stdio.h>
#include <string.h>

#define GOOD "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
#define SAID(messages) "{\"messages\": [" messages "]}"
#define USER "{\"role\": \"user\", \"content\": \"a\"}, "

static void test_what_is_no_conversation_is_refused_by_its_line(void) {
    static const struct {
        const char *line, *why;
    } lines[] = {
        {"{\"messages\": [", "is no JSON: "},
        {"{\"prompt\": \"a\", \"prompt\": \"b\", \"completion\": \"c\"}", "is no JSON: duplicate"},
        {"{\"prompt\": \"\xff\", \"completion\": \"b\"}", "is no JSON: unable to decode byte 0xff"},
        {"{\"prompt\": \"\\ud800\", \"completion\": \"b\"}", "is no JSON: "},
        {GOOD "x", "is no JSON: "}, /* its line is the fourth */
        {"\"text\"", "is no JSON: "},
        {"[]", "is no object in JSON"},
        {"{}", "there are neither \"messages\" nor \"prompt\" and \"completion\""},
        {"{\"text\": \"a\"}", "there are neither"},
        {"{\"prompt\": \"a\"}", "\"prompt\" and \"completion\" are not both texts"},
        {"{\"prompt\": [], \"completion\": \"a\"}", "are not both texts"},
        {"{\"messages\": []}", "\"messages\" is no list of messages"},
        {"{\"messages\": {}}", "\"messages\" is no list of messages"},
        {SAID("1"), "message 1 is no object"},
        {SAID(USER "{\"content\": \"b\"}"), "message 2 has no \"role\""},
        {SAID(USER "{\"role\": \"tool\", \"content\": \"b\"}"),
         "message 2 has the role \"tool\": only system, user and assistant are taken"},
        {SAID(USER "{\"role\": \"user\\u0000\", \"content\": \"b\"}"), "message 2 has the role"},
        {SAID(USER "{\"role\": \"assistant\"}"), "message 2 has no text as its \"content\""},
        {SAID(USER "{\"role\": \"assistant\", \"content\": [{\"type\": \"text\"}]}"),
         "message 2 has no text as its \"content\""},
        {SAID(USER "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": []}"),
         "message 2 has \"tool_calls\", which would be left out"},
        {"{\"tools\": [{}], \"messages\": [" USER "{\"role\": \"assistant\", \"content\": \"\"}]}",
         "\"tools\" would be left out"},
        {SAID("{\"role\": \"user\", \"content\": \"a\"}"), "there is no reply (role assistant)"},
        {"{\"prompt\": \"a a a a a a a a a a a a a a a a a a a a a a\", \"completion\": \"b\"}",
         "tokens, but a row of --context 40 takes 41: give --context "},
    };
    struct words_place place;
    char text[1024];
    words_begin(&place, "qwen", "qwen3");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(text, sizeof text, GOOD "\n%s\n" GOOD "{\n", lines[i].line);
        words_write(&place, "chats.jsonl", text, strlen(text));
        EXPECT_STATUS(words_open(&place, "chats.jsonl", "", 40), WEIR_ERR_CONFIG);
        dataset_check_fault(&place.data, lines[i].why);
        dataset_check_fault(&place.data,
                            i == 4 ? "chats.jsonl, line 4: " : "chats.jsonl, line 3: ");
        EXPECT(place.data.faults.count >= 2); /* the last line's is listed, too */
        dataset_end(&place.data);
    }
    words_write(&place, "chats.jsonl", "\n \r\n", 4);
    EXPECT_STATUS(words_open(&place, "chats.jsonl", "", 40), WEIR_ERR_CONFIG);
    dataset_check_fault(&place.data, "chats.jsonl: there is no conversation");
    words_end(&place);
}

static void test_fields_that_say_nothing_are_left_alone(void) {
    static const char text[] =
        "{\"id\": 7, \"tools\": null, \"source\": {\"a\": []}, \"messages\": ["
        "{\"role\": \"user\", \"content\": \"a\\u0000b\", \"name\": null}, "
        "{\"content\": \"b\", \"role\": \"assistant\"}]}\r\n" GOOD;
    struct words_place place;
    words_begin(&place, "qwen", "qwen3");
    words_write(&place, "chats.jsonl", text, sizeof text - 1);
    EXPECT_STATUS(words_open(&place, "chats.jsonl", "", 64), WEIR_OK);
    words_end(&place);
}

/* A byte that is changed, gone or new, up to three times. */
static size_t mutate(char *text, size_t bytes, size_t capacity) {
    static const char marks[] = "{}[]\":,\\u0x\n\0\x80\xff";
    for (uint64_t left = 1 + test_random_below(3); left > 0 && bytes > 0; left--) {
        size_t at = test_random_below(bytes);
        char mark = marks[test_random_below(sizeof marks - 1)];
        switch (test_random_below(4)) {
        case 0: text[at] = mark; break;
        case 1: text[at] = (char)test_random_below(256); break;
        case 2:
            memmove(text + at, text + at + 1, bytes - at - 1);
            bytes--;
            break;
        default:
            if (bytes == capacity) break;
            memmove(text + at + 1, text + at, bytes - at);
            text[at] = mark;
            bytes++;
        }
    }
    return bytes;
}

static void test_a_thousand_changed_files_are_read_or_refused(void) {
    static const char original[] =
        SAID("{\"role\": \"system\", \"content\": \"kalo\"}, " USER
             "{\"role\": \"assistant\", \"content\": \"\\u00e9 <|im_end|> \xc3\xa9\"}") "\n" GOOD
            SAID(USER "{\"role\": \"assistant\", \"content\": \"<think>x</think>y\"}") "\n";
    struct words_place place;
    char text[sizeof original + 8];
    int read = 0;
    words_begin(&place, "qwen", "qwen3");
    place.data.whole = true;
    for (int i = 0; i < 1000; i++) {
        memcpy(text, original, sizeof original - 1);
        size_t bytes = mutate(text, sizeof original - 1, sizeof text);
        words_write(&place, "chats.jsonl", text, bytes);
        int status = words_open(&place, "chats.jsonl", "", 64);
        EXPECT(status == WEIR_OK || status == WEIR_ERR_CONFIG);
        EXPECT((status == WEIR_OK) == (place.data.faults.count == 0));
        read += status == WEIR_OK;
        dataset_end(&place.data);
    }
    EXPECT(read >= 10 && read <= 500);
    words_end(&place);
}

static void test_every_allocation_may_fail(void) {
    struct words_place place;
    words_begin(&place, "qwen", "qwen3");
    words_write(&place, "chats.jsonl", GOOD GOOD GOOD, 3 * (sizeof GOOD - 1));
    words_write(&place, "text", "some words of a text, then more", 31);
    for (int kind = 0; kind < 2; kind++) {
        place.data.whole = true;
        for (uint64_t k = 1; k < 500; k++) {
            test_allocator_fail_at(k, false);
            int status = words_open(&place, kind == 0 ? "chats.jsonl" : "text", "", 40);
            bool fired = test_allocator_fired();
            test_allocator_fail_at(0, false);
            EXPECT_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
            dataset_end(&place.data);
            if (!fired) break;
            if (k == 499) TEST_FAIL("more than %d allocations", 498);
        }
    }
    words_end(&place);
}

WEIR_TEST_SUITE(conversations, TEST(what_is_no_conversation_is_refused_by_its_line),
                TEST(fields_that_say_nothing_are_left_alone),
                TEST(a_thousand_changed_files_are_read_or_refused), TEST(every_allocation_may_fail))

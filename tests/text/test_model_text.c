/* SPDX-License-Identifier: MIT */
/*
 * Goal: a folder's tokens that begin and end a text are those that its files name, and what is
 * none is refused by file and field. Method: folders written here around a real tokenizer.json.
 */
#include "harness.h"
#include "io/io_faults.h"
#include "text/model_text.h"

#include <stdio.h>
#include <string.h>

static const char *folder;

static void write_file(const char *name, const char *text) {
    char path[512];
    io_make_file(folder, name, text, strlen(text), path);
}

static void make_folder(const char *family) {
    char output[256];
    folder = test_temporary_directory();
    EXPECT_EQ_INT(test_shell(output, sizeof output,
                             "cp tests/golden/tokenizers/%s.json %s/tokenizer.json", family,
                             folder),
                  0);
}

static void remove_file(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    EXPECT(remove(path) == 0);
}

static void test_ends_are_those_of_the_files(void) {
    struct weir_error error = {0};
    struct weir__io io = {test_allocator(), NULL, &error};
    struct model_text text = {0};
    make_folder("qwen");
    EXPECT(model_text_is(&io, folder));
    CHECK_OK(model_text_open(&io, folder, &text));
    EXPECT(text.begin == TOKENIZER_NONE && text.end_count == 0 && text.form == NULL);
    EXPECT_EQ_UINT(text.separator, 600);
    model_text_close(&text);
    write_file("config.json", "{\"eos_token_id\": 602, \"bos_token_id\": 600, \"x\": [1]}");
    CHECK_OK(model_text_open(&io, folder, &text));
    EXPECT(text.begin == 600 && text.end_count == 1 && text.ends[0] == 602);
    CHECK_OK(model_text_choose(&io, folder, 3, &text));
    EXPECT_EQ_STR(chat_template_name(text.form), "qwen2.5");
    EXPECT_EQ_UINT(text.end_count, 1); /* which ends its turns, too */
    model_text_close(&text);
    write_file("generation_config.json",
               "{\"eos_token_id\": [600, 5, 600], \"bos_token_id\": null}");
    CHECK_OK(model_text_open(&io, folder, &text));
    EXPECT(text.begin == 600 && text.end_count == 2 && text.ends[0] == 600 && text.ends[1] == 5);
    CHECK_OK(model_text_choose(&io, folder, 3, &text));
    EXPECT(model_text_ends(&text, 602) && model_text_ends(&text, 5) && !model_text_ends(&text, 6));
    model_text_close(&text);
    make_folder("llama2");
    CHECK_OK(model_text_open(&io, folder, &text));
    EXPECT_EQ_UINT(text.separator, 2);
    model_text_close(&text);
}

static void test_names_are_those_of_the_templates(void) {
    char names[128] = "";
    EXPECT_EQ_STR(model_text_templates[0], "auto");
    for (size_t i = 1; model_text_templates[i] != NULL; i++) {
        EXPECT(chat_template_named(model_text_templates[i]) != NULL);
        if (i > 1) strcat(names, ", ");
        strcat(names, model_text_templates[i]);
    }
    EXPECT_EQ_STR(names, CHAT_TEMPLATE_NAMES);
}

static void test_what_is_no_token_is_refused(void) {
    static const char *const fields[] = {
        "{\"eos_token_id\": -1}",         "{\"eos_token_id\": [1, \"x\"]}",
        "{\"bos_token_id\": 1.5}",        "{\"bos_token_id\": [600]}",
        "{\"eos_token_id\": 4294967295}", "[]",
        "{\"eos_token_id\": 1",           "{\"a\": 1, \"a\": 2}"};
    struct weir_error error = {0};
    struct weir__io io = {test_allocator(), NULL, &error};
    struct model_text text = {0};
    make_folder("qwen");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const char *file = i % 2 == 0 ? "config.json" : "generation_config.json";
        write_file(file, fields[i]);
        EXPECT_STATUS(model_text_open(&io, folder, &text), WEIR_ERR_FORMAT);
        EXPECT_CONTAINS(error.message, file);
        remove_file(file);
    }
    CHECK_OK(model_text_open(&io, folder, &text));
    EXPECT_STATUS(model_text_choose(&io, folder, 0, &text), WEIR_ERR_NOT_FOUND);
    EXPECT_STATUS(model_text_choose(&io, folder, 1, &text), WEIR_ERR_UNSUPPORTED);
    EXPECT(text.form == NULL);
    model_text_close(&text);
    remove_file("tokenizer.json");
    EXPECT(!model_text_is(&io, folder));
    EXPECT_STATUS(model_text_open(&io, folder, &text), WEIR_ERR_IO);
    EXPECT(text.tokenizer == NULL);
}

WEIR_TEST_SUITE(model_text, TEST(ends_are_those_of_the_files),
                TEST(names_are_those_of_the_templates), TEST(what_is_no_token_is_refused))

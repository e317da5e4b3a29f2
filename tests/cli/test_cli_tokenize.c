/* SPDX-License-Identifier: MIT */
/*
 * Goal: text becomes numbers, one a line, and numbers become the text again, from files and pipes;
 * what cannot be is refused. Method: the installed command on the small tokenizers of
 * tests/golden/tokenizers. That the numbers are right is tests/text's to check.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A folder with a tokenizer.json, "" (and the test failed) if it cannot be made. */
static const char *folder_of(const char *family) {
    const char *folder = test_temporary_directory();
    char here[512];
    if (folder == NULL || getcwd(here, sizeof here) == NULL) return "";
    EXPECT(cli_do(folder, "cp '%s/tests/golden/tokenizers/%s.json' tokenizer.json", here, family));
    EXPECT(cli_do(folder, "printf \"It's 12 <|im_end|> caf\\303\\251\\n\" >text"));
    return folder;
}

static void test_text_becomes_numbers_and_text_again(void) {
    struct cli_run run;
    const char *folder = folder_of("qwen");
    CLI_CODE_IN(folder, &run, 0, "tokenize --model . --file text >numbers");
    CHECK(cli_do(folder, "[ $(wc -l <numbers) -gt 5 ] && ! grep -qv '^[0-9]*$' numbers"));
    CLI_CODE_IN(folder, &run, 0, "tokenize --model tokenizer.json --decode <numbers >again");
    CHECK(cli_do(folder, "cmp text again"));
    CLI_CODE_IN(folder, &run, 0, "tokenize --model . --decode --skip-special <numbers >less");
    CHECK(cli_do(folder, "sed 's/<|im_end|>//' text | cmp - less"));
    CLI_CODE_IN(folder, &run, 0, "tokenize --model . --special-as-text --file text >more");
    CHECK(cli_do(folder, "[ $(wc -l <more) -gt $(wc -l <numbers) ]"));
}

static void test_spans_are_bytes_of_the_text(void) {
    struct cli_run run;
    const char *folder = folder_of("llama3");
    CLI_CODE_IN(folder, &run, 0, "tokenize --model . --spans --add-special <text >spans");
    /* the first token is the template's, the last one the newline; all bytes are some token's */
    CHECK(cli_do(folder, "head -n 1 spans | grep -q '^[0-9]* 0 0$'"));
    CHECK(cli_do(folder, "tail -n 1 spans | grep -q \" $(wc -c <text)$\""));
}

static void test_what_cannot_be_is_refused(void) {
    struct cli_run run;
    const char *folder = folder_of("llama2");
    CLI_CODE_IN(folder, &run, 2, "tokenize --file text");
    CHECK_CONTAINS(run.output, "weir: tokenize: --model is missing");
    CLI_CODE_IN(folder, &run, 2, "tokenize --model . --decode --spans");
    CHECK_CONTAINS(run.output, "leave --spans");
    CLI_CODE_IN(folder, &run, 2, "tokenize --model . --skip-special");
    CHECK_CONTAINS(run.output, "--skip-special is for --decode");
    CLI_CODE_IN(folder, &run, 2, "tokenize --model nothing");
    CHECK_CONTAINS(run.output, "nothing");
    CLI_CODE_IN(folder, &run, 1, "tokenize --model . --decode <text");
    CHECK_CONTAINS(run.output, "no number");
    CHECK(cli_do(folder, "echo 1 100000 >many"));
    CLI_CODE_IN(folder, &run, 1, "tokenize --model . --decode --file many");
    CHECK_CONTAINS(run.output, "no token has the number 100000");
    CHECK(cli_do(folder, "sed -i 's/\"BPE\"/\"Unigram\"/' tokenizer.json"));
    CLI_CODE_IN(folder, &run, 1, "tokenize --model . --file text");
    CHECK_CONTAINS(run.output, "./tokenizer.json: model: the type 'Unigram' is not taken");
}

WEIR_TEST_SUITE(cli_tokenize, TEST(text_becomes_numbers_and_text_again),
                TEST(spans_are_bytes_of_the_text), TEST(what_cannot_be_is_refused))

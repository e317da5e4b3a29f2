/* SPDX-License-Identifier: MIT */
/*
 * Goal: a conversation by a model's chat template goes as its page says: replies end where the
 * model ends them, what is known is not read again, a full context is told and made room in, Ctrl-C
 * ends a reply and then the command. Method: the installed command with a model that says what the
 * test wants (cli_talker.h), from a pipe and on a terminal.
 */
#include "cli/cli_talker.h"
#include "cli/cli_terminal.h"
#include "io/io_faults.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define NEEDS_COMMAND                                                                              \
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'")
#define OPTIONS " --template qwen2.5 --temperature 0" CLI_TALKER_PLACE
#define CHAT "chat --model model" OPTIONS
#define SAYS "Hi \U0001F600you!"

static struct cli_run run;
static struct cli_terminal terminal;

static const char *make_talker(const char *says, const char *then, uint32_t context) {
    const char *folder = test_temporary_directory();
    cli_make_talker(folder, &(struct cli_talker){"qwen", says, then, context});
    return folder;
}

/* What `weir CHAT OPTIONS` says to the messages (printf's format), its notes in FOLDER/said, its
 * lines for programs in FOLDER/j. */
static json_t *talk(const char *folder, const char *messages, const char *options) {
    char path[512];
    cli_run_in(folder, &run,
               "--version >/dev/null; printf '%s' | '%s/bin/weir' " CHAT " --json j %s 2>said",
               messages, test_install_prefix(), options);
    cli_code_at(__FILE__, __LINE__, &run, 0);
    snprintf(path, sizeof path, "%s/j", folder);
    return cli_json_lines(path);
}

static int64_t number(const json_t *lines, size_t line, const char *key) {
    return (int64_t)cli_number(json_array_get(lines, line), key);
}

static const char *text(const json_t *lines, size_t line, const char *key) {
    return json_string_value(json_object_get(json_array_get(lines, line), key));
}

static void expect_note(const char *folder, const char *note) {
    char path[512];
    snprintf(path, sizeof path, "%s/said", folder);
    char *said = cli_read(path, NULL);
    if (said != NULL) EXPECT_CONTAINS(said, note);
    free(said);
}

/* ---- from a pipe ---- */

static void test_each_line_has_a_reply(void) {
    NEEDS_COMMAND;
    const char *folder = make_talker(SAYS, "<|im_end|>", 500);
    json_t *lines = talk(folder, "hello\\n\\n  \\nand\\\\\\nyou?\\r\\nlast", "");
    CHECK_EQ_STR(run.output, SAYS "\n" SAYS "\n" SAYS "\n");
    CHECK_EQ_UINT(json_array_size(lines), 4);
    EXPECT_EQ_STR(text(lines, 0, "message"), "hello");
    EXPECT_EQ_STR(text(lines, 1, "message"), "and\nyou?");
    EXPECT_EQ_STR(text(lines, 2, "message"), "last");
    for (size_t i = 0; i < 3; i++) {
        EXPECT_EQ_STR(text(lines, i, "reply"), SAYS);
        EXPECT_EQ_STR(text(lines, i, "end"), "end");
    }
    json_decref(lines);
    expect_note(folder, "weir: chat: 3 replies, ");
}

/* All but the token that ended the reply, which was drawn but not read. */
static void test_what_is_known_is_not_read_again(void) {
    NEEDS_COMMAND;
    const char *folder = make_talker(SAYS, "<|im_end|>", 500);
    json_t *lines = talk(folder, "one\\ntwo\\nthree\\n", "--stages 2 --chunks 2");
    EXPECT_EQ_INT(number(lines, 0, "known_tokens"), 0);
    int64_t read = number(lines, 0, "prompt_tokens");
    for (size_t i = 1; i < 3; i++) {
        int64_t known = number(lines, i - 1, "prompt_tokens") + number(lines, i - 1, "tokens") - 1;
        EXPECT_EQ_INT(number(lines, i, "known_tokens"), known);
        EXPECT(number(lines, i, "prompt_tokens") > known);
        read += number(lines, i, "prompt_tokens") - known;
    }
    EXPECT_EQ_INT(
        (int64_t)cli_number(json_object_get(json_array_get(lines, 3), "summary"), "prompt_tokens"),
        read);
    json_decref(lines);
}

static void test_a_system_text_and_a_new_conversation(void) {
    NEEDS_COMMAND;
    const char *folder = make_talker(SAYS, "<|im_end|>", 500);
    json_t *plain = talk(folder, "one\\n", "");
    int64_t tokens = number(plain, 0, "prompt_tokens");
    json_decref(plain);
    json_t *lines = talk(folder, "one\\n/new\\none\\n/newer\\n", "--system 'Be brief.'");
    CHECK_EQ_UINT(json_array_size(lines), 4);
    EXPECT(number(lines, 0, "prompt_tokens") != tokens);
    EXPECT_EQ_INT(number(lines, 1, "prompt_tokens"), number(lines, 0, "prompt_tokens"));
    EXPECT_EQ_INT(number(lines, 1, "known_tokens"), number(lines, 0, "prompt_tokens") - 1);
    EXPECT_EQ_STR(text(lines, 2, "message"), "/newer");
    json_decref(lines);
}

static void test_replies_end_at_stops_and_counts(void) {
    NEEDS_COMMAND;
    const char *folder = make_talker(SAYS, "<|im_end|>", 500);
    json_t *lines = talk(folder, "one\\n", "--stop 'zzz' --stop yo");
    EXPECT_EQ_STR(text(lines, 0, "reply"), "Hi \U0001F600");
    EXPECT_EQ_STR(text(lines, 0, "end"), "stop");
    json_decref(lines);
    lines = talk(folder, "one\\n", "--tokens 4"); /* in the middle of a character */
    EXPECT_EQ_STR(text(lines, 0, "reply"), "Hi \uFFFD");
    EXPECT_EQ_STR(text(lines, 0, "end"), "tokens");
    EXPECT_EQ_INT(number(lines, 0, "tokens"), 4);
    json_decref(lines);
    expect_note(folder, "note: the reply ends after --tokens 4");
}

static void test_a_full_context_ends_a_reply(void) {
    NEEDS_COMMAND;
    const char *folder = make_talker("abc ", NULL, 500);
    json_t *lines = talk(folder, "one\\n", "--context 60 --system S");
    EXPECT_EQ_STR(text(lines, 0, "end"), "context");
    EXPECT_EQ_INT(number(lines, 0, "prompt_tokens") + number(lines, 0, "tokens"), 61);
    json_decref(lines);
    expect_note(folder, "note: the context of 60 tokens is full: the reply ends here");
}

static void test_the_oldest_messages_make_room(void) {
    NEEDS_COMMAND;
    const char *folder = make_talker(SAYS, "<|im_end|>", 500);
    json_t *lines = talk(folder, "1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n", "--context 130 --system S");
    CHECK_EQ_UINT(json_array_size(lines), 9);
    int64_t left_out = 0, most = 0;
    for (size_t i = 0; i < 8; i++) {
        int64_t here = number(lines, i, "left_out"), tokens = number(lines, i, "prompt_tokens");
        EXPECT_EQ_STR(text(lines, i, "reply"), SAYS);
        EXPECT(tokens <= 98);
        EXPECT(here == 0 || tokens <= 65);
        EXPECT_EQ_INT(here % 2, 0);
        left_out += here;
        if (most < tokens) most = tokens;
    }
    EXPECT(left_out > 0 && left_out < 14);
    EXPECT(most > 65);
    json_decref(lines);
    expect_note(folder, "note: the context of 130 tokens is full: the oldest ");
}

static void test_a_message_that_is_too_long_is_taken_back(void) {
    NEEDS_COMMAND;
    const char *folder = make_talker(SAYS, "<|im_end|>", 500);
    json_t *lines = talk(folder,
                         "1\\n1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 "
                         "27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45\\n2\\n",
                         "--context 100 --system S");
    CHECK_EQ_UINT(json_array_size(lines), 3);
    EXPECT_EQ_STR(text(lines, 1, "message"), "2");
    json_decref(lines);
    expect_note(folder, " tokens, but the context has 100: it is left out: shorten it");
}

static void test_broken_text_is_mended(void) {
    NEEDS_COMMAND;
    const char *folder = make_talker(SAYS, "<|im_end|>", 500);
    json_t *lines = talk(folder, "a\\303(\\200\\n", "");
    EXPECT_EQ_STR(text(lines, 0, "message"), "a\uFFFD(\uFFFD");
    json_decref(lines);
}

/* ---- what it depends on ---- */

static void test_replies_depend_on_conversation_and_seed_alone(void) {
    NEEDS_COMMAND;
    const char *folder = make_talker(SAYS, "<|im_end|>", 500);
    const char *warm = "--temperature 3 --min-p 0.001 --repetition-penalty 1.1 --tokens 9";
    char cut[256];
    CLI_CODE_IN(folder, &run, 0, "init --model model --seed 3 --out model/model.safetensors");
    json_t *wanted = talk(folder, "one\\ntwo\\n", warm);
    snprintf(cut, sizeof cut, "%s --stages 3 --workers 1 --schedule gpipe --chunks 2", warm);
    json_t *same = talk(folder, "one\\ntwo\\n", cut);
    snprintf(cut, sizeof cut, "%s --seed 2", warm);
    json_t *other = talk(folder, "one\\ntwo\\n", cut);
    for (size_t i = 0; i < 2; i++) {
        EXPECT_EQ_STR(text(same, i, "reply"), text(wanted, i, "reply"));
        EXPECT(strcmp(text(other, i, "reply"), text(wanted, i, "reply")) != 0);
    }
    json_decref(wanted);
    json_decref(same);
    json_decref(other);
}

/* ---- on a terminal ---- */

static void test_ctrl_c_ends_a_reply_and_then_the_command(void) {
    NEEDS_COMMAND;
    const char *folder = make_talker("abc ", NULL, 1000000);
    CHECK(cli_terminal_start(&terminal, "NO_COLOR=1 TERM=xterm",
                             "chat --model %s/model" OPTIONS " --context 60000 --json %s/j", folder,
                             folder));
    bool shown = cli_terminal_wait(&terminal, "> ");
    cli_terminal_type(&terminal, "go\n");
    shown = shown && cli_terminal_wait(&terminal, "abc abc abc abc ");
    cli_terminal_interrupt(&terminal);
    shown = shown && cli_terminal_wait_times(&terminal, "> ", 2);
    cli_sleep_ms(100); /* what comes at once is the same request */
    cli_terminal_type(&terminal, "again\n");
    shown = shown && cli_terminal_wait_times(&terminal, "> abc abc ", 2);
    cli_terminal_interrupt(&terminal);
    shown = shown && cli_terminal_wait_times(&terminal, "\n> ", 2);
    cli_sleep_ms(100);
    cli_terminal_interrupt(&terminal);
    CHECK_EQ_INT(cli_terminal_end(&terminal), 130);
    CHECK(shown);
    CHECK_CONTAINS(terminal.output, "weir: chat: 2 replies, ");
    char path[512];
    snprintf(path, sizeof path, "%s/j", folder);
    json_t *lines = cli_json_lines(path);
    CHECK_EQ_UINT(json_array_size(lines), 3);
    EXPECT_EQ_STR(text(lines, 0, "end"), "interrupted");
    EXPECT_EQ_STR(text(lines, 1, "message"), "again");
    EXPECT(number(lines, 1, "known_tokens") > number(lines, 0, "prompt_tokens"));
    json_decref(lines);
}

static void test_ctrl_c_at_the_prompt_and_sigterm_end_the_command(void) {
    NEEDS_COMMAND;
    const char *folder = make_talker("abc ", NULL, 1000000);
    for (int term = 0; term < 2; term++) {
        CHECK(cli_terminal_start(&terminal, "NO_COLOR=1 TERM=xterm",
                                 "chat --model %s/model" OPTIONS " --context 60000 --json %s/j%d",
                                 folder, folder, term));
        bool shown = cli_terminal_wait(&terminal, "> ");
        if (term) cli_terminal_type(&terminal, "go\n");
        shown = shown && (!term || cli_terminal_wait(&terminal, "abc abc "));
        if (term)
            kill(terminal.process, SIGTERM);
        else
            cli_terminal_interrupt(&terminal);
        CHECK_EQ_INT(cli_terminal_end(&terminal), term ? 143 : 130);
        CHECK(shown);
        char path[512];
        snprintf(path, sizeof path, "%s/j%d", folder, term);
        json_t *lines = cli_json_lines(path); /* what was said, and the summary */
        CHECK_EQ_UINT(json_array_size(lines), term ? 2 : 1);
        json_decref(lines);
    }
}

/* ---- refusals ---- */

static void test_what_cannot_chat_is_refused(void) {
    NEEDS_COMMAND;
    static const struct {
        const char *arguments, *message;
    } refusals[] = {
        {"chat", "--model gpt is no folder of Hugging Face's transformers with a config.json and a "
                 "tokenizer.json, which a chat needs: give --model FOLDER"},
        {"chat --model none", "--model none is no folder"},
        {CHAT " --top-k 609", "--top-k 609: tokens are drawn among 608"},
        {CHAT " --stop ''", "--stop '': nothing comes before that"},
        {CHAT " --min-p 1.5", "--min-p 1.5: too large: give at most 1"},
        {CHAT " --context 501", "was made for at most 500 tokens"},
        {CHAT " --stages 9", "--stages 9: the model has 5 layers"},
        {CHAT " --load none", "--load none: No such file or directory"},
        {CHAT " --json none/j", "--json none/j: its folder"},
    };
    static const char config[] =
        "{\"model_max_length\": 1000000000000000019884624838656, \"add_bos_token\": false}";
    const char *folder = make_talker(SAYS, "<|im_end|>", 500);
    char path[512];
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        CLI_CODE_IN(folder, &run, 2, "%s </dev/null", refusals[i].arguments);
        EXPECT_CONTAINS(run.output, refusals[i].message);
    }
    CLI_CODE_IN(folder, &run, 1, "chat --model model </dev/null"); /* it has no template */
    EXPECT_CONTAINS(run.output,
                    "model: has no chat template, neither in chat_template.jinja nor in");
    io_make_file(folder, "model/tokenizer_config.json", config, sizeof config - 1, path);
    CLI_CODE_IN(folder, &run, 1, "chat --model model </dev/null");
    EXPECT_CONTAINS(run.output, ": name one by --template (llama3");
}

WEIR_TEST_SUITE(cli_chat, TEST(each_line_has_a_reply), TEST(what_is_known_is_not_read_again),
                TEST(a_system_text_and_a_new_conversation), TEST(replies_end_at_stops_and_counts),
                TEST(a_full_context_ends_a_reply), TEST(the_oldest_messages_make_room),
                TEST(a_message_that_is_too_long_is_taken_back), TEST(broken_text_is_mended),
                TEST(replies_depend_on_conversation_and_seed_alone),
                TEST(ctrl_c_ends_a_reply_and_then_the_command),
                TEST(ctrl_c_at_the_prompt_and_sigterm_end_the_command),
                TEST(what_cannot_chat_is_refused))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: `weir generate` continues prompts as its help says: the model is taken from the file, a
 * text does not depend on what stands beside it or on the pipeline, and what cannot be is refused.
 * Method: the installed command with a small GPT, trained for a few steps or just initialised.
 */
#include "cli/cli_talker.h"
#include "cli/cli_terminal.h"
#include "io/io_faults.h"
#include "text/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL "--layers 2 --width 16 --heads 2 --context 40"
#define QUIET " --threads-per-stage 1 --bind none"
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* Weights of SMALL in a directory of the test's; their path into `path`. */
static const char *make_weights(char path[512], const char *options) {
    struct cli_run run;
    const char *directory = test_temporary_directory();
    snprintf(path, 512, "%s/w.safetensors", directory);
    cli_run_at(__FILE__, __LINE__, &run, "init " SMALL " --out %s %s", path, options);
    cli_code_at(__FILE__, __LINE__, &run, 0);
    return directory;
}

/* The lines of `generate ARGUMENTS --json -`; json_decref it. */
static json_t *generate(const char *directory, const char *arguments) {
    struct cli_run run;
    char path[512];
    snprintf(path, sizeof path, "%s/out", directory);
    cli_run_at(__FILE__, __LINE__, &run, "generate %s" QUIET " --json - >%s", arguments, path);
    cli_code_at(__FILE__, __LINE__, &run, 0);
    return cli_json_lines(path);
}

static const json_t *text_at(const json_t *lines, size_t index, const char *key) {
    return json_object_get(json_array_get(lines, index), key);
}

/* ---- what is written ---- */

static void test_a_text_is_written_whole_and_told_to_programs(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    struct cli_run run;
    char path[512], file[512];
    const char *directory = make_weights(path, "");
    CLI_CODE(&run, 0,
             "generate --load %s --prompt 'int main' --tokens 9 --top-k 3 --json %s/j 2>%s/notes",
             path, directory, directory);
    snprintf(file, sizeof file, "%s/j", directory);
    json_t *lines = cli_json_lines(file);
    CHECK_EQ_UINT(json_array_size(lines), 2);
    const json_t *tokens = text_at(lines, 0, "tokens"), *summary = text_at(lines, 1, "summary");
    CHECK_EQ_UINT(json_array_size(tokens), 9);
    CHECK_EQ_UINT(json_array_size(text_at(lines, 0, "prompt_tokens")), 8);
    CHECK_EQ_STR(json_string_value(text_at(lines, 0, "prompt")), "int main");
    CHECK_EQ_STR(json_string_value(text_at(lines, 0, "end")), "tokens");
    char bytes[32] = "int main"; /* stdout holds the bytes, whatever they are, and a newline */
    for (size_t i = 0; i < 9; i++)
        bytes[8 + i] = (char)json_integer_value(json_array_get(tokens, i));
    bytes[17] = '\n';
    CHECK_EQ_BYTES(run.output, bytes, 19);
    CHECK_EQ_INT((int64_t)cli_number(summary, "texts"), 1);
    CHECK_EQ_INT((int64_t)cli_number(summary, "tokens"), 9);
    CHECK_EQ_INT((int64_t)cli_number(summary, "prompt_tokens"), 8);
    CHECK(cli_number(summary, "tokens_per_second") > 0.0);
    CHECK(json_is_false(json_object_get(summary, "interrupted")));
    json_decref(lines);
    CLI_CODE(&run, 0, "--version >/dev/null; cat %s/notes", directory);
    CHECK_CONTAINS(run.output, "weir: generate: 1 text, 9 tokens, ");
}

static void test_bytes_that_are_no_text_are_passed_through_and_named_in_json(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    char path[512], arguments[1024];
    const char *directory = make_weights(path, "");
    /* a whole two-byte letter, a lone continuation byte, a sequence cut short by a newline */
    snprintf(arguments, sizeof arguments,
             "--load %s --tokens 1 --prompt \"$(printf 'a\\303\\251\\200\\342\\202\\nb')\"", path);
    json_t *lines = generate(directory, arguments);
    CHECK_EQ_STR(json_string_value(text_at(lines, 0, "prompt")),
                 "a\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\nb");
    CHECK_EQ_INT(json_integer_value(json_array_get(text_at(lines, 0, "prompt_tokens"), 3)), 0x80);
    json_decref(lines);
    struct cli_run run;
    CLI_CODE(&run, 0, "generate --load %s --tokens 1 --prompt \"$(printf 'a\\200b')\" 2>/dev/null",
             path);
    CHECK_EQ_BYTES(run.output, "a\200b", 3);
}

static void test_several_texts_are_titled(void) {
    struct cli_run run;
    char path[512];
    make_weights(path, "");
    CLI_CODE(&run, 0, "generate --load %s --prompt one --prompt two --tokens 2 2>/dev/null", path);
    CHECK(strncmp(run.output, "--- prompt 1 ---\none", 20) == 0);
    CHECK_CONTAINS(run.output, "\n\n--- prompt 2 ---\ntwo");
    CLI_CODE(&run, 0, "generate --load %s --prompt one --prompt two --tokens 2 2>&1 >/dev/null",
             path);
    CHECK_CONTAINS(run.output, "weir: generate: 2 texts, 4 tokens, ");
    CHECK(strchr(run.output, '\n') == run.output + strlen(run.output) - 1);
}

/* ---- what it depends on ---- */

static void expect_texts(const json_t *got, size_t at, const json_t *wanted, size_t from) {
    const json_t *left = text_at(got, at, "tokens"), *right = text_at(wanted, from, "tokens");
    if (!json_equal(left, right)) TEST_FAIL("text %zu is not text %zu", at, from);
}

static void test_texts_depend_on_prompt_and_seed_alone(void) {
    static const char *const others[] = {
        "--prompt two --prompt one --prompt one --stages 4 --chunks 3",
        "--prompt two --prompt one --prompt one --batch 1 --stages 1",
        "--prompt two --prompt x --prompt one --batch 2 --chunks 1 --schedule gpipe --workers 1",
        "--prompt two --prompt one --prompt-file %s/prompts --checkpoint never"};
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    char path[512], file[512], arguments[2048], more[600];
    const char *directory = make_weights(path, "");
    io_make_file(directory, "prompts", "one\n", 4, file);
    snprintf(arguments, sizeof arguments,
             "--load %s --tokens 12 --dtype f64 --prompt one --prompt two --prompt one", path);
    json_t *wanted = generate(directory, arguments);
    CHECK_EQ_UINT(json_array_size(wanted), 4);
    CHECK(!json_equal(text_at(wanted, 0, "tokens"), text_at(wanted, 2, "tokens")));
    for (size_t i = 0; i < COUNT(others); i++) {
        snprintf(more, sizeof more, others[i], directory);
        snprintf(arguments, sizeof arguments, "--load %s --tokens 12 --dtype f64 %s", path, more);
        json_t *got = generate(directory, arguments);
        expect_texts(got, 0, wanted, 1);
        expect_texts(got, i == 2 ? 2 : 1, wanted, 0);
        if (i != 2) expect_texts(got, 2, wanted, 2);
        json_decref(got);
    }
    snprintf(arguments, sizeof arguments, "--load %s --tokens 12 --dtype f64 --prompt one --seed 2",
             path);
    json_t *other = generate(directory, arguments);
    CHECK(!json_equal(text_at(wanted, 0, "tokens"), text_at(other, 0, "tokens")));
    json_decref(other);
    json_decref(wanted);
}

static void test_one_candidate_is_the_likeliest(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    char path[512], arguments[1024];
    const char *directory = make_weights(path, "");
    snprintf(arguments, sizeof arguments, "--load %s --tokens 20 --prompt a --temperature 0", path);
    json_t *wanted = generate(directory, arguments);
    snprintf(arguments, sizeof arguments,
             "--load %s --tokens 20 --prompt a --temperature 2 --top-k 1 --seed 9", path);
    json_t *got = generate(directory, arguments);
    expect_texts(got, 0, wanted, 0);
    json_decref(got);
    json_decref(wanted);
}

static void test_the_sample_of_train_is_a_generated_text(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    struct cli_run run;
    const char *text = cli_text(), *out = test_temporary_directory();
    CLI_CODE(&run, 0,
             "train " SMALL QUIET " --batch 4 --eval-batches 1 --data %s --steps 20 --sample 25 "
             "--save %s/a --save-weights %s/w",
             text, out, out);
    const char *sample = strstr(run.output, "\nsample\nstatic int ");
    CHECK(sample != NULL);
    for (int weights = 0; weights < 2; weights++) {
        char arguments[1024];
        snprintf(arguments, sizeof arguments,
                 "--load %s/%c --prompt 'static int ' --tokens 25 --temperature 0.8", out,
                 weights ? 'w' : 'a');
        json_t *lines = generate(out, arguments);
        for (size_t i = 0; i < 25; i++) {
            int64_t byte = json_integer_value(json_array_get(text_at(lines, 0, "tokens"), i));
            bool plain = (byte >= 32 && byte < 127) || byte == '\n' || byte == '\t';
            CHECK_EQ_INT(sample[19 + i], plain ? (char)byte : '?');
        }
        json_decref(lines);
    }
}

/* A longer sample than the context goes on all the same. */
static void test_a_sample_may_be_longer_than_the_context(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    struct cli_run run;
    const char *text = cli_text();
    for (uint32_t context = 1; context <= 9; context += 4) {
        CLI_CODE(&run, 0,
                 "train --layers 1 --width 8 --heads 1 --context %u" QUIET " --batch 4 "
                 "--eval-batches 1 --data %s --steps 1 --sample 50",
                 context, text);
        const char *sample = strstr(run.output, "\nsample\n");
        CHECK(sample != NULL);
        CHECK_EQ_UINT(strlen(sample), strlen("\nsample\nstatic int ") + 50 + 1);
    }
}

/* ---- prompts ---- */

static void test_a_file_holds_a_prompt_per_line(void) {
    static const char text[] = "one\r\n\n\\ttwo\\n\\\\end\nlast";
    static const char *const prompts[] = {"zero", "one", "\ttwo\n\\end", "last"};
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    char path[512], file[512], arguments[1536];
    const char *directory = make_weights(path, "");
    io_make_file(directory, "p.txt", text, sizeof text - 1, file);
    snprintf(arguments, sizeof arguments, "--load %s --tokens 1 --prompt zero --prompt-file %s",
             path, file);
    json_t *lines = generate(directory, arguments);
    CHECK_EQ_UINT(json_array_size(lines), 5);
    for (size_t i = 0; i < 4; i++)
        CHECK_EQ_STR(json_string_value(text_at(lines, i, "prompt")), prompts[i]);
    json_decref(lines);
}

static void test_an_empty_prompt_is_the_beginning_of_a_line(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    struct cli_run run;
    char path[512], arguments[1024];
    const char *directory = make_weights(path, "");
    snprintf(arguments, sizeof arguments, "--load %s --tokens 6 --prompt ''", path);
    json_t *empty = generate(directory, arguments);
    snprintf(arguments, sizeof arguments, "--load %s --tokens 6 --prompt \"$(printf '\\nx')\"",
             path);
    CHECK_EQ_UINT(json_array_size(text_at(empty, 0, "tokens")), 6);
    CHECK_EQ_UINT(json_array_size(text_at(empty, 0, "prompt_tokens")), 0);
    CHECK_EQ_STR(json_string_value(text_at(empty, 0, "prompt")), "");
    CLI_CODE(&run, 0, "generate --load %s --tokens 6 --prompt '' 2>/dev/null", path);
    for (size_t i = 0; i < 6; i++)
        CHECK_EQ_INT((uint8_t)run.output[i],
                     json_integer_value(json_array_get(text_at(empty, 0, "tokens"), i)));
    json_decref(empty);
}

static void test_a_full_context_ends_a_text_unless_more_is_asked_for(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    static struct cli_run run, other;
    char path[512];
    const char *directory = make_weights(path, "");
    CLI_CODE(&run, 0, "generate --load %s --prompt 12345678 --json - 2>/dev/null", path);
    CHECK_CONTAINS(run.output, "\"end\":\"context\"");
    CHECK_CONTAINS(run.output, "\"summary\":{\"texts\":1,\"tokens\":33,");
    CLI_CODE(
        &run, 0,
        "generate --load %s --prompt 12345678 --prompt abc --tokens 100 --json %s/j 2>/dev/null",
        path, directory);
    CLI_CODE(&other, 0,
             "generate --load %s --prompt 12345678 --prompt abc --tokens 100 --stages 3 --batch 1 "
             "--chunks 1 2>/dev/null",
             path);
    CHECK_EQ_STR(run.output, other.output);
    snprintf(path, sizeof path, "%s/j", directory);
    json_t *lines = cli_json_lines(path);
    CHECK_EQ_STR(json_string_value(text_at(lines, 0, "end")), "tokens");
    CHECK_EQ_UINT(json_array_size(text_at(lines, 0, "tokens")), 100);
    json_decref(lines);
}

/* Its end is what counts, as where a text outgrows the context; it is shown whole. */
static void test_of_a_longer_prompt_the_last_tokens_are_read(void) {
    static const char end[] = "1234567890123456789012345678901234567890"; /* a context */
    static const char *const tokens[] = {"", "--tokens 60"};
    static struct cli_run run, other;
    char path[512];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    make_weights(path, "");
    for (size_t i = 0; i < COUNT(tokens); i++) {
        CLI_CODE(&run, 0, "generate --load %s --temperature 0 --prompt abc%s %s 2>/dev/null", path,
                 end, tokens[i]);
        CLI_CODE(&other, 0, "generate --load %s --temperature 0 --prompt %s %s 2>/dev/null", path,
                 end, tokens[i]);
        CHECK(strncmp(run.output, "abc", 3) == 0);
        CHECK_EQ_STR(run.output + 3, other.output);
    }
    CLI_CODE(&run, 0, "generate --load %s --prompt ab%s --prompt %s 2>&1 >/dev/null", path, end,
             end);
    CHECK_CONTAINS(run.output, "weir: generate: note: prompt 1 has 42 tokens, the model's context "
                               "40: its last 40 are read\n");
    CHECK(strstr(run.output, "prompt 2 has") == NULL);
}

static void test_prompts_come_from_stdin(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    static struct cli_run run, other;
    char path[512];
    make_weights(path, "");
    CLI_CODE(&run, 0, "generate --load %s --tokens 5 --prompt ab --prompt 'c d' 2>/dev/null", path);
    CLI_CODE(&other, 0,
             "--version >/dev/null; printf 'ab\\nc d\\n' | '%s/bin/weir' generate --load %s "
             "--tokens 5 --prompt-file - 2>/dev/null",
             test_install_prefix(), path);
    CHECK_CONTAINS(other.output, "--- stdin, line 2 ---\nc d");
    CHECK_EQ_STR(strstr(run.output, "\nc d"), strstr(other.output, "\nc d"));
    CLI_CODE(&run, 2, "generate --load %s --prompt-file - </dev/null 2>&1", path);
    CHECK_CONTAINS(run.output, "--prompt-file - holds no prompt: write one per line");
    CLI_CODE(&run, 2, "generate --load %s --prompt a --top-p 1.5 2>&1", path);
    CHECK_CONTAINS(run.output, "--top-p 1.5: too large: give at most 1");
}

/* ---- models ---- */

static void test_tokens_that_are_no_bytes_go_by_numbers(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    struct cli_run run;
    char path[512], arguments[1024];
    const char *directory = make_weights(path, "--vocab 300 --tied");
    snprintf(arguments, sizeof arguments, "--load %s --tokens 5 --prompt-ids 299,0,7", path);
    json_t *lines = generate(directory, arguments);
    CHECK(text_at(lines, 0, "text") == NULL);
    CHECK_EQ_UINT(json_array_size(text_at(lines, 0, "tokens")), 5);
    CHECK_EQ_INT(json_integer_value(json_array_get(text_at(lines, 0, "prompt_tokens"), 0)), 299);
    json_decref(lines);
    CLI_CODE(&run, 0, "generate %s 2>/dev/null", arguments);
    CHECK(strncmp(run.output, "299 0 7 ", 8) == 0);
    CLI_CODE(&run, 2, "generate --load %s --prompt a", path);
    CHECK_CONTAINS(run.output, "the model's vocabulary is 300, text is 256 bytes: give "
                               "--prompt-ids, or, if it was trained on bytes all the same, "
                               "--vocab 300");
    CLI_CODE(&run, 0,
             "generate --load %s --vocab 300 --prompt a --tokens 30 --json - "
             "2>/dev/null",
             path);
    CHECK_CONTAINS(run.output, "\"text\":");
    CLI_CODE(&run, 0, "generate %s --prompt-ids 5 --json - 2>/dev/null", arguments);
    CHECK_CONTAINS(run.output, "\"prompt_tokens\":[299,0,7]");
    CHECK_CONTAINS(run.output, "\"prompt_tokens\":[5]");
    CHECK_CONTAINS(run.output, "{\"summary\":{\"texts\":2,\"tokens\":10,");
    CLI_CODE(&run, 0, "generate %s --top-k 300 2>/dev/null", arguments);
    CLI_CODE(&run, 2, "generate %s --top-k 301", arguments);
    CHECK_CONTAINS(run.output, "--top-k 301: tokens are drawn among 300: give at most that, or 0");
    CLI_CODE(&run, 2, "generate --load %s --prompt-ids 1,300,2", path);
    CHECK_CONTAINS(run.output, "--prompt-ids 300: the model's tokens are 0 to 299");
}

/* One row, and five: numbers of micro-batches that neither schedule trains on two workers. */
static void test_a_schedule_takes_as_many_rows_as_there_are(void) {
    static const char *const schedules[] = {"dualpipe-v", "interleaved"};
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    struct cli_run one, run;
    char path[512];
    make_weights(path, "");
    CLI_CODE(&one, 0, "generate --load %s --prompt hello --tokens 4 2>/dev/null", path);
    for (size_t k = 0; k < 2; k++) {
        CLI_CODE(&run, 0,
                 "generate --load %s --prompt hello --tokens 4 --schedule %s --stages 4 "
                 "2>/dev/null",
                 path, schedules[k]);
        EXPECT_EQ_STR(run.output, one.output);
        CLI_CODE(&run, 2, "generate --load %s --prompt hello --tokens 4 --schedule %s --stages 3",
                 path, schedules[k]);
        CHECK_CONTAINS(run.output, "the nearest are 2 and 4 stages");
    }
}

static void test_a_model_file_continues_texts_too(void) {
    static const char model[] =
        "{\"input\":{\"dtype\":\"i64\",\"shape\":[12]},\"target\":{\"dtype\":\"i64\",\"shape\":"
        "[12]},\"layers\":[{\"type\":\"embedding\",\"num_embeddings\":256,\"embedding_dim\":8},"
        "{\"type\":\"gpt_block\",\"width\":8,\"heads\":2},{\"type\":\"linear\",\"out_features\":"
        "256}],\"loss\":\"cross_entropy\"}";
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    struct cli_run run;
    char path[512];
    const char *directory = test_temporary_directory();
    io_make_file(directory, "m.json", model, sizeof model - 1, path);
    CLI_CODE(&run, 0, "init --model %s --out %s/w", path, directory);
    CLI_CODE(&run, 0, "generate --model %s --load %s/w --prompt ab --json - 2>/dev/null", path,
             directory);
    CHECK_CONTAINS(run.output, "\"end\":\"context\"");
    CLI_CODE(&run, 2, "generate --load %s/w --prompt ab", directory);
    CHECK_CONTAINS(run.output, "/w holds no 'wte.weight': not the weights of a GPT: say by --model "
                               "whose they are");
}

/* ---- folders with a tokenizer ---- */

#define SAYS "Hi \U0001F600you!"
#define FOLDER_OPTIONS " --temperature 0" CLI_TALKER_PLACE

static const char *make_talker(const char *says, const char *then) {
    const char *folder = test_temporary_directory();
    cli_make_talker(folder, &(struct cli_talker){"qwen", says, then, 500});
    return folder;
}

/* The lines of `generate --model model OPTIONS --json -`. */
static json_t *generate_in(const char *folder, const char *options) {
    struct cli_run run;
    char path[512];
    cli_run_in(folder, &run, "generate --model model %s" FOLDER_OPTIONS " --json - >out", options);
    cli_code_at(__FILE__, __LINE__, &run, 0);
    snprintf(path, sizeof path, "%s/out", folder);
    return cli_json_lines(path);
}

static void write_ends(const char *folder, const char *ends) {
    char text[128];
    snprintf(text, sizeof text, "{\"eos_token_id\": %s}", ends);
    cli_write(folder, "model/generation_config.json", text);
}

static void test_a_folder_reads_and_writes_text_by_its_tokenizer(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    static struct cli_run run;
    const char *folder = make_talker(SAYS, "<|im_end|>");
    write_ends(folder, "[600, 602]");
    json_t *lines = generate_in(folder, "--prompt 'ka lo' --prompt '' --batch 1");
    for (size_t i = 0; i < 2; i++) {
        EXPECT_EQ_STR(json_string_value(text_at(lines, i, "prompt")), i == 0 ? "ka lo" : "");
        EXPECT_EQ_STR(json_string_value(text_at(lines, i, "text")), SAYS);
        EXPECT_EQ_STR(json_string_value(text_at(lines, i, "end")), "end");
    }
    const json_t *ids = text_at(lines, 0, "prompt_tokens"),
                 *empty = text_at(lines, 1, "prompt_tokens");
    CHECK_EQ_UINT(json_array_size(ids), 2);
    EXPECT_EQ_INT(json_integer_value(json_array_get(ids, 0)), 269);
    EXPECT_EQ_INT(json_integer_value(json_array_get(ids, 1)), 417);
    CHECK_EQ_UINT(json_array_size(empty), 1); /* <|endoftext|>, for want of a beginning */
    EXPECT_EQ_INT(json_integer_value(json_array_get(empty, 0)), 600);
    json_decref(lines);
    CLI_CODE_IN(folder, &run, 0,
                "generate --model model --load model --prompt 'ka lo' --stages 2" FOLDER_OPTIONS
                " 2>/dev/null");
    CHECK_EQ_STR(run.output, "ka lo" SAYS "\n");
}

static void test_texts_of_a_folder_end_at_stops_and_counts(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = make_talker(SAYS, NULL);
    json_t *lines = generate_in(folder, "--prompt a --stop zzz --stop 'you!Hi' --tokens 100");
    EXPECT_EQ_STR(json_string_value(text_at(lines, 0, "text")), "Hi \U0001F600");
    EXPECT_EQ_STR(json_string_value(text_at(lines, 0, "end")), "stop");
    json_decref(lines);
    lines = generate_in(folder, "--prompt a --tokens 5");
    EXPECT_EQ_STR(json_string_value(text_at(lines, 0, "text")), "Hi \uFFFD");
    EXPECT_EQ_STR(json_string_value(text_at(lines, 0, "end")), "tokens");
    json_decref(lines);
    lines = generate_in(folder, "--prompt a"); /* a context of the prompt and 1024, or the most */
    EXPECT_EQ_STR(json_string_value(text_at(lines, 0, "end")), "context");
    EXPECT_EQ_UINT(json_array_size(text_at(lines, 0, "tokens")), 500);
    json_decref(lines);
    write_ends(folder, "602");
    lines = generate_in(folder, "--prompt-ids 5 --tokens 3");
    EXPECT(text_at(lines, 0, "text") == NULL);
    EXPECT_EQ_UINT(json_array_size(text_at(lines, 0, "tokens")), 3);
    json_decref(lines);
}

/* How often the terminal was looked at while it had begun to show the text, and not ended. */
static uint32_t watch_characters(const char *folder) {
    static struct cli_terminal terminal;
    uint32_t looks = 0;
    if (!cli_terminal_start(&terminal, "NO_COLOR=1 TERM=xterm",
                            "generate --model %s/model --prompt a --tokens 499" FOLDER_OPTIONS,
                            folder))
        return 0;
    while (cli_terminal_wait_bytes(&terminal, terminal.used + 1) && terminal.used < 400) {
        EXPECT_EQ_UINT(utf8_sound(terminal.output, terminal.used), terminal.used);
        looks += terminal.used > strlen("a");
    }
    EXPECT_EQ_INT(cli_terminal_end(&terminal), 0);
    return looks;
}

/* A busy machine may show all at once, but not time after time. */
static void test_a_folders_text_comes_in_whole_characters(void) {
    enum { LOOKS = 20, TRIES = 50 };
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = make_talker("\U0001F600\u00e9", NULL);
    uint32_t looks = 0;
    for (int i = 0; i < TRIES && looks < LOOKS && !test_has_failed(); i++)
        looks += watch_characters(folder);
    EXPECT(looks >= LOOKS);
}

static void test_bytes_end_at_stops_too(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    char path[512], arguments[1024];
    const char *directory = make_weights(path, "");
    snprintf(arguments, sizeof arguments, "--load %s --tokens 20 --prompt a --seed 5", path);
    json_t *lines = generate(directory, arguments);
    char stop[2] = {(char)json_integer_value(json_array_get(text_at(lines, 0, "tokens"), 7)), 0};
    size_t at = 0;
    while (json_integer_value(json_array_get(text_at(lines, 0, "tokens"), at)) != (uint8_t)stop[0])
        at++;
    json_decref(lines);
    snprintf(arguments, sizeof arguments,
             "--load %s --tokens 20 --prompt a --seed 5 --stop \"$(printf '\\%03o')\"", path,
             (unsigned)(uint8_t)stop[0]);
    if (stop[0] == '\n' || stop[0] == '\0') SKIP("the shell takes this byte off");
    lines = generate(directory, arguments);
    EXPECT_EQ_STR(json_string_value(text_at(lines, 0, "end")), "stop");
    EXPECT_EQ_UINT(json_array_size(text_at(lines, 0, "tokens")), at + 1);
    json_decref(lines);
}

/* ---- refusals ---- */

struct refusal {
    const char *options, *message;
};

static void test_what_cannot_be_continued_is_refused(void) {
    static const struct refusal refusals[] = {
        {"--prompt a --load /none", "--load /none: No such file or directory: check the path"},
        {"", "there is no prompt: give --prompt TEXT or --prompt-file FILE"},
        {"--prompt a --prompt-ids 1", "--prompt-ids goes with neither --prompt nor --prompt-file"},
        {"--prompt-ids 1,,2", "--prompt-ids 1,,2: not token numbers: write them like 15496,995"},
        {"--prompt-ids 1,-2", "--prompt-ids 1,-2: not token numbers"},
        {"--prompt-ids 4294967296", "--prompt-ids 4294967296: not token numbers"},
        {"--prompt-ids 7x", "--prompt-ids 7x: not token numbers"},
        {"--prompt-ids ''", "--prompt-ids : not token numbers"},
        {"--prompt a --top-k 257", "--top-k 257: tokens are drawn among 256: give at most that"},
        {"--prompt-file /none", "--prompt-file /none: cannot open /none: No such file"},
        {"--prompt-file /dev/null", "--prompt-file /dev/null holds no prompt: write one per line"},
        {"--prompt a --tokens 0", "--tokens 0: too small: give at least 1"},
        {"--prompt a --stop ''", "--stop '': nothing comes before that: give some text"},
        {"--prompt-ids 1 --stop a", "--stop is text, --prompt-ids are numbers: give one of them"},
        {"--prompt a --min-p 2", "--min-p 2: too large: give at most 1"},
        {"--prompt a --repetition-penalty 0", "--repetition-penalty 0: too small"},
        {"--prompt a --temperature -1", "--temperature -1: too small: give at least 0"},
        {"--prompt a --batch 0", "--batch 0: too small: give at least 1"},
        {"--prompt a --json /none/j", "--json /none/j: its folder: No such file or directory"},
        {"--prompt a --stages 9", "--stages 9: the model has 4 layers: choose 1 to 4"},
        {"--prompt a --layers 3", "tensor 'h.2.ln_1.weight' f32 [16] is missing"},
        {"--prompt a --width 32", "tensor 'wte.weight' is F32 [256, 16], but the model has f32"},
        {"--prompt a --heads 4", " was trained with 2: leave --heads away"},
        {"--prompt a --model unet", "the model does not continue texts: it would have to take"},
        {"--promt a", "unknown option --promt: did you mean --prompt?"},
        {"--prompt a --memory-limit 1KiB", "more than the limit of 1024: raise the limit to"},
    };
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    struct cli_run run;
    char path[512];
    make_weights(path, "");
    for (size_t i = 0; i < COUNT(refusals); i++) {
        CLI(&run, "generate --load %s %s 2>&1 >/dev/null", path, refusals[i].options);
        if (run.code != 2) TEST_FAIL("%s: exit code %d", refusals[i].options, run.code);
        CHECK(strncmp(run.output, "weir: generate: ", 16) == 0);
        CHECK_CONTAINS(run.output, refusals[i].message);
    }
    CLI_CODE(&run, 2, "generate --prompt a");
    CHECK_CONTAINS(run.output, "--load is missing: give a file of weights");
}

/* Of how many layers the blocks are changes no shape: the file says it. */
static void test_weights_of_mixed_residuals_say_so(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    struct cli_run run;
    char path[512];
    make_weights(path, "--residual-block 1");
    CLI_CODE(&run, 0, "generate --load %s --prompt a --tokens 3 --stages 3" QUIET, path);
    CLI_CODE(&run, 2, "generate --load %s --residual-block 2 --prompt a --tokens 3" QUIET, path);
    CHECK_CONTAINS(run.output, "--residual-block 2, but ");
    CHECK_CONTAINS(run.output, " was trained with 1: leave it away");
    CLI_CODE(&run, 2, "train " SMALL " --load %s --data tests/suites.h --steps 1", path);
    CHECK_CONTAINS(run.output, " was trained with --residual-block 1: give it");
}

static void test_lines_of_a_prompt_file_are_faulted_one_by_one(void) {
    static const char text[] = "a\\b\nfine\nend\\";
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    struct cli_run run;
    char path[512], file[512];
    const char *directory = make_weights(path, "");
    io_make_file(directory, "p.txt", text, sizeof text - 1, file);
    CLI_CODE(&run, 2, "generate --load %s --prompt-file %s", path, file);
    CHECK_CONTAINS(run.output, "p.txt, line 1: '\\b': write \\n, \\t, or \\\\ for a backslash");
    CHECK_CONTAINS(run.output, "p.txt, line 3: '\\': write \\n");
    CHECK(strstr(run.output, "line 2") == NULL);
}

/* Writes a file of two tensors and maybe metadata; what the loader makes of it. */
static void check_file(const char *directory, int64_t rank, const char *heads, bool block,
                       const char *message) {
    static float zeros[64];
    struct cli_run run;
    char path[512];
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__safetensors_item items[] = {
        {.name = "wte.weight",
         .dtype = WEIR_F32,
         .rank = (uint32_t)rank,
         .shape = {4, 4},
         .data = zeros},
        {.name = "wpe.weight", .dtype = WEIR_F32, .rank = 2, .shape = {2, 4}, .data = zeros},
        {.name = "h.0.ln_1.weight", .dtype = WEIR_F32, .rank = 1, .shape = {4}, .data = zeros}};
    struct weir__safetensors_text text = {"heads", heads};
    snprintf(path, sizeof path, "%s/w", directory);
    CHECK_OK(weir__safetensors_save(&io, path, items, block ? 3 : 2, &text, heads != NULL));
    CLI_CODE(&run, 2, "generate --load %s --prompt a", path);
    CHECK_CONTAINS(run.output, message);
}

static void test_weights_that_do_not_say_enough_are_refused(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *directory = test_temporary_directory();
    check_file(directory, 1, "2", true, "'wte.weight' is F32 [4], which no GPT has");
    check_file(directory, 2, "2", false, "holds no 'h.0.ln_1.weight': not the weights of a GPT");
    check_file(directory, 2, NULL, true, "--heads is missing: ");
    check_file(directory, 2, "2x", true, "metadata 'heads' is '2x', not a number");
    check_file(directory, 2, "0", true, "metadata 'heads' is '0', not a number");
    check_file(directory, 2, "2", true, "the model's vocabulary of 4 is too small for text");
}

WEIR_TEST_SUITE(cli_generate, TEST(a_text_is_written_whole_and_told_to_programs),
                TEST(bytes_that_are_no_text_are_passed_through_and_named_in_json),
                TEST(several_texts_are_titled), TEST(texts_depend_on_prompt_and_seed_alone),
                TEST(one_candidate_is_the_likeliest), TEST(the_sample_of_train_is_a_generated_text),
                TEST(a_sample_may_be_longer_than_the_context), TEST(a_file_holds_a_prompt_per_line),
                TEST(an_empty_prompt_is_the_beginning_of_a_line),
                TEST(a_full_context_ends_a_text_unless_more_is_asked_for),
                TEST(of_a_longer_prompt_the_last_tokens_are_read), TEST(prompts_come_from_stdin),
                TEST(tokens_that_are_no_bytes_go_by_numbers),
                TEST(a_schedule_takes_as_many_rows_as_there_are),
                TEST(a_folder_reads_and_writes_text_by_its_tokenizer),
                TEST(texts_of_a_folder_end_at_stops_and_counts),
                TEST(a_folders_text_comes_in_whole_characters), TEST(bytes_end_at_stops_too),
                TEST(a_model_file_continues_texts_too), TEST(what_cannot_be_continued_is_refused),
                TEST(weights_of_mixed_residuals_say_so),
                TEST(lines_of_a_prompt_file_are_faulted_one_by_one),
                TEST(weights_that_do_not_say_enough_are_refused))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: what belongs on a terminal is shown there alone: colours, lines that are redrawn, text as
 * it comes. A pipe gets plain lines, and stdout nothing but JSON where that goes there. Method: the
 * installed command on a pseudo-terminal, and the same into files.
 */
#include "cli/cli_terminal.h"
#include "io/io_faults.h"

#include <stdio.h>
#include <string.h>

#define MODEL "--layers 2 --width 16 --heads 2 --context 8"
#define PLACE " --threads-per-stage 1 --bind none"
#define TERMINAL "NO_COLOR= TERM=xterm"

static struct cli_terminal terminal;

/* Runs `weir ARGUMENTS` to its end on the terminal. */
#define RUN(environment, ...)                                                                      \
    do {                                                                                           \
        CHECK(cli_terminal_start(&terminal, environment, __VA_ARGS__));                            \
        CHECK_EQ_INT(cli_terminal_end(&terminal), 0);                                              \
    } while (0)

#define NEEDS_COMMAND                                                                              \
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'")

/* Weights of MODEL in FOLDER/w, a text in FOLDER/text. */
static const char *make_folder(void) {
    struct cli_run run;
    char path[512], text[2000];
    const char *folder = test_temporary_directory();
    for (size_t i = 0; i < sizeof text; i++) text[i] = "some words. "[i % 12];
    io_make_file(folder, "text", text, sizeof text, path);
    cli_run_at(__FILE__, __LINE__, &run, "init " MODEL " --out %s/w", folder);
    cli_code_at(__FILE__, __LINE__, &run, 0);
    return folder;
}

static void test_colours_are_for_terminals_that_want_them(void) {
    NEEDS_COMMAND;
    static const struct {
        const char *environment;
        bool colour;
    } cases[] = {{TERMINAL, true},
                 {"-u NO_COLOR TERM=xterm", true},
                 {"NO_COLOR=1 TERM=xterm", false},
                 {"-u NO_COLOR TERM=dumb", false},
                 {"-u NO_COLOR -u TERM", false}};
    const char *folder = make_folder();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        RUN(cases[i].environment, "train " CLI_TRAIN " --data %s/text --steps 2", folder);
        if ((strstr(terminal.output, "\033[") != NULL) != cases[i].colour)
            TEST_FAIL("%s: %s", cases[i].environment, terminal.output);
        RUN(cases[i].environment, "generate --load %s/w --prompt ab --tokens 2" PLACE, folder);
        const char *wanted = cases[i].colour ? "\033[1mab\033[0m" : "ab";
        if (strncmp(terminal.output, wanted, strlen(wanted)) != 0)
            TEST_FAIL("%s: %s", cases[i].environment, terminal.output);
    }
}

/* A model whose largest logit is always the same byte's. */
static void make_parrot(const char *folder, int byte) {
    static const char model[] =
        "{\"input\": {\"dtype\": \"i64\", \"shape\": [9]}, \"target\": {\"dtype\": \"i64\", "
        "\"shape\": [9]}, \"loss\": \"cross_entropy\", \"layers\": [{\"type\": \"embedding\", "
        "\"num_embeddings\": 256, \"embedding_dim\": 1}, {\"type\": \"linear\", "
        "\"out_features\": 256}]}";
    static float zeros[256];
    float bias[256] = {0};
    char path[512];
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__safetensors_item items[] = {
        {.name = "0.weight", .dtype = WEIR_F32, .rank = 2, .shape = {256, 1}, .data = zeros},
        {.name = "1.weight", .dtype = WEIR_F32, .rank = 2, .shape = {256, 1}, .data = zeros},
        {.name = "1.bias", .dtype = WEIR_F32, .rank = 1, .shape = {256}, .data = bias}};
    bias[byte] = 9;
    io_make_file(folder, "parrot.json", model, sizeof model - 1, path);
    snprintf(path, sizeof path, "%s/parrot", folder);
    EXPECT_STATUS(weir__safetensors_save(&io, path, items, 3, NULL, 0), WEIR_OK);
}

static void test_bytes_that_would_upset_a_terminal_are_not_shown_there(void) {
    NEEDS_COMMAND;
    struct cli_run run;
    const char *folder = test_temporary_directory();
#define PARROT                                                                                     \
    "generate --model %s/parrot.json --load %s/parrot --prompt a --tokens 3 --temperature 0" PLACE
    make_parrot(folder, 27);
    RUN("NO_COLOR=1 TERM=xterm", PARROT, folder, folder);
    CHECK(strncmp(terminal.output, "a???\n", 5) == 0);
    CLI_CODE(&run, 0, PARROT " 2>/dev/null", folder, folder);
    CHECK_EQ_STR(run.output, "a\033\033\033\n");
    make_parrot(folder, 0xC3); /* not whole as UTF-8, but a terminal can bear it */
    RUN("NO_COLOR=1 TERM=xterm", PARROT, folder, folder);
    CHECK(strncmp(terminal.output, "a\xC3\xC3\xC3\n", 5) == 0);
}

static void test_progress_is_redrawn_on_a_terminal_alone(void) {
    NEEDS_COMMAND;
    struct cli_run run;
    const char *folder = make_folder();
    RUN(TERMINAL, "eval --load %s/w --data %s/text --batch 100" PLACE, folder, folder);
    CHECK_CONTAINS(terminal.output, "\r100 of 249 rows");
    CHECK_CONTAINS(terminal.output, "\r249 of 249 rows");
    const char *result = strrchr(terminal.output, '\r');
    CHECK(result != NULL && strstr(result, " nats/byte (") != NULL);
    CLI_CODE(&run, 0, "eval --load %s/w --data %s/text --batch 100" PLACE, folder, folder);
    CHECK(strchr(run.output, '\r') == NULL && strstr(run.output, "of 249") == NULL);
    /* --json - takes stdout: people, and their progress, have stderr */
    CLI_CODE(&run, 0, "eval --load %s/w --data %s/text --json -" PLACE " 2>/dev/null", folder,
             folder);
    CHECK_EQ_INT(run.output[0], '{');
}

static void test_pipes_get_plain_lines(void) {
    static const char *const commands[] = {"train " CLI_TRAIN " --data %s/text --steps 3",
                                           "generate --load %s/w --prompt a --prompt b" PLACE,
                                           "eval --load %s/w --data %1$s/text" PLACE,
                                           "grad " MODEL
                                           " --weights %s/w --data %1$s/none --out %1$s/g; true",
                                           "init " MODEL " --out %s/w2",
                                           "describe " MODEL,
                                           "plan " MODEL " --stages 2",
                                           "schedule --stages 2",
                                           "doctor",
                                           "--help",
                                           "train --help"};
    NEEDS_COMMAND;
    const char *folder = make_folder();
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        struct cli_run run;
        char arguments[1024];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(arguments, sizeof arguments, commands[i], folder);
#pragma GCC diagnostic pop
        CLI_CODE(&run, 0, "%s 2>&1", arguments);
        if (strpbrk(run.output, "\033\r\b") != NULL) TEST_FAIL("%s: %s", arguments, run.output);
    }
}

/* Whatever has --json: with it on stdout, that parses, and people read stderr. */
static void test_json_on_stdout_stands_alone(void) {
    static const struct {
        const char *arguments, *people; /* what is on stderr then, NULL: nothing */
        bool lines;
    } cases[] = {{"train " CLI_TRAIN " --data %s/text --steps 3", "planned memory", true},
                 {"generate --load %s/w --prompt a --prompt b" PLACE, "--- prompt 2 ---", true},
                 {"eval --load %s/w --data %1$s/text" PLACE, " nats/byte (", false},
                 {"describe " MODEL, NULL, false},
                 {"plan " MODEL " --stages 2", NULL, false},
                 {"doctor", NULL, false}};
    NEEDS_COMMAND;
    const char *folder = make_folder();
    char path[512];
    snprintf(path, sizeof path, "%s/out", folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cli_run run;
        char arguments[1024];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(arguments, sizeof arguments, cases[i].arguments, folder);
#pragma GCC diagnostic pop
        CLI_CODE(&run, 0, "%s --json - 2>&1 >%s", arguments, path);
        json_t *json = cases[i].lines ? cli_json_lines(path) : cli_json(path);
        EXPECT(json != NULL && (!cases[i].lines || json_array_size(json) > 1));
        json_decref(json);
        if (cases[i].people != NULL) EXPECT_CONTAINS(run.output, cases[i].people);
        CHECK_HELPERS();
    }
}

WEIR_TEST_SUITE(cli_terminal, TEST(colours_are_for_terminals_that_want_them),
                TEST(bytes_that_would_upset_a_terminal_are_not_shown_there),
                TEST(progress_is_redrawn_on_a_terminal_alone), TEST(pipes_get_plain_lines),
                TEST(json_on_stdout_stands_alone))

/* SPDX-License-Identifier: MIT */
/*
 * Goal: docs/fine-tuning.md goes from a folder and 200 conversations to a GGUF in six commands.
 * Method: the commands are read from the page and run, one after the other, on a small folder and
 * conversations that are made up here. Published chat templates are not in the tree: that one is
 * named, which is all that is added to the page's words.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cli_run run;

#define PAGE "docs/fine-tuning.md"
#define CONFIG                                                                                     \
    "{\"model_type\": \"qwen2\", \"hidden_size\": 32, \"intermediate_size\": 64, "                 \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "           \
    "\"vocab_size\": 640, \"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5, "              \
    "\"rope_theta\": 1000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": true, "            \
    "\"eos_token_id\": 602}"

static void make_chats(const char *folder, const char *name, int count) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    for (int i = 0; i < count; i++)
        fprintf(file,
                "{\"messages\": [{\"role\": \"system\", \"content\": \"You are the help desk.\"}, "
                "{\"role\": \"user\", \"content\": \"Where is printer %d?\"}, "
                "{\"role\": \"assistant\", \"content\": \"On floor %d.\"}]}\n",
                i, i % 7);
    EXPECT(fclose(file) == 0);
}

static const char *make_folder(void) {
    const char *folder = cli_make_model(CONFIG, "qwen");
    EXPECT(cli_do(folder, "mkdir chats"));
    cli_write(folder, "question.txt", "Where is printer 5?\n");
    make_chats(folder, "chats/train.jsonl", 180);
    make_chats(folder, "chats/test.jsonl", 20);
    return folder;
}

/* A line of the page without "weir ". */
static void run_command(const char *folder, const char *line) {
    bool talks = strstr(line, "chats") != NULL || strncmp(line, "chat ", 5) == 0;
    cli_run_in(folder, &run, "%s%s < question.txt", line, talks ? " --template qwen2.5" : "");
    if (!EXPECT_EQ_INT(run.code, 0)) TEST_FAIL("weir %s: %s", line, run.output);
}

static void test_the_page_does_what_it_says(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = make_folder();
    char line[1024];
    int commands = 0;
    bool shell = false;
    FILE *page = fopen(PAGE, "r");
    CHECK(page != NULL);
    while (fgets(line, sizeof line, page) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "```", 3) == 0) shell = strcmp(line, "```sh") == 0;
        if (!shell || strncmp(line, "weir ", 5) != 0) continue;
        run_command(folder, line + 5);
        commands++;
    }
    EXPECT(fclose(page) == 0);
    EXPECT_EQ_INT(commands, 6);
    EXPECT(
        cli_do(folder, "test -s tuned/model.safetensors && head -c 4 tuned.gguf | grep -q GGUF"));
}

WEIR_TEST_SUITE(cli_fine_tuning, TEST(the_page_does_what_it_says))

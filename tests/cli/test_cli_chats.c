/* SPDX-License-Identifier: MIT */
/*
 * Goal: a model's folder is trained and judged on text by its tokenizer and on conversations by its
 * chat template, of which replies alone are learnt; what cannot be is refused. Method: the
 * installed command on a small folder made up here. That rows are right is test_word_rows.c's and
 * test_conversations.c's, and that the page does what it says is here, too.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cli_run run;

#define CONFIG                                                                                     \
    "{\"model_type\": \"qwen2\", \"hidden_size\": 16, \"intermediate_size\": 24, "                 \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "           \
    "\"vocab_size\": 640, \"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5, "              \
    "\"rope_theta\": 1000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": true, "            \
    "\"eos_token_id\": 602}"

/* FOLDER/model with a tokenizer. */
static const char *make_folder(void) {
    return cli_make_model(CONFIG, "qwen");
}

/* Questions of many numbers, and always the same answer. */
static void make_chats(const char *folder, const char *name, int count) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    for (int i = 0; i < count; i++)
        fprintf(file,
                "{\"messages\": [{\"role\": \"user\", \"content\": \"what is %d%s\"}, "
                "{\"role\": \"assistant\", \"content\": \"a number\"}]}\n",
                i * 7919 % 1000000, i % 3 == 0 ? " and no more than that" : "");
    EXPECT(fclose(file) == 0);
}

#define TEMPLATE "--template qwen3 "
#define RUN "--context 96 --bind none "
#define TRAIN                                                                                      \
    "train --model model --load model --plan given --stages 1 --chunks 2 --threads-per-stage "     \
    "1 " RUN "--warmup 0 --lr-schedule constant "

static double loss_of(const char *folder, const char *options, json_t **summary) {
    char path[512];
    cli_run_in(folder, &run, "eval " RUN "%s --json loss.json", options);
    if (!EXPECT_EQ_INT(run.code, 0)) TEST_FAIL("%s", run.output);
    snprintf(path, sizeof path, "%s/loss.json", folder);
    json_t *root = cli_json(path);
    double loss = cli_number(root, "loss");
    EXPECT_NEAR(cli_number(root, "perplexity"), exp(loss), 1e-9 * exp(loss));
    if (summary != NULL)
        *summary = root;
    else
        json_decref(root);
    return loss;
}

static void test_replies_are_learnt_and_nothing_else(void) {
    const char *folder = make_folder();
    json_t *summary = NULL;
    make_chats(folder, "chats.jsonl", 40);
    make_chats(folder, "test.jsonl", 9);
    double before = loss_of(folder, "--model model --load model --data test.jsonl " TEMPLATE, NULL);
    EXPECT(before > 4);
    CLI_CODE_IN(folder, &run, 0,
                TRAIN TEMPLATE "--data chats.jsonl --batch 8 --steps 60 --lr 0.02 --no-pack "
                               "--sample 0 --save-weights w.safetensors");
    EXPECT_CONTAINS(run.output, "40 conversations by the template qwen3");
    EXPECT_CONTAINS(run.output, "rows of 96, ");
    EXPECT_CONTAINS(run.output, "perplexity 1.");
    double after =
        loss_of(folder, "--model model --load w.safetensors --data test.jsonl " TEMPLATE, &summary);
    EXPECT(after < 0.2);
    /* the same tokens in each reply, and the one behind; the template has a thought before them */
    cli_write(folder, "reply", "<think>\n\n</think>\n\na number<|im_end|>");
    EXPECT_EQ_UINT((uint64_t)cli_number(summary, "tokens"), 9 * cli_count_ids(folder, "reply"));
    json_decref(summary);
    /* what was asked is not what it learnt */
    cli_write(folder, "text", "what is 123456 and no more than that");
    EXPECT(loss_of(folder, "--model model --load w.safetensors --data text", NULL) > 3);
}

static double judged(const char *folder, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *lines = cli_json_lines(path);
    const json_t *last = json_array_get(lines, json_array_size(lines) - 1);
    double loss = cli_number(json_object_get(last, "summary"), "validation_loss");
    json_decref(lines);
    return loss;
}

/* What is held out is judged the same, in fewer rows; so are those that are trained on, in any
 * number of stages. */
static void test_conversations_share_rows(void) {
    const char *folder = make_folder();
    make_chats(folder, "chats.jsonl", 40);
    make_chats(folder, "test.jsonl", 19);
#define JUDGE TRAIN TEMPLATE "--data chats.jsonl --eval-data test.jsonl --steps 2 --sample 0 "
#define ALL "--batch 1 --eval-batches 99 "
    CLI_CODE_IN(folder, &run, 0, JUDGE ALL "--lr 0 --no-pack --json alone");
    EXPECT_CONTAINS(run.output, "40 to train on, 19 held out");
    CLI_CODE_IN(folder, &run, 0, JUDGE ALL "--lr 0 --json packed");
    EXPECT(strstr(run.output, "40 to train on") == NULL);
    double loss = judged(folder, "alone");
    EXPECT(loss > 4);
    EXPECT_NEAR(judged(folder, "packed"), loss, 1e-6 * loss);
    CLI_CODE_IN(folder, &run, 0, JUDGE "--batch 3 --chunks 3 --lr 0.01 --save one");
    CLI_CODE_IN(folder, &run, 0, JUDGE "--batch 3 --chunks 3 --lr 0.01 --stages 3 --save three");
    EXPECT(cli_do(folder, "cmp one three"));
}

/* Replies of all lengths: a mean of means would give another number. */
static void test_profiles_are_of_shared_rows_or_of_others(void) {
    const char *folder = make_folder();
    make_chats(folder, "chats.jsonl", 40);
#define SHAPE "--model model --stages 2 --workers 1 --chunks 2 --threads-per-stage 1 --batch 8 " RUN
#define WITH                                                                                       \
    "train " SHAPE TEMPLATE "--data chats.jsonl --plan given --balance-by time --steps 1 "         \
    "--sample 0 --profile "
    CLI_CODE_IN(folder, &run, 0, "profile " SHAPE "--packed --out shared");
    CLI_CODE_IN(folder, &run, 0, "profile " SHAPE "--out alone");
    CLI_CODE_IN(folder, &run, 0, WITH "shared");
    CLI_CODE_IN(folder, &run, 0, WITH "alone --no-pack");
    CLI_CODE_IN(folder, &run, 2, WITH "alone");
    EXPECT_CONTAINS(run.output, "whether rows are packed differ: measure again");
    CLI_CODE_IN(folder, &run, 2, WITH "shared --no-pack");
    CLI_CODE_IN(folder, &run, 0, "simulate " SHAPE "--packed --profile shared");
    CLI_CODE_IN(folder, &run, 0, "plan " SHAPE "--packed --profile shared");
    CLI_CODE_IN(folder, &run, 2, "plan " SHAPE "--profile shared");
    CLI_CODE_IN(folder, &run, 2, "plan --packed");
    EXPECT_CONTAINS(run.output, "--packed: rows of conversations are of a --model folder");
}

static void test_the_loss_is_weighted_over_the_mini_batch(void) {
    const char *folder = make_folder();
    char path[512];
    snprintf(path, sizeof path, "%s/chats.jsonl", folder);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    for (int i = 0; i < 13; i++) {
        fprintf(file, "{\"prompt\": \"question\", \"completion\": \"");
        for (int k = 0; k < 1 + i * i / 8; k++) fprintf(file, "%d ", i + k);
        fprintf(file, "\"}\n");
    }
    EXPECT(fclose(file) == 0);
#define LOSS(options)                                                                              \
    loss_of(folder, "--model model --load model --data chats.jsonl " TEMPLATE options, NULL)
    double loss = LOSS("--batch 1");
    EXPECT_NEAR(LOSS("--batch 5 --chunks 2"), loss, 1e-6 * loss);
    EXPECT_NEAR(LOSS("--batch 32 --chunks 4 --stages 2"), loss, 1e-6 * loss);
    EXPECT_NEAR(LOSS("--no-pack --batch 5 --chunks 2"), loss, 1e-6 * loss);
    /* the first update is of the same rows, before anything is learnt */
    CLI_CODE_IN(folder, &run, 0,
                TRAIN TEMPLATE
                "--data chats.jsonl --eval-data chats.jsonl --no-pack --batch 13 --chunks 4 "
                "--steps 1 --eval-batches 1 --sample 0 --json all");
    EXPECT_NEAR(cli_loss_of_line(folder, "all", 0), loss, 1e-6 * loss);
#define STEPS TRAIN TEMPLATE "--data chats.jsonl --steps 3 --lr 0.01 --eval-batches 1 --sample 0 "
    CLI_CODE_IN(folder, &run, 0, STEPS "--batch 4 --json whole");
    CLI_CODE_IN(folder, &run, 0, STEPS "--batch 2 --accumulate 2 --json halves");
    CLI_CODE_IN(folder, &run, 0, STEPS "--batch 4 --chunks 3 --stages 2 --json chunks");
    for (size_t line = 0; line < 3; line++) {
        loss = cli_loss_of_line(folder, "whole", line);
        EXPECT_NEAR(cli_loss_of_line(folder, "halves", line), loss, 1e-5 * loss);
        EXPECT_NEAR(cli_loss_of_line(folder, "chunks", line), loss, 1e-5 * loss);
    }
}

static void test_text_is_read_by_the_tokenizer(void) {
    const char *folder = make_folder();
    json_t *summary = NULL;
    CHECK(cli_do(folder, "seq 1 300 > text"));
    double one = loss_of(folder, "--model model --load model --data text --batch 1", &summary);
    /* with the one that ends it */
    EXPECT_EQ_UINT((uint64_t)cli_number(summary, "tokens"), cli_count_ids(folder, "text"));
    json_decref(summary);
    EXPECT_NEAR(loss_of(folder, "--model model --load model --data text", NULL), one, 1e-6 * one);
    CLI_CODE_IN(folder, &run, 0,
                TRAIN "--data text --batch 4 --steps 4 --eval-every 2 --eval-batches 1 "
                      "--sample 5 --sample-prompt '1 2 3' --sample-prompt hello --save saved");
    EXPECT_CONTAINS(run.output, "tokens in 1 file");
    int samples = 0;
    for (const char *at = run.output; (at = strstr(at, "\nsample\n")) != NULL; at++) samples++;
    EXPECT_EQ_INT(samples, 4); /* after two updates, and at the end */
    EXPECT_CONTAINS(run.output, "\nsample\n1 2 3");
    EXPECT_CONTAINS(run.output, "\nsample\nhello");
    CLI_CODE_IN(folder, &run, 0, TRAIN "--data text --batch 4 --steps 2 --sample 0 --save half");
    CLI_CODE_IN(folder, &run, 0,
                "train --model model --plan given --threads-per-stage 1 " RUN
                "--warmup 0 --lr-schedule constant --data text --batch 4 --steps 4 --sample 0 "
                "--resume half --stages 2 --chunks 2");
    EXPECT(cli_do(folder, "cmp saved half"));
}

static void test_samples_answer_a_question(void) {
    const char *folder = make_folder();
    make_chats(folder, "chats.jsonl", 40);
    CLI_CODE_IN(folder, &run, 0,
                TRAIN TEMPLATE "--data chats.jsonl --batch 8 --steps 80 --lr 0.02 --sample 16 "
                               "--sample-prompt 'what is 5'");
    EXPECT_CONTAINS(run.output, "user\nwhat is 5\nassistant\n<think>\n\n</think>\n\na number\n");
    CLI_CODE_IN(folder, &run, 0,
                TRAIN TEMPLATE "--data chats.jsonl --batch 8 --steps 1 --lr 0 --sample 2");
    EXPECT_CONTAINS(run.output, "user\nwhat is "); /* one that is held out */
}

static void test_what_cannot_be_read_so_is_refused(void) {
    const char *folder = make_folder();
    make_chats(folder, "chats.jsonl", 4);
    cli_write(folder, "text", "some text, not much of it");
    CLI_CODE_IN(folder, &run, 2, TRAIN "--data chats.jsonl --steps 1");
    EXPECT_CONTAINS(run.output, "name one by --template (llama3");
    CLI_CODE_IN(folder, &run, 2, TRAIN "--data chats.jsonl --steps 1 --template chatml");
    CLI_CODE_IN(folder, &run, 2, TRAIN "--data chats.jsonl --steps 1 --template llama3");
    EXPECT_CONTAINS(run.output, "writes <|begin_of_text|>, which is no added token");
    cli_write(folder, "model/chat_template.jinja", "{{ messages }}");
    CLI_CODE_IN(folder, &run, 2, TRAIN "--data chats.jsonl --steps 1");
    EXPECT_CONTAINS(run.output, "model/chat_template.jinja: the chat template is none");
    CLI_CODE_IN(folder, &run, 2, TRAIN TEMPLATE "--data text --steps 1");
    EXPECT_CONTAINS(run.output, "--template means nothing without conversations");
    CLI_CODE_IN(folder, &run, 2,
                TRAIN TEMPLATE "--data chats.jsonl --steps 1 --sample 0 --sample-prompt a");
    EXPECT_CONTAINS(run.output, "--sample-prompt: --sample 0 asks for no samples");
    CLI_CODE_IN(folder, &run, 2, "predict --model model --load model --data text --out o.npy " RUN);
    EXPECT_CONTAINS(run.output, "rows without padding");
    CHECK(cli_do(folder, "echo '{\"messages\": [{\"role\": \"tool\"}]}' >> chats.jsonl"));
    CLI_CODE_IN(folder, &run, 2, TRAIN TEMPLATE "--data chats.jsonl --steps 1");
    EXPECT_CONTAINS(run.output, "chats.jsonl, line 5: message 1 has the role \"tool\"");
    CLI_CODE_IN(folder, &run, 2,
                "eval --model model --load model --data chats.jsonl --context 20 " TEMPLATE);
    EXPECT_CONTAINS(run.output, "chats.jsonl, line 1: has ");
    CHECK(cli_do(folder, "mv model/tokenizer.json t"));
    CLI_CODE_IN(folder, &run, 2, TRAIN "--data chats.jsonl --steps 1");
    EXPECT_CONTAINS(run.output, "put its tokenizer.json into model");
    CHECK(cli_do(folder, "head -c 999 t > model/tokenizer.json"));
    CLI_CODE_IN(folder, &run, 2, TRAIN "--data text --steps 1");
    EXPECT_CONTAINS(run.output, "model/tokenizer.json: ");
}

WEIR_TEST_SUITE(cli_chats, TEST(replies_are_learnt_and_nothing_else),
                TEST(conversations_share_rows), TEST(profiles_are_of_shared_rows_or_of_others),
                TEST(the_loss_is_weighted_over_the_mini_batch), TEST(text_is_read_by_the_tokenizer),
                TEST(samples_answer_a_question), TEST(what_cannot_be_read_so_is_refused))

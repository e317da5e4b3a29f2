/* SPDX-License-Identifier: MIT */
/*
 * Goal: what the README's first page says of bits, and that nothing of what decides them changes in
 * silence. Method: the installed command trains a small GPT over pipelines drawn at random, as a
 * person would give them, and whole checkpoints are compared; runs are resumed with another order
 * of adding up gradients.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Four layers; rows of 2, 2 and 1. */
#define TRAIN "train " CLI_TRAIN " --data 0.txt --dropout 0.1 --lr-schedule constant"
#define PAIRS test_count(6, 200)

static const char *pick(const char *const *texts, uint64_t count) {
    return texts[test_random_below(count)];
}

/* Stages, workers, cut, schedule, checkpoint and recomputation; of one order. */
static void draw_pipeline(bool descending, char text[256]) {
    static const char *const ascending[] = {"1f1b --stages 1",
                                            "1f1b --stages 3 --workers 2",
                                            "1f1b --balance 1,3",
                                            "1f1b --balance 2,1,1 --workers 1",
                                            "interleaved --stages 4 --workers 2",
                                            "zb-h1 --stages 3",
                                            "zb-h2 --balance 1,2,1",
                                            "zb-v --stages 4",
                                            "v-half --stages 4",
                                            "v-min --stages 2",
                                            "dualpipe-v --stages 2",
                                            "auto --stages 4 --workers 2"};
    static const char *const others[] = {"gpipe --stages 1", "gpipe --stages 3 --workers 2",
                                         "gpipe --balance 3,1", "looped-bfs --stages 4",
                                         "looped-bfs --stages 2"};
    static const char *const checkpoints[] = {"always", "except_last", "never"};
    static const char *const recomputes[] = {"early", "late"};
    static const char *const waits[] = {"auto", "park"};
    snprintf(text, 256, "--schedule %s --checkpoint %s --recompute %s --wait %s",
             descending ? pick(others, 5) : pick(ascending, 12), pick(checkpoints, 3),
             pick(recomputes, 2), pick(waits, 2));
}

/* The README: "Results are the same bits for any number of stages and workers, …". */
static void test_pipelines_of_one_order_give_the_same_bits(void) {
    struct cli_run run;
    const char *text = cli_text();
    char pipeline[256];
    for (int descending = 0; descending < 2; descending++) {
        CLI_CODE_IN(text, &run, 0, TRAIN " --steps 3 --save first%d --schedule %s", descending,
                    descending ? "gpipe" : "1f1b");
        for (size_t i = 0; i < PAIRS; i++) {
            draw_pipeline(descending == 1, pipeline);
            CLI_CODE_IN(text, &run, 0, TRAIN " --steps 3 --save other %s", pipeline);
            if (!cli_do(text, "cmp first%d other", descending)) TEST_FAIL("with %s", pipeline);
            CHECK_HELPERS();
        }
    }
    CHECK(cli_do(text, "! cmp first0 first1")); /* the order does decide */
}

static void test_another_order_is_said_when_a_run_is_resumed(void) {
    static const struct {
        const char *began, *resumed, *now, *then; /* now NULL: nothing to say */
    } cases[] = {
        {"1f1b --stages 2", "gpipe --stages 2", "descending", "ascending"},
        {"gpipe --stages 2", "1f1b --stages 3", "ascending", "descending"},
        {"gpipe --stages 2", "looped-bfs --stages 2 --workers 1", NULL, NULL},
        {"1f1b --stages 2", "zb-v --stages 4", NULL, NULL},
        {"./t.csv --stages 2", "1f1b --stages 2", "ascending", "9f19854a6eada506"},
        {"./t.csv --stages 2", "./t.csv --stages 2", NULL, NULL},
    };
    struct cli_run run;
    const char *text = cli_text();
    CHECK(cli_do(text, "printf '0F0,0F1,0F2,0B1,0B0,0B2\\n1F0,1F1,1F2,1B1,1B0,1B2\\n' >t.csv"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char said[128];
        CLI_CODE_IN(text, &run, 0, TRAIN " --steps 2 --save a --schedule %s", cases[i].began);
        CLI_CODE_IN(text, &run, 0, TRAIN " --steps 4 --resume a --save b --schedule %s",
                    cases[i].resumed);
        if (cases[i].now == NULL) {
            EXPECT(strstr(run.output, "warning") == NULL);
            continue;
        }
        snprintf(said, sizeof said, "gradients of micro-batches add up in %s order", cases[i].now);
        CHECK_CONTAINS(run.output, said);
        snprintf(said, sizeof said, "a was trained in %s order: this run will not be bit for bit",
                 cases[i].then);
        CHECK_CONTAINS(run.output, said);
    }
}

static void test_a_search_never_changes_the_order(void) {
    struct cli_run run;
    const char *text = cli_text();
    static const char *const begun[] = {"gpipe", "1f1b"};
    for (int i = 0; i < 2; i++) {
        CLI_CODE_IN(text, &run, 0, TRAIN " --steps 2 --save a --schedule %s", begun[i]);
        CLI_CODE_IN(text, &run, 0, TRAIN " --steps 4 --save straight --schedule %s", begun[i]);
        CLI_CODE_IN(text, &run, 0,
                    TRAIN " --steps 4 --resume a --save searched --plan auto --workers 2 "
                          "--memory-limit 200KiB");
        EXPECT(strstr(run.output, "warning") == NULL);
        CHECK(cli_do(text, "cmp straight searched"));
    }
}

static void test_an_order_is_named_by_its_table(void) {
    static const struct {
        const char *options, *order, *shared;
    } cases[] = {
        {"--schedule 1f1b --stages 3", "ascending", "true"},
        {"--schedule auto --stages 2", "ascending", "true"},
        {"--schedule gpipe --stages 1", "descending", "true"},
        {"--schedule gpipe --chunks 1", "ascending", "true"},
        {"--schedule looped-bfs --stages 4", "descending", "true"},
        {"--check two.csv", "9f19854a6eada506", "true"},
        {"--check three.csv", "9f19854a6eada506", "true"}, /* of other stages, split */
        {"--check other.csv", NULL, "true"},
        {"--check mixed.csv", NULL, "false"},
    };
    static const char tables[] =
        "printf '0F0,0F1,0F2,0B1,0B0,0B2\\n1F0,1F1,1F2,1B1,1B0,1B2\\n' >two.csv; "
        "printf '0F0,0F1,0F2,0I0,0I1,0I2,0W1,0W0,0W2\\n1F0,1F1,1F2,1B1,1B0,1B2\\n"
        "2F0,2F1,2F2,2B1,2B0,2B2\\n' | sed '1s/0I0,0I1,0I2,0W1,0W0,0W2/0I1,0I0,0I2,0W1,0W0,0W2/' "
        ">three.csv; printf '0F0,0F1,0F2,0B1,0B2,0B0\\n' >other.csv; "
        "printf '0F0,0F1,0I1,0I0,0W0,0W1\\n1F0,1F1,1B1,1B0\\n' >mixed.csv";
    struct cli_run run;
    const char *folder = test_temporary_directory();
    CHECK(cli_do(folder, tables));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[160];
        CLI_CODE_IN(folder, &run, 0, "schedule %s --json facts && cat facts", cases[i].options);
        snprintf(text, sizeof text, "\"order_is_shared\": %s", cases[i].shared);
        CHECK_CONTAINS(run.output, text);
        if (cases[i].order == NULL) {
            EXPECT(strstr(run.output, "ascending") == NULL && strstr(run.output, "9f19") == NULL);
            continue;
        }
        snprintf(text, sizeof text, "\"order\": \"%s\"", cases[i].order);
        CHECK_CONTAINS(run.output, text);
    }
}

/* The page explains each entry of the list that checkpoints have. */
static void test_the_page_lists_what_decides_bits(void) {
    struct cli_run run;
    char path[512];
    const char *text = cli_text();
    snprintf(path, sizeof path, "%s/a", text);
    char *page = cli_read("docs/command.md", NULL);
    const char *part = page != NULL ? strstr(page, "\n## Same bits") : NULL;
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 1 --save a --lr-schedule cosine");
    char *file = cli_read(path, NULL);
    json_error_t error;
    uint64_t length = 0;
    CHECK(part != NULL && file != NULL);
    memcpy(&length, file, 8);
    json_t *header = json_loadb(file + 8, length, 0, &error);
    json_t *notes = json_object_get(header, "__metadata__"), *value;
    const char *key;
    EXPECT(json_object_size(notes) > 15);
    json_object_foreach(notes, key, value) {
        char name[96];
        bool option = strncmp(key, "option.", 7) == 0;
        snprintf(name, sizeof name, option ? "`--%s`" : "`%s`", key + (option ? 7 : 0));
        bool progress =
            strcmp(key, "step") == 0 || strcmp(key, "mini_batch") == 0 || strcmp(key, "heads") == 0;
        if (!progress && strstr(part, name) == NULL) TEST_FAIL("the page lacks %s", name);
    }
    json_decref(header);
    free(file);
    free(page);
}

WEIR_TEST_SUITE(cli_bits, TEST(pipelines_of_one_order_give_the_same_bits),
                TEST(another_order_is_said_when_a_run_is_resumed),
                TEST(a_search_never_changes_the_order), TEST(an_order_is_named_by_its_table),
                TEST(the_page_lists_what_decides_bits))

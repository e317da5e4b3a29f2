/* SPDX-License-Identifier: MIT */
/*
 * Goal: rows of text by a tokenizer are those of a collator in Python, each row is of one part, and
 * nothing but the data decides them. Method: golden/make_rows.py; made-up documents whose tokens
 * tell where they came from; whole passes counted.
 */
#include "io/data_files.h"
#include "io/words_place.h"
#include "data/documents.h"
#include "harness.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- golden rows ---- */

static void write_case(const struct words_place *place, const json_t *root, char names[256]) {
    const json_t *lines = json_object_get(root, "lines"), *texts = json_object_get(root, "texts");
    size_t used = 0;
    names[0] = 0;
    if (lines) {
        struct weir__bytes all = {0};
        struct weir__io io = {.allocator = test_allocator()};
        for (size_t i = 0; i < json_array_size(lines); i++) {
            const json_t *line = json_array_get(lines, i);
            size_t bytes = json_string_length(line);
            CHECK_OK(weir__bytes_reserve(&io, &all, bytes + 1));
            memcpy(all.data + all.count, json_string_value(line), bytes);
            all.data[all.count + bytes] = '\n';
            all.count += bytes + 1;
        }
        words_write(place, "chats.jsonl", all.data, all.count);
        weir__bytes_release(io.allocator, &all);
        strcpy(names, "chats.jsonl");
    }
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        char name[32];
        snprintf(name, sizeof(name), "texts/%zu.txt", i);
        words_write(place, name, json_string_value(text), json_string_length(text));
        used = (size_t)snprintf(names, 256, "texts");
    }
    (void)used;
}

static void check_rows(const struct words_place *place, const json_t *rows, uint32_t context) {
    const struct weir__dataset *data = place->data.dataset;
    struct weir__io io = place->data.io;
    CHECK_EQ_UINT(dataset_facts(&place->data)->held_out_rows, json_array_size(rows));
    int64_t *input = calloc(context, sizeof(*input)), *target = calloc(context, sizeof(*target));
    CHECK(input && target);
    for (size_t r = 0; r < json_array_size(rows); r++) {
        const json_t *row = json_array_get(rows, r);
        EXPECT_STATUS(weir__dataset_read_held_out(data, &io, r, 1, input, target), WEIR_OK);
        bool same = true;
        for (uint32_t i = 0; i < context; i++) {
            const json_t *in = json_array_get(json_array_get(row, 0), i);
            const json_t *out = json_array_get(json_array_get(row, 1), i);
            same = same && input[i] == json_integer_value(in);
            same = same && target[i] == json_integer_value(out);
        }
        if (!EXPECT(same)) TEST_FAIL("row %zu", r);
    }
    free(input);
    free(target);
}

static void test_rows_are_those_of_a_collator_in_python(void) {
    FILE *file = fopen("tests/golden/rows.golden", "r");
    CHECK(file != NULL);
    json_error_t error;
    json_t *root;
    int cases = 0;
    while ((root = json_loadf(file, JSON_DISABLE_EOF_CHECK, &error)) != NULL) {
        struct words_place place;
        char names[256], path[512];
        const char *form = json_string_value(json_object_get(root, "form"));
        json_int_t context = json_integer_value(json_object_get(root, "context"));
        words_begin(&place, json_string_value(json_object_get(root, "family")), form);
        if (!form) data_make_folder(place.data.directory, "texts", path);
        place.data.whole = true;
        write_case(&place, root, names);
        if (EXPECT_STATUS(words_open(&place, names, "", context), WEIR_OK)) {
            EXPECT(dataset_facts(&place.data)->kind ==
                   (form ? WEIR__DATA_CHATS : WEIR__DATA_WORDS));
            check_rows(&place, json_object_get(root, "rows"), (uint32_t)context);
        }
        words_end(&place);
        json_decref(root);
        cases++;
    }
    fclose(file);
    EXPECT_EQ_INT(cases, 4);
}

/* ---- made-up documents ---- */

enum { CONTEXT = 8 };

/* Document d has tokens 100 d, 100 d + 1, …; its second half is learnt. */
static void add_document(struct weir__documents *documents, uint32_t number, uint32_t count) {
    struct weir__io io = {.allocator = test_allocator()};
    uint32_t ids[CONTEXT + 1];
    bool learnt[CONTEXT + 1];
    struct weir__passage passage = {.first = documents->token_count, .count = count};
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = 100 * number + i;
        learnt[i] = i >= count / 2;
    }
    CHECK_OK(weir__documents_add(&io, documents, ids, learnt, count));
    CHECK_OK(weir__documents_add_passage(&io, documents, passage));
}

static void test_several_passages_of_a_row_stand_one_behind_the_other(void) {
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__documents documents = {0};
    static const struct weir__documents_plan plan = {CONTEXT, .packed = true};
    static const int64_t inputs[2][2 * CONTEXT] = {
        {100, 101, 102, 200, 201, 0, 0, 0, 0, 0, 0, 3, 3, 5, 5, 5},
        {300, 301, 302, 303, 304, 305, 306, 307, 0, 0, 0, 0, 0, 0, 0, 0}};
    static const int64_t targets[2][CONTEXT] = {{-9, 102, 103, 201, 202, -9, -9, -9},
                                                {-9, -9, -9, 304, 305, 306, 307, 308}};
    int64_t input[2 * CONTEXT], target[CONTEXT];
    add_document(&documents, 1, 4);
    add_document(&documents, 3, 9);
    add_document(&documents, 2, 3);
    CHECK_OK(weir__documents_plan(&io, &documents, &plan));
    EXPECT_EQ_UINT(documents.row_count, 2);
    EXPECT_EQ_UINT(documents.place_count, 3 + 2 + 8);
    EXPECT_EQ_UINT(documents.learnt_count, 2 + 2 + 5);
    EXPECT_EQ_UINT(weir__documents_largest(&documents), 308);
    for (uint64_t r = 0; r < 2; r++) {
        weir__documents_read(&documents, r, CONTEXT, -9, input, target);
        EXPECT_EQ_BYTES(input, inputs[r], sizeof(input));
        EXPECT_EQ_BYTES(target, targets[r], sizeof(target));
        weir__documents_read(&documents, r, CONTEXT, -9, NULL, target);
        EXPECT_EQ_BYTES(target, targets[r], sizeof(target));
    }
    uint32_t count = 0;
    const uint32_t *prompt = weir__documents_prompt(&documents, 1, CONTEXT, &count);
    EXPECT(prompt[0] == 300 && count == 4);
    prompt = weir__documents_prompt(&documents, 1, 3, &count);
    EXPECT(prompt[0] == 300 && count == 3);
    weir__documents_clean_up(&documents);
}

static void test_every_passage_is_of_one_part(void) {
    struct weir__io io = {.allocator = test_allocator()};
    for (uint32_t count = 2; count < 50; count++) {
        struct weir__documents documents = {0};
        const struct weir__documents_plan plan = {CONTEXT, count % 2 == 1, .split = true};
        int64_t input[2 * CONTEXT], target[CONTEXT];
        bool seen[50] = {false};
        uint32_t passages[2] = {0, 0};
        for (uint32_t i = 0; i < count; i++) add_document(&documents, i + 1, 2 + i % 4);
        CHECK_OK(weir__documents_plan(&io, &documents, &plan));
        for (int part = 0; part < 2; part++)
            for (uint64_t i = 0; i < weir__documents_part(&documents, part == 1); i++) {
                uint64_t row = weir__documents_part_row(&documents, part == 1, i);
                weir__documents_read(&documents, row, CONTEXT, -9, input, target);
                for (uint32_t k = 0; k < CONTEXT && input[k] > 0; k++) {
                    if (input[k] % 100 != 0) continue; /* its first token */
                    if (!EXPECT(!seen[input[k] / 100 - 1])) return;
                    seen[input[k] / 100 - 1] = true;
                    passages[part]++;
                }
            }
        EXPECT_EQ_UINT(passages[1], count < 10 ? 1 : count / 10);
        EXPECT_EQ_UINT(passages[0] + passages[1], count);
        weir__documents_clean_up(&documents);
    }
}

/* ---- data sets ---- */

#define CHAT(a, b) "{\"prompt\": \"" a "\", \"completion\": \"" b "\"}\n"

static void write_text(const struct words_place *place, const char *name, const char *text) {
    words_write(place, name, text, strlen(text));
}

enum { CHATS = 21, CHAT_CONTEXT = 32 };

/* The conversation whose letter a row has in its prompt and, learnt, in its completion. */
static uint32_t letter_of(const struct words_place *place, const int64_t *input,
                          const int64_t *target) {
    uint32_t letter = CHATS, asked = 0, answered = 0;
    for (int i = 0; i < CHAT_CONTEXT; i++)
        for (uint32_t k = 0; k < CHATS; k++) {
            const char text[] = {(char)('A' + k), 0};
            int64_t id = tokenizer_find(place->words.tokenizer, text);
            if (input[i] != id && target[i] != id) continue;
            if (letter == CHATS) letter = k;
            EXPECT_EQ_UINT(k, letter);
            asked += input[i] == id;
            answered += target[i] == id;
        }
    EXPECT_EQ_UINT(asked, 2);
    EXPECT_EQ_UINT(answered, 1);
    return letter;
}

static void test_a_pass_visits_every_conversation_once(void) {
    struct words_place place;
    char text[2048] = "";
    int64_t input[CHAT_CONTEXT], target[CHAT_CONTEXT];
    uint64_t counted = 0;
    bool seen[CHATS + 1] = {false};
    words_begin(&place, "qwen", "qwen3");
    for (int i = 0; i < CHATS; i++) {
        char *end = text + strlen(text);
        snprintf(end, sizeof text - (size_t)(end - text), CHAT("%c", "%c"), 'A' + i, 'A' + i);
    }
    write_text(&place, "a.jsonl", text);
    CHECK_OK(words_open(&place, "a.jsonl", "", CHAT_CONTEXT));
    const struct weir__dataset_facts *facts = dataset_facts(&place.data);
    EXPECT_EQ_UINT(facts->document_count, CHATS);
    EXPECT_EQ_UINT(facts->held_out_rows, 2);
    EXPECT_NEAR(facts->pass_rows, 19, 0);
    EXPECT(facts->ignores && facts->row_tokens < CHAT_CONTEXT && facts->learnt > 0);
    for (uint64_t r = 0; r < CHATS; r++) {
        const struct weir__dataset *data = place.data.dataset;
        if (r < 19)
            CHECK_OK(weir__dataset_read(data, &place.data.io, 1, r, 1, input, target));
        else
            CHECK_OK(weir__dataset_read_held_out(data, &place.data.io, r - 19, 1, input, target));
        for (int i = 0; r < 19 && i < CHAT_CONTEXT; i++) counted += target[i] != -100;
        uint32_t letter = letter_of(&place, input, target);
        EXPECT(letter < CHATS && !seen[letter]);
        seen[letter] = true;
    }
    EXPECT_EQ_UINT(counted * CHATS, facts->learnt * 19);
    uint32_t count = 0;
    const uint32_t *prompt = weir__dataset_prompt(place.data.dataset, CHAT_CONTEXT, &count);
    EXPECT(prompt != NULL && prompt[0] == tokenizer_find(place.words.tokenizer, "<|im_start|>"));
    EXPECT(count > 1 && count < CHAT_CONTEXT);
    words_end(&place);
}

static void test_parts_are_told_by_names_and_options(void) {
    static const struct {
        const char *paths, *eval;
        double rows;
        uint64_t held_out;
        bool whole;
    } cases[] = {
        {"train.jsonl test.jsonl", "", 3, 2, false},
        {"d", "", 3, 2, false},
        {"train.jsonl", "test.jsonl", 3, 2, false},
        {"train.jsonl", "d", 3, 2, false},
        {"train.jsonl", "", 2, 1, false},
        {"d", "", 2, 2, true},
        {"train.jsonl", "", 3, 3, true},
        {"d/readme.txt", "train.jsonl", 0, 0, false},
    };
    struct words_place place;
    char path[512];
    words_begin(&place, "qwen", "qwen3");
    data_make_folder(place.data.directory, "d", path);
    write_text(&place, "train.jsonl", CHAT("a", "b") "\n" CHAT("c", "d") "  \r\n" CHAT("e", ""));
    write_text(&place, "test.jsonl",
               CHAT("f", "g") "{\"messages\": null, \"prompt\": \"h\", "
                              "\"completion\": \"i\"}");
    write_text(&place, "d/train.jsonl", CHAT("a", "b") CHAT("c", "d") CHAT("e", "f"));
    write_text(&place, "d/test.jsonl", CHAT("f", "g") CHAT("h", "i"));
    write_text(&place, "d/readme.txt", "is left alone");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        place.data.whole = cases[i].whole;
        int status = words_open(&place, cases[i].paths, cases[i].eval, 32);
        if (cases[i].rows > 0 && EXPECT_STATUS(status, WEIR_OK)) {
            EXPECT_NEAR(dataset_facts(&place.data)->pass_rows, cases[i].rows, 0);
            EXPECT_EQ_UINT(dataset_facts(&place.data)->held_out_rows, cases[i].held_out);
        } else if (cases[i].rows == 0) {
            EXPECT_STATUS(status, WEIR_ERR_CONFIG);
            dataset_check_fault(&place.data, "are text, but the held-out data are conversations");
        }
        dataset_end(&place.data);
    }
    words_end(&place);
}

static void test_text_is_documents_and_too_little_is_refused(void) {
    struct words_place place;
    char path[512];
    words_begin(&place, "qwen", NULL);
    data_make_folder(place.data.directory, "d", path);
    write_text(&place, "d/a.txt", "one text of some words, and more");
    write_text(&place, "d/b.txt", "");
    write_text(&place, "d/c.txt", "another");
    place.data.whole = true;
    CHECK_OK(words_open(&place, "d", "", 4));
    const struct weir__dataset_facts *facts = dataset_facts(&place.data);
    EXPECT_EQ_UINT(facts->document_count, 3);
    EXPECT_EQ_UINT(facts->learnt, facts->units - 1); /* all but the first */
    EXPECT_EQ_UINT(facts->held_out_rows, (facts->units - 1 + 3) / 4);
    uint64_t fingerprint = facts->fingerprint;
    dataset_end(&place.data);
    write_text(&place, "d/c.txt", "anothes");
    CHECK_OK(words_open(&place, "d", "", 4));
    EXPECT(dataset_facts(&place.data)->fingerprint != fingerprint);
    dataset_end(&place.data);
    place.data.whole = false;
    EXPECT_STATUS(words_open(&place, "d/c.txt", "", 64), WEIR_ERR_CONFIG);
    dataset_check_fault(&place.data, "there is one row of the context");
    dataset_end(&place.data);
    CHECK_OK(dataset_open(&place.data, "d", ""));
    EXPECT_STATUS(dataset_bind(&place.data, dataset_token_model(4, 600)), WEIR_ERR_CONFIG);
    dataset_check_fault(&place.data, "the tokenizer gives token 600 of 608");
    words_end(&place);
}

WEIR_TEST_SUITE(word_rows, TEST(rows_are_those_of_a_collator_in_python),
                TEST(several_passages_of_a_row_stand_one_behind_the_other),
                TEST(every_passage_is_of_one_part), TEST(a_pass_visits_every_conversation_once),
                TEST(parts_are_told_by_names_and_options),
                TEST(text_is_documents_and_too_little_is_refused))

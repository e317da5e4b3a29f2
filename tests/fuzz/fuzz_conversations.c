/* SPDX-License-Identifier: MIT */
/*
 * Conversations in lines of JSON, by a real tokenizer and the template that looks at texts the
 * most. Whatever is read gives rows whose targets are their inputs' successors.
 */
#include "fuzz/fuzz.h"

#include "data/documents.h"

#include <string.h>

enum { CONTEXT = 96, IGNORED = -100 };
/* A conversation's text is more than its line, and an encoder's cache is the tokenizer's. */
#define FIXED_BYTES (1u << 20)

static struct model_text words;

static void open_words(void) {
    struct weir__io io = {.error = NULL};
    FUZZ_CHECK(tokenizer_open(&io, "tests/golden/tokenizers/qwen.json", &words.tokenizer) ==
               WEIR_OK);
    words.form = chat_template_named("qwen3");
}

static void use(const struct weir__io *io, struct weir__documents *documents) {
    const struct weir__documents_plan plan = {.context = CONTEXT, .packed = true};
    int64_t input[2 * CONTEXT], target[CONTEXT];
    FUZZ_CHECK(weir__documents_plan(io, documents, &plan) == WEIR_OK);
    for (uint64_t row = 0; row < documents->row_count; row++) {
        weir__documents_read(documents, row, CONTEXT, IGNORED, input, target);
        for (int i = 0; i < CONTEXT; i++) {
            FUZZ_CHECK(input[i] >= 0 && input[i] < tokenizer_size(words.tokenizer));
            FUZZ_CHECK(input[CONTEXT + i] >= 0 && input[CONTEXT + i] <= i);
            bool last = i + 1 == CONTEXT || input[CONTEXT + i + 1] == i + 1;
            FUZZ_CHECK(target[i] == IGNORED || last || target[i] == input[i + 1]);
        }
    }
    FUZZ_CHECK(weir__documents_largest(documents) < tokenizer_size(words.tokenizer));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir__documents documents = {0};
    if (words.tokenizer == NULL) open_words();
    struct weir__io *io = fuzz_begin(data, count);
    int status = weir__documents_add_chats(io, &words, "file", CONTEXT, &faults, &documents);
    FUZZ_CHECK(status == (faults.count > 0 ? WEIR_ERR_CONFIG : WEIR_OK));
    if (status == WEIR_OK) use(io, &documents);
    weir__documents_clean_up(&documents);
    weir_faults_clean_up(&faults);
    fuzz_end(FIXED_BYTES);
    return 0;
}

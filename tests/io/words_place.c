/* SPDX-License-Identifier: MIT */
#include "io/words_place.h"

#include "harness.h"
#include "io/io_faults.h"

#include <stdio.h>

void words_begin(struct words_place *place, const char *family, const char *form) {
    struct weir__io io = {.allocator = test_allocator(), .error = &place->data.error};
    char path[96];
    dataset_begin(&place->data);
    snprintf(path, sizeof(path), "tests/golden/tokenizers/%s.json", family);
    place->words = (struct model_text){.begin = TOKENIZER_NONE};
    EXPECT_STATUS(tokenizer_open(&io, path, &place->words.tokenizer), WEIR_OK);
    place->words.separator = tokenizer_find(place->words.tokenizer, "<|endoftext|>");
    place->words.form = form ? chat_template_named(form) : NULL;
    place->data.words = &place->words;
}

void words_end(struct words_place *place) {
    dataset_end(&place->data);
    model_text_close(&place->words);
}

void words_write(const struct words_place *place, const char *name, const char *text,
                 size_t bytes) {
    char path[512];
    io_make_file(place->data.directory, name, text, bytes, path);
}

int words_open(struct words_place *place, const char *names, const char *eval_names,
               int64_t context) {
    int status = dataset_open(&place->data, names, eval_names);
    return status ? status : dataset_bind(&place->data, dataset_token_model(context, 700));
}

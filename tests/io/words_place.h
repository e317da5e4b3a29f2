/* SPDX-License-Identifier: MIT */
/** A model's tokenizer and files of text for the tests of documents. */
#ifndef WEIR_TESTS_WORDS_PLACE_H
#define WEIR_TESTS_WORDS_PLACE_H

#include "io/dataset_place.h"
#include "text/model_text.h"

struct words_place {
    struct dataset_place data;
    struct model_text words;
};

/** Opens tests/golden/tokenizers/FAMILY.json as a model's, with a chat template of that name, or
 * none where `form` is NULL; closed by words_end. */
void words_begin(struct words_place *place, const char *family, const char *form);
void words_end(struct words_place *place);
/** DIRECTORY/NAME. */
void words_write(const struct words_place *place, const char *name, const char *text, size_t bytes);
/** Opens and binds; 0, or the status of the one that failed. */
int words_open(struct words_place *place, const char *names, const char *eval_names,
               int64_t context);

#endif

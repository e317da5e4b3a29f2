/* SPDX-License-Identifier: MIT */
/*
 * tokenizer.json, and text for it. An input is a file, then a zero, then the text; without a zero
 * the file is its own text. What opens must encode any text into tokens that it knows, whose spans
 * lie in the text, and decode them.
 */
#include "fuzz/fuzz.h"

#include "text/tokenizer.h"

#include <string.h>

/* Tables of all code points, one for each pattern and one in all, and an encoder's cache. */
#define TABLES_BYTES (16u << 20)

static void decode(const struct tokenizer *tokenizer, const struct text_tokens *tokens) {
    struct text_decoder *decoder = NULL;
    const char *text;
    size_t bytes;
    FUZZ_CHECK(text_decoder_new(tokenizer, true, &decoder) == WEIR_OK);
    for (size_t i = 0; i < tokens->count; i++) {
        FUZZ_CHECK(text_decoder_put(decoder, tokens->ids[i], &text, &bytes) == WEIR_OK);
        fuzz_touch(text, bytes);
    }
    FUZZ_CHECK(text_decoder_end(decoder, &text, &bytes) == WEIR_OK);
    fuzz_touch(text, bytes);
    text_decoder_destroy(decoder);
}

static void use(struct tokenizer *tokenizer, const char *text, size_t bytes) {
    struct text_encoder *encoder = NULL;
    struct text_tokens tokens, again;
    FUZZ_CHECK(text_encoder_new(tokenizer, &encoder) == WEIR_OK);
    FUZZ_CHECK(text_encode(encoder, text, bytes, TEXT_SPECIAL_AS_TEXT, &again) == WEIR_OK);
    FUZZ_CHECK(text_encode(encoder, text, bytes, TEXT_SPANS | TEXT_ADD_SPECIAL, &tokens) ==
               WEIR_OK);
    for (size_t i = 0; i < tokens.count; i++) {
        FUZZ_CHECK(tokens.ids[i] < tokenizer_size(tokenizer));
        FUZZ_CHECK(tokens.spans[i].begin <= tokens.spans[i].end && tokens.spans[i].end <= bytes);
    }
    decode(tokenizer, &tokens);
    text_encoder_destroy(encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count) {
    const uint8_t *zero = count > 0 ? memchr(data, 0, count) : NULL;
    size_t file = zero != NULL ? (size_t)(zero - data) : count;
    const uint8_t *text = zero != NULL ? zero + 1 : data;
    struct tokenizer *tokenizer = NULL;
    struct weir__io *io = fuzz_begin(data, file);
    int status = tokenizer_open(io, "file", &tokenizer);
    FUZZ_CHECK(status == WEIR_OK || status == WEIR_ERR_FORMAT || status == WEIR_ERR_UNSUPPORTED);
    FUZZ_CHECK(status == io->error->status);
    if (status == WEIR_OK) use(tokenizer, (const char *)text, count - (size_t)(text - data));
    tokenizer_close(tokenizer);
    fuzz_end(TABLES_BYTES);
    return 0;
}

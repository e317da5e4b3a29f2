/* SPDX-License-Identifier: MIT */
/** What encode.c, word.c and spans.c share. */
#ifndef WEIR_TEXT_ENCODER_INSIDE_H
#define WEIR_TEXT_ENCODER_INSIDE_H

#include "text/tokenizer_inside.h"

#define CACHE_WORDS 32768u
#define CACHED_BYTES 24
#define CACHED_TOKENS 7

struct letter_room {
    unsigned char *letters;
    size_t capacity;
};

/** A word's tokens, and where in it each ends. A word of 0 bytes is none. */
struct cached_word {
    char word[CACHED_BYTES];
    uint8_t bytes, count, ends[CACHED_TOKENS];
    uint32_t ids[CACHED_TOKENS];
};

/** A part of a word, in a list; length 0: merged into the one before it. */
struct symbol {
    uint32_t id, length;
    int32_t before, behind; /**< -1: none */
};

/** Two neighbours that merge: the symbol at `place` and the one behind it. */
struct merge_candidate {
    uint32_t rank, place, whole;
};

struct text_encoder {
    const struct tokenizer *tokenizer;
    const struct weir_allocator *allocator;
    unsigned flags;
    struct aligned sound;
    struct normal_room normal;
    struct pattern_room *room;
    struct letter_room letters[SPLIT_STEPS_MAX];
    struct letter_room spaced;
    char *mapped; /**< a word as the vocabulary writes it */
    size_t mapped_capacity;
    struct symbol *symbols;
    size_t symbol_count, symbol_capacity;
    bool in_letters; /**< symbols' lengths are those of the vocabulary's text */
    struct merge_candidate *heap;
    size_t heap_count, heap_capacity;
    struct cached_word *cache;
    uint32_t *ids;
    struct text_span *spans;
    size_t count, id_capacity, span_capacity;
};

/** Bytes that become tokens by themselves. Byte i is byte place + i of `text`; what is before
 * `first` has been put there and stands for what that one stands for. */
struct text_word {
    const char *bytes;
    size_t count;
    const struct aligned *text;
    int64_t place;
    size_t first;
};

int word_encode(struct text_encoder *e, const struct text_word *word);
int token_add(struct text_encoder *e, uint32_t id, struct text_span span);
/** Takes blanks at both ends of a token out of its span, from token `first` on, as ByteLevel does
 * behind the model. `text` is what was encoded. */
void spans_trim(struct text_encoder *e, const char *text, size_t bytes, uint32_t first);

#endif

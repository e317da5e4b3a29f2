/* SPDX-License-Identifier: MIT */
/** What pattern.c and pattern_letters.c share: the alphabet, and reading a pattern. */
#ifndef WEIR_TEXT_PATTERN_INSIDE_H
#define WEIR_TEXT_PATTERN_INSIDE_H

#include "text/pattern.h"

#define PATTERN_LETTERS 256

/** Which letter a code point is. Of each letter that is not ASCII one code point stands for all. */
struct pattern_alphabet {
    unsigned char *letters; /**< UTF8_LIMIT, the pool's */
    uint32_t count;         /**< of letters; 128 are ASCII's own */
    struct pattern_kind {
        uint32_t point; /**< the first one */
        uint8_t category;
        uint8_t marks;
        uint16_t place; /**< between which of the pattern's own code points */
    } kinds[PATTERN_LETTERS];
};

/** A pattern on its way. */
struct pattern_writing {
    const char *text, *at;
    char *why; /**< 128 bytes */
    const struct pattern_alphabet *alphabet;
    char *out;
    size_t written, capacity;
    uint32_t depth;
    bool caseless[32], looks[32]; /**< per group that is open; outside of all at 0 */
    bool atom;                    /**< what was read last may be repeated */
    char before;                  /**< the last letter in (?i:, or 0 */
};

/** A character, or a class of them. */
struct pattern_item {
    bool is_set, negated, space;
    uint32_t point;      /**< of a character */
    uint32_t categories; /**< of a class that is not \s */
};

int pattern_alphabet_new(struct weir__pool *pool, const char *text, char why[128],
                         struct pattern_alphabet **alphabet);
unsigned pattern_letter_of(const struct pattern_alphabet *alphabet, uint32_t point);
/** Says why, unless that was said; false. */
bool pattern_refuse(struct pattern_writing *w, const char *what);
/** The character or class at w->at, which moves behind it. */
bool pattern_read_item(struct pattern_writing *w, struct pattern_item *item);
/** The same of a whole […]: `set` has PATTERN_LETTERS. */
bool pattern_read_set(struct pattern_writing *w, bool *set);
void pattern_add_item(const struct pattern_alphabet *alphabet, const struct pattern_item *item,
                      bool *set);

#endif

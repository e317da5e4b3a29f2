/* SPDX-License-Identifier: MIT */
/**
 * Regular expressions of `tokenizer.json`, which are Oniguruma's, matched by PCRE2.
 *
 * The two differ, and so do their Unicodes. So a pattern is translated, and of its syntax only what
 * means the same in both is taken: groups (?:…) (?i:…) (…), (?=…) (?!…), alternatives, sets without
 * sets in them, \s \S \p{L} \P{Lu} by the tables of unicode.h, \r \n \t, and * + ? {n,m}, lazy or
 * possessive. All else is refused by name.
 *
 * Two code points that no part of the pattern tells apart may stand for each other. That leaves few
 * kinds of code points, well below 256: a pattern is matched not over text but over one byte per
 * code point that says its kind, its letter. ASCII characters are letters of their own. Sets become
 * bitmaps, so that no match walks through Unicode's ranges, and PCRE2 needs no Unicode at all.
 */
#ifndef WEIR_TEXT_PATTERN_H
#define WEIR_TEXT_PATTERN_H

#include "base/pool.h"

struct pattern; /**< read-only once made: any number of threads */

/** Compiles `text`, a sound UTF-8 text. What is not taken is WEIR_ERR_UNSUPPORTED with a reason in
 * `why`, as is one that may match nothing. Destroyed by the caller, before the pool. */
int pattern_new(struct weir__pool *pool, const char *text, char why[128], struct pattern **pattern);
/** Accepts NULL. */
void pattern_destroy(struct pattern *pattern);

/** The letters of a sound UTF-8 text, at most one a byte, into `letters`. Returns how many. */
size_t pattern_letters(const struct pattern *pattern, const char *text, size_t bytes,
                       unsigned char *letters);

/** Room for matching; one thread. */
struct pattern_room;
/** NULL without memory. PCRE2's own is the C library's. */
struct pattern_room *pattern_room_new(const struct weir_allocator *allocator);
/** Accepts NULL. */
void pattern_room_destroy(struct pattern_room *room);

/** Looks for the first match in `count` letters from `from` on; before that the text counts as
 * seen. Without one *begin and *end are `count`. WEIR_ERR_OUT_OF_MEMORY. */
int pattern_find(const struct pattern *pattern, struct pattern_room *room,
                 const unsigned char *letters, size_t count, size_t from, size_t *begin,
                 size_t *end);

#endif

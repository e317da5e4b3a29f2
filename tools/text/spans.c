/* SPDX-License-Identifier: MIT */
/* Blanks are counted in a token's text as the vocabulary writes it, and then as many characters of
 * what it stands for are left out, whatever they are: that is what `tokenizers` does. */
#include "text/encoder_inside.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <string.h>

/* Of a blank, in GPT-2's alphabet. */
enum { BLANK_LETTER = 0x120 };

/* Blanks at the beginning and at the end of a token's text, in characters. */
static void count_blanks(const struct tokenizer *t, const char *text, size_t *before,
                         size_t *behind) {
    size_t length = strlen(text);
    bool first = true;
    *before = *behind = 0;
    for (size_t at = 0; at < length;) {
        uint32_t point;
        at += utf8_next(text + at, length - at, &point);
        bool blank = point == BLANK_LETTER || (t->marks[point] & UNICODE_SPACE) != 0;
        *behind = blank ? *behind + 1 : 0;
        first = first && blank;
        if (first) ++*before;
    }
}

/* `count` characters further, at most `end`. */
static uint32_t step_over(const char *text, size_t bytes, uint32_t at, uint32_t end, size_t count) {
    for (; count > 0 && at < end; count--) {
        uint32_t point;
        at += (uint32_t)utf8_next(text + at, bytes - at, &point);
    }
    return at;
}

/* At most `most` are counted. */
static size_t characters(const char *text, size_t bytes, uint32_t at, uint32_t end, size_t most) {
    size_t count = 0;
    for (; at < end && count < most; count++) {
        uint32_t point;
        at += (uint32_t)utf8_next(text + at, bytes - at, &point);
    }
    return count;
}

void spans_trim(struct text_encoder *e, const char *text, size_t bytes, uint32_t first) {
    const struct tokenizer *t = e->tokenizer;
    for (size_t i = first; i < e->count; i++) {
        struct text_span *span = &e->spans[i];
        size_t before, behind;
        count_blanks(t, t->tokens[e->ids[i]].shown, &before, &behind);
        bool leads = i == first || span->begin == 0;
        if (leads && t->keeps_first_blank && before == 1) before = 0;
        span->begin = step_over(text, bytes, span->begin, span->end, before);
        if (behind == 0) continue;
        size_t count = characters(text, bytes, span->begin, span->end, SIZE_MAX);
        bool all = count < behind && characters(text, bytes, 0, span->end, behind) < behind;
        if (all) continue; /* more blanks than characters in all: the library lets them be */
        span->end = count <= behind
                        ? span->begin
                        : step_over(text, bytes, span->begin, span->end, count - behind);
    }
}

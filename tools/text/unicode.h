/* SPDX-License-Identifier: MIT */
/**
 * What the `tokenizers` library takes every code point for. The table (unicode_runs.c) is written
 * by tests/golden/make_unicode.py from that library itself, because no system's libraries know just
 * its Unicode: categories are of 16, normalization of about 9, and PCRE2 10.42 has 14 and another
 * \s. Read-only.
 */
#ifndef WEIR_TEXT_UNICODE_H
#define WEIR_TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/** Marks of a code point. */
enum {
    UNICODE_SPACE = 1,   /**< \s */
    UNICODE_NUMERIC = 2, /**< a number for the splitter Digits */
    UNICODE_ACTIVE = 4,  /**< NFC may change it, or what stands before it */
    UNICODE_INERT = 8    /**< NFC leaves it alone, though a newer Unicode would not */
};

/** Runs of equal code points, ascending from 0: the first one << 9 | category << 4 | marks. */
extern const uint32_t unicode_runs[];
extern const uint32_t unicode_run_count;

static inline uint32_t unicode_run_first(uint32_t run) {
    return unicode_runs[run] >> 9;
}
static inline uint32_t unicode_run_category(uint32_t run) {
    return unicode_runs[run] >> 4 & 31;
}
static inline uint32_t unicode_run_marks(uint32_t run) {
    return unicode_runs[run] & 15;
}

/** A set of categories, one bit each, by the name that \p{} has for it: "L", "Lu". 0: no name that
 * is known. */
uint32_t unicode_categories(const char *name, size_t length);
/** All marks of all code points; `marks` has UTF8_LIMIT bytes. */
void unicode_fill_marks(uint8_t *marks);

#endif

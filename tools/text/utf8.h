/* SPDX-License-Identifier: MIT */
/** UTF-8, sound or broken: Unicode 16, tables 3-7 and 3-8. Pure functions, any thread. */
#ifndef WEIR_TEXT_UTF8_H
#define WEIR_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_LIMIT 0x110000u        /**< all code points are below */
#define UTF8_REPLACEMENT 0xfffdu    /**< what a broken part becomes */
#define UTF8_BROKEN UINT32_MAX      /**< no code point */
#define UTF8_CUT (UTF8_BROKEN - 1u) /**< begins one, but the text ends */

/** The code point that `count` >= 1 bytes begin with, into `point`. Returns its bytes; of what is
 * broken or cut those that become one U+FFFD together: the longest beginning of any character, or
 * one byte, as Python's errors="replace" and WHATWG have it. */
size_t utf8_next(const char *bytes, size_t count, uint32_t *point);
/** Writes a code point that is no surrogate; returns its bytes. */
size_t utf8_put(uint32_t point, char bytes[4]);
/** Of the character that begins with this byte of a sound text. */
static inline size_t utf8_length(unsigned char lead) {
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}
/** How many bytes at the beginning are sound. */
size_t utf8_sound(const char *bytes, size_t count);

#endif

/* SPDX-License-Identifier: MIT */
/* Names come from files, and messages go to terminals, where an escape sequence in a name could
 * clear the screen or write a lie over the message. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

/* Continuation bytes that must follow a byte that begins a character; 0 for none, and for what
 * begins no character. */
static size_t continuations(unsigned char first) {
    if (first >= 0xc2 && first <= 0xdf) return 1;
    if (first >= 0xe0 && first <= 0xef) return 2;
    return first >= 0xf0 && first <= 0xf4 ? 3 : 0;
}

/* Bytes of the character that `text` begins with, if it is one that can be seen; else 0. Forms that
 * are too long, surrogates and what lies above U+10FFFF show in the second byte. */
static size_t visible_bytes(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    if (c[0] < 0x80) return c[0] >= 0x20 && c[0] != 0x7f;
    size_t more = continuations(c[0]);
    for (size_t i = 1; i <= more; i++)
        if (c[i] < 0x80 || c[i] > 0xbf) return 0;
    bool wrong = (c[0] == 0xc2 && c[1] < 0xa0) || (c[0] == 0xe0 && c[1] < 0xa0) ||
                 (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf0 && c[1] < 0x90) ||
                 (c[0] == 0xf4 && c[1] > 0x8f);
    return more > 0 && !wrong ? more + 1 : 0;
}

static size_t escape(unsigned char byte, char text[8]) {
    static const char known[] = "\n\r\t", letters[] = "nrt";
    const char *at = strchr(known, byte);
    int length = at != NULL ? snprintf(text, 8, "\\%c", letters[at - known])
                            : snprintf(text, 8, "\\x%02x", byte);
    return (size_t)length;
}

char *weir__text_visible(const char *from, char *to, size_t capacity) {
    assert(capacity >= 1);
    size_t used = 0;
    while (*from != '\0') {
        char escaped[8];
        size_t bytes = visible_bytes(from), count = bytes;
        const char *piece = from;
        if (bytes == 0) {
            count = escape((unsigned char)*from, escaped);
            piece = escaped;
            bytes = 1;
        }
        if (count >= capacity - used) break;
        memcpy(to + used, piece, count);
        used += count;
        from += bytes;
    }
    to[used] = '\0';
    return to;
}

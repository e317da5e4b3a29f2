/* SPDX-License-Identifier: MIT */
/* A second byte's range depends on the first one: that excludes overlong forms, surrogates and
 * what is beyond U+10FFFF. */
#include "text/utf8.h"

#include <assert.h>
#include <string.h>

struct lead {
    uint8_t more, low, high; /* bytes behind it; the range of the first of them */
};

static struct lead lead_of(unsigned char byte) {
    if (byte >= 0xc2 && byte <= 0xdf) return (struct lead){1, 0x80, 0xbf};
    if (byte == 0xe0) return (struct lead){2, 0xa0, 0xbf};
    if (byte == 0xed) return (struct lead){2, 0x80, 0x9f};
    if (byte >= 0xe1 && byte <= 0xef) return (struct lead){2, 0x80, 0xbf};
    if (byte == 0xf0) return (struct lead){3, 0x90, 0xbf};
    if (byte >= 0xf1 && byte <= 0xf3) return (struct lead){3, 0x80, 0xbf};
    if (byte == 0xf4) return (struct lead){3, 0x80, 0x8f};
    return (struct lead){0, 0, 0};
}

size_t utf8_next(const char *bytes, size_t count, uint32_t *point) {
    assert(count >= 1);
    unsigned char first = (unsigned char)bytes[0];
    struct lead lead = lead_of(first);
    *point = first;
    if (first < 0x80) return 1;
    *point = UTF8_BROKEN;
    if (lead.more == 0) return 1;
    uint32_t value = first & (0x3fu >> lead.more);
    for (size_t i = 1; i <= lead.more; i++) {
        if (i == count) {
            *point = UTF8_CUT;
            return i;
        }
        unsigned char byte = (unsigned char)bytes[i];
        if (byte < lead.low || byte > lead.high) return i;
        value = value << 6 | (byte & 0x3fu);
        lead.low = 0x80, lead.high = 0xbf;
    }
    *point = value;
    return lead.more + 1u;
}

size_t utf8_put(uint32_t point, char bytes[4]) {
    assert(point < UTF8_LIMIT && (point < 0xd800 || point > 0xdfff));
    if (point < 0x80) {
        bytes[0] = (char)point;
        return 1;
    }
    size_t more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static const unsigned char marks[] = {0, 0xc0, 0xe0, 0xf0};
    for (size_t i = more; i > 0; i--, point >>= 6) bytes[i] = (char)(0x80 | (point & 0x3f));
    bytes[0] = (char)(marks[more] | point);
    return more + 1;
}

size_t utf8_sound(const char *bytes, size_t count) {
    size_t at = 0;
    while (at < count) {
        uint64_t eight = 0;
        if (count - at >= 8) memcpy(&eight, bytes + at, 8);
        if (count - at >= 8 && (eight & UINT64_C(0x8080808080808080)) == 0) {
            at += 8;
            continue;
        }
        uint32_t point;
        size_t length = utf8_next(bytes + at, count - at, &point);
        if (point >= UTF8_LIMIT) return at;
        at += length;
    }
    return at;
}

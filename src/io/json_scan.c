/* SPDX-License-Identifier: MIT */
/*
 * A string is never longer with its escapes resolved than as it was written, quotes for its zero,
 * so all strings of a text fit into as much room as the text has, and none is measured first.
 */
#include "io/json_scan.h"

#include <assert.h>
#include <string.h>

void weir__json_scan_init(struct weir__json_scan *scan, const char *text, size_t bytes,
                          char *room) {
    assert(text != NULL || bytes == 0);
    *scan = (struct weir__json_scan){.begin = text, .at = text, .end = text + bytes, .room = room};
}

static bool fail(struct weir__json_scan *scan, const char *fault) {
    if (!scan->fault) scan->fault = fault;
    return false;
}

/* ---- structure ---- */

char weir__json_peek(struct weir__json_scan *scan) {
    assert(scan->at >= scan->begin && scan->at <= scan->end);
    while (scan->at < scan->end &&
           (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\r' || *scan->at == '\t')) {
        scan->at++;
    }
    return scan->at < scan->end && !scan->fault ? *scan->at : 0;
}

bool weir__json_take(struct weir__json_scan *scan, char byte) {
    assert(byte != 0);
    if (weir__json_peek(scan) != byte) return false;
    scan->at++;
    return true;
}

bool weir__json_value_begins(struct weir__json_scan *scan) {
    char next = weir__json_peek(scan);
    bool begins = next != 0 && strchr("{[\"-0123456789tfn", next) != NULL;
    return begins || fail(scan, "a value is missing");
}

bool weir__json_more(struct weir__json_scan *scan, char close, bool *first) {
    bool begins = *first;
    *first = false;
    if (weir__json_take(scan, close)) return false;
    if (begins || weir__json_take(scan, ',')) return !scan->fault;
    return fail(scan, close == '}' ? "',' or '}' is missing" : "',' or ']' is missing");
}

bool weir__json_ends(struct weir__json_scan *scan) {
    weir__json_peek(scan);
    return scan->at == scan->end || fail(scan, "text goes on behind its end");
}

/* ---- strings ---- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The four digits behind \u, `at` being on the first of them. */
static bool take_unit(struct weir__json_scan *scan, uint32_t *unit) {
    *unit = 0;
    for (int i = 0; i < 4; i++) {
        int digit = scan->at < scan->end ? hex_digit(*scan->at) : -1;
        if (digit < 0) return fail(scan, "\\u needs four hexadecimal digits");
        *unit = *unit << 4 | (uint32_t)digit;
        scan->at++;
    }
    return true;
}

static void put_utf8(struct weir__json_scan *scan, uint32_t code) {
    assert(code > 0 && code < 0x110000);
    static const uint32_t limits[] = {0x80, 0x800, 0x10000};
    static const unsigned char marks[] = {0x00, 0xC0, 0xE0, 0xF0};
    unsigned more = 0;
    while (more < 3 && code >= limits[more]) more++;
    *scan->room++ = (char)(marks[more] | code >> (6 * more));
    while (more-- > 0) *scan->room++ = (char)(0x80u | (code >> (6 * more) & 0x3Fu));
}

/* Characters beyond 16 bits come as two escapes. */
static bool take_unicode(struct weir__json_scan *scan) {
    uint32_t code = 0, low = 0;
    if (!take_unit(scan, &code)) return false;
    if (code == 0) return fail(scan, "a string holds a zero byte");
    if (code >= 0xD800 && code <= 0xDFFF) {
        bool two = code < 0xDC00 && scan->end - scan->at >= 2 && memcmp(scan->at, "\\u", 2) == 0;
        scan->at += two ? 2 : 0;
        if (!two || !take_unit(scan, &low) || low < 0xDC00 || low > 0xDFFF)
            return fail(scan, "half a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    put_utf8(scan, code);
    return true;
}

/* `at` is behind the backslash. */
static bool take_escape(struct weir__json_scan *scan) {
    static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    const char *found = NULL;
    if (scan->at < scan->end && *scan->at == 'u') {
        scan->at++;
        return take_unicode(scan);
    }
    if (scan->at < scan->end && *scan->at != 0) found = strchr(letters, *scan->at);
    if (!found) return fail(scan, "an escape that JSON does not have");
    *scan->room++ = bytes[found - letters];
    scan->at++;
    return true;
}

bool weir__json_string(struct weir__json_scan *scan, const char **text) {
    assert(scan->room);
    char *begin = scan->room;
    if (!weir__json_take(scan, '"')) return fail(scan, "a string is missing");
    while (scan->at < scan->end && *scan->at != '"') {
        if ((unsigned char)*scan->at < 0x20) return fail(scan, "a control character in a string");
        if (*scan->at != '\\') {
            *scan->room++ = *scan->at++;
        } else if (scan->at++, !take_escape(scan)) {
            return false;
        }
    }
    if (scan->at == scan->end) return fail(scan, "a string does not end");
    scan->at++;
    *scan->room++ = 0;
    *text = begin;
    return true;
}

bool weir__json_key(struct weir__json_scan *scan, const char **key) {
    if (!weir__json_string(scan, key)) return false;
    return weir__json_take(scan, ':') || fail(scan, "':' is missing");
}

/* ---- numbers ---- */

bool weir__json_natural(struct weir__json_scan *scan, int64_t *number) {
    assert(number != NULL);
    char first = weir__json_peek(scan);
    const char *at = scan->at;
    int64_t value = 0;
    for (; at < scan->end && *at >= '0' && *at <= '9'; at++) {
        int digit = *at - '0';
        if (value > (INT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    bool padded = first == '0' && at - scan->at > 1;
    bool goes_on = at < scan->end && (*at == '.' || *at == 'e' || *at == 'E');
    if (scan->fault || at == scan->at || padded || goes_on) return false;
    scan->at = at;
    *number = value;
    return true;
}

/* SPDX-License-Identifier: MIT */
/* A reader of HTML that accepts no more than our pages need: everything else is a fault. */
#include "engine/html.h"

#include "trace/trace.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MOST = 64, NAME_BYTES = 24 };

static const struct entity {
    const char *name;
    char byte;
} entities[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&#39;", '\''}};

struct reader {
    const char *at;
    char open[DEPTH_MOST][NAME_BYTES];
    uint32_t depth;
    char *outline;
    size_t used, capacity;
    bool failed;
};

static void fault(struct reader *r, const char *what) {
    if (!r->failed) TEST_FAIL("the page: %s at: %.60s", what, r->at);
    r->failed = true;
}

static void note(struct reader *r, const char *text, size_t bytes) {
    if (r->used + bytes + 1 > r->capacity) {
        r->capacity = 2 * (r->used + bytes) + 4096;
        r->outline = realloc(r->outline, r->capacity);
    }
    memcpy(r->outline + r->used, text, bytes);
    r->used += bytes;
    r->outline[r->used] = '\0';
}

static bool skip(struct reader *r, const char *text) {
    if (strncmp(r->at, text, strlen(text)) != 0) return false;
    r->at += strlen(text);
    return true;
}

static const struct entity *entity_at(const char *at) {
    for (size_t i = 0; i < sizeof entities / sizeof entities[0]; i++)
        if (strncmp(at, entities[i].name, strlen(entities[i].name)) == 0) return &entities[i];
    return NULL;
}

/* One character of text or of an attribute's value. */
static void read_character(struct reader *r) {
    size_t bytes = weir__utf8_bytes(r->at);
    unsigned char first = (unsigned char)*r->at;
    const struct entity *entity = entity_at(r->at);
    if (bytes == 0) {
        fault(r, "no UTF-8");
    } else if ((first < 0x20 && first != '\n' && first != '\t') || first == 0x7f) {
        fault(r, "a control character");
    } else if (first == '&' && entity == NULL) {
        fault(r, "an ampersand");
    } else if (first == '>') {
        fault(r, "a > in text");
    }
    r->at += entity != NULL ? strlen(entity->name) : bytes == 0 ? 1 : bytes;
}

static size_t read_name(struct reader *r, char name[NAME_BYTES]) {
    size_t length = 0;
    while (isalnum((unsigned char)r->at[length]) || r->at[length] == '-') length++;
    if (length == 0 || length >= NAME_BYTES) fault(r, "no name");
    snprintf(name, NAME_BYTES, "%.*s", (int)length, r->at);
    r->at += length;
    return length;
}

static void read_attribute(struct reader *r) {
    char name[NAME_BYTES];
    note(r, " ", 1);
    note(r, name, read_name(r, name));
    if (!skip(r, "=\"")) {
        fault(r, "an attribute without quotes");
        return;
    }
    while (*r->at != '"' && *r->at != '\0' && !r->failed) {
        if (*r->at == '<') fault(r, "a < in an attribute");
        read_character(r);
    }
    if (!skip(r, "\"")) fault(r, "an attribute does not end");
}

/* Up to the end tag, which the element's text may not hold. */
static void skip_raw(struct reader *r, const char *name) {
    char end[NAME_BYTES + 4];
    snprintf(end, sizeof end, "</%s", name);
    const char *found = strcasestr(r->at, end);
    const char *comment = strstr(r->at, "<!--");
    if (found == NULL) {
        fault(r, "a script or style does not end");
    } else {
        if (comment != NULL && comment < found) fault(r, "a comment in a script or style");
        r->at = found;
    }
}

static void read_open_tag(struct reader *r) {
    char name[NAME_BYTES];
    note(r, "<", 1);
    note(r, name, read_name(r, name));
    while (!r->failed && *r->at == ' ') {
        r->at++;
        read_attribute(r);
    }
    bool closed = skip(r, "/>");
    note(r, closed ? "/>\n" : ">\n", closed ? 3 : 2);
    if (closed || r->failed) return;
    if (!skip(r, ">")) fault(r, "a tag does not end");
    if (strcmp(name, "meta") == 0) return;
    if (r->depth == DEPTH_MOST) {
        fault(r, "too deep");
        return;
    }
    memcpy(r->open[r->depth++], name, sizeof name);
    if (strcmp(name, "script") == 0 || strcmp(name, "style") == 0) skip_raw(r, name);
}

static void read_end_tag(struct reader *r) {
    char name[NAME_BYTES];
    read_name(r, name);
    if (r->depth == 0 || strcmp(r->open[r->depth - 1], name) != 0) {
        fault(r, "an end without a beginning");
        return;
    }
    r->depth--;
    note(r, "</>\n", 4);
    if (!skip(r, ">")) fault(r, "an end tag does not end");
}

char *html_outline(const char *page) {
    struct reader r = {.at = page};
    note(&r, "", 0);
    if (!skip(&r, "<!doctype html>")) fault(&r, "no doctype");
    while (*r.at != '\0' && !r.failed) {
        if (skip(&r, "</")) {
            read_end_tag(&r);
        } else if (skip(&r, "<")) {
            read_open_tag(&r);
        } else {
            read_character(&r);
        }
    }
    if (r.depth > 0) fault(&r, "something is left open");
    if (!r.failed) return r.outline;
    free(r.outline);
    return NULL;
}

json_t *html_data(const char *page) {
    static const char begin[] = "<script type=\"application/json\" id=\"data\">";
    const char *from = strstr(page, begin), *to = NULL;
    json_error_t error;
    if (from != NULL) to = strstr(from, "</script>");
    if (to == NULL) {
        TEST_FAIL("the page holds no data");
        return NULL;
    }
    from += strlen(begin);
    json_t *data = json_loadb(from, (size_t)(to - from), JSON_REJECT_DUPLICATES, &error);
    if (data == NULL) TEST_FAIL("the page's data, line %d: %s", error.line, error.text);
    return data;
}

char *html_text_of(const char *page, const char *id) {
    char begin[64];
    snprintf(begin, sizeof begin, " id=\"%s\">", id);
    const char *at = strstr(page, begin), *end;
    if (at == NULL) {
        TEST_FAIL("nothing has the id %s", id);
        return NULL;
    }
    at += strlen(begin);
    char *text = malloc(strlen(at) + 1);
    size_t used = 0;
    while (*at != '\0') {
        const struct entity *entity = entity_at(at);
        if (*at == '<') {
            bool inner = strncmp(at, "<bdi>", 5) == 0 || strncmp(at, "<code>", 6) == 0 ||
                         strncmp(at, "</bdi>", 6) == 0 || strncmp(at, "</code>", 7) == 0;
            end = strchr(at, '>');
            if (!inner || end == NULL) break;
            at = end + 1;
        } else {
            text[used++] = entity != NULL ? entity->byte : *at;
            at += entity != NULL ? strlen(entity->name) : 1;
        }
    }
    text[used] = '\0';
    return text;
}

uint32_t html_count(const char *page, const char *part) {
    uint32_t count = 0;
    for (const char *at = page; (at = strstr(at, part)) != NULL; at += strlen(part)) count++;
    return count;
}

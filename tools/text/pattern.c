/* SPDX-License-Identifier: MIT */
/* Translation in two steps: pattern_letters.c says which code points are one letter, this file
 * writes the pattern over letters. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern_inside.h"
#include "text/utf8.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>

/* Every character of a pattern becomes a set at most; sets are written as ranges of two. */
enum {
    TEXT_MAX = 4096,
    DEPTH_MAX = 32,
    REPEATS_MAX = 1000,
    SET_BYTES_MAX = 4 * PATTERN_LETTERS + 4
};
enum { JIT_FIRST = 32 << 10, JIT_MOST = 64 << 20, HEAP_KIB = 1 << 20 };

struct pattern {
    pcre2_code *code;
    const struct pattern_alphabet *alphabet;
};

/* ---- writing ---- */

static void put_text(struct pattern_writing *w, const char *text) {
    size_t length = strlen(text);
    assert(w->written + length < w->capacity);
    memcpy(w->out + w->written, text, length);
    w->written += length;
}

static void put_letter(struct pattern_writing *w, unsigned letter) {
    char text[8];
    snprintf(text, sizeof text, "\\x%02x", letter);
    put_text(w, text);
}

static void put_set(struct pattern_writing *w, const bool *set) {
    bool some = false;
    put_text(w, "[");
    for (unsigned i = 0; i < PATTERN_LETTERS; i++) {
        unsigned last = i;
        if (!set[i]) continue;
        while (last + 1 < PATTERN_LETTERS && set[last + 1]) last++;
        put_letter(w, i);
        if (last > i) put_text(w, "-"), put_letter(w, last);
        i = last, some = true;
    }
    put_text(w, some ? "]" : "^\\x00-\\xff]");
}

bool pattern_refuse(struct pattern_writing *w, const char *what) {
    if (w->why[0] == '\0')
        snprintf(w->why, 128, "%s at byte %zu of the pattern is not taken", what,
                 (size_t)(w->at - w->text));
    return false;
}

/* ---- single characters ---- */

/* Oniguruma takes pairs of letters for one character that folds to them, like ss for U+00DF. */
static bool is_folded_pair(char before, char now) {
    static const char *const pairs[] = {"ff", "fi", "fl", "ss", "st"};
    for (size_t i = 0; i < WEIR__COUNT_OF(pairs); i++)
        if (pairs[i][0] == before && pairs[i][1] == now) return true;
    return false;
}

/* Without case. U+017F is a long s, U+212A the Kelvin sign. */
static bool put_caseless(struct pattern_writing *w, uint32_t point) {
    bool set[PATTERN_LETTERS] = {false};
    if (point >= 0x80) return pattern_refuse(w, "a letter that is not ASCII's in (?i:");
    char lower = (char)(point >= 'A' && point <= 'Z' ? point + 32 : point);
    if (is_folded_pair(w->before, lower)) return pattern_refuse(w, "ff, fi, fl, ss or st in (?i:");
    set[(unsigned char)lower] = true;
    if (lower >= 'a' && lower <= 'z') set[lower - 32] = true;
    if (lower == 's') set[pattern_letter_of(w->alphabet, 0x17f)] = true;
    if (lower == 'k') set[pattern_letter_of(w->alphabet, 0x212a)] = true;
    put_set(w, set);
    w->before = lower;
    return true;
}

static bool put_literal(struct pattern_writing *w, uint32_t point) {
    w->atom = true;
    if (w->caseless[w->depth]) return put_caseless(w, point);
    put_letter(w, pattern_letter_of(w->alphabet, point));
    return true;
}

/* ---- parts ---- */

static bool open_group(struct pattern_writing *w) {
    static const struct {
        const char *from, *to;
        bool caseless, looks;
    } groups[] = {{"(?:", "(?:", false, false},
                  {"(?i:", "(?:", true, false},
                  {"(?=", "(?=", false, true},
                  {"(?!", "(?!", false, true}};
    if (w->depth + 1 == DEPTH_MAX) return pattern_refuse(w, "a group in so many groups");
    size_t found = 0;
    while (found < WEIR__COUNT_OF(groups) &&
           strncmp(w->at, groups[found].from, strlen(groups[found].from)) != 0)
        found++;
    bool known = found < WEIR__COUNT_OF(groups);
    if (!known && w->at[1] == '?') return pattern_refuse(w, "a group '(?' of this kind");
    put_text(w, known ? groups[found].to : "(?:");
    w->depth++;
    w->caseless[w->depth] = w->caseless[w->depth - 1] || (known && groups[found].caseless);
    w->looks[w->depth] = known && groups[found].looks;
    w->at += known ? strlen(groups[found].from) : 1;
    w->atom = false;
    return true;
}

static bool close_group(struct pattern_writing *w) {
    if (w->depth == 0) return pattern_refuse(w, "a ')' without '('");
    put_text(w, ")");
    w->atom = !w->looks[w->depth];
    w->depth--;
    w->at++;
    return true;
}

/* {n}, {n,} and {n,m}: lazy and possessive ones mean something else in Oniguruma. */
static bool put_interval(struct pattern_writing *w) {
    unsigned least = 0, most = 0;
    int length = 0, all = 0;
    char text[32];
    if (w->at[1] < '0' || w->at[1] > '9' || sscanf(w->at, "{%4u%n", &least, &length) != 1)
        return pattern_refuse(w, "a '{' that is no interval");
    most = least;
    if (w->at[length] == ',' && w->at[length + 1] == '}')
        most = REPEATS_MAX, length++;
    else if (w->at[length] == ',' && w->at[length + 1] >= '0' && w->at[length + 1] <= '9' &&
             sscanf(w->at + length, ",%4u%n", &most, &all) == 1)
        length += all;
    if (w->at[length] != '}' || least > most || most > REPEATS_MAX || most == 0)
        return pattern_refuse(w, "an interval like this");
    snprintf(text, sizeof text, "%.*s", length + 1, w->at);
    put_text(w, text);
    w->at += length + 1;
    return *w->at == '?' || *w->at == '+' ? pattern_refuse(w, "what follows an interval") : true;
}

static bool put_repeat(struct pattern_writing *w) {
    if (!w->atom) return pattern_refuse(w, "a repetition of nothing, or of another one,");
    w->atom = false;
    if (*w->at == '{') return put_interval(w);
    char text[3] = {*w->at++, '\0', '\0'};
    if (*w->at == '?' || *w->at == '+') text[1] = *w->at++;
    put_text(w, text);
    return true;
}

static bool put_part(struct pattern_writing *w) {
    char byte = *w->at;
    char before = w->before;
    w->before = '\0';
    switch (byte) {
    case '(': w->before = before; return open_group(w);
    case ')': return close_group(w);
    case '*':
    case '+':
    case '?':
    case '{': return put_repeat(w);
    case '|': w->atom = false, w->at++, put_text(w, "|"); return true;
    case '.':
    case '^':
    case '$': return pattern_refuse(w, "an unescaped '.', '^' or '$'");
    default: break;
    }
    struct pattern_item item;
    bool set[PATTERN_LETTERS];
    if (byte == '[') {
        if (w->caseless[w->depth]) return pattern_refuse(w, "a set in (?i:");
        if (!pattern_read_set(w, set)) return false;
        w->atom = true;
        put_set(w, set);
        return true;
    }
    if (!pattern_read_item(w, &item)) return false;
    w->before = before;
    if (!item.is_set) return put_literal(w, item.point);
    if (w->caseless[w->depth]) return pattern_refuse(w, "a set in (?i:");
    memset(set, 0, sizeof set);
    pattern_add_item(w->alphabet, &item, set);
    w->atom = true;
    put_set(w, set);
    return true;
}

/* ---- compiling ---- */

static int translate(struct pattern_writing *w) {
    while (*w->at != '\0')
        if (!put_part(w)) return WEIR_ERR_UNSUPPORTED;
    if (w->depth == 0) return WEIR_OK;
    pattern_refuse(w, "a '(' without ')'");
    return WEIR_ERR_UNSUPPORTED;
}

static int compile(struct pattern_writing *w, struct pattern *pattern) {
    int error = 0;
    size_t place = 0;
    uint32_t empty = 1;
    pattern->code = pcre2_compile((PCRE2_SPTR)w->out, w->written,
                                  PCRE2_NEVER_UTF | PCRE2_NEVER_UCP | PCRE2_NO_AUTO_CAPTURE, &error,
                                  &place, NULL);
    if (pattern->code == NULL && error == PCRE2_ERROR_HEAP_FAILED) return WEIR_ERR_OUT_OF_MEMORY;
    if (pattern->code == NULL) {
        snprintf(w->why, 128, "PCRE2 does not take the pattern (its error %d)", error);
        return WEIR_ERR_UNSUPPORTED;
    }
    pcre2_pattern_info(pattern->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty != 0) {
        snprintf(w->why, 128, "the pattern may match nothing at all");
        return WEIR_ERR_UNSUPPORTED;
    }
    pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE); /* where there is none, it is slower */
    return WEIR_OK;
}

int pattern_new(struct weir__pool *pool, const char *text, char why[128],
                struct pattern **pattern) {
    struct pattern_writing w = {.text = text, .at = text, .why = why};
    struct pattern_alphabet *alphabet = NULL;
    struct pattern *made = weir__pool_take(pool, 1, sizeof *made);
    why[0] = '\0';
    if (strlen(text) > TEXT_MAX || text[0] == '\0') {
        snprintf(why, 128, "a pattern has 1 to %d bytes", (int)TEXT_MAX);
        return WEIR_ERR_UNSUPPORTED;
    }
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = pattern_alphabet_new(pool, text, why, &alphabet);
    if (status != WEIR_OK) return status;
    w.alphabet = made->alphabet = alphabet;
    w.capacity = strlen(text) * SET_BYTES_MAX + 1;
    w.out = weir__acquire(pool->allocator, w.capacity, 1);
    if (w.out == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    status = translate(&w);
    if (status != WEIR_OK) goto end;
    status = compile(&w, made);
    if (status != WEIR_OK) goto end;
    *pattern = made;
end:
    weir__release(pool->allocator, w.out, w.capacity, 1);
    if (status != WEIR_OK) pattern_destroy(made);
    return status;
}

void pattern_destroy(struct pattern *pattern) {
    if (pattern == NULL) return;
    pcre2_code_free(pattern->code);
    pattern->code = NULL;
}

size_t pattern_letters(const struct pattern *pattern, const char *text, size_t bytes,
                       unsigned char *letters) {
    const unsigned char *letter_of = pattern->alphabet->letters;
    size_t at = 0, count = 0;
    while (at < bytes) {
        unsigned char byte = (unsigned char)text[at];
        uint32_t point = byte;
        if (byte < 0x80) {
            letters[count++] = byte;
            at++;
            continue;
        }
        at += utf8_next(text + at, bytes - at, &point);
        assert(point < UTF8_LIMIT);
        letters[count++] = letter_of[point];
    }
    return count;
}

/* ---- matching ---- */

struct pattern_room {
    const struct weir_allocator *allocator;
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

void pattern_room_destroy(struct pattern_room *room) {
    if (room == NULL) return;
    pcre2_jit_stack_free(room->stack);
    pcre2_match_context_free(room->context);
    pcre2_match_data_free(room->data);
    weir__release(room->allocator, room, 1, sizeof *room);
}

struct pattern_room *pattern_room_new(const struct weir_allocator *allocator) {
    struct pattern_room *room = weir__acquire(allocator, 1, sizeof *room);
    if (room == NULL) return NULL;
    room->allocator = allocator;
    room->data = pcre2_match_data_create(1, NULL);
    room->context = pcre2_match_context_create(NULL);
    room->stack = pcre2_jit_stack_create(JIT_FIRST, JIT_MOST, NULL);
    if (room->data == NULL || room->context == NULL) {
        pattern_room_destroy(room);
        return NULL;
    }
    pcre2_set_match_limit(room->context, UINT32_MAX);
    pcre2_set_depth_limit(room->context, UINT32_MAX);
    pcre2_set_heap_limit(room->context, HEAP_KIB);
    if (room->stack != NULL) pcre2_jit_stack_assign(room->context, NULL, room->stack);
    return room;
}

int pattern_find(const struct pattern *pattern, struct pattern_room *room,
                 const unsigned char *letters, size_t count, size_t from, size_t *begin,
                 size_t *end) {
    assert(from <= count);
    int found = pcre2_match(pattern->code, letters, count, from, 0, room->data, room->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(pattern->code, letters, count, from, PCRE2_NO_JIT, room->data,
                            room->context);
    *begin = *end = count;
    if (found == PCRE2_ERROR_NOMATCH) return WEIR_OK;
    if (found < 0) return WEIR_ERR_OUT_OF_MEMORY; /* the heap's limit: nothing else can be */
    const size_t *places = pcre2_get_ovector_pointer(room->data);
    *begin = places[0], *end = places[1];
    assert(*begin >= from && *end > *begin && *end <= count);
    return WEIR_OK;
}

/* SPDX-License-Identifier: MIT */
/* Letters of a pattern's alphabet, and the sets of them that it names. */
#include "text/pattern_inside.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <stdio.h>
#include <string.h>

enum { PLACES_MAX = 256 };

/* ---- the alphabet ---- */

/* Where the pattern's own code points begin and end, ascending. */
struct pattern_places {
    uint32_t points[PLACES_MAX];
    uint32_t count;
};

static bool add_place(struct pattern_places *places, uint32_t point) {
    uint32_t at = places->count;
    while (at > 0 && places->points[at - 1] >= point) at--;
    if (at < places->count && places->points[at] == point) return true;
    if (places->count == PLACES_MAX) return false;
    memmove(places->points + at + 1, places->points + at,
            (places->count - at) * sizeof places->points[0]);
    places->points[at] = point;
    places->count++;
    return true;
}

/* Among them always the long s and the Kelvin sign, for (?i: */
static bool find_places(const char *text, struct pattern_places *places) {
    size_t at = 0, bytes = strlen(text);
    uint32_t point = 0;
    while (at < bytes) {
        at += utf8_next(text + at, bytes - at, &point);
        assert(point < UTF8_LIMIT);
        if (point >= 0x80 && !(add_place(places, point) && add_place(places, point + 1)))
            return false;
    }
    return add_place(places, 0x17f) && add_place(places, 0x180) && add_place(places, 0x212a) &&
           add_place(places, 0x212b);
}

/* The letter of a kind, perhaps a new one; 0 where there are too many. */
static unsigned letter_for(struct pattern_alphabet *alphabet, const struct pattern_kind *kind) {
    uint32_t letter = 0x80;
    for (; letter < alphabet->count; letter++) {
        const struct pattern_kind *known = &alphabet->kinds[letter];
        if (known->category == kind->category && known->marks == kind->marks &&
            known->place == kind->place)
            return letter;
    }
    if (letter == PATTERN_LETTERS) return 0;
    alphabet->kinds[letter] = *kind;
    alphabet->count++;
    return letter;
}

static bool fill(struct pattern_alphabet *alphabet, const struct pattern_places *places) {
    uint32_t place = 0, point = 0;
    for (uint32_t run = 0; run < unicode_run_count; run++) {
        uint32_t end = run + 1 < unicode_run_count ? unicode_run_first(run + 1) : UTF8_LIMIT;
        struct pattern_kind kind = {.category = (uint8_t)unicode_run_category(run),
                                    .marks = unicode_run_marks(run) & UNICODE_SPACE};
        for (; point < end && point < 0x80; point++) {
            kind.point = point;
            alphabet->kinds[point] = kind;
            alphabet->letters[point] = (unsigned char)point;
        }
        while (point < end) {
            while (place < places->count && places->points[place] <= point) place++;
            uint32_t stop = place < places->count ? places->points[place] : UTF8_LIMIT;
            if (stop > end) stop = end;
            kind.point = point, kind.place = (uint16_t)place;
            unsigned letter = letter_for(alphabet, &kind);
            if (letter == 0) return false;
            memset(alphabet->letters + point, (int)letter, stop - point);
            point = stop;
        }
    }
    assert(point == UTF8_LIMIT);
    return true;
}

int pattern_alphabet_new(struct weir__pool *pool, const char *text, char why[128],
                         struct pattern_alphabet **alphabet) {
    struct pattern_places places = {.count = 0};
    struct pattern_alphabet *made = weir__pool_take(pool, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->letters = weir__pool_take(pool, UTF8_LIMIT, 1);
    if (made->letters == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->count = 0x80;
    if (!find_places(text, &places) || !fill(made, &places)) {
        snprintf(why, 128, "the pattern has too many characters that are not ASCII's");
        return WEIR_ERR_UNSUPPORTED;
    }
    *alphabet = made;
    return WEIR_OK;
}

unsigned pattern_letter_of(const struct pattern_alphabet *alphabet, uint32_t point) {
    assert(point < UTF8_LIMIT);
    return alphabet->letters[point];
}

/* ---- reading ---- */

/* \p{Lu}, \P{L}; `at` is behind the letter p. */
static bool read_property(struct pattern_writing *w, struct pattern_item *item) {
    const char *end = *w->at == '{' ? strchr(w->at, '}') : NULL;
    if (end == NULL) return pattern_refuse(w, "\\p without {}");
    item->categories = unicode_categories(w->at + 1, (size_t)(end - w->at - 1));
    if (item->categories == 0) return pattern_refuse(w, "\\p{} of what is no general category");
    item->is_set = true;
    w->at = end + 1;
    return true;
}

static bool read_escape(struct pattern_writing *w, struct pattern_item *item) {
    static const char names[] = "rnt", values[] = "\r\n\t";
    char byte = *w->at;
    const char *name = byte != '\0' ? strchr(names, byte) : NULL;
    bool plain = byte > ' ' && byte < 0x7f && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", byte);
    if (name == NULL && !plain && (byte == '\0' || strchr("sSpP", byte) == NULL))
        return pattern_refuse(w, "an escape like this");
    w->at++;
    item->negated = byte == 'S' || byte == 'P';
    if (byte == 'p' || byte == 'P') return read_property(w, item);
    item->is_set = item->space = byte == 's' || byte == 'S';
    item->point = (unsigned char)(name != NULL ? values[name - names] : byte);
    return true;
}

bool pattern_read_item(struct pattern_writing *w, struct pattern_item *item) {
    *item = (struct pattern_item){.is_set = false};
    if (*w->at == '\\') {
        w->at++;
        return read_escape(w, item);
    }
    w->at += utf8_next(w->at, strlen(w->at), &item->point);
    assert(item->point < UTF8_LIMIT);
    return true;
}

void pattern_add_item(const struct pattern_alphabet *alphabet, const struct pattern_item *item,
                      bool *set) {
    for (uint32_t letter = 0; letter < alphabet->count; letter++) {
        const struct pattern_kind *kind = &alphabet->kinds[letter];
        bool inside = kind->point == item->point;
        if (item->is_set && item->space) inside = (kind->marks & UNICODE_SPACE) != 0;
        if (item->is_set && !item->space) inside = (item->categories >> kind->category & 1) != 0;
        if (inside != item->negated) set[letter] = true;
    }
}

static void add_range(const struct pattern_alphabet *alphabet, uint32_t first, uint32_t last,
                      bool *set) {
    for (uint32_t letter = 0; letter < alphabet->count; letter++) {
        uint32_t point = alphabet->kinds[letter].point;
        if (point >= first && point <= last) set[letter] = true;
    }
}

/* One item of a set, or a range; Oniguruma's sets in sets and intersections are refused. */
static bool read_member(struct pattern_writing *w, bool *set) {
    struct pattern_item item, last;
    if (*w->at == '\0') return pattern_refuse(w, "a '[' without ']'");
    if (*w->at == '[' || strncmp(w->at, "&&", 2) == 0) return pattern_refuse(w, "a set in a set");
    bool dash = *w->at == '-';
    if (!pattern_read_item(w, &item)) return false;
    if (dash && *w->at != ']' && w->at[-2] != '[' && w->at[-2] != '^')
        return pattern_refuse(w, "a '-' in the middle of a set");
    if (*w->at != '-' || w->at[1] == ']') {
        pattern_add_item(w->alphabet, &item, set);
        return true;
    }
    w->at++;
    if (item.is_set || *w->at == '[' || !pattern_read_item(w, &last) || last.is_set ||
        last.point < item.point)
        return pattern_refuse(w, "a range like this");
    add_range(w->alphabet, item.point, last.point, set);
    return true;
}

bool pattern_read_set(struct pattern_writing *w, bool *set) {
    assert(*w->at == '[');
    w->at++;
    bool negated = *w->at == '^';
    w->at += negated;
    memset(set, 0, PATTERN_LETTERS * sizeof *set);
    if (*w->at == ']') return pattern_refuse(w, "a set that begins with ']'");
    while (*w->at != ']')
        if (!read_member(w, set)) return false;
    w->at++;
    for (uint32_t letter = 0; letter < PATTERN_LETTERS && negated; letter++)
        set[letter] = letter < w->alphabet->count && !set[letter];
    return true;
}

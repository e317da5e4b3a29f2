/* SPDX-License-Identifier: MIT */
/*
 * NFC looks only at code points that are marked active, and at the one before them; what lies
 * between is copied. Decomposition and pairs are utf8proc's, whose Unicode is newer than that of
 * `tokenizers`; what that does not know is marked inert and never given to it. Order and
 * composition are done here, because each character has to say how many it replaces.
 */
#include "text/normal.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { DECOMPOSED_MAX = 32 };

/* A character of the result. */
struct normal_point {
    uint32_t point;
    int32_t change; /* 0: stands for one; 1: comes in addition; -n: stands for 1 + n */
    uint32_t place; /* in the decomposed text, so that the order is stable */
    uint8_t combining;
};

void normal_room_init(struct normal_room *room, const struct weir_allocator *allocator) {
    *room = (struct normal_room){.capacity = 0};
    room->texts[0].allocator = room->texts[1].allocator = allocator;
}

void normal_room_clean_up(struct normal_room *room) {
    weir__release(room->texts[0].allocator, room->points, room->capacity, sizeof room->points[0]);
    aligned_clean_up(&room->texts[0]);
    aligned_clean_up(&room->texts[1]);
}

bool normal_is_known(void) {
    return atoi(utf8proc_unicode_version()) >= 13;
}

/* ---- NFC of what is around active code points ---- */

static uint8_t combining_of(uint32_t point) {
    return (uint8_t)utf8proc_get_property((utf8proc_int32_t)point)->combining_class;
}

static int compare(const void *left, const void *right) {
    const struct normal_point *a = left, *b = right;
    if (a->combining != b->combining) return a->combining < b->combining ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* Marks between two starters. */
static void order(struct normal_point *points, size_t count) {
    for (size_t begin = 0; begin < count;) {
        size_t end = begin;
        while (end < count && points[end].combining != 0) end++;
        if (end - begin > 1) qsort(points + begin, end - begin, sizeof *points, compare);
        begin = end + 1;
    }
}

/* U+FFFFFFFF: they do not compose. */
static uint32_t compose(uint32_t first, uint32_t second) {
    utf8proc_int32_t pair[3] = {(utf8proc_int32_t)first, (utf8proc_int32_t)second, 0};
    utf8proc_ssize_t left = utf8proc_normalize_utf32(pair, 2, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    return left == 1 ? (uint32_t)pair[0] : UTF8_BROKEN;
}

/* Unicode's algorithm D117, in place. Returns how many are left. */
static size_t recompose(struct normal_point *points, size_t count) {
    size_t starter = SIZE_MAX, kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct normal_point now = points[i];
        bool adjacent = starter != SIZE_MAX && starter + 1 == kept;
        bool blocked =
            starter == SIZE_MAX || (!adjacent && (points[kept - 1].combining >= now.combining));
        uint32_t whole = blocked ? UTF8_BROKEN : compose(points[starter].point, now.point);
        if (whole != UTF8_BROKEN) {
            points[starter].point = whole;
            points[starter].change += now.change - 1;
            continue;
        }
        if (now.combining == 0) starter = kept;
        points[kept++] = now;
    }
    return kept;
}

/* The points of a text, decomposed, into the room. */
static int decompose(struct normal_room *room, const char *bytes, size_t count, size_t *points) {
    size_t made = 0;
    for (size_t at = 0; at < count;) {
        utf8proc_int32_t parts[DECOMPOSED_MAX];
        uint32_t point;
        int bound = UTF8PROC_BOUNDCLASS_START;
        at += utf8_next(bytes + at, count - at, &point);
        utf8proc_ssize_t got =
            utf8proc_decompose_char((utf8proc_int32_t)point, parts, DECOMPOSED_MAX,
                                    UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &bound);
        assert(got >= 1 && got <= DECOMPOSED_MAX);
        if (!text_reserve(room->texts[0].allocator, &room->points, &room->capacity,
                          made + (size_t)got, sizeof room->points[0]))
            return WEIR_ERR_OUT_OF_MEMORY;
        for (utf8proc_ssize_t i = 0; i < got; i++, made++)
            room->points[made] =
                (struct normal_point){.point = (uint32_t)parts[i],
                                      .change = i > 0,
                                      .place = (uint32_t)made,
                                      .combining = combining_of((uint32_t)parts[i])};
    }
    *points = made;
    return WEIR_OK;
}

/* NFC of bytes begin … end - 1, which no character before or behind them meets. */
static int compose_span(struct normal_room *room, const struct aligned *from, size_t begin,
                        size_t end, struct aligned *out) {
    size_t count, at = begin;
    struct text_span span;
    int status = decompose(room, from->bytes + begin, end - begin, &count);
    if (status != WEIR_OK) return status;
    order(room->points, count);
    count = recompose(room->points, count);
    for (size_t i = 0; i < count; i++) {
        char bytes[4];
        int32_t change = room->points[i].change;
        span = aligned_span(from, change <= 0 || at == begin ? at : at - 1);
        for (; change <= 0 && at < end; change++) at += utf8_length((unsigned char)from->bytes[at]);
        status = aligned_add(out, bytes, utf8_put(room->points[i].point, bytes), span);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* Where the next active code point begins, from `at` on; `before` is where the one before it does
 * that may be changed with it, else the same. */
static size_t next_active(const uint8_t *marks, const struct aligned *text, size_t at, size_t end,
                          size_t *before) {
    size_t last = end;
    for (size_t i = at; i < end;) {
        uint32_t point;
        size_t length = utf8_next(text->bytes + i, end - i, &point);
        if (marks[point] & UNICODE_ACTIVE) {
            *before = last < i ? last : i;
            return i;
        }
        last = marks[point] & UNICODE_INERT ? end : i;
        i += length;
    }
    *before = end;
    return end;
}

static size_t skip_active(const uint8_t *marks, const struct aligned *text, size_t at, size_t end) {
    while (at < end) {
        uint32_t point;
        size_t length = utf8_next(text->bytes + at, end - at, &point);
        if (!(marks[point] & UNICODE_ACTIVE)) break;
        at += length;
    }
    return at;
}

static int apply_nfc(const uint8_t *marks, struct normal_room *room, const struct aligned *from,
                     size_t begin, size_t end, struct aligned *out) {
    assert(marks != NULL);
    for (size_t at = begin; at < end;) {
        size_t before, active = next_active(marks, from, at, end, &before);
        int status = aligned_copy(out, from, at, before);
        if (status != WEIR_OK) return status;
        at = skip_active(marks, from, active, end);
        if (at > before) status = compose_span(room, from, before, at, out);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* ---- the other steps ---- */

static int apply_prepend(const char *text, const struct aligned *from, size_t begin, size_t end,
                         struct aligned *out) {
    if (begin == end) return WEIR_OK;
    int status = aligned_add(out, text, strlen(text), aligned_span(from, begin));
    return status != WEIR_OK ? status : aligned_copy(out, from, begin, end);
}

static int apply_replace(const struct normal_step *step, const struct aligned *from, size_t begin,
                         size_t end, struct aligned *out) {
    size_t length = strlen(step->from);
    assert(length > 0);
    for (size_t at = begin; at < end;) {
        const char *found = memmem(from->bytes + at, end - at, step->from, length);
        size_t place = found != NULL ? (size_t)(found - from->bytes) : end;
        int status = aligned_copy(out, from, at, place);
        if (status != WEIR_OK || found == NULL) return status;
        at = place + length;
        status = aligned_add(out, step->to, strlen(step->to), aligned_span(from, at - 1));
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int apply_step(const struct normalizer *normalizer, const struct normal_step *step,
                      struct normal_room *room, const struct aligned *from, size_t begin,
                      size_t end, struct aligned *out) {
    switch (step->kind) {
    case NORMAL_NFC: return apply_nfc(normalizer->marks, room, from, begin, end, out);
    case NORMAL_PREPEND: return apply_prepend(step->to, from, begin, end, out);
    case NORMAL_REPLACE: return apply_replace(step, from, begin, end, out);
    }
    return WEIR_ERR_ARGUMENT;
}

/* Most texts hold no active code point. */
static bool changes(const struct normalizer *normalizer, const struct normal_step *step,
                    const struct aligned *from, size_t begin, size_t end) {
    size_t before;
    if (step->kind != NORMAL_NFC) return true;
    return next_active(normalizer->marks, from, begin, end, &before) < end;
}

int normal_apply(const struct normalizer *normalizer, struct normal_room *room,
                 const struct aligned *text, size_t begin, size_t end, const struct aligned **out,
                 size_t *out_begin, size_t *out_end) {
    const struct aligned *from = text;
    for (uint32_t i = 0; i < normalizer->count; i++) {
        const struct normal_step *step = &normalizer->steps[i];
        struct aligned *to = &room->texts[from == &room->texts[0]];
        if (!changes(normalizer, step, from, begin, end)) continue;
        aligned_begin(to, text->wants_spans);
        int status = apply_step(normalizer, step, room, from, begin, end, to);
        if (status != WEIR_OK) return status;
        from = to;
        begin = 0, end = to->count;
    }
    *out = from;
    *out_begin = begin, *out_end = end;
    return WEIR_OK;
}

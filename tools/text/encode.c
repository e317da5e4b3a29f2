/* SPDX-License-Identifier: MIT */
/*
 * Text to tokens: added tokens are cut out, the rest is normalized and split into words, and the
 * symbols of each word are merged. Splitters hand each piece on to the next one as it is found, so
 * that no list of pieces is ever made. Words that came lately are known with their tokens.
 */
#include "text/encoder_inside.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <string.h>

static const char replacement[] = "\xef\xbf\xbd";

/* ---- pieces ---- */

static int run_steps(struct text_encoder *e, uint32_t step, const struct aligned *text,
                     size_t begin, size_t end);

/* A word of a text; with a blank before it where `spaced`. */
static int encode_piece(struct text_encoder *e, const struct aligned *text, size_t begin,
                        size_t end) {
    const struct text_word word = {text->bytes + begin, end - begin, text, (int64_t)begin, begin};
    return word_encode(e, &word);
}

/* Pieces of `bytes` by a pattern, each given to `take`. */
struct split_walk {
    const struct split_step *step;
    const char *bytes;
    size_t count;
    unsigned char *letters;
    size_t letter_count, letter, at; /* where the walk is, in letters and in bytes */
};

static int walk_begin(struct text_encoder *e, struct split_walk *walk, uint32_t index) {
    struct letter_room *room = &e->letters[index];
    if (!text_reserve(e->allocator, &room->letters, &room->capacity, walk->count, 1))
        return WEIR_ERR_OUT_OF_MEMORY;
    walk->letters = room->letters;
    walk->letter_count =
        pattern_letters(walk->step->pattern, walk->bytes, walk->count, walk->letters);
    return WEIR_OK;
}

/* Where letter `letter` begins, in bytes. */
static size_t walk_to(struct split_walk *walk, size_t letter) {
    assert(letter >= walk->letter);
    if (walk->letter_count == walk->count) {
        walk->at = letter;
    } else {
        for (size_t i = walk->letter; i < letter; i++)
            walk->at += utf8_length((unsigned char)walk->bytes[walk->at]);
    }
    walk->letter = letter;
    return walk->at;
}

static int split_by_pattern(struct text_encoder *e, uint32_t index, const struct aligned *text,
                            size_t begin, size_t end) {
    const struct split_step *step = &e->tokenizer->steps[index];
    struct split_walk walk = {.step = step, .bytes = text->bytes + begin, .count = end - begin};
    int status = walk_begin(e, &walk, index);
    if (status != WEIR_OK) return status;
    for (size_t seen = 0; seen < walk.letter_count;) {
        size_t first, last, from = begin + walk.at;
        status = pattern_find(step->pattern, e->room, walk.letters, walk.letter_count, seen, &first,
                              &last);
        if (status != WEIR_OK) return status;
        size_t found = begin + walk_to(&walk, first), behind = begin + walk_to(&walk, last);
        if (found > from && !step->removes_others)
            status = run_steps(e, index + 1, text, from, found);
        if (status != WEIR_OK) return status;
        if (behind > found && !step->removes_matches)
            status = run_steps(e, index + 1, text, found, behind);
        if (status != WEIR_OK) return status;
        seen = last;
    }
    return WEIR_OK;
}

static int split_digits(struct text_encoder *e, uint32_t index, const struct aligned *text,
                        size_t begin, size_t end) {
    bool single = e->tokenizer->steps[index].single, was = false;
    size_t from = begin;
    for (size_t at = begin; at < end;) {
        uint32_t point;
        size_t length = utf8_next(text->bytes + at, end - at, &point);
        bool is = (e->tokenizer->marks[point] & UNICODE_NUMERIC) != 0;
        bool cuts = is != was || (is && single);
        if (cuts && at > from) {
            int status = run_steps(e, index + 1, text, from, at);
            if (status != WEIR_OK) return status;
            from = at;
        }
        was = is;
        at += length;
    }
    return from < end ? run_steps(e, index + 1, text, from, end) : WEIR_OK;
}

/* ByteLevel: the last step, which may put a blank before the piece. */
static int split_bytes(struct text_encoder *e, uint32_t index, const struct aligned *text,
                       size_t begin, size_t end) {
    const struct split_step *step = &e->tokenizer->steps[index];
    bool spaced = step->adds_space && text->bytes[begin] != ' ';
    struct split_walk walk = {.step = step, .bytes = text->bytes + begin, .count = end - begin};
    if (spaced) {
        struct letter_room *room = &e->spaced;
        if (!text_reserve(e->allocator, &room->letters, &room->capacity, walk.count + 1, 1))
            return WEIR_ERR_OUT_OF_MEMORY;
        room->letters[0] = ' ';
        memcpy(room->letters + 1, walk.bytes, walk.count);
        walk.bytes = (const char *)room->letters;
        walk.count++;
    }
    int64_t base = (int64_t)begin - spaced;
    if (step->pattern == NULL) {
        const struct text_word whole = {walk.bytes, walk.count, text, base, begin};
        return word_encode(e, &whole);
    }
    int status = walk_begin(e, &walk, index);
    if (status != WEIR_OK) return status;
    for (size_t seen = 0; seen < walk.letter_count;) {
        size_t first, last, from = walk.at;
        status = pattern_find(step->pattern, e->room, walk.letters, walk.letter_count, seen, &first,
                              &last);
        if (status != WEIR_OK) return status;
        assert(first == seen); /* GPT-2's pattern matches everywhere */
        size_t to = walk_to(&walk, last);
        const struct text_word word = {walk.bytes + from, to - from, text, base + (int64_t)from,
                                       begin};
        status = word_encode(e, &word);
        if (status != WEIR_OK) return status;
        seen = last;
    }
    return WEIR_OK;
}

static int run_steps(struct text_encoder *e, uint32_t index, const struct aligned *text,
                     size_t begin, size_t end) {
    assert(begin < end && end <= text->count);
    if (index == e->tokenizer->step_count) return encode_piece(e, text, begin, end);
    switch (e->tokenizer->steps[index].kind) {
    case SPLIT_PATTERN: return split_by_pattern(e, index, text, begin, end);
    case SPLIT_DIGITS: return split_digits(e, index, text, begin, end);
    case SPLIT_BYTES: return split_bytes(e, index, text, begin, end);
    }
    return WEIR_ERR_ARGUMENT;
}

/* ---- added tokens ---- */

typedef int piece_fn(struct text_encoder *e, const struct aligned *text, size_t begin, size_t end);

/* Cuts added tokens out; what lies between goes to `take`. */
static int cut_added(struct text_encoder *e, const struct added_trie *trie,
                     const struct aligned *text, size_t begin, size_t end, piece_fn *take) {
    size_t from = begin, found, behind;
    uint32_t id;
    for (size_t at = begin; added_find(trie, text->bytes, end, at, &found, &behind, &id);
         at = behind) {
        if ((e->flags & TEXT_SPECIAL_AS_TEXT) && e->tokenizer->tokens[id].special) continue;
        int status = found > from ? take(e, text, from, found) : WEIR_OK;
        if (status != WEIR_OK) return status;
        struct text_span span = {aligned_span(text, found).begin,
                                 aligned_span(text, behind - 1).end};
        status = token_add(e, id, span);
        if (status != WEIR_OK) return status;
        from = behind;
    }
    return from < end ? take(e, text, from, end) : WEIR_OK;
}

static int take_normalized(struct text_encoder *e, const struct aligned *text, size_t begin,
                           size_t end) {
    return run_steps(e, 0, text, begin, end);
}

static int take_raw(struct text_encoder *e, const struct aligned *text, size_t begin, size_t end) {
    const struct aligned *out;
    size_t from, to;
    int status =
        normal_apply(&e->tokenizer->normalizer, &e->normal, text, begin, end, &out, &from, &to);
    if (status != WEIR_OK) return status;
    return cut_added(e, &e->tokenizer->normalized, out, from, to, take_normalized);
}

/* ---- the text ---- */

/* Broken parts become U+FFFD, which stands for them. */
static int mend(struct text_encoder *e, const char *text, size_t bytes) {
    aligned_begin(&e->sound, (e->flags & TEXT_SPANS) != 0);
    for (size_t at = 0; at < bytes;) {
        size_t sound = utf8_sound(text + at, bytes - at);
        int status = aligned_add_plain(&e->sound, text + at, sound, at);
        if (status != WEIR_OK) return status;
        at += sound;
        if (at == bytes) break;
        uint32_t point;
        size_t length = utf8_next(text + at, bytes - at, &point);
        struct text_span span = {(uint32_t)at, (uint32_t)(at + length)};
        status = aligned_add(&e->sound, replacement, 3, span);
        if (status != WEIR_OK) return status;
        at += length;
    }
    return WEIR_OK;
}

static int add_template(struct text_encoder *e, const uint32_t *ids, uint32_t count) {
    for (uint32_t i = 0; i < count && (e->flags & TEXT_ADD_SPECIAL); i++) {
        int status = token_add(e, ids[i], (struct text_span){0, 0});
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

int text_encode(struct text_encoder *encoder, const char *text, size_t bytes, unsigned flags,
                struct text_tokens *tokens) {
    const struct tokenizer *t = encoder->tokenizer;
    struct aligned whole = {.bytes = (char *)text, .count = bytes};
    const struct aligned *from = &whole;
    if (bytes > TEXT_BYTES_MAX) return WEIR_ERR_OVERFLOW;
    encoder->flags = flags;
    encoder->count = 0;
    int status = WEIR_OK;
    if ((flags & TEXT_SPANS) || utf8_sound(text, bytes) < bytes) {
        status = mend(encoder, text, bytes);
        from = &encoder->sound;
    }
    if (status != WEIR_OK) return status;
    status = add_template(encoder, t->before, t->before_count);
    if (status != WEIR_OK) return status;
    uint32_t first = (uint32_t)encoder->count;
    status = cut_added(encoder, &t->raw, from, 0, from->count, take_raw);
    if (status != WEIR_OK) return status;
    if (t->trims && (flags & TEXT_SPANS)) spans_trim(encoder, text, bytes, first);
    status = add_template(encoder, t->after, t->after_count);
    if (status != WEIR_OK) return status;
    tokens->ids = encoder->ids;
    tokens->spans = flags & TEXT_SPANS ? encoder->spans : NULL;
    tokens->count = encoder->count;
    return WEIR_OK;
}

/* ---- life ---- */

int text_encoder_new(const struct tokenizer *tokenizer, struct text_encoder **encoder) {
    const struct weir_allocator *allocator = tokenizer->pool.allocator;
    struct text_encoder *made = weir__acquire(allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->tokenizer = tokenizer;
    made->allocator = made->sound.allocator = allocator;
    normal_room_init(&made->normal, allocator);
    made->room = pattern_room_new(allocator);
    made->cache = weir__acquire(allocator, CACHE_WORDS, sizeof made->cache[0]);
    if (made->room == NULL || made->cache == NULL) {
        text_encoder_destroy(made);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    *encoder = made;
    return WEIR_OK;
}

void text_encoder_destroy(struct text_encoder *e) {
    if (e == NULL) return;
    for (size_t i = 0; i < SPLIT_STEPS_MAX; i++)
        weir__release(e->allocator, e->letters[i].letters, e->letters[i].capacity, 1);
    weir__release(e->allocator, e->spaced.letters, e->spaced.capacity, 1);
    weir__release(e->allocator, e->mapped, e->mapped_capacity, 1);
    weir__release(e->allocator, e->symbols, e->symbol_capacity, sizeof e->symbols[0]);
    weir__release(e->allocator, e->heap, e->heap_capacity, sizeof e->heap[0]);
    weir__release(e->allocator, e->cache, CACHE_WORDS, sizeof e->cache[0]);
    weir__release(e->allocator, e->ids, e->id_capacity, sizeof e->ids[0]);
    weir__release(e->allocator, e->spans, e->span_capacity, sizeof e->spans[0]);
    aligned_clean_up(&e->sound);
    normal_room_clean_up(&e->normal);
    pattern_room_destroy(e->room);
    weir__release(e->allocator, e, 1, sizeof *e);
}

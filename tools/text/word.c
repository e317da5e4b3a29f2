/* SPDX-License-Identifier: MIT */
/*
 * A word's symbols are merged pair by pair, the lowest rank first and of those the leftmost. A heap
 * holds the pairs: n log n, however long the word is. Pairs whose symbols have changed meanwhile
 * stay in it and are known by what they would give, which is how `tokenizers` tells them, too.
 */
#include "text/encoder_inside.h"
#include "text/utf8.h"

#include <string.h>

/* ---- tokens ---- */

int token_add(struct text_encoder *e, uint32_t id, struct text_span span) {
    if (!text_reserve(e->allocator, &e->ids, &e->id_capacity, e->count + 1, sizeof e->ids[0]))
        return WEIR_ERR_OUT_OF_MEMORY;
    e->ids[e->count] = id;
    if (e->flags & TEXT_SPANS) {
        if (!text_reserve(e->allocator, &e->spans, &e->span_capacity, e->count + 1,
                          sizeof e->spans[0]))
            return WEIR_ERR_OUT_OF_MEMORY;
        e->spans[e->count] = span;
    }
    e->count++;
    return WEIR_OK;
}

static struct text_span span_at(const struct text_word *word, size_t i) {
    int64_t at = word->place + (int64_t)i;
    return aligned_span(word->text, at < (int64_t)word->first ? word->first : (size_t)at);
}

/* A token for bytes begin … end - 1 of the word. */
static int emit(struct text_encoder *e, const struct text_word *word, uint32_t id, size_t begin,
                size_t end) {
    struct text_span span = {0, 0};
    assert(begin < end && end <= word->count);
    if (e->flags & TEXT_SPANS)
        span = (struct text_span){span_at(word, begin).begin, span_at(word, end - 1).end};
    return token_add(e, id, span);
}

/* ---- the heap ---- */

static bool is_before(const struct merge_candidate *a, const struct merge_candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->place < b->place;
}

static void heap_add(struct text_encoder *e, struct merge_candidate candidate) {
    size_t at = e->heap_count++;
    assert(e->heap_count <= e->heap_capacity);
    for (; at > 0 && is_before(&candidate, &e->heap[(at - 1) / 2]); at = (at - 1) / 2)
        e->heap[at] = e->heap[(at - 1) / 2];
    e->heap[at] = candidate;
}

static struct merge_candidate heap_take(struct text_encoder *e) {
    assert(e->heap_count > 0);
    struct merge_candidate top = e->heap[0], last = e->heap[--e->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= e->heap_count) break;
        if (child + 1 < e->heap_count && is_before(&e->heap[child + 1], &e->heap[child])) child++;
        if (!is_before(&e->heap[child], &last)) break;
        e->heap[at] = e->heap[child];
        at = child;
    }
    e->heap[at] = last;
    return top;
}

static void consider(struct text_encoder *e, int32_t left, int32_t right) {
    struct merge_candidate candidate = {.place = (uint32_t)left};
    if (left < 0 || right < 0) return;
    if (merge_find(&e->tokenizer->merges, e->symbols[left].id, e->symbols[right].id,
                   &candidate.rank, &candidate.whole))
        heap_add(e, candidate);
}

static int merge(struct text_encoder *e) {
    /* At most one pair a gap, and each merge takes a gap and adds two pairs. */
    if (!text_reserve(e->allocator, &e->heap, &e->heap_capacity, 3 * e->symbol_count,
                      sizeof e->heap[0]))
        return WEIR_ERR_OUT_OF_MEMORY;
    e->heap_count = 0;
    for (size_t i = 0; i + 1 < e->symbol_count; i++) consider(e, (int32_t)i, (int32_t)i + 1);
    while (e->heap_count > 0) {
        struct merge_candidate top = heap_take(e);
        struct symbol *left = &e->symbols[top.place];
        uint32_t rank, whole;
        if (left->length == 0 || left->behind < 0) continue;
        struct symbol *right = &e->symbols[left->behind];
        if (!merge_find(&e->tokenizer->merges, left->id, right->id, &rank, &whole) ||
            whole != top.whole)
            continue;
        left->id = whole;
        left->length += right->length;
        left->behind = right->behind;
        right->length = 0;
        if (left->behind >= 0) e->symbols[left->behind].before = (int32_t)top.place;
        consider(e, left->before, (int32_t)top.place);
        consider(e, (int32_t)top.place, left->behind);
    }
    return WEIR_OK;
}

/* ---- symbols ---- */

static void add_symbol(struct text_encoder *e, uint32_t id, uint32_t length) {
    int32_t at = (int32_t)e->symbol_count++;
    assert(e->symbol_count <= e->symbol_capacity);
    e->symbols[at] = (struct symbol){id, length, at - 1, -1};
    if (at > 0) e->symbols[at - 1].behind = at;
}

/* What is unknown, until something known or the end comes. */
struct unknown {
    uint32_t length; /* 0: nothing */
};

static void flush_unknown(struct text_encoder *e, struct unknown *unknown) {
    if (unknown->length > 0) add_symbol(e, e->tokenizer->unknown, unknown->length);
    unknown->length = 0;
}

static void add_part(struct text_encoder *e, struct unknown *unknown, const char *bytes,
                     uint32_t length, uint32_t id) {
    const struct tokenizer *t = e->tokenizer;
    if (id != TOKENIZER_NONE) {
        flush_unknown(e, unknown);
        add_symbol(e, id, length);
    } else if (t->falls_back) {
        for (uint32_t i = 0; i < length; i++)
            add_symbol(e, t->byte_ids[(unsigned char)bytes[i]], 1);
    } else if (t->unknown != TOKENIZER_NONE) {
        if (!t->fuses_unknown) flush_unknown(e, unknown);
        unknown->length += length;
    }
}

static uint32_t find_character(const struct tokenizer *t, const char *bytes, size_t length) {
    char name[5] = {0};
    memcpy(name, bytes, length);
    return name[0] != '\0' ? weir__name_set_find(&t->names, name) : TOKENIZER_NONE;
}

/* Only the vocabulary's own, not what is added to it. */
static uint32_t of_vocabulary(const struct tokenizer *t, uint32_t id) {
    return id != TOKENIZER_NONE && t->tokens[id].extra ? TOKENIZER_NONE : id;
}

/* Of a byte, in the vocabulary's text. */
static uint32_t letter_bytes(const struct tokenizer *t, char byte) {
    return t->letters[(unsigned char)byte] < 0x80 ? 1 : 2;
}

static bool leaves_out(const struct tokenizer *t, const struct text_word *word) {
    for (size_t i = 0; i < word->count; i++)
        if (t->byte_ids[(unsigned char)word->bytes[i]] == TOKENIZER_NONE) return true;
    return false;
}

static int make_symbols(struct text_encoder *e, const struct text_word *word) {
    const struct tokenizer *t = e->tokenizer;
    struct unknown unknown = {0};
    e->symbol_count = 0;
    e->in_letters = t->leaves_out && leaves_out(t, word);
    if (!text_reserve(e->allocator, &e->symbols, &e->symbol_capacity, word->count,
                      sizeof e->symbols[0]))
        return WEIR_ERR_OUT_OF_MEMORY;
    for (size_t at = 0; at < word->count;) {
        const char *bytes = word->bytes + at;
        uint32_t length = 1, id;
        if (t->over_bytes) {
            id = t->byte_ids[(unsigned char)bytes[0]];
            if (e->in_letters && id != TOKENIZER_NONE) add_symbol(e, id, letter_bytes(t, *bytes));
            if (e->in_letters) id = TOKENIZER_NONE;
        } else {
            length = (uint32_t)utf8_length((unsigned char)bytes[0]);
            id = of_vocabulary(t, find_character(t, bytes, length));
        }
        add_part(e, &unknown, bytes, length, id);
        at += length;
    }
    flush_unknown(e, &unknown);
    return WEIR_OK;
}

/* The number of a word that is a token as a whole. */
static int find_whole(struct text_encoder *e, const struct text_word *word, uint32_t *id) {
    const struct tokenizer *t = e->tokenizer;
    size_t length = 0;
    *id = TOKENIZER_NONE;
    if (!text_reserve(e->allocator, &e->mapped, &e->mapped_capacity, 2 * word->count + 1, 1))
        return WEIR_ERR_OUT_OF_MEMORY;
    if (!t->over_bytes && memchr(word->bytes, '\0', word->count) != NULL) return WEIR_OK;
    for (size_t i = 0; i < word->count; i++) {
        unsigned char byte = (unsigned char)word->bytes[i];
        if (t->over_bytes)
            length += utf8_put(t->letters[byte], e->mapped + length);
        else
            e->mapped[length++] = (char)byte;
    }
    e->mapped[length] = '\0';
    *id = of_vocabulary(t, weir__name_set_find(&t->names, e->mapped));
    return WEIR_OK;
}

/* ---- the cache ---- */

static struct cached_word *cached_at(struct text_encoder *e, const struct text_word *word,
                                     char key[CACHED_BYTES]) {
    uint64_t parts[CACHED_BYTES / 8], hash = word->count;
    memset(key, 0, CACHED_BYTES);
    memcpy(key, word->bytes, word->count);
    memcpy(parts, key, CACHED_BYTES);
    for (size_t i = 0; i < CACHED_BYTES / 8; i++) {
        hash = (hash ^ parts[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return &e->cache[hash % CACHE_WORDS];
}

static void remember(struct text_encoder *e, struct cached_word *cached, const char *key,
                     size_t bytes) {
    size_t end = 0;
    uint8_t count = 0;
    cached->bytes = 0;
    for (size_t i = 0; i < e->symbol_count; i++) {
        if (e->symbols[i].length == 0) continue;
        if (count == CACHED_TOKENS) return;
        end += e->symbols[i].length;
        cached->ids[count] = e->symbols[i].id;
        cached->ends[count++] = (uint8_t)end;
    }
    memcpy(cached->word, key, CACHED_BYTES);
    cached->bytes = (uint8_t)bytes;
    cached->count = count;
}

/* ---- a word ---- */

/* The library goes by what is left of a word's text, as if nothing had been left out before. */
static int emit_letters(struct text_encoder *e, const struct text_word *word) {
    size_t at = 0, index = 0, begin = 0;
    for (size_t i = 0; i < e->symbol_count; i++) {
        size_t end = begin + e->symbols[i].length;
        if (end == begin) continue;
        while (at + letter_bytes(e->tokenizer, word->bytes[index]) <= begin)
            at += letter_bytes(e->tokenizer, word->bytes[index++]);
        size_t first = index;
        while (at + letter_bytes(e->tokenizer, word->bytes[index]) < end)
            at += letter_bytes(e->tokenizer, word->bytes[index++]);
        int status = emit(e, word, e->symbols[i].id, first, index + 1);
        if (status != WEIR_OK) return status;
        begin = end;
    }
    return WEIR_OK;
}

static int emit_symbols(struct text_encoder *e, const struct text_word *word) {
    size_t begin = 0;
    for (size_t i = 0; i < e->symbol_count; i++) {
        size_t end = begin + e->symbols[i].length;
        int status = end > begin ? emit(e, word, e->symbols[i].id, begin, end) : WEIR_OK;
        if (status != WEIR_OK) return status;
        begin = end;
    }
    return WEIR_OK;
}

static int emit_cached(struct text_encoder *e, const struct text_word *word,
                       const struct cached_word *cached) {
    size_t begin = 0;
    for (uint8_t i = 0; i < cached->count; i++) {
        int status = emit(e, word, cached->ids[i], begin, cached->ends[i]);
        if (status != WEIR_OK) return status;
        begin = cached->ends[i];
    }
    return WEIR_OK;
}

static int merge_word(struct text_encoder *e, const struct text_word *word) {
    uint32_t whole = TOKENIZER_NONE;
    int status = e->tokenizer->ignores_merges ? find_whole(e, word, &whole) : WEIR_OK;
    if (status != WEIR_OK) return status;
    if (whole == TOKENIZER_NONE) {
        status = make_symbols(e, word);
        return status != WEIR_OK ? status : merge(e);
    }
    e->symbol_count = 0;
    e->in_letters = false;
    if (!text_reserve(e->allocator, &e->symbols, &e->symbol_capacity, 1, sizeof e->symbols[0]))
        return WEIR_ERR_OUT_OF_MEMORY;
    add_symbol(e, whole, (uint32_t)word->count);
    return WEIR_OK;
}

int word_encode(struct text_encoder *e, const struct text_word *word) {
    struct cached_word *cached = NULL;
    char key[CACHED_BYTES];
    assert(word->count > 0);
    if (word->count <= CACHED_BYTES) {
        cached = cached_at(e, word, key);
        if (cached->bytes == word->count && memcmp(cached->word, key, CACHED_BYTES) == 0)
            return emit_cached(e, word, cached);
    }
    int status = merge_word(e, word);
    if (status != WEIR_OK) return status;
    if (e->in_letters) return emit_letters(e, word);
    if (cached != NULL) remember(e, cached, key, word->count);
    return emit_symbols(e, word);
}

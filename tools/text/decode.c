/* SPDX-License-Identifier: MIT */
/*
 * Tokens to text. ByteLevel puts the pieces together and mends the whole, so that at most three
 * bytes are held back. ByteFallback takes a run of bytes for text only if all of it is sound, and
 * for as many U+FFFD as there are bytes if not: a run is held back as a whole.
 */
#include "text/tokenizer_inside.h"
#include "text/utf8.h"

#include <string.h>

struct text_decoder {
    const struct tokenizer *tokenizer;
    const struct weir_allocator *allocator;
    bool skips_special;
    char *held; /* not certain yet */
    size_t held_count, held_capacity;
    char *out;
    size_t count, capacity;
    uint32_t blanks_left; /* to be stripped before anything comes */
};

static const char replacement[] = "\xef\xbf\xbd";

static bool add(struct text_decoder *d, const char *bytes, size_t count) {
    if (!text_reserve(d->allocator, &d->out, &d->capacity, d->count + count, 1)) return false;
    if (count > 0) memcpy(d->out + d->count, bytes, count);
    d->count += count;
    return true;
}

static bool hold(struct text_decoder *d, const char *bytes, size_t count) {
    if (!text_reserve(d->allocator, &d->held, &d->held_capacity, d->held_count + count, 1))
        return false;
    if (count > 0) memcpy(d->held + d->held_count, bytes, count);
    d->held_count += count;
    return true;
}

/* What is held, mended; a cut end stays, or is broken at the `end`. */
static bool release_mended(struct text_decoder *d, bool end) {
    size_t at = 0;
    while (at < d->held_count) {
        uint32_t point;
        size_t sound = utf8_sound(d->held + at, d->held_count - at);
        if (!add(d, d->held + at, sound)) return false;
        at += sound;
        if (at == d->held_count) break;
        size_t length = utf8_next(d->held + at, d->held_count - at, &point);
        if (point == UTF8_CUT && !end) break;
        if (!add(d, replacement, 3)) return false;
        at += length;
    }
    memmove(d->held, d->held + at, d->held_count - at);
    d->held_count -= at;
    return true;
}

/* But for blanks that are stripped from the beginning. */
static bool add_stripped(struct text_decoder *d, const char *bytes, size_t count) {
    size_t blanks = 0;
    while (blanks < count && blanks < d->blanks_left && bytes[blanks] == ' ') blanks++;
    d->blanks_left = blanks == count ? d->blanks_left - (uint32_t)blanks : 0;
    return add(d, bytes + blanks, count - blanks);
}

static bool release_run(struct text_decoder *d) {
    bool sound = d->held_count > 0 && utf8_sound(d->held, d->held_count) == d->held_count;
    bool good = !sound || add_stripped(d, d->held, d->held_count);
    for (size_t i = 0; i < d->held_count && !sound && good; i++)
        good = add_stripped(d, replacement, 3);
    d->held_count = 0;
    return good;
}

int text_decoder_put(struct text_decoder *d, uint32_t id, const char **text, size_t *bytes) {
    const struct tokenizer *t = d->tokenizer;
    if (id >= t->size || t->tokens[id].text == NULL) return WEIR_ERR_NOT_FOUND;
    const struct vocabulary_token *token = &t->tokens[id];
    bool good = true;
    d->count = 0;
    if (!(d->skips_special && token->skipped)) {
        bool held = t->decodes_bytes || token->byte >= 0;
        if (held)
            good = hold(d, token->piece, token->piece_bytes);
        else
            good = release_run(d) && add_stripped(d, token->piece, token->piece_bytes);
    }
    if (good && t->decodes_bytes) good = release_mended(d, false);
    *text = d->out, *bytes = d->count;
    return good ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

int text_decoder_end(struct text_decoder *d, const char **text, size_t *bytes) {
    d->count = 0;
    bool good = d->tokenizer->decodes_bytes ? release_mended(d, true) : release_run(d);
    d->held_count = 0;
    d->blanks_left = d->tokenizer->strip_blanks;
    *text = d->out, *bytes = d->count;
    return good ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

void text_decoder_go_on(struct text_decoder *d) {
    d->held_count = 0;
    d->blanks_left = 0;
}

int text_decoder_new(const struct tokenizer *tokenizer, bool skip_special,
                     struct text_decoder **decoder) {
    const struct weir_allocator *allocator = tokenizer->pool.allocator;
    struct text_decoder *made = weir__acquire(allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    *made = (struct text_decoder){.tokenizer = tokenizer,
                                  .allocator = allocator,
                                  .skips_special = skip_special,
                                  .blanks_left = tokenizer->strip_blanks};
    *decoder = made;
    return WEIR_OK;
}

void text_decoder_destroy(struct text_decoder *decoder) {
    if (decoder == NULL) return;
    weir__release(decoder->allocator, decoder->held, decoder->held_capacity, 1);
    weir__release(decoder->allocator, decoder->out, decoder->capacity, 1);
    weir__release(decoder->allocator, decoder, 1, sizeof *decoder);
}

/* SPDX-License-Identifier: MIT */
/* The model: vocabulary and merges. */
#include "text/tokenizer_inside.h"
#include "text/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- GPT-2's alphabet ---- */

/* Bytes that print stand for themselves, the others for U+0100 and on, in their order. */
static bool is_itself(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

uint32_t byte_letter(unsigned char byte) {
    uint32_t moved = 0;
    if (is_itself(byte)) return byte;
    for (unsigned before = 0; before < byte; before++) moved += !is_itself(before);
    return 0x100 + moved;
}

int byte_of_letter(uint32_t point) {
    if (point < 0x100) return is_itself(point) ? (int)point : -1;
    for (unsigned byte = 0; byte < 0x100 && point < 0x200; byte++)
        if (!is_itself(byte) && byte_letter((unsigned char)byte) == point) return (int)byte;
    return -1;
}

/* ---- what tokens stand for ---- */

/* The bytes of a text of letters; as it is where some character is none. */
static uint32_t from_letters(const int16_t *bytes, const char *text, char *piece) {
    size_t length = strlen(text), count = 0;
    for (size_t at = 0; at < length; count++) {
        uint32_t point;
        at += utf8_next(text + at, length - at, &point);
        if (point >= 0x200 || bytes[point] < 0) {
            memcpy(piece, text, length);
            return (uint32_t)length;
        }
        piece[count] = (char)bytes[point];
    }
    return (uint32_t)count;
}

/* U+2581 becomes a blank. */
static uint32_t from_blanks(const char *text, char *piece) {
    size_t count = 0;
    while (*text != '\0') {
        bool blank = strncmp(text, "\u2581", 3) == 0;
        piece[count++] = blank ? ' ' : *text;
        text += blank ? 3 : 1;
    }
    return (uint32_t)count;
}

/* Of <0x0A>; -1: no such text. The library's parser takes a plus sign, too. */
static int16_t byte_named(const char *text) {
    static const char digits[] = "0123456789abcdefABCDEF";
    if (strlen(text) != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    if ((strchr(digits, text[3]) == NULL && text[3] != '+') || strchr(digits, text[4]) == NULL)
        return -1;
    return (int16_t)strtol(text + 3 + (text[3] == '+'), NULL, 16);
}

/* In one block. */
bool tokenizer_make_pieces(struct tokenizer_reading *r) {
    struct tokenizer *t = r->tokenizer;
    int16_t bytes[0x200];
    size_t room = 1;
    for (uint32_t point = 0; point < 0x200; point++) bytes[point] = (int16_t)byte_of_letter(point);
    for (uint32_t id = 0; id < t->size; id++)
        room += t->tokens[id].text != NULL ? strlen(t->tokens[id].shown) : 0;
    char *piece = weir__pool_take(&t->pool, room, 1);
    if (piece == NULL) return tokenizer_no_memory(r);
    for (uint32_t id = 0; id < t->size; id++) {
        struct vocabulary_token *token = &t->tokens[id];
        if (token->text == NULL) continue;
        uint32_t named = weir__name_set_find(&t->names, token->shown);
        token->skipped = named != WEIR__NO_NAME && t->tokens[named].special;
        token->byte = t->decodes_bytes ? -1 : byte_named(token->shown);
        token->piece = piece;
        token->piece_bytes = t->decodes_bytes ? from_letters(bytes, token->shown, piece)
                                              : from_blanks(token->shown, piece);
        if (token->byte >= 0) piece[0] = (char)token->byte, token->piece_bytes = 1;
        piece += token->piece_bytes;
    }
    return true;
}

/* ---- vocabulary ---- */

static bool add_token(struct tokenizer_reading *r, const char *text, const json_t *number,
                      uint32_t limit) {
    struct tokenizer *t = r->tokenizer;
    json_int_t id = json_integer_value(number);
    if (!json_is_integer(number) || id < 0 || id >= (json_int_t)limit)
        return tokenizer_malformed(r, "model.vocab", "'%.40s' is not numbered from 0 to %u", text,
                                   limit - 1);
    if (t->tokens[id].text != NULL)
        return tokenizer_malformed(r, "model.vocab", "'%.40s' and '%.40s' have one number", text,
                                   t->tokens[id].text);
    if (!weir__name_set_add(&t->names, text, (uint32_t)id)) return tokenizer_no_memory(r);
    t->tokens[id] = (struct vocabulary_token){.text = text, .shown = text};
    if ((uint32_t)id >= t->size) t->size = (uint32_t)id + 1;
    return true;
}

/* Texts are copied into one block. Numbers may have gaps, as many as there are tokens. */
static bool read_vocabulary(struct tokenizer_reading *r, const json_t *vocabulary) {
    struct tokenizer *t = r->tokenizer;
    size_t count = json_object_size(vocabulary), room = 1;
    size_t added = json_array_size(json_object_get(r->root, "added_tokens"));
    if (count == 0 || count > TEXT_BYTES_MAX || added > TEXT_BYTES_MAX)
        return tokenizer_malformed(r, "model.vocab", "must be an object with tokens");
    for (void *at = json_object_iter((json_t *)vocabulary); at != NULL;
         at = json_object_iter_next((json_t *)vocabulary, at))
        room += strlen(json_object_iter_key(at)) + 1;
    t->vocabulary_count = (uint32_t)count;
    t->tokens = weir__pool_take(&t->pool, 2 * count + added, sizeof t->tokens[0]);
    char *text = weir__pool_take(&t->pool, room, 1);
    if (t->tokens == NULL || text == NULL) return tokenizer_no_memory(r);
    for (void *at = json_object_iter((json_t *)vocabulary); at != NULL;
         at = json_object_iter_next((json_t *)vocabulary, at)) {
        const char *key = json_object_iter_key(at);
        strcpy(text, key);
        if (!add_token(r, text, json_object_iter_value(at), 2 * (uint32_t)count)) return false;
        text += strlen(key) + 1;
    }
    return true;
}

/* ---- merges ---- */

static uint64_t hash_pair(const struct merge_table *table, uint32_t left, uint32_t right) {
    uint64_t hash = ((uint64_t)left << 32 | right) ^ table->seed;
    hash = (hash ^ hash >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ hash >> 32;
}

/* The pair's entry, or the free one where it belongs. */
static struct merge_entry *entry_of(const struct merge_table *table, uint32_t left,
                                    uint32_t right) {
    uint32_t at = (uint32_t)hash_pair(table, left, right) & table->mask;
    for (;; at = (at + 1) & table->mask) {
        struct merge_entry *entry = &table->entries[at];
        if ((entry->left == left && entry->right == right) || entry->left == TOKENIZER_NONE)
            return entry;
    }
}

bool merge_find(const struct merge_table *table, uint32_t left, uint32_t right, uint32_t *rank,
                uint32_t *whole) {
    const struct merge_entry *entry = entry_of(table, left, right);
    if (entry->left == TOKENIZER_NONE) return false;
    *rank = entry->rank, *whole = entry->whole;
    return true;
}

static bool merge_table_init(struct tokenizer_reading *r, size_t merges) {
    struct merge_table *table = &r->tokenizer->merges;
    uint32_t capacity = 2;
    if (merges > TEXT_BYTES_MAX) return tokenizer_no_memory(r);
    while (capacity < 2 * merges) capacity *= 2;
    table->entries = weir__pool_take(&r->tokenizer->pool, capacity, sizeof table->entries[0]);
    if (table->entries == NULL) return tokenizer_no_memory(r);
    for (uint32_t i = 0; i < capacity; i++) table->entries[i].left = TOKENIZER_NONE;
    table->mask = capacity - 1;
    table->seed = r->tokenizer->names.seed;
    return true;
}

/* "left right", or [left, right]: into `room`, of `capacity` bytes. */
static bool read_pair(const json_t *merge, char *room, size_t capacity, const char **left,
                      const char **right) {
    const char *text = json_string_value(merge);
    *left = json_string_value(json_array_get(merge, 0));
    *right = json_string_value(json_array_get(merge, 1));
    if (text == NULL) return json_array_size(merge) == 2 && *left != NULL && *right != NULL;
    const char *blank = strchr(text, ' ');
    if (blank == NULL || strchr(blank + 1, ' ') != NULL || strlen(text) >= capacity) return false;
    strcpy(room, text);
    room[blank - text] = '\0';
    *left = room, *right = room + (blank - text) + 1;
    return true;
}

static bool add_merge(struct tokenizer_reading *r, const json_t *merge, uint32_t rank) {
    enum { PAIR_BYTES_MAX = 8192 };
    struct tokenizer *t = r->tokenizer;
    char room[PAIR_BYTES_MAX], whole[PAIR_BYTES_MAX];
    const char *left, *right;
    if (!read_pair(merge, room, sizeof room, &left, &right) ||
        strlen(left) + strlen(right) >= sizeof whole)
        return tokenizer_malformed(r, "model.merges", "number %u is no pair", rank);
    snprintf(whole, sizeof whole, "%s%s", left, right);
    uint32_t ids[3] = {weir__name_set_find(&t->names, left), weir__name_set_find(&t->names, right),
                       weir__name_set_find(&t->names, whole)};
    if (ids[0] == WEIR__NO_NAME || ids[1] == WEIR__NO_NAME || ids[2] == WEIR__NO_NAME)
        return tokenizer_malformed(r, "model.merges", "number %u is not of the vocabulary", rank);
    *entry_of(&t->merges, ids[0], ids[1]) =
        (struct merge_entry){.left = ids[0], .right = ids[1], .rank = rank, .whole = ids[2]};
    return true;
}

static bool read_merges(struct tokenizer_reading *r, const json_t *merges) {
    size_t count = json_array_size(merges);
    if (!json_is_array(merges)) return tokenizer_malformed(r, "model.merges", "must be a list");
    if (!merge_table_init(r, count)) return false;
    for (size_t i = 0; i < count; i++)
        if (!add_merge(r, json_array_get(merges, i), (uint32_t)i)) return false;
    return true;
}

/* ---- the model ---- */

/* Symbols that words begin with, or bytes that they fall back to. */
static bool find_bytes(struct tokenizer_reading *r) {
    struct tokenizer *t = r->tokenizer;
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        t->letters[byte] = (uint16_t)byte_letter((unsigned char)byte);
        if (t->over_bytes)
            name[utf8_put(t->letters[byte], name)] = '\0';
        else
            snprintf(name, sizeof name, "<0x%02X>", byte);
        t->byte_ids[byte] = weir__name_set_find(&t->names, name);
        if (t->byte_ids[byte] == WEIR__NO_NAME && t->falls_back)
            return tokenizer_refuse(r, "model.vocab", "byte_fallback, but %s is missing", name);
        if (t->byte_ids[byte] == WEIR__NO_NAME && t->over_bytes && t->unknown == TOKENIZER_NONE)
            t->leaves_out = true;
    }
    return true;
}

static bool read_unknown(struct tokenizer_reading *r, const json_t *model) {
    const json_t *unknown = json_object_get(model, "unk_token");
    r->tokenizer->unknown = TOKENIZER_NONE;
    if (unknown == NULL || json_is_null(unknown)) return true;
    const char *text;
    if (!tokenizer_text(r, "model", model, "unk_token", &text)) return false;
    r->tokenizer->unknown = weir__name_set_find(&r->tokenizer->names, text);
    return r->tokenizer->unknown != WEIR__NO_NAME ||
           tokenizer_malformed(r, "model.unk_token", "is not in the vocabulary");
}

static bool refuse_variants(struct tokenizer_reading *r, const json_t *model) {
    static const char *const keys[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *dropout = json_object_get(model, "dropout");
    const char *type = json_string_value(json_object_get(model, "type"));
    if (type == NULL || strcmp(type, "BPE") != 0)
        return tokenizer_refuse(r, "model", "the type '%.40s' is not taken, only BPE",
                                type != NULL ? type : "");
    if (dropout != NULL && !json_is_null(dropout))
        return tokenizer_refuse(r, "model.dropout", "must be null");
    for (size_t i = 0; i < WEIR__COUNT_OF(keys); i++) {
        const json_t *value = json_object_get(model, keys[i]);
        const char *text = json_string_value(value);
        if (value != NULL && !json_is_null(value) && (text == NULL || text[0] != '\0'))
            return tokenizer_refuse(r, "model", "'%s' must be null or empty", keys[i]);
    }
    return true;
}

bool tokenizer_read_model(struct tokenizer_reading *r) {
    static const char spot[] = "model";
    const json_t *model = json_object_get(r->root, spot);
    struct tokenizer *t = r->tokenizer;
    return tokenizer_check_keys(r, spot, model,
                                "type dropout unk_token continuing_subword_prefix "
                                "end_of_word_suffix fuse_unk byte_fallback ignore_merges vocab "
                                "merges") &&
           refuse_variants(r, model) &&
           tokenizer_flag(r, spot, model, "fuse_unk", false, &t->fuses_unknown) &&
           tokenizer_flag(r, spot, model, "byte_fallback", false, &t->falls_back) &&
           tokenizer_flag(r, spot, model, "ignore_merges", false, &t->ignores_merges) &&
           read_vocabulary(r, json_object_get(model, "vocab")) &&
           read_merges(r, json_object_get(model, "merges")) && read_unknown(r, model) &&
           find_bytes(r);
}

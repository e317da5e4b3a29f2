/* SPDX-License-Identifier: MIT */
/* Added tokens, and how they are found in a text: the leftmost, of those the longest. */
#include "text/tokenizer_inside.h"

#include <stdio.h>
#include <string.h>

enum { CONTENT_BYTES_MAX = 4096 };

/* ---- the trie ---- */

/* The child of `node` (0: the root) for a byte, or 0. */
static uint32_t child_of(const struct added_trie *trie, uint32_t node, unsigned char byte) {
    if (node == 0) return trie->first[byte];
    uint32_t child = trie->nodes[node].child;
    while (child != 0 && trie->nodes[child].byte != byte) child = trie->nodes[child].sibling;
    return child;
}

/* The same, a new one if need be; 0 without memory. */
static uint32_t make_child(struct weir__pool *pool, struct added_trie *trie, uint32_t node,
                           unsigned char byte) {
    uint32_t child = child_of(trie, node, byte);
    struct added_node made = {.id = TOKENIZER_NONE, .byte = byte};
    if (child != 0) return child;
    if (trie->count == 0 &&
        !weir__pool_add(pool, &trie->nodes, &trie->count, &trie->capacity, &made, sizeof made))
        return 0; /* the first one stands for none */
    child = trie->count;
    if (node != 0) made.sibling = trie->nodes[node].child;
    if (!weir__pool_add(pool, &trie->nodes, &trie->count, &trie->capacity, &made, sizeof made))
        return 0;
    if (node != 0)
        trie->nodes[node].child = child;
    else
        trie->first[byte] = child;
    return child;
}

bool added_find(const struct added_trie *trie, const char *bytes, size_t count, size_t from,
                size_t *begin, size_t *end, uint32_t *id) {
    for (size_t at = from; at < count && trie->count > 0; at++) {
        uint32_t node = trie->first[(unsigned char)bytes[at]];
        bool found = false;
        for (size_t i = at + 1; node != 0; i++) {
            if (trie->nodes[node].id != TOKENIZER_NONE)
                *begin = at, *end = i, *id = trie->nodes[node].id, found = true;
            if (i == count) break;
            node = child_of(trie, node, (unsigned char)bytes[i]);
        }
        if (found) return true;
    }
    return false;
}

/* ---- reading ---- */

struct added_entry {
    const char *content;
    bool normalized, special;
    uint32_t id;
};

static bool plant(struct tokenizer_reading *r, const char *spot, struct added_trie *trie,
                  const char *bytes, size_t count, uint32_t id) {
    uint32_t node = 0;
    if (count == 0) return tokenizer_refuse(r, spot, "nothing is left of it when normalized");
    for (size_t i = 0; i < count; i++) {
        node = make_child(&r->tokenizer->pool, trie, node, (unsigned char)bytes[i]);
        if (node == 0) return tokenizer_no_memory(r);
    }
    if (trie->nodes[node].id != TOKENIZER_NONE)
        return tokenizer_refuse(r, spot, "another added token has the same text");
    trie->nodes[node].id = id;
    return true;
}

/* What is found behind the normalizer is its content, normalized. */
static bool plant_normalized(struct tokenizer_reading *r, const char *spot,
                             const struct added_entry *entry) {
    struct tokenizer *t = r->tokenizer;
    struct normal_room room;
    struct aligned text = {.allocator = t->pool.allocator};
    const struct aligned *out;
    size_t begin, end;
    normal_room_init(&room, t->pool.allocator);
    int status = aligned_add_plain(&text, entry->content, strlen(entry->content), 0);
    if (status != WEIR_OK) goto fail;
    status = normal_apply(&t->normalizer, &room, &text, 0, text.count, &out, &begin, &end);
    if (status != WEIR_OK) goto fail;
    char *shown = weir__pool_take(&t->pool, end - begin + 1, 1);
    if (shown == NULL) goto fail;
    memcpy(shown, out->bytes + begin, end - begin);
    t->tokens[entry->id].shown = shown;
    bool good = plant(r, spot, &t->normalized, shown, end - begin, entry->id);
    normal_room_clean_up(&room);
    aligned_clean_up(&text);
    return good;
fail:
    normal_room_clean_up(&room);
    aligned_clean_up(&text);
    return tokenizer_no_memory(r);
}

static bool read_entry(struct tokenizer_reading *r, const char *spot, const json_t *object,
                       struct added_entry *entry) {
    const json_t *id = json_object_get(object, "id");
    bool alone, left, right;
    if (!tokenizer_check_keys(r, spot, object,
                              "id content single_word lstrip rstrip normalized special") ||
        !tokenizer_text(r, spot, object, "content", &entry->content) ||
        !tokenizer_flag(r, spot, object, "single_word", false, &alone) ||
        !tokenizer_flag(r, spot, object, "lstrip", false, &left) ||
        !tokenizer_flag(r, spot, object, "rstrip", false, &right) ||
        !tokenizer_flag(r, spot, object, "normalized", true, &entry->normalized) ||
        !tokenizer_flag(r, spot, object, "special", false, &entry->special))
        return false;
    size_t length = strlen(entry->content);
    if (alone || left || right)
        return tokenizer_refuse(r, spot, "'%s' must be false",
                                alone  ? "single_word"
                                : left ? "lstrip"
                                       : "rstrip");
    if (length == 0 || length > CONTENT_BYTES_MAX)
        return tokenizer_refuse(r, spot, "the content has not 1 to %d bytes", CONTENT_BYTES_MAX);
    if (!json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= TEXT_BYTES_MAX)
        return tokenizer_malformed(r, spot, "'id' must be a number that is not negative");
    entry->id = (uint32_t)json_integer_value(id);
    return true;
}

/* The library does not go by the file's numbers: what the vocabulary lacks is numbered from its
 * size on. Where that comes to something else the file means other than it says. */
static bool number_entry(struct tokenizer_reading *r, const char *spot,
                         const struct added_entry *entry, uint32_t *next) {
    struct tokenizer *t = r->tokenizer;
    uint32_t known = weir__name_set_find(&t->names, entry->content);
    uint32_t wanted = known != WEIR__NO_NAME ? known : *next;
    if (entry->id != wanted || (known != WEIR__NO_NAME && t->tokens[known].added))
        return tokenizer_refuse(r, spot, "'%.40s' has the number %u where tokenizers gives it %u",
                                entry->content, entry->id, wanted);
    if (known == WEIR__NO_NAME) {
        if (t->tokens[wanted].text != NULL)
            return tokenizer_refuse(r, spot, "the number %u is another token's", wanted);
        const char *text = weir__pool_text(&t->pool, entry->content);
        if (text == NULL || !weir__name_set_add(&t->names, text, wanted))
            return tokenizer_no_memory(r);
        t->tokens[wanted] = (struct vocabulary_token){.text = text, .shown = text, .extra = true};
        if (wanted >= t->size) t->size = wanted + 1;
        ++*next;
    }
    t->tokens[wanted].added = true;
    t->tokens[wanted].special = entry->special;
    return true;
}

static bool check_template(struct tokenizer_reading *r) {
    const struct tokenizer *t = r->tokenizer;
    bool good = true;
    struct tokenizer_token token;
    for (uint32_t i = 0; i < t->before_count; i++)
        good = good && tokenizer_get(t, t->before[i], &token);
    for (uint32_t i = 0; i < t->after_count; i++)
        good = good && tokenizer_get(t, t->after[i], &token);
    return good || tokenizer_malformed(r, "post_processor", "an id is no token's");
}

bool tokenizer_read_added(struct tokenizer_reading *r) {
    const json_t *list = json_object_get(r->root, "added_tokens");
    uint32_t next = r->tokenizer->vocabulary_count;
    if (list != NULL && !json_is_array(list))
        return tokenizer_malformed(r, "added_tokens", "must be a list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct added_entry entry;
        char spot[64];
        snprintf(spot, sizeof spot, "added_tokens[%zu]", i);
        if (!read_entry(r, spot, json_array_get(list, i), &entry) ||
            !number_entry(r, spot, &entry, &next))
            return false;
        bool good = entry.normalized ? plant_normalized(r, spot, &entry)
                                     : plant(r, spot, &r->tokenizer->raw, entry.content,
                                             strlen(entry.content), entry.id);
        if (!good) return false;
    }
    return check_template(r);
}

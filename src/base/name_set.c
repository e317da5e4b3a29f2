/* SPDX-License-Identifier: MIT */
/* Open addressing with linear steps, at most half full. */
#include "base/name_set.h"

#include <string.h>

enum { CAPACITY_FIRST = 32 };

struct weir__name_set_entry {
    const char *text; /* NULL: free */
    uint64_t hash;
    uint32_t number;
};

void weir__name_set_init(struct weir__name_set *names, struct weir__pool *pool) {
    *names = (struct weir__name_set){.pool = pool};
    names->seed = (uint64_t)(uintptr_t)names ^ weir__now_ns() << 20;
}

static uint64_t hash_of(const struct weir__name_set *names, const char *text) {
    uint64_t hash = names->seed;
    for (; *text != '\0'; text++) {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

/* The entry of an equal text, or the free one where it belongs. */
static struct weir__name_set_entry *entry_of(const struct weir__name_set *names, const char *text,
                                             uint64_t hash) {
    uint32_t mask = names->capacity - 1, at = (uint32_t)(hash >> 32) & mask;
    assert(names->count < names->capacity);
    for (;; at = (at + 1) & mask) {
        struct weir__name_set_entry *entry = &names->entries[at];
        if (entry->text == NULL || (entry->hash == hash && strcmp(entry->text, text) == 0))
            return entry;
    }
}

uint32_t weir__name_set_find(const struct weir__name_set *names, const char *text) {
    if (names->count == 0) return WEIR__NO_NAME;
    const struct weir__name_set_entry *entry = entry_of(names, text, hash_of(names, text));
    return entry->text != NULL ? entry->number : WEIR__NO_NAME;
}

static bool grow(struct weir__name_set *names) {
    if (names->capacity > UINT32_MAX / 2) return false;
    struct weir__name_set larger = *names;
    larger.capacity = names->capacity == 0 ? CAPACITY_FIRST : names->capacity * 2;
    larger.entries = weir__pool_take(names->pool, larger.capacity, sizeof larger.entries[0]);
    if (larger.entries == NULL) return false;
    for (uint32_t i = 0; i < names->capacity; i++) {
        const struct weir__name_set_entry *entry = &names->entries[i];
        if (entry->text != NULL) *entry_of(&larger, entry->text, entry->hash) = *entry;
    }
    *names = larger;
    return true;
}

bool weir__name_set_add(struct weir__name_set *names, const char *text, uint32_t number) {
    assert(number != WEIR__NO_NAME && weir__name_set_find(names, text) == WEIR__NO_NAME);
    if (names->count >= names->capacity / 2 && !grow(names)) return false;
    uint64_t hash = hash_of(names, text);
    struct weir__name_set_entry *entry = entry_of(names, text, hash);
    *entry = (struct weir__name_set_entry){.text = text, .hash = hash, .number = number};
    names->count++;
    return true;
}

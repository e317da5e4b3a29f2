/* SPDX-License-Identifier: MIT */
/**
 * Normalizers of `tokenizer.json`: NFC, Prepend, Replace of one text by another, and sequences of
 * them. Spans come out as `tokenizers` has them, by counting characters: what a composition takes
 * away is taken from behind, in the order of the text and not of the composition.
 */
#ifndef WEIR_TEXT_NORMAL_H
#define WEIR_TEXT_NORMAL_H

#include "text/aligned.h"

#define NORMAL_STEPS_MAX 8

enum normal_kind { NORMAL_NFC, NORMAL_PREPEND, NORMAL_REPLACE };

struct normal_step {
    enum normal_kind kind;
    const char *from; /**< what is replaced, not empty; borrowed */
    const char *to;   /**< what is put there; borrowed */
};

struct normalizer {
    uint32_t count;
    struct normal_step steps[NORMAL_STEPS_MAX];
    const uint8_t *marks; /**< of all code points (unicode.h), where there is NFC; borrowed */
};

/** Room for one thread; begins zeroed but for the allocators of `texts`. */
struct normal_room {
    struct aligned texts[2];
    struct normal_point *points;
    size_t capacity;
};
void normal_room_init(struct normal_room *room, const struct weir_allocator *allocator);
void normal_room_clean_up(struct normal_room *room);

/** Whether this system's tables are not older than those of `tokenizers`. */
bool normal_is_known(void);
/** Normalizes bytes begin … end - 1 of a sound text. `out` is the room's until the next call, or,
 * where there is nothing to do, `text` itself, whose bytes *out_begin … *out_end - 1 are the
 * result. WEIR_ERR_OUT_OF_MEMORY. */
int normal_apply(const struct normalizer *normalizer, struct normal_room *room,
                 const struct aligned *text, size_t begin, size_t end, const struct aligned **out,
                 size_t *out_begin, size_t *out_end);

#endif

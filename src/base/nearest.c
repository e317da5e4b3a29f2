/* SPDX-License-Identifier: MIT */
/* Which of some names a text may have been meant to be. */
#include "base/base.h"

#include <string.h>

enum { WORD_MAX = 64 };

static uint32_t least_of(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

uint32_t weir__edit_distance(const char *a, const char *b) {
    uint32_t rows[3][WORD_MAX] = {{0}};
    size_t a_bytes = strnlen(a, WORD_MAX - 1), b_bytes = strnlen(b, WORD_MAX - 1);
    for (uint32_t j = 0; j <= b_bytes; j++) {
        rows[0][j] = j;
    }
    for (uint32_t i = 1; i <= a_bytes; i++) {
        uint32_t *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (uint32_t j = 1; j <= b_bytes; j++) {
            uint32_t replaced = last[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = least_of(replaced, least_of(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                now[j] = least_of(now[j], before[j - 2] + 1);
            }
        }
    }
    return rows[a_bytes % 3][b_bytes];
}

static bool is_near(const char *text, uint32_t distance) {
    return distance <= 1 + strnlen(text, 12) / 4;
}

const char *weir__nearest(const char *text, const char *const *names) {
    const char *nearest = NULL;
    uint32_t smallest = UINT32_MAX;
    for (size_t i = 0; names[i]; i++) {
        uint32_t distance = weir__edit_distance(text, names[i]);
        if (distance < smallest) {
            smallest = distance;
            nearest = names[i];
        }
    }
    return nearest && is_near(text, smallest) ? nearest : NULL;
}

bool weir__text_ends(const char *text, const char *end) {
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

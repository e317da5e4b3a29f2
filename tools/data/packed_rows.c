/* SPDX-License-Identifier: MIT */
#include "data/packed_rows.h"

#include <string.h>

struct open_row {
    uint64_t row;
    uint32_t room; /* at least 1 */
};

/* Open rows, oldest first. */
struct open_rows {
    struct open_row list[PACKED_ROWS_OPEN];
    uint32_t count;
};

static void close_row(struct open_rows *rows, uint32_t at) {
    assert(at < rows->count);
    rows->count--;
    memmove(&rows->list[at], &rows->list[at + 1], (rows->count - at) * sizeof rows->list[0]);
}

uint64_t weir__packed_rows(const uint32_t *places, uint64_t count, uint32_t context,
                           uint64_t *row_of) {
    struct open_rows rows = {.count = 0};
    uint64_t made = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t at = 0;
        assert(places[i] >= 1 && places[i] <= context);
        while (at < rows.count && rows.list[at].room < places[i]) at++;
        if (at == rows.count) {
            if (rows.count == PACKED_ROWS_OPEN) close_row(&rows, 0);
            at = rows.count++;
            rows.list[at] = (struct open_row){made++, context};
        }
        row_of[i] = rows.list[at].row;
        rows.list[at].room -= places[i];
        if (rows.list[at].room == 0) close_row(&rows, at);
    }
    return made;
}

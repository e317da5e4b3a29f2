/* SPDX-License-Identifier: MIT */
/* Packing of temporaries: the largest buffer first, each into the tightest gap that is free for its
 * whole life. Not optimal, but close to it for chains of layers, and it gives the same offsets
 * every time. */
#include "net/compile/program.h"

static bool overlap(const struct weir__buffer *a, const struct weir__buffer *b) {
    return a->first <= b->last && b->first <= a->last;
}

/** Sorts by size, descending; equal sizes stay in order of their first use. */
static void sort_largest_first(const struct weir__buffer *buffers, uint32_t count,
                               uint32_t *order) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at > 0 && buffers[order[at - 1]].bytes < buffers[i].bytes; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/** Re-sorts the `count` placed ones among order[0 …] by offset, so that gaps can be walked. */
static void insert_by_offset(const struct weir__buffer *buffers, uint32_t count, uint32_t *placed,
                             uint32_t buffer) {
    uint32_t at = count;
    for (; at > 0 && buffers[placed[at - 1]].offset > buffers[buffer].offset; at--)
        placed[at] = placed[at - 1];
    placed[at] = buffer;
}

static size_t best_gap(const struct weir__buffer *buffers, const uint32_t *placed, uint32_t count,
                       const struct weir__buffer *wanted) {
    size_t end = 0, best = SIZE_MAX, best_room = SIZE_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const struct weir__buffer *other = &buffers[placed[i]];
        if (!overlap(other, wanted)) continue;
        size_t room = other->offset > end ? other->offset - end : 0;
        if (room >= wanted->bytes && room < best_room) {
            best = end;
            best_room = room;
        }
        if (other->offset + other->bytes > end) end = other->offset + other->bytes;
    }
    return best != SIZE_MAX ? best : end;
}

size_t weir__pack(struct weir__buffer *buffers, uint32_t count, uint32_t *order) {
    size_t total = 0;
    uint32_t *placed = order + count;
    sort_largest_first(buffers, count, order);
    for (uint32_t i = 0; i < count; i++) {
        struct weir__buffer *buffer = &buffers[order[i]];
        if (buffer->bytes == 0) continue;
        buffer->offset = best_gap(buffers, placed, i, buffer);
        insert_by_offset(buffers, i, placed, order[i]);
        if (buffer->offset + buffer->bytes > total) total = buffer->offset + buffer->bytes;
    }
    return total;
}

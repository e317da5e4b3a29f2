/* SPDX-License-Identifier: MIT */
/* Lifetimes and packing. Offline dynamic storage allocation is NP-hard; placing blocks greedily at
 * the lowest free offset, tried in a few orders, comes within a few per cent of the largest sum of
 * live bytes on every schedule we have, and the best of the orders is taken. */
#include "pipe/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A block that another worker reads is held a little longer than the replay says, so that the next
 * writer does not wait for a reader that is late by less than this part of a forward. */
static const double slack = 0.5;

void weir__memory_init(struct weir__memory *memory, struct weir__pool *pool) {
    memset(memory, 0, sizeof *memory);
    memory->pool = pool;
}

void weir__memory_fail(struct weir__memory *memory) {
    if (memory->status == WEIR_OK) memory->status = WEIR_ERR_OUT_OF_MEMORY;
}

uint32_t weir__memory_block(struct weir__memory *memory, enum weir__block_class class_of,
                            uint32_t worker, size_t bytes) {
    if (bytes == 0 || memory->status != WEIR_OK) return WEIR__NO_BLOCK;
    void *blocks = memory->blocks;
    size_t rounded, all;
    if (!weir__round_up(bytes, WEIR__ALIGNMENT, &rounded) ||
        !weir__add(memory->all_bytes, rounded, &all) || all > INT64_MAX) {
        memory->status = WEIR_ERR_OVERFLOW;
        return WEIR__NO_BLOCK;
    }
    if (!weir__pool_grow(memory->pool, &blocks, memory->block_count, &memory->block_capacity,
                         sizeof *memory->blocks)) {
        weir__memory_fail(memory);
        return WEIR__NO_BLOCK;
    }
    memory->all_bytes = all;
    memory->blocks = blocks;
    memory->blocks[memory->block_count] = (struct weir__block){.bytes = rounded,
                                                               .worker = worker,
                                                               .first = WEIR__NO_BLOCK,
                                                               .uses = WEIR__NO_BLOCK,
                                                               .class_of = (uint8_t)class_of};
    return memory->block_count++;
}

void weir__memory_use(struct weir__memory *memory, uint32_t block, uint32_t action) {
    if (block == WEIR__NO_BLOCK || memory->status != WEIR_OK) return;
    void *uses = memory->uses;
    if (!weir__pool_grow(memory->pool, &uses, memory->use_count, &memory->use_capacity,
                         sizeof *memory->uses)) {
        weir__memory_fail(memory);
        return;
    }
    memory->uses = uses;
    memory->uses[memory->use_count] = (struct weir__block_use){action, memory->blocks[block].uses};
    memory->blocks[block].uses = memory->use_count++;
}

/* ---- lifetimes ---- */

static void find_lifetime(struct weir__memory *memory, struct weir__block *block,
                          const struct weir_table *table, const double *start, const double *end) {
    block->first = WEIR__NO_BLOCK;
    block->start = -1.0, block->end = HUGE_VAL;
    if (block->uses == WEIR__NO_BLOCK) return;
    block->start = HUGE_VAL, block->end = -1.0;
    bool foreign = false;
    for (uint32_t u = block->uses; u != WEIR__NO_BLOCK; u = memory->uses[u].next) {
        uint32_t action = memory->uses[u].action;
        if (start[action] < block->start ||
            (start[action] == block->start && end[action] < end[block->first])) {
            block->start = start[action];
            block->first = action;
        }
        block->end = fmax(block->end, end[action]);
        foreign |= weir__table_worker_of(table, action) != block->worker;
    }
    if (foreign) block->end += slack;
}

/* ---- packing ---- */

struct packing {
    const struct weir__memory *memory;
    uint32_t *order; /* blocks of one worker, in placing order */
    uint32_t count;
    uint32_t *placed; /* those placed, ascending offset */
    size_t *offsets;  /* trial offsets by block */
};

static bool overlap(const struct weir__block *a, const struct weir__block *b) {
    return a->start < b->end && b->start < a->end;
}

/* The lowest gap between placed blocks that live at the same time. */
static size_t lowest_gap(const struct packing *packing, uint32_t placed, uint32_t block) {
    const struct weir__block *blocks = packing->memory->blocks;
    size_t from = 0;
    for (uint32_t i = 0; i < placed; i++) {
        uint32_t other = packing->placed[i];
        if (!overlap(&blocks[other], &blocks[block])) continue;
        if (packing->offsets[other] >= from + blocks[block].bytes) break;
        size_t past = packing->offsets[other] + blocks[other].bytes;
        if (past > from) from = past;
    }
    return from;
}

static size_t pack_in_order(struct packing *packing) {
    const struct weir__block *blocks = packing->memory->blocks;
    size_t total = 0;
    for (uint32_t n = 0; n < packing->count; n++) {
        uint32_t block = packing->order[n];
        size_t at = lowest_gap(packing, n, block);
        packing->offsets[block] = at;
        uint32_t i = n;
        for (; i > 0 && packing->offsets[packing->placed[i - 1]] > at; i--)
            packing->placed[i] = packing->placed[i - 1];
        packing->placed[i] = block;
        if (at + blocks[block].bytes > total) total = at + blocks[block].bytes;
    }
    return total;
}

/* Sorting keys of the orders tried; lasting blocks always come first. */
struct ranked {
    double key, tie;
    uint32_t block;
};

static int by_rank(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    if (x->tie != y->tie) return x->tie < y->tie ? -1 : 1;
    return (x->block > y->block) - (x->block < y->block);
}

/* A plan that must fit into arenas that are there already is worth trying harder for. */
enum { ORDERS = 3, ORDERS_WITHIN_LIMIT = 128 };

/* The later orders are by size, each block's scaled by its own number in [0.5, 1.5). */
static double scaled_size(const struct weir__block *block, uint32_t index, int order) {
    uint32_t words[4];
    weir__random_words((uint64_t)order, 0, 0, 0, index, words);
    return -(double)block->bytes * (0.5 + (double)words[0] * 0x1p-32);
}

static struct ranked rank_block(const struct weir__block *block, uint32_t index, int order) {
    double size = -(double)block->bytes, life = block->start - block->end;
    if (block->first == WEIR__NO_BLOCK) return (struct ranked){-HUGE_VAL, index, index};
    if (order >= ORDERS) return (struct ranked){scaled_size(block, index, order), size, index};
    if (order == 0) return (struct ranked){size, block->start, index};
    if (order == 1) return (struct ranked){block->start, size, index};
    return (struct ranked){life, size, index};
}

static int pack_worker(struct weir__memory *memory, uint32_t worker, struct packing *packing,
                       struct ranked *ranked, size_t *bytes) {
    size_t best = SIZE_MAX, limit = *bytes;
    for (int order = 0; order < ORDERS_WITHIN_LIMIT; order++) {
        if (order >= ORDERS && (limit == 0 || best <= limit)) break;
        uint32_t count = 0;
        for (uint32_t b = 0; b < memory->block_count; b++)
            if (memory->blocks[b].worker == worker)
                ranked[count++] = rank_block(&memory->blocks[b], b, order);
        qsort(ranked, count, sizeof *ranked, by_rank);
        for (uint32_t i = 0; i < count; i++) packing->order[i] = ranked[i].block;
        packing->count = count;
        size_t total = pack_in_order(packing);
        if (total >= best) continue;
        best = total;
        for (uint32_t i = 0; i < count; i++)
            memory->blocks[packing->order[i]].offset = packing->offsets[packing->order[i]];
    }
    *bytes = best;
    return WEIR_OK;
}

int weir__memory_pack(struct weir__memory *memory, const struct weir_table *table,
                      const double *start, const double *end, size_t *arena_bytes) {
    if (memory->status != WEIR_OK) return memory->status;
    uint32_t count = memory->block_count;
    for (uint32_t b = 0; b < count; b++)
        find_lifetime(memory, &memory->blocks[b], table, start, end);
    struct packing packing = {memory, weir__pool_take(memory->pool, count, sizeof(uint32_t)), 0,
                              weir__pool_take(memory->pool, count, sizeof(uint32_t)),
                              weir__pool_take(memory->pool, count, sizeof(size_t))};
    struct ranked *ranked = weir__pool_take(memory->pool, count, sizeof *ranked);
    if (packing.order == NULL || packing.placed == NULL || packing.offsets == NULL ||
        ranked == NULL)
        return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < table->worker_count; w++)
        pack_worker(memory, w, &packing, ranked, &arena_bytes[w]);
    return WEIR_OK;
}

/* ---- peaks ---- */

struct moment {
    double time;
    int64_t bytes; /* + at the start, - at the end */
    uint8_t class_of;
};

/* What ends at an instant is gone before what starts then. */
static int by_time(const void *a, const void *b) {
    const struct moment *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static void largest_moment(const struct moment *moments, uint32_t count,
                           uint64_t at_peak[WEIR__BLOCK_CLASS_COUNT]) {
    int64_t live[WEIR__BLOCK_CLASS_COUNT] = {0}, sum = 0, most = -1;
    for (uint32_t i = 0; i < count; i++) {
        live[moments[i].class_of] += moments[i].bytes;
        sum += moments[i].bytes;
        if (sum <= most) continue;
        most = sum;
        for (int c = 0; c < WEIR__BLOCK_CLASS_COUNT; c++) at_peak[c] = (uint64_t)live[c];
    }
}

static void fill_device(const uint64_t at_peak[WEIR__BLOCK_CLASS_COUNT], size_t total,
                        struct weir_device_plan *device) {
    device->parameters = at_peak[WEIR__BLOCK_PARAMETERS];
    device->gradients = at_peak[WEIR__BLOCK_GRADIENTS];
    device->optimizer = at_peak[WEIR__BLOCK_OPTIMIZER];
    device->activations = at_peak[WEIR__BLOCK_ACTIVATIONS];
    device->borders = at_peak[WEIR__BLOCK_BORDERS];
    device->portals = at_peak[WEIR__BLOCK_PORTALS];
    device->workspace = at_peak[WEIR__BLOCK_WORKSPACE];
    device->total = total;
    device->padding = total;
    for (int c = 0; c < WEIR__BLOCK_CLASS_COUNT; c++) device->padding -= at_peak[c];
}

int weir__memory_peaks(const struct weir__memory *memory, uint32_t worker_count,
                       const size_t *totals, struct weir_device_plan *devices) {
    struct moment *moments =
        weir__pool_take(memory->pool, 2 * (size_t)memory->block_count, sizeof *moments);
    if (moments == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < worker_count; w++) {
        uint64_t at_peak[WEIR__BLOCK_CLASS_COUNT] = {0};
        uint32_t count = 0;
        for (uint32_t b = 0; b < memory->block_count; b++) {
            const struct weir__block *block = &memory->blocks[b];
            if (block->worker != w) continue;
            int64_t bytes = (int64_t)block->bytes;
            moments[count++] = (struct moment){block->start, bytes, block->class_of};
            moments[count++] = (struct moment){block->end, -bytes, block->class_of};
        }
        qsort(moments, count, sizeof *moments, by_time);
        largest_moment(moments, count, at_peak);
        fill_device(at_peak, totals[w], &devices[w]);
    }
    return WEIR_OK;
}

/* ---- hand-overs ---- */

struct by_start {
    double start;
    uint32_t block;
};

static int compare_start(const void *a, const void *b) {
    const struct by_start *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->block > y->block) - (x->block < y->block);
}

static bool share_bytes(const struct weir__block *a, const struct weir__block *b) {
    return a->worker == b->worker && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

struct handover_list {
    struct weir__pool *pool;
    struct weir__handover *items;
    uint32_t count, capacity;
};

static bool add_handover(struct handover_list *list, uint32_t before, uint32_t after) {
    void *items = list->items;
    if (!weir__pool_grow(list->pool, &items, list->count, &list->capacity, sizeof *list->items))
        return false;
    list->items = items;
    list->items[list->count++] = (struct weir__handover){before, after};
    return true;
}

/* Occupants: blocks that were the last to hold some byte. A new block takes over from each that it
 * overlaps; one that it covers wholly is an occupant no more (its own successors' orderings follow
 * from the new block's). */
static bool take_over(const struct weir__memory *memory, struct handover_list *list,
                      uint32_t *occupants, uint32_t *occupant_count, uint32_t block) {
    const struct weir__block *now = &memory->blocks[block];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *occupant_count; i++) {
        const struct weir__block *old = &memory->blocks[occupants[i]];
        bool shared = share_bytes(old, now);
        for (uint32_t u = old->uses; shared && u != WEIR__NO_BLOCK; u = memory->uses[u].next)
            if (!add_handover(list, memory->uses[u].action, now->first)) return false;
        bool covered = shared && now->offset <= old->offset &&
                       old->offset + old->bytes <= now->offset + now->bytes;
        if (!covered) occupants[kept++] = occupants[i];
    }
    occupants[kept++] = block;
    *occupant_count = kept;
    return true;
}

int weir__memory_handovers(const struct weir__memory *memory, const double *start,
                           struct weir__handover **handovers, uint32_t *count) {
    struct by_start *order = weir__pool_take(memory->pool, memory->block_count, sizeof *order);
    uint32_t *occupants = weir__pool_take(memory->pool, memory->block_count, sizeof *occupants);
    struct handover_list list = {memory->pool, NULL, 0, 0};
    if (order == NULL || occupants == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    uint32_t moving = 0, occupant_count = 0;
    for (uint32_t b = 0; b < memory->block_count; b++)
        if (memory->blocks[b].first != WEIR__NO_BLOCK)
            order[moving++] = (struct by_start){start[memory->blocks[b].first], b};
    qsort(order, moving, sizeof *order, compare_start);
    for (uint32_t i = 0; i < moving; i++)
        if (!take_over(memory, &list, occupants, &occupant_count, order[i].block))
            return WEIR_ERR_OUT_OF_MEMORY;
    *handovers = list.items;
    *count = list.count;
    return WEIR_OK;
}

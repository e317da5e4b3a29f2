/* SPDX-License-Identifier: MIT */
/* Blocks and their lifetimes, what lives at a time, and what must be waited for where one block
 * follows another. Where blocks lie is packing.c's business. */
#include "pipe/memory/memory.h"

#include "pipe/memory/known.h"
#include "pipe/memory/packing.h"
#include "schedule/facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A block that others read is held until its worker knows that they have. Forwards may know that
 * only when a gradient comes, GPipe's for all micro-batches: what they read is held so for so many
 * forwards at most. Else, and where nothing tells, it is held a little longer than the replay says,
 * so that the next writer does not wait for a reader that is late by less than this part of a
 * forward. */
static const double known_soon = 4, slack = 0.5;

void weir__memory_init(struct weir__memory *memory, struct weir__pool *pool) {
    assert(memory != NULL && pool != NULL);
    memset(memory, 0, sizeof *memory);
    memory->pool = pool;
}

static void fail(struct weir__memory *memory) {
    if (memory->status == WEIR_OK) memory->status = WEIR_ERR_OUT_OF_MEMORY;
}

uint32_t weir__memory_block(struct weir__memory *memory, enum weir__block_class class_of,
                            uint32_t worker, size_t bytes) {
    assert((unsigned)class_of < WEIR__BLOCK_CLASS_COUNT);
    if (bytes == 0 || memory->status != WEIR_OK) return WEIR__NO_BLOCK;
    size_t rounded, all;
    if (!weir__round_up(bytes, WEIR__ALIGNMENT, &rounded) ||
        !weir__add(memory->all_bytes, rounded, &all) || all > INT64_MAX) {
        memory->status = WEIR_ERR_OVERFLOW;
        return WEIR__NO_BLOCK;
    }
    const struct weir__block added = {.bytes = rounded,
                                      .worker = worker,
                                      .first = WEIR__NO_BLOCK,
                                      .uses = WEIR__NO_BLOCK,
                                      .ahead = HUGE_VAL,
                                      .rest = WEIR__NO_BLOCK,
                                      .class_of = (uint8_t)class_of};
    if (!weir__pool_add(memory->pool, &memory->blocks, &memory->block_count,
                        &memory->block_capacity, &added, sizeof added)) {
        fail(memory);
        return WEIR__NO_BLOCK;
    }
    assert(rounded >= bytes && memory->block_count <= memory->block_capacity);
    memory->all_bytes = all;
    return memory->block_count - 1;
}

void weir__memory_use(struct weir__memory *memory, uint32_t block, uint32_t action) {
    if (block == WEIR__NO_BLOCK || memory->status != WEIR_OK) return;
    assert(block < memory->block_count);
    const struct weir__block_use added = {action, memory->blocks[block].uses};
    if (weir__pool_add(memory->pool, &memory->uses, &memory->use_count, &memory->use_capacity,
                       &added, sizeof added))
        memory->blocks[block].uses = memory->use_count - 1;
    else
        fail(memory);
}

void weir__memory_may_part(struct weir__memory *memory, uint32_t block, const size_t *cuts,
                           uint32_t count) {
    if (block == WEIR__NO_BLOCK || memory->status != WEIR_OK) return;
    assert(block < memory->block_count);
    assert(count == 0 || (cuts[0] > 0 && cuts[count - 1] < memory->blocks[block].bytes));
    memory->blocks[block].cuts = cuts;
    memory->blocks[block].cut_count = count;
}

size_t weir__memory_at(const struct weir__memory *memory, uint32_t block, size_t offset) {
    assert(block < memory->block_count);
    const struct weir__block *part = &memory->blocks[block];
    for (; offset >= part->bytes && part->rest != WEIR__NO_BLOCK;
         part = &memory->blocks[part->rest])
        offset -= part->bytes;
    assert(offset <= part->bytes);
    return part->offset + offset;
}

/* ---- lifetimes ---- */

uint32_t weir__memory_first(const struct weir__memory *memory, uint32_t block, const double *start,
                            const double *end) {
    assert(block < memory->block_count);
    uint32_t first = WEIR__NO_BLOCK;
    for (uint32_t u = memory->blocks[block].uses; u != WEIR__NO_BLOCK; u = memory->uses[u].next) {
        uint32_t action = memory->uses[u].action;
        if (first == WEIR__NO_BLOCK || start[action] < start[first] ||
            (start[action] == start[first] && end[action] < end[first]))
            first = action;
    }
    return first;
}

static void find_lifetime(struct weir__memory *memory, struct weir__block *block,
                          const struct weir_table *table, const double *start, const double *end) {
    assert(block->worker < table->worker_count);
    block->first = weir__memory_first(memory, (uint32_t)(block - memory->blocks), start, end);
    block->start = -1.0, block->end = block->late = HUGE_VAL;
    if (block->first == WEIR__NO_BLOCK) return;
    block->start = fmin(start[block->first], block->ahead), block->end = -1.0;
    for (uint32_t u = block->uses; u != WEIR__NO_BLOCK; u = memory->uses[u].next)
        block->end = fmax(block->end, end[memory->uses[u].action]);
    assert(0.0 <= block->start && block->start < block->end);
    block->late = block->end;
}

static bool is_foreign(const struct weir__memory *memory, const struct weir__block *block,
                       const struct weir_table *table) {
    for (uint32_t u = block->uses; u != WEIR__NO_BLOCK; u = memory->uses[u].next)
        if (weir__table_worker_of(table, memory->uses[u].action) != block->worker) return true;
    return false;
}

static void hold(const struct weir__memory *memory, struct weir__block *block,
                 const struct weir__known *known, const double *start, const double *end) {
    assert(block->first != WEIR__NO_BLOCK);
    for (uint32_t u = block->uses; u != WEIR__NO_BLOCK; u = memory->uses[u].next) {
        uint32_t action = memory->uses[u].action;
        if (weir__table_worker_of(known->table, action) == block->worker) continue;
        uint32_t from = weir__known_from(known, block->worker, action);
        bool back = weir__kinds[known->table->actions[action].kind].of_backward;
        bool soon = from != UINT32_MAX && (back || start[from] <= end[action] + known_soon);
        block->late = fmax(block->late, soon ? start[from] : end[action] + slack);
    }
}

/* Of all that others read. */
static int hold_foreign(struct weir__memory *memory, const struct weir_table *table,
                        const struct weir__deps *deps, const double *start, const double *end) {
    struct weir__known known = {.table = NULL};
    for (uint32_t b = 0; b < memory->block_count; b++) {
        struct weir__block *block = &memory->blocks[b];
        if (block->first == WEIR__NO_BLOCK || !is_foreign(memory, block, table)) continue;
        int status = known.table != NULL
                         ? WEIR_OK
                         : weir__known_init(&known, memory->pool, table, deps, start);
        if (status != WEIR_OK) return status;
        hold(memory, block, &known, start, end);
    }
    return WEIR_OK;
}

/* ---- packing ---- */

/* Blocks by worker, those of one in the order in which they were made. */
static bool list_by_worker(struct weir__memory *memory, uint32_t worker_count) {
    assert(worker_count > 0);
    uint32_t *begin = weir__pool_take(memory->pool, (size_t)worker_count + 2, sizeof *begin);
    memory->by_worker = weir__pool_take(memory->pool, memory->block_count, sizeof(uint32_t));
    if (begin == NULL || memory->by_worker == NULL) return false;
    memory->worker_begin = begin;
    begin++; /* until all are listed, begin[w] is where the next one of w goes */
    for (uint32_t b = 0; b < memory->block_count; b++) begin[memory->blocks[b].worker + 1]++;
    for (uint32_t w = 0; w < worker_count; w++) begin[w + 1] += begin[w];
    for (uint32_t b = 0; b < memory->block_count; b++)
        memory->by_worker[begin[memory->blocks[b].worker]++] = b;
    assert(begin[worker_count - 1] == memory->block_count);
    return true;
}

/* What lasts lies at the beginning, in order. */
static size_t place_lasting(struct weir__memory *memory, uint32_t worker) {
    size_t bytes = 0;
    for (uint32_t i = memory->worker_begin[worker]; i < memory->worker_begin[worker + 1]; i++) {
        struct weir__block *block = &memory->blocks[memory->by_worker[i]];
        if (block->first != WEIR__NO_BLOCK) continue;
        block->offset = bytes;
        bytes += block->bytes;
    }
    assert(bytes % WEIR__ALIGNMENT == 0);
    return bytes;
}

/* How blocks may be packed: whole, or parted into about so many; held for others, or as the replay
 * says; with a search or without. The next is tried where all before are far from the bound. Of 784
 * arenas of pipes that are hard to pack the first way does for 652, the quick ones that follow, of
 * 8 ms each, for some 75 more, and the searches, of 65 ms each, for a dozen. */
struct way {
    uint32_t parts;
    bool exact, search;
};
enum { ALL = UINT32_MAX };
static const struct way ways[] = {
    {.parts = 1},
    {.parts = ALL},
    {.parts = 4},
    {.parts = 2},
    {.parts = 1, .exact = true},
    {.parts = 2, .exact = true},
    {.parts = 1, .search = true},
    {.parts = 2, .search = true},
    {.parts = 4, .search = true},
    {.parts = ALL, .search = true},
    {.parts = 1, .exact = true, .search = true},
    {.parts = 2, .exact = true, .search = true},
    {.parts = 4, .exact = true, .search = true},
    {.parts = ALL, .exact = true, .search = true},
};

static double end_of(const struct weir__block *block, const struct way *way) {
    return way->exact ? block->end : block->late;
}

/* Where the part ends that begins at `at`: the cut that makes it most like the others. */
static size_t part_end(const struct weir__block *block, const struct way *way, size_t at) {
    assert(at < block->bytes && way->parts > 0);
    size_t want = at + block->bytes / way->parts, best = block->bytes;
    for (uint32_t i = 0; i < block->cut_count; i++) {
        size_t cut = block->cuts[i], away = cut > want ? cut - want : want - cut;
        if (cut > at && away < (best > want ? best - want : want - best)) best = cut;
    }
    assert(at < best && best <= block->bytes);
    return best;
}

static uint32_t fill_items(const struct weir__memory *memory, uint32_t worker,
                           const struct way *way, struct weir__pack_item *items) {
    uint32_t count = 0;
    for (uint32_t i = memory->worker_begin[worker]; i < memory->worker_begin[worker + 1]; i++) {
        const struct weir__block *block = &memory->blocks[memory->by_worker[i]];
        if (block->first == WEIR__NO_BLOCK) continue;
        for (size_t at = 0, end; at < block->bytes; at = end) {
            end = part_end(block, way, at);
            items[count++] = (struct weir__pack_item){end - at, block->start, end_of(block, way),
                                                      block->class_of, 0};
        }
    }
    return count;
}

/* The block keeps its first part; the others become blocks of their own. */
static bool part_block(struct weir__memory *memory, uint32_t number, const struct way *way,
                       const struct weir__pack_item **items) {
    struct weir__block block = memory->blocks[number];
    assert(block.rest == WEIR__NO_BLOCK && block.first != WEIR__NO_BLOCK);
    for (size_t at = 0; at < block.bytes; at = part_end(&block, way, at)) {
        if (at > 0) {
            memory->blocks[number].rest = memory->block_count;
            number = memory->block_count;
            if (!weir__pool_add(memory->pool, &memory->blocks, &memory->block_count,
                                &memory->block_capacity, &block, sizeof block))
                return false;
        }
        memory->blocks[number].bytes = (*items)->bytes;
        memory->blocks[number].offset = (*items)++->offset;
        if (memory->blocks[number].bytes < block.bytes) memory->blocks[number].cut_count = 0;
    }
    return true;
}

/* Puts the blocks where the packer did. */
static bool take_way(struct weir__memory *memory, uint32_t worker, const struct way *way,
                     const struct weir__pack_item *items, size_t lasting) {
    assert(way != NULL && items != NULL);
    for (uint32_t i = memory->worker_begin[worker]; i < memory->worker_begin[worker + 1]; i++) {
        uint32_t number = memory->by_worker[i];
        struct weir__block *block = &memory->blocks[number];
        if (block->first == WEIR__NO_BLOCK) continue;
        block->end = block->late = end_of(block, way);
        if (!part_block(memory, number, way, &items)) return false;
        for (; number != WEIR__NO_BLOCK; number = memory->blocks[number].rest)
            memory->blocks[number].offset += lasting;
    }
    return true;
}

/* What the ways can differ in. */
static void find_freedom(const struct weir__memory *memory, uint32_t worker, struct way *freedom) {
    *freedom = (struct way){.parts = 1, .search = true};
    for (uint32_t i = memory->worker_begin[worker]; i < memory->worker_begin[worker + 1]; i++) {
        const struct weir__block *block = &memory->blocks[memory->by_worker[i]];
        if (block->cut_count > 0) freedom->parts = ALL;
        freedom->exact |= block->late > block->end;
    }
}

static int pack_worker(struct weir__memory *memory, uint32_t worker,
                       struct weir__pack_item *items[2], size_t *bytes, size_t *bound) {
    size_t lasting = place_lasting(memory, worker), best = SIZE_MAX, least = 0;
    struct weir__pack_options options = {.allocator = memory->pool->allocator,
                                         .beside = lasting,
                                         .fit = *bytes > lasting ? *bytes - lasting : 0};
    const struct way *taken = NULL;
    struct way freedom;
    find_freedom(memory, worker, &freedom);
    for (size_t w = 0; w < WEIR__COUNT_OF(ways); w++) {
        const struct way *way = &ways[w];
        size_t packed, live;
        if (taken != NULL && !weir__packing_is_far(&options, best, least)) break;
        if (way->parts > freedom.parts || (way->exact && !freedom.exact)) continue;
        options.search = way->search;
        uint32_t count = fill_items(memory, worker, way, items[0]);
        int status = weir__packing_run(items[0], count, &options, &packed, &live);
        if (status != WEIR_OK) return status;
        if (packed >= best) continue;
        struct weir__pack_item *better = items[0];
        items[0] = items[1], items[1] = better;
        best = packed, least = live, taken = way;
    }
    assert(taken != NULL && best >= least);
    *bytes = lasting + best;
    *bound = lasting + least;
    return take_way(memory, worker, taken, items[1], lasting) ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

static bool take_items(struct weir__memory *memory, uint32_t worker_count,
                       struct weir__pack_item *items[2]) {
    assert(memory->worker_begin != NULL && worker_count > 0);
    uint32_t most = 0;
    for (uint32_t w = 0; w < worker_count; w++) {
        uint32_t count = 0;
        for (uint32_t i = memory->worker_begin[w]; i < memory->worker_begin[w + 1]; i++)
            count += 1 + memory->blocks[memory->by_worker[i]].cut_count;
        if (count > most) most = count;
    }
    for (int i = 0; i < 2; i++)
        if ((items[i] = weir__pool_take(memory->pool, most, sizeof *items[i])) == NULL)
            return false;
    return true;
}

static int find_lifetimes(struct weir__memory *memory, const struct weir_table *table,
                          const double *start, const double *end) {
    if (memory->status != WEIR_OK) return memory->status;
    for (uint32_t b = 0; b < memory->block_count; b++)
        find_lifetime(memory, &memory->blocks[b], table, start, end);
    return list_by_worker(memory, table->worker_count) ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

int weir__memory_pack(struct weir__memory *memory, const struct weir_table *table,
                      const struct weir__deps *deps, const double *start, const double *end,
                      size_t *arena_bytes, size_t *least_bytes) {
    int status = find_lifetimes(memory, table, start, end);
    if (status != WEIR_OK) return status;
    if ((status = hold_foreign(memory, table, deps, start, end)) != WEIR_OK) return status;
    struct weir__pack_item *items[2];
    if (!take_items(memory, table->worker_count, items)) return WEIR_ERR_OUT_OF_MEMORY;
    uint32_t whole = memory->block_count;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        status = pack_worker(memory, w, items, &arena_bytes[w], &least_bytes[w]);
        if (status != WEIR_OK) return status;
    }
    assert(memory->block_count >= whole);
    if (memory->block_count == whole) return WEIR_OK;
    return list_by_worker(memory, table->worker_count) ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

/* ---- peaks ---- */

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
    assert(device->padding <= total);
}

uint32_t weir__memory_moments(const struct weir__memory *memory, uint32_t worker,
                              struct weir__moment *moments) {
    assert(memory->worker_begin != NULL);
    uint32_t count = 0;
    for (uint32_t i = memory->worker_begin[worker]; i < memory->worker_begin[worker + 1]; i++) {
        const struct weir__block *block = &memory->blocks[memory->by_worker[i]];
        bool lasts = block->first == WEIR__NO_BLOCK;
        int64_t bytes = (int64_t)block->bytes;
        assert(lasts || block->start < block->end);
        moments[count++] =
            (struct weir__moment){lasts ? 0.0 : block->start, bytes, block->class_of};
        if (!lasts) moments[count++] = (struct weir__moment){block->end, -bytes, block->class_of};
    }
    assert(count <= 2 * memory->block_count);
    return count;
}

/* The first instant of the most. */
static struct weir__live_point find_peak(const struct weir__memory *memory, uint32_t worker,
                                         struct weir__moment *moments) {
    struct weir__live_point point = {0}, peak = {0};
    uint32_t count = weir__memory_moments(memory, worker, moments);
    weir__live_sort(moments, count);
    for (uint32_t next = 0; weir__live_next(moments, count, &next, &point);)
        if (point.sum > peak.sum) peak = point;
    assert(peak.sum <= memory->all_bytes);
    return peak;
}

int weir__memory_least(struct weir__memory *memory, const struct weir_table *table,
                       const double *start, const double *end, size_t *least_bytes) {
    int status = find_lifetimes(memory, table, start, end);
    if (status != WEIR_OK) return status;
    struct weir__moment *moments =
        weir__pool_take(memory->pool, 2 * (size_t)memory->block_count, sizeof *moments);
    if (moments == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < table->worker_count; w++)
        least_bytes[w] = (size_t)find_peak(memory, w, moments).sum;
    return WEIR_OK;
}

int weir__memory_peaks(const struct weir__memory *memory, uint32_t worker_count,
                       const size_t *totals, struct weir_device_plan *devices) {
    size_t most = 2 * (size_t)memory->block_count;
    struct weir__moment *moments = weir__pool_take(memory->pool, most, sizeof *moments);
    if (moments == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < worker_count; w++) {
        struct weir__live_point peak = find_peak(memory, w, moments);
        fill_device(peak.live, totals[w], &devices[w]);
    }
    return WEIR_OK;
}

/* ---- hand-overs ---- */

struct handover_list {
    struct weir__pool *pool;
    struct weir__handover *items;
    uint32_t count, capacity;
};

static bool add_handover(struct handover_list *list, const struct weir__handover *handover) {
    assert(handover->before != handover->after && handover->leaves != handover->comes);
    return weir__pool_add(list->pool, &list->items, &list->count, &list->capacity, handover,
                          sizeof *handover);
}

/* Which block was the last to hold [at, end); ascending, and without overlap. */
struct held {
    size_t at, end;
    uint32_t block;
};

struct holders {
    struct held *list;
    uint32_t count;
};

/* The first that ends above `at`. */
static uint32_t first_above(const struct holders *holders, size_t at) {
    uint32_t low = 0, high = holders->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (holders->list[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    assert(low == holders->count || holders->list[low].end > at);
    return low;
}

/* list[begin .. end) gives way to `now` and to what is left of the outer two at its sides. */
static void replace(struct holders *holders, uint32_t begin, uint32_t end, const struct held *now) {
    assert(begin <= end && end <= holders->count);
    assert(now->at < now->end);
    struct held parts[3];
    uint32_t count = 0;
    if (begin < end && holders->list[begin].at < now->at) {
        parts[count] = holders->list[begin];
        parts[count++].end = now->at;
    }
    parts[count++] = *now;
    if (begin < end && holders->list[end - 1].end > now->end) {
        parts[count] = holders->list[end - 1];
        parts[count++].at = now->end;
    }
    assert(0 < count && count <= 3);
    memmove(&holders->list[begin + count], &holders->list[end],
            (holders->count - end) * sizeof *holders->list);
    memcpy(&holders->list[begin], parts, count * sizeof *parts);
    holders->count = holders->count - (end - begin) + count;
}

/* A new block takes over from each that was the last to hold some of its bytes. */
static bool take_over(const struct weir__memory *memory, struct handover_list *list,
                      struct holders *holders, uint32_t block) {
    assert(block < memory->block_count && memory->blocks[block].first != WEIR__NO_BLOCK);
    const struct weir__block *now = &memory->blocks[block];
    struct held held = {now->offset, now->offset + now->bytes, block};
    uint32_t begin = first_above(holders, held.at), end = begin;
    for (; end < holders->count && holders->list[end].at < held.end; end++) {
        uint32_t use = memory->blocks[holders->list[end].block].uses;
        for (; use != WEIR__NO_BLOCK; use = memory->uses[use].next) {
            struct weir__handover handover = {memory->uses[use].action, now->first,
                                              holders->list[end].block, block};
            if (!add_handover(list, &handover)) return false;
        }
    }
    replace(holders, begin, end, &held);
    return true;
}

static bool hand_over(const struct weir__memory *memory, uint32_t worker,
                      struct weir__by_start *order, struct holders *holders,
                      struct handover_list *list) {
    assert(memory->worker_begin[worker] <= memory->worker_begin[worker + 1]);
    uint32_t moving = 0;
    for (uint32_t i = memory->worker_begin[worker]; i < memory->worker_begin[worker + 1]; i++) {
        uint32_t number = memory->by_worker[i];
        const struct weir__block *block = &memory->blocks[number];
        if (block->first != WEIR__NO_BLOCK)
            order[moving++] = (struct weir__by_start){block->start, number};
    }
    weir__sort_by_start(order, (size_t)moving);
    holders->count = 0;
    for (uint32_t i = 0; i < moving; i++)
        if (!take_over(memory, list, holders, order[i].number)) return false;
    return true;
}

int weir__memory_handovers(const struct weir__memory *memory, uint32_t worker_count,
                           struct weir__handover **handovers, uint32_t *count) {
    assert(memory->worker_begin != NULL && worker_count > 0);
    /* a block adds two to the holders at most */
    size_t most = 2 * (size_t)memory->block_count + 1;
    struct weir__by_start *order =
        weir__pool_take(memory->pool, memory->block_count, sizeof *order);
    struct holders holders = {weir__pool_take(memory->pool, most, sizeof *holders.list), 0};
    struct handover_list list = {memory->pool, NULL, 0, 0};
    if (order == NULL || holders.list == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < worker_count; w++)
        if (!hand_over(memory, w, order, &holders, &list)) return WEIR_ERR_OUT_OF_MEMORY;
    *handovers = list.items;
    *count = list.count;
    return WEIR_OK;
}

/* SPDX-License-Identifier: MIT */
/* One call's copies at a time: what goes together must come by one lane, for one action. All of
 * these are held from the same moment on, so that one launch delays none that could have been
 * earlier. */
#include "pipe/lanes/ways.h"

#include <assert.h>

/* ---- the model ---- */

/* Beside a matrix product 8 blocks within one memory cost it 0.3%, 16 cost 10%; alone 64 reach 60%
 * of the link, all 92%: eight a processor are what it holds. */
static const struct weir__link_speed speeds[] = {
    [WEIR__LINK_OWN] = {2100.0, 31.0, 1700.0, 2050.0, 8 * WEIR__WAY_PROCESSORS, 8},
    [WEIR__LINK_PEER] = {360.0, 20.0, 2100.0, 2800.0, 19, 8}, /* NVLink 4: 450 GB/s */
    [WEIR__LINK_HOST] = {55.0, 16.0, 2100.0, 2800.0, 4, 4},   /* PCIe 5 x16, pinned */
    [WEIR__LINK_HOP] = {55.0, 16.0, 2100.0, 2800.0, 4, 4},    /* the same, twice */
};

const struct weir__link_speed *weir__link_speed(enum weir__link_kind kind) {
    assert((size_t)kind < WEIR__COUNT_OF(speeds));
    return &speeds[kind];
}

uint32_t weir__way_blocks(enum weir__link_kind kind, uint64_t bytes, bool busy) {
    const struct weir__link_speed *speed = weir__link_speed(kind);
    uint64_t blocks = bytes / WEIR__WAY_BLOCK_BYTES + (bytes % WEIR__WAY_BLOCK_BYTES != 0);
    uint32_t most = busy ? speed->blocks_beside : speed->blocks_alone;
    if (blocks == 0) return 1;
    return blocks < most ? (uint32_t)blocks : most;
}

static double crossings(enum weir__link_kind kind) {
    return kind == WEIR__LINK_HOP ? 2.0 : 1.0;
}

double weir__way_engine_ns(enum weir__link_kind kind, uint64_t bytes) {
    const struct weir__link_speed *speed = weir__link_speed(kind);
    return crossings(kind) * (speed->engine_start_ns + (double)bytes / speed->bytes_per_ns);
}

double weir__way_kernel_ns(enum weir__link_kind kind, uint64_t bytes, uint32_t blocks, bool busy) {
    const struct weir__link_speed *speed = weir__link_speed(kind);
    uint32_t held = blocks < WEIR__WAY_PROCESSORS ? blocks : WEIR__WAY_PROCESSORS;
    double rate = held * speed->block_bytes_per_ns;
    if (rate > speed->bytes_per_ns) rate = speed->bytes_per_ns;
    double ns = speed->kernel_start_ns + (double)bytes / rate;
    if (busy) ns = WEIR__WAY_ROOM_NS + ns * (1.0 + (double)held / WEIR__WAY_PROCESSORS);
    return crossings(kind) * ns;
}

/* ---- what runs beside ---- */

struct choosing {
    struct weir__row_plan *prepared;
    const struct weir__setup *setup;
    enum weir_copy_by by;
};

/* The first action of the line that has not ended by then. */
static uint32_t first_after(const struct weir__row_plan *p, uint32_t worker, double moment) {
    uint32_t low = p->table->lines[worker], high = p->table->lines[worker + 1];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (p->end[middle] > moment)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Whether a worker computes between the two moments, or from the first on; but for `action`, which
 * waits for the copy. */
static bool computes(const struct weir__row_plan *p, uint32_t worker, uint32_t action, double from,
                     double until) {
    uint32_t found = first_after(p, worker, from);
    if (found == p->table->lines[worker + 1] || found == action) return false;
    return p->start[found] < until || p->start[found] <= from;
}

/* The reader's device copies, unless it does all its work at once. */
static uint32_t copier(const struct choosing *c, const struct weir__lane *lane) {
    return weir__setup_device(c->setup, lane->worker).synchronous ? lane->from : lane->worker;
}

static bool is_busy(const struct choosing *c, const struct weir__prepared_copy *copy) {
    const struct weir__row_plan *p = c->prepared;
    uint32_t worker = copier(c, &p->lanes[copy->lane]);
    uint32_t memory = weir__setup_device(c->setup, worker).memory;
    bool busy = false;
    for (uint32_t w = 0; !busy && w < p->table->worker_count; w++)
        busy = weir__setup_device(c->setup, w).memory == memory &&
               computes(p, w, copy->action, copy->start, p->start[copy->action]);
    return busy;
}

static enum weir__link_kind kind_of(const struct choosing *c, const struct weir__lane *lane) {
    uint32_t to = weir__setup_device(c->setup, lane->worker).memory, from = 0;
    if (lane->from != WEIR__FROM_CALLER) from = weir__setup_device(c->setup, lane->from).memory;
    if (to == 0 || from == 0) return WEIR__LINK_HOST;
    if (lane->hops) return WEIR__LINK_HOP;
    return to == from ? WEIR__LINK_OWN : WEIR__LINK_PEER;
}

/* ---- choosing ---- */

static void choose_alone(const struct choosing *c, uint32_t number, bool busy) {
    struct weir__prepared_copy *copy = &c->prepared->copies[number];
    enum weir__link_kind kind = kind_of(c, &c->prepared->lanes[copy->lane]);
    uint32_t blocks = weir__way_blocks(kind, copy->bytes, busy);
    copy->blocks_max = blocks;
    copy->by_kernel = c->by == WEIR_COPY_BY_KERNEL || c->by == WEIR_COPY_BY_BATCH;
    if (c->by == WEIR_COPY_BY_CHOICE)
        copy->by_kernel = !busy && weir__way_kernel_ns(kind, copy->bytes, blocks, busy) <
                                       weir__way_engine_ns(kind, copy->bytes);
}

/* What several would cost one by one, and together. */
struct comparison {
    double apart;
    uint64_t bytes;
    uint32_t tiles, count;
};

static void consider(const struct choosing *c, const struct weir__prepared_copy *copy, bool busy,
                     struct comparison *costs) {
    enum weir__link_kind kind = kind_of(c, &c->prepared->lanes[copy->lane]);
    uint32_t tiles = (uint32_t)(copy->bytes / WEIR__WAY_TILE_BYTES) + 1;
    costs->apart += copy->by_kernel ? weir__way_kernel_ns(kind, copy->bytes, copy->blocks_max, busy)
                                    : weir__way_engine_ns(kind, copy->bytes);
    costs->bytes += copy->bytes;
    costs->tiles += tiles;
    costs->count++;
}

static bool may_join(const struct choosing *c, const struct weir__prepared_copy *first,
                     const struct weir__prepared_copy *copy) {
    bool small = copy->bytes <= WEIR__WAY_BATCHED_MAX || c->by == WEIR_COPY_BY_BATCH;
    return copy->lane == first->lane && copy->unit == WEIR__NO_COPY && small;
}

/* Whether those of [first, end) that may join are better done together; never by choice beside
 * other work, which may hold the processors for longer than the model says (ways.h). */
static bool pays(const struct choosing *c, uint32_t first, uint32_t end, bool busy) {
    const struct weir__prepared_copy *copies = c->prepared->copies;
    struct comparison costs = {0};
    for (uint32_t i = first; i < end && costs.count < WEIR__UNIT_COPIES; i++)
        if (may_join(c, &copies[first], &copies[i])) consider(c, &copies[i], busy, &costs);
    if (costs.count < 2 || (busy && c->by == WEIR_COPY_BY_CHOICE)) return false;
    enum weir__link_kind kind = kind_of(c, &c->prepared->lanes[copies[first].lane]);
    double together = weir__way_kernel_ns(kind, costs.bytes, costs.tiles, busy);
    return c->by == WEIR_COPY_BY_BATCH || together + WEIR__WAY_BATCH_START_NS < costs.apart;
}

static void join(const struct choosing *c, uint32_t first, uint32_t end) {
    struct weir__prepared_copy *copies = c->prepared->copies;
    uint32_t count = 1, last = first;
    copies[first].unit = first;
    copies[first].by_kernel = true;
    for (uint32_t i = first + 1; i < end && count < WEIR__UNIT_COPIES; i++) {
        if (!may_join(c, &copies[first], &copies[i])) continue;
        copies[i].unit = first;
        copies[i].by_kernel = true;
        copies[last].next = i;
        last = i, count++;
    }
}

static void choose_call(const struct choosing *c, const struct weir__call *call) {
    struct weir__prepared_copy *copies = c->prepared->copies;
    bool together = c->by == WEIR_COPY_BY_CHOICE || c->by == WEIR_COPY_BY_BATCH;
    for (uint32_t i = call->copy_begin; i < call->copy_end; i++) {
        copies[i].unit = i;
        copies[i].next = WEIR__NO_COPY;
        if (!weir__has_stream(c->prepared, &copies[i])) continue;
        choose_alone(c, i, is_busy(c, &copies[i]));
        if (together) copies[i].unit = WEIR__NO_COPY;
    }
    for (uint32_t i = call->copy_begin; together && i < call->copy_end; i++) {
        if (!weir__has_stream(c->prepared, &copies[i]) || copies[i].unit != WEIR__NO_COPY) continue;
        bool joins = may_join(c, &copies[i], &copies[i]) &&
                     pays(c, i, call->copy_end, is_busy(c, &copies[i]));
        if (joins)
            join(c, i, call->copy_end);
        else
            copies[i].unit = i;
    }
}

void weir__ways_choose(struct weir__row_plan *prepared, const struct weir__setup *setup) {
    const struct choosing c = {prepared, setup, setup->options.copy_by};
    for (uint32_t a = 0; prepared->lane_count > 0 && a < prepared->table->action_count; a++)
        choose_call(&c, &prepared->calls[a]);
}

struct weir_plan_copies weir__ways_count(const struct weir__row_plan *prepared, uint32_t worker) {
    struct weir_plan_copies count = {0};
    for (uint32_t i = 0; i < prepared->copy_count; i++) {
        const struct weir__prepared_copy *copy = &prepared->copies[i];
        if (!weir__has_stream(prepared, copy) || prepared->lanes[copy->lane].worker != worker)
            continue;
        bool alone = copy->unit == i && copy->next == WEIR__NO_COPY;
        count.by_engine += !copy->by_kernel;
        count.by_kernel += copy->by_kernel && alone;
        count.batched += !alone;
        count.launches += !alone && copy->unit == i;
    }
    return count;
}

size_t weir__unit_bytes(const struct weir__row_plan *prepared, uint32_t first) {
    size_t bytes = 0;
    for (uint32_t i = first; i != WEIR__NO_COPY; i = prepared->copies[i].next) {
        size_t rounded;
        if (!weir__round_up(prepared->copies[i].bytes, WEIR__ALIGNMENT, &rounded) ||
            !weir__add(bytes, rounded, &bytes))
            return SIZE_MAX;
    }
    return bytes;
}

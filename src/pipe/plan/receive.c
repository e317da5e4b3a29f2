/* SPDX-License-Identifier: MIT */
/* Receive slots. What arrives at a worker from another one is there from the start of the first
 * action that reads it (which makes the copy, where memories differ) to the end of the last. Slots
 * are handed on: an interval graph needs no more colours than live at once, so one pool per worker
 * for borders, gradients and portals alike comes down to that number. */
#include "pipe/plan/plan.h"

#include <stdlib.h>

struct arrival {
    double start, end;
};

struct arrivals {
    struct weir__row_plan *prepared;
    struct weir__pool scratch;
    uint32_t *copy_of;   /* [block]: a copy that is made of it, or WEIR__NO_COPY … */
    uint32_t *copy_next; /* … [copy]: the next one of the same block */
    struct arrival **of; /* [worker] */
    uint32_t *count, *capacity;
};

static bool add(struct arrivals *all, uint32_t worker, const struct arrival *arrival) {
    assert(worker < all->prepared->table->worker_count);
    assert(arrival->start < arrival->end);
    return weir__pool_add(&all->scratch, &all->of[worker], &all->count[worker],
                          &all->capacity[worker], arrival, sizeof *arrival);
}

static uint32_t worker_of(const struct arrivals *all, uint32_t use) {
    assert(use < all->prepared->memory.use_count);
    const struct weir__memory *memory = &all->prepared->memory;
    return weir__table_worker_of(all->prepared->table, memory->uses[use].action);
}

/* All uses of the block by the worker. */
static struct arrival span(const struct arrivals *all, const struct weir__block *block,
                           uint32_t worker) {
    const struct weir__row_plan *p = all->prepared;
    const struct weir__block_use *uses = p->memory.uses;
    struct arrival span = {0.0, -1.0};
    for (uint32_t u = block->uses; u != WEIR__NO_BLOCK; u = uses[u].next) {
        if (worker_of(all, u) != worker) continue;
        double start = p->start[uses[u].action], end = p->end[uses[u].action];
        if (span.end < 0.0 || start < span.start) span.start = start;
        if (end > span.end) span.end = end;
    }
    return span;
}

static bool comes_first(const struct arrivals *all, const struct weir__block *block, uint32_t use) {
    const struct weir__block_use *uses = all->prepared->memory.uses;
    for (uint32_t u = block->uses; u != use; u = uses[u].next)
        if (worker_of(all, u) == worker_of(all, use)) return false;
    return true;
}

/* What the worker's use of the block is then, for the copy reads it and not the action. */
static bool is_copied(const struct arrivals *all, uint32_t block, uint32_t worker) {
    const struct weir__row_plan *p = all->prepared;
    for (uint32_t i = all->copy_of[block]; i != WEIR__NO_COPY; i = all->copy_next[i])
        if (p->memory.blocks[p->copies[i].to_block].worker == worker) return true;
    return false;
}

/* Each other worker that reads the block where it lies. */
static bool list_readers(struct arrivals *all, uint32_t number) {
    assert(number < all->prepared->memory.block_count);
    const struct weir__block *block = &all->prepared->memory.blocks[number];
    const struct weir__block_use *uses = all->prepared->memory.uses;
    for (uint32_t u = block->uses; u != WEIR__NO_BLOCK; u = uses[u].next) {
        uint32_t worker = worker_of(all, u);
        if (worker == block->worker || !comes_first(all, block, u)) continue;
        if (is_copied(all, number, worker)) continue;
        struct arrival arrival = span(all, block, worker);
        if (!add(all, worker, &arrival)) return false;
    }
    return true;
}

static bool group_copies(struct arrivals *all) {
    const struct weir__row_plan *p = all->prepared;
    uint32_t blocks = p->memory.block_count;
    all->copy_of = weir__pool_take(&all->scratch, blocks, sizeof *all->copy_of);
    all->copy_next = weir__pool_take(&all->scratch, p->copy_count, sizeof *all->copy_next);
    if (all->copy_of == NULL || all->copy_next == NULL) return false;
    for (uint32_t b = 0; b < blocks; b++) all->copy_of[b] = WEIR__NO_COPY;
    for (uint32_t i = 0; i < p->copy_count; i++) {
        uint32_t from = p->copies[i].from_block;
        if (from == WEIR__NO_BLOCK) continue; /* from the caller */
        assert(from < blocks);
        all->copy_next[i] = all->copy_of[from];
        all->copy_of[from] = i;
    }
    return true;
}

/* A pipe may have both: workers that share a device's memory beside others that do not. */
static bool list_arrivals(struct arrivals *all) {
    const struct weir__row_plan *p = all->prepared;
    if (!group_copies(all)) return false;
    for (uint32_t i = 0; i < p->copy_count; i++) {
        if (p->copies[i].from_block == WEIR__NO_BLOCK) continue; /* from the caller */
        const struct weir__block *block = &p->memory.blocks[p->copies[i].to_block];
        struct arrival arrival = span(all, block, block->worker);
        if (!add(all, block->worker, &arrival)) return false;
    }
    for (uint32_t b = 0; b < p->memory.block_count; b++)
        if (!list_readers(all, b)) return false;
    return true;
}

static int by_start(const void *a, const void *b) {
    const struct arrival *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

struct ending {
    double end;
    uint32_t arrival; /* in the order of their starts */
};

static int by_end(const void *a, const void *b) {
    const struct ending *x = a, *y = b;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return (x->arrival > y->arrival) - (x->arrival < y->arrival);
}

/* An arrival takes a slot that has been left, or a new one. */
static bool fill_slots(struct arrivals *all, uint32_t worker, struct weir_plan_receive *receive) {
    uint32_t count = all->count[worker], free_count = 0;
    struct arrival *list = all->of[worker];
    struct ending *endings = weir__pool_take(&all->scratch, count, sizeof *endings);
    uint32_t *slot_of = weir__pool_take(&all->scratch, count, sizeof *slot_of);
    uint32_t *free_slots = weir__pool_take(&all->scratch, count, sizeof *free_slots);
    if (endings == NULL || slot_of == NULL || free_slots == NULL) return false;
    if (count > 1) qsort(list, count, sizeof *list, by_start);
    for (uint32_t i = 0; i < count; i++) endings[i] = (struct ending){list[i].end, i};
    if (count > 1) qsort(endings, count, sizeof *endings, by_end);
    receive->each = count;
    for (uint32_t i = 0, over = 0; i < count; i++) {
        for (; endings[over].end <= list[i].start; over++)
            free_slots[free_count++] = slot_of[endings[over].arrival];
        slot_of[i] = free_count > 0 ? free_slots[--free_count] : receive->slots++;
        assert(over <= i && slot_of[i] < receive->slots);
        if (i + 1 - over > receive->most) receive->most = i + 1 - over;
    }
    assert(receive->slots == receive->most);
    return true;
}

int weir__plan_receives(struct weir__row_plan *prepared, struct weir_plan_receive *receives) {
    struct arrivals all = {.prepared = prepared};
    uint32_t workers = prepared->table->worker_count;
    weir__pool_init(&all.scratch, prepared->pool.allocator);
    all.of = weir__pool_take(&all.scratch, workers, sizeof *all.of);
    all.count = weir__pool_take(&all.scratch, workers, sizeof *all.count);
    all.capacity = weir__pool_take(&all.scratch, workers, sizeof *all.capacity);
    bool done = all.of != NULL && all.count != NULL && all.capacity != NULL && list_arrivals(&all);
    for (uint32_t w = 0; done && w < workers; w++) done = fill_slots(&all, w, &receives[w]);
    weir__pool_clean_up(&all.scratch);
    return done ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

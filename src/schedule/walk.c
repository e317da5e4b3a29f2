/* SPDX-License-Identifier: MIT */
/*
 * A worker whose next action lacks a predecessor is parked on that very predecessor and looked at
 * again when it is done, from the edge where it stopped: so each edge is looked at once or twice.
 */
#include "schedule/walk.h"

#define NOBODY UINT32_MAX

int weir__walk_init(struct weir__walk *walk, const struct weir_table *table,
                    const struct weir__deps *deps, const struct weir_allocator *allocator) {
    assert(deps->action_count == table->action_count);
    uint32_t workers = table->worker_count;
    *walk = (struct weir__walk){.table = table, .deps = deps, .allocator = allocator};
    walk->cursor = weir__acquire(allocator, workers, sizeof *walk->cursor);
    walk->edge = weir__acquire(allocator, workers, sizeof *walk->edge);
    walk->waits_for = weir__acquire(allocator, workers, sizeof *walk->waits_for);
    walk->next_waiter = weir__acquire(allocator, workers, sizeof *walk->next_waiter);
    walk->ready = weir__acquire(allocator, workers, sizeof *walk->ready);
    walk->waiters = weir__acquire(allocator, table->action_count, sizeof *walk->waiters);
    walk->done = weir__acquire(allocator, table->action_count, sizeof *walk->done);
    if (walk->cursor == NULL || walk->edge == NULL || walk->waits_for == NULL ||
        walk->next_waiter == NULL || walk->ready == NULL || walk->waiters == NULL ||
        walk->done == NULL) {
        weir__walk_clean_up(walk);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    for (uint32_t a = 0; a < table->action_count; a++) walk->waiters[a] = NOBODY;
    for (uint32_t w = workers; w-- > 0;) {
        walk->cursor[w] = table->lines[w];
        walk->edge[w] = walk->cursor[w] < table->action_count ? deps->begin[walk->cursor[w]] : 0;
        walk->ready[walk->ready_count++] = w;
    }
    return WEIR_OK;
}

void weir__walk_clean_up(struct weir__walk *walk) {
    if (walk->table == NULL) return;
    const struct weir_allocator *allocator = walk->allocator;
    uint32_t workers = walk->table->worker_count, actions = walk->table->action_count;
    weir__release(allocator, walk->done, actions, sizeof *walk->done);
    weir__release(allocator, walk->waiters, actions, sizeof *walk->waiters);
    weir__release(allocator, walk->ready, workers, sizeof *walk->ready);
    weir__release(allocator, walk->next_waiter, workers, sizeof *walk->next_waiter);
    weir__release(allocator, walk->waits_for, workers, sizeof *walk->waits_for);
    weir__release(allocator, walk->edge, workers, sizeof *walk->edge);
    weir__release(allocator, walk->cursor, workers, sizeof *walk->cursor);
    *walk = (struct weir__walk){0};
}

/* True if the worker's next action may run; else the worker is parked on what it lacks. */
static bool runnable(struct weir__walk *walk, uint32_t worker) {
    assert(walk->cursor[worker] < walk->table->lines[worker + 1]);
    uint32_t end = walk->deps->begin[walk->cursor[worker] + 1];
    for (; walk->edge[worker] < end; walk->edge[worker]++) {
        uint32_t from = walk->deps->edges[walk->edge[worker]].from;
        assert(from < walk->table->action_count);
        if (!walk->done[from]) {
            walk->waits_for[worker] = from;
            walk->next_waiter[worker] = walk->waiters[from];
            walk->waiters[from] = worker;
            return false;
        }
    }
    return true;
}

static void finish(struct weir__walk *walk, uint32_t worker, uint32_t action) {
    assert(!walk->done[action] && walk->cursor[worker] == action);
    walk->done[action] = true;
    walk->done_count++;
    walk->cursor[worker]++; /* its edges follow those of the action before */
    walk->ready[walk->ready_count++] = worker;
    uint32_t waiter = walk->waiters[action];
    while (waiter != NOBODY) {
        assert(walk->ready_count < walk->table->worker_count);
        walk->ready[walk->ready_count++] = waiter;
        waiter = walk->next_waiter[waiter];
    }
    walk->waiters[action] = NOBODY;
}

bool weir__walk_next(struct weir__walk *walk, uint32_t *action) {
    while (walk->ready_count > 0) {
        uint32_t worker = walk->ready[--walk->ready_count];
        assert(worker < walk->table->worker_count);
        uint32_t next = walk->cursor[worker];
        if (next < walk->table->lines[worker + 1] && runnable(walk, worker)) {
            finish(walk, worker, next);
            *action = next;
            return true;
        }
    }
    return false;
}

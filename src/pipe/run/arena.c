/* SPDX-License-Identifier: MIT */
/* The workers' memory. What lasts is apart from what a step works in, because the second holds
 * nothing between steps: a row count that needs more of it gets another, and no pointer to anything
 * that lasts moves. */
#include "pipe/run/ranks.h"

#include <stdlib.h>

/* ---- one region ---- */

/* The device that copies from and to this worker's memory although it is the host's, or NULL. */
static struct weir__device *pinner(const struct weir__worker *worker) {
    const struct weir_pipe *pipe = worker->pipe;
    if (worker->device->memory != 0) return NULL;
    for (uint32_t w = 0; w < pipe->worker_count; w++)
        if (pipe->workers[w].device != NULL && pipe->workers[w].device->memory != 0)
            return pipe->workers[w].device;
    return NULL;
}

static int acquire(struct weir__worker *worker, size_t bytes, void **memory) {
    *memory = NULL;
    if (bytes == 0) return WEIR_OK;
    return worker->device->calls->memory_acquire(worker->device, bytes, memory);
}

static void release(struct weir__worker *worker, void *memory, size_t bytes, bool pinned) {
    struct weir__device *by = pinned ? pinner(worker) : NULL;
    if (memory == NULL) return;
    assert(bytes > 0 && (!pinned || by != NULL));
    if (by != NULL) weir__host_unpin(by, memory, bytes);
    worker->device->calls->memory_release(worker->device, memory, bytes);
}

/* What a step works in need not be zero. For tests of that a GPU's is left as it comes where the
 * environment has WEIR_RAW_MEMORY: what is read before it was written is NaN on the fake driver,
 * and seen by initcheck on a real one. */
static bool is_left_raw(const struct weir__worker *worker) {
    return !worker->device->calls->synchronous && getenv("WEIR_RAW_MEMORY") != NULL;
}

static int touch(struct weir__worker *worker, void *memory, size_t bytes) {
    int32_t node = worker->pipe->placements[worker->index].memory_node;
    if (memory == NULL) return WEIR_OK;
    return worker->device->calls->memory_touch(worker->device, memory, bytes, node);
}

/* Touched first: pinning faults in what is not there, wherever its thread runs. */
static int settle(struct weir__worker *worker, void *memory, size_t bytes, bool *pinned,
                  struct weir_error *error) {
    assert(!*pinned && (memory != NULL || bytes == 0));
    struct weir__device *by = pinner(worker);
    int status = touch(worker, memory, bytes);
    if (status != WEIR_OK || memory == NULL || by == NULL) return status;
    status = weir__host_pin(by, memory, bytes);
    *pinned = status == WEIR_OK;
    if (status == WEIR_OK) return WEIR_OK;
    return weir__fail(error, status,
                      "worker %u: %zu bytes of its arena cannot be pinned for %s (%s): use fewer "
                      "rows, more checkpointing or more stages",
                      worker->index, bytes, by->name, weir_status_text(status));
}

/* ---- an arena's life ---- */

int weir__arena_init(struct weir__worker *worker, size_t lasting_bytes, size_t bytes) {
    assert(lasting_bytes <= bytes);
    struct weir__arena *arena = &worker->pipe->memory.arenas[worker->index];
    *arena = (struct weir__arena){.lasting_bytes = lasting_bytes,
                                  .working_bytes = bytes - lasting_bytes};
    int status = acquire(worker, arena->lasting_bytes, &arena->lasting);
    if (status != WEIR_OK) return status;
    return acquire(worker, arena->working_bytes, &arena->working);
}

void weir__arena_clean_up(struct weir__worker *worker) {
    struct weir__arena *arena = &worker->pipe->memory.arenas[worker->index];
    release(worker, arena->working, arena->working_bytes, arena->working_pinned);
    release(worker, arena->lasting, arena->lasting_bytes, arena->lasting_pinned);
    *arena = (struct weir__arena){0};
}

int weir__arena_settle(struct weir__worker *worker, struct weir_error *error) {
    struct weir__arena *arena = &worker->pipe->memory.arenas[worker->index];
    assert(!arena->touched);
    arena->touched = false;
    int status =
        settle(worker, arena->lasting, arena->lasting_bytes, &arena->lasting_pinned, error);
    if (status != WEIR_OK) return status;
    if (!is_left_raw(worker))
        status =
            settle(worker, arena->working, arena->working_bytes, &arena->working_pinned, error);
    arena->touched = status == WEIR_OK;
    return status;
}

int weir__arena_settle_grown(struct weir__worker *worker, struct weir_error *error) {
    struct weir__arena *grown = &worker->pipe->memory.grown[worker->index];
    if (pinner(worker) == NULL) return WEIR_OK;
    int status =
        settle(worker, grown->working, grown->working_bytes, &grown->working_pinned, error);
    grown->touched = status == WEIR_OK;
    return status;
}

int weir__arena_touch(struct weir__worker *worker) {
    struct weir__arena *arena = &worker->pipe->memory.arenas[worker->index];
    if (arena->touched || is_left_raw(worker)) return WEIR_OK;
    int status = touch(worker, arena->working, arena->working_bytes);
    arena->touched = status == WEIR_OK;
    return status;
}

/* ---- growing ---- */

/* In the pipe's `grown`: what replaces the working part where that is too small. */
static int reserve_one(struct weir__worker *worker, size_t need, int64_t rows,
                       struct weir_faults *faults) {
    struct weir_pipe *pipe = worker->pipe;
    const struct weir__arena *arena = &pipe->memory.arenas[worker->index];
    struct weir__arena *grown = &pipe->memory.grown[worker->index];
    assert(grown->working == NULL);
    uint64_t limit = pipe->setup.options.memory_limit;
    size_t has = pipe->memory.arena_bytes[worker->index];
    *grown = (struct weir__arena){0};
    if (need <= has) return WEIR_OK;
    if (limit > 0 && need > limit) {
        weir_faults_add(faults,
                        "%lld row%s %zu bytes on worker %u, %llu more than the limit of %llu: "
                        "raise the limit to %zu or use rows that make other micro-batches",
                        (long long)rows, rows == 1 ? " needs" : "s need", need, worker->index,
                        (unsigned long long)(need - limit), (unsigned long long)limit, need);
        return WEIR_ERR_MEMORY_LIMIT;
    }
    if (!weir__is_here(pipe, worker->index)) { /* its rank acquires it; further plans fit in */
        pipe->memory.arena_bytes[worker->index] = need;
        return WEIR_OK;
    }
    grown->working_bytes = need - arena->lasting_bytes;
    int status = acquire(worker, grown->working_bytes, &grown->working);
    if (status != WEIR_OK)
        weir_faults_add(faults, "%lld row%s %zu bytes on worker %u, which cannot be had",
                        (long long)rows, rows == 1 ? " needs" : "s need", need, worker->index);
    return status;
}

int weir__arenas_reserve(struct weir_pipe *pipe, struct weir__row_plan *const *list, uint32_t count,
                         struct weir_faults *faults) {
    int worst = WEIR_OK;
    assert(count > 0);
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        size_t need = 0;
        for (uint32_t i = 0; i < count; i++)
            if (list[i]->arena_bytes[w] > need) need = list[i]->arena_bytes[w];
        int status = reserve_one(&pipe->workers[w], need, list[0]->rows, faults);
        if (status != WEIR_OK) worst = status;
    }
    if (worst != WEIR_OK) weir__arenas_drop(pipe);
    return worst;
}

void weir__arenas_drop(struct weir_pipe *pipe) {
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        const struct weir__arena *grown = &pipe->memory.grown[w];
        release(&pipe->workers[w], grown->working, grown->working_bytes, grown->working_pinned);
        pipe->memory.grown[w] = (struct weir__arena){0};
    }
}

bool weir__arenas_grow(struct weir_pipe *pipe) {
    bool any = false;
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        struct weir__arena *arena = &pipe->memory.arenas[w], *grown = &pipe->memory.grown[w];
        if (grown->working == NULL) continue;
        assert(grown->working_bytes > arena->working_bytes);
        assert(!arena->working_pinned || grown->working_pinned);
        release(&pipe->workers[w], arena->working, arena->working_bytes, arena->working_pinned);
        arena->working = grown->working;
        arena->working_pinned = grown->working_pinned;
        arena->working_bytes = grown->working_bytes;
        arena->touched = grown->touched;
        pipe->memory.arena_bytes[w] = weir__arena_bytes(arena);
        *grown = (struct weir__arena){0};
        any = true;
    }
    return any;
}

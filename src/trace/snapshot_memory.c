/* SPDX-License-Identifier: MIT */
/* Memory over time: the plan's blocks, from the moment when the first of the actions that use one
 * started to the moment when the last of them ended. The plan orders actions so that blocks on the
 * same bytes never overlap in time either; so the sum stays within the arena. */
#include "trace/snapshot.h"

#include <stdlib.h>

struct moment {
    uint64_t ns;
    int64_t bytes; /* + at the start, - at the end */
    uint8_t class_of;
};

/* What ends at an instant is gone before what starts then. */
static int by_time(const void *a, const void *b) {
    const struct moment *x = a, *y = b;
    if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* False where the step did not touch the block, or for no time. */
static bool lifetime(const struct weir__snapshot *s, const struct weir__block *block,
                     uint64_t *start, uint64_t *end) {
    const struct weir__memory *memory = &s->of.prepared->memory;
    bool any = false;
    for (uint32_t u = block->uses; u != WEIR__NO_BLOCK; u = memory->uses[u].next) {
        const struct weir_trace_event *event = weir__snapshot_event(s, memory->uses[u].action);
        if (event == NULL) continue;
        if (!any || event->start < *start) *start = event->start;
        if (!any || event->end > *end) *end = event->end;
        any = true;
    }
    return any && *end > *start;
}

static uint32_t fill_moments(const struct weir__snapshot *s, uint32_t worker,
                             struct moment *moments, uint64_t *lasting) {
    const struct weir__memory *memory = &s->of.prepared->memory;
    uint32_t count = 0;
    *lasting = 0;
    for (uint32_t b = 0; b < memory->block_count; b++) {
        const struct weir__block *block = &memory->blocks[b];
        uint64_t start = 0, end = 0;
        if (block->worker != worker) continue;
        if (block->uses == WEIR__NO_BLOCK) {
            *lasting += block->bytes;
        } else if (lifetime(s, block, &start, &end)) {
            int64_t bytes = (int64_t)block->bytes;
            moments[count++] = (struct moment){start - s->origin, bytes, block->class_of};
            moments[count++] = (struct moment){end - s->origin, -bytes, block->class_of};
        }
    }
    qsort(moments, count, sizeof *moments, by_time);
    return count;
}

static struct weir_snapshot_memory point_at(uint64_t ns, const uint64_t *live) {
    return (struct weir_snapshot_memory){ns, live[WEIR__BLOCK_ACTIVATIONS],
                                         live[WEIR__BLOCK_BORDERS], live[WEIR__BLOCK_PORTALS],
                                         live[WEIR__BLOCK_WORKSPACE]};
}

/* One point where several moments are one instant. */
static void fill_points(const struct moment *moments, uint32_t count,
                        struct weir_snapshot_memory *points, struct weir_snapshot_worker *into) {
    uint64_t live[WEIR__BLOCK_CLASS_COUNT] = {0}, sum = 0;
    points[0] = point_at(0, live);
    into->memory_count = 1;
    into->peak = into->lasting;
    for (uint32_t i = 0; i < count; i++) {
        live[moments[i].class_of] += (uint64_t)moments[i].bytes;
        sum += (uint64_t)moments[i].bytes;
        bool same = points[into->memory_count - 1].ns == moments[i].ns;
        points[same ? into->memory_count - 1 : into->memory_count++] =
            point_at(moments[i].ns, live);
        if (into->lasting + sum <= into->peak) continue;
        into->peak = into->lasting + sum;
        into->peak_ns = moments[i].ns;
    }
    into->memory = points;
}

int weir__snapshot_memory(struct weir__snapshot *s, uint32_t worker,
                          struct weir_snapshot_worker *into) {
    const struct weir_allocator *allocator = s->pool.allocator;
    size_t most = 2 * (size_t)s->of.prepared->memory.block_count;
    struct moment *moments = weir__acquire(allocator, most, sizeof *moments);
    if (moments == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    uint32_t count = fill_moments(s, worker, moments, &into->lasting);
    struct weir_snapshot_memory *points =
        weir__pool_take(&s->pool, (size_t)count + 1, sizeof *points);
    if (points != NULL) fill_points(moments, count, points, into);
    weir__release(allocator, moments, most, sizeof *moments);
    return points != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

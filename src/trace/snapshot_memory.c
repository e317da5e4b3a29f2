/* SPDX-License-Identifier: MIT */
/* Memory over time: the plan's blocks, from the moment when the first of the actions that use one
 * started to the moment when the last of them ended. The plan orders actions so that blocks on the
 * same bytes never overlap in time either; so the sum stays within the arena. */
#include "trace/snapshot.h"

/* False where the step did not touch the block, or for no time. */
static bool lifetime(const struct weir__snapshot_state *s, const struct weir__block *block,
                     uint64_t *start, uint64_t *end) {
    const struct weir__memory *memory = &s->of.plan->memory;
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

static uint32_t fill_moments(const struct weir__snapshot_state *s, uint32_t worker,
                             struct weir__moment *moments, uint64_t *lasting) {
    const struct weir__memory *memory = &s->of.plan->memory;
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
            moments[count++] =
                (struct weir__moment){(double)(start - s->origin), bytes, block->class_of};
            moments[count++] =
                (struct weir__moment){(double)(end - s->origin), -bytes, block->class_of};
        }
    }
    assert(count <= 2 * memory->block_count);
    weir__live_sort(moments, count);
    return count;
}

static struct weir_snapshot_memory point_of(const struct weir__live_point *point) {
    return (struct weir_snapshot_memory){
        (uint64_t)point->time, point->live[WEIR__BLOCK_ACTIVATIONS],
        point->live[WEIR__BLOCK_BORDERS], point->live[WEIR__BLOCK_PORTALS],
        point->live[WEIR__BLOCK_WORKSPACE]};
}

static void fill_points(const struct weir__moment *moments, uint32_t count,
                        struct weir_snapshot_memory *points, struct weir_snapshot_worker *into) {
    struct weir__live_point point = {0};
    points[0] = point_of(&point);
    into->memory_count = 1;
    into->peak = into->lasting;
    for (uint32_t next = 0; weir__live_next(moments, count, &next, &point);) {
        bool same = points[into->memory_count - 1].ns == (uint64_t)point.time;
        points[same ? into->memory_count - 1 : into->memory_count++] = point_of(&point);
        if (into->lasting + point.sum <= into->peak) continue;
        into->peak = into->lasting + point.sum;
        into->peak_ns = (uint64_t)point.time;
    }
    assert(into->memory_count <= count + 1);
    into->memory = points;
}

int weir__snapshot_fill_memory(struct weir__snapshot_state *s, uint32_t worker,
                               struct weir_snapshot_worker *into) {
    const struct weir_allocator *allocator = s->pool.allocator;
    size_t most = 2 * (size_t)s->of.plan->memory.block_count;
    struct weir__moment *moments = weir__acquire(allocator, most, sizeof *moments);
    if (moments == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    uint32_t count = fill_moments(s, worker, moments, &into->lasting);
    struct weir_snapshot_memory *points =
        weir__pool_take(&s->pool, (size_t)count + 1, sizeof *points);
    if (points != NULL) fill_points(moments, count, points, into);
    weir__release(allocator, moments, most, sizeof *moments);
    return points != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

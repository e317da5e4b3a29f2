/* SPDX-License-Identifier: MIT */
/*
 * Action tables as storage: the builder that schedules and the CSV reader append to, and the
 * look-ups that everybody needs. A table remembers how it was allocated in a struct around it, so
 * that the public one stays plain data.
 */
#include "schedule/action.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/** What weir_table_destroy needs; the table is its first member. */
struct owned_table {
    struct weir_table table;
    const struct weir_allocator *allocator;
    uint32_t *lines;
    struct weir_action *actions;
    uint32_t capacity;
};

void weir__table_begin(struct weir__table_builder *builder, const struct weir_allocator *allocator,
                       uint32_t stages, uint32_t workers, uint32_t micro_batches) {
    *builder = (struct weir__table_builder){.allocator = allocator,
                                            .stage_count = stages,
                                            .worker_count = workers,
                                            .micro_batch_count = micro_batches};
    builder->lines = weir__acquire(allocator, (size_t)workers + 1, sizeof *builder->lines);
    builder->failed = builder->lines == NULL;
}

void weir__table_line(struct weir__table_builder *builder) {
    assert(builder->line_count < builder->worker_count);
    if (!builder->failed) builder->lines[builder->line_count] = builder->count;
    builder->line_count++;
}

/* Doubles the room for actions; false when there is no memory or 32 bits do not count them. */
static bool grow(struct weir__table_builder *builder) {
    assert(builder->count == builder->capacity);
    uint32_t capacity = builder->capacity == 0 ? 64 : builder->capacity * 2;
    if (capacity <= builder->capacity) return false;
    struct weir_action *actions = weir__acquire(builder->allocator, capacity, sizeof *actions);
    if (actions == NULL) return false;
    if (builder->count > 0) memcpy(actions, builder->actions, builder->count * sizeof *actions);
    weir__release(builder->allocator, builder->actions, builder->capacity, sizeof *actions);
    builder->actions = actions;
    builder->capacity = capacity;
    return true;
}

void weir__table_add(struct weir__table_builder *builder, enum weir_kind kind, uint32_t stage,
                     uint32_t micro_batch) {
    assert(builder->line_count > 0);
    assert(kind < WEIR_KIND_COUNT && stage < UINT16_MAX);
    if (weir__no_backward(builder->no_backward, stage) && weir__kinds[kind].of_backward) return;
    if (builder->failed || (builder->count == builder->capacity && !grow(builder))) {
        builder->failed = true;
        return;
    }
    builder->actions[builder->count++] = (struct weir_action){
        .micro_batch = micro_batch, .stage = (uint16_t)stage, .kind = (uint8_t)kind};
}

/* Where a line's N and U begin, behind everything else. */
static uint32_t tail_of(const struct weir_table *table, uint32_t worker) {
    uint32_t at = table->lines[worker + 1];
    while (at > table->lines[worker] && !weir__kinds[table->actions[at - 1].kind].per_micro_batch)
        at--;
    return at;
}

/* The highest stage below `bound` of the actions, or UINT32_MAX. */
static uint32_t highest_below(const struct weir_action *actions, uint32_t count, uint32_t bound) {
    uint32_t found = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (actions[i].stage < bound && (found == UINT32_MAX || actions[i].stage > found))
            found = actions[i].stage;
    return found;
}

static void add_norms(struct weir__table_builder *builder, const struct weir_action *updates,
                      uint32_t count, uint32_t offset, bool replicas) {
    uint32_t stage = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        stage = replicas ? highest_below(updates, count, stage) : updates[i].stage;
        if (stage == UINT32_MAX) return;
        weir__table_add(builder, WEIR_KIND_N, stage + offset, 0);
    }
}

void weir__table_add_line(struct weir__table_builder *builder, const struct weir_table *table,
                          uint32_t worker, uint32_t offset, bool replicas) {
    uint32_t tail = tail_of(table, worker), end = table->lines[worker + 1];
    bool has_norms = tail < end && table->actions[tail].kind == WEIR_KIND_N;
    assert(builder->stage_count >= table->stage_count + offset);
    weir__table_line(builder);
    for (uint32_t a = table->lines[worker]; a < end; a++) {
        const struct weir_action *action = &table->actions[a];
        if (a == tail && !has_norms) add_norms(builder, action, end - tail, offset, replicas);
        weir__table_add(builder, (enum weir_kind)action->kind, action->stage + offset,
                        action->micro_batch);
    }
}

void weir__table_abandon(struct weir__table_builder *builder) {
    weir__release(builder->allocator, builder->actions, builder->capacity,
                  sizeof *builder->actions);
    weir__release(builder->allocator, builder->lines, (size_t)builder->worker_count + 1,
                  sizeof *builder->lines);
    *builder = (struct weir__table_builder){.failed = true};
}

int weir__table_finish(struct weir__table_builder *builder, struct weir_table **table) {
    assert(builder->count <= builder->capacity && table != NULL);
    struct owned_table *owned = NULL;
    if (!builder->failed) {
        assert(builder->line_count == builder->worker_count);
        owned = weir__acquire(builder->allocator, 1, sizeof *owned);
    }
    if (owned == NULL) {
        weir__table_abandon(builder);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    builder->lines[builder->worker_count] = builder->count;
    *owned = (struct owned_table){
        .table = {.stage_count = builder->stage_count,
                  .worker_count = builder->worker_count,
                  .micro_batch_count = builder->micro_batch_count,
                  .action_count = builder->count,
                  .lines = builder->lines,
                  .actions = builder->actions},
        .allocator = builder->allocator,
        .lines = builder->lines,
        .actions = builder->actions,
        .capacity = builder->capacity,
    };
    *builder = (struct weir__table_builder){0};
    *table = &owned->table;
    return WEIR_OK;
}

void weir_table_destroy(struct weir_table *table) {
    if (table == NULL) return;
    struct owned_table *owned = (struct owned_table *)table;
    const struct weir_allocator *allocator = owned->allocator;
    weir__release(allocator, owned->actions, owned->capacity, sizeof *owned->actions);
    weir__release(allocator, owned->lines, (size_t)table->worker_count + 1, sizeof *owned->lines);
    weir__release(allocator, owned, 1, sizeof *owned);
}

struct weir_action *weir__table_actions(struct weir_table *table) {
    return ((struct owned_table *)table)->actions;
}

uint32_t weir__table_worker_of(const struct weir_table *table, uint32_t action) {
    assert(action < table->action_count);
    uint32_t low = 0, high = table->worker_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (table->lines[middle] <= action)
            low = middle;
        else
            high = middle;
    }
    assert(table->lines[low] <= action && action < table->lines[low + 1]);
    return low;
}

uint32_t weir__table_longest_line(const struct weir_table *table) {
    uint32_t longest = 0;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        uint32_t length = table->lines[w + 1] - table->lines[w];
        if (length > longest) longest = length;
    }
    return longest;
}

void weir__table_workers(const struct weir_table *table, uint32_t *out) {
    for (uint32_t s = 0; s < table->stage_count; s++) out[s] = UINT32_MAX;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            assert(table->actions[a].stage < table->stage_count);
            out[table->actions[a].stage] = w;
        }
    }
}

uint32_t weir__table_updates(const struct weir_table *table, uint32_t first, uint32_t end,
                             uint32_t *stages) {
    uint32_t count = 0, before = UINT32_MAX;
    assert(first <= end && end <= table->worker_count);
    for (uint32_t place = 0; count != before; place++) {
        before = count;
        for (uint32_t w = end; w-- > first;) {
            uint32_t at = tail_of(table, w);
            while (at < table->lines[w + 1] && table->actions[at].kind == WEIR_KIND_N) at++;
            if (at + place < table->lines[w + 1])
                stages[count++] = table->actions[at + place].stage;
        }
    }
    return count;
}

/* How one stage adds up. */
struct sum_order {
    uint32_t count;
    bool ascending, descending;
    uint64_t digest;
};

static struct sum_order order_of(const struct weir_table *table, uint32_t stage) {
    struct sum_order order = {0, true, true, WEIR__HASH_BEGIN};
    for (uint32_t a = 0; a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        uint32_t i = action->micro_batch;
        if (action->stage != stage || !weir__writes(action->kind, WEIR__PARAM_GRADS)) continue;
        const uint8_t bytes[4] = {(uint8_t)i, (uint8_t)(i >> 8), (uint8_t)(i >> 16),
                                  (uint8_t)(i >> 24)};
        order.ascending &= i == order.count;
        order.descending &= i + order.count + 1 == table->micro_batch_count;
        order.digest = weir__hash(order.digest, bytes, sizeof bytes);
        order.count++;
    }
    return order;
}

bool weir__table_is_ascending(const struct weir_table *table) {
    bool ascending = true;
    for (uint32_t s = 0; s < table->stage_count && ascending; s++)
        ascending = order_of(table, s).ascending;
    return ascending;
}

bool weir_table_order(const struct weir_table *table, char text[WEIR_ORDER_BYTES]) {
    assert(table != NULL && text != NULL);
    struct sum_order first = {0, true, true, WEIR__HASH_BEGIN};
    uint64_t all = WEIR__HASH_BEGIN;
    bool shared = true;
    for (uint32_t s = 0; s < table->stage_count; s++) {
        struct sum_order order = order_of(table, s);
        all = weir__hash(all, &order.digest, sizeof order.digest);
        if (order.count == 0) continue; /* nothing of it learns */
        if (first.count == 0) first = order;
        shared = shared && order.digest == first.digest;
    }
    const char *name = first.ascending ? "ascending" : first.descending ? "descending" : NULL;
    if (shared && name != NULL)
        snprintf(text, WEIR_ORDER_BYTES, "%s", name);
    else
        snprintf(text, WEIR_ORDER_BYTES, "%016" PRIx64, shared ? first.digest : all);
    return shared;
}

bool weir__table_is_split(const struct weir_table *table) {
    uint32_t a = 0;
    while (a < table->action_count && !weir__writes(table->actions[a].kind, WEIR__WEIGHT_INPUTS))
        a++;
    return a < table->action_count;
}

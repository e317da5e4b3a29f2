/* SPDX-License-Identifier: MIT */
#include "pipe/memory/known.h"

#include "schedule/facts.h"

#include <stdlib.h>

static int compare_start(const void *a, const void *b) {
    const struct weir__by_start *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

void weir__sort_by_start(struct weir__by_start *list, size_t count) {
    if (count > 1) qsort(list, count, sizeof *list, compare_start);
}

/* An action has ended, and what was known when it began. */
static void learn(struct weir__known *known, uint32_t action, uint32_t ended) {
    const uint32_t workers = known->table->worker_count;
    uint32_t *clock = &known->clock[(size_t)action * workers];
    const uint32_t *then = &known->clock[(size_t)ended * workers];
    uint32_t worker = weir__table_worker_of(known->table, ended);
    uint32_t place = ended - known->table->lines[worker] + 1;
    assert(action != ended);
    for (uint32_t w = 0; w < workers; w++)
        if (then[w] > clock[w]) clock[w] = then[w];
    if (place > clock[worker]) clock[worker] = place;
}

static void fill(struct weir__known *known, const struct weir__deps *deps,
                 const struct weir__by_start *order) {
    const struct weir_table *table = known->table;
    for (uint32_t i = 0; i < table->action_count; i++) {
        uint32_t action = order[i].number, worker = weir__table_worker_of(table, action);
        if (action > table->lines[worker]) learn(known, action, action - 1);
        for (uint32_t e = deps->begin[action]; e < deps->begin[action + 1]; e++)
            learn(known, action, deps->edges[e].from);
    }
}

int weir__known_init(struct weir__known *known, struct weir__pool *pool,
                     const struct weir_table *table, const struct weir__deps *deps,
                     const double *start) {
    size_t cells;
    *known = (struct weir__known){.table = table};
    assert(deps->action_count == table->action_count);
    if (!weir__multiply(table->action_count, table->worker_count, &cells)) return WEIR_ERR_OVERFLOW;
    struct weir__by_start *order = weir__pool_take(pool, table->action_count, sizeof *order);
    known->clock = weir__pool_take(pool, cells, sizeof *known->clock);
    if (order == NULL || known->clock == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t a = 0; a < table->action_count; a++)
        order[a] = (struct weir__by_start){start[a], a};
    weir__sort_by_start(order, table->action_count);
    fill(known, deps, order);
    return WEIR_OK;
}

uint32_t weir__known_from(const struct weir__known *known, uint32_t worker, uint32_t action) {
    const struct weir_table *table = known->table;
    uint32_t other = weir__table_worker_of(table, action);
    uint32_t place = action - table->lines[other] + 1;
    uint32_t first = table->lines[worker], end = table->lines[worker + 1];
    assert(other != worker);
    while (first < end) { /* what is known grows along a line */
        uint32_t middle = first + (end - first) / 2;
        if (known->clock[(size_t)middle * table->worker_count + other] >= place)
            end = middle;
        else
            first = middle + 1;
    }
    bool found = first < table->lines[worker + 1];
    return found && weir__kinds[table->actions[first].kind].per_micro_batch ? first : UINT32_MAX;
}

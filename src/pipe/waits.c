/* SPDX-License-Identifier: MIT */
/* What each action must still wait for. A vector clock per action says how far every worker's row
 * is known to have come when the action starts; an ordering that the clock already covers needs no
 * wait. Actions are visited in the replay's start order, which is a topological order of
 * dependencies and hand-overs alike. */
#include "pipe/prepared.h"

#include <stdlib.h>
#include <string.h>

struct ordered {
    double start;
    uint32_t action;
};

struct before {
    double end;
    uint32_t action;
    bool delayed;
    uint8_t cause;
};

struct clocks {
    struct weir__prepared *prepared;
    const double *start, *end;
    uint32_t workers;
    uint32_t *clock;     /* [action][worker]: actions of that row known done at its start */
    uint32_t *worker_of; /* per action */
    struct before *list; /* scratch: what one action must follow */
    uint32_t list_capacity;
    uint32_t wait_capacity;
    const struct weir__handover *handovers;
    uint32_t handover_count;
    bool delays; /* copied crossings take time */
};

static int by_start(const void *a, const void *b) {
    const struct ordered *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->action > y->action) - (x->action < y->action);
}

/* Latest first: the later ones tend to imply the earlier. Of one action's causes MEMORY, the last
 * of them, gives way to what is read. */
static int by_end(const void *a, const void *b) {
    const struct before *x = a, *y = b;
    if (x->end != y->end) return x->end > y->end ? -1 : 1;
    if (x->action != y->action) return x->action < y->action ? -1 : 1;
    return (x->cause > y->cause) - (x->cause < y->cause);
}

static bool list_add(struct clocks *c, uint32_t *count, uint32_t action, bool delayed,
                     enum weir__cause cause) {
    void *list = c->list;
    if (!weir__pool_grow(&c->prepared->pool, &list, *count, &c->list_capacity, sizeof *c->list))
        return false;
    c->list = list;
    c->list[(*count)++] = (struct before){c->end[action], action, delayed, (uint8_t)cause};
    return true;
}

static bool add_wait(struct clocks *c, uint32_t worker, const struct before *before) {
    struct weir__prepared *p = c->prepared;
    void *waits = p->waits;
    if (!weir__pool_grow(&p->pool, &waits, p->wait_count, &c->wait_capacity, sizeof *p->waits))
        return false;
    p->waits = waits;
    uint32_t count = before->action - p->table->rows[worker] + 1;
    p->waits[p->wait_count++] =
        (struct weir__wait){worker, count, before->action, before->delayed, before->cause};
    return true;
}

/* Everything of other workers that must have ended before `action`, into the scratch list. */
static bool gather(struct clocks *c, uint32_t action, uint32_t *count) {
    const struct weir__prepared *p = c->prepared;
    uint32_t own = c->worker_of[action];
    *count = 0;
    for (uint32_t e = p->deps.begin[action]; e < p->deps.begin[action + 1]; e++) {
        const struct weir__edge *edge = &p->deps.edges[e];
        if (c->worker_of[edge->from] == own) continue;
        bool crosses =
            edge->cause != WEIR__CAUSE_LOCAL && weir__kinds[p->calls[action].action.kind].in_step;
        bool delayed = c->delays && crosses;
        if (!list_add(c, count, edge->from, delayed, (enum weir__cause)edge->cause)) return false;
    }
    const struct weir__handover *h = c->handovers;
    for (; c->handover_count > 0 && h->after == action; h++, c->handover_count--) {
        assert(c->start[h->after] >= c->end[h->before]);
        if (c->worker_of[h->before] == own) continue;
        if (!list_add(c, count, h->before, false, WEIR__CAUSE_MEMORY)) return false;
    }
    c->handovers = h;
    if (*count > 1) qsort(c->list, *count, sizeof *c->list, by_end);
    return true;
}

static void merge(uint32_t *into, const uint32_t *from, uint32_t workers) {
    for (uint32_t w = 0; w < workers; w++)
        if (from[w] > into[w]) into[w] = from[w];
}

static bool find_waits(struct clocks *c, uint32_t action) {
    struct weir__prepared *p = c->prepared;
    uint32_t own = c->worker_of[action], row = p->table->rows[own], count;
    uint32_t *clock = &c->clock[(size_t)action * c->workers];
    if (action > row) memcpy(clock, clock - c->workers, c->workers * sizeof *clock);
    clock[own] = action - row;
    p->calls[action].wait_begin = p->wait_count;
    if (!gather(c, action, &count)) return false;
    for (uint32_t n = 0; n < count; n++) {
        uint32_t from = c->list[n].action, worker = c->worker_of[from];
        uint32_t done = from - p->table->rows[worker] + 1;
        if (clock[worker] >= done && !c->list[n].delayed) continue;
        if (!add_wait(c, worker, &c->list[n])) return false;
        merge(clock, &c->clock[(size_t)from * c->workers], c->workers);
        if (clock[worker] < done) clock[worker] = done;
    }
    p->calls[action].wait_end = p->wait_count;
    return true;
}

static int sorted_actions(struct clocks *c, struct ordered **order) {
    const struct weir_table *table = c->prepared->table;
    *order = weir__pool_take(&c->prepared->pool, table->action_count, sizeof **order);
    if (*order == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t a = 0; a < table->action_count; a++)
        (*order)[a] = (struct ordered){c->start[a], a};
    qsort(*order, table->action_count, sizeof **order, by_start);
    return WEIR_OK;
}

static int compare_handovers(const void *a, const void *b, void *context) {
    const struct weir__handover *x = a, *y = b;
    const double *start = context;
    struct ordered p = {start[x->after], x->after}, q = {start[y->after], y->after};
    return by_start(&p, &q);
}

static int take_handovers(struct clocks *c) {
    struct weir__handover *list;
    int status = weir__memory_handovers(&c->prepared->memory, c->start, c->workers, &list,
                                        &c->handover_count);
    if (status != WEIR_OK) return status;
    /* in the same order as the actions are visited */
    if (c->handover_count > 0)
        qsort_r(list, c->handover_count, sizeof *list, compare_handovers, (void *)c->start);
    c->handovers = list;
    return WEIR_OK;
}

/* ---- the orders that the waits keep ---- */

static void fill_orders(const struct weir__prepared *p, struct weir__deps *orders) {
    uint32_t count = 0;
    for (uint32_t a = 0; a < p->table->action_count; a++) {
        orders->begin[a] = count;
        for (uint32_t e = p->deps.begin[a]; e < p->deps.begin[a + 1]; e++)
            orders->edges[count++] = p->deps.edges[e];
        for (uint32_t i = p->calls[a].wait_begin; i < p->calls[a].wait_end; i++)
            if (p->waits[i].cause == WEIR__CAUSE_MEMORY)
                orders->edges[count++] =
                    (struct weir__edge){p->waits[i].action, WEIR__CAUSE_MEMORY};
    }
    orders->begin[p->table->action_count] = count;
    assert(count == orders->edge_count);
}

static int make_orders(struct weir__prepared *p) {
    struct weir__deps *orders = &p->orders;
    size_t edges = p->deps.edge_count;
    for (uint32_t i = 0; i < p->wait_count; i++) edges += p->waits[i].cause == WEIR__CAUSE_MEMORY;
    if (edges > UINT32_MAX) return WEIR_ERR_OVERFLOW;
    *orders = (struct weir__deps){.allocator = p->deps.allocator,
                                  .action_count = p->deps.action_count,
                                  .edge_count = (uint32_t)edges};
    orders->begin =
        weir__acquire(orders->allocator, (size_t)orders->action_count + 1, sizeof *orders->begin);
    orders->edges = weir__acquire(orders->allocator, orders->edge_count, sizeof *orders->edges);
    if (orders->begin == NULL || orders->edges == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    fill_orders(p, orders);
    return WEIR_OK;
}

int weir__prepared_waits(struct weir__prepared *prepared, const struct weir__setup *setup,
                         const double *start, const double *end) {
    const struct weir_table *table = prepared->table;
    struct weir__pool *pool = &prepared->pool;
    struct clocks c = {.prepared = prepared,
                       .start = start,
                       .end = end,
                       .workers = table->worker_count,
                       .delays = setup->options.link == WEIR_LINK_COPY &&
                                 setup->options.link_delay_ns > 0};
    struct ordered *order;
    size_t cells;
    if (!weir__multiply(table->action_count, c.workers, &cells)) return WEIR_ERR_OVERFLOW;
    c.clock = weir__pool_take(pool, cells, sizeof *c.clock);
    c.worker_of = weir__pool_take(pool, table->action_count, sizeof *c.worker_of);
    if (c.clock == NULL || c.worker_of == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < c.workers; w++)
        for (uint32_t a = table->rows[w]; a < table->rows[w + 1]; a++) c.worker_of[a] = w;
    int status = sorted_actions(&c, &order);
    if (status == WEIR_OK) status = take_handovers(&c);
    for (uint32_t n = 0; status == WEIR_OK && n < table->action_count; n++)
        if (!find_waits(&c, order[n].action)) status = WEIR_ERR_OUT_OF_MEMORY;
    return status == WEIR_OK ? make_orders(prepared) : status;
}

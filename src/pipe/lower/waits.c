/* SPDX-License-Identifier: MIT */
/* What each action must still wait for. A vector clock per action says how far every worker's line
 * is known to have come when the action starts; an ordering that the clock already covers needs no
 * wait. Actions are visited in the replay's start order, which is a topological order of
 * dependencies and hand-overs alike. */
#include "pipe/lower/prepared.h"

#include <stdlib.h>
#include <string.h>

/* An action, or a unit of copies of a lane. Its clock says what its line or lane has done so far.
 * Actions come first, at their numbers, copies of lanes behind them. */
struct node {
    uint32_t lane;  /* workers' lines are lanes 0 to workers - 1 */
    uint32_t place; /* in its lane, from 1 */
};

struct ordered {
    double start;
    uint32_t node;
};

struct before {
    double end;
    uint32_t node;
    bool delayed;
    uint8_t cause;
};

struct clocks {
    struct weir__row_plan *prepared;
    const double *start, *end;
    uint32_t workers, lanes, actions, nodes;
    struct node *node;
    uint32_t *copy_of;   /* per node behind the actions: its first copy */
    uint32_t *node_of;   /* per copy: its unit's node, NO_NODE without a lane */
    uint32_t *copy_into; /* per block: the copy of a lane that writes it, or WEIR__NO_COPY */
    uint32_t *clock;     /* [node][lane]: how many of that lane are known done at its start */
    uint32_t *latest;    /* per lane: its last node so far, or NO_NODE */
    uint32_t *host;      /* [worker][lane]: what its thread knows to be done, whatever the stream */
    const bool *at_once; /* per worker: its device's work is done when it returns */
    const uint32_t *rank; /* per worker */
    struct before *list;  /* scratch: what one node must follow */
    uint32_t list_capacity;
    uint32_t wait_capacity;
    struct weir__handover *handovers; /* by the node that they are for, in the order of visits */
    uint32_t handover_count;
    bool delays; /* copied crossings take time */
};

#define NO_NODE UINT32_MAX

static bool is_copy(const struct clocks *c, uint32_t node) {
    return node >= c->actions;
}

static struct weir__prepared_copy *copy_of(const struct clocks *c, uint32_t node) {
    assert(is_copy(c, node));
    return &c->prepared->copies[c->copy_of[node - c->actions]];
}

static double node_start(const struct clocks *c, uint32_t node) {
    return is_copy(c, node) ? copy_of(c, node)->start : c->start[node];
}

/* Those that start together in the order in which a worker's thread comes to them: what a node then
 * knows by its thread was learnt before. Copies come before the action that they are for. */
static int by_start(const void *a, const void *b, void *context) {
    const struct ordered *x = a, *y = b;
    const struct clocks *c = context;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    uint32_t p = is_copy(c, x->node) ? copy_of(c, x->node)->action : x->node;
    uint32_t q = is_copy(c, y->node) ? copy_of(c, y->node)->action : y->node;
    if (p != q) return p < q ? -1 : 1;
    if (is_copy(c, x->node) != is_copy(c, y->node)) return is_copy(c, x->node) ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

/* Latest first, of equal ones copies, and the last of a lane: those tend to imply the others. Of
 * one action's causes MEMORY, the last of them, gives way to what is read. */
static int by_end(const void *a, const void *b) {
    const struct before *x = a, *y = b;
    if (x->end != y->end) return x->end > y->end ? -1 : 1;
    if (x->node != y->node) return x->node > y->node ? -1 : 1;
    return (x->cause > y->cause) - (x->cause < y->cause);
}

static bool list_add(struct clocks *c, uint32_t *count, uint32_t node, bool delayed,
                     enum weir__edge_cause cause) {
    assert(node < c->nodes);
    double end = is_copy(c, node) ? c->start[copy_of(c, node)->action] : c->end[node];
    const struct before added = {end, node, delayed, (uint8_t)cause};
    return weir__pool_add(&c->prepared->pool, &c->list, count, &c->list_capacity, &added,
                          sizeof added);
}

static bool add_wait(struct clocks *c, const struct before *before) {
    struct weir__row_plan *p = c->prepared;
    uint32_t copy =
        is_copy(c, before->node) ? c->copy_of[before->node - c->actions] : WEIR__NO_COPY;
    uint32_t action = copy == WEIR__NO_COPY ? before->node : p->copies[copy].action;
    assert(c->node[action].lane < c->workers && c->node[action].place > 0);
    const struct weir__needed_wait added = {.worker = c->node[action].lane,
                                            .count = c->node[action].place,
                                            .action = action,
                                            .copy = copy,
                                            .delayed = before->delayed,
                                            .cause = before->cause};
    return weir__pool_add(&p->pool, &p->waits, &p->wait_count, &c->wait_capacity, &added,
                          sizeof added);
}

/* A copy between ranks. It has two ends: who reads what it brings waits for its receive, who writes
 * to what it took waits for its send. A receive may be begun, and a send may end, long before the
 * other; so of what the reader's thread knows neither tells anything. Both come behind what makes
 * the message, and behind those before it in the lane. */
static bool is_message(const struct clocks *c, uint32_t node) {
    return is_copy(c, node) && weir__is_message(c->prepared, copy_of(c, node));
}

/* Whether it may go through pinned memory, by another stream than the lane's: then what the lane
 * has done is known to that no better than to others. */
static bool may_hop(const struct clocks *c, uint32_t node) {
    return is_copy(c, node) && c->prepared->lanes[c->node[node].lane - c->workers].may_hop;
}

/* Whose thread gives the node its work. */
static uint32_t owner(const struct clocks *c, uint32_t node) {
    uint32_t lane = c->node[node].lane;
    assert(lane < c->lanes);
    return lane < c->workers ? lane : c->prepared->lanes[lane - c->workers].worker;
}

/* What the node's bytes must have been left by. */
static bool gather_handovers(struct clocks *c, uint32_t node, uint32_t *count) {
    struct weir__handover *h = c->handovers;
    for (; c->handover_count > 0 && h->after == node; h++, c->handover_count--) {
        assert(h->before != node);
        assert(is_copy(c, h->before) || node_start(c, node) >= c->end[h->before]);
        if (c->node[h->before].lane == c->node[node].lane && !may_hop(c, node)) continue;
        assert(is_copy(c, h->before) ||
               c->rank[c->node[h->before].lane] == c->rank[owner(c, node)]);
        if (!list_add(c, count, h->before, false, WEIR__CAUSE_MEMORY)) return false;
    }
    c->handovers = h;
    return true;
}

/* Everything of other lanes that must have ended before `action`, into the scratch list. */
static bool gather_action(struct clocks *c, uint32_t action, uint32_t *count) {
    assert(!is_copy(c, action));
    const struct weir__row_plan *p = c->prepared;
    const struct weir__call *call = &p->calls[action];
    uint32_t own = c->node[action].lane;
    for (uint32_t i = call->copy_begin; i < call->copy_end; i++)
        if (c->node_of[i] != NO_NODE &&
            !list_add(c, count, c->node_of[i], false, WEIR__CAUSE_BORDER))
            return false;
    for (uint32_t e = p->deps.begin[action]; e < p->deps.begin[action + 1]; e++) {
        const struct weir__edge *edge = &p->deps.edges[e];
        assert(edge->from < c->actions && edge->from != action);
        uint32_t other = c->node[edge->from].lane;
        /* what crosses between ranks is a message, and before an update all their numbers are
         * known; that a late recomputation follows a gradient, which it does not read, holds in a
         * rank */
        if (other == own || c->rank[other] != c->rank[own]) continue;
        bool crosses = edge->cause != WEIR__CAUSE_LOCAL && weir__kinds[call->action.kind].in_step;
        bool delayed = c->delays && crosses;
        if (!list_add(c, count, edge->from, delayed, (enum weir__edge_cause)edge->cause))
            return false;
    }
    return gather_handovers(c, action, count);
}

/* The copy of the same lane that went through the last of this one's slots of pinned memory before
 * it, WEIR__HOP_SLOTS pieces earlier in the lane; NO_NODE where none did. Pieces of this one's that
 * come to slots of its own wait where they are given. A lane's nodes are numbered in the order of
 * their places, with other lanes' nodes between them. */
static uint32_t former_in_slot(const struct clocks *c, uint32_t node) {
    if (!may_hop(c, node)) return NO_NODE;
    uint64_t first = copy_of(c, node)->piece, n = node;
    uint64_t pieces = weir__unit_pieces(c->prepared, copy_of(c, node)->unit);
    uint64_t beyond = first + (pieces < WEIR__HOP_SLOTS ? pieces : WEIR__HOP_SLOTS);
    if (first == 0 || beyond <= WEIR__HOP_SLOTS) return NO_NODE;
    do {
        assert(n > c->actions);
        n--;
    } while (c->node[n].lane != c->node[node].lane ||
             copy_of(c, (uint32_t)n)->piece >= beyond - WEIR__HOP_SLOTS);
    return (uint32_t)n;
}

static void merge(uint32_t *into, const uint32_t *from, uint32_t lanes) {
    for (uint32_t l = 0; l < lanes; l++)
        if (from[l] > into[l]) into[l] = from[l];
}

static void learn(const struct clocks *c, uint32_t *clock, uint32_t node) {
    const struct node *done = &c->node[node];
    assert(done->lane < c->lanes && done->place > 0);
    merge(clock, &c->clock[(size_t)node * c->lanes], c->lanes);
    if (clock[done->lane] < done->place) clock[done->lane] = done->place;
}

static bool gather_copy(struct clocks *c, uint32_t node, uint32_t *count) {
    assert(is_copy(c, node) && copy_of(c, node)->lane != WEIR__NO_LANE);
    const struct weir__row_plan *p = c->prepared;
    for (uint32_t i = copy_of(c, node)->unit; i != WEIR__NO_COPY; i = p->copies[i].next) {
        if (p->copies[i].from_block == WEIR__NO_BLOCK) continue;
        uint32_t made = weir__prepared_made(p, &p->copies[i]);
        if (is_message(c, node))
            learn(c, &c->clock[(size_t)node * c->lanes], made); /* its sender looks for that */
        else if (!list_add(c, count, made, false, WEIR__CAUSE_BORDER))
            return false;
    }
    uint32_t former = former_in_slot(c, node);
    if (former != NO_NODE && !list_add(c, count, former, false, WEIR__CAUSE_MEMORY)) return false;
    return gather_handovers(c, node, count);
}

/* What is known when the node's turn comes: by its lane, by its thread, and where the thread does
 * its actions itself, all that it knew when it began the one before the one that a copy is for. */
static uint32_t *begin_clock(struct clocks *c, uint32_t node) {
    const struct weir__row_plan *p = c->prepared;
    uint32_t own = c->node[node].lane, worker = owner(c, node), last = c->latest[own];
    uint32_t *clock = &c->clock[(size_t)node * c->lanes];
    assert(last == NO_NODE || c->node[last].place + 1 == c->node[node].place);
    c->latest[own] = node;
    if (last != NO_NODE)
        memcpy(clock, &c->clock[(size_t)last * c->lanes], c->lanes * sizeof *clock);
    clock[own] = may_hop(c, node) ? clock[own] : c->node[node].place - 1;
    if (p->lane_count == 0 || is_message(c, node)) return clock;
    merge(clock, &c->host[(size_t)worker * c->lanes], c->lanes);
    if (!is_copy(c, node) || !c->at_once[worker]) return clock;
    uint32_t action = copy_of(c, node)->action;
    if (action > p->table->lines[worker])
        merge(clock, &c->clock[(size_t)(action - 1) * c->lanes], c->lanes);
    return clock;
}

static bool find_waits(struct clocks *c, uint32_t node) {
    uint32_t worker = owner(c, node), count = 0;
    uint32_t *clock = begin_clock(c, node);
    bool gathered =
        is_copy(c, node) ? gather_copy(c, node, &count) : gather_action(c, node, &count);
    if (!gathered) return false;
    if (count > 1) qsort(c->list, count, sizeof *c->list, by_end);
    for (uint32_t n = 0; n < count; n++) {
        const struct node *from = &c->node[c->list[n].node];
        bool message = is_message(c, node) || is_message(c, c->list[n].node);
        if (clock[from->lane] >= from->place && !c->list[n].delayed && !message) continue;
        if (!add_wait(c, &c->list[n])) return false;
        assert(c->list[n].node != node);
        if (is_message(c, node)) continue; /* of its receive alone */
        learn(c, clock, c->list[n].node);
        bool by_host = from->lane < c->workers && c->at_once[from->lane];
        if (by_host && c->prepared->lane_count > 0)
            learn(c, &c->host[(size_t)worker * c->lanes], c->list[n].node);
    }
    return true;
}

static bool visit(struct clocks *c, uint32_t node) {
    assert(node < c->nodes);
    struct weir__row_plan *p = c->prepared;
    uint32_t begin = p->wait_count;
    if (!find_waits(c, node)) return false;
    if (is_copy(c, node)) {
        struct weir__prepared_copy *copy = copy_of(c, node);
        copy->wait_begin = begin, copy->wait_end = p->wait_count;
    } else {
        p->calls[node].wait_begin = begin, p->calls[node].wait_end = p->wait_count;
    }
    return true;
}

static int sorted_nodes(struct clocks *c, struct ordered **order) {
    *order = weir__pool_take(&c->prepared->pool, c->nodes, sizeof **order);
    if (*order == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t n = 0; n < c->nodes; n++) (*order)[n] = (struct ordered){node_start(c, n), n};
    qsort_r(*order, c->nodes, sizeof **order, by_start, c);
    return WEIR_OK;
}

static int compare_handovers(const void *a, const void *b, void *context) {
    const struct weir__handover *x = a, *y = b;
    const struct clocks *c = context;
    struct ordered p = {node_start(c, x->after), x->after};
    struct ordered q = {node_start(c, y->after), y->after};
    return by_start(&p, &q, context);
}

/* An action that reads a block through a copy of a lane does not read it itself. Where the worker
 * does its actions itself, its gate says no more of the copy than of the action, unless it is a
 * message, which takes the block from its sender. */
static uint32_t reader(const struct clocks *c, uint32_t action, uint32_t block) {
    assert(action < c->actions);
    const struct weir__call *call = &c->prepared->calls[action];
    bool at_once = c->at_once[c->node[action].lane];
    for (uint32_t i = call->copy_begin; i < call->copy_end; i++)
        if (c->node_of[i] != NO_NODE && c->prepared->copies[i].from_block == block &&
            (!at_once || is_message(c, c->node_of[i])))
            return c->node_of[i];
    return action;
}

/* In the order in which the nodes are visited. A block that a copy of a lane writes is handed over
 * to that, not to the action that needs it. */
static int take_handovers(struct clocks *c) {
    int status =
        weir__memory_handovers(&c->prepared->memory, c->workers, &c->handovers, &c->handover_count);
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < c->handover_count; i++) {
        struct weir__handover *h = &c->handovers[i];
        assert(h->after < c->actions && h->comes < c->prepared->memory.block_count);
        uint32_t copy = c->copy_into[h->comes];
        if (copy != WEIR__NO_COPY) h->after = c->node_of[copy];
        h->before = reader(c, h->before, h->leaves);
    }
    if (c->handover_count > 0)
        qsort_r(c->handovers, c->handover_count, sizeof *c->handovers, compare_handovers, c);
    return WEIR_OK;
}

/* ---- nodes ---- */

static uint32_t count_nodes(const struct weir__row_plan *p) {
    uint32_t count = p->table->action_count;
    for (uint32_t i = 0; i < p->copy_count; i++)
        count += p->copies[i].lane != WEIR__NO_LANE && p->copies[i].unit == i;
    return count;
}

/* The node of a copy that begins a unit. */
static void number_unit(struct clocks *c, uint32_t first, uint32_t node) {
    assert(node >= c->actions && node < c->nodes);
    uint32_t lane = c->workers + c->prepared->copies[first].lane, last = c->latest[lane];
    assert(lane < c->lanes);
    struct weir__prepared_copy *copies = c->prepared->copies;
    c->node[node] = (struct node){lane, last == NO_NODE ? 1 : c->node[last].place + 1};
    if (last != NO_NODE) {
        uint32_t before = c->copy_of[last - c->actions];
        copies[first].piece = copies[before].piece + weir__unit_pieces(c->prepared, before);
    }
    c->latest[lane] = node;
    c->copy_of[node - c->actions] = first;
}

static void number_copies(struct clocks *c) {
    const struct weir__row_plan *p = c->prepared;
    uint32_t next = c->actions;
    for (uint32_t b = 0; b < p->memory.block_count; b++) c->copy_into[b] = WEIR__NO_COPY;
    for (uint32_t i = 0; i < p->copy_count; i++) {
        struct weir__prepared_copy *copy = &p->copies[i];
        c->node_of[i] = NO_NODE;
        if (copy->lane == WEIR__NO_LANE) continue;
        assert(copy->unit <= i);
        if (copy->unit == i) number_unit(c, i, next++);
        c->node_of[i] = copy->unit == i ? next - 1 : c->node_of[copy->unit];
        copy->place = c->node[c->node_of[i]].place - 1;
        c->copy_into[copy->to_block] = i;
    }
    assert(next == c->nodes);
    for (uint32_t l = 0; l < c->lanes; l++) c->latest[l] = NO_NODE;
}

static int take_nodes(struct clocks *c) {
    assert(c->nodes >= c->actions && c->lanes >= c->workers);
    struct weir__row_plan *p = c->prepared;
    struct weir__pool *pool = &p->pool;
    size_t cells;
    if (!weir__multiply(c->nodes, c->lanes, &cells)) return WEIR_ERR_OVERFLOW;
    c->clock = weir__pool_take(pool, cells, sizeof *c->clock);
    c->node = weir__pool_take(pool, c->nodes, sizeof *c->node);
    c->latest = weir__pool_take(pool, c->lanes, sizeof *c->latest);
    c->copy_of = weir__pool_take(pool, c->nodes - c->actions, sizeof *c->copy_of);
    c->node_of = weir__pool_take(pool, p->copy_count, sizeof *c->node_of);
    c->host = weir__pool_take(pool, (size_t)c->workers * c->lanes, sizeof *c->host);
    c->copy_into = weir__pool_take(pool, p->memory.block_count, sizeof *c->copy_into);
    if (pool->failed) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < c->workers; w++)
        for (uint32_t a = p->table->lines[w]; a < p->table->lines[w + 1]; a++)
            c->node[a] = (struct node){w, a - p->table->lines[w] + 1};
    for (uint32_t l = 0; l < c->lanes; l++) c->latest[l] = NO_NODE;
    number_copies(c);
    return WEIR_OK;
}

/* What one rank leaves out because of another's waits, the other must wait for. */
static void hash_waits(struct weir__row_plan *p) {
    uint64_t hash = WEIR__HASH_BEGIN;
    for (uint32_t i = 0; i < p->wait_count; i++) {
        const struct weir__needed_wait *wait = &p->waits[i];
        const uint32_t numbers[] = {wait->worker, wait->count, wait->copy};
        hash = weir__hash(hash, numbers, sizeof numbers);
    }
    p->waits_hash = hash;
}

/* ---- the orders that the waits keep ---- */

/* What a copy must follow, the action that it is for must too. */
static uint32_t add_orders(const struct weir__row_plan *p, uint32_t begin, uint32_t end,
                           struct weir__edge *edges) {
    uint32_t count = 0;
    for (uint32_t i = begin; i < end; i++)
        if (p->waits[i].cause == WEIR__CAUSE_MEMORY)
            edges[count++] = (struct weir__edge){p->waits[i].action, WEIR__CAUSE_MEMORY};
    return count;
}

static void fill_orders(const struct weir__row_plan *p, struct weir__deps *orders) {
    uint32_t count = 0;
    for (uint32_t a = 0; a < p->table->action_count; a++) {
        orders->begin[a] = count;
        for (uint32_t e = p->deps.begin[a]; e < p->deps.begin[a + 1]; e++)
            orders->edges[count++] = p->deps.edges[e];
        const struct weir__call *call = &p->calls[a];
        count += add_orders(p, call->wait_begin, call->wait_end, &orders->edges[count]);
        for (uint32_t i = call->copy_begin; i < call->copy_end; i++)
            if (p->copies[i].lane != WEIR__NO_LANE)
                count += add_orders(p, p->copies[i].wait_begin, p->copies[i].wait_end,
                                    &orders->edges[count]);
    }
    orders->begin[p->table->action_count] = count;
    assert(count == orders->edge_count);
}

static int make_orders(struct weir__row_plan *p) {
    assert(p->orders.begin == NULL && p->orders.edges == NULL);
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

int weir__prepared_waits(struct weir__row_plan *prepared, const struct weir__setup *setup,
                         const double *start, const double *end) {
    const struct weir_table *table = prepared->table;
    assert(prepared->waits == NULL && prepared->memory.worker_begin != NULL);
    struct clocks c = {.prepared = prepared,
                       .start = start,
                       .end = end,
                       .workers = table->worker_count,
                       .lanes = table->worker_count + prepared->lane_count,
                       .actions = table->action_count,
                       .nodes = count_nodes(prepared),
                       .delays = setup->options.link == WEIR_LINK_COPY &&
                                 setup->options.link_delay_ns > 0};
    struct ordered *order;
    bool *at_once = weir__pool_take(&prepared->pool, c.workers, sizeof *at_once);
    uint32_t *rank = weir__pool_take(&prepared->pool, c.workers, sizeof *rank);
    if (at_once == NULL || rank == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < c.workers; w++) {
        at_once[w] = weir__setup_device(setup, w).synchronous;
        rank[w] = weir__setup_rank(setup, w, c.workers);
    }
    c.at_once = at_once;
    c.rank = rank;
    int status = take_nodes(&c);
    if (status != WEIR_OK) return status;
    if ((status = sorted_nodes(&c, &order)) != WEIR_OK) return status;
    if ((status = take_handovers(&c)) != WEIR_OK) return status;
    for (uint32_t n = 0; n < c.nodes; n++)
        if (!visit(&c, order[n].node)) return WEIR_ERR_OUT_OF_MEMORY;
    hash_waits(prepared);
    return make_orders(prepared);
}

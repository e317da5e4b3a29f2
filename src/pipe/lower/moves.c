/* SPDX-License-Identifier: MIT */
/* Portals: how many there are, and what each action puts into them and uses of them. */
#include "pipe/lower/lifetimes.h"

/* `view`: where a use's pointer goes; NULL for the others. */
static void add_move(struct builder *b, const struct touching *t, uint32_t r, uint32_t portal,
                     enum weir__portal_step step, void **view, uint32_t life) {
    struct weir__row_plan *prepared = b->prepared;
    assert(r < b->setup->route_count);
    const struct weir__tracker *tracker = &prepared->bound.trackers[t->i];
    assert(t->i < b->m && portal < tracker->portal_count);
    const struct weir__portal_move added = {life, (uint8_t)step, &tracker->portals[portal],
                                            view != NULL ? view : &tracker->homes[portal],
                                            b->setup->routes[r].name};
    (void)weir__pool_add(&prepared->pool, &prepared->moves, &prepared->move_count,
                         &prepared->move_capacity, &added, sizeof added);
}

/* Uses of the portal that leads to the k-th reader's worker: 1 per reading stage there, 1 more
 * where that stage recomputes this micro-batch. */
static uint32_t portal_life(const struct builder *b, uint32_t r, uint32_t k, uint32_t i) {
    const struct weir_skip_route *route = &b->setup->routes[r];
    assert(k < route->reader_count && i < b->m);
    uint32_t life = 0;
    for (uint32_t o = 0; o < route->reader_count; o++) {
        uint32_t stage = route->readers[o];
        if (weir__lifetimes_worker_of(b, stage) == weir__lifetimes_worker_of(b, route->readers[k]))
            life += 1 + b->checkpointed[(size_t)stage * b->m + i];
    }
    assert(life > 0);
    return life;
}

static bool same_rank(const struct builder *b, uint32_t a, uint32_t c) {
    uint32_t workers = b->prepared->table->worker_count;
    return weir__setup_rank(b->setup, weir__lifetimes_worker_of(b, a), workers) ==
           weir__setup_rank(b->setup, weir__lifetimes_worker_of(b, c), workers);
}

/* A gradient's use; what comes from another rank is put where it is used. */
static void use_gradient(struct builder *b, const struct touching *t, uint32_t r, uint32_t k,
                         uint32_t j) {
    uint32_t portal = b->grad_portal_of[b->route_first[r] + k];
    if (!same_rank(b, t->stage, b->setup->routes[r].readers[k]))
        add_move(b, t, r, portal, WEIR__PORTAL_DO_ARRIVE_GRADIENT, NULL, 0);
    add_move(b, t, r, portal, WEIR__PORTAL_DO_USE_GRADIENT, &t->views->skip_grads[j].data, 0);
}

static void stash_moves(struct builder *b, const struct touching *t, uint32_t r, uint32_t j,
                        const struct weir__kind_facts *kind) {
    const struct weir_skip_route *route = &b->setup->routes[r];
    const uint32_t *portal_of = &b->portal_of[b->route_first[r]];
    const uint32_t *grad_portal_of = &b->grad_portal_of[b->route_first[r]];
    bool forward = (kind->writes & WEIR__SKIPS_OUT) != 0;
    assert(route->source == t->stage);
    for (uint32_t k = 0; forward && k < route->reader_count; k++) {
        bool again = false; /* an earlier reader on the same worker has put this portal */
        for (uint32_t o = 0; o < k; o++) again |= portal_of[o] == portal_of[k];
        if (!again && same_rank(b, t->stage, route->readers[k]))
            add_move(b, t, r, portal_of[k], WEIR__PORTAL_DO_PUT, NULL, portal_life(b, r, k, t->i));
        add_move(b, t, r, grad_portal_of[k], WEIR__PORTAL_DO_RESET_GRADIENT, NULL, 0);
    }
    if ((kind->reads & WEIR__SKIP_GRADS_IN) && route->differentiable) use_gradient(b, t, r, 0, j);
}

/* Whether the k-th reader is the first of its worker's, and the forward its first use, of a value
 * that another rank stashes. */
static bool is_first_of_another_rank(const struct builder *b, const struct touching *t,
                                     const struct weir_skip_route *route, uint32_t k) {
    bool again = false;
    for (uint32_t o = 0; o < k; o++)
        again |= weir__lifetimes_worker_of(b, route->readers[o]) == t->worker;
    return t->first && !again && !same_rank(b, route->source, t->stage);
}

static void reader_moves(struct builder *b, const struct touching *t, uint32_t r, uint32_t j,
                         const struct weir__kind_facts *kind) {
    const struct weir_skip_route *route = &b->setup->routes[r];
    uint32_t k = t->at->skip_readers[j];
    assert(k < route->reader_count && route->readers[k] == t->stage);
    const uint32_t *portal_of = &b->portal_of[b->route_first[r]];
    const uint32_t *grad_portal_of = &b->grad_portal_of[b->route_first[r]];
    if ((kind->reads & WEIR__SKIPS_IN) && is_first_of_another_rank(b, t, route, k))
        add_move(b, t, r, portal_of[k], WEIR__PORTAL_DO_ARRIVE, NULL, portal_life(b, r, k, t->i));
    if (kind->reads & WEIR__SKIPS_IN)
        add_move(b, t, r, portal_of[k], WEIR__PORTAL_DO_USE, &t->views->skips[j].data, 0);
    if (!route->differentiable) return;
    if (t->first && !same_rank(b, route->source, t->stage))
        add_move(b, t, r, grad_portal_of[k], WEIR__PORTAL_DO_RESET_GRADIENT, NULL, 0);
    if ((kind->reads & WEIR__SKIP_GRADS_IN) && k + 1 < route->reader_count)
        use_gradient(b, t, r, k + 1, j);
    uint32_t user = k == 0 ? route->source : route->readers[k - 1];
    if ((kind->writes & WEIR__SKIP_GRADS_OUT) && same_rank(b, user, t->stage))
        add_move(b, t, r, grad_portal_of[k], WEIR__PORTAL_DO_PUT_GRADIENT, NULL, 0);
}

void weir__lifetimes_moves(struct builder *b, const struct touching *t,
                           const struct weir__kind_facts *kind) {
    assert(b->prepared->bound.trackers != NULL);
    for (uint32_t j = 0; j < t->at->stage.skip_count; j++) {
        uint32_t r = t->at->skip_routes[j];
        if (r == WEIR__NO_ROUTE) continue;
        if (t->at->stage.skips[j].verb == WEIR_SKIP_STASH)
            stash_moves(b, t, r, j, kind);
        else
            reader_moves(b, t, r, j, kind);
    }
}

/* Numbers the portals of one micro-batch: per route one for each reading worker, then one for each
 * reader's gradient. */
bool weir__lifetimes_trackers(struct builder *b) {
    struct weir__pool *pool = &b->prepared->pool;
    uint32_t routes = b->setup->route_count, readers = 0, portals = 0;
    for (uint32_t r = 0; r < routes; r++) readers += b->setup->routes[r].reader_count;
    b->portal_of = weir__pool_take(pool, readers, sizeof(uint32_t));
    b->grad_portal_of = weir__pool_take(pool, readers, sizeof(uint32_t));
    b->route_first = weir__pool_take(pool, routes, sizeof(uint32_t));
    b->prepared->bound.trackers = weir__pool_take(pool, b->m, sizeof *b->prepared->bound.trackers);
    if (pool->failed) return false;
    for (uint32_t r = 0, first = 0; r < routes; first += b->setup->routes[r].reader_count, r++) {
        const struct weir_skip_route *route = &b->setup->routes[r];
        b->route_first[r] = first;
        for (uint32_t k = 0; k < route->reader_count; k++) {
            uint32_t o = 0;
            while (weir__lifetimes_worker_of(b, route->readers[o]) !=
                   weir__lifetimes_worker_of(b, route->readers[k]))
                o++;
            b->portal_of[first + k] = o < k ? b->portal_of[first + o] : portals++;
            b->grad_portal_of[first + k] = portals++;
        }
    }
    assert(portals <= 2 * readers);
    for (uint32_t i = 0; i < b->m; i++) {
        struct weir__tracker *tracker = &b->prepared->bound.trackers[i];
        tracker->portal_count = portals;
        tracker->portals = weir__pool_take(pool, portals, sizeof *tracker->portals);
        tracker->homes = weir__pool_take(pool, portals, sizeof *tracker->homes);
        if (tracker->portals == NULL || tracker->homes == NULL) return false;
    }
    return true;
}

/* SPDX-License-Identifier: MIT */
/* What a plan says of pinned memory: what host_memory.c will make, in whole huge pages each. */
#include "pipe/plan/plan.h"

int weir__plan_numbers(const struct weir__setup *setup, size_t *bytes) {
    size_t count;
    if (!weir__multiply(setup->flow.stage_count, setup->options.chunks, &count))
        return WEIR_ERR_OVERFLOW;
    for (uint32_t s = 0; s < setup->flow.stage_count; s++)
        if (!weir__add(count, setup->stages[s].stage.norm_count, &count)) return WEIR_ERR_OVERFLOW;
    return weir__multiply(count, sizeof(double), bytes) ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

static bool add_pages(uint64_t *sum, size_t bytes) {
    size_t whole;
    if (!weir__round_up(bytes, WEIR__HUGE_PAGE, &whole)) return false;
    *sum += whole;
    return true;
}

/* The largest slot that a row count wants for what comes from one worker to the other. */
static size_t slot_bytes(const struct weir__row_plan *p, uint32_t worker, uint32_t from) {
    assert(worker < p->table->worker_count && from < p->table->worker_count);
    size_t most = 0;
    for (uint32_t i = 0; i < p->copy_count; i++) {
        const struct weir__prepared_copy *copy = &p->copies[i];
        if (copy->lane == WEIR__NO_LANE || copy->unit != i) continue;
        const struct weir__lane *lane = &p->lanes[copy->lane];
        if (lane->worker != worker || lane->from != from || !lane->hops) continue;
        size_t bytes = weir__unit_slot_bytes(p, i);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Of messages that one row count has by the lane; 0: they need no slots. */
static size_t port_slot_bytes(const struct weir__setup *setup, const struct weir__row_plan *p,
                              uint32_t worker, uint32_t from) {
    size_t most = 0;
    assert(worker < p->table->worker_count && from < p->table->worker_count);
    for (uint32_t i = 0; i < p->copy_count; i++) {
        const struct weir__prepared_copy *copy = &p->copies[i];
        if (!weir__is_message(p, copy)) continue;
        const struct weir__lane *lane = &p->lanes[copy->lane];
        bool of = lane->worker == worker && lane->from == from;
        bool slots = of && !weir__setup_by_nccl(setup, worker, from, p->table->worker_count);
        if (slots && copy->bytes > most) most = copy->bytes;
    }
    return most;
}

static size_t most_of_ports(const struct weir__setup *setup, struct weir__row_plan *const *prepared,
                            uint32_t count, uint32_t worker, uint32_t from) {
    size_t most = 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes = port_slot_bytes(setup, prepared[i], worker, from);
        if (bytes > most) most = bytes;
    }
    return most;
}

static bool add_ports(const struct weir__setup *setup, struct weir__row_plan *const *prepared,
                      uint32_t count, uint32_t worker, struct weir_plan_pinned *pinned) {
    bool fits = true;
    for (uint32_t other = 0; other < prepared[0]->table->worker_count; other++) {
        size_t in = most_of_ports(setup, prepared, count, worker, other);
        size_t out = most_of_ports(setup, prepared, count, other, worker);
        fits = fits && add_pages(&pinned->hops, WEIR__PORT_SLOTS * in) &&
               add_pages(&pinned->hops, WEIR__PORT_SLOTS * out);
    }
    return fits;
}

/* Between replicas, whatever the row count. */
static bool add_replicas(const struct weir__setup *setup, const struct weir__row_plan *p,
                         uint32_t worker, struct weir_plan_pinned *pinned) {
    uint32_t own = weir__replica(&setup->options), workers = p->table->worker_count;
    bool fits = true;
    for (uint32_t r = 0; r < weir__replicas(&setup->options); r++) {
        const struct weir__seat seat = {own, worker}, other = {r, worker};
        if (r == own || weir__setup_joins(setup, seat, other, workers)) continue;
        size_t slots = WEIR__PORT_SLOTS * weir__prepared_replica_slot(p, setup, worker, r);
        fits = fits && add_pages(&pinned->hops, slots) && add_pages(&pinned->hops, slots);
    }
    return fits;
}

static bool fill_worker(const struct weir__setup *setup, struct weir__row_plan *const *prepared,
                        uint32_t count, uint32_t worker, struct weir_plan_pinned *pinned) {
    assert(count > 0 && worker < prepared[0]->table->worker_count);
    uint32_t workers = prepared[0]->table->worker_count;
    size_t staging = WEIR__HUGE_PAGE; /* for what goes between steps */
    for (uint32_t i = 0; i < count; i++)
        if (prepared[i]->staging_bytes[worker] > staging)
            staging = prepared[i]->staging_bytes[worker];
    bool fits = add_pages(&pinned->staging, staging);
    for (uint32_t from = 0; from < workers; from++) {
        size_t slot = 0;
        for (uint32_t i = 0; i < count; i++) {
            size_t bytes = slot_bytes(prepared[i], worker, from);
            if (bytes > slot) slot = bytes;
        }
        fits = fits && add_pages(&pinned->hops, WEIR__HOP_SLOTS * slot);
    }
    return fits && add_ports(setup, prepared, count, worker, pinned) &&
           add_replicas(setup, prepared[0], worker, pinned);
}

int weir__plan_count_pinned(const struct weir__setup *setup, struct weir__row_plan *const *prepared,
                            uint32_t count, struct weir_plan_pinned *pinned) {
    assert(count > 0);
    size_t numbers;
    uint32_t workers = prepared[0]->table->worker_count, before = UINT32_MAX;
    int status = weir__plan_numbers(setup, &numbers);
    if (status != WEIR_OK) return status;
    for (uint32_t w = 0; w < workers; w++) {
        uint32_t rank = weir__setup_rank(setup, w, workers);
        if (weir__setup_device(setup, w).synchronous) continue;
        if (!fill_worker(setup, prepared, count, w, &pinned[w])) return WEIR_ERR_OVERFLOW;
        if (rank != before && !add_pages(&pinned[w].numbers, numbers)) return WEIR_ERR_OVERFLOW;
        before = rank; /* the first of a rank has them */
    }
    return WEIR_OK;
}

/* SPDX-License-Identifier: MIT */
/*
 * What replicas of a pipe add to a simulation (weir_predict.h): a table of all of them, so that the
 * walk knows nothing of it, and messages of gradients and parameters behind its actions. And sums
 * of groups, as the engine adds them up (pipe/lower/sums.c).
 */
#include "schedule/simulate/simulate.h"
#include "weir_shared.h"

#include <math.h>
#include <string.h>

/* ---- what was asked ---- */

static bool is_power_of_two(uint32_t number) {
    return number > 0 && (number & (number - 1)) == 0;
}

static void check_groups(const struct weir_simulate_options *options, struct weir_faults *faults) {
    uint32_t groups = options->shared->groups, count = options->table->micro_batch_count;
    uint32_t size = groups > 0 ? (count - 1) / groups + 1 : 1;
    if (!is_power_of_two(groups) || (count - 1) / size + 1 != groups)
        weir_faults_add(faults,
                        "%u micro-batch%s cannot be %u groups of gradients: give a power of two "
                        "that leaves none empty",
                        (unsigned)count, weir__es(count), (unsigned)groups);
}

void weir__sim_check_shared(const struct weir_simulate_options *options,
                            struct weir_faults *faults) {
    const struct weir_shared_costs *shared = options->shared;
    const struct weir_rank_links *ranks = options->ranks;
    uint32_t replicas = shared->replicas;
    check_groups(options, faults);
    if (!isfinite(shared->add_seconds_per_byte) || shared->add_seconds_per_byte < 0.0)
        weir_faults_add(faults, "adding takes %g s per byte: give a number, not negative",
                        shared->add_seconds_per_byte);
    if (!weir__is_link(&shared->link))
        weir_faults_add(faults,
                        "between replicas a link of %g s and %g s per byte: both must be "
                        "finite and not negative",
                        shared->link.latency, shared->link.seconds_per_byte);
    if (replicas == 0 || replicas > (UINT16_MAX - 1u) / options->table->stage_count)
        weir_faults_add(faults, "%u replicas of %u stage%s: there can be 1 to %u",
                        (unsigned)replicas, (unsigned)options->table->stage_count,
                        weir__s(options->table->stage_count),
                        (UINT16_MAX - 1u) / (unsigned)options->table->stage_count);
    else if (ranks != NULL && ranks->rank_count % replicas != 0)
        weir_faults_add(faults, "%u replicas do not divide %u rank%s", (unsigned)replicas,
                        (unsigned)ranks->rank_count, weir__s(ranks->rank_count));
    if (replicas > 1 && options->order_begin != NULL)
        weir_faults_add(faults, "orders of actions are of one replica: leave them away");
}

/* ---- all replicas' table ---- */

int weir__sim_expand(struct weir__sim *sim, const struct weir_allocator *allocator) {
    const struct weir_table *own = sim->table;
    uint32_t replicas = sim->shares.replicas;
    struct weir__table_builder builder;
    if (replicas == 1) return WEIR_OK;
    weir__table_begin(&builder, allocator, replicas * own->stage_count,
                      replicas * own->worker_count, own->micro_batch_count);
    for (uint32_t k = 0; k < replicas; k++)
        for (uint32_t w = 0; w < own->worker_count; w++)
            weir__table_add_line(&builder, own, w, k * own->stage_count, true);
    int status = weir__table_finish(&builder, &sim->shares.table);
    if (status == WEIR_OK) sim->table = sim->shares.table;
    return status;
}

/* ---- costs ---- */

static uint64_t bytes_of(const uint64_t *list, uint32_t stage) {
    return list != NULL ? list[stage] : 0;
}

static uint64_t slice_of(const struct weir__sim_shares *shares, uint64_t bytes, uint32_t replica) {
    const struct weir_section section = {.bytes = (size_t)bytes};
    size_t begin, end;
    weir_section_slice(&section, shares->replicas, replica, &begin, &end);
    return end - begin;
}

static void cost_stage(struct weir__sim *sim, uint32_t s) {
    struct weir__sim_shares *shares = &sim->shares;
    const struct weir_shared_costs *costs = shares->costs;
    struct weir__sim_share *share = &shares->stages[s];
    double *seconds = sim->stages[s].facts.seconds;
    uint32_t own = weir__sim_own(sim, s), replica = s / shares->each;
    const uint64_t *learns =
        costs->parameter_bytes != NULL ? costs->parameter_bytes : costs->gradient_bytes;
    *share = (struct weir__sim_share){0};
    if (sim->stages[s].backwards == 0) return;
    share->bytes = bytes_of(costs->gradient_bytes, own);
    share->slice = slice_of(shares, share->bytes, replica);
    share->parameters = slice_of(shares, bytes_of(learns, own), replica);
    if (shares->replicas == 1) return;
    seconds[WEIR_KIND_N] +=
        (shares->replicas - 1) * (double)share->slice * costs->add_seconds_per_byte;
    if (share->bytes > 0) seconds[WEIR_KIND_U] *= (double)share->slice / (double)share->bytes;
}

static uint32_t rank_of(const struct weir__sim *sim, uint32_t worker) {
    return weir__dealt_rank(sim->shares.rank_count, sim->table->worker_count, worker);
}

/* Gradients go from the highest stage on, for about so they end. */
static void queue_gradients(struct weir__sim *sim) {
    struct weir__sim_shares *shares = &sim->shares;
    struct weir__sim_queue *queues = shares->queues[WEIR__SIM_GRADIENTS];
    uint32_t used = 0, stages = sim->table->stage_count;
    for (uint32_t r = 0; r < shares->rank_count; r++) queues[r] = (struct weir__sim_queue){0};
    for (uint32_t s = 0; s < stages; s++)
        if (sim->stages[s].backwards > 0) queues[rank_of(sim, sim->stages[s].facts.worker)].end++;
    for (uint32_t r = 0; r < shares->rank_count; r++) {
        uint32_t count = queues[r].end;
        queues[r].begin = queues[r].end = used;
        used += count;
    }
    for (uint32_t s = stages; s-- > 0;) {
        if (sim->stages[s].backwards == 0) continue;
        struct weir__sim_queue *queue = &queues[rank_of(sim, sim->stages[s].facts.worker)];
        shares->queued[WEIR__SIM_GRADIENTS][queue->end++] = s;
    }
}

static void queue_parameters(struct weir__sim *sim) {
    struct weir__sim_shares *shares = &sim->shares;
    uint32_t *queued = shares->queued[WEIR__SIM_PARAMETERS], used = 0, end = 0;
    for (uint32_t r = 0; r < shares->rank_count; r++) {
        struct weir__sim_queue *queue = &shares->queues[WEIR__SIM_PARAMETERS][r];
        uint32_t first = end;
        while (end < sim->table->worker_count && rank_of(sim, end) == r) end++;
        *queue = (struct weir__sim_queue){.begin = used};
        uint32_t count = weir__table_updates(sim->table, first, end, &queued[used]);
        for (uint32_t i = queue->begin; i < queue->begin + count; i++)
            if (sim->stages[queued[i]].backwards > 0) queued[used++] = queued[i];
        queue->end = used;
    }
}

void weir__sim_cost_shares(struct weir__sim *sim) {
    assert(sim->shares.costs != NULL && sim->shares.each > 0);
    for (uint32_t s = 0; s < sim->table->stage_count; s++) cost_stage(sim, s);
    if (sim->shares.replicas == 1) return;
    queue_gradients(sim);
    queue_parameters(sim);
}

void weir__sim_rewind_shares(struct weir__sim *sim) {
    struct weir__sim_shares *shares = &sim->shares;
    uint32_t groups = shares->costs->groups, size = shares->group_size;
    uint32_t last = sim->table->micro_batch_count - (groups - 1) * size;
    for (uint32_t s = 0; s < sim->table->stage_count; s++) {
        struct weir__sim_share *share = &shares->stages[s];
        share->missing = share->slice > 0 ? shares->replicas - 1 : 0;
        share->whole = share->missing > 0 ? -1.0 : 0.0;
        share->ended[0] = share->ended[1] = -1.0;
        share->arrives = 0.0;
        share->begun = false;
        for (uint32_t g = 0; g < groups; g++)
            shares->left[(size_t)s * groups + g] = g + 1 < groups ? size : last;
        memset(&shares->complete[2 * (size_t)s * groups], 0, 2 * (size_t)groups);
    }
    for (uint32_t r = 0; shares->replicas > 1 && r < shares->rank_count; r++)
        for (int what = 0; what < WEIR__SIM_SENT; what++) {
            struct weir__sim_queue *queue = &shares->queues[what][r];
            queue->next = queue->begin;
            queue->due = 0.0;
        }
    shares->gathered = 0.0;
}

/* ---- groups ---- */

struct weir__sim_sums weir__sim_sum(struct weir__sim *sim, const struct weir_action *action) {
    struct weir__sim_shares *shares = &sim->shares;
    struct weir__sim_share *share = &shares->stages[action->stage];
    uint32_t groups = shares->costs->groups, group = action->micro_batch / shares->group_size;
    uint32_t *left = &shares->left[(size_t)action->stage * groups + group];
    uint8_t *complete = &shares->complete[2 * (size_t)action->stage * groups];
    uint32_t all = shares->group_size, node = groups + group;
    struct weir__sim_sums sums = {0};
    assert(group < groups);
    if (group + 1 == groups) all = sim->table->micro_batch_count - group * shares->group_size;
    if (*left == all && share->begun) sums.begun = 1;
    share->begun = true;
    if (*left == 0 || --*left > 0) return sums; /* 0: the table has it twice */
    for (complete[node] = 1; node > 1 && complete[node ^ 1] != 0; complete[node] = 1) {
        sums.added++;
        node /= 2;
    }
    return sums;
}

/* ---- messages ---- */

static double arrival_of(struct weir__sim *sim, uint32_t from, uint32_t to, uint64_t bytes,
                         double end) {
    const struct weir_link_cost *link = &sim->shares.costs->link;
    if (sim->over_ranks) return weir__sim_send_bytes(sim, from, to, bytes, end);
    if (sim->shares.free) return end;
    return end + link->latency + (double)bytes * link->seconds_per_byte;
}

static void send_part(struct weir__sim *sim, uint32_t from, uint32_t to, double end) {
    struct weir__sim_share *share = &sim->shares.stages[to];
    if (share->slice == 0) return;
    assert(share->missing > 0);
    double arrival = arrival_of(sim, from, to, share->slice, end);
    share->arrives = fmax(share->arrives, arrival);
    if (--share->missing == 0) (void)weir__sim_tell(sim, &share->whole, share->arrives);
}

static void send_stage(struct weir__sim *sim, uint32_t stage, int what, double end) {
    struct weir__sim_shares *shares = &sim->shares;
    uint64_t parameters = shares->stages[stage].parameters;
    for (uint32_t r = 0; r < shares->replicas; r++) {
        uint32_t to = r * shares->each + weir__sim_own(sim, stage);
        if (to == stage) continue;
        if (what == WEIR__SIM_GRADIENTS)
            send_part(sim, stage, to, end);
        else if (parameters > 0)
            shares->gathered = fmax(shares->gathered, arrival_of(sim, stage, to, parameters, end));
    }
}

void weir__sim_share(struct weir__sim *sim, uint32_t stage, int what, double end) {
    struct weir__sim_shares *shares = &sim->shares;
    if (shares->replicas == 1) return;
    struct weir__sim_queue *queue =
        &shares->queues[what][rank_of(sim, sim->stages[stage].facts.worker)];
    shares->stages[stage].ended[what] = end;
    for (; queue->next < queue->end; queue->next++) {
        uint32_t next = shares->queued[what][queue->next];
        double ended = shares->stages[next].ended[what];
        if (ended < 0.0) return;
        queue->due = fmax(queue->due, ended);
        send_stage(sim, next, what, queue->due);
    }
}

/* ---- the prediction ---- */

void weir__sim_count_shares(const struct weir__sim *sim, struct weir_prediction *prediction) {
    const struct weir__sim_shares *shares = &sim->shares;
    uint64_t others = shares->replicas - 1;
    for (uint32_t s = 0; s < sim->table->stage_count; s++) {
        const struct weir__sim_share *share = &shares->stages[s];
        prediction->moved_bytes += others * (share->slice + share->parameters);
        prediction->transfers += others * ((share->slice > 0) + (share->parameters > 0));
    }
}

/* SPDX-License-Identifier: MIT */
/*
 * The simulation's walk. A worker runs on until its next action lacks an input. Then the worker is
 * parked on the end that is missing, and whoever writes that end wakes it. Times do not depend on
 * the order of the walk: a start is a maximum over ends that are known by then. A worker that
 * runs on reads its line and its stages' cells forwards, which is what makes the walk fast.
 *
 * Over ranks they do depend on it, for messages wait for each other. There a worker runs one action
 * at a time, and ends are published in their order.
 */
#include "schedule/simulate/simulate.h"

#define NOBODY UINT32_MAX

/* ---- what is live ---- */

static inline void settle(struct weir__sim_amount *live) {
    live->now += live->held;
    live->held = 0;
    live->peak = live->now > live->peak ? live->now : live->peak;
}

static inline void begin_live(struct weir__sim_amount *live, double time, uint64_t amount) {
    if (time > live->at) {
        settle(live);
        live->at = time;
    }
    live->held += amount;
}

/* What ends may have begun at the same time, and is then still in `held`: `now` wraps below 0 until
 * it is settled. */
static inline void end_live(struct weir__sim_amount *live, double time, uint64_t amount) {
    if (time > live->at) {
        settle(live);
        live->at = time;
    }
    live->now -= amount;
}

/* An action's effect on memory. */
static void account(struct weir__sim *sim, const struct weir_action *action, double start,
                    double end) {
    struct weir__sim_stage *stage = &sim->stages[action->stage];
    struct weir__sim_worker *worker = &sim->workers[stage->facts.worker];
    uint32_t writes = weir__kinds[action->kind].writes;
    bool counts = (writes & (WEIR__OUTPUTS | WEIR__SAVED | WEIR__PARAM_GRADS)) != 0;
    if (stage->backwards == 0 || !counts) return;
    bool later = (writes & WEIR__OUTPUTS) != 0 &&
                 weir__sim_is_recomputed(sim, action->stage, action->micro_batch);
    for (int amount = 0; amount < WEIR__AMOUNTS; amount++) {
        uint64_t begins = weir__stage_begins(&stage->facts, action->kind, later, amount);
        uint64_t ends = weir__stage_frees(&stage->facts, action->kind, amount);
        if (begins != 0) begin_live(&worker->live[amount], start, begins);
        if (ends != 0) end_live(&worker->live[amount], end, ends);
        if (begins != 0 && amount == WEIR__ACTIVATIONS) begin_live(&stage->activations, start, 1);
        if (ends != 0 && amount == WEIR__ACTIVATIONS) end_live(&stage->activations, end, 1);
    }
}

/* ---- waiting ---- */

/** What an action waits for, as far as it is known. */
struct inputs {
    double produced; /**< the last producer's end */
    double ready;    /**< the last arrival */
};

static inline bool known(struct inputs *inputs, const double *end, double copy) {
    if (*end < 0.0) return false;
    inputs->produced = *end > inputs->produced ? *end : inputs->produced;
    inputs->ready = *end + copy > inputs->ready ? *end + copy : inputs->ready;
    return true;
}

/* The same of an input that may be a message: what lacks, or NULL. */
static inline double *lacking(const struct weir__sim *sim, struct inputs *inputs, double *end,
                              double copy, uint32_t input, uint32_t micro_batch) {
    if (copy >= 0.0) return known(inputs, end, copy) ? NULL : end;
    double *arrived = weir__sim_arrived(sim, input, micro_batch);
    if (*arrived < 0.0) return arrived;
    assert(*end >= 0.0);
    inputs->produced = *end > inputs->produced ? *end : inputs->produced;
    inputs->ready = *arrived > inputs->ready ? *arrived : inputs->ready;
    return NULL;
}

static uint32_t take_waiters(double *awaited) {
    return *awaited > -2.0 ? NOBODY : (uint32_t)(-2.0 - *awaited);
}

static void wake(struct weir__sim *sim, uint32_t waiter) {
    while (waiter != NOBODY) {
        assert(sim->ready_count < sim->table->worker_count);
        sim->ready[sim->ready_count++] = waiter;
        waiter = sim->workers[waiter].next_waiter;
    }
}

static inline bool write_end(struct weir__sim *sim, double *awaited, double end) {
    if (*awaited >= 0.0) return false; /* it ran before: the table has it twice */
    uint32_t waiter = take_waiters(awaited);
    *awaited = end;
    if (waiter != NOBODY) wake(sim, waiter);
    return true;
}

bool weir__sim_tell(struct weir__sim *sim, double *awaited, double end) {
    return write_end(sim, awaited, end);
}

/* The first skip that is not there yet, or NULL. */
static double *missing_value(struct weir__sim *sim, const struct weir__sim_stage *stage,
                             uint32_t micro_batch, struct inputs *inputs) {
    assert(stage->values_end == stage->gradients_begin);
    for (uint32_t i = stage->values_begin; i < stage->values_end; i++) {
        const struct weir__sim_feed *feed = &sim->feeds[i];
        double *end = &weir__sim_cell(sim, feed->stage, micro_batch)->forward;
        uint32_t input = 2u * sim->table->stage_count + i;
        double *lacks = lacking(sim, inputs, end, feed->copy, input, micro_batch);
        if (lacks != NULL) return lacks;
    }
    return NULL;
}

static double *missing_gradient(struct weir__sim *sim, const struct weir__sim_stage *stage,
                                uint32_t micro_batch, struct inputs *inputs) {
    for (uint32_t i = stage->gradients_begin; i < stage->gradients_end; i++) {
        const struct weir__sim_feed *feed = &sim->feeds[i];
        double *end = &weir__sim_cell(sim, feed->stage, micro_batch)->gradient;
        uint32_t input = 2u * sim->table->stage_count + i;
        double *lacks = lacking(sim, inputs, end, feed->copy, input, micro_batch);
        if (lacks != NULL) return lacks;
    }
    return NULL;
}

/* What the action of a micro-batch lacks first, or NULL. */
static inline double *missing(struct weir__sim *sim, const struct weir_action *action,
                              uint32_t reads, struct inputs *inputs) {
    const struct weir__sim_stage *stage = &sim->stages[action->stage];
    struct weir__sim_cell *cell = weir__sim_cell(sim, action->stage, action->micro_batch);
    double *lacks = NULL;
    if ((reads & WEIR__INPUTS) != 0 && stage->takes_value) {
        assert(action->stage > 0);
        double *end = &(cell - sim->stride)->forward;
        lacks = lacking(sim, inputs, end, stage->value_copy, action->stage, action->micro_batch);
        if (lacks != NULL) return lacks;
    }
    if ((reads & WEIR__OUTPUT_GRADS) != 0 && stage->waits_gradient) {
        assert(action->stage + 1u < sim->table->stage_count);
        double *end = &(cell + sim->stride)->gradient;
        uint32_t input = (uint32_t)sim->table->stage_count + action->stage;
        lacks = lacking(sim, inputs, end, stage->gradient_copy, input, action->micro_batch);
        if (lacks != NULL) return lacks;
    }
    if ((reads & WEIR__SKIPS_IN) != 0)
        lacks = missing_value(sim, stage, action->micro_batch, inputs);
    if (lacks == NULL && (reads & WEIR__SKIP_GRADS_IN) != 0)
        lacks = missing_gradient(sim, stage, action->micro_batch, inputs);
    if (lacks == NULL && (reads & WEIR__SAVED) != 0 && cell->forward < 0.0) {
        lacks = &cell->forward; /* it stands later in the line, so this never ends */
    }
    if (lacks == NULL && (reads & WEIR__WEIGHT_INPUTS) != 0 && cell->gradient < 0.0)
        lacks = &cell->gradient;
    uint32_t ahead = stage->facts.ahead;
    if (lacks == NULL && (reads & WEIR__INPUTS) != 0 && ahead != 0 &&
        action->micro_batch >= ahead) {
        assert(action->stage + 1u < sim->table->stage_count);
        double *end = &(cell + sim->stride - ahead)->forward;
        lacks = known(inputs, end, 0.0) ? NULL : end;
    }
    return lacks;
}

static void park(struct weir__sim *sim, uint32_t worker, double *awaited) {
    assert(*awaited < 0.0 && worker < sim->table->worker_count);
    sim->workers[worker].next_waiter = take_waiters(awaited);
    *awaited = -2.0 - (double)worker;
}

/* An action of no micro-batch: N reads its stage's gradients, with other replicas' parts of its
 * slice, U everybody's norms. */
static bool stage_ready(struct weir__sim *sim, const struct weir_action *action, uint32_t reads,
                        uint32_t worker, struct inputs *inputs) {
    if ((reads & WEIR__NORMS) != 0 && sim->barrier_left > 0) {
        sim->workers[worker].next_waiter = sim->barrier_waiters;
        sim->barrier_waiters = worker;
        return false;
    }
    if ((reads & WEIR__NORMS) != 0) inputs->produced = inputs->ready = sim->barrier_end;
    if (sim->stages[action->stage].backwards_left > 0) return false;
    if (sim->shares.replicas == 1 || (reads & WEIR__NORMS) != 0) return true;
    double *whole = &sim->shares.stages[action->stage].whole;
    if (*whole < 0.0)
        park(sim, worker, whole);
    else
        inputs->produced = inputs->ready = *whole;
    return *whole >= 0.0;
}

/* What the action's orders lack first, or NULL. */
static double *missing_order(struct weir__sim *sim, uint32_t at, struct inputs *inputs) {
    assert(sim->ordered != NULL && at < sim->table->action_count);
    const struct weir_simulate_options *options = sim->options;
    for (uint32_t i = options->order_begin[at]; i < options->order_begin[at + 1]; i++) {
        double *end = &sim->ordered[options->order_from[i]];
        if (!known(inputs, end, 0.0)) return end;
    }
    return NULL;
}

/* False: the worker is parked, on something that may never come. */
static inline bool has_inputs(struct weir__sim *sim, uint32_t at, uint32_t reads, uint32_t worker,
                              struct inputs *inputs) {
    const struct weir_action *action = &sim->table->actions[at];
    double *lacks = NULL;
    if (weir__kinds[action->kind].per_micro_batch)
        lacks = missing(sim, action, reads, inputs);
    else if (!stage_ready(sim, action, reads, worker, inputs))
        return false;
    if (lacks == NULL && sim->ordered != NULL) lacks = missing_order(sim, at, inputs);
    if (lacks != NULL) park(sim, worker, lacks);
    return lacks == NULL;
}

/* ---- running ---- */

/* A number of the action's own in [0, 1): SplitMix64's finaliser of what names it. */
static double uniform(uint64_t seed, const struct weir_action *action) {
    uint64_t x = (uint64_t)action->micro_batch << 24 | (uint64_t)action->stage << 8 | action->kind;
    x = (x + 1) * UINT64_C(0x9E3779B97F4A7C15) ^ (seed + 1) * UINT64_C(0xD1342543DE82EF95);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

static inline double seconds_of(struct weir__sim *sim, const struct weir_action *action) {
    double seconds = sim->stages[action->stage].facts.seconds[action->kind];
    if (sim->scale != NULL) seconds *= sim->scale[action->micro_batch];
    if (sim->noise > 0.0)
        seconds *= 1.0 + sim->noise * (2.0 * uniform(sim->options->seed, action) - 1.0);
    return seconds;
}

static inline void count_time(struct weir__sim *sim, const struct weir_action *action,
                              double seconds) {
    struct weir__sim_kind *kind = &sim->kinds[action->kind];
    kind->least = kind->count == 0 || seconds < kind->least ? seconds : kind->least;
    kind->most = kind->count == 0 || seconds > kind->most ? seconds : kind->most;
    kind->sum += seconds;
    kind->count++;
}

/* The time before an action, in parts: waiting until produced, then copy, then host. */
static inline void split_wait(struct weir__sim_worker *worker, const struct inputs *inputs,
                              double start) {
    double now = worker->free > 0.0 ? worker->free : 0.0;
    double produced = inputs->produced > now ? inputs->produced : now;
    double ready = inputs->ready > produced ? inputs->ready : produced;
    ready = ready < start ? ready : start; /* the first action has no host time before it */
    worker->copy += ready - produced;
    worker->host += start - ready;
}

/* False where the action stands twice. */
static bool publish(struct weir__sim *sim, uint32_t at, double end) {
    const struct weir_action *action = &sim->table->actions[at];
    uint32_t writes = weir__kinds[action->kind].writes;
    bool fresh = true;
    if (sim->ordered != NULL) write_end(sim, &sim->ordered[at], end);
    if ((writes & (WEIR__OUTPUTS | WEIR__INPUT_GRADS)) != 0) {
        struct weir__sim_cell *cell = weir__sim_cell(sim, action->stage, action->micro_batch);
        bool forward = (writes & WEIR__OUTPUTS) != 0;
        if (sim->over_ranks) weir__sim_send(sim, action->stage, !forward, action->micro_batch, end);
        fresh = write_end(sim, forward ? &cell->forward : &cell->gradient, end);
    }
    if ((writes & (WEIR__PARAM_GRADS | WEIR__NORMS)) != 0) {
        assert(sim->barrier_left > 0);
        bool gradient = (writes & WEIR__PARAM_GRADS) != 0;
        sim->stages[action->stage].backwards_left -= gradient;
        if (gradient && sim->stages[action->stage].backwards_left == 0 && sim->shares.costs != NULL)
            weir__sim_share(sim, action->stage, WEIR__SIM_GRADIENTS, end);
        sim->barrier_end = end > sim->barrier_end ? end : sim->barrier_end;
        if (--sim->barrier_left == 0) {
            wake(sim, sim->barrier_waiters);
            sim->barrier_waiters = NOBODY;
        }
    }
    if ((writes & WEIR__PARAMETERS) != 0 && sim->shares.costs != NULL)
        weir__sim_share(sim, action->stage, WEIR__SIM_PARAMETERS, end);
    return fresh;
}

static struct weir__sim_amount *live_bytes(struct weir__sim *sim, uint32_t stage) {
    return &sim->workers[sim->stages[stage].facts.worker].live[WEIR__BYTES];
}

/* Sums of groups beside a stage's own, and what arrives from other replicas until its norm has
 * added it up. */
static void begin_sums(struct weir__sim *sim, const struct weir_action *action,
                       const struct weir__sim_sums *sums, double start) {
    const struct weir__sim_share *share = &sim->shares.stages[action->stage];
    bool last = sim->stages[action->stage].backwards_left == 1;
    uint64_t arrives = last ? (sim->shares.replicas - 1) * share->slice : 0;
    uint64_t bytes = sums->begun * share->bytes + arrives;
    if (bytes > 0) begin_live(live_bytes(sim, action->stage), start, bytes);
}

static void end_sums(struct weir__sim *sim, const struct weir_action *action,
                     const struct weir__sim_sums *sums, double end) {
    const struct weir__sim_share *share = &sim->shares.stages[action->stage];
    bool norm = (weir__kinds[action->kind].writes & WEIR__NORMS) != 0;
    uint64_t arrived = norm ? (sim->shares.replicas - 1) * share->slice : 0;
    uint64_t bytes = sums->added * share->bytes + arrived;
    if (bytes > 0) end_live(live_bytes(sim, action->stage), end, bytes);
}

/* Its end is known then, to its worker alone. */
static void begin_action(struct weir__sim *sim, uint32_t at, struct weir__sim_worker *worker,
                         const struct inputs *inputs) {
    assert(at < sim->table->action_count && sim->done_count < sim->table->action_count);
    const struct weir_action *action = &sim->table->actions[at];
    const struct weir__kind_facts *kind = &weir__kinds[action->kind];
    struct weir__sim_sums sums = {0};
    double seconds = seconds_of(sim, action);
    bool adds = sim->shares.costs != NULL && (kind->writes & WEIR__PARAM_GRADS) != 0;
    if (adds) {
        sums = weir__sim_sum(sim, action);
        seconds += (double)(sums.added * sim->shares.stages[action->stage].bytes) *
                   sim->shares.add_seconds_per_byte;
    }
    double start = (worker->free > inputs->ready ? worker->free : inputs->ready) + sim->host;
    double end = start + seconds;
    if (sim->start != NULL) {
        sim->start[at] = start;
        sim->end[at] = end;
    }
    if (adds) begin_sums(sim, action, &sums, start);
    if (kind->in_step) {
        split_wait(worker, inputs, start);
        count_time(sim, action, seconds);
        worker->busy += seconds;
        worker->first = worker->first < 0.0 ? start : worker->first;
        worker->last = end;
        account(sim, action, start, end);
    }
    if (sim->shares.costs != NULL) end_sums(sim, action, &sums, end);
    worker->free = end;
    sim->done_count++;
}

/* Until it is parked or at its line's end, over ranks until an action has begun; false where an
 * action stands twice. */
static bool run_worker(struct weir__sim *sim, uint32_t w) {
    assert(w < sim->table->worker_count);
    struct weir__sim_worker *worker = &sim->workers[w];
    uint32_t end = sim->table->lines[w + 1];
    bool late = sim->options->recompute_late;
    while (worker->cursor < end) {
        const struct weir_action *action = &sim->table->actions[worker->cursor];
        uint32_t reads = weir__reads_of(action->kind, late);
        struct inputs inputs = {-sim->host, -sim->host}; /* before the first start, at 0 */
        if (!has_inputs(sim, worker->cursor, reads, w, &inputs)) return true;
        begin_action(sim, worker->cursor, worker, &inputs);
        if (sim->over_ranks) {
            weir__sim_push(sim, worker->free, w);
            return true;
        }
        if (!publish(sim, worker->cursor++, worker->free)) return false;
    }
    return true;
}

void weir__sim_rewind(struct weir__sim *sim) {
    const struct weir_table *table = sim->table;
    assert(sim->stride >= table->micro_batch_count);
    for (size_t i = 0; i < table->stage_count * sim->stride; i++)
        sim->cells[i] = (struct weir__sim_cell){-1.0, -1.0};
    for (uint32_t a = 0; sim->ordered != NULL && a < table->action_count; a++)
        sim->ordered[a] = -1.0;
    for (uint32_t s = 0; s < table->stage_count; s++) {
        sim->stages[s].backwards_left = sim->stages[s].backwards;
        sim->stages[s].activations = (struct weir__sim_amount){.at = -1.0};
    }
    sim->ready_count = 0;
    for (uint32_t w = table->worker_count; w-- > 0;) {
        /* The step begins with the first start, which no host time comes before. */
        sim->workers[w] = (struct weir__sim_worker){.cursor = table->lines[w],
                                                    .next_waiter = NOBODY,
                                                    .free = -sim->host,
                                                    .first = -1.0,
                                                    .live = {{.at = -1.0}, {.at = -1.0}}};
        sim->ready[sim->ready_count++] = w;
    }
    sim->done_count = 0;
    sim->barrier_waiters = NOBODY;
    sim->barrier_left = sim->barrier_total;
    sim->barrier_end = 0.0;
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) sim->kinds[k] = (struct weir__sim_kind){0};
    if (sim->over_ranks) weir__sim_rewind_ranks(sim);
    if (sim->shares.costs != NULL) weir__sim_rewind_shares(sim);
}

static void finish(struct weir__sim *sim) {
    sim->step = 0.0;
    sim->total = sim->shares.gathered;
    for (uint32_t w = 0; w < sim->table->worker_count; w++) {
        struct weir__sim_worker *worker = &sim->workers[w];
        for (int amount = 0; amount < WEIR__AMOUNTS; amount++) settle(&worker->live[amount]);
        sim->step = worker->last > sim->step ? worker->last : sim->step;
        sim->total = worker->free > sim->total ? worker->free : sim->total;
    }
    for (uint32_t s = 0; s < sim->table->stage_count; s++) settle(&sim->stages[s].activations);
}

static bool run_ready(struct weir__sim *sim) {
    while (sim->ready_count > 0) {
        if (!run_worker(sim, sim->ready[--sim->ready_count])) return false;
    }
    return true;
}

bool weir__sim_run(struct weir__sim *sim) {
    struct weir__sim_event event;
    assert(sim->ready_count == sim->table->worker_count && sim->done_count == 0);
    if (!run_ready(sim)) return false;
    while (sim->over_ranks && weir__sim_pop(sim, &event)) {
        if (!publish(sim, sim->workers[event.worker].cursor++, event.end)) return false;
        sim->ready[sim->ready_count++] = event.worker;
        if (!run_ready(sim)) return false;
    }
    finish(sim);
    return sim->done_count == sim->table->action_count;
}

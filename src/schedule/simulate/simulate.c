/* SPDX-License-Identifier: MIT */
/*
 * The simulator's frame: costs are checked and laid out by stage, the walk (run.c) puts
 * times on the table, and what it found becomes a prediction. All buffers are one block, carved
 * anew for every table and replaced only by a larger one.
 */
#include "schedule/simulate/simulate.h"
#include "skip/skip.h"

#include <math.h>
#include <string.h>

struct weir_simulator {
    const struct weir_allocator *allocator;
    void *block;
    size_t block_bytes;
    struct weir__sim sim;
};

int weir_simulator_new(const struct weir_allocator *allocator, struct weir_simulator **simulator) {
    if (simulator == NULL) return WEIR_ERR_ARGUMENT;
    struct weir_simulator *made = weir__acquire(allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->allocator = allocator;
    *simulator = made;
    return WEIR_OK;
}

void weir_simulator_destroy(struct weir_simulator *simulator) {
    if (simulator == NULL) return;
    weir__release(simulator->allocator, simulator->block, simulator->block_bytes, 1);
    weir__release(simulator->allocator, simulator, 1, sizeof *simulator);
}

/* ---- what was asked ---- */

static bool is_cost(double value) {
    return isfinite(value) && value >= 0.0;
}

static void check_costs(const double *costs, size_t count, const char *what,
                        struct weir_faults *faults) {
    for (size_t i = 0; costs != NULL && i < count; i++) {
        if (!is_cost(costs[i])) {
            weir_faults_add(faults, "%s %zu is %g: give a number of seconds, not negative", what, i,
                            costs[i]);
            return;
        }
    }
}

bool weir__is_link(const struct weir_link_cost *link) {
    return is_cost(link->latency) && is_cost(link->seconds_per_byte);
}

static void check_link(const struct weir_link_cost *link, struct weir_faults *faults) {
    if (!weir__is_link(link)) {
        weir_faults_add(faults,
                        "a link of %g s and %g s per byte: both must be finite and not negative",
                        link->latency, link->seconds_per_byte);
    }
}

bool weir__simulate_check_skips(const struct weir_skip_route *skips, uint32_t count,
                                uint32_t stages, struct weir_faults *faults) {
    bool sound = true;
    if (count > 0 && skips == NULL) {
        weir_faults_add(faults, "skip_count is %u but skips is NULL", (unsigned)count);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (skips[i].reader_count > 0 && weir__skip_route_is_valid(&skips[i], stages)) continue;
        weir_faults_add(faults,
                        "skip %u: its readers must be stages after its source, in ascending order",
                        (unsigned)i);
        sound = false;
    }
    return sound;
}

static void check_orders(const struct weir_simulate_options *options, struct weir_faults *faults) {
    uint32_t actions = options->table->action_count;
    const uint32_t *begin = options->order_begin;
    bool sound = begin == NULL || begin[0] == 0;
    for (uint32_t a = 0; begin != NULL && sound && a < actions; a++) {
        sound = begin[a] <= begin[a + 1];
        for (uint32_t i = begin[a]; sound && i < begin[a + 1]; i++)
            sound = options->order_from != NULL && options->order_from[i] < actions;
    }
    if (!sound) {
        weir_faults_add(faults, "the orders do not name the table's %u action%s", (unsigned)actions,
                        weir__s(actions));
    }
}

/* Every cost that cannot be. */
static void check_options(const struct weir_simulate_options *options, struct weir_faults *faults) {
    const struct weir_table *table = options->table;
    uint32_t stages = table->stage_count, workers = table->worker_count;
    check_costs(options->kind_seconds, WEIR_KIND_COUNT, "the time of kind", faults);
    check_costs(options->stage_seconds, (size_t)stages * WEIR_KIND_COUNT, "the time of task",
                faults);
    check_costs(options->micro_batch_scale, table->micro_batch_count, "the scale of micro-batch",
                faults);
    check_costs(&options->host_seconds, 1, "the host's time", faults);
    if (!(options->noise >= 0.0 && options->noise <= 1.0))
        weir_faults_add(faults, "a noise of %g: give 0 to 1", options->noise);
    check_link(&options->link, faults);
    for (size_t i = 0; options->links != NULL && i < (size_t)workers * workers; i++)
        check_link(&options->links[i], faults);
    weir__simulate_check_skips(options->skips, options->skip_count, stages, faults);
    uint32_t replicas = options->shared != NULL ? options->shared->replicas : 1;
    if (options->shared != NULL) weir__sim_check_shared(options, faults);
    if (options->ranks != NULL) weir__check_rank_links(options->ranks, replicas * workers, faults);
    check_costs(options->worker_paces, (size_t)replicas * workers, "the pace of worker", faults);
    check_orders(options, faults);
}

static int read_options(const struct weir_simulate_options *options,
                        struct weir_simulate_options *own, struct weir_faults *faults) {
    if (!weir__is_sized(options)) {
        weir_faults_add(faults, "weir_simulate: " WEIR__BEGIN_WITH, "WEIR_SIMULATE_OPTIONS_INIT");
        return WEIR_ERR_ARGUMENT;
    }
    *own = *options;
    const struct weir_table *table = own->table;
    if (table == NULL || table->stage_count == 0 || table->stage_count > UINT16_MAX ||
        table->worker_count == 0 || table->micro_batch_count == 0) {
        weir_faults_add(faults, "weir_simulate: there is no table, or it is empty");
        return WEIR_ERR_ARGUMENT;
    }
    struct weir_faults found = WEIR_FAULTS_INIT;
    struct weir_faults *list = faults != NULL ? faults : &found;
    uint32_t before = list->count;
    check_options(own, list);
    bool refused = list->count > before;
    weir_faults_clean_up(&found);
    return refused ? WEIR_ERR_ARGUMENT : WEIR_OK;
}

/* ---- memory ---- */

/** A block being divided: without a base only the bytes are counted. */
struct carve {
    char *base;
    size_t used;
    bool overflow;
};

static void *take(struct carve *carve, size_t count, size_t bytes) {
    size_t total = 0, end = 0;
    if (!weir__multiply(count, bytes, &total) || !weir__round_up(total, WEIR__CACHE_LINE, &total) ||
        !weir__add(carve->used, total, &end)) {
        carve->overflow = true;
        return NULL;
    }
    void *at = carve->base != NULL ? carve->base + carve->used : NULL;
    carve->used = end;
    return at;
}

static size_t count_feeds(const struct weir_simulate_options *options) {
    size_t count = 0;
    for (uint32_t i = 0; i < options->skip_count; i++)
        count += 2 * (size_t)options->skips[i].reader_count;
    return options->shared != NULL ? count * options->shared->replicas : count;
}

static void carve_shares(struct weir__sim *sim, struct carve *carve) {
    struct weir__sim_shares *shares = &sim->shares;
    size_t stages = sim->table->stage_count, sums = 0;
    if (shares->costs == NULL) return;
    if (!weir__multiply(stages, shares->costs->groups, &sums)) carve->overflow = true;
    shares->stages = take(carve, stages, sizeof *shares->stages);
    shares->left = take(carve, sums, sizeof *shares->left);
    shares->complete = take(carve, 2 * sums, sizeof *shares->complete);
    for (int what = 0; what < WEIR__SIM_SENT; what++) {
        shares->queues[what] = take(carve, shares->rank_count, sizeof *shares->queues[what]);
        shares->queued[what] = take(carve, stages, sizeof *shares->queued[what]);
    }
}

static void carve_ranks(struct weir__sim *sim, struct carve *carve) {
    const struct weir_table *table = sim->table;
    struct weir__sim_ranks *ranks = &sim->ranks;
    size_t stages = sim->over_ranks ? table->stage_count : 0, arrivals = 0;
    size_t feeds = sim->over_ranks ? count_feeds(sim->options) : 0;
    if (!sim->over_ranks) return;
    if (!weir__multiply(2 * stages + feeds, sim->stride, &arrivals)) carve->overflow = true;
    ranks->events = take(carve, table->worker_count, sizeof *ranks->events);
    ranks->line_free =
        take(carve, 2 * (size_t)sim->options->ranks->rank_count, sizeof *ranks->line_free);
    size_t messages = weir__sim_messages_max(sim->options), queued = 0;
    if (!weir__multiply(messages, table->micro_batch_count, &queued)) carve->overflow = true;
    ranks->messages = take(carve, messages, sizeof *ranks->messages);
    ranks->lanes = take(carve, messages, sizeof *ranks->lanes);
    ranks->lane_of = take(carve, table->worker_count, sizeof *ranks->lane_of);
    ranks->queue = take(carve, queued, sizeof *ranks->queue);
    ranks->message_of = take(carve, 2 * stages + feeds, sizeof *ranks->message_of);
    ranks->made = take(carve, arrivals, 1);
    ranks->input_count = (uint32_t)(2 * stages + feeds);
    ranks->first = take(carve, 2 * stages, sizeof *ranks->first);
    ranks->last = take(carve, 2 * stages, sizeof *ranks->last);
    ranks->taken = take(carve, 2 * stages, sizeof *ranks->taken);
    ranks->arrived = take(carve, arrivals, sizeof *ranks->arrived);
}

static void carve_all(struct weir__sim *sim, struct carve *carve) {
    const struct weir_table *table = sim->table;
    assert(sim->stride >= table->micro_batch_count);
    size_t stages = table->stage_count, workers = table->worker_count;
    size_t cells = 0;
    carve->overflow = !weir__multiply(stages, sim->stride, &cells);
    sim->cells = take(carve, cells, sizeof *sim->cells);
    sim->stages = take(carve, stages, sizeof *sim->stages);
    sim->workers = take(carve, workers, sizeof *sim->workers);
    sim->feeds = take(carve, count_feeds(sim->options), sizeof *sim->feeds);
    sim->predicted = take(carve, workers, sizeof *sim->predicted);
    sim->stage_peaks = take(carve, stages, sizeof *sim->stage_peaks);
    sim->ready = take(carve, workers, sizeof *sim->ready);
    sim->recomputed = take(carve, cells / 8 + 1, 1);
    size_t actions = sim->options->want_actions ? table->action_count : 0;
    sim->start = take(carve, actions, sizeof *sim->start);
    sim->end = take(carve, actions, sizeof *sim->end);
    size_t ordered = sim->options->order_begin != NULL ? table->action_count : 0;
    sim->ordered = take(carve, ordered, sizeof *sim->ordered);
    carve_ranks(sim, carve);
    carve_shares(sim, carve);
}

/* Cells of neighbour stages are read together: a stride of an odd number of cache lines keeps them
 * out of each other's sets. */
static size_t stride_of(uint32_t micro_batches) {
    size_t lines = ((size_t)micro_batches * sizeof(struct weir__sim_cell)) / WEIR__CACHE_LINE + 1;
    return (lines | 1) * (WEIR__CACHE_LINE / sizeof(struct weir__sim_cell));
}

static bool grow(struct weir_simulator *simulator, size_t bytes) {
    assert((simulator->block == NULL) == (simulator->block_bytes == 0));
    if (bytes <= simulator->block_bytes) return true;
    weir__release(simulator->allocator, simulator->block, simulator->block_bytes, 1);
    simulator->block = weir__acquire(simulator->allocator, bytes, 1);
    simulator->block_bytes = simulator->block != NULL ? bytes : 0;
    return simulator->block != NULL;
}

static int lay_out(struct weir_simulator *simulator) {
    struct weir__sim *sim = &simulator->sim;
    const struct weir_table *table = sim->table;
    /* Memory must follow what the table holds, not what it claims. */
    uint64_t cells = (uint64_t)table->stage_count * table->micro_batch_count;
    if (cells > (uint64_t)table->action_count + 4096) return WEIR_ERR_SCHEDULE;
    sim->stride = stride_of(table->micro_batch_count);
    struct carve carve = {0};
    carve_all(sim, &carve);
    if (carve.overflow) return WEIR_ERR_OVERFLOW;
    if (!grow(simulator, carve.used)) return WEIR_ERR_OUT_OF_MEMORY;
    carve = (struct carve){.base = simulator->block};
    carve_all(sim, &carve);
    assert(carve.used <= simulator->block_bytes);
    if (!sim->options->want_actions) sim->start = sim->end = NULL;
    if (sim->options->order_begin == NULL) sim->ordered = NULL;
    return WEIR_OK;
}

/* ---- the table ---- */

static bool is_sound(const struct weir_table *table, const struct weir_action *action) {
    if (action->kind >= WEIR_KIND_COUNT || action->stage >= table->stage_count) return false;
    uint32_t numbers = weir__kinds[action->kind].per_micro_batch ? table->micro_batch_count : 1;
    return action->micro_batch < numbers;
}

/* Enters what the walk must know of an action beforehand; false if it cannot be. */
static bool enter(struct weir__sim *sim, const struct weir_action *action, uint32_t worker) {
    assert(worker < sim->table->worker_count);
    if (!is_sound(sim->table, action)) return false;
    struct weir__sim_stage *stage = &sim->stages[action->stage];
    uint32_t writes = weir__kinds[action->kind].writes;
    uint32_t *owner = &stage->facts.worker;
    if (*owner == UINT32_MAX) *owner = worker;
    stage->backwards += (writes & WEIR__PARAM_GRADS) != 0;
    stage->sends = stage->sends || (writes & WEIR__INPUT_GRADS) != 0;
    sim->barrier_total += (writes & (WEIR__PARAM_GRADS | WEIR__NORMS)) != 0;
    sim->actions += weir__kinds[action->kind].in_step;
    if ((writes & WEIR__SAVED) != 0 && (writes & WEIR__OUTPUTS) == 0) {
        size_t bit = (size_t)action->stage * sim->table->micro_batch_count + action->micro_batch;
        sim->recomputed[bit / 8] |= (uint8_t)(1u << (bit % 8));
    }
    return *owner == worker;
}

static int enter_table(struct weir__sim *sim) {
    const struct weir_table *table = sim->table;
    size_t cells = (size_t)table->stage_count * table->micro_batch_count;
    memset(sim->recomputed, 0, cells / 8 + 1);
    sim->actions = sim->barrier_total = 0;
    for (uint32_t s = 0; s < table->stage_count; s++)
        sim->stages[s] = (struct weir__sim_stage){.facts = {.worker = UINT32_MAX}};
    if (table->lines[0] != 0 || table->lines[table->worker_count] != table->action_count)
        return WEIR_ERR_SCHEDULE;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        if (table->lines[w] > table->lines[w + 1]) return WEIR_ERR_SCHEDULE;
    }
    for (uint32_t w = 0; w < table->worker_count; w++) {
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            if (!enter(sim, &table->actions[a], w)) return WEIR_ERR_SCHEDULE;
        }
    }
    return WEIR_OK;
}

/* ---- costs by stage ---- */

static bool crosses(const struct weir__sim *sim, uint32_t from, uint32_t to) {
    return sim->stages[from].facts.worker != sim->stages[to].facts.worker;
}

static double copy_of(const struct weir__sim *sim, uint32_t from, uint32_t to, uint64_t bytes) {
    assert(from < sim->table->stage_count && to < sim->table->stage_count);
    return weir__copy_seconds(sim->options, sim->table->worker_count,
                              sim->stages[from].facts.worker, sim->stages[to].facts.worker, bytes);
}

static void cost_stage(struct weir__sim *sim, uint32_t s) {
    assert(s < sim->table->stage_count);
    const struct weir_simulate_options *options = sim->options;
    struct weir__sim_stage *stage = &sim->stages[s];
    uint32_t own = weir__sim_own(sim, s);
    bool last = own + 1 == sim->shares.each;
    stage->facts = weir__stage_facts_of(options, own, stage->facts.worker, stage->backwards > 0,
                                        !last && crosses(sim, s, s + 1));
    stage->takes_value = own > 0;
    if (own > 0) stage->value_copy = copy_of(sim, s - 1, s, weir__border_bytes(options, own - 1));
    stage->waits_gradient =
        !last && sim->stages[s + 1].sends && weir__border_differentiable(options, own);
    if (!last) stage->gradient_copy = copy_of(sim, s + 1, s, weir__border_bytes(options, own));
}

/* Each hand-over of a value (or of a gradient): feeds, grouped by the stage that receives. */
typedef void hand_over_fn(struct weir__sim *sim, uint32_t from, uint32_t to, uint64_t bytes);

static void visit_skip(struct weir__sim *sim, const struct weir_skip_route *skip, uint32_t base,
                       bool gradient, hand_over_fn *visit) {
    for (uint32_t r = 0; r < skip->reader_count; r++) {
        uint32_t reader = base + skip->readers[r];
        uint32_t before = base + (r == 0 ? skip->source : skip->readers[r - 1]);
        if (!gradient)
            visit(sim, base + skip->source, reader, skip->bytes);
        else if (skip->differentiable && sim->stages[reader].sends)
            visit(sim, reader, before, skip->bytes);
    }
}

static void each_skip(struct weir__sim *sim, bool gradient, hand_over_fn *visit) {
    for (uint32_t base = 0; base < sim->table->stage_count; base += sim->shares.each)
        for (uint32_t i = 0; i < sim->options->skip_count; i++)
            visit_skip(sim, &sim->options->skips[i], base, gradient, visit);
}

static void count_value(struct weir__sim *sim, uint32_t from, uint32_t to, uint64_t bytes) {
    (void)from, (void)bytes;
    sim->stages[to].values_end++;
}

static void count_gradient(struct weir__sim *sim, uint32_t from, uint32_t to, uint64_t bytes) {
    (void)from, (void)bytes;
    sim->stages[to].gradients_end++;
}

static void place_value(struct weir__sim *sim, uint32_t from, uint32_t to, uint64_t bytes) {
    assert(sim->stages[to].values_end < sim->stages[to].gradients_begin);
    double copy = copy_of(sim, from, to, bytes);
    sim->feeds[sim->stages[to].values_end++] = (struct weir__sim_feed){from, copy};
}

static void place_gradient(struct weir__sim *sim, uint32_t from, uint32_t to, uint64_t bytes) {
    double copy = copy_of(sim, from, to, bytes);
    sim->feeds[sim->stages[to].gradients_end++] = (struct weir__sim_feed){from, copy};
}

static void cost_skips(struct weir__sim *sim) {
    uint32_t used = 0;
    each_skip(sim, false, count_value);
    each_skip(sim, true, count_gradient);
    for (uint32_t s = 0; s < sim->table->stage_count; s++) {
        struct weir__sim_stage *stage = &sim->stages[s];
        uint32_t values = stage->values_end, gradients = stage->gradients_end;
        stage->values_begin = stage->values_end = used;
        stage->gradients_begin = stage->gradients_end = used + values;
        used += values + gradients;
    }
    each_skip(sim, false, place_value);
    each_skip(sim, true, place_gradient);
}

/* ---- what moves ---- */

static void move(struct weir_prediction *prediction, uint64_t bytes) {
    prediction->moved_bytes += bytes;
    prediction->transfers++;
}

/* A value goes to a worker once, whichever of its stages reads it first. */
static bool had_it(const struct weir__sim *sim, const struct weir_skip_route *skip,
                   uint32_t reader) {
    assert(reader < skip->reader_count);
    uint32_t worker = sim->stages[skip->readers[reader]].facts.worker;
    bool had = sim->stages[skip->source].facts.worker == worker;
    for (uint32_t r = 0; !had && r < reader; r++)
        had = sim->stages[skip->readers[r]].facts.worker == worker;
    return had;
}

static void move_skip(const struct weir__sim *sim, const struct weir_skip_route *skip,
                      struct weir_prediction *prediction) {
    for (uint32_t r = 0; r < skip->reader_count; r++) {
        uint32_t to = r == 0 ? skip->source : skip->readers[r - 1];
        bool sends = skip->differentiable && sim->stages[skip->readers[r]].sends;
        if (!had_it(sim, skip, r)) {
            move(prediction, skip->bytes);
            prediction->skip_copies++;
        }
        if (sends && crosses(sim, skip->readers[r], to)) move(prediction, skip->bytes);
    }
}

/* Of one micro-batch, then times their number. */
static void count_moves(const struct weir__sim *sim, struct weir_prediction *prediction) {
    uint32_t micro_batches = sim->table->micro_batch_count * sim->shares.replicas;
    for (uint32_t s = 0; s + 1 < sim->shares.each; s++) {
        if (!crosses(sim, s, s + 1)) continue;
        bool back = sim->stages[s].waits_gradient && sim->stages[s].backwards > 0;
        move(prediction, weir__border_bytes(sim->options, s));
        if (back) move(prediction, weir__border_bytes(sim->options, s));
    }
    for (uint32_t i = 0; i < sim->options->skip_count; i++)
        move_skip(sim, &sim->options->skips[i], prediction);
    prediction->moved_bytes *= micro_batches;
    prediction->transfers *= micro_batches;
    if (sim->shares.costs != NULL) weir__sim_count_shares(sim, prediction);
}

/* ---- the prediction ---- */

static void read_worker(const struct weir__sim *sim, uint32_t w, double step) {
    assert(w < sim->table->worker_count);
    const struct weir__sim_worker *worker = &sim->workers[w];
    struct weir_predicted_worker *out = &sim->predicted[w];
    *out = (struct weir_predicted_worker){
        .busy = worker->busy,
        .idle = step - worker->busy,
        .copy = worker->copy,
        .host = worker->host,
        .window = worker->first < 0.0 ? 0.0 : worker->last - worker->first,
        .peak_activations = worker->live[WEIR__ACTIVATIONS].peak,
        .peak_bytes = worker->live[WEIR__BYTES].peak,
    };
    out->imbalance = out->idle - out->copy - out->host;
}

/* The times of the actions that stand in one replica's table too. */
static void leave_norms_out(const struct weir__sim *sim) {
    const struct weir_table *own = sim->options->table, *table = sim->table;
    uint32_t kept = 0;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        uint32_t a = own->lines[w % own->worker_count];
        for (uint32_t at = table->lines[w]; at < table->lines[w + 1]; at++) {
            if (table->actions[at].kind != own->actions[a].kind) continue;
            sim->start[kept] = sim->start[at];
            sim->end[kept++] = sim->end[at];
            a++;
        }
    }
    assert(kept == sim->shares.replicas * own->action_count);
}

static void read_run(const struct weir__sim *sim, struct weir_prediction *prediction) {
    const struct weir_table *table = sim->table;
    double busy = 0.0;
    prediction->step = sim->step;
    prediction->total = sim->total;
    prediction->actions = sim->actions;
    prediction->worker_count = table->worker_count / sim->shares.replicas;
    prediction->stage_count = sim->shares.each;
    prediction->replicas = sim->shares.replicas;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        read_worker(sim, w, sim->step);
        const struct weir_predicted_worker *worker = &sim->predicted[w];
        double steady =
            worker->window > 0.0 ? (worker->window - worker->busy) / worker->window : 0.0;
        busy += worker->busy;
        prediction->bubble_steady = fmax(prediction->bubble_steady, steady);
    }
    for (uint32_t s = 0; s < table->stage_count; s++)
        sim->stage_peaks[s] = sim->stages[s].activations.peak;
    prediction->bubble = sim->step > 0.0 ? 1.0 - busy / (table->worker_count * sim->step) : 0.0;
    if (sim->shares.table != NULL && sim->start != NULL) leave_norms_out(sim);
    prediction->workers = sim->predicted;
    prediction->stage_peak_activations = sim->stage_peaks;
    prediction->start = sim->start;
    prediction->end = sim->end;
}

/* The same table with every kind's mean time, no copies, no host time. True where that is what ran
 * anyway. */
static bool take_means(struct weir__sim *sim) {
    bool same = sim->host <= 0.0 && !sim->over_ranks;
    double means[WEIR_KIND_COUNT] = {0.0};
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) {
        const struct weir__sim_kind *kind = &sim->kinds[k];
        bool equal = kind->count == 0 || !(kind->most > kind->least);
        if (kind->count > 0) means[k] = equal ? kind->least : kind->sum / (double)kind->count;
        same = same && equal;
    }
    for (uint32_t s = 0; s < sim->table->stage_count; s++) {
        struct weir__sim_stage *stage = &sim->stages[s];
        assert(stage->values_begin <= stage->gradients_end);
        same = same && stage->value_copy <= 0.0 && stage->gradient_copy <= 0.0;
        stage->value_copy = stage->gradient_copy = 0.0;
        memcpy(stage->facts.seconds, means, sizeof means);
        for (uint32_t i = stage->values_begin; i < stage->gradients_end; i++) {
            same = same && sim->feeds[i].copy <= 0.0;
            sim->feeds[i].copy = 0.0;
        }
    }
    sim->scale = NULL;
    sim->host = sim->noise = 0.0;
    sim->over_ranks = false;
    sim->shares.free = true;
    sim->shares.add_seconds_per_byte = 0.0; /* means have it */
    return same;
}

/* Splits waiting (which stands in imbalance) into what even times would wait too, and the rest. */
static bool split_waiting(struct weir__sim *sim) {
    assert(!sim->options->no_causes);
    uint32_t workers = sim->table->worker_count;
    bool same = take_means(sim);
    if (!same) {
        sim->start = sim->end = NULL;
        weir__sim_rewind(sim);
        if (!weir__sim_run(sim)) return false;
    }
    for (uint32_t w = 0; w < workers; w++) {
        struct weir_predicted_worker *out = &sim->predicted[w];
        out->dependency = same ? out->imbalance : sim->step - sim->workers[w].busy;
        out->imbalance -= out->dependency;
    }
    return true;
}

/* What is shared, in numbers of the table that is given. */
static void begin_shares(struct weir__sim *sim) {
    const struct weir_shared_costs *costs = sim->options->shared;
    struct weir__sim_shares *shares = &sim->shares;
    *shares = (struct weir__sim_shares){
        .costs = costs, .replicas = 1, .each = sim->table->stage_count, .rank_count = 1};
    if (costs == NULL) return;
    shares->replicas = shares->rank_count = costs->replicas;
    shares->add_seconds_per_byte = costs->add_seconds_per_byte;
    shares->group_size = (sim->table->micro_batch_count - 1) / costs->groups + 1;
    if (sim->options->ranks != NULL) shares->rank_count = sim->options->ranks->rank_count;
}

static int run(struct weir_simulator *simulator, struct weir_prediction *prediction) {
    struct weir__sim *sim = &simulator->sim;
    begin_shares(sim);
    int status = weir__sim_expand(sim, simulator->allocator);
    if (status != WEIR_OK) return status;
    if ((status = lay_out(simulator)) != WEIR_OK) return status;
    if ((status = enter_table(sim)) != WEIR_OK) return status;
    for (uint32_t s = 0; s < sim->table->stage_count; s++) cost_stage(sim, s);
    cost_skips(sim);
    if (sim->over_ranks) weir__sim_list_messages(sim);
    if (sim->shares.costs != NULL) weir__sim_cost_shares(sim);
    weir__sim_rewind(sim);
    if (!weir__sim_run(sim)) return WEIR_ERR_SCHEDULE;
    /* no sum that is made of it is larger */
    if (!isfinite(sim->total * sim->table->worker_count)) return WEIR_ERR_OVERFLOW;
    struct weir_prediction made = {0};
    read_run(sim, &made);
    count_moves(sim, &made);
    if (!sim->options->no_causes && !split_waiting(sim)) return WEIR_ERR_SCHEDULE;
    *prediction = made;
    return WEIR_OK;
}

/* Which actions wait for each other, unless orders or `ahead` make them. */
static void explain(const struct weir_simulate_options *options,
                    const struct weir_allocator *allocator, struct weir_faults *faults) {
    struct weir__flow flow = {.stage_count = options->table->stage_count,
                              .no_backward = options->no_backward,
                              .recompute_late = options->recompute_late};
    if (weir__table_check_flow(options->table, &flow, allocator, faults) == WEIR_OK) {
        weir_faults_add(faults, "weir_simulate: the table cannot run to its end by the orders and "
                                "skips given");
    }
}

int weir_simulate(struct weir_simulator *simulator, const struct weir_simulate_options *options,
                  struct weir_faults *faults, struct weir_prediction *prediction) {
    if (simulator == NULL || prediction == NULL) return WEIR_ERR_ARGUMENT;
    struct weir_simulate_options own;
    int status = read_options(options, &own, faults);
    if (status != WEIR_OK) return status;
    simulator->sim = (struct weir__sim){.table = own.table,
                                        .options = &own,
                                        .host = own.host_seconds,
                                        .noise = own.noise,
                                        .scale = own.micro_batch_scale,
                                        .over_ranks = own.ranks != NULL};
    status = run(simulator, prediction);
    weir_table_destroy(simulator->sim.shares.table);
    simulator->sim.shares.table = NULL;
    if (status == WEIR_ERR_SCHEDULE && faults != NULL) {
        explain(&own, simulator->allocator, faults);
    } else if (status == WEIR_ERR_OVERFLOW) {
        weir_faults_add(faults, "weir_simulate: the times, or the table's size, are too large to "
                                "add up: give shorter times");
    }
    simulator->sim.options = NULL;
    return status;
}
